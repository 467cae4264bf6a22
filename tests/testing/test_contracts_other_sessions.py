"""Changes by another session: drivers that restore or reject pass, drivers that return wrong numbers are caught."""

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.errors import VerifyError
from lumion_hw.interfaces import PowerReading, RangeState, Spectrum
from lumion_hw.quantities import dbm_from_w
from lumion_hw.testing.contracts import (
    PowerMeterContract,
    SpectrumAnalyzerContract,
    TunableLaserContract,
    VariableAttenuatorContract,
)
from tests.testing.contract_fakes import WHERE, AnyFake, FakeLaser, FakeMeter
from tests.testing.light_fakes import FakeAnalyzer, FakeAttenuator


class SharedMeter(FakeMeter):
    """A meter whose instrument another session changes.

    ``minding``: ``restore`` sets everything again before it reads, ``refuse`` raises, ``believe`` takes any number.
    """

    minding = "restore"

    def __init__(self) -> None:
        super().__init__()
        self.in_dbm: set[int] = set()
        self.panel_nm: dict[int, float] = {}
        self.small: set[int] = set()

    def reset(self) -> None:
        self.in_dbm, self.panel_nm = set(self.channels), dict.fromkeys(self.channels, 1550.0)

    def reading(self, channel: int) -> PowerReading:
        changed = channel in self.in_dbm or self.panel_nm.get(channel, self.nm[channel]) != self.nm[channel]
        if changed and self.minding == "refuse":
            raise VerifyError("unit or wavelength", wrote="as it was", read="another one", **WHERE)
        if self.minding == "restore":
            self.in_dbm.discard(channel)
            self.panel_nm.pop(channel, None)
        value_w = self.light_w[channel] * self.panel_nm.get(channel, self.nm[channel]) / self.nm[channel]
        if channel in self.small:
            return self.beyond(channel)
        value = dbm_from_w(value_w) if channel in self.in_dbm else value_w
        return PowerReading(channel, RangeState.OK, self.clock.now(), value)

    def beyond(self, channel: int) -> PowerReading:
        return PowerReading(channel, RangeState.OVER, self.clock.now())


class RefusingMeter(SharedMeter):
    minding = "refuse"


class BelievingMeter(SharedMeter):
    minding = "believe"

    def beyond(self, channel: int) -> PowerReading:
        return PowerReading(channel, RangeState.OK, self.clock.now(), 1e-9)


class TestMeterThatRestores(AnyFake, PowerMeterContract):
    make = SharedMeter
    wavelength_limits_nm = pytest.fixture(lambda self: (1250.0, 1650.0), name="wavelength_limits_nm")
    averaging_limits_s = pytest.fixture(lambda self: (1e-6, 10.0), name="averaging_limits_s")
    illuminate = pytest.fixture(lambda self, driver: driver.light_w.__setitem__, name="illuminate")
    change_unit = pytest.fixture(lambda self, driver: driver.in_dbm.add, name="change_unit")
    change_wavelength = pytest.fixture(lambda self, driver: driver.panel_nm.__setitem__, name="change_wavelength")
    change_range = pytest.fixture(lambda self, driver: driver.small.add, name="change_range")
    reset = pytest.fixture(lambda self, driver: driver.reset, name="reset")


class TestMeterThatRefuses(TestMeterThatRestores):
    make = RefusingMeter


def sentence(promise, *args: object) -> str:
    """Run a promise with a driver that breaks it; return what is said."""
    with pytest.raises(pytest.fail.Exception) as caught:
        promise(*args)
    return str(caught.value)


def test_a_meter_that_takes_decibels_for_watts_is_caught() -> None:
    driver = BelievingMeter()
    promise = PowerMeterContract().test_a_unit_changed_by_another_session_gives_no_wrong_power
    assert "reads -10 W" in sentence(promise, driver, driver.light_w.__setitem__, driver.in_dbm.add)


