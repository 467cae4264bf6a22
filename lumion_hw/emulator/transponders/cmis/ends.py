"""Optical side of one emulated module: lasers, transmitters and receivers.

Tuning (CMIS 8.11): at the end of each transaction the laser evaluates all tuning registers together. It tunes if they
give a new legal frequency.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from lumion_hw.emulator.transponders.agenda import Appointment
from lumion_hw.emulator.transponders.cmis.core import Core
from lumion_hw.emulator.transponders.cmis.host_port import Written
from lumion_hw.emulator.transponders.cmis.optics import DARK_DBM, DARKNESS, Emit, LaunchedLight, Optics, ReceivedLight
from lumion_hw.emulator.transponders.cmis.profiles import ModuleLaserProfile
from lumion_hw.emulator.transponders.cmis.reception import Reception, receive
from lumion_hw.emulator.transponders.cmis.states import ACTIVE_STATES, DataPaths, lanes_of
from lumion_hw.standards.cmis.codes import Grid
from lumion_hw.standards.cmis.grids import LaserGrids, reported_mhz

_GRID, _CHANNEL, _FINE, _POWER = 128, 136, 152, 200
TUNING_PAGE = 0x12
"""Page of the tuning registers."""


def tuning_bytes(media_lanes: int) -> list[int]:
    """Return the addresses of the tuning registers on page 12h."""
    return [
        byte
        for lane in range(media_lanes)
        for byte in (
            _GRID + lane,
            *(first + 2 * lane + half for first in (_CHANNEL, _FINE, _POWER) for half in (0, 1)),
        )
    ]


class Laser:
    """The laser of one media lane of a module.

    Args:
        lane: Media lane, from 1.
        error_mhz: Fixed difference between the true and the reported frequency.
    """

    def __init__(self, core: Core, paths: DataPaths, profile: ModuleLaserProfile, lane: int, error_mhz: float) -> None:
        self._core, self._paths, self._profile = core, paths, profile
        self.lane, self.error_mhz = lane, error_mhz
        self._grids = LaserGrids(profile.grids, profile.fine)
        self.restart()

    def restart(self) -> None:
        """Return the laser to its default channel."""
        profile = self._profile
        self._ready = False
        self._timer: Appointment | None = None
        self._coarse: tuple[Grid, int] = (profile.default_grid, profile.default_channel)
        self._fine_mhz = 0
        self._current: tuple[int, int] = (reported_mhz(*self._coarse), 0)
        self._dark = False
        self._reported_lock: tuple[bool, bool] | None = None
        self.power_dbm = profile.default_power_dbm
        self._write_registers()

    @property
    def frequency_mhz(self) -> int:
        """Frequency that the laser reports, in MHz."""
        return sum(self._current)

    @property
    def true_frequency_mhz(self) -> float:
        """True frequency of the laser, in MHz."""
        return self.frequency_mhz + self.error_mhz

    @property
    def is_tuning(self) -> bool:
        """Whether the laser is tuning."""
        return self._timer is not None

    @property
    def is_locked(self) -> bool:
        """Whether the laser may emit: powered, locked, not tuning."""
        return self._ready and not self._dark and not self._core.has("wavelength_unlocked")

    # -- the host's writes ------------------------------------------------------------------------------------------

    def written(self, written: Written) -> None:
        """Process a host's write to the tuning registers."""
        offset = self.lane - 1
        touched = {byte for page, byte in written if page == TUNING_PAGE}
        if touched & {_POWER + 2 * offset, _POWER + 2 * offset + 1}:
            self._check_power()
        channel = bool(touched & {_CHANNEL + 2 * offset, _CHANNEL + 2 * offset + 1})
        fine = bool(touched & {_FINE + 2 * offset, _FINE + 2 * offset + 1})
        if channel or fine or _GRID + offset in touched:
            self._check_frequency(requested=channel or fine)

    def _flag(self, name: str) -> None:
        self._core.flags.raise_event(f"{name}_flag", self.lane)

    def _check_power(self) -> None:
        power_dbm = self._core.memory.number("target_output_power", self.lane)
        if self._profile.min_power_dbm <= power_dbm <= self._profile.max_power_dbm:
            self.power_dbm = power_dbm
        else:
            self._flag("target_output_power_oor")

    def _check_frequency(self, *, requested: bool) -> None:
        memory = self._core.memory
        code, channel = memory.count("grid", self.lane), memory.count("channel", self.lane)
        if code not in set(Grid) or not self._grids.allows(Grid(code), channel):
            self._flag("invalid_channel")
            return
        coarse = (Grid(code), channel)
        requested_mhz = self._requested_fine_mhz()
        fine_mhz = self._fine_mhz if requested_mhz is None else requested_mhz
        # A host that requests the present frequency still waits for the flag; a grid byte written on the way to a
        # channel is not a request.
        if coarse == self._coarse and fine_mhz == self._fine_mhz:
            if requested and requested_mhz is not None and not self.is_tuning and self._ready:
                self._flag("tuning_complete")
            return
        # Another name of the same frequency (50 GHz channel 2, 25 GHz channel 4) needs no tuning.
        moves = reported_mhz(*coarse) != reported_mhz(*self._coarse)
        busy = any(path.state not in self._profile.retune_states for path in self._paths.on_media_lane(self.lane))
        if moves and busy:
            self._flag("tuning_not_accepted")
            return
        self._coarse, self._fine_mhz = coarse, fine_mhz
        if self._ready:
            self._tune()

    def _requested_fine_mhz(self) -> int | None:
        """Return the fine tuning offset in MHz. If it is out of range, raise a flag and return ``None``."""
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
        """Switch the laser on or off with the state ModuleReady. Return whether anything changed."""
        if ready == self._ready:
            self._update_lock_flag()
            return False
        self._ready = ready
        self._cancel()
        self._dark = False
        if ready:
            moved = self._current != (reported_mhz(*self._coarse), self._fine_mhz)
            self._set_frequency(announce=moved)
        self._write_registers()
        return True

    def _tune(self) -> None:
        times = self._core.timing
        self._cancel()
        far = reported_mhz(*self._coarse) != self._current[0]
        # The laser is dark between channels; fine tuning alone keeps the light on.
        self._dark = self._dark or far
        duration_s = times.tuning_s if self._dark else times.fine_tuning_s
        if self._core.has("stuck_tuning"):
            duration_s = float("inf")  # only a reset clears this fault
        self._timer = self._core.agenda.after(duration_s, self._finish_tuning)
        self._write_registers()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _finish_tuning(self) -> None:
        self._timer = None
        self._dark = False
        self._set_frequency(announce=True)
        self._write_registers()

    def _set_frequency(self, *, announce: bool) -> None:
        self._current = (reported_mhz(*self._coarse), self._fine_mhz)
        if announce:
            self._flag("tuning_complete")

    def _write_registers(self) -> None:
        memory = self._core.memory
        memory.put("current_frequency", self.frequency_mhz, self.lane)
        memory.put("tuning_in_progress", self.is_tuning, self.lane)
        self._update_lock_flag()

    def _update_lock_flag(self) -> None:
        lock_state = (self._ready, self.is_locked)
        if lock_state == self._reported_lock:
            return
        self._reported_lock = lock_state
        self._core.memory.put("wavelength_unlocked", not self.is_locked, self.lane)
        self._core.flags.hold("wavelength_unlocked_flag", self._ready and not self.is_locked, self.lane)


