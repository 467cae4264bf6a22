"""The data path state machines, one per group of host lanes (CMIS 6.3.3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lumion_hw.emulator.transponders.cmis.core import Appointment, Core
from lumion_hw.emulator.transponders.cmis.profile import AdvertisedApplication
from lumion_hw.standards.cmis.codes import DATA_PATH_TRANSIENT, DataPathState
from lumion_hw.standards.cmis.fields import LANES

_S = DataPathState
LIT = frozenset({_S.INITIALIZED, _S.TX_TURN_ON, _S.ACTIVATED, _S.TX_TURN_OFF})
"""States in which the receive side of a data path works."""
_STEADY = frozenset(DataPathState) - DATA_PATH_TRANSIENT


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
    """

    first_lane: int
    app_sel: int
    application: AdvertisedApplication
    host_mask: int
    media_mask: int
    state: DataPathState = DataPathState.DEACTIVATED
    pending: bool = False
    pending_shown: bool = False
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
            if application is None or memory.count("active_data_path_id", lane) != lane - 1:
                continue
            mask = ((1 << application.host_lanes) - 1) << (lane - 1)
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
                following = None if path.state is _S.DEACTIVATED else _S.DEACTIVATED
            else:
                following = self._next(path, ready)
            if following is not None:
                self._enter(path, following)
                moved = True
        return moved

    def _deinit(self, path: EmulatedDataPath, ready: bool) -> bool:
        """DPDeinitS (CMIS 6.3.3.3)."""
        asked = self._core.memory.lanes("data_path_deinit")
        if self._core.quirks.inverted_deinit:
            asked = ~asked
        return not ready or bool(asked & path.host_mask)

    def tx_disabled(self, path: EmulatedDataPath) -> bool:
        """DPTxDisableS: all media lanes of the path are disabled or squelched (one dark lane keeps the others on)."""
        memory = self._core.memory
        dark = memory.lanes("tx_disable") | memory.lanes("tx_forced_squelch")
        return path.media_mask & ~dark == 0

    def _next(self, path: EmulatedDataPath, ready: bool) -> DataPathState | None:
        deinit = self._deinit(path, ready)
        again = path.pending and not self._core.quirks.stepped_config_only
        down = deinit or again
        dark = down or self.tx_disabled(path)
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
            path.pending = path.pending_shown = False
        core.note(f"data path {path.first_lane}", path.state, state)
        path.state = state
        path.timer_done = False
        if path.timer is not None:
            path.timer.cancel()
        seconds = self._duration_s(state)
        if seconds is not None:
            path.timer = core.agenda.after(seconds, lambda: self._finish(path))
        if state in _STEADY:
            for lane in lanes_of(path.host_mask):
                core.flags.raise_event("data_path_state_changed_flag", lane)
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
