"""What a mesh controller promises: limits, atomic tables, honest readings, and a safe state that is left by name."""

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
    fail_without_fixture,
    on_wires,
    on_wires_only,
    promised,
    refused,
    run_parallel,
    skip_without_fixture,
)
from lumion_hw.testing.contracts.mesh_streams import MeshStreamPromises
from lumion_hw.testing.contracts.mesh_tables import allowed_table, power_mw, reads, reads_zero, tolerance_ma

_SHARED_ROUNDS = 25


def _read_something(driver: MeshController) -> object:
    """Read the monitors, or the table of a controller without monitors: its refusal needs no device."""
    return driver.read_monitors() if driver.info.n_monitors else driver.read_back()


class MeshControllerContract(MeshStreamPromises):
    """Promises of :class:`~lumion_hw.interfaces.MeshController`.

    What a controller says of itself in ``info`` decides: what it can has to be delivered, what it cannot has to be
    refused by a ``NotSupportedError`` that names the call.

    Fixtures to give: ``driver`` (open, not yet configured) and ``limits``. Optional: ``driven_ma``, ``carried_ma``,
    ``saturate``, ``lever``, ``hold_fault``, and those of :class:`DeviceContract`.
    """

    calls: ClassVar[Mapping[str, Callable[[Any], object]]] = {
        "program": lambda driver: driver.program(np.zeros(driver.info.n_heaters)),
        "read_back": lambda driver: driver.read_back(),
        "read_monitors": _read_something,
        "faults": lambda driver: driver.faults(),
        "clear_fault": lambda driver: driver.clear_fault(1),
    }

    def observe(self, driver: Any) -> object:
        """Return the table driven now, and how far a reading of it may be off."""
        return driver.read_back(), driver.info.readback_tolerance_ma

    def agree(self, before: Any, after: Any) -> bool:
        """Tell whether two tables read back are the same, as far as the controller reads."""
        (one, tolerance), (other, _) = before, after
        return bool(np.all(np.abs(one - other) <= 2.0 * tolerance))

    # -- what the author gives

    @pytest.fixture
    def driver(self) -> MeshController:
        """An open driver, not yet configured."""
        fail_without_fixture("driver", "an open MeshController, not yet configured, closed again after the test")

    @pytest.fixture
    def limits(self) -> ControllerLimits:
        """Limits the controller accepts; at least two heaters may be driven."""
        fail_without_fixture("limits", "ControllerLimits that the controller accepts")

    @pytest.fixture
    def driven_ma(self) -> Callable[[], NDArray[np.float64]]:
        """Tells what the outputs really carry, past the driver: mA, shape ``(n_heaters,)``."""
        skip_without_fixture(
            "driven_ma", "a function that returns what the outputs really carry, measured past the driver"
        )

    @pytest.fixture
    def carried_ma(self) -> Callable[[], list[NDArray[np.float64]]]:
        """Tells which tables the outputs have carried one after the other since it was asked last, past the driver."""
        skip_without_fixture(
            "carried_ma", "a function that returns all tables the outputs carried since it was called last"
        )

    @pytest.fixture
    def saturate(self) -> Callable[[], int]:
        """Brings one monitor above its full scale and returns its number."""
        skip_without_fixture("saturate", "a function that brings one monitor above full scale and returns its number")

    @pytest.fixture
    def hold_fault(self) -> Callable[[bool], None]:
        """``True`` makes the controller trip on a cause that stays, ``False`` takes the cause away."""
        skip_without_fixture("hold_fault", "a function that makes (True) and ends (False) the cause of a fault")

    @pytest.fixture
    def controller(self, driver: MeshController, limits: ControllerLimits) -> MeshController:
        """The driver with its limits applied."""
        driver.configure(limits)
        return driver

    # -- identity and limits

    def test_it_says_who_it_is_and_what_it_has(self, driver: MeshController) -> None:
        """``info`` names model and serial number, and the channels there are."""
        info = driver.info
        promised(all((info.model, info.serial, info.firmware)), f"model, serial or firmware is empty: {info}")
        promised(info.n_heaters > 0 and info.n_monitors >= 0, f"these are no numbers of channels: {info}")
        promised(0 < info.current_step_ma < info.current_full_scale_ma, f"step and full scale do not fit: {info}")

    def test_configuring_it_the_same_again_leaves_the_heaters_alone(
        self, controller: MeshController, limits: ControllerLimits
    ) -> None:
        """A controller that already has this configuration is left alone."""
        controller.program(allowed_table(limits))
        before = controller.read_back()
        controller.configure(limits)
        promised(reads(controller, before), "configuring it the same again changed the outputs")

    def test_a_limit_it_cannot_express_is_refused(self, driver: MeshController, limits: ControllerLimits) -> None:
        """Limits above full scale, or that are no numbers, are refused."""
        for value in (2.0 * driver.info.current_full_scale_ma, -1.0, float("nan")):
            wrong = limits.heater_max_ma.copy()
            wrong[-1] = value
            bad_limits = replace(limits, heater_max_ma=wrong)
            refused(LimitError, f"a limit of {value:g} mA", partial(driver.configure, bad_limits))

    @pytest.mark.parametrize("excess", [1.02, -0.1, np.nan, np.inf, -np.inf])
    def test_a_current_outside_its_limit_is_refused_and_nothing_changes(
        self, controller: MeshController, limits: ControllerLimits, excess: float
    ) -> None:
        """One wrong current refuses the whole table, names its channel, and leaves every output as it is."""
        controller.program(allowed_table(limits))
        before = controller.read_back()
        channel = int(np.flatnonzero(limits.heater_max_ma)[-1])
        table = allowed_table(limits, 0.5)
        table[channel] = excess * limits.heater_max_ma[channel]
        error = refused(LimitError, f"{table[channel]:g} mA", lambda: controller.program(table))
        promised(str(channel) in str(error), f"the refusal does not name channel {channel}: {error}")
        promised(error.unit == "mA", f"the refusal speaks in {error.unit}, the caller in mA")
        promised(reads(controller, before), "a refused table changed outputs")

    def test_the_largest_allowed_current_is_allowed(self, controller: MeshController, limits: ControllerLimits) -> None:
        """A limit belongs to what is allowed."""
        table = np.zeros(len(limits.heater_max_ma))
        channel = int(np.flatnonzero(limits.heater_max_ma)[0])
        table[channel] = limits.heater_max_ma[channel]
        if power_mw(table, limits) > limits.total_power_mw:
            pytest.skip("one heater alone breaks the power cap of these limits")
        controller.program(table)

    def test_a_table_above_the_power_cap_is_refused_and_nothing_changes(
        self, controller: MeshController, limits: ControllerLimits
    ) -> None:
        """The power cap holds for the whole table."""
        if power_mw(limits.heater_max_ma, limits) <= 1.01 * limits.total_power_mw:
            pytest.skip("the limits of the single heaters already keep to the power cap")
        controller.program(allowed_table(limits))
        before = controller.read_back()
        error = refused(LimitError, "all heaters at their limits", lambda: controller.program(limits.heater_max_ma))
        promised("nothing was sent" in str(error), f"the host can tell by itself, but asked the device: {error}")
        promised(reads(controller, before), "a refused table changed outputs")

    def test_a_table_of_the_wrong_length_is_refused(self, controller: MeshController) -> None:
        """There has to be one current per heater."""
        n_heaters = controller.info.n_heaters
        for shape in ((n_heaters - 1,), (n_heaters + 1,), (1, n_heaters)):
            refused(ConfigError, f"shape {shape}", partial(controller.program, np.zeros(shape)))

    def test_a_table_that_is_not_of_plain_numbers_is_refused(
        self, controller: MeshController, limits: ControllerLimits
    ) -> None:
        """A masked current is none, and the real part of a complex one is a guess: both are refused, not converted."""
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
            error = refused(ConfigError, kind, partial(controller.program, values))
            promised("number" in str(error), f"{kind}: the refusal does not say that numbers are needed: {error}")
        promised(reads(controller, before), "a refused table changed outputs")

    # -- programming

    def test_what_is_programmed_is_read_back(self, controller: MeshController, limits: ControllerLimits) -> None:
        """The driven table is the one programmed, on every channel, to one step or to what measuring is good for."""
        if not controller.info.readback:
            error = refused(NotSupportedError, "read_back() without a read-back", controller.read_back)
            promised("read_back" in str(error), f"the refusal does not name read_back: {error}")
            return
        for fraction in (1.0, 0.4):
            table = allowed_table(limits, fraction)
            controller.program(table)
            error_ma = np.abs(controller.read_back() - table)
            worst = int(np.argmax(error_ma))
            promised(
                bool(error_ma[worst] <= tolerance_ma(controller.info)),
                f"channel {worst}: {table[worst]:g} mA was programmed, the read-back is off by {error_ma[worst]:g} mA",
            )

    def test_what_is_programmed_is_driven(
        self,
        controller: MeshController,
        limits: ControllerLimits,
        driven_ma: Callable[[], NDArray[np.float64]],
    ) -> None:
        """The outputs carry the table once ``program`` has returned."""
        table = allowed_table(limits)
        controller.program(table)
        promised(
            np.allclose(driven_ma(), table, rtol=0.0, atol=controller.info.current_step_ma),
            "the outputs do not carry the table that was confirmed",
        )

    def test_outputs_change_at_one_edge_or_each_straight_from_old_to_new(
        self,
        controller: MeshController,
        limits: ControllerLimits,
        carried_ma: Callable[[], list[NDArray[np.float64]]],
    ) -> None:
        """Atomic: there is nothing between two tables. Otherwise every output carries its old or its new current."""
        old, new = allowed_table(limits, 0.4), allowed_table(limits)
        controller.program(old)
        carried_ma()
        controller.program(new)
        tables = np.array(carried_ma())
        promised(len(tables) > 0, "a new table was programmed, the outputs never changed")
        step_ma = controller.info.current_step_ma
        is_new = np.abs(tables - new) <= step_ma
        promised(bool(is_new[-1].all()), "the outputs do not carry the table that was confirmed")
        if controller.info.atomic:
            promised(bool(is_new.all()), f"{len(tables)} tables were carried on the way, one edge was promised")
        is_old = np.abs(tables - old) <= step_ma
        promised(bool(np.all(is_new | is_old)), "an output carried a third current in between")

    def test_the_generation_grows_with_every_table(
        self, controller: MeshController, limits: ControllerLimits, clock: Clock
    ) -> None:
        """Every table has a receipt of its own; the same table twice has the same checksum."""
        before_s = clock.now()
        table = allowed_table(limits)
        receipts = [controller.program(each) for each in (table, 0.5 * table, table)]
        numbers = [receipt.number for receipt in receipts]
        promised(numbers == sorted(set(numbers)), f"generation numbers do not grow: {numbers}")
        checksums = [receipt.crc32 for receipt in receipts]
        promised(checksums[0] == checksums[2] != checksums[1], f"checksums do not belong to the tables: {checksums}")
        times_s = [before_s, *(receipt.timestamp_s for receipt in receipts), clock.now()]
        promised(times_s == sorted(times_s), f"receipts are not dated by the host's clock: {times_s}")

    # -- monitors

    def test_monitors_are_numbers_within_full_scale(
        self, controller: MeshController, limits: ControllerLimits, clock: Clock
    ) -> None:
        """One finite photocurrent in mA per monitor, NaN exactly where ``saturated``, of the table driven now."""
        if not controller.info.n_monitors:
            error = refused(NotSupportedError, "read_monitors() without monitors", controller.read_monitors)
            promised("read_monitors" in str(error), f"the refusal does not name read_monitors: {error}")
            return
        receipt = controller.program(allowed_table(limits))
        before_s = clock.now()
        for n_avg in (1, 4):
            reading = controller.read_monitors(n_avg)
            shape = (controller.info.n_monitors,)
            promised(
                reading.photocurrent_ma.shape == shape == reading.saturated.shape,
                f"shapes {reading.photocurrent_ma.shape} and {reading.saturated.shape}, not {shape}",
            )
            promised(
                np.array_equal(np.isnan(reading.photocurrent_ma), reading.saturated),
                "NaN and the mask of saturated monitors do not agree",
            )
            numbers = reading.photocurrent_ma[~reading.saturated]
            largest_ma = controller.info.monitor_full_scale_ma or np.inf
            promised(bool(np.all(np.abs(numbers) <= largest_ma)), f"photocurrents above {largest_ma:g} mA: {numbers}")
            promised(
                reading.generation == receipt.number,
                f"the scan is of generation {reading.generation}, {receipt.number} is driven",
            )
            promised(before_s <= reading.timestamp_s <= clock.now(), "the scan is not dated by the host's clock")

    def test_a_saturated_monitor_is_not_a_number(
        self, controller: MeshController, request: pytest.FixtureRequest
    ) -> None:
        """Above full scale the value is unknown: NaN and ``saturated``, never the full scale."""
        if not controller.info.n_monitors:
            refused(NotSupportedError, "read_monitors() without monitors", controller.read_monitors)
            return
        monitor = request.getfixturevalue("saturate")()
        reading = controller.read_monitors()
        promised(bool(reading.saturated[monitor]), f"monitor {monitor} is above full scale and not marked")
        promised(bool(np.isnan(reading.photocurrent_ma[monitor])), f"monitor {monitor} is marked and has a value")

    def test_no_scans_have_no_average(self, controller: MeshController) -> None:
        """An average of fewer than one scan is refused."""
        kind = LimitError if controller.info.n_monitors else NotSupportedError
        for n_avg in (0, -1):
            refused(kind, f"n_avg={n_avg}", partial(controller.read_monitors, n_avg))

    # -- faults and the safe state

    def test_a_healthy_controller_has_no_latched_fault(self, controller: MeshController) -> None:
        """Nothing that happened before the configuration keeps a healthy controller from working."""
        latched = [fault for fault in controller.faults() if fault.latched]
        promised(not latched, f"latched faults on a controller that was only configured: {latched}")

    def test_stopped_it_stays_off_until_the_fault_is_cleared_by_its_id(
        self, controller: MeshController, limits: ControllerLimits
    ) -> None:
        """``outputs_off`` brings zeros and latches a fault; programming is refused until it is cleared by its id."""
        table = allowed_table(limits)
        controller.program(table)
        controller.outputs_off()
        promised(reads_zero(controller), "outputs_off() left currents driven")
        latched = [fault for fault in controller.faults() if fault.latched]
        promised(bool(latched), "outputs_off() latched no fault")
        refused(SafetyError, "program() with a latched fault", lambda: controller.program(table))
        promised(reads_zero(controller), "a table refused for safety drives currents")
        unknown = latched[-1].fault_id + 999_999
        refused(BadValueError, "clearing an id that no fault was given", lambda: controller.clear_fault(unknown))
        wrong: Any
        for wrong in (True, float(latched[-1].fault_id), str(latched[-1].fault_id)):
            refused(BadValueError, f"clearing the id {wrong!r}", partial(controller.clear_fault, wrong))
        promised(
            [fault for fault in controller.faults() if fault.latched] == latched,
            "clearing an id that no fault was given cleared a fault",
        )
        for fault in latched:
            controller.clear_fault(fault.fault_id)
        latched = [fault for fault in controller.faults() if fault.latched]
        promised(not latched, f"still latched after it was cleared by its id: {latched}")
        promised(reads_zero(controller), "clearing a fault switched outputs on")
        controller.program(table)
        promised(not reads_zero(controller), "nothing is driven after the fault was cleared")

    def test_a_stopped_controller_can_be_stopped_again(self, controller: MeshController) -> None:
        """``outputs_off`` works whatever the state."""
        controller.outputs_off()
        controller.outputs_off()
        promised(reads_zero(controller), "outputs_off() left currents driven")

    def test_a_fault_whose_cause_is_present_cannot_be_cleared(
        self, controller: MeshController, limits: ControllerLimits, hold_fault: Callable[[bool], None]
    ) -> None:
        """Neither a new table nor clearing while the cause is there; with a watchdog the outputs go to zero."""
        table = allowed_table(limits)
        controller.program(table)
        hold_fault(True)
        if controller.info.watchdog:
            promised(reads_zero(controller), "a tripped controller drives currents")
        fault = [fault for fault in controller.faults() if fault.latched][-1]
        promised(fault.present, f"the cause is there, but not for the controller: {fault}")
        refused(SafetyError, "program() with a latched fault", lambda: controller.program(0.5 * table))
        refused(SafetyError, "clearing it while the cause is there", lambda: controller.clear_fault(fault.fault_id))
        hold_fault(False)
        controller.clear_fault(fault.fault_id)
        controller.program(table)

    # -- sharing and closing

    @on_wires_only
    def test_two_threads_share_it(self, controller: MeshController, limits: ControllerLimits, clock: Clock) -> None:
        """While one thread programs, another reads back whole tables only, and monitors of driven generations."""
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
                found = self.observe(controller)
                whole = any(self.agree(each, found) for each in codes)
                promised(whole, "a table was read back that nobody programmed")
                _read_something(controller)

        run_parallel(clock, program, read)

    def test_closing_brings_the_outputs_to_zero(
        self,
        controller: MeshController,
        limits: ControllerLimits,
        driven_ma: Callable[[], NDArray[np.float64]],
    ) -> None:
        """``close`` leaves no current behind."""
        controller.program(allowed_table(limits))
        controller.close()
        promised(not driven_ma().any(), "close() left currents driven")

    def test_a_closed_controller_cannot_be_configured(
        self, controller: MeshController, limits: ControllerLimits
    ) -> None:
        """After ``close`` the limits are not taken as applied, whatever they were before."""
        controller.close()
        refused(LinkError, "configure() after close()", lambda: controller.configure(limits))
        other = replace(limits, watchdog_s=2.0 * limits.watchdog_s)
        refused(LinkError, "configure() after close()", lambda: controller.configure(other))

    @on_wires
    def test_stopping_an_unplugged_controller_raises_a_link_error_in_time(
        self, controller: MeshController, unplug: Callable[[], None], clock: Clock, slack_s: float
    ) -> None:
        """An emergency stop that did not arrive is an error, never silence."""
        unplug()
        started = clock.now()
        refused(LinkError, "outputs_off() of an unplugged controller", controller.outputs_off)
        promised(clock.now() - started <= self.deadline_s + slack_s, "outputs_off() took longer than the deadline")
