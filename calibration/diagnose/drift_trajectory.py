"""What drifted while it was measured: the temperature of the chip, the power and the frequency of each source.

Every setting tells, by its own readings alone, how much more light there was than the fit says (σ about 0.01 dB) and
what phase all PUCs had in common on top (σ about 1 mrad): the temperature, or the frequency of this source. All
settings of a run are used, sweeps too, in the order of time. A temperature moves all sources alike; what moves one
source alone is that source. The model is one trajectory of the temperature, straight between a few instants, and one
frequency per source; power has a trajectory per source. What is found is taken out of the readings and the settings,
and all is fitted again.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from calibration.model.likelihood import weight
from calibration.model.mesh_model import MeshModel
from calibration.model.observations import NoiseModel, Observations
from calibration.model.parameters import MeshParameters
from calibration.model.work import DRIFTED
from lumion_hw.mesh.record.calibration_record import Defect

Real = NDArray[np.float64]

RAD_PER_K = 0.6
"""Phase of a PUC per kelvin (estimated from dn/dT of silicon, 1.86e-4 per kelvin)."""
_LN10_PER_10 = np.log(10.0) / 10.0
_STEPS = 4
_LARGEST_STEP = (1.0, 0.1)
# Of power in dB and common phase in rad, for a setting whose readings tell nothing.
_SPREAD = (0.5, 0.3)
# Share of a reading that laws leave open where heaters are driven beyond what they were fitted to: in the sweeps.
_LAW_ERROR = 0.02
_MARGIN = 1.02
_CLEAR = 10.0
_LEAST_KNOTS, _MOST_KNOTS = 6, 24
_SETTINGS_PER_KNOT = 30
_ROUNDS = 4
# What is left beside noise of a setting's phase: by the fit, and by heaters driven farther than it knows them.
_SURE_RAD, _UNSURE_RAD = 1e-3, 2e-2
# How much the slope of the temperature's trajectory changes from instant to instant.
_BEND_RAD = 0.02
# How far off a fit may be in the phase that heat anywhere gives all PUCs; drift led it astray before it was known.
_RAD_PER_MA2 = 2e-3
_TELLING_RAD, _TELLING_DB = 0.005, 0.05
_WINDOW = 15
# Settings of a source farther apart in time are looks of their own: the reference setting at the beginning is one.
_APART_S = 1.0
_REST_RAD = 0.012
_HOP_RAD = 0.03
_HOP_SHARE = 0.1
# Ranges of trajectories that are followed. A temperature of a few milliradians, left alone, is taken for what heat
# anywhere gives all PUCs, because chosen settings, the last of a run, heat less than random ones: it makes hot settings
# wrong.
_FOLLOWED_RAD, _FOLLOWED_DB = 0.0015, 0.05
# The same, in standard errors of a setting: noise is not followed.
_FOLLOWED_SIGMA = 4.0
_NAMED_K, _NAMED_DB = 0.03, 0.12
_TEMPERATURE = (
    "chip temperature drifted by {drift:+.2f} K during the run, over a range of {range:.2f} K (0.6 rad/K per PUC "
    "taken); a lock leaves 0.01 to 0.1 K. It was followed: phases are those at the end of the run. Check the lock"
)
_HOP = (
    "source at port {source}: its frequency jumped by {shift:+.1f} GHz after {at:.0f} s of the run, as at a mode hop. "
    "It was followed: its frequency is that at the end of the run. Check the laser"
)
_POWER = (
    "source at port {source} drifted by {drift:+.2f} dB during the run, over a range of {range:.2f} dB. It was "
    "followed: its level is that at the end of the run. Check its laser and align its polarization"
)


@dataclass(frozen=True, eq=False)
class Drift:
    """Power and common phase that every setting of a run shows beyond the fit.

    Attributes:
        taken_s: Shape ``(N,)``; bench time of the setting.
        source: Shape ``(N,)``; port of its light.
        power_db: Shape ``(N,)``; power beyond the fit's.
        power_sigma_db: Shape ``(N,)``.
        phase_rad: Shape ``(N,)``; phase common to all PUCs, beyond the fit's.
        phase_sigma_rad: Shape ``(N,)``.
        sure: Shape ``(N,)``; where all heaters are driven as the fit knows them: not in the sweeps, which go farther.
        square_ma2: Shape ``(N,)``; sum of the squared currents of all heaters: the heat, but for a factor.
    """

    taken_s: Real
    source: NDArray[np.int64]
    power_db: Real
    power_sigma_db: Real
    phase_rad: Real
    phase_sigma_rad: Real
    sure: NDArray[np.bool_]
    square_ma2: Real

    @property
    def tells_phase(self) -> NDArray[np.bool_]:
        """Shape ``(N,)``; settings that tell the phase to a few milliradians."""
        tells: NDArray[np.bool_] = self.sure & (self.phase_sigma_rad < _TELLING_RAD)
        return tells

    @property
    def tells_power(self) -> NDArray[np.bool_]:
        """Shape ``(N,)``; settings that tell the power to some hundredths of a decibel."""
        tells: NDArray[np.bool_] = self.sure & (self.power_sigma_db < _TELLING_DB)
        return tells

    def __getitem__(self, chosen: NDArray[np.int64] | NDArray[np.bool_]) -> Drift:
        """Return some of the settings."""
        return Drift(*(getattr(self, each.name)[chosen] for each in fields(self)))


@dataclass(frozen=True, eq=False)
class DriftTrajectories:
    """How a run drifted, as far as it did: the few trajectories that explain what all settings say.

    Attributes:
        at_s: Shape ``(k,)``; instants of the temperature's trajectory: settings within what the fit knows.
        temperature_rad: Shape ``(k,)``; common phase by temperature, 0 at the last setting.
        hops: By source, the time and the size in rad of a jump of its frequency.
        power_at_s: By source, instants of its power's trajectory.
        power_db: By source, the power then, 0 at the last setting.
    """

    at_s: Real
    temperature_rad: Real
    hops: dict[int, tuple[float, float]]
    power_at_s: dict[int, Real]
    power_db: dict[int, Real]

    @property
    def moved(self) -> bool:
        """Whether anything has moved by more than what a setting's own freedom takes up."""
        return bool(
            np.ptp(self.temperature_rad) > _FOLLOWED_RAD
            or self.hops
            or any(np.ptp(trajectory) > _FOLLOWED_DB for trajectory in self.power_db.values())
        )

    def differs(self, other: DriftTrajectories) -> bool:
        """Whether a trajectory is another than what was followed before."""
        if self.hops.keys() != other.hops.keys():
            return True
        pairs = [(self.at_s, self.temperature_rad, other.at_s, other.temperature_rad, _FOLLOWED_RAD)]
        pairs += [
            (self.power_at_s[port], trajectory, other.power_at_s[port], other.power_db[port], _FOLLOWED_DB)
            for port, trajectory in self.power_db.items()
            if port in other.power_db
        ]
        return any(
            float(np.abs(now - np.interp(at, then_at, then)).max()) > most for at, now, then_at, then, most in pairs
        )

    def taken_out(self, observations: Observations, taken_s: Real, delay_s: float) -> Observations:
        """Return settings as if all were at the end of their trajectory: phases as detuning, power in the readings."""
        phase = np.interp(taken_s, self.at_s, self.temperature_rad)
        power_db = np.zeros(len(taken_s))
        for source, (hop_s, size_rad) in self.hops.items():
            phase -= np.where((observations.source == source) & (taken_s < hop_s), size_rad, 0.0)
        for source, trajectory in self.power_db.items():
            mine = observations.source == source
            power_db[mine] = np.interp(taken_s[mine], self.power_at_s[source], trajectory)
        return replace(
            observations,
            detuning_hz=observations.detunings_hz + phase / (2.0 * np.pi * delay_s),
            reading_ma=observations.reading_ma * 10.0 ** (-power_db[:, None] / 10.0),
        )

    def defects(self, delay_s: float) -> tuple[Defect, ...]:
        """Name what drifted so far that the bench should be looked at."""
        found = []
        kelvin = self.temperature_rad / RAD_PER_K
        if np.ptp(kelvin) > _NAMED_K:
            found.append(
                Defect(
                    "temperature drift", "chip", 0,
                    _TEMPERATURE.format(drift=kelvin[-1] - kelvin[0], range=np.ptp(kelvin)),
                )
            )  # fmt: skip
        for source, (hop_s, size_rad) in self.hops.items():
            shift_ghz = size_rad / (2e9 * np.pi * delay_s)
            words = _HOP.format(source=source, shift=shift_ghz, at=hop_s)
            found.append(Defect("mode hop", "source", source, words))
        for source, trajectory in self.power_db.items():
            if np.ptp(trajectory) > _NAMED_DB:
                words = _POWER.format(source=source, drift=trajectory[-1] - trajectory[0], range=np.ptp(trajectory))
                found.append(Defect("power drift", "source", source, words))
        return tuple(found)


