"""Settings of the mesh in which the heaters of active circuits keep their currents.

The heat of new circuits still shifts the phases of active ones; this shift is calculated and measured.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from lumion_hw.circuits.plan.planned import CircuitPlan, PlannedCircuit
from lumion_hw.circuits.plan.planning_mesh import planning_mesh
from lumion_hw.mesh.layout.topology import MeshTopology, State
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.programming.heater_currents import PucTarget, program_pucs
from lumion_hw.mesh.record.calibration_record import CalibrationRecord, Defect
from lumion_hw.mesh.routing.parking import park_unused_pucs


@dataclass(frozen=True)
class MeshSetting:
    """States of all PUCs that can be set, and the heater currents for them.

    Attributes:
        currents_ma: Heater currents, shape ``(2 n_pucs,)``.
        heat_mw: Heat of all heaters together.
        shift_rad: Largest phase change that new heat causes in a PUC that keeps its currents.
    """

    states: dict[int, State]
    currents_ma: NDArray[np.float64]
    heat_mw: float
    shift_rad: float


def setting_with_active(
    mesh: MeshTopology,
    record: CalibrationRecord,
    used: Mapping[int, State],
    held_pucs: Collection[int],
    driven_ma: NDArray[np.float64],
    couplings: Mapping[int, float] = MappingProxyType({}),
) -> MeshSetting:
    """Return a setting in which the heaters of active circuits keep their currents.

    Args:
        mesh: The mesh.
        record: Calibration record of the mesh.
        used: States of all PUCs in use; the others are parked (set to guide stray light out of the mesh).
        held_pucs: PUCs whose heaters keep their currents.
        driven_ma: Currents driven now, shape ``(2 n_pucs,)``.
        couplings: Power coupling of PUCs that couple only partly.

    Raises:
        CalibrationError: A PUC has no usable calibration.
        LimitError: A heater does not reach its phase.
    """
    planning = planning_mesh(record)
    states = park_unused_pucs(mesh, used, unusable=planning.unusable).states
    calibrated = planning.calibrated
    held_ma = np.zeros_like(driven_ma)
    heaters = [2 * puc + arm for puc in held_pucs for arm in (0, 1)]
    held_ma[heaters] = driven_ma[heaters]
    warmed = calibrated
    if held_ma.any():
        # For the other PUCs, the heat of the held heaters acts like a change of their passive phases.
        warm = calibrated.cells(held_ma)
        passive = np.where(np.isnan(calibrated.passive_rad), np.nan, warm.phase_upper - warm.phase_lower)
        warmed = replace(calibrated, passive_rad=passive)
    # A PUC that is stuck in the desired state needs no heat. One that cannot reach the state keeps its target, so that
    # programming reports it.
    targets = {
        puc: PucTarget.state(state)
        for puc, state in states.items()
        if state not in record.usable_states(puc) or record.pucs[puc].is_settable
    }
    targets |= {puc: PucTarget.coupling(k, calibrated.coupler(puc)) for puc, k in couplings.items()}
    free = {puc: target for puc, target in targets.items() if puc not in held_pucs}
    # No heater is driven in both parts, so the sum leaves the currents of active circuits unchanged to the last bit.
    currents_ma = held_ma + program_pucs(warmed, free).currents_ma
    heat_mw = float(planning.heat_mw(currents_ma).sum())
    return MeshSetting(states, currents_ma, heat_mw, _shift_rad(calibrated, held_pucs, driven_ma, currents_ma))


def _shift_rad(
    calibrated: CalibratedMesh,
    held_pucs: Collection[int],
    before_ma: NDArray[np.float64],
    after_ma: NDArray[np.float64],
) -> float:
    if not held_pucs:
        return 0.0
    before, after = calibrated.cells(before_ma), calibrated.cells(after_ma)
    shift = (after.phase_upper - after.phase_lower) - (before.phase_upper - before.phase_lower)
    return float(np.max(np.abs(shift[list(held_pucs)])))


def record_avoiding(record: CalibrationRecord, pucs: Collection[int]) -> CalibrationRecord:
    """Return a copy of a calibration record that marks the given PUCs as unusable."""
    suspects = tuple(Defect("suspect PUC", "puc", puc, "a circuit over it failed", ()) for puc in sorted(pucs))
    return replace(record, defects=(*suspects, *record.defects)) if suspects else record


def pucs_of(circuits: Iterable[PlannedCircuit]) -> frozenset[int]:
    """Return all PUCs on the paths of circuits."""
    return frozenset(puc for circuit in circuits for path in circuit.paths for puc in path.pucs)


def combined_plan(active: CircuitPlan | None, added: CircuitPlan, setting: MeshSetting) -> CircuitPlan:
    """Merge the plans of active and added circuits into one plan."""
    states, paths = ({}, ()) if active is None else (active.routing.states, active.routing.paths)
    routing = replace(
        added.routing, states={**states, **added.routing.states}, paths=(*paths, *added.routing.paths), active=()
    )
    circuits = (*(() if active is None else active.circuits), *added.circuits)
    return replace(
        added,
        circuits=circuits,
        routing=routing,
        states=setting.states,
        currents_ma=setting.currents_ma,
        active=(),
        heat_mw=setting.heat_mw,
    )
