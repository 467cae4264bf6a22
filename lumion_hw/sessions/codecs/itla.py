"""Codec of ITLA frames (OIF-ITLA-MSA-01.3): four bytes, big-endian, with a four-bit checksum. Pure functions."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

FRAME_BYTES = 4
_REPEAT = 0x08
_DAMAGED = 0x08
_FROM_MODULE = 0x04
_WRITE = 0x01


class ItlaRegister(enum.IntEnum):
    """ITLA registers that the driver uses."""

    NOP = 0x00
    DEV_TYP = 0x01
    MFGR = 0x02
    MODEL = 0x03
    SER_NO = 0x04
    RELEASE = 0x06
    AEA_EAR = 0x0B
    STATUS_F = 0x20
    STATUS_W = 0x21
    CHANNEL = 0x30
    PWR = 0x31
    RES_ENA = 0x32
    MCB = 0x33
    GRID = 0x34
    FCF1 = 0x35
    FCF2 = 0x36
    LF1 = 0x40
    LF2 = 0x41
    OOP = 0x42
    CTEMP = 0x43
    FTFR = 0x4F
    OPSL = 0x50
    OPSH = 0x51
    LFL1 = 0x52
    LFL2 = 0x53
    LFH1 = 0x54
    LFH2 = 0x55
    FTF = 0x62
    CHANNEL_H = 0x65
    GRID2 = 0x66
    FCF3 = 0x67
    LF3 = 0x68
    LFL3 = 0x69
    LFH3 = 0x6A


class ItlaReplyStatus(enum.IntEnum):
    """Status of an ITLA reply: done, failed, continued in the extended-address register (AEA), or still running."""

    OK = 0
    EXECUTION_ERROR = 1
    AEA = 2
    PENDING = 3


class FrameProblem(enum.IntEnum):
    """Cause of an error reply: bits 3-0 of register NOP."""

    NONE = 0x0
    NOT_IMPLEMENTED = 0x1
    NOT_WRITABLE = 0x2
    VALUE_RANGE = 0x3
    PENDING = 0x4
    INITIALISING = 0x5
    END_OF_AEA = 0x6
    READ_ONLY_AEA = 0x7
    FAILURE = 0x8
    OUTPUT_ENABLED = 0x9
    CONFIGURATION = 0xA
    VENDOR = 0xF


@dataclass(frozen=True)
class Reply:
    """Reply of an ITLA module.

    Attributes:
        damaged: Whether the request arrived damaged and was not executed.
        data: Content of the register, 16 bits.
    """

    damaged: bool
    status: ItlaReplyStatus
    register: int
    data: int


def bip4(frame: bytes) -> int:
    """Return the BIP-4 checksum of a frame: the exclusive-or of all its half-bytes except the first."""
    folded = (frame[0] & 0x0F) ^ frame[1] ^ frame[2] ^ frame[3]
    return (folded >> 4) ^ (folded & 0x0F)


def _with_checksum(first: int, register: int, data: int) -> bytes:
    frame = bytes((first, register, data >> 8, data & 0xFF))
    return bytes((first | bip4(frame) << 4,)) + frame[1:]


def read_request(register: int) -> bytes:
    """Return the request that reads a register."""
    return _with_checksum(0, register, 0)


def write_request(register: int, data: int) -> bytes:
    """Return the request that writes 16 bits to a register."""
    return _with_checksum(_WRITE, register, data)


def repeat_request() -> bytes:
    """Return the request to repeat the last reply."""
    return _with_checksum(_REPEAT, ItlaRegister.NOP, 0)


def decode_reply(frame: bytes) -> Reply | None:
    """Decode a reply, or return ``None`` if it is not valid."""
    if len(frame) != FRAME_BYTES or frame[0] >> 4 != bip4(frame) or not frame[0] & _FROM_MODULE:
        return None
    return Reply(bool(frame[0] & _DAMAGED), ItlaReplyStatus(frame[0] & 0x03), frame[1], frame[2] << 8 | frame[3])


def signed(data: int) -> int:
    """Return 16 bits as a signed integer."""
    return data - 0x10000 if data & 0x8000 else data


def unsigned(value: int) -> int:
    """Return a signed integer as 16 bits."""
    return value & 0xFFFF


def split_mhz(frequency_mhz: int) -> tuple[int, int, int]:
    """Split a frequency into the values of its three registers: whole THz, steps of 0.1 GHz, and the rest in MHz."""
    thz, remainder_mhz = divmod(frequency_mhz, 1_000_000)
    return thz, *divmod(remainder_mhz, 100)


def join_mhz(thz: int, ghz_times_10: int, mhz: int = 0) -> int:
    """Return the frequency in MHz from its three registers; the last one is signed."""
    return 1_000_000 * thz + 100 * ghz_times_10 + signed(mhz)


def decode_text(data: bytes) -> str:
    """Return a text register up to the first NUL."""
    return data.partition(b"\0")[0].decode("ascii", "replace").strip()


def dbm_times_100(power_dbm: float) -> int:
    """Return a power in steps of 0.01 dBm, rounded. Raises ``ValueError`` if it is not finite."""
    if not math.isfinite(power_dbm):
        raise ValueError(f"{power_dbm} dBm is not a finite power")
    return round(100.0 * power_dbm)