def measure_drift(
    model: MeshModel,
    parameters: MeshParameters,
    observations: Observations,
    taken_s: Real,
    noise: NoiseModel,
    reach_ma: Real,
) -> Drift:
    """Return power and common phase of every setting beyond the fit; dark settings are left out.

    Args:
        model: The model.
        parameters: Where the fit ended.
        observations: Settings in the order they were taken.
        taken_s: Shape ``(N,)``; when.
        noise: Noise of a reading.
        reach_ma: Shape ``(2E,)``; currents up to which the fit knows the heaters.
    """
    # Dark settings show neither power nor phase.
    lit = np.isin(observations.source, model.space.sources)
    taken_s, observations = taken_s[lit], observations[lit]
    model.work.spent += DRIFTED * observations.reading_ma.size
    sure: NDArray[np.bool_] = np.all(observations.currents_ma <= _MARGIN * reach_ma, axis=1)
    off = np.zeros((len(observations), 2))
    per_rad_hz = 1.0 / (2.0 * np.pi * parameters.delay_s)
    known = np.isfinite(observations.reading_ma) & ~observations.saturated
    target = np.nan_to_num(observations.reading_ma)
    # In the sweeps heaters go farther than the laws were fitted for: their settings count, but for less.
    sigma = np.hypot(noise.sigma_ma(np.maximum(target, 0.0)), np.where(sure, 0.0, _LAW_ERROR)[:, None] * target)
    inverse: Real = np.zeros((len(observations), 2, 2))
    root = residual = np.zeros(target.shape)
    for _ in range(_STEPS):
        moved = replace(observations, detuning_hz=observations.detunings_hz + off[:, 1] * per_rad_hz)
        power = 10.0 ** (off[:, :1] / 10.0)
        here = model.predict(parameters, moved) * power
        by_phase = model.by_common_phase(parameters, moved) * power
        residual = (target - here) / sigma
        root = np.where(known, np.sqrt(weight(residual)), 0.0)
        slopes = np.stack([_LN10_PER_10 * here, by_phase], axis=-1) * (root / sigma)[..., None]
        across = np.swapaxes(slopes, 1, 2)
        matrix = across @ slopes + np.diag([spread**-2.0 for spread in _SPREAD])
        inverse = np.asarray(np.linalg.inv(matrix), dtype=np.float64)
        pull = (across @ (root * residual)[..., None])[..., 0] - off / np.square(_SPREAD)
        # Gauss-Newton on two numbers per setting, all settings at once; steps are cut so that no setting leaves its
        # branch.
        off = off + np.clip((inverse @ pull[..., None])[..., 0], -np.array(_LARGEST_STEP), np.array(_LARGEST_STEP))
    square_ma2 = (observations.currents_ma**2).sum(axis=1)
    # Settings that do not fit, for whatever reason, know less.
    misfit = np.sqrt(np.maximum((root * residual**2).sum(axis=1) / np.maximum(known.sum(axis=1) - 2, 1), 1.0))
    spread = np.sqrt(np.diagonal(inverse, axis1=1, axis2=2)) * misfit[:, None]
    return Drift(taken_s, observations.source, off[:, 0], spread[:, 0], off[:, 1], spread[:, 1], sure, square_ma2)


