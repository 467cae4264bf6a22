"""Module memory as a file: from a Linux driver such as optoe, or saved by ``ethtool -m IFACE raw on``."""

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
from lumion_hw.sessions.module.pages import (
    IDENTITY_BYTES,
    MAX_WRITE_BYTES,
    check_range,
    check_write,
    is_suspicious,
    no_answer,
    page_name,
)
from lumion_hw.sessions.module.registers import (
    IDENTITY_DEVICE,
    ModuleAbsentError,
    NotRespondingError,
    ShortReadError,
    split_into_rows,
)
from lumion_hw.standards.cmis.codec import linear_offset
from lumion_hw.standards.cmis.fields import HALF_BYTES, Page
from lumion_hw.standards.registers import blank_value

_T = TypeVar("_T")

_DEVICE_BYTES = 256
_DIAGNOSTIC_DEVICE = 0x51
_RETRY_PERIOD_S = 0.01
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
# Errors of kernel drivers for a module that does not acknowledge; all others mean that the file itself is lost.
_NO_REPLY = (errno.ENXIO, errno.EIO, errno.EREMOTEIO, errno.ETIMEDOUT, errno.EAGAIN)


class MemoryFile:
    """Memory of a module as one file, accessed by position. Thread-safe.

    Another process that reads the same module may clear its flags.

    Args:
        path: Path of the file. A read-only file refuses writes.
        clock: Clock for the retries.
        retry_s: Time in seconds for which an access that the bus refuses is repeated.
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
        """Path of the file."""
        return self._path

    def open(self) -> None:
        """Open the file, for writing if permitted. Raises ``ConnectError``."""
        with self._lock:
            self._owner.claim(self.name, self._device)
            if self._fd is not None:
                return
            try:
                self._fd, self._writable = self._open_file()
            except OSError as error:
                raise self._target.error(
                    ConnectError,
                    f"cannot open the module's memory: {error.strerror}",
                    hint="Check that the module driver is bound and that this user may read and write the file.",
                ) from error

    def _open_file(self) -> tuple[int, bool]:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CLOEXEC), True
        except OSError as error:
            # A dump, or the file of a module that a daemon owns: reading is still possible.
            if error.errno not in _READ_ONLY:
                raise
        return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC), False

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Lock the module for several accesses of this process."""
        with self._lock:
            yield

    @contextmanager
    def retry_for(self, timeout_s: float) -> Iterator[None]:
        """Repeat refused accesses in a ``with`` block for up to ``timeout_s`` seconds."""
        with self._lock:
            before, self._retry_s = self._retry_s, max(self._retry_s, timeout_s)
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
            label: Name of the location, for messages.
            silence: Error to raise if the bus still refuses the access after ``retry_s``.

        Raises:
            LinkError: The bus refuses the access (class ``silence``).
            ShortReadError: Fewer bytes arrived.
            LinkLost: The file is closed or lost.
        """
        with self._lock:
            # pread takes the position, so processes that share the file do not move each other's position.
            data = self._repeat(label, silence, lambda fd: os.pread(fd, length, position))
        self._check_length(len(data), length, f"read at {label}")
        return data

    def write_at(self, position: int, data: bytes, label: str, silence: type[LinkError] = ModuleAbsentError) -> None:
        """Write ``data`` at a file position. Arguments and errors as for :meth:`read_at`."""
        with self._lock:
            if self._fd is not None and not self._writable:
                raise self._target.error(
                    NotSupportedError,
                    f"cannot write {len(data)} bytes at {label}: the file is read-only",
                    hint="Run as a user with write permission. A saved copy of a module's memory is always read-only.",
                )
            written = self._repeat(label, silence, lambda fd: os.pwrite(fd, data, position))
        self._check_length(written, len(data), f"written at {label}")

    def _repeat(self, label: str, silence: type[LinkError], access: Callable[[int], _T]) -> _T:
        self._owner.check(self.name, self._device)
        if self._fd is None:
            raise self._target.error(LinkLost, "the file is closed", hint="Open it first.")
        deadline = self._clock.now() + self._retry_s
        while True:
            try:
                return access(self._fd)
            except OSError as error:
                if error.errno not in _NO_REPLY:
                    raise self._target.error(
                        LinkLost,
                        f"the module's memory is no longer accessible: {error.strerror}",
                        hint="Check that the module driver is still bound.",
                    ) from error
                if self._clock.now() >= deadline:
                    raise silence(
                        f"no reply at {label} within {self._retry_s:g} s ({error.strerror})",
                        device=self._device,
                        address=self._path,
                        hint="Check that the module is plugged in and has finished starting.",
                    ) from error
            self._clock.sleep(_RETRY_PERIOD_S)

    def _check_length(self, n_bytes: int, expected: int, label: str) -> None:
        if n_bytes != expected:
            raise self._target.error(
                ShortReadError,
                f"got {n_bytes} instead of {expected} bytes {label}",
                hint="The module may have no memory at this address.",
            )


class LinearFile(MemoryFile):
    """Registers of a module in one file: A0h (0x50) at positions 0 to 255, A2h (0x51) at 256 to 511."""

    def read(self, device: int, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes; raises the errors of ``RegisterAccess.read``."""
        label = f"I2C address 0x{device:02X}:{offset}"
        return self.read_at(_position(device, offset), length, label, _no_reply_error(device))

    def write(self, device: int, offset: int, data: bytes) -> None:
        """Write ``data``; raises the errors of ``RegisterAccess.read``."""
        with self.transaction():
            for start, chunk in split_into_rows(offset, data):
                label = f"I2C address 0x{device:02X}:{start}"
                self.write_at(_position(device, start), chunk, label, _no_reply_error(device))


