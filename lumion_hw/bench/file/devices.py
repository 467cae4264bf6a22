"""Base classes of the entries under ``devices`` in a bench file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from pydantic import Field

from lumion_hw.bench.file.fields import Address, Name, Number, Port, StrictModel

if TYPE_CHECKING:
    from lumion_hw.bench.file.module_optics import ModuleOptics
    from lumion_hw.emulator.faults.fault_table import ScriptedFault
    from lumion_hw.interfaces import ControllerLimits, PowerMeter

MeterT = TypeVar("MeterT", bound="PowerMeter")


class _Driver(Protocol):
    """A driver that can be opened."""

    def open(self) -> None:
        """Connect to the device."""


DriverT = TypeVar("DriverT", bound=_Driver)


class DeviceModel(StrictModel):
    """Base class of all device entries in a bench file."""

    address: Address | None = Field(
        None,
        description="Address of the real device, such as tcp://host:port or serial:///dev/ttyUSB0?baud=115200; not "
        "used when emulated.",
    )
    emulated_port: Port | None = Field(
        None, description="TCP port for `lumion emulate`. Default: a free port or a pseudo-terminal."
    )
    emulated_hislip_port: Port | None = Field(
        None,
        description="HiSLIP port of a SCPI instrument for `lumion emulate`; 4880 is the standard port.",
    )
    kind: str

    @property
    def container(self) -> str | None:
        """Name of the mainframe that contains this device; ``None`` without a mainframe."""
        return None

    @property
    def optics(self) -> ModuleOptics | None:
        """Optical data for circuit planning; ``None`` if the device is not a module."""
        return None

    def emulated_serial(self, name: str) -> str:
        """Return the serial number of the emulated device: from the bench file, or derived from ``name``."""
        return getattr(self, "serial", None) or f"EMU-{name}"[:16]

    def open_device(self, device: DriverT) -> DriverT:
        """Open a device with its driver, apply the settings of the bench file, and return the device."""
        device.open()
        return cast(DriverT, self.set_up(device))

    def set_up(self, device: Any) -> Any:
        """Apply the settings of the bench file to an open device and return the device; close it on an error.

        Must not switch light or heaters on.
        """
        return device


class HeaterDriverModel(DeviceModel):
    """Base class of bench-file entries for heater controllers."""

    heater_max_ma: Number = Field(2.5, gt=0.0, le=1000.0, description="Largest current per heater.")
    heater_ohm: Number = Field(
        1000.0, ge=1.0, le=65535.0, description="Nominal heater resistance, used to compute heater powers."
    )
    total_power_mw: Number = Field(1000.0, gt=0.0, le=4e6, description="Limit of the total power of all heaters.")
    leave_on_s: Number = Field(
        0.0,
        ge=0.0,
        le=3600.0,
        description="Longest time that heaters stay on after the program has ended; 0: switch them off. A controller "
        "without a watchdog keeps them on without limit.",
    )
    parts: tuple[Name, ...] | None = Field(
        None, description="Controllers that this entry stands for; set for the key controllers of section mesh."
    )

    @property
    def photodiodes_a_per_w(self) -> float | None:
        """Nominal responsivity of the photodiodes at the ports, in A/W; ``None`` without photodiodes."""
        return None

    def emulated_channels(self, needed: int) -> int:
        """Return the number of drive channels of the emulated controller, if ``needed`` heaters are wired to it."""
        return needed

    def limits(self, n_heaters: int, watchdog_s: float = 0.0) -> ControllerLimits:
        """Return the heater limits of the bench file, which are equal for all heaters."""
        import numpy as np

        from lumion_hw.interfaces import ControllerLimits

        return ControllerLimits(
            heater_max_ma=np.full(n_heaters, self.heater_max_ma),
            heater_ohm=np.full(n_heaters, self.heater_ohm),
            total_power_mw=self.total_power_mw,
            watchdog_s=watchdog_s,
        )


def is_several(device: DeviceModel) -> bool:
    """Return whether an entry stands for several controllers together, which have entries of their own."""
    return isinstance(device, HeaterDriverModel) and bool(device.parts)


class MeterModel(DeviceModel):
    """Base class of bench-file entries for power meters."""

    averaging_s: Number
    wavelength_nm: Number

    def set_up(self, device: MeterT) -> MeterT:
        """Set every channel to automatic range and to the wavelength and averaging time of the bench file.

        Returns:
            The meter.
        """
        from lumion_hw.drivers.life_cycle import close_on_error

        with close_on_error(device.close):
            for channel in device.channels:
                device.set_range_dbm(channel, None)
                device.set_wavelength_nm(channel, self.wavelength_nm)
                device.set_averaging_s(channel, self.averaging_s)
        return device


def meter_faults() -> tuple[ScriptedFault, ...]:
    """Return the scripted faults of all power meters that can be zeroed."""
    from lumion_hw.emulator.faults.device_faults import ZERO_FAILS

    return (ZERO_FAILS,)


class TriggeredMeterModel(MeterModel):
    """Base class of bench-file entries for power meters with a trigger input."""

    triggered_by: Name | None = Field(
        None,
        description="Laser whose trigger output is wired to the trigger input of this meter, which allows continuous "
        "wavelength sweeps. A laser in the mainframe of the meter needs no cable.",
    )


class PartModel(DeviceModel):
    """Base class of bench-file entries for devices in the light path."""

    insertion_loss_db: Number
