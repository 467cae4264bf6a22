"""Code shared by all fits: points of a scan, least squares, standard errors, fitted curve.

Standard errors are calculated from the scatter of the points around the curve.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lumion_hw.acquisition.columns import State, select_names
from lumion_hw.acquisition.scan_data import ScanData
from lumion_hw.errors import ConfigError
from lumion_hw.files import AnyPath

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Real = NDArray[np.float64]
_MIN_DEGREES_OF_FREEDOM = 1
_MIN_SINGULAR_VALUE_RATIO = 1e-9
"""Parameters have no effect on the curve if their singular value is below this fraction of the largest."""


class FitTerm(NamedTuple):
    """One quantity in the summary of a fit: name, attributes with value and error, number format, unit."""

    name: str
    value: str
    error: str
    form: str
    unit: str = ""


@dataclass(frozen=True, eq=False)
class FittedCurve:
    """Base class of fit results: measured points and the fitted curve.

    Attributes:
        x: x values, shape ``(points,)``.
        y: Measured values, shape ``(points,)``.
        residual: Measured value minus fitted curve, shape ``(points,)``.
        n_left_out: Number of points left out because they have no number.
    """

    x: Real = field(repr=False)
    y: Real = field(repr=False)
    residual: Real = field(repr=False)
    x_label: str
    y_label: str
    n_left_out: int
    _terms: ClassVar[tuple[FitTerm, ...]] = ()

    def plot(self, target: AnyPath | None = None) -> Figure:
        """Draw the measured points, the fitted curve and the residual into a .png, .svg or .pdf file.

        Raises:
            ConfigError: matplotlib is not installed, or the picture cannot be written.
        """
        from lumion_hw.acquisition.scan_plot import draw_fit

        return draw_fit(self.x, self.y, self.residual, (self.x_label, self.y_label), self.summary(), target)

    def summary(self) -> str:
        """Return the result of the fit in one line."""
        return ", ".join(self._word(term) for term in self._terms)

    def _word(self, term: FitTerm) -> str:
        value, error = getattr(self, term.value), getattr(self, term.error)
        return f"{term.name} = {value:{term.form}} ± {error:.2g} {term.unit}".rstrip()


@dataclass(frozen=True, eq=False)
class FitPoints:
    """The points of a scan that a fit uses: a reading over one setting.

    Attributes:
        x: The setting, shape ``(points,)``.
        y: The reading, shape ``(points,)``.
        is_valid: Whether each point of the scan has a number, shape ``(points of the scan,)``.
    """

    name: str
    unit: str
    x: Real
    y: Real
    y_unit: str
    y_label: str
    is_valid: NDArray[np.bool_]

    @classmethod
    def of(cls, data: ScanData, reading: str, setting: str) -> FitPoints:
        """Return the points of a scan of one dimension.

        Raises:
            ConfigError: There is no such reading or setting, or the scan has several dimensions.
        """
        at, chosen = data.swept(setting)
        if any(size > 1 for other, size in enumerate(data.plan.shape) if other != at):
            raise ConfigError(
                f"the scan has other dimensions besides {chosen.name}", hint="Fit a scan over this setting alone."
            )
        name, values, is_valid = numbers_of(data, reading)
        # Where a laser ran the sweep, use the wavelengths it logged, not the requested ones.
        x = data.setting_was.get(chosen.name, chosen.numbers).ravel()
        unit = data.unit[name]
        return cls(chosen.name, chosen.unit, x[is_valid], values[is_valid], unit, f"{name} ({unit})", is_valid)

    @property
    def n_left_out(self) -> int:
        """Number of points of the scan without a number."""
        return int(len(self.is_valid) - self.is_valid.sum())

    def check(self, min_points: int) -> None:
        """Raise ``ConfigError`` if there are too few points for the fit."""
        if len(self.y) < min_points:
            raise ConfigError(f"{self.y_label}: {len(self.y)} points have a value, but {min_points} are needed")


def numbers_of(data: ScanData, reading: str) -> tuple[str, Real, NDArray[np.bool_]]:
    """Return the name and values of a reading, and which values are not missing. Raises as ``select_names``."""
    devices = {column.name: column.device for column in data.header.columns if column.name in data.value}
    names = select_names([reading], devices)
    if len(names) > 1:
        raise ConfigError(
            f"{reading!r} matches {len(names)} channels, but a fit needs exactly one",
            hint=f"Give one name, such as {names[0]}.",
        )
    values = data.value[names[0]].ravel()
    return names[0], values, (data.state[names[0]].ravel() == State.OK) & np.isfinite(values)


class LeastSquares(NamedTuple):
    """Result of a least-squares fit of k parameters.

    Attributes:
        at: Fitted parameters, shape ``(k,)``.
        covariance: Covariance of the parameters, from the scatter of the points, shape ``(k, k)``; infinite if unknown.
        residual: Measured value minus fitted curve, shape ``(points,)``.
        slopes: Derivative of the curve with respect to each parameter, shape ``(points, k)``.
    """

    at: Real
    covariance: Real
    residual: Real
    slopes: Real

    @property
    def errors(self) -> Real:
        """Standard errors of the parameters, shape ``(k,)``."""
        errors: Real = np.sqrt(np.diag(self.covariance))
        return errors


def solve(curve: Callable[[Real], Real], y: Real, start: Sequence[float], sizes: Sequence[float]) -> LeastSquares:
    """Fit a curve with k parameters to points.

    Args:
        curve: Function from parameters to the curve, shape ``(points,)``.
        y: The points, shape ``(points,)``; neighbours in this order may have correlated residuals.
        start: Initial parameters, shape ``(k,)``.
        sizes: Typical size of each parameter, shape ``(k,)``, positive.
    """
    from scipy.optimize import least_squares

    size = np.asarray(sizes, dtype=np.float64)
    scale = float(np.std(y)) or 1.0

    def misfit(at: Real) -> Real:
        return np.asarray((curve(at * size) - y) / scale, dtype=np.float64)

    solution = least_squares(misfit, np.asarray(start, dtype=np.float64) / size, x_scale="jac", max_nfev=2000)
    slopes, residual = np.asarray(solution.jac, dtype=np.float64), -scale * solution.fun
    covariance = _covariance(slopes, solution.fun) * np.outer(size, size)
    return LeastSquares(solution.x * size, covariance, residual, scale * slopes / size)


def _covariance(slopes: Real, residual: Real) -> Real:
    """Return the covariance of the fit parameters; infinite if undetermined.

    Residuals may be correlated (Newey and West, Econometrica 55, 703, 1987).
    """
    n, k = slopes.shape
    norm = np.linalg.norm(slopes, axis=0)
    if n - k < _MIN_DEGREES_OF_FREEDOM or not np.all(norm > 0.0):
        return np.full((k, k), np.inf)
    # With columns of length 1 the singular values do not depend on the units of the parameters.
    scaled = slopes / norm
    _, sizes, directions = np.linalg.svd(scaled, full_matrices=False)
    if sizes[-1] < _MIN_SINGULAR_VALUE_RATIO * sizes[0]:
        return np.full((k, k), np.inf)
    inverse = (directions.T / sizes**2) @ directions
    plain = inverse * float(np.sum(residual**2)) / (n - k)
    lags = _correlation_length(residual)
    if lags:
        pulls = scaled * residual[:, None]
        spread = pulls.T @ pulls
        # Weights that decrease with the lag keep the matrix positive semidefinite.
        for lag in range(1, lags + 1):
            together = pulls[lag:].T @ pulls[:-lag]
            spread += (1.0 - lag / (lags + 1.0)) * (together + together.T)
        robust = inverse @ spread @ inverse * n / (n - k)
        # Never below the value for independent points: with few points the sum over neighbours is itself uncertain.
        factor = np.sqrt(np.maximum(np.diag(robust) / np.maximum(np.diag(plain), 1e-300), 1.0))
        plain = plain * np.outer(factor, factor)
    covariance: Real = plain / np.outer(norm, norm)
    return covariance


def _correlation_length(residual: Real) -> int:
    # Independent residuals have correlations of about 1/√n, so a smaller one than twice this shows nothing.
    n, total = len(residual), float(np.sum(residual**2))
    for lag in range(1, n // 4):
        if not total > 0.0 or float(np.sum(residual[lag:] * residual[:-lag])) / total < 2.0 / math.sqrt(n):
            return lag - 1
    return n // 4


def propagated(derived: Callable[[Real], Real], at: Real, covariance: Real) -> Real:
    """Return the standard errors of quantities calculated from fitted parameters, to first order.

    ``derived`` converts parameters of shape ``(k,)`` to quantities of shape ``(m,)``. Infinite errors stay infinite.
    """
    if not np.all(np.isfinite(covariance)):
        return np.full(len(derived(at)), np.inf)
    sigma = np.sqrt(np.diag(covariance))
    steps = np.where(sigma > 0.0, 1e-3 * sigma, 1e-6 * np.maximum(np.abs(at), 1e-6))
    slopes = np.stack(
        [
            (derived(at + step) - derived(at - step)) / (2.0 * size)
            for step, size in zip(np.diag(steps), steps, strict=True)
        ]
    )
    errors: Real = np.sqrt(np.maximum(np.diag(slopes.T @ covariance @ slopes), 0.0))
    return errors
