"""Comparison of the raw readings of a run with its record: heater fringes and residuals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

from calibration.model.arrays import Real
from calibration.model.likelihood import SETTING_DRIFT, Likelihood, with_model_error, without_drift
from calibration.model.observations import NoiseModel, Observations, only_reached, select_monitors
from calibration.model.parameters import MeshParameters
from calibration.model.space import space_from_record
from calibration.record.conversion import dark_by_port_ma, model_of_record, parameters_from_record
from lumion_hw.errors import CalibrationError
from lumion_hw.mesh.record.calibration_record import CalibrationRecord, CouplerEntry

_MIN_LEVELS = 5
_MIN_FLOOR_MA = 1e-9
_DENSE = 121
_MEDIAN_OF_NORMAL = 0.6745
_RANKS = (("best", 1.0), ("lower quarter", 0.75), ("median", 0.5), ("upper quarter", 0.25), ("worst", 0.0))
_MAX_STUCK = 4
_SETTINGS_FOR_SIGNS = 100
_OUTLIER_SIGMA = 10.0
_LN10_PER_10 = np.log(10.0) / 10.0


@dataclass(frozen=True)
class Sweep:
    """Sweep of one heater (2·PUC + arm) with all others constant; ``settings`` are indices in time order."""

    heater: int
    settings: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Fringe:
    """One sweep at the monitor with the largest effect, with the prediction of the record.

    Attributes:
        source: Port of the light.
        current_ma: Shape ``(currents,)``; heater currents.
        reading_ma: Shape ``(currents,)``; readings.
        residual_sigma: Shape ``(currents,)``; reading minus prediction, in standard deviations.
        rms_sigma: Rms residual of all monitors, in standard deviations.
        dense_ma: Shape ``(k,)``; currents of the predicted curve.
        predicted_ma: Shape ``(k,)``; predicted readings at ``dense_ma``.
    """

    heater: int
    source: int
    monitor: int
    current_ma: Real
    reading_ma: Real
    residual_sigma: Real
    rms_sigma: float
    dense_ma: Real
    predicted_ma: Real


class Readings:
    """Raw readings of a run with the model of its record.

    Attributes:
        observations: Readings with light from sources in the record, at monitors in the record.
        sweeps: Sweeps of single heaters in ``observations``.

    Raises:
        CalibrationError: The readings belong to another mesh, or the record has another kind of crosstalk or PUCs
            without a phase.
    """

    def __init__(self, record: CalibrationRecord, observations: Observations) -> None:
        space = space_from_record(record)
        if observations.currents_ma.shape[1] != 2 * record.mesh.n_pucs or not set(space.monitors) <= set(
            observations.monitors
        ):
            raise CalibrationError("the raw readings do not match the mesh and the monitors of the record")
        has_light = np.isin(observations.source, space.sources)
        observations = only_reached(observations, record.mesh, space.seconds)
        self.record = record
        self.observations = select_monitors(observations, space.monitors, dark_by_port_ma(record))[has_light]
        self._model = model_of_record(record)
        self.sweeps = find_sweeps(self.observations)
        self._parameters = self._with_stuck(parameters_from_record(record), _stuck_phases_rad(record))

    def _with_stuck(self, parameters: MeshParameters, stuck_rad: Mapping[int, float]) -> MeshParameters:
        if not stuck_rad:
            return parameters
        # A coupling gives the phase of a stuck PUC except for its sign, so all combinations of signs are tried.
        # Deviations are limited, so that a few wrong readings do not decide.
        part = self.observations[np.flatnonzero(~self.swept)[-_SETTINGS_FOR_SIGNS:]]
        best, lowest_cost = parameters, np.inf
        for signs in product((1.0, -1.0), repeat=len(stuck_rad)):
            phases = parameters.passive_phase_rad.copy()
            for sign, (puc, phase_rad) in zip(signs, stuck_rad.items(), strict=True):
                phases[puc] = sign * phase_rad
            tried = replace(parameters, passive_phase_rad=phases)
            deviation_sigma = np.abs(Likelihood(part, self.noise).residual(self._model.predict(tried, part), 0.0))
            cost = float(np.minimum(deviation_sigma, _OUTLIER_SIGMA).sum())
            if cost < lowest_cost:
                best, lowest_cost = tried, cost
        return best

    @property
    def noise(self) -> NoiseModel:
        """Noise of a reading, including the model error."""
        quality = self.record.quality
        floor_ma = max(quality.get("monitor_noise_floor_ma", 0.0), _MIN_FLOOR_MA)
        return with_model_error(NoiseModel(quality.get("monitor_noise_relative", 0.0), floor_ma))

    @cached_property
    def swept(self) -> NDArray[np.bool_]:
        """Which settings belong to sweeps, shape ``(settings,)``."""
        swept = np.zeros(len(self.observations), dtype=np.bool_)
        for sweep in self.sweeps:
            swept[list(sweep.settings)] = True
        return swept

    @cached_property
    def residual_sigma(self) -> Real:
        """Reading minus prediction in standard deviations, shape ``(settings, monitors)``; NaN without a reading.

        Drift of power and temperature is removed, within the limits of the fit.
        """
        predicted = self._model.predict(self._parameters, self.observations)
        likelihood = Likelihood(self.observations, self.noise, drift=SETTING_DRIFT)
        raw_sigma, sigma_ma = likelihood.residual(predicted, 0.0), likelihood.sigma_ma(0.0)
        by_power_ma = _LN10_PER_10 * SETTING_DRIFT.power_db * predicted
        # A phase common to all PUCs is equivalent to a frequency shift of the light.
        shift_hz = SETTING_DRIFT.common_phase_rad / (2.0 * np.pi * self._parameters.delay_s)
        moved = replace(self.observations, detuning_hz=self.observations.detunings_hz + shift_hz)
        by_phase_ma = self._model.predict(self._parameters, moved) - predicted
        drift = np.stack([by_power_ma, by_phase_ma], axis=-1) / sigma_ma[..., None]
        free = without_drift(raw_sigma, np.where(likelihood.used[..., None], drift, 0.0))
        return np.where(likelihood.used, free, np.nan)

    def statistics(self) -> dict[str, dict[str, float]]:
        """Return count, rms, scaled median and number of outliers of the residuals, for sweeps and other settings."""
        statistics = {}
        for label, swept in (("sweeps", True), ("random and reference settings", False)):
            values = self.residual_sigma[self.swept == swept]
            size = np.abs(values[np.isfinite(values)])
            if len(size):
                statistics[label] = {
                    "readings": float(len(size)),
                    "rms_sigma": float(np.sqrt(np.mean(size**2))),
                    "typical_sigma": float(np.median(size) / _MEDIAN_OF_NORMAL),
                    "beyond_3_sigma": float(np.mean(size > 3.0)),
                }
        return statistics

    def rms_by_setting(self) -> Real:
        """Return the rms residual of every setting over its monitors, shape ``(settings,)``."""
        return _rms(self.residual_sigma, axis=1)

    def rms_by_monitor(self, *, swept: bool) -> Real:
        """Return the rms residual of every monitor, ``(monitors,)``, over the sweeps or all other settings."""
        return _rms(self.residual_sigma[self.swept == swept], axis=0)

    def fringe(self, sweep: Sweep) -> Fringe:
        """Return the fringe of a sweep at the monitor with the largest effect."""
        part = self.observations[np.array(sweep.settings)]
        current = part.currents_ma[:, sweep.heater]
        swing = np.nanstd(part.reading_ma, axis=0) / self.noise.sigma_ma(np.nanmean(part.reading_ma, axis=0))
        column = int(np.nanargmax(swing))
        # Even steps of the square, because the phase is nearly proportional to the heat.
        dense = np.sqrt(np.linspace(current.min() ** 2, current.max() ** 2, _DENSE))
        curve = part[np.zeros(_DENSE, dtype=np.int64)]
        curve.currents_ma[:, sweep.heater] = dense
        residual = self.residual_sigma[np.array(sweep.settings)]
        order = np.argsort(current)
        return Fringe(
            heater=sweep.heater,
            source=int(part.source[0]),
            monitor=part.monitors[column],
            current_ma=current[order],
            reading_ma=part.reading_ma[order, column],
            residual_sigma=residual[order, column],
            rms_sigma=float(np.sqrt(np.nanmean(residual**2))),
            dense_ma=dense,
            predicted_ma=self._model.predict(self._parameters, curve)[:, column],
        )

    def ranked_sweeps(self) -> list[tuple[str, Sweep]]:
        """Return six example sweeps with a name for the rank of the misfit: two worst, three in between, one best."""
        ranked = sorted(self.sweeps, key=self._rms_of, reverse=True)
        last = len(ranked) - 1
        chosen = {round(share * last): name for name, share in _RANKS} if ranked else {}
        if last > len(_RANKS):
            chosen[1] = "second worst"
        return [(chosen[rank], ranked[rank]) for rank in sorted(chosen)]

    def _rms_of(self, sweep: Sweep) -> float:
        return float(_rms(self.residual_sigma[list(sweep.settings)].ravel(), axis=0))


def _stuck_phases_rad(record: CalibrationRecord) -> dict[int, float]:
    """Return the magnitude of the phase of every stuck PUC; the sign is unknown.

    Raises:
        CalibrationError: A coupling is missing, or there are too many stuck PUCs to try all signs.
    """
    unknown = [puc for puc, entry in enumerate(record.pucs) if entry.passive_phase_rad is None]
    stuck = {defect.number: defect.coupling for defect in record.defects if defect.element == "puc"}
    results = {}
    for puc in unknown:
        coupling = stuck.get(puc)
        if coupling is None or len(unknown) > _MAX_STUCK:
            raise CalibrationError(
                f"the light in the mesh cannot be predicted, because the record has no phase of {_pucs(unknown)}"
            )
        smallest, largest = (record.pucs[puc].coupler or CouplerEntry()).interval
        results[puc] = float(np.arccos(np.clip(2.0 * (coupling - smallest) / (largest - smallest) - 1.0, -1.0, 1.0)))
    return results


def _pucs(numbers: Sequence[int]) -> str:
    return f"PUC {', '.join(map(str, numbers))}" if len(numbers) <= _MAX_STUCK else f"{len(numbers)} PUCs"


def find_sweeps(observations: Observations) -> tuple[Sweep, ...]:
    """Return the sweeps among readings: consecutive settings with one source in which one heater changes."""
    moved = np.diff(observations.currents_ma, axis=0) != 0.0
    same_light = (np.diff(observations.source) == 0) & (np.diff(observations.detunings_hz) == 0.0)
    is_single_step = (moved.sum(axis=1) == 1) & same_light
    heater = np.where(is_single_step, moved.argmax(axis=1), -1) if len(moved) else np.zeros(0, dtype=np.int64)
    edges = (np.flatnonzero(np.diff(heater)) + 1).tolist()
    return tuple(
        Sweep(int(heater[first]), tuple(range(first, last + 1)))
        for first, last in pairwise([0, *edges, len(heater)])
        if last - first + 1 >= _MIN_LEVELS and heater[first] >= 0
    )


def _rms(values: Real, axis: int) -> Real:
    counts = np.isfinite(values).sum(axis=axis)
    total = np.nansum(values**2, axis=axis)
    rms: Real = np.sqrt(np.divide(total, counts, out=np.full(np.shape(total), np.nan), where=counts > 0))
    return rms
