"""Conversion of active circuits, their health and the mesh to served values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.bench.bench import Bench
from lumion_hw.circuits import ActiveCircuit, CircuitHealth, CircuitService
from lumion_hw.errors import ConfigError
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.serving.state import AlarmSeverity, ServedCircuit, ServedMesh, ServedPath

MAX_MEASUREMENT_AGE_S = 2.0
"""Age from which a measurement of a circuit counts as missing."""


def served_circuits(
    service: CircuitService | None,
    health: Sequence[CircuitHealth],
    silent: Collection[str],
    trouble: str,
    faults: Sequence[str],
    wall_s: Callable[[], float],
) -> tuple[ServedCircuit, ...]:
    """Return the active circuits as served values; none without a calibration record (``service`` is ``None``).

    Args:
        service: The circuits.
        health: Measured health of the circuits, if available.
        silent: Names of devices that do not answer.
        trouble: Reason why circuits are not maintained; empty while they are.
        faults: Latched faults of the mesh controller.
        wall_s: Returns the time of day, in seconds since 1970.
    """
    if service is None:
        return ()
    health_by_name = {item.name: item for item in health}
    bench = service.setup.bench
    controller, meters = (
        bench.model.mesh_section.controller,
        {output.port: output.meter for output in bench.wiring.outputs},
    )
    served_all = []
    for circuit in service.state.circuits:
        devices = [circuit.request.source, circuit.request.target, controller]
        devices += [meter for arm in circuit.arms if (meter := meters.get(arm.path.target)) is not None]
        silent_devices = [name for name in devices if name in silent]
        reason = trouble or (f"{silent_devices[0]} is silent" if silent_devices else "")
        served = _circuit(circuit, health_by_name.get(circuit.name), service, reason, wall_s())
        if faults:
            fault = f"{controller} has switched its heaters off: {'; '.join(faults)}"
            served = dataclasses.replace(served, fault=fault, lost_db=None, severity=AlarmSeverity.MAJOR)
        served_all.append(served)
    return tuple(served_all)


def _circuit(
    circuit: ActiveCircuit, health: CircuitHealth | None, service: CircuitService, reason: str, wall_s: float
) -> ServedCircuit:
    from lumion_hw.circuits.state import proof_document

    proof, time_s = circuit.proof, _instant_s(circuit.seen_utc)
    marks, fault, level_loss_db = circuit.marks, "", None
    if health is not None:
        marks, level_loss_db, fault = health.marks, health.lost_db, "" if health.fault is None else str(health.fault)
        if health.proof is not None and health.measured_s is not None:
            proof = proof_document(health.proof)
            time_s = wall_s - (service.setup.bench.clock.now() - health.measured_s)
    if not reason and (time_s is None or wall_s - time_s > MAX_MEASUREMENT_AGE_S):
        reason = "not measured now"
    return ServedCircuit(
        name=circuit.name,
        source=circuit.request.source,
        target=circuit.request.target,
        since_s=_instant_s(circuit.since_utc) or 0.0,
        age_s=circuit.age_s(service.time.utc()),
        lease_left_s=circuit.lease_left_s(service.time),
        seen_s=time_s,
        proof=proof,
        lost_db=level_loss_db,
        marks=tuple(marks),
        fault=fault,
        severity=_severity(fault, reason, marks),
        unseen=reason,
        min_margin_db=circuit.request.min_margin_db,
    )


def _severity(fault: str, unseen: str, marks: Sequence[str]) -> AlarmSeverity:
    if fault:
        return AlarmSeverity.MAJOR
    return AlarmSeverity.INVALID if unseen else AlarmSeverity.MINOR if marks else AlarmSeverity.NONE


def _instant_s(utc: str | None) -> float | None:
    return None if utc is None else datetime.fromisoformat(utc).timestamp()


def served_mesh(
    bench: Bench,
    service: CircuitService | None,
    record: CalibrationRecord | None,
    driven_ma: NDArray[np.float64] | None,
) -> ServedMesh | None:
    """Return the mesh for clients; ``None`` if the bench has no mesh with heater currents.

    Args:
        bench: The bench.
        service: The active circuits; ``None`` without a calibration record.
        record: The calibration record in use.
        driven_ma: Present heater currents, index 2·PUC + arm; ``None`` if unknown.
    """
    try:
        mesh = bench.mesh
    except ConfigError:
        return None
    n_pucs = mesh.topology.n_pucs
    heat_mw: Any = np.zeros(n_pucs)
    if driven_ma is not None:
        heat_mw = (np.square(driven_ma).reshape(n_pucs, 2).sum(axis=1)) * mesh.heater_ohm * 1e-3
    states = {} if service is None else dict(service.state.states)
    circuits = () if service is None else service.state.circuits
    used = {puc for circuit in circuits for puc in circuit.pucs}
    dead = (
        frozenset()
        if record is None
        else frozenset(puc for puc in range(n_pucs) if len(record.usable_states(puc)) == 0)
    )
    return ServedMesh(
        states=states,
        heat_mw=tuple(heat_mw.tolist()),
        parked=frozenset(states) - used - dead,
        dead=dead,
        paths=tuple(path for circuit in circuits for path in _paths(bench, record, circuit)),
    )


def _paths(bench: Bench, record: CalibrationRecord | None, circuit: ActiveCircuit) -> list[ServedPath]:
    """Return the paths of a circuit with the power along them, from launch power and calibrated losses.

    The difference between measured and calibrated loss is split equally between input and output.
    """
    paths = []
    inputs = {path.port: path for path in bench.wiring.inputs}
    launch, loss_db = circuit.proof.get("launch_dbm"), circuit.proof.get("measured_loss_db")
    for arm in circuit.arms:
        path = arm.path
        power: list[float | None] = [None] * (len(path.pucs) + 1)
        entry = inputs.get(path.source)
        if launch is not None and entry is not None and record is not None:
            before = launch - 10.0 * np.log10(len(circuit.arms)) + entry.gain_db - entry.loss_db
            losses = record.loss_db[list(path.pucs)]
            unexplained_db = 0.0 if loss_db is None else loss_db - float(losses.sum())
            steps = before - 0.5 * unexplained_db - np.concatenate(([0.0], np.cumsum(losses)))
            power = [float(power_dbm) for power_dbm in steps]
        paths.append(ServedPath(circuit.name, path.source, path.target, tuple(path.pucs), tuple(power)))
    return paths
