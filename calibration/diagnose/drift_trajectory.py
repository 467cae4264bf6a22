"""Detection of drift during a run: chip temperature, and power and frequency of each source.

A phase change common to all PUCs is a temperature change, or a frequency change if only one source shows it. The drift
is removed from the readings, and the mesh is fitted again.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from calibration.model.arrays import Real
from calibration.model.likelihood import weight
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import NoiseModel, Observations
from calibration.model.parameters import MeshParameters
from calibration.model.work import DRIFT_WORK
from lumion_hw.mesh.record.calibration_record import Defect

RAD_PER_K = 0.6
"""Phase of a PUC per kelvin (estimated from dn/dT of silicon, 1.86e-4 per kelvin)."""
_LN10_PER_10 = np.log(10.0) / 10.0
_STEPS = 4
_LARGEST_STEP = (1.0, 0.1)
# Prior sigma of power in dB and common phase in rad, for settings without information.
_SPREAD = (0.5, 0.3)
# Relative error of a reading where heaters are driven beyond the fitted range of their laws, as in the sweeps.
_LAW_ERROR = 0.02
_MARGIN = 1.02
_CLEAR = 10.0
_MIN_MW = 1e-4
_MIN_KNOTS, _MAX_KNOTS = 6, 24
_SETTINGS_PER_KNOT = 30
_ROUNDS = 4
# Error of a setting's phase besides noise: inside the fitted heater range, and beyond it.
_ERROR_IN_RANGE_RAD, _ERROR_BEYOND_RANGE_RAD = 1e-3, 2e-2
# Prior sigma of the change of slope of the temperature trajectory from one instant to the next.
_BEND_RAD = 0.02
# Prior sigma of the fit's error in the common phase per total heat; unknown drift may have biased the fit.
_RAD_PER_MA2 = 2e-3
_PRECISE_RAD, _PRECISE_DB = 0.005, 0.05
_WINDOW = 15
# Settings of a source that are farther apart in time form separate groups, such as the reference setting at the start.
_APART_S = 1.0
_MIN_MOVED_RAD = 0.012
_HOP_RAD = 0.03
_HOP_SHARE = 0.1
# Smallest ranges of trajectories that are removed. Even a temperature drift of a few milliradians matters: the chosen
# settings at the end of a run heat less than the random ones, so the fit would mistake drift for thermal crosstalk and
# predict hot settings wrongly.
_FOLLOWED_RAD, _FOLLOWED_DB = 0.0015, 0.05
# The same in standard errors of a setting, so that noise is not taken for drift.
_FOLLOWED_SIGMA = 4.0
_NAMED_K, _NAMED_DB = 0.03, 0.12
_TEMPERATURE = (
    "the chip temperature drifted by {drift:+.2f} K during the run, over a range of {range:.2f} K (assuming 0.6 "
    "rad/K per PUC). A working temperature lock leaves 0.01 to 0.1 K. The drift was corrected: the recorded "
    "phases hold for the end of the run. Check the temperature lock"
)
_HOP = (
    "the frequency of the source at port {source} jumped by {shift:+.1f} GHz after {at:.0f} s of the run, as in a "
    "mode hop. The jump was corrected: the recorded frequency holds for the end of the run. Check the laser"
)
_POWER = (
    "the power of the source at port {source} drifted by {drift:+.2f} dB during the run, over a range of "
    "{range:.2f} dB. The drift was corrected: the recorded power holds for the end of the run. Check the laser "
    "and align its polarization"
)


@dataclass(frozen=True, eq=False)
class Drift:
    """Deviation of every setting from the fit: of the power, and of the phase common to all PUCs.

    Attributes:
        time_s: Shape ``(settings,)``; time of the setting on the clock of the bench.
        source: Shape ``(settings,)``; port of the light.
        power_db: Shape ``(settings,)``; measured power relative to the prediction of the fit.
        power_sigma_db: Shape ``(settings,)``; standard error of the power.
        phase_rad: Shape ``(settings,)``; phase common to all PUCs, relative to the fit.
        phase_sigma_rad: Shape ``(settings,)``; standard error of the phase.
        is_in_range: Shape ``(settings,)``; whether all heater currents are within the fitted range.
        square_ma2: Shape ``(settings,)``; sum of the squared currents of all heaters, proportional to the heat.
    """

    time_s: Real
    source: NDArray[np.int64]
    power_db: Real
    power_sigma_db: Real
    phase_rad: Real
    phase_sigma_rad: Real
    is_in_range: NDArray[np.bool_]
    square_ma2: Real

    @property
    def measures_phase(self) -> NDArray[np.bool_]:
        """Which settings measure the phase common to all PUCs to a few milliradians, shape ``(settings,)``."""
        return self.is_in_range & (self.phase_sigma_rad < _PRECISE_RAD)

    @property
    def measures_power(self) -> NDArray[np.bool_]:
        """Which settings measure the power to some hundredths of a decibel, shape ``(settings,)``."""
        return self.is_in_range & (self.power_sigma_db < _PRECISE_DB)

    def __getitem__(self, chosen: NDArray[np.int64] | NDArray[np.bool_]) -> Drift:
        return Drift(*(getattr(self, column.name)[chosen] for column in fields(self)))


@dataclass(frozen=True, eq=False)
class DriftTrajectories:
    """Drift of a run, as curves over time.

    Attributes:
        at_s: Shape ``(k,)``; times of the temperature curve.
        temperature_rad: Shape ``(k,)``; phase change of all PUCs by temperature, 0 at the last setting.
        hops: By source, time in s of a frequency jump, and phase change per PUC in rad.
        power_at_s: By source, times of the power curve.
        power_db: By source, power at these times, 0 at the last setting.
    """

    at_s: Real
    temperature_rad: Real
    hops: dict[int, tuple[float, float]]
    power_at_s: dict[int, Real]
    power_db: dict[int, Real]

    @property
    def moved(self) -> bool:
        """Whether the drift is too large for a fit without correction."""
        return bool(
            np.ptp(self.temperature_rad) > _FOLLOWED_RAD
            or self.hops
            or any(np.ptp(trajectory) > _FOLLOWED_DB for trajectory in self.power_db.values())
        )

    def differs(self, other: DriftTrajectories) -> bool:
        """Return whether two drifts differ significantly."""
        if self.hops.keys() != other.hops.keys():
            return True
        pairs = [(self.at_s, self.temperature_rad, other.at_s, other.temperature_rad, _FOLLOWED_RAD)]
        pairs += [
            (self.power_at_s[port], trajectory, other.power_at_s[port], other.power_db[port], _FOLLOWED_DB)
            for port, trajectory in self.power_db.items()
            if port in other.power_db
        ]
        return any(
            float(np.abs(own - np.interp(at, then_at, then)).max()) > tolerance
            for at, own, then_at, then, tolerance in pairs
        )

    def corrected(self, observations: Observations, time_s: Real, delay_s: float) -> Observations:
        """Return the observations without drift: the power drift is divided out, the phase drift becomes a detuning."""
        phase = np.interp(time_s, self.at_s, self.temperature_rad)
        power_db = np.zeros(len(time_s))
        for source, (hop_s, size_rad) in self.hops.items():
            phase -= np.where((observations.source == source) & (time_s < hop_s), size_rad, 0.0)
        for source, trajectory in self.power_db.items():
            of_source = observations.source == source
            power_db[of_source] = np.interp(time_s[of_source], self.power_at_s[source], trajectory)
        return replace(
            observations,
            detuning_hz=observations.detunings_hz + phase / (2.0 * np.pi * delay_s),
            reading_ma=observations.reading_ma * 10.0 ** (-power_db[:, None] / 10.0),
        )

    def defects(self, delay_s: float) -> tuple[Defect, ...]:
        """Return one defect for each drift that the user should check."""
        defects = []
        kelvin = self.temperature_rad / RAD_PER_K
        if np.ptp(kelvin) > _NAMED_K:
            text = _TEMPERATURE.format(drift=kelvin[-1] - kelvin[0], range=np.ptp(kelvin))
            defects.append(Defect("temperature drift", "chip", 0, text))
        for source, (hop_s, size_rad) in self.hops.items():
            shift_ghz = size_rad / (2e9 * np.pi * delay_s)
            text = _HOP.format(source=source, shift=shift_ghz, at=hop_s)
            defects.append(Defect("mode hop", "source", source, text))
        for source, trajectory in self.power_db.items():
            if np.ptp(trajectory) > _NAMED_DB:
                text = _POWER.format(source=source, drift=trajectory[-1] - trajectory[0], range=np.ptp(trajectory))
                defects.append(Defect("power drift", "source", source, text))
        return tuple(defects)


def measure_drift(
    model: MeshModel,
    parameters: MeshParameters,
    observations: Observations,
    time_s: Real,
    noise: NoiseModel,
    reach_ma: Real,
) -> Drift:
    """Measure the deviation of power and common phase from the fit for every setting with light.

    ``time_s`` are the times of the settings, ascending. ``reach_ma`` is the largest fitted current of every heater.
    """
    # Dark settings show neither power nor phase.
    has_light = np.isin(observations.source, model.space.sources)
    time_s, observations = time_s[has_light], observations[has_light]
    model.work.spent += DRIFT_WORK * observations.reading_ma.size
    is_in_range: NDArray[np.bool_] = np.all(observations.currents_ma <= _MARGIN * reach_ma, axis=1)
    offsets = np.zeros((len(observations), 2))
    per_rad_hz = 1.0 / (2.0 * np.pi * parameters.delay_s)
    is_valid = np.isfinite(observations.reading_ma) & ~observations.saturated
    target = np.nan_to_num(observations.reading_ma)
    # Sweeps drive heaters beyond the fitted range of their laws, so their settings get a larger error.
    sigma = np.hypot(noise.sigma_ma(np.maximum(target, 0.0)), np.where(is_in_range, 0.0, _LAW_ERROR)[:, None] * target)
    inverse: Real = np.zeros((len(observations), 2, 2))
    root = residual = np.zeros(target.shape)
    for _ in range(_STEPS):
        moved = replace(observations, detuning_hz=observations.detunings_hz + offsets[:, 1] * per_rad_hz)
        power = 10.0 ** (offsets[:, :1] / 10.0)
        reading_ma = model.predict(parameters, moved) * power
        by_phase = model.by_common_phase(parameters, moved) * power
        residual = (target - reading_ma) / sigma
        root = np.where(is_valid, np.sqrt(weight(residual)), 0.0)
        slopes = np.stack([_LN10_PER_10 * reading_ma, by_phase], axis=-1) * (root / sigma)[..., None]
        across = np.swapaxes(slopes, 1, 2)
        matrix = across @ slopes + np.diag([spread**-2.0 for spread in _SPREAD])
        inverse = np.asarray(np.linalg.inv(matrix), dtype=np.float64)
        pull = (across @ (root * residual)[..., None])[..., 0] - offsets / np.square(_SPREAD)
        # Gauss-Newton for two numbers per setting, all at once. The step limit keeps each setting on its branch.
        step = (inverse @ pull[..., None])[..., 0]
        offsets = offsets + np.clip(step, np.negative(_LARGEST_STEP), _LARGEST_STEP)
    square_ma2 = (observations.currents_ma**2).sum(axis=1)
    # Settings with a misfit get a larger error.
    misfit = np.sqrt(np.maximum((root * residual**2).sum(axis=1) / np.maximum(is_valid.sum(axis=1) - 2, 1), 1.0))
    spread = np.sqrt(np.diagonal(inverse, axis1=1, axis2=2)) * misfit[:, None]
    return Drift(
        time_s, observations.source, offsets[:, 0], spread[:, 0], offsets[:, 1], spread[:, 1], is_in_range, square_ma2
    )


def excess_db(
    drift: Drift, model: MeshModel, parameters: MeshParameters, observations: Observations, noise: NoiseModel
) -> float:
    """Return the rms error of the predicted powers in dB, without noise and drift.

    All settings must have light. Port powers below 0.1 µW are ignored.
    """
    phase_rad = _smoothed_by_source(drift, drift.phase_rad, drift.phase_sigma_rad < _PRECISE_RAD)
    power_db = _smoothed_by_source(drift, drift.power_db, drift.power_sigma_db < _PRECISE_DB)
    detuning_hz = observations.detunings_hz + phase_rad / (2.0 * np.pi * parameters.delay_s)
    moved = replace(observations, detuning_hz=detuning_hz)
    predicted = model.predict(parameters, moved) * 10.0 ** (power_db[:, None] / 10.0)
    # At least ten noise floors: below, the converter dominates the reading.
    min_reading_ma = np.maximum(_MIN_MW * parameters.monitor_ma_per_mw, _CLEAR * noise.floor_ma)
    bright = (predicted > min_reading_ma) & (observations.reading_ma > 0.0)
    deviation_db = np.log(observations.reading_ma[bright] / predicted[bright]) / _LN10_PER_10
    expected = noise.sigma_ma(predicted[bright]) / predicted[bright] / _LN10_PER_10
    return float(np.sqrt(max(np.mean(deviation_db**2) - np.mean(expected**2), 0.0))) if bright.any() else 0.0


def _smoothed_by_source(drift: Drift, values: Real, is_precise: NDArray[np.bool_]) -> Real:
    trajectory = values.copy()
    for source in np.unique(drift.source).tolist():
        of_source = drift.source == source
        used = of_source & is_precise
        if used.any():
            at_s = drift.time_s[used]
            trajectory[of_source] = np.interp(drift.time_s[of_source], at_s, _smooth(values[used], at_s))
    return trajectory


def fit_drift_trajectories(drift: Drift) -> DriftTrajectories:
    """Fit drift curves to the deviations of all settings.

    A phase jump of one source alone is a frequency jump; any other phase change is a temperature change.
    """
    # Jumps first: a temperature trajectory would absorb part of a mode hop and shift all other sources.
    hops = _hops(drift)
    phase = drift.phase_rad.copy()
    for source, (hop_s, size_rad) in hops.items():
        phase += np.where((drift.source == source) & (drift.time_s < hop_s), size_rad, 0.0)
    # Sweeps help to separate the sources, but only settings within the fitted heater range define the trajectory.
    temperature = _temperature(replace(drift, phase_rad=phase))[drift.measures_phase]
    at_s = drift.time_s[drift.measures_phase]
    if not len(at_s):
        at_s, temperature = np.zeros(1), np.zeros(1)
    power_at_s, power_db = {}, {}
    for source in np.unique(drift.source).tolist():
        own_drift = drift[(drift.source == source) & drift.measures_power]
        if len(own_drift.time_s):
            power_at_s[source] = own_drift.time_s
            power_db[source] = _relative_to_end(_smooth(own_drift.power_db, own_drift.time_s), _FOLLOWED_DB)
    sigma_rad = float(np.median(drift.phase_sigma_rad[drift.measures_phase])) if drift.measures_phase.any() else 0.0
    temperature = _relative_to_end(temperature, max(_FOLLOWED_RAD, _FOLLOWED_SIGMA * sigma_rad))
    return DriftTrajectories(at_s, temperature, hops, power_at_s, power_db)


def _relative_to_end(trajectory: Real, min_range: float) -> Real:
    """Return a trajectory minus its last value, or zeros if its range is small."""
    return trajectory - trajectory[-1] if np.ptp(trajectory) > min_range else np.zeros(len(trajectory))


def _hops(drift: Drift) -> dict[int, tuple[float, float]]:
    """Return time and phase of a frequency jump, by source."""
    restless = []
    for source in np.unique(drift.source).tolist():
        own_drift = drift[(drift.source == source) & drift.measures_phase]
        if len(own_drift.time_s) and np.ptp(_smooth(own_drift.phase_rad, own_drift.time_s)) > _MIN_MOVED_RAD:
            restless.append(source)
    # If two sources move, the temperature changed: a mode hop affects a single laser.
    if len(restless) != 1:
        return {}
    own_drift = drift[(drift.source == restless[0]) & (drift.phase_sigma_rad < _PRECISE_RAD)]
    trajectory = _smooth(own_drift.phase_rad, own_drift.time_s)
    spreads = [_spread(trajectory[:n]) + _spread(trajectory[n:]) for n in range(1, len(trajectory))]
    n = 1 + int(np.argmin(spreads))
    before, after = float(np.median(trajectory[:n])), float(np.median(trajectory[n:]))
    # A jump has two levels that are far apart compared with the scatter around them.
    if min(spreads) / len(trajectory) > _HOP_SHARE * abs(after - before) or abs(after - before) < _HOP_RAD:
        return {}
    return {restless[0]: (float(0.5 * (own_drift.time_s[n - 1] + own_drift.time_s[n])), after - before)}


def _spread(values: Real) -> float:
    return float(np.abs(values - np.median(values)).sum())


def _temperature(drift: Drift) -> Real:
    """Fit the phase of all PUCs due to temperature for every setting, with a free frequency for each source.

    A phase proportional to the heat of a setting is crosstalk, not drift, and is removed.
    """
    # The number of instants grows with the number of settings, up to a limit that prevents fitting noise.
    knots = int(np.clip(drift.measures_phase.sum() // _SETTINGS_PER_KNOT, _MIN_KNOTS, _MAX_KNOTS))
    at_s = np.linspace(drift.time_s[0], drift.time_s[-1], knots)
    sources, number = np.unique(drift.source, return_inverse=True)
    trajectory = np.stack([np.interp(drift.time_s, at_s, unit) for unit in np.eye(knots)], axis=1)
    # Σ I² is an extra regressor: a phase proportional to heat is an error of the fitted crosstalk.
    design = np.concatenate([trajectory, np.eye(len(sources))[number], drift.square_ma2[:, None]], axis=1)
    sigma = np.hypot(drift.phase_sigma_rad, np.where(drift.is_in_range, _ERROR_IN_RANGE_RAD, _ERROR_BEYOND_RANGE_RAD))
    # Priors as rows of the least-squares system: small change of slope, zero at the end, small crosstalk error.
    weights = np.zeros((knots, design.shape[1]))
    weights[:-2, :knots] = np.diff(np.eye(knots), n=2, axis=0) / _BEND_RAD
    weights[-2, knots - 1] = 1.0 / _ERROR_IN_RANGE_RAD
    weights[-1, -1] = 1.0 / _RAD_PER_MA2
    root = np.ones(len(sigma))
    solution = np.zeros(design.shape[1])
    for _ in range(_ROUNDS):
        rows = np.concatenate([design * (root / sigma)[:, None], weights])
        right = np.concatenate([drift.phase_rad * root / sigma, np.zeros(len(weights))])
        solution = np.linalg.lstsq(rows, right, rcond=None)[0]
        root = np.sqrt(weight((drift.phase_rad - design @ solution) / sigma))
    residual = drift.phase_rad - design @ solution
    return trajectory @ solution[:knots] + _smooth(np.where(drift.measures_phase, residual, 0.0), drift.time_s)


def _smooth(values: Real, time_s: Real) -> Real:
    half = _WINDOW // 2
    smooth = np.empty(len(values))
    edges = [0, *(np.flatnonzero(np.diff(time_s) > _APART_S) + 1).tolist(), len(values)]
    for first, last in itertools.pairwise(edges):
        for index in range(first, last):
            smooth[index] = np.median(values[max(index - half, first) : min(index + half + 1, last)])
    return smooth
