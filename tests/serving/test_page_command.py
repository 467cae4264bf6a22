"""``lumion serve --page``: prints the page address and the token, and rejects invalid options."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lumion_hw.cli import main
from tests.serving.page_states import Reader

SMALL = str(Path(__file__).parents[1] / "data" / "small.yaml")


def test_it_says_where_the_page_is_and_with_which_token_it_writes(tmp_path, not_for_ever) -> None:
    command = [sys.executable, "-m", "lumion_hw.cli", "serve", SMALL, "--emulate", "--state", str(tmp_path)]
    command += ["--page", "--page-port", "0", "--page-writes", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    not_for_ever(process)
    told = json.loads(process.stdout.readline())
    assert set(told) == {"bench", "emulated", "page", "page_token"}
    headers = {"Origin": told["page"].rstrip("/"), "Content-Type": "application/json"}
    import httpx

    with httpx.Client(base_url=told["page"], headers=headers, timeout=60.0, trust_env=False) as client:
        assert client.get("/").status_code == 200
        assert 'lumion_bench_info{bench="small",emulated="true"' in client.get("/metrics").text
        assert client.post("/do/take", json={"owner": "ada"}).status_code == 403
        taken = client.post("/do/take", json={"owner": "ada"}, headers={"X-Lumion-Token": told["page_token"]})
        assert taken.json() == {"done": 1}
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert said.splitlines()[-1] == "server stopped"
    assert told["page_token"] not in said


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the child of a process")
def test_a_server_whose_emulator_is_killed_says_so_on_the_page_and_ends(tmp_path, not_for_ever) -> None:
    command = [sys.executable, "-m", "lumion_hw.cli", "serve", SMALL, "--emulate", "--state", str(tmp_path)]
    process = subprocess.Popen(
        [*command, "--page", "--page-port", "0", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    not_for_ever(process)
    page = Reader(json.loads(process.stdout.readline())["page"])
    emulator = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
    os.kill(emulator, signal.SIGKILL)
    troubles = [state["parts"].get("health", {}).get("trouble") for kind, state in page.events() if kind == "message"]
    page.close()
    _, said = process.communicate(timeout=300)
    why = f"the emulator (process {emulator}) was killed by SIGKILL"
    assert process.returncode == 1
    assert why in said
    assert why in str(troubles), "the page was not told"
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [each["reason"].startswith(why) for each in events if each["event"] == "server ends"] == [True]


def test_without_what_the_page_needs_it_says_what_to_install_and_opens_nothing(monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "starlette", None)
    assert main(["serve", "no-such-bench.yaml", "--page"]) == 2
    assert "pip install 'lumion-hw[page]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--page-writes"], "neither --pva nor --page is given"),
        (["--pva", "--page-writes"], "--page-writes needs --page"),
        (["--page", "--host", "0.0.0.0"], "other hosts can reach"),
        (["--page", "--page-writes", "--host", "127.0.0.1", "--allow", "192.0.2.7"], "plain text"),
        (["--page", "--page-port", "70000"], "70000"),
    ],
)
def test_what_cannot_be_served_is_one_paragraph(options, says, capsys) -> None:
    assert main(["serve", SMALL, "--emulate", *options]) == 2
    assert says in capsys.readouterr().err
