"""Settings beside circuits that stand: their heaters keep their currents to the last bit.

Heat of new neighbours reaches the PUCs of standing circuits all the same. As their currents stay, what it does to them
is reckoned beforehand and measured afterwards; the new PUCs make up for the heat of the standing ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lumion_hw.circuits.plan import CircuitPlan, unusable_states
from lumion_hw.mesh.known_mesh import KnownMesh
from lumion_hw.mesh.programming import PucTarget, program
from lumion_hw.mesh.record import CalibrationRecord, Defect
from lumion_hw.mesh.routing import Routing
from lumion_hw.mesh.routing.parking import park
from lumion_hw.mesh.topology import MeshTopology, State


@dataclass(frozen=True)
class Setting:
    """States of all PUCs that can be set, and the currents that make them.

    Attributes:
        states: State by PUC, parked ones included.
        currents_ma: Shape ``(2 n_pucs,)``.
        shift_rad: Largest change of phase that the new heat makes in a PUC that holds its currents.
    """

    states: dict[int, State]
    currents_ma: NDArray[np.float64]
    shift_rad: float


def setting_beside(
    mesh: MeshTopology,
    record: CalibrationRecord,
    used: Mapping[int, State],
    held: Collection[int],
    driven_ma: NDArray[np.float64],
) -> Setting:
    """Return a setting in which the PUCs of standing circuits keep their currents exactly.

    Args:
        mesh: The mesh.
        record: Its calibration.
        used: States of all PUCs in use; the others are parked.
        held: PUCs whose heaters keep their currents.
        driven_ma: Currents driven now, shape ``(2 n_pucs,)``.

    Raises:
        CalibrationError: A PUC has no usable calibration.
        LimitError: A heater does not reach its phase.
    """
    states = park(mesh, used, unusable=unusable_states(record)).states
    known = KnownMesh.of(record)
    kept_ma = np.zeros_like(driven_ma)
    heaters = [2 * puc + arm for puc in held for arm in (0, 1)]
    kept_ma[heaters] = driven_ma[heaters]
    if not kept_ma.any():
        beside = known
    else:
        # To the others the heat of the standing heaters is as if their passive phases were different.
        warm = known.cells(kept_ma)
        passive = np.where(np.isnan(known.passive_rad), np.nan, warm.phase_upper - warm.phase_lower)
        beside = replace(known, passive_rad=passive)
    targets = {
        puc: PucTarget.state(state)
        for puc, state in states.items()
        if puc not in held and (state not in record.states_of(puc) or record.pucs[puc].settable)
    }
    currents_ma = kept_ma + program(beside, targets).currents_ma
    return Setting(states, currents_ma, _shift_rad(known, held, driven_ma, currents_ma))


def _shift_rad(
    known: KnownMesh, held: Collection[int], before_ma: NDArray[np.float64], after_ma: NDArray[np.float64]
) -> float:
    if not held:
        return 0.0
    before, after = known.cells(before_ma), known.cells(after_ma)
    shift = (after.phase_upper - after.phase_lower) - (before.phase_upper - before.phase_lower)
    return float(np.max(np.abs(shift[list(held)])))


def avoiding(record: CalibrationRecord, pucs: Collection[int]) -> CalibrationRecord:
    """Return a record that takes these PUCs for unusable."""
    suspects = tuple(Defect("suspect PUC", "puc", puc, "a circuit over it was not proven", ()) for puc in sorted(pucs))
    return replace(record, defects=(*suspects, *record.defects)) if suspects else record


def joined(standing: CircuitPlan | None, added: CircuitPlan, setting: Setting) -> CircuitPlan:
    """Return the plan of what stands and what is added, in one setting."""
    old = () if standing is None else standing.circuits
    states = {} if standing is None else standing.routing.states
    return replace(
        added,
        circuits=(*old, *added.circuits),
        routing=_routing_of({**states, **added.routing.states}, standing, added),
        states=setting.states,
        currents_ma=setting.currents_ma,
    )


def _routing_of(states: dict[int, State], standing: CircuitPlan | None, added: CircuitPlan) -> Routing:
    paths = added.routing.paths if standing is None else (*standing.routing.paths, *added.routing.paths)
    return Routing(states, paths, cost=added.routing.cost, bound=added.routing.bound, method=added.routing.method)
