"""The manager of a fabric: keeps jobs connected, notices failures, puts spares in their place.

Everything it decides is in its journal before it is done, and every step can be done again: a manager that is killed is
followed by one that reads both journals and the mesh, and goes on from what stands.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

from lumion_hw.bench.controller_faults import HOST_SILENCE, check_faults, latched_faults
from lumion_hw.circuits import CircuitMaintenance, CircuitPlan, CircuitProof, CircuitService
from lumion_hw.circuits.output_power import OutputPowerReader
from lumion_hw.clock import deadline_after
from lumion_hw.errors import ConfigError, LumionError, RoutingError, SafetyError
from lumion_hw.fabric.decisions import (
    BlameSender,
    DoNothing,
    DropSpare,
    FabricView,
    Refuse,
    Reroute,
    Swap,
    after_refusal,
    after_reroute,
    after_swap,
    decide,
    in_service,
    with_failed,
)
from lumion_hw.fabric.detectors import Detector, WatchTargets, create_detectors
from lumion_hw.fabric.detectors.light import Modules
from lumion_hw.fabric.evidence import CircuitSender, FadeCounts, FailureVerdict, Judge
from lumion_hw.fabric.hooks import JobHooks, NoHooks
from lumion_hw.fabric.jobs import JobCircuits
from lumion_hw.fabric.journal import FabricJournal, FabricState
from lumion_hw.fabric.polarization_keeper import PolarizationKeeper
from lumion_hw.fabric.recovery import Recovery
from lumion_hw.fabric.servers import find_unit, job_requests, units
from lumion_hw.fabric.spans import EventCallback, ReportingTimer, SpanTimer, span_documents
from lumion_hw.fabric.standby import Standby, StandbyPlan
from lumion_hw.quantities import w_from_dbm

FIRST_RETRY_S, LONGEST_RETRY_S = 30.0, 600.0
"""Time until a refused job is tried again; it doubles from try to try up to the longest."""
_SLICE_S = 0.05
"""Longest wait of one detector while others look as well: then it asks whether they have found something."""
_STEP_S = 0.5
_DARK_W = w_from_dbm(-25.0)


class FabricManager(JobCircuits):
    """Keeps the jobs of a bench file connected.

    Args:
        service: The circuits, restored.
        journal: The fabric's journal.
        hooks: What jobs do when their fabric changes.
        detectors: What failures are noticed by; those of the bench file if not given.
        on_event: Called with each event and its details.

    Attributes:
        standby: Plans for every single failure.
        judge: What was seen so far.
        fault_s: Bench time of the next fault where it is known, in a rehearsal; spans count from it.
        fault_cpu_s: CPU time of this process at that fault.
    """

    def __init__(
        self,
        service: CircuitService,
        journal: FabricJournal,
        *,
        hooks: JobHooks | None = None,
        detectors: Sequence[Detector] | None = None,
        on_event: EventCallback = lambda what, told: None,
    ) -> None:
        super().__init__(service, journal, on_event)
        self._hooks: JobHooks = hooks or NoHooks()
        model = self.bench.model
        self._detectors = list(create_detectors(model.fabric) if detectors is None else detectors)
        self._watching = self._detectors
        self.standby = Standby(service)
        self.judge = Judge({}, model.fabric.fade_s, FadeCounts(journal.state.fades, 0, journal.state.false_alarms))
        self.fault_s: float | None = None
        self.fault_cpu_s: float | None = None
        self._guard = threading.Lock()
        self._planner: threading.Thread | None = None
        self._keeper = PolarizationKeeper(service)
        self._searched: set[str] = set()
        self._retry_s, self._retry_after_s = math.inf, FIRST_RETRY_S

    @property
    def maintenance(self) -> CircuitMaintenance:
        """What keeps the polarizations while :meth:`run` watches, and how the circuits are."""
        return self._keeper.maintenance

    # -- begin and end ------------------------------------------------------------------------------------------------

    def begin(self) -> Recovery | None:
        """Set up again what the controller no longer drives, finish what was begun, connect the jobs, and watch.

        Jobs that were refused are tried again.

        Returns:
            The recovery that an earlier manager had begun, if there was one.

        Raises:
            SafetyError: A fault keeps the heaters off and has to be cleared by name.
            LumionError: A device failed, or a journal cannot be written.
        """
        finished = None
        with self._keeper.exclusive():
            was_off = self.service.restore_after_shutdown() is not None
            if was_off:
                self.judge.forget_light()
            if self.state.open is not None:
                finished = self._finish_interrupted(FailureVerdict.of(self.state.open), was_off)
            self._retry_refused()
            self.connect()
            self.refresh()
        return finished

    def _finish_interrupted(self, verdict: FailureVerdict, was_off: bool) -> Recovery | None:
        """Finish a recovery that was begun and interrupted.

        Args:
            verdict: The verdict on which it was begun.
            was_off: The controller had switched its heaters off meanwhile. Then all light was gone, and a verdict by
                light is withdrawn: a circuit that is still dark leads to another one.
        """
        if was_off and verdict.cause == "light":
            words = f"{verdict.words}: withdrawn, the mesh controller had switched off"
            self.journal.end("withdrawn", self.state, words=words)
            self.judge.forget(verdict.name)
            self._tell("withdrawn", {"words": words})
            return None
        self._tell("resumed", {"verdict": verdict.words})
        standing = self._standing()
        for job in self.jobs:
            for member in job.members:
                if self.state.at(member) != verdict.name:
                    continue
                for spare in self.spares:
                    places = {**self.state.places, member: spare}
                    if all(request in standing for request in job_requests(self.bench.model, job, places)):
                        # The commit was made and noted; the manager died before it could say so.
                        view = FabricView(self.bench.model, self.state, {})
                        state = after_swap(view, verdict, spare)
                        self.journal.end("done", state, failed=verdict.name, spare=spare, words="found done", spans=[])
                        return None
        return self.recover(verdict)

    def refresh(self) -> None:
        """Let spares stand by, make plans anew, and watch what stands now."""
        with self._keeper.exclusive():
            self.standby.avoided = self.state.avoided
            self.standby.warm(self.spares)
            self._watch_anew()
            self.plan()

    def plan(self) -> None:
        """Make plans for every single failure, in the background where the clock is a real one."""
        self._stop_planning()
        arguments = (self._in_service(), self.spares, tuple(self.state.failed))
        if hasattr(self.bench.clock, "runners"):  # a virtual clock: planning takes none of its time
            self.standby.prepare(*arguments)
        else:
            self._planner = threading.Thread(
                target=self.standby.prepare, args=arguments, name="lumion-plans", daemon=True
            )
            self._planner.start()

    def _stop_planning(self) -> None:
        """End planning in the background: its plans are of circuits that change, or no longer needed."""
        self.standby.stop()
        if self._planner is not None:
            self._planner.join()
            self._planner = None

    def _in_service(self) -> tuple[str, ...]:
        return in_service(self.bench.model, self.state)

    def _watch_anew(self) -> None:
        active = self.service.setup.active
        circuits = () if active is None else active.circuits
        names = (*self._in_service(), *self.spares)
        known = units(self.bench.model)
        sender = {nic: name for name in names for nic in known[name].nics}
        senders = {
            each.request.name: CircuitSender(sender[each.request.source], each.request.source)
            for each in circuits
            if each.request.source in sender
        }
        self.judge.watch(senders)
        exits = OutputPowerReader(self.bench, self.service.setup.record)
        promised = {each.request.name: exits.budgeted_photocurrent_ma(each) for each in circuits}
        watched = WatchTargets(
            self.bench,
            tuple(each for each in circuits if each.request.name in senders),
            names,
            {name: each for name, each in promised.items() if each is not None},
        )
        for detector in self._detectors:
            detector.start(watched)
        self._watching = [*self._detectors, *self._stand_in(watched)]

    def _stand_in(self, watched: WatchTargets) -> list[Detector]:
        """Return what watches circuits that a detector cannot: light that is gone already never goes out."""
        unwatched = {name for each in self._detectors for name in getattr(each, "unwatched", ())}
        if not unwatched or any(isinstance(each, Modules) for each in self._detectors):
            return []
        receivers = Modules()
        circuits = tuple(each for each in watched.circuits if each.request.name in unwatched)
        receivers.start(dataclasses.replace(watched, circuits=circuits))
        return [receivers]

    def close(self) -> None:
        """End the watch; circuits stay as they are. Idempotent."""
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
        """Watch, recover from what fails, and keep the polarizations, for a time or until something is so.

        Args:
            for_s: How long, ``None`` without an end.
            is_over: Asked between two steps whether that was all.
            between_steps: Called between two steps, for what others ask of this manager.
            max_step_s: Longest step.

        Returns:
            The recoveries made.

        Raises:
            SafetyError: A fault other than the silence of this host keeps the heaters off; once it is cleared,
                :meth:`begin` sets the circuits up again.
            LumionError: The mesh controller failed, or a journal cannot be written. What a recovery has begun is
                ended by the next manager.
        """
        deadline = deadline_after(self.bench.clock, math.inf if for_s is None else for_s)
        made: list[Recovery] = []
        over = threading.Event()

        def step_or_begin(is_off: bool) -> bool:
            """Watch for one step, or begin again after the controller was off; return whether it is off now."""
            try:
                recovery = self.begin() if is_off else self.step(min(deadline - self.bench.clock.now(), max_step_s))
            except SafetyError as error:
                if not all(fault.source in HOST_SILENCE for fault in latched_faults(self.bench)):
                    raise
                self._tell("controller off", {"words": str(error)})
                return True
            if recovery is not None:
                made.append(recovery)
            between_steps()
            return False

        def watch() -> None:
            is_off = False
            try:
                while self.bench.clock.now() < deadline and not is_over():
                    is_off = step_or_begin(is_off)
            finally:
                over.set()

        self._keeper.begin()
        self.judge.searched = self.maintenance.searching
        keep: Callable[[], None] = partial(self._keeper.keep, over.is_set)
        self.bench.clock.run_parallel([watch, keep])
        return made

    def measure(self) -> None:
        """Measure all circuits, for whoever shows their margins: the watch itself does not.

        May be called by another thread beside :meth:`run`, on a real clock.
        """
        self._keeper.measure()

    def step(self, timeout_s: float) -> Recovery | None:
        """Watch until something has failed and is recovered from, or a time has passed.

        Raises:
            SafetyError: The mesh controller has switched its heaters off; :meth:`begin` sets the circuits up again.
            LumionError: As :meth:`run`.
        """
        before = dataclasses.replace(self.judge.counters)
        try:
            check_faults(self.bench)
            self._retry_when_due()
            recovery = self._watch(timeout_s)
            if recovery is None:
                recovery = self._explained()
            self._note_counters(before)
            return None if recovery is None else self._after(recovery)
        finally:
            self._keeper.resume()

    def _watch(self, timeout_s: float) -> Recovery | None:
        """Let all detectors look until there is a verdict, a fade becomes more than that, or the time is over."""
        deadline = self.bench.clock.now() + timeout_s
        stop, made = threading.Event(), list[Recovery | None]()
        late = list[FailureVerdict]()

        def poll(detector: Detector) -> None:
            clock = self.bench.clock
            while not stop.is_set():
                began_s = clock.now()
                end_s = min(deadline, self.judge.next_due_s())
                if began_s >= end_s and detector.is_blocking:
                    stop.set()
                    return
                most_s = end_s - began_s if len(self._watching) == 1 else min(end_s - began_s, _SLICE_S)
                news = detector.poll(max(most_s, 0.0))
                with self._guard:
                    for each in news:
                        self.judge.take(each)
                    verdict = None if stop.is_set() else self.judge.verdict(clock.now())
                    if verdict is not None:
                        stop.set()
                if verdict is not None and detector.is_blocking:
                    made.append(self._acted(verdict))  # at once: others may be in the middle of a slow question
                elif verdict is not None:
                    late.append(verdict)
                if not detector.is_blocking and not stop.is_set():
                    rest_s = min(began_s + detector.period_s, deadline, self.judge.next_due_s()) - clock.now()
                    if rest_s <= 0.0 and clock.now() >= min(deadline, self.judge.next_due_s()):
                        return
                    clock.sleep(max(rest_s, 0.0))

        self.bench.clock.run_parallel([partial(poll, detector) for detector in self._watching])
        if not self._watching:
            self.bench.clock.sleep(timeout_s)
        return made[0] if made else self._acted(late[0]) if late else None

    def _explained(self) -> Recovery | None:
        """Ask the transmitters of circuits that stay dark, and act on what they say."""
        for circuit in self.judge.unexplained(self.bench.clock.now()):
            module = self.judge.senders[circuit].module
            sends, words = self._sends(module)
            if sends and self._may_be_polarization(circuit):
                continue
            return self._acted(self.judge.explain(circuit, sends, words, self.bench.clock.now()))
        return None

    def _may_be_polarization(self, circuit: str) -> bool:
        """Have the polarization of a dark circuit searched, once, if its light does not reach the mesh at all.

        A fibre that somebody has moved looks like one that is cut; a cell that is broken sends the light elsewhere.
        """
        self._searched &= set(self.judge.dark)
        if not self._keeper.is_keeping or circuit in self._searched:
            return False
        place = self.maintenance.find_fault(circuit)
        if place is None or place.place != "fibre before the mesh" or not self.maintenance.request_search(circuit):
            return False
        self._searched.add(circuit)
        self._tell("searching", {"circuit": circuit, "words": f"{circuit}: {place}; its polarization is searched"})
        return True

    def _sends(self, module: str) -> tuple[bool | None, str]:
        """Return whether a transmitter says that it sends light; ``None`` if it does not answer."""
        try:
            device = self.bench.transponders[module]
            status, power_dbm = device.status(), device.monitors().tx_power_dbm
        except LumionError as error:
            return None, str(error)
        if status.tx_fault or status.tx_disabled:
            return False, f"{module}: {'fault' if status.tx_fault else 'switched off'}"
        if power_dbm is None or w_from_dbm(power_dbm) < _DARK_W:
            return False, f"{module} sends no power"
        return True, f"{module} sends {power_dbm:.1f} dBm"

    def _note_counters(self, before: FadeCounts) -> None:
        after = self.judge.counters
        if (after.fades, after.false_alarms) != (before.fades, before.false_alarms):
            state = dataclasses.replace(self.state, fades=after.fades, false_alarms=after.false_alarms)
            what = "false alarm" if after.false_alarms > before.false_alarms else "fade"
            self.journal.note(what, state)
            self._tell(what, {"fades": after.fades, "false_alarms": after.false_alarms})

    # -- recover ------------------------------------------------------------------------------------------------------

    def mark_failed(self, name: str, words: str = "declared by hand") -> Recovery | None:
        """Take a server or accelerator out of service, as if it had failed.

        Raises:
            ConfigError: There is none of this name, or it has failed already.
        """
        find_unit(self.bench.model, name)
        if name in self.state.failed:
            raise ConfigError(f"{name} has failed already: {self.state.failed[name]}")
        now_s = self.bench.clock.now()
        recovery = self._acted(FailureVerdict("unit", name, "process", words, now_s, now_s, ("operator",)))
        return None if recovery is None else self._after(recovery)

    def mark_repaired(self, name: str) -> None:
        """Take a server or accelerator back: as a spare, or for a job that had to be refused.

        Raises:
            ConfigError: It has not failed.
            LumionError: A device failed, or a job that is connected again could not be proven.
        """
        if name not in self.state.failed:
            raise ConfigError(f"{name} has not failed", hint=f"Failed: {', '.join(self.state.failed) or 'nothing'}.")
        failed = {each: words for each, words in self.state.failed.items() if each != name}
        self.journal.note("repaired", dataclasses.replace(self.state, failed=failed), unit=name)
        self.judge.forget(name)
        self._tell("repaired", {"unit": name})
        with self._keeper.exclusive():
            self._retry_refused()
            self.connect()
            self.refresh()

    def restore_bench_file_places(self) -> None:
        """Take everything for repaired, and let every member stand where the bench file has it: after a rehearsal.

        Raises:
            LumionError: A device failed, or a circuit could not be proven.
        """
        state = FabricState(fades=self.state.fades, false_alarms=self.state.false_alarms)
        for name in (*self.state.failed, *self.judge.dark):
            self.judge.forget(name)
        self.journal.note("put back", state)
        with self._keeper.exclusive():
            self.connect()
            self.refresh()

    def _retry_when_due(self) -> None:
        """Try refused jobs again from time to time: whatever kept them from being connected may be gone."""
        if not self.state.refused:
            self._retry_after_s, self._retry_s = FIRST_RETRY_S, math.inf
            return
        now_s = self.bench.clock.now()
        if math.isinf(self._retry_s):
            self._retry_s = now_s + self._retry_after_s
        if now_s < self._retry_s:
            return
        self._retry_after_s, self._retry_s = min(2.0 * self._retry_after_s, LONGEST_RETRY_S), math.inf
        with self._keeper.exclusive():
            self._retry_refused()
            self.connect()
            self.refresh()

    def _acted(self, verdict: FailureVerdict) -> Recovery | None:
        """Recover from a verdict; what cannot be recovered from is refused, with the reason in the journal.

        Raises:
            SafetyError: The mesh controller has switched its heaters off, so that the light proves nothing.
        """
        if verdict.cause == "light":
            self.service.check_driven()
        self._keeper.pause()
        self.bench.events.add("verdict", **dataclasses.asdict(verdict))
        self._tell("verdict", dataclasses.asdict(verdict))
        return self.recover(verdict)

    def recover(self, verdict: FailureVerdict) -> Recovery | None:
        """Put a spare in the place of what has failed, or lead a circuit another way. Can be done again.

        Returns:
            What was done; ``None`` if nothing had to be done, or if it was refused.

        Raises:
            LumionError: The mesh controller failed, or a journal cannot be written; the recovery stays begun.
        """
        fault_s = verdict.since_s if self.fault_s is None else self.fault_s
        timer = ReportingTimer(self.bench, fault_s, self.fault_cpu_s, self._tell)
        self.fault_s = self.fault_cpu_s = None
        timer.mark("detected")
        self.journal.begin(verdict)
        view, failures = self._view(verdict), list[str]()
        while isinstance(decision := decide(view, verdict, failures), Swap | Reroute):
            if len(timer.spans) > 1:
                timer.rewind("detected")
            try:
                proofs = self._carry_out(decision, timer)
            except Exception as error:  # noqa: BLE001 - whatever one attempt raises, the next one is made
                self._raise_if_controller(error)
                check_faults(self.bench)
                failures.append(str(error))
                self.bench.events.add("attempt failed", of=type(decision).__name__, reason=str(error))
            else:
                return self._done(view, verdict, decision, proofs, timer)
        return self._without_recovery(verdict, decision)

    def _view(self, verdict: FailureVerdict) -> FabricView:
        """Return what is known for a decision, with plans made beforehand, or made now where those are out of date."""
        active, standby = self.service.setup.active, self.standby
        connected = {} if active is None else {circuit.request: circuit.paths for circuit in active.circuits}
        view = FabricView(self.bench.model, self.state, connected)
        if verdict.suspect != "unit" or verdict.name not in view.in_service:
            return view
        if standby.is_fresh and verdict.name in standby.plans:
            plans = standby.plans[verdict.name]
        else:
            plans = standby.plans_for(verdict.name, self.spares, tuple(self.state.failed))
        unusable = tuple(f"{spare}: {why}" for (of, spare), why in standby.refused.items() if of == verdict.name)
        return dataclasses.replace(view, plans=plans, unusable=unusable)

    def _carry_out(self, decision: Swap | Reroute, timer: SpanTimer) -> tuple[CircuitProof, ...]:
        """Change the circuits, and prove them. Raises if that fails; then all is as before."""
        if isinstance(decision, Reroute):
            plan = self._around(decision)
            timer.mark("route_found")
            return self.service.switch(plan, milestone=timer.mark)
        failed, spare = decision.plan.failed, decision.plan.spare
        for job in self.jobs:
            if failed in self.members(job):
                self._hooks.stop(job.name, self.members(job), failed)
        self._tell("spare", {"failed": failed, "spare": spare, "is_warm": decision.plan.is_warm})
        timer.mark("spare_chosen")
        return self._switched(decision.plan, timer)

    def _done(
        self,
        view: FabricView,
        verdict: FailureVerdict,
        decision: Swap | Reroute,
        proofs: tuple[CircuitProof, ...],
        timer: SpanTimer,
    ) -> Recovery:
        """Write down what was done, and return it."""
        new = {proof.circuit.request for proof in proofs}
        kept = tuple(request for request in self._standing() if request not in new)
        failed, spare, told = "", "", dict[str, Any]()
        if isinstance(decision, Swap):
            failed, spare = verdict.name, decision.plan.spare
            passed = {puc for proof in proofs for path in proof.circuit.paths for puc in path.pucs}
            state, told = after_swap(view, verdict, spare, passed), {"failed": failed, "spare": spare}
        else:
            state, told = after_reroute(self.state, decision.avoid), {"circuit": verdict.name}
            self.judge.forget(verdict.name)
        self.journal.end("done", state, **told, words=verdict.words, spans=span_documents(timer.spans))
        if spare:
            self.bench.events.add("replaced", failed=failed, spare=spare)
        return Recovery(verdict, failed, spare, tuple(timer.spans), proofs, kept)

    def _without_recovery(
        self, verdict: FailureVerdict, decision: BlameSender | DropSpare | Refuse | DoNothing
    ) -> Recovery | None:
        """Do what is left where nothing takes the place of what has failed."""
        if isinstance(decision, BlameSender):
            self.journal.end("no other path", self.state, circuit=verdict.name, words=decision.reason)
            return self.recover(decision.verdict)
        if isinstance(decision, DoNothing):
            self.journal.end("nothing to do", self.state, words=verdict.words)
            return None
        self._fence(verdict.name)
        self._free(decision.circuits, decision.lost)
        if isinstance(decision, DropSpare):
            self.journal.end("spare lost", with_failed(self.state, verdict), unit=verdict.name)
            self._tell("spare lost", {"unit": verdict.name, "words": verdict.words})
        else:
            self.journal.end("refused", after_refusal(self.state, verdict, decision), words=decision.reason)
            self._tell("refused", {"jobs": list(decision.jobs), "words": decision.reason})
        self.refresh()
        return None

    def _switched(self, plan: StandbyPlan, timer: SpanTimer) -> tuple[CircuitProof, ...]:
        """Change over to a plan: in one commit for a warm spare, by taking down and connecting for a cold one."""
        timer.mark("route_found")
        if plan.is_warm and plan.plan is not None:
            return self.service.switch(plan.plan, milestone=timer.mark)
        # What has failed may shine all the same, and light of others would prove nothing.
        self._fence(plan.failed)
        self._free([*plan.gone, *plan.moved], find_unit(self.bench.model, plan.failed).nics)
        try:
            return self.service.connect([*plan.moved, *plan.wanted], milestone=timer.mark)
        except LumionError:
            if plan.moved:
                self.service.connect(list(plan.moved))
            raise

    def _after(self, recovery: Recovery) -> Recovery:
        """What has time: modules and meters are asked, job hooks called, spares and plans made ready again."""
        recovery = self._confirmed(recovery)
        told = {"failed": recovery.failed, "spare": recovery.spare, "spans": span_documents(recovery.spans)}
        self._tell("recovered", told)
        for job in self.jobs:
            if recovery.spare and recovery.spare in self.members(job):
                members = self.members(job)
                self._hooks.rebuild(job.name, members)
                self._hooks.restore(job.name, members)
                self._hooks.resume(job.name, members)
        self._fence(recovery.failed)
        self.refresh()
        return recovery

    def _confirmed(self, recovery: Recovery) -> Recovery:
        """Wait for the links: what receivers and meters say of the new circuits comes after what photodiodes said."""
        new = {proof.circuit.request for proof in recovery.proofs}
        try:
            proofs = tuple(proof for proof in self.confirm() if proof.circuit.request in new)
        except LumionError as error:
            self._raise_if_controller(error)
            self._tell("not confirmed", {"reason": str(error)})
            return recovery
        timer = ReportingTimer(self.bench, self._fault_of(recovery), None, self._tell, list(recovery.spans))
        timer.mark("link_up")
        confirmed = dataclasses.replace(recovery, spans=tuple(timer.spans), proofs=proofs)
        self.journal.note(
            "confirmed",
            self.state,
            proven=all(proof.proven for proof in proofs),
            spans=span_documents(timer.spans[-1:]),
        )
        return confirmed

    def _fault_of(self, recovery: Recovery) -> float:
        """Return the bench time that the spans of a recovery count from."""
        first = recovery.spans[0]
        return recovery.verdict.at_s - first.at_ms * 1e-3

    def _fence(self, failed: str) -> None:
        """Keep what has failed from shining into the mesh when it comes back by itself."""
        for nic in find_unit(self.bench.model, failed).nics if failed else ():
            with contextlib.suppress(LumionError):  # it may be dead for good
                self.bench.transponders[nic].disable()

    def _around(self, decision: Reroute) -> CircuitPlan:
        """Return a plan for a circuit around PUCs; loops of spares make room if there is no other path."""
        setup, request = self.service.setup, decision.request
        try:
            return setup.plan_change([request], [request], avoid=decision.avoid)
        except RoutingError:
            return setup.plan_change([request, *decision.idle], [request], avoid=decision.avoid)