_TX_OFFSET_DB = 0.1
_LOOPBACK_OSNR_DB = 40.0
_SNR_NOISE_DB = 0.03
_IDLE_SAMPLES = 10
"""Ratio of the sampling intervals of a receiver without and with an initialised data path."""


class Transmitters:
    """Transmitters of all media lanes."""

    def __init__(self, core: Core, paths: DataPaths, lasers: Mapping[int, Laser]) -> None:
        self._core, self._paths, self._lasers = core, paths, lasers
        lanes = range(1, core.profile.media_lanes + 1)
        # A fixed error per lane, drawn once.
        self._offset_db = {lane: float(core.rng.uniform(-_TX_OFFSET_DB, _TX_OFFSET_DB)) for lane in lanes}
        self._sent = {lane: self._dark(lane) for lane in lanes}
        self.host_signal = 0xFF

    def _dark(self, lane: int) -> LaunchedLight:
        laser = self._lasers.get(lane)
        frequency_mhz = laser.true_frequency_mhz if laser else self._core.profile.frequency_mhz(lane)
        return LaunchedLight(lane, self._core.now, False, DARK_DBM, frequency_mhz)

    def light(self, lane: int) -> LaunchedLight:
        """Return the light that a media lane sends now."""
        return self._sent[lane]

    def has_failed(self, lane: int) -> bool:
        """Return whether the transmitter of a media lane has failed."""
        return self._core.has("tx_failure") and any(
            path.state in ACTIVE_STATES for path in self._paths.on_media_lane(lane)
        )

    def _sends(self, lane: int) -> bool:
        memory = self._core.memory
        laser = self._lasers.get(lane)
        disabled_lanes = memory.lanes("tx_disable") | memory.lanes("tx_forced_squelch")
        is_enabled = self._sent[lane].enabled
        active = [path for path in self._paths.on_media_lane(lane) if self._paths.may_emit(path, is_enabled)]
        # One active data path is enough to light a carrier that several share.
        if (
            not active
            or disabled_lanes >> (lane - 1) & 1
            or self.has_failed(lane)
            or (laser is not None and not laser.is_locked)
        ):
            return False
        # Without a host signal the output is squelched, unless the host disables the squelch.
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
        """Update the sent light and the transmitter status, and pass changes of light to ``emit``."""
        valid = 0
        for lane, sent in self._sent.items():
            light = self._light(lane)
            valid |= light.enabled << (lane - 1)
            self._core.flags.hold("tx_failure_flag", self.has_failed(lane), lane)
            # Compare without the time: unchanged light is not reported again.
            if dataclasses.replace(light, at_s=sent.at_s) != sent:
                self._sent[lane] = light
                emit(light)
        self._core.memory.put_lanes("tx_output_valid", valid)
        self._update_host_flags()

    def switch_light_off(self, emit: Emit) -> None:
        """Switch all sent light off at once."""
        for lane, sent in self._sent.items():
            if sent.enabled:
                self._sent[lane] = self._dark(lane)
                emit(self._sent[lane])

    def _update_host_flags(self) -> None:
        used = 0
        for path in self._paths.paths:
            used |= path.host_mask if path.state in ACTIVE_STATES else 0
        for lane in range(1, 9):
            has_lost_signal = bool(used & ~self.host_signal & 1 << (lane - 1))
            self._core.flags.hold("tx_los_flag", has_lost_signal, lane)
            self._core.flags.hold("tx_lol_flag", has_lost_signal, lane)


