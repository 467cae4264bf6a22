"""``oz-da100``: OZ Optics DA-100 and DD-100 variable attenuators."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from lumion_hw.bench.file.devices import PartModel
from lumion_hw.bench.file.fields import Number
from lumion_hw.bench.file.kind import DeviceKind, DiscoveryQuery
from lumion_hw.bench.file.roles import Role
from lumion_hw.clock import Clock
from lumion_hw.links.base import Link

if TYPE_CHECKING:
    from lumion_hw.emulator.assembly import EmulatedBench
    from lumion_hw.emulator.attenuators.oz_da100 import EmulatedDa100
    from lumion_hw.interfaces import VariableAttenuator


class MotorAttenuatorModel(PartModel):
    """OZ Optics DA-100 or DD-100 motor-driven attenuator with a text protocol on a serial line.

    The attenuator reports neither its range nor its wavelength.
    """

    kind: Literal["oz-da100"]
    attenuation_max_db: Number = Field(60.0, gt=0.0, le=99.0, description="Largest attenuation of this unit.")
    insertion_loss_db: Number = Field(
        1.2, ge=0.0, le=30.0, description="Insertion loss, in addition to the set attenuation."
    )


def _open(name: str, model: MotorAttenuatorModel, link: Link, clock: Clock) -> VariableAttenuator:
    from lumion_hw.drivers.attenuators.oz_da100 import OzDa100

    return model.open_device(OzDa100(link, clock, device=name, attenuation_max_db=model.attenuation_max_db))


def _emulate(bench: EmulatedBench, name: str, model: MotorAttenuatorModel) -> EmulatedDa100:
    from lumion_hw.emulator.attenuators.oz_da100 import EmulatedDa100

    world = bench.world
    attenuator = EmulatedDa100(
        name,
        bench.clock,
        attenuation_max_db=model.attenuation_max_db,
        min_loss_db=model.insertion_loss_db,
        changed=world.about_to_change,
    )
    world.inline_devices.add_attenuator(name, 1, attenuator.transmission)
    world.before_reading.append(attenuator.advance)
    return attenuator


def _identify(answer: bytes) -> tuple[str, dict[str, Any]] | None:
    text = " ".join(answer.decode("ascii", "replace").split())
    return ("OZ Optics DA-100", {}) if re.search(r"Atten\w*\s*[:=].*\bDone", text, re.IGNORECASE) else None


KIND = DeviceKind(
    title="OZ Optics DA-100 or DD-100 variable attenuator",
    role=Role.ATTENUATOR,
    model=MotorAttenuatorModel,
    open=_open,
    emulate=_emulate,
    baud=9600,
    wire="pty",
    queries=lambda: (DiscoveryQuery("OZ Optics DA-100 (D)", (9600,), b"D\r\n", _identify),),
    channels=lambda _: (1, "oz-da100"),
)
