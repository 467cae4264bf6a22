"""What register access to a pluggable module is, whatever carries it.

A bus has no framing, no sequence and no checksum, so an access either gives exactly what was asked or raises; module
absent, module not answering and too few bytes are three different errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from lumion_hw.clock import Clock
from lumion_hw.errors import FrameError, LinkError, LinkTimeout

_T = TypeVar("_T")

IDENTITY_DEVICE = 0x50
"""7-bit address that every pluggable module answers, once it is there and awake."""
ROW_BYTES = 8
"""Writes stay inside a row of this many bytes (SFF-8472 clause 4: EEPROM page writes)."""


class ModuleAbsentError(LinkError):
    """No module is plugged in: nothing acknowledges its identity address."""


class NotRespondingError(LinkTimeout):
    """A module is there but did not answer this access before the deadline."""


class ShortReadError(FrameError):
    """An access gave fewer bytes than asked for."""


class RegisterAccess(Protocol):
    """Registers of one module, by 7-bit I2C device address and offset. Thread-safe."""

    @property
    def name(self) -> str:
        """How the registers are reached, for messages."""

    def open(self) -> None:
        """Make the way to the module usable; says nothing about the module. Raises ``ConnectError``."""

    def read(self, device: int, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes.

        Raises:
            ModuleAbsentError: No module.
            NotRespondingError: The module does not acknowledge ``device``.
            ShortReadError: Fewer bytes came.
            LinkLost: The way to the module is gone.
        """

    def write(self, device: int, offset: int, data: bytes) -> None:
        """Write ``data``, in pieces that stay inside 8-byte rows. Raises as :meth:`read`."""

    def transaction(self) -> AbstractContextManager[None]:
        """Hold the module for several accesses."""

    def close(self) -> None:
        """Release the way to the module; idempotent, never raises."""


class I2cDevice(Protocol):
    """One device on an I2C bus, one bus transaction per call: the form that a CMIS module at 0x50 has.

    Nothing is split, retried or remembered here; page select, write lengths and hold-off are the business of whoever
    speaks the module's protocol.
    """

    @property
    def name(self) -> str:
        """How the device is reached, for messages."""

    def read(self, offset: int, length: int) -> bytes:
        """Write the offset, then read ``length`` bytes from there on.

        Raises:
            ModuleAbsentError: No module.
            NotRespondingError: The device does not acknowledge now; it may in a moment.
            ShortReadError: Fewer bytes came.
            LinkLost: The way to the device is gone.
        """

    def write(self, offset: int, data: bytes) -> None:
        """Write the offset and ``data`` in one transaction. Raises as :meth:`read`."""


def repeated(
    access: Callable[[], _T], clock: Clock, retry_s: float, period_s: float, silent: tuple[type[LinkError], ...]
) -> _T:
    """Make an access, again and again while nothing answers; after ``retry_s`` raise what came last.

    Args:
        access: The access.
        clock: Measures the retries.
        retry_s: How long it is repeated.
        period_s: Pause between two tries.
        silent: Errors that say that nothing answered; all others are raised at once.
    """
    deadline = clock.now() + retry_s
    while True:
        try:
            return access()
        except silent:
            if clock.now() >= deadline:
                raise
        clock.sleep(period_s)


def row_pieces(offset: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield ``(offset, data)`` of the row writes that together write ``data``."""
    start = 0
    while start < len(data):
        # A write over the end of a row wraps to its beginning in the memories that such modules are made of.
        size = min(ROW_BYTES - (offset + start) % ROW_BYTES, len(data) - start)
        yield offset + start, data[start : start + size]
        start += size
