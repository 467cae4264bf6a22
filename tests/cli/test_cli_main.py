"""The `lumion` command as a whole: help without imports, exit codes, one paragraph per failure, signals."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from lumion_hw import errors
from lumion_hw.cli import calibrate_main, main, run
from lumion_hw.cli.commands import lumion
from lumion_hw.cli.common import output
from tests.waiting import PATIENCE_S, Bound

DATA = Path(__file__).parents[1] / "data"
BENCH, RECORD = str(DATA / "small.yaml"), str(DATA / "calibration-record-v1.json")
LUMION = [sys.executable, "-m", "lumion_hw.cli"]


def command(action: Callable[[], object]) -> click.Command:
    @click.command()
    @click.option("--json", "as_json", is_flag=True)
    def act(as_json: bool) -> object:
        return action()

    return act


def failing(error: BaseException) -> click.Command:
    def fail() -> None:
        raise error

    return command(fail)


# 1 failed, 2 usage or config, 3 out of tolerance, 4 unreachable, 5 interlock, 6 busy, 130, 143
EXIT_CODES = [
    (errors.LumionError("broken"), 1),
    (errors.DeviceError("refused", code=-222), 1),
    (errors.VerifyError("current", wrote=1, read=2), 1),
    (errors.ConfigError("bad file"), 2),
    (errors.IdentityError("another device"), 2),
    (errors.LimitError("current", requested=3.0, limit=2.5, unit="mA"), 2),
    (errors.NoPathError("no route"), 3),
    (errors.CalibrationError("residual"), 3),
    (errors.CircuitError("not proven"), 3),
    (errors.LinkTimeout("silent"), 4),
    (errors.LinkLost("unplugged"), 4),
    (errors.SafetyError("latched"), 5),
    (errors.BusyError("held"), 6),
    (ExceptionGroup("two devices", [errors.LinkLost("a"), errors.LinkTimeout("b")]), 4),
    (ExceptionGroup("two devices", [errors.LinkLost("a"), errors.SafetyError("b")]), 1),
    (RuntimeError("a bug"), 1),
    (KeyboardInterrupt(), 130),
    (click.Abort(), 130),
    (click.UsageError("which file?"), 2),
    (SystemExit(143), 143),
    (SystemExit(), 0),
    (SystemExit("text"), 1),
]


@pytest.mark.parametrize(("error", "code"), EXIT_CODES, ids=[repr(case[0]) for case in EXIT_CODES])
def test_every_failure_has_its_exit_code(error: BaseException, code: int) -> None:
    assert run(failing(error), "lumion", []) == code


def test_a_command_that_ends_well_returns_zero() -> None:
    assert run(command(lambda: None), "lumion", []) == 0


def test_a_command_may_choose_its_exit_code() -> None:
    assert run(command(lambda: 3), "lumion", []) == 3
    assert run(command(lambda: click.get_current_context().exit(3)), "lumion", []) == 3


def test_a_failure_is_one_paragraph_on_stderr_and_nothing_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    error = errors.LinkTimeout("no answer to HELLO", device="mesh0", address="tcp://192.0.2.1:7", hint="Is it on?")
    run(failing(error), "lumion", [])
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "lumion: mesh0 @ tcp://192.0.2.1:7: no answer to HELLO. Is it on?\n"


def test_a_group_of_failures_lists_every_member(capsys: pytest.CaptureFixture[str]) -> None:
    group = ExceptionGroup(
        "2 devices", [errors.LinkLost("gone", device="a"), errors.SafetyError("latched", device="b")]
    )
    run(failing(group), "lumion", [])
    assert capsys.readouterr().err == "lumion: 2 devices:\n- a: gone\n- b: latched\n"


def test_with_json_a_failure_is_one_document_on_stdout_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    error = errors.LinkLost("unplugged", device="mesh0", address="serial:///dev/x", hint="Plug it in.")
    assert run(failing(error), "lumion", ["--json"]) == 4
    out, err = capsys.readouterr()
    assert json.loads(out) == {
        "error": {
            "type": "LinkLost",
            "message": "mesh0 @ serial:///dev/x: unplugged. Plug it in.",
            "exit_code": 4,
            "device": "mesh0",
            "address": "serial:///dev/x",
            "hint": "Plug it in.",
        }
    }
    assert err.startswith("lumion: mesh0")


def test_with_json_the_members_of_a_group_are_in_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    group = ExceptionGroup(
        "2 devices", [errors.LinkLost("gone", device="a"), errors.SafetyError("latched", device="b")]
    )
    run(failing(group), "lumion", ["--json"])
    members = json.loads(capsys.readouterr().out)["error"]["members"]
    assert [(member["device"], member["exit_code"]) for member in members] == [("a", 4), ("b", 5)]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.UsageError("what?"), RuntimeError("a bug")])
def test_with_json_even_interrupts_usage_and_bugs_are_documents(
    error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(failing(error), "lumion", ["--json"])
    assert json.loads(capsys.readouterr().out)["error"]["exit_code"] == code


def test_a_bug_shows_where_it_happened_and_asks_to_be_reported(capsys: pytest.CaptureFixture[str]) -> None:
    run(failing(RuntimeError("index out of range")), "lumion", [])
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.endswith("lumion: internal error, please report it: RuntimeError: index out of range\n")


def test_an_expected_failure_shows_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    run(failing(errors.ConfigError("bad file")), "lumion", [])
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("args", [[], ["bench"]])
def test_a_group_without_a_command_shows_its_help(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Usage: lumion")
    assert "Commands:" in err
    assert "lumion: " not in err


def test_sigterm_runs_the_finally_blocks_on_the_way_out() -> None:
    steps: list[str] = []

    def wait() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait(PATIENCE_S)
        finally:
            steps.append("heaters off")

    assert run(command(wait), "lumion", []) == 143
    assert steps == ["heaters off"]


def test_the_callers_own_sigterm_handler_is_back_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)
    run(command(lambda: None), "lumion", [])
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_command_runs_in_a_thread_that_cannot_handle_signals() -> None:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(run(command(lambda: None), "lumion", [])))
    thread.start()
    thread.join(PATIENCE_S)
    assert codes == [0]


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for name in ("demo", "emulate", "bench"):
        assert f"\n  {name} " in out


def _commands(group: click.Command, names: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield names
    if isinstance(group, click.Group):
        for name in group.list_commands(click.Context(group)):
            command = group.get_command(click.Context(group), name)
            assert command is not None
            yield from _commands(command, (*names, name))


def test_no_help_text_shows_an_escape_sequence(capsys: pytest.CaptureFixture[str]) -> None:
    """A raw docstring keeps the backslash of the mark before a paragraph that must not be wrapped."""
    listed = list(_commands(lumion))
    assert len(listed) > 40
    for names in listed:
        assert main([*names, "--help"]) == 0
        assert "\\b" not in capsys.readouterr().out, names


def test_help_loads_no_command_and_no_heavy_library() -> None:
    heavy = "numpy, scipy, pydantic, yaml, pyvisa, serial, lumion_hw.bench, lumion_hw.cli.bench, lumion_hw.cli.demo"
    script = (
        "import sys\n"
        "from lumion_hw.cli import main\n"
        "code = main(['--help'])\n"
        f"loaded = [name for name in '{heavy}'.split(', ') if name in sys.modules]\n"
        "sys.exit(f'{code} {loaded}' if code or loaded else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_every_command_of_the_table_exists() -> None:
    from lumion_hw.cli.commands import COMMANDS

    for row in COMMANDS:
        assert row.load().name == row.name


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("lumion-hw ")


@pytest.mark.parametrize(
    "args", [["bnech"], ["bench", "chekc"], ["--nonsense"], ["bench", "check"], ["bench", "check", "--x"]]
)
def test_wrong_usage_is_exit_code_2_with_the_usage(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Usage: lumion")


def test_a_reader_that_closes_the_pipe_has_had_enough(not_for_ever: Bound) -> None:
    with subprocess.Popen(
        [*LUMION, "bench", "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        not_for_ever(process)
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        stderr = process.stderr.read()
        assert process.wait(PATIENCE_S) == 0
    assert stderr == ""


def test_the_shell_can_complete_commands() -> None:
    words = {"_LUMION_COMPLETE": "bash_complete", "COMP_WORDS": "lumion bench ", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from lumion_hw.cli import main; sys.exit(main([]))"],
        env=os.environ | words, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.split()) == (0, ["plain,check", "plain,schema", "plain,show"])


def test_the_process_ends_with_the_exit_code() -> None:
    done = subprocess.run(
        [*LUMION, "bench", "check", "nowhere.yaml"], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("lumion: cannot read bench file nowhere.yaml: No such file or directory.")


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["fabrik"], "fabric"),
        (["fabric", "statsu"], "status"),
        (["calibrate"], "lumion-calibrate"),
        (["transponder", "show", "small-bench", "sfpa", "--emulate"], "sfp-a"),
        (["log", "small-bench", "--emulate", "-c", "meter.0"], "meter0"),
    ],
)
def test_a_mistyped_name_is_answered_with_the_closest_ones(
    words: list[str], near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "Did you mean" in said
    assert near in said.partition("Did you mean")[2]


@pytest.mark.parametrize(
    ("entry", "words", "kind"),
    [
        (calibrate_main, ["show", BENCH], "is a bench file, not a calibration record"),
        (main, ["budget", BENCH, "sfp-a:sfp-b", "--record", BENCH], "is a bench file, not a calibration record"),
        (main, ["bench", "check", RECORD], "is a calibration record, not a bench file"),
        (main, ["emulate", RECORD], "is a calibration record, not a bench file"),
    ],
)
def test_a_file_of_another_kind_is_named(
    entry: Callable[[list[str]], int], words: list[str], kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert entry(words) in (2, 3)
    assert kind in capsys.readouterr().err


def test_notes_of_an_error_are_part_of_its_text() -> None:
    error = errors.LinkLost("no answer", device="sfp-a")
    error.add_note("The transmitter may be on.")
    assert output.paragraph(error).endswith("no answer The transmitter may be on.")
