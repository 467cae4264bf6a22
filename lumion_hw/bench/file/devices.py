"""What entries under ``devices`` of a bench file have in common, whatever their kind (:mod:`lumion_hw.bench.kinds`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import Field

from lumion_hw.bench.file.fields import Address, Name, Number, Port, StrictModel

if TYPE_CHECKING:
    from lumion_hw.bench.file.module_optics import ModuleOptics
    from lumion_hw.emulator.faults.fault_table import ScriptedFault
    from lumion_hw.interfaces import ControllerLimits, PowerMeter

MeterT = TypeVar("MeterT", bound="PowerMeter")


class DeviceModel(StrictModel):
    """What every device has."""

    address: Address | None = Field(
        None,
        description="Where the real device is reached, such as tcp://host:port or serial:///dev/ttyUSB0?baud=115200; "
        "not used when emulated.",
    )
    emulated_port: Port | None = Field(
        None, description="TCP port on which `lumion emulate` serves it, in place of any free one or a pty."
    )
    emulated_hislip_port: Port | None = Field(
        None,
        description="Port on which `lumion emulate` serves it by HiSLIP, if it is a SCPI instrument; 4880 is usual.",
    )
    kind: str

    @property
    def inside(self) -> str | None:
        """Name of the device that this one is plugged into, and that has its address; ``None`` if it stands alone."""
        return None

    @property
    def optics(self) -> ModuleOptics | None:
        """What circuits are planned with, if it is a module that can end one; ``None`` for everything else."""
        return None

    def emulated_serial(self, name: str) -> str:
        """Return the serial number with which it answers when it is emulated: the expected one, if there is any.

        Args:
            name: Device name of the bench file.
        """
        return getattr(self, "serial", None) or f"EMU-{name}"[:16]

    def set_up(self, device: Any) -> Any:
        """Tell an open device what its entry says, and return it; one that fails is closed.

        Done at opening, and again by a served bench when a device comes back with other settings than it had: never
        anything that switches light or heat on.
        """
        return device


class HeaterDriverModel(DeviceModel):
    """What every controller of heater currents is told of its heaters."""

    heater_max_ma: Number = Field(2.5, gt=0.0, le=1000.0, description="Largest current per heater.")
    heater_ohm: Number = Field(1000.0, ge=1.0, le=65535.0, description="Nominal heater resistance, for power sums.")
    total_power_mw: Number = Field(1000.0, gt=0.0, le=4e6, description="Cap on the power of all heaters together.")
    leave_on_s: Number = Field(
        0.0,
        ge=0.0,
        le=3600.0,
        description="Longest time that heaters stay on after the program has ended; 0: they go off. Without a watchdog "
        "nothing ends it.",
    )

    @property
    def photodiodes_a_per_w(self) -> float | None:
        """Nominal responsivity of its photodiodes at the ports; ``None`` if it has none."""
        return None

    def limits(self, n_heaters: int, watchdog_s: float = 0.0) -> ControllerLimits:
        """Return the limits of the bench file, the same for every heater."""
        import numpy as np

        from lumion_hw.interfaces import ControllerLimits

        return ControllerLimits(
            heater_max_ma=np.full(n_heaters, self.heater_max_ma),
            heater_ohm=np.full(n_heaters, self.heater_ohm),
            total_power_mw=self.total_power_mw,
            watchdog_s=watchdog_s,
        )


class MeterModel(DeviceModel):
    """What every power meter is told; each kind has its own limits and defaults of it."""

    averaging_s: Number
    wavelength_nm: Number

    def set_up(self, device: MeterT) -> MeterT:
        """Let every channel range automatically, at the wavelength and averaging time of the file; return the meter."""
        from lumion_hw.drivers.life_cycle import close_on_error

        with close_on_error(device.close):
            for channel in device.channels:
                device.set_range_dbm(channel, None)
                device.set_wavelength_nm(channel, self.wavelength_nm)
                device.set_averaging_s(channel, self.averaging_s)
        return device


def meter_faults() -> tuple[ScriptedFault, ...]:
    """Return what can go wrong with every power meter that zeroes."""
    from lumion_hw.emulator.faults.device_faults import ZERO_FAILS

    return (ZERO_FAILS,)


class TriggeredMeterModel(MeterModel):
    """What a power meter with a trigger input is told besides."""

    triggered_by: Name | None = Field(
        None,
        description="Laser whose trigger output is wired to the trigger input of this meter: scans of its wavelength "
        "then sweep. One in the mainframe of the meter needs no cable.",
    )


class PartModel(DeviceModel):
    """What every device that light passes is told; each kind has its own default of it."""

    insertion_loss_db: Number
