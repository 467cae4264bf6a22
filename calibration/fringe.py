"""Fitting the law of a heater to the fringes it makes, by variable projection.

In a recirculating mesh a swept heater does not make a pure sine: the light also comes back through loops. But every
detector's trace is periodic in the heater's phase, whatever the rest of the mesh does. So each trace is a short
Fourier series in φ(I) = ρ2·I² + ρ4·I⁴ + ρ6·I⁶; its coefficients are linear and need no start value, and the three
numbers of the law are searched over all traces together (calibration.md, step 3). Two of them are free: self-heating at
constant current makes P = I²R0 / (1 - γI²), so each coefficient is γ times the one before and ρ6 = ρ4² / ρ2. A free
third one would follow the strays instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.probe import NoiseModel
from lumion_hw.mesh.heater import HeaterLaw

HARMONICS = 3
_MODULATION_SIGMA = 8.0
_RHO4_SHARE = (0.0, 0.012, 0.024, 0.036)
_HALF_LAW_SHARE = 0.25


@dataclass(frozen=True)
class LawFit:
    """Result of one heater's sweep.

    Attributes:
        law: The law, or ``None`` if no detector saw the heater act.
        residual_sigma: Rms residual in units of the reading noise.
        modulation_sigma: Rms swing of the best detector in units of the reading noise.
    """

    law: HeaterLaw | None
    residual_sigma: float
    modulation_sigma: float


def fourier(phase_rad: NDArray[np.float64], harmonics: int) -> NDArray[np.float64]:
    """Return the design matrix [1, cos φ, sin φ, cos 2φ, …], shape ``(n, 1 + 2 harmonics)``."""
    columns = [np.ones_like(phase_rad)]
    for order in range(1, harmonics + 1):
        columns += [np.cos(order * phase_rad), np.sin(order * phase_rad)]
    return np.stack(columns, axis=1)


def fit_law(
    squares_ma2: NDArray[np.float64],
    traces_ma: NDArray[np.float64],
    noise: NoiseModel,
    heater_max_ma: float,
    rho2_range: tuple[float, float],
) -> LawFit:
    """Fit the law of one heater.

    Args:
        squares_ma2: Shape ``(n,)``; the swept I².
        traces_ma: Shape ``(n, m)``; readings of all detectors, several backgrounds side by side. NaN columns are left
            out.
        noise: Noise of a reading.
        heater_max_ma: Largest current of the heater.
        rho2_range: Least and largest ρ2 to consider, rad/mA².
    """
    traces = traces_ma[:, ~np.isnan(traces_ma).any(axis=0)]
    scaled = traces / noise.sigma_ma(traces.mean(axis=0))
    scaled = scaled - scaled.mean(axis=0)
    modulation = float(np.sqrt((scaled**2).mean(axis=0).max(initial=0.0)))
    if modulation < _MODULATION_SIGMA:
        return LawFit(None, modulation, modulation)
    left, singular, _ = np.linalg.svd(scaled, full_matrices=False)
    compressed = left * singular
    best = _search(squares_ma2, compressed, rho2_range)
    residual = float(np.sqrt(_residual(best, squares_ma2, compressed, HARMONICS) / scaled.size))
    rho2, rho4 = best
    return LawFit(HeaterLaw(rho2, rho4, heater_max_ma, rho4**2 / rho2), residual, modulation)


def _residual(
    rho: tuple[float, float], squares: NDArray[np.float64], traces: NDArray[np.float64], harmonics: int
) -> float:
    """Return the sum of squares left after projecting the traces on the Fourier series."""
    rho2, rho4 = rho
    basis, _ = np.linalg.qr(fourier(squares * (rho2 + squares * (rho4 + squares * rho4**2 / rho2)), harmonics))
    return max(float((traces**2).sum() - ((basis.T @ traces) ** 2).sum()), 0.0)


def _search(
    squares: NDArray[np.float64], traces: NDArray[np.float64], rho2_range: tuple[float, float]
) -> tuple[float, float]:
    """Return the best (ρ2, ρ4): a grid, then a simplex; a law of half the rate is told from the true one."""
    low, high = rho2_range
    step = 0.12 / float(squares[-1])
    grid = [(rho2, share * rho2) for rho2 in np.arange(low, high, step).tolist() for share in _RHO4_SHARE]
    best = _polish(min(grid, key=lambda rho: _residual(rho, squares, traces, HARMONICS)), squares, traces)
    # At half the true rate the second harmonic does the first one's work: the first one is then left without any.
    doubled = (2.0 * best[0], 2.0 * best[1])
    total = float((traces**2).sum())
    fundamental = total - _residual(best, squares, traces, 1)
    second = total - _residual(doubled, squares, traces, 1)
    if doubled[0] < 1.1 * high and fundamental < _HALF_LAW_SHARE * second:
        best = _polish(doubled, squares, traces)
    return best


def _polish(
    start: tuple[float, float], squares: NDArray[np.float64], traces: NDArray[np.float64]
) -> tuple[float, float]:
    """Refine a law by a simplex search on the projected residual."""
    from scipy.optimize import minimize

    # One vertex per coefficient, moved so that the phase at the largest current changes by a tenth of a radian.
    reach = 0.1 / float(squares[-1]) ** np.array([1, 2])
    simplex = np.vstack([np.array(start), np.array(start) + np.diag(reach)])
    result = minimize(  # type: ignore[call-overload]  # the stubs know no initial_simplex
        lambda rho: _residual((float(rho[0]), float(rho[1])), squares, traces, HARMONICS),
        np.array(start),
        method="Nelder-Mead",
        options={"initial_simplex": simplex, "xatol": 1e-6, "fatol": 1e-3, "maxiter": 300},
    )
    return float(result.x[0]), float(result.x[1])
