"""Gaussian elimination with a fixed pattern of zeros, prepared once per mesh and run for any number of samples.

It needs no pivot search as long as light loses power in every PUC: each pivot is 1 − γ, where γ is the gain of a round
trip and |γ| < 1. The unknowns are ordered by nested dissection of the mesh.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.mesh.layout.topology import MeshTopology

# A mesh of 6 rings takes 198,700 operations with horizontal and vertical cuts only, 195,000 with cuts every 15°, and no
# fewer with cuts every 5°, which take twice as long to find.
_DIRECTIONS = [(math.cos(angle), math.sin(angle)) for angle in np.deg2rad(np.arange(0.0, 180.0, 15.0))]
# On 6 rings, cuts through the exact middle cost 14 % more operations; 0.3 gains nothing more.
_OFF_CENTRE = 0.15
"""Largest distance of a cut from the middle, as a fraction of the number of points."""


@dataclass(frozen=True, eq=False)
class Program:
    """Elimination of the first ``n_pivots`` unknowns of a sparse matrix with a fixed pattern.

    Every element of the matrix and its factors has a slot (a position in one array). The elements below pivot ``k`` are
    ``below[below_start[k]:below_start[k+1]]``; those to its right are stored in the same way.

    Attributes:
        n_pivots: Number of unknowns to eliminate.
        n_slots: Number of elements of matrix and factors.
        pivot: Shape ``(n_pivots,)``; slot of each diagonal element.
        below_start: Shape ``(n_pivots + 1,)``; start of each pivot in ``below``.
        below: Slots below the diagonal.
        below_row: Rows of the elements in ``below``.
        right_start: Shape ``(n_pivots + 1,)``; start of each pivot in ``right``.
        right: Slots to the right of the diagonal.
        right_column: Columns of the elements in ``right``.
        target: Slots that the elimination of each pivot changes, row by row, one pivot after the other.
        keys: Sorted ``row * width + column`` of the slots.
    """

    n_pivots: int
    n_slots: int
    pivot: NDArray[np.int32]
    below_start: NDArray[np.int32]
    below: NDArray[np.int32]
    below_row: NDArray[np.int32]
    right_start: NDArray[np.int32]
    right: NDArray[np.int32]
    right_column: NDArray[np.int32]
    target: NDArray[np.int32]
    keys: NDArray[np.int64]
    width: int

    def slots(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the storage slots of matrix elements that are in the pattern."""
        return np.searchsorted(self.keys, rows * self.width + columns).astype(np.int32)


def compile_elimination(rows: NDArray[np.int64], columns: NDArray[np.int64], size: int, n_pivots: int) -> Program:
    """Return the elimination program for a square matrix with the given pattern.

    The pattern must include the diagonal elements of the pivots.
    """
    # Each row and column is a set of bits in one long integer, so that a union is a single operation.
    row_sets, column_sets = [0] * size, [0] * size
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        row_sets[row] |= 1 << column
        column_sets[column] |= 1 << row
    right_columns: list[NDArray[np.int64]] = []
    below_rows: list[NDArray[np.int64]] = []
    for k in range(n_pivots):
        # Bits up to the pivot are cleared: these rows and columns are eliminated already.
        right, below = row_sets[k] >> (k + 1) << (k + 1), column_sets[k] >> (k + 1) << (k + 1)
        right_columns.append(_members(right))
        below_rows.append(_members(below))
        # Fill-in: the elements to the right of the pivot appear in every row below it.
        for row in below_rows[k].tolist():
            row_sets[row] |= right
        for column in right_columns[k].tolist():
            column_sets[column] |= below
    keys = np.concatenate([row * size + _members(members) for row, members in enumerate(row_sets)])

    def slots(row: NDArray[np.int64], column: NDArray[np.int64]) -> NDArray[np.int32]:
        return np.searchsorted(keys, row * size + column).astype(np.int32)

    def spread(counts: Iterable[int]) -> NDArray[np.int32]:
        return np.concatenate([[0], np.cumsum(list(counts))]).astype(np.int32)

    pivots = np.arange(n_pivots, dtype=np.int64)
    n_below, n_right = [len(item) for item in below_rows], [len(item) for item in right_columns]
    below_row, right_column = np.concatenate(below_rows), np.concatenate(right_columns)
    target = [(below[:, None] * size + right).ravel() for below, right in zip(below_rows, right_columns, strict=True)]
    return Program(
        n_pivots=n_pivots,
        n_slots=len(keys),
        pivot=slots(pivots, pivots),
        below_start=spread(n_below),
        below=slots(below_row, np.repeat(pivots, n_below)),
        below_row=below_row.astype(np.int32),
        right_start=spread(n_right),
        right=slots(np.repeat(pivots, n_right), right_column),
        right_column=right_column.astype(np.int32),
        target=np.searchsorted(keys, np.concatenate(target)).astype(np.int32),
        keys=keys,
        width=size,
    )


