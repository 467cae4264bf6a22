"""Heater currents of a photonic unit that accepts PUC states."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from lumion_hw.emulator.optics.truth import MeshTruth
from lumion_hw.errors import DeviceError

_DIFFERENTIAL_RAD = {"x": 0.0, "=": math.pi}  # phase difference, upper minus lower arm: light crosses if it is zero
_CROSSTALK_ROUNDS = 20  # each iteration reduces the error by the crosstalk, which is much smaller than 1
_TURN = 2.0 * math.pi


def unit_currents_ma(truth: MeshTruth, states: Mapping[int, str]) -> NDArray[np.float64]:
    """Return the heater currents in mA that set PUCs to the given states, shape ``(2 n_pucs,)``, index 2·PUC + arm.

    Crosstalk between these PUCs is compensated; all other PUCs are not heated. Raises ``DeviceError`` for an unknown
    PUC.

    Args:
        truth: True parameters of the mesh.
        states: State of each PUC, ``"x"`` cross or ``"="`` bar.
    """
    n_pucs = len(truth.passive_phase)
    if not all(0 <= puc < n_pucs for puc in states):
        raise DeviceError(f"there is no PUC {max(states)}, only 0 to {n_pucs - 1}")
    differential_rad = {puc: _DIFFERENTIAL_RAD[state] for puc, state in states.items()}
    heat_mw = np.zeros(2 * n_pucs)
    for _ in range(_CROSSTALK_ROUNDS):
        crosstalk_rad = truth.crosstalk.arm_rad_per_mw @ heat_mw
        for puc, phase_rad in differential_rad.items():
            upper, lower = 2 * puc, 2 * puc + 1
            upper_rad = (phase_rad - truth.passive_phase[puc] - crosstalk_rad[upper] + crosstalk_rad[lower]) % _TURN
            # Either the upper arm adds the missing phase, or the lower arm adds the rest of a full turn.
            heats = upper_rad * truth.p_pi_mw[upper] / math.pi, (_TURN - upper_rad) * truth.p_pi_mw[lower] / math.pi
            heat_mw[upper], heat_mw[lower] = (heats[0], 0.0) if heats[0] <= heats[1] else (0.0, heats[1])
    # P = c / (1 - γc) with the cold power c = I²R, solved for c.
    cold_mw = heat_mw / (1.0 + truth.nonlinearity_per_mw * heat_mw)
    currents: NDArray[np.float64] = np.sqrt(cold_mw / (truth.heater_ohm * 1e-3))
    return currents