@dataclasses.dataclass
class ReceiverState:
    """State of the receiver of one media lane.

    Attributes:
        los: Whether loss of signal is asserted.
        is_locked: Whether the receiver is locked and delivers data.
        good_since_s: Time since which the input of an unlocked receiver has been good.
        total_dbm: Total power as shown by the monitor.
        signal_dbm: Signal power as shown by the monitor.
        samples: Number of samples taken.
    """

    light: ReceivedLight = DARKNESS
    reception: Reception = dataclasses.field(default_factory=Reception)
    los: bool = True
    is_locked: bool = False
    good_since_s: float | None = None
    total_dbm: float = -math.inf
    signal_dbm: float = -math.inf
    samples: int = 0


class Receivers:
    """The receivers of all media lanes.

    Args:
        lasers: Tunable lasers by media lane: local oscillators of a coherent receiver.
        transmitters: The module's own light, for loopback.
    """

    def __init__(self, core: Core, paths: DataPaths, lasers: Mapping[int, Laser], transmitters: Transmitters) -> None:
        self._core, self._paths, self._lasers, self._transmitters = core, paths, lasers, transmitters
        self._offset_db = float(core.rng.uniform(-0.3, 0.3))
        self.restart()

    def restart(self) -> None:
        """Reset all receivers."""
        self.lanes = {lane: ReceiverState() for lane in range(1, self._core.profile.media_lanes + 1)}

    def is_initialised(self, lane: int) -> bool:
        """Return whether the receive side of a media lane is initialised."""
        return self._paths.is_active(lane)

    def sample(self, optics: Optics, powered: bool) -> None:
        """Measure the received light of every media lane; ``powered`` is true in the state ModuleReady."""
        for lane, state in self.lanes.items():
            if not powered:
                self.lanes[lane] = ReceiverState()
                self._update_flags(lane, self.lanes[lane])
                continue
            state.samples += 1
            # Light costs a computation of the whole bench, and nobody waits for a receiver without a data path.
            if self.is_initialised(lane) or state.samples % _IDLE_SAMPLES == 1:
                state.light = self._input(lane, optics)
            noise = self._core.rng.standard_normal(3)
            state.total_dbm = state.light.total_power_dbm + self._offset_db + 0.02 * float(noise[0])
            state.signal_dbm = state.light.signal_power_dbm + self._offset_db + 0.02 * float(noise[1])
            self._check_power(state)
            self._check_lock(lane, state, float(noise[2]))
            self._update_flags(lane, state)
        self._write_output_status()

    def _input(self, lane: int, optics: Optics) -> ReceivedLight:
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

    def _check_power(self, state: ReceiverState) -> None:
        profile = self._core.profile.receiver
        # Hysteresis: with a single limit, noise would make the flag toggle.
        limit_dbm = profile.los_release_dbm if state.los else profile.los_assert_dbm
        state.los = state.light.total_power_dbm < limit_dbm

    def _check_lock(self, lane: int, state: ReceiverState, noise: float) -> None:
        core = self._core
        media_interface = self._paths.media_interface(lane)
        if media_interface is None or not self.is_initialised(lane) or core.has("lol") or core.has("lof"):
            state.reception, state.is_locked, state.good_since_s = Reception("demodulator"), False, None
            return
        laser = self._lasers.get(lane)
        oscillator_mhz = laser.true_frequency_mhz if laser else core.profile.frequency_mhz(lane)
        receiver = core.profile.receiver
        state.reception = receive(state.light, receiver, media_interface, oscillator_mhz, _SNR_NOISE_DB * noise)
        unlit = laser is not None and not laser.is_locked
        if state.los or state.reception.reason or unlit:
            state.is_locked, state.good_since_s = False, None
            return
        # Lock needs good input for some time, but is lost at once.
        if state.good_since_s is None:
            state.good_since_s = core.now
        state.is_locked = state.is_locked or core.now - state.good_since_s >= core.timing.lock_s - 1e-9

    def _update_flags(self, lane: int, state: ReceiverState) -> None:
        flags, is_initialised = self._core.flags, self.is_initialised(lane)
        unlocked = is_initialised and not state.is_locked
        flags.hold("rx_los_flag", is_initialised and state.los, lane)
        flags.hold("rx_lol_flag", unlocked, lane)
        if self._core.profile.coherent and lane == 1:
            dispersion = state.reception.reason == "dispersion"
            # With lost framing alone the demodulator stays locked; this distinguishes the two faults.
            flags.hold("coherent_rx_demodulator_lol_flag", unlocked and not self._core.has("lof"))
            flags.hold("coherent_rx_cd_compensation_lol_flag", unlocked and dispersion)
            flags.hold("coherent_rx_lof_flag", unlocked)
            flags.hold("coherent_rx_lom_flag", unlocked)

    def _write_output_status(self) -> None:
        memory = self._core.memory
        valid = 0
        for path in self._paths.paths:
            if path.state in ACTIVE_STATES and all(self.lanes[lane].is_locked for lane in lanes_of(path.media_mask)):
                valid |= path.host_mask
        valid &= ~memory.lanes("rx_output_disable")
        changed = valid ^ memory.lanes("rx_output_valid")
        for lane in lanes_of(changed):
            self._core.flags.raise_event("rx_output_changed_flag", lane)
        memory.put_lanes("rx_output_valid", valid)
