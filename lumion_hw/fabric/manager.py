"""The manager of a fabric: keeps jobs connected, notices failures, puts spares in their place.

Everything it decides is in its journal before it is done, and every step can be done again: a manager that is killed is
followed by one that reads both journals and the mesh, and goes on from what stands.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Self

from lumion_hw.bench.controller_faults import HOST_SILENCE, check_faults, latched_faults
from lumion_hw.circuits import CircuitPlan, CircuitProof, CircuitRequest, CircuitService, Upkeep
from lumion_hw.circuits.exit_power import ExitPower
from lumion_hw.clock import deadline_after
from lumion_hw.errors import ConfigError, LumionError, RoutingError, SafetyError
from lumion_hw.fabric.detectors import Detector, Watched, detectors_of
from lumion_hw.fabric.detectors.light import Modules
from lumion_hw.fabric.evidence import FadeCounts, FailureVerdict, FedBy, Judge
from lumion_hw.fabric.hooks import JobHooks, NoHooks
from lumion_hw.fabric.jobs import JobCircuits, circuit_name
from lumion_hw.fabric.journal import FabricJournal, FabricState
from lumion_hw.fabric.keeping import PolarizationKeeper
from lumion_hw.fabric.recovery import Recovery
from lumion_hw.fabric.servers import find_unit, job_requests, units
from lumion_hw.fabric.spans import SpanTimer, Told, ToldTimer, span_documents
from lumion_hw.fabric.standby import Standby, StandbyPlan, loops
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
        tell: Told of what happens.

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
        tell: Told = lambda what, told: None,
    ) -> None:
        super().__init__(service, journal, tell)
        self._hooks: JobHooks = hooks or NoHooks()
        model = self.bench.model
        self._detectors = list(detectors_of(model.fabric) if detectors is None else detectors)
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
    def upkeep(self) -> Upkeep:
        """What keeps the polarizations while :meth:`run` watches, and how the circuits are."""
        return self._keeper.upkeep

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
        with self._keeper.alone():
            was_off = self.service.set_up_again() is not None
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
                        state = self._replaced(verdict, spare)
                        self.journal.end("done", state, failed=verdict.name, spare=spare, words="found done", spans=[])
                        return None
        return self.recover(verdict)

    def refresh(self) -> None:
        """Let spares stand by, make plans anew, and watch what stands now."""
        with self._keeper.alone():
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
        return tuple(dict.fromkeys(name for job in self.jobs for name in self.members(job)))

    def _watch_anew(self) -> None:
        active = self.service.setup.active
        circuits = () if active is None else active.circuits
        names = (*self._in_service(), *self.spares)
        known = units(self.bench.model)
        sender = {nic: name for name in names for nic in known[name].nics}
        fed = {
            circuit_name(each.request): FedBy(sender[each.request.source], each.request.source)
            for each in circuits
            if each.request.source in sender
        }
        self.judge.watch(fed)
        exits = ExitPower(self.bench, self.service.setup.record)
        promised = {circuit_name(each.request): exits.promised_ma(each) for each in circuits}
        watched = Watched(
            self.bench,
            tuple(each for each in circuits if circuit_name(each.request) in fed),
            names,
            {name: each for name, each in promised.items() if each is not None},
        )
        for detector in self._detectors:
            detector.start(watched)
        self._watching = [*self._detectors, *self._stand_in(watched)]

    def _stand_in(self, watched: Watched) -> list[Detector]:
        """Return what watches circuits that a detector cannot: light that is gone already never goes out."""
        unwatched = {name for each in self._detectors for name in getattr(each, "unwatched", ())}
        if not unwatched or any(isinstance(each, Modules) for each in self._detectors):
            return []
        receivers = Modules()
        circuits = tuple(each for each in watched.circuits if circuit_name(each.request) in unwatched)
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
        ended: Callable[[], bool] = lambda: False,
        between: Callable[[], None] = lambda: None,
        every_s: float = _STEP_S,
    ) -> list[Recovery]:
        """Watch, recover from what fails, and keep the polarizations, for a time or until something is so.

        Args:
            for_s: How long, ``None`` without an end.
            ended: Asked between two steps whether that was all.
            between: Called between two steps, for what others ask of this manager.
            every_s: Longest step.

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
                recovery = self.begin() if is_off else self.step(min(deadline - self.bench.clock.now(), every_s))
            except SafetyError as error:
                if not all(fault.source in HOST_SILENCE for fault in latched_faults(self.bench)):
                    raise
                self._tell("controller off", {"words": str(error)})
                return True
            if recovery is not None:
                made.append(recovery)
            between()
            return False

        def watch() -> None:
            is_off = False
            try:
                while self.bench.clock.now() < deadline and not ended():
                    is_off = step_or_begin(is_off)
            finally:
                over.set()

        self._keeper.begin()
        self.judge.searched = self.upkeep.searching
        keep: Callable[[], None] = partial(self._keeper.keep, over.is_set)
        self.bench.clock.side_by_side([watch, keep])
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
            self._keeper.speak()

    def _watch(self, timeout_s: float) -> Recovery | None:
        """Let all detectors look until there is a verdict, a fade becomes more than that, or the time is over."""
        deadline = self.bench.clock.now() + timeout_s
        stop, made = threading.Event(), list[Recovery | None]()
        late = list[FailureVerdict]()

        def look(detector: Detector) -> None:
            clock = self.bench.clock
            while not stop.is_set():
                began_s = clock.now()
                end_s = min(deadline, self.judge.next_due_s())
                if began_s >= end_s and detector.waits:
                    stop.set()
                    return
                most_s = end_s - began_s if len(self._watching) == 1 else min(end_s - began_s, _SLICE_S)
                news = detector.look(max(most_s, 0.0))
                with self._guard:
                    for each in news:
                        self.judge.take(each)
                    verdict = None if stop.is_set() else self.judge.verdict(clock.now())
                    if verdict is not None:
                        stop.set()
                if verdict is not None and detector.waits:
                    made.append(self._acted(verdict))  # at once: others may be in the middle of a slow question
                elif verdict is not None:
                    late.append(verdict)
                if not detector.waits and not stop.is_set():
                    rest_s = min(began_s + detector.period_s, deadline, self.judge.next_due_s()) - clock.now()
                    if rest_s <= 0.0 and clock.now() >= min(deadline, self.judge.next_due_s()):
                        return
                    clock.sleep(max(rest_s, 0.0))

        self.bench.clock.side_by_side([partial(look, detector) for detector in self._watching])
        if not self._watching:
            self.bench.clock.sleep(timeout_s)
        return made[0] if made else self._acted(late[0]) if late else None

    def _explained(self) -> Recovery | None:
        """Ask the transmitters of circuits that stay dark, and act on what they say."""
        for circuit in self.judge.unexplained(self.bench.clock.now()):
            module = self.judge.fed[circuit].module
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
        place = self.upkeep.place_of(circuit)
        if place is None or place.place != "fibre before the mesh" or not self.upkeep.search_soon(circuit):
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

    def fail(self, name: str, words: str = "declared by hand") -> Recovery | None:
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

    def repaired(self, name: str) -> None:
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
        with self._keeper.alone():
            self._retry_refused()
            self.connect()
            self.refresh()

    def put_back(self) -> None:
        """Take everything for repaired, and let every member stand where the bench file has it: after a rehearsal.

        Raises:
            LumionError: A device failed, or a circuit could not be proven.
        """
        state = FabricState(fades=self.state.fades, false_alarms=self.state.false_alarms)
        for name in (*self.state.failed, *self.judge.dark):
            self.judge.forget(name)
        self.journal.note("put back", state)
        with self._keeper.alone():
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
        with self._keeper.alone():
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
        self._keeper.hush()
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
        timer = ToldTimer(self.bench, fault_s, self.fault_cpu_s, self._tell)
        self.fault_s = self.fault_cpu_s = None
        timer.mark("detected")
        self.journal.begin(verdict)
        if verdict.suspect == "path":
            return self._another_way(verdict, timer)
        if verdict.name not in self._in_service():
            self._lost_spare(verdict)
            return None
        refused: list[str] = []
        for plan in self._candidates(verdict, refused):
            with self._order_stopped(verdict.name):
                if len(timer.spans) > 1:
                    timer.rewind("detected")
                self._tell("spare", {"failed": verdict.name, "spare": plan.spare, "is_warm": plan.is_warm})
                timer.mark("spare_chosen")
                try:
                    proofs = self._switched(plan, timer)
                except Exception as error:  # noqa: BLE001 - whatever one spare raises, the next one is tried
                    self._raise_if_controller(error)
                    check_faults(self.bench)
                    refused.append(f"{plan.spare}: {error}")
                    self.bench.events.add("spare refused", spare=plan.spare, reason=str(error))
                    continue
            return self._ended(verdict, plan, proofs, timer)
        self._refuse(verdict, refused)
        return None

    def _candidates(self, verdict: FailureVerdict, refused: list[str]) -> Iterator[StandbyPlan]:
        """Yield what can be done, best first: plans made beforehand, or made now where those are of something else."""
        name = verdict.name
        if self.standby.is_fresh and name in self.standby.plans:
            plans = self.standby.plans[name]
        else:
            plans = self.standby.plans_for(name, self.spares, tuple(self.state.failed))
        refused += [f"{spare}: {why}" for (of, spare), why in self.standby.refused.items() if of == name]
        yield from (plan for plan in plans if plan.spare in self.spares)

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

    def _ended(
        self, verdict: FailureVerdict, plan: StandbyPlan, proofs: tuple[CircuitProof, ...], timer: SpanTimer
    ) -> Recovery:
        new = {proof.circuit.request for proof in proofs}
        kept = tuple(request for request in self._standing() if request not in new)
        # What proven light passes is not broken.
        passed = {puc for proof in proofs for path in proof.circuit.paths for puc in path.pucs}
        avoided = tuple(puc for puc in self.state.avoided if puc not in passed)
        state = dataclasses.replace(self._replaced(verdict, plan.spare), avoided=avoided)
        recovery = Recovery(verdict, verdict.name, plan.spare, tuple(timer.spans), proofs, kept)
        self.journal.end(
            "done", state, failed=verdict.name, spare=plan.spare, words=verdict.words, spans=span_documents(timer.spans)
        )
        self.bench.events.add("replaced", failed=verdict.name, spare=plan.spare)
        return recovery

    def _replaced(self, verdict: FailureVerdict, spare: str) -> FabricState:
        """Return what is known once a spare stands in the place of what failed."""
        member = next(member for job in self.jobs for member in job.members if self.state.at(member) == verdict.name)
        places = {**self.state.places, member: spare}
        places = {name: at for name, at in places.items() if name != at}
        failed = {**self.state.failed, verdict.name: verdict.words}
        return dataclasses.replace(self.state, places=places, failed=failed)

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
                self._hooks.go(job.name, members)
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
        timer = ToldTimer(self.bench, self._fault_of(recovery), None, self._tell, list(recovery.spans))
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

    @contextlib.contextmanager
    def _order_stopped(self, failed: str) -> Iterator[None]:
        for job in self.jobs:
            if failed in self.members(job):
                self._hooks.stop(job.name, self.members(job), failed)
        yield

    def _lost_spare(self, verdict: FailureVerdict) -> None:
        """A spare has failed: its loops are taken away, and it is not to be chosen."""
        failed = {**self.state.failed, verdict.name: verdict.words}
        unit = find_unit(self.bench.model, verdict.name)
        self._fence(verdict.name)
        self._free(loops(unit), unit.nics)
        self.journal.end("spare lost", dataclasses.replace(self.state, failed=failed), unit=verdict.name)
        self._tell("spare lost", {"unit": verdict.name, "words": verdict.words})
        self.refresh()

    def _another_way(self, verdict: FailureVerdict, timer: SpanTimer) -> Recovery | None:
        """Lead a circuit another way to the same place: its PUCs are avoided as far as no other circuit proves them."""
        active = self.service.setup.active
        circuit = (
            None
            if active is None
            else next((each for each in active.circuits if circuit_name(each.request) == verdict.name), None)
        )
        if circuit is None or active is None:
            self.journal.end("nothing to do", self.state, words=verdict.words)
            return None
        proven = {puc for each in active.circuits if each is not circuit for path in each.paths for puc in path.pucs}
        # Whatever way it takes, a circuit begins and ends at the PUCs of its ports.
        inner = [puc for path in circuit.paths for puc in path.pucs[1:-1] if puc not in proven]
        idle = [each.request for each in active.circuits if each.request.source == each.request.target]
        half = len(inner) // 2
        why: list[str] = []
        for suspects in filter(None, (inner, inner[:half], inner[half:])):
            try:
                plan = self._led_round(circuit.request, suspects, idle)
                if len(timer.spans) > 1:
                    timer.rewind("detected")
                timer.mark("route_found")
                proofs = self.service.switch(plan, milestone=timer.mark)
                break
            except LumionError as error:
                self._raise_if_controller(error)
                check_faults(self.bench)
                why.append(str(error))
        else:
            return self._beyond_path(verdict, circuit.request, "; ".join(why) or "its ports are neighbours")
        state = dataclasses.replace(self.state, avoided=tuple(sorted({*self.state.avoided, *suspects})))
        self.journal.end("done", state, circuit=verdict.name, words=verdict.words, spans=span_documents(timer.spans))
        new = {proof.circuit.request for proof in proofs}
        kept = tuple(request for request in self._standing() if request not in new)
        self.judge.forget(verdict.name)
        return Recovery(verdict, "", "", tuple(timer.spans), proofs, kept)

    def _led_round(self, request: CircuitRequest, avoid: Sequence[int], idle: Sequence[CircuitRequest]) -> CircuitPlan:
        """Return a plan that leads a circuit round PUCs; spares that stand by make room if there is no other."""
        setup = self.service.setup
        try:
            return setup.plan_change([request], [request], avoid=avoid)
        except RoutingError:
            return setup.plan_change([request, *idle], [request], avoid=avoid)

    def _beyond_path(self, verdict: FailureVerdict, request: CircuitRequest, why: str) -> Recovery | None:
        """No other way helps: the fibre or module at one end is at fault, and only a spare has others."""
        self.journal.end("no other way", self.state, circuit=verdict.name, words=why)
        known = units(self.bench.model)
        sender = next(
            (name for name in (*self._in_service(), *self.spares) if request.source in known[name].nics), None
        )
        if sender is None:
            return None
        words = f"{verdict.words}; no other way helps ({why})"
        return self.recover(dataclasses.replace(verdict, suspect="unit", name=sender, words=words))

    def _refuse(self, verdict: FailureVerdict, reasons: Sequence[str]) -> None:
        """No spare could be proven: say why, and take the job's circuits away, which lead nowhere."""
        why = "; ".join(reasons) or "the bench file names no spare that is free"
        words = f"{verdict.words}. No spare can take its place: {why}"
        jobs = [job for job in self.jobs if verdict.name in self.members(job)]
        failed = {**self.state.failed, verdict.name: verdict.words}
        refused = {**self.state.refused, **{job.name: words for job in jobs}}
        own = [request for job in jobs for request in job_requests(self.bench.model, job, self.state.places)]
        self._fence(verdict.name)
        self._free(
            own,
            [
                nic
                for name in failed
                if name in units(self.bench.model)
                for nic in find_unit(self.bench.model, name).nics
            ],
        )
        self.journal.end("refused", dataclasses.replace(self.state, failed=failed, refused=refused), words=words)
        self._tell("refused", {"jobs": [job.name for job in jobs], "words": words})
        self.refresh()
