"""State machines of one CMIS module: module, data paths, control sets (CMIS 6.2.3 and 6.3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lumion_hw.emulator.transponders.agenda import Appointment
from lumion_hw.emulator.transponders.cmis.core import Core
from lumion_hw.emulator.transponders.cmis.memory import application_settings
from lumion_hw.emulator.transponders.cmis.profiles import AdvertisedApplication
from lumion_hw.standards.cmis import FIELDS, is_supported
from lumion_hw.standards.cmis.codes import DATA_PATH_TRANSIENT, ConfigStatus, DataPathState, FaultCause, ModuleState
from lumion_hw.standards.cmis.fields import LANES

_STEADY_MODULE = frozenset({ModuleState.LOW_PWR, ModuleState.READY, ModuleState.FAULT})


class ModuleMachine:
    """State machine of a module."""

    def __init__(self, core: Core, low_power_pin: bool) -> None:
        self._core = core
        self.low_power_pin = low_power_pin
        self.state: ModuleState | None = None
        self._is_timer_over = False
        self._timer: Appointment | None = None

    @property
    def is_managed(self) -> bool:
        """Whether the management interface responds."""
        return self.state is not None

    @property
    def low_power_requested(self) -> bool:
        """Whether low power is requested by software or by the pin (LowPwrS, CMIS 6.3.2.2)."""
        if self._core.quirks.ignores_low_power:
            return False
        memory = self._core.memory
        by_pin = bool(memory.count("low_pwr_allow_request_hw")) and self.low_power_pin
        return bool(memory.count("low_pwr_request_sw")) or by_pin

    def start(self) -> None:
        """Begin management initialisation, during which the module does not respond."""
        self._core.record_transition("module", self.state, None)
        self.state = None
        self._is_timer_over = False
        self._core.agenda.after(self._core.timing.management_init_s, lambda: self._enter(ModuleState.LOW_PWR))

    def fail(self, cause: int) -> None:
        """Enter the fault state, which only a reset ends."""
        if self.state is not ModuleState.FAULT:
            self._enter(ModuleState.FAULT)
        self._core.memory.put("fault_cause", cause)

    def step(self, paths_deactivated: bool) -> bool:
        """Make a due transition of the module state. Return whether the state has changed."""
        state = self.state
        if state is not None and state is not ModuleState.FAULT:
            cause = self._fault_cause()
            if cause:
                self.fail(cause)
                return True
        following = self._next(paths_deactivated)
        if following is None:
            return False
        self._enter(following)
        return True

    def _fault_cause(self) -> int:
        if self._core.has("tec_runaway"):
            return FaultCause.TEC_RUNAWAY
        return int(self._core.faults.get("module_fault", FaultCause.NONE))

    def _next(self, paths_deactivated: bool) -> ModuleState | None:
        low = self.low_power_requested
        if self.state is ModuleState.LOW_PWR and not low:
            return ModuleState.PWR_UP
        if self.state is ModuleState.PWR_UP:
            if low:
                return ModuleState.PWR_DN
            return ModuleState.READY if self._is_timer_over else None
        if self.state is ModuleState.READY and low:
            return ModuleState.PWR_DN
        if self.state is ModuleState.PWR_DN and self._is_timer_over and paths_deactivated:
            return ModuleState.LOW_PWR
        return None

    def _enter(self, state: ModuleState) -> None:
        core = self._core
        core.record_transition("module", self.state, state)
        self.state = state
        self._is_timer_over = False
        if self._timer is not None:
            self._timer.cancel()
        core.memory.put("module_state", state)
        if state in _STEADY_MODULE:
            core.flags.raise_event("module_state_changed_flag")
        if state is ModuleState.PWR_UP and not core.has("stuck_power_up"):
            self._start_timer(core.timing.power_up_s)
        elif state is ModuleState.PWR_DN:
            self._start_timer(core.timing.power_down_s)

    def _start_timer(self, seconds: float) -> None:
        self._timer = self._core.agenda.after(seconds, self._end_timer)

    def _end_timer(self) -> None:
        self._is_timer_over = True


_S = DataPathState
ACTIVE_STATES = frozenset({_S.INITIALIZED, _S.TX_TURN_ON, _S.ACTIVATED, _S.TX_TURN_OFF})
"""States in which a data path receives."""
_STEADY_DATA_PATH = frozenset(DataPathState) - DATA_PATH_TRANSIENT


def lanes_of(mask: int) -> Iterator[int]:
    """Yield the numbers (from 1) of the lanes in a bit mask."""
    return (lane for lane in range(1, LANES + 1) if mask >> (lane - 1) & 1)


@dataclass
class EmulatedDataPath:
    """One data path: the host and media lanes of one application.

    Attributes:
        first_lane: First host lane, from 1.
        host_mask: Host lanes as a bit mask.
        media_mask: Media lanes as a bit mask.
        pending: Whether settings are stored but not yet used by the hardware (DPInitPending).
        is_pending_reported: Whether register 11h:235 shows ``pending``.
        is_deactivating: Whether the path must be de-initialised (DPReDeinitS).
    """

    first_lane: int
    app_sel: int
    application: AdvertisedApplication
    host_mask: int
    media_mask: int
    state: DataPathState = DataPathState.DEACTIVATED
    pending: bool = False
    is_pending_reported: bool = False
    is_deactivating: bool = False
    is_timer_over: bool = False
    timer: Appointment | None = field(default=None, repr=False)


class DataPaths:
    """All data paths of the active control set."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.paths: list[EmulatedDataPath] = []

    def restart(self) -> None:
        """Create the data paths of the active control set."""
        self.paths = []
        self.form(0xFF, pending=False)

    # -- queries ----------------------------------------------------------------------------------------------------

    @property
    def all_deactivated(self) -> bool:
        """Whether every data path is deactivated."""
        return all(path.state is _S.DEACTIVATED for path in self.paths)

    def on_media_lane(self, lane: int) -> list[EmulatedDataPath]:
        """Return the data paths that use a media lane."""
        return [path for path in self.paths if path.media_mask >> (lane - 1) & 1]

    def is_active(self, lane: int) -> bool:
        """Return whether a data path on a media lane is initialised."""
        # Plain loops: called for every monitor of every lane at every sample.
        bit = 1 << (lane - 1)
        for path in self.paths:  # noqa: SIM110
            if path.media_mask & bit and path.state in ACTIVE_STATES:
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
        """Create the data paths of host lanes again from the active control set.

        A data path that keeps its lanes keeps its state. With ``pending``, the hardware does not use the new settings
        yet.
        """
        memory = self._core.memory
        former = {(path.first_lane, path.host_mask): path for path in self.overlapping(host_mask)}
        self.paths = [path for path in self.paths if not path.host_mask & host_mask]
        for lane in lanes_of(host_mask):
            app_sel = memory.count("active_app_sel", lane)
            application = self._core.profile.application(app_sel)
            # A path is created at its first lane, whose number is its DataPathID.
            if application is None or memory.count("active_data_path_id", lane) != lane - 1:
                continue
            mask = ((1 << application.host_lanes) - 1) << (lane - 1)
            # The same lanes: the path keeps its state, and only its settings are new.
            path = former.get((lane, mask)) or EmulatedDataPath(lane, app_sel, application, mask, 0)
            unchanged = path.app_sel == app_sel and (lane, mask) in former
            path.app_sel, path.application = app_sel, application
            path.media_mask = application.media_mask(lane)
            self.paths.append(path)
            if pending:
                self._mark_pending(path, unchanged)
        self._write_state_registers()

    def _mark_pending(self, path: EmulatedDataPath, unchanged: bool) -> None:
        core = self._core
        path.pending = True
        path.is_pending_reported = not (core.has("no_init_pending") and unchanged)
        if core.quirks.init_pending_clobbers:
            for other in self.paths:
                if other is not path:
                    other.is_pending_reported = False
        if core.quirks.init_pending_s is not None:
            core.agenda.after(core.quirks.init_pending_s, lambda: self._hide_pending(path))

    def _hide_pending(self, path: EmulatedDataPath) -> None:
        path.is_pending_reported = False
        self._write_state_registers()

    # -- the machines -----------------------------------------------------------------------------------------------

    def step(self, ready: bool, faulty: bool) -> bool:
        """Make all due transitions of the data paths. Return whether any state has changed.

        Args:
            ready: Whether the module is in ModuleReady without a low power request.
            faulty: Whether the module is in its fault state, which stops every data path.
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
        if path.state in _STEADY_DATA_PATH and self._next(path, ready) is None:
            for lane in lanes_of(path.host_mask):
                self._core.flags.raise_event("data_path_state_changed_flag", lane)

    def _deinit(self, path: EmulatedDataPath, ready: bool) -> bool:
        """Return whether a data path must be de-initialised (DPDeinitS, CMIS 6.3.3.3)."""
        requested = self._core.memory.lanes("data_path_deinit")
        if self._core.quirks.inverted_deinit:
            requested = ~requested
        return not ready or bool(requested & path.host_mask)

    def _tx_disabled(self, path: EmulatedDataPath) -> bool:
        memory = self._core.memory
        return bool(path.media_mask & (memory.lanes("tx_disable") | memory.lanes("tx_forced_squelch")))

    @staticmethod
    def may_emit(path: EmulatedDataPath, has_light: bool) -> bool:
        """Return whether an enabled media lane may send light (CMIS 6.3.3); ``has_light``: it sends already."""
        if path.state is _S.TX_TURN_ON:
            return has_light
        return path.state is _S.ACTIVATED or (
            path.state in (_S.INITIALIZED, _S.TX_TURN_OFF) and not path.is_deactivating
        )

    def _next(self, path: EmulatedDataPath, ready: bool) -> DataPathState | None:
        deinit = self._deinit(path, ready)
        # A module that reconfigures without intervention takes the path down and up again by itself (CMIS 6.2.3).
        path.is_deactivating = down = deinit or (path.pending and not self._core.quirks.stepped_config_only)
        # DPDeactivateS. The light goes off before the path goes down: states 4, 6, 7, 3.
        dark = down or self._tx_disabled(path)
        is_finished = path.is_timer_over
        table: dict[DataPathState, tuple[tuple[bool, DataPathState], ...]] = {
            _S.DEACTIVATED: ((not deinit, _S.INIT),),
            _S.INIT: ((deinit, _S.DEINIT), (is_finished, _S.INITIALIZED)),
            _S.DEINIT: ((is_finished, _S.DEACTIVATED),),
            _S.INITIALIZED: ((down, _S.DEINIT), (not dark, _S.TX_TURN_ON)),
            _S.TX_TURN_ON: ((dark, _S.TX_TURN_OFF), (is_finished, _S.ACTIVATED)),
            _S.ACTIVATED: ((dark, _S.TX_TURN_OFF),),
            _S.TX_TURN_OFF: ((is_finished, _S.INITIALIZED),),
        }
        return next((state for condition, state in table[path.state] if condition), None)

    def _enter(self, path: EmulatedDataPath, state: DataPathState) -> None:
        core = self._core
        if path.state is _S.INIT and state is _S.INITIALIZED:
            path.pending = path.is_pending_reported = False  # commissioned
        core.record_transition(f"data path {path.first_lane}", path.state, state)
        path.state = state
        path.is_timer_over = False
        if path.timer is not None:
            path.timer.cancel()
        seconds = self._duration_s(state)
        if seconds is not None:
            path.timer = core.agenda.after(seconds, lambda: self._end_timer(path))
        self._write_state_registers()

    def _duration_s(self, state: DataPathState) -> float | None:
        core, times = self._core, self._core.timing
        if state is _S.INIT:
            return None if core.has("stuck_init") else times.dp_init_s * core.faults.get("slow_init", 1.0)
        return {
            _S.DEINIT: times.dp_deinit_s,
            _S.TX_TURN_ON: times.tx_turn_on_s,
            _S.TX_TURN_OFF: times.tx_turn_off_s,
        }.get(state)

    def _end_timer(self, path: EmulatedDataPath) -> None:
        path.is_timer_over = True

    def _write_state_registers(self) -> None:
        memory = self._core.memory
        states = dict.fromkeys(range(1, LANES + 1), _S.DEACTIVATED)
        pending = 0
        for path in self.paths:
            states |= dict.fromkeys(lanes_of(path.host_mask), path.state)
            pending |= path.host_mask if path.is_pending_reported else 0
        for lane, state in states.items():
            memory.put("data_path_state", state, lane)
        memory.put_lanes("data_path_init_pending", pending)


_STEADY_IN_USE = frozenset({DataPathState.INITIALIZED, DataPathState.ACTIVATED})
_SETTINGS = tuple(
    name.removeprefix("active_")
    for name in FIELDS
    if name.startswith("active_") and name not in ("active_app_sel", "active_data_path_id")
)
"""Signal-integrity fields of a control set, and the bit that enables them."""
_MAXIMA = (
    ("tx_fixed_eq", "tx_input_eq_max"),
    ("rx_pre_cursor", "rx_pre_cursor_max"),
    ("rx_post_cursor", "rx_post_cursor_max"),
)


@dataclass(frozen=True)
class Staged:
    """Settings of one host lane that wait to be applied (staged control set)."""

    app_sel: int
    data_path_id: int
    settings: dict[str, int]

    @property
    def explicit(self) -> bool:
        """Whether the signal-integrity values replace the application's defaults (explicit control)."""
        return bool(self.settings["explicit_control"])


