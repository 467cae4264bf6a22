"""Routing results, checked by tracing the light through the PUC states."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError, VerifyError
from lumion_hw.mesh.layout.topology import EXIT_XOR, MeshTopology, State

# CP-SAT rounds costs to a millionth of the largest one, so its bounds are exact only to about this fraction.
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Path:
    """One routed circuit.

    Attributes:
        source: Port where light enters.
        target: Port where light leaves.
        pucs: PUCs on the path, in order.
        loss_db: Sum of the PUC losses.
    """

    source: int
    target: int
    pucs: tuple[int, ...]
    loss_db: float

    @property
    def hops(self) -> int:
        """Number of PUCs on the path."""
        return len(self.pucs)


@dataclass(frozen=True)
class Routing:
    """A set of circuits without conflicts.

    Attributes:
        states: State of every PUC in use, including those of active circuits.
        paths: One path per requested pair, in the order of the request.
        active: Paths of the circuits that were already active, in the order of the request.
        moved: Indices into ``active`` of the circuits that have a new path.
        cost: Total cost, in the unit of the objective.
        bound: Proven lower bound of the cost of any routing.
        method: Method that found the routing, ``"negotiation"`` or ``"cp-sat"``.
    """

    states: dict[int, State]
    paths: tuple[Path, ...]
    active: tuple[Path, ...] = ()
    moved: tuple[int, ...] = ()
    cost: float = 0.0
    bound: float = 0.0
    method: str = "negotiation"

    @property
    def total_hops(self) -> int:
        """Total number of hops of all requested paths."""
        return sum(path.hops for path in self.paths)

    @property
    def gap(self) -> float:
        """Largest possible excess of the cost over the optimum, as a fraction; 0 for a proven optimum."""
        return self.cost / self.bound - 1.0 if self.bound > 0.0 and self.outcome == "feasible" else 0.0

    @property
    def outcome(self) -> Literal["optimal", "feasible"]:
        """``"optimal"`` if the cost is proven to be the lowest, else ``"feasible"``."""
        return "optimal" if self.cost <= self.bound + _TOLERANCE * max(1.0, abs(self.cost)) else "feasible"


@dataclass(frozen=True)
class WavePath:
    """Path of one circuit as PUC-ports and states.

    Attributes:
        waves: PUC-port where light enters each PUC, in order.
        states: State of each PUC on the path.
    """

    waves: tuple[int, ...]
    states: tuple[State, ...]

    @property
    def pucs(self) -> tuple[int, ...]:
        """PUCs on the path, in order."""
        return tuple(wave // 4 for wave in self.waves)


def to_wave_path(mesh: MeshTopology, path: Path) -> WavePath:
    """Return the PUC-ports that light enters on a path, and the PUC states.

    Raises:
        ConfigError: Light cannot pass these PUCs in this order between these ports.
    """
    waves: list[int] = []
    states: list[State] = []
    node = int(mesh.port_puc_port[path.source])
    for index, puc in enumerate(path.pucs):
        next_puc = path.pucs[index + 1] if index + 1 < len(path.pucs) else None
        # Which state a path needs follows from where it has to go next.
        options = (
            {} if node < 0 or node // 4 != puc else {s: int(mesh.mate[node ^ flip]) for s, flip in EXIT_XOR.items()}
        )
        exits = {s: int(mesh.port_at[node ^ EXIT_XOR[s]]) for s in options}
        fits = [s for s, n in options.items() if (exits[s] == path.target if next_puc is None else n // 4 == next_puc)]
        if not fits:
            raise ConfigError(
                f"light cannot go from port {path.source} to port {path.target} through PUCs {list(path.pucs)}: "
                f"the path breaks at PUC {puc}",
                hint="Give paths that a routing of this mesh returned.",
            )
        states.append("bar" if fits[0] == "bar" else "cross")
        waves.append(node)
        node = options[fits[0]]
    return WavePath(tuple(waves), tuple(states))


def states_for_paths(mesh: MeshTopology, paths: Iterable[Path]) -> dict[int, State]:
    """Return the PUC states that a set of paths needs.

    Raises:
        ConfigError: A path is impossible, or two paths need one PUC in different states.
    """
    states: dict[int, State] = {}
    for path in paths:
        wave_path = to_wave_path(mesh, path)
        for puc, state in zip(wave_path.pucs, wave_path.states, strict=True):
            if states.setdefault(puc, state) != state:
                raise ConfigError(
                    f"the paths need PUC {puc} both in bar and in cross",
                    hint="Remove one of the paths through this PUC.",
                )
    return states


def traced_paths(
    mesh: MeshTopology,
    pairs: Sequence[tuple[int, int]],
    states: Mapping[int, State],
    loss_db: NDArray[np.float64],
    *,
    counter_propagation: bool = False,
) -> tuple[Path, ...]:
    """Trace circuits through the PUC states and return their paths.

    Raises:
        VerifyError: Light ends at another port, or meets other light in a waveguide.
    """
    paths: list[Path] = []
    entered: set[int] = set()
    for source, target in pairs:
        trace = mesh.trace(source, states)
        if trace.port != target:
            raise VerifyError(
                f"the route from port {source} does not end at port {target} when traced",
                wrote=target,
                read=trace.port,
            )
        paths.append(Path(source, target, trace.pucs, float(loss_db[list(trace.pucs)].sum())))
        node = int(mesh.port_puc_port[source])
        for puc in trace.pucs:
            entered.add(node)
            node = int(mesh.mate[node ^ EXIT_XOR[states[puc]]])
    if not counter_propagation:
        # Light that passes the same joint in the opposite direction enters at the mate of the wave's PUC-port.
        opposed = sorted({wave // 4 for wave in entered if int(mesh.mate[wave]) in entered})
        if opposed:
            raise VerifyError(
                "light of two circuits meets head-on in a joint", wrote="no such joint", read=f"PUCs {opposed}"
            )
    return tuple(paths)
