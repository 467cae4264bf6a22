"""The part of a mesh that light passes between sources and monitors; nothing else can be measured."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lumion_hw.mesh.layout.topology import MeshTopology


@dataclass(frozen=True, eq=False)
class IlluminatedPart:
    """The part of a mesh that light passes between sources and monitors.

    Attributes:
        pucs: Whether light passes each PUC, shape ``(n_pucs,)``.
        joints: Whether light passes each waveguide joint, shape ``(joints,)``.
    """

    pucs: NDArray[np.bool_]
    joints: NDArray[np.bool_]


@lru_cache(maxsize=16)
def illuminated_part(mesh: MeshTopology, sources: tuple[int, ...], monitors: tuple[int, ...]) -> IlluminatedPart:
    """Return the part of a mesh that light passes from a source to a monitor."""
    never = 8 * mesh.n_pucs
    reaches_monitor = np.any(mesh.hops_to_port[list(monitors)] < never, axis=0)
    # Light is reversible: light from a port leaves a PUC where light that enters there would reach the port.
    leaves = np.any(mesh.hops_to_port[list(sources)] < never, axis=0)
    first, second = mesh.joints.T
    joints = (leaves[first] & reaches_monitor[second]) | (leaves[second] & reaches_monitor[first])
    enters = np.isin(np.arange(4 * mesh.n_pucs), mesh.port_puc_port[list(sources)])
    inside = mesh.mate >= 0
    enters[inside] |= leaves[mesh.mate[inside]]
    pucs = np.any((enters & reaches_monitor).reshape(-1, 4), axis=1)
    return IlluminatedPart(pucs, joints)
