"""Fit of the light behind rotating plates, from readings at known angles.

Behind plates of fixed retardance δ_k, turned to the angles θ_k, the power is

    P = P0·[(1 − 2ε)·(1 + t·R_N(θ_N)…R_1(θ_1) s)/2 + ε]

with the total power P0, the crosstalk ε, the launched state s, the state t that the device accepts, and the rotation
R_k by δ_k about (cos 2φ_k, sin 2φ_k, 0) with φ_k = aθ_k + o_k. The factor a < 1 describes the twist of the fibre of a
paddle; the reference directions o_2 and o_3 are unknown (o_1 = 0). Three plates have twelve unknowns: two for each
state, three retardances, two directions, a, P0 and ε.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

_THREE_PLATES_RAD, _THREE_SPREAD_RAD = 0.5 * np.pi * np.array([1.0, 2.0, 1.0]), 0.4
_ANY_PLATE_RAD, _ANY_SPREAD_RAD = 0.75 * np.pi, 0.8
"""Mean and spread of the prior for unknown retardances: between quarter-wave and half-wave."""
_STRETCH_SPREAD, _MIN_STRETCH, _MAX_STRETCH = 0.05, 0.7, 1.3
_LN_P0_PRIOR, _LN_P0_SPREAD = 0.4, 1.0
_CROSSTALK_SPREAD, _MAX_CROSSTALK = 0.01, 0.2
_COARSE = 0.05
"""Assumed noise relative to the brightest reading, while the fit is far from the solution."""
_DARK_NOISE = 1e-6
_COARSE_EVALUATIONS, _FINE_EVALUATIONS = 12, 40
_FINALISTS = 3  # best random starts after a cheap fit, which get the full fit
_DIFFERENCE = 1e-7
_GRID = 1000
_CLIMBS = 4  # the power has several extremes over the angles; the best of four is used


@dataclass(frozen=True)
class PlateLight:
    """A fitted model of the light behind N rotating plates.

    Attributes:
        state: State s of the light in front of the plates, a unit Stokes vector, shape ``(3,)``.
        accepted: State t that the device behind the plates accepts, shape ``(3,)``.
        retardances: Retardances δ of the plates, rad, shape ``(N,)``.
        offsets_rad: Reference directions o of the plates, shape ``(N,)``; the first is 0.
        stretch: Factor a by which the twist of its fibre reduces the angle of a paddle.
        p0: Total power, in the unit of the readings.
        crosstalk: Crosstalk ε: accepted fraction of the state orthogonal to t.
        misfit: Rms residual of the readings, relative to their values.
    """

    state: NDArray[np.float64]
    accepted: NDArray[np.float64]
    retardances: NDArray[np.float64]
    offsets_rad: NDArray[np.float64]
    stretch: float
    p0: float
    crosstalk: float
    misfit: float = 0.0

    def powers(self, angles_deg: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the predicted powers, shape ``(...)``, at plate angles of shape ``(..., N)``."""
        angles_rad = self.stretch * np.deg2rad(angles_deg) + self.offsets_rad
        share = 0.5 * (1.0 + _overlap(angles_rad, self.retardances, self.state, self.accepted))
        power: NDArray[np.float64] = self.p0 * ((1.0 - 2.0 * self.crosstalk) * share + self.crosstalk)
        return power

    def extreme(
        self,
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        near: NDArray[np.float64],
        rng: np.random.Generator,
        *,
        sign: float,
    ) -> NDArray[np.float64]:
        """Return the angles of N plates, between limits, that give the brightest or darkest light, shape ``(N,)``.

        Args:
            low: Lowest angles in degrees, shape ``(N,)``.
            high: Highest angles in degrees, shape ``(N,)``.
            near: Angles to start from in addition to random ones, shape ``(m, N)`` for m settings.
            rng: Random number generator.
            sign: 1 for the brightest, −1 for the darkest.
        """
        from scipy.optimize import minimize

        candidates = np.vstack([near, rng.uniform(low, high, (_GRID, len(low)))])

        def shortfall(angles: NDArray[np.float64]) -> float:
            return float(-sign * self.powers(angles) / self.p0)

        ends = [
            minimize(shortfall, candidates[index], bounds=list(zip(low, high, strict=True)), method="L-BFGS-B")
            for index in np.argsort(-sign * self.powers(candidates))[:_CLIMBS]
        ]
        return np.asarray(min(ends, key=lambda end: float(end.fun)).x)


