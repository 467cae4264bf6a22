"""Ways to a pluggable module that are no byte streams: an I2C bus of this computer, an FTDI chip, a memory file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lumion_hw.bench.fields import checked_address
from lumion_hw.clock import Clock
from lumion_hw.errors import ConfigError

if TYPE_CHECKING:
    from lumion_hw.sessions.module_pages import ModulePages
    from lumion_hw.sessions.register_access import I2cDevice

_EXPECTED = "Expected i2c://1 (a bus number), ftdi://ftdi:232h/1 or optoe:///sys/bus/i2c/devices/1-0050/eeprom."


@dataclass(frozen=True)
class ModuleWay:
    """A checked address that is no byte stream: its scheme, and what stands behind it."""

    scheme: str
    rest: str

    @property
    def address(self) -> str:
        """The address as the bench file writes it."""
        return f"{self.scheme}://{self.rest}"

    def device(self, clock: Clock, name: str) -> I2cDevice | ModulePages:
        """Return what a driver of modules takes, not yet open."""
        if self.scheme == "optoe":
            from lumion_hw.sessions.linear_pages import LinearPages

            return LinearPages(self.rest, clock, device=name)
        if self.scheme == "ftdi":
            from lumion_hw.sessions.i2c_ftdi import FtdiDevice

            return FtdiDevice(self.address, device=name)
        from lumion_hw.sessions.i2c_smbus import SmbusDevice

        return SmbusDevice(int(self.rest), device=name)


def module_way(address: str) -> ModuleWay | None:
    """Return the way an address describes; ``None`` for an address of a byte stream.

    Raises:
        ConfigError: It begins like one of these ways and is none.
    """
    scheme, _, rest = address.partition("://")
    right = {"i2c": rest.isascii() and rest.isdigit(), "ftdi": bool(rest), "optoe": rest.startswith("/")}
    if scheme not in right:
        return None
    if not right[scheme]:
        raise ConfigError(f"{address!r} is not an address of a module", hint=_EXPECTED)
    return ModuleWay(scheme, rest)


def checked_module_address(address: str) -> str:
    """Return the address of a module unchanged.

    Raises:
        ValueError: Neither a way nor a link can be made from it.
    """
    try:
        return address if module_way(address) is not None else checked_address(address)
    except ConfigError as error:
        raise ValueError(f"expected an address; {error.message}. {error.hint}") from error
