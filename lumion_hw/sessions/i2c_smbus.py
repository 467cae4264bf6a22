"""A module on a Linux I2C bus (``/dev/i2c-N``) through smbus2. Experimental: never tried on hardware by this project.

Plain I2C messages with a repeated start are used, never SMBus block calls, which stop at 32 bytes.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable
from typing import Any

from lumion_hw.errors import ConnectError, LinkLost, LumionError
from lumion_hw.sessions.register_access import IDENTITY_DEVICE, NotRespondingError

MAX_READ_BYTES = 128
"""Longest read in one message; some bridges with a kernel driver take little more."""
_NOT_ACKNOWLEDGED = (errno.ENXIO, errno.EREMOTEIO, errno.ETIMEDOUT, errno.EAGAIN)


class SmbusDevice:
    """One device on a Linux I2C bus; implements ``I2cDevice``. Thread-safe.

    Args:
        bus: Number of the bus.
        address: 7-bit I2C address.
        device: Device name, for messages.
        library: Stands in for the module ``smbus2``.
    """

    def __init__(
        self, bus: int, address: int = IDENTITY_DEVICE, *, device: str = "transponder", library: Any = None
    ) -> None:
        self._number = bus
        self._address = address
        self._device = device
        self._library = library
        self._bus: Any = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The address, such as ``i2c://1``."""
        return f"i2c://{self._number}"

    def open(self) -> None:
        """Open the bus. Raises ``ConnectError`` if smbus2 or the bus is missing."""
        with self._lock:
            if self._bus is not None:
                return
            if self._library is None:
                self._library = self._imported()
            try:
                self._bus = self._library.SMBus(self._number)
            except OSError as error:
                raise ConnectError(
                    f"cannot open /dev/i2c-{self._number}: {error.strerror}",
                    device=self._device,
                    address=self.name,
                    hint="Load the i2c-dev kernel module and give this user access to the bus.",
                ) from error

    def close(self) -> None:
        """Close the bus; idempotent, never raises."""
        with self._lock:
            bus, self._bus = self._bus, None
            if bus is not None:
                with contextlib.suppress(OSError):
                    bus.close()

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes; raises as ``I2cDevice.read``."""
        pieces = range(offset, offset + length, MAX_READ_BYTES)
        return b"".join(self._read(start, min(MAX_READ_BYTES, offset + length - start)) for start in pieces)

    def write(self, offset: int, data: bytes) -> None:
        """Write ``data``; raises as ``I2cDevice.write``."""
        with self._lock:
            bus = self._opened()
            message = self._library.i2c_msg.write(self._address, [offset, *data])
            self._transfer(f"writing {len(data)} bytes at {offset}", lambda: bus.i2c_rdwr(message))

    def _read(self, offset: int, length: int) -> bytes:
        with self._lock:
            bus = self._opened()
            select = self._library.i2c_msg.write(self._address, [offset])
            reply = self._library.i2c_msg.read(self._address, length)
            self._transfer(f"reading {length} bytes at {offset}", lambda: bus.i2c_rdwr(select, reply))
            return bytes(list(reply))

    def _opened(self) -> Any:
        if self._bus is None:
            raise LinkLost("the bus is closed", device=self._device, address=self.name, hint="Open it first.")
        return self._bus

    def _transfer(self, what: str, transfer: Callable[[], object]) -> None:
        try:
            transfer()
        except OSError as error:
            raise self._error(what, error) from error

    def _error(self, what: str, error: OSError) -> LumionError:
        if error.errno in _NOT_ACKNOWLEDGED:
            return NotRespondingError(
                f"{what}: {error.strerror}", device=self._device, address=self.name, hint="Is a module plugged in?"
            )
        hint = "Unbind the kernel driver first." if error.errno == errno.EBUSY else "Check the adapter."
        return LinkLost(f"{what}: {error.strerror}", device=self._device, address=self.name, hint=hint)

    def _imported(self) -> Any:
        import importlib

        try:
            return importlib.import_module("smbus2")
        except ImportError as error:
            raise ConnectError(
                "reading modules on a Linux I2C bus needs smbus2.",
                device=self._device,
                address=self.name,
                hint="Install it: pip install 'lumion-hw[i2c]'.",
            ) from error
