"""Module memory through a file: that of a Linux optoe-style driver, or one saved by ``ethtool -m IFACE raw on``."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from lumion_hw.clock import Clock
from lumion_hw.errors import ConnectError, DeviceAddress, LinkError, LinkLost, NotSupportedError
from lumion_hw.files import AnyPath
from lumion_hw.links.owner import OwnerProcess, fork_safe
from lumion_hw.sessions.module.pages import MAX_WRITE_BYTES, check_range, check_write, page_words
from lumion_hw.sessions.module.registers import (
    IDENTITY_DEVICE,
    ModuleAbsentError,
    NotRespondingError,
    ShortReadError,
    row_pieces,
)
from lumion_hw.standards.cmis.codec import linear_offset
from lumion_hw.standards.cmis.fields import HALF_BYTES, Page

_T = TypeVar("_T")

_DEVICE_BYTES = 256
_DIAGNOSTIC_DEVICE = 0x51
_RETRY_PERIOD_S = 0.01
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
# What kernel drivers return for a module that does not acknowledge; all else means that the file itself is gone.
_NO_ANSWER = (errno.ENXIO, errno.EIO, errno.EREMOTEIO, errno.ETIMEDOUT, errno.EAGAIN)


class MemoryFile:
    """A module's memory as one file, by position. Thread-safe.

    Another process, such as a switch daemon, may read the same module and consume its clear-on-read flags. A file that
    may only be read is opened for reading; writes are refused.

    Args:
        path: The file.
        clock: Measures the retries.
        device: Device name, for messages.
        retry_s: How long an access that the bus refuses is repeated.
    """

    def __init__(self, path: AnyPath, clock: Clock, *, device: str, retry_s: float = 0.5) -> None:
        self._path = str(path)
        self._clock = clock
        self._device = device
        self._target = DeviceAddress(device, self._path)
        self._retry_s = retry_s
        self._owner = OwnerProcess()
        self._lock = fork_safe(threading.RLock())
        self._fd: int | None = None
        self._writable = False

    @property
    def name(self) -> str:
        """The path."""
        return self._path

    def open(self) -> None:
        """Open the file, for writing too where that is allowed. Raises ``ConnectError``."""
        with self._lock:
            self._owner.claim(self.name, self._device)
            if self._fd is not None:
                return
            try:
                self._fd, self._writable = self._opened_file()
            except OSError as error:
                raise self._target.error(
                    ConnectError,
                    f"cannot open the module's memory: {error.strerror}",
                    hint="Check that the module driver is bound and that this user may read and write the file.",
                ) from error

    def _opened_file(self) -> tuple[int, bool]:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CLOEXEC), True
        except OSError as error:
            # A dump, or the file of a module that a daemon owns: to be read, it need not be written.
            if error.errno not in _READ_ONLY:
                raise
        return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC), False

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the module for several accesses of this process."""
        with self._lock:
            yield

    @contextmanager
    def patient(self, patience_s: float) -> Iterator[None]:
        """Repeat refused accesses for so long."""
        with self._lock:
            before, self._retry_s = self._retry_s, max(self._retry_s, patience_s)
            try:
                yield
            finally:
                self._retry_s = before

    def close(self) -> None:
        """Close the file; idempotent, never raises."""
        with self._lock:
            fd, self._fd = self._fd, None
            if fd is not None:
                with contextlib.suppress(OSError):
                    os.close(fd)

    def read_at(self, position: int, length: int, label: str, silence: type[LinkError] = ModuleAbsentError) -> bytes:
        """Return exactly ``length`` bytes from ``position`` on.

        Args:
            position: Position in the file.
            length: Number of bytes.
            label: The place in words, for messages.
            silence: What it means when the bus refuses the access until the deadline.

        Raises:
            LinkError: ``silence``.
            ShortReadError: Fewer bytes came.
            LinkLost: The file is closed or gone.
        """
        with self._lock:
            # By position, in one call: two processes that share the file do not move each other's place.
            data = self._repeat(label, silence, lambda fd: os.pread(fd, length, position))
        self._check_length(len(data), length, f"read at {label}")
        return data

    def write_at(self, position: int, data: bytes, label: str, silence: type[LinkError] = ModuleAbsentError) -> None:
        """Write ``data`` in one call; arguments and errors as :meth:`read_at`."""
        with self._lock:
            if self._fd is not None and not self._writable:
                raise self._target.error(
                    NotSupportedError,
                    f"cannot write {len(data)} bytes at {label}: the file may only be read",
                    hint="Run as a user who may write it; a saved copy of a module's memory can only be read.",
                )
            written = self._repeat(label, silence, lambda fd: os.pwrite(fd, data, position))
        self._check_length(written, len(data), f"written at {label}")

    def _repeat(self, label: str, silence: type[LinkError], access: Callable[[int], _T]) -> _T:
        """Make an access, again and again while the bus refuses it, until the deadline."""
        self._owner.check(self.name, self._device)
        if self._fd is None:
            raise self._target.error(LinkLost, "the file is closed", hint="Open it first.")
        deadline = self._clock.now() + self._retry_s
        while True:
            try:
                return access(self._fd)
            except OSError as error:
                if error.errno not in _NO_ANSWER:
                    raise self._target.error(
                        LinkLost,
                        f"the module's memory is gone: {error.strerror}",
                        hint="Check that the module driver is still bound.",
                    ) from error
                if self._clock.now() >= deadline:
                    raise silence(
                        f"no answer at {label} within {self._retry_s:g} s ({error.strerror})",
                        device=self._device,
                        address=self._path,
                        hint="Check that the module is plugged in and has had its start-up time.",
                    ) from error
            self._clock.sleep(_RETRY_PERIOD_S)

    def _check_length(self, done: int, wanted: int, label: str) -> None:
        if done != wanted:
            raise self._target.error(
                ShortReadError,
                f"{done} instead of {wanted} bytes {label}",
                hint="The module may have no memory at this address.",
            )


