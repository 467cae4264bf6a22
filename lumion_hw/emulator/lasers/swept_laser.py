"""A tunable external-cavity laser as physics: where it is at any time, sweeps and their trigger pulses.

Settings are exact and reproducible, the light is neither: each laser has its own error of wavelength and power. Moving
takes time, the light stays on meanwhile. The past is kept, so that a meter can ask for the light at the time of each of
its samples.
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

MOST_TRIGGERS = 100_001
_GAIN_POINTS = 200
_ROUNDING_S = 1e-9
LOOK_S = 0.004
"""Shortest time between two deliveries of pulses that nobody asks for."""
_PREPARATION_S = 0.1  # model: state 4 of a TSL, "running" of a Keysight laser, has to be seen by a host that polls


class SweepState(enum.Enum):
    """What a sweep is doing."""

    STOPPED = "stopped"
    PREPARING = "preparing"
    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"


class Pulses(enum.Enum):
    """When a sweep gives pulses at the trigger output."""

    NONE = "none"
    STOP = "stop"
    START = "start"
    STEP = "step"


@dataclass(frozen=True)
class LaserProfile:
    """Figures of one model.

    Attributes:
        limits_nm: Shortest and longest wavelength.
        power_dbm: Least power, and greatest in the middle of the range.
        roll_off_db: How much less power there is at the ends of the range.
        move_nm_per_s: Speed of tuning.
        settle_s: Time from arriving to being there.
        power_tau_s: Time constant of the power.
        wavelength_error_nm: Spread of the wavelength's error.
        power_error_db: Spread of the power's error.
    """

    limits_nm: tuple[float, float]
    power_dbm: tuple[float, float] = (-15.0, 12.0)
    roll_off_db: float = 4.0
    move_nm_per_s: float = 100.0
    settle_s: float = 0.3
    power_tau_s: float = 0.3
    wavelength_error_nm: float = 0.003
    power_error_db: float = 0.15

    def largest_dbm(self, wavelength_nm: float) -> float:
        """Return the greatest power at a wavelength: a parabola over the range."""
        low, high = self.limits_nm
        place = 2.0 * (wavelength_nm - low) / (high - low) - 1.0
        return self.power_dbm[1] - self.roll_off_db * place * place


@dataclass(frozen=True)
class ArmedSweep:
    """One sweep.

    Attributes:
        start_nm: Where it begins.
        stop_nm: Where it ends.
        step_nm: Distance of steps, and of trigger pulses.
        speed_nm_per_s: Speed of a continuous sweep.
        continuous: Continuous rather than stepped.
        two_way: Every other pass goes back.
        cycles: Number of passes.
        dwell_s: Rest on every step.
        delay_s: Rest between passes.
        pulses: Which of the pulses it gives: one per step, or only the first or the last of every pass.
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
        """Steps of one pass, not counting its first place."""
        # 1e-6 of a step: a span of 30 steps of 0.1 nm divides to 29.999…
        return math.floor((self.stop_nm - self.start_nm) / self.step_nm + 1e-6)


@dataclass(frozen=True)
class _Trajectory:
    """Where the laser is as a function of time: straight lines between these points."""

    times_s: NDArray[np.float64]
    nm: NDArray[np.float64]

    def at(self, at_s: float) -> float:
        return float(np.interp(at_s, self.times_s, self.nm))


