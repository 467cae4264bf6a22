"""Finds what has changed in a mesh since its record was made: phases, gains, resistances or light levels.

New readings are explained by as few changes as possible. Everything else keeps its recorded value.

Without voltage measurements, gain (phase per power) and resistance of a heater cannot be told apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calibration.fit.drift import MAX_CHI2, DriftModel, Posterior, prior_of
from calibration.fit.global_fit import FitResult, GlobalFit
from calibration.model.arrays import Real
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.normal_equations import mean_squared_residual
from calibration.model.parameters import MeshParameters
from calibration.model.space import LAW_TERMS, ParameterSpace

Kind = Literal["offset", "loop", "gain", "resistance", "heater", "source", "monitor"]
"""Kind of change: passive phase of a PUC, phase of a loop, gain (phase per power) or resistance of a heater, either of
the two, power of a source, sensitivity of a monitor.
"""

LARGEST_CHANGE: dict[Kind, float] = {
    "offset": 0.5, "loop": 0.5, "gain": 0.1, "resistance": 0.1, "heater": 0.1, "source": 3.0, "monitor": 1.0
}  # fmt: skip
"""Largest usual change (one sigma): rad for phases, relative for heaters, dB for light (assumed)."""
SMALLEST_CHANGE: dict[Kind, float] = {
    "offset": 1e-3, "loop": 1e-3, "gain": 5e-4, "resistance": 2e-4, "heater": 5e-4, "source": 0.02, "monitor": 0.005
}  # fmt: skip
"""Change (one sigma) that counts as none: rad, relative, dB (assumed). An unchanged chip seems to change by this much
in new settings, because its model is not perfect."""
# Common spreads to try for all elements of a kind, as a share of the largest usual change.
_SPREADS = np.geomspace(3e-3, 1.0, 8)
_MIN_EVIDENCE = 4.0
"""Smallest increase of the log evidence that counts as a change (assumed): odds of 50 to 1."""
RESISTANCE_SIGMA = 5e-4
"""Relative standard error of a resistance change (noise of Qontrol readings, assumed)."""
_WORST = 5
# Relative information below which a combination of parameters counts as unobservable.
_ROUNDING = 1e-13
_MAX_ROUNDS = 10
# An element of a kind that drifts together has moved by itself if it is so many standard errors away.
_CLEAR_SIGMA = 4.0


@dataclass(frozen=True)
class Change:
    """Change of one element since the record was made.

    Attributes:
        number: Number of the PUC or heater (2·PUC + arm), the loop, or the port.
        value: Best estimate of the change: rad for phases, relative for heaters, dB for light.
        sigma: Standard error of the change, record included.
        moved: Whether the element has changed.
    """

    kind: Kind
    number: int
    value: float
    sigma: float
    moved: bool


@dataclass(frozen=True, eq=False)
class RenewedFit:
    """Result of a check: changes, and corrected parameters.

    Attributes:
        covariance: Shape ``(size, size)``; covariance of all parameters.
        chi2_per_dof: χ² per degree of freedom if everything may have changed.
        explains_readings: Whether the changes explain the readings.
        worst_pucs: PUCs with the largest misfit, the worst first.
    """

    changes: tuple[Change, ...]
    parameters: MeshParameters
    vector: Real
    covariance: Real
    chi2_per_dof: float
    explains_readings: bool
    worst_pucs: tuple[int, ...]

    @property
    def moved(self) -> tuple[Change, ...]:
        """The elements that have changed."""
        return tuple(change for change in self.changes if change.moved)


@dataclass(frozen=True, eq=False)
class PossibleChanges:
    """Possible changes, each as a change of the parameter vector.

    Attributes:
        numbers: Number of the changed element.
        directions: Change of the parameters per unit of every change, shape ``(size, K)``.
        uncertainties: Standard error of the directions, shape ``(size, K)``.
        measured: Change that another instrument has measured, shape ``(K,)``; NaN if not measured.
    """

    kinds: tuple[Kind, ...]
    numbers: tuple[int, ...]
    directions: Real
    uncertainties: Real
    measured: Real

    @property
    def widths(self) -> Real:
        """Largest usual change of every element, shape ``(K,)``."""
        return np.array([LARGEST_CHANGE[kind] for kind in self.kinds])

    @property
    def measured_information(self) -> Real:
        """Information from other instruments about every change, shape ``(K,)``; 0 if not measured."""
        return np.where(np.isfinite(self.measured), RESISTANCE_SIGMA**-2, 0.0)

    @classmethod
    def of(
        cls, space: ParameterSpace, vector: Real, free: NDArray[np.bool_], resistance_change: Real | None = None
    ) -> PossibleChanges:
        """Return all possible changes of a mesh.

        Args:
            space: Layout of the parameters.
            vector: Parameters of the record, shape ``(size,)``.
            free: Parameters with a standard error, shape ``(size,)``.
            resistance_change: Measured relative change of every resistance, shape ``(2E,)``; NaN if unknown.
        """
        # Kind, number, direction, uncertainty and measured change of every possible change.
        rows: list[tuple[Kind, int, Real, Real, float]] = []
        certain = np.zeros(space.size)

        def single(kind: Kind, group: str, names: Sequence[int]) -> None:
            place = space.group(group)
            for index, name in zip(range(place.start, place.stop), names, strict=True):
                if free[index]:
                    rows.append((kind, name, np.eye(1, space.size, index)[0], certain, np.nan))

        single("offset", "passive_phase_rad", range(space.mesh.n_pucs))
        single("loop", "loops", range(space.directions.shape[1]))
        single("source", "source_db", space.sources)
        single("source", "second_db", tuple(space.seconds.values()))
        single("monitor", "monitor_db", space.monitors)
        for heater in range(2 * space.mesh.n_pucs):
            terms = [space.group(name).start + heater for name in LAW_TERMS]
            if not free[terms[0]]:
                continue
            gain = np.zeros(space.size)
            gain[terms] = vector[terms]
            change = np.nan if resistance_change is None else float(resistance_change[heater])
            # P = I²·R0·(1 + γ·P): a larger resistance counts twice in the second term of the law and so on.
            if np.isnan(change):
                uncertainty = gain * 0.0
                uncertainty[terms] = vector[terms] * np.array([0.0, 0.5, 1.0])
                middle = gain + uncertainty  # midway between gain and resistance
                rows.append(("heater", heater, middle, uncertainty, np.nan))
                continue
            ohmic = np.zeros(space.size)
            ohmic[terms] = vector[terms] * np.array([1.0, 2.0, 3.0])
            heat = space.group("heat_factor").start + heater
            if free[heat]:
                ohmic[heat] = vector[heat]
            rows += [("gain", heater, gain, certain, np.nan), ("resistance", heater, ohmic, certain, change)]
        kinds, numbers, directions, uncertainties, measured = zip(*rows, strict=True)
        return cls(kinds, numbers, np.array(directions).T, np.array(uncertainties).T, np.array(measured))


def find_changes(
    model: MeshModel,
    likelihood: Likelihood,
    last: Posterior,
    days: float,
    drift: DriftModel | None = None,
    resistance_change: Real | None = None,
    max_chi2: float = MAX_CHI2,
) -> RenewedFit:
    """Find the changes since the last fit or record, and correct the parameters.

    Args:
        model: Model of the mesh.
        likelihood: The new readings.
        last: The last fit, or a record.
        days: Time since the last fit.
        drift: Assumed drift.
        resistance_change: Measured relative change of every resistance, shape ``(2E,)``; NaN if unknown.
        max_chi2: χ² per degree of freedom above which the changes do not explain the readings.
    """
    drift = drift or DriftModel()
    free = last.free
    possible = PossibleChanges.of(model.space, last.vector, free, resistance_change)
    covariance = last.covariance()
    scaled_directions = possible.directions * possible.widths
    drifted = np.diag(np.diag(drift.covariance(model.space, last.vector, days)))
    aged = covariance + scaled_directions @ scaled_directions.T + drifted
    complete_fit = GlobalFit(model, likelihood, prior_of(last.vector, aged, free), free).run(last.parameters)
    record_covariance = covariance[np.ix_(free, free)]
    small = possible.directions[free] * [SMALLEST_CHANGE[kind] for kind in possible.kinds]
    tolerant = record_covariance + small @ small.T
    statistics = _Statistics.of(complete_fit, last, tolerant, aged[np.ix_(free, free)], possible)
    variances = _Explanation(statistics, possible).search()
    changes = statistics.changes(possible, variances)
    values = np.array([change.value if change.moved else 0.0 for change in changes])
    vector = last.vector + possible.directions @ values
    parameters = last.parameters
    if variances.any():
        parameters = model.space.unpack(vector)
        uncertainty = possible.uncertainties[free] * values
        renewed = statistics.renewed_covariance(possible, variances, record_covariance, free)
        covariance[np.ix_(free, free)] = renewed + uncertainty @ uncertainty.T
    misfit = mean_squared_residual(model, parameters, likelihood)
    heaters = misfit[model.space.group("rho2")].reshape(-1, 2).max(axis=1)
    by_puc = np.maximum(misfit[model.space.group("passive_phase_rad")], heaters)
    chi2_per_dof, worst_pucs = complete_fit.chi2_per_dof, tuple(np.argsort(-by_puc)[:_WORST].tolist())
    explains_readings = complete_fit.converged and chi2_per_dof < max_chi2
    return RenewedFit(changes, parameters, vector, covariance, chi2_per_dof, explains_readings, worst_pucs)


@dataclass(frozen=True, eq=False)
class _Statistics:
    """Information of the readings about every change, with the errors of the record included.

    With F = R·Rᵀ the information of the readings and Σ the covariance of the record, M = (1/F + Σ)⁻¹ is R·W·Rᵀ with W =
    (1 + Rᵀ·Σ·R)⁻¹.

    Attributes:
        information: Shape ``(K, K)``; Tᵀ·M·T for the directions T of the changes, plus that of other instruments.
        slope: Information times the best change, shape ``(K,)``.
        root: Rᵀ, shape ``(n, P)``, for the P free parameters.
        weight: W, shape ``(n, n)``.
    """

    information: Real
    slope: Real
    root: Real
    weight: Real

    @classmethod
    def of(
        cls, fit: FitResult, last: Posterior, record_covariance: Real, aged: Real, possible: PossibleChanges
    ) -> _Statistics:
        """Return the information of a fit, in which everything may change, about the possible changes.

        ``record_covariance`` is that of the record with tolerated changes, ``aged`` the prior covariance of the fit;
        both have the shape ``(P, P)``.
        """
        free = last.free
        spread = np.sqrt(np.diag(aged))
        fitted = fit.free[free]
        readings = np.zeros((len(fitted), len(fitted)))
        readings[np.ix_(fitted, fitted)] = fit.information
        readings *= np.outer(spread, spread)
        moved = (fit.vector - last.vector)[free] / spread
        # At the optimum the slope of the readings balances that of the prior.
        slope = np.linalg.solve(aged / np.outer(spread, spread), moved) + readings @ moved
        squares, directions = np.linalg.eigh(readings)
        is_significant = squares > squares.max(initial=0.0) * _ROUNDING
        excess = max(fit.chi2_per_dof, 1.0)
        root = (directions[:, is_significant] * np.sqrt(squares[is_significant] / excess)).T / spread
        projected_slope = directions[:, is_significant].T @ slope / np.sqrt(squares[is_significant] * excess)
        weight = np.linalg.inv(np.eye(len(root)) + root @ record_covariance @ root.T)
        by_change = root @ possible.directions[free]
        information, about = by_change.T @ weight @ by_change, by_change.T @ (weight @ projected_slope)
        information += np.diag(possible.measured_information)
        about += possible.measured_information * np.nan_to_num(possible.measured)
        return cls(information, about, root, weight)

    def renewed_covariance(
        self, possible: PossibleChanges, variances: Real, record_covariance: Real, free: NDArray[np.bool_]
    ) -> Real:
        """Return the covariance of the free parameters after changes with the given variances.

        ``record_covariance`` is the covariance of the record, shape ``(P, P)``.
        """
        on = variances > 0.0
        directions = possible.directions[np.ix_(free, on)]
        estimate = directions @ np.linalg.inv(self.information[np.ix_(on, on)] + np.diag(1.0 / variances[on]))
        by_change = self.weight @ self.root @ directions
        # Error = u - T·S·Tᵀ·M·(u + noise) for the error u of the record: a sum of squares, so never negative.
        remaining = np.eye(len(record_covariance)) - estimate @ (by_change.T @ self.root)
        noise = by_change.T @ by_change + np.diag(possible.measured_information[on] + 1.0 / variances[on])
        return remaining @ record_covariance @ remaining.T + estimate @ noise @ estimate.T

    def evidence(self, variances: Real) -> float:
        """Return the log evidence of changes with the given prior variances, relative to no change."""
        on = variances > 0.0
        if not on.any():
            return 0.0
        root = np.sqrt(variances[on])
        matrix = np.eye(int(on.sum())) + self.information[np.ix_(on, on)] * np.outer(root, root)
        projection = self.slope[on] * root
        return 0.5 * float(projection @ np.linalg.solve(matrix, projection)) - 0.5 * float(np.linalg.slogdet(matrix)[1])

    def gains(self, variances: Real, widths: Real) -> Real:
        """Return the increase of the log evidence if each element changes, in addition to the given changes."""
        slope, information = self._conditional(variances)
        gained_information = information * widths**2
        price = np.log1p(np.maximum(gained_information, 0.0))
        return 0.5 * slope**2 * widths**2 / (1.0 + gained_information) - 0.5 * price

    def _conditional(self, variances: Real) -> tuple[Real, Real]:
        on = variances > 0.0
        across = self.information[:, on]
        inner = np.linalg.inv(self.information[np.ix_(on, on)] + np.diag(1.0 / variances[on]))
        slope = self.slope - across @ (inner @ self.slope[on])
        information = np.diag(self.information) - np.einsum("ij,jk,ik->i", across, inner, across)
        return slope, np.maximum(information, 0.0)

    def estimates(self, variances: Real) -> tuple[Real, Real]:
        """Return value and standard error of every change, zero where the prior variance is 0."""
        on = variances > 0.0
        covariance = np.linalg.inv(self.information[np.ix_(on, on)] + np.diag(1.0 / variances[on]))
        value, sigma = np.zeros(len(variances)), np.zeros(len(variances))
        value[on], sigma[on] = covariance @ self.slope[on], np.sqrt(np.diag(covariance))
        return value, sigma

    def changes(self, possible: PossibleChanges, variances: Real) -> tuple[Change, ...]:
        """Return the estimate of every possible change; for an unchanged element, if only it changed in addition."""
        on = variances > 0.0
        value, sigma = self.estimates(variances)
        # An element that has not moved is described by what it would be if it were the only further change.
        slope, information = self._conditional(variances)
        precision = information + possible.widths**-2.0
        value[~on], sigma[~on] = (slope / precision)[~on], precision[~on] ** -0.5
        rows = zip(possible.kinds, possible.numbers, value.tolist(), sigma.tolist(), on.tolist(), strict=True)
        return tuple(Change(*row) for row in rows)


class _Explanation:
    """Search for the fewest changes that explain the readings.

    ``variances`` is the prior variance of every change, shape ``(K,)``; 0 for unchanged elements.
    """

    def __init__(self, statistics: _Statistics, possible: PossibleChanges) -> None:
        self._statistics, self._evidence, self._widths = statistics, statistics.evidence, possible.widths
        kinds = np.array(possible.kinds)
        self._groups = [kinds == kind for kind in dict.fromkeys(possible.kinds)]
        self._single_price = _MIN_EVIDENCE + float(np.log(len(kinds)))
        self._group_price = _MIN_EVIDENCE + float(np.log(len(self._groups) * len(_SPREADS)))
        self.variances = np.zeros(len(kinds))

    def search(self) -> Real:
        """Add, split and drop changes until none helps; return the prior variances, shape ``(K,)``."""
        for _ in range(_MAX_ROUNDS):
            before = self.variances > 0.0
            while self._add():
                pass
            self._split_groups()
            self._drop()
            if np.array_equal(before, self.variances > 0.0):
                break
        return self.variances

    def _add(self) -> bool:
        gains = self._statistics.gains(self.variances, self._widths)
        best = int(np.where(self.variances > 0.0, -np.inf, gains).argmax())
        single = self.variances.copy()
        single[best] = self._widths[best] ** 2
        options = [(self._evidence(single) - self._single_price, single)]
        for group in self._groups:
            if not (self.variances[group] > 0.0).all():
                for share in _SPREADS:
                    together = np.where(group, (share * self._widths) ** 2, self.variances)
                    options.append((self._evidence(together) - self._group_price, together))
        value, chosen = max(options, key=lambda option: option[0])
        if value <= self._evidence(self.variances):
            return False
        self.variances = chosen
        return True

    def _split_groups(self) -> None:
        """Replace the change of a whole kind by changes of single elements, if these explain the readings as well."""
        for group in self._groups:
            if not (self.variances[group] > 0.0).all():
                continue
            value, sigma = self._statistics.estimates(self.variances)
            clear = group & (np.abs(value) > _CLEAR_SIGMA * sigma)
            separate_variances = np.where(group, np.where(clear, self._widths**2, 0.0), self.variances)
            price = self._single_price * int(clear.sum()) - self._group_price
            if self._evidence(separate_variances) - price > self._evidence(self.variances):
                self.variances = separate_variances

    def _drop(self) -> None:
        for element in np.flatnonzero(self.variances > 0.0).tolist():
            if any(group[element] and (self.variances[group] > 0.0).all() for group in self._groups):
                continue
            without = self.variances.copy()
            without[element] = 0.0
            if self._evidence(without) > self._evidence(self.variances) - self._single_price:
                self.variances = without
