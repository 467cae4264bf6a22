"""Calculations that host and board share: currents, power, checksums, and numbers that wrap around."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firmware_protocol.codec import CODE_DTYPE, LIMIT_DTYPE
from firmware_protocol.codes import FULL_SCALE_CODE, SATURATED, Command, Drive, Kind
from firmware_protocol.config import ConfigGlobalRequest
from firmware_protocol.frames import Frame, encode_frame
from firmware_protocol.messages import EstopRequest

ESTOP_WIRE = encode_frame(Frame(Kind.REQ, Command.ESTOP, payload=EstopRequest().encode()))
"""Emergency-stop frame: the same 19 bytes for every board (section 11.4)."""


def is_newer(a: int, b: int) -> bool:
    """Return whether u32 ``a`` is newer than ``b``, that is, ``(a − b) mod 2³²`` is in 1 … 2³¹ − 1."""
    return 1 <= (a - b) % (1 << 32) <= (1 << 31) - 1


def next_generation(generation: int) -> int:
    """Return the next table number; 0 is skipped (protocol section 6.1)."""
    # A board that has latched nothing since power-up replies 0, so 0 is never the generation of a table.
    return (generation + 1) % (1 << 32) or 1


def table_crc32(codes: NDArray[Any] | Iterable[int]) -> int:
    """Return the CRC-32 of codes as u16 little endian, in channel order (protocol section 8.3)."""
    array = codes if isinstance(codes, np.ndarray) else np.fromiter(codes, dtype=np.int64)
    return zlib.crc32(np.ascontiguousarray(array, dtype=CODE_DTYPE).tobytes())


def config_crc32(global_block: ConfigGlobalRequest, limits: NDArray[Any]) -> int:
    """Return the CRC-32 of a configuration (section 7.2)."""
    return zlib.crc32(np.ascontiguousarray(limits, dtype=LIMIT_DTYPE).tobytes(), zlib.crc32(global_block.encode()))


def channel_power_uw(
    codes: NDArray[Any], load_ohm: NDArray[Any], dac_full_scale: int, drive: Drive
) -> NDArray[np.uint64]:
    """Return the heater power per channel in µW, in integer arithmetic (protocol section 7.3).

    Args:
        codes: DAC codes, shape ``(n,)``.
        load_ohm: Heater resistances in Ω, shape ``(n,)``; 0 contributes nothing.
        dac_full_scale: Output at code 65535 in µV (voltage drive) or µA (current drive).
        drive: Whether the outputs drive a voltage or a current.
    """
    # Both sides calculate in integers and round down at the same places, so
    # they agree on a table exactly at the cap.
    ohm = np.asarray(load_ohm).astype(np.uint64)
    output = np.asarray(codes).astype(np.uint64) * np.uint64(dac_full_scale) // np.uint64(FULL_SCALE_CODE)
    if drive is Drive.CURRENT:
        largest = int(output.max(initial=0)) ** 2 * int(ohm.max(initial=0))
        if largest >= 1 << 64:  # only for unrealistic full scales; Python integers stay exact
            return np.array([int(i) ** 2 * int(r) // 1_000_000 for i, r in zip(output, ohm, strict=True)], np.uint64)
        return output * output * ohm // np.uint64(1_000_000)
    # A channel without a heater has 0 Ω; it contributes nothing, and there is no division by zero.
    power = np.zeros(output.shape, dtype=np.uint64)
    np.floor_divide(output * output, ohm * np.uint64(1_000_000), out=power, where=ohm > 0)
    return power


def computed_power_uw(codes: NDArray[Any], load_ohm: NDArray[Any], dac_full_scale: int, drive: Drive) -> int:
    """Return the power of all heaters together in µW; see :func:`channel_power_uw`."""
    return int(channel_power_uw(codes, load_ohm, dac_full_scale, drive).sum())


def code_from_output(output: NDArray[np.float64], full_scale: float) -> NDArray[np.uint16]:
    """Return the nearest codes for outputs in the unit of ``full_scale`` (section 6.1).

    Raises:
        ValueError: An output is not a number, negative, or above full scale; the message names the channel.
    """
    codes = np.rint(np.asarray(output, dtype=np.float64) / full_scale * FULL_SCALE_CODE)
    # Negated, so that NaN counts as wrong too: every comparison with NaN is false.
    invalid = np.flatnonzero(~((codes >= 0) & (codes <= FULL_SCALE_CODE)))
    if invalid.size:
        raise ValueError(f"channel {invalid[0]}: output {output[invalid[0]]} is outside 0..{full_scale}")
    return codes.astype(np.uint16)


def output_from_code(codes: NDArray[Any], full_scale: float) -> NDArray[np.float64]:
    """Return ``code / 65535 × full_scale``, in the unit of ``full_scale`` (protocol section 6.1)."""
    return np.asarray(codes, dtype=np.float64) * (full_scale / FULL_SCALE_CODE)


def monitor_from_code(adc: NDArray[Any], full_scale: float) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return ``(values, saturated)`` for monitor codes; saturated values are NaN (section 6.1)."""
    saturated = np.asarray(adc) == SATURATED
    return np.where(saturated, np.nan, output_from_code(adc, full_scale)), saturated


def native_code(code: NDArray[Any], bits: int) -> NDArray[np.uint16]:
    """Return the codes of a converter with ``bits`` bits: ``code >> (16 − bits)`` (protocol section 6.1)."""
    return np.asarray(code, dtype=np.uint16) >> np.uint16(16 - bits)


def monitor_code(native: NDArray[Any], bits: int) -> NDArray[np.uint16]:
    """Return the 16-bit monitor codes for a converter's codes: ``native × 65535 // (2^bits − 1)`` (section 6.1)."""
    code = np.asarray(native, dtype=np.uint64) * np.uint64(FULL_SCALE_CODE) // np.uint64((1 << bits) - 1)
    return code.astype(np.uint16)
