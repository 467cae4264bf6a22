"""Moves the fibres that are marked ``by_hand`` in the bench file: asks the operator, or does it on the emulator."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from lumion_hw.cli.common.output import note
from lumion_hw.errors import CalibrationError

if TYPE_CHECKING:
    from calibration.measure.plug_requests import OnPlug, PlugRequest
    from lumion_hw.bench.bench import Bench


def operator_of(bench: Bench, emulate: bool) -> OnPlug | None:
    """Return the function that has fibres moved by hand; ``None`` if no operator is at the terminal.

    Args:
        bench: The open bench.
        emulate: Whether the bench is emulated, so that this program moves the fibres.
    """
    wiring = bench.wiring
    if not any(path.by_hand for path in wiring.inputs) and not any(path.by_hand for path in wiring.outputs):
        return None
    if emulate:

        def play(request: PlugRequest) -> None:
            note(f"{_request_text(request)} (done by the emulator)")
            bench.emulated.faults.plug(request.device, request.port)

        return play
    return _request_plug if sys.stdin.isatty() else None


def _request_plug(request: PlugRequest) -> None:
    click.echo(f"{_request_text(request)}, then press Enter. ", err=True, nl=False)
    if not sys.stdin.readline():
        raise CalibrationError(
            "the terminal was closed before the fibre was plugged in",
            hint=f"{request.description().capitalize()}, then continue with --resume.",
        )


def _request_text(request: PlugRequest) -> str:
    description = request.description()
    text = f"{description[0].upper()}{description[1:]}"
    return f"{request.reason} {text}" if request.reason else text
