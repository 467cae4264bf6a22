"""Tables of the optical circuit switch, in the form of SONiC's CONFIG_DB and STATE_DB.

Like there, all values are texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lumion_hw.bench.file.model import BenchModel
from lumion_hw.circuits import CircuitRequest, plan_circuits
from lumion_hw.errors import LumionError
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.serving.ocs.change import OcsSettings
from lumion_hw.serving.ocs.ports import OcsPorts
from lumion_hw.serving.state import ServedCircuit, ServedPath

Table = dict[str, dict[str, Any]]


def config_tables(ports: OcsPorts, settings: OcsSettings, circuits: Iterable[ServedCircuit]) -> dict[str, Table]:
    """Return labels and states of all ports, and the configured cross-connects."""
    names = [*(ports.name_of(_request(circuit)) for circuit in circuits), *settings.held]
    return {
        "OCS_PORT": {
            port_id: {
                "label": settings.labels.get(port_id, port.module),
                "state": "force_blocked" if port_id in settings.blocked else "normal",
            }
            for port_id, port in ports.items()
        },
        "OCS_CROSS_CONNECT": {name: dict(zip(("a_side", "b_side"), name.split("-"), strict=True)) for name in names},
    }


def state_tables(
    ports: OcsPorts, settings: OcsSettings, circuits: Sequence[ServedCircuit], paths: Sequence[ServedPath]
) -> dict[str, Table]:
    """Return status and target of all ports, and status and path of the cross-connects.

    A port is ``blocked`` without light, ``tuned`` if the circuit carries light, ``failed`` if it is broken, and
    ``tuning`` while its light is not known.
    """
    by_name = {ports.name_of(_request(circuit)): circuit for circuit in circuits}
    statuses = {name: _status(circuit) for name, circuit in by_name.items()} | dict.fromkeys(settings.held, "blocked")
    targets = {end: name for name in statuses for end in name.split("-")}
    port_table: Table = {}
    for port_id, port in ports.items():
        name = targets.get(port_id, "")
        a_side, _, b_side = name.partition("-")
        port_table[port_id] = {
            "connector_pin": " ".join(map(str, port.mesh_ports)),
            "target_simplex_port_id": b_side if port.side == "A" else a_side,
            "status": statuses.get(name, "blocked"),
        }
    return {
        "OCS_PORT": port_table,
        "OCS_CROSS_CONNECT": {
            name: {**_sides(name), "a_side_status": status, "b_side_status": status}
            for name, status in statuses.items()
        },
        "OCS_CROSS_CONNECT_PHYSICAL_PATH": {
            name: {"physical_path": _physical_path(name, circuit, paths)} for name, circuit in by_name.items()
        },
    }


def _request(circuit: ServedCircuit) -> CircuitRequest:
    return CircuitRequest(circuit.source, circuit.target)


def _sides(name: str) -> dict[str, str]:
    a_side, _, b_side = name.partition("-")
    return {"a_side": a_side, "b_side": b_side}


def _status(circuit: ServedCircuit) -> str:
    if circuit.fault:
        return "failed"
    return "tuning" if circuit.unseen else "tuned"


def _physical_path(name: str, circuit: ServedCircuit, paths: Sequence[ServedPath]) -> list[str]:
    a_side, _, b_side = name.partition("-")
    middle = [
        element
        for path in paths
        if path.circuit == circuit.name
        for element in (f"port {path.source}", *(f"PUC {puc}" for puc in path.pucs), f"port {path.target}")
    ]
    return [a_side, *middle, b_side]


def loss_table(
    model: BenchModel, record: CalibrationRecord, ports: OcsPorts, names: Sequence[str]
) -> dict[str, Mapping[str, Any]]:
    """Return the insertion losses of cross-connects in an otherwise unused mesh, from the calibration record.

    The accuracy is one standard error. ``unavailable`` has the reasons for cross-connects without a loss.
    """
    losses, unavailable = dict[str, dict[str, str]](), dict[str, str]()
    temperatures_c = record.conditions.temperature_range_c
    temperature = "unknown" if temperatures_c is None else f"{sum(temperatures_c) / 2:.2f}"
    frequency = f"{record.reference_hz * 1e-12:.3f}"
    for name in names:
        a_side, b_side = ports.ends_of(name)
        try:
            (circuit,) = plan_circuits(model, record, [CircuitRequest(a_side.module, b_side.module)]).circuits
        except LumionError as error:
            unavailable[name] = str(error)
            continue
        losses[f"{name}|{frequency}|{temperature}"] = {
            "loss_dB": f"{circuit.budget.mesh_loss_db:.2f}",
            "accuracy_dB": f"{circuit.budget.loss_sigma_db:.2f}",
        }
    return {"OCS_FACTORY_INSERTION_LOSS": losses, "unavailable": unavailable}
