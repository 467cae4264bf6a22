"""The state machines of one module: module, data paths, and the control sets that form them (CMIS 6.2.3 and 6.3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lumion_hw.emulator.transponders.cmis.core import Appointment, Core
from lumion_hw.emulator.transponders.cmis.profiles import AdvertisedApplication
from lumion_hw.standards.cmis import FIELDS
from lumion_hw.standards.cmis.codes import DATA_PATH_TRANSIENT, ConfigStatus, DataPathState, FaultCause, ModuleState
from lumion_hw.standards.cmis.fields import LANES

_STEADY_MODULE = frozenset({ModuleState.LOW_PWR, ModuleState.READY, ModuleState.FAULT})


class ModuleMachine:
    """Reset, management initialisation, low power, power-up, ready, power-down, fault.

    Args:
        core: The module.
        low_power_pin: Whether the host asserts the low-power pin.
    """

    def __init__(self, core: Core, low_power_pin: bool) -> None:
        self._core = core
        self.low_power_pin = low_power_pin
        self.state: ModuleState | None = None
        self._timer_done = False
        self._timer: Appointment | None = None

    @property
    def managed(self) -> bool:
        """Whether the management interface answers."""
        return self.state is not None

    @property
    def low_power_requested(self) -> bool:
        """LowPwrS: by software, or by the pin while it is allowed to (CMIS 6.3.2.2)."""
        if self._core.quirks.ignores_low_power:
            return False
        memory = self._core.memory
        by_pin = bool(memory.count("low_pwr_allow_request_hw")) and self.low_power_pin
        return bool(memory.count("low_pwr_request_sw")) or by_pin

    def start(self) -> None:
        """Begin management initialisation: the module does not answer until it is done."""
        self._core.note("module", self.state, None)
        self.state = None
        self._timer_done = False
        self._core.agenda.after(self._core.timing.management_init_s, lambda: self._enter(ModuleState.LOW_PWR))

    def fail(self, cause: int) -> None:
        """Go to the fault state; only a reset leads out of it."""
        if self.state is not ModuleState.FAULT:
            self._enter(ModuleState.FAULT)
        self._core.memory.put("fault_cause", cause)

    def step(self, paths_at_rest: bool) -> bool:
        """Make one transition if its condition holds; returns whether it did."""
        state = self.state
        if state is not None and state is not ModuleState.FAULT:
            cause = self._fault_cause()
            if cause:
                self.fail(cause)
                return True
        following = self._next(paths_at_rest)
        if following is None:
            return False
        self._enter(following)
        return True

    def _fault_cause(self) -> int:
        """Return the cause of a fault that is in force, 0 without one."""
        if self._core.has("tec_runaway"):
            return FaultCause.TEC_RUNAWAY
        return int(self._core.faults.get("module_fault", FaultCause.NONE))

    def _next(self, paths_at_rest: bool) -> ModuleState | None:
        low = self.low_power_requested
        if self.state is ModuleState.LOW_PWR and not low:
            return ModuleState.PWR_UP
        if self.state is ModuleState.PWR_UP:
            if low:
                return ModuleState.PWR_DN
            return ModuleState.READY if self._timer_done else None
        if self.state is ModuleState.READY and low:
            return ModuleState.PWR_DN
        if self.state is ModuleState.PWR_DN and self._timer_done and paths_at_rest:
            return ModuleState.LOW_PWR
        return None

    def _enter(self, state: ModuleState) -> None:
        core = self._core
        core.note("module", self.state, state)
        self.state = state
        self._timer_done = False
        if self._timer is not None:
            self._timer.cancel()
        core.memory.put("module_state", state)
        if state in _STEADY_MODULE:
            core.flags.raise_event("module_state_changed_flag")
        if state is ModuleState.PWR_UP and not core.has("stuck_power_up"):
            self._time(core.timing.power_up_s)
        elif state is ModuleState.PWR_DN:
            self._time(core.timing.power_down_s)

    def _time(self, seconds: float) -> None:
        self._timer = self._core.agenda.after(seconds, self._finish)

    def _finish(self) -> None:
        self._timer_done = True


_S = DataPathState
LIT = frozenset({_S.INITIALIZED, _S.TX_TURN_ON, _S.ACTIVATED, _S.TX_TURN_OFF})
"""States in which the receive side of a data path works."""
_STEADY_DATA_PATH = frozenset(DataPathState) - DATA_PATH_TRANSIENT


def lanes_of(mask: int) -> Iterator[int]:
    """Yield the lane numbers, from 1, of a mask."""
    return (lane for lane in range(1, LANES + 1) if mask >> (lane - 1) & 1)


@dataclass
class EmulatedDataPath:
    """One data path.

    Attributes:
        first_lane: Its first host lane, from 1.
        app_sel: Number of its application.
        application: The application.
        host_mask: Its host lanes.
        media_mask: Its media lanes.
        state: Where it is.
        pending: Its settings have been provisioned and not yet commissioned (DPInitPending).
        pending_shown: Whether 11h:235 shows that.
        going_down: DPReDeinitS: it is to be de-initialised, for good or to be initialised again.
    """

    first_lane: int
    app_sel: int
    application: AdvertisedApplication
    host_mask: int
    media_mask: int
    state: DataPathState = DataPathState.DEACTIVATED
    pending: bool = False
    pending_shown: bool = False
    going_down: bool = False
    timer_done: bool = False
    timer: Appointment | None = field(default=None, repr=False)


class DataPaths:
    """All data paths of the active control set.

    Args:
        core: The module.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self.paths: list[EmulatedDataPath] = []

    def restart(self) -> None:
        """Form the data paths of the active set as it is after a reset."""
        self.paths = []
        self.form(0xFF, pending=False)

    # -- what there is ----------------------------------------------------------------------------------------------

    @property
    def at_rest(self) -> bool:
        """Whether every data path is deactivated."""
        return all(path.state is _S.DEACTIVATED for path in self.paths)

    def on_media_lane(self, lane: int) -> list[EmulatedDataPath]:
        """Return the data paths that use a media lane (several share one carrier)."""
        return [path for path in self.paths if path.media_mask >> (lane - 1) & 1]

    def is_lit(self, lane: int) -> bool:
        """Tell whether a data path that uses a media lane is initialised."""
        # Plain loops: asked for every monitor of every lane at every sample.
        bit = 1 << (lane - 1)
        for path in self.paths:  # noqa: SIM110
            if path.media_mask & bit and path.state in LIT:
                return True
        return False

    def overlapping(self, host_mask: int) -> list[EmulatedDataPath]:
        """Return the data paths that have a host lane in ``host_mask``."""
        return [path for path in self.paths if path.host_mask & host_mask]

    def media_interface(self, lane: int) -> int | None:
        """Return the media interface id in use on a media lane."""
        paths = self.on_media_lane(lane)
        return paths[0].application.media_interface if paths else None

    # -- provisioning -----------------------------------------------------------------------------------------------

    def form(self, host_mask: int, *, pending: bool = True) -> None:
        """Form the data paths of these host lanes again from the active control set.

        A data path that keeps its lanes keeps its state, and with ``pending`` is commissioned again.
        """
        memory = self._core.memory
        former = {(path.first_lane, path.host_mask): path for path in self.overlapping(host_mask)}
        self.paths = [path for path in self.paths if not path.host_mask & host_mask]
        for lane in lanes_of(host_mask):
            app_sel = memory.count("active_app_sel", lane)
            application = self._core.profile.application(app_sel)
            # A path is formed at its first lane, whose number is its DataPathID.
            if application is None or memory.count("active_data_path_id", lane) != lane - 1:
                continue
            mask = ((1 << application.host_lanes) - 1) << (lane - 1)
            # The same lanes: the path stays where it is, and only its settings are new.
            path = former.get((lane, mask)) or EmulatedDataPath(lane, app_sel, application, mask, 0)
            unchanged = path.app_sel == app_sel and (lane, mask) in former
            path.app_sel, path.application = app_sel, application
            path.media_mask = application.media_mask(lane)
            self.paths.append(path)
            if pending:
                self._set_pending(path, unchanged)
        self._put()

    def _set_pending(self, path: EmulatedDataPath, unchanged: bool) -> None:
        core = self._core
        path.pending = True
        path.pending_shown = not (core.has("no_init_pending") and unchanged)
        if core.quirks.init_pending_clobbers:
            for other in self.paths:
                if other is not path:
                    other.pending_shown = False
        if core.quirks.init_pending_s is not None:
            core.agenda.after(core.quirks.init_pending_s, lambda: self._hide_pending(path))

    def _hide_pending(self, path: EmulatedDataPath) -> None:
        path.pending_shown = False
        self._put()

    # -- the machines -----------------------------------------------------------------------------------------------

    def step(self, ready: bool, faulty: bool) -> bool:
        """Make every transition whose condition holds; returns whether there was one.

        Args:
            ready: ModuleReady without a low power request.
            faulty: The module is in its fault state: everything stops at once.
        """
        moved = False
        for path in self.paths:
            if faulty:
                # No turn-off times: a fault ends the light at once.
                following = None if path.state is _S.DEACTIVATED else _S.DEACTIVATED
            else:
                following = self._next(path, ready)
            if following is not None:
                self._enter(path, following)
                self._flag_change(path, ready)
                moved = True
        return moved

    def _flag_change(self, path: EmulatedDataPath, ready: bool) -> None:
        """Flag the arrival at a steady state, unless the path leaves that state at once (CMIS 6.3.3.3)."""
        if path.state in _STEADY_DATA_PATH and self._next(path, ready) is None:
            for lane in lanes_of(path.host_mask):
                self._core.flags.raise_event("data_path_state_changed_flag", lane)

    def _deinit(self, path: EmulatedDataPath, ready: bool) -> bool:
        """DPDeinitS (CMIS 6.3.3.3)."""
        asked = self._core.memory.lanes("data_path_deinit")
        if self._core.quirks.inverted_deinit:
            asked = ~asked
        return not ready or bool(asked & path.host_mask)

    def _tx_disabled(self, path: EmulatedDataPath) -> bool:
        """DPTxDisableT OR DPTxForceSquelchT: any media lane of the path is disabled or squelched (CMIS 6.3.3.1)."""
        memory = self._core.memory
        return bool(path.media_mask & (memory.lanes("tx_disable") | memory.lanes("tx_forced_squelch")))

    @staticmethod
    def lets_out(path: EmulatedDataPath, lit: bool) -> bool:
        """Tell whether a media lane of a path sends that is neither disabled nor squelched; ``lit``: it sends already.

        In DPInitialized, and while another lane is turned off, each lane is as its own controls say (CMIS 6.3.3).
        """
        if path.state is _S.TX_TURN_ON:
            return lit
        return path.state is _S.ACTIVATED or (path.state in (_S.INITIALIZED, _S.TX_TURN_OFF) and not path.going_down)

    def _next(self, path: EmulatedDataPath, ready: bool) -> DataPathState | None:
        deinit = self._deinit(path, ready)
        # A module that reconfigures without intervention takes the path down and up again by itself (CMIS 6.2.3).
        path.going_down = down = deinit or (path.pending and not self._core.quirks.stepped_config_only)
        # DPDeactivateS. Light goes before the path does: 4, 6, 7, 3.
        dark = down or self._tx_disabled(path)
        done = path.timer_done
        table: dict[DataPathState, tuple[tuple[bool, DataPathState], ...]] = {
            _S.DEACTIVATED: ((not deinit, _S.INIT),),
            _S.INIT: ((deinit, _S.DEINIT), (done, _S.INITIALIZED)),
            _S.DEINIT: ((done, _S.DEACTIVATED),),
            _S.INITIALIZED: ((down, _S.DEINIT), (not dark, _S.TX_TURN_ON)),
            _S.TX_TURN_ON: ((dark, _S.TX_TURN_OFF), (done, _S.ACTIVATED)),
            _S.ACTIVATED: ((dark, _S.TX_TURN_OFF),),
            _S.TX_TURN_OFF: ((done, _S.INITIALIZED),),
        }
        return next((state for condition, state in table[path.state] if condition), None)

    def _enter(self, path: EmulatedDataPath, state: DataPathState) -> None:
        core = self._core
        if path.state is _S.INIT and state is _S.INITIALIZED:
            path.pending = path.pending_shown = False  # commissioned
        core.note(f"data path {path.first_lane}", path.state, state)
        path.state = state
        path.timer_done = False
        if path.timer is not None:
            path.timer.cancel()
        seconds = self._duration_s(state)
        if seconds is not None:
            path.timer = core.agenda.after(seconds, lambda: self._finish(path))
        self._put()

    def _duration_s(self, state: DataPathState) -> float | None:
        """Return how long a state lasts by itself; ``None`` when nothing ends it."""
        core, times = self._core, self._core.timing
        if state is _S.INIT:
            return None if core.has("stuck_init") else times.dp_init_s * core.faults.get("slow_init", 1.0)
        return {
            _S.DEINIT: times.dp_deinit_s,
            _S.TX_TURN_ON: times.tx_turn_on_s,
            _S.TX_TURN_OFF: times.tx_turn_off_s,
        }.get(state)

    def _finish(self, path: EmulatedDataPath) -> None:
        path.timer_done = True

    def _put(self) -> None:
        """Show the states in 11h:128-131 and what is pending in 11h:235; unused lanes are deactivated."""
        memory = self._core.memory
        states = dict.fromkeys(range(1, LANES + 1), _S.DEACTIVATED)
        pending = 0
        for path in self.paths:
            states |= dict.fromkeys(lanes_of(path.host_mask), path.state)
            pending |= path.host_mask if path.pending_shown else 0
        for lane, state in states.items():
            memory.put("data_path_state", state, lane)
        memory.put_lanes("data_path_init_pending", pending)


