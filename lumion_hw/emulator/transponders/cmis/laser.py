"""Tunable lasers, one per media lane: grid, channel, fine offset and target power (CMIS 8.11).

The registers keep what was written. What the laser does follows from them as a whole, judged at the end of each
transaction: if they name a frequency that the module can make and is not making, it tunes there.
"""

from __future__ import annotations

from lumion_hw.emulator.transponders.cmis.core import Appointment, Core
from lumion_hw.emulator.transponders.cmis.data_paths import DataPaths
from lumion_hw.emulator.transponders.cmis.host_port import Written
from lumion_hw.emulator.transponders.cmis.profile import ModuleLaserProfile
from lumion_hw.standards.cmis.codes import Grid
from lumion_hw.standards.cmis.grids import LaserGrids, reported_mhz

_GRID, _CHANNEL, _FINE, _POWER = 128, 136, 152, 200
TUNING_PAGE = 0x12
"""Page of the tuning registers."""


def tuning_bytes(media_lanes: int) -> list[int]:
    """Return the bytes of page 12h whose write is judged."""
    return [
        byte
        for lane in range(media_lanes)
        for byte in (
            _GRID + lane,
            *(first + 2 * lane + half for first in (_CHANNEL, _FINE, _POWER) for half in (0, 1)),
        )
    ]


class Laser:
    """The laser of one media lane.

    Args:
        core: The module.
        paths: The data paths: some modules do not tune while one is at work.
        profile: What it can do.
        lane: Media lane, from 1.
        error_mhz: Fixed difference between its true and its reported frequency.
    """

    def __init__(self, core: Core, paths: DataPaths, profile: ModuleLaserProfile, lane: int, error_mhz: float) -> None:
        self._core, self._paths, self._profile = core, paths, profile
        self.lane, self.error_mhz = lane, error_mhz
        self._grids = LaserGrids(profile.grids, profile.fine)
        self.restart()

    def restart(self) -> None:
        """Go back to the default channel, unlocked until the module is ready."""
        profile = self._profile
        self._ready = False
        self._timer: Appointment | None = None
        self._coarse: tuple[Grid, int] = (profile.default_grid, profile.default_channel)
        self._fine_mhz = 0
        self._current: tuple[int, int] = (reported_mhz(*self._coarse), 0)
        self._dark = False
        self._shown: tuple[bool, bool] | None = None
        self.power_dbm = profile.default_power_dbm
        self._put()

    @property
    def frequency_mhz(self) -> int:
        """Frequency the laser reports."""
        return sum(self._current)

    @property
    def true_frequency_mhz(self) -> float:
        """Frequency the laser has."""
        return self.frequency_mhz + self.error_mhz

    @property
    def tuning(self) -> bool:
        """Whether it is on its way to another frequency."""
        return self._timer is not None

    @property
    def locked(self) -> bool:
        """Whether its light may leave the module: powered, and not between channels."""
        return self._ready and not self._dark and not self._core.has("wavelength_unlocked")

    # -- the host's writes ------------------------------------------------------------------------------------------

    def written(self, written: Written) -> None:
        """Judge what the host wrote to this lane's registers."""
        offset = self.lane - 1
        touched = {byte for page, byte in written if page == TUNING_PAGE}
        if touched & {_POWER + 2 * offset, _POWER + 2 * offset + 1}:
            self._judge_power()
        channel = bool(touched & {_CHANNEL + 2 * offset, _CHANNEL + 2 * offset + 1})
        fine = bool(touched & {_FINE + 2 * offset, _FINE + 2 * offset + 1})
        if channel or fine or _GRID + offset in touched:
            self._judge_frequency(asked=channel or fine)

    def _flag(self, name: str) -> None:
        self._core.flags.raise_event(f"{name}_flag", self.lane)

    def _judge_power(self) -> None:
        power_dbm = self._core.memory.number("target_output_power", self.lane)
        if self._profile.min_power_dbm <= power_dbm <= self._profile.max_power_dbm:
            self.power_dbm = power_dbm
        else:
            self._flag("target_output_power_oor")

    def _judge_frequency(self, *, asked: bool) -> None:
        """Tune to what the registers say; ``asked`` for a write that a host expects to complete."""
        memory = self._core.memory
        code, channel = memory.count("grid", self.lane), memory.count("channel", self.lane)
        if code not in set(Grid) or not self._grids.allows(Grid(code), channel):
            self._flag("invalid_channel")
            return
        coarse = (Grid(code), channel)
        wanted_mhz = self._wanted_fine_mhz()
        fine_mhz = self._fine_mhz if wanted_mhz is None else wanted_mhz
        if coarse == self._coarse and fine_mhz == self._fine_mhz:
            if asked and wanted_mhz is not None and not self.tuning and self._ready:
                self._flag("tuning_complete")
            return
        moves = reported_mhz(*coarse) != reported_mhz(*self._coarse)
        busy = any(path.state not in self._profile.retune_states for path in self._paths.on_media_lane(self.lane))
        if moves and busy:
            self._flag("tuning_not_accepted")
            return
        self._coarse, self._fine_mhz = coarse, fine_mhz
        if self._ready:
            self._tune()

    def _wanted_fine_mhz(self) -> int | None:
        """Return the fine offset to use; one that is out of range is flagged, and ``None`` leaves the old one."""
        memory, fine = self._core.memory, self._profile.fine
        if fine is None or not memory.count("fine_tuning_enable", self.lane):
            return 0
        offset_mhz = memory.count("fine_tuning_offset", self.lane)
        if fine.allows(offset_mhz):
            return offset_mhz
        self._flag("fine_tuning_oor")
        return None

    # -- tuning -----------------------------------------------------------------------------------------------------

    def step(self, ready: bool) -> bool:
        """Follow the module into and out of its ready state; returns whether that changed anything."""
        if ready == self._ready:
            self._hold_unlocked()
            return False
        self._ready = ready
        self._cancel()
        self._dark = False
        if ready:
            moved = self._current != (reported_mhz(*self._coarse), self._fine_mhz)
            self._arrive(announce=moved)
        self._put()
        return True

    def _tune(self) -> None:
        times = self._core.timing
        self._cancel()
        far = reported_mhz(*self._coarse) != self._current[0]
        self._dark = self._dark or far
        if self._core.has("stuck_tuning"):
            self._timer = self._core.agenda.after(float("inf"), self._done)
        else:
            self._timer = self._core.agenda.after(times.tuning_s if self._dark else times.fine_tuning_s, self._done)
        self._put()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _done(self) -> None:
        self._timer = None
        self._dark = False
        self._arrive(announce=True)
        self._put()

    def _arrive(self, *, announce: bool) -> None:
        self._current = (reported_mhz(*self._coarse), self._fine_mhz)
        if announce:
            self._flag("tuning_complete")

    def _put(self) -> None:
        memory = self._core.memory
        memory.put("current_frequency", self.frequency_mhz, self.lane)
        memory.put("tuning_in_progress", self.tuning, self.lane)
        self._hold_unlocked()

    def _hold_unlocked(self) -> None:
        shown = (self._ready, self.locked)
        if shown == self._shown:
            return
        self._shown = shown
        self._core.memory.put("wavelength_unlocked", not self.locked, self.lane)
        self._core.flags.hold("wavelength_unlocked_flag", self._ready and not self.locked, self.lane)
