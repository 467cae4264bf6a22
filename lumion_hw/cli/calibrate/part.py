"""Options of ``lumion-calibrate run`` for a part of the mesh."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lumion_hw.errors import CircuitError, ConfigError, name_hint

if TYPE_CHECKING:
    from calibration.run.parts import LightPaths, MeshPart
    from lumion_hw.bench.bench import Bench
    from lumion_hw.interfaces.wiring import Wiring
    from lumion_hw.mesh.record.calibration_record import CalibrationRecord

_OPTIONS = (
    click.option("--pucs", metavar="LIST", help="Calibrate only these PUCs, such as 0-5,8."),
    click.option(
        "--circuit", metavar="A:B", help="Calibrate only what circuits from A to B can use. Both are ports or devices."
    ),
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
        CircuitError: A device of the circuit is not wired to the mesh.
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
    return light.part_of_circuit(*circuit_ports(bench.wiring, bench.model.devices, light, circuit or ""))


def circuit_ports(
    wiring: Wiring, devices: Collection[str], light: LightPaths, circuit: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the input ports and the output ports of a circuit such as ``0:6`` or ``sfp-a:sfp-b``.

    A device that is wired to several ports stands for all of them that a calibration can use.

    Args:
        wiring: Wiring of the bench.
        devices: Names of all devices of the bench.
        light: Ports that a calibration can use.
        circuit: Source and destination: port numbers, or names of modules, lasers and meters.

    Raises:
        ConfigError: The text is no such pair.
        CircuitError: A device is not wired to the mesh.
    """
    ends = circuit.split(":")
    if len(ends) != 2 or not all(ends):
        raise ConfigError(
            f"--circuit {circuit}: two ports or devices expected",
            hint="Give two ports, such as 0:6, or two devices, such as sfp-a:sfp-b.",
        )
    fed: list[tuple[int, set[str | None]]] = [(path.port, {path.source}) for path in wiring.inputs]
    read = [(path.port, {path.transponder, *(tap.meter for tap in path.all_taps)}) for path in wiring.outputs]
    ports: list[tuple[int, ...]] = []
    for end, fibres, usable in zip(ends, (fed, read), (light.sources, light.monitors), strict=True):
        if re.fullmatch(r"[0-9]+", end):
            ports.append((int(end),))
            continue
        wired = tuple(dict.fromkeys(port for port, names in fibres if end in names))
        if not wired:
            wired_names = sorted({name for _, names in fed + read for name in names if name})
            raise CircuitError(
                f"circuit {' to '.join(ends)}: {end} is not wired to the mesh",
                hint=(
                    "See 'wiring' in the bench file."
                    if end in devices
                    else name_hint(end, wired_names, "The wired devices are")
                ),
            )
        # The second port of a source with two ports is no source of its own, and a port may have no monitor.
        ports.append(tuple(port for port in wired if port in usable) or wired)
    return ports[0], ports[1]


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
