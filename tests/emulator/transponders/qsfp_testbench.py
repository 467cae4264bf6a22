"""A host for emulated QSFP modules that speaks bytes only: addresses are those of SFF-8636, on a virtual clock."""

from __future__ import annotations

import math

import numpy as np

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.transponders.qsfp import QsfpModule, QsfpProfile, find_profile

LANES = (1, 2, 3, 4)
FULL_LIGHT_W = 0.3e-3


class NotAcknowledgedError(Exception):
    """The module did not acknowledge."""


class Light:
    """What the lanes of one module sent, and what they receive."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.emitted: list[tuple[float, int, float]] = []
        self.sent = dict.fromkeys(LANES, 0.0)
        self.received = dict.fromkeys(LANES, FULL_LIGHT_W)

    def emit(self, lane: int, power_w: float) -> None:
        self.emitted.append((self._clock.now(), lane, power_w))
        self.sent[lane] = power_w

    def received_w(self, lane: int) -> float:
        return self.received[lane]


class Host:
    """One module on a bench, and a host with raw access to its bus."""

    def __init__(
        self, profile: str | QsfpProfile = "100g-lr4", *, warm: bool = True, seed: int = 1, serial: str = "EMU0000001"
    ) -> None:
        self.clock = VirtualClock(100.0)
        self.light = Light(self.clock)
        self.profile = find_profile(profile) if isinstance(profile, str) else profile
        self.module = QsfpModule(
            "qsfp",
            self.clock,
            np.random.default_rng(seed),
            profile=self.profile,
            serial=serial,
            light=self.light,
            warm=warm,
        )

    def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)
        self.module.advance()

    def try_write(self, address: int, *data: int) -> bool:
        now = self.clock.now()
        good = self.module.i2c_start(0x50, False, now)
        good = good and all(self.module.i2c_write(value) for value in (address, *data))
        self.module.i2c_stop(now)
        return good

    def write(self, address: int, *data: int) -> None:
        """Write, and wait as long as the module may be busy."""
        assert self.try_write(address, *data)
        self.sleep(0.0401)

    def read(self, address: int, length: int = 1) -> bytes:
        now = self.clock.now()
        if not (self.module.i2c_start(0x50, False, now) and self.module.i2c_write(address)):
            raise NotAcknowledgedError
        assert self.module.i2c_start(0x50, True, now)
        data = bytes(self.module.i2c_read() for _ in range(length))
        self.module.i2c_stop(now)
        return data

    def byte(self, address: int) -> int:
        return self.read(address)[0]

    def word(self, address: int) -> int:
        return int.from_bytes(self.read(address, 2), "big")

    def page(self, number: int) -> bytes:
        self.write(127, number)
        return self.read(128, 128)

    def image(self) -> bytes:
        """Return the lower memory and the pages 00h to 03h, as the ioctl of Linux does."""
        return self.read(0, 128) + b"".join(self.page(number) for number in range(4))

    def acknowledges(self) -> bool:
        acknowledged = self.module.i2c_start(0x50, False, self.clock.now())
        self.module.i2c_stop(self.clock.now())
        return acknowledged

    def read_flags(self) -> bytes:
        """Return the bytes 3 to 14, which clears the flags."""
        return self.read(3, 12)

    def lit(self) -> list[int]:
        return [lane for lane in LANES if self.light.sent[lane] > 0.0]


def dbm(raw: int) -> float:
    return 10 * math.log10(raw * 1e-4)
