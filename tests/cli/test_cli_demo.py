"""`lumion demo` as a user runs it: one document, files that stay, exit codes, interrupts; on the small bench."""

import contextlib
import io
import itertools
import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from calibration.record.raw_data import load_raw, save_raw
from lumion_hw.bench.events import EventLog
from lumion_hw.cli import main
from lumion_hw.cli.demo.command import new_run_directory, omissions
from lumion_hw.storage import load_record, save_record
from tests.calibration.same_record import content
from tests.full_disk import room
from tests.recorded_calibration import RECORD, SEED, SMALL
from tests.waiting import PATIENCE_S

LUMION = [sys.executable, "-m", "lumion_hw.cli"]
SPANS = ["detected", "spare_chosen", "route_found", "programmed", "settled", "proven", "link_up"]


@dataclass(frozen=True)
class Run:
    """What a finished run left."""

    code: int
    stdout: str
    stderr: str
    directory: Path

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on stdout; ``json.loads`` refuses anything before or behind it."""
        loaded: dict[str, Any] = json.loads(self.stdout)
        return loaded


def arguments(directory: Path, *options: str) -> list[str]:
    return ["demo", "--no-plots", "--out", str(directory), "--bench", str(SMALL), *options]


def process(directory: Path, *options: str, hash_seed: str) -> Run:
    """Run `lumion demo` on the small bench to its end, in a process of its own."""
    command, environment = [*LUMION, *arguments(directory, *options)], os.environ | {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment)
    return Run(done.returncode, done.stdout, done.stderr, directory)


@pytest.fixture
def demo(capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    """Run `lumion demo` here: for what ends soon."""

    def here(directory: Path, *options: str) -> Run:
        code = main(arguments(directory, *options))
        return Run(code, *capsys.readouterr(), directory)

    return here


def recorded_calibration(_bench: object, _aligner: object, seed: int, path: Path, *_: object, **__: object) -> object:
    """Stand in for the calibration: what it leaves beside the record, as it was recorded."""
    record = load_record(RECORD)
    assert seed == SEED
    assert record.raw is not None
    record = replace(record, raw=save_raw(path, load_raw(RECORD, record.raw)))
    save_record(record, path)
    path.with_suffix(".journal").write_bytes(RECORD.with_suffix(".journal").read_bytes())
    return record


@pytest.fixture(scope="module", params=["recorded", pytest.param("process", marks=pytest.mark.long)])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The demo once, with --json: after the recorded calibration, or the whole of it in a process of its own."""
    directory = tmp_path_factory.mktemp("demo") / "out"
    if request.param == "process":
        return process(directory, "--seed", "3", "--json", hash_seed="1")
    return recorded_run(directory, "--json")


def recorded_run(directory: Path, *options: str) -> Run:
    """Run `lumion demo` here, after the recorded calibration."""
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        patch.setattr("lumion_hw.cli.demo.steps.calibrate", recorded_calibration)
        code = main(arguments(directory, "--seed", str(SEED), *options))
    return Run(code, out.getvalue(), err.getvalue(), directory)


whole = pytest.mark.parametrize("run", [pytest.param("process", marks=pytest.mark.long)], indirect=True)


def test_the_demo_ends_well_with_one_document_and_nothing_else_on_stdout(run: Run) -> None:
    assert run.code == 0, run.stderr
    assert set(run.document) == {"bench", "calibration", "circuits", "recovery", "artifacts", "left_out"}


def test_the_bench_is_the_one_asked_for(run: Run) -> None:
    bench = run.document["bench"]
    seed = int(load_record(run.directory / "calibration.json").provenance["seed"])
    assert (bench["name"], bench["seed"], bench["emulated"]) == ("small", seed, True)
    assert (bench["pucs"], bench["ports"], bench["controller_serial"]) == (15, 16, "SMALL-0001")
    assert len(bench["devices"]) == 8


def test_every_puc_is_calibrated(run: Run) -> None:
    calibration = run.document["calibration"]
    assert (calibration["complete"], calibration["faults"]) == (True, [])
    assert (calibration["pucs_calibrated"], calibration["heaters_calibrated"]) == (15, 30)
    assert calibration["held_out_excess_db"] < 0.1


