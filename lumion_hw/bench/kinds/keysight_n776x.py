"""``keysight-n776x``: Keysight N776xA and N775xA variable attenuators."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from lumion_hw.bench.file.devices import PartModel
from lumion_hw.bench.file.fields import Number
from lumion_hw.bench.file.kind import DeviceKind, ScpiIdentity
from lumion_hw.bench.file.roles import Role
from lumion_hw.clock import Clock
from lumion_hw.links.base import Link

if TYPE_CHECKING:
    from lumion_hw.drivers.attenuators.keysight_n776x import KeysightN776x
    from lumion_hw.emulator.assembly import EmulatedBench
    from lumion_hw.emulator.attenuators.keysight_n77xx_attenuator import EmulatedN776xA
    from lumion_hw.interfaces import VariableAttenuator

_CHANNELS = {"N7761A": 1, "N7762A": 2, "N7764A": 4, "N7766A": 2, "N7768A": 4, "N7751A": 1, "N7752A": 2}
_DEFAULT: Literal["N7764A"] = "N7764A"


class AttenuatorModel(PartModel):
    """Keysight N7761A, N7762A, N7764A, N7766A, N7768A, or the attenuators of a N7751A or N7752A (SCPI).

    Opening changes neither the attenuation nor the shutter.
    """

    kind: Literal["keysight-n776x"]
    model: Literal["N7761A", "N7762A", "N7764A", "N7766A", "N7768A", "N7751A", "N7752A"] = Field(
        _DEFAULT, description="Expected model."
    )
    serial: str | None = Field(None, description="Expected serial number; opening fails if it differs.")
    wavelength_nm: Number = Field(1550.0, ge=1260.0, le=1640.0, description="Wavelength of every channel.")
    insertion_loss_db: Number = Field(
        2.2, ge=0.0, le=30.0, description="Insertion loss, in addition to the set attenuation."
    )

    @property
    def n_channels(self) -> int:
        """Number of attenuators of this model, numbered from 1."""
        return _CHANNELS[self.model]

    def set_up(self, device: KeysightN776x) -> KeysightN776x:
        """Set the wavelength of every channel as in the bench file, and nothing else; return the attenuator."""
        from lumion_hw.drivers.life_cycle import close_on_error

        with close_on_error(device.close):
            for channel in device.channels:
                device.set_wavelength_nm(channel, self.wavelength_nm)
        return device


def _channels(device: Mapping[Any, Any]) -> tuple[int, str] | None:
    model = device.get("model", _DEFAULT)
    return (_CHANNELS[model], model) if isinstance(model, str) and model in _CHANNELS else None


def _open(name: str, model: AttenuatorModel, link: Link, clock: Clock) -> VariableAttenuator:
    from lumion_hw.drivers.attenuators.keysight_n776x import KeysightN776x

    return model.open_device(
        KeysightN776x(link, clock, device=name, expected_model=model.model, expected_serial=model.serial)
    )


def _emulate(bench: EmulatedBench, name: str, model: AttenuatorModel) -> EmulatedN776xA:
    from lumion_hw.emulator.attenuators.keysight_n77xx_attenuator import EmulatedN776xA

    world = bench.world
    attenuator = EmulatedN776xA(
        name,
        bench.clock,
        model=model.model,
        serial=model.emulated_serial(name),
        n_channels=model.n_channels,
        passing_w=lambda channel: world.part_w(name, channel),
        changed=world.about_to_change,
        insertion_loss_db=model.insertion_loss_db,
    )
    for channel in range(1, model.n_channels + 1):
        world.inline_devices.add_attenuator(name, channel, partial(attenuator.transmission, channel))
    world.before_reading.append(attenuator.advance)  # power control reacts to the input power
    return attenuator


KIND = DeviceKind(
    title="Keysight N7761A to N7768A, N7751A or N7752A variable attenuator",
    role=Role.ATTENUATOR,
    model=AttenuatorModel,
    open=_open,
    emulate=_emulate,
    hislip=True,
    scpi=ScpiIdentity("keysight|agilent|hewlett", "N77(6[12468]|5[12])A$", names_model=True),
    channels=_channels,
)
