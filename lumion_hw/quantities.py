"""Conversions between the units of the field; names carry their units, so nothing is converted silently."""

from __future__ import annotations

import math

SPEED_OF_LIGHT_M_PER_S = 299_792_458.0
"""Of light in vacuum; exact, because the metre is defined by it."""

OSNR_OF_0_DBM_DB = 58.0
"""Signal to noise in 0.1 nm behind an ideal amplifier that takes 0 dBm at 1550 nm: 1 mW over hν·12.5 GHz."""


def dbm_from_w(power_w: float) -> float:
    """Return the power in dBm. Raises ``ValueError`` for powers that have no logarithm (zero, negative, NaN)."""
    if not power_w > 0:
        raise ValueError(f"{power_w} W has no value in dBm")
    return 10.0 * math.log10(power_w * 1e3)


def w_from_dbm(power_dbm: float) -> float:
    """Return the power in watts."""
    return float(1e-3 * 10.0 ** (power_dbm / 10.0))


def db_from_ratio(ratio: float) -> float:
    """Return a power ratio in dB. Raises ``ValueError`` for ratios that are not positive."""
    if not ratio > 0:
        raise ValueError(f"{ratio} has no value in dB")
    return 10.0 * math.log10(ratio)


def ratio_from_db(db: float) -> float:
    """Return the power ratio of a value in dB."""
    return float(10.0 ** (db / 10.0))


def frequency_hz_from_wavelength_m(wavelength_m: float) -> float:
    """Return the optical frequency of a vacuum wavelength. Raises ``ValueError`` if it is not positive."""
    if not wavelength_m > 0:
        raise ValueError(f"{wavelength_m} m is not a wavelength")
    return SPEED_OF_LIGHT_M_PER_S / wavelength_m


def wavelength_m_from_frequency_hz(frequency_hz: float) -> float:
    """Return the vacuum wavelength of an optical frequency. Raises ``ValueError`` if it is not positive."""
    if not frequency_hz > 0:
        raise ValueError(f"{frequency_hz} Hz is not an optical frequency")
    return SPEED_OF_LIGHT_M_PER_S / frequency_hz


def joined_osnr_db(*parts_db: float) -> float:
    """Return the signal-to-noise ratio of noises that add up; infinite ones add nothing."""
    noise = sum(10.0 ** (-part / 10.0) for part in parts_db)
    return -10.0 * math.log10(noise) if noise > 0.0 else math.inf
