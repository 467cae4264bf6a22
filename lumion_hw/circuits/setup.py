"""Circuit set-up: program the mesh for circuits, check them by measured light, or roll everything back."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from lumion_hw.bench.bench import Bench
from lumion_hw.bench.record_use import check_use
from lumion_hw.circuits.coherent import transmitters_of
from lumion_hw.circuits.diagnosis import CircuitFinding
from lumion_hw.circuits.lighting import CircuitLighting
from lumion_hw.circuits.mesh_setting import combined_plan, pucs_of, record_avoiding, setting_with_active
from lumion_hw.circuits.plan.planned import CircuitPlan, PlannedCircuit
from lumion_hw.circuits.plan.planner import plan_circuits
from lumion_hw.circuits.plan.request import CircuitRequest
from lumion_hw.circuits.proof import CircuitProof, describe_proofs, expected_level_dbm, proof_event
from lumion_hw.circuits.spans import Milestone, Spans
from lumion_hw.errors import CircuitError, ConfigError, LumionError, RoutingError
from lumion_hw.mesh.layout.topology import State
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.mesh.record.validity import Policy
from lumion_hw.mesh.routing.request import Progress, no_progress
from lumion_hw.polarization import Aligner

GLITCH_DB = 0.3
"""Allowed change in dB of an active circuit's light while others are set up (on-chip photodiodes: 0.05 dB)."""
_MAX_DISTURBANCE_DB = 3.0
"""Change in dB, larger than any drift during a polarization search, from which a circuit counts as lost."""
_LOST_DB = 6.0
"""Light that is weaker than planned by more than this is not that of the circuit: the launch power of a module differs
from the planned one by up to 3 dB, and a circuit loses at most 3 dB before it counts as lost."""
_MAX_ROUTES = 3
"""Largest number of routes tried before all changes are undone."""


@dataclass(frozen=True)
class _StateBeforeChange:
    """Bench state before a change.

    Attributes:
        driven_ma: Heater currents, shape ``(2 n_pucs,)``.
        transmitting: Transmitters that were on, of those that the change may switch.
        levels_dbm: Power in the output fibre of each arm of the circuits that stay; ``None`` for a dark arm.
    """

    driven_ma: NDArray[np.float64]
    transmitting: frozenset[str]
    levels_dbm: tuple[float | None, ...]


@dataclass
class PreparedChange:
    """New circuits that the mesh is programmed for, while their transmitters are dark or being lit.

    Attributes:
        plan: All circuits that the mesh is programmed for.
        requests: The new circuits.
        removed: The circuits that they replace.
        before: State of the bench before the change.
        proofs: Results of the new circuits that were lit.
    """

    plan: CircuitPlan
    requests: tuple[CircuitRequest, ...]
    removed: tuple[PlannedCircuit, ...]
    before: _StateBeforeChange
    proofs: dict[CircuitRequest, CircuitProof] = field(default_factory=dict)

    @property
    def circuits(self) -> tuple[PlannedCircuit, ...]:
        """The new circuits with their paths."""
        return tuple(circuit for circuit in self.plan.circuits if circuit.request in self.requests)


