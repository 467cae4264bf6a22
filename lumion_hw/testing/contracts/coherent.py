"""What a coherent transponder promises: applications, any frequency or a refusal, and why a link is not up."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest

from lumion_hw.clock import Clock
from lumion_hw.errors import ConfigError, LimitError, LumionError
from lumion_hw.interfaces import CoherentTransponder, LockStage, Performance, Quality
from lumion_hw.testing.contracts.common import fail_without_fixture, promised, refused
from lumion_hw.testing.contracts.transponder import TransponderContract

_MHZ = 1e-6
_GONE = (LockStage.ABSENT, LockStage.NOT_RESPONDING)


class CoherentTransponderContract(TransponderContract):
    """Promises of :class:`~lumion_hw.interfaces.CoherentTransponder`, and those of every transponder.

    Fixtures as for :class:`TransponderContract`; the light of ``receive_dbm`` has to be a signal that the receiver
    locks to at :attr:`bright_dbm`. Override :attr:`calls` for a laser that makes neither 193.1 THz nor -8 dBm.

    Attributes:
        lock_s: Time from light at the receiver to a lock.
        settle_s: Time until monitors and status show a change.
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
        """An open driver of a module whose data path is up: only then do receivers report."""
        fail_without_fixture("driver", "an open CoherentTransponder that has been enabled, closed again after the test")

    # -- what it says of itself

    def test_its_capabilities_make_sense(self, driver: CoherentTransponder) -> None:
        """There is an application; ranges and limits go from low to high; a second look gives the same."""
        found = driver.capabilities()
        promised(bool(found.applications), "it offers no application")
        for item in found.applications:
            promised(item.host_lanes > 0 and item.media_lanes > 0, f"an application without lanes: {item}")
            promised(bool(item.first_host_lanes), f"an application that begins on no lane: {item}")
        for span in found.tuning:
            promised(150.0 < span.min_thz <= span.max_thz < 300.0, f"no range of a laser: {span}")
        if found.tx_power_dbm is not None:
            promised(found.tx_power_dbm[0] <= found.tx_power_dbm[1], f"output power {found.tx_power_dbm}")
        promised(driver.capabilities() == found, "a second look gives other capabilities")

    # -- laser

    def test_it_makes_both_ends_of_each_grid(self, driver: CoherentTransponder) -> None:
        """Both ends of each advertised range are reached, within 1 MHz."""
        for span in driver.capabilities().tuning:
            for wanted in (span.min_thz, span.max_thz):
                result = driver.tune(wanted, span.spacing_ghz)
                promised(abs(result.frequency_thz - wanted) <= 1.5 * _MHZ, f"asked {wanted} THz, got {result}")

    def test_a_frequency_out_of_reach_is_refused(self, driver: CoherentTransponder) -> None:
        """Outside all ranges ``tune`` raises a ``LimitError``, and the laser can still be tuned afterwards."""
        ranges = driver.capabilities().tuning
        low_thz, high_thz = min(span.min_thz for span in ranges), max(span.max_thz for span in ranges)
        for beyond in (low_thz - 1.0, high_thz + 1.0, math.nan, math.inf):
            refused(LimitError, f"{beyond:g} THz", lambda thz=beyond: driver.tune(thz))  # type: ignore[misc]
        driver.tune(ranges[0].min_thz)

    def test_an_output_power_out_of_reach_is_refused(self, driver: CoherentTransponder) -> None:
        """Limits refuse, never clip; the limits themselves can be set."""
        limits = driver.capabilities().tx_power_dbm
        if limits is None:
            pytest.skip("the output power of this module cannot be set")
        for beyond in (limits[0] - 0.5, limits[1] + 0.5, math.nan):
            refused(LimitError, f"{beyond:g} dBm", lambda dbm=beyond: driver.set_tx_power_dbm(dbm))  # type: ignore[misc]
        for power_dbm in limits:
            driver.set_tx_power_dbm(power_dbm)

    def test_tuning_brings_a_lit_transmitter_back(self, driver: CoherentTransponder) -> None:
        """A transmitter that was on is on again after ``tune``; one that was off stays off."""
        span = driver.capabilities().tuning[0]
        driver.enable()
        driver.tune(span.min_thz)
        promised(not driver.status().tx_disabled, "tuning left a lit transmitter off")
        driver.disable()
        driver.tune(span.max_thz)
        promised(driver.status().tx_disabled, "tuning switched a dark transmitter on")

    # -- application and power

    def test_an_application_that_is_not_there_is_refused(self, driver: CoherentTransponder) -> None:
        """An application that the module does not offer raises a ``ConfigError``; the offered ones can be had."""
        offered = {item.number for item in driver.capabilities().applications}
        missing = next(number for number in range(1, 17) if number not in offered)
        refused(ConfigError, f"application {missing}", lambda: driver.select_application(missing))
        driver.select_application(min(offered))
        promised(driver.status().tx_disabled, "the transmitter is on after select_application()")
        driver.enable()

    def test_it_tells_what_it_has_been_told(self, driver: CoherentTransponder) -> None:
        """``settings`` follow every change: power mode, application, frequency, output power, light on and off."""
        capabilities = driver.capabilities()
        wanted = min(capabilities.applications, key=lambda item: (item.first_host_lanes[0], item.number))
        driver.select_application(wanted.number, wanted.first_host_lanes[0])
        found = driver.settings()
        promised(
            found.applications.get(wanted.first_host_lanes[0]) == wanted.number and not found.enabled,
            f"application {wanted.number} was selected, settings() says {found}",
        )
        for span in capabilities.tuning:
            for thz in (span.min_thz, span.max_thz):
                driver.tune(thz, span.spacing_ghz)
                found_thz = driver.settings().frequency_thz
                promised(found_thz is not None and abs(found_thz - thz) <= 1.5 * _MHZ, f"{thz} THz: {found_thz}")
        for power_dbm in capabilities.tx_power_dbm or ():
            driver.set_tx_power_dbm(power_dbm)
            found_dbm = driver.settings().tx_power_dbm
            promised(found_dbm is not None and abs(found_dbm - power_dbm) < 0.011, f"{power_dbm} dBm: {found_dbm}")
        driver.enable()
        promised(driver.settings().enabled and driver.settings().powered, "it is on, settings() says otherwise")
        driver.power_down()
        found = driver.settings()
        promised(not found.powered and not found.enabled, f"it is in low power, settings() says {found}")

    def test_power_goes_down_and_up(self, driver: CoherentTransponder) -> None:
        """In low power it is dark and says so; after ``power_up`` it can be switched on."""
        driver.power_down()
        promised(driver.status().tx_disabled, "in low power the transmitter is on")
        promised(not driver.status().data_ready, "in low power it says that it is ready")
        driver.power_up()
        status = driver.status()
        promised(status.data_ready, "after power_up() it is not ready")
        promised(status.tx_disabled, "power_up() switched the transmitter on")
        driver.enable()

    # -- the link

    def test_a_dark_receiver_is_named(
        self, driver: CoherentTransponder, receive_dbm: Callable[[float | None], None], clock: Clock
    ) -> None:
        """Without light ``wait_for_lock`` returns at its deadline, and names loss of signal."""
        receive_dbm(None)
        driver.enable()
        clock.sleep(self.settle_s)
        started = clock.now()
        report = driver.wait_for_lock(3.0)
        promised(not report.locked, "without light it is locked")
        promised(report.stage is LockStage.RX_LOS, f"in the dark it waits for {report.stage.value}: {report.detail}")
        promised(clock.now() - started <= 3.0 + self.deadline_s, "wait_for_lock went beyond its deadline")
        promised(math.isclose(sum(seconds for _, seconds in report.stages), report.elapsed_s, abs_tol=0.1), "stages")

    def test_a_signal_is_locked(self, driver: CoherentTransponder, receive_dbm: Callable[[float | None], None]) -> None:
        """With a good signal the link is up."""
        receive_dbm(self.bright_dbm)
        driver.enable()
        report = driver.wait_for_lock(self.lock_s)
        promised(report.locked, f"with a good signal it waits for {report.stage.value}: {report.detail}")

    def test_a_dark_transmitter_is_named(self, driver: CoherentTransponder) -> None:
        """Switched off, ``wait_for_lock`` says so."""
        driver.enable()
        driver.disable()
        report = driver.wait_for_lock(0.0)
        promised(report.stage is LockStage.TX_DISABLED, f"switched off, it waits for {report.stage.value}")

    def test_a_module_that_is_gone_is_a_stage(self, driver: CoherentTransponder, unplug: Callable[[], None]) -> None:
        """``wait_for_lock`` on an unplugged module returns a report."""
        unplug()
        report = driver.wait_for_lock(1.0)
        promised(report.stage in _GONE, f"unplugged, it waits for {report.stage.value}")

    # -- readings

    def test_performance_is_finite_and_in_order(
        self, driver: CoherentTransponder, receive_dbm: Callable[[float | None], None], clock: Clock
    ) -> None:
        """Minimum, average and maximum are in order, nothing is NaN, intervals are counted; what a link has is good."""
        receive_dbm(self.bright_dbm)
        driver.enable()
        driver.wait_for_lock(self.lock_s)
        driver.performance()
        clock.sleep(self.settle_s)
        first = driver.performance()
        clock.sleep(self.settle_s)
        second = driver.performance()
        promised(second.interval == first.interval + 1, "intervals are not counted")
        _check_order(second)
        for name in ("prefec_ber", "osnr", "esnr"):
            reading = second.quantities[name].average if name in second.quantities else None
            promised(
                reading is not None and reading.quality is Quality.OK,
                f"on a link that is up, {name} is {reading}, and {second.remarks}",
            )

    def test_without_a_signal_nothing_is_fresh(
        self, driver: CoherentTransponder, receive_dbm: Callable[[float | None], None], clock: Clock
    ) -> None:
        """Without light no bit error ratio, signal-to-noise ratio or Q is called good."""
        receive_dbm(None)
        driver.enable()
        clock.sleep(self.settle_s)
        found = driver.performance().quantities
        for name in ("prefec_ber", "osnr", "esnr", "q"):
            best = found[name].best if name in found else None
            promised(best is None or best.quality is not Quality.OK, f"in the dark, {name} is {best}")

    def test_flags_stay_until_they_are_cleared(
        self, driver: CoherentTransponder, receive_dbm: Callable[[float | None], None], clock: Clock
    ) -> None:
        """Loss of signal is remembered after the light is back, and forgotten when it is cleared."""
        receive_dbm(None)
        driver.enable()
        clock.sleep(self.settle_s)
        promised("rx_los" in {flag.name for flag in driver.flags()}, "loss of signal left no flag")
        receive_dbm(self.bright_dbm)
        clock.sleep(self.settle_s)
        promised("rx_los" in {flag.name for flag in driver.flags()}, "the flag went with its cause")
        driver.clear_flags()
        promised("rx_los" not in {flag.name for flag in driver.flags()}, "a cleared flag came back without a cause")

    def test_a_limit_error_names_the_device(self, driver: CoherentTransponder) -> None:
        """Refusals say which device they are about."""
        error = refused(LumionError, "1 THz", lambda: driver.tune(1.0))
        promised(bool(error.device and error.address), f"the error names no device or no address: {error}")


def _check_order(found: Performance) -> None:
    for name, quantity in found.quantities.items():
        members = (quantity.minimum, quantity.average, quantity.maximum, quantity.current)
        values = [item.value for item in members if item is not None and item.value is not None]
        promised(all(math.isfinite(value) for value in values), f"{name} is {values}")
        low, middle, high = (
            None if item is None or item.quality is not Quality.OK else item.value for item in members[:3]
        )
        if low is not None and middle is not None and high is not None:
            promised(low <= middle <= high, f"{name}: {low:g}, {middle:g}, {high:g} are not in order")
