"""``keysight-n77xx``: Keysight N7744 and N7745 multiport power meters."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

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
    from lumion_hw.emulator.meters.keysight_n77xx import EmulatedKeysightN77xx
    from lumion_hw.interfaces import PowerMeter

_CHANNELS = {"N7744A": 4, "N7745A": 8, "N7744C": 4, "N7745C": 8}
_DEFAULT: Literal["N7745A"] = "N7745A"


class PowerMeterModel(TriggeredMeterModel):
    """Keysight N7744 or N7745 multiport power meter (SCPI)."""

    kind: Literal["keysight-n77xx"]
    model: Literal["N7744A", "N7745A", "N7744C", "N7745C"] = Field(_DEFAULT, description="Expected model.")
    serial: str | None = Field(None, description="Expected serial number; opening fails if it differs.")
    averaging_s: Number = Field(0.01, ge=1e-6, le=10.0, description="Averaging time of every channel.")
    wavelength_nm: Number = Field(1550.0, ge=1250.0, le=1650.0, description="Wavelength of every channel.")

    @property
    def n_channels(self) -> int:
        """Number of channels of this model, numbered from 1."""
        return _CHANNELS[self.model]


def _channels(device: Mapping[Any, Any]) -> tuple[int, str] | None:
    model = device.get("model", _DEFAULT)
    return (_CHANNELS[model], model) if isinstance(model, str) and model in _CHANNELS else None


def _open(name: str, model: PowerMeterModel, link: Link, clock: Clock) -> PowerMeter:
    from lumion_hw.drivers.meters.keysight_n77xx import KeysightN77xx

    return model.open_device(
        KeysightN77xx(link, clock, device=name, expected_model=model.model, expected_serial=model.serial)
    )


def _emulate(bench: EmulatedBench, name: str, model: PowerMeterModel) -> EmulatedKeysightN77xx:
    from lumion_hw.emulator.meters.keysight_n77xx import EmulatedKeysightN77xx

    meter = EmulatedKeysightN77xx(
        name,
        bench.clock,
        bench.rng(name),
        lambda channel: bench.world.meter_w(name, channel),
        model=model.model,
        serial=model.emulated_serial(name),
        n_ports=model.n_channels,
        light_wavelength_nm=lambda channel: bench.world.meter_light(name, channel).wavelength_nm,
        light_at=partial(bench.world.meter_light_at, name) if model.triggered_by is not None else None,
    )
    bench.trigger_cable(model.triggered_by, meter.hardware_trigger)
    return meter


KIND = DeviceKind(
    title="Keysight N7744/N7745 power meter",
    role=Role.METER,
    model=PowerMeterModel,
    open=_open,
    emulate=_emulate,
    hislip=True,
    scpi=ScpiIdentity("keysight|agilent|hewlett", "N774[45][AC]$", names_model=True),
    faults=meter_faults,
    channels=_channels,
    check=trigger_check,
)
