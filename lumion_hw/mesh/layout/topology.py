"""The mesh as a graph: PUCs, joints (waveguides between PUCs) and ports.

A programmable unit cell (PUC) has two ends, A and B, and two rails (waveguides), L (left) and R (right) as seen from A
to B. PUC-port ``p = 4 e + k`` of PUC ``e`` has ``k``: 0 (A, L), 1 (A, R), 2 (B, L), 3 (B, R). Light that enters at
PUC-port ``p`` leaves at ``p ^ 2`` in the bar state (same rail) and at ``p ^ 3`` in the cross state. A PUC-port without
a joint is a port of the mesh. Elsewhere, "wave p" is the light that enters a PUC at PUC-port p.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.cells import CELL_KINDS, PUC

State = Literal["bar", "cross"]
"""State of a PUC: in ``bar`` light stays on its rail, in ``cross`` it changes to the other rail."""

EXIT_XOR: dict[str, int] = {"bar": 2, "cross": 3}
"""Light that enters at PUC-port ``p`` leaves at ``p ^ EXIT_XOR[state]``."""
_ENDRAIL = ("AL", "AR", "BL", "BR")


@dataclass(frozen=True)
class Trace:
    """Path of light through a mesh.

    Attributes:
        port: Port where the light leaves.
        pucs: PUCs on the path, in order; a PUC passed twice appears twice.
    """

    port: int
    pucs: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class MeshTopology(ABC):
    """An immutable mesh of any topology.

    Attributes:
        label: Name and size of the layout, such as ``columns 2 3 2``.
        mate: Shape ``(4 n_pucs,)``; the PUC-port joined to each PUC-port, or -1 at a port.
        port_puc_port: Shape ``(n_ports,)``; PUC-port at each port.
        fibre_ports: Ports that have a fibre and a monitor photodiode.
    """

    topology: ClassVar[str]
    """Name of the topology in bench files and documents."""

    label: str
    mate: NDArray[np.int64]
    port_puc_port: NDArray[np.int64]
    fibre_ports: tuple[int, ...]

    @property
    @abstractmethod
    def corners(self) -> NDArray[np.float64]:
        """Position of each PUC-port in PUC lengths, y up, shape ``(4 n_pucs, 2)``."""

    @property
    def port_positions(self) -> NDArray[np.float64]:
        """Position of each port in PUC lengths, shape ``(n_ports, 2)``."""
        positions: NDArray[np.float64] = self.corners[self.port_puc_port]
        return positions

    @property
    def drawing_mesh(self) -> MeshTopology:
        """The mesh to draw in a picture; its positions may differ."""
        return self

    @property
    def is_dilated(self) -> bool:
        """Whether the mesh has so many PUCs that every PUC carries at most one circuit."""
        return False

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the mesh as plain numbers, strings and lists, ready for JSON."""

    def __repr__(self) -> str:
        """Return a one-line summary of the mesh."""
        return f"<{type(self).__name__} {self.label}: {self.n_pucs} PUCs, {self.n_ports} ports>"

    def __post_init__(self) -> None:
        # The cached tables and the hash rely on arrays that never change.
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MeshTopology) and self.sha256 == other.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)

    @property
    def n_pucs(self) -> int:
        """Number of PUCs."""
        return len(self.mate) // 4

    @property
    def n_ports(self) -> int:
        """Number of ports, with and without a fibre."""
        return len(self.port_puc_port)

    @cached_property
    def port_at(self) -> NDArray[np.int64]:
        """Port at each PUC-port, or -1 inside the mesh; shape ``(4 n_pucs,)``."""
        table = np.full(4 * self.n_pucs, -1, dtype=np.int64)
        table[self.port_puc_port] = np.arange(self.n_ports)
        return table

    @cached_property
    def unused_ports(self) -> frozenset[int]:
        """Ports that no light reaches: ends of an unused waveguide."""
        turn_of_cell = np.array([EXIT_XOR.get(CELL_KINDS[kind].passes, 0) for kind in self.cell_kinds])
        turns = turn_of_cell[self.port_puc_port // 4]
        other = self.port_at[self.port_puc_port ^ turns]
        fibres = np.isin(np.arange(self.n_ports), self.fibre_ports)
        is_unused = (turns > 0) & (other >= 0) & ~fibres & ~fibres[other]
        return frozenset(np.flatnonzero(is_unused).tolist())

    @property
    def cell_kinds(self) -> tuple[str, ...]:
        """Kind of every cell, a key of :data:`~lumion_hw.mesh.layout.cells.CELL_KINDS`."""
        return (PUC,) * self.n_pucs

    @property
    def cell_names(self) -> tuple[str, ...]:
        """Name of every cell on the chip's drawing; by default its number."""
        return tuple(map(str, range(self.n_pucs)))

    @cached_property
    def has_heater(self) -> NDArray[np.bool_]:
        """Which arms can have a heater, shape ``(2 n_pucs,)``; the upper arm of cell 0 first."""
        return np.array([CELL_KINDS[kind].heated for kind in self.cell_kinds], dtype=np.bool_).reshape(-1)

    @cached_property
    def nominal_eta(self) -> NDArray[np.float64]:
        """Designed power splitting of the couplers at ends A and B, shape ``(2, n_pucs)``."""
        kinds = [CELL_KINDS[kind] for kind in self.cell_kinds]
        return np.array([[kind.eta_in for kind in kinds], [kind.eta_out for kind in kinds]])

    @cached_property
    def coupler_angles_rad(self) -> NDArray[np.float64]:
        """Designed coupler angles asin √η at ends A and B, shape ``(2, n_pucs)``; π/4 for a balanced coupler."""
        # The arctangent gives exactly π/4 for 0.5, which the arcsine does not.
        angles: NDArray[np.float64] = np.arctan2(np.sqrt(self.nominal_eta), np.sqrt(1.0 - self.nominal_eta))
        return angles

    @cached_property
    def has_coupler(self) -> NDArray[np.bool_]:
        """Whether each end of each PUC has a coupler; shape ``(2, n_pucs)``."""
        splits: NDArray[np.bool_] = (self.nominal_eta > 0.0) & (self.nominal_eta < 1.0)
        return splits

    @cached_property
    def interferes(self) -> NDArray[np.bool_]:
        """Whether the phase difference between the arms changes the split ratio of each cell; shape ``(n_pucs,)``."""
        return np.array([CELL_KINDS[kind].interferes for kind in self.cell_kinds], dtype=np.bool_)

    @cached_property
    def loss_share(self) -> NDArray[np.float64]:
        """Expected loss of every cell relative to a PUC, shape ``(n_pucs,)``."""
        return np.array([CELL_KINDS[kind].loss_share for kind in self.cell_kinds])

    @cached_property
    def successors(self) -> NDArray[np.int64]:
        """The PUC-port that light enters next after each PUC-port, in bar and in cross; shape ``(4 n_pucs, 2)``.

        The value is ``-1 - port`` where light leaves the mesh. For a cell without couplers both columns are equal.
        """
        exits = {"any": tuple(EXIT_XOR.values()), **{state: (exit_xor,) * 2 for state, exit_xor in EXIT_XOR.items()}}
        turns = np.array([exits[CELL_KINDS[kind].passes] for kind in self.cell_kinds])
        leaving = np.arange(4 * self.n_pucs)[:, None] ^ np.repeat(turns, 4, axis=0)
        following: NDArray[np.int64] = np.where(self.mate[leaving] >= 0, self.mate[leaving], -1 - self.port_at[leaving])
        return following

    @cached_property
    def faces(self) -> tuple[tuple[int, ...], ...]:
        """PUCs around each cell of a lattice, one tuple per cell; empty for a feed-forward mesh."""
        # A wave on its right-hand rail (R when it enters at end A, L at end B) goes around the cell on its right.
        rings = closed_rings(self, ["bar"] * self.n_pucs)
        rounds = [tuple(wave // 4 for wave in ring) for ring in rings if ring[0] % 4 in (1, 2)]
        # From the smallest number on, so that the result does not depend on where the search entered the ring.
        rotated = [cell[(first := cell.index(min(cell))) :] + cell[:first] for cell in rounds]
        return tuple(sorted(rotated))

    @cached_property
    def hops_to_port(self) -> NDArray[np.int64]:
        """Smallest number of PUCs on a path from each PUC-port to each port; shape ``(n_ports, 4 n_pucs)``.

        The value is ``8 n_pucs`` where no path exists.
        """
        # Above every real number of hops: a shortest path enters each of the 4 n_pucs PUC-ports at most once.
        never = 8 * self.n_pucs
        # The last columns are the ports, so that index -1 - port selects them from the end.
        reached = np.full((self.n_ports, 4 * self.n_pucs + self.n_ports), never, dtype=np.int64)
        reached[np.arange(self.n_ports), -1 - np.arange(self.n_ports)] = 0
        waves = reached[:, : 4 * self.n_pucs]
        # Breadth-first search for all ports at once; each step adds one PUC.
        while True:
            nearer = np.minimum(reached[:, self.successors[:, 0]], reached[:, self.successors[:, 1]]) + 1
            if np.array_equal(np.minimum(nearer, never), waves):
                break
            waves[:] = np.minimum(nearer, never)
        hops = waves.copy()
        hops.setflags(write=False)
        return hops

    @cached_property
    def shortest_hops(self) -> NDArray[np.int64]:
        """Smallest number of PUCs between two ports, 0 from a port to itself; shape ``(n_ports, n_ports)``."""
        hops = self.hops_to_port[:, self.port_puc_port].T.copy()
        np.fill_diagonal(hops, 0)
        hops.setflags(write=False)
        return hops

    def reaches(self, source: int, target: int) -> bool:
        """Return whether light can be routed from the source port to the target port with some PUC states."""
        return bool(self.hops_to_port[target, self.port_puc_port[source]] < 8 * self.n_pucs)

    @cached_property
    def joints(self) -> NDArray[np.int64]:
        """The two PUC-ports of each joint (waveguide between PUCs), in ascending order; shape ``(n_joints, 2)``."""
        first = np.flatnonzero(self.mate > np.arange(4 * self.n_pucs))
        return np.stack([first, self.mate[first]], axis=1)

    @cached_property
    def end_positions(self) -> NDArray[np.float64]:
        """Positions of end A and end B of each PUC; shape ``(n_pucs, 2, 2)``."""
        positions: NDArray[np.float64] = self.corners.reshape(-1, 2, 2, 2).mean(axis=2)
        return positions

    @cached_property
    def puc_centres(self) -> NDArray[np.float64]:
        """PUC centres in PUC lengths; shape ``(n_pucs, 2)``."""
        centres: NDArray[np.float64] = self.end_positions.mean(axis=1)
        return centres

    @cached_property
    def joint_positions(self) -> NDArray[np.float64]:
        """Midpoints of the waveguide joints in PUC lengths; shape ``(n_joints, 2)``."""
        positions: NDArray[np.float64] = self.corners[self.joints].mean(axis=1)
        return positions

    def port_parity(self, source: int, target: int) -> int | None:
        """Return whether paths between two ports have an even (0) or odd (1) number of PUCs.

        Return ``None`` if both occur, or no path exists.
        """
        component, colour, two_coloured = self._colouring
        start, end = int(self.port_puc_port[source]), 4 * self.n_pucs + target
        if component[start] != component[end] or not two_coloured[component[start]]:
            return None
        return int(colour[start] ^ colour[end])

    @cached_property
    def _colouring(self) -> tuple[NDArray[np.int64], NDArray[np.int64], tuple[bool, ...]]:
        """Divide PUC-ports and ports into two colours so that light changes colour at each PUC.

        Returns for each PUC-port and port the number of its connected part and its colour, both of shape ``(4 n_pucs +
        n_ports,)``; and whether each part can be coloured.
        """
        size = 4 * self.n_pucs
        neighbours: list[list[int]] = [[] for _ in range(size + self.n_ports)]
        for wave, following in enumerate(np.where(self.successors < 0, size - 1 - self.successors, self.successors)):
            for node in following.tolist():
                neighbours[wave].append(node)
                neighbours[node].append(wave)
        part = np.full(len(neighbours), -1, dtype=np.int64)
        colour = np.zeros(len(neighbours), dtype=np.int64)
        is_colourable: list[bool] = []
        for start in range(len(neighbours)):
            if part[start] >= 0:
                continue
            part[start] = len(is_colourable)
            is_colourable.append(True)
            pending = [start]
            while pending:
                node = pending.pop()
                for neighbour in neighbours[node]:
                    if part[neighbour] < 0:
                        part[neighbour], colour[neighbour] = part[start], colour[node] ^ 1
                        pending.append(neighbour)
                    # A cycle of odd length: two paths of different parity lead to the same place.
                    elif colour[neighbour] == colour[node]:
                        is_colourable[part[start]] = False
        return part, colour, tuple(is_colourable)

    def port_name(self, port: int) -> str:
        """Return the name of a port as ``PUC.end-and-rail``, such as ``0.AR``."""
        puc_port = int(self.port_puc_port[port])
        return f"{puc_port // 4}.{_ENDRAIL[puc_port % 4]}"

    def trace(self, port: int, states: Mapping[int, State]) -> Trace:
        """Follow light from ``port`` until it leaves the mesh.

        Args:
            port: Port where the light enters.
            states: State of every PUC on the path.

        Raises:
            ConfigError: The port does not exist, or a PUC on the path has no state (the message names it).
        """
        if not 0 <= port < self.n_ports:
            raise ConfigError(f"port {port} does not exist", hint=f"This mesh has ports 0 to {self.n_ports - 1}.")
        node = int(self.port_puc_port[port])
        pucs: list[int] = []
        # This ends: each wave has one predecessor, so light from a port cannot enter a ring, and a path is finite.
        while node >= 0:
            puc = node // 4
            state = states.get(puc)
            if state not in EXIT_XOR:
                raise ConfigError(
                    f"light from port {port} reaches PUC {puc}, whose state is {state!r}",
                    hint="Give 'bar' or 'cross' for every PUC on the path.",
                )
            pucs.append(puc)
            node = int(self.successors[node, int(state == "cross")])
        return Trace(port=-1 - node, pucs=tuple(pucs))

    def canonical_text(self) -> str:
        """Return a text that identifies the mesh: equal meshes have equal texts."""
        # Label and positions are left out: the same graph under another name is the same mesh.
        mate = ",".join(map(str, self.mate.tolist()))
        ports = ",".join(map(str, self.port_puc_port.tolist()))
        fibres = ",".join(map(str, self.fibre_ports))
        # Meshes of PUCs have no line for kinds, so that their hashes are those of older versions.
        kinds = "" if set(self.cell_kinds) <= {PUC} else f"kinds {','.join(self.cell_kinds)}\n"
        return f"lumion-mesh 1\nmate {mate}\nports {ports}\nfibres {fibres}\n{kinds}"

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the canonical text."""
        return hashlib.sha256(self.canonical_text().encode()).hexdigest()


def _next_waves(mesh: MeshTopology, states: Sequence[State]) -> list[int]:
    """Return the PUC-port that light enters next after each PUC-port, or ``-1 - port`` where light leaves."""
    crossed = np.repeat(np.array([state == "cross" for state in states], dtype=np.int64), 4)
    following: list[int] = mesh.successors[np.arange(4 * mesh.n_pucs), crossed].tolist()
    return following


def closed_rings(mesh: MeshTopology, states: Sequence[State]) -> tuple[tuple[int, ...], ...]:
    """Return the closed rings in which light would circulate, each as the list of PUC-ports that light enters.

    Every ring appears twice, once for each direction of rotation.
    """
    following = _next_waves(mesh, states)
    open_ended = bytearray(len(following))
    # Mark all waves that light from a port passes; the remaining waves can only form rings.
    for start in mesh.port_puc_port.tolist():
        node = start
        # A wave has one predecessor, so these paths never run into each other or into a ring.
        while node >= 0:
            open_ended[node] = 1
            node = following[node]
    rings: list[tuple[int, ...]] = []
    for start in range(len(following)):
        if open_ended[start]:
            continue
        ring, node = [], start
        while not open_ended[node]:
            open_ended[node] = 1
            ring.append(node)
            node = following[node]
        rings.append(tuple(ring))
    return tuple(rings)


@dataclass(frozen=True)
class MeshLayout:
    """A family of meshes of different sizes, or a single named mesh.

    Attributes:
        key: Key of the size in section ``mesh`` of a bench file; ``None`` for a layout of fixed size.
        size: Meaning of the size, such as ``cells per column``.
        build: Builds the mesh of a given size; raises ``ConfigError`` if the size is impossible.
        many: Whether the size is a list of numbers.
    """

    key: str | None
    size: str
    build: Callable[[Sequence[int]], MeshTopology]
    many: bool = True

    def accepts_count(self, count: int) -> bool:
        """Return whether a size of this layout can have this many numbers."""
        return count == 0 if self.key is None else self.many or count == 1


@dataclass(frozen=True)
class TopologyKind:
    """A mesh topology.

    Attributes:
        name: Name in bench files and documents.
        layouts: Layouts of this topology, by the first word of their labels.
        read: Builds the mesh of a document; raises ``ConfigError`` if the document is invalid.
    """

    name: str
    layouts: Mapping[str, MeshLayout]
    read: Callable[[Mapping[str, Any]], MeshTopology]
