"""Lambda scans: a laser sweeps its wavelength by itself, and power meters take a sample at each trigger pulse."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from lumion_hw.acquisition.columns import Column, Reader, Value, power_value
from lumion_hw.acquisition.scan_moves import Moves
from lumion_hw.acquisition.swept_points import SweptPoint
from lumion_hw.bench.bench import Bench
from lumion_hw.errors import DeviceError, DeviceTimeoutError, LimitError, LumionError
from lumion_hw.interfaces import LaserSweep, LoggingMeter, LogRun, PowerLog, TunableLaser

_MAX_POINTS_PER_SWEEP = 100_000
"""Maximum number of trigger pulses of a sweep."""
_SHARE = 0.2
"""Maximum movement of the laser while a meter averages one sample, as a fraction of the wavelength step."""
_SHORTEST_S = 0.2
"""Minimum duration of a sweep; lasers refuse shorter sweeps because they need time to accelerate."""
_MAX_DELAY_S = 2.0
"""Longest wait for the last samples of the meters after the sweep."""
_WIDEST_NM = 10.0
"""Maximum width of a sweep with meters that follow the wavelength; they stay at the centre wavelength."""


def lambda_scan(bench: Bench, moves: Moves, reader: Reader) -> LambdaScan | str:
    """Return the sweep of a laser for the fastest axis of a scan, or the reason why the laser cannot sweep it.

    The reason is empty if the fastest axis is not the wavelength of a laser.
    """
    fastest = moves.of_axis(-1)
    swept = next(
        (name for name in bench.lasers if f"{name}.wavelength_nm" in {setting.name for setting in fastest}), None
    )
    if swept is None or moves.plan.axes[-1].n_points < 2:
        return ""
    laser = bench.lasers[swept]
    if len(fastest) > 1:
        return f"{' and '.join(each.name for each in fastest)} change together"
    if not laser.capabilities.wavelength_log or not laser.ranges.sweep_nm_per_s:
        return f"{swept} does not log the wavelengths of a sweep"
    by_meter: dict[str, list[Column]] = {}
    for column in reader.columns:
        by_meter.setdefault(column.device, []).append(column)
    meters: dict[str, LoggingMeter] = {}
    for name, columns in by_meter.items():
        meter = bench.meters.get(name)
        if not isinstance(meter, LoggingMeter):
            return f"{swept} cannot trigger samples of {columns[0].name}"
        if swept not in (_inside(bench, name), getattr(bench.model.devices[name], "triggered_by", None)):
            return f"the bench file does not say that {name} is triggered_by {swept}"
        meters[name] = meter
    return LambdaScan(bench, moves, (swept, laser), meters, reader.columns) if meters else ""


def _inside(bench: Bench, meter: str) -> str | None:
    return next((name for name in bench.lasers if bench.model.devices[name].container == meter), None)


def _step_nm(moves: Moves) -> float:
    nm = moves.plan.axes[-1].settings[0].numbers
    return float(np.ptp(nm)) / max(len(nm) - 1, 1)


class LambdaScan:
    """A wavelength sweep that a laser runs for the fastest axis of a scan; meters sample at each trigger pulse."""

    def __init__(
        self,
        bench: Bench,
        moves: Moves,
        laser: tuple[str, TunableLaser],
        meters: Mapping[str, LoggingMeter],
        columns: Sequence[Column],
    ) -> None:
        self._bench, self._moves, self._meters, self._columns = bench, moves, meters, columns
        self._name, self._laser = laser
        self._channels = {
            name: [_channel(column) for column in columns if column.device == name] for name in self._meters
        }
        self.description = f"{self._name}, with {' and '.join(meters)}"
        self.points_in_pass = moves.plan.axes[-1].n_points
        max_points = min(_MAX_POINTS_PER_SWEEP, *(meter.max_samples for meter in meters.values()))
        if moves.fastest_followed and (step_nm := _step_nm(moves)) > 0.0:
            max_points = min(max_points, max(int(_WIDEST_NM / step_nm * (1.0 + 1e-9)) + 1, 2))
        while max_points > 2 and self.points_in_pass % max_points == 1:  # a sweep needs two points
            max_points -= 1
        self.max_points_per_sweep = max_points

    def run(self, positions: Sequence[tuple[int, ...]]) -> list[SweptPoint] | str:
        """Run the given points; return the results, or the reason why the sweep failed."""
        numbers = [self._moves.numbers(position) for position in positions]
        wavelengths_nm = np.array([values[-1] for values in numbers])
        upwards = np.argsort(wavelengths_nm)
        self._moves.move_to(positions[0])  # averaging times and ranges are settings too
        averaging_s = self._averaging_s()
        if isinstance(averaging_s, str):
            return averaging_s
        plan = self._plan(wavelengths_nm[upwards], averaging_s)
        if isinstance(plan, str):
            return plan
        try:
            self._moves.aim(0.5 * (plan.start_nm + plan.stop_nm))
            sampled_nm, logs = self._sweep(plan, len(positions), averaging_s)
        except DeviceTimeoutError:
            raise
        except (DeviceError, LimitError) as refusal:
            return str(refusal)
        finally:
            self._moves.forget(-1)  # the laser is at the end of the sweep
        of_place = np.empty(len(positions), dtype=np.intp)
        of_place[upwards] = np.arange(len(positions))
        return [
            SweptPoint(
                (*values[:-1], float(sampled_nm[at])),
                [_reading(logs[column.device], column, at) for column in self._columns],
            )
            for values, at in zip(numbers, of_place.tolist(), strict=True)
        ]

    def _plan(self, wavelengths_nm: NDArray[np.float64], averaging_s: float) -> LaserSweep | str:
        """Return the fastest sweep that leaves enough time for every sample, or the reason why none is possible."""
        if len(wavelengths_nm) < 2:
            return "a sweep needs at least two points"
        grid_nm = self._grid_nm(wavelengths_nm[0])
        start_nm = round(wavelengths_nm[0] / grid_nm) * grid_nm
        step_nm = round((wavelengths_nm[-1] - wavelengths_nm[0]) / (len(wavelengths_nm) - 1) / grid_nm) * grid_nm
        even_nm = start_nm + step_nm * np.arange(len(wavelengths_nm))
        if step_nm <= 0.0 or np.max(np.abs(even_nm - wavelengths_nm)) > grid_nm:
            return f"the wavelengths are not evenly spaced by a multiple of {grid_nm:.3g} nm"
        if self._moves.fastest_followed and step_nm > _WIDEST_NM:
            return f"steps are wider than {_WIDEST_NM:g} nm, but a meter keeps one wavelength during a sweep"
        ranges = self._laser.ranges
        slowest = min(ranges.sweep_nm_per_s)
        allowed_speeds = [speed for speed in ranges.sweep_nm_per_s if speed <= ranges.sweep_pulses_per_s * step_nm]
        if not allowed_speeds:
            return (
                f"{self._name} would give {slowest / step_nm:.3g} pulses per second for a step of {step_nm:.4g} nm at "
                f"its lowest speed, but its maximum is {ranges.sweep_pulses_per_s:g}"
            )
        speeds = [speed for speed in allowed_speeds if speed * averaging_s <= _SHARE * step_nm]
        if not speeds:
            return (
                f"a reading averages for {averaging_s:.3g} s, and a step must take {1.0 / _SHARE:g} times as long, but "
                f"{self._name} passes a step of {step_nm:.4g} nm in {step_nm / slowest:.3g} s at its lowest speed"
            )
        span_nm = step_nm * (len(wavelengths_nm) - 1)
        slow_speeds = [speed for speed in speeds if span_nm >= _SHORTEST_S * speed] or [min(speeds)]
        return LaserSweep(start_nm, start_nm + span_nm, step_nm, max(slow_speeds), log=True)

    def _grid_nm(self, wavelength_nm: float) -> float:
        ranges = self._laser.ranges
        return float(f"{wavelength_nm * ranges.frequency_step_thz / ranges.frequency_thz[1]:.0e}")

    def _averaging_s(self) -> float | str:
        """Return the averaging time that all meter channels share, or the reason why a sweep is not possible."""
        times_s = set()
        for name, meter in self._meters.items():
            for channel in self._channels[name]:
                settings = meter.settings(channel)
                if settings.range_dbm is None:
                    # A single reading selects its range, but a run keeps one: dark parts of a spectrum would differ.
                    return f"{name} selects its range automatically; set {name}.range_dbm.{channel}"
                times_s.add(settings.averaging_s)
        return times_s.pop() if len(times_s) == 1 else "the channels have different averaging times"

    def _sweep(
        self, plan: LaserSweep, n_samples: int, averaging_s: float
    ) -> tuple[NDArray[np.float64], dict[str, PowerLog]]:
        """Run the sweep; return the wavelengths and powers of all samples.

        After an error, laser and meters are stopped.
        """
        runs: dict[str, LogRun] = {}
        with contextlib.ExitStack() as on_error:
            for name, meter in self._meters.items():
                own = _inside(self._bench, name) == self._name
                runs[name] = meter.start_triggered_log(
                    self._channels[name], n_samples, averaging_s, internal_trigger=own
                )
                on_error.callback(_stop, runs[name])
            log = self._laser.sweep(plan)
            # Count first: meters must not wait for pulses that the laser did not give.
            if log.wavelength_nm is None or len(log.wavelength_nm) != n_samples:
                n_points = 0 if log.wavelength_nm is None else len(log.wavelength_nm)
                raise DeviceError(
                    f"the laser gave {n_points} trigger pulses for {n_samples} scan points",
                    command="sweep",
                    device=self._name,
                    hint="Choose a span that is a multiple of the step.",
                )
            logs = {name: self._wait(name, run, averaging_s) for name, run in runs.items()}
            on_error.pop_all()
        # A pulse starts a sample, which measures at the wavelength in the middle of its averaging time.
        return log.wavelength_nm + 0.5 * averaging_s * plan.speed_nm_per_s, logs

    def _wait(self, name: str, run: LogRun, averaging_s: float) -> PowerLog:
        try:
            return run.wait(_MAX_DELAY_S + averaging_s)
        except DeviceTimeoutError as error:
            error.hint = (
                f"{name} received fewer pulses than the sweep of {self._name} has steps: check the cable from its "
                "trigger output. The sweep has ended."
            )
            raise


def _stop(run: LogRun) -> None:
    with contextlib.suppress(LumionError):
        run.stop()


def _channel(column: Column) -> int:
    return int(column.name.rpartition(".")[2])


def _reading(log: PowerLog, column: Column, at: int) -> Value:
    row = log.channels.index(_channel(column))
    return power_value(log.state[row, at], float(log.power_w[row, at]))
