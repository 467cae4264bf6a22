"""I2C adapters of this computer: smbus2, pyftdi and EasyMCP2221. Not verified on hardware."""

from __future__ import annotations

import errno
from typing import Any

from lumion_hw.sessions.module.adapter import I2cAdapter, PinnedAdapter

_CLOCK_KHZ = 100.0  # bus speed; FTDI chips are reported to handle clock stretching only up to this speed
# A missing acknowledge is ENXIO (Linux, Documentation/i2c/fault-codes.rst), in some drivers
# EREMOTEIO. Time-out and lost arbitration are temporary as well.
_NOT_ACKNOWLEDGED = (errno.ENXIO, errno.EREMOTEIO, errno.ETIMEDOUT, errno.EAGAIN)


class SmbusAdapter(I2cAdapter):
    """A Linux I2C bus; its address is ``i2c://1`` for ``/dev/i2c-1``.

    USB bridges with a kernel driver (CP2112, FT260, MCP2221 ...) also work; some need ``largest_read`` below 128 bytes.
    """

    module = "smbus2"
    extra = "i2c"
    label = "the Linux I2C bus"

    _open_hint = "Load the i2c-dev kernel module and give this user access to the bus."

    def _open_handle(self) -> Any:
        return self._library.SMBus(int(self._address.partition("://")[2].partition("?")[0]))

    def _release(self, handle: Any) -> None:
        handle.close()

    def _exchange(self, handle: Any, device: int, written: bytes, n_read: int) -> bytes:
        message = self._library.i2c_msg
        request = message.write(device, list(written))
        if not n_read:
            handle.i2c_rdwr(request)
            return b""
        reply = message.read(device, n_read)
        # Both messages in one call, so that the start between them is a repeated start.
        handle.i2c_rdwr(request, reply)
        return bytes(list(reply))

    def _is_no_acknowledge(self, error: Exception) -> bool:
        return isinstance(error, OSError) and error.errno in _NOT_ACKNOWLEDGED

    def _hint_for_loss(self, error: Exception) -> str:
        busy = isinstance(error, OSError) and error.errno == errno.EBUSY
        return "Unbind the kernel driver first." if busy else "Check the adapter."


class FtdiAdapter(PinnedAdapter):
    """An FTDI MPSSE chip (FT232H, 2232H, 4232H), addressed as in pyftdi, such as ``ftdi://ftdi:232h/1``.

    Clock stretching needs AD7 tied to SCL (eblot/pyftdi, issue 373). Pins 3 to 7 are AD3 to AD7, and 8 to 15 are AC0 to
    AC7.

    Args:
        address: Address of the chip.
        clock_khz: Bus speed.
        **options: As for ``PinnedAdapter``.
    """

    module = "pyftdi.i2c"
    extra = "ftdi"
    label = "the FTDI chip"
    pin_numbers = range(3, 16)

    def __init__(self, address: str, *, clock_khz: float = _CLOCK_KHZ, **options: Any) -> None:
        super().__init__(address, **options)
        self._clock_khz = clock_khz

    def _open_handle(self) -> Any:
        controller = self._library.I2cController()
        controller.configure(self._address.partition("?")[0], frequency=1e3 * self._clock_khz)
        return controller

    def _release(self, handle: Any) -> None:
        handle.close(freeze=bool(self._pins))  # frozen outputs keep their levels

    def _exchange(self, handle: Any, device: int, written: bytes, n_read: int) -> bytes:
        port = handle.get_port(device)
        if n_read:
            return bytes(port.exchange(written, n_read))
        port.write(written)
        return b""

    def _is_no_acknowledge(self, error: Exception) -> bool:
        return isinstance(error, self._library.I2cNackError)

    def _prepare_pins(self) -> None:
        gpio = self._handle.get_gpio()
        used = sum(1 << pin for pin in self._pins.values())
        outputs = sum(1 << pin for pin in self._outputs())
        gpio.set_direction(used, 0)
        # Read the levels while all pins are inputs, so that outputs start at the level to which the board pulls them.
        levels = gpio.read() & outputs
        gpio.set_direction(used, outputs)  # in one call: a second call would reset the pins of the first
        gpio.write(levels)

    def _drive(self, handle: Any, pin: int, level: bool) -> None:
        gpio = handle.get_gpio()
        outputs = sum(1 << output for output in self._outputs())
        other_pins = gpio.read(with_output=True) & outputs & ~(1 << pin)
        gpio.write(other_pins | level << pin)

    def _level(self, handle: Any, pin: int) -> bool:
        return bool(handle.get_gpio().read(with_output=True) >> pin & 1)


class Mcp2221Adapter(PinnedAdapter):
    """An MCP2221; its address is ``mcp2221://0`` for the first chip found, or ``mcp2221://SERIAL``.

    After an aborted transfer the bus may be stuck until the adapter is opened again (electronicayciencia/EasyMCP2221,
    issue 1). Pins 0 to 3 are GP0 to GP3.

    Args:
        address: Address of the chip.
        clock_khz: Bus speed, 47 to 400 kHz.
        **options: As for ``PinnedAdapter``.
    """

    module = "EasyMCP2221"
    extra = "mcp2221"
    label = "the MCP2221"
    default_largest_read = 60
    pin_numbers = range(4)

    def __init__(self, address: str, *, clock_khz: float = _CLOCK_KHZ, **options: Any) -> None:
        super().__init__(address, **options)
        self._clock_khz = clock_khz

    def _open_handle(self) -> Any:
        name = self._address.partition("://")[2].partition("?")[0]
        selector = {"devnum": int(name)} if name.isdigit() and len(name) < 4 else {"usbserial": name}
        chip = self._library.Device(**selector)
        chip.I2C_speed(round(1e3 * self._clock_khz))
        return chip

    def _release(self, handle: Any) -> None:
        handle.hidhandler.close()  # the library has no function to release a chip

    def _exchange(self, handle: Any, device: int, written: bytes, n_read: int) -> bytes:
        handle.I2C_write(device, written, kind="nonstop" if n_read else "regular")
        return bytes(handle.I2C_read(device, n_read, kind="restart")) if n_read else b""

    def _is_no_acknowledge(self, error: Exception) -> bool:
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