def excess_db(
    drift: Drift,
    model: MeshModel,
    parameters: MeshParameters,
    observations: Observations,
    noise: NoiseModel,
    least_mw: float = 1e-4,
) -> float:
    """Return the rms error of predicted powers beyond noise, each setting at the light and temperature it had.

    Args:
        drift: What the settings say of these.
        model: The model.
        parameters: The parameters to judge.
        observations: The settings, all lit.
        noise: Noise of a reading.
        least_mw: Power at a port that counts.
    """
    phase_rad, power_db = _like_neighbours(drift)
    moved = replace(
        observations, detuning_hz=observations.detunings_hz + phase_rad / (2.0 * np.pi * parameters.delay_s)
    )
    predicted = model.predict(parameters, moved) * 10.0 ** (power_db[:, None] / 10.0)
    # Ten floors at least: below, the reading is the converter's.
    least_ma = np.maximum(least_mw * parameters.monitor_ma_per_mw, _CLEAR * noise.floor_ma)
    bright = (predicted > least_ma) & (observations.reading_ma > 0.0)
    off = np.log(observations.reading_ma[bright] / predicted[bright]) / _LN10_PER_10
    expected = noise.sigma_ma(predicted[bright]) / predicted[bright] / _LN10_PER_10
    return float(np.sqrt(max(np.mean(off**2) - np.mean(expected**2), 0.0))) if bright.any() else 0.0


