"""Prepared circuit configurations on a bench: switched by name, checked by light, with measured dark times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lumion_hw.circuits import CircuitProof, CircuitRequest, PathSetup
from lumion_hw.circuits.coherent import await_locks, transmitters_of
from lumion_hw.circuits.plan.planned import PlannedCircuit
from lumion_hw.errors import CircuitError, ConfigError, UnknownNameError
from lumion_hw.schedules.phases import DarkSpan, IterationTimes, PhasePlan, PreparedPhase, iteration_times

_RELOCK_TIMEOUT_S = 10.0
"""Time limit for a coherent receiver to lock; it normally locks within 1 s (emulated: 0.6 s)."""
_CircuitPaths = tuple[tuple[str, str], tuple[tuple[int, ...], ...]]
"""A circuit, as a pair of modules, and the PUCs of each of its paths."""


@dataclass(frozen=True)
class MeasuredSwitch:
    """Measurement of one change of configuration. All times except ``requested_s`` are in seconds since the request.

    Attributes:
        tag: Name of the new configuration.
        requested_s: Time of the request on the bench's clock.
        dark_s: Time until the light of each new circuit has arrived, by ``(transmitter, receiver)``.
        light_s: Time until two readings have shown all light.
        locked_s: Time until the receiver has locked, for each new dual-polarization circuit.
        proven_s: Time until all light has arrived and all these receivers have locked.
        heat_mw: Heat of all heaters in the new setting.
    """

    tag: str
    requested_s: float
    dark_s: dict[tuple[str, str], float]
    light_s: float
    locked_s: dict[tuple[str, str], float]
    proven_s: float
    heat_mw: float

    @property
    def longest_dark_s(self) -> float:
        """Dark time of the circuit whose light arrived last; 0 if no circuit changed."""
        return max(self.dark_s.values(), default=0.0)


@dataclass(frozen=True)
class MeasuredChange:
    """Measured duration of a change of configuration.

    Attributes:
        light_s: Time until two readings have shown the light at every output, in seconds.
        receivers_s: Time until no receiver of a new circuit reports loss of signal and all coherent receivers have
            locked, in seconds.
    """

    light_s: float
    receivers_s: float


@dataclass(frozen=True)
class MeasuredPhase:
    """Measurement of one phase of a job.

    Attributes:
        iteration: Number of the iteration, from 0.
        wait_s: Time that the phase waited for its circuits after the end of the previous phase.
        start_s: Start on the bench's clock.
        end_s: End on the bench's clock.
        switched: The change of circuits before the phase; ``None`` if nothing had to change.
        heat_mw: Heat of all heaters during the phase.
    """

    iteration: int
    tag: str
    wait_s: float
    start_s: float
    end_s: float
    switched: MeasuredSwitch | None
    heat_mw: float


class PhaseSwitch:
    """Switches a bench between prepared configurations of circuits, given by name."""

    def __init__(self, setup: PathSetup, prepared: Mapping[str, PreparedPhase]) -> None:
        self._setup = setup
        self._prepared = dict(prepared)
        self._launch_dbm: dict[str, float | None] = {}
        self._tag: str | None = None
        self._running: set[str] = set()

    def rehearse(self) -> dict[str, tuple[CircuitProof, ...]]:
        """Set up every configuration once, align polarizations, and check every circuit with all devices.

        Transmitters stay on afterwards.

        Raises:
            CircuitError: A circuit could not be verified; the message names it.
            LumionError: A device failed.
        """
        proofs: dict[str, tuple[CircuitProof, ...]] = {}
        for tag, phase in self._prepared.items():
            if phase.circuits:
                proofs[tag] = self._setup.establish(phase.plan)
                # Keep the arms of coherent circuits as they were levelled.
                self._prepared[tag] = replace(phase, plan=self._setup.active or phase.plan)
                self._tag = tag
        modules = self._setup.bench.transponders
        for name in sorted(
            {a for configuration in self._prepared.values() for a in transmitters_of(configuration.plan.circuits)}
        ):
            module = modules[name]
            module.enable()
            self._launch_dbm[name] = module.monitors().tx_power_dbm
        return proofs

    def switch(self, tag: str) -> MeasuredSwitch:
        """Switch to a configuration, checked by photodiodes and receiver locks; restore the former circuits on failure.

        Raises:
            UnknownNameError: There is no configuration of this name.
            CircuitError: A running phase uses a circuit that would end, or a circuit could not be verified; the former
                circuits are active again.
            LumionError: The controller failed.
        """
        to = self._prepared_phase(tag)
        self._check_circuits_unused(tag)
        clock, bench = self._setup.bench.clock, self._setup.bench
        requested_s = clock.now()
        dark_s: dict[tuple[str, str], float] = {}
        locked_s: dict[tuple[str, str], float] = {}
        light_s: list[float] = []

        def arrived(request: CircuitRequest) -> None:
            dark_s[request.source, request.target] = clock.now() - requested_s

        def locked(request: CircuitRequest) -> None:
            locked_s[request.source, request.target] = clock.now() - requested_s

        def confirm(new: Sequence[PlannedCircuit]) -> None:
            light_s.append(clock.now() - requested_s)
            await_locks(bench, new, _RELOCK_TIMEOUT_S, locked)

        self._setup.switch(to.plan, self._launch_dbm, arrived=arrived, confirm=confirm)
        self._tag = tag
        return MeasuredSwitch(
            tag, requested_s, dark_s, light_s[0], locked_s, clock.now() - requested_s, to.plan.heat_mw
        )

    def begin_phase(self, tag: str) -> MeasuredSwitch | None:
        """Begin a phase now: switch to its configuration if needed, and check that its circuits are active.

        For jobs that report the start and end of their phases; :meth:`run` uses planned durations instead. The circuits
        stay until :meth:`end_phase`.

        Returns:
            The measured change of circuits; ``None`` if nothing had to change.

        Raises:
            ConfigError: The phase has begun already, or there is no configuration of this name.
            CircuitError: A running phase uses a circuit that would end, or a circuit could not be verified; the former
                circuits are active.
            LumionError: The controller failed.
        """
        phase = self._prepared_phase(tag).phase
        if tag in self._running:
            raise ConfigError(f"phase {tag} has begun already", hint="End it with end_phase() first.")
        switched = self.switch(tag) if self._needs_switch(tag) else None
        self._check_circuits_active(tag, phase.circuits)
        self._running.add(tag)
        return switched

    def end_phase(self, tag: str) -> None:
        """End a phase: its circuits stay up until another phase needs their ports.

        Raises:
            ConfigError: The phase has not begun.
        """
        if tag not in self._running:
            names = ", ".join(sorted(self._running)) or "none"
            raise ConfigError(f"phase {tag} is not running", hint=f"Running phases: {names}.")
        self._running.remove(tag)

    def measure(self) -> dict[str, MeasuredChange]:
        """Switch through all configurations once and return the duration of each change, receiver locks included."""
        tags, changes = list(self._prepared), {}
        if self._tag != tags[-1]:
            self.switch(tags[-1])
        for tag in tags:
            if not self._needs_switch(tag):
                changes[tag] = MeasuredChange(0.0, 0.0)
                continue
            new = [CircuitRequest(*pair) for pair in self._new_circuits(tag)]
            switched = self.switch(tag)
            self._setup.await_los_clear(new)
            changes[tag] = MeasuredChange(switched.light_s, self._setup.bench.clock.now() - switched.requested_s)
        return changes

    def run(
        self, plan: PhasePlan, *, iterations: int | None = None, watch: Callable[[MeasuredPhase], None] | None = None
    ) -> tuple[MeasuredPhase, ...]:
        """Run the phases of a job; each starts as soon as the light of its circuits is verified.

        Circuits change as soon as the running phase no longer needs them.

        Args:
            plan: The prepared phases.
            iterations: Number of iterations; that of the plan by default.
            watch: Called with each phase after its end.

        Raises:
            CircuitError: A circuit could not be verified, or a circuit of a phase was missing.
            LumionError: The controller failed.
        """
        clock, measured = self._setup.bench.clock, list[MeasuredPhase]()
        used_s: dict[str, float] = {}
        end_s, before = clock.now(), ""
        try:
            for turn in range((plan.iterations if iterations is None else iterations) * len(plan.phases)):
                iteration, number = divmod(turn, len(plan.phases))
                phase, switched = plan.phases[number], None
                if self._needs_switch(phase.tag):
                    free_s = max(used_s.get(port, 0.0) for port in self._changing_ports(phase.tag))
                    _sleep_until(clock.now, clock.sleep, free_s)
                    if free_s >= end_s:  # by its duration, the previous phase is over
                        self._running.discard(before)
                    switched = self.switch(phase.tag)
                _sleep_until(clock.now, clock.sleep, end_s)
                self._running.discard(before)
                self.begin_phase(phase.tag)
                start_s, before = clock.now(), phase.tag
                wait_s, end_s = start_s - end_s, start_s + phase.duration_s
                used_s |= dict.fromkeys(_ports_of(phase.circuits), end_s)
                heat_mw = 0.0 if self._setup.active is None else self._setup.active.heat_mw
                measured.append(MeasuredPhase(iteration, phase.tag, wait_s, start_s, end_s, switched, heat_mw))
                if watch is not None:
                    watch(measured[-1])
            _sleep_until(clock.now, clock.sleep, end_s)
        finally:
            self._running.discard(before)
        return tuple(measured)

    def _prepared_phase(self, tag: str) -> PreparedPhase:
        if tag not in self._prepared:
            raise UnknownNameError(f"no phase is called {tag!r}", hint=f"Phases: {', '.join(self._prepared)}.")
        return self._prepared[tag]

    def _changing_ports(self, tag: str) -> list[str]:
        ended_pairs = [pair for pair, _ in self._active_circuits() if pair not in self._prepared[tag].circuits]
        return _ports_of([*self._new_circuits(tag), *ended_pairs])

    def _check_circuits_unused(self, tag: str) -> None:
        then = _paths_of(self._prepared[tag].plan.circuits)
        for circuit in sorted(self._active_circuits() - then):
            users = [tag for tag in sorted(self._running) if circuit[0] in self._prepared[tag].phase.circuits]
            if users:
                raise CircuitError(
                    f"phase {tag} would end circuit {' to '.join(circuit[0])}, which phase {users[0]} uses",
                    hint=f"Call end_phase({users[0]!r}) first.",
                )

    def _active_circuits(self) -> set[_CircuitPaths]:
        active = self._setup.active
        return _paths_of(() if active is None else active.circuits)

    def _new_circuits(self, tag: str) -> list[tuple[str, str]]:
        return sorted(pair for pair, _ in _paths_of(self._prepared[tag].plan.circuits) - self._active_circuits())

    def _needs_switch(self, tag: str) -> bool:
        return bool(self._new_circuits(tag))

    def _check_circuits_active(self, tag: str, circuits: Sequence[tuple[str, str]]) -> None:
        up = {pair for pair, _ in self._active_circuits()}
        missing = [f"{a} to {b}" for a, b in circuits if (a, b) not in up]
        if missing:
            raise CircuitError(
                f"phase {tag}: {', '.join(missing)} not active", hint="Switch to its configuration first."
            )


def _paths_of(circuits: Iterable[PlannedCircuit]) -> set[_CircuitPaths]:
    return {
        ((circuit.request.source, circuit.request.target), tuple(path.pucs for path in circuit.paths))
        for circuit in circuits
    }


def _ports_of(circuits: Iterable[tuple[str, str]]) -> list[str]:
    return [port for a, b in circuits for port in (f"{a}>", f">{b}")]


def _sleep_until(now: Callable[[], float], sleep: Callable[[float], None], when_s: float) -> None:
    if (left_s := when_s - now()) > 0.0:
        sleep(left_s)


def measured_iteration(phases: Sequence[MeasuredPhase], iteration: int, plan: PhasePlan) -> IterationTimes:
    """Return the measured times of one iteration.

    Args:
        phases: Result of :meth:`PhaseSwitch.run`.
        iteration: Number of the iteration, from 0.
        plan: The phases.
    """
    own = [phase for phase in phases if phase.iteration == iteration]
    begin_s = own[0].start_s - own[0].wait_s
    spans = []
    for phase in own:
        if phase.switched is not None:
            relative_s = phase.switched.requested_s - begin_s
            spans += [
                DarkSpan(port, relative_s, relative_s + dark_s)
                for (a, b), dark_s in sorted(phase.switched.dark_s.items())
                for port in (f"{a}>", f">{b}")
            ]
    return IterationTimes(
        tuple(phase.start_s - begin_s for phase in own),
        tuple(phase.wait_s for phase in own),
        tuple(None if phase.switched is None else phase.switched.requested_s - begin_s for phase in own),
        tuple(spans),
        own[-1].end_s - begin_s,
    )


@dataclass(frozen=True)
class PortDarkTimes:
    """Dark times of one port before one phase, over all iterations.

    Attributes:
        port: Name of the port: ``name>`` for a transmitter, ``>name`` for a receiver.
        changes: Number of changes of the port's circuit.
    """

    tag: str
    port: str
    changes: int
    median_s: float
    longest_s: float


def measured_dark_times(phases: Sequence[MeasuredPhase]) -> tuple[PortDarkTimes, ...]:
    """Return the measured dark times of all ports, in the order of the phases."""
    times_s: dict[tuple[str, str], list[float]] = {}
    for phase in phases:
        dark_s = {} if phase.switched is None else phase.switched.dark_s
        for (a, b), seconds in sorted(dark_s.items()):
            for port in (f"{a}>", f">{b}"):
                times_s.setdefault((phase.tag, port), []).append(seconds)
    return tuple(
        PortDarkTimes(tag, port, len(times), float(np.median(times)), max(times))
        for (tag, port), times in times_s.items()
    )


def model_with_measured_dark_times(
    phases: Sequence[MeasuredPhase], prepared: Mapping[str, PreparedPhase], plan: PhasePlan
) -> IterationTimes:
    """Return the iteration times predicted from the measured dark times (the median of each phase)."""
    by_tag: dict[str, list[float]] = {}
    for phase in phases:
        if phase.switched is not None:
            by_tag.setdefault(phase.tag, []).append(phase.switched.proven_s)
    deltas_s = [float(np.median(by_tag[phase.tag])) if phase.tag in by_tag else 0.0 for phase in plan.phases]
    return iteration_times(plan, deltas_s, [prepared[phase.tag].excludes_others for phase in plan.phases])
