"""Registers through a file, as Linux optoe-style drivers offer it (``.../N-0050/eeprom``)."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from lumion_hw.clock import Clock
from lumion_hw.errors import ConnectError, LinkLost
from lumion_hw.sessions.register_access import (
    IDENTITY_DEVICE,
    ModuleAbsentError,
    NotRespondingError,
    ShortReadError,
    row_pieces,
)

_T = TypeVar("_T")

_DEVICE_BYTES = 256
_DIAGNOSTIC_DEVICE = 0x51
_RETRY_PERIOD_S = 0.01
_NO_ANSWER = (errno.ENXIO, errno.EIO, errno.EREMOTEIO, errno.ETIMEDOUT, errno.EAGAIN)


class LinearFile:
    """Registers of a module in one file: A0h (0x50) at 0 to 255, A2h (0x51) at 256 to 511.

    Another process, such as a switch daemon, may read the same module and consume its clear-on-read flags.

    Args:
        path: The file.
        clock: Measures the retries.
        device: Device name, for messages.
        retry_s: How long an access that the bus refuses is repeated.
    """

    def __init__(self, path: str, clock: Clock, *, device: str, retry_s: float = 0.5) -> None:
        self._path = path
        self._clock = clock
        self._device = device
        self._retry_s = retry_s
        self._lock = threading.RLock()
        self._fd: int | None = None

    @property
    def name(self) -> str:
        """The path."""
        return self._path

    def open(self) -> None:
        """Open the file for reading and writing. Raises ``ConnectError``."""
        with self._lock:
            if self._fd is not None:
                return
            try:
                self._fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
            except OSError as error:
                raise ConnectError(
                    f"cannot open the module's memory: {error.strerror}",
                    device=self._device,
                    address=self._path,
                    hint="Check that the module driver is bound and that this user may read and write the file.",
                ) from error

    def read(self, device: int, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes; raises as ``RegisterAccess.read``."""
        position = _position(device, offset)
        with self._lock:
            data = self._repeat(device, lambda fd: os.pread(fd, length, position))
        self._check_length(len(data), length, f"read at 0x{device:02X}:{offset}")
        return data

    def write(self, device: int, offset: int, data: bytes) -> None:
        """Write ``data`` in row pieces; raises as ``RegisterAccess.read``."""
        with self._lock:
            for start, piece in row_pieces(offset, data):
                written = self._write_piece(device, _position(device, start), piece)
                self._check_length(written, len(piece), f"written at 0x{device:02X}:{start}")

    def _write_piece(self, device: int, position: int, piece: bytes) -> int:
        return self._repeat(device, lambda fd: os.pwrite(fd, piece, position))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the module for several accesses of this process."""
        with self._lock:
            yield

    def close(self) -> None:
        """Close the file; idempotent, never raises."""
        with self._lock:
            fd, self._fd = self._fd, None
            if fd is not None:
                with contextlib.suppress(OSError):
                    os.close(fd)

    def _repeat(self, device: int, access: Callable[[int], _T]) -> _T:
        """Make an access, again and again while the bus refuses it, until the deadline."""
        if self._fd is None:
            raise LinkLost("the file is closed", device=self._device, address=self._path, hint="Open it first.")
        deadline = self._clock.now() + self._retry_s
        while True:
            try:
                return access(self._fd)
            except OSError as error:
                if error.errno not in _NO_ANSWER:
                    raise LinkLost(
                        f"the module's memory is gone: {error.strerror}",
                        device=self._device,
                        address=self._path,
                        hint="Check that the module driver is still bound.",
                    ) from error
                if self._clock.now() >= deadline:
                    raise self._no_answer(device, error) from error
            self._clock.sleep(_RETRY_PERIOD_S)

    def _no_answer(self, device: int, error: OSError) -> ModuleAbsentError | NotRespondingError:
        kind = ModuleAbsentError if device == IDENTITY_DEVICE else NotRespondingError
        return kind(
            f"no answer at I2C address 0x{device:02X} within {self._retry_s:g} s ({error.strerror})",
            device=self._device,
            address=self._path,
            hint="Check that the module is plugged in and has had its start-up time.",
        )

    def _check_length(self, done: int, wanted: int, what: str) -> None:
        if done != wanted:
            raise ShortReadError(
                f"{done} instead of {wanted} bytes {what}",
                device=self._device,
                address=self._path,
                hint="The module may have no memory at this address.",
            )


def _position(device: int, offset: int) -> int:
    return (_DEVICE_BYTES if device == _DIAGNOSTIC_DEVICE else 0) + offset
