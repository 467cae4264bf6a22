"""What every emulated device has besides its bytes: a supply that can fail, and a cable that can be pulled."""

from __future__ import annotations

import abc
import contextlib
from typing import ClassVar

from lumion_hw.clock import Clock
from lumion_hw.emulator.optics.bench_time import BenchTime
from lumion_hw.emulator.wires.device import MessagePeer
from lumion_hw.errors import ConnectError, LinkLost
from lumion_hw.links.base import Peer


class Switchable(abc.ABC):
    """Supply and cable of an emulated device; a base of all of them.

    Without power it neither receives nor sends: a host waits in vain, and another connection is refused. Pulling the
    cable ends every connection at once, while the device itself goes on.

    Args:
        name: Device name of the bench file.
        clock: The injected clock.

    Attributes:
        what: What it is, for messages.
        keeps_connections: A connection outlives a loss of power, as that of a serial line with a converter of its own
            does; the others are lost when the device comes back.
        hangs_up: It ends its connections when it loses power, as far as a host can see; the others fall silent.
        bench_time: Shared by all devices of a bench: whoever talks to one lets happen what is due; ``None`` for a
            device that stands alone.
    """

    what: ClassVar[str] = "the device"
    keeps_connections: ClassVar[bool] = False
    hangs_up: ClassVar[bool] = False
    bench_time: BenchTime | None = None
    _powered = True
    _cabled = True
    _losses = 0
    _pulls = 0

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock

    @property
    def name(self) -> str:
        """Device name of the bench file."""
        return self._name

    def now(self) -> float:
        """Return the time of the device's clock."""
        return self._clock.now()

    @property
    def powered(self) -> bool:
        """It has power."""
        return self._powered

    def power_off(self) -> None:
        """Cut the supply: what it drives or emits ends, nothing answers. Does nothing without power."""
        if self._powered:
            self.advance()  # what fell due before still happens
            self._powered = False
            self._losses += 1
            self._lose_power()

    def power_on(self) -> None:
        """Give the supply back: it starts as after a power-up. Does nothing while it has power."""
        if not self._powered:
            self._powered = True
            self._regain_power()

    def pull_cable(self) -> None:
        """Pull the cable to the host: connections are lost, others refused; the device goes on."""
        self.advance()
        self._cabled = False
        self._pulls += 1

    def put_cable(self) -> None:
        """Plug the cable to the host in again."""
        self._cabled = True

    @abc.abstractmethod
    def connect(self) -> Cord:
        """Open one more connection. Raises ``ConnectError`` without power or cable."""

    @abc.abstractmethod
    def advance(self) -> None:
        """Follow the clock."""

    @abc.abstractmethod
    def next_due(self) -> float | None:
        """Return when :meth:`advance` has something to do by itself, ``None`` if it waits for a host."""

    def _lose_power(self) -> None:  # noqa: B027 - a device without anything to end needs none
        """End what needs power."""

    def _regain_power(self) -> None:  # noqa: B027 - as above
        """Start up."""

    # -- connections

    def _require_reachable(self) -> None:
        """Raise ``ConnectError`` for a device without power or cable."""
        if not self._powered:
            raise ConnectError(f"{self.what} has no power", device=self.name, hint="Switch it on (emulated fault).")
        if not self._cabled:
            raise ConnectError(f"{self.what} is unplugged", device=self.name, hint="Plug it in (emulated fault).")

    def lets_pass(self, marks: tuple[int, int]) -> bool:
        """Tell whether bytes pass now, after what was to happen on the bench by now has happened.

        Args:
            marks: :attr:`marks` when the connection was made.

        Raises:
            LinkLost: The connection has been lost since.
        """
        # Faults scripted for an instant strike before the bytes that arrive after it.
        if self.bench_time is not None:
            self.bench_time.advance()
        pulled = marks[0] != self._pulls
        # A device without power is merely silent; that it has restarted shows once it is back.
        restarted = self._powered and not self.keeps_connections and marks[1] != self._losses
        if pulled or restarted:
            raise LinkLost(f"the connection to {self.what} is lost", device=self.name, hint="Connect again.")
        return self._powered

    @property
    def marks(self) -> tuple[int, int]:
        """How often the cable was pulled and the supply was lost so far."""
        return self._pulls, self._losses


class Cord:
    """A connection (:class:`~lumion_hw.links.base.Peer`) that ends with the cable and falls silent with the supply.

    Args:
        device: The device it leads to.
        peer: The connection while all is well.
    """

    def __init__(self, device: Switchable, peer: Peer) -> None:
        self._device, self.peer = device, peer
        self._marks = device.marks

    def _passes(self) -> bool:
        return self._device.lets_pass(self._marks)

    def _exchange(self) -> contextlib.AbstractContextManager[None]:
        return self._device.bench_time or contextlib.nullcontext()

    def receive(self, data: bytes) -> None:
        """Take bytes from the host, now. Raises ``LinkLost`` without a cable."""
        if self._passes():
            with self._exchange():
                self.peer.receive(data)

    def transmit(self) -> bytes:
        """Give the bytes that have left for the host by now. Raises ``LinkLost`` without a cable."""
        if not self._passes() and not self._device.hangs_up:
            return b""
        with self._exchange():
            return self.peer.transmit()

    def next_event(self) -> float | None:
        """Return when more bytes may leave, or something happens on the bench."""
        bench_time = self._device.bench_time
        times = (
            self.peer.next_event() if self._device.powered else None,
            bench_time.next_s() if bench_time is not None else None,
        )
        return min((time for time in times if time is not None), default=None)

    def close(self) -> None:
        """The host went away."""
        self.peer.close()


class MessageCord(Cord):
    """A cord whose connection knows where messages end.

    Args:
        device: The device it leads to.
        peer: The connection while all is well.
    """

    def __init__(self, device: Switchable, peer: MessagePeer) -> None:
        super().__init__(device, peer)
        self._messages = peer

    @property
    def response_pending(self) -> bool:
        """Whether a reply is being worked on or has not been transmitted."""
        return self._messages.response_pending

    def end_message(self) -> None:
        """What was received so far ends here."""
        if self._passes():
            with self._exchange():
                self._messages.end_message()

    def abandon(self) -> None:
        """Forget what was received and what would be replied."""
        self._messages.abandon()

    def interrupt(self) -> None:
        """Forget the reply: the host sent on without taking it."""
        self._messages.interrupt()

    def serial_poll(self) -> tuple[int, int]:
        """Return the status byte and the mask of the service request."""
        return self._messages.serial_poll()