def _no_reply_error(device: int) -> type[LinkError]:
    return ModuleAbsentError if device == IDENTITY_DEVICE else NotRespondingError


def _position(device: int, offset: int) -> int:
    return (_DEVICE_BYTES if device == _DIAGNOSTIC_DEVICE else 0) + offset


# The first bytes of page 00h are identifier and maker's name; no other page begins like this.
_COMPARED_BYTES = 16


class LinearPages(MemoryFile):
    """Pages of a module in one file; implements ``ModulePages``. A page that the module lacks reads like page 00h."""

    def read_page(self, page: Page, byte: int, length: int, bank: int = 0) -> bytes:
        """Return exactly ``length`` bytes; raises the errors of ``ModulePages.read_page``."""
        check_range(page, byte, length, bank)
        data = self.read_at(linear_offset(page, byte, bank), length, f"byte {byte} of {page_name(page, bank)}")
        if is_suspicious(page, data):
            self._check_answer()
        return data

    def _check_answer(self) -> None:
        """Raise ``NotRespondingError`` if the file shows an empty cage: drivers fill it with FFh or 00h."""
        value = blank_value(self.read_at(0, IDENTITY_BYTES, "byte 0 of the lower memory"))
        if value is not None:
            raise no_answer(value, self._device, self.name)

    def write_page(self, page: Page, byte: int, data: bytes, bank: int = 0, *, longest: int = MAX_WRITE_BYTES) -> None:
        """Write bytes of a page; raises the errors of ``ModulePages.read_page``."""
        check_write(page, byte, data, bank, longest)
        self.write_at(linear_offset(page, byte, bank), data, f"byte {byte} of {page_name(page, bank)}")

    def has_page(self, page: Page, bank: int = 0) -> bool:
        """Return whether a page differs from page 00h and so exists; raises the errors of ``ModulePages.read_page``."""
        if page in (None, 0):
            return True
        with self.transaction():
            try:
                data = self.read_page(page, HALF_BYTES, _COMPARED_BYTES, bank)
            except ShortReadError:
                return False
            return data != self.read_page(0x00, HALF_BYTES, _COMPARED_BYTES)

    def forget(self) -> None:
        """Do nothing: no state is cached."""
