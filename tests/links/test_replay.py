"""Replayed conversations."""

from __future__ import annotations

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.errors import LinkLost
from lumion_hw.links import RecordedExchange, ReplayPeer, replay_link


def test_the_conversation_is_given_in_order_and_at_its_times() -> None:
    clock = VirtualClock()
    peer = ReplayPeer(
        [RecordedExchange(b"A?", b"1"), RecordedExchange(b"B?", b"2", delay_s=0.5), RecordedExchange(b"C")], clock
    )
    link = replay_link(peer, clock)
    link.open(1.0)
    link.write(b"A?", 1.0)
    assert link.read(1.0) == b"1"
    link.write(b"B", 1.0)
    link.write(b"?C", 1.0)
    assert link.read(0.4) == b""
    assert link.read(1.0) == b"2"
    assert clock.now() == 0.5
    assert peer.remaining == ()


@pytest.mark.parametrize("sent", [b"B?", b"A!", b"A?B"])
def test_another_conversation_is_refused(sent: bytes) -> None:
    clock = VirtualClock()
    link = replay_link(ReplayPeer([RecordedExchange(b"A?", b"1")], clock), clock)
    link.open(1.0)
    with pytest.raises(LinkLost, match="the recording has"):
        link.write(sent, 1.0)


def test_draining_ends_with_silence_not_with_the_deadline() -> None:
    clock = VirtualClock()
    link = replay_link(ReplayPeer([RecordedExchange(b"A?", b"12345", delay_s=0.1)], clock), clock)
    link.open(1.0)
    link.write(b"A?", 1.0)
    assert link.drain(0.2, 10.0) == 5
    assert clock.now() == pytest.approx(0.3)
