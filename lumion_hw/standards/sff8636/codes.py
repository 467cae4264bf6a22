"""Names of the codes in SFF-8636 memory."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from lumion_hw.standards.sff8472.codes import EXTENDED_COMPLIANCE as _EXTENDED_COMPLIANCE

SFF8636_IDENTIFIERS = frozenset({0x0C, 0x0D, 0x11})
"""Identifiers of modules with SFF-8636 or SFF-8436 memory: QSFP, QSFP+, QSFP28 (SFF-8024 Table 4-1)."""

REVISIONS: Mapping[int, str] = MappingProxyType(
    {
        0x00: "unspecified",
        0x01: "SFF-8436 4.8",
        0x02: "SFF-8436 4.8 with bytes 186-189 of SFF-8636",
        0x03: "1.3",
        0x04: "1.4",
        0x05: "1.5",
        0x06: "2.0",
        0x07: "2.5 to 2.7",
        0x08: "2.8 to 2.10",
        0x09: "2.11",
    }
)
"""Revisions of the standard, byte 1 (SFF-8636 Table 6-3). Codes 03h to 07h also mean earlier revisions."""

FIRST_WITH_ATTENUATION = 0x02
"""Lowest revision code whose bytes 188 and 189 contain the attenuation of a copper cable."""
FIRST_WITH_MONITOR_BITS = 0x08
"""Lowest revision code whose bits 220.5 and 220.4 say whether temperature and supply are monitored."""

UNPROGRAMMED = 0xFF
"""Value of an unprogrammed byte; as revision code it is reserved."""

ENCODINGS: Mapping[int, str] = MappingProxyType(
    {
        0x00: "unspecified",
        0x01: "8B/10B",
        0x02: "4B/5B",
        0x03: "NRZ",
        0x04: "SONET scrambled",
        0x05: "64B/66B",
        0x06: "Manchester",
        0x07: "256B/257B",
        0x08: "PAM4",
    }
)
"""Encodings, byte 139 (SFF-8024 Table 4-2; codes 04h to 06h differ from those of SFF-8472)."""

EXTENDED_COMPLIANCE: Mapping[int, str] = MappingProxyType(
    {**_EXTENDED_COMPLIANCE, 0x09: "100G CWDM4 without FEC (obsolete)"}
)
"""Extended compliance codes, bytes 192 and 116 (SFF-8024 Table 4-4)."""

_EXTENDED_COPPER = frozenset({0x08, 0x0B, 0x0C, 0x0D, 0x19, 0x30, 0x32, 0x3F, 0x40})
"""Codes of SFF-8024 Table 4-4 that only copper cables have."""

COMPLIANCE_CODES: Mapping[tuple[int, int], str] = MappingProxyType(
    {
        (131, 6): "10GBASE-LRM",
        (131, 5): "10GBASE-LR",
        (131, 4): "10GBASE-SR",
        (131, 3): "40GBASE-CR4",
        (131, 2): "40GBASE-SR4",
        (131, 1): "40GBASE-LR4",
        (131, 0): "40G active cable (XLPPI)",
        (132, 3): "40G OTN",
        (132, 2): "OC-48 long reach",
        (132, 1): "OC-48 intermediate reach",
        (132, 0): "OC-48 short reach",
        (133, 7): "SAS 24.0 Gb/s",
        (133, 6): "SAS 12.0 Gb/s",
        (133, 5): "SAS 6.0 Gb/s",
        (133, 4): "SAS 3.0 Gb/s",
        (134, 3): "1000BASE-T",
        (134, 2): "1000BASE-CX",
        (134, 1): "1000BASE-LX",
        (134, 0): "1000BASE-SX",
        (138, 7): "FC 1200 MB/s",
        (138, 6): "FC 800 MB/s",
        (138, 5): "FC 1600 MB/s",
        (138, 4): "FC 400 MB/s",
        (138, 2): "FC 200 MB/s",
        (138, 0): "FC 100 MB/s",
        (164, 4): "InfiniBand EDR",
        (164, 3): "InfiniBand FDR",
        (164, 2): "InfiniBand QDR",
        (164, 1): "InfiniBand DDR",
        (164, 0): "InfiniBand SDR",
    }
)
"""Module types by byte of page 00h and bit number (SFF-8636 Table 6-17, and Table 6-21 for byte 164).

