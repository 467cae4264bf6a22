"""The part of a mesh that light passes between sources and monitors; nothing else can be measured."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lumion_hw.mesh.layout.topology import MeshTopology


@dataclass(frozen=True, eq=False)
class LitPart:
    """The part of a mesh that light passes between sources and monitors.

    Attributes:
        pucs: Whether light passes each PUC, shape ``(n_pucs,)``.
        joints: Whether light passes each waveguide joint, shape ``(joints,)``.
    """

    pucs: NDArray[np.bool_]
    joints: NDArray[np.bool_]


@lru_cache(maxsize=16)
def lit_part(mesh: MeshTopology, sources: tuple[int, ...], monitors: tuple[int, ...]) -> LitPart:
    """Return the part of a mesh that light passes from a source to a monitor."""
    never = 8 * mesh.n_pucs
    leads_on = np.any(mesh.hops_to_port[list(monitors)] < never, axis=0)
    # Light is reversible: light from a port leaves a PUC where light that enters there would reach the port.
    leaves = np.any(mesh.hops_to_port[list(sources)] < never, axis=0)
    first, second = mesh.joints.T
    joints = (leaves[first] & leads_on[second]) | (leaves[second] & leads_on[first])
    enters = np.isin(np.arange(4 * mesh.n_pucs), mesh.port_puc_port[list(sources)])
    inside = mesh.mate >= 0
    enters[inside] |= leaves[mesh.mate[inside]]
    pucs = np.any((enters & leads_on).reshape(-1, 4), axis=1)
    return LitPart(pucs, joints)
