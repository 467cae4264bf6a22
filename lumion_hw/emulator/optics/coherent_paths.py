"""Effect of the mesh on a signal with two polarization tributaries: its Jones matrix, and the loss, PDL and DGD.

The Jones matrix is J = U_out · M · U_in, where M contains the fields from the sender's ports to the receiver's ports.
The fibres before and after the mesh (U_in, U_out) rotate the polarization; they do not change PDL, DGD or rank. A
receiver's DSP undoes any such rotation, so its reception depends only on the singular values and group delays of J.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Jones = NDArray[np.complex128]

_RANK_ONE_DB = 40.0
"""Ratio of the singular values in dB above which one of the two tributaries counts as lost."""
_STEP_HZ = 1e7
"""Half the frequency step of the numerical derivative; small enough for delays of 100 ps."""


@dataclass(frozen=True)
class PathPair:
    """Effect of the two paths between one sender and one receiver on the signal's two polarization tributaries.

    Attributes:
        transmission: Received power per launched power, both tributaries together.
        pdl_db: Polarization dependent loss, the ratio of the singular values; infinite if there is only one path.
        dgd_ps: Differential group delay; 0 if there is only one path.
        rank: 2 if both tributaries arrive separately, 1 if they merge into one field, 0 without light.
    """

    transmission: float
    pdl_db: float
    dgd_ps: float
    rank: int


@dataclass(frozen=True)
class CoherentLaunch:
    """Light sent by a module with two polarization tributaries.

    Attributes:
        power_w: Power of both tributaries together.
        frequency_hz: Carrier frequency.
        osnr_db: Optical signal to noise ratio at the transmitter, without the amplifiers of the bench.
    """

    power_w: float
    frequency_hz: float
    osnr_db: float


@dataclass(frozen=True)
class CoherentReception:
    """Signal with two polarization tributaries, as a module receives it from another module.

    Attributes:
        sender: Device name of the sending module.
        launch: Light as launched.
        pair: Effect of the paths on the two tributaries.
        signal_w: Power of the signal at the receiver.
        total_w: Power of all light at the receiver.
        osnr_db: Optical signal-to-noise ratio; noise includes other light in the signal's band.
    """

    sender: str
    launch: CoherentLaunch
    pair: PathPair
    signal_w: float
    total_w: float
    osnr_db: float


NO_PATH = PathPair(0.0, 0.0, 0.0, 0)


def path_pair(jones_at: Callable[[float], Jones], frequency_hz: float) -> PathPair:
    """Return the effect of a sender's paths to a receiver on a signal whose two tributaries have equal power.

    Args:
        jones_at: Returns the Jones matrix at a frequency in Hz, from sent tributaries (columns) to received fields
            (rows).
        frequency_hz: Carrier frequency.
    """
    jones = jones_at(frequency_hz)
    strong, weak = np.linalg.svd(jones, compute_uv=False)
    # Each tributary carries half of the power. They are incoherent, so their powers add.
    transmission = 0.5 * float(strong**2 + weak**2)
    if strong == 0.0:
        return NO_PATH
    pdl_db = 20.0 * math.log10(strong / weak) if weak > 0.0 else math.inf
    # The matrix is nearly singular: its inverse, and so the delays below, would be noise.
    if pdl_db > _RANK_ONE_DB:
        return PathPair(transmission, pdl_db, 0.0, 1)
    # Central difference over two frequency steps, which is 4π·_STEP_HZ in angular frequency.
    slope = (jones_at(frequency_hz + _STEP_HZ) - jones_at(frequency_hz - _STEP_HZ)) / (4.0 * np.pi * _STEP_HZ)
    delays_s = (1j * np.linalg.eigvals(slope @ np.linalg.inv(jones))).real  # fields vary as e^{+jωt}: delay is -dφ/dω
    return PathPair(transmission, pdl_db, 1e12 * float(np.ptp(delays_s)), 2)
