"""Identifiers of SFF-8024 as far as a photonics lab meets them: form factors, connectors, host and media sides.

Names are shortened to what distinguishes them. Ids that are missing here are shown as numbers and otherwise ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

IDENTIFIERS: Mapping[int, str] = MappingProxyType(
    {
        0x00: "unspecified",
        0x03: "SFP/SFP+",
        0x0D: "QSFP+",
        0x11: "QSFP28",
        0x18: "QSFP-DD",
        0x19: "OSFP",
        0x1A: "SFP-DD",
        0x1B: "DSFP",
        0x1E: "QSFP with CMIS",
        0x1F: "SFP-DD with CMIS",
        0x20: "SFP with CMIS",
        0x80: "CPO",
    }
)
"""Form factors, SFF-8024 Table 4-1."""

CMIS_IDENTIFIERS = frozenset({0x18, 0x19, 0x1B, 0x1E, 0x1F, 0x20, 0x80})
"""Form factors whose memory is CMIS."""

CONNECTORS: Mapping[int, str] = MappingProxyType(
    {
        0x00: "unspecified",
        0x01: "SC",
        0x07: "LC",
        0x09: "MU",
        0x0B: "optical pigtail",
        0x0C: "MPO 1x12",
        0x0D: "MPO 2x16",
        0x21: "copper pigtail",
        0x22: "RJ45",
        0x23: "no separable connector",
        0x24: "MXC 2x16",
        0x25: "CS",
        0x26: "SN",
        0x27: "MPO 2x12",
        0x28: "MPO 1x16",
    }
)
"""Connectors, SFF-8024 Table 4-3."""

TECHNOLOGIES: Mapping[int, str] = MappingProxyType(
    {
        0x00: "850 nm VCSEL",
        0x01: "1310 nm VCSEL",
        0x02: "1550 nm VCSEL",
        0x03: "1310 nm FP",
        0x04: "1310 nm DFB",
        0x05: "1550 nm DFB",
        0x06: "1310 nm EML",
        0x07: "1550 nm EML",
        0x08: "other",
        0x09: "1490 nm DFB",
        0x0A: "copper cable, unequalized",
        0x0B: "copper cable, passive equalized",
        0x0C: "copper cable, near and far end limiting active equalizers",
        0x0D: "copper cable, far end limiting active equalizers",
        0x0E: "copper cable, near end limiting active equalizers",
        0x0F: "copper cable, linear active equalizers",
        0x10: "C-band tunable laser",
        0x11: "L-band tunable laser",
    }
)
"""Media interface technologies, CMIS 00h:212."""

TUNABLE_TECHNOLOGIES = frozenset({0x10, 0x11})
"""Technologies with a tunable laser; with a media interface of ``COHERENT_MEDIA`` the module is a coherent one."""

HOST_INTERFACES: Mapping[int, str] = MappingProxyType(
    {
        0x00: "undefined",
        0x01: "1000BASE-CX",
        0x02: "XAUI",
        0x03: "XFI",
        0x04: "SFI",
        0x05: "25GAUI C2M",
        0x06: "XLAUI C2M",
        0x07: "XLPPI",
        0x08: "LAUI-2 C2M",
        0x09: "50GAUI-2 C2M",
        0x0A: "50GAUI-1 C2M",
        0x0B: "CAUI-4 C2M",
        0x0C: "100GAUI-4 C2M",
        0x0D: "100GAUI-2 C2M",
        0x0E: "200GAUI-8 C2M",
        0x0F: "200GAUI-4 C2M",
        0x10: "400GAUI-16 C2M",
        0x11: "400GAUI-8 C2M",
        0x13: "10GBASE-CX4",
        0x14: "25GBASE-CR CA-L",
        0x15: "25GBASE-CR CA-S",
        0x16: "25GBASE-CR CA-N",
        0x17: "40GBASE-CR4",
        0x18: "50GBASE-CR",
        0x19: "100GBASE-CR10",
        0x1A: "100GBASE-CR4",
        0x1B: "100GBASE-CR2",
        0x1C: "200GBASE-CR4",
        0x1D: "400G CR8",
        0x30: "IB EDR",
        0x31: "IB HDR",
        0x32: "IB NDR",
        0x3B: "FOIC1.4",
        0x3C: "FOIC1.2",
        0x3F: "FOIC4.16",
        0x40: "FOIC4.8",
        0x41: "CAUI-4 C2M without FEC",
        0x42: "CAUI-4 C2M with RS-FEC",
        0x46: "100GBASE-CR1",
        0x47: "200GBASE-CR2",
        0x48: "400GBASE-CR4",
        0x49: "800GBASE-CR8",
        0x4B: "100GAUI-1-S C2M",
        0x4C: "100GAUI-1-L C2M",
        0x4D: "200GAUI-2-S C2M",
        0x4E: "200GAUI-2-L C2M",
        0x4F: "400GAUI-4-S C2M",
        0x50: "400GAUI-4-L C2M",
        0x51: "800GAUI-8-S C2M",
        0x52: "800GAUI-8-L C2M",
        0xFF: "end of list",
    }
)
"""Host electrical interfaces, SFF-8024 Table 4-5."""

END_OF_APPLICATIONS = 0xFF
"""Host interface id that ends the list of applications."""

MEDIA_SMF: Mapping[int, str] = MappingProxyType(
    {
        0x00: "undefined",
        0x04: "10GBASE-LR",
        0x05: "10GBASE-ER",
        0x06: "10G-ZR",
        0x07: "25GBASE-LR",
        0x08: "25GBASE-ER",
        0x09: "40GBASE-LR4",
        0x0A: "40GBASE-FR",
        0x0B: "50GBASE-FR",
        0x0C: "50GBASE-LR",
        0x0D: "100GBASE-LR4",
        0x0E: "100GBASE-ER4",
        0x0F: "100G PSM4",
        0x10: "100G CWDM4",
        0x11: "100G 4WDM-10",
        0x12: "100G 4WDM-20",
        0x13: "100G 4WDM-40",
        0x14: "100GBASE-DR",
        0x15: "100GBASE-FR1",
        0x16: "100GBASE-LR1",
        0x17: "200GBASE-DR4",
        0x18: "200GBASE-FR4",
        0x19: "200GBASE-LR4",
        0x1A: "400GBASE-FR8",
        0x1B: "400GBASE-LR8",
        0x1C: "400GBASE-DR4",
        0x1D: "400GBASE-FR4",
        0x1E: "400G-LR4-10",
        0x35: "ZR400-OFEC-16QAM-HA",
        0x36: "ZR400-OFEC-16QAM-HB",
        0x38: "10G-SR",
        0x39: "10G-LR",
        0x3A: "25G-SR",
        0x3B: "25G-LR",
        0x3C: "10G-LR-BiDi",
        0x3D: "25G-LR-BiDi",
        0x3E: "400ZR, DWDM, amplified",
        0x3F: "400ZR, single wavelength, unamplified",
        0x44: "100GBASE-ZR",
        0x46: "ZR400-OFEC-16QAM",
        0x47: "ZR300-OFEC-8QAM",
        0x48: "ZR200-OFEC-QPSK",
        0x49: "ZR100-OFEC-QPSK",
        0x4D: "400GBASE-ZR",
        0x68: "FLEXO-8e-DPO-16QAM",
        0x6C: "800ZR-A",
        0x6D: "800ZR-B",
        0x6E: "800ZR-C",
    }
)
"""Media interfaces on single-mode fibre, SFF-8024 Table 4-7."""

COHERENT_MEDIA = frozenset(
    {0x35, 0x36, 0x3E, 0x3F, 0x44, 0x46, 0x47, 0x48, 0x49, 0x4D, 0x68, 0x6C, 0x6D, 0x6E},
)
"""Single-mode media interfaces that are coherent."""

MEDIA_MMF: Mapping[int, str] = MappingProxyType(
    {
        0x00: "undefined",
        0x01: "10GBASE-SW",
        0x02: "10GBASE-SR",
        0x03: "25GBASE-SR",
        0x04: "40GBASE-SR4",
        0x07: "50GBASE-SR",
        0x08: "100GBASE-SR10",
        0x09: "100GBASE-SR4",
        0x0C: "100GBASE-SR2",
        0x0D: "100GBASE-SR1",
        0x0E: "200GBASE-SR4",
        0x0F: "400GBASE-SR16",
        0x10: "400GBASE-SR8",
        0x11: "400GBASE-SR4",
        0x12: "800GBASE-SR8",
        0x1A: "400GBASE-SR4.2",
    }
)
"""Media interfaces on multimode fibre, SFF-8024 Table 4-6."""

MEDIA_PASSIVE_COPPER: Mapping[int, str] = MappingProxyType(
    {0x00: "undefined", 0x01: "copper cable", 0x02: "passive loopback module"}
)
"""Passive copper, SFF-8024 Table 4-8."""

MEDIA_ACTIVE_CABLE: Mapping[int, str] = MappingProxyType(
    {
        0x00: "undefined",
        0x01: "active cable, BER < 1e-12",
        0x02: "active cable, BER < 5e-5",
        0x03: "active cable, BER < 2.6e-4",
        0x04: "active cable, BER < 1e-6",
        0xBF: "active loopback module",
    }
)
"""Active cables, SFF-8024 Table 4-9."""

MEDIA_BASE_T: Mapping[int, str] = MappingProxyType(
    {0x00: "undefined", 0x01: "1000BASE-T", 0x02: "2.5GBASE-T", 0x03: "5GBASE-T", 0x04: "10GBASE-T"}
)
"""BASE-T, SFF-8024 Table 4-10."""