def _like_neighbours(drift: Drift) -> tuple[Real, Real]:
    """Return phase and power of every setting as its source had them about that time.

    One setting may be led astray, or not tell: one that leads all light to one port has no phase to show.
    """
    result = []
    for values, sigma, telling in (
        (drift.phase_rad, drift.phase_sigma_rad, _TELLING_RAD),
        (drift.power_db, drift.power_sigma_db, _TELLING_DB),
    ):
        trajectory = values.copy()
        for source in np.unique(drift.source).tolist():
            mine = drift.source == source
            tells = mine & (sigma < telling)
            if tells.any():
                at_s = drift.taken_s[tells]
                trajectory[mine] = np.interp(drift.taken_s[mine], at_s, _smooth(values[tells], at_s))
        result.append(trajectory)
    return result[0], result[1]


def fit_drift_trajectories(drift: Drift) -> DriftTrajectories:
    """Return the trajectories that explain what all settings say.

    A jump of one source alone, the others at rest, is its frequency; anything else is the temperature.
    """
    # Jumps first: a trajectory that may bend would follow a mode hop of one source and turn all others by it.
    hops = _hops(drift)
    phase = drift.phase_rad.copy()
    for source, (hop_s, size_rad) in hops.items():
        phase += np.where((drift.source == source) & (drift.taken_s < hop_s), size_rad, 0.0)
    # What sweeps say helps to tell sources apart, but only settings within what the fit knows are believed.
    temperature = _temperature(replace(drift, phase_rad=phase))[drift.tells_phase]
    at_s = drift.taken_s[drift.tells_phase]
    if not len(at_s):
        at_s, temperature = np.zeros(1), np.zeros(1)
    power_at_s, power_db = {}, {}
    for source in np.unique(drift.source).tolist():
        mine = drift[(drift.source == source) & drift.tells_power]
        if len(mine.taken_s):
            trajectory = _smooth(mine.power_db, mine.taken_s)
            power_at_s[source], power_db[source] = mine.taken_s, _beyond(trajectory - trajectory[-1], _FOLLOWED_DB)
    sigma_rad = float(np.median(drift.phase_sigma_rad[drift.tells_phase])) if drift.tells_phase.any() else 0.0
    temperature = _beyond(temperature - temperature[-1], max(_FOLLOWED_RAD, _FOLLOWED_SIGMA * sigma_rad))
    return DriftTrajectories(at_s, temperature, hops, power_at_s, power_db)


def _beyond(trajectory: Real, most: float) -> Real:
    """Return a trajectory, or rest if its range is smaller: what a setting's own freedom takes up is not followed."""
    return trajectory if np.ptp(trajectory) > most else np.zeros(len(trajectory))


