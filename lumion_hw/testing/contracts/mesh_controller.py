"""Contract tests for mesh controllers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from lumion_hw.clock import Clock
from lumion_hw.errors import BadValueError, ConfigError, LimitError, LinkError, NotSupportedError, SafetyError
from lumion_hw.interfaces import ControllerLimits, MeshController
from lumion_hw.testing.contracts.common import (
    expect,
    expect_error,
    fail_without_fixture,
    on_wires,
    on_wires_only,
    run_parallel,
    skip_without_fixture,
)
from lumion_hw.testing.contracts.mesh_streams import MeshStreamContract
from lumion_hw.testing.contracts.mesh_tables import allowed_table, power_mw, reads_back, reads_zero, tolerance_ma

_SHARED_ROUNDS = 25


def _read_monitors_or_table(driver: MeshController) -> object:
    return driver.read_monitors() if driver.info.n_monitors else driver.read_back()


class MeshControllerContract(MeshStreamContract):
    """Contract tests for :class:`~lumion_hw.interfaces.MeshController`.

    A call that needs a capability not listed in ``info`` must raise a ``NotSupportedError`` that names the call.

    Required fixtures: ``driver`` (open, not yet configured) and ``limits``. Optional: ``driven_ma``,
    ``output_history_ma``, ``saturate``, ``heater_and_monitor``, ``hold_fault``, and those of :class:`DeviceContract`.
    """

    calls: ClassVar[Mapping[str, Callable[[Any], object]]] = {
        "program": lambda driver: driver.program(np.zeros(driver.info.n_heaters)),
        "read_back": lambda driver: driver.read_back(),
        "read_monitors": _read_monitors_or_table,
        "faults": lambda driver: driver.faults(),
        "clear_fault": lambda driver: driver.clear_fault(1),
    }

    def observe(self, driver: Any) -> object:
        """Read back the heater currents, and return them with their tolerance."""
        return driver.read_back(), driver.info.readback_tolerance_ma

    def agree(self, before: Any, after: Any) -> bool:
        """Return whether two readings of the heater currents agree within the tolerance."""
        (value, tolerance), (other, _) = before, after
        return bool(np.all(np.abs(value - other) <= 2.0 * tolerance))

    # -- fixtures of the author

    @pytest.fixture
    def driver(self) -> MeshController:
        """An open driver, not yet configured."""
        fail_without_fixture("driver", "an open MeshController, not yet configured, closed again after the test")

    @pytest.fixture
    def limits(self) -> ControllerLimits:
        """Limits that the controller accepts and that let at least two heaters carry current."""
        fail_without_fixture("limits", "ControllerLimits that the controller accepts")

    @pytest.fixture
    def driven_ma(self) -> Callable[[], NDArray[np.float64]]:
        """A function that measures the actual output currents in mA, shape ``(n_heaters,)``, without the driver."""
        skip_without_fixture("driven_ma", "a function that measures the actual output currents without the driver")

    @pytest.fixture
    def output_history_ma(self) -> Callable[[], list[NDArray[np.float64]]]:
        """A function that returns all heater currents set since its last call, without using the driver."""
        skip_without_fixture("output_history_ma", "a function that returns all tables driven since its last call")

    @pytest.fixture
    def saturate(self) -> Callable[[], int]:
        """A function that overloads one monitor and returns its number."""
        skip_without_fixture("saturate", "a function that drives one monitor above full scale and returns its number")

    @pytest.fixture
    def hold_fault(self) -> Callable[[bool], None]:
        """A function that creates a lasting cause of a fault (``True``) or removes it (``False``)."""
        skip_without_fixture("hold_fault", "a function that creates (True) or removes (False) the cause of a fault")

    @pytest.fixture
    def controller(self, driver: MeshController, limits: ControllerLimits) -> MeshController:
        """The driver with its limits applied."""
        driver.configure(limits)
        return driver

    # -- identity and limits

    def test_identity_and_channels_are_reported(self, driver: MeshController) -> None:
        """``info`` contains model, serial number, firmware and channel counts."""
        info = driver.info
        expect(all((info.model, info.serial, info.firmware)), f"model, serial or firmware is empty: {info}")
        expect(info.n_heaters > 0 and info.n_monitors >= 0, f"the channel counts are invalid: {info}")
        expect(
            0 < info.current_step_ma < info.current_full_scale_ma, f"the current step must be below full scale: {info}"
        )

    def test_configuring_again_leaves_the_heaters_unchanged(
        self, controller: MeshController, limits: ControllerLimits
    ) -> None:
        """Applying the same configuration again does not change the outputs."""
        controller.program(allowed_table(limits))
        before = controller.read_back()
        controller.configure(limits)
        expect(reads_back(controller, before), "applying the same configuration again changed the outputs")

    def test_a_limit_it_cannot_express_is_refused(self, driver: MeshController, limits: ControllerLimits) -> None:
        """Limits that are above full scale, negative or NaN are rejected."""
        for value in (2.0 * driver.info.current_full_scale_ma, -1.0, float("nan")):
            wrong = limits.heater_max_ma.copy()
            wrong[-1] = value
            bad_limits = replace(limits, heater_max_ma=wrong)
            expect_error(LimitError, f"a limit of {value:g} mA", partial(driver.configure, bad_limits))

    @pytest.mark.parametrize("excess", [1.02, -0.1, np.nan, np.inf, -np.inf])
    def test_a_current_outside_its_limit_is_refused_and_nothing_changes(
        self, controller: MeshController, limits: ControllerLimits, excess: float
    ) -> None:
        """One invalid current rejects all; the error names the channel, and no output changes."""
        controller.program(allowed_table(limits))
        before = controller.read_back()
        channel = int(np.flatnonzero(limits.heater_max_ma)[-1])
        table = allowed_table(limits, 0.5)
        table[channel] = excess * limits.heater_max_ma[channel]
        error = expect_error(LimitError, f"{table[channel]:g} mA", lambda: controller.program(table))
        expect(str(channel) in str(error), f"the error does not name channel {channel}: {error}")
        expect(error.unit == "mA", f"the unit of the error is {error.unit}, not mA")
        expect(reads_back(controller, before), "a rejected table changed outputs")

    def test_the_largest_allowed_current_is_allowed(self, controller: MeshController, limits: ControllerLimits) -> None:
        """A current equal to its limit is accepted."""
        table = np.zeros(len(limits.heater_max_ma))
        channel = int(np.flatnonzero(limits.heater_max_ma)[0])
        table[channel] = limits.heater_max_ma[channel]
        if power_mw(table, limits) > limits.total_power_mw:
            pytest.skip("with these limits a single heater exceeds the power cap")
        controller.program(table)

    def test_a_table_above_the_power_cap_is_refused_and_nothing_changes(
        self, controller: MeshController, limits: ControllerLimits
    ) -> None:
        """Currents with too much total power are rejected, and no output changes."""
        if power_mw(limits.heater_max_ma, limits) <= 1.01 * limits.total_power_mw:
            pytest.skip("the heater limits alone keep the total below the power cap")
        controller.program(allowed_table(limits))
        before = controller.read_back()
        error = expect_error(
            LimitError, "all heaters at their limits", lambda: controller.program(limits.heater_max_ma)
        )
        expect(
            "nothing was sent" in str(error), f"the driver must check the power cap before it sends the table: {error}"
        )
        expect(reads_back(controller, before), "a rejected table changed outputs")

    def test_a_table_of_the_wrong_length_is_refused(self, controller: MeshController) -> None:
        """A call needs one current per heater."""
        n_heaters = controller.info.n_heaters
        for shape in ((n_heaters - 1,), (n_heaters + 1,), (1, n_heaters)):
            expect_error(ConfigError, f"shape {shape}", partial(controller.program, np.zeros(shape)))

    def test_a_table_that_is_not_of_plain_numbers_is_refused(
        self, controller: MeshController, limits: ControllerLimits
    ) -> None:
        """Masked, complex, text and boolean values are rejected."""
        table = allowed_table(limits)
        controller.program(table)
        before = controller.read_back()
        wrong: dict[str, Any] = {
            "masked": np.ma.array(table, mask=np.arange(len(table)) == 1),
            "complex": table + 0j,
            "text": table.astype(str),
            "objects": np.array([None] * len(table)),
            "truth values": table > 0.0,
            "ragged": [[1.0, 2.0]] + [1.0] * (len(table) - 1),
        }
        for kind, values in wrong.items():
            error = expect_error(ConfigError, kind, partial(controller.program, values))
            expect("number" in str(error), f"{kind}: the error does not say that numbers are needed: {error}")
        expect(reads_back(controller, before), "a rejected table changed outputs")

    # -- programming

    def test_what_is_programmed_is_read_back(self, controller: MeshController, limits: ControllerLimits) -> None:
        """``read_back`` returns the currents that were set, within one step or the read-back tolerance."""
        if not controller.info.readback:
            error = expect_error(NotSupportedError, "read_back() without a read-back", controller.read_back)
            expect("read_back" in str(error), f"the error does not name read_back: {error}")
            return
        for fraction in (1.0, 0.4):
            table = allowed_table(limits, fraction)
            controller.program(table)
            error_ma = np.abs(controller.read_back() - table)
            worst = int(np.argmax(error_ma))
            expect(
                bool(error_ma[worst] <= tolerance_ma(controller.info)),
                f"channel {worst}: programmed {table[worst]:g} mA, the read-back differs by {error_ma[worst]:g} mA",
            )

    def test_what_is_programmed_is_driven(
        self, controller: MeshController, limits: ControllerLimits, driven_ma: Callable[[], NDArray[np.float64]]
    ) -> None:
        """The outputs carry the currents when ``program`` returns."""
        table = allowed_table(limits)
        controller.program(table)
        expect(
            np.allclose(driven_ma(), table, rtol=0.0, atol=controller.info.current_step_ma),
            "the outputs do not carry the confirmed table",
        )

    def test_outputs_change_at_one_edge_or_each_straight_from_old_to_new(
        self,
        controller: MeshController,
        limits: ControllerLimits,
        output_history_ma: Callable[[], list[NDArray[np.float64]]],
    ) -> None:
        """An atomic controller changes all outputs at once; any other changes each output in one step."""
        old, new = allowed_table(limits, 0.4), allowed_table(limits)
        controller.program(old)
        output_history_ma()
        controller.program(new)
        tables = np.array(output_history_ma())
        expect(len(tables) > 0, "a new table was programmed, but the outputs never changed")
        step_ma = controller.info.current_step_ma
        is_new = np.abs(tables - new) <= step_ma
        expect(bool(is_new[-1].all()), "the outputs do not carry the confirmed table")
        if controller.info.atomic:
            expect(
                bool(is_new.all()), f"an atomic controller passed through {len(tables)} tables instead of one change"
            )
        is_old = np.abs(tables - old) <= step_ma
        expect(bool(np.all(is_new | is_old)), "an output had a current that was neither old nor new")

    def test_the_generation_grows_with_every_table(
        self, controller: MeshController, limits: ControllerLimits, clock: Clock
    ) -> None:
        """The number of each receipt is larger than the last; equal currents have equal checksums."""
        before_s = clock.now()
        table = allowed_table(limits)
        receipts = [controller.program(currents) for currents in (table, 0.5 * table, table)]
        numbers = [receipt.number for receipt in receipts]
        expect(numbers == sorted(set(numbers)), f"generation numbers do not increase: {numbers}")
        checksums = [receipt.crc32 for receipt in receipts]
        expect(checksums[0] == checksums[2] != checksums[1], f"checksums do not match the tables: {checksums}")
        times_s = [before_s, *(receipt.timestamp_s for receipt in receipts), clock.now()]
        expect(times_s == sorted(times_s), f"receipt times are not on the host's clock: {times_s}")

    # -- monitors

    def test_monitors_are_numbers_within_full_scale(
        self, controller: MeshController, limits: ControllerLimits, clock: Clock
    ) -> None:
        """A reading has one photocurrent in mA per monitor, which is NaN exactly where saturated."""
        if not controller.info.n_monitors:
            error = expect_error(NotSupportedError, "read_monitors() without monitors", controller.read_monitors)
            expect("read_monitors" in str(error), f"the error does not name read_monitors: {error}")
            return
        receipt = controller.program(allowed_table(limits))
        before_s = clock.now()
        for n_avg in (1, 4):
            reading = controller.read_monitors(n_avg)
            shape = (controller.info.n_monitors,)
            expect(
                reading.photocurrent_ma.shape == shape == reading.saturated.shape,
                f"shapes {reading.photocurrent_ma.shape} and {reading.saturated.shape}, not {shape}",
            )
            expect(
                np.array_equal(np.isnan(reading.photocurrent_ma), reading.saturated),
                "NaN values and the saturation mask do not match",
            )
            numbers = reading.photocurrent_ma[~reading.saturated]
            largest_ma = controller.info.monitor_full_scale_ma or np.inf
            expect(bool(np.all(np.abs(numbers) <= largest_ma)), f"photocurrents above {largest_ma:g} mA: {numbers}")
            expect(
                reading.generation == receipt.number,
                f"the scan has generation {reading.generation}, but {receipt.number} is active",
            )
            expect(before_s <= reading.timestamp_s <= clock.now(), "the scan time is not on the host's clock")

    def test_a_saturated_monitor_is_not_a_number(
        self, controller: MeshController, request: pytest.FixtureRequest
    ) -> None:
        """A saturated monitor reads NaN and is marked saturated."""
        if not controller.info.n_monitors:
            expect_error(NotSupportedError, "read_monitors() without monitors", controller.read_monitors)
            return
        monitor = request.getfixturevalue("saturate")()
        reading = controller.read_monitors()
        expect(bool(reading.saturated[monitor]), f"monitor {monitor} is above full scale, but not marked as saturated")
        expect(bool(np.isnan(reading.photocurrent_ma[monitor])), f"monitor {monitor} is saturated, but has a value")

    def test_no_scans_have_no_average(self, controller: MeshController) -> None:
        """Averaging fewer than one scan is rejected."""
        kind = LimitError if controller.info.n_monitors else NotSupportedError
        for n_avg in (0, -1):
            expect_error(kind, f"n_avg={n_avg}", partial(controller.read_monitors, n_avg))

    # -- faults and the safe state

    def test_a_healthy_controller_has_no_latched_fault(self, controller: MeshController) -> None:
        """After configuration no fault is latched."""
        latched = [fault for fault in controller.faults() if fault.latched]
        expect(not latched, f"the controller has latched faults after configuration: {latched}")

    def test_a_stopped_controller_stays_off_until_its_fault_is_cleared(
        self, controller: MeshController, limits: ControllerLimits
    ) -> None:
        """``outputs_off`` switches all currents off and latches a fault; ``program`` fails until it is cleared."""
        table = allowed_table(limits)
        controller.program(table)
        controller.outputs_off()
        expect(reads_zero(controller), "outputs_off() left currents on")
        latched = [fault for fault in controller.faults() if fault.latched]
        expect(bool(latched), "outputs_off() latched no fault")
        expect_error(SafetyError, "program() with a latched fault", lambda: controller.program(table))
        expect(reads_zero(controller), "a rejected table switched currents on")
        unknown = latched[-1].fault_id + 999_999
        expect_error(BadValueError, "clearing an unknown fault id", lambda: controller.clear_fault(unknown))
        wrong: Any
        for wrong in (True, float(latched[-1].fault_id), str(latched[-1].fault_id)):
            expect_error(BadValueError, f"clearing the id {wrong!r}", partial(controller.clear_fault, wrong))
        expect(
            [fault for fault in controller.faults() if fault.latched] == latched,
            "clearing an unknown fault id cleared a fault",
        )
        for fault in latched:
            controller.clear_fault(fault.fault_id)
        latched = [fault for fault in controller.faults() if fault.latched]
        expect(not latched, f"a cleared fault is still latched: {latched}")
        expect(reads_zero(controller), "clearing a fault switched outputs on")
        controller.program(table)
        expect(not reads_zero(controller), "program() drives no current after the fault was cleared")

    def test_a_stopped_controller_can_be_stopped_again(self, controller: MeshController) -> None:
        """``outputs_off`` works in every state."""
        controller.outputs_off()
        controller.outputs_off()
        expect(reads_zero(controller), "outputs_off() left currents on")

    def test_a_fault_whose_cause_is_present_cannot_be_cleared(
        self, controller: MeshController, limits: ControllerLimits, hold_fault: Callable[[bool], None]
    ) -> None:
        """While the cause of a fault persists, setting currents and clearing the fault fail."""
        table = allowed_table(limits)
        controller.program(table)
        hold_fault(True)
        if controller.info.watchdog:
            expect(reads_zero(controller), "a controller with a latched fault still drives currents")
        fault = [fault for fault in controller.faults() if fault.latched][-1]
        expect(fault.present, f"the cause persists, but the controller reports it as absent: {fault}")
        expect_error(SafetyError, "program() with a latched fault", lambda: controller.program(0.5 * table))
        expect_error(
            SafetyError, "clearing a fault whose cause persists", lambda: controller.clear_fault(fault.fault_id)
        )
        hold_fault(False)
        controller.clear_fault(fault.fault_id)
        controller.program(table)

    # -- sharing and closing

    @on_wires_only
    def test_two_threads_share_the_driver(
        self, controller: MeshController, limits: ControllerLimits, clock: Clock
    ) -> None:
        """While one thread sets currents, another reads back only complete settings."""
        tables = [allowed_table(limits), allowed_table(limits, 0.5)]
        codes = []
        for table in tables:
            controller.program(table)
            codes.append(self.observe(controller))

        def program() -> None:
            for round_ in range(_SHARED_ROUNDS):
                controller.program(tables[round_ % 2])

        def read() -> None:
            for _ in range(_SHARED_ROUNDS):
                table = self.observe(controller)
                is_programmed = any(self.agree(code, table) for code in codes)
                expect(is_programmed, "the read-back is a table that was never programmed")
                _read_monitors_or_table(controller)

        run_parallel(clock, program, read)

    def test_closing_brings_the_outputs_to_zero(
        self, controller: MeshController, limits: ControllerLimits, driven_ma: Callable[[], NDArray[np.float64]]
    ) -> None:
        """``close`` switches all currents off."""
        controller.program(allowed_table(limits))
        controller.close()
        expect(not driven_ma().any(), "close() left currents on")

    def test_a_closed_controller_cannot_be_configured(
        self, controller: MeshController, limits: ControllerLimits
    ) -> None:
        """``configure`` fails after ``close``."""
        controller.close()
        expect_error(LinkError, "configure() after close()", lambda: controller.configure(limits))
        other = replace(limits, watchdog_s=2.0 * limits.watchdog_s)
        expect_error(LinkError, "configure() after close()", lambda: controller.configure(other))

    @on_wires
    def test_stopping_an_unplugged_controller_raises_a_link_error_in_time(
        self, controller: MeshController, unplug: Callable[[], None], clock: Clock, slack_s: float
    ) -> None:
        """``outputs_off`` raises ``LinkError`` if the controller cannot be reached."""
        unplug()
        started = clock.now()
        expect_error(LinkError, "outputs_off() of an unplugged controller", controller.outputs_off)
        expect(clock.now() - started <= self.deadline_s + slack_s, "outputs_off() took longer than the deadline")
