"""Contract tests for coherent transponders."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest

from lumion_hw.clock import Clock
from lumion_hw.errors import ConfigError, LimitError, LumionError
from lumion_hw.interfaces import CoherentTransponder, LockStage, Performance, Quality
from lumion_hw.testing.contracts.common import expect, expect_error, fail_without_fixture
from lumion_hw.testing.contracts.transponder import TransponderContract

_MHZ = 1e-6
_ABSENT_STAGES = (LockStage.ABSENT, LockStage.NOT_RESPONDING)


class CoherentTransponderContract(TransponderContract):
    """Contract tests for :class:`~lumion_hw.interfaces.CoherentTransponder`, including those for every transponder.

    Fixtures as for :class:`TransponderContract`. At :attr:`bright_dbm`, the receiver must lock to the light that
    ``receive_dbm`` sets. Override :attr:`calls` if the laser cannot emit at 193.1 THz or -8 dBm.

    Attributes:
        lock_s: Longest time in seconds from light at the receiver to a lock.
        settle_s: Longest time in seconds until monitors and status show a change.
    """

    calls: ClassVar[Mapping[str, Callable[[Any], object]]] = {
        **TransponderContract.calls,
        "capabilities": lambda driver: driver.capabilities(),
        "power_up": lambda driver: driver.power_up(),
        "power_down": lambda driver: driver.power_down(),
        "select_application": lambda driver: driver.select_application(1),
        "tune": lambda driver: driver.tune(193.1),
        "set_tx_power_dbm": lambda driver: driver.set_tx_power_dbm(-8.0),
        "settings": lambda driver: driver.settings(),
        "performance": lambda driver: driver.performance(),
        "flags": lambda driver: driver.flags(),
    }
    lock_s: ClassVar[float] = 30.0
    settle_s: ClassVar[float] = 2.0

    @pytest.fixture
    def driver(self) -> CoherentTransponder:
        """An open driver of a module whose data path is active."""
        fail_without_fixture("driver", "an open CoherentTransponder that has been enabled, closed again after the test")

    # -- capabilities

    def test_capabilities_are_consistent(self, driver: CoherentTransponder) -> None:
        """At least one application is offered, and ranges are in order."""
        capabilities = driver.capabilities()
        expect(bool(capabilities.applications), "the module offers no application")
        for item in capabilities.applications:
            expect(item.host_lanes > 0 and item.media_lanes > 0, f"an application has no lanes: {item}")
            expect(bool(item.first_host_lanes), f"an application has no first host lane: {item}")
        for span in capabilities.tuning:
            expect(150.0 < span.min_thz <= span.max_thz < 300.0, f"the tuning range is invalid: {span}")
        if capabilities.tx_power_dbm is not None:
            expect(
                capabilities.tx_power_dbm[0] <= capabilities.tx_power_dbm[1],
                f"the output power range is invalid: {capabilities.tx_power_dbm}",
            )
        expect(driver.capabilities() == capabilities, "a second call returned different capabilities")

    # -- laser

    def test_both_ends_of_each_grid_are_reached(self, driver: CoherentTransponder) -> None:
        """The laser reaches both ends of each advertised range, within 1.5 MHz."""
        for span in driver.capabilities().tuning:
            for wanted in (span.min_thz, span.max_thz):
                result = driver.tune(wanted, span.spacing_ghz)
                expect(abs(result.frequency_thz - wanted) <= 1.5 * _MHZ, f"requested {wanted} THz, got {result}")

    def test_a_frequency_out_of_reach_is_refused(self, driver: CoherentTransponder) -> None:
        """A frequency outside all ranges raises ``LimitError``; the laser can still be tuned."""
        ranges = driver.capabilities().tuning
        low_thz, high_thz = min(span.min_thz for span in ranges), max(span.max_thz for span in ranges)
        for outside in (low_thz - 1.0, high_thz + 1.0, math.nan, math.inf):
            expect_error(LimitError, f"{outside:g} THz", lambda thz=outside: driver.tune(thz))  # type: ignore[misc]
        driver.tune(ranges[0].min_thz)

    def test_an_output_power_out_of_reach_is_refused(self, driver: CoherentTransponder) -> None:
        """An output power outside the limits is rejected; the limits themselves can be set."""
        limits = driver.capabilities().tx_power_dbm
        if limits is None:
            pytest.skip("the output power of this module cannot be set")
        for outside in (limits[0] - 0.5, limits[1] + 0.5, math.nan):
            expect_error(LimitError, f"{outside:g} dBm", lambda dbm=outside: driver.set_tx_power_dbm(dbm))  # type: ignore[misc]
        for power_dbm in limits:
            driver.set_tx_power_dbm(power_dbm)

    def test_tuning_brings_a_lit_transmitter_back(self, driver: CoherentTransponder) -> None:
        """``tune`` does not change whether the transmitter is on."""
        span = driver.capabilities().tuning[0]
        driver.enable()
        driver.tune(span.min_thz)
        expect(not driver.status().tx_disabled, "tuning left a lit transmitter off")
        driver.disable()
        driver.tune(span.max_thz)
        expect(driver.status().tx_disabled, "tuning switched a dark transmitter on")

    # -- application and power

    def test_an_application_that_is_not_there_is_refused(self, driver: CoherentTransponder) -> None:
        """An offered application can be selected; any other raises ``ConfigError``."""
        offered = {item.number for item in driver.capabilities().applications}
        missing = next(number for number in range(1, 17) if number not in offered)
        expect_error(ConfigError, f"application {missing}", lambda: driver.select_application(missing))
        driver.select_application(min(offered))
        expect(driver.status().tx_disabled, "the transmitter is on after select_application()")
        driver.enable()

    def test_settings_follow_every_change(self, driver: CoherentTransponder) -> None:
        """``settings`` reports every change of application, frequency and power."""
        capabilities = driver.capabilities()
        wanted = min(capabilities.applications, key=lambda item: (item.first_host_lanes[0], item.number))
        driver.select_application(wanted.number, wanted.first_host_lanes[0])
        settings = driver.settings()
        expect(
            settings.applications.get(wanted.first_host_lanes[0]) == wanted.number and not settings.enabled,
            f"application {wanted.number} was selected, but settings() returns {settings}",
        )
        for span in capabilities.tuning:
            for thz in (span.min_thz, span.max_thz):
                driver.tune(thz, span.spacing_ghz)
                actual_thz = driver.settings().frequency_thz
                expect(actual_thz is not None and abs(actual_thz - thz) <= 1.5 * _MHZ, f"{thz} THz: {actual_thz}")
        for power_dbm in capabilities.tx_power_dbm or ():
            driver.set_tx_power_dbm(power_dbm)
            actual_dbm = driver.settings().tx_power_dbm
            expect(actual_dbm is not None and abs(actual_dbm - power_dbm) < 0.011, f"{power_dbm} dBm: {actual_dbm}")
        driver.enable()
        expect(
            driver.settings().enabled and driver.settings().powered,
            "the transmitter is on, but settings() reports it off",
        )
        driver.power_down()
        settings = driver.settings()
        expect(
            not settings.powered and not settings.enabled,
            f"the module is in low power, but settings() returns {settings}",
        )

    def test_power_goes_down_and_up(self, driver: CoherentTransponder) -> None:
        """In low power the transmitter is off; after ``power_up`` it can be enabled."""
        driver.power_down()
        expect(driver.status().tx_disabled, "the transmitter is on in low power")
        expect(not driver.status().data_ready, "the module reports ready in low power")
        driver.power_up()
        status = driver.status()
        expect(status.data_ready, "the module is not ready after power_up()")
        expect(status.tx_disabled, "power_up() switched the transmitter on")
        driver.enable()

    # -- the link

    def test_a_dark_receiver_is_reported(
        self, driver: CoherentTransponder, receive_dbm: Callable[[float | None], None], clock: Clock
    ) -> None:
        """Without light, ``wait_for_lock`` reports loss of signal at its deadline."""
        receive_dbm(None)
        driver.enable()
        clock.sleep(self.settle_s)
        started = clock.now()
        report = driver.wait_for_lock(3.0)
        expect(not report.locked, "the receiver reports a lock without light")
        expect(report.stage is LockStage.RX_LOS, f"without light the stage is {report.stage.value}: {report.detail}")
        expect(clock.now() - started <= 3.0 + self.deadline_s, "wait_for_lock() exceeded its deadline")
        expect(
            math.isclose(sum(seconds for _, seconds in report.stages), report.elapsed_s, abs_tol=0.1),
            "stage times do not add up",
        )

    def test_a_signal_is_locked(self, driver: CoherentTransponder, receive_dbm: Callable[[float | None], None]) -> None:
        """The receiver locks to a good signal within ``lock_s``."""
        receive_dbm(self.bright_dbm)
        driver.enable()
        report = driver.wait_for_lock(self.lock_s)
        expect(report.locked, f"with a good signal the stage is {report.stage.value}: {report.detail}")

    def test_a_disabled_transmitter_is_reported(self, driver: CoherentTransponder) -> None:
        """``wait_for_lock`` reports a disabled transmitter."""
        driver.enable()
        driver.disable()
        report = driver.wait_for_lock(0.0)
        expect(report.stage is LockStage.TX_DISABLED, f"with the transmitter off the stage is {report.stage.value}")

    def test_an_unplugged_module_is_reported(self, driver: CoherentTransponder, unplug: Callable[[], None]) -> None:
        """``wait_for_lock`` reports an unplugged module."""
        unplug()
        report = driver.wait_for_lock(1.0)
        expect(report.stage in _ABSENT_STAGES, f"with the module unplugged the stage is {report.stage.value}")

    # -- readings

    def test_performance_is_finite_and_in_order(
        self, driver: CoherentTransponder, receive_dbm: Callable[[float | None], None], clock: Clock
    ) -> None:
        """On a locked link, readings are finite, and minimum <= average <= maximum; the interval number grows."""
        receive_dbm(self.bright_dbm)
        driver.enable()
        driver.wait_for_lock(self.lock_s)
        driver.performance()
        clock.sleep(self.settle_s)
        first = driver.performance()
        clock.sleep(self.settle_s)
        second = driver.performance()
        expect(second.interval == first.interval + 1, "intervals are not counted")
        _check_order(second)
        for name in ("prefec_ber", "osnr", "esnr"):
            reading = second.quantities[name].average if name in second.quantities else None
            expect(
                reading is not None and reading.quality is Quality.OK,
                f"on a locked link {name} is {reading}; remarks: {second.remarks}",
            )

    def test_without_a_signal_no_quality_is_good(
        self, driver: CoherentTransponder, receive_dbm: Callable[[float | None], None], clock: Clock
    ) -> None:
        """Without light, no bit error ratio, signal-to-noise ratio or Q factor is marked good."""
        receive_dbm(None)
        driver.enable()
        clock.sleep(self.settle_s)
        quantities = driver.performance().quantities
        for name in ("prefec_ber", "osnr", "esnr", "q"):
            best = quantities[name].best if name in quantities else None
            expect(best is None or best.quality is not Quality.OK, f"without light {name} is {best}")

    def test_flags_stay_until_they_are_cleared(
        self, driver: CoherentTransponder, receive_dbm: Callable[[float | None], None], clock: Clock
    ) -> None:
        """The loss-of-signal flag stays after the light returns, until the flags are cleared."""
        receive_dbm(None)
        driver.enable()
        clock.sleep(self.settle_s)
        expect("rx_los" in {flag.name for flag in driver.flags()}, "loss of signal set no flag")
        receive_dbm(self.bright_dbm)
        clock.sleep(self.settle_s)
        expect("rx_los" in {flag.name for flag in driver.flags()}, "the flag was cleared together with its cause")
        driver.clear_flags()
        expect("rx_los" not in {flag.name for flag in driver.flags()}, "a cleared flag was set again without a cause")

    def test_a_limit_error_names_the_device(self, driver: CoherentTransponder) -> None:
        """A ``LimitError`` names the device and its address."""
        error = expect_error(LumionError, "1 THz", lambda: driver.tune(1.0))
        expect(bool(error.device and error.address), f"the error does not name the device and its address: {error}")


def _check_order(performance: Performance) -> None:
    for name, quantity in performance.quantities.items():
        members = (quantity.minimum, quantity.average, quantity.maximum, quantity.current)
        values = [item.value for item in members if item is not None and item.value is not None]
        expect(all(math.isfinite(value) for value in values), f"{name} is {values}")
        low, middle, high = (
            None if item is None or item.quality is not Quality.OK else item.value for item in members[:3]
        )
        if low is not None and middle is not None and high is not None:
            expect(low <= middle <= high, f"{name}: {low:g}, {middle:g}, {high:g} are not in order")
