"""What power readings at known drives say about the light: an ensemble of states, each of which fits the readings.

Behind squeezers whose retardances are known up to constants the power is

    P = P0·[(1 − 2ε)·(1 + t·R_N(x_N + o_N)…R_1(x_1 + o_1) s)/2 + ε]

with the launched state s, the state t that the device takes (two unknowns each), a constant o_k per squeezer, P0 and
the crosstalk ε. Of the constants the first turns s and the last turns t, so they are no unknowns of their own: N − 2
remain. Three squeezers have six unknowns, and ε, which is small: six readings determine the light at every setting,
wherever the fibres turn it, and a seventh confirms it. To turn s and t both into their opposites changes no power.

The posterior is an ensemble in the manner of randomized maximum likelihood: every member is fitted, by Levenberg and
Marquardt's method, to the readings plus its own draw of their noise. With fewer readings than unknowns the members
spread over all that is possible; their spread says where to read next, and how much light may still be missing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.polarization.retarders import DrivenChain, RetarderChain

_COARSE = 0.05
"""Noise over the brightest reading that is assumed as long as a member is far from fitting."""
_LN_P0_AHEAD, _LN_P0_SPREAD = 0.4, 1.0
"""Prior of ln P0 over the brightest reading: that all settings read are in the dark is rare."""
_CROSSTALK_SPREAD, _MOST_CROSSTALK = 0.01, 0.2
"""Polarization splitters have −20 dB and better (docs/polarization.md)."""
_NOISE_READINGS = 2.0
"""The noise expected counts as much as this many readings."""
_MEMBERS_PER_SQUEEZER = 16
_SETTLED_RAD = 1e-6  # a member whose steps are smaller is where it belongs
_WARM_STEPS, _COLD_STEPS, _RESTARTS = 6, 12, 3  # members that fitted before one more reading need fewer steps


@dataclass(frozen=True)
class LightEstimate:
    """The best explanation of the readings.

    Attributes:
        state: s in front of the squeezers, shape ``(3,)``.
        taken: t behind them, shape ``(3,)``.
        offsets: o, shape ``(N,)``.
        p0: Power of all light, in the unit of the readings.
        crosstalk: ε.
        covariance: Of s, t, o without first and last, and ln P0, shape ``(M, M)``, M = 7 + (N − 2).
        relative_noise: Noise of a reading over its value.
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
    """Unknowns of K members behind N squeezers.

    Attributes:
        numbers: s in front of the squeezers (3), t behind them (3), o (N; the first and the last are 0), ln P0 and ε,
            shape ``(K, N + 8)``.
        damping: Of Levenberg and Marquardt's steps, shape ``(K,)``.
        chi2: Misfit of readings and prior in standard deviations, squared, shape ``(K,)``.
    """

    numbers: NDArray[np.float64]
    damping: NDArray[np.float64]
    chi2: NDArray[np.float64]

    @property
    def state(self) -> NDArray[np.float64]:
        """Shape ``(K, 3)``."""
        return self.numbers[:, 0:3]

    @property
    def accepted(self) -> NDArray[np.float64]:
        """Shape ``(K, 3)``."""
        return self.numbers[:, 3:6]

    @property
    def offsets(self) -> NDArray[np.float64]:
        """Shape ``(K, N)``."""
        return self.numbers[:, 6:-2]

    @property
    def ln_p0(self) -> NDArray[np.float64]:
        """Shape ``(K,)``."""
        return self.numbers[:, -2]

    @property
    def crosstalk(self) -> NDArray[np.float64]:
        """Shape ``(K,)``."""
        return self.numbers[:, -1]

    def angles(self, phases: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Return retardances at phases ``(C, N)``: for each squeezer an array that broadcasts to ``(K, C)``."""
        # First and last are the same for all members: their sines and cosines, dear as they are, are taken once.
        inner = range(1, phases.shape[1] - 1)
        return [each + self.offsets[:, k, None] if k in inner else each[None] for k, each in enumerate(phases.T)]

    def subset(self, index: NDArray[np.int64] | NDArray[np.bool_]) -> Members:
        """Return a copy of some members."""
        return Members(self.numbers[index], self.damping[index], self.chi2[index])

    def replace(self, index: NDArray[np.int64] | NDArray[np.bool_], others: Members) -> None:
        """Put others in the place of some members."""
        self.numbers[index], self.damping[index], self.chi2[index] = others.numbers, others.damping, others.chi2


class LightEnsemble:
    """All that is known of the light from readings at known phases; K members, N squeezers.

    Args:
        chain: The squeezers.
        rng: Draws starting points and noise.
        members: K; 16 per squeezer if omitted.
        relative_noise: Standard deviation of a reading over its value, as expected; more is believed of readings that
            differ more.
        dark_noise: Standard deviation of a reading in the dark over the brightest reading.
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
        self._members = self._from_prior(len(self._draws))

    @property
    def n_readings(self) -> int:
        """Readings taken in."""
        return len(self._powers)

    @property
    def n_unknowns(self) -> int:
        """Numbers that the readings have to determine: two states, the constants between them, and P0."""
        return 5 + max(len(self.chain) - 2, 0)

    @property
    def relative_noise(self) -> float:
        """Noise of a reading over its value, as it is believed now."""
        return self._relative_noise

    def add(self, phases: NDArray[np.float64], powers: NDArray[np.float64]) -> None:
        """Take in readings and fit again.

        Args:
            phases: Drive phases, shape ``(n, N)``, rad.
            powers: Shape ``(n,)``, in any linear unit.
        """
        first = not self.n_readings
        self._phases = np.vstack([self._phases, phases])
        self._driven = DrivenChain(self.chain, self._phases)
        self._powers = np.concatenate([self._powers, powers])
        draws = self._rng.standard_normal((len(self._draws), len(powers)))
        draws[0] = 0.0  # the first member fits the readings themselves
        self._draws = np.hstack([self._draws, draws])
        self._ln_p0 = float(np.log(self._powers.max())) + _LN_P0_AHEAD
        if first:
            self._members = self._from_prior(len(self._draws))
        self._fit()

    def misfit(self) -> float:
        """Return the root mean square of what the best explanation leaves of the readings, over their values."""
        return float(np.sqrt(self._unexplained() / max(self.n_readings - self.n_unknowns, 1)))

    def redraw_half(self) -> None:
        """Draw half of the members anew, so that an explanation that nobody thought of has its chance."""
        half = np.arange(1, len(self._draws), 2)  # never member 0, which carries the best explanation
        self._members.replace(half, self._from_prior(len(half)))
        self._improve(half, 2 * _COLD_STEPS, fine=False)
        self._improve(half, 2 * _COLD_STEPS, fine=True)
        self._fit()

    def best(self) -> LightEstimate:
        """Return the explanation that leaves least."""
        first = self._members.subset(np.array([0]))
        # The unit matrix is a weak prior: directions that no reading shows get a variance of 1 rad².
        weights = self._weights(fine=True)
        normal = self._products(first, self._powers[:, None] * weights, weights)[0, :-1, :-1]
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

    # What the members say ---------------------------------------------------------------------------------------------

    @property
    def p0(self) -> NDArray[np.float64]:
        """Power of all light, shape ``(K,)``."""
        power: NDArray[np.float64] = np.exp(self._members.ln_p0)
        return power

    @property
    def crosstalk(self) -> NDArray[np.float64]:
        """Share of the orthogonal state that is taken, shape ``(K,)``."""
        return self._members.crosstalk

    def overlap(self, phases: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (1 + q)/2, the share of light in the state taken, shape ``(K, C)``, at phases ``(C, N)``."""
        found = self._members
        return 0.5 * (1.0 + self.chain.overlap(found.angles(phases), found.state[:, None], found.accepted[:, None]))

    def powers(self, phases: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the powers that the members predict, shape ``(K, C)``, of phases ``(C, N)``."""
        found = self._members
        share = (1.0 - 2.0 * found.crosstalk[:, None]) * self.overlap(phases) + found.crosstalk[:, None]
        power: NDArray[np.float64] = np.exp(found.ln_p0)[:, None] * share
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
        """Return each member's brightest (or darkest) phases, by exact ascent in one squeezer after the other.

        Args:
            start: Phases to start from, shape ``(N,)``.
            low: Least phases, shape ``(N,)``; equal to the largest for a squeezer that stays.
            high: Largest phases.
            sign: 1 for the brightest, −1 for the darkest.
            sweeps: Times to go round the squeezers.

        Returns:
            Shape ``(K, N)``.
        """
        found, offsets = self._members, self._members.offsets.T
        phases = np.tile(start[:, None], (1, len(found.state)))  # a row for each squeezer
        cosines, sines = list(np.cos(phases + offsets)), list(np.sin(phases + offsets))
        for _ in range(sweeps):
            behind = list(found.accepted.T)
            accepted = [behind.copy()]  # as seen from behind each squeezer, the last one first
            for (i, j), c, s in zip(self.chain.mixed[:0:-1], cosines[:0:-1], sines[:0:-1], strict=True):
                behind[i], behind[j] = c * behind[i] + s * behind[j], c * behind[j] - s * behind[i]
                accepted.append(behind.copy())
            light = list(found.state.T)
            for k, (i, j) in enumerate(self.chain.mixed):
                (a, b), after = (light[i], light[j]), accepted.pop()
                even, odd = a * after[i] + b * after[j], a * after[j] - b * after[i]
                # In one squeezer the power is a sinusoid, so its extreme is exact and no step can overshoot.
                best = np.arctan2(sign * odd, sign * even) - offsets[k]
                phases[k] = _inside(best, 0.5 * (low[k] + high[k]), low[k], high[k])
                angle = phases[k] + offsets[k]
                cosines[k], sines[k] = c, s = np.cos(angle), np.sin(angle)
                light[i], light[j] = c * a - s * b, s * a + c * b
        return np.ascontiguousarray(phases.T)

    # The fit ----------------------------------------------------------------------------------------------------------

    def _from_prior(self, count: int) -> Members:
        """Draw members from the prior."""
        rng, n = self._rng, len(self.chain)
        states = rng.standard_normal((2, count, 3))
        states /= np.linalg.norm(states, axis=2, keepdims=True)
        offsets = rng.uniform(0.0, 2.0 * np.pi, (count, n))
        offsets[:, [0, -1]] = 0.0  # they turn s and t about the axis next to them: no unknowns of their own
        ln_p0 = self._ln_p0 + 0.7 * _LN_P0_SPREAD * rng.standard_normal((count, 1))
        crosstalk = 0.3 * _CROSSTALK_SPREAD * np.abs(rng.standard_normal((count, 1)))
        numbers = np.hstack([states[0], states[1], offsets, ln_p0, crosstalk])
        return Members(numbers, damping=np.full(count, 1e-2), chi2=np.full(count, np.inf))

    def _fit(self) -> None:
        """Improve all members; replace those that are stuck where the readings are not explained."""
        all_members = np.arange(len(self._draws))
        self._improve(all_members, _WARM_STEPS, fine=True)
        for _ in range(_RESTARTS):
            stuck, sound = self._stuck_and_sound()
            if not len(stuck):
                break
            # Few sound ones: the minimum is not found yet, begin elsewhere. Many: it is, so the stuck ones join them.
            if 2 * len(sound) < len(all_members):
                self._members.replace(stuck, self._from_prior(len(stuck)))
                self._improve(stuck, _COLD_STEPS, fine=False)
            else:
                self._members.replace(stuck, self._members.subset(self._rng.choice(sound, len(stuck))))
            self._improve(stuck, _COLD_STEPS, fine=True)
        stuck, sound = self._stuck_and_sound()
        self._members.replace(stuck, self._members.subset(self._rng.choice(sound, len(stuck))))
        self._estimate_noise()

    def _estimate_noise(self) -> None:
        """Lead the first member to the best explanation, and judge the noise by what it leaves."""
        left = (((self.powers(self._phases) - self._powers) / self._sigma()) ** 2).sum(axis=1)
        best = int(np.argmin(left))
        if best:
            self._members.replace(np.array([0]), self._members.subset(np.array([best])))
        self._improve(np.array([0]), _COLD_STEPS, fine=True)
        # The expected noise counts as two readings: with none to spare the fit leaves nothing, which says nothing.
        spare = max(self.n_readings - self.n_unknowns, 0)
        trust = _NOISE_READINGS * self._expected_noise**2
        self._relative_noise = float(np.sqrt((trust + self._unexplained()) / (_NOISE_READINGS + spare)))

    def _unexplained(self) -> float:
        """Return the sum of squares that the first member leaves, over the readings."""
        relative = (self.powers(self._phases)[0] - self._powers) / (self._sigma() / self._relative_noise)
        return float((relative**2).sum())

    def _sigma(self) -> NDArray[np.float64]:
        """Return the standard deviations of the readings."""
        return self._relative_noise * self._powers + self._dark_noise * float(self._powers.max())

    def _stuck_and_sound(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the members whose misfit noise does not explain, and the others."""
        chi2 = self._members.chi2
        # Farther from the best than the draws of so many readings make likely.
        is_stuck = chi2 > chi2.min() + 12.0 + self.n_readings
        return np.flatnonzero(is_stuck), np.flatnonzero(~is_stuck)

    def _improve(self, index: NDArray[np.int64], steps: int, *, fine: bool) -> None:
        """Take some of Levenberg and Marquardt's steps with some members."""
        members, weights = self._members.subset(index), self._weights(fine=fine)
        wanted = self._powers[:, None] * weights + self._draws[index].T
        if not fine:  # a member that starts anew has not earned the small damping of one that fitted
            members.damping[:] = 1e-2
        products = self._products(members, wanted, weights)
        members.chi2 = products[:, -1, -1]
        for _ in range(steps):
            trial, moved = _stepped(members, products)
            trial_products = self._products(trial, wanted, weights)
            trial.chi2 = trial_products[:, -1, -1]
            better = trial.chi2 < members.chi2
            moving = moved * np.maximum(members.damping, 1.0) > _SETTLED_RAD
            trial.damping = np.maximum(members.damping / 5.0, 1e-9)
            members.damping = np.minimum(members.damping * 4.0, 1e6)
            if better.all():
                members, products = trial, trial_products
            else:
                chosen = better.nonzero()[0]
                members.replace(chosen, trial.subset(chosen))
                products[chosen] = trial_products[chosen]
            if not moving.all():
                self._members.replace(index, members)
                if not moving.any():
                    return
                index, members, wanted, products = (
                    index[moving],
                    members.subset(moving),
                    wanted[:, moving],
                    products[moving],
                )
        self._members.replace(index, members)

    def _weights(self, *, fine: bool) -> NDArray[np.float64]:
        """Return one over the standard deviations of the readings, shape ``(n, 1)``."""
        # With the true noise the surface is full of narrow valleys far from the solution; coarse noise widens them.
        sigma = self._sigma() if fine else np.full(len(self._powers), _COARSE * float(self._powers.max()))
        return 1.0 / sigma[:, None]

    def _products(
        self, members: Members, wanted: NDArray[np.float64], weights: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the inner products of the residuals' derivatives and, last, the residuals themselves.

        Residuals are those of readings and prior in standard deviations; derivatives by s, t, o without first and last,
        ln P0, ε. So the last number is their sum of squares, what is beside it the gradient, and the rest the normal
        matrix.

        Args:
            members: K members.
            wanted: Readings in standard deviations, with each member's draw of their noise, shape ``(n, K)``.
            weights: One over the standard deviations, shape ``(n, 1)``.

        Returns:
            Shape ``(K, M + 1, M + 1)``.
        """
        # Members last: what is the same for all of them is then a plain number in the innermost loops.
        numbers = members.numbers.T.copy()
        states, (ln_p0, crosstalk) = numbers[:6], numbers[-2:]
        q, slopes, by_states = self._driven.overlap_and_slopes(states, numbers[6:-2])
        (n, count), n_unknowns = q.shape, 8 + len(slopes)
        rows = np.zeros((n_unknowns + 1, n + 2, count))  # the last two of each row are the prior's
        told = rows[:, :n]
        bright = np.exp(ln_p0) * weights
        scale, power = (0.5 - crosstalk) * bright, crosstalk * bright
        power += scale * (1.0 + q)
        # Derivatives across the states only, since a step along one would only change its length.
        by_states -= q * states[:, None]
        np.multiply(by_states, scale, out=told[:6])
        for index, slope in enumerate(slopes):
            np.multiply(slope, scale, out=told[6 + index])
        told[-3] = power
        np.multiply(bright, -q, out=told[-2])
        np.subtract(power, wanted, out=told[-1])
        rows[-3, n] = 1.0 / _LN_P0_SPREAD
        rows[-2, n + 1] = 1.0 / _CROSSTALK_SPREAD
        rows[-1, n] = (ln_p0 - self._ln_p0) / _LN_P0_SPREAD
        rows[-1, n + 1] = crosstalk / _CROSSTALK_SPREAD
        # Two copies: of one and the same array numpy takes a slower product.
        products: NDArray[np.float64] = rows.transpose(2, 0, 1).copy() @ rows.transpose(2, 1, 0).copy()
        return products


def _stepped(members: Members, products: NDArray[np.float64]) -> tuple[Members, NDArray[np.float64]]:
    """Return members after one damped Gauss-Newton step, and how far it went; states stay on the sphere."""
    normal, gradient = products[:, :-1, :-1].copy(), products[:, :-1, -1:]
    # A view, for the ridge is added in place.
    diagonal = normal.reshape(len(normal), -1)[:, :: normal.shape[1] + 1]
    ridge = np.maximum.reduce(diagonal, axis=1, keepdims=True)
    diagonal += members.damping[:, None] * (diagonal + 1e-3 * ridge) + 1e-6
    step = np.linalg.solve(normal, gradient)[..., 0]
    numbers = members.numbers.copy()
    numbers[:, :6] -= step[:, :6]
    numbers[:, 7:-3] -= step[:, 6:-2]  # the first and the last constant are part of the two states
    numbers[:, -2] -= np.minimum(np.maximum(step[:, -2], -1.0), 1.0)  # an exponent: a large step would overflow
    numbers[:, -1] = np.minimum(np.maximum(numbers[:, -1] - step[:, -1], 0.0), _MOST_CROSSTALK)
    states = numbers[:, :6].reshape(-1, 2, 3)
    states /= np.sqrt(np.einsum("ksx,ksx->ks", states, states))[:, :, None]
    return Members(numbers, members.damping, members.chi2), np.maximum.reduce(np.abs(numbers - members.numbers), axis=1)


def _inside(phases: NDArray[np.float64], middle: float, low: float, high: float) -> NDArray[np.float64]:
    """Return the equivalents of phases nearest to the middle of the range, at its nearer end if none lies inside."""
    nearest = middle + np.mod(phases - middle + np.pi, 2.0 * np.pi) - np.pi
    return np.clip(nearest, low, high)
