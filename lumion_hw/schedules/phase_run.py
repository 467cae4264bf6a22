"""Prepared configurations on a bench: switched by tag, proven by light, dark times measured port by port."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lumion_hw.circuits import CircuitProof, CircuitRequest, PathSetup
from lumion_hw.circuits.coherent import await_locks, transmitters_of
from lumion_hw.circuits.planned import PlannedCircuit
from lumion_hw.errors import CircuitError, ConfigError, UnknownNameError
from lumion_hw.schedules.phases import DarkSpan, IterationTimes, PhasePlan, PreparedPhase, iteration_times

_RELOCK_WITHIN_S = 10.0
"""A coherent receiver whose data path is up locks within a second (emulated: 0.6 s)."""
_Way = tuple[tuple[str, str], tuple[tuple[int, ...], ...]]
"""A circuit and the PUCs of its arms."""


@dataclass(frozen=True)
class MeasuredSwitch:
    """One change of configuration, as measured.

    Attributes:
        tag: What was switched to.
        began_s: When it was asked for, on the bench's clock.
        dark_s: How long each circuit that was set up was dark, by ``(transmitter, receiver)``: from the request until
            its light was seen where it belongs.
        light_s: How long it took until all light had been seen twice.
        locked_s: The same until the receiver had locked, of each circuit of two polarizations that was set up.
        proven_s: How long it took until all circuits were proven: their light, and these locks.
        heat_mw: Heat of all heaters in the new setting.
    """

    tag: str
    began_s: float
    dark_s: dict[tuple[str, str], float]
    light_s: float
    locked_s: dict[tuple[str, str], float]
    proven_s: float
    heat_mw: float

    @property
    def longest_dark_s(self) -> float:
        """Dark time of the last circuit; 0 if none changed."""
        return max(self.dark_s.values(), default=0.0)


@dataclass(frozen=True)
class MeasuredChange:
    """How long a change of configuration takes.

    Attributes:
        light_s: Until all light was seen twice where it belongs.
        receivers_s: Until no receiver of a new circuit reported loss of signal any more, and those of two polarizations
            had locked, asking them included.
    """

    light_s: float
    receivers_s: float


@dataclass(frozen=True)
class MeasuredPhase:
    """One phase as it went.

    Attributes:
        iteration: Which iteration, from 0.
        tag: The phase.
        wait_s: How long it waited for its circuits after the phase before had ended.
        start_s: When it started, on the bench's clock.
        end_s: When it ended.
        switched: The change before it; ``None`` if nothing had to change.
        heat_mw: Heat of all heaters meanwhile.
    """

    iteration: int
    tag: str
    wait_s: float
    start_s: float
    end_s: float
    switched: MeasuredSwitch | None
    heat_mw: float


class PhaseSwitch:
    """Switches a bench between prepared configurations.

    Args:
        setup: Path set-up of the bench.
        prepared: Configurations by tag.
    """

    def __init__(self, setup: PathSetup, prepared: Mapping[str, PreparedPhase]) -> None:
        self._setup = setup
        self._prepared = dict(prepared)
        self._launch_dbm: dict[str, float | None] = {}
        self._tag: str | None = None
        self._going: set[str] = set()

    def rehearse(self) -> dict[str, tuple[CircuitProof, ...]]:
        """Set every configuration up once, align polarizations, and prove every circuit by all there is.

        Transmitters stay on from then on: a change of configuration only has to move light.

        Raises:
            CircuitError: A circuit was not proven; the message says which.
            LumionError: A device failed.
        """
        proofs: dict[str, tuple[CircuitProof, ...]] = {}
        for tag, each in self._prepared.items():
            if each.circuits:
                proofs[tag] = self._setup.establish(each.plan)
                # With the arms of coherent circuits as the receivers have seen them level.
                self._prepared[tag] = replace(each, plan=self._setup.active or each.plan)
                self._tag = tag
        modules = self._setup.bench.transponders
        for name in sorted({a for each in self._prepared.values() for a in transmitters_of(each.plan.circuits)}):
            module = modules[name]
            module.enable()
            self._launch_dbm[name] = module.monitors().tx_power_dbm
        return proofs

    def switch(self, tag: str) -> MeasuredSwitch:
        """Switch to a configuration by its tag: one commit, proven by the mesh's photodiodes, or the one before again.

        Circuits of two polarizations count once their receivers have locked as well.

        Raises:
            UnknownNameError: No configuration has this tag.
            CircuitError: A phase that is not done uses a circuit that would be ended, or a circuit was not proven; what
                stood before stands again.
            LumionError: The controller failed.
        """
        to = self._of(tag)
        self._check_unused(tag)
        clock, bench = self._setup.bench.clock, self._setup.bench
        began_s = clock.now()
        dark_s: dict[tuple[str, str], float] = {}
        locked_s: dict[tuple[str, str], float] = {}
        light_s: list[float] = []

        def arrived(request: CircuitRequest) -> None:
            dark_s[request.source, request.target] = clock.now() - began_s

        def locked(request: CircuitRequest) -> None:
            locked_s[request.source, request.target] = clock.now() - began_s

        def confirm(new: Sequence[PlannedCircuit]) -> None:
            light_s.append(clock.now() - began_s)
            await_locks(bench, new, _RELOCK_WITHIN_S, locked)

        self._setup.switch(to.plan, self._launch_dbm, arrived=arrived, confirm=confirm)
        self._tag = tag
        return MeasuredSwitch(tag, began_s, dark_s, light_s[0], locked_s, clock.now() - began_s, to.plan.heat_mw)

    def begin_phase(self, tag: str) -> MeasuredSwitch | None:
        """Begin a phase now: switch to its configuration if anything has to change, and refuse what is dark.

        For jobs that say themselves when a phase begins and ends; :meth:`run` goes by how long phases take. Until
        :meth:`end_phase` none of its circuits is taken from it; others may be switched meanwhile, for the next phase.

        Returns:
            The change; ``None`` if nothing had to change.

        Raises:
            ConfigError: It has begun already, or no configuration has this tag.
            CircuitError: A phase that is not done uses a circuit that would be ended, or a circuit was not proven; what
                stood before stands.
            LumionError: The controller failed.
        """
        phase = self._of(tag).phase
        if tag in self._going:
            raise ConfigError(f"phase {tag} has begun already", hint="End it with end_phase() first.")
        switched = self.switch(tag) if self._changes(tag) else None
        self._check_up(tag, phase.circuits)
        self._going.add(tag)
        return switched

    def end_phase(self, tag: str) -> None:
        """End a phase: its circuits stay up until another phase needs their ports.

        Raises:
            ConfigError: It has not begun.
        """
        if tag not in self._going:
            going = ", ".join(sorted(self._going)) or "none"
            raise ConfigError(f"phase {tag} has not begun, or is done already", hint=f"Going on: {going}.")
        self._going.remove(tag)

    def measure(self) -> dict[str, MeasuredChange]:
        """Go through all configurations once and return how long each change takes, receivers included.

        That is what a plan should be judged by, not a data sheet.
        """
        tags, found = list(self._prepared), {}
        if self._tag != tags[-1]:
            self.switch(tags[-1])
        for tag in tags:
            if not self._changes(tag):
                found[tag] = MeasuredChange(0.0, 0.0)
                continue
            new = [CircuitRequest(*pair) for pair in self._new(tag)]
            switched = self.switch(tag)
            self._setup.await_los_clear(new)
            found[tag] = MeasuredChange(switched.light_s, self._setup.bench.clock.now() - switched.began_s)
        return found

    def run(
        self, plan: PhasePlan, *, iterations: int | None = None, watch: Callable[[MeasuredPhase], None] | None = None
    ) -> tuple[MeasuredPhase, ...]:
        """Go through the phases; each starts when its circuits are proven, and never before.

        A configuration is asked for as soon as the circuits that it ends, and the ports that it joins anew, have been
        used, while the phase before may still go on over others.

        Args:
            plan: The phases that were prepared.
            iterations: How often; as the plan says by default.
            watch: Told of each phase when it has ended.

        Raises:
            CircuitError: A circuit was not proven, or a phase found one of its circuits missing.
            LumionError: The controller failed.
        """
        clock, measured = self._setup.bench.clock, list[MeasuredPhase]()
        used_s: dict[str, float] = {}
        end_s, before = clock.now(), ""
        try:
            for turn in range((plan.iterations if iterations is None else iterations) * len(plan.phases)):
                iteration, number = divmod(turn, len(plan.phases))
                phase, switched = plan.phases[number], None
                if self._changes(phase.tag):
                    free_s = max(used_s.get(port, 0.0) for port in self._changing(phase.tag))
                    _sleep_till(clock.now, clock.sleep, free_s)
                    if free_s >= end_s:  # by its own time the phase before is done
                        self._going.discard(before)
                    switched = self.switch(phase.tag)
                _sleep_till(clock.now, clock.sleep, end_s)
                self._going.discard(before)
                self.begin_phase(phase.tag)
                start_s, before = clock.now(), phase.tag
                wait_s, end_s = start_s - end_s, start_s + phase.duration_s
                used_s |= dict.fromkeys(_ports(phase.circuits), end_s)
                heat_mw = 0.0 if self._setup.active is None else self._setup.active.heat_mw
                measured.append(MeasuredPhase(iteration, phase.tag, wait_s, start_s, end_s, switched, heat_mw))
                if watch is not None:
                    watch(measured[-1])
            _sleep_till(clock.now, clock.sleep, end_s)
        finally:
            self._going.discard(before)
        return tuple(measured)

    def _of(self, tag: str) -> PreparedPhase:
        if tag not in self._prepared:
            raise UnknownNameError(f"no phase is called {tag!r}", hint=f"There are {', '.join(self._prepared)}.")
        return self._prepared[tag]

    def _changing(self, tag: str) -> list[str]:
        """Return the ports that a change to a configuration ends or joins anew."""
        gone = [pair for pair, _ in self._standing() if pair not in self._prepared[tag].circuits]
        return _ports([*self._new(tag), *gone])

    def _check_unused(self, tag: str) -> None:
        """Refuse to take circuits from phases that are not done."""
        then = _ways(self._prepared[tag].plan.circuits)
        for way in sorted(self._standing() - then):
            users = [each for each in sorted(self._going) if way[0] in self._prepared[each].phase.circuits]
            if users:
                raise CircuitError(
                    f"phase {tag} would end {' to '.join(way[0])}, which phase {users[0]} uses",
                    hint=f"Call end_phase({users[0]!r}) first.",
                )

    def _standing(self) -> set[_Way]:
        """Return circuits that stand, with their PUCs."""
        active = self._setup.active
        return _ways(() if active is None else active.circuits)

    def _new(self, tag: str) -> list[tuple[str, str]]:
        """Return circuits of a configuration that do not stand as it has them."""
        return sorted(pair for pair, _ in _ways(self._prepared[tag].plan.circuits) - self._standing())

    def _changes(self, tag: str) -> bool:
        return bool(self._new(tag))

    def _check_up(self, tag: str, circuits: Sequence[tuple[str, str]]) -> None:
        """Refuse to start a phase over circuits that do not stand."""
        up = {pair for pair, _ in self._standing()}
        missing = [f"{a} to {b}" for a, b in circuits if (a, b) not in up]
        if missing:
            raise CircuitError(f"phase {tag}: {', '.join(missing)} is dark", hint="Switch to its configuration first.")


def _ways(circuits: Iterable[PlannedCircuit]) -> set[_Way]:
    return {((each.request.source, each.request.target), tuple(path.pucs for path in each.paths)) for each in circuits}


def _ports(circuits: Iterable[tuple[str, str]]) -> list[str]:
    return [port for a, b in circuits for port in (f"{a}>", f">{b}")]


def _sleep_till(now: Callable[[], float], sleep: Callable[[float], None], when_s: float) -> None:
    if (left_s := when_s - now()) > 0.0:
        sleep(left_s)


def measured_iteration(phases: Sequence[MeasuredPhase], iteration: int, plan: PhasePlan) -> IterationTimes:
    """Return one iteration as measured, in the form of the model, for a table or a picture.

    Args:
        phases: What :meth:`PhaseSwitch.run` returned.
        iteration: Which iteration, from 0.
        plan: The phases.
    """
    own = [each for each in phases if each.iteration == iteration]
    begin_s = own[0].start_s - own[0].wait_s
    spans = []
    for each in own:
        if each.switched is not None:
            asked_s = each.switched.began_s - begin_s
            spans += [
                DarkSpan(port, asked_s, asked_s + dark_s)
                for (a, b), dark_s in sorted(each.switched.dark_s.items())
                for port in (f"{a}>", f">{b}")
            ]
    return IterationTimes(
        tuple(each.start_s - begin_s for each in own),
        tuple(each.wait_s for each in own),
        tuple(None if each.switched is None else each.switched.began_s - begin_s for each in own),
        tuple(spans),
        own[-1].end_s - begin_s,
    )


@dataclass(frozen=True)
class PortDarkTimes:
    """How long one port was dark before one phase, over all iterations in which it changed its partner.

    Attributes:
        tag: The phase.
        port: ``name>`` of a transmitter, ``>name`` of a receiver.
        changes: How often.
        median_s: Dark time, the median.
        longest_s: The longest.
    """

    tag: str
    port: str
    changes: int
    median_s: float
    longest_s: float


def measured_dark_times(phases: Sequence[MeasuredPhase]) -> tuple[PortDarkTimes, ...]:
    """Return dark times as measured, port by port, in the order of the phases."""
    seen: dict[tuple[str, str], list[float]] = {}
    for each in phases:
        dark_s = {} if each.switched is None else each.switched.dark_s
        for (a, b), seconds in sorted(dark_s.items()):
            for port in (f"{a}>", f">{b}"):
                seen.setdefault((each.tag, port), []).append(seconds)
    return tuple(
        PortDarkTimes(tag, port, len(times), float(np.median(times)), max(times)) for (tag, port), times in seen.items()
    )


def model_with_measured_dark_times(
    phases: Sequence[MeasuredPhase], prepared: Mapping[str, PreparedPhase], plan: PhasePlan
) -> IterationTimes:
    """Return what the model says of an iteration with the dark times that were measured, the median of each phase."""
    by_tag: dict[str, list[float]] = {}
    for each in phases:
        if each.switched is not None:
            by_tag.setdefault(each.tag, []).append(each.switched.proven_s)
    deltas_s = [float(np.median(by_tag[phase.tag])) if phase.tag in by_tag else 0.0 for phase in plan.phases]
    return iteration_times(plan, deltas_s, [prepared[phase.tag].excludes_others for phase in plan.phases])
