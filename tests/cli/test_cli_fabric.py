"""``lumion fabric`` as a user meets it: run, fail, status, history, and requests to a manager that runs."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lumion_hw.bench.bench import load
from lumion_hw.circuits import BenchLock
from lumion_hw.cli import main
from lumion_hw.errors import CircuitError
from lumion_hw.fabric import FabricJournal, FabricManager, FabricState, StandbyStatus, fabric_status
from lumion_hw.fabric.requests import FabricRequest, RequestBox
from tests import recorded_calibration
from tests.cli.test_cli_emulate import served
from tests.recorded_calibration import RECORD, SMALL
from tests.waiting import PATIENCE_S, Bound

ON_THE_BENCH = ["--emulate", "--seed", str(recorded_calibration.SEED), "--record", str(RECORD)]
Told = Callable[..., list[dict]]


@pytest.fixture
def told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Told:
    """Run a subcommand with its state in one directory, and return the JSON documents that it prints."""

    def command(name: str, *rest: str, code: int = 0) -> list[dict]:
        assert main(["fabric", name, str(SMALL), *rest, "--state", str(tmp_path / "state"), "--json"]) == code
        text, found = capsys.readouterr().out.strip(), []
        decoder = json.JSONDecoder()
        while text:
            document, end = decoder.raw_decode(text)
            found.append(document)
            text = text[end:].lstrip()
        return found

    return command


def test_a_server_is_failed_by_hand_and_the_history_tells_where_the_time_went(told: Told) -> None:
    events = [each["event"] for each in told("run", "--for", "1s", *ON_THE_BENCH)]
    assert events[-1] == "watching"
    (status,) = told("status")
    assert [(job["units"], job["condition"]) for job in status["jobs"]] == [(["a", "b"], "connected")]
    assert (status["manager"], status["severity"], status["recovery"]) == ("", "none", None)
    failed = told("fail", "b", "--because", "ECC errors", *ON_THE_BENCH)
    assert failed[-1]["jobs"][0]["units"] == ["a", "c"]
    (status,) = told("status")
    assert [(unit["name"], unit["condition"], unit["reason"]) for unit in status["units"]][1] == (
        "b", "failed", "ECC errors",
    )  # fmt: skip
    assert (status["recovery"]["failed"], status["recovery"]["spare"]) == ("b", "c")
    (history,) = told("history")
    done = next(entry for entry in history["entries"] if entry.get("outcome") == "done")
    assert (done["failed"], done["spare"]) == ("b", "c")
    assert [span["name"] for span in done["spans"]][:3] == ["detected", "spare_chosen", "route_found"]


@pytest.mark.parametrize("fabric", ["", "servers: [{name: x, nics: [sfp-a]}]\nfabric: {spares: [x]}\n"])
def test_a_bench_without_jobs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], fabric: str) -> None:
    bench = tmp_path / "bench.yaml"
    bench.write_text(SMALL.read_text(encoding="utf-8").partition("servers:")[0] + fabric, encoding="utf-8")
    assert main(["fabric", "run", str(bench), "--for", "1s", *ON_THE_BENCH]) == 2
    captured = capsys.readouterr()
    assert f"{bench} has no jobs to keep connected" in captured.err
    assert "Add 'servers', and 'fabric' with 'pairs' or 'jobs'" in captured.err
    assert captured.out == ""


@pytest.mark.long
def test_a_job_without_a_spare_ends_with_code_3_and_the_reason(told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    told("fail", "c", *ON_THE_BENCH)
    told("fail", "b", *ON_THE_BENCH, code=3)
    (status,) = told("status")
    assert (status["severity"], status["alarms"][0]["subject"]) == ("major", "job a-b")
    assert "no free spare" in status["alarms"][0]["reason"]


@contextlib.contextmanager
def serving_requests(lock: BenchLock, state: Path, perform: Callable[[FabricRequest], Any]) -> Iterator[None]:
    """Do requests in a thread, as the manager does between two steps."""
    over = threading.Event()

    def serve() -> None:
        while not over.wait(0.001):
            RequestBox(state).serve(lock.owner, perform)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_where_a_manager_runs_it_does_what_is_asked_and_the_outcome_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[FabricRequest] = []

    def perform(request: FabricRequest) -> None:
        done.append(request)
        if request.action == "repaired":
            raise CircuitError("sfp-a:sfp-b is dark")

    target = [str(SMALL), "--state", str(tmp_path)]
    with BenchLock(tmp_path, "lumion fabric run") as lock, serving_requests(lock, tmp_path, perform):
        assert main(["fabric", "fail", *target, "b"]) == 0
        assert "every circuit of the jobs carries light" in capsys.readouterr().out
        assert main(["fabric", "recover", *target, "--repaired", "b"]) == 3
        assert "sfp-a:sfp-b is dark" in capsys.readouterr().err
        assert main(["fabric", "repaired", *target, "b"]) == 3
        assert main(["fabric", "recover", *target]) == 0
        assert main(["fabric", "drain", *target, "b", "--because", "new memory"]) == 0
        assert main(["fabric", "clear", *target, "ESTOP"]) == 0
    assert done == [
        FabricRequest("fail", "b"),
        FabricRequest("repaired", "b"),
        FabricRequest("repaired", "b"),
        FabricRequest("recover"),
        FabricRequest("drain", "b", "new memory"),
        FabricRequest("clear", "ESTOP"),
    ]


@pytest.mark.parametrize(
    ("state", "circuits", "says"),
    [
        (FabricState(), ("sfp-c:sfp-c",), "c is back as a warm spare"),
        (FabricState(cold={"c": "no path from port 6 to port 8. Use other ports."}), (),
         "c is back as a cold spare: no path from port 6 to port 8"),
        (FabricState(places={"b": "c"}), (), "c is back in service for job a-b"),
    ],
    ids=["warm", "cold", "in service"],
)  # fmt: skip
def test_the_answer_to_repaired_says_what_the_unit_does_now(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], state: FabricState, circuits: tuple[str, ...], says: str
) -> None:
    def perform(request: FabricRequest) -> dict[str, object]:
        assert request == FabricRequest("repaired", "c")
        found = fabric_status(load(SMALL), state, circuits, manager="lumion fabric run of ada@lab3:4711")
        assert found is not None
        return found.document()

    with BenchLock(tmp_path, "lumion fabric run") as lock, serving_requests(lock, tmp_path, perform):
        assert main(["fabric", "repaired", str(SMALL), "--state", str(tmp_path), "c"]) == 0
        assert capsys.readouterr().out.splitlines()[1:] == [says]


def test_the_status_of_a_running_manager_is_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def perform(request: FabricRequest) -> dict[str, object]:
        assert request == FabricRequest("status")
        state = FabricState(failed={"b": "no light"}, cold={"c": "no path"})
        standby = StandbyStatus({"a": ()}, {("a", "c"): "no path either"})
        found = fabric_status(load(SMALL), state, (), manager="lumion fabric run of ada@lab3:4711", standby=standby)
        assert found is not None
        return found.document()

    target = [str(SMALL), "--state", str(tmp_path)]
    with BenchLock(tmp_path, "lumion fabric run") as lock, serving_requests(lock, tmp_path, perform):
        assert main(["fabric", "status", *target]) == 0
        text = capsys.readouterr().out
        assert main(["fabric", "status", *target, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["plans_ready"] is True
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "MAJOR job a-b not connected without circuits sfp-a:sfp-b, sfp-b:sfp-a" in lines
    assert "MINOR spare c cold no path" in lines
    assert not [line for line in lines if "without a usable spare" in line], "the job is not connected"
    assert "lumion fabric run of ada@lab3:4711; recovery plans are ready; 0 fades, 0 false alarms" in lines


def test_the_status_of_a_busy_manager_comes_from_its_journals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lumion_hw.cli.fabric._STATUS_TIMEOUT_S", 0.0)
    with BenchLock(tmp_path, "lumion serve"):
        assert main(["fabric", "status", str(SMALL), "--state", str(tmp_path), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["units"][0]["condition"] == "job member"
    assert "(lumion serve) is busy, so this is the state of its journals" in err


def test_the_status_of_a_bench_without_servers_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench = tmp_path / "bench.yaml"
    bench.write_text(SMALL.read_text(encoding="utf-8").partition("servers:")[0], encoding="utf-8")
    assert main(["fabric", "status", str(bench), "--state", str(tmp_path)]) == 2
    assert f"{bench} has no servers" in capsys.readouterr().err


def test_a_manager_that_takes_no_request_leaves_nothing_for_the_next_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lumion_hw.cli.fabric._ACCEPT_TIMEOUT_S", 0.0)
    with BenchLock(tmp_path, "lumion fabric run"):
        assert main(["fabric", "fail", str(SMALL), "b", "--state", str(tmp_path)]) == 6
    assert "did not accept the request" in capsys.readouterr().err
    assert list((tmp_path / "requests").iterdir()) == []


def test_another_program_that_holds_the_bench_is_no_manager(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with BenchLock(tmp_path, "lumion hold"):
        assert main(["fabric", "fail", str(SMALL), "b", "--state", str(tmp_path), *ON_THE_BENCH]) == 6
    assert "has been driving this bench with 'lumion hold'" in capsys.readouterr().err
    assert not (tmp_path / "requests").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    "signal_number",
    # In a process of its own once; the next test has both signals.
    [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.campaign)],
)
def test_a_manager_that_watches_ends_at_the_first_signal(tmp_path: Path, not_for_ever: Bound, signal_number) -> None:
    with served(SMALL, tmp_path, "--seed", str(recorded_calibration.SEED)):
        command = [sys.executable, "-m", "lumion_hw.cli", "fabric", "run", str(SMALL), "--state", str(tmp_path / "s")]
        command += ["--record", str(RECORD), "--endpoints", str(tmp_path / "endpoints.json"), "--json"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        not_for_ever(process)
        while json.loads(process.stdout.readline())["event"] != "watching":
            pass
        process.send_signal(signal_number)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == (143 if signal_number == signal.SIGTERM else 0)


@pytest.mark.parametrize(("signal_number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 0)])
def test_a_signal_ends_the_run_after_the_step_that_it_meets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signal_number: int, code: int
) -> None:
    ended = []

    def run(manager: FabricManager, for_s: float, *, is_over: Callable[[], bool], between_steps: object) -> None:
        del manager, for_s, between_steps
        signal.raise_signal(signal_number)
        ended.append(is_over())  # an exception from the signal would skip this line

    monkeypatch.setattr(FabricManager, "run", run)
    state = ["--state", str(tmp_path / "state")]
    assert main(["fabric", "run", str(SMALL), "--for", "1s", *state, *ON_THE_BENCH]) == code
    assert ended == [True]


def test_status_gives_the_reason_of_a_cold_spare_and_lists_a_repaired_member(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with FabricJournal(tmp_path, "small") as journal:
        journal.record("cold spares", FabricState(places={"b": "c"}, cold={"b": "no path from port 6 to port 8"}))
    assert main(["fabric", "status", str(SMALL), "--state", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert re.search(r"^b +cold spare .* no path from port 6 to port 8$", captured.out, re.MULTILINE)
    assert re.search(r"^c +job member +a-b +b +", captured.out, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["status"], 0, "no program has driven this bench with the state in"),
        (["fail", "b"], 2, "no fabric manager runs with the state in"),
        (["recover"], 2, "To change the circuits without a manager, give --record"),
    ],
)
def test_a_command_that_finds_no_manager_says_how_to_find_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, says: str
) -> None:
    name, *rest = arguments
    assert main(["fabric", name, str(SMALL), *rest, "--state", str(tmp_path / "other")]) == code
    printed = capsys.readouterr().err
    assert says in printed
    assert "Give the same --endpoints or --state as the fabric manager" in printed


def test_nccl_gets_ranks_along_the_circuits_and_topologies_of_the_spare_that_serves(
    told: Told, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told("fail", "b", *ON_THE_BENCH)  # c takes the place of b
    bench, dumps, out = tmp_path / "bench.yaml", tmp_path / "dumps", tmp_path / "out"
    text = SMALL.read_text(encoding="utf-8")
    for name in "abc":
        text = text.replace(f"nics: [sfp-{name}]", f"nics: [sfp-{name}], interfaces: [eno{name}]")
    bench.write_text(text, encoding="utf-8")
    dumps.mkdir()
    for name in "ac":
        cpu = f'<cpu numaid="0" arch="arm64"><nic><net name="eno{name}" speed="-1"/><net name="eno9"/></nic></cpu>'
        (dumps / f"{name}.xml").write_text(f'<system version="1">{cpu}</system>', encoding="utf-8")
    command = ["fabric", "nccl", str(bench), "--state", str(tmp_path / "state"), "--dumps", str(dumps)]
    for _ in range(2):  # the second time over its own files
        assert main([*command, "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"0 +a +a +NCCL_TOPO_FILE=\S+/out/a.xml NCCL_SOCKET_IFNAME==enoa NCCL_CROSS_NIC=0", shown)
    assert re.search(r"1 +c +c +NCCL_TOPO_FILE=\S+/out/c.xml NCCL_SOCKET_IFNAME==enoc", shown)
    assert (out / "hostfile").read_text(encoding="utf-8") == "# lumion-hw\na\nc\n"
    assert (out / "c.xml").read_text(encoding="utf-8") == (
        '<system version="1" name="lumion-hw c">\n  <cpu numaid="0" arch="arm64">\n    <nic>\n'
        '      <net name="enoc"/>\n    </nic>\n  </cpu>\n</system>\n'
    )
    environment = (out / "c.env").read_text(encoding="utf-8")
    assert f"NCCL_TOPO_FILE={out / 'c.xml'}\n" in environment
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ranks"] == ["a", "c"]
    assert main([*command, "--job", "b-c"]) == 2
    assert "there is no job 'b-c'" in capsys.readouterr().err


def test_nccl_refuses_a_job_without_circuits(told: Told, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fabric", "nccl", str(SMALL), "--state", str(tmp_path / "state")]) == 3
    assert "found no ring of circuits in both directions through its 2 servers" in capsys.readouterr().err