def fit_plates(
    angles_deg: NDArray[np.float64],
    powers: NDArray[np.float64],
    rng: np.random.Generator,
    *,
    relative_noise: float,
    former: PlateLight | None = None,
    starts: int = 10,
) -> PlateLight:
    """Return the model of light behind rotating plates that fits readings best.

    Args:
        angles_deg: Angles of the readings, shape ``(n, N)``.
        powers: Readings, shape ``(n,)``, in any linear unit; at least one above 0.
        rng: Random number generator.
        relative_noise: Standard deviation of a reading relative to its value.
        former: Model fitted to fewer readings, as an additional starting point.
        starts: Number of random starting points.
    """
    # Normalised, so that the prior of ln P0 applies to readings of any unit.
    fit = _PlateFit(angles_deg, powers / powers.max(), relative_noise)
    begin = [fit.refine(fit.draw(rng), coarse=True) for _ in range(starts)]
    begin = sorted(begin, key=fit.cost)[:_FINALISTS]
    if former is not None:
        begin.append(fit.parameters_of(former, float(powers.max())))
    best = min((fit.refine(parameters, coarse=False) for parameters in begin), key=fit.cost)
    return fit.light(best, float(powers.max()))


class _PlateFit:
    """Least-squares fit of retarding plates to the powers measured at plate angles."""

    def __init__(self, angles_deg: NDArray[np.float64], powers: NDArray[np.float64], relative_noise: float) -> None:
        self._angles_deg, self._angles_rad, self._powers = angles_deg, np.deg2rad(angles_deg), powers
        self._sigma = relative_noise * np.abs(powers) + _DARK_NOISE
        self._n = n_plates = angles_deg.shape[1]
        self._nominal, self._spread_rad = np.full(n_plates, _ANY_PLATE_RAD), _ANY_SPREAD_RAD
        if n_plates == len(_THREE_PLATES_RAD):
            self._nominal, self._spread_rad = _THREE_PLATES_RAD, _THREE_SPREAD_RAD
        # Retardances repeat after a turn; crosstalk and twist factor have limits that no device exceeds.
        free, turns = np.full(n_plates - 1, np.inf), np.full(n_plates, 2.0 * np.pi)
        self._low = np.concatenate([np.full(6, -np.inf), 0.0 * turns, -free, [_MIN_STRETCH, -np.inf, 0.0]])
        self._high = np.concatenate([np.full(6, np.inf), turns, free, [_MAX_STRETCH, np.inf, _MAX_CROSSTALK]])

    def draw(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return random parameters: two Stokes vectors, retardances and offsets in rad, stretch, ln P0, crosstalk."""
        spread = 0.5 * self._spread_rad * rng.standard_normal(self._n)
        offsets = rng.uniform(0.0, np.pi, self._n - 1)
        states = rng.standard_normal((2, 3))
        states /= np.linalg.norm(states, axis=1, keepdims=True)
        return np.concatenate([states.ravel(), self._nominal + spread, offsets, [1.0, _LN_P0_PRIOR, 1e-3]])

    def parameters_of(self, light: PlateLight, scale: float) -> NDArray[np.float64]:
        """Return the parameters of a model; readings were divided by ``scale``."""
        crosstalk = min(max(light.crosstalk, 1e-9), 0.99 * _MAX_CROSSTALK)
        other_parameters = [light.stretch, np.log(light.p0 / scale), crosstalk]
        return np.concatenate([light.state, light.accepted, light.retardances, light.offsets_rad[1:], other_parameters])

    def light(self, parameters: NDArray[np.float64], scale: float) -> PlateLight:
        """Return the model for parameters, with its misfit; readings were divided by ``scale``."""
        states = parameters[:6].reshape(2, 3)
        states = states / np.linalg.norm(states, axis=1, keepdims=True)
        retardances, offsets = parameters[6 : 6 + self._n], np.concatenate([[0.0], parameters[6 + self._n : -3]])
        stretch, ln_p0, crosstalk = parameters[-3:].tolist()
        # Far from a solution the exponential could overflow.
        p0 = float(np.exp(min(ln_p0, 50.0)))
        light = PlateLight(states[0], states[1], retardances, offsets, stretch, p0, crosstalk)
        residuals = (light.powers(self._angles_deg) - self._powers) / (np.abs(self._powers) + 1e-3)
        return replace(light, p0=scale * light.p0, misfit=float(np.sqrt((residuals**2).mean())))

    def refine(self, parameters: NDArray[np.float64], *, coarse: bool) -> NDArray[np.float64]:
        """Return the parameters at the nearest minimum of the squared residuals."""
        from scipy.optimize import least_squares

        # With the true noise the surface has many narrow valleys far from the solution; coarse noise widens them.
        sigma = np.full(len(self._powers), _COARSE) if coarse else self._sigma
        solution = least_squares(
            self._residuals,
            np.clip(parameters, self._low + 1e-9, self._high - 1e-9),
            bounds=(self._low, self._high),
            jac=self._slopes,
            max_nfev=_COARSE_EVALUATIONS if coarse else _FINE_EVALUATIONS,
            args=(sigma,),
        )
        return np.asarray(solution.x)

    def cost(self, parameters: NDArray[np.float64]) -> float:
        """Return the robust misfit Σ ln(1 + r²) of the residuals r in units of noise."""
        return float(np.log1p(self._residuals(parameters, self._sigma) ** 2).sum())

    def _slopes(self, parameters: NDArray[np.float64], sigma: NDArray[np.float64]) -> NDArray[np.float64]:
        # All columns in one call, shape (M, n): the propagation is broadcast, which is faster than a loop.
        shifted = parameters + _DIFFERENCE * np.eye(len(parameters))
        slopes = (self._residuals(shifted, sigma) - self._residuals(parameters, sigma)) / _DIFFERENCE
        return np.ascontiguousarray(slopes.T)

    def _residuals(self, parameters: NDArray[np.float64], sigma: NDArray[np.float64]) -> NDArray[np.float64]:
        n = self._n
        states = parameters[..., :6].reshape(*parameters.shape[:-1], 2, 3)
        lengths = np.sqrt((states**2).sum(axis=-1))
        states = states / lengths[..., None]
        retardances, offsets = parameters[..., 6 : 6 + n], parameters[..., 6 + n : -3]
        stretch, ln_p0, crosstalk = (parameters[..., index, None] for index in (-3, -2, -1))
        angles = stretch[..., None] * self._angles_rad
        angles[..., 1:] += offsets[..., None, :]
        overlap = _overlap(angles, retardances[..., None, :], states[..., 0, None, :], states[..., 1, None, :])
        share = 0.5 * (1.0 + overlap)
        power = np.exp(np.minimum(ln_p0, 50.0)) * ((1.0 - 2.0 * crosstalk) * share + crosstalk)
        prior = [
            (retardances - self._nominal) / self._spread_rad,
            (stretch - 1.0) / _STRETCH_SPREAD,
            (ln_p0 - _LN_P0_PRIOR) / _LN_P0_SPREAD,
            crosstalk / _CROSSTALK_SPREAD,
            lengths - 1.0,  # states are fitted as free vectors, whose length would drift without this
        ]
        return np.concatenate([(power - self._powers) / sigma, *prior], axis=-1)


def _overlap(
    angles_rad: NDArray[np.float64],
    retardances: NDArray[np.float64],
    state: NDArray[np.float64],
    accepted: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the overlap t·s of the light behind plates with the accepted state.

    Args:
        angles_rad: Plate angles, shape ``(..., N)``.
        retardances: Shape ``(..., N)``.
        state: Shape ``(..., 3)``.
        accepted: Shape ``(..., 3)``.
    """
    # Angles on the Poincaré sphere are twice those of the plate (docs/polarization.md).
    twice = 2.0 * angles_rad
    cosine, sine = np.cos(twice), np.sin(twice)
    x, y, z = state[..., 0], state[..., 1], state[..., 2]
    c_all, s_all = np.cos(retardances), np.sin(retardances)
    for plate in range(angles_rad.shape[-1]):
        u, v, c, s = cosine[..., plate], sine[..., plate], c_all[..., plate], s_all[..., plate]
        projection, sz = (1.0 - c) * (u * x + v * y), s * z
        x, y, z = c * x + v * sz + projection * u, c * y - u * sz + projection * v, c * z + s * (u * y - v * x)
    overlap: NDArray[np.float64] = accepted[..., 0] * x + accepted[..., 1] * y + accepted[..., 2] * z
    return overlap