def _hops(drift: Drift) -> dict[int, tuple[float, float]]:
    """Return the jump of the one source whose phase has two levels while all others are at rest: its time and size."""
    restless = []
    for source in np.unique(drift.source).tolist():
        mine = drift[(drift.source == source) & drift.tells_phase]
        if len(mine.taken_s) and np.ptp(_smooth(mine.phase_rad, mine.taken_s)) > _REST_RAD:
            restless.append(source)
    # Two restless sources are the temperature: a mode hop is an affair of one laser.
    if len(restless) != 1:
        return {}
    mine = drift[(drift.source == restless[0]) & (drift.phase_sigma_rad < _TELLING_RAD)]
    trajectory = _smooth(mine.phase_rad, mine.taken_s)
    spreads = [_spread(trajectory[:n]) + _spread(trajectory[n:]) for n in range(1, len(trajectory))]
    n = 1 + int(np.argmin(spreads))
    before, after = float(np.median(trajectory[:n])), float(np.median(trajectory[n:]))
    # Two levels with little about them, far apart: anything else is no jump.
    if min(spreads) / len(trajectory) > _HOP_SHARE * abs(after - before) or abs(after - before) < _HOP_RAD:
        return {}
    return {restless[0]: (float(0.5 * (mine.taken_s[n - 1] + mine.taken_s[n])), after - before)}


def _spread(values: Real) -> float:
    """Return the sum of distances from the median."""
    spread: float = np.abs(values - np.median(values)).sum()
    return spread


def _temperature(drift: Drift) -> Real:
    """Return the common phase of every setting by the temperature, every source being left one frequency.

    The trajectory is straight between a few instants; what the settings of a while say beyond it is part of it. What
    goes with the heat of the setting is crosstalk, not temperature: chosen settings, the last of a run, heat less.
    """
    # As many instants as settings can bear, and never so many that noise is followed.
    knots = int(np.clip(drift.tells_phase.sum() // _SETTINGS_PER_KNOT, _LEAST_KNOTS, _MOST_KNOTS))
    at_s = np.linspace(drift.taken_s[0], drift.taken_s[-1], knots)
    sources, number = np.unique(drift.source, return_inverse=True)
    trajectory = np.stack([np.interp(drift.taken_s, at_s, unit) for unit in np.eye(knots)], axis=1)
    # Σ I² beside the trajectory: what goes with the heat of a setting is crosstalk that the fit has not right yet.
    design = np.concatenate([trajectory, np.eye(len(sources))[number], drift.square_ma2[:, None]], axis=1)
    sigma = np.hypot(drift.phase_sigma_rad, np.where(drift.sure, _SURE_RAD, _UNSURE_RAD))
    # Priors as rows of the least squares: little change of slope, an end at zero, little crosstalk that the fit missed.
    bend = np.zeros((knots - 2, design.shape[1]))
    for row in range(knots - 2):
        bend[row, row : row + 3] = (1.0, -2.0, 1.0)
    bend /= _BEND_RAD
    level = np.zeros((1, design.shape[1]))
    level[0, knots - 1] = 1.0 / _SURE_RAD
    crosstalk = np.zeros((1, design.shape[1]))
    crosstalk[0, -1] = 1.0 / _RAD_PER_MA2
    held = np.concatenate([bend, level, crosstalk])
    root = np.ones(len(sigma))
    found = np.zeros(design.shape[1])
    for _ in range(_ROUNDS):
        rows = np.concatenate([design * (root / sigma)[:, None], held])
        found = np.linalg.lstsq(
            rows, np.concatenate([drift.phase_rad * root / sigma, np.zeros(len(held))]), rcond=None
        )[0]
        root = np.sqrt(weight((drift.phase_rad - design @ found) / sigma))
    beyond = drift.phase_rad - design @ found
    temperature: Real = trajectory @ found[:knots] + _smooth(np.where(drift.tells_phase, beyond, 0.0), drift.taken_s)
    return temperature


def _smooth(values: Real, taken_s: Real) -> Real:
    """Return running medians, of fewer settings at the ends of a while in which they were taken one after the other."""
    half = _WINDOW // 2
    smooth = np.empty(len(values))
    edges = [0, *(np.flatnonzero(np.diff(taken_s) > _APART_S) + 1).tolist(), len(values)]
    for first, last in itertools.pairwise(edges):
        for index in range(first, last):
            smooth[index] = np.median(values[max(index - half, first) : min(index + half + 1, last)])
    return smooth