Fibre Channel media and distances (bytes 135 to 137) describe the link, not the type, and are in the register map.
"""

TRANSMITTERS: Mapping[int, str] = MappingProxyType(
    {
        0x0: "850 nm VCSEL",
        0x1: "1310 nm VCSEL",
        0x2: "1550 nm VCSEL",
        0x3: "1310 nm FP",
        0x4: "1310 nm DFB",
        0x5: "1550 nm DFB",
        0x6: "1310 nm EML",
        0x7: "1550 nm EML",
        0x8: "other transmitter",
        0x9: "1490 nm DFB",
        0xA: "copper cable, unequalized",
        0xB: "copper cable, passive equalized",
        0xC: "copper cable, near and far end limiting active equalizers",
        0xD: "copper cable, far end limiting active equalizers",
        0xE: "copper cable, near end limiting active equalizers",
        0xF: "copper cable, linear active equalizers",
    }
)
"""Transmitter technologies, 147.7-4 (SFF-8636 Table 6-20)."""

_EXTENDED_MULTIPLEXED = frozenset({0x03, 0x04, 0x06, 0x09, 0x10, 0x17, 0x1F, 0x20, 0x22, 0x23, 0x24, 0x43, 0x46})
"""Codes of SFF-8024 Table 4-4 whose four lanes share a fibre."""
_MPO_CONNECTORS = frozenset({0x0C, 0x0D, 0x27, 0x28})
"""Connectors with several fibres per direction (SFF-8024 Table 4-3)."""

_FIRST_COPPER = 0xA
_PASSIVE_COPPER = frozenset({0xA, 0xB})
_VCSEL_850 = 0x0

POWER_CLASS_W: Mapping[int, float] = MappingProxyType({1: 1.5, 2: 2.0, 3: 2.5, 4: 3.5, 5: 4.0, 6: 4.5, 7: 5.0})
"""Largest power of each power class in W (SFF-8636 Table 6-16). Byte 107 contains the power of a module in class 8."""

LOW_POWER_W: Mapping[int, float] = MappingProxyType({0: 1.5, 1: 1.0, 2: 0.75, 3: 0.5})
"""Largest power in low-power mode in W, 110.7-4 (SFF-8636 Table 6-15)."""

MIN_SUPPLY_V: Mapping[int, float] = MappingProxyType({0: 3.3, 1: 2.5, 2: 1.8})
"""Lowest nominal supply voltage in V, 110.2-0 (SFF-8636 Table 6-15)."""

FAR_ENDS: Mapping[int, str] = MappingProxyType(
    {
        0: "unspecified",
        1: "one far end with 4 channels",
        2: "one far end with 2 channels",
        3: "one far end with 1 channel",
        4: "4 far ends with 1 channel each",
        5: "2 far ends with 2 channels each",
        6: "2 far ends with 1 channel each",
    }
)
"""Far ends of a cable, 113.6-4 (SFF-8636 Table 6-15)."""


def power_class(extended_identifier: int) -> int:
    """Return the power class, 1 to 8, from byte 129 (SFF-8636 Table 6-16)."""
    if extended_identifier & 0x20:
        return 8
    high = extended_identifier & 0x03
    return 4 + high if high else 1 + (extended_identifier >> 6)


def max_power_w(extended_identifier: int, max_power: int) -> float | None:
    """Return the largest power of a module in W, or ``None`` if a module in class 8 does not state it.

    Args:
        extended_identifier: Byte 129 of page 00h.
        max_power: Byte 107 of the lower memory, in units of 0.1 W. It counts only in class 8.
    """
    own = power_class(extended_identifier)
    if own in POWER_CLASS_W:
        return POWER_CLASS_W[own]
    return max_power / 10.0 if max_power else None


def technologies(page: bytes, first: int = 128) -> tuple[str, ...]:
    """Return the names of a module's types, from page 00h.

    Args:
        page: Bytes of page 00h.
        first: Address of the first of these bytes.
    """
    names = [name for (byte, bit), name in COMPLIANCE_CODES.items() if page[byte - first] >> bit & 1]
    extended = EXTENDED_COMPLIANCE.get(page[192 - first])
    return (*names, extended) if extended else tuple(names)


def is_40g_lr4(page: bytes, first: int = 128) -> bool:
    """Return whether page 00h describes a 40GBASE-LR4 module. Arguments as for :func:`technologies`."""
    return bool(page[131 - first] & 0x02)


def lanes_share_fibre(page: bytes, first: int = 128) -> bool:
    """Return whether the four lanes of a module share one fibre per direction. Arguments as :func:`technologies`."""
    # Modules with parallel fibres may claim 40GBASE-LR4, as there is no code for 40G PLR4.
    is_multiplexed = is_40g_lr4(page, first) or page[192 - first] in _EXTENDED_MULTIPLEXED
    return is_multiplexed and page[130 - first] not in _MPO_CONNECTORS


def is_copper(page: bytes, first: int = 128) -> bool:
    """Return whether page 00h describes a copper cable, active or passive. Arguments as for :func:`technologies`."""
    # Some cables leave byte 147 at 0, which means an 850 nm VCSEL; their compliance codes are right.
    return (
        page[147 - first] >> 4 >= _FIRST_COPPER
        or bool(page[131 - first] & 0x08)
        or page[192 - first] in _EXTENDED_COPPER
    )


def is_passive(page: bytes, first: int = 128) -> bool:
    """Return whether page 00h describes a passive copper cable. Arguments as for :func:`technologies`."""
    return page[147 - first] >> 4 in _PASSIVE_COPPER


def copper_cable(page: bytes, first: int = 128) -> str:
    """Return the kind of a copper cable; empty for other modules. Arguments as for :func:`technologies`."""
    if not is_copper(page, first):
        return ""
    if page[147 - first] >> 4 < _FIRST_COPPER:
        return "copper cable"
    return "passive copper cable" if is_passive(page, first) else "active copper cable"


def length_is_om4(page: bytes, first: int = 128) -> bool:
    """Return whether byte 146 is a reach on OM4 fibre in units of 2 m, rather than the length of a cable in m.

    Source: SFF-8636 clause 6.3.12. Arguments as for :func:`technologies`.
    """
    has_cable = page[130 - first] == 0x23  # no separable connector
    return page[147 - first] >> 4 == _VCSEL_850 and not has_cable and not is_copper(page, first)
