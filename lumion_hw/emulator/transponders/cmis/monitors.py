"""Module and lane monitors with their alarms and warnings (CMIS 8.2.4, 8.9.5; thresholds of page 02h)."""

from __future__ import annotations

from collections.abc import Mapping

from lumion_hw.emulator.transponders.cmis.core import Core
from lumion_hw.emulator.transponders.cmis.ends import Receivers, Transmitters
from lumion_hw.emulator.transponders.cmis.image import threshold_value
from lumion_hw.standards.cmis.codec import optical_power_count
from lumion_hw.standards.cmis.fields import LIMITS

_RAMP_S = 20.0
"""Time constant with which the case warms up and cools down."""


class ModuleMonitors:
    """What the module measures about itself, sampled together.

    Args:
        core: The module.
        transmitters: What it sends.
        receivers: What it gets.
    """

    def __init__(self, core: Core, transmitters: Transmitters, receivers: Receivers) -> None:
        self._core, self._transmitters, self._receivers = core, transmitters, receivers
        self._case_c, self._sampled_s = core.profile.idle_temperature_c, core.now
        self.module: dict[str, float] = {}
        self.lanes: dict[str, dict[int, float]] = {}
        self._limits = {
            monitor: tuple(threshold_value(core.memory, monitor, limit) for limit in limits)
            for monitor, limits in core.profile.thresholds.items()
        }

    @property
    def laser_temperature_c(self) -> float:
        """Temperature of the laser chip, as aux 2 shows it."""
        return self.module.get("aux2", 0.0)

    @property
    def tec_percent(self) -> float:
        """TEC current in percent of its maximum, as aux 1 shows it."""
        return self.module.get("aux1", 0.0)

    def sample(self, powered: bool) -> None:
        """Measure everything; ``powered`` is ModuleReady."""
        core = self._core
        profile = core.profile
        noise = core.rng.standard_normal(5)
        elapsed_s, self._sampled_s = core.now - self._sampled_s, core.now
        goal_c = profile.working_temperature_c if powered else profile.idle_temperature_c
        self._case_c += (goal_c - self._case_c) * min(elapsed_s / _RAMP_S, 1.0)
        hot_c = core.faults.get("temp_high", 0.0)
        self.module = {
            "temperature": self._case_c + hot_c + 0.05 * float(noise[0]),
            "supply": profile.supply_v + 0.001 * float(noise[1]),
            "aux1": profile.tec_percent + 0.2 * float(noise[2]) if powered else 0.0,
            "aux2": (profile.laser_temperature_c if powered else self._case_c) + 0.02 * float(noise[3]),
        }
        self._sample_lanes(float(noise[4]))
        self._hold_flags(powered)

    def _sample_lanes(self, noise: float) -> None:
        self.lanes = {"tx_power": {}, "tx_bias": {}, "rx_power": {}}
        for lane, state in self._receivers.lanes.items():
            light = self._transmitters.light(lane)
            self.lanes["tx_power"][lane] = light.power_dbm + 0.02 * noise
            self.lanes["tx_bias"][lane] = self._core.profile.bias_ma + 0.2 * noise if light.enabled else 0.0
            self.lanes["rx_power"][lane] = state.total_dbm

    def _hold_flags(self, powered: bool) -> None:
        for monitor, value in self.module.items():
            works = powered or monitor in ("temperature", "supply")
            self._judge(monitor, value, None, works)
        for monitor, lanes in self.lanes.items():
            for lane, value in lanes.items():
                sends = self._transmitters.light(lane).enabled
                works = powered and (self._receivers.works(lane) if monitor == "rx_power" else sends)
                self._judge(monitor, value, lane, works)

    def _judge(self, monitor: str, value: float, lane: int | None, works: bool) -> None:
        limits = self._limits.get(monitor)
        if limits is None:
            return
        measured = threshold_value(self._core.memory, monitor, value)
        high_alarm, low_alarm, high_warning, low_warning = limits
        beyond = (measured > high_alarm, measured < low_alarm, measured > high_warning, measured < low_warning)
        for limit, active in zip(LIMITS, beyond, strict=True):
            self._core.flags.hold(f"{monitor}_{limit}_flag", works and active, lane)

    def put(self) -> None:
        """Write the monitors to the lower memory and to page 11h."""
        memory = self._core.memory
        for monitor, value in self.module.items():
            if memory.count(f"{monitor}_monitor_supported"):
                memory.put_limited(monitor, threshold_value(memory, monitor, value))
        for lane, power_dbm in self.lanes.get("tx_power", {}).items():
            memory.put_limited("tx_power", _milliwatts(power_dbm), lane)
        for lane, bias_ma in self.lanes.get("tx_bias", {}).items():
            memory.put_limited("tx_bias", threshold_value(memory, "tx_bias", bias_ma), lane)
        for lane, power_dbm in self.lanes.get("rx_power", {}).items():
            memory.put_limited("rx_power", _milliwatts(power_dbm), lane)

    def current(self, lane: int) -> Mapping[str, float]:
        """Return the lane monitors of one lane, in dBm and mA."""
        return {name: lanes[lane] for name, lanes in self.lanes.items() if lane in lanes}


def _milliwatts(power_dbm: float) -> float:
    return optical_power_count(power_dbm) * 1e-4
