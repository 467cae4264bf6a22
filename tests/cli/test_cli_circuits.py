"""``lumion connect``, ``disconnect``, ``circuits``, ``budget``, ``explain`` and ``hold`` as a user meets them."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lumion_hw.circuits import read_state
from lumion_hw.cli import main
from tests import recorded_calibration
from tests.cli.test_cli_emulate import served
from tests.recorded_calibration import RECORD, SMALL
from tests.waiting import PATIENCE_S, until

SEED = str(recorded_calibration.SEED)
Run = Callable[..., dict]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command on the bench emulated in this process and return what it prints as JSON."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))

    def command(name: str, *rest: str, code: int = 0) -> dict:
        arguments = [name, str(SMALL), *rest, "--emulate", "--seed", SEED, "--record", str(RECORD), "--json"]
        assert main(arguments) == code
        document: dict = json.loads(capsys.readouterr().out)
        return document

    return command


def test_connect_and_hold_on_a_bench_emulated_in_the_command_itself(run: Run, tmp_path: Path) -> None:
    connected = run("connect", "sfp-a:sfp-b", "--both", "--lease", "1h")
    assert [each["circuit"] for each in connected["connected"]] == ["sfp-a:sfp-b", "sfp-b:sfp-a"]
    assert all(each["margin_db"] > 3.0 and not each["los"] for each in connected["connected"])
    held = run("hold", "--connect", "sfp-a:sfp-b", "--for", "10s", "--period", "2", "--state", str(tmp_path / "state"))
    assert held["held_s"] == pytest.approx(10.0, abs=2.0)
    (circuit,) = held["circuits"]
    assert circuit["fault"] is None
    assert circuit["worst_db"] < 0.3
    assert (tmp_path / "state" / "events.jsonl").read_text().count('"aligned"') == 1


def test_budget_and_explain_need_no_bench_and_count_what_stands(run: Run) -> None:
    (alone,) = run("budget", "sfp-a:sfp-b")["circuits"]
    assert alone["received_dbm"] == pytest.approx(
        alone["launch_dbm"] + alone["gain_db"] - alone["fixed_loss_db"] - alone["mesh_loss_db"]
    )
    assert alone["margin_db"] == pytest.approx(alone["received_dbm"] - alone["sensitivity_dbm"])
    both = run("explain", "sfp-a:sfp-b", "sfp-b:sfp-a")
    assert [each["circuit"] for each in both["circuits"]] == ["sfp-a:sfp-b", "sfp-b:sfp-a"]
    assert "path: port 1 to 8" in both["words"]
    refused = run("budget", "sfp-a:sfp-b", "--max-hops", "2", code=3)
    assert "expected at most 2. Feasible with max_hops=7" in refused["error"]["message"]


def test_nothing_is_connected_on_a_new_bench(run: Run, tmp_path: Path) -> None:
    assert run("circuits")["circuits"] == []
    assert run("circuits", "--check")["mesh"]["verdict"] == "as left"
    assert "no circuit" in run("disconnect", "sfp-a:sfp-b", code=2)["error"]["message"]
    taken = tmp_path / "taken.json"
    taken.write_text("{}")
    assert "taken.json" in run("hold", "--renew", str(taken), code=2)["error"]["message"]
    assert taken.read_text() == "{}"
    assert "nothing to hold" in run("hold", code=2)["error"]["message"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["connect", "bench.yaml", "sfp-a"], "'sfp-a' is not a pair; give two modules, such as sfp-a:sfp-b"),
        (["connect", "bench.yaml", "a:b:c"], "is not a pair"),
        (["connect", "bench.yaml"], "Missing argument 'FROM:TO...'"),
        (["disconnect", "bench.yaml"], "Give pairs, or --all"),
        (["disconnect", "bench.yaml", "--all", "a:b"], "Give pairs, or --all"),
        (["hold", "bench.yaml", "--for", "soon"], "'soon' is not a duration"),
        (["connect", "bench.yaml", "a:b", "--leave-on", "7200"], "is out of range; give 1 to 3600 s"),
    ],
)
def test_wrong_words_are_explained(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


def test_without_a_record_it_is_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["connect", str(SMALL), "sfp-a:sfp-b", "--emulate", "--state", str(tmp_path)]) == 2
    assert "Give --record RECORD" in capsys.readouterr().err


def test_a_record_that_is_not_certified_is_used_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lumion_hw.storage import load_record, save_record
    from tests.circuits.lasting_bench import LastingBench

    bench = LastingBench(tmp_path)
    monkeypatch.setattr("lumion_hw.cli.circuits.open_bench", lambda *_, **__: bench.open())
    record = tmp_path / "doubtful.json"
    save_record(dataclasses.replace(load_record(bench.record), faults=("not certified: the fit ended early",)), record)
    state = ["--state", str(bench.directory), "--record", str(record)]
    assert main(["connect", str(SMALL), "sfp-a:nowhere", *state]) == 3
    assert "warning: the calibration record is not certified: the fit ended early" in capsys.readouterr().err


def test_a_check_measures_and_a_circuit_without_light_has_no_margin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "circuits"))
    from lumion_hw.circuits import CircuitRequest
    from tests.circuits.lasting_bench import LastingBench

    bench = LastingBench(tmp_path)
    monkeypatch.setattr("lumion_hw.cli.circuits.open_bench", lambda *_, **__: bench.open())
    with bench.service() as service:
        service.connect([CircuitRequest("sfp-a", "sfp-b"), CircuitRequest("sfp-b", "sfp-a")], align=False)
        noted = {circuit.name: circuit.proof["margin_db"] for circuit in service.state.circuits}
    command = ["circuits", str(SMALL), "--check", "--state", str(bench.directory), "--record", str(bench.record)]
    assert main([*command, "--json"]) == 0
    for circuit in json.loads(capsys.readouterr().out)["circuits"]:
        assert circuit["margin_db"] == pytest.approx(noted[circuit["circuit"]], abs=0.5)
    with bench.open() as opened:
        opened.transponders["sfp-a"].disable()
    assert main([*command, "--json"]) == 3
    broken, well = json.loads(capsys.readouterr().out)["circuits"]
    assert "margin_db" not in broken
    assert broken["marks"][0].startswith("broken: ")
    assert well["margin_db"] is not None
    assert well["marks"] == []
    assert main(command) == 3
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("sfp-a:sfp-b"))
    assert "dB lost" not in line
    with bench.open() as opened:
        opened.mesh.program(0.0 * opened.mesh.confirmed_currents_ma())
    assert main([*command, "--json"]) == 3
    assert [each["marks"] for each in json.loads(capsys.readouterr().out)["circuits"]] == [
        ["broken: the mesh is dark"]
    ] * 2


# -- on a bench that goes on: served by `lumion emulate` in the background


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("served")
    with served(SMALL, directory, "--seed", SEED):
        yield directory / "endpoints.json"


@pytest.fixture
def lumion(tmp_path: Path, endpoints: Path) -> Callable[..., list[str]]:
    def arguments(name: str, *rest: str) -> list[str]:
        options = ["--endpoints", str(endpoints), "--state", str(tmp_path), "--record", str(RECORD)]
        return [name, str(SMALL), *rest, *options, "--json"]

    return arguments


@pytest.mark.long
def test_what_one_command_connects_the_next_ones_find(
    lumion: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(name: str, *rest: str, code: int = 0) -> dict:
        assert main(lumion(name, *rest)) == code
        document: dict = json.loads(capsys.readouterr().out)
        return document

    assert run("connect", "sfp-a:sfp-b")["standing"] == ["sfp-a:sfp-b"]
    assert run("circuits", "--check")["mesh"]["verdict"] == "as left"
    assert run("connect", "sfp-b:sfp-a")["standing"] == ["sfp-a:sfp-b", "sfp-b:sfp-a"]
    assert "connected already" in run("connect", "sfp-a:sfp-b", code=2)["error"]["message"]
    # A second program, while the first one holds.
    holding = subprocess.Popen(
        [sys.executable, "-m", "lumion_hw.cli", *lumion("hold", "--period", "0.5")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert holding.stderr is not None
        assert "sfp-a:sfp-b +" in holding.stderr.readline()  # after its first look
        assert run("circuits")["held_by"].endswith(f":{holding.pid}")
        refused = run("disconnect", "sfp-a:sfp-b", code=6)["error"]["message"]
        assert f":{holding.pid} has been driving this bench with 'lumion hold'" in refused
        holding.send_signal(signal.SIGINT)
        held = json.loads(holding.communicate(timeout=PATIENCE_S)[0])
        assert [each["fault"] for each in held["circuits"]] == [None, None]
        assert holding.returncode == 0
    finally:
        holding.kill()
    assert run("disconnect", "sfp-a:sfp-b")["standing"] == ["sfp-b:sfp-a"]
    assert run("disconnect", "--all")["standing"] == []


@pytest.mark.long
def test_killed_in_the_middle_the_next_command_takes_back_what_was_begun(
    lumion: Callable[..., list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "lumion_hw.cli", *lumion("connect", "sfp-a:sfp-b")], stdout=subprocess.DEVNULL
    ) as process:
        journal = tmp_path / "circuits.jsonl"
        until(lambda: journal.exists() and b'"begun"' in journal.read_bytes(), 60.0)
        process.kill()
    state, begun = read_state(tmp_path)
    assert state.circuits == ()
    assert begun is not None
    assert begun.pid == process.pid
    assert main(lumion("circuits", "--check")) in (0, 3)
    capsys.readouterr()
    assert main(lumion("connect", "sfp-b:sfp-a")) == 0
    assert json.loads(capsys.readouterr().out)["standing"] == ["sfp-b:sfp-a"]
    assert main(lumion("disconnect", "--all")) == 0
