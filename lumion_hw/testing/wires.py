"""Wires between a driver and an emulated device, which a test can cut and disturb."""

from __future__ import annotations

import contextlib
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from lumion_hw.clock import Clock, Deadline, SystemClock, VirtualClock
from lumion_hw.errors import ConfigError, ConnectError, LinkLost
from lumion_hw.links.base import Link, Peer
from lumion_hw.links.draining import DrainedByReading

if TYPE_CHECKING:
    from lumion_hw.emulator.wires.device import EmulatedDevice

TRANSPORTS = ("memory", "tcp", "pty", "hislip")
"""Kinds of wires. With ``memory`` the device runs on virtual time, otherwise on the wall clock."""
_SERVER_TIMEOUT_S = 120.0
"""Longest wait for the thread of the device, in seconds."""
_CUT_HINT = "The test cut this link on purpose."


def clock_for(transport: str) -> Clock:
    """Return a new clock for a device and its driver: a virtual clock in memory, otherwise the wall clock.

    Raises:
        ConfigError: The transport does not exist.
    """
    if transport not in TRANSPORTS:
        raise ConfigError(f"there is no transport {transport!r}", hint=f"The transports are {', '.join(TRANSPORTS)}.")
    return VirtualClock() if transport == "memory" else SystemClock()


