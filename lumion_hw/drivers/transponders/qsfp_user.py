"""User memory (page 02h) and password of a QSFP module (SFF-8636)."""

from __future__ import annotations

from lumion_hw.drivers.transponders.qsfp_memory import QsfpMemory
from lumion_hw.errors import LimitError, VerifyError
from lumion_hw.standards.cmis.fields import HALF_BYTES
from lumion_hw.standards.sff8636.registers import USER_PAGE

MAX_PASSWORD = 0x7FFF_FFFF
"""Largest host password; those from 80000000h belong to the vendor."""
PASSWORD_ENTRY = 123
"""First of the four bytes of the password entry area."""
_MAX_WRITE_BYTES = 4  # SFF-8636, sequential write


def read(memory: QsfpMemory) -> bytes:
    """Return the 128 bytes of the user memory."""
    return memory.pages.read_page(USER_PAGE, HALF_BYTES, HALF_BYTES)


def write(memory: QsfpMemory, offset: int, data: bytes) -> None:
    """Write a part of the user memory and read the bytes back.

    Raises:
        LimitError: The bytes do not fit.
        VerifyError: The bytes read back differ.
    """
    end = offset + len(data)
    if offset < 0 or end > HALF_BYTES:
        requested, limit = (offset, 0) if offset < 0 else (end, HALF_BYTES)
        raise memory.error(LimitError, "range of the user memory", requested=requested, limit=limit, unit="")
    with memory.pages.transaction():
        for start in range(0, len(data), _MAX_WRITE_BYTES):
            memory.pages.write_page(USER_PAGE, HALF_BYTES + offset + start, data[start : start + _MAX_WRITE_BYTES])
        actual = memory.pages.read_page(USER_PAGE, HALF_BYTES + offset, len(data)) if data else b""
    if actual != data:
        raise memory.error(
            VerifyError,
            f"user memory at {offset}",
            wrote=data.hex(" "),
            read=actual.hex(" "),
            hint="It may be protected. Enter the password first.",
        )


def enter_password(memory: QsfpMemory, password: int) -> None:
    """Enter the host password. The module does not report whether the password is right.

    Raises ``LimitError`` if the password is not 0 to 7FFFFFFFh.
    """
    if not 0 <= password <= MAX_PASSWORD:
        limit = 0 if password < 0 else MAX_PASSWORD
        raise memory.error(LimitError, "host password", requested=password, limit=limit, unit="")
    memory.pages.write_page(None, PASSWORD_ENTRY, password.to_bytes(4, "big"))
