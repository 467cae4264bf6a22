"""Registers of an ITLA, with the accepted values of the writable registers (MSA-01.3 table 9.2-1)."""

from __future__ import annotations

from dataclasses import dataclass

NOP = 0x00
DEV_TYP, MFGR, MODEL, SER_NO, MFG_DATE, RELEASE, REL_BACK = range(0x01, 0x08)
GEN_CFG, AEA_EAC, AEA_EA, AEA_EAR = range(0x08, 0x0C)
IO_CAP, LST_RESP, DL_STATUS = 0x0D, 0x13, 0x15
STATUS_F, STATUS_W = 0x20, 0x21
F_POW_TH, W_POW_TH, F_FREQ_TH, W_FREQ_TH = 0x22, 0x23, 0x24, 0x25
SRQ_T, FATAL_T, ALM_T = 0x28, 0x29, 0x2A
CHANNEL, PWR, RES_ENA, MCB, GRID, FCF1, FCF2 = range(0x30, 0x37)
LF1, LF2, OOP, C_TEMP = range(0x40, 0x44)
FTFR, OPSL, OPSH, LFL1, LFL2, LFH1, LFH2, L_GRID, CURRENTS, TEMPS = range(0x4F, 0x59)
AGE, FTF = 0x61, 0x62
F_FREQ_TH2, W_FREQ_TH2, CHANNEL_H, GRID2, FCF3, LF3, LFL3, LFH3, L_GRID2 = range(0x63, 0x6C)
LOW_NOISE = 0x90

ONLY_IN_013 = frozenset(range(F_FREQ_TH2, L_GRID2 + 1))
"""Registers that modules of MSA version 01.2 do not have."""

READ_ONLY = frozenset(
    {DEV_TYP, MFGR, MODEL, SER_NO, MFG_DATE, RELEASE, REL_BACK, LST_RESP, DL_STATUS, CURRENTS, TEMPS, AGE}
    | {LF1, LF2, LF3, OOP, C_TEMP, FTFR, OPSL, OPSH, LFL1, LFL2, LFL3, LFH1, LFH2, LFH3, L_GRID, L_GRID2}
)


@dataclass(frozen=True)
class Stored:
    """An ITLA register that stores a value.

    Attributes:
        default: Value after power-on.
        signed: Whether the 16 bits are a two's complement.
        bits: Bits that may be set.
    """

    default: int
    low: int
    high: int
    signed: bool = False
    bits: int = 0xFFFF

    def accepts(self, data: int) -> bool:
        """Return whether the register accepts a 16-bit value."""
        value = signed(data) if self.signed else data
        return self.low <= value <= self.high and not data & ~self.bits


STORED: dict[int, Stored] = {
    F_POW_TH: Stored(200, 0, 1000),  # dB x 100
    W_POW_TH: Stored(100, 0, 1000),
    F_FREQ_TH: Stored(50, 0, 1000),  # GHz x 10
    W_FREQ_TH: Stored(25, 0, 1000),
    0x26: Stored(1000, 0, 10_000),  # FThermTh, °C x 100
    0x27: Stored(500, 0, 10_000),  # WThermTh
    SRQ_T: Stored(0x1FBF, 0, 0x1FFF),
    FATAL_T: Stored(0x000F, 0, 0x0FFF),
    ALM_T: Stored(0x0D0D, 0, 0x0FFF),
    MCB: Stored(0x0002, 0, 0x0006, bits=0x0006),
    0x59: Stored(0, 0, 0x0033),  # DitherE
    0x5A: Stored(100, 10, 200),  # DitherR, kHz
    0x5B: Stored(1, 0, 100),  # DitherF, GHz x 10
    0x5C: Stored(0, 0, 1000),  # DitherA, % x 10
    0x5D: Stored(-500, -4000, 8500, signed=True),  # TBTFL, °C x 100
    0x5E: Stored(7000, -4000, 8500, signed=True),  # TBTFH
    0x5F: Stored(100, 0, 100),  # FAgeTh, %
    0x60: Stored(90, 0, 100),  # WAgeTh
    F_FREQ_TH2: Stored(0, 0, 99),  # MHz
    W_FREQ_TH2: Stored(0, 0, 99),
    LOW_NOISE: Stored(0, 0, 2),
}

# ResEna
MODULE_RESET, SOFT_RESET, ENABLE = 0x01, 0x02, 0x08
# MCB
ALARM_DURING_TUNING, SHUTDOWN_ON_FATAL = 0x02, 0x04
# GenCfg
STORE_DEFAULTS = 0x8000
# StatusF and StatusW
POWER, THERMAL, FREQUENCY, VENDOR = 0x01, 0x02, 0x04, 0x08
COMMUNICATION_RESET, MODULE_RESTARTED, COMMUNICATION_ERROR, EXECUTION_ERROR = 0x10, 0x20, 0x40, 0x80
LIVE_SHIFT = 8
DISABLED, FATAL, ALARM, SERVICE = 0x1000, 0x2000, 0x4000, 0x8000


def signed(data: int) -> int:
    """Convert 16 bits from two's complement to a signed number."""
    return data - 0x10000 if data & 0x8000 else data


def split_mhz(mhz: int) -> tuple[int, int, int]:
    """Split a frequency in MHz into three registers: THz, GHz times ten, and MHz."""
    thz, remainder = divmod(mhz, 1_000_000)
    return thz, remainder // 100, remainder % 100
