"""The two optical ends of a module: what its transmitters send, and what its receivers make of what they get."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from lumion_hw.emulator.transponders.cmis.core import Core
from lumion_hw.emulator.transponders.cmis.data_paths import LIT, DataPaths, lanes_of
from lumion_hw.emulator.transponders.cmis.laser import Laser
from lumion_hw.emulator.transponders.cmis.optics import DARK_DBM, DARKNESS, Emit, LaunchedLight, Optics, ReceivedLight
from lumion_hw.emulator.transponders.cmis.reception import Reception, receive
from lumion_hw.standards.cmis.codes import DataPathState

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
        active = [path for path in self._paths.on_media_lane(lane) if path.state is DataPathState.ACTIVATED]
        if not active or off >> (lane - 1) & 1 or self.fails(lane) or (laser is not None and not laser.locked):
            return False
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
        return any(path.state in LIT for path in self._paths.on_media_lane(lane))

    def sample(self, optics: Optics, powered: bool) -> None:
        """Look at the light of every lane; ``powered`` is ModuleReady."""
        for lane, state in self.lanes.items():
            if not powered:
                self.lanes[lane] = ReceiverState()
                self._hold_flags(lane, self.lanes[lane])
                continue
            state.samples += 1
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
