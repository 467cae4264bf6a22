"""The hexagonal mesh: every PUC is an edge of a honeycomb, and light may go round its cells.

At a vertex each corner of 120° between two neighbouring PUCs holds a joint; a wider corner stays open and is two ports.
Layout and numbering are those of the SmartLight-class chip (D. Sánchez-Jácome, PhD thesis, UPV 2025), continued by the
same rule to any columns and to rings of cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.mesh.lattice import Lattice, column_lattice, ring_lattice
from lumion_hw.mesh.topology import MeshTopology

_SMARTLIGHT_CELLS = (2, 3, 2, 3, 2, 3, 2)
_SMARTLIGHT_FIBRE_PORTS = (*range(22), *range(34, 40))


@dataclass(frozen=True, eq=False)
class HexMesh(MeshTopology):
    """An immutable hexagonal mesh.

    Every PUC is an edge of a honeycomb; what :class:`MeshTopology` holds is not repeated here.

    Attributes:
        ends: Shape ``(n_pucs, 2)``; vertex at end A and end B.
        vertices: Shape ``(n_vertices, 2)``; positions in PUC lengths, y up.
        colour: Shape ``(n_vertices,)``; 0 or 1, flipped by every PUC (the honeycomb is bipartite).
        n_cells: Number of hexagonal cells.
    """

    ends: NDArray[np.int64]
    vertices: NDArray[np.float64]
    colour: NDArray[np.int64]
    n_cells: int

    @classmethod
    def smartlight(cls) -> HexMesh:
        """Return the 72-PUC mesh of the SmartLight class: 40 ports, fibres on 0-21 and 34-39."""
        return cls._of(column_lattice(_SMARTLIGHT_CELLS), "smartlight", _SMARTLIGHT_FIBRE_PORTS)

    @classmethod
    def columns(cls, cells: Sequence[int]) -> HexMesh:
        """Return the mesh with the given number of cells per column, neighbours differing by one.

        Every port has a fibre. Degree-1 stubs stand on the corners wherever a column of fewer cells ends the mesh, as
        on the SmartLight-class chip.

        Args:
            cells: Cells per column, alternating ``r, r+1, r, …`` or ``r+1, r, r+1, …``.

        Raises:
            ConfigError: The columns do not alternate, or one of them is empty.
        """
        return cls._of(column_lattice(cells), "columns " + " ".join(map(str, cells)))

    @classmethod
    def rings(cls, count: int) -> HexMesh:
        """Return one cell with concentric rings of cells round it: 9k² - 3k PUCs and 12k ports, no stubs.

        Every port has a fibre. Two rings are the 7-cell chip; the numbering rule is that of :meth:`columns`.

        Args:
            count: Number of rings k, the middle cell being the first.

        Raises:
            ConfigError: There is no ring.
        """
        return cls._of(ring_lattice(count), f"rings {count}")

    @classmethod
    def _of(cls, lattice: Lattice, label: str, fibre_ports: tuple[int, ...] | None = None) -> HexMesh:
        """Give a lattice its name and its fibres, one at every port if not told otherwise."""
        fibres = tuple(range(len(lattice.port_puc_port))) if fibre_ports is None else fibre_ports
        return cls(
            label,
            lattice.mate,
            lattice.port_puc_port,
            fibres,
            lattice.ends,
            lattice.vertices,
            lattice.colour,
            lattice.n_cells,
        )

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> HexMesh:
        """Return the mesh that :meth:`to_dict` wrote.

        Raises:
            ConfigError: Something is missing or contradicts the rest; the message names the element.
        """
        from lumion_hw.mesh.documents import mesh_from_dict

        return mesh_from_dict(document)

    def to_dict(self) -> dict[str, Any]:
        """Return the mesh as plain numbers, strings and lists, ready for JSON."""
        from lumion_hw.mesh.documents import mesh_to_dict

        return mesh_to_dict(self)

    @cached_property
    def corners(self) -> NDArray[np.float64]:
        """Shape ``(4 n_pucs, 2)``; every PUC-port lies at the vertex of its end."""
        return np.repeat(self.vertices[self.ends.reshape(-1)], 2, axis=0)

    def port_vertex(self, port: int) -> int:
        """Return the vertex at which a port lies."""
        puc_port = int(self.port_puc_port[port])
        return int(self.ends[puc_port // 4, (puc_port % 4) // 2])
