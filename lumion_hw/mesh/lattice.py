"""Laying out honeycombs: from cells per column to vertices, PUCs, joints and the order of the ports.

Vertices stand on zig-zag columns: V(c, j) lies at x = 1.5 c ± 0.25, y = -(√3/2) j. Slanted PUCs run down a zig-zag,
horizontal ones join neighbouring zig-zags; both are numbered column by column from top to bottom (mesh.md a.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError

MAX_CELLS = 4096
"""Most cells of a mesh: some 12,000 PUCs, fifty times the largest chip there is."""
_BAR = 2
"""A wave that entered at PUC-port p leaves at p ^ 2 in the bar state."""


@dataclass(frozen=True)
class Lattice:
    """A mesh as it is laid out, before it gets a name and fibres; the attributes are those of ``HexMesh``."""

    mate: NDArray[np.int64]
    port_puc_port: NDArray[np.int64]
    ends: NDArray[np.int64]
    vertices: NDArray[np.float64]
    colour: NDArray[np.int64]
    n_cells: int


def column_lattice(cells: Sequence[int]) -> Lattice:
    """Lay out columns of alternately r and r + 1 cells; every zig-zag has full height, so short ends carry stubs.

    Args:
        cells: Cells per column.

    Raises:
        ConfigError: The columns do not alternate, one of them is empty, or there are more than ``MAX_CELLS``.
    """
    cells = tuple(cells)
    _check_size(sum(cells))
    low = min(cells, default=0)
    if len(cells) > 1 and any(abs(a - b) != 1 or {a, b} != {low, low + 1} for a, b in pairwise(cells)):
        raise ConfigError(f"columns {list(cells)} do not alternate", hint="Neighbouring columns differ by one cell.")
    if low < 1:
        raise ConfigError(f"columns {list(cells)} hold an empty column", hint="Every column needs at least one cell.")
    tall = low + 1 if len(cells) == 1 else max(cells)
    tops = [tall - count for count in cells]
    return _lay_out(cells, tops, [(0, 2 * low + 2)] * (len(cells) + 1))


def ring_lattice(rings: int) -> Lattice:
    """Lay out one cell and the concentric rings of cells round it; no stubs.

    Args:
        rings: The cell in the middle counts as the first ring; k rings make 3k² - 3k + 1 cells.

    Raises:
        ConfigError: There is no ring, or there are more than ``MAX_CELLS``.
    """
    if rings < 1:
        raise ConfigError(f"{rings} rings make no mesh", hint="One ring is a single cell.")
    _check_size(3 * rings * (rings - 1) + 1)
    cells = [2 * rings - 1 - abs(q) for q in range(1 - rings, rings)]
    tops = [2 * rings - 1 - count for count in cells]
    reach = [(top, top + 2 * count) for top, count in zip(tops, cells, strict=True)]
    spans = [
        (min(left[0], right[0]), max(left[1], right[1])) for left, right in pairwise([reach[0], *reach, reach[-1]])
    ]
    return _lay_out(cells, tops, spans)


def _check_size(cells: int) -> None:
    """Refuse a mesh that would only fill the memory."""
    if cells > MAX_CELLS:
        raise ConfigError(f"a mesh of {cells} cells is too large", hint=f"The most is {MAX_CELLS}.")


def _lay_out(cells: Sequence[int], tops: Sequence[int], spans: Sequence[tuple[int, int]]) -> Lattice:
    """Build a lattice.

    Args:
        cells: Cells per column.
        tops: Row of the topmost horizontal PUC of each column.
        spans: First and last row of the vertices on each zig-zag; one zig-zag more than columns.
    """
    grid = [(c, j) for c, (first, last) in enumerate(spans) for j in range(first, last + 1)]
    index = {place: number for number, place in enumerate(grid)}
    bulge = (tops[0] + 1) % 2  # horizontal PUCs leave to the right where a zig-zag bulges to the right
    vertices = np.array([(1.5 * c + (0.25 if (c + j + bulge) % 2 else -0.25), -math.sqrt(3) / 2 * j) for c, j in grid])
    ends: list[tuple[int, int]] = []
    for c, (first, last) in enumerate(spans):
        ends += [(index[c, r], index[c, r + 1]) for r in range(first, last)]
        if c < len(cells):
            ends += [(index[c, j], index[c + 1, j]) for j in range(tops[c], tops[c] + 2 * cells[c] + 1, 2)]
    ends_array = np.array(ends, dtype=np.int64)
    mate = _mate(ends_array, vertices)
    colour = np.array([(c + j) % 2 for c, j in grid], dtype=np.int64)
    return Lattice(mate, _number_ports(mate), ends_array, vertices, colour, sum(cells))


def _mate(ends: NDArray[np.int64], vertices: NDArray[np.float64]) -> NDArray[np.int64]:
    """Join neighbouring PUC ends at every 120-degree corner; wider corners stay open and become ports."""
    around: dict[int, list[tuple[float, int]]] = {}
    for puc, (a, b) in enumerate(ends.tolist()):
        direction = vertices[b] - vertices[a]
        angle = math.atan2(direction[1], direction[0])
        around.setdefault(a, []).append((angle % (2 * math.pi), 4 * puc))
        around.setdefault(b, []).append(((angle + math.pi) % (2 * math.pi), 4 * puc + 2))
    mate = np.full(4 * len(ends), -1, dtype=np.int64)
    for incident in around.values():
        incident.sort()
        for i, (angle, end) in enumerate(incident):
            next_angle, next_end = incident[(i + 1) % len(incident)]
            gap = (next_angle - angle) % (2 * math.pi) or 2 * math.pi
            if abs(gap - 2 * math.pi / 3) < 1e-6:
                # Seen leaving the vertex, the counter-clockwise side is L at an end A and R at an end B.
                ccw = end if end % 4 == 0 else end + 1
                cw = next_end + 1 if next_end % 4 == 0 else next_end
                mate[ccw], mate[cw] = cw, ccw
    return mate


def _number_ports(mate: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number the ports round the rim: 0 and 1 at end A of PUC 0; bar from port 2m+1 leads to port 2m+2."""
    open_ports = np.flatnonzero(mate < 0)
    # Light that walks the rim in the bar state from one port arrives at the first port of the next open corner.
    arrives: dict[int, int] = {}
    for start in open_ports.tolist():
        leaving = start ^ _BAR
        while mate[leaving] >= 0:
            leaving = int(mate[leaving]) ^ _BAR
        arrives[start] = leaving
    partner = _corner_partners(mate, open_ports)
    first = int(open_ports[open_ports < 4][-1]) if 1 not in open_ports else 1
    order: list[int] = []
    port = first
    while len(order) < len(open_ports):
        order += [port, partner[port]]
        port = arrives[partner[port]]
    if len(set(order)) != len(open_ports):
        raise ConfigError("the rim of this mesh is not a single closed walk")
    return np.array(order, dtype=np.int64)


def _corner_partners(mate: NDArray[np.int64], open_ports: NDArray[np.int64]) -> dict[int, int]:
    """Return, for each open PUC-port, the other one that looks into the same open corner."""
    partner: dict[int, int] = {}
    for start in open_ports.tolist():
        # Turn round the vertex: the other side of the same end, then through its joint, until a side is open again.
        side = start ^ 1
        while mate[side] >= 0:
            side = int(mate[side]) ^ 1
        partner[start] = side
    return partner
