"""The examples of README and docs run: blocks with tests as a test file of their own, the others as scripts.

Scripts of examples/ that a page links to instead of showing them run in the same way.

A block marked ``python no-run`` is skipped, one marked ``python long`` left to ``make test-long``. The ``console``
blocks of docs/circuits.md and the two tutorials run as one session each.
"""

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from calibration import BenchProbe, Calibration
from lumion_hw import Bench, save_record
from tests.circuits.known_mesh import record_of_truth
from tests.recorded_calibration import recorded_in
from tests.waiting import PATIENCE_S, until

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
_BLOCK = re.compile(r"^```python([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HAS_TESTS = re.compile(r"^(?:class Test|def test_)", re.MULTILINE)


def blocks() -> list:
    """Return (code) of every block, named by page and line."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in _BLOCK.finditer(text):
            line = text.count("\n", 0, block.start()) + 1
            marks = [pytest.mark.skip(reason="marked no-run")] if "no-run" in block[1] else []
            marks += [pytest.mark.long] if "long" in block[1] else []
            found.append(pytest.param(block[2], id=f"{page.name}:{line}", marks=marks))
    return found


EXAMPLES = [
    pytest.param((ROOT / "examples" / name).read_text(encoding="utf-8"), id=name)
    for name in (
        *("driver_scpi.py", "driver_lines.py", "sweep_and_derivatives.py"),
        *("logged_sweep.py", "emulated_meter.py", "chip_spread.py"),
    )
]
EXAMPLES += [
    pytest.param((ROOT / "examples" / name).read_text(encoding="utf-8"), id=name, marks=pytest.mark.long)
    for name in ("calibrate_a_bench.py", "ber_log.py")
]
SCRIPTS = [block for block in blocks() if not _HAS_TESTS.search(block.values[0])] + EXAMPLES
TESTS = {block.id: block.values[0] for block in blocks() if _HAS_TESTS.search(block.values[0]) and not block.marks}


@pytest.mark.parametrize("code", SCRIPTS)
def test_the_example_runs(code, tmp_path, monkeypatch) -> None:
    # Not inside pytester, which forgets modules again: numpy loads once per process.
    monkeypatch.chdir(tmp_path)
    for file in (ROOT / "examples").glob("*.yaml"):
        if f'"{file.name}"' in code:
            shutil.copy(file, tmp_path)
    if '"record.json"' in code and "save_record" not in code:
        recorded_in(tmp_path)  # what the tutorial's calibration of `small-bench` leaves
    if '"mzi.json"' in code:
        calibrate(tmp_path / "mzi_bench.yaml", tmp_path / "mzi.json")
    if "pyplot" in code or ".savefig(" in code:
        monkeypatch.setenv("MPLBACKEND", "agg")
    exec(compile(code, "example", "exec"), {"__name__": "__main__"})


def calibrate(bench: Path, record: Path) -> None:
    """Calibrate a bench of three MZIs: unlike `record_of_truth`, this finds the power of the laser."""
    with Bench.emulate(bench, seed=1) as emulated, emulated.dark():
        probe = BenchProbe(emulated)
        save_record(Calibration(probe, probe.device_under_test(), seed=1).run(), record)


def test_the_examples_that_are_tests_pass(pytester) -> None:
    """Each in a file of its own, all in one process."""
    names = {"test_" + re.sub(r"\W", "_", place): code for place, code in TESTS.items()}
    pytester.makepyfile(**names)
    pytester.makeini("[pytest]\nfilterwarnings = error\n")
    # Contracts over real wires run in tests/contract.
    result = pytester.runpytest_subprocess("-v", "-p", "no:cacheprovider", "-k", "not tcp and not pty")
    assert set(result.parseoutcomes()) <= {"passed", "skipped", "deselected"}
    for name in names:
        result.stdout.fnmatch_lines([f"{name}.py::*PASSED*"])


@pytest.mark.parametrize(("line", "failed"), [("", []), ("max() < DARK_W", ["test_a_broken_fibre"])])
def test_the_tests_of_a_lab_pass_and_find_a_missing_check(pytester, line: str, failed: list[str]) -> None:
    shutil.copy(ROOT / "examples" / "mzi_bench.yaml", pytester.path)
    folder = shutil.copytree(ROOT / "examples" / "lab_tests", pytester.path / "lab_tests")
    script = (folder / "heater.py").read_text(encoding="utf-8")
    assert line in script
    (folder / "heater.py").write_text(script.replace(line, "max() < 0.0") if line else script, encoding="utf-8")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", folder, *(["-k", failed[0]] if failed else []))
    names = [text.split("::")[1].split()[0] for text in result.outlines if text.startswith("FAILED")]
    assert names == failed
    result.assert_outcomes(passed=0 if failed else 10, failed=len(failed), deselected=9 if failed else 0)


def test_there_are_examples() -> None:
    names = {block.id.split(":")[0] for block in blocks()}
    assert {"README.md", "testing.md"} <= names


# Sessions at the command line -----------------------------------------------------------------------------------------

_SESSION = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"(?<![\w:.-])[+-]?\d+(?:\.\d+)?(?![\w:.])")


def session(page: Path) -> list[tuple[list[str], str]]:
    """Return the commands of a page in their order, and what it says that each prints."""
    steps = []
    for block in _SESSION.findall(page.read_text(encoding="utf-8")):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = step.partition("\n")
            steps.append((shlex.split(command), printed))
    return steps


def shape(printed: str) -> list[str]:
    """Return the lines without how wide columns are, without numbers, and without where files are."""
    lines = [re.sub(r"\S*/\S+", "PATH", re.sub(r"-{2,}", "--", line)) for line in printed.splitlines() if line.strip()]
    return [" ".join(_NUMBER.sub("#", line).split()) for line in lines]


def decibels(printed: str) -> list[float]:
    """Return the numbers with decimals: those that a calibration of the same chip finds again to some tenths."""
    return [float(number) for number in _NUMBER.findall(printed) if "." in number]


@contextlib.contextmanager
def in_background(command: list[str], directory: Path) -> Iterator[None]:
    """Run a command while the block runs: from its endpoints file, or from the line "watching" of a manager."""
    endpoints, printed = directory / command[command.index("--endpoints") + 1], directory / f"{command[1]}.txt"
    with (
        printed.open("w", encoding="utf-8") as output,
        subprocess.Popen(command, cwd=directory, stdout=output, stderr=subprocess.PIPE) as process,
    ):
        try:

            def there() -> bool:
                assert process.poll() is None, process.communicate()
                return endpoints.exists() if command[1] == "emulate" else "watching" in printed.read_text("utf-8")

            until(there)
            yield
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE_S)
            process.kill()


# With a calibration of its own: 20 s of CPU time more. The tutorial, below, connects after a calibration.
@pytest.mark.long
@pytest.mark.parametrize("is_calibrated", [False, pytest.param(True, marks=pytest.mark.campaign)])
def test_a_new_user_of_circuits_sees_what_the_page_shows(tmp_path, monkeypatch, is_calibrated: bool) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "200")
    shutil.copy(ROOT / "examples" / "mixed_bench.yaml", tmp_path)
    steps, shown = session(ROOT / "docs" / "circuits.md"), 0
    if not is_calibrated:
        with Bench.emulate(tmp_path / "mixed_bench.yaml", seed=7) as emulated:
            save_record(record_of_truth(emulated), tmp_path / "record.json")
    with contextlib.ExitStack() as background:
        for (program, *arguments), expected in steps:
            command = [str(Path(sys.executable).with_name(program)), *arguments]
            if command[-1] == "&":
                background.enter_context(in_background(command[:-1], tmp_path))
                continue
            if program == "lumion-calibrate" and not is_calibrated:
                assert not expected
                continue
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
            assert done.stdout
            if expected:
                shown += 1
                assert shape(done.stdout) == shape(expected), arguments
                assert decibels(done.stdout) == pytest.approx(decibels(expected), abs=0.5), arguments
    assert [command[1] for command, _ in steps] == [
        *("emulate", "run", "budget", "explain", "connect", "circuits", "hold", "disconnect", "connect")
    ]
    assert shown == 5


@pytest.mark.long
def test_the_recovery_by_hand_prints_what_the_page_shows(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with Bench.emulate("small-bench", seed=1) as emulated:
        save_record(record_of_truth(emulated), tmp_path / "record.json")
    steps = [step for step in session(ROOT / "docs" / "recovery.md") if step[0][1] in ("emulate", "fabric", "fault")]
    with contextlib.ExitStack() as background:
        for (program, *arguments), expected in steps:
            command = [str(Path(sys.executable).with_name(program)), *arguments]
            if command[-1] == "&":
                background.enter_context(in_background(command[:-1], tmp_path))
                continue

            def printed(command: list[str] = command) -> str:
                done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=PATIENCE_S, check=True)
                return re.sub(r"[\w.-]+@[\w.-]+:\d+", "ada@lab3:4711", done.stdout.decode())

            if "history" in command:
                until(lambda printed=printed: re.search(r"done +c +b ", printed()))
            elif "status" in command:  # plans are made in the background
                until(lambda printed=printed, expected=expected: shape(printed()) == shape(expected))
            else:
                assert shape(printed()) == shape(expected), arguments
    assert [command[1:3] for command, _ in steps if command[1] == "fabric"] == [
        ["fabric", name] for name in ("run", "status", "fail", "status", "repaired", "history")
    ]


@pytest.mark.long
def test_a_new_user_of_the_tutorial_gets_from_nothing_to_a_proven_circuit(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    steps = session(ROOT / "docs" / "tutorial.md")
    for (program, *arguments), _ in steps:
        command = [str(Path(sys.executable).with_name(program)), *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        assert done.stdout
    assert "Connected" in done.stdout
    assert [command[1] for command, _ in steps] == ["bench", "run", "show", "budget", "explain", "connect"]


@pytest.mark.long
def test_the_commands_of_a_chip_of_your_own_calibrate_the_example_and_program_it(tmp_path, monkeypatch) -> None:
    shutil.copy(ROOT / "examples" / "benches" / "clements-4x4-qontrol.yaml", tmp_path)
    page = ROOT / "docs" / "cookbook" / "unitary.md"
    steps, programming = session(ROOT / "docs" / "cookbook" / "own-chip.md"), session(page)
    for (program, *arguments), _ in [*steps, *programming]:
        command = [str(Path(sys.executable).with_name(program)), *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        if "--report" in arguments:
            assert "The calibration is certified and meets all its goals" in done.stdout
    assert [command[1] for command, _ in steps] == ["bench", "plan", "run", "mesh"]
    # The picture of the page is the one that its command draws.
    assert (tmp_path / "own-chip.svg").read_text() == (ROOT / "docs" / "img" / "own-chip.svg").read_text()
    assert "4 x 4 matrix on the mesh: measured fidelity 0.99" in done.stdout
    assert (tmp_path / "fourier.svg").read_text().count("<rect") == 1 + 2 * 3 * 16
    (code,) = (block[2] for block in _BLOCK.finditer(page.read_text(encoding="utf-8")))
    emulated = re.sub(r"Bench\.open\((\S+), leave_on_s=3600\.0\)", r"Bench.emulate(\1)", code)
    assert emulated != code
    monkeypatch.chdir(tmp_path)
    exec(compile(emulated, "example", "exec"), {})


@pytest.mark.long
def test_the_page_of_an_ageing_heater_finds_and_renews_it(tmp_path) -> None:
    shutil.copy(ROOT / "examples" / "benches" / "clements-4x4-qontrol.yaml", tmp_path)
    run, steps = (
        session(ROOT / "docs" / "cookbook" / "own-chip.md")[2][0],
        session(ROOT / "docs" / "cookbook" / "ageing.md"),
    )
    (emulate, _), *commands = steps
    codes, done = [], None
    with in_background([str(Path(sys.executable).with_name("lumion")), *emulate[1:-1]], tmp_path):
        for program, *arguments in [run, *(command for command, _ in commands)]:
            command = [str(Path(sys.executable).with_name(program)), *arguments]
            done = subprocess.run(
                command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False
            )
            codes.append(done.returncode)
    assert codes == [0, 0, 3, 0]
    assert "Heater" in done.stdout
    assert "PUC 5 upper arm" in done.stdout
    assert (tmp_path / "renewed.json").exists()


# With a calibration of its own: 45 s of CPU time. test_example_benches.py calibrates an 8x8 Benes chip, too.
@pytest.mark.long
@pytest.mark.parametrize("is_calibrated", [False, pytest.param(True, marks=pytest.mark.campaign)])
def test_the_page_of_a_switch_as_a_fabric_connects_servers_and_keeps_them(tmp_path, is_calibrated: bool) -> None:
    page = ROOT / "docs" / "cookbook" / "benes-fabric.md"
    bench = ROOT / "examples" / "benes_fabric.yaml"
    (shown,) = re.findall(r"^```yaml\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert shown in bench.read_text(encoding="utf-8")
    shutil.copy(bench, tmp_path)
    (calibrate, _), *steps = session(page)
    assert calibrate == ["lumion-calibrate", "run", "benes_fabric.yaml", "--emulate", "--out", "fabric.json"]
    if not is_calibrated:
        with Bench.emulate(tmp_path / bench.name) as emulated:
            save_record(record_of_truth(emulated), tmp_path / "fabric.json")
    printed = []
    for (program, *arguments), _ in [(calibrate, ""), *steps] if is_calibrated else steps:
        command = [str(Path(sys.executable).with_name(program)), *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        printed.append(done.stdout)
    assert (tmp_path / "benes-fabric.svg").read_text() == (ROOT / "docs" / "img" / "benes-fabric.svg").read_text()
    *calibrated, _, connected, explained, kept = printed
    assert all("meets all its goals" in text for text in calibrated)
    assert "sfp2:sfp0" in connected
    assert "margin over sensitivity" in explained
    assert "standing: sfp0:sfp2" in kept


@pytest.mark.parametrize(
    ("page", "bench"),
    [
        pytest.param("netlist", "netlist-3x3.yaml", marks=pytest.mark.long),
        pytest.param("two-arm", "rectangular-6x6.yaml", marks=pytest.mark.long),
        pytest.param("switch-fabric", "benes-8x8.yaml", marks=pytest.mark.long),
        pytest.param("hexagonal", "small-hexagonal.yaml", marks=pytest.mark.long),
        pytest.param("by-hand", "reck-8x8-by-hand.yaml", marks=pytest.mark.long),
        pytest.param("photodiodes", "clements-12x12-photodiodes.yaml", marks=pytest.mark.long),
        pytest.param("prototype", "lumion-prototype", marks=pytest.mark.campaign),
    ],
)
def test_the_page_of_a_bench_has_the_figures_that_its_commands_print(tmp_path, page: str, bench: str) -> None:
    for path in (ROOT / "examples" / "benches").glob(f"{Path(bench).stem}.y*ml"):
        shutil.copy(path, tmp_path)
    text, printed = (ROOT / "docs" / "cookbook" / f"{page}.md").read_text(encoding="utf-8"), ""
    steps = session(ROOT / "docs" / "cookbook" / f"{page}.md")
    for (program, *arguments), _ in steps:
        command = [str(Path(sys.executable).with_name(program)), *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        printed += done.stdout
    assert [arguments[:3] for arguments, _ in steps[:2]] == [
        ["lumion", "bench", "check"],
        ["lumion-calibrate", "plan", bench],
    ]
    total = re.search(r"^total +(\d+) +\d+ +([\d.]+)", printed, re.MULTILINE)
    assert total is not None
    settings, seconds = int(total[1]), float(total[2])
    # How many settings are chosen may differ by a few with the rounding of a processor.
    shown = re.search(r"needs ([\d,]+) settings", text)
    assert int(shown[1].replace(",", "")) == pytest.approx(settings, rel=0.03) if shown else " moves" in text
    assert min(abs(int(number) - seconds) for number in re.findall(r"(\d+) s\b", text)) <= 1.0
    if "-o" in steps[-1][0]:
        drawn = tmp_path / steps[-1][0][-1]
        assert drawn.read_text() == (ROOT / "docs" / "img" / drawn.name).read_text()


def test_the_table_of_a_chip_of_your_own_has_every_bench() -> None:
    page = (ROOT / "docs" / "cookbook" / "own-chip.md").read_text(encoding="utf-8")
    benches = {path.stem for path in (ROOT / "examples" / "benches").glob("*.yaml")}
    assert set(re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE)) >= benches


@pytest.mark.parametrize("is_calibrated", [False, pytest.param(True, marks=pytest.mark.long)])
def test_the_bench_of_the_second_tutorial_is_the_example_and_passes_its_commands(tmp_path, is_calibrated: bool) -> None:
    page, example = ROOT / "docs" / "tutorial-own-bench.md", ROOT / "examples" / "mzi_bench.yaml"
    (shown,) = re.findall(r"^```yaml\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert example.read_text(encoding="utf-8").partition("\n")[2] == shown  # its first line is a remark
    shutil.copy(example, tmp_path)
    steps = session(page)
    for (program, *arguments), _ in steps:
        if program == "lumion-calibrate" and not is_calibrated:
            continue
        command = [str(Path(sys.executable).with_name(program)), *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        assert done.stdout
    assert "0x 1x" in done.stdout  # the page explains this path
    assert [command[1:3] for command, _ in steps] == [
        *(["bench", "check"], ["bench", "show"], ["run", "mzi_bench.yaml"], ["mesh", "route"])
    ]


@pytest.mark.long
def test_the_commands_of_the_page_of_the_switch_print_what_it_shows(tmp_path, monkeypatch) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl here")
    recorded_in(tmp_path)
    (calibrate_command, _), (serve_command, _), *requests = session(ROOT / "docs" / "switch.md")
    assert calibrate_command[0] == "lumion-calibrate"
    command = [str(Path(sys.executable).with_name("lumion")), *serve_command[1:-1], "--page-port", "0", "--json"]
    command += ["--state", str(tmp_path / "state")]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        try:
            assert server.stdout is not None
            served = json.loads(server.stdout.readline())
            monkeypatch.setenv("URL", served["page"].rstrip("/"))
            monkeypatch.setenv("TOKEN", served["page_token"])
            for arguments, expected in requests:
                curl = [os.path.expandvars(argument) for argument in arguments]
                done = subprocess.run(curl, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
                # Values in quotes are those of the record; other numbers with decimals are measured.
                printed, shown = (re.sub(r"(?<=:)-?\d+\.\d+", "#", text) for text in (done.stdout, expected))
                assert shape(printed) == shape(shown), arguments
        finally:
            server.terminate()
    assert len(requests) == 6
