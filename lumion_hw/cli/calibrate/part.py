"""Options of ``lumion-calibrate run`` for a part of the mesh."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.errors import ConfigError

if TYPE_CHECKING:
    from calibration.run.parts import MeshPart
    from lumion_hw.bench.bench import Bench
    from lumion_hw.mesh.record.calibration_record import CalibrationRecord

_OPTIONS = (
    click.option("--pucs", metavar="LIST", help="Calibrate only these PUCs, such as 0-5,8."),
    click.option("--circuit", metavar="A:B", help="Calibrate only what circuits from port A to port B can use."),
    click.option(
        "--join",
        type=click.Path(dir_okay=False),
        help="Record that supplies the values of all other PUCs. It is not changed.",
    ),
)


def part_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options ``--pucs``, ``--circuit`` and ``--join`` to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def part_of(bench: Bench, pucs: str | None, circuit: str | None, join: str | None) -> MeshPart | None:
    """Return the part of the mesh that the options select; ``None`` for the whole mesh.

    Raises:
        ConfigError: The options contradict each other, or the part cannot be calibrated alone.
    """
    from calibration.run.parts import LightPaths

    if pucs and circuit:
        raise ConfigError("--pucs and --circuit cannot be combined", hint="Use one of them.")
    if not pucs and not circuit:
        if join:
            raise ConfigError("--join needs --pucs or --circuit", hint="Without them, the whole mesh is calibrated.")
        return None
    light = LightPaths.of(bench.mesh.topology, bench.wiring.inputs, bench.mesh.monitor_ports)
    if pucs:
        return light.part_of_pucs(numbers(pucs))
    match = re.fullmatch(r"(\d+):(\d+)", circuit or "")
    if match is None:
        raise ConfigError(f"--circuit {circuit}: two port numbers expected", hint="Give two ports, such as 0:6.")
    return light.part_of_circuit(int(match[1]), int(match[2]))


def numbers(text: str) -> set[int]:
    """Return the numbers of a list such as ``0-5,8``.

    Raises:
        ConfigError: The text is no such list.
    """
    pucs: set[int] = set()
    for part_text in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,6})(?:-(\d{1,6}))?\s*", part_text)
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            raise ConfigError(f"--pucs {text}: {part_text!r} is no PUC and no range", hint="Give a list such as 0-5,8.")
        pucs |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return pucs


def record_to_join(bench: Bench, join: str | None) -> CalibrationRecord | None:
    """Return the record to which a part is joined, after a check that it belongs to this bench."""
    from lumion_hw.storage import load_record

    if join is None:
        return None
    record = load_record(Path(join))
    bench.mesh.check_record(record, allow_incomplete=True)
    return record


def part_arguments(pucs: str | None, circuit: str | None, join: str | None) -> Sequence[str]:
    """Return the command-line arguments that select this part of the mesh."""
    options = (("--pucs", pucs), ("--circuit", circuit), ("--join", join))
    return [word for name, value in options if value for word in (name, value)]
