"""Fixtures that run a contract on an emulated device, in memory or on real wires."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from lumion_hw.clock import Clock, Deadline
from lumion_hw.testing.contracts.common import fail_without_fixture
from lumion_hw.testing.wires import WireUnderTest, clock_for, wired

_BUSY_MACHINE_S = 60.0


class WireFixtures:
    """Mix-in with the fixtures for clock, wire and disturbances; list it before the contract among the base classes.

    The test class must define the fixture ``device``. Tests run in memory, on virtual time. Tests that depend on the
    wire run again on the real :attr:`wires`; tests with several threads run only there.

    Attributes:
        wires: Real wires of the device, from :data:`~lumion_hw.testing.wires.TRANSPORTS`.
    """

    wires: ClassVar[tuple[str, ...]] = ("tcp",)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run each test in memory, on real wires, or both, according to its mark."""
        super().pytest_generate_tests(metafunc)  # type: ignore[misc]
        if "transport" in metafunc.fixturenames:
            transports = getattr(metafunc.function, "transports", ("memory",))
            metafunc.parametrize(
                "transport",
                [wire for transport in transports for wire in (self.wires if transport == "wires" else (transport,))],
            )

    @pytest.fixture
    def clock(self, transport: str) -> Clock:
        """Clock of device and driver."""
        return clock_for(transport)

    @pytest.fixture
    def slack_s(self, transport: str) -> float:
        """Time in seconds that a slow computer may add to a deadline."""
        return 1e-6 if transport == "memory" else _BUSY_MACHINE_S

    @pytest.fixture
    def device(self) -> Any:
        """The emulated device, which must use the fixture ``clock``."""
        fail_without_fixture("device", "the emulated device of the driver, on the fixture 'clock'")

    @pytest.fixture
    def wire(self, device: Any, transport: str, clock: Clock) -> Iterator[WireUnderTest]:
        """Wire to the device; pass ``wire.link()`` to the driver."""
        with wired(device, transport, clock) as wire:
            yield wire

    @pytest.fixture
    def second_session(self, device: Any, wire: WireUnderTest) -> Callable[..., None]:
        """A function that sends lines to the device over a separate connection."""

        def send(*lines: bytes) -> None:
            def talk() -> None:
                host = device.connect()
                for line in lines:
                    host.receive(line)
                host.close()

            wire.run_action(talk)

        return send

    @pytest.fixture
    def send_stray_bytes(self, wire: WireUnderTest, clock: Clock) -> Callable[[bytes], None]:
        """A function that sends bytes to the device over a separate link."""

        def send(stray_bytes: bytes) -> None:
            link = wire.link()
            link.open(Deadline(clock.now() + _BUSY_MACHINE_S))
            link.write(stray_bytes, Deadline(clock.now() + _BUSY_MACHINE_S))
            link.close()

        return send

    @pytest.fixture
    def unplug(self, wire: WireUnderTest) -> Callable[[], None]:
        """A function that disconnects the device from its wire."""
        return wire.unplug

    @pytest.fixture
    def disturb(self, wire: WireUnderTest) -> Callable[[bytes], None]:
        """A function that inserts given bytes before the next reply."""
        return wire.disturb

    @pytest.fixture
    def hold_replies(self, wire: WireUnderTest) -> Callable[[bool], None]:
        """A function that holds back all replies (``True``) and then delivers them late (``False``)."""
        return wire.hold

    @pytest.fixture
    def drip(self, wire: WireUnderTest) -> Callable[[], None]:
        """A function that makes all later replies arrive byte by byte."""
        return wire.drip
