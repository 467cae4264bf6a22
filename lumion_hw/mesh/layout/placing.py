"""Positions of the cells of a netlist: from its placements, or in columns if a cell has none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

PUC_UM = 811.41
"""Length of a PUC in micrometres, the unit of positions."""

_PITCH = 0.5
"""Distance of two waveguides in cell lengths (assumption), as in a rectangular mesh."""


def placed_corners(
    ends_um: Sequence[tuple[complex, complex] | None],
    mate: NDArray[np.int64],
    fibres: Sequence[int],
) -> NDArray[np.float64]:
    """Return the corner of every PUC-port in PUC lengths, shape ``(4 n_cells, 2)``.

    Args:
        ends_um: Ends A and B of every cell in micrometres, y up. If a cell has no position, all cells are placed in
            columns instead.
        mate: PUC-port joined to each PUC-port, or -1.
        fibres: PUC-ports with a fibre, in the order of the ports.
    """
    if any(ends is None for ends in ends_um):
        return _columns(mate, fibres)
    # Both rails of an end have one corner, as in a hexagonal mesh: waveguides are close to each other there.
    points = np.array([ends for ends in ends_um if ends is not None]) / PUC_UM
    corners = np.repeat(points.reshape(-1), 2)
    return np.stack([corners.real, corners.imag], axis=1)


def _columns(mate: NDArray[np.int64], fibres: Sequence[int]) -> NDArray[np.float64]:
    """Return corners of cells in columns: each cell is right of the cells whose end B is joined to its end A.

    Waveguides keep their height, so that a mesh of straight waveguides is drawn as such. In a ring every cell waits for
    another one; the cell that waits for fewest comes first.
    """
    count = len(mate) // 4
    heights = np.full(4 * count, np.nan)
    entries = [puc_port for puc_port in fibres if puc_port % 4 < 2] or list(fibres[:1])
    for row, puc_port in enumerate(entries):
        heights[puc_port] = -_PITCH * row
    column = np.zeros(count, dtype=np.int64)
    entering = np.arange(4 * count).reshape(count, 4)[:, :2]
    # Cells that each cell waits for: those with end B at its end A.
    waits = [{int(mate[port]) // 4 for port in ports if mate[port] >= 0 and mate[port] % 4 > 1} for ports in entering]
    followers: list[list[int]] = [[] for _ in range(count)]
    for cell, before in enumerate(waits):
        before.discard(cell)
        for other in before:
            followers[other].append(cell)
    ready = [cell for cell in range(count) if not waits[cell]]
    placed = np.zeros(count, dtype=np.bool_)
    while not placed.all():
        if not ready:  # a ring: no cell is first
            ready = [min(np.flatnonzero(~placed).tolist(), key=lambda cell: len(waits[cell]))]
        cell = ready.pop(0)
        if placed[cell]:
            continue
        placed[cell] = True
        _pass_heights(heights, cell, mate, lowest=float(np.nanmin(heights)))
        for other in followers[cell]:
            column[other] = max(column[other], column[cell] + 1) if not placed[other] else column[other]
            waits[other].discard(cell)
            if not waits[other] and not placed[other]:
                ready.append(other)
    x = column[:, None] + np.array([0, 0, 1, 1])
    return np.stack([x.reshape(-1).astype(np.float64), heights], axis=1)


def _pass_heights(heights: NDArray[np.float64], cell: int, mate: NDArray[np.int64], lowest: float) -> None:
    """Set the heights of the four PUC-ports of a cell, and of those joined to its end B, to those of its waveguides."""
    upper, lower = heights[4 * cell : 4 * cell + 2].tolist()
    if np.isnan(upper) and np.isnan(lower):
        upper = lowest - _PITCH
    upper = lower + _PITCH if np.isnan(upper) else upper
    lower = upper - _PITCH if np.isnan(lower) else lower
    heights[4 * cell : 4 * cell + 4] = (upper, lower, upper, lower)
    for puc_port in (4 * cell + 2, 4 * cell + 3):
        joined = int(mate[puc_port])
        if joined >= 0 and np.isnan(heights[joined]):
            heights[joined] = heights[puc_port]
