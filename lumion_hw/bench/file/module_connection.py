"""Connections to pluggable modules: serial-to-I2C bridges, I2C adapters and memory files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import parse_qsl

from pydantic import AfterValidator, Field

from lumion_hw.bench.file.devices import DeviceModel
from lumion_hw.bench.file.fields import WholeNumber, checked_address
from lumion_hw.clock import Clock
from lumion_hw.errors import ConfigError

if TYPE_CHECKING:
    from lumion_hw.links.base import Link
    from lumion_hw.sessions.module.adapter import I2cAdapter, PinnedAdapter
    from lumion_hw.sessions.module.linear_file import LinearFile, LinearPages
    from lumion_hw.sessions.module.pages import ModulePages
    from lumion_hw.sessions.module.registers import I2cDevice, RegisterAccess

_EXPECTED = (
    "Expected i2c://1 (a bus number), ftdi://ftdi:232h/1, mcp2221://0 (or its serial number), or "
    "optoe:///sys/bus/i2c/devices/1-0050/eeprom."
)
_OPTIONS: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "i2c": {"read_bytes": (1, 128)},
    "ftdi": {"read_bytes": (1, 128), "clock_khz": (10, 1000)},
    "mcp2221": {"read_bytes": (1, 128), "clock_khz": (47, 400)},
    "optoe": {},
}
"""Allowed options after ``?`` in an address, by scheme: bytes per read transaction, and bus speed."""
PIN_SCHEMES = ("ftdi", "mcp2221")
"""Schemes of adapters that have pins for the low-speed signals of a module."""
_RETRY_S = 0.1
"""Time limit for retries, in seconds; a module may be silent for 80 ms after a write (SFF-8472)."""


@dataclass(frozen=True)
class ModuleConnection:
    """A parsed address of a pluggable module on I2C or in a memory file: scheme, target and options."""

    scheme: str
    target: str
    options: Mapping[str, float] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """The address as in the bench file."""
        query = "&".join(f"{name}={value:g}" for name, value in self.options.items())
        return f"{self.scheme}://{self.target}" + (f"?{query}" if query else "")

    def device(
        self, clock: Clock, name: str, pins: Mapping[str, int] | None = None
    ) -> tuple[I2cDevice | ModulePages, PinnedAdapter | None]:
        """Return the unopened connection for a CMIS driver, and the adapter if low-speed signals are wired to it."""
        if self.scheme == "optoe":
            from lumion_hw.sessions.module.linear_file import LinearPages

            pages: LinearPages = LinearPages(self.target, clock, device=name)
            return pages, None
        from lumion_hw.sessions.module.adapter import PinnedAdapter
        from lumion_hw.sessions.module.paged_i2c import BridgedI2c

        adapter = self._adapter(name, pins)
        return BridgedI2c(adapter), adapter if isinstance(adapter, PinnedAdapter) and pins else None

    def registers(self, clock: Clock, name: str) -> RegisterAccess:
        """Return the unopened connection for an SFP+ driver."""
        if self.scheme == "optoe":
            from lumion_hw.sessions.module.linear_file import LinearFile

            file: LinearFile = LinearFile(self.target, clock, device=name)
            return file
        from lumion_hw.sessions.module.adapter import AdapterRegisters

        return AdapterRegisters(self._adapter(name, None), clock, device=name)

    def _adapter(self, name: str, pins: Mapping[str, int] | None) -> I2cAdapter:
        from lumion_hw.sessions.module.adapter_libraries import FtdiAdapter, Mcp2221Adapter, SmbusAdapter

        adapters: dict[str, type[I2cAdapter]] = {"i2c": SmbusAdapter, "ftdi": FtdiAdapter, "mcp2221": Mcp2221Adapter}
        arguments: dict[str, Any] = {"device": name}
        if pins and self.scheme not in PIN_SCHEMES:
            raise ConfigError(
                "this adapter has no pins for the low-speed signals of a module",
                device=name,
                address=self.address,
                hint=_EXPECTED,
            )
        if pins:
            arguments["pins"] = pins
        if "read_bytes" in self.options:
            arguments["largest_read"] = int(self.options["read_bytes"])
        if "clock_khz" in self.options:
            arguments["clock_khz"] = self.options["clock_khz"]
        return adapters[self.scheme](self.address, **arguments)


def module_connection(address: str) -> ModuleConnection | None:
    """Return the connection for a module address; ``None`` for other addresses (TCP, serial line, VISA).

    Raises:
        ConfigError: The address has the scheme of a module but is not valid.
    """
    scheme, _, location = address.partition("://")
    if scheme not in _OPTIONS:
        return None
    query = ""
    if scheme != "optoe":  # a file may have any name
        location, _, query = location.partition("?")
    is_valid = {"i2c": location.isascii() and location.isdigit(), "optoe": location.startswith("/")}
    if not is_valid.get(scheme, bool(location)):
        raise ConfigError(f"{address!r} is not a valid module address", hint=_EXPECTED)
    return ModuleConnection(scheme, location, _checked_options(address, scheme, query))


def _checked_options(address: str, scheme: str, query: str) -> dict[str, float]:
    ranges = _OPTIONS[scheme]
    expected = "; ".join(f"{name} is {low:g} to {high:g}" for name, (low, high) in ranges.items())
    options: dict[str, float] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        low, high = ranges.get(name, (1.0, 0.0))
        # Digits only: float() would also accept nan, 1e9 and Arabic digits.
        value = float(text) if text.isascii() and text.isdigit() and len(text) < 8 else -1.0
        if name in options or not low <= value <= high:
            raise ConfigError(
                f"{address!r}: {name}={text} is not a valid option of {scheme}://", hint=f"Options: {expected}."
            )
        options[name] = value
    return options


def checked_module_address(address: str) -> str:
    """Check the address of a module, and return the address unchanged.

    Raises:
        ValueError: The text is not a valid address of a module or a link.
    """
    try:
        return address if module_connection(address) is not None else checked_address(address)
    except ConfigError as error:
        raise ValueError(f"expected an address; {error.message}. {error.hint}") from error


class PluggableModel(DeviceModel):
    """A pluggable module behind a serial-to-I2C bridge, an I2C adapter or a memory file."""

    address: Annotated[str, AfterValidator(checked_module_address)] | None = Field(
        None,
        description="Address of the module: i2c://1, ftdi://ftdi:232h/1?clock_khz=100, mcp2221://0, "
        "optoe:///sys/.../eeprom, or tcp:// or serial:// of a bridge; not used when emulated.",
    )
    read_bytes: WholeNumber | None = Field(
        None,
        ge=1,
        le=16,
        description="Longest read in bytes through a bridge at tcp:// or serial://; by default 16. "
        "Addresses of adapters have ?read_bytes= instead.",
    )

    @property
    def nominal_nm(self) -> float | None:
        """Wavelength in the bench file in nm; ``None`` if not given."""
        return None


def module_registers(
    link: Link | ModuleConnection, clock: Clock, name: str, read_bytes: int | None = None
) -> RegisterAccess:
    """Return the unopened connection for an SFP+ driver. A link must lead to a serial-to-I2C bridge.

    Raises ``ConfigError`` if ``read_bytes``, which is for bridges, is given for another connection.
    """
    if isinstance(link, ModuleConnection):
        _check_no_bridge(link, name, read_bytes)
        return link.registers(clock, name)
    from lumion_hw.sessions.module.sc18im700 import FIFO_BYTES, Sc18im700

    return Sc18im700(link, clock, device=name, retry_s=_RETRY_S, largest_read=read_bytes or FIFO_BYTES)


def _check_no_bridge(connection: ModuleConnection, name: str, read_bytes: int | None) -> None:
    if read_bytes is None:
        return
    in_address = "read_bytes" in _OPTIONS[connection.scheme]
    raise ConfigError(
        f"read_bytes is for bridges at tcp:// or serial://, not for {connection.scheme}://",
        device=name,
        address=connection.address,
        hint=f"Append ?read_bytes={read_bytes} to the address instead."
        if in_address
        else "Omit read_bytes: the driver of the operating system splits reads as the module needs.",
    )


def module_device(
    link: Link | ModuleConnection,
    clock: Clock,
    name: str,
    pins: Mapping[str, int] | None,
    read_bytes: int | None = None,
) -> tuple[I2cDevice | ModulePages, PinnedAdapter | None]:
    """Return the unopened connection for a CMIS driver, and the adapter if low-speed signals are wired to it.

    Raises the errors of :func:`module_registers`.
    """
    if isinstance(link, ModuleConnection):
        _check_no_bridge(link, name, read_bytes)
        return link.device(clock, name, pins)
    from lumion_hw.sessions.module.paged_i2c import BridgedI2c

    return BridgedI2c(module_registers(link, clock, name, read_bytes)), None
