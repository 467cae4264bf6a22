"""Frequencies of sources that are each a laser of their own: two ambiguities that no fit leaves by itself.

A PUC delays light by 11.25 ps, so that sources 6 GHz (0.05 nm) apart see every loop of six PUCs turned by 2.6 rad. That
is too far for a fit, but that is one number per source, which a scan finds once the mesh is known at one frequency.

Paths between two ports differ by an even number of PUCs. Half a turn more in every PUC is then no more than a sign of
the field: a source whose frequency is off by 1/(2τ), 44 GHz, looks the same, but for the few milliradians per nanometre
that the arms differ by, and for how well sources keep to the frequency they state.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from calibration.model.likelihood import Likelihood, weight
from calibration.model.mesh_model import MeshModel
from calibration.model.parameters import MeshParameters

Real = NDArray[np.float64]

# Common phase per PUC from one point of the scan to the next: six of them in a loop make 0.3 rad.
_STEP_RAD = 0.05
_SETTINGS = 12


def find_detunings(
    model: MeshModel, parameters: MeshParameters, likelihood: Likelihood, span_hz: float, discrepancy: float = 0.1
) -> MeshParameters:
    """Return parameters with the frequency of every source that lights any settings, as a scan finds it.

    Args:
        model: The model.
        parameters: What is known of the mesh at the frequency of a source; that source is found where it is.
        likelihood: Readings with the light of the sources.
        span_hz: Largest distance in frequency, either way.
        discrepancy: How far predicted fields may be off; see :class:`calibration.model.likelihood.Likelihood`.
    """
    # Fine enough for every loop: six PUCs turn six times as far as one.
    half = int(np.ceil(2.0 * np.pi * parameters.delay_s * span_hz / _STEP_RAD))
    steps = np.arange(-half, half + 1) * (span_hz / max(half, 1))
    sources = model.space.sources
    detuning = np.array(np.broadcast_to(parameters.source_detuning_hz, len(sources)), dtype=np.float64)
    for number, port in enumerate(sources):
        # A dozen settings are enough: one number is looked for, and 28 readings tell of it in each.
        settings = np.flatnonzero(likelihood.observations.source == port)[:_SETTINGS]
        if not len(settings):
            continue
        few = likelihood[settings]
        costs = []
        for step in steps:
            tried = detuning.copy()
            tried[number] += step
            costs.append(_cost(model, replace(parameters, source_detuning_hz=tried), few, discrepancy))
        detuning[number] += steps[int(np.argmin(costs))]
    return replace(parameters, source_detuning_hz=detuning)


def _cost(model: MeshModel, parameters: MeshParameters, likelihood: Likelihood, discrepancy: float) -> float:
    residual = likelihood.residual(model.predict(parameters, likelihood.observations), discrepancy)
    return float((weight(residual) * residual**2).sum())


# How much larger the sum of squares of the frequencies, in standard errors, may be on a branch that is tried.
_MOST_UNLIKELY = 4.0


def nearest_branches(source_phase_rad: Real) -> Real:
    """Return the sources' common phases per PUC, each by half turns as near to those of the others as it can be."""
    # Twice the phase knows no half turns: the mean direction is that of all sources whatever their branch.
    middle = 0.5 * float(np.angle(np.exp(2j * source_phase_rad).sum()))
    off: Real = np.mod(source_phase_rad - middle + 0.5 * np.pi, np.pi) - 0.5 * np.pi
    return middle + off


def equivalent_branches(parameters: MeshParameters, sigma_hz: float) -> list[tuple[MeshParameters, float]]:
    """Return the points that look almost the same, one source half a turn per PUC away, the likeliest first.

    Args:
        parameters: A point; phases are those at the mean frequency of the sources.
        sigma_hz: How well sources keep to the frequency they state.

    Returns:
        Points, and by how much more their frequencies cost than those of the one given, in units of χ².
    """
    detuning_hz = np.array(parameters.source_detuning_hz, dtype=np.float64)
    turn_hz = 0.5 / parameters.delay_s
    found = []
    for source in range(detuning_hz.size):
        other = detuning_hz.copy()
        # Towards zero: the other half turn is farther from what the source states.
        other[source] -= np.copysign(turn_hz, other[source])
        middle_hz = float(other.mean() - detuning_hz.mean())
        cost = float(((other - middle_hz) ** 2 - detuning_hz**2).sum()) / sigma_hz**2
        if cost < _MOST_UNLIKELY:
            joints = parameters.joint_phase_rad + 2.0 * np.pi * parameters.delay_s * middle_hz
            passive = parameters.passive_phase_rad + parameters.differential_slope_rad_per_hz * middle_hz
            moved = replace(
                parameters, source_detuning_hz=other - middle_hz, joint_phase_rad=joints, passive_phase_rad=passive
            )
            found.append((moved, cost))
    return sorted(found, key=lambda each: each[1])
