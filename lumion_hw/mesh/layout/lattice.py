"""Square and triangular meshes: every PUC is an edge of a cell, and light can circulate around the cells.

Sources: Pérez et al. 2016 (Optics Express 24, 12093); the square one was built first, by Zhuang et al. 2015 (Optica 2,
854). Where PUCs meet at the corner of a cell, their waveguides are joined. At the wider corners around the rim they
stay open as ports. Light from any port passes each PUC in one direction only and reaches half of the ports.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.documents import check_graph, graph_entries, read_integers
from lumion_hw.mesh.layout.rim import join_corners, number_ports
from lumion_hw.mesh.layout.topology import MeshLayout, MeshTopology, TopologyKind

MAX_CELLS = 4096
"""Largest number of cells."""

Vertex = tuple[int, int]
"""Position on the lattice: in half PUC lengths to the right, and in rows down."""


@dataclass(frozen=True)
class Tiling:
    """A kind of lattice.

    Attributes:
        name: Name of the topology in bench files.
        corner_rad: Corner angle of a cell.
        row_height: Distance of two rows of vertices in PUC lengths.
        cell: Returns the vertices of the cell in a row and column, in order around the cell.
    """

    name: str
    corner_rad: float
    row_height: float
    cell: Callable[[int, int], tuple[Vertex, ...]]


@dataclass(frozen=True, eq=False, repr=False)
class LatticeMesh(MeshTopology):
    """An immutable square or triangular mesh; every port has a fibre.

    PUCs are numbered row by row from the top: first the horizontal ones of a row of vertices, then those to the next
    row, each from left to right. End A is on the left, or at the top of vertical PUCs.
    """

    topology: str  # type: ignore[misc]  # a field instead of a class variable: one class serves both lattices
    ends: NDArray[np.int64]
    vertices: NDArray[np.float64]
    grid: tuple[int, int]

    @classmethod
    def of(cls, tiling: Tiling, rows: int, columns: int) -> LatticeMesh:
        """Return the mesh with the given number of rows, and of cells in each row.

        Raises:
            ConfigError: There is no cell, or there are more than ``MAX_CELLS``.
        """
        if rows < 1 or columns < 1 or rows * columns > MAX_CELLS:
            raise ConfigError(
                f"cannot build a {tiling.name} mesh of {rows} rows with {columns} cells each",
                hint=f"Give at least one of each, and at most {MAX_CELLS} cells.",
            )
        cells = [tiling.cell(row, column) for row in range(rows) for column in range(columns)]
        edges = sorted({edge for cell in cells for edge in _edges(cell)}, key=_order)
        positions = sorted({vertex for edge in edges for vertex in edge}, key=lambda vertex: (vertex[1], vertex[0]))
        index = {vertex: number for number, vertex in enumerate(positions)}
        vertices = np.array([(0.5 * x, -tiling.row_height * row) for x, row in positions])
        ends = np.array([(index[a], index[b]) for a, b in edges], dtype=np.int64)
        mate = join_corners(ends, vertices, tiling.corner_rad)
        ports = number_ports(mate, first=int(np.flatnonzero(mate < 0)[0]))
        return cls(
            label=f"{tiling.name} {rows} {columns}",
            mate=mate,
            port_puc_port=ports,
            fibre_ports=tuple(range(len(ports))),
            topology=tiling.name,
            ends=ends,
            vertices=vertices,
            grid=(rows, columns),
        )

    @property
    def corners(self) -> NDArray[np.float64]:
        """Vertex position of every PUC-port, shape ``(4 n_pucs, 2)``."""
        return np.repeat(self.vertices[self.ends.reshape(-1)], 2, axis=0)

    def to_dict(self) -> dict[str, Any]:
        """Return the mesh as plain numbers, strings and lists, ready for JSON."""
        return graph_entries(self) | {"grid": list(self.grid)}


def _edges(cell: Sequence[Vertex]) -> Iterator[tuple[Vertex, Vertex]]:
    for first, second in zip(cell, (*cell[1:], cell[0]), strict=True):
        a, b = sorted((first, second), key=lambda vertex: (vertex[0], vertex[1]))
        yield a, b


def _order(edge: tuple[Vertex, Vertex]) -> tuple[int, bool, int, int]:
    """Return a sort key for the numbering of PUCs: row by row, horizontal ones first, from left to right."""
    (x, row), (other_x, other_row) = edge
    return min(row, other_row), row != other_row, x + other_x, row


def _square(row: int, column: int) -> tuple[Vertex, ...]:
    left, right = 2 * column, 2 * column + 2
    return (left, row), (right, row), (right, row + 1), (left, row + 1)


def _triangle(row: int, column: int) -> tuple[Vertex, ...]:
    """Return the triangle in a row; triangles point up and down in turn, and neighbouring rows are mirror images."""
    # Vertices of even rows lie at half lengths, those of odd rows at whole lengths; the first triangle stands on the
    # row of whole lengths.
    long_side, short_side = (row + 1, row) if row % 2 == 0 else (row, row + 1)
    if column % 2 == 0:
        return (column, long_side), (column + 2, long_side), (column + 1, short_side)
    return (column, short_side), (column + 2, short_side), (column + 1, long_side)


TILINGS: Mapping[str, Tiling] = {
    tiling.name: tiling
    for tiling in (
        Tiling("square", math.pi / 2.0, 1.0, _square),
        Tiling("triangular", math.pi / 3.0, math.sqrt(3.0) / 2.0, _triangle),
    )
}
"""All lattices, by name."""


def _topology_kind(tiling: Tiling) -> TopologyKind:
    def build(numbers: Sequence[int]) -> LatticeMesh:
        if len(numbers) != 2:
            raise ConfigError(
                f"a {tiling.name} mesh cannot have the size {list(numbers)}", hint="Give rows and cells per row."
            )
        return LatticeMesh.of(tiling, *numbers)

    def read(document: Mapping[str, Any]) -> LatticeMesh:
        mesh = build(read_integers(document, "grid").tolist())
        check_graph(mesh, document)
        return mesh

    layout = MeshLayout("grid", "rows, and cells in each row", build)
    return TopologyKind(tiling.name, {tiling.name: layout}, read)


LATTICES = tuple(map(_topology_kind, TILINGS.values()))
"""The topologies of all lattices."""