@pytest.mark.parametrize(
    ("when", "ends"),
    [
        ("before", [("sfp-a", "sfp-b"), ("sfp-b", "sfp-a")]),
        ("after", [("sfp-a", "sfp-c"), ("sfp-c", "sfp-a")]),
    ],
)
def test_every_circuit_is_proven_with_its_figures(run: Run, when: str, ends: list[tuple[str, str]]) -> None:
    circuits = run.document["circuits"][when]
    assert [(circuit["source"], circuit["target"]) for circuit in circuits] == ends
    for circuit in circuits:
        assert circuit["proven"] is True
        assert circuit["hops"] == len(circuit["pucs"]) >= 1
        assert abs(circuit["measured_loss_db"] - circuit["predicted_loss_db"]) < 2.0  # loss_tolerance_db by default
        # +1 dBm + 9 dB - 0.5 dB - loss - 0.3 dB - 0.458 dB (tap) against -15.8 dBm; modules report within 1 dB.
        assert circuit["margin_db"] == pytest.approx(24.54 - circuit["measured_loss_db"], abs=1.2)
        assert circuit["margin_db"] > 0.0


def test_the_recovery_gives_every_span_and_no_sum(run: Run) -> None:
    recovery = run.document["recovery"]
    assert (recovery["failed"], recovery["spare"]) == ("b", "c")
    assert list(recovery["spans_ms"]) == list(recovery["spans_cpu_ms"]) == SPANS
    assert all(span >= 0.0 for span in recovery["spans_ms"].values())
    total = sum(recovery["spans_ms"].values())
    assert recovery["since_fault_ms"]["link_up"] == pytest.approx(total, abs=0.02)
    numbers = [value for value in recovery.values() if isinstance(value, int | float)]
    assert numbers == []  # there is never one number called "recovery"
    assert "emulated" in recovery


def test_what_is_left_behind_exists_and_can_be_read(run: Run) -> None:
    artifacts = {name: Path(path) for name, path in run.document["artifacts"].items()}
    names = {"calibration", "events", "picture_before", "picture", "timeline", "report", "calibration_report"}
    assert set(artifacts) == names
    assert {path.parent for path in artifacts.values()} == {run.directory}
    beside = [path.name for path in set(run.directory.iterdir()) - set(artifacts.values())]
    assert "calibration.journal" in beside
    assert all(
        re.fullmatch(r"state|calibration\.(\w+\.(h5|npz)|journal)", name) for name in beside
    )  # no temporary file
    assert load_record(artifacts["calibration"]).complete
    for name in ("picture_before", "picture", "timeline"):
        assert ET.parse(artifacts[name]).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert "sfp-a → sfp-c" in artifacts["picture"].read_text()
    assert "Calibration of SMALL-0001" in artifacts["calibration_report"].read_text()


@whole
def test_the_event_log_tells_the_demo_line_by_line(run: Run) -> None:
    events = [json.loads(line) for line in (run.directory / "events.jsonl").read_text().splitlines()]
    names = [event["event"] for event in events]
    wanted = ["opened", "calibrated", "programmed", "proof", "fault injected", "verdict", "replaced"]
    assert [names.index(name) for name in wanted] == sorted(names.index(name) for name in wanted)
    assert names.count("heater measured") >= 30
    # Two circuits before the fault, the spare's own, and two by photodiodes after it.
    assert names.count("proof") == 5
    assert [event["name"] for event in events if event["event"] == "span"] == SPANS
    times = [event["bench_s"] for event in events]
    assert times == sorted(times)


def test_the_report_names_the_failed_server_the_spare_and_what_was_emulated(run: Run) -> None:
    report = (run.directory / "report.md").read_text()
    assert "b fails and is replaced by c" in report
    assert "Emulated:" in report
    assert "booster" in report
    for span in SPANS:
        assert f"| {span} |" in report.replace("\\_", "_")


def repeatable(document: Any) -> Any:
    """A document without what may differ from run to run: CPU times and paths."""
    if isinstance(document, dict):
        return {
            key: repeatable(value)
            for key, value in document.items()
            if "cpu" not in key and key not in ("artifacts", "left_out")
        }
    return [repeatable(value) for value in document] if isinstance(document, list) else document


