"""Sources that are each at a frequency of their own: how far apart they are, before a fit of all of them.

A PUC delays light by 11.25 ps, so that sources 6 GHz (0.05 nm) apart see every loop of six PUCs turned by 2.6 rad:
too far for a fit, but one number per source, which a scan finds once the mesh is known at the frequency of one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from calibration.model.likelihood import Likelihood, weight
from calibration.model.mesh_model import MeshModel
from calibration.model.parameters import MeshParameters

Real = NDArray[np.float64]

_STEP_RAD = 0.05
"""Common phase per PUC from one point of the scan to the next: six of them in a loop make 0.3 rad."""
_SETTINGS = 12


def find_detunings(
    model: MeshModel, parameters: MeshParameters, likelihood: Likelihood, span_hz: float, doubt: float = 0.1
) -> MeshParameters:
    """Return parameters with the frequency of every source that lights any settings, as a scan finds it.

    Args:
        model: The model.
        parameters: What is known of the mesh at the frequency of a source; that source is found where it is.
        likelihood: Readings with the light of the sources.
        span_hz: Largest distance in frequency, either way.
        doubt: How far predicted fields may be off; see :class:`calibration.model.likelihood.Likelihood`.
    """
    half = int(np.ceil(2.0 * np.pi * parameters.delay_s * span_hz / _STEP_RAD))
    steps = np.arange(-half, half + 1) * (span_hz / max(half, 1))
    sources = model.space.sources
    detuning = np.array(np.broadcast_to(parameters.source_detuning_hz, len(sources)), dtype=np.float64)
    for number, port in enumerate(sources):
        settings = np.flatnonzero(likelihood.observations.source == port)[:_SETTINGS]
        if not len(settings):
            continue
        few = replace(likelihood, observations=likelihood.observations[settings])
        costs = []
        for step in steps:
            tried = detuning.copy()
            tried[number] += step
            costs.append(_cost(model, replace(parameters, source_detuning_hz=tried), few, doubt))
        detuning[number] += steps[int(np.argmin(costs))]
    return replace(parameters, source_detuning_hz=detuning)


def _cost(model: MeshModel, parameters: MeshParameters, likelihood: Likelihood, doubt: float) -> float:
    residual = likelihood.residual(model.predict(parameters, likelihood.observations), doubt)
    return float((weight(residual) * residual**2).sum())
