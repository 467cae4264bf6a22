"""The manager of a fabric: keeps jobs connected, notices failures, and replaces failed servers by spares.

Every decision is recorded before it is carried out. If a manager is killed, the next one continues.
"""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NoReturn, Self

from lumion_hw.bench.controller_faults import HOST_SILENCE, check_faults, latched_faults
from lumion_hw.circuits import CircuitMaintenance, CircuitProof, CircuitService
from lumion_hw.clock import deadline_after
from lumion_hw.errors import CircuitError, ConfigError, LumionError, SafetyError
from lumion_hw.fabric.decisions import (
    Diagnose,
    DropSpare,
    FabricView,
    KeepInService,
    NoAction,
    Refuse,
    RemoveLoop,
    Reroute,
    Swap,
    after_diagnosis,
    after_refusal,
    after_reroute,
    after_swap,
    decide,
    ends_to_replace,
    in_service,
    with_failed,
    with_hooks_ended,
    with_hooks_pending,
)
from lumion_hw.fabric.detectors import Detector, WatchTargets, create_detectors
from lumion_hw.fabric.detectors.light import Modules
from lumion_hw.fabric.evidence import FadeCounts, FailureJudge, FailureVerdict
from lumion_hw.fabric.hooks import HookCalls, JobHooks
from lumion_hw.fabric.jobs import JobCircuits
from lumion_hw.fabric.journal import FabricJournal, FabricState
from lumion_hw.fabric.polarization_keeper import PolarizationKeeper
from lumion_hw.fabric.recovery import Recovery
from lumion_hw.fabric.servers import find_unit, job_requests
from lumion_hw.fabric.spans import EventCallback, ReportingTimer, SpanTimer, span_documents
from lumion_hw.fabric.standby import Standby
from lumion_hw.fabric.status import FabricStatus, FabricStatusMemo, repaired_text
from lumion_hw.fabric.watching import leaves_the_mesh, receiver_state, transmitter_state, watch_targets

FIRST_RETRY_S, LONGEST_RETRY_S = 30.0, 600.0
"""First and longest time until a refused job is tried again; the time doubles with every attempt."""
_SLICE_S = 0.05
"""Longest wait of one detector, in s, before another detector is polled."""
_STEP_S = 0.5


