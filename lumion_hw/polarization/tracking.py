"""Tracking of a drifting polarization as steps without I/O: each step yields settings and receives the measured power.

Every reading is taken a small dither away from the maximum, in rotating directions. A Kalman filter updates the model
of the light, and the squeezers follow. With four squeezers, one that comes near its limit is moved back to mid-range
while the others compensate (docs/polarization.md).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import DeviceError
from lumion_hw.polarization.retarders import RetarderChain, cross_matrix
from lumion_hw.polarization.state_fit import LightEstimate

DITHER_RAD = 0.1
"""Distance of readings from the maximum on the Poincaré sphere; it costs 0.011 dB."""
DRIFT_RAD = 0.02
"""Assumed drift per reading; up to 0.01 to 0.03 rad can be tracked (docs/polarization.md, "Tracking")."""
_NEAR_END = 0.75
"""Distance from mid-range, as a fraction of the half range, at which a squeezer starts to move back."""
_BACK = 0.25
"""Distance from mid-range, as a fraction of the half range, at which a squeezer stops moving back."""
_RETURN_RAD = 0.1  # of a squeezer that moves back, per reading
_CENTRING = 0.03  # grows with the cube of the position, so that it acts near the ends and hardly in the middle
_CIRCLE_RAD, _CIRCLE_READS = 0.3, 16.0
"""Radius of small circles in the drives that do not change the light, and readings per turn.

