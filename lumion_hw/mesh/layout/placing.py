"""Positions of the cells of a netlist."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# Sánchez-Jácome 2025, as BUL_MM in waves/crosstalk.py: the layout must not import the waves.
PUC_UM = 811.41
"""Length of a PUC in micrometres, the unit of positions."""

_PITCH = 0.5
"""Distance of two waveguides in cell lengths (assumption)."""


def placed_corners(
    ends_um: Sequence[tuple[complex, complex] | None],
    mate: NDArray[np.int64],
    fibres: Sequence[int],
) -> NDArray[np.float64]:
    """Return the position of every PUC-port in PUC lengths, shape ``(4 n_cells, 2)``.

    Args:
        ends_um: Ends A and B of every cell in micrometres, y up. If any is ``None``, all cells are placed in columns.
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
    ends = _oriented_ends(mate, fibres[0])
    count = len(ends)
    is_left = np.zeros(4 * count, dtype=np.bool_)
    is_left[ends[:, :2]] = True
    heights = np.full(4 * count, np.nan)
    for row, puc_port in enumerate(port for port in fibres if is_left[port]):
        heights[puc_port] = -_PITCH * row
    # Cells that each cell waits for: those whose right end is joined to its left end.
    joined = mate[ends[:, :2]]
    waits = [
        {port // 4 for port in ports if port >= 0 and not is_left[port]} - {cell}
        for cell, ports in enumerate(joined.tolist())
    ]
    followers: list[list[int]] = [[] for _ in range(count)]
    for cell, before in enumerate(waits):
        for other in before:
            followers[other].append(cell)
    column = np.zeros(count, dtype=np.int64)
    ready = [cell for cell in range(count) if not waits[cell]]
    placed = np.zeros(count, dtype=np.bool_)
    while not placed.all():
        if not ready:  # a ring: no cell is first
            ready = [min(np.flatnonzero(~placed).tolist(), key=lambda cell: len(waits[cell]))]
        cell = ready.pop(0)
        if placed[cell]:
            continue
        placed[cell] = True
        _pass_heights(heights, ends[cell].tolist(), mate, lowest=float(np.nanmin(heights)))
        for other in followers[cell]:
            if placed[other]:
                continue
            column[other] = max(column[other], column[cell] + 1)
            waits[other].discard(cell)
            if not waits[other]:
                ready.append(other)
    x = np.repeat(column, 4) + ~is_left
    return np.stack([x.astype(np.float64), heights], axis=1)


def _oriented_ends(mate: NDArray[np.int64], first: int) -> NDArray[np.int64]:
    """Return the PUC-ports of every cell at upper left, lower left, upper right, lower right; shape ``(n_cells, 4)``.

    The end with PUC-port ``first`` is on the left.
    """
    count = len(mate) // 4
    left_end = np.full(count, -1, dtype=np.int64)
    left_end[first // 4] = first % 4 // 2
    pending = [first // 4]
    while pending:
        cell = pending.pop(0)
        for puc_port in range(4 * cell, 4 * cell + 4):
            other, end = divmod(int(mate[puc_port]), 4)
            if mate[puc_port] >= 0 and left_end[other] < 0:
                exits_left = puc_port % 4 // 2 == left_end[cell]
                left_end[other] = end // 2 ^ int(exits_left)
                pending.append(other)
    # Rail L lies on the left when looking from A to B; a cell with end B on the left is turned by 180 degrees.
    order = np.where(left_end[:, None] == 1, [3, 2, 1, 0], [0, 1, 2, 3])
    ends: NDArray[np.int64] = 4 * np.arange(count)[:, None] + order
    return ends


def _pass_heights(heights: NDArray[np.float64], ends: Sequence[int], mate: NDArray[np.int64], lowest: float) -> None:
    upper, lower = heights[ends[0]], heights[ends[1]]
    if np.isnan(upper) and np.isnan(lower):
        upper = lowest - _PITCH
    upper = lower + _PITCH if np.isnan(upper) else upper
    lower = upper - _PITCH if np.isnan(lower) else lower
    heights[list(ends)] = (upper, lower, upper, lower)
    for puc_port in ends[2:]:
        joined = int(mate[puc_port])
        if joined >= 0 and np.isnan(heights[joined]):
            heights[joined] = heights[puc_port]
