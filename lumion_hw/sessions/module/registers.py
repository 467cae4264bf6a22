"""Access to the registers of a pluggable module, independent of the bus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from lumion_hw.clock import Clock
from lumion_hw.errors import FrameError, LinkError, LinkTimeout

_T = TypeVar("_T")

IDENTITY_DEVICE = 0x50
"""I2C address (7 bits) of the identity memory of every pluggable module."""
ROW_BYTES = 8
"""Row size in bytes; no write crosses the end of a row (SFF-8472 clause 4)."""


class ModuleAbsentError(LinkError):
    """No module is plugged in: nothing acknowledges the identity address."""


class NotRespondingError(LinkTimeout):
    """A module is present but did not acknowledge this access in time."""


class ShortReadError(FrameError):
    """An access returned fewer bytes than requested."""


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


def split_into_rows(offset: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    """Split a write at every multiple of 8 bytes; yield ``(offset, data)`` of each part."""
    start = 0
    while start < len(data):
        # In the EEPROMs of such modules, a write past the end of a row wraps to its start.
        size = min(ROW_BYTES - (offset + start) % ROW_BYTES, len(data) - start)
        yield offset + start, data[start : start + size]
        start += size
