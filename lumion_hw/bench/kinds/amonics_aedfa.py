"""``amonics-aedfa``: Amonics benchtop erbium-doped fibre amplifiers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from lumion_hw.bench.file.devices import DeviceModel
from lumion_hw.bench.file.kind import DeviceKind, DiscoveryQuery
from lumion_hw.bench.file.roles import Role
from lumion_hw.clock import Clock
from lumion_hw.links.base import Link

if TYPE_CHECKING:
    from lumion_hw.emulator.amplifiers.amonics_aedfa import EmulatedAedfa
    from lumion_hw.emulator.assembly import EmulatedBench
    from lumion_hw.emulator.faults.fault_table import ScriptedFault
    from lumion_hw.interfaces import OpticalAmplifier


class FibreAmplifierModel(DeviceModel):
    """Amonics AEDFA: erbium-doped fibre amplifier with constant current or power (text commands, 19200 baud).

    Opening switches nothing on or off.
    """

    kind: Literal["amonics-aedfa"]
    model: str | None = Field(None, description="Expected model, such as AEDFA-23-B-FA.")
    serial: str | None = Field(None, description="Expected serial number; opening fails if it differs.")


def _open(name: str, model: FibreAmplifierModel, link: Link, clock: Clock) -> OpticalAmplifier:
    from lumion_hw.drivers.amplifiers.amonics_aedfa import AmonicsAedfa

    return model.open_device(
        AmonicsAedfa(link, clock, device=name, expected_model=model.model, expected_serial=model.serial)
    )


def _emulate(bench: EmulatedBench, name: str, model: FibreAmplifierModel) -> EmulatedAedfa:
    from lumion_hw.emulator.amplifiers.amonics_aedfa import EmulatedAedfa

    world = bench.world
    amplifier = EmulatedAedfa(
        name,
        bench.clock,
        model=model.model or "AEDFA-23-B-FA",
        serial=model.emulated_serial(name),
        passing_w=lambda: world.part_w(name),
        changed=world.about_to_change,
    )
    world.inline_devices.add_amplifier(name, amplifier.amplification)
    world.before_reading.append(amplifier.advance)
    return amplifier


def _identify(answer: bytes) -> tuple[str, dict[str, Any]] | None:
    model = answer.decode("ascii", "replace").strip()
    if not model.upper().startswith("AEDFA") or not model.isprintable():
        return None
    return f"Amonics {model}", {"model": model}


def _faults() -> tuple[ScriptedFault, ...]:
    from lumion_hw.emulator.faults.device_faults import calls, lasting

    effect = "the interlock is open: the pump switches off and stays off after the fault ends"
    return (lasting("interlock", effect, calls, "set_interlock"),)


KIND = DeviceKind(
    title="Amonics AEDFA erbium-doped fibre amplifier",
    role=Role.AMPLIFIER,
    model=FibreAmplifierModel,
    open=_open,
    emulate=_emulate,
    baud=19200,
    wire="pty",
    faults=_faults,
    queries=lambda: (DiscoveryQuery("Amonics AEDFA (:CAL:SYS:MODEL?)", (19200,), b":CAL:SYS:MODEL?\r\n", _identify),),
)
