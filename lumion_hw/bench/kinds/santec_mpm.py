"""``santec-mpm``: Santec MPM power meters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from lumion_hw.bench.file.checks import trigger_check
from lumion_hw.bench.file.devices import TriggeredMeterModel, meter_faults
from lumion_hw.bench.file.fields import Number
from lumion_hw.bench.file.kind import DeviceKind, ScpiIdentity
from lumion_hw.bench.file.roles import Role
from lumion_hw.clock import Clock
from lumion_hw.links.base import Link

if TYPE_CHECKING:
    from lumion_hw.emulator.assembly import EmulatedBench
    from lumion_hw.emulator.meters.santec_mpm import EmulatedSantecMpm
    from lumion_hw.emulator.optics.light import Light
    from lumion_hw.interfaces import PowerMeter


class SantecMeterModel(TriggeredMeterModel):
    """Santec MPM-210 or MPM-210H power meter mainframe, with four channels per module, numbered from 1."""

    kind: Literal["santec-mpm"]
    serial: str | None = Field(None, description="Expected serial number; opening fails if it differs.")
    averaging_s: Number = Field(0.01, ge=1e-5, le=10.0, description="Averaging time of all channels.")
    wavelength_nm: Number = Field(1550.0, ge=1250.0, le=1630.0, description="Wavelength of every channel.")


def _open(name: str, model: SantecMeterModel, link: Link, clock: Clock) -> PowerMeter:
    from lumion_hw.drivers.meters.santec_mpm import SantecMpm

    return model.open_device(SantecMpm(link, clock, device=name, expected_serial=model.serial))


def _emulate(bench: EmulatedBench, name: str, model: SantecMeterModel) -> EmulatedSantecMpm:
    from lumion_hw.emulator.meters.santec_mpm import EmulatedSantecMpm

    def light(module: int, port: int, at_s: float) -> Light:
        return bench.world.meter_light_at(name, 4 * module + port, at_s)

    meter = EmulatedSantecMpm(name, bench.clock, bench.rng(name), light, serial=model.emulated_serial(name))
    bench.trigger_cable(model.triggered_by, meter.hardware_trigger)
    return meter


KIND = DeviceKind(
    title="Santec MPM-210 power meter",
    role=Role.METER,
    model=SantecMeterModel,
    open=_open,
    emulate=_emulate,
    scpi=ScpiIdentity("santec", "MPM-210H?$", names_model=False),
    faults=meter_faults,
    check=trigger_check,
)