They show how each squeezer turns the light.
"""
_MAX_STEP_RAD, _MAX_RETURN_RAD = 0.5, 0.15
_MAX_TURN_RAD = 0.1
"""Largest correction along each axis of the Poincaré sphere; a larger one is made in parts."""
_SINGULAR = 0.2  # a squeezer with a smaller part of the null space cannot move without losing light
_MAX_DITHER_RAD = 0.4  # of one squeezer: where squeezers hardly act, even a small dither would need huge drives
_STEPS_PER_READING = 2  # the sphere is curved: one linear step leaves a second-order error, two more remove it
_DAMPING = 1e-3
_UNIT = np.eye(3)
_MAX_VARIANCE = 0.3
"""Largest variance of the estimate, rad²."""
_P0_WALK = 5e-4
"""Standard deviation of the change of ln P0 from reading to reading."""
_DRIFT_MEMORY = 0.02
_MAX_DRIFT_RAD = 0.1
_MAX_DITHER = 1.5
"""Largest dither relative to that without drift; it costs 0.025 dB."""
_MIN_DROP, _MIN_DROP_SIGMA = 0.15 * math.log(10.0) / 10.0, 4.0
"""A reading that is 0.15 dB and four times its noise below the expected one is an error of the model, not drift."""
_RECENT_READS = 12  # within which the fibres have hardly moved
_LOW_READ_FRACTION, _MAX_LOW_READS = 0.5, 5  # one low reading may be an outlier, five in a row are lost light


@dataclass(frozen=True)
class TrackState:
    """State of polarization tracking after a reading.

    Attributes:
        remaining_loss_db: Estimated mean loss from dither and uncertainty.
        drift_rad: Estimated change of the polarization from reading to reading.
        returning: Squeezers that are moving back from an end of their range.
        at_end: Whether a squeezer is at an end of its range.
        has_lost_light: Whether the light has been missing for several readings, so that a new search is needed.
    """

    power: float
    remaining_loss_db: float
    drift_rad: float
    returning: tuple[int, ...]
    at_end: bool
    has_lost_light: bool


class PolarizationTracker:
    """Tracks the brightest polarization. Settings are drive phases in rad.

    Args:
        chain: The N squeezers.
        light: The light as the search has found it.
        phases: Present phases, shape ``(N,)``.
        low: Lowest phases, shape ``(N,)``.
        high: Highest phases, shape ``(N,)``.
        dither_rad: Distance of readings from the maximum on the Poincaré sphere.
        drift_rad: Smallest assumed change of the polarization from reading to reading.
    """

    def __init__(
        self,
        chain: RetarderChain,
        light: LightEstimate,
        phases: NDArray[np.float64],
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        *,
        dither_rad: float = DITHER_RAD,
        drift_rad: float = DRIFT_RAD,
    ) -> None:
        self._chain = chain
        self._state, self._accepted = light.state.copy(), light.accepted.copy()
        self._offsets = light.offsets.copy()
        self._ln_p0 = float(np.log(light.p0))
        self._crosstalk = light.crosstalk
        self._noise = light.relative_noise
        self._covariance = light.covariance.copy()
        self._centre = phases.copy()
        self._low, self._high = low, high
        self._dither_rad = dither_rad
        self._drift_rad = self._min_drift_rad = drift_rad
        self._mean_chi2 = 1.0
        self._reads = 0
        self._returning: set[int] = set()
        self._missing = 0
        self._recent: deque[tuple[float, NDArray[np.float64]]] = deque(maxlen=_RECENT_READS)

    @property
    def centre(self) -> NDArray[np.float64]:
        """Squeezer phases of the estimated maximum, without dither."""
        return self._centre.copy()

    def next(self) -> NDArray[np.float64]:
        """Return the phases for the next reading: the centre plus a dither whose direction turns by 120° each time."""
        # Three directions a third of a turn apart show both components of the error. Each round is rotated against the
        # previous one, so that no direction is omitted for long.
        angle = 2.0 * np.pi * self._reads / 3.0 + 0.5 * np.pi * (self._reads // 3)
        _, turned, jacobian = self._geometry(self._centre)
        # Two directions across the light; starting from the axis farthest from it keeps the product away from zero.
        cross = cross_matrix(turned)
        first = cross[:, int(np.argmin(np.abs(turned)))]
        first = first / np.linalg.norm(first)
        sideways = self._dither() * (math.cos(angle) * first + math.sin(angle) * (cross @ first))
        free = self._low < self._high
        drives = _limit_step(_damped_inverse(jacobian * free) @ sideways, _MAX_DITHER_RAD)
        requested: NDArray[np.float64] = np.clip(self._centre + drives, self._low, self._high)
        return requested

    def update(self, phases: NDArray[np.float64], power: float) -> TrackState:
        """Correct the estimate of the polarization by a reading, and follow the light.

        Args:
            phases: Phases that were set, shape ``(N,)``; may differ from the requested ones by the actuators' steps.
            power: The reading, in the unit of the search.
        """
        self._reads += 1
        expected = self._apply_reading(phases, power)
        self._missing = self._missing + 1 if power < _LOW_READ_FRACTION * expected else 0
        lower_limit = math.exp(-max(_MIN_DROP, _MIN_DROP_SIGMA * self._noise))
        brightest = max(self._recent, key=lambda reading: reading[0], default=None)
        if brightest is not None and power < lower_limit * min(expected, brightest[0]):
            self._return_to_recent(brightest[1])
        else:
            self._follow()
        self._recent.append((power, phases.copy()))
        error = self._error_variance()
        at_end = bool(np.any((self._centre <= self._low) | (self._centre >= self._high)))
        # A small angle δ on the sphere costs δ²/4 of the light (docs/polarization.md, "The model").
        loss_db = 10.0 / np.log(10.0) * (error + self._dither() ** 2) / 4.0
        returning = tuple(sorted(self._returning))
        return TrackState(power, float(loss_db), self._drift_rad, returning, at_end, self._missing >= _MAX_LOW_READS)

    def rescale(self, phases: NDArray[np.float64], power: float) -> None:
        """Scale the estimated power to the reading of another detector.

        Raises:
            DeviceError: The reading is dark.
        """
        expected, _ = self._predict(phases)
        if not power > 0.0:
            raise DeviceError("no light reaches the detector to which polarization tracking has been switched")
        self._ln_p0 += math.log(power / expected)
        self._missing = 0
        self._recent.clear()  # readings of the former detector are not comparable

    def _dither(self) -> float:
        return self._dither_rad * min(math.sqrt(self._drift_rad / self._min_drift_rad), _MAX_DITHER)

    # The filter -------------------------------------------------------------------------------------------------------

    def _apply_reading(self, phases: NDArray[np.float64], power: float) -> float:
        # A random walk across the state only, because states stay on the unit sphere.
        walk = 0.5 * self._drift_rad**2  # half of it before the squeezers, half behind them, in two directions each
        self._covariance[0:3, 0:3] += 0.5 * walk * (_UNIT - self._state[:, None] * self._state)
        self._covariance[3:6, 3:6] += 0.5 * walk * (_UNIT - self._accepted[:, None] * self._accepted)
        self._covariance[-1, -1] += _P0_WALK**2
        # Unobserved directions would grow without bound, and one reading could then move the light far away.
        values, vectors = np.linalg.eigh(self._covariance)
        self._covariance = (vectors * np.clip(values, 0.0, _MAX_VARIANCE)) @ vectors.T
        predicted, slope = self._predict(phases)
        sigma = self._noise * max(power, 0.0) + 1e-6 * float(np.exp(self._ln_p0))
        # The power is curved, so possible motion of the light across the slope counts as noise.
        curved = 0.25 * self._error_variance() * float(np.exp(self._ln_p0))
        variance = float(slope @ self._covariance @ slope) + sigma**2 + 0.5 * curved**2
        # A single reading is a number, so the Kalman gain needs no matrix inverse.
        gain = self._covariance @ slope / variance
        innovation = power - predicted
        self._covariance -= (gain[:, None] * gain) * variance
        self._apply_correction(gain * innovation)
        self._update_drift(innovation**2 / variance)
        return predicted

    def _predict(self, phases: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        turn, turned, jacobian = self._geometry(phases)
        back = self._accepted @ turn
        q = float(self._accepted @ turned)
        p0 = math.exp(self._ln_p0)
        share = (1.0 - 2.0 * self._crosstalk) * 0.5 * (1.0 + q) + self._crosstalk
        by_q = 0.5 * p0 * (1.0 - 2.0 * self._crosstalk)
        slope = np.empty(len(self._covariance))
        slope[0:3] = by_q * (back - q * self._state)
        slope[3:6] = by_q * (turned - q * self._accepted)
        slope[6:-1] = by_q * (self._accepted @ jacobian[:, 1:-1])
        slope[-1] = p0 * share
        return p0 * share, slope

    def _apply_correction(self, step: NDArray[np.float64]) -> None:
        self._state = self._state + step[0:3]
        self._state /= np.linalg.norm(self._state)
        self._accepted = self._accepted + step[3:6]
        self._accepted /= np.linalg.norm(self._accepted)
        self._offsets[1:-1] += step[6:-1]  # the first and the last constant are part of the two states
        self._ln_p0 += float(np.clip(step[-1], -0.5, 0.5))  # no reading changes P0 by more than a factor of 1.6

    def _update_drift(self, chi2: float) -> None:
        # Clipped at three standard deviations, so that one outlier does not look like a fast fibre.
        self._mean_chi2 += _DRIFT_MEMORY * (min(chi2, 9.0) - self._mean_chi2)
        drift = self._drift_rad * (1.0 + _DRIFT_MEMORY * (self._mean_chi2 - 1.0))
        self._drift_rad = float(np.clip(drift, self._min_drift_rad, _MAX_DRIFT_RAD))

    def _error_variance(self) -> float:
        """Return the variance of the angle between the tracked light and the accepted state, rad²."""
        turn, _, jacobian = self._geometry(self._centre)
        by = np.hstack([turn, -_UNIT, jacobian[:, 1:-1]])
        across = by - self._accepted[:, None] * (self._accepted @ by)
        size = by.shape[1]
        return float((across @ self._covariance[:size, :size] * by).sum())

    def _return_to_recent(self, phases: NDArray[np.float64]) -> None:
        self._centre = np.clip(phases, self._low, self._high)
        self._state = (
            self._accepted @ self._geometry(self._centre)[0]
        )  # the accepted state, propagated back through the squeezers
        self._recent.clear()  # do not return to the same position twice

    # The squeezers ----------------------------------------------------------------------------------------------------

    def _geometry(
        self, phases: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        return self._chain.turn_and_slopes(phases + self._offsets, self._state)

    def _follow(self) -> None:
        middle, reach = 0.5 * (self._low + self._high), 0.5 * (self._high - self._low)
        position = np.divide(self._centre - middle, reach, out=np.zeros_like(middle), where=reach > 0.0)
        self._returning |= {int(i) for i in np.flatnonzero(np.abs(position) > _NEAR_END)}
        self._returning -= {int(i) for i in np.flatnonzero(np.abs(position) < _BACK)}
        aim = self._accepted
        # Only the first step also uses the null space; the others remove the error that this causes.
        for first in (True, *[False] * _STEPS_PER_READING):
            _, turned, jacobian = self._geometry(self._centre)
            if first:
                aim = turned + _limit_step(aim - turned, _MAX_TURN_RAD)
            free = reach > 0.0
            step = self._step(aim, turned, jacobian, free, position if first else None)
            is_outside = ((self._centre + step) < self._low) | ((self._centre + step) > self._high)
            if is_outside.any():  # squeezers at an end stay, the others do what they can
                step = self._step(aim, turned, jacobian, free & ~is_outside, position if first else None)
            self._centre = np.clip(self._centre + step, self._low, self._high)

    def _step(
        self,
        aim: NDArray[np.float64],
        turned: NDArray[np.float64],
        jacobian: NDArray[np.float64],
        free: NDArray[np.bool_],
        position: NDArray[np.float64] | None,
    ) -> NDArray[np.float64]:
        """Return a phase step that turns the light to ``aim``; with ``position``, squeezers also move to mid-range."""
        used = jacobian * free
        inverse = _damped_inverse(used)
        step: NDArray[np.float64] = inverse @ (aim - (aim @ turned) * turned)
        if position is not None:
            # Drives along the null space of the active squeezers leave the light unchanged (arXiv 2208.13660).
            idle = (np.eye(len(free)) - inverse @ used) * free[:, None] * free
            drives_rad = self._circling_drives() - _CENTRING * position**3
            for index in self._returning:
                if idle[index, index] > _SINGULAR and position[index]:
                    drives_rad[index] = -np.sign(position[index]) * _RETURN_RAD / idle[index, index]
            step = _limit_step(step, _MAX_STEP_RAD) + _limit_step(idle @ drives_rad, _MAX_RETURN_RAD)
        return _limit_step(step, _MAX_STEP_RAD)

    def _circling_drives(self) -> NDArray[np.float64]:
        index = np.arange(len(self._chain))
        # Different paces, so that the pairs do not repeat one combination forever.
        pace = 2.0 * np.pi / _CIRCLE_READS * (1.0 + 0.5 * (index // 2))
        circling: NDArray[np.float64] = _CIRCLE_RAD * np.cos(pace * self._reads + 0.5 * np.pi * index)
        return circling


def _limit_step(step: NDArray[np.float64], largest: float) -> NDArray[np.float64]:
    limited: NDArray[np.float64] = step * min(1.0, largest / max(1e-12, *map(abs, step.tolist())))
    return limited


def _damped_inverse(jacobian: NDArray[np.float64]) -> NDArray[np.float64]:
    # Inverse of a symmetric 3 × 3 matrix by its cofactors: a general solver takes four times as long.
    (a, b, c), (_, d, e), (_, _, f) = (jacobian @ jacobian.T + _DAMPING * _UNIT).tolist()
    aa, ab, ac = d * f - e * e, c * e - b * f, b * e - c * d
    bc, scale = b * c - a * e, 1.0 / (a * aa + b * ab + c * ac)
    cofactors = [[aa, ab, ac], [ab, a * f - c * c, bc], [ac, bc, a * d - b * b]]
    return np.asarray(jacobian.T @ (scale * np.array(cofactors)))
