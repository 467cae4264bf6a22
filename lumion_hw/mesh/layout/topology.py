"""The mesh as a graph, whatever its topology: PUCs, joints, ports, directed waves, and where they lie.

A programmable unit cell (PUC) has two ends, A and B, and two rails, L and R of a traveller from A to B. PUC-port
``p = 4 e + k`` with ``k``: 0 (A, L), 1 (A, R), 2 (B, L), 3 (B, R). The wave that enters PUC ``e`` at PUC-port ``p``
leaves at ``p ^ 2`` in the bar state (it keeps its rail) and at ``p ^ 3`` in the cross state, never back where it came
from. A joint leads the light of one PUC-port into another one; a PUC-port without a joint is a port of the mesh.

A topology says which PUC-ports are joined, which are ports, and where they lie; all else follows from that.
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

State = Literal["bar", "cross"]
"""State of a PUC that routes light: ``bar`` keeps the rail, ``cross`` changes it."""

EXIT_XOR: dict[str, int] = {"bar": 2, "cross": 3}
"""``p ^ EXIT_XOR[state]`` is the PUC-port at which a wave that entered at ``p`` leaves."""
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
class MeshTopology(ABC):
    """An immutable mesh of any topology.

    Attributes:
        label: How the layout is written in words, such as ``columns 2 3 2``.
        mate: Shape ``(4 n_pucs,)``; the PUC-port joined to each PUC-port, or -1 at a port.
        port_puc_port: Shape ``(n_ports,)``; PUC-port behind each port.
        fibre_ports: Ports that have a fibre and a monitor photodiode.
    """

    topology: ClassVar[str]
    """Name of the topology, as in bench files and documents."""

    label: str
    mate: NDArray[np.int64]
    port_puc_port: NDArray[np.int64]
    fibre_ports: tuple[int, ...]

    @property
    @abstractmethod
    def corners(self) -> NDArray[np.float64]:
        """Shape ``(4 n_pucs, 2)``; where the waveguide at each PUC-port meets the next, in PUC lengths, y up.

        Both PUC-ports of a joint have one corner, unless the joint is a waveguide of some length between its two.
        """

    @property
    def port_positions(self) -> NDArray[np.float64]:
        """Shape ``(n_ports, 2)``; where each port lies, in PUC lengths; ports may share a place."""
        places: NDArray[np.float64] = self.corners[self.port_puc_port]
        return places

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the mesh as plain numbers, strings and lists, ready for JSON."""

    def __repr__(self) -> str:
        """Return one line; the arrays are attributes."""
        return f"<{type(self).__name__} {self.label}: {self.n_pucs} PUCs, {self.n_ports} ports>"

    def __post_init__(self) -> None:
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
        leaving = np.arange(4 * self.n_pucs)[:, None] ^ np.array(list(EXIT_XOR.values()))
        following: NDArray[np.int64] = np.where(self.mate[leaving] >= 0, self.mate[leaving], -1 - self.port_at[leaving])
        return following

    @cached_property
    def faces(self) -> tuple[tuple[int, ...], ...]:
        """PUCs round each cell, one tuple per cell, in the order all-bar light takes with the cell at its right hand.

        Each begins at its smallest PUC; the cells are in ascending order of those. A feed-forward mesh has none.
        """
        # A wave on the rail at its right hand (2nd of end A, 1st of end B) goes round the cell at its right.
        orbits = closed_rings(self, ["bar"] * self.n_pucs)
        rounds = [tuple(wave // 4 for wave in orbit) for orbit in orbits if orbit[0] % 4 in (1, 2)]
        rotated = [each[(first := each.index(min(each))) :] + each[:first] for each in rounds]
        return tuple(sorted(rotated))

    @cached_property
    def hops_to_port(self) -> NDArray[np.int64]:
        """Shape ``(n_ports, 4 n_pucs)``; fewest PUCs from entering each PUC-port to leaving at each port.

        ``8 n_pucs`` (further than any walk) where there is no way; a walk back to a wave's own port is counted too.
        """
        never = 8 * self.n_pucs
        # Columns after the waves stand for the ports; -1 - port picks them from the end.
        reached = np.full((self.n_ports, 4 * self.n_pucs + self.n_ports), never, dtype=np.int64)
        reached[np.arange(self.n_ports), -1 - np.arange(self.n_ports)] = 0
        waves = reached[:, : 4 * self.n_pucs]
        # All ports at once, one more PUC per step.
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
        """Shape ``(n_ports, n_ports)``, symmetric; fewest PUCs between two ports, 0 from a port to itself."""
        hops = self.hops_to_port[:, self.port_puc_port].T.copy()
        np.fill_diagonal(hops, 0)
        hops.setflags(write=False)
        return hops

    def reaches(self, source: int, target: int) -> bool:
        """Return whether light from one port can leave at another, in some states of the PUCs."""
        return bool(self.hops_to_port[target, self.port_puc_port[source]] < 8 * self.n_pucs)

    @cached_property
    def joints(self) -> NDArray[np.int64]:
        """Shape ``(n_joints, 2)``; the two PUC-ports of each waveguide joint, smaller first, in ascending order."""
        first = np.flatnonzero(self.mate > np.arange(4 * self.n_pucs))
        return np.stack([first, self.mate[first]], axis=1)

    @cached_property
    def end_positions(self) -> NDArray[np.float64]:
        """Shape ``(n_pucs, 2, 2)``; end A and end B of each PUC, midway between the corners of their rails."""
        places: NDArray[np.float64] = self.corners.reshape(-1, 2, 2, 2).mean(axis=2)
        return places

    @cached_property
    def puc_centres(self) -> NDArray[np.float64]:
        """Shape ``(n_pucs, 2)``; PUC centres in PUC lengths."""
        centres: NDArray[np.float64] = self.end_positions.mean(axis=1)
        return centres

    @cached_property
    def joint_positions(self) -> NDArray[np.float64]:
        """Shape ``(n_joints, 2)``; middles of the joints in PUC lengths."""
        places: NDArray[np.float64] = self.corners[self.joints].mean(axis=1)
        return places

    def port_parity(self, source: int, target: int) -> int | None:
        """Return the parity (0 even, 1 odd) of the number of PUCs on every path between two ports.

        ``None`` where paths of both parities may exist, or none at all.
        """
        component, colour, two_coloured = self._colouring
        start, end = int(self.port_puc_port[source]), 4 * self.n_pucs + target
        if component[start] != component[end] or not two_coloured[component[start]]:
            return None
        return int(colour[start] ^ colour[end])

    @cached_property
    def _colouring(self) -> tuple[NDArray[np.int64], NDArray[np.int64], tuple[bool, ...]]:
        """Waves and ports coloured with 0 and 1 so that every PUC passed flips the colour, as far as that goes.

        On a bipartite lattice (honeycomb, squares) it goes everywhere, and the parity of every path is known
        beforehand; where waveguides pass PUCs by, paths of both parities join the same ports, and it does not.

        Shape ``(4 n_pucs + n_ports,)`` each: the connected part every wave or port (as the end of a path) belongs to,
        and its colour; then whether each part could be coloured.
        """
        size = 4 * self.n_pucs
        neighbours: list[list[int]] = [[] for _ in range(size + self.n_ports)]
        for wave, following in enumerate(np.where(self.successors < 0, size - 1 - self.successors, self.successors)):
            for node in following.tolist():
                neighbours[wave].append(node)
                neighbours[node].append(wave)
        part = np.full(len(neighbours), -1, dtype=np.int64)
        colour = np.zeros(len(neighbours), dtype=np.int64)
        fits: list[bool] = []
        for start in range(len(neighbours)):
            if part[start] >= 0:
                continue
            part[start] = len(fits)
            fits.append(True)
            todo = [start]
            while todo:
                node = todo.pop()
                for other in neighbours[node]:
                    if part[other] < 0:
                        part[other], colour[other] = part[start], colour[node] ^ 1
                        todo.append(other)
                    elif colour[other] == colour[node]:
                        fits[part[start]] = False
        return part, colour, tuple(fits)

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
            if state not in EXIT_XOR:
                raise ConfigError(
                    f"light from port {port} reaches PUC {puc}, whose state is {state!r}",
                    hint="Give 'bar' or 'cross' for every PUC on the way.",
                )
            pucs.append(puc)
            leaving = node ^ EXIT_XOR[state]
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


def _followers(mesh: MeshTopology, states: Sequence[State]) -> list[int]:
    """Return the wave that follows each wave in a full setting, or ``-1 - port`` where it leaves.

    Args:
        mesh: The mesh.
        states: State of every PUC.
    """
    crossed = np.repeat(np.array([state == "cross" for state in states], dtype=np.int64), 4)
    following: list[int] = mesh.successors[np.arange(4 * mesh.n_pucs), crossed].tolist()
    return following


def closed_rings(mesh: MeshTopology, states: Sequence[State]) -> tuple[tuple[int, ...], ...]:
    """Return the rings in which light would go round for ever, as the waves passed in order.

    Every ring comes twice, once for each sense of rotation.

    Args:
        mesh: The mesh.
        states: State of every PUC.
    """
    following = _followers(mesh, states)
    open_ended = bytearray(len(following))
    # First whatever light from a port passes: what is left can only go round.
    for start in mesh.port_puc_port.tolist():
        node = start
        while node >= 0:
            open_ended[node] = 1
            node = following[node]
    orbits: list[tuple[int, ...]] = []
    for start in range(len(following)):
        if open_ended[start]:
            continue
        orbit, node = [], start
        while not open_ended[node]:
            open_ended[node] = 1
            orbit.append(node)
            node = following[node]
        orbits.append(tuple(orbit))
    return tuple(orbits)


@dataclass(frozen=True)
class MeshLayout:
    """A family of meshes that differ in size, or one mesh that has a name.

    Attributes:
        key: Key of its size in the section ``mesh`` of a bench file; ``None`` if it has one size only.
        size: What the numbers of its size are, in words.
        build: Makes the mesh of a size; raises ``ConfigError`` if there is none.
        many: Whether its size is any number of numbers; else it is one.
    """

    key: str | None
    size: str
    build: Callable[[Sequence[int]], MeshTopology]
    many: bool = True

    def fits(self, count: int) -> bool:
        """Return whether so many numbers can be a size."""
        return count == 0 if self.key is None else self.many or count == 1


@dataclass(frozen=True)
class TopologyKind:
    """A topology as the table of topologies holds it.

    Attributes:
        name: Its name in bench files and documents.
        layouts: Its layouts by the word that begins their labels.
        read: Makes the mesh of a document; raises ``ConfigError`` if it holds none.
    """

    name: str
    layouts: Mapping[str, MeshLayout]
    read: Callable[[Mapping[str, Any]], MeshTopology]
