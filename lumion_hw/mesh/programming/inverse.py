"""Calculate the heater currents for PUC states from a calibration record."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import LimitError
from lumion_hw.mesh.layout.topology import State
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.programming.heater_currents import DIFFERENTIAL_RAD, PucTarget, program_pucs
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.mesh.waves.heater import HeaterLaw

__all__ = ["DIFFERENTIAL_RAD", "heater_currents_ma", "split_phase"]


def split_phase(
    differential_rad: float,
    passive_rad: float,
    upper: HeaterLaw | None,
    lower: HeaterLaw | None,
    common_rad: float = 0.0,
) -> tuple[float, float]:
    """Return the heater phases of both arms that give a phase difference with the least heat.

    Args:
        differential_rad: Wanted phase of the upper arm minus the lower arm, modulo 2π.
        passive_rad: Phase without heat of the upper arm minus the lower arm.
        upper: Phase of the upper heater as a function of current; ``None`` if it is dead.
        lower: Phase of the lower heater as a function of current; ``None`` if it is dead.
        common_rad: Phase added to both arms; ignored if a heater is dead.

    Raises:
        LimitError: Both heaters are dead, or no heater can reach the phase.
    """
    turn = 2.0 * math.pi
    raise_upper = (differential_rad - passive_rad) % turn
    reach_upper = upper.max_phase_rad if upper else 0.0
    reach_lower = lower.max_phase_rad if lower else 0.0
    # With one dead heater the common phase follows from the difference and cannot be chosen.
    common = common_rad if upper and lower else 0.0
    # Either raise the upper arm by the difference, or the lower arm by the rest of the turn.
    options = [
        (up + down, up, down)
        for up, down in ((raise_upper + common, common), (common, turn - raise_upper + common))
        if up <= reach_upper and down <= reach_lower
    ]
    if not options:
        raise LimitError(
            "the heaters of this PUC cannot reach the desired phase",
            requested=raise_upper + common,
            limit=max(reach_upper, reach_lower),
            unit="rad",
        )
    # The heat of a heater grows with its phase, so the smaller sum needs less heat.
    _, up, down = min(options)
    return up, down


def heater_currents_ma(record: CalibrationRecord, states: Mapping[int, State]) -> NDArray[np.float64]:
    """Return the heater currents that set PUCs to the wanted states with the least heat.

    All other PUCs stay unheated. Crosstalk is compensated if the record contains it.

    Args:
        record: Calibration record of the mesh.
        states: Wanted state of each PUC.

    Returns:
        Currents in mA, shape ``(2 n_pucs,)``: heater 2·PUC is on the upper arm, 2·PUC + 1 on the lower arm.

    Raises:
        CalibrationError: A PUC has no usable calibration (the message names it), or the recorded crosstalk is too
            strong to be compensated.
        LimitError: A heater cannot reach its phase; the message names the PUC.
    """
    targets = {
        puc: PucTarget.state(state)
        for puc, state in states.items()
        if state not in record.usable_states(puc) or record.pucs[puc].is_settable
    }
    return program_pucs(CalibratedMesh.from_record(record), targets).currents_ma
