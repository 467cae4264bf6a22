"""A contract on an emulated device: in memory on virtual time, and what wires do on the wire the device really has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from lumion_hw.clock import Clock, Deadline
from lumion_hw.testing.contracts.common import fail_without_fixture
from lumion_hw.testing.wires import WireUnderTest, clock_for, wired

_BUSY_MACHINE_S = 60.0


class WireFixtures:
    """Mix-in, in front of a contract: gives it clock, wire, plug and disturbances. It asks for ``device``.

    Every promise is proven in memory. What only a wire can break (the plug pulled, garbage, late replies, single bytes,
    several threads) is proven on :attr:`wires` too: there time is the wall clock's, and each silence has to be waited
    for.

    Attributes:
        wires: The wires that the device has, of :data:`~lumion_hw.testing.wires.TRANSPORTS`.
    """

    wires: ClassVar[tuple[str, ...]] = ("tcp",)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run tests in memory, on the wires, or both: as they are marked."""
        super().pytest_generate_tests(metafunc)  # type: ignore[misc]
        if "transport" in metafunc.fixturenames:
            places = getattr(metafunc.function, "transports", ("memory",))
            metafunc.parametrize(
                "transport", [wire for place in places for wire in (self.wires if place == "wires" else (place,))]
            )

    @pytest.fixture
    def clock(self, transport: str) -> Clock:
        """The clock of device and driver."""
        return clock_for(transport)

    @pytest.fixture
    def slack_s(self, transport: str) -> float:
        """None in memory, where time passes only when somebody waits; on a wire a limit only ends a hang."""
        return 1e-6 if transport == "memory" else _BUSY_MACHINE_S

    @pytest.fixture
    def device(self) -> Any:
        """The emulated device, made with the fixture ``clock``."""
        fail_without_fixture("device", "the emulated device of the driver, on the fixture 'clock'")

    @pytest.fixture
    def wire(self, device: Any, transport: str, clock: Clock) -> Iterator[WireUnderTest]:
        """The way to the device: ``wire.link()`` is what the driver is given."""
        with wired(device, transport, clock) as wire:
            yield wire

    @pytest.fixture
    def second_session(self, device: Any, wire: WireUnderTest) -> Callable[..., None]:
        """Sends lines to the device over a connection of their own, as another program does."""

        def send(*lines: bytes) -> None:
            def talk() -> None:
                host = device.connect()
                for line in lines:
                    host.receive(line)
                host.close()

            wire.do(talk)

        return send

    @pytest.fixture
    def leave(self, wire: WireUnderTest, clock: Clock) -> Callable[[bytes], None]:
        """Sends bytes to the device over a link of its own, and closes that."""

        def send(left: bytes) -> None:
            link = wire.link()
            link.open(Deadline(clock.now() + _BUSY_MACHINE_S))
            link.write(left, Deadline(clock.now() + _BUSY_MACHINE_S))
            link.close()

        return send

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
