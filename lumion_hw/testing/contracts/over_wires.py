"""A contract on an emulated device: in memory on virtual time, and on the wall clock over TCP and a pty."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lumion_hw.clock import Clock
from lumion_hw.testing.contracts.common import not_given
from lumion_hw.testing.wires import TRANSPORTS, WireUnderTest, clock_for, wired


class OverEveryWire:
    """Mix-in, in front of a contract: gives it clock, wire, plug and disturbances. It asks for ``device``."""

    @pytest.fixture(params=TRANSPORTS)
    def transport(self, request: pytest.FixtureRequest) -> str:
        """``memory``, ``tcp`` or ``pty``."""
        return str(request.param)

    @pytest.fixture
    def clock(self, transport: str) -> Clock:
        """The clock of device and driver."""
        return clock_for(transport)

    @pytest.fixture
    def device(self) -> Any:
        """The emulated device, made with the fixture ``clock``."""
        not_given("device", "the emulated device of the driver, on the fixture 'clock'")

    @pytest.fixture
    def wire(self, device: Any, transport: str, clock: Clock) -> Iterator[WireUnderTest]:
        """The way to the device: ``wire.link()`` is what the driver is given."""
        with wired(device, transport, clock) as wire:
            yield wire

    @pytest.fixture
    def unplug(self, wire: WireUnderTest) -> Callable[[], None]:
        """Takes the device off its wire."""
        return wire.unplug

    @pytest.fixture
    def disturb(self, wire: WireUnderTest) -> Callable[[bytes], None]:
        """Lets bytes that no device sent arrive in front of the next reply."""
        return wire.disturb

    @pytest.fixture
    def hold_replies(self, wire: WireUnderTest) -> Callable[[bool], None]:
        """Holds back all replies, and lets them arrive late."""
        return wire.hold

    @pytest.fixture
    def drip(self, wire: WireUnderTest) -> Callable[[], None]:
        """Lets replies arrive byte by byte."""
        return wire.drip
