"""A hierarchy of meshes for more accelerators than one mesh reaches: racks, spines and cores.

Every rack has a mesh with one fibre to each plane of spines. A spine joins the racks of a pod, and the cores of its
plane join the pods: a folded Clos network of meshes. A circuit crosses one mesh inside a rack, three inside a pod, and
five between pods. The network is rearrangeable: circuits with different modules always fit together. The fibres are
chosen from the top: the plane of every circuit first, then the core of every circuit of a plane, by halving the
circuits of each mesh (Euler partition, H. Gabow 1976) until each fibre has one. The same halving finds the paths in a
Benes switch, whose two halves are smaller Benes switches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError

MAX_PORTS = 128
"""Largest number of ports on one side of a mesh."""
_SEGMENT_BYTES = 700
"""Size of a segment in the journal of a bench: request, path of ten PUCs, last measurements (measured: 650 to 720)."""
_CURRENT_BYTES = 20
"""Size of a heater current in the journal."""
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class MeshHierarchy:
    """Racks, spines and cores for a number of accelerators with one duplex module each.

    Attributes:
        accelerators: Number of accelerators.
        per_rack: Accelerators of a rack, and fibres from a rack to the spines: a power of 2.
        radix: Ports on each side of a spine or core: a power of 2.

    Raises:
        ConfigError: A number is not a power of 2 or too large, or three levels do not reach all accelerators.
    """

    accelerators: int
    per_rack: int = 64
    radix: int = 64

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name, value, largest in (("per_rack", self.per_rack, MAX_PORTS // 2), ("radix", self.radix, MAX_PORTS)):
            if not (2 <= value <= largest and value & (value - 1) == 0):
                raise ConfigError(f"{name} is {value}", hint=f"Give a power of 2 from 2 to {largest}.")
        if not 2 <= self.accelerators <= self.max_accelerators:
            raise ConfigError(
                f"{self.accelerators} accelerators cannot be joined by racks of {self.per_rack} and meshes of "
                f"{self.radix} ports",
                hint=f"Three levels of meshes reach {self.max_accelerators:,}. Use larger racks or meshes.",
            )

    @property
    def max_accelerators(self) -> int:
        """Largest number of accelerators of three levels."""
        return self.per_rack * self.radix // 2 * self.radix

    @property
    def racks(self) -> int:
        """Number of racks."""
        return -(-self.accelerators // self.per_rack)

    @property
    def pods(self) -> int:
        """Number of pods (racks with common spines)."""
        return -(-self.racks // (self.radix // 2))

    @property
    def meshes(self) -> dict[str, int]:
        """Number of meshes of each level."""
        spines = 0 if self.racks == 1 else self.per_rack * self.pods
        return {"rack": self.racks, "spine": spines, "core": 0 if self.pods == 1 else self.per_rack * self.radix // 2}

    @property
    def ports(self) -> dict[str, int]:
        """Ports on each side of a mesh of each level."""
        return {"rack": 2 * self.per_rack, "spine": self.radix, "core": self.radix}

    @property
    def fibres(self) -> int:
        """Number of fibres between meshes; each carries light in one direction."""
        to_spines = 0 if self.racks == 1 else 2 * self.racks * self.per_rack
        return to_spines + (0 if self.pods == 1 else 2 * self.per_rack * self.pods * self.radix // 2)


@dataclass(frozen=True)
class HierarchyLevel:
    """One level of meshes.

    Attributes:
        name: ``rack``, ``spine`` or ``core``.
        meshes: Number of meshes.
        pucs: PUCs of each, as a Benes switch.
        circuits: Mean number of circuits through a mesh.
        most_circuits: Largest number of circuits through a mesh: so many fail together.
        share: ``most_circuits`` as a share of all circuits.
        route_s: CPU time to find the paths of a mesh as a Benes switch, by halving; median of the sample.
        state_bytes: Size of the state that a bench keeps for its circuits and heaters, in its journal.
    """

    name: str
    meshes: int
    pucs: int
    circuits: float
    most_circuits: int
    share: float
    route_s: float
    state_bytes: int


@dataclass(frozen=True)
class HierarchyResult:
    """Plan of random circuits in a hierarchy of meshes.

    Attributes:
        hierarchy: The hierarchy.
        circuits: Number of circuits.
        segments: Number of segments of all circuits together.
        choice_s: CPU time to choose all fibres.
        levels: The levels, racks first.
        spare_load: Largest share of busy accelerators for which the circuits of any spine or core fit on the others.
    """

    hierarchy: MeshHierarchy
    circuits: int
    segments: int
    choice_s: float
    levels: tuple[HierarchyLevel, ...]
    spare_load: float

    @property
    def route_s(self) -> float:
        """CPU time to find the paths of all meshes; every bench can find its own."""
        return sum(level.meshes * level.route_s for level in self.levels)

    @property
    def state_bytes(self) -> int:
        """Size of the state of all benches."""
        return sum(level.meshes * level.state_bytes for level in self.levels)


def plan_hierarchy(
    hierarchy: MeshHierarchy,
    load: float = 0.9,
    seed: int = 0,
    sample: int = 3,
    clock_s: Callable[[], float] = time.process_time,
) -> HierarchyResult:
    """Choose the fibres of random circuits, and find the paths in a sample of the meshes.

    Args:
        hierarchy: The meshes.
        load: Share of the accelerators that send to another one.
        seed: Random seed.
        sample: Number of meshes of each level whose paths are found.
        clock_s: Returns the time in seconds; by default the CPU time of this process.

    Raises:
        ConfigError: The load is not between 0 and 1.
    """
    if not 0.0 < load <= 1.0:
        raise ConfigError(f"the load is {load:g}", hint="Give a share of the accelerators, above 0 and at most 1.")
    rng = np.random.default_rng(seed)
    count = max(int(load * hierarchy.accelerators), 1)
    sources, targets = (rng.permutation(hierarchy.accelerators)[:count] for _ in range(2))
    begun_s = clock_s()
    choice = _FibreChoice(hierarchy, sources, targets)
    choice_s = clock_s() - begun_s
    levels = tuple(
        _level(hierarchy, name, choice.pairs(name), count, sample, rng, clock_s)
        for name, meshes in hierarchy.meshes.items()
        if meshes
    )
    segments = sum(len(choice.pairs(level.name)) for level in levels)
    return HierarchyResult(hierarchy, count, segments, choice_s, levels, 1.0 - 1.0 / hierarchy.per_rack)


class _FibreChoice:
    """Plane and core of every circuit."""

    def __init__(self, hierarchy: MeshHierarchy, sources: Integers, targets: Integers) -> None:
        self._hierarchy, per_rack = hierarchy, hierarchy.per_rack
        self._sources, self._targets = sources, targets
        self._racks = sources // per_rack, targets // per_rack
        self._pods = tuple(racks // (hierarchy.radix // 2) for racks in self._racks)
        self.plane = np.full(len(sources), -1)
        self.core = np.full(len(sources), -1)
        between_racks = np.flatnonzero(self._racks[0] != self._racks[1])
        self.plane[between_racks] = colours(self._racks[0][between_racks], self._racks[1][between_racks], per_rack)
        for plane in range(per_rack):
            between_pods = np.flatnonzero((self.plane == plane) & (self._pods[0] != self._pods[1]))
            ends = self._pods[0][between_pods], self._pods[1][between_pods]
            self.core[between_pods] = colours(*ends, hierarchy.radix // 2)

    def pairs(self, level: str) -> Integers:
        """Return mesh, input and output of every segment of a level, shape ``(n, 3)``."""
        per_rack, half, plane, core = self._hierarchy.per_rack, self._hierarchy.radix // 2, self.plane, self.core
        crossing, over_core = np.flatnonzero(plane >= 0), np.flatnonzero(core >= 0)
        if level == "core":
            rows = [(plane[over_core] * half + core[over_core], *(pods[over_core] for pods in self._pods))]
        elif level == "spine":
            inside = np.flatnonzero((plane >= 0) & (core < 0))
            (first, last), (first_pod, last_pod) = self._racks, self._pods
            spine = first_pod * per_rack + plane
            rows = [
                (spine[inside], first[inside] % half, last[inside] % half),
                (spine[over_core], first[over_core] % half, half + core[over_core]),
                ((last_pod * per_rack + plane)[over_core], half + core[over_core], last[over_core] % half),
            ]
        else:
            inside = np.flatnonzero(plane < 0)
            sent, received = self._sources % per_rack, self._targets % per_rack
            rows = [
                (self._racks[0][inside], sent[inside], received[inside]),
                (self._racks[0][crossing], sent[crossing], per_rack + plane[crossing]),
                (self._racks[1][crossing], per_rack + plane[crossing], received[crossing]),
            ]
        return np.concatenate([np.stack(columns, axis=1) for columns in rows])


def _level(
    hierarchy: MeshHierarchy,
    name: str,
    pairs: Integers,
    circuits: int,
    sample: int,
    rng: np.random.Generator,
    clock_s: Callable[[], float],
) -> HierarchyLevel:
    ports, meshes = hierarchy.ports[name], hierarchy.meshes[name]
    n_pucs = ports // 2 * (2 * ports.bit_length() - 3)  # a Benes switch of 2^k ports has 2 k - 1 columns
    users = np.bincount(pairs[:, 0], minlength=meshes)
    times_s = []
    for mesh in rng.permutation(np.flatnonzero(users))[:sample].tolist():
        own = pairs[pairs[:, 0] == mesh]
        begun_s = clock_s()
        benes_halves(own[:, 1], own[:, 2], ports)
        times_s.append(clock_s() - begun_s)
    mean, most = float(users.mean()), int(users.max())
    state_bytes = round(mean * _SEGMENT_BYTES + 2 * n_pucs * _CURRENT_BYTES)
    route_s = float(np.median(times_s)) if times_s else 0.0
    return HierarchyLevel(name, meshes, n_pucs, mean, most, most / circuits, route_s, state_bytes)


def benes_halves(inputs: Integers, outputs: Integers, ports: int) -> Integers:
    """Return the paths of circuits in a Benes switch: the inner switch that each passes in the middle column.

    Args:
        inputs: Input port of each circuit.
        outputs: Output port of each circuit.
        ports: Ports on each side: a power of 2.
    """
    middle = np.zeros(len(inputs), dtype=np.int64)
    if ports > 2 and len(inputs):
        is_upper = colours(inputs // 2, outputs // 2, 2).astype(np.bool_)
        for half in (is_upper, ~is_upper):
            middle[half] = benes_halves(inputs[half] // 2, outputs[half] // 2, ports // 2)
        middle += is_upper * (ports // 4)
    return middle


def colours(left: Integers, right: Integers, count: int) -> Integers:
    """Give each edge of a bipartite graph one of ``count`` colours, so that no two edges at a vertex share one.

    Args:
        left: Left vertex of each edge.
        right: Right vertex of each edge.
        count: Number of colours: a power of 2, and at least the largest number of edges at a vertex.
    """
    result = np.zeros(len(left), dtype=np.int64)
    groups = [np.arange(len(left))]
    while count > 1:
        count //= 2
        halves = []
        for edges in groups:
            forward = _halved(left[edges].tolist(), right[edges].tolist())
            result[edges[forward]] += count
            halves += [edges[forward], edges[~forward]]
        groups = [edges for edges in halves if len(edges)]
    return result


def _halved(left: Sequence[int], right: Sequence[int]) -> NDArray[np.bool_]:
    """Choose half of the edges, so that every vertex keeps half of its edges, rounded up or down.

    The edges are traversed along trails; those that are traversed from left to right are chosen.
    """
    n_left = max(left, default=-1) + 1
    at_vertex: list[list[int]] = [[] for _ in range(n_left + max(right, default=-1) + 1)]
    for edge, (first, last) in enumerate(zip(left, right, strict=True)):
        at_vertex[first].append(edge)
        at_vertex[n_left + last].append(edge)
    chosen, is_used = np.zeros(len(left), dtype=np.bool_), bytearray(len(left))
    # A trail that begins at a vertex with an odd number of edges ends at another one; the other trails are closed.
    odd = [vertex for vertex, edges in enumerate(at_vertex) if len(edges) % 2]
    for start in (*odd, *range(len(at_vertex))):
        vertex = start
        while at_vertex[vertex]:
            edge = at_vertex[vertex].pop()
            if is_used[edge]:
                continue
            is_used[edge] = 1
            chosen[edge] = is_forward = vertex < n_left
            vertex = n_left + right[edge] if is_forward else left[edge]
    return chosen
