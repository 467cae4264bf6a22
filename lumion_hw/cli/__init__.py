"""The ``lumion`` command: its entry point, exit codes and signals. Subcommands are loaded when they are called."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from lumion_hw.errors import exit_code

if TYPE_CHECKING:
    import click

INTERRUPTED = 130
TERMINATED = 143


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        args: Arguments without the program's name; those of the process if not given.

    Returns:
        0 ok, 1 failed, 2 usage or configuration, 3 out of tolerance, 4 unreachable, 5 interlock, 6 busy,
        130 interrupted, 143 SIGTERM.
    """
    return run("lumion_hw.cli.commands:lumion", "lumion", args)


def calibrate_main(args: Sequence[str] | None = None) -> int:
    """Run the command line of ``lumion-calibrate`` and return its exit code, as for ``lumion``."""
    return run("lumion_hw.cli.calibrate.commands:calibrate", "lumion-calibrate", args)


def run(command: click.Command | str, name: str, args: Sequence[str] | None = None) -> int:
    """Run a click command with this package's errors, exit codes and signals, and return the exit code.

    Every error is one paragraph on stderr, and with ``--json`` one document on stdout as well. SIGTERM raises
    ``SystemExit``, so that every ``finally`` on the way out makes the bench safe.

    Args:
        command: What to run, such as the group of another program that wants the same manners; as ``module:attribute``
            it is imported in here, so that Ctrl-C ends the program well even while it is being loaded.
        name: Name of the program in messages.
        args: Arguments without the program's name; those of the process if not given.
    """
    # The matrices here are small: BLAS threads only get in each other's way (docs/performance.md#blas-threads).
    # Has to precede numpy.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    given = list(sys.argv[1:] if args is None else args)
    with _sigterm_unwinds():
        try:
            return _guarded(command, name, given)
        except KeyboardInterrupt:  # while this program was being loaded, or was saying that it was interrupted
            os.write(2, b"lumion: interrupted\n")
            return INTERRUPTED


def _guarded(command: click.Command | str, name: str, given: list[str]) -> int:
    """Run a command and turn every failure into an exit code."""
    import click

    from lumion_hw.cli.common.output import report_failure

    as_json = "--json" in given
    try:
        code = _invoke(_loaded(command) if isinstance(command, str) else command, name, given)
    except click.exceptions.Exit as error:
        code = error.exit_code
    except click.ClickException as error:
        code = report_failure(error, error.exit_code, as_json)
    except (click.Abort, KeyboardInterrupt) as error:
        code = report_failure(error, INTERRUPTED, as_json)
    except BrokenPipeError:
        code = _reader_left()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:  # noqa: BLE001 - the one place that turns every failure into an exit code
        code = report_failure(error, exit_code(error), as_json)
    return code


def _loaded(target: str) -> click.Command:
    from lumion_hw.cli.common.own_packages import imported

    command: click.Command = imported(target)
    return command


def _invoke(command: click.Command, name: str, args: list[str]) -> int:
    """Parse and run, or answer the shell's request for completion; return the exit code the command chose.

    Not ``command.main``: that turns a closed pipe into exit code 1 before anyone can see it.
    """
    variable = f"_{name}_COMPLETE".replace("-", "_").upper()
    instruction = os.environ.get(variable)
    if instruction:
        from click.shell_completion import shell_complete

        return shell_complete(command, {}, name, variable, instruction)
    with command.make_context(name, args) as context:
        result = command.invoke(context)
    return result if isinstance(result, int) and not isinstance(result, bool) else 0


def _reader_left() -> int:
    """Let a reader that closed the pipe have had enough; what is still buffered goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


@contextmanager
def _sigterm_unwinds() -> Iterator[None]:
    """Let SIGTERM unwind the stack while the command runs; by itself it would skip ``finally`` and ``atexit``."""

    def terminate(_signal: int, _frame: FrameType | None) -> None:
        raise SystemExit(TERMINATED)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if previous is None else previous)
