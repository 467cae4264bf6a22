"""Creates links from the addresses in bench files."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlsplit

from lumion_hw.clock import Clock
from lumion_hw.errors import ConfigError
from lumion_hw.links.base import Link
from lumion_hw.links.serial import SerialLink
from lumion_hw.links.tcp import TcpLink
from lumion_hw.links.visa import VisaLink

DEFAULT_BAUD = 115200
"""Baud rate if neither the address nor the kind of device specifies one."""
_EXPECTED = (
    "Expected tcp://host:port, serial:///dev/tty...?baud=115200 or visa://RESOURCE, such as visa://TCPIP0::host::INSTR."
)


def open_link(address: str, clock: Clock, baud: int = DEFAULT_BAUD) -> Link:
    """Return a new link for an address. Call ``open`` on it before use.

    Raises ``ConfigError`` if the address is not valid; the message lists the valid forms.

    Args:
        address: ``tcp://host:port``, ``serial:///dev/ttyUSB0?baud=9600`` (``serial://COM3`` on Windows) or ``visa://``
            followed by a VISA resource name.
        clock: Wall clock (not a virtual clock) for the deadlines.
        baud: Baud rate of a serial address that does not specify one.
    """
    scheme, separator, location = address.partition("://")
    if separator and scheme == "serial":
        return _serial(address, location, clock, baud)
    if separator and scheme == "tcp":
        return _tcp(address, clock)
    if not separator or scheme != "visa":
        raise ConfigError(f"{address!r} is not a device address", hint=_EXPECTED)
    if "::" not in location:
        raise ConfigError(f"{address!r} needs a VISA resource name after visa://", hint=_EXPECTED)
    return VisaLink(location, clock)


def serial_baud(address: str) -> int | None:
    """Return the baud rate of a serial address, or ``None`` for other addresses."""
    scheme, _, location = address.partition("://")
    baud = dict(parse_qsl(location.partition("?")[2])).get("baud", str(DEFAULT_BAUD))
    return int(baud) if scheme == "serial" and baud.isdigit() else None


def _tcp(address: str, clock: Clock) -> Link:
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"{address!r}: {error}", hint=_EXPECTED) from error
    if not host or not port or parts.path.strip("/") or parts.query:
        raise ConfigError(f"{address!r} needs exactly a host and a port", hint=_EXPECTED)
    return TcpLink(host, port, clock)


def _serial(address: str, location: str, clock: Clock, baud: int) -> Link:
    path, _, query = location.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    baud_text = options.pop("baud", str(baud))
    if not path or options:
        unknown = f" (unknown: {', '.join(sorted(options))})" if options else ""
        raise ConfigError(f"{address!r} needs a path and accepts only the option baud{unknown}", hint=_EXPECTED)
    if not (baud_text.isascii() and baud_text.isdigit() and int(baud_text) > 0):
        raise ConfigError(f"{address!r}: baud must be a positive integer, not {baud_text!r}", hint=_EXPECTED)
    return SerialLink(unquote(path), int(baud_text), clock)
