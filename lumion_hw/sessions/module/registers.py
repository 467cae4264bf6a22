"""Access to the registers of a pluggable module, independent of the bus."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar, runtime_checkable

from lumion_hw.clock import Clock
from lumion_hw.errors import FrameError, LinkError, LinkTimeout

_T = TypeVar("_T")

IDENTITY_DEVICE = 0x50
"""I2C address (7 bits) of the identity memory of every pluggable module."""
_DEVICE_BYTES = 256
_MAX_READINGS = 10  # a monitor near a multiple of 256 counts may change its high byte in half of the readings
ROW_BYTES = 8
"""Row size in bytes; no write crosses the end of a row (SFF-8472 clause 4)."""


class ModuleAbsentError(LinkError):
    """No module is plugged in: nothing acknowledges the identity address."""


class NotRespondingError(LinkTimeout):
    """A module is present but did not acknowledge this access in time."""


class ShortReadError(FrameError):
    """An access returned fewer bytes than requested."""


@runtime_checkable
class LimitedReads(Protocol):
    """A connection that cannot read any number of bytes in one bus transaction."""

    @property
    def largest_read(self) -> int:
        """Longest read in one bus transaction, in bytes."""


class RegisterAccess(Protocol):
    """Registers of one module, by 7-bit I2C device address and offset. Thread-safe."""

    @property
    def name(self) -> str:
        """Address of the registers, for messages."""

    def open(self) -> None:
        """Open the connection without accessing the module. Raises ``ConnectError``."""

    def read(self, device: int, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes from ``offset`` of an I2C device.

        Raises:
            ModuleAbsentError: There is no module.
            NotRespondingError: The module does not acknowledge ``device``.
            ShortReadError: Fewer bytes arrived.
            LinkLost: The connection to the module is lost.
        """

    def write(self, device: int, offset: int, data: bytes) -> None:
        """Write ``data``, in parts that do not cross a multiple of 8 bytes. Raises the errors of :meth:`read`."""

    def transaction(self) -> AbstractContextManager[None]:
        """Lock the module for several accesses."""

    def close(self) -> None:
        """Release the connection to the module; idempotent, never raises."""


class I2cDevice(Protocol):
    """One device on an I2C bus. Each call is one bus transaction, without splitting or retries."""

    @property
    def name(self) -> str:
        """Address of the device, for messages."""

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes from ``offset`` on.

        Raises:
            ModuleAbsentError: There is no module.
            NotRespondingError: The device does not acknowledge at present, but may do so soon.
            ShortReadError: Fewer bytes arrived.
            LinkLost: The connection to the device is lost.
        """

    def write(self, offset: int, data: bytes) -> None:
        """Write ``data`` from ``offset`` on. Raises the errors of :meth:`read`."""


def repeat_access(
    access: Callable[[], _T], clock: Clock, retry_s: float, period_s: float, silent: tuple[type[LinkError], ...]
) -> _T:
    """Repeat an access while the device does not respond. After ``retry_s`` raise the last error.

    Args:
        access: Function that makes the access.
        clock: Clock for the retries.
        retry_s: Time limit for the retries.
        period_s: Pause between two attempts.
        silent: Errors that mean that the device does not respond; all others are raised immediately.
    """
    deadline = clock.now() + retry_s
    while True:
        try:
            return access()
        except silent:
            if clock.now() >= deadline:
                raise
        clock.sleep(period_s)


def largest_read_of(connection: object) -> int:
    """Return the longest read of a connection in one bus transaction, in bytes; a whole device without a limit."""
    return connection.largest_read if isinstance(connection, LimitedReads) else _DEVICE_BYTES


def split_read(offset: int, length: int, largest_read: int) -> Iterator[tuple[int, int]]:
    """Split a read; yield offset and length of each part.

    Parts begin at even offsets, as two-byte numbers do, unless only one byte can be read.
    """
    start, end = offset, offset + length
    while start < end:
        size = min(largest_read, end - start)
        if start + size < end and (start + size) % 2 and size > 1:
            size -= 1
        yield start, size
        start += size


def read_whole_numbers(read: Callable[[], bytes], offset: int, name: str, wide: Collection[int] = ()) -> bytes:
    """Read bytes one by one until no number can be torn.

    The low byte of a two-byte number at an even offset belongs to the high byte if the high byte is the same in the
    next reading. Without this, 00FFh that becomes 0100h between its two bytes reads as 0000h. (Linux,
    drivers/net/phy/sfp.c, refuses such monitors.) Of wider numbers all bytes must be the same in the next reading.

    Args:
        read: Function that reads all bytes. None of them may be cleared by reading.
        offset: Offset of the first byte.
        name: Address of the connection, for messages.
        wide: Offsets of the bytes in numbers of more than two bytes.

    Raises:
        FrameError: The compared bytes change in every reading.
    """

    def compared(data: bytes) -> list[int]:
        return [byte for at, byte in enumerate(data, offset) if at % 2 == 0 or at in wide]

    before = read()
    for _ in range(_MAX_READINGS):
        after = read()
        if compared(before) == compared(after):
            return before
        before = after
    raise FrameError(
        f"{len(before)} bytes at {offset} change in each of {_MAX_READINGS} readings",
        address=name,
        hint="A number cannot be read one byte at a time while it changes this fast. Increase read_bytes.",
    )


def split_into_rows(offset: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    """Split a write at every multiple of 8 bytes; yield ``(offset, data)`` of each part."""
    start = 0
    while start < len(data):
        # In the EEPROMs of such modules, a write past the end of a row wraps to its start.
        size = min(ROW_BYTES - (offset + start) % ROW_BYTES, len(data) - start)
        yield offset + start, data[start : start + size]
        start += size
