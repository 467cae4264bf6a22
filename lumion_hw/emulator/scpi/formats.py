"""Functions that format values for SCPI replies."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import cache

import numpy as np


@cache
def short_form(spelling: str) -> str:
    """Return the upper-case part of a documented spelling: ``WAVelength`` -> ``WAV``."""
    return "".join(character for character in spelling if not character.islower())


@cache
def forms(spelling: str) -> frozenset[str]:
    """Return the short form (the capitals) and the long form of a spelling like ``WAVelength``, in upper case."""
    return frozenset((short_form(spelling), spelling.upper()))


FLOAT32_MAX: float = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]
"""Largest float32, about 3.4028E+38: Keysight meters send it for a power that they cannot express."""


def float32(value: float) -> float:
    """Round to float32. Values beyond the range give the largest float32."""
    bounded = max(-FLOAT32_MAX, min(FLOAT32_MAX, value))
    return float(struct.unpack("<f", struct.pack("<f", bounded))[0])


def keysight_float(value: float) -> str:
    """Format a number with sign, nine significant digits and a three-digit exponent: ``+1.33555600E-006``."""
    # Python prints two digits of the exponent, these instruments three.
    mantissa, exponent = f"{value:+.8E}".split("E")
    return f"{mantissa}E{int(exponent):+04d}"


def keysight_float32(value: float) -> str:
    """Return :func:`keysight_float` of a float32, with the shortest equivalent digits.

    1.31e-6 m is sent as ``+1.31000000E-006``, as in the manual. Only the largest float32 has all nine digits.
    """
    rounded = float32(value)
    return keysight_float(rounded if abs(rounded) == FLOAT32_MAX else float(str(np.float32(rounded))))


def keysight_int(value: int) -> str:
    """Format an integer with its sign: ``+1``, ``+0``."""
    return f"{value:+d}"


def plain_float(value: float) -> str:
    """Format a number with nine significant digits and a two-digit exponent: ``1.31000000E+03``."""
    return f"{value:.8E}"


def plain_int(value: int) -> str:
    """Format an integer without a plus sign: ``21``."""
    return f"{value:d}"


def quoted(text: str) -> str:
    """Return ``text`` in quotes, with inner quotes doubled."""
    return '"' + text.replace('"', '""') + '"'


def definite_block(payload: bytes) -> bytes:
    """Return a definite-length block: ``#``, number of length digits, length, payload (IEEE 488.2 section 8.7.9)."""
    length = str(len(payload))
    return f"#{len(length)}{length}".encode("ascii") + payload


def float32_block(values: Iterable[float]) -> bytes:
    """Return a definite-length block of little-endian float32 values."""
    return definite_block(b"".join(struct.pack("<f", float32(value)) for value in values))


def uint16_block(values: Iterable[int]) -> bytes:
    """Return a definite-length block of little-endian unsigned 16-bit values."""
    return definite_block(b"".join(struct.pack("<H", value) for value in values))
