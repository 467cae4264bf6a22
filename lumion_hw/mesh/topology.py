"""The hexagonal mesh as a graph: PUCs, joints, ports, directed waves.

A programmable unit cell (PUC) is an edge of a honeycomb. It runs from end A to end B and has two rails, L and R of a
traveller from A to B. PUC-port ``p = 4 e + k`` with ``k``: 0 (A, L), 1 (A, R), 2 (B, L), 3 (B, R). The wave that
enters PUC ``e`` at PUC-port ``p`` leaves at ``p ^ 2`` in the bar state (it keeps its rail) and at ``p ^ 3`` in the
cross state, never back where it came from. Layout and numbering are those of the SmartLight-class chip
(D. Sánchez-Jácome, PhD thesis, UPV 2025), continued by the same rule to any column layout.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError

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

    @classmethod
    def smartlight(cls) -> HexMesh:
        """Return the 72-PUC mesh of the SmartLight class: 40 ports, fibres on 0-21 and 34-39."""
        return _build(_SMARTLIGHT_CELLS, "smartlight", _SMARTLIGHT_FIBRE_PORTS)

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
        return _build(tuple(cells), "columns " + " ".join(map(str, cells)), None)

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


def _check_columns(cells: tuple[int, ...]) -> tuple[int, int]:
    """Return (slanted PUCs per zig-zag column, parity offset) of a column layout, or raise ``ConfigError``."""
    low = min(cells, default=0)
    if len(cells) > 1 and any(abs(a - b) != 1 or {a, b} != {low, low + 1} for a, b in pairwise(cells)):
        raise ConfigError(f"columns {list(cells)} do not alternate", hint="Neighbouring columns differ by one cell.")
    if low < 1:
        raise ConfigError(f"columns {list(cells)} hold an empty column", hint="Every column needs at least one cell.")
    return 2 * low + 2, int(len(cells) > 1 and cells[0] > cells[1])


def _build(cells: tuple[int, ...], label: str, fibre_ports: tuple[int, ...] | None) -> HexMesh:
    """Build a column layout: zig-zag columns of slanted PUCs, joined by horizontal ones; numbered column by column."""
    rows, offset = _check_columns(cells)
    zigzags = len(cells) + 1

    def vertex(column: int, row: int) -> int:
        return column * (rows + 1) + row

    grid = [(c, j) for c in range(zigzags) for j in range(rows + 1)]
    bulge = {(c, j): 1 if (c + j + offset) % 2 else -1 for c, j in grid}
    vertices = np.array([(1.5 * c + 0.25 * bulge[c, j], -math.sqrt(3) / 2 * j) for c, j in grid])
    colour = np.array([(c + j) % 2 for c, j in grid], dtype=np.int64)
    ends: list[tuple[int, int]] = []
    for c in range(zigzags):
        ends += [(vertex(c, r), vertex(c, r + 1)) for r in range(rows)]
        if c + 1 < zigzags:
            ends += [(vertex(c, j), vertex(c + 1, j)) for j in range(rows + 1) if bulge[c, j] > 0]
    ends_array = np.array(ends, dtype=np.int64)
    mate = _mate(ends_array, vertices)
    ports = _number_ports(mate)
    fibres = tuple(range(len(ports))) if fibre_ports is None else fibre_ports
    return HexMesh(label, mate, ports, ends_array, vertices, colour, sum(cells), fibres)


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
        leaving = start ^ LEAVES["bar"]
        while mate[leaving] >= 0:
            leaving = int(mate[leaving]) ^ LEAVES["bar"]
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
