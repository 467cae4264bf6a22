"""Modules behind an FTDI MPSSE chip (FT232H, 2232H, 4232H) through pyftdi. Experimental: never tried on hardware here.

Clock stretching needs AD7 tied to SCL and is not always seen even then: the clock stays at 100 kHz unless told.
"""

from __future__ import annotations

from typing import Any

from lumion_hw.sessions.i2c_adapter import PinnedAdapter

DEFAULT_CLOCK_KHZ = 100.0
"""Bus speed: the fastest at which the chip's handling of stretched clocks is said to work."""


class FtdiAdapter(PinnedAdapter):
    """An FTDI chip; its address is that of pyftdi, such as ``ftdi://ftdi:232h/1``.

    Pins count as pyftdi counts them: 3 to 7 are AD3 to AD7, 8 to 15 are AC0 to AC7 of the chips that have them.

    Args:
        address: The chip.
        clock_khz: Bus speed.
        **others: As for ``PinnedAdapter``.
    """

    module = "pyftdi.i2c"
    extra = "ftdi"
    what = "the FTDI chip"
    pin_numbers = range(3, 16)

    def __init__(self, address: str, *, clock_khz: float = DEFAULT_CLOCK_KHZ, **others: Any) -> None:
        super().__init__(address, **others)
        self._clock_khz = clock_khz

    def _opened_handle(self) -> Any:
        controller = self._library.I2cController()
        controller.configure(self._address.partition("?")[0], frequency=1e3 * self._clock_khz)
        return controller

    def _release(self, handle: Any) -> None:
        handle.close(freeze=bool(self._pins))  # frozen outputs keep their levels

    def _exchange(self, handle: Any, device: int, out: bytes, n_read: int) -> bytes:
        port = handle.get_port(device)
        if n_read:
            return bytes(port.exchange(out, n_read))
        port.write(out)
        return b""

    def _is_silence(self, error: Exception) -> bool:
        return isinstance(error, self._library.I2cNackError)

    def _prepare_pins(self) -> None:
        gpio = self._handle.get_gpio()
        used = sum(1 << pin for pin in self._pins.values())
        outputs = sum(1 << pin for pin in self._outputs())
        gpio.set_direction(used, 0)
        levels = gpio.read() & outputs
        gpio.set_direction(used, outputs)  # in one call: a second one would forget the pins of the first
        gpio.write(levels)

    def _drive(self, handle: Any, pin: int, level: bool) -> None:
        gpio = handle.get_gpio()
        outputs = sum(1 << one for one in self._outputs())
        others = gpio.read(with_output=True) & outputs & ~(1 << pin)
        gpio.write(others | level << pin)

    def _level(self, handle: Any, pin: int) -> bool:
        return bool(handle.get_gpio().read(with_output=True) >> pin & 1)
