"""What a signal of two tributaries meets on its way through the mesh: a Jones matrix, and what a receiver makes of it.

J = U_out · M · U_in, with M the fields that lead from the inputs of the sender to the
outputs of the receiver. Fibres before and behind turn the polarization and change neither PDL, DGD nor rank, so a
receiver whose DSP undoes any unitary sees the singular values and the group delays of J alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Jones = NDArray[np.complex128]

_RANK_ONE_DB = 40.0
"""A second tributary that is weaker than the first by more than this is folded into it for any receiver."""
_STEP_HZ = 1e7
"""Half the distance of the two frequencies from which the delay follows: small against a turn for some 100 ps."""


@dataclass(frozen=True)
class PathPair:
    """What the ways between one sender and one receiver do to two tributaries.

    Attributes:
        transmission: Power received over power launched, both tributaries together.
        pdl_db: Ratio of the two singular values; infinite if there is one way only.
        dgd_ps: Differential group delay; 0 if there is one way only.
        rank: 2 carries both tributaries, 1 folds them into one field, 0 is dark.
    """

    transmission: float
    pdl_db: float
    dgd_ps: float
    rank: int


@dataclass(frozen=True)
class CoherentLaunch:
    """What a module of two tributaries sends.

    Attributes:
        power_w: Both tributaries together.
        frequency_hz: Carrier.
        osnr_db: Signal to noise as sent, amplifiers of the bench not counted.
    """

    power_w: float
    frequency_hz: float
    osnr_db: float


@dataclass(frozen=True)
class CoherentReception:
    """What arrives of a module of two tributaries at another.

    Attributes:
        sender: Device name of the module that sent it.
        launch: What was sent.
        pair: What the ways did to it.
        signal_w: Power of the signal at the receiver.
        total_w: All light at the receiver.
        osnr_db: Signal to noise: as sent, the bench's amplifiers, and other light in the signal's band.
    """

    sender: str
    launch: CoherentLaunch
    pair: PathPair
    signal_w: float
    total_w: float
    osnr_db: float


NO_PATH = PathPair(0.0, 0.0, 0.0, 0)


def path_pair(jones_at: Callable[[float], Jones], frequency_hz: float) -> PathPair:
    """Return what a path does to a signal with two tributaries of equal power.

    Args:
        jones_at: Jones matrix at a frequency in Hz; columns are tributaries sent, rows fields received.
        frequency_hz: Carrier frequency.
    """
    jones = jones_at(frequency_hz)
    strong, weak = np.linalg.svd(jones, compute_uv=False)
    # Each tributary carries half of the power and they have no relation: their powers add.
    transmission = 0.5 * float(strong**2 + weak**2)
    if strong == 0.0:
        return NO_PATH
    pdl_db = 20.0 * math.log10(strong / weak) if weak > 0.0 else math.inf
    # The inverse below would be that of a nearly singular matrix, and its delays noise.
    if pdl_db > _RANK_ONE_DB:
        return PathPair(transmission, pdl_db, 0.0, 1)
    # Central difference: two steps of frequency are 4π·_STEP_HZ of angular frequency.
    slope = (jones_at(frequency_hz + _STEP_HZ) - jones_at(frequency_hz - _STEP_HZ)) / (4.0 * np.pi * _STEP_HZ)
    delays_s = (1j * np.linalg.eigvals(slope @ np.linalg.inv(jones))).real  # fields vary as e^{+jωt}: delay is -dφ/dω
    return PathPair(transmission, pdl_db, 1e12 * float(np.ptp(delays_s)), 2)
