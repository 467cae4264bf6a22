"""Converts fields of CMIS memory to values and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from statistics import NormalDist
from types import MappingProxyType

from lumion_hw.standards import registers
from lumion_hw.standards.cmis.codes import Quality
from lumion_hw.standards.cmis.fields import FIRST_BANKED_PAGE, HALF_BYTES, Field, Page
from lumion_hw.standards.cmis.vdm import Observable
from lumion_hw.standards.registers import Checksum, NumberFormat, Value, decode, encode, f16_decode

MIN_POWER_DBM = -40.0
"""Lowest power that a module can report, in dBm (one count of 0.1 µW)."""
_POWER_FULL_SCALE = 0xFFFF


def decode_from(field: Field, half: bytes, index: int | None = None) -> Value:
    """Return a field's value from the 128 bytes of its page. Raises the errors of :func:`raw`."""
    return decode(field, cut(field, half, index), index)


def cut(field: Field, half: bytes, index: int | None = None) -> bytes:
    """Return the bytes of a field, or of one array element, from the 128 bytes of its page.

    Raises:
        ValueError: ``half`` does not have 128 bytes, or ``index`` does not fit the field.
    """
    if len(half) != HALF_BYTES:
        raise ValueError(f"a page has {HALF_BYTES} bytes, not {len(half)}")
    span = field.span(index)
    return half[span.start % HALF_BYTES : span.start % HALF_BYTES + len(span)]


def checksum_of(item: Checksum, half: bytes) -> int:
    """Return the checksum that the 128 bytes of a page should contain at ``item.byte``."""
    return registers.checksum_of(item, half, HALF_BYTES)


def checksum_matches(item: Checksum, half: bytes) -> bool:
    """Return whether the 128 bytes of a page have the right checksum."""
    return registers.checksum_matches(item, half, HALF_BYTES)


def linear_offset(page: Page, byte: int, bank: int = 0) -> int:
    """Return the offset of a byte in a memory file (Linux optoe): lower memory first, then the pages in order.

    Raises:
        ValueError: The byte is not in the lower memory or page, or the bank is not 0 for a page without banks.
    """
    if page is None:
        if not 0 <= byte < HALF_BYTES:
            raise ValueError(f"byte {byte} is not in the lower memory")
        return byte
    if not HALF_BYTES <= byte < 2 * HALF_BYTES or not 0 <= page <= 0xFF or bank < 0:
        raise ValueError(f"page {page:02X}h of bank {bank} has no byte {byte}")
    if bank and page < FIRST_BANKED_PAGE:
        raise ValueError(f"page {page:02X}h has no banks")
    return (bank * 256 + page) * HALF_BYTES + byte


def optical_power(count: int) -> tuple[float, Quality]:
    """Convert counts of 0.1 µW to dBm and a quality. A count of 0 is below range, full scale is above range."""
    # log10(0) has no value. Return the power of one count and mark it, never -inf (docs/transponders.md).
    if count <= 0:
        return MIN_POWER_DBM, Quality.BELOW_RANGE
    quality = Quality.ABOVE_RANGE if count >= _POWER_FULL_SCALE else Quality.OK
    return 10.0 * math.log10(count * 1e-4), quality


def optical_power_count(power_dbm: float) -> int:
    """Convert a power to whole counts of 0.1 µW, at most FFFFh."""
    return min(_POWER_FULL_SCALE, round(math.pow(10.0, min(power_dbm, 20.0) / 10.0) * 1e4))


MULTIPLIERS: Mapping[str, Mapping[int, int]] = MappingProxyType({"bias_scale": MappingProxyType({0: 1, 1: 2, 2: 4})})
"""Factors of the fields' scales: by name in ``Field.multiplier``, then by code in that register."""


def multiplied(field: Field, value: Value, code: int | None) -> Value | None:
    """Return the value of a field times its multiplier.

    Args:
        field: Field to scale. Without a multiplier, its value is returned unchanged.
        value: Result of :func:`decode`.
        code: Value of the field named in ``field.multiplier``; ``None`` if that value is unknown.

    Returns:
        The product, or ``None`` if the factor is unknown or its code is reserved.
    """
    if not field.multiplier:
        return value
    factor = MULTIPLIERS[field.multiplier].get(-1 if code is None else code)
    return None if factor is None or isinstance(value, (str, bytes)) else value * factor


TEC_PERCENT = Fraction(100, 32767)
"""Percent of the largest thermo-electric cooler (TEC) current, per count."""


