"""Who moves the fibres that the bench file marks with ``by_hand``: the operator at the terminal, or the emulator."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from lumion_hw.cli.common.output import note
from lumion_hw.errors import CalibrationError

if TYPE_CHECKING:
    from calibration.measure.operator import OnPlug, PlugRequest
    from lumion_hw.bench.bench import Bench


def operator_of(bench: Bench, emulate: bool) -> OnPlug | None:
    """Return the function that has fibres moved by hand; ``None`` if nobody is there to move them.

    Args:
        bench: The open bench.
        emulate: Whether this program emulates the bench and therefore plays the operator.
    """
    wiring = bench.wiring
    if not any(path.by_hand for path in wiring.inputs) and not any(path.by_hand for path in wiring.outputs):
        return None
    if emulate:

        def play(request: PlugRequest) -> None:
            note(f"{_request_text(request)} (done by the emulator)")
            bench.emulated.faults.plug(request.device, request.port)

        return play
    return _ask if sys.stdin.isatty() else None


def _ask(request: PlugRequest) -> None:
    click.echo(f"{_request_text(request)}, then press Enter. ", err=True, nl=False)
    if not sys.stdin.readline():
        raise CalibrationError(
            "the terminal was closed before the fibre was plugged in",
            hint=f"{request.words().capitalize()}, then continue with --resume.",
        )


def _request_text(request: PlugRequest) -> str:
    words = request.words()
    text = f"{words[0].upper()}{words[1:]}"
    return f"{request.reason} {text}" if request.reason else text