class LinearFile(MemoryFile):
    """Registers of a module in one file: A0h (0x50) at 0 to 255, A2h (0x51) at 256 to 511."""

    def read(self, device: int, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes; raises as ``RegisterAccess.read``."""
        label = f"I2C address 0x{device:02X}:{offset}"
        return self.read_at(_position(device, offset), length, label, _silence(device))

    def write(self, device: int, offset: int, data: bytes) -> None:
        """Write ``data`` in row pieces; raises as ``RegisterAccess.read``."""
        with self.transaction():
            for start, piece in row_pieces(offset, data):
                label = f"I2C address 0x{device:02X}:{start}"
                self.write_at(_position(device, start), piece, label, _silence(device))


def _silence(device: int) -> type[LinkError]:
    return ModuleAbsentError if device == IDENTITY_DEVICE else NotRespondingError


def _position(device: int, offset: int) -> int:
    return (_DEVICE_BYTES if device == _DIAGNOSTIC_DEVICE else 0) + offset


# The first bytes of page 00h are identifier and maker's name, which no other page begins with.
_LIKENESS_BYTES = 16


class LinearPages(MemoryFile):
    """Pages of a module in one file, each behind the other; implements ``ModulePages``.

    The kernel selects the page and does not look whether it stayed: a page that the module lacks shows page 00h.
    """

    def read_page(self, page: Page, byte: int, length: int, bank: int = 0) -> bytes:
        """Return exactly ``length`` bytes; raises as ``ModulePages.read_page``."""
        check_range(page, byte, length, bank)
        return self.read_at(linear_offset(page, byte, bank), length, f"byte {byte} of {page_words(page, bank)}")

    def write_page(self, page: Page, byte: int, data: bytes, bank: int = 0, *, longest: int = MAX_WRITE_BYTES) -> None:
        """Write in one call; raises as ``ModulePages.read_page``."""
        check_write(page, byte, data, bank, longest)
        self.write_at(linear_offset(page, byte, bank), data, f"byte {byte} of {page_words(page, bank)}")

    def has_page(self, page: Page, bank: int = 0) -> bool:
        """Tell whether a page is there and does not begin like page 00h; raises as ``ModulePages.read_page``."""
        if page in (None, 0):
            return True
        with self.transaction():
            try:
                found = self.read_page(page, HALF_BYTES, _LIKENESS_BYTES, bank)
            except ShortReadError:
                return False
            return found != self.read_page(0x00, HALF_BYTES, _LIKENESS_BYTES)

    def forget(self) -> None:
        """Nothing is remembered."""
