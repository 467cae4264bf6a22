"""``novoptel-pm1000``: Novoptel PM1000 polarimeters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from lumion_hw.bench.file.devices import DeviceModel
from lumion_hw.bench.file.fields import Number
from lumion_hw.bench.file.kind import DeviceKind, DiscoveryQuery
from lumion_hw.bench.file.roles import Role
from lumion_hw.clock import Clock
from lumion_hw.links.address import serial_baud
from lumion_hw.links.base import Link

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lumion_hw.drivers.polarization.novoptel_pm1000 import NovoptelPm1000
    from lumion_hw.emulator.assembly import EmulatedBench
    from lumion_hw.emulator.polarization.novoptel_pm1000 import Pm1000
    from lumion_hw.interfaces import Polarimeter

_TYPE_NAME = range(656, 659)  # the first three registers of the type name, two letters each


class PolarimeterModel(DeviceModel):
    """Novoptel PM1000 polarimeter: over LAN (tcp, port 5025) or USB 2 (serial, 230 400 baud)."""

    kind: Literal["novoptel-pm1000"]
    serial: str | None = Field(None, description="Expected serial number; opening fails if it differs.")
    averaging_s: Number = Field(
        1e-3,
        ge=1e-8,
        le=0.0104,
        description="Averaging time, rounded to the nearest value that the polarimeter supports.",
    )
    frequency_thz: Number | None = Field(
        None,
        ge=150.0,
        le=400.0,
        description="Optical frequency that selects the calibration of the polarimeter; by default unchanged.",
    )

    def set_up(self, device: NovoptelPm1000) -> NovoptelPm1000:
        """Set the averaging time and frequency from the bench file; return the polarimeter."""
        from lumion_hw.drivers.life_cycle import close_on_error

        with close_on_error(device.close):
            device.set_averaging_s(self.averaging_s)
            if self.frequency_thz is not None:
                device.set_frequency_thz(self.frequency_thz)
        return device


def _open(name: str, model: PolarimeterModel, link: Link, clock: Clock) -> Polarimeter:
    from lumion_hw.drivers.polarization.novoptel_pm1000 import NovoptelPm1000

    is_serial = serial_baud(link.name) is not None
    return model.open_device(
        NovoptelPm1000(link, clock, device=name, serial_line=is_serial, expected_serial=model.serial)
    )


def _emulate(bench: EmulatedBench, name: str, model: PolarimeterModel) -> Pm1000:
    import numpy as np

    from lumion_hw.emulator.optics.polarization import rotation_of_stokes
    from lumion_hw.emulator.optics.truth import random_unitary
    from lumion_hw.emulator.polarization.novoptel_pm1000 import Pm1000

    rotation = rotation_of_stokes(random_unitary(bench.rng(f"{name} fibre")))

    def light() -> NDArray[np.float64]:
        stokes_w = bench.world.polarimeter_w(name)
        return np.append(stokes_w[0], rotation @ stokes_w[1:])

    return Pm1000(name, bench.clock, bench.rng(name), light, serial=model.emulated_serial(name))


def _queries() -> tuple[DiscoveryQuery, ...]:
    from lumion_hw.sessions.codecs.novoptel import LAN, USB2

    on_usb = b"".join(map(USB2.read_request, _TYPE_NAME)) + b"\n"
    return (
        DiscoveryQuery("Novoptel PM1000 over USB 2 (type)", (230400,), on_usb, _identify),
        DiscoveryQuery("Novoptel PM1000 over LAN (type)", (), b"".join(map(LAN.read_request, _TYPE_NAME)), _identify),
    )


def _identify(answer: bytes) -> tuple[str, dict[str, Any]] | None:
    registers = re.findall(rb"([0-9A-Fa-f]{4})\r", answer)
    name = bytes.fromhex(b"".join(registers).decode()) if registers else answer
    return ("Novoptel PM1000", {}) if name.startswith(b"PM1000") else None


KIND = DeviceKind(
    title="Novoptel PM1000 polarimeter: `tcp` for LAN (port 5025), `serial` for USB 2",
    role=Role.POLARIMETER,
    model=PolarimeterModel,
    open=_open,
    emulate=_emulate,
    baud=230400,
    queries=_queries,
)
