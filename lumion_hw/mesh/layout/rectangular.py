"""The rectangular mesh of Clements 2016: N waveguides from left to right, with N (N - 1) / 2 PUCs in N columns.

In column c a PUC connects waveguides r and r + 1 for every r with the parity of c. Light never turns back. Every port
on the left can reach every port on the right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.documents import check_graph, graph_entries, read_integers
from lumion_hw.mesh.layout.topology import MeshLayout, MeshTopology, TopologyKind

MAX_PORTS = 128
"""Largest number of ports on one side: about 8,000 PUCs."""

_MIN_PORTS = 3
"""Two ports would be a single coupler, not a mesh."""

_PITCH = 0.5
"""Distance of two waveguides in PUC lengths (assumption)."""


@dataclass(frozen=True, eq=False, repr=False)
class RectangularMesh(MeshTopology):
    """An immutable rectangular mesh: port r on the left and port N + r on the right are the ends of waveguide r.

    Every PUC has end A on the left. PUCs are numbered column by column, from top to bottom.

    Attributes:
        columns: Shape ``(n_pucs,)``; column of each PUC.
        rows: Shape ``(n_pucs,)``; upper waveguide of each PUC.
    """

    topology = "rectangular"

    columns: NDArray[np.int64]
    rows: NDArray[np.int64]

    @classmethod
    def from_ports(cls, ports: int) -> RectangularMesh:
        """Return the mesh with the given number of ports on each side, 3 to ``MAX_PORTS``.

        Raises:
            ConfigError: There are too few or too many ports.
        """
        if not _MIN_PORTS <= ports <= MAX_PORTS:
            raise ConfigError(
                f"cannot build a mesh with {ports} ports on each side", hint=f"Give {_MIN_PORTS} to {MAX_PORTS} ports."
            )
        positions = [(column, row) for column in range(ports) for row in range(column % 2, ports - 1, 2)]
        mate = np.full(4 * len(positions), -1, dtype=np.int64)
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        # PUCs come column by column, so the last one seen on a waveguide is the left neighbour.
        for puc, (_, row) in enumerate(positions):
            for rail, waveguide in enumerate((row, row + 1)):
                entering, leaving = 4 * puc + rail, 4 * puc + 2 + rail
                first.setdefault(waveguide, entering)
                if waveguide in last:
                    mate[last[waveguide]], mate[entering] = entering, last[waveguide]
                last[waveguide] = leaving
        open_ends = [ends[waveguide] for ends in (first, last) for waveguide in range(ports)]
        columns, rows = np.array(positions, dtype=np.int64).T.copy()
        label = f"rectangular {ports}"
        return cls(label, mate, np.array(open_ends, dtype=np.int64), tuple(range(2 * ports)), columns, rows)

    @property
    def n_waveguides(self) -> int:
        """Number N of waveguides; also the number of ports on each side."""
        return self.n_ports // 2

    @property
    def corners(self) -> NDArray[np.float64]:
        """Position of every PUC-port, shape ``(4 n_pucs, 2)``."""
        right, lower = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
        x = self.columns[:, None] + right
        y = -_PITCH * (self.rows[:, None] + lower)
        return np.stack([x, y], axis=2).reshape(-1, 2).astype(np.float64)

    @property
    def port_positions(self) -> NDArray[np.float64]:
        """Position of every port, shape ``(n_ports, 2)``."""
        port = np.arange(self.n_ports)
        x, y = port // self.n_waveguides * self.n_waveguides, -_PITCH * (port % self.n_waveguides)
        return np.stack([x, y], axis=1).astype(np.float64)

    def to_dict(self) -> dict[str, Any]:
        """Return the mesh as plain numbers, strings and lists, ready for JSON."""
        return graph_entries(self) | {"ports": self.n_waveguides}


def _layout(numbers: Sequence[int]) -> RectangularMesh:
    return RectangularMesh.from_ports(*numbers)


def _read(document: Mapping[str, Any]) -> RectangularMesh:
    mesh = RectangularMesh.from_ports(int(read_integers(document, "ports", columns=0)))
    check_graph(mesh, document)
    return mesh


RECTANGULAR = TopologyKind(
    RectangularMesh.topology,
    {"rectangular": MeshLayout("ports", "ports on each side", _layout, many=False)},
    _read,
)
