"""The heaters of a photonic unit that is told states: it knows its own mesh, and drives what a state needs."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from lumion_hw.emulator.optics.truth import MeshTruth
from lumion_hw.errors import DeviceError

_DIFFERENTIAL_RAD = {"x": 0.0, "=": math.pi}  # phase of the upper arm over the lower: in step, light crosses
_CROSSTALK_ROUNDS = 20  # each shrinks the error by the crosstalk, which is small against 1
_TURN = 2.0 * math.pi


def unit_currents_ma(truth: MeshTruth, states: Mapping[int, str]) -> NDArray[np.float64]:
    """Return the heater currents in mA that put unit cells into their states, the others unheated.

    Each cell is set by the one of its two heaters that needs less heat, against the warmth of its neighbours.

    Args:
        truth: The mesh as it is.
        states: State of every active cell, ``"x"`` cross or ``"="`` bar.

    Returns:
        Shape ``(2 n_pucs,)``, by 2·PUC + arm.

    Raises:
        DeviceError: There is no such cell.
    """
    n_pucs = len(truth.passive_phase)
    if not all(0 <= puc < n_pucs for puc in states):
        raise DeviceError(f"there is no PUC {max(states)}, only 0 to {n_pucs - 1}")
    wanted = {puc: _DIFFERENTIAL_RAD[word] for puc, word in states.items()}
    heat_mw = np.zeros(2 * n_pucs)
    for _ in range(_CROSSTALK_ROUNDS):
        stray = truth.crosstalk.arm_rad_per_mw @ heat_mw
        for puc, differential in wanted.items():
            upper, lower = 2 * puc, 2 * puc + 1
            up = (differential - truth.passive_phase[puc] - stray[upper] + stray[lower]) % _TURN
            # The upper arm adds what is missing, or the lower one takes away what is left of a turn.
            heats = up * truth.p_pi_mw[upper] / math.pi, (_TURN - up) * truth.p_pi_mw[lower] / math.pi
            heat_mw[upper], heat_mw[lower] = (heats[0], 0.0) if heats[0] <= heats[1] else (0.0, heats[1])
    # P = c / (1 - γc) with the cold power c = I²R, turned round.
    cold_mw = heat_mw / (1.0 + truth.nonlinearity_per_mw * heat_mw)
    currents: NDArray[np.float64] = np.sqrt(cold_mw / (truth.heater_ohm * 1e-3))
    return currents
