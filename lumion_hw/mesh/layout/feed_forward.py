"""Feed-forward meshes: light passes the cells from left to right and never turns back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.documents import check_graph, graph_entries, read_integers
from lumion_hw.mesh.layout.topology import MeshLayout, MeshTopology, TopologyKind

_PITCH = 0.5
"""Distance of two waveguides in cell lengths (assumption)."""


@dataclass(frozen=True)
class Placement:
    """A cell of a feed-forward mesh.

    Attributes:
        lower: Number of the lower waveguide; ``None`` if the cell has only one waveguide.
        column: Position from left to right, in cell lengths; by default directly behind the earlier cells on these
            waveguides.
        tracks: Vertical positions, counted from the top: upper and lower waveguide at end A, then at end B. By default
            the numbers of the waveguides.
    """

    kind: str
    upper: int
    lower: int | None
    column: int | None = None
    tracks: tuple[int, int, int, int] | None = None

    @property
    def placed(self) -> tuple[int, int, int, int]:
        """Vertical positions of both waveguides at end A, then at end B, counted from the top."""
        lower = self.upper + 1 if self.lower is None else self.lower
        return self.tracks or (self.upper, lower, self.upper, lower)


@dataclass(frozen=True)
class MeshDesign:
    """A family of feed-forward meshes.

    Attributes:
        name: Name of the topology in bench files.
        size: Meaning of the size, such as ``ports``.
        min_size: Smallest size.
        max_size: Largest size.
        cells: Returns the cells of a mesh of a given size, from left to right.
        inputs: Returns the waveguides with a fibre at their left end, in the order of the ports.
        outputs: Returns the waveguides with a fibre at their right end, in the order of the ports.
        is_dilated: Whether every cell carries at most one circuit.
    """

    name: str
    size: str
    min_size: int
    max_size: int
    cells: Callable[[int], Iterator[Placement]]
    inputs: Callable[[int], Sequence[int]] = range
    outputs: Callable[[int], Sequence[int]] = range
    is_dilated: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class FeedForwardMesh(MeshTopology):
    """An immutable feed-forward mesh of cells.

    Ports 0 to N - 1 are the inputs on the left, ports N to 2N - 1 the outputs on the right, from top to bottom. Ports
    with higher numbers have no fibre. Every cell has end A on the left.

    Attributes:
        size: Size of the mesh, such as the number N of inputs.
        columns: Shape ``(n_cells,)``; column of each cell.
        tracks: Shape ``(n_cells, 4)``; vertical position of every PUC-port, counted from the top.
    """

    topology: str  # type: ignore[misc]  # a field instead of a class variable: one class serves all designs
    size: int
    kinds: tuple[str, ...]
    columns: NDArray[np.int64]
    tracks: NDArray[np.int64]

    @classmethod
    def of(cls, design: MeshDesign, size: int) -> FeedForwardMesh:
        """Return the mesh of a given design and size.

        Raises:
            ConfigError: The design does not exist in this size.
        """
        if not design.min_size <= size <= design.max_size:
            raise ConfigError(
                f"cannot build a {design.name} mesh of size {size}",
                hint=f"Give {design.min_size} to {design.max_size} {design.size}.",
            )
        cells = list(design.cells(size))
        mate = np.full(4 * len(cells), -1, dtype=np.int64)
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        next_column: dict[int, int] = {}
        columns = np.zeros(len(cells), dtype=np.int64)
        for number, cell in enumerate(cells):
            waveguides = [cell.upper] if cell.lower is None else [cell.upper, cell.lower]
            # A cell needs a free column on all waveguides that it spans.
            span = range(min(waveguides), max(waveguides) + 1)
            free = max(next_column.get(waveguide, 0) for waveguide in span)
            columns[number] = free if cell.column is None else cell.column
            next_column |= dict.fromkeys(span, int(columns[number]) + 1)
            for rail, waveguide in enumerate(waveguides):
                entering, leaving = 4 * number + rail, 4 * number + 2 + rail
                first.setdefault(waveguide, entering)
                if waveguide in last:
                    mate[last[waveguide]], mate[entering] = entering, last[waveguide]
                last[waveguide] = leaving
        ports = [first[waveguide] for waveguide in design.inputs(size)]
        ports += [last[waveguide] for waveguide in design.outputs(size)]
        open_ports = sorted(set(np.flatnonzero(mate < 0).tolist()) - set(ports))
        return cls(
            label=f"{design.name} {size}",
            mate=mate,
            port_puc_port=np.array([*ports, *open_ports], dtype=np.int64),
            fibre_ports=tuple(range(len(ports))),
            topology=design.name,
            size=size,
            kinds=tuple(cell.kind for cell in cells),
            columns=columns,
            tracks=np.array([cell.placed for cell in cells], dtype=np.int64),
        )

    @property
    def cell_kinds(self) -> tuple[str, ...]:
        """Kind of every cell."""
        return self.kinds

    @property
    def corners(self) -> NDArray[np.float64]:
        """Position of every PUC-port, shape ``(4 n_pucs, 2)``."""
        x = self.columns[:, None] + np.array([0, 0, 1, 1])
        return np.stack([x, -_PITCH * self.tracks], axis=2).reshape(-1, 2).astype(np.float64)

    @property
    def is_dilated(self) -> bool:
        """Whether every cell carries at most one circuit."""
        return DESIGNS[self.topology].is_dilated

    def to_dict(self) -> dict[str, Any]:
        """Return the mesh as plain numbers, strings and lists, ready for JSON."""
        return graph_entries(self) | {"ports": self.size}


def _pairs(ports: int) -> Iterator[tuple[int, int]]:
    """Yield column and upper waveguide of every interferometer of a rectangular mesh."""
    for column in range(ports):
        for row in range(column % 2, ports - 1, 2):
            yield column, row


def _output_phases(ports: int) -> Iterator[Placement]:
    for row in range(0, ports - 1, 2):
        kind = "two-phases" if row + 1 < ports - 1 else "upper-phase"
        yield Placement(kind, row, row + 1)


# Clements et al. 2016, Optica 3, 1460.
def _clements(ports: int) -> Iterator[Placement]:
    for _, row in _pairs(ports):
        yield Placement("upper-phase", row, row + 1)
        yield Placement("upper-arm", row, row + 1)
    yield from _output_phases(ports)


# Reck et al. 1994, Phys. Rev. Lett. 73, 58.
def _reck(ports: int) -> Iterator[Placement]:
    for diagonal in range(1, ports):
        for row in range(diagonal - 1, -1, -1):
            yield Placement("upper-phase", row, row + 1)
            yield Placement("upper-arm", row, row + 1)
    yield from _output_phases(ports)


# Bell and Walmsley 2021, APL Photonics 6, 070804: with both arms heated, outer phases are needed at the edges only.
def _bell(ports: int) -> Iterator[Placement]:
    for column in range(ports):
        rows = range(column % 2, ports - 1, 2)
        for row in rows:
            yield Placement("two-arm", row, row + 1)
        for edge in sorted({0, ports - 1} - {*rows, *(row + 1 for row in rows)}):
            yield Placement("upper-phase", edge, None)
    for row in range(ports):
        yield Placement("upper-phase", row, None)


def _powers_of_two(ports: int, design: str) -> list[int]:
    """Return 1, 2, 4, …, half the number of ports.

    Raises:
        ConfigError: The number of ports is not a power of two.
    """
    if ports & (ports - 1):
        raise ConfigError(f"a {design} cannot have {ports} ports", hint="Give a power of two.")
    return [1 << bit for bit in range(ports.bit_length() - 1)]


def _paired_columns(waveguides: int, distances: Sequence[int]) -> Iterator[Placement]:
    """Yield columns of switches; the switches of each column join waveguides at the given distance."""
    for column, distance in enumerate(distances):
        paired = [upper for upper in range(waveguides) if not upper & distance]
        for row, upper in enumerate(paired):
            tracks = (2 * row, 2 * row + 1, 2 * row, 2 * row + 1)
            yield Placement("two-arm", upper, upper + distance, column, tracks)


def _benes(ports: int) -> Iterator[Placement]:
    """Yield the switches of a Benes network: columns that join waveguides 1, 2, 4, … apart, then … 4, 2, 1."""
    distances = _powers_of_two(ports, "Benes network")
    yield from _paired_columns(ports, [*distances, *distances[-2::-1]])


# Padmanabhan and Netravali 1987, IEEE Trans. Commun. 35, 1357: every switch carries the light of at most one circuit.
# Behind the first column a switch joins the waveguides of two inputs, only one of which uses this half of the network.
def _dilated_benes(ports: int) -> Iterator[Placement]:
    distances = _powers_of_two(ports, "dilated Benes network")
    yield from _paired_columns(2 * ports, [*distances, ports, *distances[-2::-1]])


# Spanke 1986, IEEE J. Quantum Electron. 22, 964.
def _spanke(ports: int) -> Iterator[Placement]:
    """Yield a tree of switches behind every input, and one in front of every output (switch and select).

    Waveguide ``ports * i + j`` connects the tree of input i with that of output j.
    """
    halves = _powers_of_two(ports, "Spanke network")

    def branches(place: int, half: int) -> tuple[int, int]:
        # A Gray code: light enters a switch on the rail next to the switch before, so that branches do not cross.
        codes = (number ^ number >> 1 ^ ports // 2 - 1 for number in (place, place + half))
        upper, lower = (code & -half for code in codes)
        return upper, lower

    for column, half in enumerate([*halves[::-1], *halves]):
        for first in range(0, ports * ports, 2 * half):
            tree, place = divmod(first, ports)
            upper, lower = branches(place, half)
            if column < len(halves):
                upper, lower = ports * tree + upper, ports * tree + lower
            else:
                upper, lower = ports * upper + tree, ports * lower + tree
            yield Placement("two-arm", upper, lower, column, (first + half - 1, first + half) * 2)


def _crossbar(ports: int) -> Iterator[Placement]:
    for row in range(ports):
        for column in range(ports):
            track = ports - 1 - row + column
            tracks = (track, track + 1, track + 1, track)
            yield Placement("two-arm", row, ports + column, row + column, tracks)


DESIGNS: Mapping[str, MeshDesign] = {
    design.name: design
    for design in (
        MeshDesign("clements", "ports on each side", 2, 64, _clements),
        MeshDesign("reck", "ports on each side", 2, 64, _reck),
        MeshDesign("bell", "ports on each side", 2, 64, _bell),
        MeshDesign("benes", "ports on each side", 4, 64, _benes),
        MeshDesign(
            "dilated-benes",
            "ports on each side",
            4,
            64,
            _dilated_benes,
            inputs=lambda ports: range(0, 2 * ports, 2),
            outputs=lambda ports: range(0, 2 * ports, 2),
            is_dilated=True,
        ),
        MeshDesign(
            "spanke",
            "ports on each side",
            2,
            16,
            _spanke,
            inputs=lambda ports: range(0, ports * ports, ports),
            is_dilated=True,
        ),
        MeshDesign("crossbar", "ports on each side", 2, 32, _crossbar, outputs=lambda ports: range(ports, 2 * ports)),
    )
}
"""All designs (families of feed-forward meshes), by name."""


def _topology_kind(design: MeshDesign) -> TopologyKind:
    def build(numbers: Sequence[int]) -> FeedForwardMesh:
        return FeedForwardMesh.of(design, *numbers)

    def read(document: Mapping[str, Any]) -> FeedForwardMesh:
        mesh = FeedForwardMesh.of(design, int(read_integers(document, "ports", columns=0)))
        check_graph(mesh, document)
        return mesh

    layout = MeshLayout("ports", design.size, build, many=False)
    return TopologyKind(design.name, {design.name: layout}, read)


FEED_FORWARD = tuple(map(_topology_kind, DESIGNS.values()))
"""The topologies of all designs."""
