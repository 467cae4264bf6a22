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
    n_inputs, n_outputs = (bench.devices[name].get(key, 16) for key in ("n_inputs", "n_outputs"))
    if not (is_index(n_inputs) and is_index(n_outputs)):
        return
    inputs, outputs = range(1, n_inputs + 1), range(n_inputs + 1, n_inputs + n_outputs + 1)
    input_text = f"an input of {name!r} ({_range_text(inputs)})"
    output_text = f"an output of {name!r} ({_range_text(outputs)}, numbered after its inputs)"
    for base, fibre in (*bench.inputs, *bench.outputs, *bench.fibres):
        for i, part in enumerate(map(mapping, items(fibre.get("through")))):
            enters, leaves = part.get("enters"), part.get("leaves")
            if part.get("device") != name or not (is_index(enters) and is_index(leaves)):
                continue
            path = (*base, "through", i)
            if enters not in inputs and enters not in outputs:
                yield Check((*path, "enters"), f"expected {input_text} or {output_text}, found {enters}")
            elif leaves not in (outputs if enters in inputs else inputs):
                side = output_text if enters in inputs else input_text
                yield Check((*path, "leaves"), f"expected {side}, found {leaves}")


def _range_text(ports: range) -> str:
    return f"{ports[0]} to {ports[-1]}" if len(ports) > 1 else f"{ports[0]}"


KIND = DeviceKind(
    title="Polatis (HUBER+SUHNER) matrix switch",
    role=Role.SWITCH,
    model=MatrixSwitchModel,
    open=_open,
    emulate=_emulate,
    check=_check,
    scpi=ScpiIdentity("polatis|huber", "", names_model=False),
)
