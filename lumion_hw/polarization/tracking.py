"""Tracking of a polarization that drifts, as steps without I/O: settings out, the power read there in.

A Kalman filter carries the light that the search has found (states before and behind the squeezers, their constants,
and the power) along while the fibres turn. At a maximum the power does not tell which way the light has moved, so every
reading is taken a small dither beside it, in directions that go round. Each reading corrects the estimate, and the
squeezers follow the estimate.

The squeezers have ends, the drift has none. With four squeezers two combinations of drives leave the light as it is;
along these each squeezer that comes near an end is led back to the middle in small steps while the others make up for
it, without any jump (docs/polarization.md).
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
"""Costs 0.011 dB, and a reading with 0.01 dB of noise tells the way to 0.05 rad."""
DRIFT_RAD = 0.02
"""Between the 0.01 and 0.03 rad per reading that dithering follows (docs/polarization.md, "Tracking")."""
_NEAR_END = 0.75
"""Part of the half range from which a squeezer is led back …"""
_BACK = 0.25
"""… until it is here again."""
_RETURN_RAD = 0.1  # of a squeezer on its way back, per reading
_CENTRING = 0.03  # cubed with the place, so that it acts near the ends and hardly in the middle
_CIRCLE_RAD, _CIRCLE_READS = 0.3, 16.0
"""Drives go round in small circles where that costs no light, which shows how each squeezer turns it by now."""
_LARGEST_STEP_RAD, _LARGEST_RETURN_RAD = 0.5, 0.15
_LARGEST_TURN_RAD = 0.1
"""Along each axis of the sphere. No fibre turns the light farther in one reading: of a larger correction a part is done
and the next reading judges it. Done at once a wrong one costs half a decibel until that shows."""
_SINGULAR = 0.2  # a squeezer whose own part of the null space is smaller cannot be moved without losing light
_LARGEST_DITHER_RAD = 0.4  # of one squeezer: where the squeezers hardly act, a small dither would ask for huge drives
_STEPS_PER_READING = 2  # the sphere is curved: one linear step leaves an error of second order, two more remove it
_DAMPING = 1e-3
_UNIT = np.eye(3)
_WIDEST = 0.3
"""Largest variance believed, rad². How the drift divides before and behind the squeezers hardly shows in the power."""
_P0_WALK = 5e-4
"""Standard deviation by which ln P0 moves from reading to reading."""
_DRIFT_MEMORY = 0.02
_MOST_DRIFT_RAD = 0.1
_MOST_DITHER = 1.5
"""Times the dither at rest, 0.025 dB: where the light moves fast, readings have to tell more."""
_FALLEN, _FALLEN_SIGMA = 0.15 * math.log(10.0) / 10.0, 4.0
"""A reading that misses the power expected by 0.15 dB, and by four times its noise, is no drift: what is believed of
the squeezers has become wrong."""
_RECENT_READS = 12  # back so far the fibres have hardly moved
_LOST_SHARE, _LOST_READS = 0.5, 5  # one low reading may be a bad one, five in a row are lost light


@dataclass(frozen=True)
class TrackState:
    """What is known after a reading.

    Attributes:
        power: The reading.
        remaining_loss_db: Light estimated to be missing at the dithered setting, mean: dither and uncertainty.
        drift_rad: Motion of the polarization from reading to reading, as estimated.
        returning: Squeezers being led back from an end of their range.
        at_end: A squeezer stands at an end of its range: announce it.
        lost: The light has been missing for several readings: search again.
    """

    power: float
    remaining_loss_db: float
    drift_rad: float
    returning: tuple[int, ...]
    at_end: bool
    lost: bool


class PolarizationTracker:
    """Follows the brightest polarization; all settings are drive phases in rad.

    Args:
        chain: The squeezers.
        light: Where to start from: the light as the search has found it.
        phases: Phases in force, shape ``(N,)``.
        low: Least phases, shape ``(N,)``.
        high: Largest phases.
        dither_rad: Distance on the sphere at which to read.
        drift_rad: Motion of the polarization from reading to reading that is believed at the least.
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
        self._drift_rad = self._least_drift_rad = drift_rad
        self._mean_chi2 = 1.0
        self._reads = 0
        self._returning: set[int] = set()
        self._missing = 0
        self._recent: deque[tuple[float, NDArray[np.float64]]] = deque(maxlen=_RECENT_READS)

    @property
    def centre(self) -> NDArray[np.float64]:
        """Phases of the estimated maximum, without dither."""
        return self._centre.copy()

    def next(self) -> NDArray[np.float64]:
        """Return the phases at which to read next: a dither beside the centre, a third of a turn on each time."""
        # Three directions a third of a turn apart tell both components of the error; each round is turned against the
        # last, so that no direction is left out for long.
        angle = 2.0 * np.pi * self._reads / 3.0 + 0.5 * np.pi * (self._reads // 3)
        _, turned, jacobian = self._geometry(self._centre)
        # Two directions across the light; the axis farthest from it keeps the product away from zero.
        cross = cross_matrix(turned)
        first = cross[:, int(np.argmin(np.abs(turned)))]
        first = first / np.linalg.norm(first)
        aside = self._dither() * (math.cos(angle) * first + math.sin(angle) * (cross @ first))
        free = self._low < self._high
        drives = _limited(_damped(jacobian * free) @ aside, _LARGEST_DITHER_RAD)
        asked: NDArray[np.float64] = np.clip(self._centre + drives, self._low, self._high)
        return asked

    def update(self, phases: NDArray[np.float64], power: float) -> TrackState:
        """Take in a reading and follow the light.

        Args:
            phases: Phases at which it was read, shape ``(N,)``: those asked for, on the actuators' steps.
            power: The reading, in the unit of the search.
        """
        self._reads += 1
        expected = self._correct(phases, power)
        self._missing = self._missing + 1 if power < _LOST_SHARE * expected else 0
        fallen = math.exp(-max(_FALLEN, _FALLEN_SIGMA * self._noise))
        brightest = max(self._recent, key=lambda reading: reading[0], default=None)
        if brightest is not None and power < fallen * min(expected, brightest[0]):
            self._fall_back(brightest[1])
        else:
            self._follow()
        self._recent.append((power, phases.copy()))
        error = self._error_variance()
        at_end = bool(np.any((self._centre <= self._low) | (self._centre >= self._high)))
        loss_db = 10.0 / np.log(10.0) * (error + self._dither() ** 2) / 4.0
        returning = tuple(sorted(self._returning))
        return TrackState(power, float(loss_db), self._drift_rad, returning, at_end, self._missing >= _LOST_READS)

    def rescale(self, phases: NDArray[np.float64], power: float) -> None:
        """Take a reading for what the light at these phases is worth from now on: it is read at another place.

        Raises:
            DeviceError: It is dark there.
        """
        expected, _ = self._predicted(phases)
        if not power > 0.0:
            raise DeviceError("no light at the place where the polarization is to be followed from now on")
        self._ln_p0 += math.log(power / expected)
        self._missing = 0
        self._recent.clear()  # what was bright elsewhere says nothing here

    def _dither(self) -> float:
        """Return the distance at which to read: the more the light moves, the farther."""
        return self._dither_rad * min(math.sqrt(self._drift_rad / self._least_drift_rad), _MOST_DITHER)

    # The filter -------------------------------------------------------------------------------------------------------

    def _correct(self, phases: NDArray[np.float64], power: float) -> float:
        """Let the fibres drift, then correct the light by a reading; return the power that was expected."""
        # A random walk across the state only: along it there is nothing to move on the unit sphere.
        walk = 0.5 * self._drift_rad**2  # half of it before the squeezers, half behind them; two directions each
        self._covariance[0:3, 0:3] += 0.5 * walk * (_UNIT - self._state[:, None] * self._state)
        self._covariance[3:6, 3:6] += 0.5 * walk * (_UNIT - self._accepted[:, None] * self._accepted)
        self._covariance[-1, -1] += _P0_WALK**2
        # Directions that readings do not show would grow without bound; then one reading could throw the light far.
        values, vectors = np.linalg.eigh(self._covariance)
        self._covariance = (vectors * np.clip(values, 0.0, _WIDEST)) @ vectors.T
        predicted, slope = self._predicted(phases)
        sigma = self._noise * max(power, 0.0) + 1e-6 * float(np.exp(self._ln_p0))
        # The power is curved: what the light may have moved across the slope counts as noise.
        curved = 0.25 * self._error_variance() * float(np.exp(self._ln_p0))
        variance = float(slope @ self._covariance @ slope) + sigma**2 + 0.5 * curved**2
        gain = self._covariance @ slope / variance
        innovation = power - predicted
        self._covariance -= (gain[:, None] * gain) * variance
        self._move(gain * innovation)
        self._adapt_drift(innovation**2 / variance)
        return predicted

    def _predicted(self, phases: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return the power expected at phases and its derivatives by s, t, o and ln P0."""
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

    def _move(self, step: NDArray[np.float64]) -> None:
        """Move the light by a correction; states stay on the sphere."""
        self._state = self._state + step[0:3]
        self._state /= np.linalg.norm(self._state)
        self._accepted = self._accepted + step[3:6]
        self._accepted /= np.linalg.norm(self._accepted)
        self._offsets[1:-1] += step[6:-1]  # the first and the last constant are part of the two states
        self._ln_p0 += float(np.clip(step[-1], -0.5, 0.5))  # no reading changes P0 by more than a factor of 1.6

    def _adapt_drift(self, chi2: float) -> None:
        """Assume more drift while squared standardised innovations exceed 1 in the mean, and less below that."""
        # Cut at three standard deviations: one bad reading must not look like a fast fibre.
        self._mean_chi2 += _DRIFT_MEMORY * (min(chi2, 9.0) - self._mean_chi2)
        drift = self._drift_rad * (1.0 + _DRIFT_MEMORY * (self._mean_chi2 - 1.0))
        self._drift_rad = float(np.clip(drift, self._least_drift_rad, _MOST_DRIFT_RAD))

    def _error_variance(self) -> float:
        """Return the variance of the angle between the light and the state that is taken, rad²."""
        turn, _, jacobian = self._geometry(self._centre)
        by = np.hstack([turn, -_UNIT, jacobian[:, 1:-1]])
        across = by - self._accepted[:, None] * (self._accepted @ by)
        size = by.shape[1]
        return float((across @ self._covariance[:size, :size] * by).sum())

    def _fall_back(self, phases: NDArray[np.float64]) -> None:
        """Return to where the light was bright a moment ago, and believe that it is brightest there.

        How each squeezer turns the light shows in the power but weakly. A belief that has become wrong leads the light
        away, the farther the more it is followed; the fibres themselves have hardly moved since it was bright.
        """
        self._centre = np.clip(phases, self._low, self._high)
        self._state = self._accepted @ self._geometry(self._centre)[0]  # what is taken, led back through the squeezers
        self._recent.clear()  # nobody comes back here a second time

    # The squeezers ----------------------------------------------------------------------------------------------------

    def _geometry(
        self, phases: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return the squeezers' turn, the light behind them, and its derivatives by phases, shape ``(3, N)``."""
        return self._chain.turn_and_slopes(phases + self._offsets, self._state)

    def _follow(self) -> None:
        """Move the centre to the estimated maximum, and squeezers that are near an end back to the middle."""
        middle, reach = 0.5 * (self._low + self._high), 0.5 * (self._high - self._low)
        place = np.divide(self._centre - middle, reach, out=np.zeros_like(middle), where=reach > 0.0)
        self._returning |= {int(i) for i in np.flatnonzero(np.abs(place) > _NEAR_END)}
        self._returning -= {int(i) for i in np.flatnonzero(np.abs(place) < _BACK)}
        aim = self._accepted
        # Only the first step goes along the null space as well: the others take away what that has cost.
        for first in (True, *[False] * _STEPS_PER_READING):
            _, turned, jacobian = self._geometry(self._centre)
            if first:
                aim = turned + _limited(aim - turned, _LARGEST_TURN_RAD)
            free = reach > 0.0
            step = self._step(aim, turned, jacobian, free, place if first else None)
            beyond = ((self._centre + step) < self._low) | ((self._centre + step) > self._high)
            if beyond.any():  # those at an end stay, the others do what they can
                step = self._step(aim, turned, jacobian, free & ~beyond, place if first else None)
            self._centre = np.clip(self._centre + step, self._low, self._high)

    def _step(
        self,
        aim: NDArray[np.float64],
        turned: NDArray[np.float64],
        jacobian: NDArray[np.float64],
        free: NDArray[np.bool_],
        place: NDArray[np.float64] | None,
    ) -> NDArray[np.float64]:
        """Return a step that turns the light to an aim; with places, also along what costs no light."""
        used = jacobian * free
        inverse = _damped(used)
        step: NDArray[np.float64] = inverse @ (aim - (aim @ turned) * turned)
        if place is not None:
            # Null space of the squeezers that act: drives along it leave the light where it is (arXiv 2208.13660).
            idle = (np.eye(len(free)) - inverse @ used) * free[:, None] * free
            wanted = self._circling() - _CENTRING * place**3
            for index in self._returning:
                if idle[index, index] > _SINGULAR and place[index]:
                    wanted[index] = -np.sign(place[index]) * _RETURN_RAD / idle[index, index]
            step = _limited(step, _LARGEST_STEP_RAD) + _limited(idle @ wanted, _LARGEST_RETURN_RAD)
        return _limited(step, _LARGEST_STEP_RAD)

    def _circling(self) -> NDArray[np.float64]:
        """Return small drives that go round, each pair of squeezers at a pace of its own, shape ``(N,)``."""
        index = np.arange(len(self._chain))
        # At paces of their own, so that the pairs do not repeat one combination for ever.
        pace = 2.0 * np.pi / _CIRCLE_READS * (1.0 + 0.5 * (index // 2))
        circling: NDArray[np.float64] = _CIRCLE_RAD * np.cos(pace * self._reads + 0.5 * np.pi * index)
        return circling


def _limited(step: NDArray[np.float64], largest: float) -> NDArray[np.float64]:
    """Return a step shortened so that no part of it is larger than ``largest``."""
    limited: NDArray[np.float64] = step * min(1.0, largest / max(1e-12, *map(abs, step.tolist())))
    return limited


def _damped(jacobian: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the damped pseudo-inverse, shape ``(N, 3)``: no large drives for what hardly acts."""
    # The inverse of a symmetric matrix of nine by its cofactors: a call of a general solver takes four times as long.
    (a, b, c), (_, d, e), (_, _, f) = (jacobian @ jacobian.T + _DAMPING * _UNIT).tolist()
    aa, ab, ac = d * f - e * e, c * e - b * f, b * e - c * d
    bc, scale = b * c - a * e, 1.0 / (a * aa + b * ab + c * ac)
    cofactors = [[aa, ab, ac], [ab, a * f - c * c, bc], [ac, bc, a * d - b * b]]
    return np.asarray(jacobian.T @ (scale * np.array(cofactors)))
