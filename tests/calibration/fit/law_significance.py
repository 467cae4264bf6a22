"""What the readings decide beyond the values: how many terms a heater law needs, and which signs stay open.

Terms are needed that the readings would miss: the estimates of a term over their covariance are a χ² of as many degrees
of freedom as there are heaters, were the term not there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from calibration.fit.global_fit import FitResult
from calibration.model.likelihood import Likelihood, weight
from calibration.model.mesh_model import MeshModel
from calibration.model.space import LAW_TERMS, ParameterSpace

_NEEDED_SIGMA = 5.0
_DECIDED_CHI2 = 25.0


@dataclass(frozen=True)
class Significance:
    """Whether a group of parameters could as well be zero.

    Attributes:
        chi2: Of all its free elements being zero.
        freedom: Their number.
    """

    chi2: float
    freedom: int

    @property
    def needed(self) -> bool:
        """Whether the readings would miss the group, by five standard deviations of χ²."""
        return self.freedom > 0 and self.chi2 > self.freedom + _NEEDED_SIGMA * np.sqrt(2.0 * self.freedom)


def significance(fit: FitResult, space: ParameterSpace, name: str) -> Significance:
    """Return the significance of a group of parameters in a fit. Raises ``ConfigError`` if there is no such group."""
    chosen = space.mask((name,)) & fit.free
    if not chosen.any():
        return Significance(0.0, 0)
    block, estimate = fit.covariance()[np.ix_(chosen, chosen)], fit.vector[chosen]
    return Significance(float(estimate @ np.linalg.solve(block, estimate)), int(chosen.sum()))


def law_terms_needed(fit: FitResult, space: ParameterSpace) -> int:
    """Return how many terms of the heater laws the readings ask for: up to the last one they would miss."""
    needed = [significance(fit, space, name).needed for name in LAW_TERMS]
    return max((term + 1 for term, missed in enumerate(needed) if missed), default=0)


def open_signs(model: MeshModel, fit: FitResult, likelihood: Likelihood) -> tuple[int, ...]:
    """Return the PUCs whose coupler difference could as well have the other sign: turned, χ² rises by less than 25.

    Such a PUC is a path of its own (15, 34 and 53 of 72), or in the dark, or balanced; its extinction does
    not depend on the sign, the phase of its light hardly.
    """

    def chi2(difference_rad: np.ndarray) -> float:
        parameters = replace(fit.parameters, coupler_difference_rad=difference_rad)
        residual = likelihood.residual(model.predict(parameters, likelihood.observations), fit.discrepancy)
        return float((weight(residual) * residual**2).sum())

    found = fit.parameters.coupler_difference_rad
    here = chi2(found)
    turned = (np.where(np.arange(len(found)) == puc, -found, found) for puc in range(len(found)))
    return tuple(puc for puc, difference in enumerate(turned) if chi2(difference) < here + _DECIDED_CHI2)