def test_a_meter_calibrated_for_the_wavelength_of_somebody_else_is_caught() -> None:
    driver = BelievingMeter()
    promise = PowerMeterContract().test_a_wavelength_changed_by_another_session_gives_no_wrong_power
    said = sentence(promise, driver, driver.light_w.__setitem__, (1250.0, 1650.0), driver.panel_nm.__setitem__)
    # 10 lg (1650 / 1250) = 1.21 dB
    assert "another session changed the wavelength to 1650" in said
    assert "+1.21 dB off" in said


def test_a_meter_that_gives_a_number_beyond_its_range_is_caught() -> None:
    driver = BelievingMeter()
    promise = PowerMeterContract().test_a_range_changed_by_another_session_gives_no_wrong_power
    assert "1e-09 W at 0.0001 W" in sentence(promise, driver, driver.light_w.__setitem__, driver.small.add)


def test_a_meter_that_does_not_notice_a_reset_is_caught() -> None:
    driver = BelievingMeter()
    promise = PowerMeterContract().test_a_reset_by_another_session_gives_no_wrong_power
    said = sentence(promise, driver, driver.light_w.__setitem__, (1250.0, 1650.0), driver.reset)
    assert "another session reset the meter; now" in said


class SharedLaser(FakeLaser):
    """A laser whose powers may be in mW; with ``minds`` it checks the unit."""

    minds = True

    def __init__(self) -> None:
        super().__init__()
        self.in_mw = False

    def change_unit(self) -> None:
        self.in_mw = True

    def reset(self) -> None:
        self.on, self.dbm, self.in_mw = False, 0.0, True

    def set_power_dbm(self, power_dbm: float) -> None:
        super().set_power_dbm(power_dbm)
        if self.minds:
            self.in_mw = False
        elif self.in_mw:
            self.dbm = 10.0 * np.log10(power_dbm)

    def state(self):
        state = super().state()
        if self.minds or not self.in_mw:
            return state
        return type(state)(**(vars(state) | {"power_dbm": 10.0 ** (state.power_dbm / 10.0)}))


class TestLaserThatMinds(AnyFake, TunableLaserContract):
    make = SharedLaser
    emitted = pytest.fixture(lambda self, driver: lambda: driver.light, name="emitted")
    change_unit = pytest.fixture(lambda self, driver: driver.change_unit, name="change_unit")
    reset = pytest.fixture(lambda self, driver: driver.reset, name="reset")


class HeedlessLaser(SharedLaser):
    minds = False


def test_a_laser_that_reports_milliwatts_as_dbm_is_caught() -> None:
    driver = HeedlessLaser()
    promise = TunableLaserContract().test_a_unit_changed_by_another_session_gives_no_wrong_power
    # 6 dBm are 3.98107 mW.
    assert "6 dBm is reported as 3.98107" in sentence(
        promise, driver, driver.change_unit, lambda: driver.light, driver.clock
    )


def test_a_laser_that_is_set_in_milliwatts_is_caught() -> None:
    class ReportsTheSetPower(HeedlessLaser):
        def state(self):
            return FakeLaser.state(self)

    driver = ReportsTheSetPower()
    promise = TunableLaserContract().test_a_unit_changed_by_another_session_gives_no_wrong_power
    # 3 dBm was set and 3 mW came, 4.77 dBm.
    said = sentence(promise, driver, driver.change_unit, lambda: driver.light, driver.clock)
    assert "3 dBm was set, the light is +1.77 dB off" in said


def test_a_laser_that_says_it_emits_after_a_reset_is_caught() -> None:
    class Sure(SharedLaser):
        def state(self):
            state = super().state()
            return type(state)(**(vars(state) | {"emitting": True}))

    driver = Sure()
    promise = TunableLaserContract().test_a_reset_by_another_session_is_reported
    assert "emitting=True" in sentence(promise, driver, driver.reset, lambda: driver.light)


