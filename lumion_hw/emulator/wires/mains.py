"""Power supply and cable of every emulated device; scripted faults make them fail."""

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
    """Power supply and cable of an emulated device; base class of all emulated devices.

    Without power the device neither receives nor sends, and new connections are refused. Pulling the cable ends every
    connection, while the device keeps running.

    Attributes:
        description: Description of the device, for messages.
        keeps_connections: Whether connections survive a power loss; otherwise they are lost when the device powers up.
        closes_on_power_loss: Whether a host sees its connection close when the device loses power.
        bench_time: Scheduled events of the bench; ``None`` for a stand-alone device.
    """

    description: ClassVar[str] = "the device"
    keeps_connections: ClassVar[bool] = False
    closes_on_power_loss: ClassVar[bool] = False
    bench_time: BenchTime | None = None
    _powered = True
    _cabled = True
    _power_losses = 0
    _cable_pulls = 0

    def __init__(self, name: str, clock: Clock) -> None:
        self._name = name
        self._clock = clock

    @property
    def name(self) -> str:
        """Device name in the bench file."""
        return self._name

    def now(self) -> float:
        """Return the time of the device's clock."""
        return self._clock.now()

    @property
    def powered(self) -> bool:
        """Whether the device has power."""
        return self._powered

    def power_off(self) -> None:
        """Cut the device's power: outputs switch off and the device stops responding."""
        if self._powered:
            self.advance()  # events that were due earlier still happen
            self._powered = False
            self._power_losses += 1
            self._lose_power()

    def power_on(self) -> None:
        """Restore the device's power."""
        if not self._powered:
            self._powered = True
            self._regain_power()

    def pull_cable(self) -> None:
        """Pull the cable to the host: connections are lost and refused, while the device keeps running."""
        self.advance()
        self._cabled = False
        self._cable_pulls += 1

    def plug_cable(self) -> None:
        """Plug the cable to the host in again."""
        self._cabled = True

    @abc.abstractmethod
    def connect(self) -> DeviceConnection:
        """Open another connection. Raises ``ConnectError`` without power or cable."""

    @abc.abstractmethod
    def advance(self) -> None:
        """Advance the device to the clock's present time."""

    @abc.abstractmethod
    def next_due(self) -> float | None:
        """Return the time of the next :meth:`advance` that has an effect; ``None`` if there is none without a host."""

    def _lose_power(self) -> None:  # noqa: B027 - optional
        """Switch off the functions of the device that need power."""

    def _regain_power(self) -> None:  # noqa: B027 - optional
        """Power the device up again."""

    # -- connections

    def _require_reachable(self) -> None:
        if not self._powered:
            raise ConnectError(
                f"{self.description} has no power", device=self.name, hint="End the emulated fault that cut the power."
            )
        if not self._cabled:
            raise ConnectError(
                f"{self.description} is unplugged",
                device=self.name,
                hint="End the emulated fault that pulled the cable.",
            )

    def is_reachable(self, epoch: tuple[int, int]) -> bool:
        """Run the bench's due events. Return whether the device has power.

        Raises ``LinkLost`` if the connection was lost since :attr:`connection_epoch` had the value ``epoch``.
        """
        # Faults scheduled for an instant act before bytes that arrive later.
        if self.bench_time is not None:
            self.bench_time.advance()
        pulled = epoch[0] != self._cable_pulls
        # A device without power is merely silent; its restart shows after it has power again.
        restarted = self._powered and not self.keeps_connections and epoch[1] != self._power_losses
        if pulled or restarted:
            raise LinkLost(f"the connection to {self.description} is lost", device=self.name, hint="Connect again.")
        return self._powered

    @property
    def connection_epoch(self) -> tuple[int, int]:
        """Number of cable pulls and power losses so far. Each change means that connections were lost."""
        return self._cable_pulls, self._power_losses


class DeviceConnection:
    """A host connection that is lost with the cable or power of the device.

    Args:
        peer: The connection to the device while cable and power are present.
    """

    def __init__(self, device: Switchable, peer: Peer) -> None:
        self._device, self.peer = device, peer
        self._epoch = device.connection_epoch

    def _is_reachable(self) -> bool:
        return self._device.is_reachable(self._epoch)

    def _exchange(self) -> contextlib.AbstractContextManager[None]:
        return self._device.bench_time or contextlib.nullcontext()

    def receive(self, data: bytes) -> None:
        """Pass bytes to the device. Raises ``LinkLost`` without a cable."""
        if self._is_reachable():
            with self._exchange():
                self.peer.receive(data)

    def transmit(self) -> bytes:
        """Return the bytes that have reached the host. Raises ``LinkLost`` without a cable."""
        if not self._is_reachable() and not self._device.closes_on_power_loss:
            return b""
        with self._exchange():
            return self.peer.transmit()

    def next_event(self) -> float | None:
        """Return the time of the device's next bytes, or of the next event of the bench."""
        bench_time = self._device.bench_time
        times = (
            self.peer.next_event() if self._device.powered else None,
            bench_time.next_s() if bench_time is not None else None,
        )
        return min((time for time in times if time is not None), default=None)

    def close(self) -> None:
        """Close the connection."""
        self.peer.close()


class MessageConnection(DeviceConnection):
    """A :class:`DeviceConnection` that preserves message boundaries."""

    def __init__(self, device: Switchable, peer: MessagePeer) -> None:
        super().__init__(device, peer)
        self._messages = peer

    @property
    def response_pending(self) -> bool:
        """Whether a reply is in preparation or not yet transmitted."""
        return self._messages.response_pending

    def end_message(self) -> None:
        """End the present message."""
        if self._is_reachable():
            with self._exchange():
                self._messages.end_message()

    def device_clear(self) -> None:
        """Discard received data and pending replies."""
        self._messages.device_clear()

    def interrupt(self) -> None:
        """Discard a reply that the host did not read before it sent more."""
        self._messages.interrupt()

    def serial_poll(self) -> tuple[int, int]:
        """Return the status byte and the mask of the service request."""
        return self._messages.serial_poll()
