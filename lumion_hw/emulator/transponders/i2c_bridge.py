"""Emulated UART-to-I2C bridge, NXP SC18IM700, with I2C targets on its bus.

Source: SC18IM700 data sheet, Rev. 02 (10 August 2007): Table 3 "ASCII commands supported", the chapter on the UART
message format (S, R, W, I, O, Z, P; repeated START), the register summary (BRG, I2CClk, I2CStat 0x0A), and the "OK"
sent after power-up. Choices where the data sheet is silent: a failed read returns nothing, an incomplete message is
dropped after 0.655 s, and at most 16 messages wait for the bus.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lumion_hw.clock import Clock
from lumion_hw.emulator.wires.serial_device import SerialDevice, SerialPeer
from lumion_hw.emulator.wires.serial_line import SerialLine

I2C_STAT = 0x0A
"""Number of the I2C status register."""
STAT_OK, STAT_NACK_ADDRESS, STAT_NACK_DATA, STAT_TIME_OUT = 0xF0, 0xF1, 0xF2, 0xF8
"""Values of the I2C status register."""
MESSAGE_TIMEOUT_S = 0.655
"""Time in s after which an incomplete message is dropped."""
BUS_TIMEOUT_S = 0.227
"""Time in s after which the bridge ends a transaction on a blocked bus."""
MAX_WAITING_MESSAGES = 16
"""Largest number of messages that wait for the bus; later messages are lost."""

_CRYSTAL_HZ = 7_372_800
_BRG0, _BRG1, _IO_STATE, _CLOCK_LOW, _CLOCK_HIGH = 0x00, 0x01, 0x04, 0x07, 0x08
_REGISTERS = {
    _BRG0: 0xF0,
    _BRG1: 0x02,
    0x02: 0x55,
    0x03: 0x55,
    _IO_STATE: 0x0F,
    0x05: 0x00,
    0x06: 0x26,
    _CLOCK_LOW: 0x13,
    _CLOCK_HIGH: 0x00,
    0x09: 0x66,
    I2C_STAT: STAT_OK,
}
_READ_ONLY = frozenset((I2C_STAT,))


class I2cTarget(Protocol):
    """A device on the I2C bus, called for every byte. Times may lie in the past."""

    def i2c_start(self, address: int, read: bool, at_s: float) -> bool:
        """Receive START and the address byte (7-bit ``address``). Return whether the target acknowledges."""

    def i2c_write(self, value: int) -> bool:
        """Receive one data byte. Return whether the target acknowledges."""

    def i2c_read(self) -> int:
        """Return the data byte that the target sends."""

    def i2c_stop(self, at_s: float) -> None:
        """Receive the STOP condition."""


@dataclass
class _Segment:
    """One segment of a bus message after START: a write of ``data`` or a read of ``length`` bytes."""

    address: int
    read: bool
    length: int
    data: bytes = b""


@dataclass
class BridgeMessage:
    """One complete message from the host to the bridge."""

    command: str
    segments: list[_Segment] = field(default_factory=list)
    values: list[int] = field(default_factory=list)


_Parser = Generator[None, int, BridgeMessage | None]


def _collect_bytes(count: int) -> Generator[None, int, list[int]]:
    values = []
    for _ in range(count):
        values.append((yield))
    return values


def _bus_message() -> _Parser:
    """Parse a bus message after its first S: segments joined by S (repeated START) and ended by P."""
    message = BridgeMessage("S")
    while True:
        address, length = yield from _collect_bytes(2)
        segment = _Segment(address >> 1, bool(address & 1), length)
        if not segment.read:
            segment.data = bytes((yield from _collect_bytes(length)))
        message.segments.append(segment)
        separator = yield  # P ends the message; S begins another segment without STOP
        if separator == ord("P"):
            return message
        if separator != ord("S"):
            return None


def _message() -> _Parser:
    command = chr((yield))
    if command == "S":
        return (yield from _bus_message())
    message = BridgeMessage(command)
    if command in "OZI":
        message.values = yield from _collect_bytes({"O": 1, "Z": 2, "I": 0}[command])
        return message if (yield) == ord("P") else None
    if command not in "RW":
        return None
    while True:
        register = yield
        if register == ord("P"):
            return message
        message.values.append(register)
        if command == "W":
            message.values.append((yield))


class _BridgePeer(SerialPeer):
    """One host connection to the I2C bridge."""

    command_ends = b"P"

    def __init__(self, bridge: I2cBridge, line: SerialLine) -> None:
        super().__init__(bridge, line)
        self._parser: _Parser = _message()
        next(self._parser)
        self._received_at = float("-inf")

    def take(self, data: bytes, at_s: float) -> BridgeMessage | None:
        """Return the message that the bytes complete, or ``None``. The last byte arrived at ``at_s``."""
        first_s = at_s - self.line.byte_s * (len(data) - 1)  # the timeout counts up to the first of these bytes
        if first_s - self._received_at > MESSAGE_TIMEOUT_S:
            self._restart()
        self._received_at = at_s
        for value in data:
            message = self._feed(value)
            if message is not None:
                return message
        return None

    def _feed(self, value: int) -> BridgeMessage | None:
        try:
            self._parser.send(value)
        except StopIteration as end:
            self._restart()
            message: BridgeMessage | None = end.value
            return message
        return None

    def _restart(self) -> None:
        self._parser = _message()
        next(self._parser)


class I2cBridge(SerialDevice[_BridgePeer]):
    """Emulated UART-to-I2C bridge.

    Args:
        targets: Devices on the bus. The first one that acknowledges an address handles the transaction.
        baud: UART rate at power-up (the real chip: 9600 baud). A host can change the rate in BRG0/BRG1.
        ok_on_connect: Whether a new connection powers the bridge up (USB-powered adapter), so that it sends ``OK``.
    """

    description = "the bridge"

    def __init__(
        self,
        name: str,
        clock: Clock,
        targets: Sequence[I2cTarget],
        *,
        baud: int = 9600,
        ok_on_connect: bool = False,
    ) -> None:
        super().__init__(name, clock)
        self._targets = tuple(targets)
        self._ok_on_connect = ok_on_connect
        # Data sheet, baud rate generator: baud = 7.3728 MHz / (16 + BRG).
        divisor = max(round(_CRYSTAL_HZ / baud) - 16, 0)
        self._initial = _REGISTERS | {_BRG0: divisor & 0xFF, _BRG1: divisor >> 8}
        self._registers = dict(self._initial)
        self._work: deque[tuple[float, _BridgePeer, BridgeMessage]] = deque()
        self._free_at = float("-inf")
        self.bus_stuck = False

    @property
    def baud(self) -> float:
        """UART rate in baud, set by the BRG registers."""
        return _CRYSTAL_HZ / (16 + self._registers[_BRG0] + 256 * self._registers[_BRG1])

    @property
    def bus_hz(self) -> float:
        """I2C clock rate in Hz, set by the I2CClk registers (0x13 = 97 kHz; smallest divider 5)."""
        return _CRYSTAL_HZ / (4 * max(self._registers[_CLOCK_LOW] + self._registers[_CLOCK_HIGH], 5))

    def _new_peer(self) -> _BridgePeer:
        peer = _BridgePeer(self, SerialLine(self.baud))
        if self._ok_on_connect:
            peer.line.send(b"OK", self._clock.now())
        return peer

    def power_cycle(self) -> None:
        """Switch the bridge off and on: default registers, no pending work, ``OK`` on every connection."""
        self.advance()
        self._registers = dict(self._initial)
        self._work.clear()
        self._free_at = float("-inf")
        for peer in self._peers:
            peer.line.clear()
            peer.line.set_baud(self.baud)
            peer.line.send(b"OK", self._clock.now())

    def _lose_power(self) -> None:
        super()._lose_power()
        self._work.clear()

    def next_due(self) -> float | None:
        """Return the time at which the current transaction on the bus ends; ``None`` without a transaction."""
        return self._work[0][0] if self._work else None

    def _follow(self, now_s: float) -> None:
        self._finish(now_s)
        for peer in self._peers:
            while (chunk := peer.line.take_arrived(now_s, b"P")) is not None:
                message = peer.take(chunk[1], chunk[0])
                if message is not None and len(self._work) < MAX_WAITING_MESSAGES:
                    start = max(chunk[0], self._free_at)
                    self._free_at = start + self._duration_s(message)
                    self._work.append((self._free_at, peer, message))
                    self._finish(now_s)

    def _finish(self, now_s: float) -> None:
        while self._work and self._work[0][0] <= now_s:
            finished_s, peer, message = self._work.popleft()
            answer = self._execute(message, finished_s)
            # The reply still uses the old rate, even if this message changes it.
            peer.line.send(answer, finished_s)
            if message.command == "W":
                for other in self._peers:
                    other.line.set_baud(self.baud)

    def _duration_s(self, message: BridgeMessage) -> float:
        if message.segments and self.bus_stuck:
            return BUS_TIMEOUT_S
        # START, nine clocks for the address and for each byte, STOP.
        bits = sum(1 + 9 * (1 + segment.length) for segment in message.segments) + (1 if message.segments else 0)
        return bits / self.bus_hz

    def _execute(self, message: BridgeMessage, at_s: float) -> bytes:
        values = message.values
        if message.command == "S":
            self._registers[I2C_STAT], data = self._transact(message.segments, at_s)
            return data
        if message.command == "R":
            return bytes(self._registers.get(register, 0) for register in values)
        if message.command == "W":
            for register, value in zip(values[::2], values[1::2], strict=True):
                if register in self._registers and register not in _READ_ONLY:
                    self._registers[register] = value
        elif message.command == "O":
            self._registers[_IO_STATE] = values[0]
        elif message.command == "I":
            return bytes((self._registers[_IO_STATE],))
        return b""

    def _transact(self, segments: list[_Segment], at_s: float) -> tuple[int, bytes]:
        if self.bus_stuck:
            return STAT_TIME_OUT, b""
        if self.bench_time is not None:  # light read by a module must include the changes of the previous transaction
            self.bench_time.renew()
        data = bytearray()
        status = STAT_OK
        for segment in segments:
            # Targets are addressed in turn; the first one that acknowledges handles the segment.
            active = next((t for t in self._targets if t.i2c_start(segment.address, segment.read, at_s)), None)
            if active is None:
                status = STAT_NACK_ADDRESS
                break
            if segment.read:
                data += bytes(active.i2c_read() for _ in range(segment.length))
            elif not all(active.i2c_write(value) for value in segment.data):
                status = STAT_NACK_DATA
                break
        for target in self._targets:  # every device on the bus sees STOP
            target.i2c_stop(at_s)
        return status, bytes(data)
