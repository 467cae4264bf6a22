"""Link to an emulated device in the same process. Waiting advances a virtual clock."""

from __future__ import annotations

from collections.abc import Callable

from lumion_hw.clock import Clock, Deadline
from lumion_hw.errors import LinkLost
from lumion_hw.links.base import Peer
from lumion_hw.links.draining import DrainedByReading
from lumion_hw.links.owner import OwnerProcess


class MemoryLink(DrainedByReading):
    """A link to a :class:`~lumion_hw.links.base.Peer` in the same process.

    Args:
        connect: Opens a new connection to the device; raises ``ConnectError`` if the device refuses.
        clock: Clock shared with the device. On a virtual clock, waiting takes no real time.
        name: Name of the link in messages.
    """

    def __init__(self, connect: Callable[[], Peer], clock: Clock, name: str) -> None:
        self._connect = connect
        self._clock = clock
        self._name = name
        self._owner = OwnerProcess()
        self._peer: Peer | None = None

    @property
    def name(self) -> str:
        """Name of the link."""
        return self._name

    def open(self, deadline: Deadline) -> None:
        """Connect to the device."""
        del deadline
        self._owner.claim(self._name)
        if self._peer is None:
            self._peer = self._connect()

    def _open_peer(self) -> Peer:
        self._owner.check(self._name)
        if self._peer is None:
            raise LinkLost("the link is closed", address=self._name)
        return self._peer

    def write(self, data: bytes, deadline: Deadline) -> None:
        """Pass ``data`` to the device at the present time."""
        del deadline
        self._open_peer().receive(data)

    def read(self, deadline: Deadline) -> bytes:
        """Return data that the device has sent, or ``b""`` at the deadline."""
        while True:
            peer = self._open_peer()
            data = peer.transmit()
            if data:
                return data
            now_s = self._clock.now()
            if now_s >= deadline:
                return b""
            event = peer.next_event()
            wake = deadline if event is None else min(max(event, now_s), deadline)
            # An event that is due but yields no data would loop forever: advance by one microsecond.
            self._clock.sleep(max(wake - now_s, 1e-6))

    def close(self) -> None:
        """Disconnect from the device."""
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.close()