class PathSetup:
    """Sets up circuits on a calibrated bench and remembers the active ones.

    Args:
        record: Calibration record of the mesh.
        aligner: Polarization search; may be shared with the calibration.
        policy: Whether a record that is outdated or made at another temperature is refused or causes a warning.

    Attributes:
        active: Plan of all active circuits; ``None`` if there are none, or if their state is unknown after an error.
    """

    def __init__(
        self, bench: Bench, record: CalibrationRecord, aligner: Aligner | None = None, policy: Policy = "warn"
    ) -> None:
        bench.mesh.check_record(record)
        check_use(bench, record, policy)
        self.bench = bench
        self.record = record
        self._lighting = CircuitLighting(bench, record, aligner or Aligner(bench.clock))
        self.active: CircuitPlan | None = None

    def plan(self, requests: Sequence[CircuitRequest], *, fixed: Mapping[int, State] | None = None) -> CircuitPlan:
        """Plan circuits without changing the bench.

        Arguments and errors are those of :func:`~lumion_hw.circuits.plan_circuits`.
        """
        return plan_circuits(self.bench, self.record, requests, fixed=fixed)

    # -- connect and disconnect ---------------------------------------------------------------------------------------

    def establish(
        self, plan: CircuitPlan, *, align: bool = True, milestone: Milestone = lambda name: None
    ) -> tuple[CircuitProof, ...]:
        """Replace all active circuits by the circuits of a plan and check each by its light, or restore the mesh.

        Args:
            plan: The circuits to set up.
            align: Whether to search the polarization at every input, or only where the loss is too high.
            milestone: Called with the name of each milestone.

        Raises:
            CircuitError: A circuit could not be verified. The message says which one and why; the mesh was rolled back.
            LumionError: A device failed. The mesh was rolled back, unless its controller failed.
        """
        spans = Spans(self.bench, milestone)
        milestone = spans.report_milestone
        before = self._state_before(plan.circuits)
        spans.end_phase("looked")
        with self._rollback_on_error(before, plan.circuits):
            self._make_before_break(plan, before)
            self._program(plan, milestone)
            plan, proofs = self._lighting.light_and_prove(
                plan, plan.circuits, before.transmitting, busy_ports=self._busy_ports, align=align, milestone=milestone
            )
            if not all(proof.proven for proof in proofs):
                raise CircuitError(describe_proofs(proofs))
        self._remember_active_circuits(plan, proofs)
        milestone("link_up")
        spans.log("established", plan.circuits)
        return proofs

    def connect(
        self,
        requests: Sequence[CircuitRequest],
        *,
        align: bool = True,
        milestone: Milestone = lambda name: None,
        progress: Progress = no_progress,
    ) -> tuple[CircuitProof, ...]:
        """Add circuits to the active ones and check them by their light, or leave everything unchanged.

        Active circuits keep exactly the same heater currents. A change of their light above :data:`GLITCH_DB` right
        after programming, or above 3 dB later, is a failure. If a new circuit cannot be verified, other routes are
        tried before everything is rolled back; milestones are then reported again.

        Args:
            requests: The circuits to connect.
            align: Whether to search the polarization at every new input, or only where light is missing.
            milestone: Called with the name of each milestone.
            progress: As for :func:`~lumion_hw.circuits.plan_circuits`.

        Returns:
            Results for the new circuits, in the order of the requests.

        Raises:
            CircuitError: A circuit could not be verified; the message gives the diagnosis and the attempts.
            RoutingError: There are no routes next to the active circuits; nothing was changed.
            ConfigError: A requested circuit is active already, or a module is in use.
            LumionError: A device failed. The mesh was rolled back, unless its controller failed.
        """
        self._check_modules_free(requests, self._active_circuits)
        spans = Spans(self.bench, milestone)
        plan = plan_circuits(self.bench, self.record, requests, active=self._active_circuits, progress=progress)
        before = self._state_before(plan.circuits)
        spans.end_phase("looked")
        with self._rollback_on_error(before, plan.circuits):
            all_circuits, proofs = self._connect_by_routes(plan, before, align, spans.report_milestone)
        self._remember_active_circuits(all_circuits, proofs)
        spans.report_milestone("link_up")
        spans.log("connected", plan.circuits)
        return proofs

    def prepare(self, requests: Sequence[CircuitRequest], removed: Collection[CircuitRequest] = ()) -> PreparedChange:
        """Program the mesh for circuits in addition to the active ones, and leave their transmitters as they are.

        Follow with :meth:`light` and :meth:`keep`, or with :meth:`undo`; change nothing else in between. Raises the
        errors of :meth:`connect`; everything was then rolled back.

        Args:
            requests: The new circuits.
            removed: Active circuits that the new ones replace. Their transmitters are switched off, unless a new
                circuit uses them.
        """
        remaining = None if self.active is None else self._plan_without(self.active, removed)
        staying = () if remaining is None else remaining.circuits
        leaving = tuple(circuit for circuit in self._active_circuits if circuit not in staying)
        self._check_modules_free(requests, staying)
        plan = plan_circuits(self.bench, self.record, requests, active=staying)
        changed = (*plan.circuits, *leaving)
        before = self._state_before(changed, staying)
        with self._rollback_on_error(before, changed):
            off = self._switch_off(leaving, (*staying, *plan.circuits), before)
            # Light that goes with these transmitters was not that of the circuits that stay.
            levels_dbm = self._lighting.fibre_levels_dbm(staying) if off else before.levels_dbm
            all_circuits = self._program_with_active(plan, before, (), lambda name: None, remaining)
            self._check_undisturbed(staying, levels_dbm, GLITCH_DB)
            self._lighting.check_dark(plan.circuits, before.transmitting)
        return PreparedChange(all_circuits, tuple(requests), leaving, replace(before, levels_dbm=levels_dbm))

    def light(self, change: PreparedChange, requests: Collection[CircuitRequest]) -> tuple[CircuitProof, ...]:
        """Switch the light of some prepared circuits on, and check it; a circuit may fail the check.

        The polarization is searched only where light is missing.

        Raises:
            LumionError: A device failed; call :meth:`undo`.
        """
        circuits = [circuit for circuit in change.circuits if circuit.request in requests]
        self._lighting.await_arriving_light(
            [circuit for circuit in circuits if circuit.request.source in self.bench.fibre_ends]
        )
        change.plan, proofs = self._lighting.light_and_prove(
            change.plan,
            circuits,
            change.before.transmitting,
            busy_ports=self._busy_ports,
            align=False,
            milestone=lambda name: None,
        )
        change.proofs |= {proof.circuit.request: proof for proof in proofs}
        return proofs

    def keep(self, change: PreparedChange) -> tuple[CircuitProof, ...]:
        """Make prepared circuits active, and return their results.

        Raises:
            CircuitError: A circuit was not proven by its light, or an active one was disturbed; call :meth:`undo`.
        """
        proofs = tuple(change.proofs.values())
        if len(proofs) < len(change.requests) or not all(proof.proven for proof in proofs):
            raise CircuitError(describe_proofs(proofs) if proofs else "the prepared circuits have no light yet")
        staying = [circuit for circuit in self._active_circuits if circuit not in change.removed]
        self._check_undisturbed(staying, change.before.levels_dbm, _MAX_DISTURBANCE_DB)
        self._remember_active_circuits(change.plan, proofs)
        self.bench.events.add("kept", circuits=[str(request) for request in change.requests])
        return proofs

    def undo(self, change: PreparedChange, reason: str) -> None:
        """Restore the mesh and the transmitters as they were before :meth:`prepare`.

        Raises:
            LumionError: The controller failed; no circuit counts as active.
        """
        self._roll_back(change.before, (*change.circuits, *change.removed), reason)

    def stray_dbm(self) -> float | None:
        """Return the strongest light on the chip at ports without a circuit, in dBm; ``None`` if it is dark there."""
        return self._lighting.stray_dbm(self._busy_ports)

    def plan_change(
        self, removed: Collection[CircuitRequest], added: Sequence[CircuitRequest], *, avoid: Collection[int] = ()
    ) -> CircuitPlan:
        """Plan to replace some active circuits; no device is read or changed.

        The other circuits keep exactly the same heater currents.

        Args:
            removed: Circuits to remove.
            added: Circuits to add.
            avoid: PUCs that new circuits must not use.

        Returns:
            All circuits that are active afterwards, as one setting of the mesh.

        Raises:
            LumionError: As :func:`~lumion_hw.circuits.plan_circuits`.
        """
        remaining = None if self.active is None else self._plan_without(self.active, removed)
        circuits = () if remaining is None else remaining.circuits
        record = record_avoiding(self.record, avoid)
        new = plan_circuits(self.bench, record, added, active=circuits)
        if remaining is None or not circuits:
            return replace(new, active=())
        setting = setting_with_active(
            self.bench.mesh.topology,
            record,
            {**remaining.routing.states, **new.routing.states},
            pucs_of(circuits),
            remaining.currents_ma,
            new.couplings,
        )
        return combined_plan(remaining, new, setting)

    def switch(
        self,
        plan: CircuitPlan,
        launch_dbm: Mapping[str, float | None],
        *,
        milestone: Milestone = lambda name: None,
        arrived: Callable[[CircuitRequest], None] = lambda request: None,
        confirm: Callable[[Sequence[PlannedCircuit]], None] = lambda circuits: None,
    ) -> tuple[CircuitProof, ...]:
        """Program a plan and check its new circuits by the mesh's photodiodes alone.

        Fast, because no module or meter is used: transmitters must be on and aligned. :meth:`prove` can check the
        receivers later.

        Args:
            plan: All circuits that are to be active, from :meth:`plan_change`.
            launch_dbm: Launch power of each transmitter, as its module last reported it.
            milestone: Called with ``programmed``, ``settled`` and ``proven``.
            arrived: Called with each new circuit when its light first arrives.
            confirm: Called with the new circuits once verified; an error raised there causes a rollback.

        Returns:
            Results for the new circuits, without the reports of receivers.

        Raises:
            CircuitError: A circuit could not be verified, or one that stays was disturbed; the change was undone.
            LumionError: The controller failed.
        """
        # The former state comes from memory, because reading it would delay a recovery.
        before = _StateBeforeChange(
            np.zeros_like(plan.currents_ma) if self.active is None else self.active.currents_ma,
            frozenset(launch_dbm),
            (),
        )
        active = {(circuit.request, circuit.paths) for circuit in self._active_circuits}
        new = [circuit for circuit in plan.circuits if (circuit.request, circuit.paths) not in active]
        with self._rollback_on_error(before, new):
            # Do not wait until the heaters have settled: the photodiodes are read meanwhile.
            self.bench.mesh.program(plan.currents_ma, 0.0)
            milestone("programmed")
            proofs = self._lighting.prove_by_photodiodes(new, launch_dbm, milestone, arrived)
            if not all(proof.proven for proof in proofs):
                raise CircuitError(describe_proofs(proofs))
            confirm(new)
        self._remember_active_circuits(plan, proofs)
        for proof in proofs:
            self.bench.events.add("proof", by="photodiodes", **proof_event(proof))
        milestone("proven")
        return proofs

    def disconnect(self, requests: Sequence[CircuitRequest]) -> None:
        """Switch off the transmitters of circuits and free their PUCs.

        Raises:
            ConfigError: A circuit is not active; nothing was changed.
            CircuitError: A circuit that stays was disturbed; everything was rolled back.
            LumionError: A device failed. Everything was rolled back, unless the mesh controller failed.
        """
        active = self._active_circuits
        unknown = [request for request in requests if request not in {circuit.request for circuit in active}]
        if self.active is None or unknown:
            names = ", ".join(map(str, unknown or requests))
            active_names = ", ".join(str(circuit.request) for circuit in active)
            raise ConfigError(f"{names}: no such circuit is active", hint=f"Active circuits: {active_names or 'none'}.")
        removed = [circuit for circuit in active if circuit.request in requests]
        remaining = self._plan_without(self.active, requests)
        before = self._state_before(removed, remaining.circuits)
        with self._rollback_on_error(before, removed):
            off = self._switch_off(removed, remaining.circuits, before)
            # Light that goes with these transmitters was not that of the circuits that stay.
            levels_dbm = self._lighting.fibre_levels_dbm(remaining.circuits) if off else before.levels_dbm
            remaining, shift_rad = self._with_other_pucs_parked(remaining, before.driven_ma)
            self._program(remaining, lambda name: None, shift_rad)
            self._check_undisturbed(remaining.circuits, levels_dbm, GLITCH_DB)
        self.active = remaining if remaining.circuits else None
        self.bench.events.add("disconnected", circuits=[str(request) for request in requests])

    def _switch_off(
        self, leaving: Sequence[PlannedCircuit], staying: Sequence[PlannedCircuit], before: _StateBeforeChange
    ) -> list[str]:
        """Switch off the transmitters that no circuit needs any more, and return their names.

        Do so before the mesh is programmed: a PUC that moves would send their light to other receivers.
        """
        needed = transmitters_of(staying)
        names = [name for name in transmitters_of(leaving) if name not in needed and name in before.transmitting]
        self.bench.run_parallel([(name, self.bench.circuit_module(name).disable) for name in names])
        return names

    def drop(self, requests: Sequence[CircuitRequest]) -> None:
        """Remove circuits from the mesh only, without using their modules, which may be dead.

        Raises:
            LumionError: The controller failed.
        """
        if self.active is None:
            return
        remaining = self._plan_without(self.active, requests)
        if remaining.circuits:
            remaining, _ = self._with_other_pucs_parked(remaining, self.active.currents_ma)
        else:
            remaining = replace(remaining, currents_ma=np.zeros_like(remaining.currents_ma), heat_mw=0.0)
        self.bench.mesh.program(remaining.currents_ma)
        self.active = remaining if remaining.circuits else None
        self.bench.events.add("taken away", circuits=[str(request) for request in requests])

    def adopt(self, plan: CircuitPlan) -> None:
        """Continue with circuits that an earlier program has set up; nothing is changed and no light is measured.

        Raises:
            VerifyError: The controller drives other currents; no circuit counts as active.
            LumionError: The controller does not answer.
        """
        # If the confirmation fails, no circuit must count as active.
        self.active = None
        self.bench.mesh.confirm_driven(plan.currents_ma)
        self.active = plan
        self._lighting.remember_losses((), ())
        self.bench.events.add("adopted", circuits=[str(circuit.request) for circuit in plan.circuits])

    def record_limits(self, requests: Collection[CircuitRequest]) -> bool:
        """Give active circuits the limits of requests with their names; return whether a limit is new."""
        if self.active is None:
            return False
        by_name = {request.name: request for request in requests}
        circuits = tuple(
            replace(circuit, request=by_name.get(circuit.request.name, circuit.request))
            for circuit in self.active.circuits
        )
        is_new = [each.request for each in circuits] != [each.request for each in self.active.circuits]
        self.active = replace(self.active, circuits=circuits)
        return is_new

    # -- measure ------------------------------------------------------------------------------------------------------

    def await_los_clear(self, requests: Collection[CircuitRequest]) -> None:
        """Wait at most one second until no receiver of these circuits reports loss of signal."""
        self._lighting.await_los_clear([circuit for circuit in self._active_circuits if circuit.request in requests])

    def prove(self, requests: Collection[CircuitRequest] | None = None) -> tuple[CircuitProof, ...]:
        """Measure the given circuits, by default all active ones, without changing anything."""
        circuits = self._active_circuits
        return self._lighting.prove(
            [circuit for circuit in circuits if requests is None or circuit.request in requests]
        )

    def prove_reachable(self) -> tuple[tuple[CircuitProof, ...], dict[CircuitRequest, str]]:
        """Measure all active circuits, even if some modules or meters do not answer.

        Returns:
            Results for the circuits that could be measured, and the reason for each other circuit.

        Raises:
            LumionError: The mesh controller does not answer.
        """
        with contextlib.suppress(LumionError):
            return self.prove(), {}
        proofs: list[CircuitProof] = []
        unreachable: dict[CircuitRequest, str] = {}
        for circuit in self._active_circuits:
            try:
                proofs += self.prove([circuit.request])
            except LumionError as error:
                if self.bench.model.mesh_section.is_driven_by(error.device):
                    raise
                unreachable[circuit.request] = str(error)
        return tuple(proofs), unreachable

    def diagnose(self, request: CircuitRequest) -> CircuitFinding:
        """Find out where an active circuit loses its light, by switching its transmitter and PUCs that no other uses.

        Heater currents and the transmitter are restored.

        Raises:
            CircuitError: The light of the circuit arrives, or another circuit needs its transmitter.
            LumionError: A device failed, or the currents could not be restored.
        """
        own = [circuit for circuit in self._active_circuits if circuit.request == request]
        others = [circuit for circuit in self._active_circuits if circuit.request != request]
        if self.active is None or not own:
            raise ConfigError(f"{request}: no such circuit is active")
        before = self._state_before(own, others)
        try:
            findings = self._lighting.diagnose(self.prove([request]), self.active, others, before.driven_ma)
        finally:
            try:
                self.bench.mesh.program(before.driven_ma)
            finally:
                self._restore_transmitters(before, own, transmitters_of(own))
        if not findings:
            raise CircuitError(f"{request}: its light arrives, or another circuit needs its transmitter")
        return findings[0]

    def crosstalk_db(self) -> dict[CircuitRequest, float | None]:
        """Measure the ratio of each active circuit's power to all other light at its output, in dB.

        Each source is switched off in turn, so circuits must carry no traffic. ``None`` where the other light is too
        weak to read.
        """
        return self._lighting.crosstalk_db(self._active_circuits)

    # -- active circuits ----------------------------------------------------------------------------------------------

    @property
    def _active_circuits(self) -> tuple[PlannedCircuit, ...]:
        return self.active.circuits if self.active else ()

    @property
    def _states_in_use(self) -> dict[int, State]:
        return dict(self.active.routing.states) if self.active else {}

    @property
    def _busy_ports(self) -> set[int]:
        return {arm.exit.port for circuit in self._active_circuits for arm in circuit.arms}

    def _check_modules_free(self, requests: Sequence[CircuitRequest], active: Sequence[PlannedCircuit]) -> None:
        for request in requests:
            for circuit in active:
                ends = ((request.source, circuit.request.source), (request.target, circuit.request.target))
                busy = [name for name, other in ends if name == other]
                if busy:
                    raise ConfigError(
                        f"circuit {request}: circuit {circuit.request} already uses {' and '.join(busy)}",
                        hint=f"Disconnect {circuit.request.name} first.",
                    )

    def _plan_without(self, plan: CircuitPlan, requests: Collection[CircuitRequest]) -> CircuitPlan:
        circuits = tuple(circuit for circuit in plan.circuits if circuit.request not in requests)
        pucs = pucs_of(circuits)
        states = {puc: state for puc, state in plan.routing.states.items() if puc in pucs}
        paths = tuple(path for circuit in circuits for path in circuit.paths)
        return replace(plan, circuits=circuits, routing=replace(plan.routing, states=states, paths=paths))

    def _with_other_pucs_parked(self, plan: CircuitPlan, driven_ma: NDArray[np.float64]) -> tuple[CircuitPlan, float]:
        setting = setting_with_active(
            self.bench.mesh.topology, self.record, plan.routing.states, pucs_of(plan.circuits), driven_ma
        )
        parked = replace(plan, states=setting.states, currents_ma=setting.currents_ma, heat_mw=setting.heat_mw)
        return parked, setting.shift_rad

    def _remember_active_circuits(self, plan: CircuitPlan, proofs: Sequence[CircuitProof]) -> None:
        self.active = plan if plan.circuits else None
        self._lighting.remember_losses(plan.circuits, proofs)

    # -- roll back ----------------------------------------------------------------------------------------------------

    def _state_before(
        self, circuits: Sequence[PlannedCircuit], remaining: Sequence[PlannedCircuit] | None = None
    ) -> _StateBeforeChange:
        """Read heater currents, transmitter states and the light of circuits that stay, before a change.

        Args:
            circuits: Circuits whose transmitters the change may switch.
            remaining: Circuits that stay; by default all active ones.
        """
        bench = self.bench
        remaining = self._active_circuits if remaining is None else remaining
        driven_ma: list[NDArray[np.float64]] = []
        transmitting: set[str] = set()
        levels_dbm: list[float | None] = []

        def read_mesh() -> None:
            # Read back if the controller can: another program may have changed the currents.
            driven_ma.append(bench.mesh.confirmed_currents_ma())
            levels_dbm.extend(self._lighting.fibre_levels_dbm(remaining))

        def read_module(name: str) -> None:
            status = bench.circuit_module(name).status()
            if not (status.tx_disabled or status.tx_fault):
                transmitting.add(name)

        jobs: list[tuple[str, Callable[[], None]]] = [(bench.model.mesh_section.controller, read_mesh)]
        jobs += [(name, functools.partial(read_module, name)) for name in transmitters_of(circuits)]
        bench.run_parallel(jobs)
        return _StateBeforeChange(driven_ma[0], frozenset(transmitting), tuple(levels_dbm))

    @contextlib.contextmanager
    def _rollback_on_error(self, before: _StateBeforeChange, circuits: Sequence[PlannedCircuit]) -> Iterator[None]:
        """Restore mesh and transmitters if the block fails or is interrupted.

        Raises:
            CircuitError: The block raised something other than ``LumionError``, such as a failed computation.
        """
        try:
            yield
        except LumionError as error:
            self._roll_back(before, circuits, str(error))
            raise
        except Exception as error:
            reason = f"unexpected {type(error).__name__}: {error}"
            self._roll_back(before, circuits, reason)
            raise CircuitError(
                f"setting up the circuits ended with an {reason}; the mesh was rolled back",
                hint="Please report it, with the event log.",
            ) from error
        except BaseException as error:  # an interrupt is raised again, even if the controller has failed as well
            with contextlib.suppress(LumionError):
                self._roll_back(before, circuits, type(error).__name__)
            raise

    def _roll_back(self, before: _StateBeforeChange, circuits: Sequence[PlannedCircuit], reason: str) -> None:
        """Drive the former currents again, and restore the transmitters.

        If the currents cannot be driven, no circuit counts as active.
        """
        events, needed = self.bench.events, transmitters_of(self._active_circuits)
        try:
            self.bench.mesh.program(before.driven_ma)
            self.bench.mesh.confirm_driven(before.driven_ma)
        except BaseException as error:  # a second interrupt too: the currents are unknown
            self.active = None
            events.add("not rolled back", reason=str(error) or type(error).__name__, after=reason)
            raise
        finally:
            self._restore_transmitters(before, circuits, needed)
        events.add("rolled back", after=reason, **self._proof_after_rollback())

    def _restore_transmitters(
        self, before: _StateBeforeChange, circuits: Sequence[PlannedCircuit], needed: Collection[str]
    ) -> None:
        for name in transmitters_of(circuits):
            module = self.bench.circuit_module(name)
            try:
                if name in before.transmitting:
                    module.enable()
                elif name not in needed:
                    module.disable()
            except LumionError as error:
                self.bench.events.add("transmitter not rolled back", transmitter=name, reason=str(error))

    def _proof_after_rollback(self) -> dict[str, object]:
        try:
            proofs = self.prove()
        except LumionError as error:
            return {"standing": "not proven", "why": str(error)}
        failed = [f"{proof.circuit.request}: {', '.join(proof.failures)}" for proof in proofs if not proof.proven]
        return {"standing": "not proven", "why": "; ".join(failed)} if failed else {"standing": "proven"}

    def _check_undisturbed(
        self, circuits: Sequence[PlannedCircuit], before_dbm: Sequence[float | None], allowed_db: float
    ) -> None:
        arms = [(circuit, arm) for circuit in circuits for arm in circuit.arms]
        levels_dbm = self._lighting.fibre_levels_dbm(circuits)
        for (circuit, arm), was_dbm, is_dbm in zip(arms, before_dbm, levels_dbm, strict=True):
            if was_dbm is None or was_dbm < expected_level_dbm(circuit, arm) - _LOST_DB:
                continue  # an arm without light, or with stray light only, cannot be disturbed
            if is_dbm is None or abs(is_dbm - was_dbm) > allowed_db:
                change = "dark" if is_dbm is None else f"{is_dbm - was_dbm:+.2f} dB"
                raise CircuitError(
                    f"active circuit {circuit.request} was disturbed ({change}, allowed ±{allowed_db:g} dB)",
                    hint="The mesh was rolled back. Plan all circuits together, with establish().",
                )

    # -- program ------------------------------------------------------------------------------------------------------

    def _make_before_break(self, plan: CircuitPlan, before: _StateBeforeChange) -> None:
        active = {circuit.request: circuit.paths for circuit in self._active_circuits}
        if not any(active.get(circuit.request, circuit.paths) != circuit.paths for circuit in plan.circuits):
            return
        used = pucs_of(self._active_circuits)
        free = np.repeat([puc not in used for puc in range(self.bench.mesh.topology.n_pucs)], 2)
        self.bench.mesh.program(np.where(free, plan.currents_ma, before.driven_ma))
        self.bench.events.add("made before break", heaters=int(free.sum()))

    def _program(self, plan: CircuitPlan, milestone: Milestone, shift_rad: float = 0.0) -> None:
        self.bench.mesh.program(plan.currents_ma)
        heat_mw = round(float(self.record.heater_power_mw(plan.currents_ma).sum()), 2)
        self.bench.events.add(
            "programmed", circuits=len(plan.circuits), heat_mw=heat_mw, standing_shift_rad=round(shift_rad, 4)
        )
        milestone("programmed")

    def _connect_by_routes(
        self, plan: CircuitPlan, before: _StateBeforeChange, align: bool, milestone: Milestone
    ) -> tuple[CircuitPlan, tuple[CircuitProof, ...]]:
        transmitting, suspects, failures = before.transmitting, frozenset[int](), list[str]()
        levels_dbm = before.levels_dbm
        while True:
            all_circuits = self._program_with_active(plan, before, suspects, milestone, self.active)
            # Check immediately: a later change could be an active circuit's own fibre drifting.
            self._check_undisturbed(self._active_circuits, levels_dbm, GLITCH_DB)
            self._lighting.check_dark(plan.circuits, transmitting)
            all_circuits, proofs = self._lighting.light_and_prove(
                all_circuits, plan.circuits, transmitting, busy_ports=self._busy_ports, align=align, milestone=milestone
            )
            if all(proof.proven for proof in proofs):
                self._check_undisturbed(self._active_circuits, levels_dbm, _MAX_DISTURBANCE_DB)
                return all_circuits, proofs
            findings = self._lighting.diagnose(proofs, all_circuits, self._active_circuits, before.driven_ma)
            transmitting = frozenset()  # the diagnosis has switched the new transmitters off
            failure = describe_proofs(proofs) + "".join(f" {finding}" for finding in findings)
            suspects |= {puc for finding in findings for puc in finding.pucs}
            failures.append(failure)
            if not any(finding.pucs for finding in findings) or len(failures) == _MAX_ROUTES:
                raise CircuitError(failure)
            requests = [circuit.request for circuit in plan.circuits]
            record = record_avoiding(self.record, suspects)
            try:
                plan = plan_circuits(self.bench, record, requests, fixed=self._states_in_use)
            except RoutingError as error:
                raise CircuitError(f"{failure} No alternative path was found: {error}") from error
            # The failed attempt took a while, in which the light of active circuits may have drifted by itself.
            levels_dbm = self._lighting.fibre_levels_dbm(self._active_circuits)
            self.bench.events.add("another way", avoiding=sorted(suspects), after=failure)

    def _program_with_active(
        self,
        plan: CircuitPlan,
        before: _StateBeforeChange,
        suspects: Collection[int],
        milestone: Milestone,
        staying: CircuitPlan | None,
    ) -> CircuitPlan:
        setting = setting_with_active(
            self.bench.mesh.topology,
            record_avoiding(self.record, suspects),
            {**staying.routing.states, **plan.routing.states} if staying else plan.routing.states,
            pucs_of(staying.circuits if staying else ()),
            before.driven_ma,
            plan.couplings,
        )
        all_circuits = combined_plan(staying, plan, setting)
        self._program(all_circuits, milestone, setting.shift_rad)
        return all_circuits