class ControlSets:
    """Applies the settings that the host has written (staged control sets) and reports ConfigStatus."""

    def __init__(self, core: Core, paths: DataPaths) -> None:
        self._core, self._paths = core, paths

    def _status(self, mask: int, status: ConfigStatus) -> None:
        for lane in lanes_of(mask):
            self._core.memory.put("config_status", status, lane)

    def trigger(self, number: int, mask: int, *, immediate: bool = False) -> None:
        """Apply the staged control set ``number`` on the host lanes of ``mask``, except busy lanes."""
        core = self._core
        if immediate and core.quirks.stepped_config_only:
            return
        for lane in lanes_of(mask):
            # Busy lanes ignore the trigger (CMIS 6.2.3); the others accept it.
            if core.memory.count("config_status", lane) == ConfigStatus.IN_PROGRESS:
                mask &= ~(1 << (lane - 1))
        if not mask:
            return
        self._status(mask, ConfigStatus.IN_PROGRESS)
        if not core.has("stuck_config"):
            # Copy the staged set now: later writes of the host belong to the next trigger.
            staged = {lane: self._staged(number, lane) for lane in range(1, LANES + 1)}
            core.agenda.after(core.timing.apply_s, lambda: self._finish_apply(mask, staged, immediate))

    def _staged(self, number: int, lane: int) -> Staged:
        memory, prefix = self._core.memory, f"staged_{number}"
        settings = {name: memory.count(f"{prefix}_{name}", lane) for name in _SETTINGS}
        app_sel, path_id = memory.count(f"{prefix}_app_sel", lane), memory.count(f"{prefix}_data_path_id", lane)
        return Staged(app_sel, path_id, settings)

    def _finish_apply(self, mask: int, staged: dict[int, Staged], immediate: bool) -> None:
        verdicts = dict.fromkeys(self._groups(mask, staged), ConfigStatus.SUCCESS)
        accepted, passed = 0, mask
        while passed != accepted:
            accepted = passed
            for group in [group for group, status in verdicts.items() if status is ConfigStatus.SUCCESS]:
                verdicts[group] = self._check_group(group, accepted, staged, immediate)
            passed = sum(group for group, status in verdicts.items() if status is ConfigStatus.SUCCESS)
        for group, status in verdicts.items():
            self._status(group, status)
            if status is ConfigStatus.SUCCESS:
                self._copy(group, staged)
        if accepted:
            self._paths.form(accepted, pending=not immediate)

    @staticmethod
    def _groups(mask: int, staged: dict[int, Staged]) -> list[int]:
        groups: dict[tuple[int, int], int] = {}
        for lane in lanes_of(mask):
            identity = _identity(staged[lane])
            groups[identity] = groups.get(identity, 0) | 1 << (lane - 1)
        return list(groups.values())

    def _check_group(self, group: int, applied: int, staged: dict[int, Staged], immediate: bool) -> ConfigStatus:
        """Return the ConfigStatus of a group of lanes; rejections have the priority 3, 4, 7, 6, 5, highest first.

        Args:
            group: Bit mask of lanes that all request the same data path, or all request none.
            applied: Bit mask of all lanes of the trigger that have not been rejected.
            staged: Request of each lane.
            immediate: Whether the trigger is ApplyImmediate.
        """
        first = staged[next(lanes_of(group))]
        if self._core.memory.count("module_state") == ModuleState.FAULT:
            return ConfigStatus.REJECTED
        if first.app_sel == 0:
            return self._check_unused(group, applied)
        application = self._core.profile.application(first.app_sel)
        if application is None:
            return ConfigStatus.REJECTED_INVALID_APPSEL
        start = first.data_path_id
        # A mask may extend beyond lane 8, and is then misplaced.
        full_mask = ((1 << application.host_lanes) - 1) << start
        misplaced = not application.host_options >> start & 1 or full_mask > 0xFF or bool(group & ~full_mask)
        legal = all(self._has_legal_settings(staged[lane]) for lane in lanes_of(group))
        checks = (
            (misplaced, ConfigStatus.REJECTED_INVALID_DATA_PATH),
            (group != full_mask, ConfigStatus.REJECTED_PARTIAL_DATA_PATH),
            (self._in_use(full_mask, applied, first.app_sel, immediate), ConfigStatus.REJECTED_LANES_IN_USE),
            (not legal, ConfigStatus.REJECTED_INVALID_SI),
        )
        return next((status for failed, status in checks if failed), ConfigStatus.SUCCESS)

    def _check_unused(self, group: int, applied: int) -> ConfigStatus:
        # Unused lanes remove a data path, so all of its lanes must be unused, and it must be deactivated.
        paths = self._paths.overlapping(group)
        if self._core.has("reject_appsel0"):
            return ConfigStatus.REJECTED
        if any(path.host_mask & ~applied for path in paths):
            return ConfigStatus.REJECTED_PARTIAL_DATA_PATH
        if any(path.state is not DataPathState.DEACTIVATED for path in paths):
            return ConfigStatus.REJECTED_LANES_IN_USE
        return ConfigStatus.SUCCESS

    def _in_use(self, full_mask: int, applied: int, app_sel: int, immediate: bool) -> bool:
        """Return whether the present use of the lanes forbids the requested change.

        A deactivated data path can be replaced if the trigger covers all its lanes. An active path can only be set up
        again with the same lanes, and by ApplyImmediate also with the same application.
        """
        for path in self._paths.overlapping(full_mask):
            if path.host_mask & ~applied:
                return True
            if path.state is DataPathState.DEACTIVATED:
                continue
            if self._core.quirks.stepped_config_only or path.host_mask != full_mask or path.state not in _STEADY_IN_USE:
                return True
            if immediate and path.app_sel != app_sel:
                return True
        return False

    def _has_legal_settings(self, staged: Staged) -> bool:
        memory = self._core.memory
        if not staged.explicit:
            return True
        # The fixed equalization is not used while the adaptive one is on (CMIS 5.2 Table 8-66).
        unused = {"tx_fixed_eq"} if staged.settings["tx_adaptive_eq"] else set()
        if any(staged.settings[name] > memory.count(limit) for name, limit in _MAXIMA if name not in unused):
            return False
        if not memory.count("rx_amplitude_supported"):
            return True
        levels, amplitude = memory.count("rx_output_levels"), staged.settings["rx_amplitude"]
        return amplitude < 4 and bool(levels >> amplitude & 1)

    def _copy(self, group: int, staged: dict[int, Staged]) -> None:
        memory = self._core.memory
        for lane in lanes_of(group):
            request = staged[lane]
            memory.put("active_app_sel", request.app_sel, lane)
            memory.put("active_data_path_id", request.data_path_id if request.app_sel else 0, lane)
            defaults = application_settings(memory) if request.app_sel else {}
            settings = defaults | self._explicit(request) if request.explicit else defaults
            for name in request.settings:
                memory.put(f"active_{name}", settings.get(name, 0), lane)

    def _explicit(self, request: Staged) -> dict[str, int]:
        """Return the staged settings that the module has. It ignores the others."""
        memory = self._core.memory
        has = {name: is_supported(FIELDS[f"active_{name}"], memory.advertised) is not False for name in _SETTINGS}
        return {name: count for name, count in request.settings.items() if has[name]}


def _identity(staged: Staged) -> tuple[int, int]:
    # All unused lanes have the same key, and so form one group.
    return (staged.app_sel, staged.data_path_id) if staged.app_sel else (0, 0)
