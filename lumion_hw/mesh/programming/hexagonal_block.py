"""Feed-forward blocks: parts of a hexagonal mesh that work as a rectangular interferometer of N modes.

Each mode follows one row of slanted PUCs, which set its phase. Horizontal PUCs between the slanted ones mix
neighbouring modes. All paths are equally long.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.topology import EXIT_XOR, MeshTopology, State
from lumion_hw.mesh.programming.decomposition import rectangular
from lumion_hw.mesh.programming.heater_currents import PucTarget


@dataclass(frozen=True)
class BlockWire:
    """A slanted PUC that carries one mode.

    Attributes:
        state: State that passes the light to the next PUC of the row.
        right_rail: Whether the light enters on rail R.
    """

    puc: int
    state: State
    right_rail: bool


@dataclass(frozen=True, eq=False)
class FeedForwardBlock:
    """A part of a hexagonal mesh that N modes cross, each along its own row of slanted PUCs.

    Attributes:
        first_row: Row of mode 0.
        wires: Slanted PUCs, by zig-zag line and mode; there is one line more than columns of mixing PUCs.
        mixers: By column and mode: the horizontal PUC that mixes two modes, and whether the mode is on its lower rail.
        inputs: Port where each mode enters.
        outputs: Port where each mode leaves.
    """

    mesh: MeshTopology
    first_row: int
    n_modes: int
    wires: tuple[tuple[BlockWire, ...], ...]
    mixers: tuple[tuple[tuple[int, bool], ...], ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def pucs(self) -> frozenset[int]:
        """All PUCs that carry light of the modes."""
        wires = {wire.puc for column in self.wires for wire in column}
        return frozenset(wires | {puc for column in self.mixers for puc, _ in column})

    @property
    def hops(self) -> int:
        """Number of PUCs that each mode passes."""
        return len(self.wires) + len(self.mixers)

    def mixer_of(self, column: int, mode: int) -> int | None:
        """Return the PUC that mixes ``mode`` with the next mode in a column; ``None`` if there is none."""
        if not 0 <= mode < self.n_modes - 1:
            return None
        upper, lower = self.mixers[column][mode], self.mixers[column][mode + 1]
        return upper[0] if upper[0] == lower[0] else None

    @cached_property
    def joints(self) -> NDArray[np.bool_]:
        """Mask of the joints (waveguides between PUCs) that carry light of the modes, shape ``(n_joints,)``."""
        is_used = np.zeros(len(self.mesh.joints), dtype=np.bool_)
        for column, mixers in enumerate(self.mixers):
            for mode, (puc, _) in enumerate(mixers):
                for wire in (self.wires[column][mode], self.wires[column + 1][mode]):
                    ends = self.mesh.joints // 4
                    is_used |= (ends == [wire.puc, puc]).all(axis=1) | (ends == [puc, wire.puc]).all(axis=1)
        return is_used


def find_block(
    mesh: MeshTopology, n_modes: int, *, first_row: int | None = None, avoid: Collection[int] = ()
) -> FeedForwardBlock:
    """Return a feed-forward block of N modes across a hexagonal mesh.

    It starts at ``first_row``, by default the first row with enough space, and uses no PUC in ``avoid``.

    Raises:
        ConfigError: The mesh has too few rows from its left to its right rim, or all rows use PUCs in ``avoid``.
    """
    rows = _Rows(mesh)
    offsets = range(rows.count - n_modes + 1) if first_row is None else (first_row,)
    blocking_pucs: set[int] = set()
    for offset in offsets:
        if n_modes < 1 or offset < 0 or offset + n_modes > rows.count:
            break
        candidate = rows.block(offset, n_modes)
        if not candidate.pucs & set(avoid):
            return candidate
        # For the message, if no row is left.
        blocking_pucs |= candidate.pucs & set(avoid)
    raise ConfigError(
        f"mesh {mesh.label!r} has no free block of {n_modes} modes"
        + (f": PUCs {sorted(blocking_pucs)} are to be avoided" if blocking_pucs else ""),
        hint=f"The mesh has {rows.count} rows from rim to rim; use fewer modes.",
    )


class _Rows:
    def __init__(self, mesh: MeshTopology) -> None:
        self._mesh = mesh
        # Vertices lie at x = 1.5 c ± 0.25 and y = -(√3/2) j (hexagonal.py), so rounding gives column c and row j.
        x, y = mesh.end_positions[..., 0] / 1.5, mesh.end_positions[..., 1] * -2.0 / math.sqrt(3.0)
        column, row = np.rint(x).astype(np.int64), np.rint(y).astype(np.int64)
        # Only the vertices of a honeycomb lie on multiples of √3 / 2.
        if not np.allclose(y, row):
            raise ConfigError(
                f"mesh {mesh.label!r} has no feed-forward block because it is not hexagonal",
                hint="Use a hexagonal mesh: only there each mode passes PUCs of its own, which set its phase.",
            )
        vertices = np.stack([column - column.min(), row - row.min()], axis=2).tolist()
        self._edge = {frozenset(map(tuple, ends)): puc for puc, ends in enumerate(vertices)}
        self._columns = int(np.ptp(column)) + 1
        # Zig-zags bulge alternately, so one PUC tells the pattern of the whole mesh.
        self._starts_facing_right = self._puc((0, 0), (1, 0)) is not None
        self.count = 0
        while all(self._puc((c, self.count), (c, self.count + 1)) is not None for c in range(self._columns)):
            self.count += 1

    def _puc(self, first: tuple[int, int], second: tuple[int, int]) -> int | None:
        return self._edge.get(frozenset((first, second)))

    def block(self, first_row: int, n_modes: int) -> FeedForwardBlock:
        """Return the block of ``n_modes`` rows from ``first_row`` on, over the whole width of the mesh."""
        rows = range(first_row, first_row + n_modes)
        mixers = tuple(tuple(self._mixer(c, row) for row in rows) for c in range(self._columns - 1))
        row_ends = [self._wires_and_ports(row, [column[mode][0] for column in mixers]) for mode, row in enumerate(rows)]
        wires = tuple(zip(*(row_end[0] for row_end in row_ends), strict=True))
        return FeedForwardBlock(
            self._mesh,
            first_row,
            n_modes,
            wires,
            mixers,
            tuple(row_end[1] for row_end in row_ends),
            tuple(row_end[2] for row_end in row_ends),
        )

    def _mixer(self, column: int, row: int) -> tuple[int, bool]:
        """Return the horizontal PUC to the right of a row in a zig-zag, and whether the row is on its lower rail."""
        # Horizontal PUCs lie on every second vertex of a zig-zag, and on the others in the next column.
        faces_right = (column + row) % 2 != self._starts_facing_right
        j = row if faces_right else row + 1
        puc = self._puc((column, j), (column + 1, j))
        if puc is None:
            raise ConfigError(
                f"mesh {self._mesh.label!r} has no PUC from column {column} to the next in row {row}",
                hint="Use a mesh of columns for feed-forward blocks.",
            )
        return puc, j == row

    def _wires_and_ports(self, row: int, mixers: list[int]) -> tuple[list[BlockWire], int, int]:
        wires = []
        ports = []
        for column in range(self._columns):
            puc = self._puc((column, row), (column, row + 1))
            if puc is None:
                raise ConfigError(f"row {row} of mesh {self._mesh.label!r} does not reach from rim to rim")
            before = self._side(puc, mixers[column - 1]) if column else None
            behind = self._side(puc, mixers[column]) if column < len(mixers) else None
            # At the rims there is no neighbour on one side: light enters or leaves by a port.
            entering = self._port_side(puc, behind) if before is None else before
            leaving = self._port_side(puc, before) if behind is None else behind
            state: State = "bar" if leaving == entering ^ EXIT_XOR["bar"] else "cross"
            wires.append(BlockWire(puc, state, bool(entering % 2)))
            ports += [entering] * (before is None) + [leaving] * (behind is None)
        return wires, *(int(self._mesh.port_at[puc_port]) for puc_port in ports)  # type: ignore[return-value]

    def _side(self, puc: int, neighbour: int) -> int:
        sides = [4 * puc + k for k in range(4) if self._mesh.mate[4 * puc + k] // 4 == neighbour]
        return sides[0]

    def _port_side(self, puc: int, entry: int | None) -> int:
        """Return the PUC-port with a fibre at the outer end of a PUC, on the same rail if both rails have fibres."""
        straight = (4 * puc if entry is None else entry) ^ EXIT_XOR["bar"]
        # At some corners only one of the two rails has a fibre.
        for side in (straight, straight ^ 1):
            if self._mesh.port_at[side] in self._mesh.fibre_ports:
                return side
        raise ConfigError(f"PUC {puc} of mesh {self._mesh.label!r} has no fibre at its outer end")


def block_targets(block: FeedForwardBlock, unitary: NDArray[np.complex128]) -> dict[int, PucTarget]:
    """Return the wanted phases of all PUCs for a unitary, assuming ideal couplers and waveguides without phase.

    Raises:
        ConfigError: The matrix is not unitary, its size differs from the block, or the block has too few columns.
    """
    if len(unitary) != block.n_modes:
        raise ConfigError(f"the matrix has {len(unitary)} modes, but the block has {block.n_modes}")
    decomposition = rectangular(unitary)
    columns = len(block.mixers)
    theta: dict[int, float] = {}
    phase = np.zeros((columns + 1, block.n_modes))
    phase[columns] = decomposition.output_rad
    # First column that each mode can still use: light meets mixers in the order of the decomposition.
    free = [0] * block.n_modes
    active = set()
    for mixer in decomposition.mixers:
        m, column = mixer.first, max(free[mixer.first], free[mixer.second])
        # Two neighbouring modes meet only in every second column.
        while column < columns and block.mixer_of(column, m) is None:
            column += 1
        puc = block.mixer_of(column, m) if column < columns else None
        if puc is None:
            raise ConfigError(
                f"{block.n_modes} modes need more columns than mesh {block.mesh.label!r} has",
                hint=f"The mesh has {columns} columns of mixers; use a wider mesh or fewer modes.",
            )
        theta[puc] = mixer.theta_rad
        phase[column, m] += mixer.before_rad
        active |= {(column, m), (column, m + 1)}
        free[m] = free[m + 1] = column + 1
    for column, row in enumerate(block.mixers):
        for mode, (_, lower) in enumerate(row):
            # Only a mode that is not mixed in this column; the mixers of the others include the sign.
            if lower and (column, mode) not in active:
                phase[column, mode] += math.pi  # the lower rail of a PUC in bar: its matrix is diag(1, -1)
    return _targets(block, theta, phase)


def _targets(block: FeedForwardBlock, theta: dict[int, float], phase: NDArray[np.float64]) -> dict[int, PucTarget]:
    quarter = 0.5 * math.pi
    targets = {}
    for mixers in block.mixers:
        for puc, _ in mixers:
            angle = theta.get(puc, quarter)
            targets[puc] = PucTarget.arms(-quarter + angle, -quarter - angle)
    for column, wires in enumerate(block.wires):
        for mode, wire in enumerate(wires):
            angle = quarter if wire.state == "bar" else 0.0
            turned = math.pi if wire.state == "bar" and wire.right_rail else 0.0
            common = float(phase[column, mode]) - quarter + turned
            targets[wire.puc] = PucTarget.arms(common + angle, common - angle)
    return targets
