"""What routing hands out, and the check that nothing leaves unproven."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError, VerifyError
from lumion_hw.mesh.layout.topology import EXIT_XOR, MeshTopology, State

_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Path:
    """One routed circuit.

    Attributes:
        source: Port where light enters.
        target: Port where it leaves.
        pucs: PUCs passed, in order.
        loss_db: Sum of the PUC losses.
    """

    source: int
    target: int
    pucs: tuple[int, ...]
    loss_db: float

    @property
    def hops(self) -> int:
        """Number of PUCs passed."""
        return len(self.pucs)


@dataclass(frozen=True)
class Routing:
    """A conflict-free set of circuits, traced through the states it sets.

    Attributes:
        states: State of every PUC used, standing circuits included; all others are free.
        paths: One path per requested pair, in the order of the request.
        standing: The circuits that were there before, in the order given, where they now run.
        moved: Which of them run elsewhere than before, as indices into ``active``.
        cost: What the objective charges for everything, in its unit.
        bound: No routing can cost less; proven.
        method: ``"negotiation"`` or ``"cp-sat"``: who found it.
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
        """Sum of the hops of all requested paths."""
        return sum(path.hops for path in self.paths)

    @property
    def gap(self) -> float:
        """By how much of the bound the cost is above it, at the most; 0 where it is proven that nothing is cheaper."""
        return self.cost / self.bound - 1.0 if self.bound > 0.0 and self.outcome == "feasible" else 0.0

    @property
    def outcome(self) -> Literal["optimal", "feasible"]:
        """``"optimal"`` if the cost meets the proven bound, else ``"feasible"``; other outcomes are raised."""
        return "optimal" if self.cost <= self.bound + _TOLERANCE * max(1.0, abs(self.cost)) else "feasible"


@dataclass(frozen=True)
class WavePath:
    """One circuit as the directed waves it takes.

    Attributes:
        waves: PUC-port at which each PUC is entered, in order.
        states: State in which each PUC is passed.
    """

    waves: tuple[int, ...]
    states: tuple[State, ...]

    @property
    def pucs(self) -> tuple[int, ...]:
        """PUCs passed, in order."""
        return tuple(wave // 4 for wave in self.waves)


def to_wave_path(mesh: MeshTopology, path: Path) -> WavePath:
    """Return the waves and states of a path, worked out from its ports and PUCs.

    Raises:
        ConfigError: Light cannot take these PUCs in this order between these ports.
    """
    waves: list[int] = []
    states: list[State] = []
    node = int(mesh.port_puc_port[path.source])
    for index, puc in enumerate(path.pucs):
        wanted = path.pucs[index + 1] if index + 1 < len(path.pucs) else None
        options = (
            {} if node < 0 or node // 4 != puc else {s: int(mesh.mate[node ^ flip]) for s, flip in EXIT_XOR.items()}
        )
        exits = {s: int(mesh.port_at[node ^ EXIT_XOR[s]]) for s in options}
        fits = [s for s, n in options.items() if (exits[s] == path.target if wanted is None else n // 4 == wanted)]
        if not fits:
            raise ConfigError(
                f"no light goes from port {path.source} to port {path.target} over PUCs {list(path.pucs)}: "
                f"it fails at PUC {puc}",
                hint="Give paths as a routing of this mesh returned them.",
            )
        states.append("bar" if fits[0] == "bar" else "cross")
        waves.append(node)
        node = options[fits[0]]
    return WavePath(tuple(waves), tuple(states))


def states_for_paths(mesh: MeshTopology, paths: Iterable[Path]) -> dict[int, State]:
    """Return the states that a set of paths needs.

    Raises:
        ConfigError: A path is none, or two paths need one PUC in different states.
    """
    states: dict[int, State] = {}
    for path in paths:
        way = to_wave_path(mesh, path)
        for puc, state in zip(way.pucs, way.states, strict=True):
            if states.setdefault(puc, state) != state:
                raise ConfigError(f"paths need PUC {puc} in bar and in cross", hint="They cannot stand together.")
    return states


def traced_paths(
    mesh: MeshTopology,
    pairs: Sequence[tuple[int, int]],
    states: Mapping[int, State],
    loss_db: NDArray[np.float64],
    *,
    counter_propagation: bool = False,
) -> tuple[Path, ...]:
    """Trace circuits through states, independently of whoever found them.

    Raises:
        VerifyError: Light ends elsewhere, or runs against other light in one joint.
    """
    paths: list[Path] = []
    entered: set[int] = set()
    for source, target in pairs:
        trace = mesh.trace(source, states)
        if trace.port != target:
            raise VerifyError(
                f"the route from port {source} to port {target} does not hold when traced",
                wrote=target,
                read=trace.port,
            )
        paths.append(Path(source, target, trace.pucs, float(loss_db[list(trace.pucs)].sum())))
        node = int(mesh.port_puc_port[source])
        for puc in trace.pucs:
            entered.add(node)
            node = int(mesh.mate[node ^ EXIT_XOR[states[puc]]])
    if not counter_propagation:
        # The mate of a wave's PUC-port is where light comes in that went through the same joint the other way.
        against = sorted({wave // 4 for wave in entered if int(mesh.mate[wave]) in entered})
        if against:
            raise VerifyError(
                "light runs against other light in a joint", wrote="no such joint", read=f"PUCs {against}"
            )
    return tuple(paths)
