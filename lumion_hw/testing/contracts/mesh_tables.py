"""Tables of heater currents for the promises of a mesh controller: within its limits, compared as far as it reads."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lumion_hw.interfaces import ControllerInfo, ControllerLimits, MeshController


def power_mw(currents_ma: NDArray[np.float64], limits: ControllerLimits) -> float:
    """Return the power of a table as the controller computes it, in mW."""
    return float(np.sum(limits.heater_ohm * currents_ma**2)) * 1e-3


def allowed_table(limits: ControllerLimits, fraction: float = 1.0) -> NDArray[np.float64]:
    """Return currents in mA within the limits, different on every heater, at no more than half of the power cap."""
    table: NDArray[np.float64] = fraction * limits.heater_max_ma * np.linspace(0.3, 1.0, len(limits.heater_max_ma))
    too_much = power_mw(table, limits) / (0.5 * limits.total_power_mw)
    return table / np.sqrt(too_much) if too_much > 1.0 else table


def tolerance_ma(info: ControllerInfo) -> float:
    """Return how far a table read back may be from the one driven: one step, or what a measuring controller says."""
    return info.readback_tolerance_ma or info.current_step_ma


def reads(controller: MeshController, table_ma: NDArray[np.float64]) -> bool:
    """Tell whether a controller reads back what it read before: exactly, unless it measures."""
    return bool(np.all(np.abs(controller.read_back() - table_ma) <= 2.0 * controller.info.readback_tolerance_ma))


def reads_zero(controller: MeshController) -> bool:
    """Tell whether a controller reads back no current: none at all, unless it measures."""
    return bool(np.all(np.abs(controller.read_back()) <= controller.info.readback_tolerance_ma))
