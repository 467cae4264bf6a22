"""Half a turn per PUC more or less for the light of one source, which power hardly tells.

Paths between two ports differ by an even number of PUCs. Half a turn more in every PUC is then no more than
a sign of the field: a source whose frequency is off by 1/(2τ), 44 GHz, looks the same, but for the few milliradians per
nanometre that the arms differ by, and for how well sources keep to the frequency they state.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from calibration.model.parameters import MeshParameters

Real = NDArray[np.float64]

_MOST_UNLIKELY = 4.0
"""How much larger the sum of squares of the frequencies, in standard errors, may be on a branch that is tried."""


def nearest_branches(source_phase_rad: Real) -> Real:
    """Return the sources' common phases per PUC, each by half turns as near to those of the others as it can be."""
    middle = 0.5 * float(np.angle(np.exp(2j * source_phase_rad).sum()))
    off: Real = np.mod(source_phase_rad - middle + 0.5 * np.pi, np.pi) - 0.5 * np.pi
    return middle + off


def other_branches(parameters: MeshParameters, sigma_hz: float) -> list[tuple[MeshParameters, float]]:
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
