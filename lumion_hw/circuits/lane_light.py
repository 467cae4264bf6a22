"""Measured power of each lane of a module whose lanes share a fibre."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from lumion_hw.circuits.plan.planned import PlannedCircuit
from lumion_hw.drivers.transponders.lane_difference import LR4, LR4_40G, Power, describe_difference

_MONITOR_SIGMA_DB = 1.5
"""Error of a module's power monitor, at most ±3 dB (SFF-8636 clause 6.2.4). Meters see all lanes together."""
_SIGMAS = 4.0


@dataclass(frozen=True)
class LaneLight:
    """Powers of one lane as both modules report them, and the prediction.

    Attributes:
        lane: Number of the lane, from 1.
        launch_dbm: Launched power; ``None`` if the lane is dark.
        received_dbm: Received power; ``None`` if the lane is dark.
        measured_loss_db: Loss of the mesh from fibre to fibre; ``None`` if the lane is dark.
        predicted_loss_db: Predicted loss of the mesh at this wavelength.
        tolerance_db: Allowed difference between measured and predicted loss.
        margin_db: Margin over the receiver's sensitivity; ``None`` if the lane is dark.
        overload_margin_db: Margin below the receiver's overload power; ``None`` if the lane is dark.
        is_calibrated: Whether the calibration record is valid at this wavelength. If not, the loss is not checked.
    """

    lane: int
    wavelength_nm: float
    launch_dbm: float | None
    received_dbm: float | None
    measured_loss_db: float | None
    predicted_loss_db: float
    tolerance_db: float
    margin_db: float | None
    overload_margin_db: float | None
    is_calibrated: bool

    def __str__(self) -> str:
        loss, margin = (
            "unknown" if value is None else f"{value:.1f} dB" for value in (self.measured_loss_db, self.margin_db)
        )
        doubt = "" if self.is_calibrated else ", not calibrated at this wavelength"
        predicted = f"predicted {self.predicted_loss_db:.1f} ± {self.tolerance_db:.1f} dB{doubt}"
        return f"lane {self.lane}, {self.wavelength_nm:.2f} nm: loss {loss} ({predicted}), margin {margin}"

    @property
    def failure(self) -> str:
        """Reason why the lane is not accepted; empty if it is."""
        name = f"lane {self.lane} ({self.wavelength_nm:.2f} nm)"
        if self.launch_dbm is None:
            return f"{name} is not transmitted"
        if (
            self.received_dbm is None
            or self.margin_db is None
            or self.overload_margin_db is None
            or self.measured_loss_db is None
        ):
            return f"{name} is not received"
        if self.margin_db < 0.0:
            sensitivity_dbm = self.received_dbm - self.margin_db
            return f"{name} receives {self.received_dbm:.1f} dBm, below the sensitivity of {sensitivity_dbm:.1f} dBm"
        if self.overload_margin_db < 0.0:
            limit_dbm = self.received_dbm + self.overload_margin_db
            return f"{name} receives {self.received_dbm:.1f} dBm, above the overload level of {limit_dbm:.1f} dBm"
        if self.is_calibrated and abs(self.measured_loss_db - self.predicted_loss_db) > self.tolerance_db:
            predicted = f"{self.predicted_loss_db:.1f} ± {self.tolerance_db:.1f} dB"
            return f"{name} loses {self.measured_loss_db:.1f} dB, predicted {predicted}"
        return ""


def compare_lanes(
    circuit: PlannedCircuit, launched_dbm: Mapping[int, float | None], received_dbm: Mapping[int, float | None]
) -> tuple[LaneLight, ...]:
    """Return the measured powers of each lane of a circuit next to its link budget."""
    budget, lanes = circuit.budget, []
    for lane in budget.lanes:
        sent, arrived = launched_dbm.get(lane.lane), received_dbm.get(lane.lane)
        loss_db = None
        if sent is not None and arrived is not None:
            loss_db = sent + budget.gain_db - budget.fixed_loss_db - arrived
        lanes.append(
            LaneLight(
                lane=lane.lane,
                wavelength_nm=lane.wavelength_nm,
                launch_dbm=sent,
                received_dbm=arrived,
                measured_loss_db=loss_db,
                predicted_loss_db=lane.mesh_loss_db,
                tolerance_db=_SIGMAS * math.hypot(budget.loss_sigma_db, _MONITOR_SIGMA_DB, _MONITOR_SIGMA_DB),
                margin_db=None if arrived is None else arrived - lane.received_dbm + lane.margin_db,
                overload_margin_db=None if arrived is None else lane.received_dbm + lane.overload_margin_db - arrived,
                is_calibrated=lane.is_calibrated,
            )
        )
    return tuple(lanes)


def lane_findings(circuit: PlannedCircuit, lanes: tuple[LaneLight, ...]) -> tuple[str, ...]:
    """Return what is wrong with lanes whose powers differ too much: which lane, by how much, what to do."""
    limits = LR4_40G if circuit.budget.format.name == "40GBASE-LR4" else LR4
    powers: dict[Power, dict[int, float | None]] = {
        "tx_power": {lane.lane: lane.launch_dbm for lane in lanes},
        "rx_power": {lane.lane: lane.received_dbm for lane in lanes},
    }
    ends: Mapping[Power, str] = {"tx_power": circuit.request.source, "rx_power": circuit.request.target}
    texts = {name: describe_difference(name, levels_dbm, limits) for name, levels_dbm in powers.items()}
    return tuple(f"{ends[name]}: {text}" for name, text in texts.items() if text)
