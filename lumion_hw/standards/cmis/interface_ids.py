"""Identifiers of SFF-8024 (Rev 4.13): form factors, connectors, host and media interfaces.

Codes without a name are reserved or vendor-specific; see ``codes.RANGES``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

IDENTIFIERS: Mapping[int, str] = MappingProxyType(
    {
        0x00: "unspecified",
        0x01: "GBIC",
        0x02: "soldered to the board",
        0x03: "SFP/SFP+",
        0x04: "300-pin XBI",
        0x05: "XENPAK",
        0x06: "XFP",
        0x07: "XFF",
        0x08: "XFP-E",
        0x09: "XPAK",
        0x0A: "X2",
        0x0B: "DWDM-SFP",
        0x0C: "QSFP",
        0x0D: "QSFP+",
        0x0E: "CXP",
        0x0F: "Mini Multilane HD 4X",
        0x10: "Mini Multilane HD 8X",
        0x11: "QSFP28",
        0x12: "CXP2",
        0x13: "CDFP style 1 or 2",
        0x14: "Mini Multilane HD 4X fanout",
        0x15: "Mini Multilane HD 8X fanout",
        0x16: "CDFP style 3",
        0x17: "microQSFP",
        0x18: "QSFP-DD",
        0x19: "OSFP",
        0x1A: "SFP-DD",
        0x1B: "DSFP",
        0x1C: "MiniLink x4",
        0x1D: "MiniLink x8",
        0x1E: "QSFP with CMIS",
        0x1F: "SFP-DD with CMIS",
        0x20: "SFP with CMIS",
        0x21: "OSFP-XD with CMIS",
        0x22: "ELSFP with CMIS",
        0x23: "CDFP x4 PCIe with CMIS",
        0x24: "CDFP x8 PCIe with CMIS",
        0x25: "CDFP x16 PCIe with CMIS",
        0x26: "XPO",
        0x7E: "backplane cartridge",
        0x80: "CPO",
    }
)
"""Form factors, SFF-8024 Table 4-1. Code 80h is vendor-specific, used for co-packaged optics."""

CMIS_IDENTIFIERS = frozenset({0x18, 0x19, 0x1B, *range(0x1E, 0x26), 0x80})
"""Form factors whose memory is CMIS."""

ELSFP_IDENTIFIER = 0x22
"""Form factor of external laser sources."""

CONNECTORS: Mapping[int, str] = MappingProxyType(
    {
        0x00: "unspecified",
        0x01: "SC",
        0x02: "Fibre Channel style 1 copper",
        0x03: "Fibre Channel style 2 copper",
        0x04: "BNC/TNC",
        0x05: "Fibre Channel coax",
        0x06: "Fiber Jack",
        0x07: "LC",
        0x08: "MT-RJ",
        0x09: "MU",
        0x0A: "SG",
        0x0B: "optical pigtail",
        0x0C: "MPO 1x12",
        0x0D: "MPO 2x16",
        0x20: "HSSDC II",
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
        0x12: "copper cable, near and far end linear active equalizers",
        0x13: "copper cable, far end linear active equalizers",
        0x14: "copper cable, near end linear active equalizers",
    }
)
"""Media interface technologies, CMIS 00h:212."""

COPPER_TECHNOLOGIES = frozenset({*range(0x0A, 0x10), *range(0x12, 0x15)})
"""Technologies of copper cables."""
PASSIVE_COPPER_TECHNOLOGIES = frozenset({0x0A, 0x0B})
"""Technologies of copper cables without active equalizers."""
LASER_TECHNOLOGIES = frozenset({*range(0x08), 0x09, 0x10, 0x11})
"""Technologies with a laser."""
TUNABLE_TECHNOLOGIES = frozenset({0x10, 0x11})
"""Technologies with a tunable laser."""

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
        0x1E: "200GBASE-CR1",
        0x1F: "400GBASE-CR2",
        0x20: "LEI-100G-PAM4-1",
        0x21: "LEI-200G-PAM4-2",
        0x22: "LEI-400G-PAM4-4",
        0x23: "LEI-800G-PAM4-8",
        0x24: "50GBASE-T",
        0x25: "8GFC",
        0x26: "10GFC",
        0x27: "16GFC",
        0x28: "32GFC",
        0x29: "64GFC",
        0x2A: "128GFC, 4 lanes",
        0x2B: "256GFC",
        0x2C: "IB SDR",
        0x2D: "IB DDR",
        0x2E: "IB QDR",
        0x2F: "IB FDR",
        0x30: "IB EDR",
        0x31: "IB HDR",
        0x32: "IB NDR",
        0x33: "CPRI E.96",
        0x34: "CPRI E.99",
        0x35: "CPRI E.119",
        0x36: "CPRI E.238",
        0x37: "OTL3.4",
        0x38: "OTL4.10",
        0x39: "OTL4.4",
        0x3A: "OTLC.4",
        0x3B: "FOIC1.4",
        0x3C: "FOIC1.2",
        0x3D: "FOIC2.8",
        0x3E: "FOIC2.4",
        0x3F: "FOIC4.16",
        0x40: "FOIC4.8",
        0x41: "CAUI-4 C2M without FEC",
        0x42: "CAUI-4 C2M with RS-FEC",
        0x43: "50GBASE-CR2 with RS-FEC",
        0x44: "50GBASE-CR2 with BASE-R FEC",
        0x45: "50GBASE-CR2 without FEC",
        0x46: "100GBASE-CR1",
        0x47: "200GBASE-CR2",
        0x48: "400GBASE-CR4",
        0x49: "800GBASE-CR8",
        0x4A: "128GFC",
        0x4B: "100GAUI-1-S C2M",
        0x4C: "100GAUI-1-L C2M",
        0x4D: "200GAUI-2-S C2M",
        0x4E: "200GAUI-2-L C2M",
        0x4F: "400GAUI-4-S C2M",
        0x50: "400GAUI-4-L C2M",
        0x51: "800GAUI-8-S C2M",
        0x52: "800GAUI-8-L C2M",
        0x53: "OTL4.2",
        0x55: "1.6TAUI-16-S C2M",
        0x56: "1.6TAUI-16-L C2M",
        0x57: "800GBASE-CR4",
        0x58: "1.6TBASE-CR8",
        0x70: "PCIe 4.0",
        0x71: "PCIe 5.0",
        0x72: "PCIe 6.0",
        0x73: "PCIe 7.0",
        0x74: "CEI-112G-LINEAR-PAM4",
        0x80: "200GAUI-1 C2M",
        0x81: "400GAUI-2 C2M",
        0x82: "800GAUI-4 C2M",
        0x83: "1.6TAUI-8 C2M",
        0x90: "EEI-100G-RTLR-1-S",
        0x91: "EEI-100G-RTLR-1-L",
        0x92: "EEI-200G-RTLR-2-S",
        0x93: "EEI-200G-RTLR-2-L",
        0x94: "EEI-400G-RTLR-4-S",
        0x95: "EEI-400G-RTLR-4-L",
        0x96: "EEI-800G-RTLR-8-S",
        0x97: "EEI-800G-RTLR-8-L",
        0x98: "EEI-200G-RTLR-1",
        0x99: "EEI-400G-RTLR-2",
        0x9A: "EEI-800G-RTLR-4",
        0x9B: "EEI-1.6T-RTLR-8",
        0xA0: "IB XDR",
        0xB0: "FOIC1.1",
        0xB1: "FOIC4.4",
        0xB2: "FOIC8.8",
        0xB3: "FOIC1e.1",
        0xB4: "FOIC4e.4",
        0xB5: "FOIC1o.1",
        0xB6: "FOIC4o.4",
        0xB7: "G.9804.3",
        0xFF: "end of list",
    }
)
"""Host electrical interfaces, SFF-8024 Table 4-5."""

END_OF_APPLICATIONS = 0xFF
"""Host interface id that ends the list of applications."""

MEDIA_SMF: Mapping[int, str] = MappingProxyType(
    {
        0x00: "undefined",
        0x01: "10GBASE-LW",
        0x02: "10GBASE-EW",
        0x03: "10G-ZW",
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
        0x1F: "8GFC-SM",
        0x20: "10GFC-SM",
        0x21: "16GFC-SM",
        0x22: "32GFC-SM",
        0x23: "64GFC-SM",
        0x24: "128GFC-PSM4",
        0x26: "128GFC-CWDM4",
        0x2C: "4I1-9D1F",
        0x2D: "4L1-9C1F",
        0x2E: "4L1-9D1F",
        0x2F: "C4S1-9D1F",
        0x30: "C4S1-4D1F",
        0x31: "4I1-4D1F",
        0x32: "8R1-4D1F",
        0x33: "8I1-4D1F",
        0x34: "100G CWDM4-OCP",
        0x35: "ZR400-OFEC-16QAM-HA",
        0x36: "ZR400-OFEC-16QAM-HB",
        0x37: "ZR400-OFEC-8QAM-HA",
        0x38: "10G-SR",
        0x39: "10G-LR",
        0x3A: "25G-SR",
        0x3B: "25G-LR",
        0x3C: "10G-LR-BiDi",
        0x3D: "25G-LR-BiDi",
        0x3E: "400ZR, DWDM, amplified",
        0x3F: "400ZR, single wavelength, unamplified",
        0x40: "50GBASE-ER",
        0x41: "200GBASE-ER4",
        0x42: "400GBASE-ER8",
        0x43: "400GBASE-LR4-6",
        0x44: "100GBASE-ZR",
        0x45: "128GFC-SM",
        0x46: "ZR400-OFEC-16QAM",
        0x47: "ZR300-OFEC-8QAM",
        0x48: "ZR200-OFEC-QPSK",
        0x49: "ZR100-OFEC-QPSK",
        0x4A: "100G-LR1-20",
        0x4B: "100G-ER1-30",
        0x4C: "100G-ER1-40",
        0x4D: "400GBASE-ZR",
        0x4E: "10GBASE-BR",
        0x4F: "25GBASE-BR",
        0x50: "50GBASE-BR",
        0x51: "FOIC1.4-DO",
        0x52: "FOIC2.8-DO",
        0x53: "FOIC4.8-DO",
        0x54: "FOIC2.4-DO",
        0x55: "400GBASE-DR4-2",
        0x56: "800GBASE-DR8",
        0x57: "800GBASE-DR8-2",
        0x58: "ZR400-OFEC-8QAM-HB",
        0x59: "ZR300-OFEC-8QAM-HA",
        0x5A: "ZR300-OFEC-8QAM-HB",
        0x5B: "ZR200-OFEC-QPSK-HA",
        0x5C: "ZR200-OFEC-QPSK-HB",
        0x5D: "ZR100-OFEC-QPSK-HA",
        0x5E: "ZR100-OFEC-QPSK-HB",
        0x5F: "FLEXO-4-DO-16QAM",
        0x60: "FLEXO-3-DO-8QAM",
        0x61: "FLEXO-2-DO-QPSK",
        0x62: "FLEXO-2-DO-16QAM",
        0x63: "FLEXO-1-DO-QPSK",
        0x64: "FLEXO-4e-DO-QPSK",
        0x65: "FLEXO-4-DO-QPSK",
        0x66: "FLEXO-8e-DO-16QAM",
        0x67: "FLEXO-8-DO-16QAM",
        0x68: "FLEXO-8e-DPO-16QAM",
        0x69: "FLEXO-8-DPO-16QAM",
        0x6A: "FLEXO-6e-DPO-16QAM",
        0x6B: "FLEXO-6-DPO-16QAM",
        0x6C: "800ZR-A",
        0x6D: "800ZR-B",
        0x6E: "800ZR-C",
        0x6F: "400G-ER4-30",
        0x70: "1I1-5D1F",
        0x71: "1R1-5D1F",
        0x72: "FOIC1.1-RS",
        0x73: "200GBASE-DR1",
        0x74: "200GBASE-DR1-2",
        0x75: "400GBASE-DR2",
        0x76: "400GBASE-DR2-2",
        0x77: "800GBASE-DR4",
        0x78: "800GBASE-DR4-2",
        0x79: "800GBASE-FR4-500",
        0x7A: "800GBASE-FR4",
        0x7B: "800GBASE-LR4",
        0x7C: "800GBASE-LR1",
        0x7D: "800GBASE-ER1-20",
        0x7E: "800GBASE-ER1",
        0x7F: "1.6TBASE-DR8",
        0x80: "1.6TBASE-DR8-2",
        0x81: "XR400-16QAM",
        0x82: "XR300-8QAM",
        0x83: "XR200-QPSK",
        0x84: "XR200-16QAM",
        0x85: "XR100-QPSK",
        0x86: "XR100-16QAM",
        0x87: "XR400-WS-16QAM",
        0x88: "XR200-WS-QPSK",
        0x89: "XR200-WS-16QAM",
        0x8A: "XR100-WS-QPSK",
        0x8B: "XR100-WS-16QAM",
        0x8C: "XR200-WS-BIDI-16QAM",
        0x8D: "XR100-WS-BIDI-QPSK",
        0x8E: "XR100-WS-BIDI-16QAM",
        0x8F: "100G-DR1-LPO",
        0x90: "200G-DR2-LPO",
        0x91: "400G-DR4-LPO",
        0x92: "800G-DR8-LPO",
        0x93: "400G-FR4-LPO",
    }
)
"""Media interfaces on single-mode fibre, SFF-8024 Table 4-7."""

COHERENT_MEDIA = frozenset(
    code
    for code, name in MEDIA_SMF.items()
    if name.startswith(("400ZR", "800ZR", "ZR", "FLEXO-", "XR"))
    or name.endswith("-DO")
    or name in ("100GBASE-ZR", "400GBASE-ZR", "800GBASE-LR1", "800GBASE-ER1", "800GBASE-ER1-20")
)
"""Single-mode media interfaces that are coherent."""

FEC_LIMITS: Mapping[int, float] = MappingProxyType(
    {
        **dict.fromkeys((0x3E, 0x3F, 0x4D), 1.25e-2),  # CFEC: OIF-400ZR, IEEE 802.3 clause 156
        **dict.fromkeys(
            (
                code
                for code, name in MEDIA_SMF.items()
                if "OFEC" in name or name.startswith(("FLEXO-", "800ZR")) or name.endswith("-DO")
            ),
            2.0e-2,  # oFEC: OpenZR+ MSA, ITU-T G.709.3 (-DO, -DPO), OIF-800ZR
        ),
    }
)
"""Highest pre-FEC bit error ratio that a coherent media interface can correct, where known."""

MEDIA_MMF: Mapping[int, str] = MappingProxyType(
    {
        0x00: "undefined",
        0x01: "10GBASE-SW",
        0x02: "10GBASE-SR",
        0x03: "25GBASE-SR",
        0x04: "40GBASE-SR4",
        0x05: "40GE SWDM4",
        0x06: "40GE BiDi",
        0x07: "50GBASE-SR",
        0x08: "100GBASE-SR10",
        0x09: "100GBASE-SR4",
        0x0A: "100GE SWDM4",
        0x0B: "100GE BiDi",
        0x0C: "100GBASE-SR2",
        0x0D: "100GBASE-SR1",
        0x0E: "200GBASE-SR4",
        0x0F: "400GBASE-SR16",
        0x10: "400GBASE-SR8",
        0x11: "400GBASE-SR4",
        0x12: "800GBASE-SR8",
        0x13: "8GFC-MM",
        0x14: "10GFC-MM",
        0x15: "16GFC-MM",
        0x16: "32GFC-MM",
        0x17: "64GFC-MM",
        0x18: "128GFC-MM4",
        0x19: "256GFC-MM4",
        0x1A: "400GBASE-SR4.2",
        0x1B: "200GBASE-SR2",
        0x1C: "128GFC-MM",
        0x1D: "100GBASE-VR1",
        0x1E: "200GBASE-VR2",
        0x1F: "400GBASE-VR4",
        0x20: "800GBASE-VR8",
        0x21: "800G-VR4.2",
        0x22: "800G-SR4.2",
        0x23: "1.6T-VR8.2",
        0x24: "1.6T-SR8.2",
    }
)
"""Media interfaces on multimode fibre, SFF-8024 Table 4-6."""

MEDIA_PASSIVE_COPPER: Mapping[int, str] = MappingProxyType(
    {
        0x00: "undefined",
        0x01: "copper cable",
        0xBF: "passive loopback module",
        0xC0: "linear active copper loopback module",
    }
)
"""Media interfaces of passive and linear active copper cables, SFF-8024 Table 4-8."""

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
"""Media interfaces of limiting and retimed active cables, SFF-8024 Table 4-9."""

MEDIA_BASE_T: Mapping[int, str] = MappingProxyType(
    {
        0x00: "undefined",
        0x01: "1000BASE-T",
        0x02: "2.5GBASE-T",
        0x03: "5GBASE-T",
        0x04: "10GBASE-T",
        0x05: "25GBASE-T",
        0x06: "40GBASE-T",
        0x07: "50GBASE-T",
    }
)
"""Media interfaces on twisted pair (BASE-T), SFF-8024 Table 4-10."""
