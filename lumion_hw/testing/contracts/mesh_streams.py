"""What a mesh controller promises of the readings it takes by itself: sweeps it executes, and telemetry it sends."""

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
from lumion_hw.testing.contracts.common import DeviceContract, promised, refused, skip_without_fixture
from lumion_hw.testing.contracts.mesh_tables import allowed_table, reads, tolerance_ma

_PERIOD_S = 0.02


def refused_as_unable(call: str, action: Callable[[], object]) -> None:
    """Fail the test unless an action is refused as one that this controller cannot do, by the name of the call."""
    error = refused(NotSupportedError, f"{call}() of a controller that cannot do it", action)
    promised(call in str(error), f"the refusal does not name {call}: {error}")
    promised(bool(error.device and error.address), f"the error names no device or no address: {error}")


def started(controller: MeshController, period_s: float = _PERIOD_S, **choice: Any) -> Iterator[TelemetrySample]:
    """Return telemetry that has given its first sample; an error comes with the call or with that sample."""
    samples = controller.telemetry(period_s, **choice)
    return itertools.chain([next(samples)], samples)


class MeshStreamPromises(DeviceContract):
    """Promises of ``sweep`` and ``telemetry``; part of the contract of a mesh controller."""

    @pytest.fixture
    def lever(self) -> tuple[int, int]:
        """A heater and a monitor whose photocurrent grows with the current in that heater."""
        skip_without_fixture("lever", "a heater and a monitor whose photocurrent grows with the current in that heater")

    # -- sweeps

    def test_a_sweep_records_every_point_and_leaves_what_was_driven(
        self, controller: MeshController, limits: ControllerLimits
    ) -> None:
        """One row per point and one column per monitor; afterwards the table from before is driven."""
        table = allowed_table(limits, 0.5)
        receipt = controller.program(table)
        before = controller.read_back()
        plan = SweepPlan(_points(limits))
        if not controller.info.on_board_sweep:
            refused_as_unable("sweep", lambda: controller.sweep(plan))
        else:
            result = controller.sweep(plan)
            shape = (len(plan.points), controller.info.n_monitors)
            promised(
                result.photocurrent_ma.shape == shape == result.saturated.shape,
                f"shapes {result.photocurrent_ma.shape} and {result.saturated.shape}, not {shape}",
            )
            promised(
                np.array_equal(np.isnan(result.photocurrent_ma), result.saturated),
                "NaN and the mask of saturated monitors do not agree",
            )
            all_monitors = tuple(range(controller.info.n_monitors))
            promised(result.monitors == all_monitors, f"all monitors were asked for, these came: {result.monitors}")
            promised(0 <= result.late <= len(plan.points), f"{result.late} of {len(plan.points)} points were late")
            promised(result.generation > receipt.number, f"the run is no newer than what was driven: {result}")
        promised(reads(controller, before), "after the sweep another table is driven than before")

    def test_a_sweep_may_choose_its_monitors_and_keep_its_last_point(
        self, controller: MeshController, limits: ControllerLimits
    ) -> None:
        """Columns are the monitors chosen, ascending; the start and the points make up the table that is kept."""
        points, start = _points(limits), allowed_table(limits, 0.3)
        chosen = (controller.info.n_monitors - 1, 0)
        plan = SweepPlan(points, start_ma=start, monitors=chosen, keep_last=True)
        if not controller.info.on_board_sweep:
            refused_as_unable("sweep", lambda: controller.sweep(plan))
            return
        result = controller.sweep(plan)
        promised(result.monitors == tuple(sorted(set(chosen))), f"{chosen} were chosen, {result.monitors} came")
        promised(result.photocurrent_ma.shape == (len(points), len(set(chosen))), f"wrong shape: {result}")
        for point in points:
            start[list(point)] = list(point.values())
        error_ma = np.abs(controller.read_back() - start)
        promised(bool(error_ma.max() <= tolerance_ma(controller.info)), "the last point is not what is driven")

    def test_every_row_of_a_sweep_belongs_to_its_point(
        self, controller: MeshController, limits: ControllerLimits, request: pytest.FixtureRequest
    ) -> None:
        """A current that goes up and down point by point is seen to go up and down."""
        if not controller.info.on_board_sweep:
            refused_as_unable("sweep", lambda: controller.sweep(SweepPlan(_points(limits))))
            return
        heater, monitor = request.getfixturevalue("lever")
        fractions = [0.2, 0.8, 0.4, 0.6, 0.0]
        top_ma = allowed_table(limits)[heater]
        result = controller.sweep(SweepPlan(tuple({heater: top_ma * fraction} for fraction in fractions)))
        seen_ma = result.photocurrent_ma[:, monitor].tolist()
        order = sorted(range(len(fractions)), key=seen_ma.__getitem__)
        promised(order == [4, 0, 2, 3, 1], f"heater currents in the shares {fractions} gave {seen_ma} mA")

    def test_a_sweep_with_a_point_outside_the_limits_drives_nothing(
        self, controller: MeshController, limits: ControllerLimits
    ) -> None:
        """One wrong current anywhere refuses the whole sweep before it begins."""
        controller.program(allowed_table(limits))
        before = controller.read_back()
        heater = int(np.flatnonzero(limits.heater_max_ma)[-1])
        for wrong_ma in (1.02 * limits.heater_max_ma[heater], -0.1, float("nan")):
            plan = SweepPlan((*_points(limits), {heater: wrong_ma}))
            if controller.info.on_board_sweep:
                error = refused(LimitError, f"a point of {wrong_ma:g} mA", partial(controller.sweep, plan))
                promised(str(heater) in str(error), f"the refusal does not name heater {heater}: {error}")
            else:
                refused_as_unable("sweep", partial(controller.sweep, plan))
        promised(reads(controller, before), "a refused sweep changed outputs")

    def test_a_sweep_of_what_does_not_exist_is_refused(
        self, controller: MeshController, limits: ControllerLimits
    ) -> None:
        """No points, no such heater, no such monitor."""
        kind = ConfigError if controller.info.on_board_sweep else NotSupportedError
        for wrong in (
            SweepPlan(()),
            SweepPlan(({controller.info.n_heaters: 0.0},)),
            SweepPlan(_points(limits), monitors=(controller.info.n_monitors,)),
        ):
            refused(kind, f"{wrong}", partial(controller.sweep, wrong))

    # -- telemetry

    def test_telemetry_comes_dated_in_order_and_counts_what_is_missing(
        self, controller: MeshController, limits: ControllerLimits, clock: Clock
    ) -> None:
        """Every sample is a scan of all monitors of the table driven now; what never came is counted."""
        if not controller.info.telemetry:
            refused_as_unable("telemetry", lambda: started(controller))
            return
        receipt = controller.program(allowed_table(limits))
        began_s = clock.now()
        with closing(cast("Any", controller.telemetry(_PERIOD_S))) as samples:
            taken = list(itertools.islice(samples, 4))
        for sample in taken:
            shape = (controller.info.n_monitors,)
            reading = sample.reading
            promised(reading.photocurrent_ma.shape == shape == reading.saturated.shape, f"wrong shape: {reading}")
            promised(
                np.array_equal(np.isnan(reading.photocurrent_ma), reading.saturated),
                "NaN and the mask of saturated monitors do not agree",
            )
            promised(reading.generation == receipt.number, f"{receipt.number} is driven: {reading}")
            promised(sample.dropped >= 0 and sample.lost >= 0, f"these are no counts: {sample}")
        times_s = [began_s, *(sample.reading.timestamp_s for sample in taken), clock.now()]
        promised(times_s == sorted(times_s), f"samples are not dated by the host's clock: {times_s}")

    def test_telemetry_may_choose_its_monitors(self, controller: MeshController) -> None:
        """The monitors chosen come in ascending order."""
        if not controller.info.telemetry:
            refused_as_unable("telemetry", lambda: started(controller, monitors=(0,)))
            return
        chosen = (controller.info.n_monitors - 1, 0)
        with closing(cast("Any", controller.telemetry(_PERIOD_S, monitors=chosen))) as samples:
            seen_ma: NDArray[np.float64] = next(samples).reading.photocurrent_ma
        promised(seen_ma.shape == (len(set(chosen)),), f"{chosen} were chosen, the shape is {seen_ma.shape}")

    def test_the_controller_is_there_for_other_calls_during_telemetry_and_after_it(
        self, controller: MeshController, limits: ControllerLimits
    ) -> None:
        """Samples tell of a table programmed between them; a stream that was closed leaves nothing behind."""
        if not controller.info.telemetry:
            refused_as_unable("telemetry", lambda: started(controller))
            controller.program(allowed_table(limits))
            return
        for fraction in (0.3, 0.6):
            with closing(cast("Any", controller.telemetry(_PERIOD_S))) as samples:
                next(samples)
                receipt = controller.program(allowed_table(limits, fraction))
                newer = any(sample.reading.generation == receipt.number for sample in itertools.islice(samples, 50))
                promised(newer, "no sample tells of the table that was programmed meanwhile")
        controller.read_monitors()

    def test_telemetry_that_cannot_be_is_refused(self, controller: MeshController) -> None:
        """A period or an average that is none, and a monitor that does not exist."""
        can = controller.info.telemetry
        kind = LimitError if can else NotSupportedError
        for period_s in (0.0, -1.0, float("nan")):
            refused(kind, f"a period of {period_s:g} s", partial(started, controller, period_s))
        refused(kind, "an average of no scans", lambda: started(controller, n_avg=0))
        no_such = (controller.info.n_monitors,)
        refused(ConfigError if can else NotSupportedError, "a monitor", lambda: started(controller, monitors=no_such))


def _points(limits: ControllerLimits) -> tuple[dict[int, float], ...]:
    """Return three points within the limits, on two heaters."""
    first, *_, last = np.flatnonzero(limits.heater_max_ma).tolist()
    table = allowed_table(limits, 0.8)
    return {first: 0.5 * table[first]}, {first: table[first], last: table[last]}, {}
