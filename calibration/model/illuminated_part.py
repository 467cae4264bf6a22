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
    leaves: NDArray[np.bool_] = np.any(_leads_to(mesh, sources), axis=0)
    reaches_monitor: NDArray[np.bool_] = np.any(_leads_to(mesh, monitors), axis=0)
    first, second = mesh.joints.T
    joints = (leaves[first] & reaches_monitor[second]) | (leaves[second] & reaches_monitor[first])
    enters = np.isin(np.arange(4 * mesh.n_pucs), mesh.port_puc_port[list(sources)])
    inside = mesh.mate >= 0
    enters[inside] |= leaves[mesh.mate[inside]]
    pucs = np.any((enters & reaches_monitor).reshape(-1, 4), axis=1)
    return IlluminatedPart(pucs, joints)


def joints_by_pair(mesh: MeshTopology, sources: tuple[int, ...], monitors: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return whether light passes each joint from each source to each monitor, ``(sources, monitors, joints)``."""
    leaves, reaches_monitor = _leads_to(mesh, sources)[:, None], _leads_to(mesh, monitors)[None]
    first, second = mesh.joints.T
    return (leaves[..., first] & reaches_monitor[..., second]) | (leaves[..., second] & reaches_monitor[..., first])


def _leads_to(mesh: MeshTopology, ports: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return whether light that enters each PUC-port can reach each port, shape ``(ports, 4 n_pucs)``.

    Light is reversible: where light that enters would reach a port, light from that port leaves.
    """
    return mesh.hops_to_port[list(ports)] < 8 * mesh.n_pucs
