"""Emulated modules of each class on a bus that stops acknowledging at a chosen access."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.transponders.cmis import CmisTransponder
from lumion_hw.drivers.transponders.qsfp import QsfpTransponder
from lumion_hw.drivers.transponders.sfp import SfpTransponder
from lumion_hw.emulator.transponders.qsfp.profiles import QsfpProfile
from lumion_hw.emulator.transponders.sfp import SfpModule
from lumion_hw.quantities import w_from_dbm
from lumion_hw.sessions.module.adapter import AdapterRegisters
from lumion_hw.sessions.module.registers import NotRespondingError
from tests.emulator.transponders.cmis_testbench import Host as CmisHost
from tests.emulator.transponders.qsfp_testbench import Host as QsfpHost


@dataclass
class Bus:
    """I2C bus of one module.

    Attributes:
        fails_at: Number of the access from which the module does not acknowledge; never if ``None``.
        for_s: Time in s for which it does not acknowledge.
        ignores_pages: Whether the module ignores the page select.
    """

    clock: VirtualClock
    module: Any
    fails_at: int | None = None
    for_s: float = 0.0
    ignores_pages: bool = False
    stretch_s: float = 0.0
    n_accesses: int = 0
    name: str = "bus"
    _until_s: float = field(default=-1.0, init=False)

    def open(self) -> None: ...

    def close(self) -> None: ...

    def transaction(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def _access(self) -> None:
        self.clock.sleep(self.stretch_s)
        if self.n_accesses == self.fails_at:
            self._until_s = self.clock.now() + self.for_s
        self.n_accesses += 1
        if self.clock.now() < self._until_s:
            raise NotRespondingError("not acknowledged")

    def _exchange(self, device: int, offset: int, data: bytes, length: int) -> bytes:
        self._access()
        now = self.clock.now()
        good = self.module.i2c_start(device, False, now)
        good = good and all(self.module.i2c_write(value) for value in (offset, *data))
        received = b""
        if good and length:
            good = self.module.i2c_start(device, True, now)
            received = bytes(self.module.i2c_read() for _ in range(length)) if good else b""
        self.module.i2c_stop(now)
        if not good:
            raise NotRespondingError("not acknowledged")
        return received


class QsfpBus(Bus):
    def read(self, offset: int, length: int) -> bytes:
        return self._exchange(0x50, offset, b"", length)

    def write(self, offset: int, data: bytes) -> None:
        if offset == 127 and self.ignores_pages:
            return
        self._exchange(0x50, offset, data, 0)


class SfpBus(Bus):
    def read(self, device: int, offset: int, length: int) -> bytes:
        return self._exchange(device, offset, b"", length)

    def write(self, device: int, offset: int, data: bytes) -> None:
        self._exchange(device, offset, data, 0)


class CmisBus(Bus):
    def read(self, offset: int, length: int) -> bytes:
        self._access()
        data: bytes = self.module.read(offset, length)
        return data

    def write(self, offset: int, data: bytes) -> None:
        self._access()
        if offset in (126, 127) and self.ignores_pages:
            return
        self.module.write(offset, data)


@dataclass
class Bench:
    """A module, its bus and driver, and what it emits."""

    bus: Bus
    driver: Any
    lit: Callable[[], list[int]]

    def wait(self, seconds: float) -> None:
        self.bus.clock.sleep(seconds)
        self.bus.module.advance()

    @contextlib.contextmanager
    def failing(self, access: int, for_s: float) -> Iterator[None]:
        """Let the bus fail at this access from now on; count accesses from 0."""
        self.bus.n_accesses, self.bus.fails_at, self.bus.for_s = 0, access, for_s
        try:
            yield
        finally:
            self.bus.fails_at, self.bus._until_s = None, -1.0


def qsfp(profile: str | QsfpProfile = "100g-psm4", **options: Any) -> Bench:
    host = QsfpHost(profile)
    host.sleep(3.0)
    bus = QsfpBus(host.clock, host.module)
    return Bench(bus, QsfpTransponder(bus, host.clock, device="q1", **options), host.lit)  # type: ignore[arg-type]


def sfp() -> Bench:
    clock, launched = VirtualClock(100.0), [0.0]
    module = SfpModule(
        "s1",
        clock,
        np.random.default_rng(1),
        emit_w=lambda power_w: launched.__setitem__(0, power_w),
        rx_power_w=lambda: w_from_dbm(-10.0),
        serial="ER000001",
        warm=True,
    )
    clock.sleep(3.0)
    bus = SfpBus(clock, module)
    registers = AdapterRegisters(bus, clock, device="s1")  # type: ignore[arg-type]
    return Bench(bus, SfpTransponder(registers, clock, device="s1"), lambda: [1] if launched[0] > 1e-6 else [])


def cmis(profile: str = "400g-dr4") -> Bench:
    host = CmisHost(profile, low_power_pin=False)
    host.wait(30.0)
    bus = CmisBus(host.clock, host.module)

    def lit() -> list[int]:
        host.module.advance()
        latest = {light.media_lane: light.enabled for light in host.sent}
        return sorted(lane for lane, enabled in latest.items() if enabled)

    return Bench(bus, CmisTransponder(bus, host.clock, device="c1"), lit)
