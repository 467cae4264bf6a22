"""Codec of the Qontrol serial protocol: text and binary requests, patterns of reply lines, and error codes.

Source: recordings of real modules (Q8iv, firmware v2.4.1) and public documents.
"""

from __future__ import annotations

import enum
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FULL_SCALE_CODE = 65535
"""Binary code of the full scale of a channel (16 bits)."""
VECTOR_LENGTH = 8
"""Values of a text request that sets all channels of a module; the modules recorded have eight channels."""

_FLAG_BINARY, _FLAG_ALL, _FLAG_READ, _FLAG_VECTOR, _FLAG_PARITY = 0x80, 0x20, 0x08, 0x02, 0x01


class Quantity(enum.Enum):
    """A quantity of a channel: its name in text requests, its code in binary requests and its unit in replies."""

    VOLTAGE = ("V", 0x00, "V")
    CURRENT = ("I", 0x01, "mA")
    VOLTAGE_LIMIT = ("VMAX", 0x02, "V")
    CURRENT_LIMIT = ("IMAX", 0x03, "mA")

    def __init__(self, text: str, code: int, unit: str) -> None:
        self.text = text
        self.code = code
        self.unit = unit


OK_LINE = re.compile(r"OK")
RENUMBERED_LINE = re.compile(r"\x06OK")
IDENTITY_LINE = re.compile(r"(\w*\d\w*)-([0-9a-fA-F]+|\*+)")
CHAIN_ENTRY_LINE = re.compile(r"(\w*\d\w*)-([0-9a-fA-F]+|\*+)\s*:\s*(\d+)")
INTEGER_LINE = re.compile(r"(\d+)")
FIRMWARE_LINE = re.compile(r"(v\d[\w.]*)")
VOLTAGE_LINE = re.compile(r"([+-]?\d+\.\d+) V")
CURRENT_LINE = re.compile(r"([+-]?\d+\.\d+) mA")
# The longer form with power and resistance appears only under load; the rule is not published.
CHANNEL_READING_LINE = re.compile(
    r"(\d+),(\d+): ([+-]\d+\.\d+) V, ([+-]\d+\.\d+) mA(?:, +[+-]?\d+\.\d+ mW, +[+-]?\d+ Ohm)?"
)
LOG_ENTRY_LINE = re.compile(r"# *(\d+), E(\d+):(\d+), +(\d+) ([smh]) ago")
ERROR_LINE = re.compile(r"[A-Za-z]{1,3}(\d{1,3}):(\d{1,3})")
"""Error line, which may arrive at any time; groups: code, channel within the module."""

_LINE_BY_UNIT = {"V": VOLTAGE_LINE, "mA": CURRENT_LINE}

ERROR_NAMES = {
    0: "NOT_READABLE",
    1: "OVER_VOLTAGE",
    2: "OVER_CURRENT",
    3: "POWER",
    4: "CALIBRATION",
    5: "OUTPUT",
    10: "UNKNOWN_COMMAND",
    11: "UNKNOWN_PARAMETER",
    12: "UNKNOWN_CHANNEL",
    13: "FORBIDDEN",
    14: "BUFFER_OVERFLOW",
    15: "SERIAL_COMMUNICATION",
    16: "COMMAND_TIMED_OUT",
    17: "SPI",
    18: "ADC",
    19: "I2C",
    20: "INTERLOCK",
    30: "ERRORS_SUPPRESSED",
    31: "FIRMWARE_TRAP",
    90: "POWERED_UP",
}
REQUEST_ERRORS = frozenset({0, 10, 11, 12, 13, 14, 15, 16})
"""Codes that report a wrong request; all other codes report a problem of an output or of a module."""
OVER_VOLTAGE, OVER_CURRENT, SERIAL_ERROR, ERRORS_SUPPRESSED, POWERED_UP = 1, 2, 15, 30, 90


def error_name(code: int) -> str:
    """Return the name of an error code; ``ERROR_nn`` for an unknown code."""
    return ERROR_NAMES.get(code, f"ERROR_{code:02d}")


@dataclass(frozen=True)
class QontrolRequest:
    """One request and the format of its reply.

    Attributes:
        text: Request as text, for messages.
        data: Bytes to send.
        line_pattern: Pattern that every line of the reply must match completely.
        n_lines: Number of reply lines.
    """

    text: str
    data: bytes
    line_pattern: re.Pattern[str] = OK_LINE
    n_lines: int = 1


def encode_text_request(text: str, line_pattern: re.Pattern[str] = OK_LINE, n_lines: int = 1) -> QontrolRequest:
    """Return a text request to the modules, terminated by LF."""
    return QontrolRequest(text, text.encode("ascii") + b"\n", line_pattern, n_lines)


def codes_from_values(values: NDArray[np.float64], full_scale: NDArray[np.float64] | float) -> NDArray[np.uint16]:
    """Convert values between 0 and ``full_scale`` to 16-bit codes, rounded to the nearest step."""
    return np.rint(values / full_scale * FULL_SCALE_CODE).astype(np.uint16)


def format_value(value: float) -> str:
    """Return a value as text with up to four decimals and no exponent: ``4.5``, ``0.0``, ``13.1499``."""
    # The number format of the protocol has no exponent, and how a module reacts to an exponent was not recorded.
    integer, _, decimals = f"{value:.4f}".partition(".")
    return f"{integer}.{decimals.rstrip('0') or '0'}"


def encode_set_channel_text(quantity: Quantity, channel: int, value: float) -> QontrolRequest:
    """Return the text request that sets one channel, such as ``V3=4.5``."""
    return encode_text_request(f"{quantity.text}{channel}={format_value(value)}")


def encode_set_vector_text(quantity: Quantity, first_channel: int, values: Sequence[float]) -> QontrolRequest:
    """Return the text request that sets all channels of one module, such as ``IVEC8=0.0,1.25,…``."""
    return encode_text_request(f"{quantity.text}VEC{first_channel}={','.join(map(format_value, values))}")


def encode_set_vector_binary(quantity: Quantity, first_channel: int, codes: NDArray[np.uint16]) -> QontrolRequest:
    """Return the binary request that sets neighbouring channels of one module."""
    head = struct.pack(">BBBHH", _encode_header(_FLAG_VECTOR), quantity.code, 0, first_channel, len(codes))
    last = first_channel + len(codes) - 1
    return QontrolRequest(f"binary {quantity.text}{first_channel}…{last}=", head + codes.astype(">u2").tobytes())


def encode_read_all_text(quantity: Quantity, n_channels: int) -> QontrolRequest:
    """Return the text request that reads all channels, such as ``IALL?``."""
    return encode_text_request(f"{quantity.text}ALL?", _LINE_BY_UNIT[quantity.unit], n_channels)


def encode_read_all_binary(quantity: Quantity, n_channels: int) -> QontrolRequest:
    """Return the binary request that reads all channels. The reply is text."""
    data = struct.pack(">BBBHH", _encode_header(_FLAG_READ | _FLAG_ALL), quantity.code, 0, 0, 0)
    return QontrolRequest(f"binary {quantity.text}ALL?", data, _LINE_BY_UNIT[quantity.unit], n_channels)


def _encode_header(flags: int) -> int:
    header = _FLAG_BINARY | flags
    return header | _FLAG_PARITY if header.bit_count() % 2 else header
