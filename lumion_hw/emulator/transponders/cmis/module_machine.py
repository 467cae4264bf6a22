"""The module state machine (CMIS 6.3.2)."""

from __future__ import annotations

from lumion_hw.emulator.transponders.cmis.core import Appointment, Core
from lumion_hw.standards.cmis.codes import FaultCause, ModuleState

_STEADY = frozenset({ModuleState.LOW_PWR, ModuleState.READY, ModuleState.FAULT})


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
        if state in _STEADY:
            core.flags.raise_event("module_state_changed_flag")
        if state is ModuleState.PWR_UP and not core.has("stuck_power_up"):
            self._time(core.timing.power_up_s)
        elif state is ModuleState.PWR_DN:
            self._time(core.timing.power_down_s)

    def _time(self, seconds: float) -> None:
        self._timer = self._core.agenda.after(seconds, self._finish)

    def _finish(self) -> None:
        self._timer_done = True
