"""Driver for Keysight (Agilent) 8163, 8164 and 8166 mainframes with power sensors such as the dual 81635A.

A module may have two sensor heads; averaging, automatic ranging and logging always apply to both.
"""

from __future__ import annotations

import struct

from lumion_hw.drivers.meters.keysight_functions import LoggingKeysightMeter
from lumion_hw.drivers.meters.keysight_meter import Head
from lumion_hw.errors import IdentityError

MAINFRAMES = ("8163A", "8163B", "8164A", "8164B", "8166A", "8166B")
_LARGEST_SLOT = 17


class Keysight816x(LoggingKeysightMeter):
    """Driver of the power sensors of one mainframe; implements ``LoggingMeter``. Thread-safe; settings are read back.

    Channels are numbered from 1 in the order of slots and heads. Arguments as for
    :class:`~lumion_hw.drivers.meters.keysight_meter.KeysightMeter`.
    """

    makers = ("KEYSIGHT", "AGILENT", "HEWLETT-PACKARD")
    models = MAINFRAMES
    highest_range_dbm = 30.0  # limit of the range command; the mainframe does not report the limit of each sensor
    channel_word = "channel"
    max_samples = 4000  # memory of the smallest sensors

    def slot_and_head(self, channel: int) -> tuple[int, int]:
        """Return slot and head of a channel, in the mainframe's numbering."""
        head = self.head(channel)
        return head.module, int(head.sense.rpartition("CHAN")[2])

    def read_heads(self) -> tuple[Head, ...]:
        """Read the list of sensor heads from the mainframe."""
        payload = self.session.query_block("READ:POW:ALL:CONF?")
        pairs = list(struct.iter_unpack("<HH", payload)) if payload and len(payload) % 4 == 0 else []
        sane = all(1 <= slot <= _LARGEST_SLOT and head in (1, 2) for slot, head in pairs)
        if not pairs or not sane or len(set(pairs)) != len(pairs):
            raise self.session.error(
                IdentityError,
                f"expected at least one power sensor in this {self.model}; "
                f"found the channel map {payload.hex(' ') or 'empty'}",
                hint="Check which modules are installed, or switch the mainframe off and on.",
            )
        return tuple(
            Head(f"SENS{slot}:CHAN{head}", f"SENS{slot}:CHAN1", f"READ{slot}:CHAN{head}", slot) for slot, head in pairs
        )