class FabricManager(JobCircuits):
    """Keeps the jobs of a bench file connected.

    Args:
        service: The restored circuits.
        hooks: Actions of the jobs when their circuits or servers change.
        detectors: Failure detectors; those of the bench file if omitted.
        on_event: Called with each event and its details.

    Attributes:
        standby: Recovery plans for the failure of any single server or accelerator.
        judge: Decides from observations what has failed.
        fault_s: Time of the next fault on the bench's clock if known, as in a recovery drill.
        fault_cpu_s: CPU time of this process at that fault.
    """

    def __init__(
        self,
        service: CircuitService,
        journal: FabricJournal,
        *,
        hooks: JobHooks | None = None,
        detectors: Sequence[Detector] | None = None,
        on_event: EventCallback = lambda event, details: None,
    ) -> None:
        super().__init__(service, journal, on_event)
        # With a simulated clock the hooks are called in line, so that every run is the same.
        self._hooks = None if hooks is None else HookCalls(hooks, in_background=not self.bench.clock.is_virtual)
        model = self.bench.model
        self._detectors = list(create_detectors(model.fabric) if detectors is None else detectors)
        self._watching = self._detectors
        self.standby = Standby(service)
        self._status = FabricStatusMemo(model)
        self.judge = FailureJudge(
            {}, model.fabric.fade_s, FadeCounts(journal.state.fades, 0, journal.state.false_alarms)
        )
        self.fault_s: float | None = None
        self.fault_cpu_s: float | None = None
        self._guard = threading.Lock()
        self._planner: threading.Thread | None = None
        self._keeper = PolarizationKeeper(service)
        self._searched: set[str] = set()
        self._retry_s, self._retry_after_s = math.inf, FIRST_RETRY_S

    @property
    def status(self) -> FabricStatus | None:
        """Status of the fabric; ``None`` if the bench file has no servers. Another thread may read it at any time."""
        standby, owner = self.standby, self.service.lock.owner
        return self._status.status(
            dataclasses.replace(self.state, cold=dict(standby.cold)),
            tuple(circuit.name for circuit in self.service.state.circuits),
            f"{owner.program} of {owner.name}",
            standby.status,
            self.journal.recovery,
        )

    @property
    def maintenance(self) -> CircuitMaintenance:
        """Maintenance of the circuits: polarization tracking and health."""
        return self._keeper.maintenance

    # -- begin and end ------------------------------------------------------------------------------------------------

    def begin(self) -> Recovery | None:
        """Restore circuits after a shutdown, finish an interrupted recovery, connect the jobs, and start watching.

        Returns:
            The interrupted recovery of an earlier manager, if it is now finished; otherwise ``None``.

        Raises:
            SafetyError: A latched fault keeps the heaters off until the user clears it.
            LumionError: A device failed, or a journal cannot be written.
        """
        finished = None
        with self._keeper.exclusive():
            # First the light: without it, every later step would find circuits dark that are healthy.
            was_off = self.service.restore_after_shutdown() is not None
            if was_off:
                self.judge.forget_light()
            if self.state.open is not None:
                finished = self._finish_interrupted(FailureVerdict.from_document(self.state.open), was_off)
        self._connect_and_resume()
        return finished

    def _connect_and_resume(self) -> None:
        """Connect the jobs and prepare the spares; resume the jobs that an earlier call of hooks left unfinished."""
        before = {job.name: self.members(job) for job in self.jobs}
        with self._keeper.exclusive():
            self._retry_refused()
            self.connect()
            self.refresh()
        replaced = [job.name for job in self.jobs if self.members(job) != before[job.name]]
        if replaced and self._hooks is not None:
            self.journal.record("members replaced", self._awaiting_hooks(self.state, replaced))
        self._resume_jobs(self.state.not_resumed)

    def _finish_interrupted(self, verdict: FailureVerdict, was_off: bool) -> Recovery | None:
        if was_off and verdict.cause == "light":
            reason = f"{verdict.reason}: withdrawn, because the mesh controller had switched off"
            self._withdraw(verdict, reason)
            return None
        self._emit("resumed", {"verdict": verdict.reason})
        active, view = self._active_requests(), FabricView(self.bench.model, self.state, {})
        for job in self.jobs:
            for member in job.members:
                failed = self.state.unit_at(member)
                if verdict.name != failed and verdict.suspect != "end":
                    continue
                for spare in self.spares:
                    places = {**self.state.places, member: spare}
                    if all(request in active for request in job_requests(self.bench.model, job, places)):
                        # The circuits were switched and recorded; the manager died before it recorded the end.
                        state = self._awaiting_hooks(after_swap(view, verdict, failed, spare), [job.name])
                        self.journal.end("done", state, failed=failed, spare=spare, words="found done", spans=[])
                        return None
        if verdict.cause == "drain":
            # The unit is healthy and its circuits are still there, or are connected next.
            self._withdraw(verdict, f"{verdict.name} was not drained, because the manager ended")
            return None
        return self.recover(verdict)

    def _withdraw(self, verdict: FailureVerdict, reason: str) -> None:
        state = self._awaiting_hooks(self.state, self._jobs_of(verdict.name))  # they may have been stopped
        self.journal.end("withdrawn", state, words=reason)
        self.judge.forget(verdict.name)
        self._emit("withdrawn", {"words": reason})

    def refresh(self) -> None:
        """Switch on and align spares, make new recovery plans, and watch the circuits that are active now."""
        with self._keeper.exclusive():
            # PUCs on a path that has failed stay suspected, so spares and plans avoid them too.
            self.standby.avoided = self.state.avoided
            self.standby.warm_up(self.spares)
            self._record_cold_spares()
            self._restart_detectors()
            self.plan()

    def _record_cold_spares(self) -> None:
        cold = self.standby.cold
        if cold != self.state.cold:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in cold.items())
            self.journal.record("cold spares", dataclasses.replace(self.state, cold=cold), words=reasons or "none")

    def plan(self) -> None:
        """Make recovery plans for every single failure (in the background, unless the clock is simulated)."""
        self._stop_planning()
        arguments = (self._in_service(), self.spares, self.state.broken)
        if self.bench.clock.is_virtual:  # a virtual clock: planning takes none of its time
            self.standby.prepare(*arguments)
        else:
            self._planner = threading.Thread(
                target=self.standby.prepare, args=arguments, name="lumion-plans", daemon=True
            )
            self._planner.start()

    def _stop_planning(self) -> None:
        self.standby.stop()
        if self._planner is not None:
            self._planner.join()
            self._planner = None

    def _in_service(self) -> tuple[str, ...]:
        return in_service(self.bench.model, self.state)

    def _restart_detectors(self) -> None:
        watched, senders = watch_targets(self.service, (*self._in_service(), *self.spares))
        self.judge.watch(senders)
        for detector in self._detectors:
            detector.start(watched)
        self._watching = [*self._detectors, *self._fallback_detector(watched)]

    def _fallback_detector(self, watched: WatchTargets) -> list[Detector]:
        unwatched = {name for detector in self._detectors for name in getattr(detector, "unwatched", ())}
        # The receivers are watched already, so no further detector is needed.
        if not unwatched or any(isinstance(detector, Modules) for detector in self._detectors):
            return []
        receivers = Modules()
        circuits = tuple(circuit for circuit in watched.circuits if circuit.request.name in unwatched)
        receivers.start(dataclasses.replace(watched, circuits=circuits))
        return [receivers]

    def close(self) -> None:
        """Stop watching the fabric; circuits stay connected. Idempotent."""
        self._stop_planning()
        for detector in self._detectors:
            detector.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- watch --------------------------------------------------------------------------------------------------------

    def run(
        self,
        for_s: float | None = None,
        *,
        is_over: Callable[[], bool] = lambda: False,
        between_steps: Callable[[], None] = lambda: None,
        max_step_s: float = _STEP_S,
    ) -> list[Recovery]:
        """Watch the circuits, recover from failures, and track polarizations.

        Args:
            for_s: Duration in seconds; ``None`` without an end.
            is_over: Called between two steps; returning true ends the run.
            between_steps: Called between two steps, to serve requests to this manager.
            max_step_s: Longest step, in seconds.

        Returns:
            The recoveries.

        Raises:
            SafetyError: A fault other than a watchdog fault keeps the heaters off; clear it, then call :meth:`begin`.
            LumionError: The mesh controller failed, or a journal cannot be written. The next manager finishes a
                recovery in progress.
        """
        deadline = deadline_after(self.bench.clock, math.inf if for_s is None else for_s)
        recoveries: list[Recovery] = []
        has_ended = threading.Event()

        def step_or_begin(is_off: bool) -> bool:
            """Run one step, or set up the circuits again if the controller is off; return whether it is off now."""
            try:
                recovery = self.begin() if is_off else self.step(min(deadline - self.bench.clock.now(), max_step_s))
            except SafetyError as error:
                # Only the silence of this host is cleared without the operator (docs/decisions/0026).
                if not all(fault.source in HOST_SILENCE for fault in latched_faults(self.bench)):
                    raise
                self._emit("controller off", {"words": str(error)})
                return True
            if recovery is not None:
                recoveries.append(recovery)
            between_steps()
            return False

        def watch() -> None:
            is_off = False
            try:
                while self.bench.clock.now() < deadline and not is_over():
                    is_off = step_or_begin(is_off)
            finally:
                has_ended.set()

        # Before both jobs start, so that the first change of circuits already waits until tracking pauses.
        self._keeper.prepare()
        # The same set object: the judge sees at once which circuits are being searched.
        self.judge.searched = self.maintenance.searching
        keep: Callable[[], None] = partial(self._keeper.run, has_ended.is_set)
        self.bench.clock.run_parallel([watch, keep])
        return recoveries

    def measure(self) -> None:
        """Measure the margins of all circuits for a display. Another thread may call this during :meth:`run`."""
        self._keeper.measure()

    def step(self, timeout_s: float) -> Recovery | None:
        """Watch the fabric for a given time, or until one recovery from a failure is done.

        Raises:
            SafetyError: The mesh controller has switched its heaters off; :meth:`begin` restores the circuits.
            LumionError: As :meth:`run`.
        """
        before = dataclasses.replace(self.judge.counters)
        try:
            check_faults(self.bench)
            self._record_hooks()
            self._retry_when_due()
            recovery = self._watch(timeout_s)
            if recovery is None:
                recovery = self._diagnose_dark_circuits()
            self._note_counters(before)
            return None if recovery is None else self._follow_up(recovery)
        finally:
            self._keeper.resume()

    def _watch(self, timeout_s: float) -> Recovery | None:
        deadline = self.bench.clock.now() + timeout_s
        stop, recoveries = threading.Event(), list[Recovery | None]()
        slow_verdicts = list[FailureVerdict]()

        def poll(detector: Detector) -> None:
            """Poll one detector until the deadline, or until the evidence of any detector gives a verdict."""
            clock = self.bench.clock
            while not stop.is_set():
                began_s = clock.now()
                end_s = min(deadline, self.judge.next_due_s())
                if began_s >= end_s and detector.is_blocking:
                    stop.set()
                    return
                # A detector that blocks alone may wait to the end. With others it wakes up regularly, to see whether
                # they have found something.
                max_wait_s = end_s - began_s if len(self._watching) == 1 else min(end_s - began_s, _SLICE_S)
                news = detector.poll(max(max_wait_s, 0.0))
                with self._guard:
                    for report in news:
                        self.judge.add(report)
                    verdict = None if stop.is_set() else self.judge.next_verdict(clock.now())
                    if verdict is not None:
                        stop.set()
                if verdict is not None and detector.is_blocking:
                    recoveries.append(self._act_on(verdict))  # at once: other detectors may be in a slow read
                elif verdict is not None:
                    slow_verdicts.append(verdict)
                if not detector.is_blocking and not stop.is_set():
                    # Sleep no longer than until the next decision is due, or a dark circuit would wait for a slow
                    # detector.
                    wait_s = min(began_s + detector.period_s, deadline, self.judge.next_due_s()) - clock.now()
                    if wait_s <= 0.0 and clock.now() >= min(deadline, self.judge.next_due_s()):
                        return
                    clock.sleep(max(wait_s, 0.0))

        self.bench.clock.run_parallel([partial(poll, detector) for detector in self._watching])
        if not self._watching:
            self.bench.clock.sleep(timeout_s)
        return recoveries[0] if recoveries else self._act_on(slow_verdicts[0]) if slow_verdicts else None

    def _diagnose_dark_circuits(self) -> Recovery | None:
        for circuit in self.judge.unexplained_circuits(self.bench.clock.now()):
            module = self.judge.senders[circuit].module
            sends, reason = transmitter_state(self.bench, module)
            if sends:
                arrives, arrival = receiver_state(self.service, circuit)
                if arrives:
                    self.judge.trust_receiver(circuit)
                    self._emit("photodiode dark", {"circuit": circuit, "words": f"{circuit} is well: {arrival}"})
                    continue
                unit = self._receiving_unit(circuit)
                if arrives is False and unit is not None and leaves_the_mesh(self.service, circuit):
                    now_s = self.bench.clock.now()
                    return self._act_on(self.judge.explain_receiver(circuit, unit, arrival, now_s))
            # Before the path is blamed, one search finds out whether the fibre has only moved.
            if sends and self._may_be_polarization(circuit):
                continue
            return self._act_on(self.judge.explain(circuit, sends, reason, self.bench.clock.now()))
        return None

    def _receiving_unit(self, circuit: str) -> str | None:
        target = self.service.state.circuit(circuit).request.target
        names = (*self._in_service(), *self.spares)
        return next((name for name in names if target in find_unit(self.bench.model, name).nics), None)

    def _may_be_polarization(self, circuit: str) -> bool:
        # A circuit that has recovered may be searched again the next time.
        self._searched &= set(self.judge.dark)
        if not self._keeper.is_tracking or circuit in self._searched:
            return False
        fault = self.maintenance.find_fault(circuit)
        if fault is None or fault.place != "fibre before the mesh" or not self.maintenance.request_search(circuit):
            return False
        self._searched.add(circuit)
        self._emit("searching", {"circuit": circuit, "words": f"{circuit}: {fault}; searching its polarization"})
        return True

    def _note_counters(self, before: FadeCounts) -> None:
        after = self.judge.counters
        if (after.fades, after.false_alarms) != (before.fades, before.false_alarms):
            state = dataclasses.replace(self.state, fades=after.fades, false_alarms=after.false_alarms)
            event = "false alarm" if after.false_alarms > before.false_alarms else "fade"
            self.journal.record(event, state)
            self._emit(event, {"fades": after.fades, "false_alarms": after.false_alarms})

    # -- recover ------------------------------------------------------------------------------------------------------

    def mark_failed(self, name: str, reason: str = "declared by hand") -> Recovery | None:
        """Take a server or accelerator out of service as if it had failed.

        Raises:
            ConfigError: The unit does not exist or has failed already.
        """
        find_unit(self.bench.model, name)
        if name in self.state.failed:
            raise ConfigError(f"{name} has failed already: {self.state.failed[name]}")
        now_s = self.bench.clock.now()
        recovery = self._act_on(FailureVerdict("unit", name, "process", reason, now_s, now_s, ("operator",)))
        return None if recovery is None else self._follow_up(recovery)

    def drain(self, name: str, reason: str = "drained by hand") -> Recovery | None:
        """Take a healthy server or accelerator out of service; if a job uses it, a spare takes its place first.

        Returns:
            The replacement; ``None`` if no job uses the unit.

        Raises:
            ConfigError: The unit does not exist, is out of service already, or shares modules with a unit in service.
            CircuitError: No spare can take its place. The unit stays in service.
            LumionError: As :meth:`recover`.
        """
        modules = set(find_unit(self.bench.model, name).nics)
        if name in self.state.failed:
            raise ConfigError(f"{name} is out of service already: {self.state.failed[name]}")
        for other in self._in_service():
            if other != name and modules & set(find_unit(self.bench.model, other).nics):
                raise ConfigError(
                    f"{name} shares modules with {other}, which serves a job", hint=f"Drain {other} instead."
                )
        now_s = self.bench.clock.now()
        recovery = self._act_on(FailureVerdict("unit", name, "drain", reason, now_s, now_s, ("operator",)))
        return None if recovery is None else self._follow_up(recovery)

    def mark_repaired(self, name: str) -> None:
        """Return a repaired server or accelerator to service, as a spare or for a refused job.

        Raises:
            ConfigError: The unit has not failed.
            LinkError: A module of the unit does not answer; the unit stays out of service.
            LumionError: A device failed, or a job that is connected again could not be verified by its light.
        """
        if name not in self.state.failed:
            raise ConfigError(f"{name} has not failed", hint=f"Failed: {', '.join(self.state.failed) or 'nothing'}.")
        self._check_responding(name)
        failed = {unit: reason for unit, reason in self.state.failed.items() if unit != name}
        self.journal.record("repaired", dataclasses.replace(self.state, failed=failed), unit=name)
        self.judge.forget(name)
        try:
            self._connect_and_resume()
        finally:
            document = {} if self.status is None else self.status.document()
            self._emit("repaired", {"unit": name, "words": repaired_text(document, name)})

    def restore_bench_file_places(self) -> None:
        """Give all jobs the members of the bench file again and count everything as repaired, after a recovery drill.

        Raises:
            LumionError: A device failed, or a circuit could not be verified by its light.
        """
        state = FabricState(fades=self.state.fades, false_alarms=self.state.false_alarms)
        for name in (*self.state.failed, *self.judge.dark):
            self.judge.forget(name)
        self.journal.record("put back", state)
        with self._keeper.exclusive():
            self.connect()
            self.refresh()

    def _retry_when_due(self) -> None:
        if not self.state.refused:
            self._retry_after_s, self._retry_s = FIRST_RETRY_S, math.inf
            return
        now_s = self.bench.clock.now()
        if math.isinf(self._retry_s):
            self._retry_s = now_s + self._retry_after_s
        if now_s < self._retry_s:
            return
        # Doubled each time, because every attempt disturbs the mesh and its cause may last.
        self._retry_after_s, self._retry_s = min(2.0 * self._retry_after_s, LONGEST_RETRY_S), math.inf
        self._connect_and_resume()

    def _act_on(self, verdict: FailureVerdict) -> Recovery | None:
        if verdict.cause == "light":
            # If the controller has tripped, every circuit is dark and no server has failed (docs/decisions/0026).
            self.service.check_driven()
        self._keeper.pause()
        event = "draining" if verdict.cause == "drain" else "verdict"
        self.bench.events.add(event, **verdict.document())
        self._emit(event, verdict.document())
        return self.recover(verdict)

    def recover(self, verdict: FailureVerdict) -> Recovery | None:
        """Replace a failed server by a spare, or route a circuit around broken PUCs; may be repeated.

        Returns:
            The recovery; ``None`` if nothing had to be done, or if no spare could be used and jobs lost their circuits.

        Raises:
            CircuitError: A healthy unit was to be drained, but no spare can take its place; it stays in service.
            LumionError: The mesh controller failed, or a journal cannot be written; the journal keeps the recovery as
                unfinished.
        """
        fault_s = verdict.since_s if self.fault_s is None else self.fault_s
        timer = ReportingTimer(self.bench, fault_s, self.fault_cpu_s, self._emit)
        self.fault_s = self.fault_cpu_s = None
        timer.mark("detected")
        self.journal.begin(verdict)
        view, failures = self._fabric_view(verdict), list[str]()
        while isinstance(decision := decide(view, verdict, failures), Swap | Reroute):
            if len(timer.spans) > 1:
                # The time of the failed attempt counts for the next one, so that all phases add up to the time since
                # the fault.
                timer.rewind("detected")
            try:
                proofs = self._perform_decision(decision, timer)
            except Exception as error:  # noqa: BLE001 - after any error the next attempt is made
                self._raise_if_controller(error)
                check_faults(self.bench)
                failures.append(str(error))
                self.bench.events.add("attempt failed", of=type(decision).__name__, reason=str(error))
            else:
                return self._record_recovery(view, verdict, decision, proofs, timer)
        if isinstance(decision, KeepInService):
            self._keep_in_service(verdict, decision, was_stopped=bool(failures))
        if isinstance(decision, Diagnose):
            following = after_diagnosis(view, verdict, self._find_fault(verdict.name))
            self.journal.end("no other path", self.state, circuit=verdict.name, words=decision.reason)
            return self.recover(following)
        self._without_recovery(verdict, decision)
        return None

    def _fabric_view(self, verdict: FailureVerdict) -> FabricView:
        active, standby = self.service.setup.active, self.standby
        connected = {} if active is None else {circuit.request: circuit.paths for circuit in active.circuits}
        view = FabricView(self.bench.model, self.state, connected)
        failing = ends_to_replace(view, verdict) if verdict.suspect == "end" else (verdict.name,)
        if not set(failing) <= set(view.in_service):
            return view
        if verdict.suspect == "end":
            standby.avoided = (*self.state.avoided, *verdict.pucs)
            ready = (plan for name in failing for plan in standby.plans_for(name, self.spares, self.state.broken))
            # An attempt with a warm spare leaves the circuits as they were if it fails.
            plans = tuple(sorted(ready, key=lambda plan: not plan.is_warm))
        # Plans for other circuits would not fit the mesh as it is driven now.
        elif standby.is_fresh and verdict.name in standby.plans:
            plans = standby.plans[verdict.name]
        else:
            plans = standby.plans_for(verdict.name, self.spares, self.state.broken)
        refused = standby.refused.items()
        unusable = tuple(f"{spare}: {reason}" for (unit, spare), reason in refused if unit in failing)
        return dataclasses.replace(view, plans=plans, unusable=unusable)

    def _perform_decision(self, decision: Swap | Reroute, timer: SpanTimer) -> tuple[CircuitProof, ...]:
        if isinstance(decision, Reroute):
            plan = self._reroute_plan(decision)
            timer.mark("route_found")
            return self.service.switch(plan, milestone=timer.mark)
        failed, spare = decision.plan.failed, decision.plan.spare
        for job in self.jobs:
            if self._hooks is not None and failed in self.members(job):
                # At once, so that the members leave their group while the circuits are switched.
                self._hooks.stop(job.name, self.members(job), failed)
        self._emit("spare", {"failed": failed, "spare": spare, "is_warm": decision.plan.is_warm})
        timer.mark("spare_chosen")
        return self._switch_to_spare(decision.plan, timer)

    def _record_recovery(
        self,
        view: FabricView,
        verdict: FailureVerdict,
        decision: Swap | Reroute,
        proofs: tuple[CircuitProof, ...],
        timer: SpanTimer,
    ) -> Recovery:
        new = {proof.circuit.request for proof in proofs}
        remaining = tuple(request for request in self._active_requests() if request not in new)
        failed, spare, details = "", "", dict[str, Any]()
        if isinstance(decision, Swap):
            failed, spare = decision.plan.failed, decision.plan.spare
            # PUCs that have carried verified light are no longer suspected.
            proven_pucs = {puc for proof in proofs for path in proof.circuit.paths for puc in path.pucs}
            jobs = self._jobs_of(failed)
            state = self._awaiting_hooks(after_swap(view, verdict, failed, spare, proven_pucs), jobs)
            details = {"failed": failed, "spare": spare}
        else:
            state, details = after_reroute(self.state, decision.avoid), {"circuit": verdict.name}
            self.judge.forget(verdict.name)
        self.journal.end("done", state, **details, words=verdict.reason, spans=span_documents(timer.spans))
        if spare:
            self.bench.events.add("replaced", failed=failed, spare=spare)
        return Recovery(verdict, failed, spare, tuple(timer.spans), proofs, remaining)

    def _without_recovery(self, verdict: FailureVerdict, decision: RemoveLoop | DropSpare | Refuse | NoAction) -> None:
        if isinstance(decision, NoAction):
            self.journal.end("nothing to do", self.state, words=verdict.reason)
            return
        if isinstance(decision, RemoveLoop):
            self._remove_circuits([decision.request])
            self.journal.end("spare dark", self.state, circuit=verdict.name, words=verdict.reason)
            self.refresh()
            return
        if verdict.suspect == "unit":
            self._block_failed_unit(verdict.name)
        self._remove_circuits(decision.circuits, decision.dead_modules)
        if isinstance(decision, DropSpare):
            outcome = "drained" if verdict.cause == "drain" else "spare lost"
            self.journal.end(
                outcome, with_failed(self.state, verdict, verdict.name), unit=verdict.name, words=verdict.reason
            )
            self._emit(outcome, {"unit": verdict.name, "words": verdict.reason})
        else:
            state = self._awaiting_hooks(after_refusal(self.state, verdict, decision), decision.jobs)
            self.journal.end("refused", state, words=decision.reason)
            self._emit("refused", {"jobs": list(decision.jobs), "words": decision.reason})
        self.refresh()

    def _keep_in_service(self, verdict: FailureVerdict, decision: KeepInService, was_stopped: bool) -> NoReturn:
        """End an attempt to drain a unit that serves a job, and raise an error with the reason."""
        name, reason = verdict.name, decision.reason
        jobs = self._jobs_of(name) if was_stopped else []
        self.journal.end("not drained", self._awaiting_hooks(self.state, jobs), unit=name, words=reason)
        self._emit("not drained", {"unit": name, "words": reason})
        if was_stopped:
            with self._keeper.exclusive():
                self.connect()  # an attempt with a cold spare removes circuits first
                self.refresh()
            self._resume_jobs(jobs)
        raise CircuitError(
            f"{name} stays in service, because no spare can take its place: {reason}",
            hint="`lumion fabric status BENCH` shows the spares.",
        )

    def _follow_up(self, recovery: Recovery) -> Recovery:
        recovery = self._confirm_links(recovery)
        details = {"failed": recovery.failed, "spare": recovery.spare, "spans": span_documents(recovery.spans)}
        self._emit("recovered", details)
        self._resume_jobs(self._jobs_of(recovery.spare))
        self._block_failed_unit(recovery.failed)
        self.refresh()
        return recovery

    # -- hooks of the jobs --------------------------------------------------------------------------------------------

    def _jobs_of(self, unit: str) -> list[str]:
        return [job.name for job in self.jobs if unit in self.members(job)]

    def _awaiting_hooks(self, state: FabricState, jobs: Iterable[str]) -> FabricState:
        """Return the state with jobs marked as not resumed until their hooks have ended without an error."""
        # In the journal: after a kill of this manager, the next one calls the hooks.
        return state if self._hooks is None else with_hooks_pending(state, jobs)

    def _resume_jobs(self, jobs: Iterable[str]) -> None:
        if self._hooks is not None:
            for job in self.jobs:
                if job.name in jobs and job.name not in self.state.refused:
                    self._hooks.resume(job.name, self.members(job))
            self._record_hooks()

    def _record_hooks(self) -> None:
        """Record the jobs whose hooks have ended: resumed, or not resumed with the reason."""
        for job, failure in [] if self._hooks is None else self._hooks.finished():
            event = "job not resumed" if failure else "job resumed"
            words = f"job {job} was not resumed: {failure}" if failure else f"job {job} was resumed"
            self.journal.record(event, with_hooks_ended(self.state, job, failure), unit=job, words=words)
            self._emit(event, {"job": job, "words": words})

    def _confirm_links(self, recovery: Recovery) -> Recovery:
        new = {proof.circuit.request for proof in recovery.proofs}
        try:
            proofs = tuple(proof for proof in self.confirm() if proof.circuit.request in new)
        except LumionError as error:
            self._raise_if_controller(error)
            self._emit("not confirmed", {"reason": str(error)})
            return recovery
        timer = ReportingTimer(self.bench, self._fault_time_s(recovery), None, self._emit, list(recovery.spans))
        timer.mark("link_up")
        confirmed = dataclasses.replace(recovery, spans=tuple(timer.spans), proofs=proofs)
        self.journal.record(
            "confirmed",
            self.state,
            proven=all(proof.proven for proof in proofs),
            spans=span_documents(timer.spans[-1:]),
        )
        return confirmed

    def _fault_time_s(self, recovery: Recovery) -> float:
        first = recovery.spans[0]
        return recovery.verdict.at_s - first.at_ms * 1e-3
