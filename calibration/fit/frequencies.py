"""Search for the frequencies of sources with separate lasers.

Frequencies 1/(2τ) = 44 GHz apart give almost the same light.

Only the phase difference of the arms (a few mrad/nm) and the stated frequency of the source decide.
"""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter

import numpy as np

from calibration.diagnose.breakdowns import robust_cost
from calibration.fit.global_fit import ON_THE_WAY_SIGMA, FitResult, GlobalFit
from calibration.model.arrays import Real
from calibration.model.likelihood import Likelihood
from calibration.model.mesh_model import MeshModel
from calibration.model.parameters import MeshParameters

# Step of the scan in common phase per PUC; a loop of six PUCs turns by 0.3 rad.
_STEP_RAD = 0.05
_SETTINGS = 12


def find_detunings(
    model: MeshModel, parameters: MeshParameters, likelihood: Likelihood, span_hz: float
) -> MeshParameters:
    """Return parameters with the source frequencies found by a scan of ``span_hz`` in both directions.

    The given parameters must hold for one source; sources without settings stay unchanged.
    """
    # The step suits loops: six PUCs turn six times as far as one.
    half = int(np.ceil(2.0 * np.pi * parameters.delay_s * span_hz / _STEP_RAD))
    steps = np.arange(-half, half + 1) * (span_hz / max(half, 1))
    sources = model.space.sources
    detuning = np.array(np.broadcast_to(parameters.source_detuning_hz, len(sources)), dtype=np.float64)
    for number, port in enumerate(sources):
        # A dozen settings with 28 readings each are enough to find one number.
        settings = np.flatnonzero(likelihood.observations.source == port)[:_SETTINGS]
        if not len(settings):
            continue
        thinned = likelihood[settings]
        trials = detuning + np.outer(steps, np.eye(len(sources))[number])
        costs = [robust_cost(model, replace(parameters, source_detuning_hz=trial), thinned) for trial in trials]
        detuning[number] += steps[int(np.argmin(costs))]
    return replace(parameters, source_detuning_hz=detuning)


# Largest increase of the frequencies' sum of squares, in standard errors, on a branch that is tried.
_MAX_UNLIKELY = 4.0
# Rounds on another branch before the comparison: its minimum is only a few standard errors away.
_BRANCH_ROUNDS = 3


def nearest_branches(source_phase_rad: Real) -> Real:
    """Shift the phase per PUC of each source by half turns, so that these phases are close together."""
    # Twice the phase is independent of half turns, so its mean direction does not depend on the branches.
    middle = 0.5 * float(np.angle(np.exp(2j * source_phase_rad).sum()))
    offset_rad: Real = np.mod(source_phase_rad - middle + 0.5 * np.pi, np.pi) - 0.5 * np.pi
    return middle + offset_rad


def equivalent_branches(parameters: MeshParameters, sigma_hz: float) -> list[tuple[MeshParameters, float]]:
    """Return parameters with one source shifted by half a turn per PUC, which give almost the same light.

    ``sigma_hz`` is the standard error of the stated frequencies. Each result comes with the increase of χ² of the
    source frequencies, the smallest first.
    """
    detuning_hz = np.array(parameters.source_detuning_hz, dtype=np.float64)
    turn_hz = 0.5 / parameters.delay_s
    detunings = []
    for source in range(detuning_hz.size):
        other = detuning_hz.copy()
        # Towards zero: the opposite half turn is farther from the stated frequency.
        other[source] -= np.copysign(turn_hz, other[source])
        middle_hz = float(other.mean() - detuning_hz.mean())
        cost = float(((other - middle_hz) ** 2 - detuning_hz**2).sum()) / sigma_hz**2
        if cost < _MAX_UNLIKELY:
            joints = parameters.joint_phase_rad + 2.0 * np.pi * parameters.delay_s * middle_hz
            passive = parameters.passive_phase_rad + parameters.differential_slope_rad_per_hz * middle_hz
            moved = replace(
                parameters, source_detuning_hz=other - middle_hz, joint_phase_rad=joints, passive_phase_rad=passive
            )
            detunings.append((moved, cost))
    return sorted(detunings, key=lambda branch: branch[1])


def fit_on_best_branch(fitting: GlobalFit, sigma_hz: float, fit: FitResult) -> FitResult:
    """Fit with the frequency of one source moved by half a turn per PUC; return the best fit.

    Args:
        fitting: Runs fits of the same parameters and readings as ``fit``.
        sigma_hz: Standard error of the stated frequencies.
        fit: The fit so far.
    """

    def few_rounds(point: MeshParameters, cost: float = 0.0) -> tuple[float, FitResult]:
        tried = fitting.run(point, _BRANCH_ROUNDS, near=True, earlier_fit=fit, allow_near_information=True)
        # The readings decide against the prior of the frequencies. The wrong branch shifts the slope of the arms, and
        # every passive phase by nearly a milliradian.
        return tried.chi2_per_reading * tried.readings + cost, tried

    branches = equivalent_branches(fit.parameters, sigma_hz)
    cost, moved = min((few_rounds(*branch) for branch in branches), default=(np.inf, fit), key=itemgetter(0))
    if cost >= fit.chi2_per_reading * fit.readings:
        return fit
    # With as many rounds the present branch may be the better one.
    present_cost, present = few_rounds(fit.parameters)
    if cost >= present_cost:
        return present
    # There, readings depend on the frequencies differently: the shifted point is good enough for a comparison only.
    return fitting.run(moved.parameters, near=True, allow_near_information=True, convergence_sigma=ON_THE_WAY_SIGMA)
