"""Minimal drivers without a device that pass every contract; tests break one promise at a time."""

import zlib
from dataclasses import replace

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock, deadline_after
from lumion_hw.errors import (
    BadValueError,
    ConfigError,
    DeviceError,
    DeviceTimeoutError,
    LimitError,
    LinkLost,
    LinkTimeout,
    NotSupportedError,
    SafetyError,
)
from lumion_hw.interfaces import (
    ActuatorInfo,
    ControllerInfo,
    Fault,
    Generation,
    LaserCapabilities,
    LaserRanges,
    LaserState,
    LaserSweep,
    MeshStatesInfo,
    MeterLimits,
    MeterSettings,
    MonitorReading,
    Monitors,
    PolarimeterLimits,
    PolarimeterSettings,
    PolarizationReading,
    PowerReading,
    RangeState,
    SignalStatus,
    Submission,
    SweepLog,
    SweepPlan,
    SweepResult,
    TelemetrySample,
    TransponderIdentity,
)
from lumion_hw.links.owner import OwnerProcess

WHERE = {"device": "fake", "address": "fake://0"}


def limit(asked: float, broken: float, unit: str, what: str = "value") -> LimitError:
    return LimitError(what, requested=asked, limit=broken, unit=unit, **WHERE)


class Fake:
    """A driver that can be closed and unplugged."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.is_open = True
        self.garbage = b""
        self.silent = False
        self.owner = OwnerProcess()
        self.owner.claim(WHERE["address"])

    def need_link(self) -> None:
        self.owner.check(WHERE["address"])
        self.garbage = b""
        if not self.is_open:
            raise LinkLost("the link is closed", **WHERE)
        if self.silent:
            self.clock.sleep(1.0)
            raise LinkTimeout("no answer", **WHERE)

    def unplug(self) -> None:
        self.is_open = False

    def disturb(self, garbage: bytes) -> None:
        self.garbage = garbage

    def hold_replies(self, holding: bool) -> None:
        self.silent = holding

    def close(self) -> None:
        self.is_open = False


class FakeController(Fake):
    """Three heaters, two monitors; heater 2 makes monitor 0 brighter, and nothing takes time."""

    info = ControllerInfo("fake", "F1", "1", 3, 2, 10.0, 0.01, True, True, True, True, True, monitor_full_scale_ma=1.0)

    def __init__(self) -> None:
        super().__init__()
        self.driven_ma = np.zeros(3)
        self.carried: list = []
        self.light_ma = np.array([0.1, 0.2])
        self.latched: list[Fault] = []
        self.cause = False
        self.generation = 0
        self.n_faults = 0
        self.limits = None

    def configure(self, limits) -> None:
        self.need_link()
        for value in limits.heater_max_ma:
            if not 0.0 <= value <= self.info.current_full_scale_ma:
                raise limit(value, self.info.current_full_scale_ma, "mA")
        self.limits = limits

    def check(self, currents_ma) -> None:
        try:
            plain = np.asarray(currents_ma).dtype.kind == "f" and not np.ma.is_masked(currents_ma)
        except ValueError:
            plain = False
        if not plain or currents_ma.shape != (3,):
            raise ConfigError("not three numbers", **WHERE)
        for channel, value in enumerate(currents_ma):
            if not 0.0 <= value <= self.limits.heater_max_ma[channel]:
                raise limit(value, self.limits.heater_max_ma[channel], "mA", f"channel {channel}")
        power_mw = float(np.sum(self.limits.heater_ohm * currents_ma**2)) * 1e-3
        if power_mw > self.limits.total_power_mw:
            raise limit(power_mw, self.limits.total_power_mw, "mW", "power, nothing was sent")

    def drive(self, currents_ma) -> None:
        self.driven_ma = np.round(currents_ma, 2)
        self.carried.append(self.driven_ma)

    def program(self, currents_ma) -> Generation:
        self.need_link()
        if self.limits is not None:
            self.check(currents_ma)
        if self.latched:
            raise SafetyError("latched", **WHERE)
        self.drive(currents_ma)
        self.generation += 1
        return Generation(self.generation, zlib.crc32(self.driven_ma.tobytes()), self.clock.now())

    def read_back(self):
        self.need_link()
        return self.driven_ma.copy()

    def read_monitors(self, n_avg: int = 1) -> MonitorReading:
        self.need_link()
        if n_avg < 1:
            raise limit(n_avg, 1, "scans")
        seen_ma = np.add(self.light_ma, [0.01 * self.driven_ma[2], 0.0])
        saturated = seen_ma > 1.0
        values = np.where(saturated, np.nan, seen_ma)
        return MonitorReading(values, saturated, self.generation, self.clock.now())

    def chosen(self, monitors) -> tuple[int, ...]:
        wanted = tuple(range(2)) if monitors is None else tuple(sorted(set(monitors)))
        if not set(wanted) <= {0, 1}:
            raise ConfigError("no such monitor", **WHERE)
        return wanted

    def sweep(self, plan: SweepPlan) -> SweepResult:
        self.need_link()
        before_ma, monitors = self.driven_ma, self.chosen(plan.monitors)
        table, tables = np.array(before_ma if plan.start_ma is None else plan.start_ma), []
        if not plan.points or not {heater for point in plan.points for heater in point} <= {0, 1, 2}:
            raise ConfigError("no such point", **WHERE)
        for point in plan.points:
            table[list(point)] = list(point.values())
            self.check(table)
            tables.append(table.copy())
        rows = []
        for each in tables:
            self.driven_ma = each
            rows.append(self.read_monitors(plan.n_avg))
        self.driven_ma = tables[-1] if plan.keep_last else before_ma
        self.generation += 1
        seen = np.array([row.photocurrent_ma for row in rows])[:, monitors]
        return SweepResult(seen, np.isnan(seen), monitors, self.generation, 0)

    def telemetry(self, period_s: float, *, monitors=None, n_avg: int = 1):
        self.need_link()
        if not period_s > 0.0:
            raise limit(period_s, 0.0, "s")
        chosen = list(self.chosen(monitors))
        while True:
            self.clock.sleep(period_s)
            reading = self.read_monitors(n_avg)
            part = replace(
                reading, photocurrent_ma=reading.photocurrent_ma[chosen], saturated=reading.saturated[chosen]
            )
            yield TelemetrySample(part, 0, 0, None)

    def faults(self) -> tuple[Fault, ...]:
        self.need_link()
        return tuple(self.latched)

    def trip(self, source: str, *, present: bool) -> None:
        self.n_faults += 1
        self.cause = present
        self.latched.append(Fault(self.n_faults, source, latched=True, present=present))
        self.driven_ma = np.zeros(3)

    def hold_fault(self, present: bool) -> None:
        if present:
            self.trip("EXTERNAL", present=True)
        self.cause = present

    def clear_fault(self, fault_id: int) -> None:
        self.need_link()
        if self.cause:
            raise SafetyError("the cause is present", **WHERE)
        if type(fault_id) is not int or not 1 <= fault_id <= self.n_faults:
            raise BadValueError("no such fault", **WHERE)
        self.latched = [fault for fault in self.latched if fault.fault_id != fault_id]

    def outputs_off(self) -> None:
        self.need_link()
        self.trip("ESTOP", present=False)

    def close(self) -> None:
        if self.is_open:
            self.driven_ma = np.zeros(3)
        super().close()


class FakeSources(FakeController):
    """Current sources and nothing more: neither atomic nor guarded, without monitors, sweeps or telemetry."""

    info = ControllerInfo("fake", "F3", "1", 3, 0, 10.0, 0.01, False, True, False, False, readback_tolerance_ma=0.05)

    def read_back(self):
        return np.add(super().read_back(), [0.02, -0.02, 0.03])

    def cannot(self, command: str) -> NotSupportedError:
        self.need_link()
        return NotSupportedError(f"{command}: these are current sources", command=command, **WHERE)

    def read_monitors(self, n_avg: int = 1) -> MonitorReading:
        raise self.cannot("read_monitors")

    def sweep(self, plan: SweepPlan) -> SweepResult:
        raise self.cannot("sweep")

    def telemetry(self, period_s: float, *, monitors=None, n_avg: int = 1):
        raise self.cannot("telemetry")


class FakeUnit(Fake):
    """A mesh of four cells that is controlled by states."""

    info = MeshStatesInfo(4)

    def __init__(self) -> None:
        super().__init__()
        self.cells: dict = {}

    def program_states(self, states) -> Submission:
        for puc, state in states.items():
            if type(puc) is not int or state not in ("bar", "cross"):
                raise ConfigError("no state", **WHERE)
            if not 0 <= puc < 4:
                raise limit(puc, 3, "")
        self.need_link()
        self.cells = dict(states)
        return Submission(str(sorted(states.items())), "", "", 0, self.clock.now(), self.clock.now())


class FakeMeter(Fake):
    """Two channels, noiseless."""

    channels = (1, 2)
    model, serial = "fake", "F2"
    largest_w = 1e-3
    ranges_dbm: tuple[float, float] | None = (-70.0, 10.0)

    def __init__(self) -> None:
        super().__init__()
        self.light_w = {1: 1e-5, 2: 1e-5}
        self.zero_fails = False
        self.nm = {1: 1550.0, 2: 1550.0}
        self.averaging = {1: 0.01, 2: 0.01}
        self.range_dbm: dict[int, float | None] = {1: None, 2: None}

    def setting(self, table, channel, value, low, high, unit) -> None:
        self.need_link()
        self.known(channel)
        if not low <= value <= high:
            raise limit(value, low if value < low else high, unit)
        table[channel] = value

    def known(self, channel) -> None:
        if channel not in self.channels:
            raise ConfigError(f"no channel {channel}", **WHERE)

    def set_wavelength_nm(self, channel, wavelength_nm) -> None:
        self.setting(self.nm, channel, wavelength_nm, 1250.0, 1650.0, "nm")

    def set_averaging_s(self, channel, averaging_s) -> None:
        self.setting(self.averaging, channel, averaging_s, 1e-6, 10.0, "s")

    def set_range_dbm(self, channel, range_dbm) -> None:
        if range_dbm is None or self.ranges_dbm is None:
            self.setting({}, channel, 0.0, 0.0, 0.0, "")
            if range_dbm is not None:
                raise NotSupportedError("it ranges by itself", command="set_range_dbm", **WHERE)
        else:
            self.setting({}, channel, range_dbm, *self.ranges_dbm, "dBm")
        self.range_dbm[channel] = range_dbm

    def settings(self, channel) -> MeterSettings:
        self.need_link()
        self.known(channel)
        low_dbm, high_dbm = self.ranges_dbm or (0.0, 1.0)
        only = low_dbm == high_dbm
        return MeterSettings(self.nm[channel], self.averaging[channel], low_dbm if only else self.range_dbm[channel])

    def limits(self, channel) -> MeterLimits:
        self.known(channel)
        return MeterLimits((1250.0, 1650.0), (1e-6, 10.0), self.ranges_dbm)

    def reading(self, channel) -> PowerReading:
        if self.light_w[channel] > self.largest_w:
            return PowerReading(channel, RangeState.OVER, self.clock.now())
        return PowerReading(channel, RangeState.OK, self.clock.now(), self.light_w[channel])

    def read(self, channel) -> PowerReading:
        self.need_link()
        self.known(channel)
        self.clock.sleep(self.averaging[channel])
        return self.reading(channel)

    def read_all(self) -> tuple[PowerReading, ...]:
        self.need_link()
        return tuple(self.reading(channel) for channel in self.channels)

    def zero(self) -> None:
        self.need_link()
        if any(self.light_w.values()) or self.zero_fails:
            raise DeviceError("no zero", code=-200, command="zero", **WHERE)

    def errors(self) -> tuple[tuple[int, str], ...]:
        self.need_link()
        return ()


class FakeLaser(Fake):
    """It settles in a second, sweeps, and logs what it sweeps."""

    model, serial = "fake", "F5"
    capabilities = LaserCapabilities(tunes_while_emitting=True, measures_power=True, sweep=True, wavelength_log=True)
    ranges = LaserRanges((190.0, 197.0), 1e-6, (0.0, 10.0), 0.01)

    def __init__(self) -> None:
        super().__init__()
        self.thz, self.dbm, self.on = 193.4, 6.0, False
        self.ready_at = 0.0

    @property
    def light(self) -> tuple[float, float] | None:
        return (self.thz, self.dbm) if self.on and self.clock.now() >= self.ready_at else None

    def set_frequency_thz(self, frequency_thz: float) -> None:
        self.need_link()
        self.check(frequency_thz, *self.ranges.frequency_thz, "THz")
        self.thz = frequency_thz

    def set_power_dbm(self, power_dbm: float) -> None:
        self.need_link()
        self.check(power_dbm, *self.ranges.power_dbm, "dBm")
        self.dbm = power_dbm

    def check(self, value: float, low: float, high: float, unit: str) -> None:
        if not low <= value <= high:
            raise limit(value, low if value < low else high, unit)

    def enable(self) -> None:
        self.need_link()
        self.on, self.ready_at = True, self.clock.now() + 1.0

    def disable(self) -> None:
        self.need_link()
        self.on = False

    def state(self) -> LaserState:
        self.need_link()
        light = self.light
        return LaserState(self.on, light is not None, self.thz, self.dbm, light and light[1], (), self.clock.now())

    def wait_ready(self, timeout_s: float) -> LaserState:
        if not self.state().emitting:
            raise DeviceError("off", code=0, command="wait_ready", **WHERE)
        self.clock.sleep(max(0.0, min(deadline_after(self.clock, timeout_s), self.ready_at) - self.clock.now()))
        if not self.state().ready:
            raise DeviceTimeoutError("not ready", code=0, command="wait_ready", **WHERE)
        return self.state()

    def sweep(self, plan: LaserSweep) -> SweepLog:
        self.need_link()
        if not 1523.0 < plan.start_nm < plan.stop_nm < 1577.0 or not plan.speed_nm_per_s > 0 or not plan.step_nm > 0:
            raise limit(plan.stop_nm, 1577.0, "nm")
        if not self.on:
            raise DeviceError("off", code=0, command="sweep", **WHERE)
        started_s = self.clock.now()
        self.clock.sleep(plan.duration_s)
        return SweepLog(self.logged(plan) if plan.log else None, started_s, self.clock.now())

    def logged(self, plan: LaserSweep) -> np.ndarray:
        return np.arange(plan.start_nm, plan.stop_nm + 0.5 * plan.step_nm, plan.step_nm)


class FakeModule(Fake):
    """A module that follows at once."""

    def __init__(self) -> None:
        super().__init__()
        self.on = False
        self.received_dbm: float | None = None

    @property
    def launched_w(self) -> float:
        return 1e-3 if self.on else 0.0

    def receive(self, power_dbm: float | None) -> None:
        self.received_dbm = power_dbm

    def identify(self) -> TransponderIdentity:
        self.need_link()
        return TransponderIdentity("FAKE", "F", "1", "F3", "250101", "10GBASE-ER", 1550.0)

    def can_switch(self) -> bool:
        return True

    def enable(self) -> None:
        self.need_link()
        self.on = True

    def disable(self) -> None:
        self.need_link()
        self.on = False

    def monitors(self) -> Monitors:
        self.need_link()
        dark = self.received_dbm is None or self.received_dbm < -34.0
        received = None if dark else self.received_dbm
        return Monitors(40.0, 3.3, 30.0, 0.5 if self.on else None, received, self.clock.now())

    def status(self) -> SignalStatus:
        self.need_link()
        los = self.received_dbm is None or self.received_dbm < -20.0
        return SignalStatus(los, False, not self.on, True, self.clock.now())


class FakeSqueezer(Fake):
    """Two drive voltages in steps of 1 mV."""

    actuators = (ActuatorInfo("drive voltage", "mV", -100.0, 100.0, 1.0, None, False),) * 2
    settle_s = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.settings = np.zeros(2)

    def set(self, settings) -> None:
        self.need_link()
        if settings.shape != (2,):
            raise ConfigError("shape", **WHERE)
        for value in settings:
            if not -100.0 <= value <= 100.0:
                raise limit(value, 100.0 if value > 0 else -100.0, "mV")
        self.settings = np.rint(settings)

    def read(self):
        self.need_link()
        return self.settings.copy()


class FakeBox(Fake):
    """It counts its steps."""

    settle_s = 0.05

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[float] = []

    def start(self) -> None:
        self.need_link()

    def improve(self, factor: float) -> None:
        if not 0.0 < factor <= 100.0:
            raise limit(factor, 100.0 if factor > 0.0 else 0.0, "")
        self.need_link()
        self.steps.append(factor)

    def stop(self) -> None:
        self.need_link()


class FakePolarimeter(Fake):
    """Noiseless, in steps of averaging of a factor of two."""

    def __init__(self) -> None:
        super().__init__()
        self.light = (1e-4, np.array([1.0, 0.0, 0.0]), 1.0)
        self.thz, self.averaging = 193.4, 1e-3

    def shine(self, power_w, state, dop) -> None:
        self.light = (power_w, np.array(state), dop)

    def read(self) -> PolarizationReading:
        self.need_link()
        power_w, state, dop = self.light
        if not 1e-6 <= power_w <= 1e-2:
            raise DeviceError("light outside the range", **WHERE)
        return PolarizationReading(power_w, state / np.linalg.norm(state), dop, self.clock.now())

    def set_frequency_thz(self, frequency_thz: float) -> float:
        self.need_link()
        if not 190.0 <= frequency_thz <= 197.0:
            raise limit(frequency_thz, 190.0, "THz")
        self.thz = round(frequency_thz, 2)
        return self.thz

    def set_averaging_s(self, averaging_s: float) -> float:
        self.need_link()
        if not 1e-8 <= averaging_s <= 1e-2:
            raise limit(averaging_s, 1e-2, "s")
        self.averaging = 1e-8 * 2.0 ** round(np.log2(averaging_s / 1e-8))
        return self.averaging

    def settings(self) -> PolarimeterSettings:
        self.need_link()
        return PolarimeterSettings(self.thz, self.averaging)

    def limits(self) -> PolarimeterLimits:
        return PolarimeterLimits((190.0, 197.0), (1e-8, 1e-2))


class AnyFake:
    """The fixtures that all fakes have in common."""

    make = None

    @pytest.fixture
    def driver(self):
        return type(self).make()

    @pytest.fixture
    def clock(self, driver):
        return driver.clock

    @pytest.fixture
    def unplug(self, driver):
        return driver.unplug

    @pytest.fixture
    def disturb(self, driver):
        return driver.disturb

    @pytest.fixture
    def hold_replies(self, driver):
        return driver.hold_replies

    @pytest.fixture
    def drip(self):
        return lambda: None
