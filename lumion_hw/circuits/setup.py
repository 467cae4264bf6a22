"""Setting circuits up: program, align, prove by measured light, or roll back."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lumion_hw.bench.bench import Bench
from lumion_hw.bench.record_use import check_use
from lumion_hw.circuits.arm_levels import ArmLeveller, ArmLevels
from lumion_hw.circuits.coherent import LOCK_TIMEOUT_S, light_up, refuse_power_feedback, transmitters_of
from lumion_hw.circuits.diagnosis import CircuitFinding, Diagnosis
from lumion_hw.circuits.exit_power import OutputPowerReader
from lumion_hw.circuits.plan import plan_circuits
from lumion_hw.circuits.planned import CircuitPlan, PlannedCircuit
from lumion_hw.circuits.proof import CircuitLight, CircuitProof, Prover, expected_level_dbm, summary, verdict
from lumion_hw.circuits.request import CircuitRequest
from lumion_hw.circuits.spans import Milestone, Spans
from lumion_hw.circuits.standing import combined_plan, pucs_of, record_avoiding, setting_with_active
from lumion_hw.errors import CircuitError, ConfigError, DeviceError, LumionError, RoutingError
from lumion_hw.mesh.layout.topology import State
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.mesh.record.validity import Policy
from lumion_hw.mesh.routing import Path
from lumion_hw.mesh.routing.request import Progress, no_progress
from lumion_hw.polarization import Aligner, Alignment
from lumion_hw.quantities import w_from_dbm

GLITCH_DB = 0.3
"""A standing circuit may change by this much while others come and go; the on-chip photodiodes are good to 0.05 dB."""
_LOST_DB = 3.0
"""By so much none changes by itself while a polarization is searched, as the drift of a fibre may in seconds."""
_STRAY_DB = 15.0
"""Light at an exit before its transmitter is on, below what will arrive: leakage is darker than this."""
_MOST_WAYS = 3
"""Ways tried for a set of circuits before it is rolled back."""
_ALIGNED_WITHIN_DB = 0.3
_DARK = 300.0
"""An exit with so little of the light that should be there has none: PUCs leak less."""
_BRIGHT = 30.0
"""With so much of it, some other port has it: TE of a polarization that nobody has turned yet."""
_DARK_READS = 30
"""Readings of a search that have seen two squeezers over their range: one alone may turn about the polarization."""

_SETTLED_WITHIN_S = 0.02
"""Heaters settle in milliseconds; light that has not come by then does not come."""
_LOOK_AGAIN_S = 0.5e-3


@dataclass(frozen=True)
class _Before:
    """What was there before something was changed.

    Attributes:
        driven_ma: Heater currents.
        lit: Transmitters that were on, of those that are to be used.
        exits_dbm: Light at the exits of standing circuits, arm by arm; ``None`` in the dark.
    """

    driven_ma: NDArray[np.float64]
    lit: frozenset[str]
    exits_dbm: tuple[float | None, ...]


class PathSetup:
    """Sets circuits up on a calibrated bench and remembers what is set up.

    Args:
        bench: The bench.
        record: Calibration of its mesh.
        aligner: Polarization search; share it with the calibration to keep what it learnt.
        policy: Whether a record that is too old, or of another temperature, is refused or warned of.

    Attributes:
        active: All that stands; ``None`` if nothing does, or if nothing is known any more.
    """

    def __init__(
        self, bench: Bench, record: CalibrationRecord, aligner: Aligner | None = None, policy: Policy = "warn"
    ) -> None:
        bench.mesh.check_record(record)
        check_use(bench, record, policy)
        self.bench = bench
        self.record = record
        self._aligner = aligner or Aligner(bench.clock)
        self._exits = OutputPowerReader(bench, record)
        self._prover = Prover(bench, self._exits)
        self.active: CircuitPlan | None = None
        self._proven_loss_db: dict[tuple[CircuitRequest, tuple[Path, ...]], float] = {}

    def plan(self, requests: Sequence[CircuitRequest], *, fixed: Mapping[int, State] | None = None) -> CircuitPlan:
        """Plan circuits; nothing is changed. Arguments and errors of :func:`~lumion_hw.circuits.plan.plan_circuits`."""
        return plan_circuits(self.bench, self.record, requests, fixed=fixed)

    # -- set up, take away --------------------------------------------------------------------------------------------

    def establish(
        self, plan: CircuitPlan, *, align: bool = True, milestone: Milestone = lambda name: None
    ) -> tuple[CircuitProof, ...]:
        """Program a plan in the place of all that stands and prove every circuit, or put the mesh back as it was.

        One atomic commit. A circuit that goes on, but elsewhere, is made before it is broken: what nobody uses of the
        new setting is set first, in a commit of its own.

        Args:
            plan: What to set up.
            align: Search the polarization at every input. Otherwise only where the loss says that it has moved.
            milestone: Told of each milestone reached by the last circuit.

        Raises:
            CircuitError: A circuit was not proven; the message says which and why, and that the mesh was rolled back.
            LumionError: A device failed; the mesh was rolled back, unless it is the controller that failed.
        """
        spans = Spans(self.bench, milestone)
        milestone = spans.reached
        before = self._before(plan.circuits)
        spans.note("looked")
        with self._undone_if_failed(before, plan.circuits):
            self._make_before_break(plan, before)
            self._program(plan, milestone)
            plan, proofs = self._light_and_prove(plan, plan.circuits, before.lit, align, milestone)
            if not all(proof.proven for proof in proofs):
                raise CircuitError(verdict(proofs))
        self._stand(plan, proofs)
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
        """Set circuits up beside those that stand, and prove them, or leave everything as it was.

        Standing circuits keep their PUCs, and these their heater currents exactly; what changes, changes in one atomic
        commit. Their light is measured before and right after: a change by more than :data:`GLITCH_DB` counts as
        failure; so does one by 3 dB until all are proven.
        Circuits that cannot be proven are diagnosed. Where PUCs are suspected, ways round them are tried before all is
        rolled back; milestones then come again.

        Args:
            requests: Circuits wanted.
            align: Search the polarization at the new inputs. Otherwise only where light is missing.
            milestone: Told of each milestone reached by the last circuit.
            progress: As for :func:`~lumion_hw.circuits.plan.plan_circuits`.

        Returns:
            Proofs of the new circuits, in the order of the requests.

        Raises:
            CircuitError: A circuit was not proven; the message says what was found, and what was tried.
            RoutingError: There is no way beside the standing circuits; nothing was changed.
            ConfigError: A circuit of these stands already, or a module is in use.
            LumionError: A device failed; the mesh was rolled back, unless it is the controller that failed.
        """
        self._check_free(requests)
        spans = Spans(self.bench, milestone)
        plan = plan_circuits(self.bench, self.record, requests, standing=self._standing, progress=progress)
        before = self._before(plan.circuits)
        spans.note("looked")
        with self._undone_if_failed(before, plan.circuits):
            whole, proofs = self._connected(plan, before, align, spans.reached)
        self._stand(whole, proofs)
        spans.reached("link_up")
        spans.log("connected", plan.circuits)
        return proofs

    def plan_change(
        self, gone: Collection[CircuitRequest], wanted: Sequence[CircuitRequest], *, avoid: Collection[int] = ()
    ) -> CircuitPlan:
        """Plan circuits in the place of others, beside what stays; nothing is changed and no device is asked.

        What stays keeps its PUCs, and these their heater currents exactly, so that :meth:`switch` disturbs it by the
        heat of new neighbours alone.

        Args:
            gone: Standing circuits that make room.
            wanted: Circuits in their place.
            avoid: PUCs that the new circuits are led round.

        Returns:
            All that stands afterwards, as one setting.

        Raises:
            LumionError: As :func:`~lumion_hw.circuits.plan.plan_circuits`.
        """
        stays = None if self.active is None else self._without(self.active, gone)
        standing = () if stays is None else stays.circuits
        record = record_avoiding(self.record, avoid)
        added = plan_circuits(self.bench, record, wanted, standing=standing)
        if stays is None or not standing:
            return replace(added, standing=())
        setting = setting_with_active(
            self.bench.mesh.topology,
            record,
            {**stays.routing.states, **added.routing.states},
            pucs_of(standing),
            stays.currents_ma,
            added.couplings,
        )
        return combined_plan(stays, added, setting)

    def switch(
        self,
        plan: CircuitPlan,
        launch_dbm: Mapping[str, float | None],
        *,
        milestone: Milestone = lambda name: None,
        arrived: Callable[[CircuitRequest], None] = lambda request: None,
        confirm: Callable[[Sequence[PlannedCircuit]], None] = lambda circuits: None,
    ) -> tuple[CircuitProof, ...]:
        """Program a plan in one commit, and prove its new circuits by the mesh's own photodiodes alone.

        For transmitters that are lit and aligned already: no module and no meter is asked, none is switched. What they
        say can follow with :meth:`prove`. The light is looked at while the heaters settle, and counts once two looks in
        a row have found it where it belongs.

        Args:
            plan: All that is to stand, of :meth:`plan_change`.
            launch_dbm: Launch power of each transmitter as its module reported it last.
            milestone: Told of ``programmed``, ``settled`` and ``proven``.
            arrived: Told of each new circuit when its light is first seen where it belongs.
            confirm: Given the new circuits once their light is proven; what it raises takes the change back.

        Returns:
            Proofs of the new circuits; what receivers say is not in them.

        Raises:
            CircuitError: A circuit was not proven, or one that stays was disturbed; the former table is driven again.
            LumionError: The controller failed.
        """
        before = _Before(
            np.zeros_like(plan.currents_ma) if self.active is None else self.active.currents_ma,
            frozenset(launch_dbm),
            (),
        )
        stood = {(circuit.request, circuit.paths) for circuit in self._standing}
        new = [circuit for circuit in plan.circuits if (circuit.request, circuit.paths) not in stood]
        with self._undone_if_failed(before, new):
            self.bench.mesh.program(plan.currents_ma, 0.0)
            milestone("programmed")
            proofs = self._proofs_by_photodiodes(new, launch_dbm, milestone, arrived)
            if not all(proof.proven for proof in proofs):
                raise CircuitError(verdict(proofs))
            confirm(new)
        self._stand(plan, proofs)
        for proof in proofs:
            self.bench.events.add("proof", by="photodiodes", **summary(proof))
        milestone("proven")
        return proofs

    def _proofs_by_photodiodes(
        self,
        circuits: Sequence[PlannedCircuit],
        launch_dbm: Mapping[str, float | None],
        milestone: Milestone,
        arrived: Callable[[CircuitRequest], None],
    ) -> tuple[CircuitProof, ...]:
        """Look at the exits until two looks in a row prove all circuits, or heaters have had time enough."""
        mesh, clock = self.bench.mesh, self.bench.clock
        arms = [len(circuit.arms) for circuit in circuits]
        exits = [arm.exit for circuit in circuits for arm in circuit.arms]
        deadline = clock.now() + max(3.0 * mesh.settle_s, _SETTLED_WITHIN_S)
        was_proven = False
        told: set[CircuitRequest] = set()
        while True:
            seen = iter(self._exits.fibre_levels_dbm(exits))
            light = [
                CircuitLight(launch_dbm.get(circuit.request.source), tuple(next(seen) for _ in range(count)), los=False)
                for circuit, count in zip(circuits, arms, strict=True)
            ]
            proofs = self._prover.judge(self.record, circuits, light, {}, {})
            is_proven = all(proof.proven for proof in proofs)
            for proof in proofs:
                if proof.proven and proof.circuit.request not in told:
                    told.add(proof.circuit.request)
                    arrived(proof.circuit.request)
            if is_proven and not was_proven:
                milestone("settled")
            if (is_proven and was_proven) or clock.now() >= deadline:
                return proofs
            was_proven = is_proven
            if not is_proven:
                clock.sleep(_LOOK_AGAIN_S)

    def disconnect(self, requests: Sequence[CircuitRequest]) -> None:
        """Take circuits away: their transmitters go dark first, then PUCs that nobody needs are parked.

        Raises:
            ConfigError: One of them does not stand; nothing was changed.
            CircuitError: A circuit that stays was disturbed; all are as they were.
            LumionError: A device failed; all are as they were, unless it is the controller that failed.
        """
        standing = self._standing
        unknown = [request for request in requests if request not in {circuit.request for circuit in standing}]
        if self.active is None or unknown:
            names = ", ".join(map(str, unknown or requests))
            there = ", ".join(str(circuit.request) for circuit in standing)
            raise ConfigError(f"{names}: no such circuit stands", hint=f"These do: {there or 'none'}.")
        gone = [circuit for circuit in standing if circuit.request in requests]
        left = self._without(self.active, requests)
        needed = transmitters_of(left.circuits)
        before = self._before(gone, left.circuits)
        with self._undone_if_failed(before, gone):
            self._switch_off([name for name in transmitters_of(gone) if name not in needed and name in before.lit])
            setting = setting_with_active(
                self.bench.mesh.topology,
                self.record,
                left.routing.states,
                pucs_of(left.circuits),
                before.driven_ma,
            )
            left = replace(left, states=setting.states, currents_ma=setting.currents_ma, heat_mw=setting.heat_mw)
            self._program(left, lambda name: None, setting.shift_rad)
            self._check_undisturbed(left.circuits, before.exits_dbm, GLITCH_DB)
        self.active = left if left.circuits else None
        self.bench.events.add("disconnected", circuits=[str(request) for request in requests])

    def adopt(self, plan: CircuitPlan) -> None:
        """Take over what an earlier program has set up; the controller's read-back has to confirm it.

        Nothing is changed and nothing is measured: :meth:`prove` does that.

        Raises:
            VerifyError: The controller drives something else; nothing counts as set up.
            LumionError: The controller does not answer.
        """
        self.active = None
        self.bench.mesh.confirm_driven(plan.currents_ma)
        self.active = plan
        self._proven_loss_db = {}
        self.bench.events.add("adopted", circuits=[str(circuit.request) for circuit in plan.circuits])

    def drop(self, requests: Sequence[CircuitRequest]) -> None:
        """Take circuits down without asking their modules, which may be dead; what stays keeps its currents exactly.

        Raises:
            LumionError: The controller failed.
        """
        if self.active is None:
            return
        left = self._without(self.active, requests)
        if left.circuits:
            setting = setting_with_active(
                self.bench.mesh.topology,
                self.record,
                left.routing.states,
                pucs_of(left.circuits),
                self.active.currents_ma,
            )
            left = replace(left, states=setting.states, currents_ma=setting.currents_ma, heat_mw=setting.heat_mw)
        else:
            left = replace(left, currents_ma=np.zeros_like(left.currents_ma), heat_mw=0.0)
        self.bench.mesh.program(left.currents_ma)
        self.active = left if left.circuits else None
        self.bench.events.add("taken away", circuits=[str(request) for request in requests])

    def await_los_clear(self, requests: Collection[CircuitRequest]) -> None:
        """Wait until no receiver of these circuits reports loss of signal, a second at the most."""
        self._prover.await_los_clear([each for each in self._standing if each.request in requests])

    def prove(self, requests: Collection[CircuitRequest] | None = None) -> tuple[CircuitProof, ...]:
        """Measure the circuits that are set up, or those of some requests, changing nothing."""
        return self._proofs([each for each in self._standing if requests is None or each.request in requests])

    def prove_reachable(self) -> tuple[tuple[CircuitProof, ...], dict[CircuitRequest, str]]:
        """Measure all circuits that are set up, also while some modules or meters do not answer.

        Returns:
            Proofs of the circuits that could be measured, and why each other one could not.

        Raises:
            LumionError: The mesh controller does not answer.
        """
        with contextlib.suppress(LumionError):
            return self.prove(), {}
        proofs: list[CircuitProof] = []
        silent: dict[CircuitRequest, str] = {}
        for circuit in self._standing:
            try:
                proofs += self.prove([circuit.request])
            except LumionError as error:
                if error.device == self.bench.model.mesh_section.controller:
                    raise
                silent[circuit.request] = str(error)
        return tuple(proofs), silent

    def crosstalk_db(self) -> dict[CircuitRequest, float | None]:
        """Measure, circuit by circuit, the wanted power over all other light at its exit.

        Each source is switched off in turn while the others go on; ``None`` where the rest is too dark to read. The
        circuits carry no traffic meanwhile.
        """
        result: dict[CircuitRequest, float | None] = {}
        for circuit in self._standing:
            module = self.bench.transponders[circuit.request.source]
            wanted_dbm = self._exits.fibre_level_dbm(circuit.exit)
            module.disable()
            try:
                rest_dbm = self._exits.fibre_level_dbm(circuit.exit)
            finally:
                module.enable()
            if wanted_dbm is None or rest_dbm is None:
                result[circuit.request] = None
            else:
                result[circuit.request] = wanted_dbm - rest_dbm
        return result

    # -- what stands --------------------------------------------------------------------------------------------------

    @property
    def _standing(self) -> tuple[PlannedCircuit, ...]:
        return self.active.circuits if self.active else ()

    @property
    def _states_in_use(self) -> dict[int, State]:
        return dict(self.active.routing.states) if self.active else {}

    def _check_free(self, requests: Sequence[CircuitRequest]) -> None:
        """Refuse modules that a standing circuit uses in the same direction."""
        for request in requests:
            for circuit in self._standing:
                taken = [
                    name
                    for name, end in (
                        (request.source, circuit.request.source),
                        (request.target, circuit.request.target),
                    )
                    if name == end
                ]
                if taken:
                    raise ConfigError(
                        f"circuit {request}: {' and '.join(taken)} serves {circuit.request} already",
                        hint="Disconnect that one first.",
                    )

    def _without(self, plan: CircuitPlan, requests: Collection[CircuitRequest]) -> CircuitPlan:
        """Return what is left of a plan; PUCs of the others are free, whatever their currents."""
        keep = [number for number, circuit in enumerate(plan.circuits) if circuit.request not in requests]
        circuits = tuple(plan.circuits[number] for number in keep)
        pucs = pucs_of(circuits)
        states = {puc: state for puc, state in plan.routing.states.items() if puc in pucs}
        routing = replace(
            plan.routing, states=states, paths=tuple(path for circuit in circuits for path in circuit.paths)
        )
        return replace(plan, circuits=circuits, routing=routing)

    def _stand(self, plan: CircuitPlan, proofs: Sequence[CircuitProof]) -> None:
        """Remember what is set up now, and the losses of the circuits that were just proven."""
        self.active = plan
        known = {(circuit.request, circuit.paths) for circuit in plan.circuits}
        kept = {key: loss_db for key, loss_db in self._proven_loss_db.items() if key in known}
        self._proven_loss_db = kept | {
            (proof.circuit.request, proof.circuit.paths): proof.measured_loss_db
            for proof in proofs
            if proof.measured_loss_db is not None
        }

    # -- before, and back ---------------------------------------------------------------------------------------------

    def _before(self, circuits: Sequence[PlannedCircuit], standing: Sequence[PlannedCircuit] | None = None) -> _Before:
        """Look at what is about to be changed: currents, transmitters, and the light of the circuits that stay."""
        bench = self.bench
        stay = self._standing if standing is None else standing
        found: dict[str, NDArray[np.float64]] = {}
        lit: set[str] = set()
        exits_dbm: list[float | None] = []

        def ask_mesh() -> None:
            # Read back where the controller can: another program may have set it since.
            found["driven_ma"] = bench.mesh.confirmed_currents_ma()
            exits_dbm.extend(self._lights_dbm(stay))

        def ask_module(name: str) -> None:
            status = bench.transponders[name].status()
            if not (status.tx_disabled or status.tx_fault):
                lit.add(name)

        asked: list[tuple[str, Callable[[], None]]] = [(bench.model.mesh_section.controller, ask_mesh)]
        bench.run_parallel(asked + [(name, functools.partial(ask_module, name)) for name in transmitters_of(circuits)])
        return _Before(found["driven_ma"], frozenset(lit), tuple(exits_dbm))

    @contextlib.contextmanager
    def _undone_if_failed(self, before: _Before, circuits: Sequence[PlannedCircuit]) -> Iterator[None]:
        """Put mesh and transmitters back as they were if what follows fails or is interrupted.

        Raises:
            CircuitError: The block raised something else than a ``LumionError``, such as a failing computation.
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
                f"setting up the circuits ended with an {reason}; all is as it was before",
                hint="Please report it, with the event log.",
            ) from error
        except BaseException as error:  # an interrupt stays one, even if the controller is gone as well
            with contextlib.suppress(LumionError):
                self._roll_back(before, circuits, type(error).__name__)
            raise

    def _roll_back(self, before: _Before, circuits: Sequence[PlannedCircuit], reason: str) -> None:
        """Drive the former currents again, and switch the transmitters back.

        If the currents cannot be driven, nothing counts as set up, and the transmitters are switched back all the same.
        Polarizations stay where a search has left them: the right setting depends on the fibre alone.
        """
        events, needed = self.bench.events, transmitters_of(self._standing)
        try:
            self.bench.mesh.program(before.driven_ma)
            self.bench.mesh.confirm_driven(before.driven_ma)
        except BaseException as error:  # a second interrupt too: the currents are unknown
            self.active = None
            events.add("not rolled back", reason=str(error) or type(error).__name__, after=reason)
            raise
        finally:
            self._switch_back(before, circuits, needed)
        events.add("rolled back", after=reason, **self._standing_verdict())

    def _switch_back(self, before: _Before, circuits: Sequence[PlannedCircuit], needed: Collection[str]) -> None:
        """Switch transmitters on that were on before, and off that were off; one that fails is in the event log."""
        for name in transmitters_of(circuits):
            module = self.bench.transponders[name]
            try:
                if name in before.lit:
                    module.enable()
                elif name not in needed:
                    module.disable()
            except LumionError as error:
                self.bench.events.add("transmitter not rolled back", transmitter=name, reason=str(error))

    def _standing_verdict(self) -> dict[str, object]:
        """Prove what stands, after a rollback; a device that does not answer is part of the verdict."""
        try:
            proofs = self.prove()
        except LumionError as error:
            return {"standing": "not proven", "why": str(error)}
        bad = [f"{proof.circuit.request}: {', '.join(proof.failures)}" for proof in proofs if not proof.proven]
        return {"standing": "not proven", "why": "; ".join(bad)} if bad else {"standing": "proven"}

    def _lights_dbm(self, circuits: Sequence[PlannedCircuit]) -> tuple[float | None, ...]:
        """Return the light at the exits of circuits, arm by arm; ``None`` in the dark."""
        return tuple(self._exits.fibre_levels_dbm([arm.exit for circuit in circuits for arm in circuit.arms]))

    def _check_undisturbed(
        self, stay: Sequence[PlannedCircuit], before_dbm: Sequence[float | None], allowed_db: float
    ) -> None:
        """Compare the light of the circuits that stay with what it was before.

        Raises:
            CircuitError: One of them has changed by more than is allowed.
        """
        arms = [circuit for circuit in stay for _ in circuit.arms]
        for circuit, was_dbm, is_dbm in zip(arms, before_dbm, self._lights_dbm(stay), strict=True):
            if was_dbm is None:
                continue  # dark before: nothing of it to be disturbed
            if is_dbm is None or abs(is_dbm - was_dbm) > allowed_db:
                now = "dark" if is_dbm is None else f"{is_dbm - was_dbm:+.2f} dB"
                raise CircuitError(
                    f"standing circuit {circuit.request} was disturbed ({now}, allowed ±{allowed_db:g} dB)",
                    hint="All is as it was before. Plan all circuits anew together, with establish().",
                )

    # -- change -------------------------------------------------------------------------------------------------------

    def _make_before_break(self, plan: CircuitPlan, before: _Before) -> None:
        """Where a circuit goes on elsewhere, set first what nobody who stands uses."""
        stands = {circuit.request: circuit.paths for circuit in self._standing}
        if not any(stands.get(circuit.request, circuit.paths) != circuit.paths for circuit in plan.circuits):
            return
        used = pucs_of(self._standing)
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

    def _connected(
        self, plan: CircuitPlan, before: _Before, align: bool, milestone: Milestone
    ) -> tuple[CircuitPlan, tuple[CircuitProof, ...]]:
        """Try ways for new circuits until all are proven; return what stands then, and the proofs of the new ones."""
        lit, suspects, tried = before.lit, frozenset[int](), list[str]()
        was_dbm = before.exits_dbm
        while True:
            whole = self._set_beside(plan, before, suspects, milestone)
            # At once, for what takes longer may be a fibre of theirs that moves by itself.
            self._check_undisturbed(self._standing, was_dbm, GLITCH_DB)
            self._check_dark(plan.circuits, lit)
            whole, proofs = self._light_and_prove(whole, plan.circuits, lit, align, milestone)
            if all(proof.proven for proof in proofs):
                self._check_undisturbed(self._standing, was_dbm, _LOST_DB)
                return whole, proofs
            findings = self._diagnosed(proofs, whole, before)
            lit = frozenset()  # a diagnosis leaves them dark
            failure = verdict(proofs) + "".join(f" {finding}" for finding in findings)
            suspects |= {puc for finding in findings for puc in finding.pucs}
            tried.append(failure)
            if not any(finding.pucs for finding in findings) or len(tried) == _MOST_WAYS:
                raise CircuitError(failure)
            requests = [circuit.request for circuit in plan.circuits]
            try:
                plan = plan_circuits(
                    self.bench, record_avoiding(self.record, suspects), requests, fixed=self._states_in_use
                )
            except RoutingError as error:
                raise CircuitError(f"{failure} There is no other way: {error}") from error
            was_dbm = self._lights_dbm(self._standing)
            self.bench.events.add("another way", avoiding=sorted(suspects), after=failure)

    def _set_beside(
        self, plan: CircuitPlan, before: _Before, suspects: Collection[int], milestone: Milestone
    ) -> CircuitPlan:
        """Program new circuits beside those that stand, and return all of them as one plan."""
        setting = setting_with_active(
            self.bench.mesh.topology,
            record_avoiding(self.record, suspects),
            self._states_in_use | plan.routing.states,
            pucs_of(self._standing),
            before.driven_ma,
            plan.couplings,
        )
        whole = combined_plan(self.active, plan, setting)
        self._program(whole, milestone, setting.shift_rad)
        return whole

    def _check_dark(self, circuits: Sequence[PlannedCircuit], lit: Collection[str]) -> None:
        """Refuse exits that are lit before their transmitter is on: what arrives there later would prove nothing.

        Raises:
            CircuitError: There is such light; the message says where and how much.
        """
        dark = [(each, arm) for each in circuits if each.request.source not in lit for arm in each.arms]
        strays_dbm = self._exits.fibre_levels_dbm([arm.exit for _, arm in dark], monitors_only=True)
        for (circuit, arm), stray_dbm in zip(dark, strays_dbm, strict=True):
            if stray_dbm is not None and stray_dbm > expected_level_dbm(circuit, arm) - _STRAY_DB:
                raise CircuitError(
                    f"circuit {circuit.request}: port {arm.exit.port} should be dark and has {stray_dbm:.1f} dBm "
                    f"before {circuit.request.source} is switched on",
                    hint="Another source shines into the mesh: look for a laser or module left on, or swapped fibres.",
                )

    def _diagnosed(
        self, proofs: Sequence[CircuitProof], whole: CircuitPlan, before: _Before
    ) -> tuple[CircuitFinding, ...]:
        """Find out what is wrong with circuits that were not proven; all new transmitters are dark afterwards."""
        # A module that a standing circuit needs cannot be switched off to see whose light is where.
        needed = transmitters_of(self._standing)
        alone = [proof for proof in proofs if not set(transmitters_of([proof.circuit])) & set(needed)]
        diagnosis = Diagnosis(self.bench, self.record, self._exits, whole, pucs_of(self._standing), before.driven_ma)
        findings = diagnosis.of(alone)
        for finding in findings:
            self.bench.events.add("diagnosis", **finding.as_event())
        return findings

    # -- light --------------------------------------------------------------------------------------------------------

    def _light_and_prove(
        self,
        plan: CircuitPlan,
        circuits: Sequence[PlannedCircuit],
        lit: Collection[str],
        align: bool,
        milestone: Milestone,
    ) -> tuple[CircuitPlan, tuple[CircuitProof, ...]]:
        """Switch light on, align polarizations, level arms, wait for the receivers, and judge; all is in the log.

        Args:
            plan: All that is driven.
            circuits: Those of it that are new.
            lit: Transmitters that are on already.
            align: Search the polarization at every new input.
            milestone: Told of each milestone.

        Returns:
            The plan with arms levelled, and the proofs of the new circuits.
        """
        bench = self.bench
        # Light before the polarization search, which has nothing else to go by.
        light_up(bench, circuits, lit)
        movable = [circuit for circuit in circuits if circuit.entry.polarization is not None]
        light: list[CircuitLight] | None = None
        if not align:
            light = self._prover.look(circuits)
            seen = dict(zip((circuit.request for circuit in circuits), light, strict=True))
            movable = [circuit for circuit in movable if not self._is_in_place(circuit, seen[circuit.request])]
        alignments = self._align(movable, circuits)
        plan, levels = self._level_arms(plan, circuits)
        circuits = [each for each in plan.circuits if each.request in {circuit.request for circuit in circuits}]
        milestone("settled")
        if light is None or movable or levels or any(seen.los for seen in light):
            self._prover.await_los_clear(circuits)
            light = None
        milestone("los_clear")
        proofs = self._proofs(circuits, alignments, light, LOCK_TIMEOUT_S, levels)
        for proof in proofs:
            bench.events.add("proof", **summary(proof))
        return plan, proofs

    def _level_arms(
        self, plan: CircuitPlan, circuits: Sequence[PlannedCircuit]
    ) -> tuple[CircuitPlan, dict[CircuitRequest, ArmLevels]]:
        """Tell the arms of new circuits of two polarizations apart at their receivers, and level them."""
        found: dict[CircuitRequest, ArmLevels] = {}
        leveller = ArmLeveller(self.bench, self.record)
        for circuit in circuits:
            if circuit.strategy == "dual":
                driven = next(each for each in plan.circuits if each.request == circuit.request)
                plan, found[circuit.request] = leveller.level(plan, driven)
        return plan, found

    def _proofs(
        self,
        circuits: Sequence[PlannedCircuit],
        alignments: Mapping[CircuitRequest, Alignment] | None = None,
        light: Sequence[CircuitLight] | None = None,
        lock_timeout_s: float = 0.0,
        levels: Mapping[CircuitRequest, ArmLevels] | None = None,
    ) -> tuple[CircuitProof, ...]:
        """Judge circuits by what is seen of them now, or was seen just before."""
        seen = self._prover.look(circuits) if light is None else light
        proofs = self._prover.judge(self.record, circuits, seen, alignments or {}, levels or {})
        return self._prover.accept(proofs, lock_timeout_s)

    def _switch_off(self, names: Sequence[str]) -> None:
        self.bench.run_parallel([(name, self.bench.transponders[name].disable) for name in names])

    def _align(
        self, circuits: Sequence[PlannedCircuit], lit: Sequence[PlannedCircuit]
    ) -> dict[CircuitRequest, Alignment]:
        """Search the polarization at the inputs of circuits, side by side; of ``lit`` ones that have light."""
        taken = {arm.exit.port for each in (*self._standing, *lit) for arm in each.arms}
        output_powers_w = (
            self._exits.output_powers_w() if circuits else {}
        )  # once for all, who then search side by side
        jobs = [functools.partial(self._aligned, circuit, output_powers_w, taken) for circuit in circuits]
        found = self.bench.clock.run_parallel(jobs)
        alignments = {}
        for circuit, alignment in zip(circuits, found, strict=True):
            name = circuit.entry.polarization
            if isinstance(alignment, LumionError):
                self.bench.events.add("not aligned", controller=name, reason=str(alignment))
                continue
            alignments[circuit.request] = alignment
            self.bench.events.add(
                "aligned",
                controller=name,
                reads=alignment.reads,
                swing_db=round(alignment.swing_db, 2),
                remaining_loss_db=round(alignment.remaining_loss_db, 3),
                method=alignment.method,
            )
        return alignments

    def _is_in_place(self, circuit: PlannedCircuit, light: CircuitLight) -> bool:
        """Return whether so little light is lost that the polarization cannot have moved."""
        # Polarization that has moved can only cost light; a circuit in service is compared with its own last proof, so
        # that a prediction a little off never starts a search under somebody's traffic.
        loss_db = light.mesh_loss_db(circuit)
        last_db = self._proven_loss_db.get((circuit.request, circuit.paths), circuit.budget.mesh_loss_db)
        return loss_db is not None and loss_db < max(last_db, circuit.budget.mesh_loss_db) + _ALIGNED_WITHIN_DB

    def _aligned(
        self, circuit: PlannedCircuit, output_powers_w: Mapping[int, float], taken: Collection[int]
    ) -> Alignment | CircuitError | DeviceError:
        """Search one polarization; a search in vain is returned: the proof judges all circuits together."""
        name = circuit.entry.polarization or ""
        try:
            refuse_power_feedback(circuit)
            self._refuse_other_way(circuit, output_powers_w, taken)
            return self._aligner.maximise(name, self.bench.polarizer(name), self._light_to_search_by(circuit))
        except (CircuitError, DeviceError) as error:
            return error

    def _refuse_other_way(
        self, circuit: PlannedCircuit, output_powers_w: Mapping[int, float], taken: Collection[int]
    ) -> None:
        """Refuse to search by the leakage at an exit while the light itself leaves the mesh elsewhere.

        Raises:
            CircuitError: It does; the message says where.
        """
        arm = circuit.arms[0]
        bright_w = w_from_dbm(expected_level_dbm(circuit, arm) + self._exits.facet_loss_db(arm.exit.port))
        elsewhere = [port for port, w in output_powers_w.items() if port not in taken and w > bright_w / _BRIGHT]
        if elsewhere and output_powers_w.get(arm.exit.port, bright_w) < bright_w / _DARK:
            raise CircuitError(
                f"circuit {circuit.request}: port {arm.exit.port} is dark, and light leaves the mesh at {elsewhere}"
            )

    def _light_to_search_by(self, circuit: PlannedCircuit) -> Callable[[], float]:
        """Return what reads the light at an exit, until it is clear that there is none."""
        arm = circuit.arms[0]
        dark_w = self._exits.expected_fast_reading_w(arm.exit, expected_level_dbm(circuit, arm)) / _DARK
        readings: list[float] = []

        def read_w() -> float:
            power_w = self._exits.read_fastest_w(arm.exit)
            readings.append(power_w)
            if len(readings) == _DARK_READS and max(readings) < dark_w:
                raise CircuitError(
                    f"no light arrives at port {arm.exit.port}, whatever the polarization",
                    device=circuit.entry.polarization,
                    hint="Check the source, the fibre and the path behind the controller.",
                )
            return power_w

        return read_w
