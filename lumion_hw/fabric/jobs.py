"""Calculate which circuits the jobs of a fabric (servers linked by optical circuits) need."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence

from lumion_hw.bench.bench import Bench
from lumion_hw.bench.controller_faults import check_faults
from lumion_hw.bench.file.model import JobModel
from lumion_hw.circuits import CircuitPlan, CircuitProof, CircuitRequest, CircuitService
from lumion_hw.circuits.diagnosis import CircuitFinding
from lumion_hw.errors import BusyError, CircuitError, LinkError, LumionError, RoutingError
from lumion_hw.fabric.decisions import Reroute, free_spares
from lumion_hw.fabric.journal import FabricJournal, FabricState
from lumion_hw.fabric.servers import find_unit, job_requests
from lumion_hw.fabric.spans import EventCallback, SpanTimer
from lumion_hw.fabric.standby import StandbyPlan, loop_requests

_REQUESTS = 3
"""Requests without an answer after which a module does not respond."""


class JobCircuits:
    """Connects the circuits of all jobs of a bench file, with spares for members that do not answer.

    Args:
        on_event: Called with each event and its details.
    """

    def __init__(self, service: CircuitService, journal: FabricJournal, on_event: EventCallback) -> None:
        self.service, self.journal, self._emit = service, journal, on_event
        self.bench: Bench = service.setup.bench

    @property
    def state(self) -> FabricState:
        """State of the fabric: replaced job members, failed servers and accelerators, refused jobs."""
        return self.journal.state

    @property
    def jobs(self) -> tuple[JobModel, ...]:
        """Jobs of the bench file."""
        return self.bench.model.fabric.all_jobs

    def members(self, job: JobModel) -> tuple[str, ...]:
        """Return the servers or accelerators that now serve as the members of a job, in rank order."""
        return tuple(self.state.unit_at(member) for member in job.members)

    @property
    def spares(self) -> tuple[str, ...]:
        """Healthy free spares, including repaired servers and accelerators that a spare has replaced."""
        return free_spares(self.bench.model, self.state)

    def _required_requests(self) -> list[CircuitRequest]:
        model = self.bench.model
        jobs = [job for job in self.jobs if job.name not in self.state.refused]
        return [request for job in jobs for request in job_requests(model, job, self.state.places)]

    def _active_requests(self) -> list[CircuitRequest]:
        active = self.service.setup.active
        return [] if active is None else [circuit.request for circuit in active.circuits]

    def connect(self) -> None:
        """Remove circuits that no job needs, and connect the missing circuits of jobs.

        A member that does not answer is replaced by a spare. A job that cannot be connected is refused; the journal
        records the reason.

        Raises:
            LumionError: The mesh controller failed, or a journal cannot be written.
        """
        self._remove_leftovers()
        for job in self.jobs:
            while job.name not in self.state.refused:
                required = job_requests(self.bench.model, job, self.state.places)
                missing = [request for request in required if request not in self._active_requests()]
                if not missing:
                    break
                try:
                    self._connect_missing(missing)
                except LumionError as error:
                    self._raise_if_controller(error)
                    # If the controller has switched its heaters off, all light is gone and no member is to blame
                    # (docs/decisions/0026).
                    check_faults(self.bench)
                    self._substitute(job, str(error))
                else:
                    self._emit("connected", {"circuits": [request.name for request in missing]})

    def _connect_missing(self, missing: Sequence[CircuitRequest]) -> None:
        loops = self._possible_loops(missing)
        try:
            self.service.connect([*missing, *loops])
        except LumionError as error:
            self._raise_if_controller(error)
            check_faults(self.bench)
            modules = {end for request in missing for end in (request.source, request.target)}
            if not loops or not all(map(self._is_responding, modules)):
                raise
            # A spare whose light does not arrive must not cost the job its circuits.
            try:
                self.service.connect(list(missing))
            except LumionError as second_error:
                self._raise_if_controller(second_error)
                raise error from second_error

    def _remove_leftovers(self) -> None:
        required, active = self._required_requests(), self._active_requests()
        idle = [loop for name in self.spares for loop in loop_requests(find_unit(self.bench.model, name))]
        leftover = [request for request in active if request not in required]
        if all(request in active for request in required):
            leftover = [request for request in leftover if request not in idle]
        # Otherwise tear down the loopback circuits of spares first: jobs have priority.
        self._remove_circuits(
            leftover,
            [end for request in leftover for end in (request.source, request.target) if not self._is_responding(end)],
        )

    def _is_responding(self, module: str) -> bool:
        # A reply that was late once, on a busy host, must not cost a healthy server its place.
        for _ in range(_REQUESTS):
            with contextlib.suppress(LumionError):
                self.bench.transponders[module].status()
                return True
        return False

    def _check_responding(self, unit: str) -> None:
        silent = [nic for nic in find_unit(self.bench.model, unit).nics if not self._is_responding(nic)]
        if silent:
            verb = "do" if len(silent) > 1 else "does"
            raise LinkError(
                f"{unit} stays out of service, because {', '.join(silent)} {verb} not answer",
                hint=f"Restore its power and cables, then run `lumion fabric repaired BENCH {unit}` again.",
            )

    def _raise_if_controller(self, error: Exception) -> None:
        device = error.device if isinstance(error, LumionError) else None
        if isinstance(error, BusyError) or self.bench.model.mesh_section.is_driven_by(device):
            raise error

    def _substitute(self, job: JobModel, reason: str) -> None:
        places, failed = dict(self.state.places), dict(self.state.failed)
        for member in job.members:
            at = places.get(member, member)
            if at in failed or not all(map(self._is_responding, find_unit(self.bench.model, at).nics)):
                failed.setdefault(at, "its modules do not answer")
                free = [name for name in self.spares if name not in failed and name not in places.values()]
                if free:
                    places[member] = free[0]
        state = dataclasses.replace(self.state, failed=failed)
        changed = {member: at for member, at in places.items() if member != at}
        if changed != dict(self.state.places):
            self.journal.record("substituted", dataclasses.replace(state, places=changed), words=reason)
            return
        refused = {**self.state.refused, job.name: reason}
        self.journal.record("refused", dataclasses.replace(state, refused=refused), words=reason)
        self._emit("refused", {"jobs": [job.name], "words": reason})

    def _possible_loops(self, missing: Sequence[CircuitRequest]) -> list[CircuitRequest]:
        loops: list[CircuitRequest] = []
        for name in self.spares:
            candidates = [*loops, *loop_requests(find_unit(self.bench.model, name))]
            with contextlib.suppress(LumionError):
                # Planning is the test: if there is no room, it raises an error and the spare stays cold.
                self.service.setup.plan_change((), [*missing, *candidates])
                loops = candidates
        return loops

    def _retry_refused(self) -> None:
        for job in self.jobs:
            if job.name not in self.state.refused:
                continue
            places = dict(self.state.places)
            for member in job.members:
                at = places.get(member, member)
                if at in self.state.failed:
                    free = [name for name in self.spares if name not in places.values()]
                    if not free:
                        break
                    places[member] = free[0]
            else:
                # Only if the loop found a healthy unit for every member.
                places = {member: at for member, at in places.items() if member != at}
                refused = {name: reason for name, reason in self.state.refused.items() if name != job.name}
                state = dataclasses.replace(self.state, places=places, refused=refused)
                self.journal.record("tried again", state)

    def _remove_circuits(self, requests: Sequence[CircuitRequest], dead_modules: Sequence[str] = ()) -> None:
        active = [request for request in requests if request in self._active_requests()]
        # Waiting for the time-outs of dead modules would delay the recovery, so their circuits are dropped without
        # them.
        dead = [request.name for request in active if {request.source, request.target} & set(dead_modules)]
        remaining = [request.name for request in active if request.name not in dead]
        if dead:
            self.service.drop(dead)
        if remaining:
            self.service.disconnect(remaining)

    def _switch_to_spare(self, plan: StandbyPlan, timer: SpanTimer) -> tuple[CircuitProof, ...]:
        timer.mark("route_found")
        if plan.is_warm and plan.plan is not None:
            return self.service.switch(plan.plan, milestone=timer.mark)
        # The failed unit may still shine, and its light would make proofs of other circuits meaningless.
        self._block_failed_unit(plan.failed)
        self._remove_circuits([*plan.removed, *plan.moved], find_unit(self.bench.model, plan.failed).nics)
        try:
            return self.service.connect([*plan.moved, *plan.added], milestone=timer.mark)
        except LumionError:
            # These circuits belong to healthy units, which must not suffer from the failed attempt.
            if plan.moved:
                self.service.connect(list(plan.moved))
            raise

    def _block_failed_unit(self, failed: str) -> None:
        for nic in find_unit(self.bench.model, failed).nics if failed else ():
            with contextlib.suppress(LumionError):  # it may be dead
                self.bench.transponders[nic].disable()

    def _find_fault(self, circuit: str) -> CircuitFinding | str:
        """Return where a circuit loses its light, or the reason why that is unknown."""
        try:
            return self.service.diagnose(circuit)
        except LumionError as error:
            self._raise_if_controller(error)
            check_faults(self.bench)
            return str(error)

    def _reroute_plan(self, decision: Reroute) -> CircuitPlan:
        setup, request = self.service.setup, decision.request
        try:
            return setup.plan_change([request], [request], avoid=decision.avoid)
        except RoutingError:
            return setup.plan_change([request, *decision.idle], [request], avoid=decision.avoid)

    def check_job_circuits(self) -> None:
        """Check that the circuits of all jobs carry their light.

        Raises:
            CircuitError: A job is refused, or a circuit is dark or not connected; the message lists all.
            LumionError: A device does not answer.
        """
        failed = [f"{job} is refused: {reason}" for job, reason in self.state.refused.items()]
        active = self._active_requests()
        failed += [
            f"{required_request.name} is not connected"
            for required_request in self._required_requests()
            if required_request not in active
        ]
        failed += [
            f"{proof.circuit.request.name}: {', '.join(proof.failures)}" for proof in self.confirm() if not proof.proven
        ]
        if failed:
            raise CircuitError(
                f"some circuits of the jobs do not carry light: {'; '.join(failed)}",
                hint="`lumion fabric status BENCH` shows jobs, spares and failed units.",
            )

    def confirm(self) -> tuple[CircuitProof, ...]:
        """Measure all circuits of the jobs, and report those that fail the check.

        Raises:
            LumionError: A device does not answer.
        """
        required = self._required_requests()
        self.service.setup.await_los_clear(required)
        proofs = tuple(proof for proof in self.service.setup.prove() if proof.circuit.request in required)
        failed = [proof for proof in proofs if not proof.proven]
        if failed:
            self._emit("not confirmed", {"circuits": {str(p.circuit.request): list(p.failures) for p in failed}})
        return proofs