class SweptLaser:
    """The laser.

    Args:
        profile: Its model.
        clock: The injected clock.
        rng: Draws its errors.
        on_triggers: Called with the times of the pulses that a sweep gives, in order, once they have passed.
        wavelength_nm: Where it starts.
        power_dbm: Power it starts with.
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
        self._looked_s = clock.now()
        self._error_nm = float(rng.normal(0.0, profile.wavelength_error_nm))
        self._error_db = float(rng.normal(0.0, profile.power_error_db))
        self._rng = rng
        self.wavelength_nm = wavelength_nm
        self.power_dbm = power_dbm
        now = clock.now()
        self._trajectory = self._before = _Trajectory(np.array([now]), np.array([wavelength_nm]))
        self._levels: tuple[tuple[float, float], ...] = ((-math.inf, 0.0), (now, 0.0))
        self.on = False
        self._plan: ArmedSweep | None = None
        self._ready_s = self._end_s = now
        self._waiting = self._paused = False
        self._pulses_s = np.zeros(0)
        self._sent = 0
        self._swept = self._trajectory
        self._pass_ends_s: list[float] = []
        self.passes_done = 0

    # -- light

    def switch(self, on: bool) -> None:
        """Switch the light on or off."""
        self.on = on
        self._aim()

    def set_power(self, power_dbm: float) -> None:
        """Go for another power; what the laser cannot give at its wavelength it does not give."""
        self.power_dbm = power_dbm
        self._aim()

    def _aim(self) -> None:
        now = self._clock.now()
        target_w = w_from_dbm(self.power_dbm) if self.on else 0.0
        self._levels = ((now, self._level_w(now)), (now, target_w))

    def _level_w(self, at_s: float) -> float:
        """Return the power before the limits of the gain: it follows the setting in its time constant."""
        (changed_s, before_w), (_, target_w) = self._levels
        # Light goes off at once; it comes on with the time constant.
        if target_w == 0.0:
            return 0.0 if at_s >= changed_s else before_w
        remaining = math.exp(-max(at_s - changed_s, 0.0) / self.profile.power_tau_s)
        return target_w + (before_w - target_w) * remaining

    def light(self) -> Light:
        """Return the true light now."""
        return self.light_at(self._clock.now())

    def light_at(self, at_s: float) -> Light:
        """Return the true light at a time of the present or the last trajectory."""
        self.advance()
        nominal_nm = self._nominal_nm(at_s)
        largest_w = w_from_dbm(self.profile.largest_dbm(nominal_nm))
        # The gain limits what comes out, not what is asked for: back in the middle of the range the power is there
        # again.
        power_w = min(self._level_w(at_s), largest_w) * 10.0 ** (self._error_db / 10.0)
        return Light(power_w, nominal_nm + self._error_nm)

    def _nominal_nm(self, at_s: float) -> float:
        # A meter may ask for an instant before the present motion began.
        trajectory = self._trajectory if at_s >= self._trajectory.times_s[0] else self._before
        return trajectory.at(at_s)

    # -- tuning

    def _follow(self, trajectory: _Trajectory) -> None:
        self._before, self._trajectory = self._trajectory, trajectory

    def _move(self, from_nm: float, to_nm: float, begin_s: float) -> tuple[float, float]:
        """Return when a move ends and when the laser has settled."""
        arrived_s = begin_s + abs(to_nm - from_nm) / self.profile.move_nm_per_s
        return arrived_s, arrived_s + self.profile.settle_s

    def tune(self, wavelength_nm: float) -> float:
        """Go to a wavelength; a sweep ends. Returns how long it takes, in seconds."""
        self.stop()
        now = self._clock.now()
        here = self._nominal_nm(now)
        arrived_s, settled_s = self._move(here, wavelength_nm, now)
        self._follow(_Trajectory(np.array([now, arrived_s]), np.array([here, wavelength_nm])))
        self.wavelength_nm = wavelength_nm
        self._ready_s = settled_s
        return settled_s - now

    def rest(self, duration_s: float) -> float:
        """Stay where it is, busy, for some time; a sweep ends. Returns ``duration_s``."""
        self.stop()
        self._ready_s = self._clock.now() + duration_s
        return duration_s

    @property
    def tuning(self) -> bool:
        """Whether the laser is on its way to a wavelength, or settling."""
        return self._clock.now() < self._ready_s - _ROUNDING_S

    # -- sweeps

    def sweep(self, plan: ArmedSweep, *, wait: bool) -> None:
        """Go to the start of a sweep; then begin it, or wait for a trigger."""
        self.tune(plan.start_nm)
        self._ready_s += _PREPARATION_S
        self._plan, self._waiting, self._paused = plan, wait, False
        self._pulses_s, self._sent, self.passes_done = np.zeros(0), 0, 0
        if not wait:
            self._begin(self._ready_s)

    def hold(self, plan: ArmedSweep) -> None:
        """Go to the start of a sweep whose steps are asked for one by one."""
        self.tune(plan.start_nm)
        self._plan, self._waiting, self._paused = plan, False, True
        self._pulses_s, self._sent, self.passes_done = np.zeros(0), 0, 0

    def trigger(self) -> bool:
        """Begin the sweep that waits for a trigger; return whether one did."""
        # A pulse before the laser is at its start is lost.
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
        places: list[NDArray[np.float64]] = [np.array([plan.start_nm])]
        pulses: list[NDArray[np.float64]] = []
        ends: list[float] = []
        at_s, here = begin_s, plan.start_nm
        for cycle in range(plan.cycles):
            back = plan.two_way and cycle % 2 == 1
            first = plan.stop_nm if back else plan.start_nm
            if cycle:
                at_s += plan.delay_s
                if here != first:
                    # A one-way sweep goes back between its passes, without pulses.
                    at_s, here = self._move(here, first, at_s)[1], first
                times.append(np.array([at_s]))
                places.append(np.array([here]))
            pass_times, pass_nm, pass_pulses = self._one_pass(plan, at_s, back=back)
            times.append(pass_times)
            places.append(pass_nm)
            given = {Pulses.NONE: pass_times[:0], Pulses.START: pass_times[:1], Pulses.STOP: pass_times[-1:]}
            pulses.append(given.get(plan.pulses, pass_pulses))
            at_s, here = float(pass_times[-1]), float(pass_nm[-1])
            ends.append(at_s)
        self._follow(_Trajectory(np.concatenate(times), np.concatenate(places)))
        self._pulses_s, self._sent = np.concatenate(pulses), 0
        self._swept = self._trajectory
        self._pass_ends_s = ends
        self._end_s = at_s

    def _one_pass(
        self, plan: ArmedSweep, begin_s: float, *, back: bool
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return times and places of the trajectory of one pass, and the times of its pulses."""
        sign, first = (-1.0, plan.stop_nm) if back else (1.0, plan.start_nm)
        numbers = np.arange(plan.steps + 1)
        if plan.continuous:
            duration_s = (plan.stop_nm - plan.start_nm) / plan.speed_nm_per_s
            last = plan.start_nm if back else plan.stop_nm
            pulses_s = np.asarray(begin_s + numbers * (plan.step_nm / plan.speed_nm_per_s), dtype=np.float64)
            return np.array([begin_s, begin_s + duration_s]), np.array([first, last]), pulses_s
        move_s = plan.step_nm / self.profile.move_nm_per_s
        arrive_s = np.asarray(begin_s + numbers * (plan.dwell_s + move_s), dtype=np.float64)
        nm = first + sign * numbers * plan.step_nm
        times_s = np.column_stack((arrive_s, arrive_s + plan.dwell_s)).ravel()
        # A step is finished, and its pulse given, at the end of its rest.
        return times_s, np.repeat(nm, 2), arrive_s + plan.dwell_s

    def stop(self) -> None:
        """End a sweep where it is."""
        now = self._clock.now()
        here = self._nominal_nm(now)
        if self.state is not SweepState.STOPPED:
            self._follow(_Trajectory(np.array([now]), np.array([here])))
            self._pulses_s = self._pulses_s[self._pulses_s <= now]  # what was given stays in the log
        self._plan, self._waiting, self._paused = None, False, False
        self._ready_s, self._end_s = min(self._ready_s, now), min(self._end_s, now)

    def pause(self) -> None:
        """Stay where a stepped sweep is, until it is continued by steps or stopped."""
        if self._plan is not None:
            now = self._clock.now()
            here = self._nominal_nm(now)
            self._follow(_Trajectory(np.array([now]), np.array([here])))
            self.wavelength_nm = here
            self._paused = True

    def step(self, direction: int) -> bool:
        """Go one step of a paused or manual sweep; return whether there was one to go."""
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
        """What the sweep is doing now."""
        now = self._clock.now()
        if self._plan is None:
            return SweepState.STOPPED
        if self._paused:
            return SweepState.PAUSED
        if self.tuning:
            return SweepState.PREPARING
        if self._waiting:
            return SweepState.WAITING
        return SweepState.RUNNING if now < self._end_s - _ROUNDING_S else SweepState.STOPPED

    @property
    def end_s(self) -> float | None:
        """When what is under way ends, ``None`` while a sweep waits for a trigger."""
        if self._plan is not None and self._waiting:
            return None
        return self._ready_s if self._paused else max(self._end_s, self._ready_s)

    def next_look_s(self) -> float | None:
        """Return when pulses should be given next to somebody who measures by them, ``None`` if none are to come."""
        if self._sent >= len(self._pulses_s):
            return None
        return max(float(self._pulses_s[self._sent]), self._looked_s + LOOK_S)

    def advance(self) -> None:
        """Give the pulses that have passed, and end what is over."""
        now = self._looked_s = self._clock.now()
        due = int(np.searchsorted(self._pulses_s, now + _ROUNDING_S, side="right"))
        if due > self._sent:
            # Counted before they are handed over: a meter that takes them looks at this laser.
            fresh, self._sent = self._pulses_s[self._sent : due], due
            self._on_triggers(fresh)
        if self._plan is not None and self.state is SweepState.STOPPED:
            self.wavelength_nm = float(self._trajectory.nm[-1])
            self.passes_done = self._plan.cycles
            self._plan = None
        elif self._plan is not None and self.state is SweepState.RUNNING:
            self.passes_done = sum(end_s <= now for end_s in self._pass_ends_s)

    @property
    def logged_w(self) -> NDArray[np.float64]:
        """Power at the pulses of the last sweep that have passed, with the level of now."""
        self.advance()
        passed_s = self._pulses_s[: self._sent]
        nm = np.interp(passed_s, self._swept.times_s, self._swept.nm)
        low, high = self.profile.limits_nm
        grid_nm = np.linspace(low, high, _GAIN_POINTS)
        largest_w = np.interp(nm, grid_nm, [w_from_dbm(self.profile.largest_dbm(each)) for each in grid_nm])
        level_w = self._level_w(self._clock.now())
        return np.asarray(np.minimum(level_w, largest_w) * 10.0 ** (self._error_db / 10.0), dtype=np.float64)

    @property
    def logged_nm(self) -> NDArray[np.float64]:
        """Wavelengths measured at the pulses of the last sweep that have passed."""
        self.advance()
        passed_s = self._pulses_s[: self._sent]
        return np.asarray(np.interp(passed_s, self._swept.times_s, self._swept.nm) + self._error_nm, dtype=np.float64)
