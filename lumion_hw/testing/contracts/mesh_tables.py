"""Tables of heater currents for the tests of all mesh controllers, and their comparison with the currents read back."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lumion_hw.interfaces import ControllerInfo, ControllerLimits, MeshController


def power_mw(currents_ma: NDArray[np.float64], limits: ControllerLimits) -> float:
    """Return the total heater power in mW."""
    return float(np.sum(limits.heater_ohm * currents_ma**2)) * 1e-3


def allowed_table(limits: ControllerLimits, fraction: float = 1.0) -> NDArray[np.float64]:
    """Return allowed currents in mA, different for each heater; their power is at most half of the limit."""
    table: NDArray[np.float64] = fraction * limits.heater_max_ma * np.linspace(0.3, 1.0, len(limits.heater_max_ma))
    excess = power_mw(table, limits) / (0.5 * limits.total_power_mw)
    return table / np.sqrt(excess) if excess > 1.0 else table


def tolerance_ma(info: ControllerInfo) -> float:
    """Return the largest accepted error of currents read back, in mA."""
    return info.readback_tolerance_ma or info.current_step_ma


def reads_back(controller: MeshController, table_ma: NDArray[np.float64]) -> bool:
    """Return whether the currents read back agree with ``table_ma``."""
    return bool(np.all(np.abs(controller.read_back() - table_ma) <= 2.0 * controller.info.readback_tolerance_ma))


def reads_zero(controller: MeshController) -> bool:
    """Return whether all currents read back are zero."""
    return bool(np.all(np.abs(controller.read_back()) <= controller.info.readback_tolerance_ma))
