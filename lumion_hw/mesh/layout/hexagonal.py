"""The hexagonal mesh: every PUC is an edge of a honeycomb.

Where two PUCs meet at 120°, their waveguides are joined. At the wider corners around the rim they stay open as ports.
Vertex V(c, j) is at x = 1.5 c ± 0.25, y = -(√3/2) j. PUCs are numbered column by column, from top to bottom. Source of
layout and numbering: Sánchez-Jácome 2025 (SmartLight-class chip).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.documents import check_format, check_graph, graph_entries, read_integers, read_numbers
from lumion_hw.mesh.layout.rim import join_corners, number_ports
from lumion_hw.mesh.layout.topology import MeshLayout, MeshTopology, TopologyKind

MAX_CELLS = 4096
"""Largest number of cells: about 12,000 PUCs, fifty times the largest existing chip."""

_CORNER_RAD = 2.0 * math.pi / 3.0

_SMARTLIGHT_CELLS = (2, 3, 2, 3, 2, 3, 2)
_SMARTLIGHT_FIBRE_PORTS = (*range(22), *range(34, 40))


@dataclass(frozen=True, eq=False, repr=False)
class HexMesh(MeshTopology):
    """An immutable hexagonal mesh: every PUC is an edge of a honeycomb.

    Attributes:
        ends: Shape ``(n_pucs, 2)``; vertex at end A and end B.
        vertices: Shape ``(n_vertices, 2)``; positions in PUC lengths, y up.
        colour: Shape ``(n_vertices,)``; 0 or 1, different at both ends of each PUC (a honeycomb is bipartite).
    """

    topology = "hexagonal"

    ends: NDArray[np.int64]
    vertices: NDArray[np.float64]
    colour: NDArray[np.int64]
    n_cells: int

    @classmethod
    def smartlight(cls) -> HexMesh:
        """Return the SmartLight-class mesh: 72 PUCs and 40 ports, with fibres on ports 0-21 and 34-39."""
        layout = cls.columns(_SMARTLIGHT_CELLS)
        return replace(layout, label="smartlight", fibre_ports=_SMARTLIGHT_FIBRE_PORTS)

    @classmethod
    def columns(cls, cells: Sequence[int]) -> HexMesh:
        """Return the mesh with the given number of cells in each column. Every port has a fibre.

        Args:
            cells: Cells per column, alternating ``r, r+1, r, …`` or ``r+1, r, r+1, …``.

        Raises:
            ConfigError: The columns do not alternate, a column is empty, or there are more than ``MAX_CELLS`` cells.
        """
        cells = tuple(cells)
        _check_size(sum(cells))
        low = min(cells, default=0)
        if len(cells) > 1 and any(abs(a - b) != 1 or {a, b} != {low, low + 1} for a, b in pairwise(cells)):
            raise ConfigError(
                f"columns {list(cells)} do not alternate", hint="Neighbouring columns must differ by one cell."
            )
        if low < 1:
            raise ConfigError(
                f"columns {list(cells)} contain an empty column", hint="Every column needs at least one cell."
            )
        height = low + 1 if len(cells) == 1 else max(cells)
        tops = [height - count for count in cells]
        return cls._from_columns(
            "columns " + " ".join(map(str, cells)), cells, tops, [(0, 2 * low + 2)] * (len(cells) + 1)
        )

    @classmethod
    def rings(cls, count: int) -> HexMesh:
        """Return a mesh of k concentric rings of cells: 3k² - 3k + 1 cells, 9k² - 3k PUCs, 12k ports.

        Every port has a fibre.

        Args:
            count: Number of rings k; the middle cell is the first.

        Raises:
            ConfigError: ``count`` is below 1, or there are more than ``MAX_CELLS`` cells.
        """
        if count < 1:
            raise ConfigError(
                f"cannot build a mesh of {count} rings", hint="Give 1 ring or more; one ring is a single cell."
            )
        _check_size(3 * count * (count - 1) + 1)
        cells = [2 * count - 1 - abs(q) for q in range(1 - count, count)]
        tops = [2 * count - 1 - height for height in cells]
        extents = [(top, top + 2 * height) for top, height in zip(tops, cells, strict=True)]
        spans = [
            (min(left[0], right[0]), max(left[1], right[1]))
            for left, right in pairwise([extents[0], *extents, extents[-1]])
        ]
        return cls._from_columns(f"rings {count}", cells, tops, spans)

    @classmethod
    def _from_columns(
        cls, label: str, cells: Sequence[int], tops: Sequence[int], spans: Sequence[tuple[int, int]]
    ) -> HexMesh:
        """Return a mesh of columns.

        ``tops`` is the lattice row of the topmost horizontal PUC of each column. ``spans`` are the first and last
        lattice row of each zig-zag line, of which there is one more than columns.
        """
        grid = [(c, j) for c, (first, last) in enumerate(spans) for j in range(first, last + 1)]
        index = {position: number for number, position in enumerate(grid)}
        bulge = (tops[0] + 1) % 2  # horizontal PUCs start where a zig-zag bulges to the right
        vertices = np.array(
            [(1.5 * c + (0.25 if (c + j + bulge) % 2 else -0.25), -math.sqrt(3) / 2 * j) for c, j in grid]
        )
        ends: list[tuple[int, int]] = []
        for c, (first, last) in enumerate(spans):
            ends += [(index[c, r], index[c, r + 1]) for r in range(first, last)]
            if c < len(cells):
                ends += [(index[c, j], index[c + 1, j]) for j in range(tops[c], tops[c] + 2 * cells[c] + 1, 2)]
        ends_array = np.array(ends, dtype=np.int64)
        mate = join_corners(ends_array, vertices, _CORNER_RAD)
        colour = np.array([(c + j) % 2 for c, j in grid], dtype=np.int64)
        ports = number_ports(mate)
        return cls(label, mate, ports, tuple(range(len(ports))), ends_array, vertices, colour, sum(cells))

    @cached_property
    def corners(self) -> NDArray[np.float64]:
        """Vertex position of every PUC-port, shape ``(4 n_pucs, 2)``."""
        return np.repeat(self.vertices[self.ends.reshape(-1)], 2, axis=0)

    def port_vertex(self, port: int) -> int:
        """Return the vertex where a port lies."""
        puc_port = int(self.port_puc_port[port])
        return int(self.ends[puc_port // 4, (puc_port % 4) // 2])

    def to_dict(self) -> dict[str, Any]:
        """Return the mesh as plain numbers, strings and lists, ready for JSON."""
        return graph_entries(self) | {
            "ends": self.ends.tolist(),
            "vertices": self.vertices.tolist(),
            "colour": self.colour.tolist(),
            "n_cells": self.n_cells,
        }


def _check_size(cells: int) -> None:
    if cells > MAX_CELLS:
        raise ConfigError(f"a mesh of {cells} cells is too large", hint=f"Give at most {MAX_CELLS} cells.")


def _smartlight(_numbers: Sequence[int]) -> HexMesh:
    return HexMesh.smartlight()


def _rings(numbers: Sequence[int]) -> HexMesh:
    return HexMesh.rings(*numbers)


def _read(document: Mapping[str, Any]) -> HexMesh:
    check_format(document)
    mesh = HexMesh(
        label=str(document.get("label", "")),
        mate=read_integers(document, "mate"),
        port_puc_port=read_integers(document, "port_puc_port"),
        fibre_ports=tuple(read_integers(document, "fibre_ports").tolist()),
        ends=read_integers(document, "ends", columns=2),
        vertices=read_numbers(document, "vertices", columns=2),
        colour=read_integers(document, "colour"),
        n_cells=int(read_integers(document, "n_cells", columns=0)),
    )
    if len(mesh.mate) != 4 * len(mesh.ends):
        raise ConfigError(
            f"'mate' (the PUC-port joined to each PUC-port) has {len(mesh.mate)} entries for {len(mesh.ends)} PUCs",
            hint="Give four entries per PUC.",
        )
    check_graph(mesh, document)
    if np.any(mesh.ends < 0) or np.any(mesh.ends >= len(mesh.vertices)) or len(mesh.colour) != len(mesh.vertices):
        raise ConfigError("'ends' names vertices that do not exist, or 'colour' and 'vertices' differ in length")
    # Routing relies on the colours: they prove which path lengths are impossible (docs/mesh.md#routes).
    if np.any(mesh.colour[mesh.ends[:, 0]] ^ mesh.colour[mesh.ends[:, 1]] != 1):
        raise ConfigError("a PUC connects two vertices of the same colour, so path lengths would have no fixed parity")
    return mesh


HEXAGONAL = TopologyKind(
    HexMesh.topology,
    {
        "smartlight": MeshLayout(None, "72 PUCs, 40 ports", _smartlight),
        "columns": MeshLayout("columns", "cells per column", HexMesh.columns),
        "rings": MeshLayout("rings", "rings of cells", _rings, many=False),
    },
    _read,
)
