"""Wavelength demultiplexer in the receiver of a module whose lanes share a fibre."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from lumion_hw.quantities import wavelength_m_from_frequency_hz

_HALF_BAND_PER_SPACING = 6.5 / 20.0
"""Half of a pass band over the channel spacing: ±6.5 nm of 20 nm for CWDM (IEEE 802.3 Table 87-5)."""


def lines_of_lane(
    lines_w: Mapping[tuple[str, float], float], wavelengths_nm: Sequence[float], lane: int
) -> dict[tuple[str, float], float]:
    """Return the lines that a demultiplexer passes to one lane, without loss.

    Args:
        lines_w: Power of each line in W, by source and frequency in Hz.
        wavelengths_nm: Wavelength of each lane, ascending.
        lane: Lane, from 1.
    """
    spacing_nm = min((b - a for a, b in itertools.pairwise(wavelengths_nm)), default=0.0)
    half_band_nm = _HALF_BAND_PER_SPACING * spacing_nm
    return {
        (source, frequency_hz): power_w
        for (source, frequency_hz), power_w in lines_w.items()
        if abs(wavelength_m_from_frequency_hz(frequency_hz) * 1e9 - wavelengths_nm[lane - 1]) <= half_band_nm
    }
