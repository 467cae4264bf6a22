"""Registers StatusF and StatusW of an ITLA (MSA-01.3 section 9.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lumion_hw.emulator.lasers.itla import registers as reg


@dataclass
class ItlaStatus:
    """Latched bits of StatusF (``fatal``) and StatusW (``warning``), which stay set until they are cleared."""

    fatal: int = 0
    warning: int = 0

    def latch(self, bits: int) -> None:
        """Set bits in both StatusF and StatusW until they are cleared."""
        self.fatal |= bits
        self.warning |= bits

    def summary(self, stored: Mapping[int, int], *, disabled: bool) -> int:
        """Return the summary bits 12 to 15 of StatusF and StatusW.

        Args:
            stored: Trigger masks by register number.
            disabled: Whether the hardware pin keeps the output off.
        """
        # The trigger masks have fatal deviations in bits 0 to 3 and warnings in bits 8 to 11.
        deviations = (self.fatal & 0x0F) | (self.warning & 0x0F) << 8
        events = deviations | (self.fatal & 0xF0) | reg.DISABLED * disabled
        fatal = deviations | (self.fatal & reg.MODULE_RESTARTED)
        return (
            reg.DISABLED * disabled
            | reg.FATAL * bool(fatal & stored[reg.FATAL_T])
            | reg.ALARM * bool(deviations & stored[reg.ALM_T])
            | reg.SERVICE * bool(events & stored[reg.SRQ_T])
        )


def live_conditions(stored: Mapping[int, int], deviation_db: float, *, tuning: bool, fatal: bool) -> int:
    """Return the bits 0 to 3 of StatusF or StatusW, which follow the present condition of the enabled output.

    Args:
        stored: Thresholds set by the host, by register number.
        deviation_db: Deviation of the power from its setting.
        tuning: Whether the laser is tuning.
        fatal: Whether to return the bits of StatusF rather than StatusW.
    """
    if tuning and not stored[reg.MCB] & reg.ALARM_DURING_TUNING:
        return 0
    threshold_db = stored[reg.F_POW_TH if fatal else reg.W_POW_TH] / 100.0
    return reg.POWER * (deviation_db > threshold_db) | reg.FREQUENCY * tuning
