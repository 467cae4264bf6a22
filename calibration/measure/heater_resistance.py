"""Resistances of the heaters, measured electrically by the controller."""

from __future__ import annotations

import numpy as np

from calibration.measure.probe import Probe
from calibration.model.arrays import Real


def measure_resistances(probe: Probe, currents_ma: Real) -> Real | None:
    """Set the heaters to the given currents and return their resistances; heaters stay on.

    Compare resistances at equal currents only, because they rise with heat.

    Args:
        probe: Access to the mesh.
        currents_ma: Shape ``(2 n_pucs,)``; heaters with current 0 are left out.

    Returns:
        Rows of heater number, current in mA and resistance in Ω; ``None`` if the controller measures no resistances.
    """
    if not probe.measures_resistances:
        return None
    probe.measure(currents_ma)
    ohm = probe.heater_resistances_ohm()
    heaters = np.flatnonzero((currents_ma > 0.0) & np.isfinite(ohm) & (ohm > 0.0))
    return np.column_stack([heaters, currents_ma[heaters], ohm[heaters]])