def _members(bits: int) -> NDArray[np.int64]:
    raw = np.frombuffer(bits.to_bytes(bits.bit_length() // 8 + 1, "little"), dtype=np.uint8)
    return np.flatnonzero(np.unpackbits(raw, bitorder="little"))


def dissect(mesh: MeshTopology) -> NDArray[np.int64]:
    """Return the PUCs in the order in which to eliminate their fields."""
    positions, corner = np.unique(mesh.corners, axis=0, return_inverse=True)
    dissection = _Dissection(positions, corner.reshape(mesh.n_pucs, 4))
    return np.array(dissection.order(np.arange(len(positions)), np.arange(mesh.n_pucs)), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class _Dissection:
    """Nested dissection of a mesh along straight cuts.

    Attributes:
        positions: Shape ``(n, 2)``; different positions of PUC corners.
        corners: Shape ``(n_pucs, 4)``; index of the position of each corner.
    """

    positions: NDArray[np.float64]
    corners: NDArray[np.int64]

    def order(self, positions: NDArray[np.int64], pucs: NDArray[np.int64]) -> list[int]:
        """Return PUCs in elimination order; PUCs that cross a cut of the corner ``positions`` come after both sides."""
        if len(positions) < 2 or not len(pucs):
            return [int(puc) for puc in pucs]
        coordinates, cut = self._shortest_cut(positions, pucs)
        is_second_half = coordinates[self.corners[pucs]] >= cut
        sides = [
            self.order(positions[(coordinates[positions] >= cut) == side], pucs[(is_second_half == side).all(axis=1)])
            for side in (False, True)
        ]
        return [*sides[0], *sides[1], *pucs[is_second_half.any(axis=1) & ~is_second_half.all(axis=1)].tolist()]

    def _shortest_cut(self, positions: NDArray[np.int64], pucs: NDArray[np.int64]) -> tuple[NDArray[np.float64], float]:
        """Return point coordinates along the best direction, and the cut that crosses fewest PUCs near the middle."""
        best: tuple[int, int, NDArray[np.float64], float] | None = None
        middle, reach = len(positions) // 2, int(_OFF_CENTRE * len(positions))
        for x, y in _DIRECTIONS:
            coordinates = self.positions @ (x, y) + 1e-7 * (
                self.positions @ (-y, x)
            )  # no two corners have the same coordinate
            sorted_positions = np.sort(coordinates[positions])
            first = max(middle - reach, 1)
            cuts = 0.5 * (sorted_positions[first - 1 : middle + reach] + sorted_positions[first : middle + reach + 1])
            reached = coordinates[self.corners[pucs]]
            low, high = reached.min(axis=1, keepdims=True), reached.max(axis=1, keepdims=True)
            crossed = ((low < cuts) & (high >= cuts)).sum(axis=0)
            off_centre = np.abs(first + np.arange(len(cuts)) - middle)
            chosen = int(np.lexsort((off_centre, crossed))[0])
            # Few PUCs across the cut first: each of them couples the two halves by four waves.
            candidate = int(crossed[chosen]), int(off_centre[chosen])
            if best is None or candidate < best[:2]:
                best = (*candidate, coordinates, float(cuts[chosen]))
        if best is None:
            raise ValueError("the mesh cannot be cut in any direction")
        return best[2], best[3]