def aux_monitor(count: int, meaning: str) -> float:
    """Return the value of an auxiliary monitor. ``meaning`` is ``tec`` (in %), ``temperature`` (°C) or ``supply`` (V).

    Raises:
        ValueError: ``meaning`` is not one of these names.
    """
    scales = {"tec": TEC_PERCENT, "temperature": Fraction(1, 256), "supply": Fraction(1, 10_000)}
    if meaning not in scales:
        raise ValueError(f"an auxiliary monitor measures {', '.join(scales)}, not {meaning}")
    return float((count & 0xFFFF if meaning == "supply" else count) * scales[meaning])


DURATION_BOUNDS_S = (1e-3, 5e-3, 10e-3, 50e-3, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 600.0, 3000.0)
"""Upper bounds, in s, of the durations with codes 0 to Ch."""


def duration_s(code: int) -> float | None:
    """Return the upper bound of a duration code in s, or ``None`` for code Dh (no upper bound) and reserved codes."""
    # A code gives the upper bound of the time (CMIS, page 01h), so a deadline made from it is never too short.
    return DURATION_BOUNDS_S[code] if 0 <= code < len(DURATION_BOUNDS_S) else None


def duration_code(seconds: float) -> int:
    """Return the smallest duration code whose upper bound is at least ``seconds``; code 0Dh above 3000 s."""
    return len([bound for bound in DURATION_BOUNDS_S if bound < seconds])


SMF_MULTIPLIER_2_SINCE = (5, 3)
"""First CMIS revision with code 3 in 01h:132.7-6."""


def smf_length_km(multiplier: int, base: int, multiplier_2: int | None = None) -> float | None:
    """Return the fibre length a module supports (CMIS 5.3 Table 8-45).

    Args:
        multiplier: Code in 01h:132.7-6: 0 to 2 for 0.1, 1 and 10 km; 3 for ``multiplier_2``.
        base: Length in units of the multiplier, 01h:132.5-0.
        multiplier_2: Code in 01h:137.7-6: 0 to 3 for 50, 100, 200, 500 km; ``None`` before ``SMF_MULTIPLIER_2_SINCE``.

    Returns:
        The length in km, or ``None`` if the multiplier is reserved.
    """
    if multiplier < 3:
        return float(base * (Fraction(1, 10), Fraction(1), Fraction(10))[multiplier])
    return None if multiplier_2 is None else float(base * (50, 100, 200, 500)[multiplier_2])


def cable_length_m(multiplier: int, base: int) -> float:
    """Return a cable's length in m: ``base`` in units of 0.1, 1, 10 or 100 m (codes 0 to 3).

    A detachable cable has 0.
    """
    return float(base * (Fraction(1, 10), Fraction(1), Fraction(10), Fraction(100))[multiplier])


EPL_PAGES = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 8, 6: 12, 7: 16}
"""Number of pages of extended payload, by the code in the field ``cdb_epl_pages``."""


def cdb_busy_s(byte_165: int, byte_166: int) -> float:
    """Return the longest time in s for which a CDB command keeps the module busy, from 01h:165 and 01h:166.

    Revisions of the standard disagree about times below 80 ms; the longer time is returned.
    """
    if byte_166 & 0x80:
        return max(1, byte_165 & 0x1F) * 0.160
    short = min(80, byte_166 & 0x7F)
    return max(short, 80 - short) * 1e-3


def vdm_value(observable: Observable, data: bytes) -> float:
    """Return a VDM sample or threshold in the unit of its quantity.

    Raises ``ValueError`` unless ``data`` has two bytes.
    """
    if len(data) != 2:
        raise ValueError(f"a VDM sample has 2 bytes, not {len(data)}")
    if observable.kind is NumberFormat.F16:
        return f16_decode(int.from_bytes(data, "big"))
    return float(int.from_bytes(data, "big", signed=observable.kind is NumberFormat.INT) * observable.scale)


def encode_vdm_value(observable: Observable, value: float) -> bytes:
    """Return the two bytes of a VDM sample or threshold, rounded to the nearest count.

    Raises:
        LimitError: The value is outside the range of the quantity.
        ValueError: The value is NaN.
    """
    field = Field(
        observable.name, None, 0, length=2, kind=observable.kind, scale=observable.scale, unit=observable.unit
    )
    return encode(field, value)


def q_db(ber: float) -> float:
    """Return the Q factor in dB for a bit error ratio: 20 log10(sqrt(2) erfcinv(2 BER)).

    Raises:
        ValueError: The bit error ratio is not between 0 and 0.5.
    """
    if not 0.0 < ber < 0.5:
        raise ValueError(f"Q is not defined for a bit error ratio of {ber}")
    return 20.0 * math.log10(-NormalDist().inv_cdf(ber))
