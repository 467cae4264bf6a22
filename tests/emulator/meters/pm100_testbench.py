"""A PM100 console with a light source, shared by its tests."""

from __future__ import annotations

import numpy as np

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.meters.thorlabs_pm import ThorlabsPm100
from lumion_hw.emulator.meters.thorlabs_pm_sensor import S154C
from lumion_hw.emulator.optics.light import Light
from tests.emulator.scpi.scpi_testbench import Host


class Bench:
    """A console, a clock, a lamp and a host."""

    def __init__(self, light: Light | None = None, *, sensor=S154C, seed: int = 5, **options) -> None:
        self.clock = VirtualClock()
        self.light = light or Light(1e-4)
        self.meter = ThorlabsPm100(
            "pm0", self.clock, np.random.default_rng(seed), lambda: self.light, sensor=sensor, **options
        )
        self.host = Host(self.meter)

    def ask(self, line: str) -> str | None:
        """Send a query and advance the clock until the reply arrives."""
        reply = self.host.ask(line)
        while reply is None and (event := self.host.peer.next_event()) is not None:
            self.clock.sleep(max(event - self.clock.now(), 1e-6))
            reply = self.host.peer.transmit().decode().removesuffix("\n") or None
        return reply

    def power(self, line: str = "READ?") -> float:
        return float(self.ask(line))

    def shine(self, power_w: float, **more) -> None:
        """Change the light at the sensor."""
        self.light = Light(power_w, **more)
        self.meter.advance()
