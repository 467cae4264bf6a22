"""Minimal attenuator, switch, amplifier, spectrum analyser and temperature controller that pass their contracts."""

import numpy as np

from lumion_hw.clock import deadline_after
from lumion_hw.errors import BusyError, ConfigError, DeviceError, DeviceTimeoutError, NotSupportedError
from lumion_hw.interfaces import (
    AmplifierLimits,
    AmplifierMode,
    AmplifierSettings,
    AmplifierState,
    AttenuatorLimits,
    AttenuatorSettings,
    Spectrum,
    SpectrumLimits,
    SpectrumSettings,
    SwitchPorts,
    TemperatureLimits,
    TemperatureSettings,
    TemperatureState,
)
from tests.testing.contract_fakes import WHERE, Fake, limit


def check(value: float, low_high: tuple[float, float], unit: str) -> None:
    low, high = low_high
    if not low <= value <= high:
        raise limit(value, low if value < low else high, unit)


class FakeAttenuator(Fake):
    """Two channels with shutters; the light follows at once."""

    channels = (1, 2)
    model, serial = "fake", "F7"

    def __init__(self) -> None:
        super().__init__()
        self.kept = {channel: AttenuatorSettings(3.0, 1550.0, True) for channel in self.channels}

    def change(self, channel: int, **values: float) -> None:
        self.kept[channel] = AttenuatorSettings(**(vars(self.kept[channel]) | values))

    def known(self, channel: int) -> None:
        self.need_link()
        if channel not in self.channels:
            raise ConfigError(f"no channel {channel}", **WHERE)

    def measured_attenuation_db(self, channel: int) -> float | None:
        return self.kept[channel].attenuation_db if self.kept[channel].passing else None

    def set_attenuation_db(self, channel: int, attenuation_db: float) -> None:
        self.known(channel)
        check(attenuation_db, (0.0, 40.0), "dB")
        self.change(channel, attenuation_db=round(attenuation_db, 2))

    def set_wavelength_nm(self, channel: int, wavelength_nm: float) -> None:
        self.known(channel)
        check(wavelength_nm, (1260.0, 1640.0), "nm")
        self.change(channel, wavelength_nm=wavelength_nm)

    def enable(self, channel: int) -> None:
        self.known(channel)
        self.change(channel, passing=True)

    def disable(self, channel: int) -> None:
        self.known(channel)
        self.change(channel, passing=False)

    def settings(self, channel: int) -> AttenuatorSettings:
        self.known(channel)
        return self.kept[channel]

    def limits(self, channel: int) -> AttenuatorLimits:
        self.known(channel)
        return AttenuatorLimits((0.0, 40.0), 0.01, (1260.0, 1640.0), True)


class FakeBareAttenuator(FakeAttenuator):
    """No shutter, and made for one wavelength."""

    def set_wavelength_nm(self, channel: int, wavelength_nm: float) -> None:
        raise NotSupportedError("made for one wavelength", **WHERE)

    def disable(self, channel: int) -> None:
        raise NotSupportedError("no shutter", **WHERE)

    def limits(self, channel: int) -> AttenuatorLimits:
        self.known(channel)
        return AttenuatorLimits((0.0, 40.0), 0.01, None, False)


class FakeSwitch(Fake):
    """Four inputs, four outputs."""

    model, serial = "fake", "F8"
    ports = SwitchPorts((1, 2, 3, 4), (5, 6, 7, 8))

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[int, int] = {}

    def known(self, connections) -> None:
        self.need_link()
        outputs = list(connections.values())
        there = set(connections) <= set(self.ports.inputs) and set(outputs) <= set(self.ports.outputs)
        if not there or len(set(outputs)) < len(outputs):
            raise ConfigError(f"no such ports: {connections}", **WHERE)

    def connections(self) -> dict[int, int]:
        self.need_link()
        return dict(self.made)

    def connect(self, connections) -> None:
        self.known(connections)
        for entry, out in connections.items():
            if self.made.get(entry) != out and (entry in self.made or out in self.made.values()):
                raise BusyError(f"{entry} or {out} is in use", **WHERE)
        self.made |= connections

    def disconnect(self, inputs) -> None:
        self.need_link()
        if not set(inputs) <= set(self.ports.inputs):
            raise ConfigError(f"no such inputs: {inputs}", **WHERE)
        self.made = {entry: out for entry, out in self.made.items() if entry not in set(inputs)}

    def set_connections(self, connections) -> None:
        self.known(connections)
        self.made = dict(connections)


