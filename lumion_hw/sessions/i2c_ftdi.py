"""A module behind an FTDI MPSSE chip (FT232H, 2232H, 4232H) through pyftdi. Experimental: never tried on hardware here.

Clock stretching needs AD7 tied to SCL and is not always seen even then: stay at 100 kHz.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from lumion_hw.errors import ConnectError, LinkLost, LumionError
from lumion_hw.sessions.register_access import IDENTITY_DEVICE, NotRespondingError

FREQUENCY_HZ = 100e3
"""Bus speed: the fastest at which the chip's handling of stretched clocks is said to work."""
_T = TypeVar("_T")


class FtdiDevice:
    """One device on the I2C bus of an FTDI chip; implements ``I2cDevice``. Thread-safe.

    Args:
        url: The chip as pyftdi names it, such as ``ftdi://ftdi:232h/1``.
        address: 7-bit I2C address.
        device: Device name, for messages.
        library: Stands in for the module ``pyftdi.i2c``.
    """

    def __init__(
        self, url: str, address: int = IDENTITY_DEVICE, *, device: str = "transponder", library: Any = None
    ) -> None:
        self._url = url
        self._address = address
        self._device = device
        self._library = library
        self._controller: Any = None
        self._port: Any = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The chip's URL."""
        return self._url

    def open(self) -> None:
        """Open the chip. Raises ``ConnectError`` if pyftdi or the chip is missing."""
        with self._lock:
            if self._port is not None:
                return
            if self._library is None:
                self._library = self._imported()
            controller = self._library.I2cController()
            try:
                controller.configure(self._url, frequency=FREQUENCY_HZ)
                self._port = controller.get_port(self._address)
            except Exception as error:
                raise ConnectError(
                    f"cannot open the FTDI chip: {error}",
                    device=self._device,
                    address=self._url,
                    hint="Check its URL, its cable, and that this user may use it.",
                ) from error
            self._controller = controller

    def close(self) -> None:
        """Release the chip; idempotent, never raises."""
        with self._lock:
            controller, self._controller, self._port = self._controller, None, None
            if controller is not None:
                with contextlib.suppress(Exception):
                    controller.terminate()

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes; raises as ``I2cDevice.read``."""
        what = f"reading {length} bytes at {offset}"
        return bytes(self._transfer(what, lambda port: port.exchange([offset], length)))

    def write(self, offset: int, data: bytes) -> None:
        """Write ``data``; raises as ``I2cDevice.write``."""
        what = f"writing {len(data)} bytes at {offset}"
        self._transfer(what, lambda port: port.write(bytes([offset]) + data))

    def _transfer(self, what: str, transfer: Callable[[Any], _T]) -> _T:
        with self._lock:
            if self._port is None:
                raise LinkLost("the chip is closed", device=self._device, address=self._url, hint="Open it first.")
            try:
                return transfer(self._port)
            except self._library.I2cNackError as error:
                raise self._error(NotRespondingError, what, error, "Is a module plugged in?") from error
            except Exception as error:
                raise self._error(LinkLost, what, error, "Check the cable of the chip.") from error

    def _error(self, kind: type[LumionError], what: str, error: Exception, hint: str) -> LumionError:
        return kind(f"{what}: {error}", device=self._device, address=self._url, hint=hint)

    def _imported(self) -> Any:
        import importlib

        try:
            return importlib.import_module("pyftdi.i2c")
        except ImportError as error:
            raise ConnectError(
                "reading modules through an FTDI chip needs pyftdi.",
                device=self._device,
                address=self._url,
                hint="Install it: pip install 'lumion-hw[ftdi]'.",
            ) from error
