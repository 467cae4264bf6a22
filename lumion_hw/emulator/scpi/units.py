"""Unit tables for SCPI numbers: accepted units and their conversion to the parameter's own unit.

An integer in a table is a power of ten; any other value is a function. ``M`` is milli, but mega in ``MHZ``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lumion_hw.quantities import w_from_dbm

Suffixes = Mapping[str, int | Callable[[float], float]]
"""Power of ten, or a function to the parameter's unit, by upper-case unit."""

LENGTH_M: Suffixes = {"PM": -12, "NM": -9, "UM": -6, "MM": -3, "M": 0}
LENGTH_NM: Suffixes = {"PM": -3, "NM": 0, "UM": 3, "MM": 6, "M": 9}
LENGTH_MM: Suffixes = {"NM": -6, "UM": -3, "MM": 0, "M": 3}
TIME_S: Suffixes = {"NS": -9, "US": -6, "MS": -3, "S": 0}
POWER_W: Suffixes = {
    "PW": -12,
    "NW": -9,
    "UW": -6,
    "MW": -3,
    "W": 0,
    "WATT": 0,
    "DBM": w_from_dbm,
    "MDBM": lambda value: w_from_dbm(value * 1e-3),
}
POWER_DBM: Suffixes = {"DBM": 0, "MDBM": -3}
RATIO_DB: Suffixes = {"DB": 0, "MDB": -3}
FREQUENCY_HZ: Suffixes = {"HZ": 0, "KHZ": 3, "MHZ": 6, "GHZ": 9, "THZ": 12}
SPEED_M_PER_S: Suffixes = {"NM/S": -9, "UM/S": -6, "MM/S": -3, "M/S": 0}
CURRENT_A: Suffixes = {"PA": -12, "NA": -9, "UA": -6, "MA": -3, "A": 0}
VOLTAGE_V: Suffixes = {"UV": -6, "MV": -3, "V": 0}
ENERGY_J: Suffixes = {"NJ": -9, "UJ": -6, "MJ": -3, "J": 0}
PERCENT: Suffixes = {"PCT": 0}
