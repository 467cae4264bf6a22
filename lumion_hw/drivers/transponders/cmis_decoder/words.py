"""Values of fields as a reader wants them: codes in words, powers in dBm, durations as bounds."""

from __future__ import annotations

from collections.abc import Callable

from lumion_hw.drivers.transponders.cmis_decoder.memory import Dump
from lumion_hw.standards.cmis import Field, Kind, Value, codes
from lumion_hw.standards.cmis.codec import (
    SMF_MULTIPLIER_2_SINCE,
    aux_monitor,
    cable_length_m,
    duration_s,
    optical_power,
    smf_length_km,
)

_MEDIA_INTERFACES = frozenset({"application_media_interface", "more_application_media_interface"})
_AUX = {
    "aux1": ("aux1_is_tec_current", "", "tec"),
    "aux2": ("aux2_is_tec_current", "temperature", "tec"),
    "aux3": ("aux3_is_supply_2", "temperature", "supply"),
}
_AUX_UNITS = {"tec": "% TEC current", "temperature": "degC laser temperature", "supply": "V second supply"}
_MW_COUNTS = 1e4


def explained_by(field: Field) -> str:
    """Return the name of the field that says what an auxiliary monitor measures; empty for other fields."""
    stem = field.name.partition("_")[0]
    return _AUX[stem][0] if stem in _AUX and (field.name == stem or field.name.endswith("_threshold")) else ""


def field_words(dump: Dump, field: Field, value: Value) -> str:
    """Return a value in words."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if field.kind is Kind.ENUM:
        return _code(dump, field, int(value))
    if field.kind is Kind.BOOL:
        return "yes" if value else "no"
    special = _special(dump, field, float(value))
    if special:
        return special
    return f"{value:g} {field.unit}".strip() if isinstance(value, float) else f"{value} {field.unit}".strip()


def _code(dump: Dump, field: Field, code: int) -> str:
    if field.name in _MEDIA_INTERFACES:
        return codes.describe_media_interface(dump.count("media_type"), code)
    return codes.describe(field.codes, code)


def _special(dump: Dump, field: Field, value: float) -> str:
    """Return the words for numbers that a scale alone does not explain; empty for others."""
    if explained_by(field):
        return _auxiliary(dump, field.name.partition("_")[0], value)
    for fits, words in _SPECIAL:
        if fits(field):
            return words(dump, value)
    return ""


def _auxiliary(dump: Dump, name: str, value: float) -> str:
    bit, plain, other = _AUX[name]
    kind = other if dump.value(bit) else plain
    return f"{aux_monitor(int(value), kind):.4g} {_AUX_UNITS[kind]}" if kind else ""


def _duration(dump: Dump, code: float) -> str:
    del dump
    bound = duration_s(int(code))
    return "3000 s or more" if bound is None else f"at most {bound:g} s"


def _power(dump: Dump, power_mw: float) -> str:
    del dump
    power_dbm, _ = optical_power(round(power_mw * _MW_COUNTS))
    return f"{power_mw:.4g} mW ({power_dbm:.2f} dBm)" if power_mw else "dark (below -40 dBm)"


def _smf_length(dump: Dump, base: float) -> str:
    second = dump.count("smf_length_multiplier_2") if dump.advertised.revision >= SMF_MULTIPLIER_2_SINCE else None
    length_km = smf_length_km(dump.count("smf_length_multiplier"), int(base), second)
    return "" if length_km is None else f"{length_km:g} km"


_SPECIAL: tuple[tuple[Callable[[Field], bool], Callable[[Dump, float], str]], ...] = (
    (lambda field: field.name.startswith("max_duration_"), _duration),
    (lambda field: field.unit == "mW", _power),
    (lambda field: field.name.endswith("cmis_revision"), lambda _, code: f"{int(code) >> 4}.{int(code) & 15}"),
    (lambda field: field.name == "power_class", lambda _, code: f"class {int(code) + 1}"),
    (
        lambda field: field.name == "cable_length_base",
        lambda dump, base: f"{cable_length_m(dump.count('cable_length_multiplier'), int(base)):g} m",
    ),
    (lambda field: field.name == "smf_length_base", _smf_length),
    (lambda field: field.name == "current_frequency", lambda _, mhz: f"{mhz / 1e6:.6f} THz"),
)
