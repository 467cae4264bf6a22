"""Fit of the light behind squeezers: many models (an ensemble), each of which agrees with the readings.

Behind squeezers whose retardances are known up to constants the power is

    P = P0·[(1 − 2ε)·(1 + t·R_N(x_N + o_N)…R_1(x_1 + o_1) s)/2 + ε]

with the launched state s, the state t that the device accepts, a constant o_k per squeezer, P0 and the crosstalk ε. The
first and last constant have no effect. Three squeezers have six unknowns, and ε, which is small.

Every model is fitted with the Levenberg-Marquardt method to the readings plus random noise (randomized maximum
likelihood). The spread of the models shows where to read next, and how much light may still be missing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.polarization.retarders import DrivenChain, RetarderChain

_COARSE = 0.05
"""Assumed noise relative to the brightest reading, while a model is far from a fit."""
_LN_P0_PRIOR, _LN_P0_SPREAD = 0.4, 1.0
"""Prior mean and spread of ln P0 relative to the brightest reading."""
_CROSSTALK_SPREAD, _MAX_CROSSTALK = 0.01, 0.2
"""Prior spread and largest value of the crosstalk; polarization splitters reach −20 dB (docs/polarization.md)."""
_NOISE_READINGS = 2.0
"""Weight of the expected noise in the noise estimate, as a number of readings."""
_MEMBERS_PER_SQUEEZER = 16
_SETTLED_RAD = 1e-6  # members with smaller steps have converged
_WARM_STEPS, _COLD_STEPS, _RESTARTS = 6, 12, 3  # members that fitted before the new reading need fewer steps


@dataclass(frozen=True)
class LightEstimate:
    """The best-fitting model of the light behind squeezers.

    Attributes:
        state: State s of the light in front of the squeezers, a unit Stokes vector, shape ``(3,)``.
        accepted: State t that the device behind the squeezers accepts, shape ``(3,)``.
        offsets: Constants o of the squeezers' retardances, rad, shape ``(N,)``.
        p0: Total power, in the unit of the readings.
        crosstalk: Crosstalk ε: accepted fraction of the state orthogonal to t.
        covariance: Covariance of s, t, constants o without first and last, and ln P0, shape ``(M, M)``, M = 7 + (N −
            2).
        relative_noise: Noise of a reading relative to its value.
    """

    state: NDArray[np.float64]
    accepted: NDArray[np.float64]
    offsets: NDArray[np.float64]
    p0: float
    crosstalk: float
    covariance: NDArray[np.float64]
    relative_noise: float


@dataclass
class Members:
    """Parameters of K fitted models of N squeezers.

    Attributes:
        numbers: States s in front of and t behind the squeezers (3 each), constants o (N; first and last are 0), ln P0
            and ε, shape ``(K, N + 8)``.
        damping: Damping of the Levenberg-Marquardt steps, shape ``(K,)``.
        chi2: Squared misfit of readings and prior in standard deviations, shape ``(K,)``.
    """

    numbers: NDArray[np.float64]
    damping: NDArray[np.float64]
    chi2: NDArray[np.float64]

    @property
    def state(self) -> NDArray[np.float64]:
        """States s in front of the squeezers, shape ``(K, 3)``."""
        return self.numbers[:, 0:3]

    @property
    def accepted(self) -> NDArray[np.float64]:
        """Accepted states t, shape ``(K, 3)``."""
        return self.numbers[:, 3:6]

    @property
    def offsets(self) -> NDArray[np.float64]:
        """Constants o of the retardances of N squeezers, rad, shape ``(K, N)``."""
        return self.numbers[:, 6:-2]

    @property
    def ln_p0(self) -> NDArray[np.float64]:
        """Logarithms of the total power, shape ``(K,)``."""
        return self.numbers[:, -2]

    @property
    def crosstalk(self) -> NDArray[np.float64]:
        """Crosstalk ε, shape ``(K,)``."""
        return self.numbers[:, -1]

    def angles(self, phases: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Return the retardances at C settings: per squeezer an array that broadcasts to ``(K, C)``."""
        # First and last are the same for all members, so their expensive sines and cosines are calculated once.
        inner = range(1, phases.shape[1] - 1)
        return [column + self.offsets[:, k, None] if k in inner else column[None] for k, column in enumerate(phases.T)]

    def subset(self, index: NDArray[np.int64] | NDArray[np.bool_]) -> Members:
        """Return a copy of some of the fitted models."""
        return Members(self.numbers[index], self.damping[index], self.chi2[index])

    def replace(self, index: NDArray[np.int64] | NDArray[np.bool_], replacements: Members) -> None:
        """Replace some of the fitted models by others."""
        self.numbers[index], self.damping[index], self.chi2[index] = (
            replacements.numbers,
            replacements.damping,
            replacements.chi2,
        )


