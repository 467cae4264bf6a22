"""Routing with low crosstalk, calculated from the optical field.

The contribution of every PUC to the crosstalk is calculated from the field of all sources and, because the mesh is
reciprocal, the field of light injected backwards at all targets. PUCs with a large contribution get a surcharge, and
the circuits are routed again.
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

# Finite, because ideal couplers leak nothing and JSON has no infinity.
_MIN_CROSSTALK_DB = -200.0
"""Lowest crosstalk that is reported."""


@dataclass(frozen=True)
class SolvedField:
    """Optical field in a mesh with all PUCs in bar or cross, from the scattering solver.

    Attributes:
        cells_of: Returns the calibrated unit cells for given states of all PUCs.
    """

    solver: Solver
    cells_of: Callable[[Mapping[int, State]], UnitCells]
    frequency_hz: float

    def fields_at_ports(self, states: Mapping[int, State], inputs: Sequence[int]) -> NDArray[np.complex128]:
        """Return the field that leaves at every port for unit light at each input, shape ``(n_ports, len(inputs))``."""
        return self.solver.solve(self.cells_of(states), self.frequency_hz, inputs)

    def entering(self, states: Mapping[int, State], inputs: Sequence[int]) -> NDArray[np.complex128]:
        """Return the field that enters every PUC-port for unit light at each input.

        Shape ``(4 n_pucs, len(inputs))``.
        """
        return self.solver.waves(self.cells_of(states), self.frequency_hz, inputs)

    def leak(self, states: Mapping[int, State]) -> NDArray[np.float64]:
        """Return the fraction of power that each PUC sends to the wrong output, shape ``(n_pucs,)``."""
        power = np.abs(self.cells_of(states).transfer(self.frequency_hz)) ** 2
        crossed = np.array([states[puc] == "cross" for puc in range(len(power))])
        # In cross, light that stays on its rail is wrong; in bar, light that changes rail.
        stray: NDArray[np.float64] = np.where(crossed, power[:, 0, 0], power[:, 0, 1])
        return stray


@dataclass(frozen=True)
class Crosstalk:
    """Light of other circuits at the end of a circuit, relative to its own light.

    Attributes:
        worst_db: Crosstalk from the strongest other circuit.
        aggressor: Index of the strongest other circuit; ``None`` if there is no other circuit.
        summed_db: Crosstalk from all other circuits, powers added.
    """

    worst_db: float
    aggressor: int | None
    summed_db: float


@dataclass(frozen=True)
class LowCrosstalkRouting:
    """The routing with the lowest crosstalk found.

    Attributes:
        states: State of every PUC.
        tried: For each routing tried, the summed crosstalk of its worst circuit, in dB.
    """

    routing: Routing
    states: dict[int, State]
    crosstalk: tuple[Crosstalk, ...]
    tried: tuple[float, ...]


def crosstalk(field: SolvedField, states: Mapping[int, State], paths: Sequence[Path]) -> tuple[Crosstalk, ...]:
    """Return the light of other circuits at the end of every circuit, relative to its own light."""
    fields = field.fields_at_ports(states, [path.source for path in paths])
    arriving = np.abs(fields[[path.target for path in paths]]) ** 2
    return tuple(_crosstalk(row, index) for index, row in enumerate(arriving))


def _crosstalk(arriving: NDArray[np.float64], index: int) -> Crosstalk:
    other_light = np.delete(arriving, index)
    if not len(other_light):
        return Crosstalk(_MIN_CROSSTALK_DB, None, _MIN_CROSSTALK_DB)
    worst = int(np.argmax(other_light))
    return Crosstalk(
        _db(other_light[worst], arriving[index]),
        worst + int(worst >= index),
        _db(float(other_light.sum()), arriving[index]),
    )


def _db(power: float, signal: float) -> float:
    ratio = power / signal if signal > 0.0 else np.inf if power > 0.0 else 0.0
    return float(10.0 * np.log10(max(ratio, 10.0 ** (_MIN_CROSSTALK_DB / 10.0))))


def crosstalk_contributions(
    mesh: MeshTopology, field: SolvedField, states: Mapping[int, State], paths: Sequence[Path]
) -> NDArray[np.float64]:
    """Return the contribution of each PUC to the crosstalk, as power at all circuit ends; shape ``(n_pucs,)``."""
    forward = np.abs(field.entering(states, [path.source for path in paths])) ** 2
    backward = np.abs(field.entering(states, [path.target for path in paths])) ** 2
    leak = field.leak(states)
    contributions = np.zeros(mesh.n_pucs)
    for index, path in enumerate(paths):
        reach = backward.sum(axis=1) - backward[:, index]  # to any other circuit's end
        wave_path = to_wave_path(mesh, path)
        for wave, state in zip(wave_path.waves, wave_path.states, strict=True):
            # Power that enters, times the leaked fraction, times the fraction of it that reaches another circuit's end.
            # By reciprocity, the last factor is the light that this end would send backwards to this place.
            contributions[wave // 4] += (
                forward[wave, index] * leak[wave // 4] * reach[wave ^ EXIT_XOR[opposite_state(state)]]
            )
    return contributions


def route_low_crosstalk(
    mesh: MeshTopology,
    request: RouteRequest,
    field: SolvedField,
    *,
    rounds: int = 6,
    price: float = 1.0,
) -> LowCrosstalkRouting:
    """Route circuits with low crosstalk, and park unused PUCs (set them to guide stray light out of the mesh).

    Args:
        mesh: The mesh.
        request: The circuits.
        field: Optical field in the calibrated mesh.
        rounds: Number of routings tried.
        price: Surcharge per round for the PUC with the largest contribution, in the unit of the objective.

    Raises:
        ConfigError: ``rounds`` is below 1, or as for ``route``.
        NoPathError: As for ``route``.
        UndecidedError: As for ``route``.
    """
    if rounds < 1:
        raise ConfigError(f"cannot route for low crosstalk in {rounds} rounds", hint="Give at least one round.")
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
        # A PUC without any usable state still needs one for the field; unheated it counts as cross.
        full = {puc: parked.get(puc, "cross") for puc in range(mesh.n_pucs)}
        circuits = (*routing.paths, *routing.active)
        levels = crosstalk(field, full, circuits)
        tried.append(max((level.summed_db for level in levels), default=_MIN_CROSSTALK_DB))
        # Surcharges can make matters worse, so the best routing is kept, not the last.
        if best is None or tried[-1] < min(tried[:-1]):
            best = LowCrosstalkRouting(routing, full, levels, ())
        contributions = crosstalk_contributions(mesh, field, full, circuits)
        if not contributions.any():
            break
        for puc in np.flatnonzero(contributions).tolist():
            surcharge[puc, STATES.index(full[puc])] += price * contributions[puc] / contributions.max()
    if best is None:
        raise ConfigError("no routing was tried")
    return LowCrosstalkRouting(best.routing, best.states, best.crosstalk, tuple(tried))
