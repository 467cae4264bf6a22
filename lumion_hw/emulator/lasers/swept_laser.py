"""Physics of a tunable external-cavity laser: wavelength, sweeps and trigger pulses over time.

The light has a fixed wavelength and power error, and stays on while the laser tunes.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.clock import Clock
from lumion_hw.emulator.optics.light import Light
from lumion_hw.quantities import w_from_dbm

MAX_TRIGGERS = 100_001
_GAIN_POINTS = 200
_ROUNDING_S = 1e-9
MIN_UPDATE_S = 0.004
"""Shortest time in s between two deliveries of trigger pulses."""
_PREPARATION_S = 0.1  # model choice: long enough for a polling host to see the state "preparing"


class SweepState(enum.Enum):
    """State of a laser sweep."""

    STOPPED = "stopped"
    PREPARING = "preparing"
    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"


class Pulses(enum.Enum):
    """Trigger pulses that a sweep sends at the trigger output."""

    NONE = "none"
    STOP = "stop"
    START = "start"
    STEP = "step"


@dataclass(frozen=True)
class LaserProfile:
    """Properties of one model of swept laser.

    Attributes:
        power_dbm: Smallest power, and largest power at the centre of the range.
        roll_off_db: Decrease of the largest power at the ends of the range.
        move_nm_per_s: Speed of tuning.
        wavelength_error_nm: Standard deviation of the wavelength error.
        power_error_db: Standard deviation of the power error.
    """

    limits_nm: tuple[float, float]
    power_dbm: tuple[float, float] = (-15.0, 12.0)
    roll_off_db: float = 4.0
    move_nm_per_s: float = 100.0
    settle_s: float = 0.3
    power_tau_s: float = 0.3
    wavelength_error_nm: float = 0.003
    power_error_db: float = 0.15

    def max_dbm(self, wavelength_nm: float) -> float:
        """Return the laser's largest power in dBm at a wavelength."""
        low, high = self.limits_nm
        relative_position = 2.0 * (wavelength_nm - low) / (high - low) - 1.0
        return self.power_dbm[1] - self.roll_off_db * relative_position * relative_position


@dataclass(frozen=True)
class ArmedSweep:
    """Parameters of a laser sweep.

    Attributes:
        step_nm: Wavelength step, also between trigger pulses.
        speed_nm_per_s: Speed of a continuous sweep.
        continuous: Whether the sweep is continuous rather than stepped.
        two_way: Whether every other pass runs backwards.
        cycles: Number of passes.
        delay_s: Delay between passes.
        pulses: Trigger pulses: one per step, or only the first or the last of every pass.
    """

    start_nm: float
    stop_nm: float
    step_nm: float
    speed_nm_per_s: float
    continuous: bool = True
    two_way: bool = False
    cycles: int = 1
    dwell_s: float = 0.1
    delay_s: float = 0.0
    pulses: Pulses = Pulses.STEP

    @property
    def steps(self) -> int:
        """Number of wavelength steps in one pass."""
        # 1e-6 of a step: a span of 30 steps of 0.1 nm divides to 29.999…
        return math.floor((self.stop_nm - self.start_nm) / self.step_nm + 1e-6)


@dataclass(frozen=True)
class _Trajectory:
    """Wavelength over time during a sweep."""

    times_s: NDArray[np.float64]
    nm: NDArray[np.float64]

    def at(self, at_s: float) -> float:
        """Return the wavelength in nm at a time; before and after the sweep, that of its ends."""
        return float(np.interp(at_s, self.times_s, self.nm))


