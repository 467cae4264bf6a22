"""``thorlabs-pm``: Thorlabs power meters with one channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from lumion_hw.bench.file.devices import MeterModel, meter_faults
from lumion_hw.bench.file.fields import Number
from lumion_hw.bench.file.kind import DeviceKind, ScpiIdentity
from lumion_hw.bench.file.roles import Role
from lumion_hw.clock import Clock
from lumion_hw.links.base import Link

if TYPE_CHECKING:
    from lumion_hw.emulator.assembly import EmulatedBench
    from lumion_hw.emulator.faults.fault_table import ScriptedFault
    from lumion_hw.emulator.meters.thorlabs_pm import ThorlabsPm100
    from lumion_hw.interfaces import PowerMeter


class ThorlabsMeterModel(MeterModel):
    """Thorlabs PM100D, PM100A, PM100USB, PM400, PM101 or PM160 power meter (SCPI)."""

    kind: Literal["thorlabs-pm"]
    model: Literal["PM100D", "PM100A", "PM100USB", "PM400", "PM101", "PM160"] | None = Field(
        None, description="Expected model."
    )
    serial: str | None = Field(None, description="Expected serial number; opening fails if it differs.")
    averaging_s: Number = Field(0.03, ge=1e-5, le=60.0, description="Averaging time, rounded up to whole samples.")
    sample_s: Number = Field(3e-3, ge=1e-5, le=1.0, description="Time of one sample of this model.")
    wavelength_nm: Number = Field(
        1550.0, ge=185.0, le=25000.0, description="Wavelength, which must be in the range of the sensor."
    )


def _open(name: str, model: ThorlabsMeterModel, link: Link, clock: Clock) -> PowerMeter:
    from lumion_hw.drivers.meters.thorlabs_pm import ThorlabsPm

    return model.open_device(
        ThorlabsPm(
            link,
            clock,
            device=name,
            expected_model=model.model,
            expected_serial=model.serial,
            sample_s=model.sample_s,
        )
    )


def _emulate(bench: EmulatedBench, name: str, model: ThorlabsMeterModel) -> ThorlabsPm100:
    from lumion_hw.emulator.meters.thorlabs_pm import ThorlabsPm100

    return ThorlabsPm100(
        name,
        bench.clock,
        bench.rng(name),
        lambda: bench.world.meter_light(name, 1),
        serial=model.emulated_serial(name),
        model=model.model or "PM100D",
    )


def _faults() -> tuple[ScriptedFault, ...]:
    from lumion_hw.emulator.faults.device_faults import calls
    from lumion_hw.emulator.faults.fault_table import ScriptedFault

    unplugged = "the sensor is unplugged"
    return (
        ScriptedFault("no_sensor", unplugged, begin=calls("unplug_sensor"), end=calls("plug_sensor")),
        *meter_faults(),
    )


KIND = DeviceKind(
    title="Thorlabs PM100D, PM100A, PM100USB, PM400, PM101 or PM160 power meter",
    role=Role.METER,
    model=ThorlabsMeterModel,
    open=_open,
    emulate=_emulate,
    wire="pty",
    hislip=True,
    scpi=ScpiIdentity("thorlabs", "PM(100(D|A|USB)|400|101|160)$", names_model=True),
    faults=_faults,
    channels=lambda _: (1, "thorlabs-pm"),
)
