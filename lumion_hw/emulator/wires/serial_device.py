"""What emulated devices on a serial line share: hosts that come and go, and bytes that take their time."""

from __future__ import annotations

import abc
from typing import Any, ClassVar, Generic, TypeVar

from lumion_hw.clock import Clock
from lumion_hw.emulator.wires.mains import DeviceConnection, Switchable
from lumion_hw.emulator.wires.serial_line import SerialLine


class SerialPeer:
    """One connection (:class:`~lumion_hw.links.base.Peer`): a line, and what its host has begun to say.

    Args:
        device: The device it leads to.
        line: The bytes under way.

    Attributes:
        marks: The bytes on which the device acts; ``None`` for any.
    """

    marks: ClassVar[bytes | None] = None

    def __init__(self, device: SerialDevice[Any], line: SerialLine) -> None:
        self._device = device
        self.line = line

    def receive(self, data: bytes) -> None:
        """Take bytes from the host, now."""
        self._device.advance()
        self.line.receive(data, self._device.now())

    def transmit(self) -> bytes:
        """Give the bytes that have left for the host by now."""
        self._device.advance()
        return self.line.left(self._device.now())

    def next_event(self) -> float | None:
        """Return when more bytes may leave."""
        times = (self.line.next_departure(), self.line.next_arrival(self.marks), self._device.next_due())
        return min((time for time in times if time is not None), default=None)

    def close(self) -> None:
        """The host went away."""
        self._device.disconnect(self)


P = TypeVar("P", bound=SerialPeer)


class SerialDevice(Switchable, abc.ABC, Generic[P]):
    """An emulated device (:class:`~lumion_hw.emulator.wires.device.EmulatedDevice`) on serial lines.

    Args:
        name: Device name of the bench file.
        clock: The injected clock.

    Attributes:
        what: What it is, for messages.
    """

    keeps_connections = True

    def __init__(self, name: str, clock: Clock) -> None:
        super().__init__(name, clock)
        self._peers: list[P] = []
        self._advancing = False

    def next_due(self) -> float | None:
        """Return when the device says something by itself, ``None`` if it will not."""
        return None

    def connect(self) -> DeviceConnection:
        """Open one more connection. Raises ``ConnectError`` without power or cable."""
        self._require_reachable()
        peer = self._new_peer()
        self._peers.append(peer)
        return DeviceConnection(self, peer)

    def power_cycle(self) -> None:
        """Power off and on: bytes under way are lost."""
        for peer in self._peers:
            peer.line.clear()

    def _lose_power(self) -> None:
        for peer in self._peers:
            peer.line.clear()

    def _regain_power(self) -> None:
        self.power_cycle()

    def disconnect(self, peer: SerialPeer) -> None:
        """Forget a connection; what arrived from it has been carried out."""
        if peer in self._peers:
            self.advance()
            # A new list: this may happen while the old one is being gone through.
            self._peers = [other for other in self._peers if other is not peer]

    def advance(self) -> None:
        """Carry out what has arrived, and follow the clock."""
        # What is carried out may ask the optical world, which asks every device to advance.
        if self._advancing:
            return
        self._advancing = True
        try:
            self._follow(self._clock.now())
        finally:
            self._advancing = False

    @abc.abstractmethod
    def _new_peer(self) -> P:
        """Return the peer of a new connection."""

    @abc.abstractmethod
    def _follow(self, now: float) -> None:
        """Carry out what has arrived by ``now``, and do what is due."""