class SweptLaser:
    """Physical model of a swept laser, with errors of wavelength and power.

    Args:
        on_triggers: Called with the times of trigger pulses, in order, after they have passed.
    """

    def __init__(
        self,
        profile: LaserProfile,
        clock: Clock,
        rng: np.random.Generator,
        on_triggers: Callable[[NDArray[np.float64]], None],
        *,
        wavelength_nm: float = 1550.0,
        power_dbm: float = 0.0,
    ) -> None:
        self.profile = profile
        self._clock = clock
        self._on_triggers = on_triggers
        self._updated_s = clock.now()
        self._error_nm = float(rng.normal(0.0, profile.wavelength_error_nm))
        self._error_db = float(rng.normal(0.0, profile.power_error_db))
        self._rng = rng
        self.wavelength_nm = wavelength_nm
        self.power_dbm = power_dbm
        now_s = clock.now()
        self._trajectory = self._before = _Trajectory(np.array([now_s]), np.array([wavelength_nm]))
        self._levels: tuple[tuple[float, float], ...] = ((-math.inf, 0.0), (now_s, 0.0))
        self.on = False
        self._plan: ArmedSweep | None = None
        self._ready_s = self._end_s = now_s
        self._waiting = self._paused = False
        self._pulses_s = np.zeros(0)
        self._n_sent = 0
        self._swept = self._trajectory
        self._pass_end_times_s: list[float] = []
        self.completed_passes = 0

    # -- light

    def switch(self, on: bool) -> None:
        """Switch the laser light on or off."""
        self.on = on
        self._set_target()

    def set_power(self, power_dbm: float) -> None:
        """Set the power in dBm, limited to the largest power at the wavelength."""
        self.power_dbm = power_dbm
        self._set_target()

    def _set_target(self) -> None:
        now_s = self._clock.now()
        target_w = w_from_dbm(self.power_dbm) if self.on else 0.0
        self._levels = ((now_s, self._level_w(now_s)), (now_s, target_w))

    def _level_w(self, at_s: float) -> float:
        """Return the power in W at a time, before the limit of the laser's largest power."""
        (changed_s, before_w), (_, target_w) = self._levels
        # Light goes off at once; it comes on with the time constant.
        if target_w == 0.0:
            return 0.0 if at_s >= changed_s else before_w
        remaining = math.exp(-max(at_s - changed_s, 0.0) / self.profile.power_tau_s)
        return target_w + (before_w - target_w) * remaining

    def light(self) -> Light:
        """Return the light that the laser emits, with its wavelength and power errors."""
        return self.light_at(self._clock.now())

    def light_at(self, at_s: float) -> Light:
        """Return the light at a past time. Wavelengths are known back to the start of the last change but one."""
        self.advance()
        nominal_nm = self._nominal_nm(at_s)
        largest_w = w_from_dbm(self.profile.max_dbm(nominal_nm))
        # The gain limits the output, not the setting: back at the centre of the range the full power returns.
        power_w = min(self._level_w(at_s), largest_w) * 10.0 ** (self._error_db / 10.0)
        return Light(power_w, nominal_nm + self._error_nm)

    def _nominal_nm(self, at_s: float) -> float:
        # A meter may ask for a time before the present movement began.
        trajectory = self._trajectory if at_s >= self._trajectory.times_s[0] else self._before
        return trajectory.at(at_s)

    # -- tuning

    def _follow(self, trajectory: _Trajectory) -> None:
        self._before, self._trajectory = self._trajectory, trajectory

    def _move(self, from_nm: float, to_nm: float, begin_s: float) -> tuple[float, float]:
        arrival_s = begin_s + abs(to_nm - from_nm) / self.profile.move_nm_per_s
        return arrival_s, arrival_s + self.profile.settle_s

    def tune(self, wavelength_nm: float) -> float:
        """Tune the laser to a wavelength; a running sweep ends. Returns the duration in seconds."""
        self.stop()
        now_s = self._clock.now()
        present_nm = self._nominal_nm(now_s)
        arrival_s, settled_s = self._move(present_nm, wavelength_nm, now_s)
        self._follow(_Trajectory(np.array([now_s, arrival_s]), np.array([present_nm, wavelength_nm])))
        self.wavelength_nm = wavelength_nm
        self._ready_s = settled_s
        return settled_s - now_s

    def set_busy(self, duration_s: float) -> float:
        """End a running sweep and stay busy for ``duration_s``. Return the duration."""
        self.stop()
        self._ready_s = self._clock.now() + duration_s
        return duration_s

    @property
    def tuning(self) -> bool:
        """Whether the laser is tuning or settling."""
        return self._clock.now() < self._ready_s - _ROUNDING_S

    # -- sweeps

    def sweep(self, plan: ArmedSweep, *, wait: bool) -> None:
        """Tune to the start of a sweep. Then start the sweep, or wait for a trigger."""
        self.tune(plan.start_nm)
        self._ready_s += _PREPARATION_S
        self._plan, self._waiting, self._paused = plan, wait, False
        self._pulses_s, self._n_sent, self.completed_passes = np.zeros(0), 0, 0
        if not wait:
            self._begin(self._ready_s)

    def hold(self, plan: ArmedSweep) -> None:
        """Tune to the start of a manual sweep."""
        self.tune(plan.start_nm)
        self._plan, self._waiting, self._paused = plan, False, True
        self._pulses_s, self._n_sent, self.completed_passes = np.zeros(0), 0, 0

    def trigger(self) -> bool:
        """Start a sweep that waits for a trigger. Return whether a sweep was waiting."""
        # A pulse before the laser has reached its start is lost.
        if not self._waiting or self.tuning:
            return False
        self._waiting = False
        self._begin(self._clock.now())
        return True

    def _begin(self, begin_s: float) -> None:
        plan = self._plan
        if plan is None:
            return
        times: list[NDArray[np.float64]] = [np.array([begin_s])]
        wavelengths: list[NDArray[np.float64]] = [np.array([plan.start_nm])]
        pulses: list[NDArray[np.float64]] = []
        ends: list[float] = []
        at_s, present_nm = begin_s, plan.start_nm
        for cycle in range(plan.cycles):
            backwards = plan.two_way and cycle % 2 == 1
            first = plan.stop_nm if backwards else plan.start_nm
            if cycle:
                at_s += plan.delay_s
                if present_nm != first:
                    # A one-way sweep returns between its passes, without pulses.
                    at_s, present_nm = self._move(present_nm, first, at_s)[1], first
                times.append(np.array([at_s]))
                wavelengths.append(np.array([present_nm]))
            pass_times, pass_nm, pass_pulses = self._plan_pass(plan, at_s, backwards=backwards)
            times.append(pass_times)
            wavelengths.append(pass_nm)
            pulses_by_mode = {Pulses.NONE: pass_times[:0], Pulses.START: pass_times[:1], Pulses.STOP: pass_times[-1:]}
            pulses.append(pulses_by_mode.get(plan.pulses, pass_pulses))
            at_s, present_nm = float(pass_times[-1]), float(pass_nm[-1])
            ends.append(at_s)
        self._follow(_Trajectory(np.concatenate(times), np.concatenate(wavelengths)))
        self._pulses_s, self._n_sent = np.concatenate(pulses), 0
        self._swept = self._trajectory
        self._pass_end_times_s = ends
        self._end_s = at_s

    def _plan_pass(
        self, plan: ArmedSweep, begin_s: float, *, backwards: bool
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        sign, first = (-1.0, plan.stop_nm) if backwards else (1.0, plan.start_nm)
        numbers = np.arange(plan.steps + 1)
        if plan.continuous:
            duration_s = (plan.stop_nm - plan.start_nm) / plan.speed_nm_per_s
            last = plan.start_nm if backwards else plan.stop_nm
            pulses_s = np.asarray(begin_s + numbers * (plan.step_nm / plan.speed_nm_per_s), dtype=np.float64)
            return np.array([begin_s, begin_s + duration_s]), np.array([first, last]), pulses_s
        move_s = plan.step_nm / self.profile.move_nm_per_s
        arrive_s = np.asarray(begin_s + numbers * (plan.dwell_s + move_s), dtype=np.float64)
        nm = first + sign * numbers * plan.step_nm
        times_s = np.column_stack((arrive_s, arrive_s + plan.dwell_s)).ravel()
        # A step is finished, and its pulse sent, at the end of its dwell time.
        return times_s, np.repeat(nm, 2), arrive_s + plan.dwell_s

    def stop(self) -> None:
        """Stop a sweep at the present wavelength."""
        now_s = self._clock.now()
        present_nm = self._nominal_nm(now_s)
        if self.state is not SweepState.STOPPED:
            self._follow(_Trajectory(np.array([now_s]), np.array([present_nm])))
            self._pulses_s = self._pulses_s[self._pulses_s <= now_s]  # pulses that were sent stay in the log
        self._plan, self._waiting, self._paused = None, False, False
        self._ready_s, self._end_s = min(self._ready_s, now_s), min(self._end_s, now_s)

    def pause(self) -> None:
        """Pause a stepped sweep."""
        if self._plan is not None:
            now_s = self._clock.now()
            present_nm = self._nominal_nm(now_s)
            self._follow(_Trajectory(np.array([now_s]), np.array([present_nm])))
            self.wavelength_nm = present_nm
            self._paused = True

    def step(self, direction: int) -> bool:
        """Move a paused or manual sweep by one step. Return whether this was possible."""
        plan = self._plan
        if plan is None or not self._paused:
            return False
        target = self.wavelength_nm + direction * plan.step_nm
        if not plan.start_nm - 1e-9 <= target <= plan.stop_nm + 1e-9:
            return False
        self.tune(target)
        self._plan, self._paused = plan, True
        return True

    @property
    def state(self) -> SweepState:
        """Present state of the sweep."""
        now_s = self._clock.now()
        if self._plan is None:
            return SweepState.STOPPED
        if self._paused:
            return SweepState.PAUSED
        if self.tuning:
            return SweepState.PREPARING
        if self._waiting:
            return SweepState.WAITING
        return SweepState.RUNNING if now_s < self._end_s - _ROUNDING_S else SweepState.STOPPED

    @property
    def end_s(self) -> float | None:
        """Time at which tuning or sweep ends; ``None`` while a sweep waits for a trigger."""
        if self._plan is not None and self._waiting:
            return None
        return self._ready_s if self._paused else max(self._end_s, self._ready_s)

    def next_update_s(self) -> float | None:
        """Return the time of the next delivery of trigger pulses; ``None`` if there are no more pulses."""
        if self._n_sent >= len(self._pulses_s):
            return None
        return max(float(self._pulses_s[self._n_sent]), self._updated_s + MIN_UPDATE_S)

    def advance(self) -> None:
        """Advance the laser to the present time."""
        now_s = self._updated_s = self._clock.now()
        due = int(np.searchsorted(self._pulses_s, now_s + _ROUNDING_S, side="right"))
        if due > self._n_sent:
            # Counted before they are delivered: a meter that receives them reads this laser.
            new_pulses_s, self._n_sent = self._pulses_s[self._n_sent : due], due
            self._on_triggers(new_pulses_s)
        if self._plan is not None and self.state is SweepState.STOPPED:
            self.wavelength_nm = float(self._trajectory.nm[-1])
            self.completed_passes = self._plan.cycles
            self._plan = None
        elif self._plan is not None and self.state is SweepState.RUNNING:
            self.completed_passes = sum(end_s <= now_s for end_s in self._pass_end_times_s)

    @property
    def logged_w(self) -> NDArray[np.float64]:
        """Powers in W at the trigger pulses of the last sweep, for the present power setting."""
        self.advance()
        passed_s = self._pulses_s[: self._n_sent]
        nm = np.interp(passed_s, self._swept.times_s, self._swept.nm)
        low, high = self.profile.limits_nm
        grid_nm = np.linspace(low, high, _GAIN_POINTS)
        largest_w = np.interp(nm, grid_nm, [w_from_dbm(self.profile.max_dbm(point_nm)) for point_nm in grid_nm])
        level_w = self._level_w(self._clock.now())
        return np.asarray(np.minimum(level_w, largest_w) * 10.0 ** (self._error_db / 10.0), dtype=np.float64)

    @property
    def logged_nm(self) -> NDArray[np.float64]:
        """Wavelengths in nm measured at the trigger pulses of the last sweep."""
        self.advance()
        passed_s = self._pulses_s[: self._n_sent]
        return np.asarray(np.interp(passed_s, self._swept.times_s, self._swept.nm) + self._error_nm, dtype=np.float64)
