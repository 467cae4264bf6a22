"""Fixtures of a contract for a driver at the end of a wire in memory, with a peer that a test wrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.links import MemoryLink
from lumion_hw.testing.wires import DisturbedLink


class OnAWire:
    """Mix-in, in front of a contract: it asks for ``peer``, and gives ``link`` and what disturbs it."""

    @pytest.fixture
    def clock(self) -> VirtualClock:
        return VirtualClock()

    @pytest.fixture
    def link(self, peer: Any, clock: VirtualClock) -> DisturbedLink:
        return DisturbedLink(MemoryLink(lambda: peer, clock, "peer"), clock)

    @pytest.fixture
    def unplug(self, link: DisturbedLink) -> Callable[[], None]:
        return link.cut

    @pytest.fixture
    def disturb(self, link: DisturbedLink) -> Callable[[bytes], None]:
        return link.disturb

    @pytest.fixture
    def hold_replies(self, link: DisturbedLink) -> Callable[[bool], None]:
        return link.hold

    @pytest.fixture
    def drip(self, link: DisturbedLink) -> Callable[[], None]:
        return link.drip