class DisturbedLink(DrainedByReading):
    """A link that a test can cut, delay and disturb."""

    def __init__(self, link: Link, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._at_next_reply = bytearray()
        self._arrived = bytearray()
        self._late = bytearray()
        self._holding = False
        self._dripping = False
        self._cut = False

    @property
    def name(self) -> str:
        """Address of the link."""
        return self._link.name

    def cut(self) -> None:
        """Cut the link: all later calls fail."""
        self._cut = True
        self._link.close()

    def disturb(self, garbage: bytes) -> None:
        """Insert bytes before the reply to the next write."""
        self._at_next_reply += garbage

    def hold(self, holding: bool) -> None:
        """Hold back all received bytes (``True``), or now deliver the bytes held back (``False``)."""
        self._holding = holding
        if not holding:
            self._arrived += self._late
            self._late.clear()

    def drip(self) -> None:
        """Deliver one byte per read from now on."""
        self._dripping = True

    def open(self, deadline: Deadline) -> None:
        """Open the stream. Raises ``ConnectError`` if the link was cut."""
        if self._cut:
            raise ConnectError("the link was cut", address=self.name, hint=_CUT_HINT)
        self._link.open(deadline)

    def write(self, data: bytes, deadline: Deadline) -> None:
        """Write all of ``data``."""
        self._check_not_cut()
        self._link.write(data, deadline)
        self._arrived += self._at_next_reply
        self._at_next_reply.clear()

    def read(self, deadline: Deadline) -> bytes:
        """Return at least one byte, or ``b""`` at the deadline."""
        self._check_not_cut()
        while self._holding and (data := self._link.read(deadline)):
            self._late += data
        if self._holding:
            return b""
        if not self._arrived:
            self._arrived += self._link.read(deadline)
        size = 1 if self._dripping else len(self._arrived)
        data = bytes(self._arrived[:size])
        del self._arrived[:size]
        return data

    def close(self) -> None:
        """Close the stream; idempotent, never raises."""
        self._link.close()

    def _check_not_cut(self) -> None:
        if self._cut:
            raise LinkLost("the link was cut", address=self.name, hint=_CUT_HINT)


class _DeviceWithActions:
    """An emulated device that also runs actions posted by other threads."""

    def __init__(self, device: EmulatedDevice, wake: Callable[[], None]) -> None:
        self._device = device
        self._wake = wake
        self._posted: deque[tuple[Callable[[], object], Future[None]]] = deque()

    @property
    def name(self) -> str:
        """Name of the emulated device."""
        return self._device.name

    def connect(self) -> Peer:
        """Open a connection to the emulated device."""
        return self._device.connect()

    def advance(self) -> None:
        """Run the posted actions, then advance the device; an action's error goes to the thread that posted it."""
        while self._posted:
            action, done = self._posted.popleft()
            try:
                action()
            except BaseException as failure:  # noqa: BLE001 - passed to the thread that posted the action
                done.set_exception(failure)
            else:
                done.set_result(None)
        self._device.advance()

    def next_due(self) -> float | None:
        """Return the time of the device's next action; minus infinity while posted actions wait."""
        return float("-inf") if self._posted else self._device.next_due()

    def run_action(self, action: Callable[[], object]) -> None:
        """Run an action in the thread of the device, and wait for it. Raises the error of the action."""
        done: Future[None] = Future()
        self._posted.append((action, done))
        self._wake()
        done.result(_SERVER_TIMEOUT_S)


def _call(action: Callable[[], object]) -> None:
    action()


class WireUnderTest:
    """Wire to one emulated device.

    Args:
        make_link: Returns a new link to the device.
        clock: Clock of device and links.
        run_action: Runs an action in the device's thread.
        pull: Disconnects the device permanently from its wire.
        address: Address of the device; ``None`` in memory.
    """

    def __init__(
        self,
        make_link: Callable[[], Link],
        clock: Clock,
        *,
        run_action: Callable[[Callable[[], object]], None] = _call,
        pull: Callable[[], None] = lambda: None,
        address: str | None = None,
    ) -> None:
        self._make_link = make_link
        self._clock = clock
        self._run_action = run_action
        self._pull = pull
        self._links: list[DisturbedLink] = []
        self.address = address

    def link(self) -> DisturbedLink:
        """Return a new link to the device."""
        link = DisturbedLink(self._make_link(), self._clock)
        self._links.append(link)
        return link

    def run_action(self, action: Callable[[], object]) -> None:
        """Run an action on the emulated device, such as a fault, in the thread of the device.

        Raises the error of the action.
        """
        self._run_action(action)

    def disturb(self, garbage: bytes) -> None:
        """Insert bytes before the next reply, on every link."""
        for link in self._links:
            link.disturb(garbage)

    def hold(self, holding: bool) -> None:
        """Hold back all replies on every link (``True``), or now deliver the replies held back (``False``)."""
        for link in self._links:
            link.hold(holding)

    def drip(self) -> None:
        """Deliver replies byte by byte from now on, on every link."""
        for link in self._links:
            link.drip()

    def unplug(self) -> None:
        """Disconnect the device permanently."""
        if self.address is None:
            for link in self._links:
                link.cut()
        self._pull()


@contextlib.contextmanager
def wired(device: EmulatedDevice, transport: str, clock: Clock) -> Iterator[WireUnderTest]:
    """Connect an emulated device by a wire in a ``with`` block.

    Args:
        device: Device to connect.
        transport: ``memory``, ``tcp`` (loopback), ``pty`` or ``hislip`` (message-based instruments only).
        clock: Clock of the device, from :func:`clock_for`.

    Raises:
        ConfigError: The transport does not exist, or the device does not support it.
        ConnectError: No port or pseudo-terminal is available.
    """
    if transport == "memory":
        from lumion_hw.links.memory import MemoryLink

        yield WireUnderTest(lambda: MemoryLink(device.connect, clock, f"emulated {device.name}"), clock)
        return
    from lumion_hw.emulator.wires.server import EmulatorServer
    from lumion_hw.links.address import open_link

    clock_for(transport)  # rejects an unknown transport
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lumion-wire-")))
        server = stack.enter_context(EmulatorServer(clock))
        served = _DeviceWithActions(device, server.wake)
        serve = {
            "tcp": server.add_tcp,
            "pty": lambda served: server.add_pty(served, directory / device.name),
            "hislip": server.add_hislip,
        }
        address = serve[transport](served)
        stack.enter_context(server.in_thread())
        yield WireUnderTest(
            lambda: open_link(address, clock), clock, run_action=served.run_action, pull=stack.close, address=address
        )
