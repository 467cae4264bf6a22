"""From wanted PUC states to heater currents: the inverse of a calibration record."""

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
    """Return the heater phases of both arms that give a differential phase with the least heat.

    Args:
        differential_rad: Wanted φu - φl, any branch.
        passive_rad: Passive phase of the upper arm.
        upper: Law of the upper heater, ``None`` if it is dead.
        lower: Law of the lower heater, ``None`` if it is dead.
        common_rad: Phase added to both arms; left out where only one heater lives.

    Raises:
        LimitError: Both heaters are dead, or none reaches far enough.
    """
    turn = 2.0 * math.pi
    raise_upper = (differential_rad - passive_rad) % turn
    reach_upper = upper.max_phase_rad if upper else 0.0
    reach_lower = lower.max_phase_rad if lower else 0.0
    common = common_rad if upper and lower else 0.0
    # Raise the difference on the upper arm, or take the rest of the turn off by the lower one.
    options = [
        (up + down, up, down)
        for up, down in ((raise_upper + common, common), (common, turn - raise_upper + common))
        if up <= reach_upper and down <= reach_lower
    ]
    if not options:
        raise LimitError(
            "the heaters of this PUC cannot reach the wanted phase",
            requested=raise_upper + common,
            limit=max(reach_upper, reach_lower),
            unit="rad",
        )
    _, up, down = min(options)
    return up, down


def heater_currents_ma(record: CalibrationRecord, states: Mapping[int, State]) -> NDArray[np.float64]:
    """Return the heater currents that put every PUC into its wanted state, with the least heat.

    PUCs without a wanted state are left unheated, and so are those stuck in the state that is wanted. Crosstalk is
    compensated if the record holds it; :func:`lumion_hw.mesh.programming.heater_currents.program` does more.

    Args:
        record: Calibration of this mesh.
        states: Wanted state of each PUC.

    Returns:
        Currents in mA, shape ``(2 n_pucs,)``: heater 2·PUC is the upper arm, 2·PUC + 1 the lower.

    Raises:
        CalibrationError: A PUC has no usable calibration (the message names it), or the crosstalk recorded is so strong
            that no setting compensates it.
        LimitError: A heater cannot reach its phase; the message names the PUC.
    """
    targets = {
        puc: PucTarget.state(state)
        for puc, state in states.items()
        if state not in record.usable_states(puc) or record.pucs[puc].is_settable
    }
    return program_pucs(CalibratedMesh.from_record(record), targets).currents_ma
