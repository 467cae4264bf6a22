"""One attenuator of a Keysight N77xx: its filter and shutter, its power monitor, its table of offsets, its status.

Rules of the N77xx Series Programming Guide, "Signal Conditioning" and "The Status Model - Variable Optical
Attenuators": attenuation displayed = filter + offset; power displayed = power measured - power offset - offset of the
wavelength (``CONFigure:OFFSet:WAVelength``); interpolated between the entries of the table, that of the nearest entry
beyond them. Opening takes the speed of the filter, closing does not.
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
"""Largest speed that is controlled; inputs above it are set to full speed."""
MONITOR_DARK_W = 100e-12
"""What a monitor shows in the dark: data sheets add 200 pW to its uncertainty (check)."""
MOST_OFFSETS = 1000
ZEROING, SHUTTER_OPEN, OFFSET_ENABLED = 8, 16, 32
BELOW, ABOVE, INTERPOLATED = 64, 128, 192
"""Bits of ``STATus[n]:OPERation``; the last two tell how the offset of the wavelength was found, 0 for an entry."""


@dataclass
class N77xxAttenuation:
    """What ``*RST`` sets back for one channel."""

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
    """Offsets by wavelength; kept without power once it is in use.

    Attributes:
        entries: Pairs of wavelength in m and offset in dB, ascending.
        enabled: It is in use.
        reference: Slot and channel of the power meter for ``TOREF``.
    """

    entries: list[tuple[float, float]] = field(default_factory=list)
    enabled: bool = False
    reference: tuple[int, int] = (1, 1)

    def put(self, wavelength_m: float, offset_db: float) -> None:
        """Add an entry, or overwrite that of the same wavelength."""
        kept = [each for each in self.entries if each[0] != wavelength_m]
        bisect.insort(kept, (wavelength_m, offset_db))
        self.entries = kept

    def at(self, wavelength_m: float) -> tuple[float, int]:
        """Return the offset at a wavelength in dB, and the status bits that tell how it was found."""
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
        share = (wavelength_m - low_m) / (high_m - low_m)
        return low_db + share * (high_db - low_db), OFFSET_ENABLED | INTERPOLATED

    def packed(self) -> bytes:
        """Return all entries as bytes: float64 of the wavelength and float32 of the offset, little-endian."""
        return b"".join(struct.pack("<df", *each) for each in self.entries)


class AttenuatorChannel:
    """One filter, its shutter and its monitor.

    Args:
        clock: The injected clock.
        largest_db: Largest attenuation of the filter.
        insertion_loss_db: What it takes at its least.

    Attributes:
        settings: What the host has set.
        offsets: Offsets by wavelength.
        zeroing: The monitor is being zeroed: the shutter is closed meanwhile.
        operation: ``STATus[n]:OPERation`` of its slot.
        questionable: ``STATus[n]:QUEStionable`` of its slot.
    """

    def __init__(self, clock: Clock, largest_db: float, insertion_loss_db: float) -> None:
        self._clock, self.largest_db, self.insertion_loss_db = clock, largest_db, insertion_loss_db
        self.settings = N77xxAttenuation()
        self.offsets = OffsetTable()
        self.zeroing = False
        self.operation, self.questionable = RegisterGroup(), RegisterGroup()
        self._from_db = self._to_db = 0.0
        self._begun_s = self._arrives_s = clock.now()

    @property
    def target_db(self) -> float:
        """Where the filter is or goes."""
        return self._to_db

    @property
    def filter_db(self) -> float:
        """Where the filter is."""
        left_s = self._arrives_s - self._clock.now()
        if left_s <= 0.0:
            return self._to_db
        gone = 1.0 - left_s / (self._arrives_s - self._begun_s)
        return self._from_db + gone * (self._to_db - self._from_db)

    def move(self, target_db: float) -> float:
        """Set out for an attenuation of the filter; return how long that takes."""
        self._from_db = self.filter_db
        self._to_db, self._begun_s = target_db, self._clock.now()
        duration_s = abs(target_db - self._from_db) / self.settings.speed_db_per_s
        self._arrives_s = self._begun_s + duration_s
        return duration_s

    @property
    def transmission(self) -> float:
        """Share of the light that passes."""
        shut_db = 0.0 if self.settings.open and not self.zeroing else SHUTTER_DB
        return float(10.0 ** (-(self.insertion_loss_db + self.filter_db + shut_db) / 10.0))

    @property
    def display_db(self) -> float:
        """What is taken off the power measured before it is shown, in dB."""
        return self.settings.power_offset_db + self.offsets.at(self.settings.wavelength_m)[0]

    def monitored_w(self, behind_w: float) -> float:
        """Return what the monitor measures of the power behind the channel, never nothing."""
        return behind_w + MONITOR_DARK_W

    def refresh(self) -> None:
        """Bring the status register to the present state."""
        _, bits = self.offsets.at(self.settings.wavelength_m)
        is_open = self.settings.open and not self.zeroing
        self.operation.condition = bits | SHUTTER_OPEN * is_open | ZEROING * self.zeroing
