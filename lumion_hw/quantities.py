"""Conversions between optical units: dBm and watts, dB and ratios, wavelengths and frequencies."""

from __future__ import annotations

import math

SPEED_OF_LIGHT_M_PER_S = 299_792_458.0
"""Speed of light in vacuum; exact by the definition of the metre."""

OSNR_OF_0_DBM_DB = 58.0
"""OSNR in 0.1 nm after an ideal amplifier with 0 dBm input at 1550 nm: 1 mW / (hν · 12.5 GHz)."""


def dbm_from_w(power_w: float) -> float:
    """Convert watts to dBm. Raises ``ValueError`` for zero, negative values and NaN."""
    if not power_w > 0:
        raise ValueError(f"cannot convert {power_w} W to dBm: the power must be positive")
    return 10.0 * math.log10(power_w * 1e3)


def w_from_dbm(power_dbm: float) -> float:
    """Convert dBm to watts."""
    return float(1e-3 * 10.0 ** (power_dbm / 10.0))


def db_from_ratio(ratio: float) -> float:
    """Convert a power ratio to dB. Raises ``ValueError`` if it is not positive."""
    if not ratio > 0:
        raise ValueError(f"cannot convert {ratio} to dB: the ratio must be positive")
    return 10.0 * math.log10(ratio)


def ratio_from_db(db: float) -> float:
    """Convert dB to a power ratio."""
    return float(10.0 ** (db / 10.0))


def frequency_hz_from_wavelength_m(wavelength_m: float) -> float:
    """Convert a vacuum wavelength to an optical frequency. Raises ``ValueError`` if it is not positive."""
    if not wavelength_m > 0:
        raise ValueError(f"the wavelength must be positive, not {wavelength_m} m")
    return SPEED_OF_LIGHT_M_PER_S / wavelength_m


def wavelength_m_from_frequency_hz(frequency_hz: float) -> float:
    """Convert an optical frequency to a vacuum wavelength. Raises ``ValueError`` if it is not positive."""
    if not frequency_hz > 0:
        raise ValueError(f"the optical frequency must be positive, not {frequency_hz} Hz")
    return SPEED_OF_LIGHT_M_PER_S / frequency_hz


def combined_osnr_db(*parts_db: float) -> float:
    """Return the total OSNR in dB of several noise sources, each given as an OSNR in dB."""
    noise = sum(10.0 ** (-part / 10.0) for part in parts_db)
    return -10.0 * math.log10(noise) if noise > 0.0 else math.inf
