"""The optical ends of one module: its lasers, what its transmitters send, and what its receivers make of what they get.

Tuning (CMIS 8.11): the registers keep what was written. What a laser does follows from them as a whole, judged at the
end of each transaction: if they name a frequency that the module can make and is not making, it tunes there.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from lumion_hw.emulator.transponders.cmis.core import Appointment, Core
from lumion_hw.emulator.transponders.cmis.host_port import Written
from lumion_hw.emulator.transponders.cmis.optics import DARK_DBM, DARKNESS, Emit, LaunchedLight, Optics, ReceivedLight
from lumion_hw.emulator.transponders.cmis.profiles import ModuleLaserProfile
from lumion_hw.emulator.transponders.cmis.reception import Reception, receive
from lumion_hw.emulator.transponders.cmis.states import LIT, DataPaths, lanes_of
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
        # A host that asks for where the laser is waits for the flag all the same; a grid written on its way to a
        # channel does not count as asking.
        if coarse == self._coarse and fine_mhz == self._fine_mhz:
            if asked and wanted_mhz is not None and not self.tuning and self._ready:
                self._flag("tuning_complete")
            return
        # Another name of the same frequency (50 GHz channel 2, 25 GHz channel 4) moves nothing.
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
        # Dark between channels; fine tuning alone keeps the light on.
        self._dark = self._dark or far
        if self._core.has("stuck_tuning"):
            self._timer = self._core.agenda.after(float("inf"), self._done)  # never: the fault is cleared by a reset
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


_TX_OFFSET_DB = 0.1
_LOOPBACK_OSNR_DB = 40.0
_SNR_NOISE_DB = 0.03
_IDLE_SAMPLES = 10
"""A receiver without initialised data path looks at its light with every tenth sample only."""


class Transmitters:
    """The light the module sends, lane by lane; every change is handed to ``emit``.

    Args:
        core: The module.
        paths: The data paths.
        lasers: Tunable lasers by media lane; none for fixed ones.
    """

    def __init__(self, core: Core, paths: DataPaths, lasers: Mapping[int, Laser]) -> None:
        self._core, self._paths, self._lasers = core, paths, lasers
        lanes = range(1, core.profile.media_lanes + 1)
        # A fixed error: each lane has its own, drawn once.
        self._offset_db = {lane: float(core.rng.uniform(-_TX_OFFSET_DB, _TX_OFFSET_DB)) for lane in lanes}
        self._sent = {lane: self._dark(lane) for lane in lanes}
        self.host_signal = 0xFF

    def _dark(self, lane: int) -> LaunchedLight:
        laser = self._lasers.get(lane)
        frequency_mhz = laser.true_frequency_mhz if laser else self._core.profile.fixed_frequency_mhz
        return LaunchedLight(lane, self._core.now, False, DARK_DBM, frequency_mhz)

    def light(self, lane: int) -> LaunchedLight:
        """Return what a lane sends now."""
        return self._sent[lane]

    def fails(self, lane: int) -> bool:
        """Tell whether a lane's transmitter has failed."""
        return self._core.has("tx_failure") and any(path.state in LIT for path in self._paths.on_media_lane(lane))

    def _sends(self, lane: int) -> bool:
        memory = self._core.memory
        laser = self._lasers.get(lane)
        off = memory.lanes("tx_disable") | memory.lanes("tx_forced_squelch")
        lit = self._sent[lane].enabled
        active = [path for path in self._paths.on_media_lane(lane) if self._paths.lets_out(path, lit)]
        # One data path that is up lights a carrier that several share.
        if not active or off >> (lane - 1) & 1 or self.fails(lane) or (laser is not None and not laser.locked):
            return False
        # Without a signal from the host there is nothing to send, unless the host forbids the squelch.
        squelched = not any(path.host_mask & self.host_signal for path in active)
        return not squelched or bool(memory.lanes("tx_auto_squelch_disable") >> (lane - 1) & 1)

    def _light(self, lane: int) -> LaunchedLight:
        dark = self._dark(lane)
        if not self._sends(lane):
            return dark
        core, laser = self._core, self._lasers.get(lane)
        target_dbm = laser.power_dbm if laser is not None else core.profile.launch_dbm
        memory = core.memory
        patterned = memory.lanes("media_generator_enable") >> (lane - 1) & 1
        return dataclasses.replace(
            dark,
            enabled=True,
            power_dbm=target_dbm + self._offset_db[lane],
            osnr_db=core.profile.tx_osnr_db,
            media_interface=self._paths.media_interface(lane),
            test_pattern=memory.count("media_generator_pattern", lane) if patterned else None,
        )

    def update(self, emit: Emit) -> None:
        """Bring light and status up to date, and tell ``emit`` what changed."""
        valid = 0
        for lane, sent in self._sent.items():
            light = self._light(lane)
            valid |= light.enabled << (lane - 1)
            self._core.flags.hold("tx_failure_flag", self.fails(lane), lane)
            # Apart from its time: what has not changed is not told again.
            if dataclasses.replace(light, at_s=sent.at_s) != sent:
                self._sent[lane] = light
                emit(light)
        self._core.memory.put_lanes("tx_output_valid", valid)
        self._hold_host_flags()

    def go_dark(self, emit: Emit) -> None:
        """Stop sending at once: reset or pulled out."""
        for lane, sent in self._sent.items():
            if sent.enabled:
                self._sent[lane] = self._dark(lane)
                emit(self._sent[lane])

    def _hold_host_flags(self) -> None:
        used = 0
        for path in self._paths.paths:
            used |= path.host_mask if path.state in LIT else 0
        for lane in range(1, 9):
            lost = bool(used & ~self.host_signal & 1 << (lane - 1))
            self._core.flags.hold("tx_los_flag", lost, lane)
            self._core.flags.hold("tx_lol_flag", lost, lane)


