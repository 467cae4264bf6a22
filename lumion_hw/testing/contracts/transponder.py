"""What a transponder promises: an identity, a transmitter that is on or dark, and monitors that do not invent light."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest

from lumion_hw.clock import Clock
from lumion_hw.interfaces import Transponder
from lumion_hw.testing.contracts.common import (
    DeviceContract,
    fail_without_fixture,
    on_wires_only,
    promised,
    run_parallel,
    skip_without_fixture,
)

_SHARED_ROUNDS = 8


class TransponderContract(DeviceContract):
    """Promises of :class:`~lumion_hw.interfaces.Transponder`.

    Fixtures to give: ``driver`` (open, warmed up) and ``receive_dbm``. Optional: ``launched_w``, and those of
    :class:`DeviceContract`.

    Attributes:
        bright_dbm: Received power that is surely a signal.
        dim_dbm: Received power that is surely loss of signal.
        accuracy_db: Largest error of the module's own power monitors (SFF-8472 allows 3 dB).
        settle_s: Time until monitors and status show a change.
        dark_dbm: A transmitter below this power is off.
    """

    calls: ClassVar[Mapping[str, Callable[[Any], object]]] = {
        "identify": lambda driver: driver.identify(),
        "enable": lambda driver: driver.enable(),
        "disable": lambda driver: driver.disable(),
        "monitors": lambda driver: driver.monitors(),
        "status": lambda driver: driver.status(),
    }
    bright_dbm: ClassVar[float] = -8.0
    dim_dbm: ClassVar[float] = -35.0
    accuracy_db: ClassVar[float] = 3.0
    settle_s: ClassVar[float] = 0.3
    dark_dbm: ClassVar[float] = -30.0

    def observe(self, driver: Any) -> object:
        """Return the identity, read anew."""
        return driver.identify()

    # -- what the author gives

    @pytest.fixture
    def driver(self) -> Transponder:
        """An open driver of a module that has started up."""
        fail_without_fixture("driver", "an open Transponder whose module has started up, closed again after the test")

    @pytest.fixture
    def receive_dbm(self) -> Callable[[float | None], None]:
        """Sets the light at the receiver in dBm; ``None`` is dark."""
        fail_without_fixture("receive_dbm", "a function that sets the light at the receiver in dBm, None for dark")

    @pytest.fixture
    def launched_w(self) -> Callable[[], float]:
        """Tells what really leaves the transmitter, in watts."""
        skip_without_fixture("launched_w", "a function that measures what leaves the transmitter, in watts")

    # -- identity

    def test_it_says_that_its_transmitter_can_be_switched(self, driver: Transponder) -> None:
        """As it can, in this suite: programs leave the light of other modules to their pins."""
        promised(driver.can_switch(), "can_switch() is false")

    def test_it_says_who_it_is(self, driver: Transponder) -> None:
        """Vendor, part and serial number are those in the module's memory, and stay."""
        identity = driver.identify()
        promised(
            all((identity.vendor, identity.part_number, identity.serial, identity.technology)),
            f"part of the identity is empty: {identity}",
        )
        promised(700.0 < identity.wavelength_nm < 1700.0, f"{identity.wavelength_nm:g} nm is no wavelength of a module")
        promised(driver.identify() == identity, "a second look gives another identity")

    # -- transmitter

    def test_switched_on_it_reports_its_power(self, driver: Transponder) -> None:
        """``enable`` returns once there is power; switching on what is on changes nothing."""
        for _ in range(2):
            driver.enable()
            status = driver.status()
            promised(not status.tx_disabled and not status.tx_fault, f"the transmitter was switched on: {status}")
            power_dbm = driver.monitors().tx_power_dbm
            promised(power_dbm is not None and power_dbm > self.dark_dbm, f"switched on, it reports {power_dbm} dBm")

    def test_switched_off_it_is_dark(self, driver: Transponder) -> None:
        """``disable`` returns once it is dark, twice is once, and ``enable`` brings the light back."""
        driver.enable()
        for _ in range(2):
            driver.disable()
            promised(driver.status().tx_disabled, "switched off, its status says that it is on")
            power_dbm = driver.monitors().tx_power_dbm
            promised(power_dbm is None or power_dbm < self.dark_dbm, f"switched off, it reports {power_dbm} dBm")
        driver.enable()
        promised(driver.monitors().tx_power_dbm is not None, "switched on again, it reports no power")

    def test_the_light_follows_the_switch(self, driver: Transponder, launched_w: Callable[[], float]) -> None:
        """There is light when ``enable`` has returned, and none when ``disable`` has; the monitor says how much."""
        driver.enable()
        power_w = launched_w()
        promised(power_w > 0.0, "enable() returned without light")
        reported_dbm = driver.monitors().tx_power_dbm
        promised(reported_dbm is not None, "there is light, the module reports none")
        if reported_dbm is not None:
            error_db = reported_dbm - 10.0 * math.log10(power_w * 1e3)
            promised(abs(error_db) <= self.accuracy_db, f"its launch power is reported {error_db:+.1f} dB off")
        driver.disable()
        promised(launched_w() == 0.0, f"disable() returned with {launched_w():g} W of light")

    # -- receiver

    def test_loss_of_signal_follows_the_light(
        self, driver: Transponder, receive_dbm: Callable[[float | None], None], clock: Clock
    ) -> None:
        """LOS is set in the dark and at a dim light, and cleared at a bright one."""
        for power_dbm, los in ((self.bright_dbm, False), (None, True), (self.bright_dbm, False), (self.dim_dbm, True)):
            receive_dbm(power_dbm)
            driver.status()  # modules may look at their receiver only when they are asked
            clock.sleep(self.settle_s)
            status = driver.status()
            promised(status.data_ready, "a module that has started up says that its data are not valid")
            promised(status.rx_los is los, f"LOS is {status.rx_los} at {power_dbm} dBm")

    def test_received_power_is_a_number_or_none(
        self, driver: Transponder, receive_dbm: Callable[[float | None], None], clock: Clock
    ) -> None:
        """Bright light is read within the accuracy; darkness is ``None`` or very little, no sentinel."""
        receive_dbm(self.bright_dbm)
        driver.monitors()
        clock.sleep(self.settle_s)
        bright = driver.monitors().rx_power_dbm
        promised(
            bright is not None and abs(bright - self.bright_dbm) <= self.accuracy_db,
            f"{self.bright_dbm:g} dBm is read as {bright} dBm",
        )
        receive_dbm(None)
        driver.monitors()
        clock.sleep(self.settle_s)
        dark = driver.monitors().rx_power_dbm
        promised(dark is None or (math.isfinite(dark) and dark < self.dim_dbm + 3.0), f"the dark is read as {dark} dBm")

    def test_monitors_are_finite_and_dated(self, driver: Transponder, clock: Clock) -> None:
        """Temperature, supply and bias are numbers a module can have, dated by the host's clock."""
        before_s = clock.now()
        monitors, status = driver.monitors(), driver.status()
        promised(-60.0 < monitors.temperature_c < 130.0, f"a case at {monitors.temperature_c:g} degrees Celsius")
        promised(2.5 < monitors.supply_v < 6.0, f"a supply of {monitors.supply_v:g} V")
        bias_ma = monitors.tx_bias_ma
        promised(bias_ma is None or 0.0 <= bias_ma < 1000.0, f"a laser bias of {bias_ma} mA")
        times_s = [before_s, monitors.timestamp_s, status.timestamp_s, clock.now()]
        promised(times_s == sorted(times_s), f"the values are not dated by the host's clock: {times_s}")

    # -- sharing and closing

    @on_wires_only
    def test_two_threads_share_it(
        self, driver: Transponder, receive_dbm: Callable[[float | None], None], clock: Clock
    ) -> None:
        """Two threads reading identity and monitors get their own bytes each."""
        receive_dbm(self.bright_dbm)
        driver.monitors()
        clock.sleep(self.settle_s)
        identity = driver.identify()

        def identify() -> None:
            for _ in range(_SHARED_ROUNDS):
                promised(driver.identify() == identity, "another identity, while somebody else read the monitors")

        def monitor() -> None:
            for _ in range(_SHARED_ROUNDS):
                power_dbm = driver.monitors().rx_power_dbm
                promised(
                    power_dbm is not None and abs(power_dbm - self.bright_dbm) <= self.accuracy_db,
                    f"received power {power_dbm} dBm, while somebody else read the identity",
                )

        run_parallel(clock, identify, monitor)

    def test_closing_leaves_the_transmitter_as_it_is(
        self, driver: Transponder, launched_w: Callable[[], float]
    ) -> None:
        """``close`` switches nothing."""
        driver.enable()
        before_w = launched_w()
        driver.close()
        promised(launched_w() == before_w > 0.0, "close() changed the transmitter")
