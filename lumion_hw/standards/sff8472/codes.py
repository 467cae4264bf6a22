"""Names of the codes in SFF-8472 memory."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

SFF8472_IDENTIFIERS = frozenset({0x02, 0x03})
"""Identifiers of modules with SFF-8472 memory."""

ENCODINGS: Mapping[int, str] = MappingProxyType(
    {
        0x00: "unspecified",
        0x01: "8B/10B",
        0x02: "4B/5B",
        0x03: "NRZ",
        0x04: "Manchester",
        0x05: "SONET scrambled",
        0x06: "64B/66B",
        0x07: "256B/257B",
        0x08: "PAM4",
    }
)
"""Encodings, SFF-8024 Table 4-2."""

REVISIONS: Mapping[int, str] = MappingProxyType(
    {0: "unspecified", 1: "9.3", 2: "9.5", 3: "10.2", 4: "10.4", 5: "11.0", 6: "11.3", 7: "11.4", 8: "12.x"}
)
"""Revisions of SFF-8472, A0h:94."""

TRANSCEIVER_CODES: Mapping[tuple[int, int], str] = MappingProxyType(
    {
        (3, 7): "10GBASE-ER",
        (3, 6): "10GBASE-LRM",
        (3, 5): "10GBASE-LR",
        (3, 4): "10GBASE-SR",
        (3, 3): "IB 1X SX",
        (3, 2): "IB 1X LX",
        (3, 1): "IB 1X copper active",
        (3, 0): "IB 1X copper passive",
        (4, 7): "ESCON MMF",
        (4, 6): "ESCON SMF",
        (4, 5): "OC-192 short reach",
        (4, 2): "OC-48 long reach",
        (4, 1): "OC-48 intermediate reach",
        (4, 0): "OC-48 short reach",
        (5, 6): "OC-12 single mode long reach",
        (5, 5): "OC-12 single mode intermediate reach",
        (5, 4): "OC-12 short reach",
        (5, 2): "OC-3 single mode long reach",
        (5, 1): "OC-3 single mode intermediate reach",
        (5, 0): "OC-3 short reach",
        (6, 7): "BASE-PX",
        (6, 6): "BASE-BX10",
        (6, 5): "100BASE-FX",
        (6, 4): "100BASE-LX10",
        (6, 3): "1000BASE-T",
        (6, 2): "1000BASE-CX",
        (6, 1): "1000BASE-LX",
        (6, 0): "1000BASE-SX",
        (8, 3): "active cable",
        (8, 2): "passive cable",
        (10, 7): "FC 1200 MB/s",
        (10, 6): "FC 800 MB/s",
        (10, 5): "FC 1600 MB/s",
        (10, 4): "FC 400 MB/s",
        (10, 3): "FC 3200 MB/s",
        (10, 2): "FC 200 MB/s",
        (10, 0): "FC 100 MB/s",
    }
)
"""Module types by byte of A0h and bit number (SFF-8472 Table 5-3)."""

EXTENDED_COMPLIANCE: Mapping[int, str] = MappingProxyType(
    {
        0x01: "100G AOC or 25GAUI C2M AOC, BER < 5e-5",
        0x02: "100GBASE-SR4 or 25GBASE-SR",
        0x03: "100GBASE-LR4 or 25GBASE-LR",
        0x04: "100GBASE-ER4 or 25GBASE-ER",
        0x05: "100GBASE-SR10",
        0x06: "100G CWDM4",
        0x07: "100G PSM4",
        0x08: "100G ACC or 25GAUI C2M ACC, BER < 5e-5",
        0x0B: "100GBASE-CR4, 25GBASE-CR CA-L or 50GBASE-CR2 with RS-FEC",
        0x0C: "25GBASE-CR CA-S or 50GBASE-CR2 with BASE-R FEC",
        0x0D: "25GBASE-CR CA-N or 50GBASE-CR2 without FEC",
        0x0E: "10 Mb/s single pair Ethernet",
        0x10: "40GBASE-ER4",
        0x11: "4 x 10GBASE-SR",
        0x12: "40G PSM4",
        0x13: "G.959.1 P1I1-2D1",
        0x14: "G.959.1 P1S1-2D2",
        0x15: "G.959.1 P1L1-2D2",
        0x16: "10GBASE-T",
        0x17: "100G CLR4",
        0x18: "100G AOC or 25GAUI C2M AOC, BER < 1e-12",
        0x19: "100G ACC or 25GAUI C2M ACC, BER < 1e-12",
        0x1A: "100GE-DWDM2",
        0x1B: "100G 1550 nm WDM",
        0x1C: "10GBASE-T short reach",
        0x1D: "5GBASE-T",
        0x1E: "2.5GBASE-T",
        0x1F: "40G SWDM4",
        0x20: "100G SWDM4",
        0x21: "100G PAM4 BiDi",
        0x22: "100G 4WDM-10",
        0x23: "100G 4WDM-20",
        0x24: "100G 4WDM-40",
        0x25: "100GBASE-DR",
        0x26: "100GBASE-FR1",
        0x27: "100GBASE-LR1",
        0x28: "100G-SR1",
        0x29: "100GBASE-SR1, 200GBASE-SR2 or 400GBASE-SR4",
        0x2A: "100GBASE-FR1",
        0x2B: "100GBASE-LR1",
        0x30: "ACC with 50GAUI, 100GAUI-2 or 200GAUI-4, BER < 1e-6",
        0x31: "AOC with 50GAUI, 100GAUI-2 or 200GAUI-4, BER < 1e-6",
        0x32: "ACC with 50GAUI, 100GAUI-2 or 200GAUI-4, BER < 2.6e-4",
        0x33: "AOC with 50GAUI, 100GAUI-2 or 200GAUI-4, BER < 2.6e-4",
        0x3F: "100GBASE-CR1, 200GBASE-CR2 or 400GBASE-CR4",
        0x40: "50GBASE-CR, 100GBASE-CR2 or 200GBASE-CR4",
        0x41: "50GBASE-SR, 100GBASE-SR2 or 200GBASE-SR4",
        0x42: "50GBASE-FR or 200GBASE-DR4",
        0x43: "200GBASE-FR4",
        0x44: "200G 1550 nm PSM4",
        0x45: "50GBASE-LR",
        0x46: "200GBASE-LR4",
        0x47: "400GBASE-DR4",
        0x48: "400GBASE-FR4",
        0x49: "400GBASE-LR4-6",
        0x7F: "256GFC-SW4",
        0x80: "64GFC",
        0x81: "128GFC",
    }
)
"""Extended compliance codes, SFF-8024 Table 4-4, where public decoders agree."""


def technologies(memory: bytes) -> tuple[str, ...]:
    """Return the names of a module's technologies, from memory A0h."""
    names = [name for (byte, bit), name in TRANSCEIVER_CODES.items() if memory[byte] >> bit & 1]
    extended = EXTENDED_COMPLIANCE.get(memory[36])
    return (*names, extended) if extended else tuple(names)


_COPPER_PIGTAIL, _RJ45 = 0x21, 0x22
_COPPER_CONNECTORS = frozenset({_COPPER_PIGTAIL, _RJ45})
_EXTENDED_OPTICAL_CABLES = frozenset({0x01, 0x18, 0x31, 0x33})


def is_copper(memory: bytes) -> bool:
    """Return whether the memory A0h describes a copper cable or a module for copper."""
    return bool(memory[8] & 0x0C) or memory[2] in _COPPER_CONNECTORS


def cable_kind(memory: bytes) -> str:
    """Return the kind of a cable in the memory A0h (SFF-8472 Table 5-3, bits 8.2 and 8.3); empty for other modules."""
    if memory[8] & 0x04:
        return "passive copper cable"
    if memory[8] & 0x08:  # optical cables may set this bit too
        return "active optical cable" if memory[36] in _EXTENDED_OPTICAL_CABLES else "active cable"
    return "copper cable" if memory[2] == _COPPER_PIGTAIL else ""