@whole
def test_the_same_seed_gives_the_same_run_whatever_the_hash_seed(run: Run, tmp_path: Path) -> None:
    again = process(tmp_path / "out", "--seed", "3", "--json", hash_seed="4")
    assert repeatable(again.document) == repeatable(run.document)
    first, second = (load_record(each.directory / "calibration.json") for each in (run, again))
    assert content(first) | {"provenance": None} == content(second) | {"provenance": None}  # it has times and paths
    assert first.quality["bench_s"] == second.quality["bench_s"]
    for name in ("mesh-before.svg", "mesh.svg"):
        assert (again.directory / name).read_bytes() == (run.directory / name).read_bytes()


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The demo once for people, after the recorded calibration."""
    return recorded_run(tmp_path_factory.mktemp("shown") / "out")


def test_for_people_it_prints_the_bench_then_results_then_files(shown: Run) -> None:
    assert shown.code == 0, shown.stderr
    assert shown.stdout.startswith(
        "small (emulated): a mesh of 15 unit cells (PUCs) with 16 ports\n"
        "3 servers, 1 power meter, 3 modules, 3 polarization controllers\n"
    )
    titles = (
        f"\nPicture of the mesh: {shown.directory}/mesh.svg\n",
        "\nCalibration\n",
        "\nCircuits: predicted and measured loss",
        "\nb fails and is replaced by c (simulated time)\n",
        "\n2 of 2 circuits were verified by light.",
        f"\nFiles in {shown.directory}/\n",
        "\nLeft out: the demo stops at 2 mrad",
        "\nLeft out: run this command for plots: lumion-calibrate report",
    )
    places = [shown.stdout.find(title) for title in titles]
    assert -1 not in places
    assert places == sorted(places)
    assert re.findall(r"^sfp-\w → sfp-\w +\d+ .*$", shown.stdout, re.MULTILINE)[1].endswith("dB  yes")
    assert [span for span in SPANS if f"\n{span.replace('_', ' ')}  " not in shown.stdout] == []
    assert shown.stderr.endswith(" s of CPU time\n")


def test_what_is_printed_fits_two_screens_of_80_columns_and_40_lines(shown: Run) -> None:
    lines = shown.stdout.replace(str(shown.directory), "runs/20261129-141905").splitlines()
    bars = 20  # on a terminal each stage leaves its bar
    assert len(lines) + 1 + bars <= 80  # and the time that the run took
    assert [line for line in lines if len(line) > 80] == []


def test_every_file_that_is_listed_exists(shown: Run) -> None:
    _, _, listed = shown.stdout.partition(f"\nFiles in {shown.directory}/\n")
    names = re.findall(r"^  (\S+)  ", listed, re.MULTILINE)
    assert len(names) == 7
    assert [name for name in names if not (shown.directory / name).is_file()] == []


def test_the_picture_of_the_mesh_is_there_before_the_calibration_begins(
    demo: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped_calibration(*_: object, **__: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr("lumion_hw.cli.demo.steps.calibrate", stopped_calibration)
    run = demo(tmp_path / "out")
    assert run.code == 130
    assert f"Picture of the mesh: {run.directory}/mesh.svg\n" in run.stdout
    assert 'id="puc-14"' in (run.directory / "mesh.svg").read_text()


def test_results_are_printed_before_the_plots_are_drawn(
    demo: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped_report(*_: object, **__: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr("lumion_hw.cli.demo.steps.calibrate", recorded_calibration)
    monkeypatch.setattr("lumion_hw.cli.demo.steps.write_report", stopped_report)
    run = demo(tmp_path / "out", "--seed", str(SEED))
    assert run.code == 130
    assert "2 of 2 circuits were verified" in run.stdout
    assert "  report.md  " in run.stdout
    assert (run.directory / "report.md").exists()


def assert_one_paragraph(run: Run, code: int) -> None:
    assert run.code == code
    assert "Traceback" not in run.stderr
    assert "internal error" not in run.stderr
    assert run.stderr.startswith("lumion: ")
    assert run.stderr.strip().count("\n\n") == 0


def test_an_unknown_bench_is_exit_code_2_and_leaves_nothing_behind(demo: Callable[..., Run], tmp_path: Path) -> None:
    run = demo(tmp_path / "out", "--bench", "lumion-prototyp")
    assert_one_paragraph(run, 2)
    assert "lumion-prototype" in run.stderr
    assert run.stdout == ""
    assert not run.directory.exists()


def test_a_wrong_bench_file_is_exit_code_2_with_line_and_column(demo: Callable[..., Run], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(SMALL.read_text().replace("heater_max_ma: 2.5", "heater_max_mA: 2.5"))
    run = demo(tmp_path / "out", "--bench", str(wrong), "--json")
    assert_one_paragraph(run, 2)
    assert f"{wrong}:5:50: devices.mesh0.heater_max_mA:" in run.stderr  # where the key stands in small.yaml
    assert run.document["error"]["exit_code"] == 2


def test_a_bench_that_pairs_no_servers_is_refused_before_anything_is_measured(
    demo: Callable[..., Run], tmp_path: Path
) -> None:
    path = tmp_path / "bench.yaml"
    path.write_text(SMALL.read_text().replace("  pairs: [[a, b]]\n", ""))
    run = demo(tmp_path / "out", "--bench", str(path))
    assert_one_paragraph(run, 2)
    assert "'fabric.pairs'" in run.stderr
    assert "Calibration" not in run.stdout


@pytest.mark.parametrize("out", ["/dev/null/out", "/proc/nowhere/out"])
def test_a_path_where_nothing_can_be_written_is_exit_code_2(demo: Callable[..., Run], out: str) -> None:
    run = demo(Path(out), "--json")
    assert_one_paragraph(run, 2)
    assert f"cannot write to {out}" in run.stderr
    assert run.document["error"]["exit_code"] == 2


def test_a_file_in_the_place_of_the_directory_is_exit_code_2(demo: Callable[..., Run], tmp_path: Path) -> None:
    (tmp_path / "out").write_text("not a directory")
    run = demo(tmp_path / "out")
    assert run.code == 2
    assert "Traceback" not in run.stderr


@pytest.mark.long
def test_a_full_disk_is_exit_code_1_with_one_sentence(demo: Callable[..., Run], tmp_path: Path) -> None:
    with room(150_000):
        run = demo(tmp_path / "out", "--json")
    assert_one_paragraph(run, 1)
    assert f"cannot write the journal {tmp_path / 'out'}" in run.stderr
    assert "Free some disk space" in run.stderr
    assert run.document["error"]["exit_code"] == 1
    lines = (tmp_path / "out" / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines[:-1]].count("heater measured") >= 1  # what fitted stays


@pytest.mark.long
@pytest.mark.parametrize(
    ("interruption", "code"),
    [pytest.param(KeyboardInterrupt(), 130, id="Ctrl-C"), pytest.param(SystemExit(143), 143, id="SIGTERM")],
)
def test_an_interrupt_in_the_middle_of_the_calibration_loses_nothing_measured(
    demo: Callable[..., Run],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    interruption: BaseException,
    code: int,
) -> None:
    """What the handler of the signal raises, when three heaters are measured; signals to processes: resume, main."""
    add, count = EventLog.add, itertools.count(1)

    def signalled(log: EventLog, event: str, **data: Any) -> None:
        add(log, event, **data)
        if event == "heater measured" and next(count) == 3:
            raise interruption

    monkeypatch.setattr(EventLog, "add", signalled)
    run = demo(tmp_path, "--json")
    assert run.code == code
    assert "Traceback" not in run.stderr
    if code == 130:
        assert run.document["error"]["exit_code"] == 130
        assert run.stderr == "lumion: interrupted\n"
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    measured = {(event["puc"], event["arm"]) for event in events if event["event"] == "heater measured"}
    assert events[-1]["event"] == "calibration cut short"
    record = load_record(tmp_path / "calibration.json")
    assert not record.complete
    laws = {(n, arm) for n, puc in enumerate(record.pucs) for arm in ("upper", "lower") if getattr(puc, arm).law}
    assert laws >= measured
    assert len(measured) < 30
    assert "not reached before the run ended" in {entry.note for entry in record.pucs}


def test_a_new_run_gets_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "strftime", lambda _form: "20260102-030405")
    names = []
    for _ in range(3):
        directory = new_run_directory(None)
        directory.mkdir(parents=True)
        names.append(str(directory))
    assert names == ["runs/20260102-030405", "runs/20260102-030405-2", "runs/20260102-030405-3"]
    assert new_run_directory("there") == Path("there")


def test_what_was_left_out_is_said_with_how_to_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lumion_hw.mesh.waves.engines.compiled_available", lambda: True)
    assert omissions(1.0, ()) == []
    monkeypatch.setattr("lumion_hw.mesh.waves.engines.compiled_available", lambda: False)
    phases, plots, solver = omissions(3.0, ("plots need matplotlib: pip install x",))
    assert "stops at 3 mrad" in phases
    assert "lumion demo --sigma-mrad 1" in phases
    assert plots == "plots need matplotlib: pip install x"
    assert "pip install 'lumion-hw[fast]'" in solver