class LightEnsemble:
    """Estimate of the light from readings at known phases, as an ensemble of K fitted models (members).

    Args:
        rng: Random number generator.
        members: Number K of models; 16 per squeezer if omitted.
        relative_noise: Expected standard deviation of a reading relative to its value; raised if readings differ more.
        dark_noise: Standard deviation of a reading in the dark, relative to the brightest reading.
    """

    def __init__(
        self,
        chain: RetarderChain,
        rng: np.random.Generator,
        *,
        members: int | None = None,
        relative_noise: float = 0.003,
        dark_noise: float = 1e-6,
    ) -> None:
        self.chain = chain
        self._rng = rng
        self._expected_noise = self._relative_noise = relative_noise
        self._dark_noise = dark_noise
        self._phases = np.zeros((0, len(chain)))
        self._driven = DrivenChain(chain, self._phases)
        self._powers = np.zeros(0)
        self._draws = np.zeros((members or _MEMBERS_PER_SQUEEZER * len(chain), 0))
        self._ln_p0 = 0.0
        self._members = self._draw_from_prior(len(self._draws))

    @property
    def n_readings(self) -> int:
        """Number of power readings so far."""
        return len(self._powers)

    @property
    def n_unknowns(self) -> int:
        """Number of unknowns of the fit: two polarization states, the squeezers' constants, and P0."""
        return 5 + max(len(self.chain) - 2, 0)

    @property
    def relative_noise(self) -> float:
        """Present estimate of the noise of a reading, relative to its value."""
        return self._relative_noise

    def add(self, phases: NDArray[np.float64], powers: NDArray[np.float64]) -> None:
        """Add powers read at n settings, and fit the models again.

        Args:
            phases: Drive phases, shape ``(n, N)``, rad.
            powers: Shape ``(n,)``.
        """
        first = not self.n_readings
        self._phases = np.vstack([self._phases, phases])
        self._driven = DrivenChain(self.chain, self._phases)
        self._powers = np.concatenate([self._powers, powers])
        draws = self._rng.standard_normal((len(self._draws), len(powers)))
        draws[0] = 0.0  # the first member fits the readings themselves
        self._draws = np.hstack([self._draws, draws])
        self._ln_p0 = float(np.log(self._powers.max())) + _LN_P0_PRIOR
        if first:
            self._members = self._draw_from_prior(len(self._draws))
        self._fit()

    def misfit(self) -> float:
        """Return the rms residual of the best-fitting model, relative to the readings."""
        return float(np.sqrt(self._residual_sum() / max(self.n_readings - self.n_unknowns, 1)))

    def redraw_half(self) -> None:
        """Replace half of the fitted models by random ones, so that another solution can be found."""
        half = np.arange(1, len(self._draws), 2)  # never member 0, which carries the best explanation
        self._members.replace(half, self._draw_from_prior(len(half)))
        self._optimise(half, 2 * _COLD_STEPS, fine=False)
        self._optimise(half, 2 * _COLD_STEPS, fine=True)
        self._fit()

    def best(self) -> LightEstimate:
        """Return the best-fitting model of the light."""
        first = self._members.subset(np.array([0]))
        # The unit matrix is a weak prior: unconstrained directions get a variance of 1 rad².
        weights = self._weights(fine=True)
        normal = self._normal_products(first, self._powers[:, None] * weights, weights)[0, :-1, :-1]
        covariance = np.asarray(np.linalg.inv(normal + np.eye(len(normal)))[:-1, :-1])
        return LightEstimate(
            state=first.state[0],
            accepted=first.accepted[0],
            offsets=first.offsets[0],
            p0=float(np.exp(first.ln_p0[0])),
            crosstalk=float(first.crosstalk[0]),
            covariance=covariance,
            relative_noise=self._relative_noise,
        )

    # Predictions of the members ---------------------------------------------------------------------------------------

    @property
    def p0(self) -> NDArray[np.float64]:
        """Total power of each of K fitted models, shape ``(K,)``."""
        power: NDArray[np.float64] = np.exp(self._members.ln_p0)
        return power

    @property
    def crosstalk(self) -> NDArray[np.float64]:
        """Accepted fraction of the orthogonal state for each of K fitted models, shape ``(K,)``."""
        return self._members.crosstalk

    def overlap(self, phases: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the accepted fraction of light for K fitted models at C settings.

        Args:
            phases: Shape ``(C, N)``, rad.

        Returns:
            Shape ``(K, C)``.
        """
        members = self._members
        return 0.5 * (
            1.0 + self.chain.overlap(members.angles(phases), members.state[:, None], members.accepted[:, None])
        )

    def powers(self, phases: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the powers that K fitted models predict at C settings.

        Args:
            phases: Shape ``(C, N)``, rad.

        Returns:
            Shape ``(K, C)``.
        """
        members = self._members
        share = (1.0 - 2.0 * members.crosstalk[:, None]) * self.overlap(phases) + members.crosstalk[:, None]
        power: NDArray[np.float64] = np.exp(members.ln_p0)[:, None] * share
        return power

    def extremes(
        self,
        start: NDArray[np.float64],
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        *,
        sign: float = 1.0,
        sweeps: int = 8,
    ) -> NDArray[np.float64]:
        """Return the phases at which each of K fitted models predicts the brightest or darkest light, shape ``(K, N)``.

        Args:
            start: Phases to start from, shape ``(N,)``.
            low: Lowest phases, shape ``(N,)``; equal to ``high`` for a squeezer that must stay.
            high: Highest phases, shape ``(N,)``.
            sign: 1 for the brightest, −1 for the darkest.
            sweeps: Number of rounds in which each squeezer in turn is set to its optimum.
        """
        members, offsets = self._members, self._members.offsets.T
        phases = np.tile(start[:, None], (1, len(members.state)))  # a row for each squeezer
        cosines, sines = list(np.cos(phases + offsets)), list(np.sin(phases + offsets))
        for _ in range(sweeps):
            behind = list(members.accepted.T)
            accepted = [behind.copy()]  # seen from behind each squeezer, last squeezer first
            for (i, j), c, s in zip(self.chain.mixed[:0:-1], cosines[:0:-1], sines[:0:-1], strict=True):
                behind[i], behind[j] = c * behind[i] + s * behind[j], c * behind[j] - s * behind[i]
                accepted.append(behind.copy())
            light = list(members.state.T)
            for k, (i, j) in enumerate(self.chain.mixed):
                (a, b), after = (light[i], light[j]), accepted.pop()
                cosine_part, sine_part = a * after[i] + b * after[j], a * after[j] - b * after[i]
                # The power is a sinusoid in each squeezer, so its extreme is exact and no step can overshoot.
                best = np.arctan2(sign * sine_part, sign * cosine_part) - offsets[k]
                phases[k] = _into_range(best, 0.5 * (low[k] + high[k]), low[k], high[k])
                angle = phases[k] + offsets[k]
                cosines[k], sines[k] = c, s = np.cos(angle), np.sin(angle)
                light[i], light[j] = c * a - s * b, s * a + c * b
        return np.ascontiguousarray(phases.T)

    # The fit ----------------------------------------------------------------------------------------------------------

    def _draw_from_prior(self, count: int) -> Members:
        rng, n = self._rng, len(self.chain)
        states = rng.standard_normal((2, count, 3))
        states /= np.linalg.norm(states, axis=2, keepdims=True)
        offsets = rng.uniform(0.0, 2.0 * np.pi, (count, n))
        offsets[:, [0, -1]] = 0.0  # they only turn s and t, so they are no separate unknowns
        ln_p0 = self._ln_p0 + 0.7 * _LN_P0_SPREAD * rng.standard_normal((count, 1))
        crosstalk = 0.3 * _CROSSTALK_SPREAD * np.abs(rng.standard_normal((count, 1)))
        numbers = np.hstack([states[0], states[1], offsets, ln_p0, crosstalk])
        return Members(numbers, damping=np.full(count, 1e-2), chi2=np.full(count, np.inf))

    def _fit(self) -> None:
        all_members = np.arange(len(self._draws))
        self._optimise(all_members, _WARM_STEPS, fine=True)
        for _ in range(_RESTARTS):
            stuck, sound = self._split_by_fit()
            if not len(stuck):
                break
            # If few members fit, the minimum is not found yet, so restart the others elsewhere. If many fit, copy them.
            if 2 * len(sound) < len(all_members):
                self._members.replace(stuck, self._draw_from_prior(len(stuck)))
                self._optimise(stuck, _COLD_STEPS, fine=False)
            else:
                self._members.replace(stuck, self._members.subset(self._rng.choice(sound, len(stuck))))
            self._optimise(stuck, _COLD_STEPS, fine=True)
        stuck, sound = self._split_by_fit()
        self._members.replace(stuck, self._members.subset(self._rng.choice(sound, len(stuck))))
        self._estimate_noise()

    def _estimate_noise(self) -> None:
        misfits = (((self.powers(self._phases) - self._powers) / self._sigma()) ** 2).sum(axis=1)
        best = int(np.argmin(misfits))
        if best:
            self._members.replace(np.array([0]), self._members.subset(np.array([best])))
        self._optimise(np.array([0]), _COLD_STEPS, fine=True)
        # The expected noise counts as two readings: without redundant readings the fit has no residual to judge by.
        spare = max(self.n_readings - self.n_unknowns, 0)
        trust = _NOISE_READINGS * self._expected_noise**2
        self._relative_noise = float(np.sqrt((trust + self._residual_sum()) / (_NOISE_READINGS + spare)))

    def _residual_sum(self) -> float:
        relative = (self.powers(self._phases)[0] - self._powers) / (self._sigma() / self._relative_noise)
        return float((relative**2).sum())

    def _sigma(self) -> NDArray[np.float64]:
        return self._relative_noise * self._powers + self._dark_noise * float(self._powers.max())

    def _split_by_fit(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        chi2 = self._members.chi2
        # Farther from the best member than the drawn noise of this many readings makes likely.
        is_stuck = chi2 > chi2.min() + 12.0 + self.n_readings
        return np.flatnonzero(is_stuck), np.flatnonzero(~is_stuck)

    def _optimise(self, index: NDArray[np.int64], steps: int, *, fine: bool) -> None:
        members, weights = self._members.subset(index), self._weights(fine=fine)
        targets = self._powers[:, None] * weights + self._draws[index].T
        if not fine:  # a restarted member needs the full damping again
            members.damping[:] = 1e-2
        products = self._normal_products(members, targets, weights)
        members.chi2 = products[:, -1, -1]
        for _ in range(steps):
            trial, moved = _take_step(members, products)
            trial_products = self._normal_products(trial, targets, weights)
            trial.chi2 = trial_products[:, -1, -1]
            is_better = trial.chi2 < members.chi2
            moving = moved * np.maximum(members.damping, 1.0) > _SETTLED_RAD
            # Levenberg-Marquardt: a step that helps lowers the damping of its member, and a step that fails raises it.
            trial.damping = np.maximum(members.damping / 5.0, 1e-9)
            members.damping = np.minimum(members.damping * 4.0, 1e6)
            if is_better.all():
                members, products = trial, trial_products
            else:
                chosen = is_better.nonzero()[0]
                members.replace(chosen, trial.subset(chosen))
                products[chosen] = trial_products[chosen]
            if not moving.all():
                self._members.replace(index, members)
                if not moving.any():
                    return
                index, members, targets, products = (
                    index[moving],
                    members.subset(moving),
                    targets[:, moving],
                    products[moving],
                )
        self._members.replace(index, members)

    def _weights(self, *, fine: bool) -> NDArray[np.float64]:
        # With the true noise the surface has many narrow valleys far from the solution; coarse noise widens them.
        sigma = self._sigma() if fine else np.full(len(self._powers), _COARSE * float(self._powers.max()))
        return 1.0 / sigma[:, None]

    def _normal_products(
        self, members: Members, targets: NDArray[np.float64], weights: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        # Members are the last axis, so values common to all members are plain numbers in the innermost loops.
        numbers = members.numbers.T.copy()
        states, (ln_p0, crosstalk) = numbers[:6], numbers[-2:]
        q, slopes, by_states = self._driven.overlap_and_slopes(states, numbers[6:-2])
        (n, count), n_unknowns = q.shape, 8 + len(slopes)
        rows = np.zeros((n_unknowns + 1, n + 2, count))  # the last two of each row are the prior's
        reading_rows = rows[:, :n]
        bright = np.exp(ln_p0) * weights
        scale, power = (0.5 - crosstalk) * bright, crosstalk * bright
        power += scale * (1.0 + q)
        # Derivatives only across the states, because a step along a state would only change its length.
        by_states -= q * states[:, None]
        np.multiply(by_states, scale, out=reading_rows[:6])
        for index, slope in enumerate(slopes):
            np.multiply(slope, scale, out=reading_rows[6 + index])
        reading_rows[-3] = power
        np.multiply(bright, -q, out=reading_rows[-2])
        np.subtract(power, targets, out=reading_rows[-1])
        rows[-3, n] = 1.0 / _LN_P0_SPREAD
        rows[-2, n + 1] = 1.0 / _CROSSTALK_SPREAD
        rows[-1, n] = (ln_p0 - self._ln_p0) / _LN_P0_SPREAD
        rows[-1, n + 1] = crosstalk / _CROSSTALK_SPREAD
        by_member = rows.transpose(2, 1, 0).copy()
        # Two copies: numpy uses a slower product for one and the same array.
        products: NDArray[np.float64] = by_member.copy().transpose(0, 2, 1) @ by_member
        return products


def _take_step(members: Members, products: NDArray[np.float64]) -> tuple[Members, NDArray[np.float64]]:
    normal, gradient = products[:, :-1, :-1].copy(), products[:, :-1, -1:]
    # A view, because the ridge is added in place.
    diagonal = normal.reshape(len(normal), -1)[:, :: normal.shape[1] + 1]
    ridge = np.maximum.reduce(diagonal, axis=1, keepdims=True)
    # A part of the largest element keeps directions solvable that the readings do not show.
    diagonal += members.damping[:, None] * (diagonal + 1e-3 * ridge) + 1e-6
    step = np.linalg.solve(normal, gradient)[..., 0]
    numbers = members.numbers.copy()
    numbers[:, :6] -= step[:, :6]
    numbers[:, 7:-3] -= step[:, 6:-2]  # the first and the last constant are part of the two states
    numbers[:, -2] -= np.minimum(np.maximum(step[:, -2], -1.0), 1.0)  # an exponent: a large step would overflow
    numbers[:, -1] = np.minimum(np.maximum(numbers[:, -1] - step[:, -1], 0.0), _MAX_CROSSTALK)
    states = numbers[:, :6].reshape(-1, 2, 3)
    states /= np.sqrt(np.einsum("ksx,ksx->ks", states, states))[:, :, None]
    return Members(numbers, members.damping, members.chi2), np.maximum.reduce(np.abs(numbers - members.numbers), axis=1)


def _into_range(phases: NDArray[np.float64], middle: float, low: float, high: float) -> NDArray[np.float64]:
    nearest = middle + np.mod(phases - middle + np.pi, 2.0 * np.pi) - np.pi
    return np.clip(nearest, low, high)
