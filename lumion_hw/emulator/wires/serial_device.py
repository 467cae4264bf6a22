"""Common base of emulated devices on a serial line."""

from __future__ import annotations

import abc
from typing import Any, ClassVar, Generic, TypeVar

from lumion_hw.clock import Clock
from lumion_hw.emulator.wires.mains import DeviceConnection, Switchable
from lumion_hw.emulator.wires.serial_line import SerialLine


class SerialPeer:
    """One host connection to a device on a serial line.

    Attributes:
        command_ends: Bytes that end a command; ``None`` if the device acts on every byte.
    """

    command_ends: ClassVar[bytes | None] = None

    def __init__(self, device: SerialDevice[Any], line: SerialLine) -> None:
        self._device = device
        self.line = line

    def receive(self, data: bytes) -> None:
        """Start the transmission of bytes that the host sends."""
        self._device.advance()
        self.line.receive(data, self._device.now())

    def transmit(self) -> bytes:
        """Return the bytes that have reached the host."""
        self._device.advance()
        return self.line.take_departed(self._device.now())

    def next_event(self) -> float | None:
        """Return the time at which more bytes reach the host."""
        times = (self.line.next_departure(), self.line.next_arrival(self.command_ends), self._device.next_due())
        return min((time for time in times if time is not None), default=None)

    def close(self) -> None:
        """Close the connection."""
        self._device.disconnect(self)


P = TypeVar("P", bound=SerialPeer)


class SerialDevice(Switchable, abc.ABC, Generic[P]):
    """An emulated device on serial lines."""

    keeps_connections = True

    def __init__(self, name: str, clock: Clock) -> None:
        super().__init__(name, clock)
        self._peers: list[P] = []
        self._advancing = False

    def next_due(self) -> float | None:
        """Return the time at which the device next sends without a request; ``None`` if it never does."""
        return None

    def connect(self) -> DeviceConnection:
        """Open another connection. Raises ``ConnectError`` without power or cable."""
        self._require_reachable()
        peer = self._new_peer()
        self._peers.append(peer)
        return DeviceConnection(self, peer)

    def power_cycle(self) -> None:
        """Switch the power off and on. Bytes in transmission are lost."""
        for peer in self._peers:
            peer.line.clear()

    def _lose_power(self) -> None:
        for peer in self._peers:
            peer.line.clear()

    def _regain_power(self) -> None:
        self.power_cycle()

    def disconnect(self, peer: SerialPeer) -> None:
        """Remove a closed connection. Commands that have already arrived are still executed."""
        if peer in self._peers:
            self.advance()
            # A new list, because the old one may be in use by a loop.
            self._peers = [other for other in self._peers if other is not peer]

    def advance(self) -> None:
        """Execute received commands, and advance the device to the clock's present time."""
        # A command may read the optical world, which makes every device advance.
        if self._advancing:
            return
        self._advancing = True
        try:
            self._follow(self._clock.now())
        finally:
            self._advancing = False

    @abc.abstractmethod
    def _new_peer(self) -> P:
        """Create the device's end of a new connection."""

    @abc.abstractmethod
    def _follow(self, now_s: float) -> None:
        """Execute the commands that arrived until ``now_s``, and the actions of the device that are due by then."""