class FakeAmplifier(Fake):
    """It holds a current or a power, and is ready after a second."""

    model, serial = "fake", "F9"
    ranges = AmplifierLimits((0.0, 500.0), (0.0, 20.0), None)

    def __init__(self) -> None:
        super().__init__()
        self.mode, self.held = AmplifierMode.CURRENT, 100.0
        self.on, self.ready_at = False, 0.0

    def hold(self, mode: AmplifierMode, value: float, low_high: tuple[float, float], unit: str) -> None:
        self.need_link()
        check(value, low_high, unit)
        if self.on and mode is not self.mode:
            raise DeviceError("another mode while it emits", **WHERE)
        self.mode, self.held = mode, value

    def hold_current_ma(self, current_ma: float) -> None:
        self.hold(AmplifierMode.CURRENT, current_ma, (0.0, 500.0), "mA")

    def hold_power_dbm(self, power_dbm: float) -> None:
        self.hold(AmplifierMode.POWER, power_dbm, (0.0, 20.0), "dBm")

    def hold_gain_db(self, gain_db: float) -> None:
        raise NotSupportedError("it holds no gain", **WHERE)

    def emitted_dbm(self) -> float | None:
        lit = self.on and self.clock.now() >= self.ready_at
        return (self.held if self.mode is AmplifierMode.POWER else 0.04 * self.held) if lit else None

    def enable(self) -> None:
        self.need_link()
        self.on, self.ready_at = True, self.clock.now() + 1.0

    def disable(self) -> None:
        self.need_link()
        self.on = False

    def state(self) -> AmplifierState:
        self.need_link()
        out_dbm = self.emitted_dbm()
        return AmplifierState(self.on, out_dbm is not None, -5.0, out_dbm, 100.0, 30.0, (), self.clock.now())

    def wait_ready(self, timeout_s: float) -> AmplifierState:
        if not self.state().emitting:
            raise DeviceError("off", **WHERE)
        self.clock.sleep(max(0.0, min(deadline_after(self.clock, timeout_s), self.ready_at) - self.clock.now()))
        if not self.state().ready:
            raise DeviceTimeoutError("not ready", **WHERE)
        return self.state()

    def settings(self) -> AmplifierSettings:
        self.need_link()
        held = {mode: self.held if mode is self.mode else None for mode in AmplifierMode}
        return AmplifierSettings(self.mode, *held.values(), self.on)

    def limits(self) -> AmplifierLimits:
        self.need_link()
        return self.ranges


class FakeAnalyzer(Fake):
    """One line of light at most; without light there is no level; a sweep takes a second."""

    model, serial = "fake", "F10"
    able = SpectrumLimits((1200.0, 1700.0), (0.02, 0.1, 0.5), ("FAST", "HIGH"), (51, 2001))

    def __init__(self) -> None:
        super().__init__()
        self.kept = SpectrumSettings(1540.0, 1560.0, 0.1, "FAST", 501)
        self.line: tuple[float, float] | None = None

    def shine(self, wavelength_nm: float, power_dbm: float | None) -> None:
        self.line = None if power_dbm is None else (wavelength_nm, power_dbm)

    def change(self, **values: object) -> None:
        self.kept = SpectrumSettings(**(vars(self.kept) | values))

    def set_span_nm(self, start_nm: float, stop_nm: float) -> None:
        self.need_link()
        check(start_nm, self.able.wavelength_nm, "nm")
        check(stop_nm, self.able.wavelength_nm, "nm")
        check(stop_nm, (start_nm + 0.1, 1700.0), "nm")
        self.change(start_nm=start_nm, stop_nm=stop_nm)

    def set_resolution_nm(self, resolution_nm: float) -> None:
        self.need_link()
        if resolution_nm not in self.able.resolutions_nm:
            raise limit(resolution_nm, 0.02, "nm")
        self.change(resolution_nm=resolution_nm)

    def set_sensitivity(self, sensitivity: str) -> None:
        self.need_link()
        if sensitivity not in self.able.sensitivities:
            raise ConfigError(f"no sensitivity {sensitivity}", **WHERE)
        self.change(sensitivity=sensitivity)

    def set_n_points(self, n_points: int | None) -> None:
        self.need_link()
        if n_points is not None:
            check(n_points, self.able.n_points, "")
        self.change(n_points=n_points)

    def levels_dbm(self, wavelength_nm: np.ndarray) -> np.ndarray:
        if self.line is None:
            return np.full(wavelength_nm.shape, np.nan)
        off = (wavelength_nm - self.line[0]) / self.kept.resolution_nm
        return np.maximum(self.line[1] - 12.0 * off**2, -80.0)

    def sweep(self, timeout_s: float) -> Spectrum:
        self.need_link()
        deadline, started_s = deadline_after(self.clock, timeout_s), self.clock.now()
        self.clock.sleep(min(1.0, max(deadline - started_s, 0.0)))
        if self.clock.now() < started_s + 1.0:
            raise DeviceTimeoutError("the sweep did not end", **WHERE)
        wavelength_nm = np.linspace(self.kept.start_nm, self.kept.stop_nm, self.kept.n_points or 501)
        levels_dbm = self.levels_dbm(wavelength_nm)
        return Spectrum(wavelength_nm, levels_dbm, self.kept.resolution_nm, started_s, self.clock.now())

    def settings(self) -> SpectrumSettings:
        self.need_link()
        return self.kept

    def limits(self) -> SpectrumLimits:
        return self.able


