"""An emulated device at the end of a wire that a test can cut and disturb: in memory, over TCP, a pty or HiSLIP."""

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
from lumion_hw.links.draining import drain_by_reading

if TYPE_CHECKING:
    from lumion_hw.emulator.wires.device import EmulatedDevice

TRANSPORTS = ("memory", "tcp", "pty", "hislip")
"""The wires there are. A device in memory runs on virtual time and in one thread, the others on the wall clock."""
_SERVED_WITHIN_S = 120.0
"""Only ends a hang."""


def clock_for(transport: str) -> Clock:
    """Return a new clock for a device and its driver: virtual in memory, else the wall clock.

    Raises:
        ConfigError: There is no such transport.
    """
    if transport not in TRANSPORTS:
        raise ConfigError(f"no transport {transport!r}", hint=f"There are {', '.join(TRANSPORTS)}.")
    return VirtualClock() if transport == "memory" else SystemClock()


class DisturbedLink:
    """A link that a test can cut, hold up, slow down to single bytes, and into which it can put bytes of its own.

    Args:
        link: The link between driver and device.
        clock: Its clock.
    """

    def __init__(self, link: Link, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._at_next_reply = bytearray()
        self._arrived = bytearray()
        self._held = bytearray()
        self._holding = False
        self._dripping = False
        self._cut = False

    @property
    def name(self) -> str:
        """The address of the link inside."""
        return self._link.name

    def cut(self) -> None:
        """Pull the plug: everything fails from now on, and the device sees its host vanish without a word."""
        self._cut = True
        self._link.close()

    def disturb(self, garbage: bytes) -> None:
        """Let bytes arrive in front of the reply to the next write."""
        self._at_next_reply += garbage

    def hold(self, holding: bool) -> None:
        """Hold back everything that arrives (``True``), or let it all arrive now, late (``False``)."""
        self._holding = holding
        if not holding:
            self._arrived += self._held
            self._held.clear()

    def drip(self) -> None:
        """Let the driver have one byte at a time from now on."""
        self._dripping = True

    def open(self, deadline: Deadline) -> None:
        """Open the stream. Raises ``ConnectError`` once it was cut."""
        if self._cut:
            raise ConnectError("the plug is pulled", address=self.name, hint="This is what the test wanted.")
        self._link.open(deadline)

    def write(self, data: bytes, deadline: Deadline) -> None:
        """Write all of ``data``."""
        self._check_whole()
        self._link.write(data, deadline)
        self._arrived += self._at_next_reply
        self._at_next_reply.clear()

    def read(self, deadline: Deadline) -> bytes:
        """Return at least one byte, the disturbing ones first, or ``b""`` at the deadline."""
        self._check_whole()
        while self._holding and (data := self._link.read(deadline)):
            self._held += data
        if self._holding:
            return b""
        if not self._arrived:
            self._arrived += self._link.read(deadline)
        size = 1 if self._dripping else len(self._arrived)
        data = bytes(self._arrived[:size])
        del self._arrived[:size]
        return data

    def drain(self, quiet_s: float, deadline: Deadline) -> int:
        """Throw away input until nothing arrived for ``quiet_s`` seconds."""
        return drain_by_reading(self, self._clock, quiet_s, deadline)

    def close(self) -> None:
        """Close the stream; idempotent, never raises."""
        self._link.close()

    def _check_whole(self) -> None:
        if self._cut:
            raise LinkLost("the plug was pulled", address=self.name, hint="This is what the test wanted.")


class _OneDeviceWire:
    """A device that does what it is told from outside in the thread that serves it."""

    def __init__(self, device: EmulatedDevice, wake: Callable[[], None]) -> None:
        self._device = device
        self._wake = wake
        self._posted: deque[tuple[Callable[[], object], Future[None]]] = deque()

    @property
    def name(self) -> str:
        """Device name."""
        return self._device.name

    def connect(self) -> Peer:
        """Open one more connection."""
        return self._device.connect()

    def advance(self) -> None:
        """Do what was posted, then bring the device to the present time."""
        while self._posted:
            action, done = self._posted.popleft()
            try:
                action()
            except BaseException as failure:  # noqa: BLE001 - handed over to the thread that posted it
                done.set_exception(failure)
            else:
                done.set_result(None)
        self._device.advance()

    def next_due(self) -> float | None:
        """Return when there is something to do: at once if something was posted."""
        return float("-inf") if self._posted else self._device.next_due()

    def do(self, action: Callable[[], object]) -> None:
        """Post an action and wait until it is done. Raises what it raises."""
        done: Future[None] = Future()
        self._posted.append((action, done))
        self._wake()
        done.result(_SERVED_WITHIN_S)


def _do_here(action: Callable[[], object]) -> None:
    action()


class WireUnderTest:
    """The way to one emulated device.

    Args:
        make_link: Makes a link to the device.
        clock: The clock of device and links.
        do: Runs an action in the thread in which the device runs.
        pull: Takes the device off its wire for good; idempotent.
        address: Address to open the device by; ``None`` in memory.

    Attributes:
        address: Address to open the device by; ``None`` in memory.
    """

    def __init__(
        self,
        make_link: Callable[[], Link],
        clock: Clock,
        *,
        do: Callable[[Callable[[], object]], None] = _do_here,
        pull: Callable[[], None] = lambda: None,
        address: str | None = None,
    ) -> None:
        self._make_link = make_link
        self._clock = clock
        self._do = do
        self._pull = pull
        self._links: list[DisturbedLink] = []
        self.address = address

    def link(self) -> DisturbedLink:
        """Return a new link to the device, not yet open."""
        link = DisturbedLink(self._make_link(), self._clock)
        self._links.append(link)
        return link

    def do(self, action: Callable[[], object]) -> None:
        """Do something to the emulated device itself (a fault, a look inside) in the thread that serves it.

        Raises what the action raises.
        """
        self._do(action)

    def disturb(self, garbage: bytes) -> None:
        """Let bytes arrive in front of the next reply, on every link."""
        for link in self._links:
            link.disturb(garbage)

    def hold(self, holding: bool) -> None:
        """Hold back all replies (``True``), or let them arrive now, late (``False``), on every link."""
        for link in self._links:
            link.hold(holding)

    def drip(self) -> None:
        """Let replies arrive byte by byte from now on, on every link."""
        for link in self._links:
            link.drip()

    def unplug(self) -> None:
        """Pull the plug for good: a TCP peer closes, a serial adapter vanishes, a link in memory is cut."""
        if self.address is None:
            for link in self._links:
                link.cut()
        self._pull()


@contextlib.contextmanager
def wired(device: EmulatedDevice, transport: str, clock: Clock) -> Iterator[WireUnderTest]:
    """Put an emulated device at the end of a wire for the length of a block.

    Args:
        device: The device.
        transport: ``memory``, ``tcp`` (loopback), ``pty`` or ``hislip`` (of instruments that exchange messages).
        clock: The clock of the device, from :func:`clock_for`.

    Raises:
        ConfigError: There is no such transport, or the device does not go with it.
        ConnectError: No port or pseudo-terminal is to be had.
    """
    if transport == "memory":
        from lumion_hw.links.memory import MemoryLink

        yield WireUnderTest(lambda: MemoryLink(device.connect, clock, f"emulated {device.name}"), clock)
        return
    from lumion_hw.emulator.wires.server import EmulatorServer
    from lumion_hw.links.address import open_link

    clock_for(transport)  # refuses what is no transport
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lumion-wire-")))
        server = stack.enter_context(EmulatorServer(clock))
        served = _OneDeviceWire(device, server.wake)
        serve = {
            "tcp": server.add_tcp,
            "pty": lambda served: server.add_pty(served, directory / device.name),
            "hislip": server.add_hislip,
        }
        address = serve[transport](served)
        stack.enter_context(server.in_thread())
        yield WireUnderTest(lambda: open_link(address, clock), clock, do=served.do, pull=stack.close, address=address)
