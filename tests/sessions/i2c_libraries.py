"""Stand-ins for the libraries of I2C adapters, all on one wire: transfers to targets, and the pins of a socket.

Each has the calls of the real library that the adapters use; ``test_i2c_adapters`` compares their signatures.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Protocol

from lumion_hw.sessions.module.registers import NotRespondingError


class Target(Protocol):
    def read(self, offset: int, length: int) -> bytes: ...
    def write(self, offset: int, data: bytes) -> None: ...


class Wire:
    """The bus and the pins of one adapter."""

    def __init__(self, **targets: Target) -> None:
        self.targets = {int(name[1:], 16): target for name, target in targets.items()}
        self.transfers: list[tuple[int, bytes, int]] = []
        self.pulled: Exception | None = None
        self.levels = dict.fromkeys(range(16), True)  # pull-ups
        self.outputs: set[int] = set()
        self.on_drive: Callable[[int, bool], None] = lambda pin, level: None
        self.sense: Callable[[int], bool] = lambda pin: self.levels[pin]

    def transfer(self, device: int, out: bytes, n_read: int) -> bytes:
        """Raise ``NotRespondingError`` where nobody acknowledges."""
        if self.pulled:
            raise self.pulled
        self.transfers.append((device, bytes(out), n_read))
        if device not in self.targets:
            raise NotRespondingError("not acknowledged")
        if n_read:
            return self.targets[device].read(out[0], n_read)
        self.targets[device].write(out[0], bytes(out[1:]))
        return b""

    def drive(self, pin: int, level: bool) -> None:
        self.outputs.add(pin)
        if self.levels[pin] != level:
            self.levels[pin] = level
            self.on_drive(pin, level)


# -- smbus2


def smbus2_on(wire: Wire) -> SimpleNamespace:
    class Message:
        def __init__(self, device: int, data: list[int], length: int = 0) -> None:
            self.device, self.data, self.length = device, data, length

        @staticmethod
        def write(address: int, buf: list[int]) -> Message:
            return Message(address, list(buf))

        @staticmethod
        def read(address: int, length: int) -> Message:
            return Message(address, [], length)

        def __iter__(self) -> Any:
            return iter(self.data)

    class SMBus:
        def __init__(self, bus: int) -> None:
            if bus == 9:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory")

        def i2c_rdwr(self, *messages: Message) -> None:
            try:
                reply = wire.transfer(messages[0].device, bytes(messages[0].data), messages[-1].length)
            except NotRespondingError:
                raise OSError(errno.EREMOTEIO, "Remote I/O error") from None
            messages[-1].data = list(reply) or messages[-1].data

        def close(self) -> None:
            raise OSError(errno.ENODEV, "unplugged")  # nobody is to notice

    return SimpleNamespace(SMBus=SMBus, i2c_msg=Message)


# -- pyftdi.i2c


class FtdiNackError(OSError):
    pass


def pyftdi_on(wire: Wire) -> SimpleNamespace:
    class Port:
        def __init__(self, device: int) -> None:
            self.device = device

        def exchange(self, out: bytes, readlen: int) -> bytes:
            try:
                return wire.transfer(self.device, out, readlen)
            except NotRespondingError as error:
                raise FtdiNackError("NACK") from error

        def write(self, out: bytes) -> None:
            self.exchange(out, 0)

    class Gpio:
        used = direction = 0

        def set_direction(self, pins: int, direction: int) -> None:
            self.used, self.direction = pins, direction

        def read(self, with_output: bool = False) -> int:
            received = self.used if with_output else self.used & ~self.direction
            return sum(wire.sense(pin) << pin for pin in range(16) if received >> pin & 1)

        def write(self, value: int) -> None:
            assert value & self.direction == value, "no such output pins"
            for pin in range(16):
                if self.direction >> pin & 1:
                    wire.drive(pin, bool(value >> pin & 1))

    class I2cController:
        def configure(self, url: str, **kwargs: float) -> None:
            if "absent" in url:
                raise ValueError("no such chip")
            wire.frequency = kwargs["frequency"]  # type: ignore[attr-defined]
            self.gpio = Gpio()

        def get_port(self, address: int) -> Port:
            return Port(address)

        def get_gpio(self) -> Gpio:
            return self.gpio

        def close(self, freeze: bool = False) -> None:
            raise RuntimeError("unplugged")

    return SimpleNamespace(I2cController=I2cController, I2cNackError=FtdiNackError, I2cGpioPort=Gpio, I2cPort=Port)


# -- EasyMCP2221


class McpNackError(Exception):
    pass


class McpTimeoutError(Exception):
    pass


def mcp2221_on(wire: Wire) -> SimpleNamespace:
    class Device:
        def __init__(self, devnum: int = 0, usbserial: str | None = None) -> None:
            if devnum == 9 or usbserial == "absent":
                raise RuntimeError("No device found with VID 04D8 and PID 00DD.")
            self.hidhandler = SimpleNamespace(close=lambda: None)
            self.pending: tuple[int, bytes] | None = None
            self.gpio = [False] * 4

        def I2C_speed(self, speed: int = 100000) -> None:
            wire.frequency = speed  # type: ignore[attr-defined]

        def I2C_write(self, addr: int, data: bytes, kind: str = "regular") -> None:
            if kind == "nonstop":
                self.pending = addr, data
            else:
                self._transfer(addr, data, 0)

        def I2C_read(self, addr: int, size: int = 1, kind: str = "regular") -> bytes:
            assert kind == "restart"
            assert self.pending is not None
            assert self.pending[0] == addr
            return self._transfer(addr, self.pending[1], size)

        def _transfer(self, addr: int, data: bytes, size: int) -> bytes:
            try:
                return wire.transfer(addr, data, size)
            except NotRespondingError as error:
                raise McpNackError("Device did not ACK.") from error

        def set_pin_function(self, **functions: Any) -> None:
            for pin in range(4):
                function = functions.get(f"gp{pin}")
                self.gpio[pin] |= function is not None
                if function == "GPIO_OUT":
                    wire.drive(pin, functions[f"out{pin}"])

        def GPIO_write(self, **levels: bool) -> None:
            for name, level in levels.items():
                wire.drive(int(name[2:]), level)

        def GPIO_read(self) -> tuple[bool | None, ...]:
            return tuple(wire.sense(pin) if self.gpio[pin] else None for pin in range(4))

    errors = SimpleNamespace(NotAckError=McpNackError, TimeoutError=McpTimeoutError)
    return SimpleNamespace(Device=Device, exceptions=errors)
