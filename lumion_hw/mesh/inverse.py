"""From wanted PUC states to heater currents: the inverse of a calibration record."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import CalibrationError, LimitError
from lumion_hw.mesh.heater import HeaterLaw
from lumion_hw.mesh.record import CalibrationRecord
from lumion_hw.mesh.topology import State

DIFFERENTIAL_RAD: dict[str, float] = {"cross": 0.0, "bar": math.pi}
"""φu - φl of the two routing states (mesh.md b.1)."""

_CROSSTALK_ROUNDS = 20
_CROSSTALK_TOLERANCE_RAD = 1e-6


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
    options = [
        (up + down, up, down)
        for up, down in ((raise_upper + common, common), (common, turn - raise_upper + common))
        if up <= reach_upper and down <= reach_lower
    ]
    if not options:
        raise LimitError(
            "the heaters of this PUC cannot reach the wanted phase",
            asked=raise_upper + common,
            limit=max(reach_upper, reach_lower),
            unit="rad",
        )
    _, up, down = min(options)
    return up, down


def heater_currents_ma(record: CalibrationRecord, states: Mapping[int, State]) -> NDArray[np.float64]:
    """Return the heater currents that put every PUC into its wanted state.

    PUCs without a wanted state are left unheated. Crosstalk is compensated if the record holds it, by iterating the
    own-heater law against the neighbours' heat, which contracts in a few steps (calibration.md 7).

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
    currents = np.zeros(2 * len(record.pucs))
    extra = np.zeros(len(record.pucs))
    for _ in range(_CROSSTALK_ROUNDS):
        for puc, state in states.items():
            currents[2 * puc : 2 * puc + 2] = _puc_currents_ma(record, puc, state, float(extra[puc]))
        if record.crosstalk is None:
            break
        shift = record.crosstalk.differential_rad(record.heater_power_mw(currents))
        moved = float(np.max(np.abs(shift - extra), initial=0.0))
        extra = shift
        if moved < _CROSSTALK_TOLERANCE_RAD:
            break
    else:
        raise CalibrationError(
            f"crosstalk compensation does not settle: {moved:.2g} rad still move after {_CROSSTALK_ROUNDS} rounds",
            hint="The recorded crosstalk is too strong to be true.",
        )
    return currents


def _puc_currents_ma(record: CalibrationRecord, puc: int, state: State, extra_rad: float) -> tuple[float, float]:
    """Return the currents of one PUC for one state, against an extra differential phase from its neighbours."""
    entry = record.pucs[puc]
    if entry.passive_phase_rad is None:
        raise CalibrationError(f"PUC {puc} is not calibrated: {entry.note}", hint="Calibrate it or route round it.")
    upper, lower = entry.upper.law, entry.lower.law
    try:
        up, down = split_phase(DIFFERENTIAL_RAD[state], entry.passive_phase_rad + extra_rad, upper, lower)
    except LimitError as error:
        raise LimitError(
            f"PUC {puc} cannot be set to {state}", asked=error.asked, limit=error.limit, unit=error.unit
        ) from error
    return (upper.current_ma(up) if upper else 0.0), (lower.current_ma(down) if lower else 0.0)
