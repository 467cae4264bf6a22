"""The in-memory link: waiting is moving the clock from event to event."""

from __future__ import annotations

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.errors import ConnectError, LinkLost
from lumion_hw.links import MemoryLink


class Device:
    """Sends its bytes at their times."""

    def __init__(self, clock: VirtualClock, *sent: tuple[float, bytes]) -> None:
        self._clock = clock
        self._ahead = list(sent)
        self.heard = b""
        self.connections = 0

    def connect(self) -> Device:
        self.connections += 1
        return self

    def receive(self, data: bytes) -> None:
        self.heard += data

    def transmit(self) -> bytes:
        data = b""
        while self._ahead and self._ahead[0][0] <= self._clock.now():
            data += self._ahead.pop(0)[1]
        return data

    def next_event(self) -> float | None:
        return self._ahead[0][0] if self._ahead else None

    def close(self) -> None:
        self.connections -= 1


def test_reading_moves_the_clock_to_the_next_event() -> None:
    clock = VirtualClock()
    link = MemoryLink(Device(clock, (0.25, b"a"), (0.5, b"b")).connect, clock, "device")
    link.open(1.0)
    assert link.read(1.0) == b"a"
    assert clock.now() == 0.25
    assert link.read(0.4) == b""
    assert clock.now() == 0.4
    assert link.read(1.0) == b"b"


def test_a_silent_device_takes_until_the_deadline() -> None:
    clock = VirtualClock()
    link = MemoryLink(Device(clock).connect, clock, "device")
    link.open(1.0)
    assert link.read(3.0) == b""
    assert clock.now() == 3.0


def test_draining_waits_for_silence() -> None:
    clock = VirtualClock()
    link = MemoryLink(Device(clock, (0.0, b"12"), (0.1, b"3"), (0.5, b"4")).connect, clock, "device")
    link.open(1.0)
    assert link.drain(0.2, 10.0) == 3
    assert clock.now() == pytest.approx(0.3)


def test_writing_takes_no_time_and_closing_disconnects_once() -> None:
    clock = VirtualClock()
    device = Device(clock)
    link = MemoryLink(device.connect, clock, "device")
    link.open(1.0)
    link.open(1.0)
    link.write(b"xyz", 1.0)
    assert (device.heard, device.connections, clock.now()) == (b"xyz", 1, 0.0)
    link.close()
    link.close()
    assert device.connections == 0
    for call in (lambda: link.read(1.0), lambda: link.write(b"x", 1.0)):
        with pytest.raises(LinkLost, match="closed"):
            call()


def test_a_device_that_refuses_is_a_connect_error() -> None:
    clock = VirtualClock()

    def refuse() -> Device:
        raise ConnectError("unplugged", address="device")

    with pytest.raises(ConnectError):
        MemoryLink(refuse, clock, "device").open(1.0)