@dataclasses.dataclass
class ReceiverState:
    """What is known about the light on one media lane.

    Attributes:
        light: What falls on the detector.
        reception: What the receiver finds in it.
        los: Loss of signal.
        locked: The receiver is locked: data come out.
        good_since_s: Since when the input has been good, for an unlocked receiver.
        total_dbm: Total power as the monitor shows it.
        signal_dbm: Signal power as the monitor shows it.
        samples: Number of samples taken.
    """

    light: ReceivedLight = DARKNESS
    reception: Reception = dataclasses.field(default_factory=Reception)
    los: bool = True
    locked: bool = False
    good_since_s: float | None = None
    total_dbm: float = -math.inf
    signal_dbm: float = -math.inf
    samples: int = 0


class Receivers:
    """The receivers of all media lanes.

    Args:
        core: The module.
        paths: The data paths.
        lasers: Tunable lasers by media lane: a coherent receiver's local oscillators.
        transmitters: The module's own light, for loopback.
    """

    def __init__(self, core: Core, paths: DataPaths, lasers: Mapping[int, Laser], transmitters: Transmitters) -> None:
        self._core, self._paths, self._lasers, self._transmitters = core, paths, lasers, transmitters
        self._offset_db = float(core.rng.uniform(-0.3, 0.3))
        self.restart()

    def restart(self) -> None:
        """Forget the light."""
        self.lanes = {lane: ReceiverState() for lane in range(1, self._core.profile.media_lanes + 1)}

    def works(self, lane: int) -> bool:
        """Tell whether the receive side of a lane is initialised."""
        return self._paths.is_lit(lane)

    def sample(self, optics: Optics, powered: bool) -> None:
        """Look at the light of every lane; ``powered`` is ModuleReady."""
        for lane, state in self.lanes.items():
            if not powered:
                self.lanes[lane] = ReceiverState()
                self._hold_flags(lane, self.lanes[lane])
                continue
            state.samples += 1
            # Light costs the whole bench, and nobody waits for a receiver without data path.
            if self.works(lane) or state.samples % _IDLE_SAMPLES == 1:
                state.light = self._input(lane, optics)
            noise = self._core.rng.standard_normal(3)
            state.total_dbm = state.light.total_power_dbm + self._offset_db + 0.02 * float(noise[0])
            state.signal_dbm = state.light.signal_power_dbm + self._offset_db + 0.02 * float(noise[1])
            self._judge_power(state)
            self._judge_lock(lane, state, float(noise[2]))
            self._hold_flags(lane, state)
        self._put_output()

    def _input(self, lane: int, optics: Optics) -> ReceivedLight:
        """Return the light of a lane: its own transmitter's with a media output loopback, else the fibre's."""
        if self._core.has("los"):
            return DARKNESS
        if not self._core.memory.lanes("media_output_loopback") >> (lane - 1) & 1:
            return optics(lane, self._core.now)
        own = self._transmitters.light(lane)
        return ReceivedLight(
            own.power_dbm,
            own.power_dbm,
            own.frequency_mhz,
            _LOOPBACK_OSNR_DB,
            media_interface=own.media_interface,
            test_pattern=own.test_pattern,
        )

    def _judge_power(self, state: ReceiverState) -> None:
        profile = self._core.profile.receiver
        # Hysteresis: at one limit noise would make the flag flutter.
        limit_dbm = profile.los_release_dbm if state.los else profile.los_assert_dbm
        state.los = state.light.total_power_dbm < limit_dbm

    def _judge_lock(self, lane: int, state: ReceiverState, noise: float) -> None:
        core = self._core
        media_interface = self._paths.media_interface(lane)
        if media_interface is None or not self.works(lane) or core.has("lol") or core.has("lof"):
            state.reception, state.locked, state.good_since_s = Reception("demodulator"), False, None
            return
        laser = self._lasers.get(lane)
        oscillator_mhz = laser.true_frequency_mhz if laser else core.profile.fixed_frequency_mhz
        receiver = core.profile.receiver
        state.reception = receive(state.light, receiver, media_interface, oscillator_mhz, _SNR_NOISE_DB * noise)
        unlit = laser is not None and not laser.locked
        if state.los or state.reception.lost or unlit:
            state.locked, state.good_since_s = False, None
            return
        # Lock takes a while of good input; it is lost at once.
        if state.good_since_s is None:
            state.good_since_s = core.now
        state.locked = state.locked or core.now - state.good_since_s >= core.timing.lock_s - 1e-9

    def _hold_flags(self, lane: int, state: ReceiverState) -> None:
        flags, works = self._core.flags, self.works(lane)
        unlocked = works and not state.locked
        flags.hold("rx_los_flag", works and state.los, lane)
        flags.hold("rx_lol_flag", unlocked, lane)
        if self._core.profile.coherent and lane == 1:
            dispersion = state.reception.lost == "dispersion"
            # Lost framing alone leaves the demodulator locked: that is how the two are told apart.
            flags.hold("coherent_rx_demodulator_lol_flag", unlocked and not self._core.has("lof"))
            flags.hold("coherent_rx_cd_compensation_lol_flag", unlocked and dispersion)
            flags.hold("coherent_rx_lof_flag", unlocked)
            flags.hold("coherent_rx_lom_flag", unlocked)

    def _put_output(self) -> None:
        """Show which host lanes get data (11h:132), and flag what changed."""
        memory = self._core.memory
        valid = 0
        for path in self._paths.paths:
            if path.state in LIT and all(self.lanes[lane].locked for lane in lanes_of(path.media_mask)):
                valid |= path.host_mask
        valid &= ~memory.lanes("rx_output_disable")
        changed = valid ^ memory.lanes("rx_output_valid")
        for lane in lanes_of(changed):
            self._core.flags.raise_event("rx_output_changed_flag", lane)
        memory.put_lanes("rx_output_valid", valid)
