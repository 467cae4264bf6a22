"""The hexagonal mesh as a graph: PUCs, joints, ports, directed waves.

A programmable unit cell (PUC) is an edge of a honeycomb. It runs from end A to end B and has two rails, L and R of a
traveller from A to B. PUC-port ``p = 4 e + k`` with ``k``: 0 (A, L), 1 (A, R), 2 (B, L), 3 (B, R). The wave that
enters PUC ``e`` at PUC-port ``p`` leaves at ``p ^ 2`` in the bar state (it keeps its rail) and at ``p ^ 3`` in the
cross state, never back where it came from. Layout and numbering are those of the SmartLight-class chip
(D. Sánchez-Jácome, PhD thesis, UPV 2025), continued by the same rule to any column layout.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.lattice import Lattice, column_lattice, ring_lattice

State = Literal["bar", "cross"]
"""State of a PUC that routes light: ``bar`` keeps the rail, ``cross`` changes it."""

LEAVES: dict[str, int] = {"bar": 2, "cross": 3}
"""``p ^ LEAVES[state]`` is the PUC-port at which a wave that entered at ``p`` leaves."""

_SMARTLIGHT_CELLS = (2, 3, 2, 3, 2, 3, 2)
_SMARTLIGHT_FIBRE_PORTS = (*range(22), *range(34, 40))
_ENDRAIL = ("AL", "AR", "BL", "BR")


@dataclass(frozen=True)
class Trace:
    """Where light goes through a mesh of pure bar and cross states.

    Attributes:
        port: Port where it leaves.
        pucs: PUCs passed, in order; a PUC passed twice appears twice.
    """

    port: int
    pucs: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class HexMesh:
    """An immutable hexagonal mesh.

    Attributes:
        label: How the layout is written in a bench file.
        mate: Shape ``(4 n_pucs,)``; the PUC-port joined to each PUC-port, or -1 at a port.
        port_puc_port: Shape ``(n_ports,)``; PUC-port behind each port.
        ends: Shape ``(n_pucs, 2)``; vertex at end A and end B.
        vertices: Shape ``(n_vertices, 2)``; positions in PUC lengths, y up.
        colour: Shape ``(n_vertices,)``; 0 or 1, flipped by every PUC (the honeycomb is bipartite).
        n_cells: Number of hexagonal cells.
        fibre_ports: Ports that have a fibre and a monitor photodiode.
    """

    label: str
    mate: NDArray[np.int64]
    port_puc_port: NDArray[np.int64]
    ends: NDArray[np.int64]
    vertices: NDArray[np.float64]
    colour: NDArray[np.int64]
    n_cells: int
    fibre_ports: tuple[int, ...]

    def __repr__(self) -> str:
        """Return one line; the arrays are attributes."""
        return f"<HexMesh {self.label}: {self.n_pucs} PUCs, {self.n_ports} ports>"

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
            lattice.ends,
            lattice.vertices,
            lattice.colour,
            lattice.n_cells,
            fibres,
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

    def __post_init__(self) -> None:
        for array in (self.mate, self.port_puc_port, self.ends, self.vertices, self.colour):
            array.setflags(write=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HexMesh) and self.sha256 == other.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)

    @property
    def n_pucs(self) -> int:
        """Number of PUCs."""
        return len(self.ends)

    @property
    def n_ports(self) -> int:
        """Number of ports, with and without fibre."""
        return len(self.port_puc_port)

    @cached_property
    def port_at(self) -> NDArray[np.int64]:
        """Shape ``(4 n_pucs,)``; port at each PUC-port, or -1 inside the mesh."""
        table = np.full(4 * self.n_pucs, -1, dtype=np.int64)
        table[self.port_puc_port] = np.arange(self.n_ports)
        return table

    @cached_property
    def successors(self) -> NDArray[np.int64]:
        """Shape ``(4 n_pucs, 2)``; the wave that follows each wave in bar and in cross, or ``-1 - port`` at a port."""
        leaving = np.arange(4 * self.n_pucs)[:, None] ^ np.array(list(LEAVES.values()))
        following: NDArray[np.int64] = np.where(self.mate[leaving] >= 0, self.mate[leaving], -1 - self.port_at[leaving])
        return following

    @cached_property
    def faces(self) -> tuple[tuple[int, ...], ...]:
        """PUCs round each hexagonal cell, one tuple per cell, in the order all-bar light takes with the cell at right.

        Each begins at its smallest PUC; the cells are in ascending order of those.
        """
        from lumion_hw.mesh.orbits import closed_orbits

        # A wave on the rail at its right hand (2nd of end A, 1st of end B) goes round the cell at its right.
        orbits = closed_orbits(self, ["bar"] * self.n_pucs)
        rounds = [tuple(wave // 4 for wave in orbit) for orbit in orbits if orbit[0] % 4 in (1, 2)]
        rotated = [each[(first := each.index(min(each))) :] + each[:first] for each in rounds]
        return tuple(sorted(rotated))

    @cached_property
    def hops_to_port(self) -> NDArray[np.int64]:
        """Shape ``(n_ports, 4 n_pucs)``; fewest PUCs from entering each PUC-port to leaving at each port.

        Every port is reached from every wave of a connected mesh; a walk back to a wave's own port is counted too.
        """
        from lumion_hw.mesh.orbits import hops_to_port

        return hops_to_port(self)

    @cached_property
    def shortest_hops(self) -> NDArray[np.int64]:
        """Shape ``(n_ports, n_ports)``, symmetric; fewest PUCs between two ports, 0 from a port to itself."""
        hops = self.hops_to_port[:, self.port_puc_port].T.copy()
        np.fill_diagonal(hops, 0)
        hops.setflags(write=False)
        return hops

    @cached_property
    def joints(self) -> NDArray[np.int64]:
        """Shape ``(n_joints, 2)``; the two PUC-ports of each waveguide joint, smaller first, in ascending order."""
        first = np.flatnonzero(self.mate > np.arange(4 * self.n_pucs))
        return np.stack([first, self.mate[first]], axis=1)

    @cached_property
    def puc_centres(self) -> NDArray[np.float64]:
        """Shape ``(n_pucs, 2)``; PUC centres in PUC lengths."""
        centres: NDArray[np.float64] = self.vertices[self.ends].mean(axis=1)
        return centres

    def port_vertex(self, port: int) -> int:
        """Return the vertex at which a port lies."""
        puc_port = int(self.port_puc_port[port])
        return int(self.ends[puc_port // 4, (puc_port % 4) // 2])

    def port_parity(self, source: int, target: int) -> int:
        """Return the parity (0 even, 1 odd) of the number of PUCs on every path between two ports."""
        return int(self.colour[self.port_vertex(source)] ^ self.colour[self.port_vertex(target)])

    def port_name(self, port: int) -> str:
        """Return a port as ``PUC.endrail``, such as ``0.AR``."""
        puc_port = int(self.port_puc_port[port])
        return f"{puc_port // 4}.{_ENDRAIL[puc_port % 4]}"

    def trace(self, port: int, states: Mapping[int, State]) -> Trace:
        """Follow light that enters at ``port`` until it leaves the mesh.

        Args:
            port: Port where the light enters.
            states: State of every PUC on the way; PUCs never reached may be missing.

        Raises:
            ConfigError: No such port, or a PUC on the way has no state (the message names it).
        """
        if not 0 <= port < self.n_ports:
            raise ConfigError(f"port {port} does not exist", hint=f"This mesh has ports 0 to {self.n_ports - 1}.")
        node = int(self.port_puc_port[port])
        pucs: list[int] = []
        while node >= 0:
            puc = node // 4
            state = states.get(puc)
            if state not in LEAVES:
                raise ConfigError(
                    f"light from port {port} reaches PUC {puc}, whose state is {state!r}",
                    hint="Give 'bar' or 'cross' for every PUC on the way.",
                )
            pucs.append(puc)
            leaving = node ^ LEAVES[state]
            node = int(self.mate[leaving])
        return Trace(port=int(self.port_at[leaving]), pucs=tuple(pucs))

    def canonical_text(self) -> str:
        """Return a text that determines the mesh; two meshes are the same if and only if their texts are."""
        mate = ",".join(map(str, self.mate.tolist()))
        ports = ",".join(map(str, self.port_puc_port.tolist()))
        fibres = ",".join(map(str, self.fibre_ports))
        return f"lumion-mesh 1\nmate {mate}\nports {ports}\nfibres {fibres}\n"

    @cached_property
    def sha256(self) -> str:
        """Hash of the canonical text; goes into every calibration record."""
        return hashlib.sha256(self.canonical_text().encode()).hexdigest()
