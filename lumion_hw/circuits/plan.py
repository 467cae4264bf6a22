"""Planning circuits: routes, heater settings and link budgets, before anything is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.bench.bench import Bench
from lumion_hw.bench.kinds.sfp_8472 import SfpModel
from lumion_hw.errors import CircuitError, LimitError
from lumion_hw.interfaces.wiring import InputPath, OutputPath
from lumion_hw.mesh.inverse import DIFFERENTIAL_RAD, heater_currents_ma, split_phase
from lumion_hw.mesh.record import CalibrationRecord
from lumion_hw.mesh.routing import Path, RouteRequest, Routing, route
from lumion_hw.mesh.routing.parking import park
from lumion_hw.mesh.routing.request import STATES
from lumion_hw.mesh.topology import State

_RESCUE_S = 2.0
"""Time for the exact search where negotiation gives up: a recovery is waiting, and has other spares to try."""


@dataclass(frozen=True)
class CircuitRequest:
    """One directed circuit wanted.

    Attributes:
        source: Device name of the transmitting module.
        target: Device name of the receiving module.
    """

    source: str
    target: str


@dataclass(frozen=True)
class LinkBudget:
    """What should arrive, from launch to receiver.

    Attributes:
        launch_dbm: Launch power the bench file states for the module.
        gain_db: Booster amplifier.
        fixed_loss_db: Fibre, controller and connectors on both sides, and the tap.
        mesh_loss_db: Fibre to fibre over the mesh, predicted from the calibration.
        received_dbm: Power at the receiver.
        sensitivity_dbm: Least power that counts as a link.
        overload_dbm: Largest power that counts as a link.
    """

    launch_dbm: float
    gain_db: float
    fixed_loss_db: float
    mesh_loss_db: float
    received_dbm: float
    sensitivity_dbm: float
    overload_dbm: float

    @property
    def margin_db(self) -> float:
        """Predicted margin over the receiver's sensitivity."""
        return self.received_dbm - self.sensitivity_dbm


@dataclass(frozen=True)
class PlannedCircuit:
    """One circuit of a plan.

    Attributes:
        request: What was asked for.
        entry: From the transmitter to the mesh.
        exit: From the mesh to the receiver.
        path: PUCs on the way.
        budget: What should arrive.
    """

    request: CircuitRequest
    entry: InputPath
    exit: OutputPath
    path: Path
    budget: LinkBudget


@dataclass(frozen=True)
class CircuitPlan:
    """A conflict-free set of circuits and the setting that makes them.

    Attributes:
        circuits: One per request, in order.
        routing: States of the PUCs used.
        states: State of every PUC that can be set, parked ones included.
        currents_ma: Heater currents, shape ``(2 n_pucs,)``.
    """

    circuits: tuple[PlannedCircuit, ...]
    routing: Routing
    states: dict[int, State]
    currents_ma: NDArray[np.float64]


def plan_circuits(
    bench: Bench,
    record: CalibrationRecord,
    requests: Sequence[CircuitRequest],
    *,
    fixed: Mapping[int, State] | None = None,
) -> CircuitPlan:
    """Plan circuits on a calibrated bench; nothing is changed.

    Routes take the least loss; PUCs that no circuit uses are parked in the cross state, or in bar where that opens a
    closed ring. A state that a PUC's heaters do not reach is neither used nor parked in.

    Args:
        bench: The bench.
        record: Calibration of its mesh.
        requests: Circuits wanted.
        fixed: States that have to stay. A circuit all of whose PUCs are fixed keeps its path.

    Raises:
        CircuitError: A module is not wired to the mesh.
        NoPathError: No conflict-free routes, and that is proven; the message says why.
        UndecidedError: None were found, and nothing was proven.
        CalibrationError: The record does not belong to this bench.
    """
    bench.mesh.check_record(record)
    ends = [_ends(bench, request) for request in requests]
    unusable = unusable_states(record)
    routing = route(
        bench.mesh.topology,
        RouteRequest(
            [(entry.port, out.port) for entry, out in ends],
            # A fitted loss may come out as nothing or below: then detours would be free.
            puc_loss_db=np.maximum(record.loss_db, 0.01),
            unusable=unusable,
            fixed=fixed or {},
            time_limit_s=_RESCUE_S,
        ),
    )
    states = park(bench.mesh.topology, routing.states, unusable=unusable).states
    circuits = tuple(
        PlannedCircuit(request, entry, out, path, _budget(bench, record, request, entry, out, path))
        for request, (entry, out), path in zip(requests, ends, routing.paths, strict=True)
    )
    return CircuitPlan(circuits, routing, states, heater_currents_ma(record, states))


def unusable_states(record: CalibrationRecord) -> list[tuple[int, State]]:
    """Return the states that heaters do not reach, and those of PUCs that were not calibrated."""
    return [(puc, state) for puc in range(len(record.pucs)) for state in STATES if state not in _reachable(record, puc)]


def _ends(bench: Bench, request: CircuitRequest) -> tuple[InputPath, OutputPath]:
    """Return where a circuit enters and leaves the mesh."""
    if any(path.laser == request.source for path in bench.wiring.inputs):
        raise CircuitError(
            f"circuit {request.source} to {request.target}: {request.source} is a laser, which carries no data",
            hint="Circuits begin at modules; lasers are light for calibration.",
        )
    try:
        return bench.wiring.input_of(request.source), bench.wiring.output_of(request.target)
    except KeyError as error:
        raise CircuitError(
            f"circuit {request.source} to {request.target}: {error.args[0]} is not wired to the mesh",
            hint="See 'wiring' in the bench file.",
        ) from error


def _reachable(record: CalibrationRecord, puc: int) -> list[State]:
    """Return the states that a PUC's heaters reach, or that it is stuck in; none if it was not calibrated."""
    entry, states = record.pucs[puc], record.states_of(puc)
    # Without a passive phase nothing can be set; what it is stuck in is still there to be used.
    if entry.passive_phase_rad is None:
        return list(states)
    reached: list[State] = []
    for state in states:
        try:
            split_phase(DIFFERENTIAL_RAD[state], entry.passive_phase_rad, entry.upper.law, entry.lower.law)
        except LimitError:
            continue
        reached.append(state)
    return reached


def _budget(
    bench: Bench,
    record: CalibrationRecord,
    request: CircuitRequest,
    entry: InputPath,
    out: OutputPath,
    path: Path,
) -> LinkBudget:
    """Reckon one link budget from the bench file and the calibration."""
    source, target = bench.model.devices[request.source], bench.model.devices[request.target]
    if not isinstance(source, SfpModel) or not isinstance(target, SfpModel):
        raise CircuitError(f"circuit {request.source} to {request.target}: both ends must be SFP+ modules")
    typical = bench.model.mesh_section.typical.access_loss_db
    into, out_of = record.port(entry.port).input_loss_db, record.port(out.port).output_loss_db
    mesh_loss_db = (typical if into is None else into) + path.loss_db + (typical if out_of is None else out_of)
    # What the tap takes for the meter the receiver does not get.
    fixed_loss_db = entry.loss_db + out.loss_db - 10.0 * float(np.log10(1.0 - out.tap_fraction))
    return LinkBudget(
        launch_dbm=source.tx_power_dbm,
        gain_db=entry.gain_db,
        fixed_loss_db=fixed_loss_db,
        mesh_loss_db=mesh_loss_db,
        received_dbm=source.tx_power_dbm + entry.gain_db - fixed_loss_db - mesh_loss_db,
        sensitivity_dbm=target.sensitivity_dbm,
        overload_dbm=target.overload_dbm,
    )
