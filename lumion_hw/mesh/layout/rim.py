"""Joints (waveguides between PUCs) and ports of meshes in which PUCs are the edges of cells."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.topology import EXIT_XOR


def join_corners(ends: NDArray[np.int64], vertices: NDArray[np.float64], corner_rad: float) -> NDArray[np.int64]:
    """Return the PUC-port joined to each PUC-port, or -1.

    PUCs that meet at the corner angle of a cell are joined. At wider corners both PUC-ports stay open.

    Args:
        ends: Shape ``(n_pucs, 2)``; vertex at end A and end B.
        vertices: Shape ``(n_vertices, 2)``; positions.
        corner_rad: Corner angle of a cell: 60° for triangles, 90° for squares, 120° for hexagons.
    """
    by_centre: dict[int, list[tuple[float, int]]] = {}
    for puc, (a, b) in enumerate(ends.tolist()):
        direction = vertices[b] - vertices[a]
        angle = math.atan2(direction[1], direction[0])
        by_centre.setdefault(a, []).append((angle % (2 * math.pi), 4 * puc))
        by_centre.setdefault(b, []).append(((angle + math.pi) % (2 * math.pi), 4 * puc + 2))
    mate = np.full(4 * len(ends), -1, dtype=np.int64)
    for incident in by_centre.values():
        incident.sort()
        for i, (angle, end) in enumerate(incident):
            next_angle, next_end = incident[(i + 1) % len(incident)]
            # A PUC that is alone at its vertex is its own neighbour, a full turn away.
            gap = (next_angle - angle) % (2 * math.pi) or 2 * math.pi
            # A wider gap is a corner of the rim.
            # Rounding of the positions is about 1e-15, and the angles of a lattice differ by 60° or more.
            if abs(gap - corner_rad) < 1e-6:
                # Seen from the vertex outwards, the counter-clockwise side is rail L at an end A and rail R at an end
                # B.
                ccw = end if end % 4 == 0 else end + 1
                cw = next_end + 1 if next_end % 4 == 0 else next_end
                mate[ccw], mate[cw] = cw, ccw
    return mate


def number_ports(mate: NDArray[np.int64], first: int | None = None) -> NDArray[np.int64]:
    """Number the ports around the rim, starting at PUC-port ``first`` (by default at end A of PUC 0).

    With all PUCs in bar, light from port 2m + 1 leaves at port 2m + 2.
    """
    open_ports = np.flatnonzero(mate < 0)
    # With all PUCs in bar, light from a port follows the rim and leaves at the first port of the next open corner.
    arrives: dict[int, int] = {}
    for start in open_ports.tolist():
        leaving = start ^ EXIT_XOR["bar"]
        while mate[leaving] >= 0:
            leaving = int(mate[leaving]) ^ EXIT_XOR["bar"]
        arrives[start] = leaving
    partner = _corner_partners(mate, open_ports)
    if first is None:
        first = int(open_ports[open_ports < 4][-1]) if 1 not in open_ports else 1
    order: list[int] = []
    port = first
    while len(order) < len(open_ports):
        order += [port, partner[port]]
        port = arrives[partner[port]]
    if len(set(order)) != len(open_ports):
        raise ConfigError("the rim of this mesh is not one closed path")
    return np.array(order, dtype=np.int64)


def _corner_partners(mate: NDArray[np.int64], open_ports: NDArray[np.int64]) -> dict[int, int]:
    partner: dict[int, int] = {}
    for start in open_ports.tolist():
        # Go around the vertex: to the other rail of the same end, then through its joint, until a PUC-port is open.
        side = start ^ 1
        while mate[side] >= 0:
            side = int(mate[side]) ^ 1
        partner[start] = side
    return partner
