"""``polatis``: Polatis (HUBER+SUHNER) optical matrix switches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from lumion_hw.bench.file.checks import BenchData, Check, is_index, items, mapping
from lumion_hw.bench.file.devices import PartModel
from lumion_hw.bench.file.fields import Number, WholeNumber
from lumion_hw.bench.file.kind import DeviceKind, ScpiIdentity
from lumion_hw.bench.file.roles import Role
from lumion_hw.clock import Clock
from lumion_hw.links.base import Link

if TYPE_CHECKING:
    from lumion_hw.emulator.assembly import EmulatedBench
    from lumion_hw.emulator.switches.polatis import EmulatedPolatis
    from lumion_hw.interfaces import OpticalSwitch


class MatrixSwitchModel(PartModel):
    """Polatis (HUBER+SUHNER) series 1000, 6000 or 7000 matrix switch (SCPI, TCP port 5025 or serial)."""

    kind: Literal["polatis"]
    serial: str | None = Field(None, description="Expected serial number; opening fails if it differs.")
    n_inputs: WholeNumber = Field(16, ge=1, le=576, description="Number of inputs; their ports are numbered from 1.")
    n_outputs: WholeNumber = Field(
        16, ge=1, le=576, description="Number of outputs; their port numbers follow those of the inputs."
    )
    settle_s: Number = Field(0.025, ge=0.0, le=10.0, description="Settling time of the light after a change.")
    insertion_loss_db: Number = Field(1.0, ge=0.0, le=30.0, description="Insertion loss of a connection.")


def _open(name: str, model: MatrixSwitchModel, link: Link, clock: Clock) -> OpticalSwitch:
    from lumion_hw.drivers.switches.polatis import Polatis

    return model.open_device(
        Polatis(
            link,
            clock,
            device=name,
            expected_serial=model.serial,
            expected_size=(model.n_inputs, model.n_outputs),
            settle_s=model.settle_s,
        )
    )


def _emulate(bench: EmulatedBench, name: str, model: MatrixSwitchModel) -> EmulatedPolatis:
    from lumion_hw.emulator.switches.polatis import EmulatedPolatis

    def power_w(port: int) -> float:
        partner = switch.connections().get(port)
        outgoing_w = 0.0 if partner is None else bench.world.part_w(name, partner)[1]
        return bench.world.part_w(name, port)[0] + outgoing_w

    switch = EmulatedPolatis(
        name,
        bench.clock,
        serial=model.emulated_serial(name),
        n_inputs=model.n_inputs,
        n_outputs=model.n_outputs,
        changed=bench.world.about_to_change,
        power_w=power_w,
    )
    bench.world.inline_devices.add_switch(name, switch.connections, model.insertion_loss_db)
    return switch


def _check(bench: BenchData, name: str) -> Iterator[Check]:
    sides = [bench.devices[name].get(key, 16) for key in ("n_inputs", "n_outputs")]
    if not all(is_index(side) for side in sides):
        return
    for base, fibre in (*bench.inputs, *bench.outputs, *bench.fibres):
        for i, part in enumerate(map(mapping, items(fibre.get("through")))):
            ports = {key: part[key] for key in ("enters", "leaves") if is_index(part.get(key))}
            if part.get("device") != name or len(ports) < 2:
                continue
            path = (*base, "through", i)
            outside = [key for key, port in ports.items() if not 1 <= port <= sum(sides)]
            size = f"({name!r} has {sides[0]} inputs and {sides[1]} outputs)"
            for key in outside:
                yield Check((*path, key), f"expected a port from 1 to {sum(sides)} {size}, found {ports[key]}")
            ends = [port <= sides[0] for port in ports.values()]
            if not outside and ends[0] == ends[1] and ports["enters"] != ports["leaves"]:
                actual = f"the {'inputs' if ends[0] else 'outputs'} {ports['enters']} and {ports['leaves']}"
                yield Check((*path, "leaves"), f"expected an input and an output of {name!r}, found {actual}")


KIND = DeviceKind(
    title="Polatis (HUBER+SUHNER) matrix switch",
    role=Role.SWITCH,
    model=MatrixSwitchModel,
    open=_open,
    emulate=_emulate,
    check=_check,
    scpi=ScpiIdentity("polatis|huber", "", names_model=False),
)
