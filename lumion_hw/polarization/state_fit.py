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

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from lumion_hw.polarization.retarders import RetarderChain, turn_matrix

_COARSE = 0.05
"""Noise over the brightest reading that is assumed as long as a member is far from fitting."""
_LN_P0_AHEAD, _LN_P0_SPREAD = 0.4, 1.0
"""Prior of ln P0 over the brightest reading: that all settings read are in the dark is rare."""
_CROSSTALK_SPREAD, _MOST_CROSSTALK = 0.01, 0.2
"""Polarization splitters have −20 dB and better (docs/polarization.md)."""
_NOISE_READINGS = 2.0
"""The noise expected counts as much as this many readings."""
_MEMBERS_PER_SQUEEZER = 16
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
    taken: NDArray[np.float64]
    offsets: NDArray[np.float64]
    p0: float
    crosstalk: float
    covariance: NDArray[np.float64]
    relative_noise: float


@dataclass
class Members:
    """Unknowns of K members.

    Attributes:
        state: s in front of the squeezers, shape ``(K, 3)``.
        taken: t behind them, shape ``(K, 3)``.
        offsets: o, shape ``(K, N)``; the first and the last are 0.
        ln_p0: ln P0, shape ``(K,)``.
        crosstalk: ε, shape ``(K,)``.
        damping: Of Levenberg and Marquardt's steps, shape ``(K,)``.
        chi2: Misfit of readings and prior in standard deviations, squared, shape ``(K,)``.
    """

    state: NDArray[np.float64]
    taken: NDArray[np.float64]
    offsets: NDArray[np.float64]
    ln_p0: NDArray[np.float64]
    crosstalk: NDArray[np.float64]
    damping: NDArray[np.float64]
    chi2: NDArray[np.float64]

    def chosen(self, index: NDArray[np.int64]) -> Members:
        """Return a copy of some members."""
        return Members(*(getattr(self, field.name)[index] for field in fields(self)))

    def replace(self, index: NDArray[np.int64] | NDArray[np.bool_], others: Members) -> None:
        """Put others in the place of some members."""
        for field in fields(self):
            getattr(self, field.name)[index] = getattr(others, field.name)


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
        first = self._members.chosen(np.array([0]))
        _, jacobian = self._linearised(first, self._draws[:1], fine=True)
        # The unit matrix is a weak prior: directions that no reading shows get a variance of 1 rad².
        normal = jacobian[0].T @ jacobian[0]
        covariance = np.linalg.inv(normal + np.eye(len(normal)))[:-1, :-1]
        return LightEstimate(
            state=first.state[0],
            taken=first.taken[0],
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
        angles = phases[None] + found.offsets[:, None]
        q = self.chain.overlap(angles, found.state[:, None], found.taken[:, None])[0]
        return 0.5 * (1.0 + q)

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
        found, axes = self._members, self.chain.axes
        phases = np.tile(start, (len(found.state), 1))
        turns = [turn_matrix(axis, phases[:, i] + found.offsets[:, i]) for i, axis in enumerate(axes)]
        for _ in range(sweeps):
            behind = [found.taken]
            for turn in reversed(turns[1:]):
                behind.append(np.einsum("kji,kj->ki", turn, behind[-1]))
            before = found.state
            for i, axis in enumerate(axes):
                after = behind[len(axes) - 1 - i]
                even = (before * after).sum(axis=1) - (before @ axis) * (after @ axis)
                odd = (after * np.cross(axis, before)).sum(axis=1)
                best = np.arctan2(sign * odd, sign * even) - found.offsets[:, i]
                # In one squeezer the power is a sinusoid, so its extreme is exact and no step can overshoot.
                phases[:, i] = _inside(best, 0.5 * (low[i] + high[i]), low[i], high[i])
                turns[i] = turn_matrix(axis, phases[:, i] + found.offsets[:, i])
                before = np.einsum("kij,kj->ki", turns[i], before)
        return phases

    # The fit ----------------------------------------------------------------------------------------------------------

    def _from_prior(self, count: int) -> Members:
        """Draw members from the prior."""
        rng, n = self._rng, len(self.chain)
        states = rng.standard_normal((2, count, 3))
        states /= np.linalg.norm(states, axis=2, keepdims=True)
        offsets = rng.uniform(0.0, 2.0 * np.pi, (count, n))
        offsets[:, [0, -1]] = 0.0  # they turn s and t about the axis next to them: no unknowns of their own
        return Members(
            state=states[0],
            taken=states[1],
            offsets=offsets,
            ln_p0=self._ln_p0 + 0.7 * _LN_P0_SPREAD * rng.standard_normal(count),
            crosstalk=0.3 * _CROSSTALK_SPREAD * np.abs(rng.standard_normal(count)),
            damping=np.full(count, 1e-2),
            chi2=np.full(count, np.inf),
        )

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
                self._members.replace(stuck, self._members.chosen(self._rng.choice(sound, len(stuck))))
            self._improve(stuck, _COLD_STEPS, fine=True)
        stuck, sound = self._stuck_and_sound()
        self._members.replace(stuck, self._members.chosen(self._rng.choice(sound, len(stuck))))
        self._estimate_noise()

    def _estimate_noise(self) -> None:
        """Lead the first member to the best explanation, and judge the noise by what it leaves."""
        left = (((self.powers(self._phases) - self._powers) / self._sigma()) ** 2).sum(axis=1)
        best = int(np.argmin(left))
        if best:
            self._members.replace(np.array([0]), self._members.chosen(np.array([best])))
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
        members = self._members.chosen(index)
        draws = self._draws[index]
        if not fine:  # a member that starts anew has not earned the small damping of one that fitted
            members.damping[:] = 1e-2
        residual, jacobian = self._linearised(members, draws, fine)
        members.chi2 = (residual**2).sum(axis=1)
        for _ in range(steps):
            trial = self._stepped(members, residual, jacobian)
            new_residual, new_jacobian = self._linearised(trial, draws, fine)
            trial.chi2 = (new_residual**2).sum(axis=1)
            better = trial.chi2 < members.chi2
            members.damping = np.clip(np.where(better, members.damping / 5.0, members.damping * 4.0), 1e-9, 1e6)
            trial.damping = members.damping
            members.replace(better, trial.chosen(np.flatnonzero(better)))
            residual[better], jacobian[better] = new_residual[better], new_jacobian[better]
        self._members.replace(index, members)

    def _stepped(self, members: Members, residual: NDArray[np.float64], jacobian: NDArray[np.float64]) -> Members:
        """Return members after one damped Gauss-Newton step; states stay on the sphere."""
        normal = np.swapaxes(jacobian, 1, 2) @ jacobian
        gradient = np.einsum("knm,kn->km", jacobian, residual)
        diagonal = np.einsum("kmm->km", normal)
        largest = diagonal.max(axis=1, keepdims=True)
        ridge = members.damping[:, None] * (diagonal + 1e-3 * largest) + 1e-6
        step = -np.linalg.solve(normal + ridge[:, None, :] * np.eye(normal.shape[1]), gradient[..., None])[..., 0]
        offsets = members.offsets.copy()
        offsets[:, 1:-1] += step[:, 6:-2]
        return Members(
            state=_on_sphere(members.state + step[:, :3]),
            taken=_on_sphere(members.taken + step[:, 3:6]),
            offsets=offsets,
            ln_p0=members.ln_p0 + np.clip(step[:, -2], -1.0, 1.0),  # an exponent: a large step would overflow
            crosstalk=np.clip(members.crosstalk + step[:, -1], 0.0, _MOST_CROSSTALK),
            damping=members.damping,
            chi2=members.chi2.copy(),
        )

    def _linearised(
        self, members: Members, draws: NDArray[np.float64], fine: bool
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return residuals in standard deviations, prior last, shape ``(K, n + 2)``, and their derivatives."""
        state, taken = members.state[:, None], members.taken[:, None]
        q, slopes, by_taken, by_state = self.chain.overlap(self._phases[None] + members.offsets[:, None], state, taken)
        # With the true noise the surface is full of narrow valleys far from the solution; coarse noise widens them.
        sigma = self._sigma() if fine else np.full(len(self._powers), _COARSE * float(self._powers.max()))
        p0, crosstalk = np.exp(members.ln_p0)[:, None], members.crosstalk[:, None]
        power = p0 * ((1.0 - 2.0 * crosstalk) * 0.5 * (1.0 + q) + crosstalk)
        by_q = (0.5 * p0 * (1.0 - 2.0 * crosstalk) / sigma)[..., None]
        count, n = q.shape
        residual = np.empty((count, n + 2))
        residual[:, :n] = (power - self._powers) / sigma - draws
        residual[:, n] = (members.ln_p0 - self._ln_p0) / _LN_P0_SPREAD
        residual[:, n + 1] = members.crosstalk / _CROSSTALK_SPREAD
        jacobian = np.zeros((count, n + 2, 8 + max(len(self.chain) - 2, 0)))
        # Derivatives across the states only, since a step along one would only change its length.
        jacobian[:, :n, 0:3] = by_q * (by_state - (by_state * state).sum(axis=2, keepdims=True) * state)
        jacobian[:, :n, 3:6] = by_q * (by_taken - (by_taken * taken).sum(axis=2, keepdims=True) * taken)
        jacobian[:, :n, 6:-2] = by_q * slopes[:, :, 1:-1]
        jacobian[:, :n, -2] = power / sigma
        jacobian[:, :n, -1] = -p0 * q / sigma
        jacobian[:, n, -2] = 1.0 / _LN_P0_SPREAD
        jacobian[:, n + 1, -1] = 1.0 / _CROSSTALK_SPREAD
        return residual, jacobian


def _on_sphere(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return vectors ``(K, 3)`` made to length 1."""
    unit: NDArray[np.float64] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def _inside(phases: NDArray[np.float64], middle: float, low: float, high: float) -> NDArray[np.float64]:
    """Return the equivalents of phases nearest to the middle of the range, at its nearer end if none lies inside."""
    nearest = middle + np.mod(phases - middle + np.pi, 2.0 * np.pi) - np.pi
    return np.clip(nearest, low, high)