class SharedAttenuator(FakeAttenuator):
    """An attenuator whose display has an offset; with ``minds`` it removes the offset."""

    minds = True

    def __init__(self) -> None:
        super().__init__()
        self.offset_db, self.wanted_nm = 0.0, 1550.0

    def change_offset(self, _channel: int) -> None:
        self.offset_db = 3.0

    def reset(self) -> None:
        for channel in self.channels:
            self.change(channel, attenuation_db=0.0, passing=False)

    def set_wavelength_nm(self, channel: int, wavelength_nm: float) -> None:
        super().set_wavelength_nm(channel, wavelength_nm)
        self.wanted_nm = wavelength_nm

    def set_attenuation_db(self, channel: int, attenuation_db: float) -> None:
        super().set_attenuation_db(channel, attenuation_db - (0.0 if self.minds else self.offset_db))
        if self.minds:
            self.change(channel, wavelength_nm=self.wanted_nm)
            self.offset_db = 0.0

    def settings(self, channel: int):
        kept = super().settings(channel)
        if self.minds:
            return kept
        return type(kept)(kept.attenuation_db + self.offset_db, kept.wavelength_nm, kept.passing)


class TestAttenuatorThatMinds(AnyFake, VariableAttenuatorContract):
    make = SharedAttenuator
    measured_attenuation_db = pytest.fixture(
        lambda self, driver: driver.measured_attenuation_db, name="measured_attenuation_db"
    )
    change_offset = pytest.fixture(lambda self, driver: driver.change_offset, name="change_offset")
    reset = pytest.fixture(lambda self, driver: driver.reset, name="reset")

    @pytest.fixture
    def change_wavelength(self, driver):
        return lambda channel: driver.change(channel, wavelength_nm=1310.0)


class HeedlessAttenuator(SharedAttenuator):
    minds = False


def test_an_attenuator_that_counts_from_the_offset_of_somebody_else_is_caught() -> None:
    driver = HeedlessAttenuator()
    promise = VariableAttenuatorContract().test_an_offset_changed_by_another_session_gives_no_wrong_attenuation
    assert "19 dB was reported, but 16.0 dB is measured" in sentence(
        promise, driver, driver.change_offset, driver.measured_attenuation_db
    )


def test_an_attenuator_at_the_wavelength_of_somebody_else_is_caught() -> None:
    driver = HeedlessAttenuator()
    promise = VariableAttenuatorContract().test_a_wavelength_changed_by_another_session_is_reported_and_set_again
    said = sentence(promise, driver, lambda channel: driver.change(channel, wavelength_nm=1310.0))
    assert "24 dB was set at 1310.0 nm instead of 1488.0 nm" in said


def test_an_attenuator_that_does_not_notice_a_reset_is_caught() -> None:
    class Sure(SharedAttenuator):
        def settings(self, channel: int):
            kept = super().settings(channel)
            return type(kept)(kept.attenuation_db, kept.wavelength_nm, True)

    driver = Sure()
    promise = VariableAttenuatorContract().test_a_reset_by_another_session_gives_no_wrong_attenuation
    assert "passing=True" in sentence(promise, driver, driver.reset, driver.measured_attenuation_db, VirtualClock())


class SharedAnalyzer(FakeAnalyzer):
    """An analyser whose wavelengths may be in air; with ``minds`` it sets them to vacuum."""

    minds = True
    in_air = False

    def change_scale(self) -> None:
        self.in_air = True

    def reset(self) -> None:
        self.in_air = True

    def sweep(self, timeout_s: float) -> Spectrum:
        spectrum = super().sweep(timeout_s)
        if self.minds or not self.in_air:
            return spectrum
        values = vars(spectrum) | {"wavelength_nm": spectrum.wavelength_nm / 1.00027}
        return Spectrum(**values)


class TestAnalyzerThatMinds(AnyFake, SpectrumAnalyzerContract):
    make = SharedAnalyzer
    change_scale = pytest.fixture(lambda self, driver: driver.change_scale, name="change_scale")
    reset = pytest.fixture(lambda self, driver: driver.reset, name="reset")
    shine = pytest.fixture(lambda self, driver: driver.shine, name="shine")


@pytest.mark.parametrize("what", ["scales_changed_by_another_session_give", "a_reset_by_another_session_gives"])
def test_an_analyzer_whose_wavelengths_become_those_in_air_is_caught(what: str) -> None:
    driver = SharedAnalyzer()
    driver.minds = False
    promise = getattr(SpectrumAnalyzerContract(), f"test_{what}_no_wrong_spectrum")
    assert "the line was at (1550.2" in sentence(promise, driver, driver.shine, driver.change_scale)
