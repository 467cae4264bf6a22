"""Routing for little crosstalk, reckoned from the solved field and not from the graph.

Where circuit i enters a PUC with amplitude a, the share that takes the wrong output reaches the port of circuit j with
the amplitude that light injected at that port would have, backwards, at that very output: the mesh is reciprocal. So
two field solutions, one from all sources and one from all targets, tell every PUC's part in every circuit's crosstalk.
PUCs with a large part grow dearer, the circuits are routed again, and the darkest routing seen is kept.

For the budget of circuits, which is to say beforehand what a circuit leaks into the receivers of every other one; path
set-up (:mod:`lumion_hw.circuits`) does not ask for it yet, scripts may.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError, RoutingError
from lumion_hw.mesh.layout.topology import EXIT_XOR, MeshTopology, State
from lumion_hw.mesh.routing.parking import park_unused_pucs
from lumion_hw.mesh.routing.request import STATES, RouteRequest, opposite_state
from lumion_hw.mesh.routing.result import Path, Routing, to_wave_path
from lumion_hw.mesh.routing.router import route
from lumion_hw.mesh.waves.cell import UnitCells
from lumion_hw.mesh.waves.scattering import Solver

_DARK_DB = -200.0
"""Crosstalk below this is reported as this: nothing at all has no decibels."""


@dataclass(frozen=True)
class SolvedField:
    """The light in a mesh all of whose PUCs are in bar or cross, by the scattering solver.

    Attributes:
        solver: Solver of the mesh.
        cells_of: Returns the calibrated unit cells when every PUC is in the given state.
        frequency_hz: Optical frequency.
    """

    solver: Solver
    cells_of: Callable[[Mapping[int, State]], UnitCells]
    frequency_hz: float

    def fields_at_ports(self, states: Mapping[int, State], inputs: Sequence[int]) -> NDArray[np.complex128]:
        """Return the field leaving at every port for unit light at each input, shape ``(n_ports, len(inputs))``."""
        return self.solver.solve(self.cells_of(states), self.frequency_hz, inputs)

    def entering(self, states: Mapping[int, State], inputs: Sequence[int]) -> NDArray[np.complex128]:
        """Return the field entering every PUC-port for unit light at each input, ``(4 n_pucs, len(inputs))``."""
        return self.solver.waves(self.cells_of(states), self.frequency_hz, inputs)

    def leak(self, states: Mapping[int, State]) -> NDArray[np.float64]:
        """Return the share of power each PUC sends to its wrong output, shape ``(n_pucs,)``."""
        power = np.abs(self.cells_of(states).transfer(self.frequency_hz)) ** 2
        crossed = np.array([states[puc] == "cross" for puc in range(len(power))])
        # In cross, what keeps its rail went wrong; in bar, what changed it.
        wrong: NDArray[np.float64] = np.where(crossed, power[:, 0, 0], power[:, 0, 1])
        return wrong


@dataclass(frozen=True)
class Crosstalk:
    """Light of other circuits at the end of one, relative to its own.

    Attributes:
        worst_db: The strongest single other circuit.
        aggressor: Index of that circuit, or ``None`` if it is alone.
        summed_db: All other circuits, powers added.
    """

    worst_db: float
    aggressor: int | None
    summed_db: float


@dataclass(frozen=True)
class LowCrosstalkRouting:
    """The darkest routing found.

    Attributes:
        routing: The circuits.
        states: State of every PUC, parked ones included.
        crosstalk: One per circuit.
        tried: Summed crosstalk in dB of the worst circuit of each routing tried.
    """

    routing: Routing
    states: dict[int, State]
    crosstalk: tuple[Crosstalk, ...]
    tried: tuple[float, ...]


def crosstalk(field: SolvedField, states: Mapping[int, State], paths: Sequence[Path]) -> tuple[Crosstalk, ...]:
    """Return the crosstalk at the end of every circuit.

    Args:
        field: The light in the mesh, as calibrated.
        states: State of every PUC.
        paths: The circuits.
    """
    arriving = (
        np.abs(field.fields_at_ports(states, [path.source for path in paths])[[path.target for path in paths]]) ** 2
    )
    return tuple(_crosstalk(row, index) for index, row in enumerate(arriving))


def _crosstalk(arriving: NDArray[np.float64], index: int) -> Crosstalk:
    """Return the crosstalk of one circuit from the powers of all of them at its end."""
    others = np.delete(arriving, index)
    if not len(others):
        return Crosstalk(_DARK_DB, None, _DARK_DB)
    worst = int(np.argmax(others))
    return Crosstalk(
        _db(others[worst], arriving[index]), worst + int(worst >= index), _db(float(others.sum()), arriving[index])
    )


def _db(power: float, signal: float) -> float:
    """Return a ratio in dB, ``_DARK_DB`` at least."""
    ratio = power / signal if signal > 0.0 else np.inf if power > 0.0 else 0.0
    return float(10.0 * np.log10(max(ratio, 10.0 ** (_DARK_DB / 10.0))))


def crosstalk_contributions(
    mesh: MeshTopology, field: SolvedField, states: Mapping[int, State], paths: Sequence[Path]
) -> NDArray[np.float64]:
    """Return each PUC's part in the crosstalk, shape ``(n_pucs,)``: power over all circuits' ends, to first order.

    Args:
        mesh: The mesh.
        field: The light in the mesh, as calibrated.
        states: State of every PUC.
        paths: The circuits.
    """
    forward = np.abs(field.entering(states, [path.source for path in paths])) ** 2
    backward = np.abs(field.entering(states, [path.target for path in paths])) ** 2
    leak = field.leak(states)
    parts = np.zeros(mesh.n_pucs)
    for index, path in enumerate(paths):
        reach = backward.sum(axis=1) - backward[:, index]  # to any other circuit's end
        way = to_wave_path(mesh, path)
        for wave, state in zip(way.waves, way.states, strict=True):
            # What enters, the share that leaves wrongly, and how much from there reaches another circuit's end: that is
            # the light that end would send backwards to this place.
            parts[wave // 4] += forward[wave, index] * leak[wave // 4] * reach[wave ^ EXIT_XOR[opposite_state(state)]]
    return parts


def route_low_crosstalk(
    mesh: MeshTopology,
    request: RouteRequest,
    field: SolvedField,
    *,
    rounds: int = 6,
    price: float = 1.0,
) -> LowCrosstalkRouting:
    """Route circuits so that the worst summed crosstalk is small; unused PUCs are parked.

    Args:
        mesh: The mesh.
        request: The circuits; what it says may not be used is not parked in either.
        field: The light in the mesh, as calibrated.
        rounds: Routings tried; the first one is that of the plain objective.
        price: What the PUC with the largest part in the crosstalk is charged more for, each round, in the unit of the
            objective; the others in proportion.

    Raises:
        ConfigError: No rounds, or as for ``route``.
        NoPathError: As for ``route``.
        UndecidedError: As for ``route``.
    """
    if rounds < 1:
        raise ConfigError(f"{rounds} rounds of routing for little crosstalk", hint="Give at least one.")
    surcharge = np.zeros((mesh.n_pucs, 2))
    best: LowCrosstalkRouting | None = None
    tried: list[float] = []
    for _ in range(rounds):
        try:
            routing = route(mesh, replace(request, surcharge=np.asarray(request.surcharge) + surcharge))
        except RoutingError:
            if best is None:
                raise
            break
        parked = park_unused_pucs(mesh, routing.states, unusable=request.unusable).states
        full = {puc: parked.get(puc, "cross") for puc in range(mesh.n_pucs)}
        circuits = (*routing.paths, *routing.active)
        found = crosstalk(field, full, circuits)
        tried.append(max((each.summed_db for each in found), default=_DARK_DB))
        if best is None or tried[-1] < min(tried[:-1]):
            best = LowCrosstalkRouting(routing, full, found, ())
        parts = crosstalk_contributions(mesh, field, full, circuits)
        if not parts.any():
            break
        for puc in np.flatnonzero(parts).tolist():
            surcharge[puc, STATES.index(full[puc])] += price * parts[puc] / parts.max()
    if best is None:
        raise ConfigError("no routing was tried")
    return LowCrosstalkRouting(best.routing, best.states, best.crosstalk, tuple(tried))
