"""Modules behind a Microchip MCP2221 through EasyMCP2221. Experimental: never tried on hardware by this project.

The chip moves 60 bytes per USB report; the library makes one bus transaction of several reports. A transfer that was
broken off can leave the bus stuck: opening anew frees it.
"""

from __future__ import annotations

from typing import Any

from lumion_hw.sessions.i2c_adapter import PinnedAdapter

DEFAULT_CLOCK_KHZ = 100.0
"""Bus speed; the chip makes 47 to 400 kHz."""


class Mcp2221Adapter(PinnedAdapter):
    """An MCP2221; its address is ``mcp2221://0`` for the first one plugged in, or ``mcp2221://SERIAL``.

    Pins 0 to 3 are GP0 to GP3.

    Args:
        address: The chip.
        clock_khz: Bus speed.
        **others: As for ``PinnedAdapter``.
    """

    module = "EasyMCP2221"
    extra = "mcp2221"
    what = "the MCP2221"
    own_largest_read = 60
    pin_numbers = range(4)

    def __init__(self, address: str, *, clock_khz: float = DEFAULT_CLOCK_KHZ, **others: Any) -> None:
        super().__init__(address, **others)
        self._clock_khz = clock_khz

    def _opened_handle(self) -> Any:
        which = self._address.partition("://")[2].partition("?")[0]
        chosen = {"devnum": int(which)} if which.isdigit() and len(which) < 4 else {"usbserial": which}
        chip = self._library.Device(**chosen)
        chip.I2C_speed(round(1e3 * self._clock_khz))
        return chip

    def _release(self, handle: Any) -> None:
        handle.hidhandler.close()  # the library has no call of its own to let go of a chip

    def _exchange(self, handle: Any, device: int, out: bytes, n_read: int) -> bytes:
        handle.I2C_write(device, out, kind="nonstop" if n_read else "regular")
        return bytes(handle.I2C_read(device, n_read, kind="restart")) if n_read else b""

    def _is_silence(self, error: Exception) -> bool:
        errors = self._library.exceptions
        return isinstance(error, errors.NotAckError | errors.TimeoutError)

    def _prepare_pins(self) -> None:
        chip = self._handle
        chip.set_pin_function(**{f"gp{pin}": "GPIO_IN" for pin in self._pins.values()})
        levels = chip.GPIO_read()
        for pin in self._outputs():
            chip.set_pin_function(**{f"gp{pin}": "GPIO_OUT", f"out{pin}": bool(levels[pin])})

    def _drive(self, handle: Any, pin: int, level: bool) -> None:
        handle.GPIO_write(**{f"gp{pin}": level})

    def _level(self, handle: Any, pin: int) -> bool:
        return bool(handle.GPIO_read()[pin])