class FakeTemperature(Fake):
    """The body is where it should be ten seconds after everything that happens, and locked when it is."""

    model, serial = "fake", "F11"

    def __init__(self) -> None:
        super().__init__()
        self.setpoint_c, self.tolerance = 25.0, (0.1, 1.0)
        self.on, self.there_at, self.off_by_k = False, 0.0, -3.0
        self.faults: tuple[str, ...] = ()
        self.was_locked, self.losses = False, 0

    def true_c(self) -> float:
        return self.setpoint_c + (0.0 if self.on and self.clock.now() >= self.there_at else self.off_by_k)

    def heat_suddenly_k(self, kelvin: float) -> None:
        self.look()
        self.off_by_k, self.there_at = kelvin, self.clock.now() + 10.0
        self.look()

    def pull_sensor(self) -> None:
        self.on, self.faults = False, ("sensor open",)

    def look(self) -> bool:
        locked = self.on and self.clock.now() >= self.there_at
        self.losses += self.was_locked and not locked
        self.was_locked = locked
        return locked

    def set_temperature_c(self, temperature_c: float) -> None:
        self.need_link()
        check(temperature_c, (10.0, 60.0), "°C")
        self.setpoint_c, self.there_at = round(temperature_c, 2), self.clock.now() + 10.0

    def set_tolerance(self, tolerance_c: float, window_s: float) -> None:
        self.need_link()
        check(tolerance_c, (0.01, 10.0), "K")
        check(window_s, (0.1, 50.0), "s")
        self.tolerance = tolerance_c, window_s

    def enable(self) -> None:
        self.need_link()
        self.on, self.there_at = True, self.clock.now() + 10.0

    def disable(self) -> None:
        self.need_link()
        self.on = False

    def wait_locked(self, timeout_s: float) -> TemperatureState:
        deadline = deadline_after(self.clock, timeout_s)
        if not self.state().enabled:
            raise DeviceError("the output is off", **WHERE)
        self.clock.sleep(max(0.0, min(deadline, self.there_at) - self.clock.now()))
        if not self.state().locked:
            raise DeviceTimeoutError("not locked", **WHERE)
        return self.state()

    def state(self) -> TemperatureState:
        self.need_link()
        locked, seen_c = self.look(), None if self.faults else self.true_c()
        now = self.clock.now()
        return TemperatureState(seen_c, self.setpoint_c, 0.1, self.on, locked, self.losses, self.faults, now)

    def settings(self) -> TemperatureSettings:
        self.need_link()
        return TemperatureSettings(self.setpoint_c, *self.tolerance, self.on)

    def limits(self) -> TemperatureLimits:
        self.need_link()
        return TemperatureLimits((10.0, 60.0), (0.01, 10.0), (0.1, 50.0))
