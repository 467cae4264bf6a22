"""Entry points of ``lumion`` and ``lumion-calibrate``, with their exit codes and signals."""

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
    """Run ``lumion`` with command-line arguments and return its exit code.

    Args:
        args: Arguments without the program name; by default ``sys.argv``.

    Returns:
        0 ok, 1 failed, 2 usage or configuration, 3 out of tolerance, 4 unreachable, 5 interlock, 6 busy,
        130 interrupted, 143 SIGTERM.
    """
    return run("lumion_hw.cli.commands:lumion", "lumion", args)


def calibrate_main(args: Sequence[str] | None = None) -> int:
    """Run ``lumion-calibrate`` and return the exit code, as for ``lumion``."""
    return run("lumion_hw.cli.calibrate.commands:calibrate", "lumion-calibrate", args)


def run(command: click.Command | str, name: str, args: Sequence[str] | None = None) -> int:
    """Run a click command with the error messages, exit codes and signals of this package; return the exit code.

    An error is printed on stderr, and with ``--json`` also as a JSON document on stdout. SIGTERM raises ``SystemExit``,
    so that ``finally`` blocks make the bench safe.

    Args:
        command: A click command, or the text ``module:attribute`` from which it is imported.
        name: Name of the program in messages.
        args: Arguments without the program name; by default ``sys.argv``.
    """
    # The matrices are small: several BLAS threads slow each other down (docs/performance.md#run-time-of-a-calibration).
    # Must be set before numpy is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    arguments = list(sys.argv[1:] if args is None else args)
    with _sigterm_unwinds():
        try:
            return _run_to_exit_code(command, name, arguments)
        except KeyboardInterrupt:  # during the import, or while the message about an interrupt was printed
            os.write(2, b"lumion: interrupted\n")
            return INTERRUPTED


def _run_to_exit_code(command: click.Command | str, name: str, arguments: list[str]) -> int:
    import click

    from lumion_hw.cli.common.output import report_failure

    as_json = "--json" in arguments
    try:
        code = _invoke(_import_command(command) if isinstance(command, str) else command, name, arguments)
    except click.exceptions.Exit as error:
        code = error.exit_code
    except click.ClickException as error:
        code = report_failure(error, error.exit_code, as_json)
    except (click.Abort, KeyboardInterrupt) as error:
        code = report_failure(error, INTERRUPTED, as_json)
    except BrokenPipeError:
        code = _handle_closed_pipe()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:  # noqa: BLE001 - the only place that turns failures into exit codes
        code = report_failure(error, exit_code(error), as_json)
    return code


def _import_command(target: str) -> click.Command:
    from lumion_hw.cli.common.own_packages import import_target

    command: click.Command = import_target(target)
    return command


def _invoke(command: click.Command, name: str, args: list[str]) -> int:
    variable = f"_{name}_COMPLETE".replace("-", "_").upper()
    instruction = os.environ.get(variable)
    if instruction:
        from click.shell_completion import shell_complete

        return shell_complete(command, {}, name, variable, instruction)
    with command.make_context(name, args) as context:
        result = command.invoke(context)
    return result if isinstance(result, int) and not isinstance(result, bool) else 0


def _handle_closed_pipe() -> int:
    """Discard the remaining output after the reader closed the pipe; return exit code 0."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


@contextmanager
def _sigterm_unwinds() -> Iterator[None]:
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
