"""One attenuator channel of a Keysight N77xx.

Source: N77xx Series Programming Guide, "Signal Conditioning" and "The Status Model - Variable Optical Attenuators".
Displayed attenuation = filter + offset. Displayed power = measured power - power offset - wavelength offset
(``CONFigure:OFFSet:WAVelength``). The wavelength offset is interpolated between the table's entries; beyond the table
the nearest entry applies.
"""

from __future__ import annotations

import bisect
import math
import struct
from dataclasses import dataclass, field

from lumion_hw.clock import Clock
from lumion_hw.emulator.scpi import RegisterGroup

SHUTTER_DB = 100.0
SPEED_DB_PER_S = 1000.0
CONTROLLED_DB_PER_S = 80.0
"""Largest controlled filter speed in dB/s. With a larger setting the filter moves at full speed."""
MONITOR_DARK_W = 100e-12
"""Reading of a power monitor in the dark, in W: the data sheets add 200 pW to its uncertainty (unverified)."""
MAX_OFFSETS = 1000
ZEROING, SHUTTER_OPEN, OFFSET_ENABLED = 8, 16, 32
BELOW, ABOVE, INTERPOLATED = 64, 128, 192
"""Bits 6 and 7 of ``STATus[n]:OPERation``: the wavelength is below, above or between the table's entries."""


@dataclass
class N77xxAttenuation:
    """Settings of one attenuator channel that ``*RST`` resets."""

    offset_db: float = 0.0
    speed_db_per_s: float = SPEED_DB_PER_S
    wavelength_m: float = 1.55e-6
    open: bool = False
    open_at_power_on: bool = False
    in_watts: bool = False
    power_w: float = 1e-3
    power_offset_db: float = 0.0
    control: bool = False
    averaging_s: float = 0.1
    by_power: bool = False


@dataclass
class OffsetTable:
    """Power offsets by wavelength, which survive a power loss.

    Attributes:
        entries: Pairs of wavelength in m and offset in dB, ascending.
        reference: Slot and channel of the power meter to which ``TOREF`` refers.
    """

    entries: list[tuple[float, float]] = field(default_factory=list)
    enabled: bool = False
    reference: tuple[int, int] = (1, 1)

    def set_entry(self, wavelength_m: float, offset_db: float) -> None:
        """Add or replace the offset for a wavelength."""
        saved_states = [entry for entry in self.entries if entry[0] != wavelength_m]
        bisect.insort(saved_states, (wavelength_m, offset_db))
        self.entries = saved_states

    def offset_at(self, wavelength_m: float) -> tuple[float, int]:
        """Return the offset in dB at a wavelength, and the status bit: below, above or between the entries."""
        if not (self.enabled and self.entries):
            return 0.0, OFFSET_ENABLED * self.enabled
        index = bisect.bisect_left(self.entries, (wavelength_m, -math.inf))
        if index < len(self.entries) and self.entries[index][0] == wavelength_m:
            return self.entries[index][1], OFFSET_ENABLED
        if index == 0:
            return self.entries[0][1], OFFSET_ENABLED | BELOW
        if index == len(self.entries):
            return self.entries[-1][1], OFFSET_ENABLED | ABOVE
        (low_m, low_db), (high_m, high_db) = self.entries[index - 1 : index + 1]
        fraction = (wavelength_m - low_m) / (high_m - low_m)
        return low_db + fraction * (high_db - low_db), OFFSET_ENABLED | INTERPOLATED

    def to_bytes(self) -> bytes:
        """Return all entries as bytes: float64 wavelength and float32 offset, little-endian."""
        return b"".join(struct.pack("<df", *entry) for entry in self.entries)


class AttenuatorChannel:
    """One attenuator channel: filter, shutter and power monitor.

    Attributes:
        zeroing: Whether the monitor is being zeroed, with the shutter closed.
        operation: Status registers ``STATus[n]:OPERation`` of the slot.
        questionable: Status registers ``STATus[n]:QUEStionable`` of the slot.
    """

    def __init__(self, clock: Clock, largest_db: float, insertion_loss_db: float) -> None:
        self._clock, self.largest_db, self.insertion_loss_db = clock, largest_db, insertion_loss_db
        self.settings = N77xxAttenuation()
        self.offsets = OffsetTable()
        self.zeroing = False
        self.operation, self.questionable = RegisterGroup(), RegisterGroup()
        self._from_db = self._to_db = 0.0
        self._start_s = self._end_s = clock.now()

    @property
    def target_db(self) -> float:
        """Target attenuation of the filter in dB."""
        return self._to_db

    @property
    def filter_db(self) -> float:
        """Present attenuation of the filter in dB."""
        remaining_s = self._end_s - self._clock.now()
        if remaining_s <= 0.0:
            return self._to_db
        moved_fraction = 1.0 - remaining_s / (self._end_s - self._start_s)
        return self._from_db + moved_fraction * (self._to_db - self._from_db)

    def move(self, target_db: float) -> float:
        """Start moving the filter to an attenuation in dB. Return the duration in seconds."""
        self._from_db = self.filter_db
        self._to_db, self._start_s = target_db, self._clock.now()
        duration_s = abs(target_db - self._from_db) / self.settings.speed_db_per_s
        self._end_s = self._start_s + duration_s
        return duration_s

    @property
    def transmission(self) -> float:
        """Fraction of the light that the channel transmits now."""
        shutter_db = 0.0 if self.settings.open and not self.zeroing else SHUTTER_DB
        return float(10.0 ** (-(self.insertion_loss_db + self.filter_db + shutter_db) / 10.0))

    @property
    def display_db(self) -> float:
        """Offset in dB that the display subtracts from the measured power."""
        return self.settings.power_offset_db + self.offsets.offset_at(self.settings.wavelength_m)[0]

    def monitored_w(self, after_w: float) -> float:
        """Return the power monitor's reading in W for an output power in W."""
        return after_w + MONITOR_DARK_W

    def refresh(self) -> None:
        """Update the status register of the channel."""
        _, bits = self.offsets.offset_at(self.settings.wavelength_m)
        is_open = self.settings.open and not self.zeroing
        self.operation.condition = bits | SHUTTER_OPEN * is_open | ZEROING * self.zeroing
