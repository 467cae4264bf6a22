"""``acme-pm2``: all that the kind is."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lumion_hw.bench import DeviceKind, MeterModel, Number, Role, ScpiIdentity


class AcmeMeterModel(MeterModel):
    """ACME PM2 power meter."""

    kind: Literal["acme-pm2"]
    serial: str | None = Field(None, description="Expected serial number.")
    averaging_s: Number = Field(0.02, ge=0.01, le=1.0, description="Averaging time of both channels.")
    wavelength_nm: Number = Field(1550.0, ge=1500.0, le=1600.0, description="Wavelength of both channels.")


def _open(name, model, link, clock):
    from acme_lumion.driver import AcmePm2

    return model.set_up(AcmePm2(link, clock, name))


def _emulate(bench, name, model):
    from acme_lumion.emulator import EmulatedAcmePm2

    return EmulatedAcmePm2(name, lambda channel: bench.world.meter_w(name, channel), model.emulated_serial(name))


def _faults():
    from lumion_hw.emulator import ScriptedFault, sets

    return (ScriptedFault("lens_cap", "its cap is on", begin=sets("capped", True), end=sets("capped", False)),)


KIND = DeviceKind(
    title="ACME PM2 power meter",
    role=Role.METER,
    model=AcmeMeterModel,
    open=_open,
    emulate=_emulate,
    wire="tcp",
    scpi=ScpiIdentity("acme", "PM2$", names_model=False),
    faults=_faults,
    channels=lambda _device: (2, "acme-pm2"),
)
