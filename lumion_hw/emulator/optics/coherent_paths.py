"""Effect of the mesh on a dual-polarization signal: Jones matrix, loss, PDL and DGD.

The Jones matrix is J = U_out · M · U_in, where M contains the fields from the sender's ports to the receiver's ports.
U_in and U_out are the polarization rotations of the fibres, which a receiver undoes. The reception therefore depends
only on the singular values and group delays of J.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Jones = NDArray[np.complex128]

_RANK_ONE_DB = 40.0
"""Ratio of the singular values in dB above which one tributary (polarization channel) counts as lost."""
_STEP_HZ = 1e7
"""Half the frequency step of the numerical derivative in Hz."""


@dataclass(frozen=True)
class PathPair:
    """Effect of the two paths between a sender and a receiver on a dual-polarization signal.

    Attributes:
        transmission: Received power per launched power, both polarizations together.
        pdl_db: Polarization dependent loss, the ratio of the singular values; infinite if there is only one path.
        dgd_ps: Differential group delay; 0 if there is only one path.
        rank: 2 if both polarizations arrive separately, 1 if they merge into one field, 0 without light.
    """

    transmission: float
    pdl_db: float
    dgd_ps: float
    rank: int


@dataclass(frozen=True)
class CoherentLaunch:
    """Dual-polarization light sent by a module.

    Attributes:
        power_w: Power of both polarizations together.
    """

    power_w: float
    frequency_hz: float
    osnr_db: float


@dataclass(frozen=True)
class CoherentReception:
    """Dual-polarization signal received from another module.

    Attributes:
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
    """Return the effect of a sender's paths to a receiver on a signal of two equally strong polarizations.

    Args:
        jones_at: Returns the Jones matrix at a frequency in Hz, from sent (columns) to received fields (rows).
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
