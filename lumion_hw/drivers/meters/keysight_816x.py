"""Keysight (Agilent) 8163, 8164 and 8166 mainframes with power sensors such as the dual 81635A.

The mainframe itself says which slots hold power meters, and with how many heads. Averaging, automatic ranging and
logging are settings of a module: its first head takes them, and they act on both. Manual ranges, wavelengths and
units belong to each head.
"""

from __future__ import annotations

import struct

from lumion_hw.drivers.meters.keysight_functions import LoggingKeysightMeter
from lumion_hw.drivers.meters.keysight_meter import Head
from lumion_hw.errors import IdentityError

MAINFRAMES = ("8163A", "8163B", "8164A", "8164B", "8166A", "8166B")
_LARGEST_SLOT = 17


class Keysight816x(LoggingKeysightMeter):
    """Driver of all power sensors of one mainframe; implements ``LoggingMeter``. Thread-safe; every set is read back.

    Channels are numbered from 1 in the order in which the mainframe lists its heads; :meth:`slot_and_head` tells which
    is which. Args and readings as in :class:`~lumion_hw.drivers.meters.keysight_meter.KeysightMeter`.
    """

    makers = ("KEYSIGHT", "AGILENT", "HEWLETT-PACKARD")
    models = MAINFRAMES
    highest_range_dbm = 30.0  # of the commands for ranges; which of its sensors go so far the mainframe does not say
    channel_word = "channel"
    max_samples = 4000  # of the smallest sensors

    def slot_and_head(self, channel: int) -> tuple[int, int]:
        """Return slot and head of a channel, as in the mainframe's own numbering."""
        head = self.head(channel)
        return head.module, int(head.sense.rpartition("CHAN")[2])

    def find_heads(self) -> tuple[Head, ...]:
        """Ask the mainframe for its heads: pairs of uint16, slot and channel."""
        payload = self.session.query_block("READ:POW:ALL:CONF?")
        pairs = list(struct.iter_unpack("<HH", payload)) if payload and len(payload) % 4 == 0 else []
        sane = all(1 <= slot <= _LARGEST_SLOT and head in (1, 2) for slot, head in pairs)
        if not pairs or not sane or len(set(pairs)) != len(pairs):
            raise self.session.error(
                IdentityError,
                f"expected at least one power sensor in this {self.model}; "
                f"found the channel map {payload.hex(' ') or 'empty'}",
                hint="Check which modules are plugged in, or switch the mainframe off and on.",
            )
        return tuple(
            Head(f"SENS{slot}:CHAN{head}", f"SENS{slot}:CHAN1", f"READ{slot}:CHAN{head}", slot) for slot, head in pairs
        )