_STEADY_IN_USE = frozenset({DataPathState.INITIALIZED, DataPathState.ACTIVATED})
_SETTINGS = tuple(
    name.removeprefix("active_")
    for name in FIELDS
    if name.startswith("active_") and name not in ("active_app_sel", "active_data_path_id")
)
"""Fields of a control set that hold signal-integrity settings, and the bit that says to use them."""
_MAXIMA = (
    ("tx_fixed_eq", "tx_input_eq_max"),
    ("rx_pre_cursor", "rx_pre_cursor_max"),
    ("rx_post_cursor", "rx_post_cursor_max"),
)


@dataclass(frozen=True)
class Staged:
    """What one host lane asks for: application, data path, and the raw signal-integrity values by name."""

    app_sel: int
    data_path_id: int
    settings: dict[str, int]

    @property
    def explicit(self) -> bool:
        """Whether the signal-integrity values are to be used."""
        return bool(self.settings["explicit_control"])


class ControlSets:
    """Takes apply triggers and answers with ConfigStatus.

    Args:
        core: The module.
        paths: The data paths, which provisioning forms anew.
    """

    def __init__(self, core: Core, paths: DataPaths) -> None:
        self._core, self._paths = core, paths

    def _status(self, mask: int, status: ConfigStatus) -> None:
        for lane in lanes_of(mask):
            self._core.memory.put("config_status", status, lane)

    def trigger(self, number: int, mask: int, *, immediate: bool = False) -> None:
        """Apply staged set ``number`` on the host lanes of ``mask``; lanes still at work ignore it."""
        core = self._core
        if immediate and core.quirks.stepped_config_only:
            return
        for lane in lanes_of(mask):
            # Lanes at work ignore the trigger (CMIS 6.2.3); the others take it.
            if core.memory.count("config_status", lane) == ConfigStatus.IN_PROGRESS:
                mask &= ~(1 << (lane - 1))
        if not mask:
            return
        self._status(mask, ConfigStatus.IN_PROGRESS)
        if not core.has("stuck_config"):
            # As staged now: what the host writes meanwhile is for the next trigger.
            staged = {lane: self._staged(number, lane) for lane in range(1, LANES + 1)}
            core.agenda.after(core.timing.apply_s, lambda: self._finish(mask, staged, immediate))

    def _staged(self, number: int, lane: int) -> Staged:
        memory, prefix = self._core.memory, f"staged_{number}"
        settings = {name: memory.count(f"{prefix}_{name}", lane) for name in _SETTINGS}
        app_sel, path_id = memory.count(f"{prefix}_app_sel", lane), memory.count(f"{prefix}_data_path_id", lane)
        return Staged(app_sel, path_id, settings)

    def _finish(self, mask: int, staged: dict[int, Staged], immediate: bool) -> None:
        """Judge the lanes in groups that stand or fall together, then provision those that are good.

        Lanes of a data path that is replaced depend on each other: what one group loses may cost another.
        """
        verdicts = dict.fromkeys(self._groups(mask, staged), ConfigStatus.SUCCESS)
        good, passed = 0, mask
        while passed != good:
            good = passed
            for group in [group for group, status in verdicts.items() if status is ConfigStatus.SUCCESS]:
                verdicts[group] = self._judge(group, good, staged, immediate)
            passed = sum(group for group, status in verdicts.items() if status is ConfigStatus.SUCCESS)
        for group, status in verdicts.items():
            self._status(group, status)
            if status is ConfigStatus.SUCCESS:
                self._copy(group, staged)
        if good:
            self._paths.form(good, pending=not immediate)

    @staticmethod
    def _groups(mask: int, staged: dict[int, Staged]) -> list[int]:
        """Return the lanes of ``mask`` by the data path they ask for; all unused ones together."""
        groups: dict[tuple[int, int], int] = {}
        for lane in lanes_of(mask):
            identity = _identity(staged[lane])
            groups[identity] = groups.get(identity, 0) | 1 << (lane - 1)
        return list(groups.values())

    def _judge(self, group: int, applied: int, staged: dict[int, Staged], immediate: bool) -> ConfigStatus:
        """Return the ConfigStatus of a group, checked in this order: 3, 4, 7, 6, 5.

        Args:
            group: Lanes asking for one data path, or for none.
            applied: All lanes of the trigger that are not known to be bad.
            staged: What each lane asks for.
            immediate: By ApplyImmediate.
        """
        first = staged[next(lanes_of(group))]
        if self._core.memory.count("module_state") == ModuleState.FAULT:
            return ConfigStatus.REJECTED
        if first.app_sel == 0:
            return self._judge_unused(group, applied)
        application = self._core.profile.application(first.app_sel)
        if application is None:
            return ConfigStatus.REJECTED_INVALID_APPSEL
        start = first.data_path_id
        # A mask may end up beyond lane 8, and is then misplaced.
        whole = ((1 << application.host_lanes) - 1) << start
        misplaced = not application.host_options >> start & 1 or whole > 0xFF or bool(group & ~whole)
        checks = (
            (misplaced, ConfigStatus.REJECTED_INVALID_DATA_PATH),
            (group != whole, ConfigStatus.REJECTED_PARTIAL_DATA_PATH),
            (self._in_use(whole, applied, first.app_sel, immediate), ConfigStatus.REJECTED_LANES_IN_USE),
            (not all(self._legal(staged[lane]) for lane in lanes_of(group)), ConfigStatus.REJECTED_INVALID_SI),
        )
        return next((status for failed, status in checks if failed), ConfigStatus.SUCCESS)

    def _judge_unused(self, group: int, applied: int) -> ConfigStatus:
        """Judge AppSel 0: legal for whole data paths that are deactivated."""
        # Unused lanes give a data path up, so all of it has to be given up, and at rest.
        paths = self._paths.overlapping(group)
        if self._core.has("reject_appsel0"):
            return ConfigStatus.REJECTED
        if any(path.host_mask & ~applied for path in paths):
            return ConfigStatus.REJECTED_PARTIAL_DATA_PATH
        if any(path.state is not DataPathState.DEACTIVATED for path in paths):
            return ConfigStatus.REJECTED_LANES_IN_USE
        return ConfigStatus.SUCCESS

    def _in_use(self, whole: int, applied: int, app_sel: int, immediate: bool) -> bool:
        """Tell whether the lanes are in use in a way that forbids the change.

        A deactivated data path can be replaced if all its lanes are applied; one at work can only be commissioned
        again with the same lanes, and by ApplyImmediate also with the same application.
        """
        for path in self._paths.overlapping(whole):
            if path.host_mask & ~applied:
                return True
            if path.state is DataPathState.DEACTIVATED:
                continue
            if self._core.quirks.stepped_config_only or path.host_mask != whole or path.state not in _STEADY_IN_USE:
                return True
            if immediate and path.app_sel != app_sel:
                return True
        return False

    def _legal(self, staged: Staged) -> bool:
        """Tell whether explicit signal-integrity values are within what page 01h advertises."""
        memory = self._core.memory
        if not staged.explicit:
            return True
        if any(staged.settings[name] > memory.count(limit) for name, limit in _MAXIMA):
            return False
        levels, amplitude = memory.count("rx_output_levels"), staged.settings["rx_amplitude"]
        return amplitude < 4 and bool(levels >> amplitude & 1)

    def _copy(self, group: int, staged: dict[int, Staged]) -> None:
        """Make the staged settings of these lanes the active ones; without explicit control the application's own."""
        memory = self._core.memory
        for lane in lanes_of(group):
            wanted = staged[lane]
            memory.put("active_app_sel", wanted.app_sel, lane)
            memory.put("active_data_path_id", wanted.data_path_id if wanted.app_sel else 0, lane)
            for name, count in wanted.settings.items():
                memory.put(f"active_{name}", count if wanted.explicit else 0, lane)


def _identity(staged: Staged) -> tuple[int, int]:
    """Return what lanes of one data path have in common; all unused lanes go together."""
    return (staged.app_sel, staged.data_path_id) if staged.app_sel else (0, 0)
