"""Contract tests for transponders."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest

from lumion_hw.clock import Clock
from lumion_hw.interfaces import Transponder
from lumion_hw.testing.contracts.common import (
    DeviceContract,
    expect,
    fail_without_fixture,
    on_wires_only,
    run_parallel,
    skip_without_fixture,
)

_SHARED_ROUNDS = 8


Receive = Callable[[float | None], None]
"""A function that sets the light at the receiver in dBm; ``None`` is dark."""


class TransponderContract(DeviceContract):
    """Contract tests for :class:`~lumion_hw.interfaces.Transponder`.

    Required fixtures: ``driver`` (open, warmed up) and ``receive_dbm``. Optional: ``launched_w``, and those of
    :class:`DeviceContract`.

    Attributes:
        bright_dbm: Received power at which every module reports a signal.
        dim_dbm: Received power at which every module reports loss of signal.
        accuracy_db: Largest error of the module's own power monitors (SFF-8472 allows 3 dB).
        settle_s: Longest time in seconds until monitors and status show a change.
        dark_dbm: Launch power below which a transmitter counts as off.
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
        """Read the identity from the module."""
        return driver.identify()

    # -- fixtures of the author

    @pytest.fixture
    def driver(self) -> Transponder:
        """An open driver of a module that has started up."""
        fail_without_fixture("driver", "an open Transponder whose module has started up, closed again after the test")

    @pytest.fixture
    def receive_dbm(self) -> Receive:
        """A function that sets the light at the receiver in dBm; ``None`` is dark."""
        fail_without_fixture("receive_dbm", "a function that sets the light at the receiver in dBm, None for dark")

    @pytest.fixture
    def launched_w(self) -> Callable[[], float]:
        """A function that measures the launch power of the transmitter, in watts."""
        skip_without_fixture("launched_w", "a function that measures the launch power of the transmitter, in watts")

    # -- identity

    def test_the_transmitter_can_be_switched(self, driver: Transponder) -> None:
        """``can_switch`` is true; modules that only pins can switch are not covered."""
        expect(driver.can_switch(), "can_switch() is false")

    def test_the_identity_is_complete_and_constant(self, driver: Transponder) -> None:
        """The identity is complete and does not change."""
        identity = driver.identify()
        expect(
            all((identity.vendor, identity.part_number, identity.serial, identity.technology)),
            f"part of the identity is empty: {identity}",
        )
        expect(700.0 < identity.wavelength_nm < 1700.0, f"the wavelength {identity.wavelength_nm:g} nm is out of range")
        expect(driver.identify() == identity, "a second call returned a different identity")

    # -- transmitter

    def test_an_enabled_transmitter_reports_its_power(self, driver: Transponder) -> None:
        """When ``enable`` returns, the transmitter has power."""
        for _ in range(2):
            driver.enable()
            status = driver.status()
            expect(
                not status.tx_disabled and not status.tx_fault,
                f"the transmitter was enabled, but its status is {status}",
            )
            power_dbm = driver.monitors().tx_power_dbm
            expect(
                power_dbm is not None and power_dbm > self.dark_dbm,
                f"the transmitter is enabled, but reports {power_dbm} dBm",
            )

    def test_a_disabled_transmitter_is_dark(self, driver: Transponder) -> None:
        """When ``disable`` returns, the transmitter is dark; ``enable`` switches it on again."""
        driver.enable()
        for _ in range(2):
            driver.disable()
            expect(driver.status().tx_disabled, "the transmitter is disabled, but its status reports it on")
            power_dbm = driver.monitors().tx_power_dbm
            expect(
                power_dbm is None or power_dbm < self.dark_dbm,
                f"the transmitter is disabled, but reports {power_dbm} dBm",
            )
        driver.enable()
        expect(driver.monitors().tx_power_dbm is not None, "the transmitter was enabled again, but reports no power")

    def test_the_light_follows_the_switch(self, driver: Transponder, launched_w: Callable[[], float]) -> None:
        """The light is on when ``enable`` returns and off when ``disable`` returns."""
        driver.enable()
        power_w = launched_w()
        expect(power_w > 0.0, "enable() returned without light")
        reported_dbm = driver.monitors().tx_power_dbm
        expect(reported_dbm is not None, "the module emits light, but reports no power")
        if reported_dbm is not None:
            error_db = reported_dbm - 10.0 * math.log10(power_w * 1e3)
            expect(abs(error_db) <= self.accuracy_db, f"the reported launch power is {error_db:+.1f} dB off")
        driver.disable()
        expect(launched_w() == 0.0, f"disable() returned with {launched_w():g} W of light")

    # -- receiver

    def test_loss_of_signal_follows_the_light(self, driver: Transponder, receive_dbm: Receive, clock: Clock) -> None:
        """Loss of signal is set without light and in dim light, and cleared in bright light."""
        for power_dbm, los in ((self.bright_dbm, False), (None, True), (self.bright_dbm, False), (self.dim_dbm, True)):
            receive_dbm(power_dbm)
            driver.status()  # some modules sample their receiver only when status is read
            clock.sleep(self.settle_s)
            status = driver.status()
            expect(status.data_ready, "the module has started up, but reports that its data are not valid")
            expect(status.rx_los is los, f"LOS is {status.rx_los} at {power_dbm} dBm")

    def test_received_power_is_a_number_or_none(self, driver: Transponder, receive_dbm: Receive, clock: Clock) -> None:
        """Bright light is measured within the accuracy; darkness reads ``None`` or a very small power."""
        receive_dbm(self.bright_dbm)
        driver.monitors()
        clock.sleep(self.settle_s)
        bright = driver.monitors().rx_power_dbm
        expect(
            bright is not None and abs(bright - self.bright_dbm) <= self.accuracy_db,
            f"{self.bright_dbm:g} dBm is read as {bright} dBm",
        )
        receive_dbm(None)
        driver.monitors()
        clock.sleep(self.settle_s)
        dark = driver.monitors().rx_power_dbm
        expect(dark is None or (math.isfinite(dark) and dark < self.dim_dbm + 3.0), f"darkness is read as {dark} dBm")

    def test_monitors_are_finite_and_dated(self, driver: Transponder, clock: Clock) -> None:
        """Temperature, supply voltage and bias are plausible."""
        before_s = clock.now()
        monitors, status = driver.monitors(), driver.status()
        temperature_c, supply_v = monitors.temperature_c, monitors.supply_v
        expect(temperature_c is None or -60.0 < temperature_c < 130.0, f"the case temperature is {temperature_c} °C")
        expect(supply_v is None or 2.5 < supply_v < 6.0, f"the supply voltage is {supply_v} V")
        bias_ma = monitors.tx_bias_ma
        expect(bias_ma is None or 0.0 <= bias_ma < 1000.0, f"the laser bias is {bias_ma} mA")
        times_s = [before_s, monitors.timestamp_s, status.timestamp_s, clock.now()]
        expect(times_s == sorted(times_s), f"the times are not on the host's clock: {times_s}")

    # -- sharing and closing

    @on_wires_only
    def test_two_threads_share_the_driver(self, driver: Transponder, receive_dbm: Receive, clock: Clock) -> None:
        """Two threads get the bytes that they read themselves."""
        receive_dbm(self.bright_dbm)
        driver.monitors()
        clock.sleep(self.settle_s)
        identity = driver.identify()

        def identify() -> None:
            for _ in range(_SHARED_ROUNDS):
                expect(driver.identify() == identity, "the identity changed while another thread read the monitors")

        def monitor() -> None:
            for _ in range(_SHARED_ROUNDS):
                power_dbm = driver.monitors().rx_power_dbm
                expect(
                    power_dbm is not None and abs(power_dbm - self.bright_dbm) <= self.accuracy_db,
                    f"the received power became {power_dbm} dBm while another thread read the identity",
                )

        run_parallel(clock, identify, monitor)

    def test_closing_leaves_the_transmitter_as_it_is(
        self, driver: Transponder, launched_w: Callable[[], float]
    ) -> None:
        """``close`` does not change the transmitter."""
        driver.enable()
        before_w = launched_w()
        driver.close()
        expect(launched_w() == before_w > 0.0, "close() changed the transmitter")
