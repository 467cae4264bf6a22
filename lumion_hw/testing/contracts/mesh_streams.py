"""Contract tests for sweeps and streamed monitor readings of mesh controllers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from lumion_hw.clock import Clock
from lumion_hw.errors import ConfigError, LimitError, NotSupportedError
from lumion_hw.interfaces import ControllerLimits, MeshController, SweepPlan, TelemetrySample
from lumion_hw.testing.contracts.common import DeviceContract, expect, expect_error, skip_without_fixture
from lumion_hw.testing.contracts.mesh_tables import allowed_table, reads_back, tolerance_ma

_PERIOD_S = 0.02


def expect_unsupported(call: str, action: Callable[[], object]) -> None:
    """Fail the test unless an action raises a ``NotSupportedError`` that names the call."""
    error = expect_error(NotSupportedError, f"{call}() of a controller without this capability", action)
    expect(call in str(error), f"the error does not name {call}: {error}")
    expect(bool(error.device and error.address), f"the error does not name the device and its address: {error}")


def start_telemetry(
    controller: MeshController, period_s: float = _PERIOD_S, **choice: Any
) -> Iterator[TelemetrySample]:
    """Start a stream of monitor readings, wait for the first, and return the stream."""
    samples = controller.telemetry(period_s, **choice)
    return itertools.chain([next(samples)], samples)


class MeshStreamContract(DeviceContract):
    """Contract tests for ``sweep`` and ``telemetry``."""

    @pytest.fixture
    def heater_and_monitor(self) -> tuple[int, int]:
        """A heater, and a monitor whose photocurrent increases with the current of this heater."""
        skip_without_fixture("heater_and_monitor", "a heater and a monitor whose photocurrent rises with its current")

    # -- sweeps

    def test_a_sweep_records_every_point_and_leaves_what_was_driven(
        self, controller: MeshController, limits: ControllerLimits
    ) -> None:
        """A sweep returns a row per point and a column per monitor, and restores the heater currents."""
        table = allowed_table(limits, 0.5)
        receipt = controller.program(table)
        before = controller.read_back()
        plan = SweepPlan(_points(limits))
        if not controller.info.on_board_sweep:
            expect_unsupported("sweep", lambda: controller.sweep(plan))
        else:
            result = controller.sweep(plan)
            shape = (len(plan.points), controller.info.n_monitors)
            expect(
                result.photocurrent_ma.shape == shape == result.saturated.shape,
                f"shapes {result.photocurrent_ma.shape} and {result.saturated.shape}, not {shape}",
            )
            expect(
                np.array_equal(np.isnan(result.photocurrent_ma), result.saturated),
                "NaN values and the saturation mask do not match",
            )
            all_monitors = tuple(range(controller.info.n_monitors))
            expect(
                result.monitors == all_monitors, f"all monitors were requested, but the result has {result.monitors}"
            )
            expect(0 <= result.late <= len(plan.points), f"{result.late} of {len(plan.points)} points were late")
            expect(
                result.generation > receipt.number,
                f"the generation of the sweep is not above that of the last table: {result}",
            )
        expect(reads_back(controller, before), "the table after the sweep differs from the table before")

    def test_a_sweep_may_choose_its_monitors_and_keep_its_last_point(
        self, controller: MeshController, limits: ControllerLimits
    ) -> None:
        """The columns are the selected monitors in ascending order; with ``keep_last`` the last point stays on."""
        points, start = _points(limits), allowed_table(limits, 0.3)
        monitors = (controller.info.n_monitors - 1, 0)
        plan = SweepPlan(points, start_ma=start, monitors=monitors, keep_last=True)
        if not controller.info.on_board_sweep:
            expect_unsupported("sweep", lambda: controller.sweep(plan))
            return
        result = controller.sweep(plan)
        expect(result.monitors == tuple(sorted(set(monitors))), f"selected monitors {monitors}, got {result.monitors}")
        expect(result.photocurrent_ma.shape == (len(points), len(set(monitors))), f"wrong shape: {result}")
        for point in points:
            start[list(point)] = list(point.values())
        error_ma = np.abs(controller.read_back() - start)
        expect(bool(error_ma.max() <= tolerance_ma(controller.info)), "the last point of the sweep is not active")

    def test_every_row_of_a_sweep_belongs_to_its_point(
        self, controller: MeshController, limits: ControllerLimits, request: pytest.FixtureRequest
    ) -> None:
        """Each row belongs to its point: the photocurrents rise and fall with the heater currents."""
        if not controller.info.on_board_sweep:
            expect_unsupported("sweep", lambda: controller.sweep(SweepPlan(_points(limits))))
            return
        heater, monitor = request.getfixturevalue("heater_and_monitor")
        fractions = [0.2, 0.8, 0.4, 0.6, 0.0]
        top_ma = allowed_table(limits)[heater]
        result = controller.sweep(SweepPlan(tuple({heater: top_ma * fraction} for fraction in fractions)))
        photocurrents_ma = result.photocurrent_ma[:, monitor].tolist()
        order = sorted(range(len(fractions)), key=photocurrents_ma.__getitem__)
        expect(order == [4, 0, 2, 3, 1], f"heater current fractions {fractions} gave {photocurrents_ma} mA")

    def test_a_sweep_with_a_point_outside_the_limits_drives_nothing(
        self, controller: MeshController, limits: ControllerLimits
    ) -> None:
        """One current outside its limits rejects the whole sweep before it starts."""
        controller.program(allowed_table(limits))
        before = controller.read_back()
        heater = int(np.flatnonzero(limits.heater_max_ma)[-1])
        for wrong_ma in (1.02 * limits.heater_max_ma[heater], -0.1, float("nan")):
            plan = SweepPlan((*_points(limits), {heater: wrong_ma}))
            if controller.info.on_board_sweep:
                error = expect_error(LimitError, f"a point of {wrong_ma:g} mA", partial(controller.sweep, plan))
                expect(str(heater) in str(error), f"the error does not name heater {heater}: {error}")
            else:
                expect_unsupported("sweep", partial(controller.sweep, plan))
        expect(reads_back(controller, before), "a rejected sweep changed outputs")

    def test_an_invalid_sweep_is_rejected(self, controller: MeshController, limits: ControllerLimits) -> None:
        """A sweep without points or with an unknown heater or monitor is rejected."""
        kind = ConfigError if controller.info.on_board_sweep else NotSupportedError
        for wrong in (
            SweepPlan(()),
            SweepPlan(({controller.info.n_heaters: 0.0},)),
            SweepPlan(_points(limits), monitors=(controller.info.n_monitors,)),
        ):
            expect_error(kind, f"{wrong}", partial(controller.sweep, wrong))

    # -- telemetry

    def test_telemetry_comes_dated_in_order_and_counts_what_is_missing(
        self, controller: MeshController, limits: ControllerLimits, clock: Clock
    ) -> None:
        """Each reading has all monitors and names the present currents; lost readings are counted."""
        if not controller.info.telemetry:
            expect_unsupported("telemetry", lambda: start_telemetry(controller))
            return
        receipt = controller.program(allowed_table(limits))
        began_s = clock.now()
        with closing(cast("Any", controller.telemetry(_PERIOD_S))) as samples:
            first_samples = list(itertools.islice(samples, 4))
        for sample in first_samples:
            shape = (controller.info.n_monitors,)
            reading = sample.reading
            expect(reading.photocurrent_ma.shape == shape == reading.saturated.shape, f"wrong shape: {reading}")
            expect(
                np.array_equal(np.isnan(reading.photocurrent_ma), reading.saturated),
                "NaN values and the saturation mask do not match",
            )
            expect(reading.generation == receipt.number, f"generation {receipt.number} is active: {reading}")
            expect(sample.dropped >= 0 and sample.lost >= 0, f"a count of lost samples is negative: {sample}")
        times_s = [began_s, *(sample.reading.timestamp_s for sample in first_samples), clock.now()]
        expect(times_s == sorted(times_s), f"sample times are not on the host's clock: {times_s}")

    def test_telemetry_may_choose_its_monitors(self, controller: MeshController) -> None:
        """A stream of selected monitors has one column per monitor, in ascending order."""
        if not controller.info.telemetry:
            expect_unsupported("telemetry", lambda: start_telemetry(controller, monitors=(0,)))
            return
        monitors = (controller.info.n_monitors - 1, 0)
        with closing(cast("Any", controller.telemetry(_PERIOD_S, monitors=monitors))) as samples:
            photocurrent_ma: NDArray[np.float64] = next(samples).reading.photocurrent_ma
        expect(
            photocurrent_ma.shape == (len(set(monitors)),),
            f"selected monitors {monitors}, got shape {photocurrent_ma.shape}",
        )

    def test_other_calls_work_during_and_after_telemetry(
        self, controller: MeshController, limits: ControllerLimits
    ) -> None:
        """Other calls work during and after a stream; later readings name newly set currents."""
        if not controller.info.telemetry:
            expect_unsupported("telemetry", lambda: start_telemetry(controller))
            controller.program(allowed_table(limits))
            return
        for fraction in (0.3, 0.6):
            with closing(cast("Any", controller.telemetry(_PERIOD_S))) as samples:
                next(samples)
                receipt = controller.program(allowed_table(limits, fraction))
                newer = any(sample.reading.generation == receipt.number for sample in itertools.islice(samples, 50))
                expect(newer, "no sample has the generation of the table programmed during telemetry")
        controller.read_monitors()

    def test_invalid_telemetry_is_rejected(self, controller: MeshController) -> None:
        """An invalid period, average or monitor is rejected."""
        can = controller.info.telemetry
        kind = LimitError if can else NotSupportedError
        for period_s in (0.0, -1.0, float("nan")):
            expect_error(kind, f"a period of {period_s:g} s", partial(start_telemetry, controller, period_s))
        expect_error(kind, "an average of no scans", lambda: start_telemetry(controller, n_avg=0))
        no_such = (controller.info.n_monitors,)
        expect_error(
            ConfigError if can else NotSupportedError,
            "a monitor",
            lambda: start_telemetry(controller, monitors=no_such),
        )


def _points(limits: ControllerLimits) -> tuple[dict[int, float], ...]:
    first, *_, last = np.flatnonzero(limits.heater_max_ma).tolist()
    table = allowed_table(limits, 0.8)
    return {first: 0.5 * table[first]}, {first: table[first], last: table[last]}, {}
