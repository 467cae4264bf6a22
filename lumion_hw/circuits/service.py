"""Circuits that stay connected when a program ends; a journal lets the next program continue."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path as FilePath
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lumion_hw.bench.bench import Bench
from lumion_hw.bench.controller_faults import check_faults, clear_host_silence
from lumion_hw.bench.fibre_devices import wiring_with_device_losses
from lumion_hw.circuits.diagnosis import CircuitFinding
from lumion_hw.circuits.lease_clock import LeaseClock
from lumion_hw.circuits.lock import BenchLock
from lumion_hw.circuits.plan.difference import CircuitDifference, OnRefusal, plan_difference
from lumion_hw.circuits.plan.planned import CircuitPlan, PlannedCircuit
from lumion_hw.circuits.plan.request import CircuitRequest
from lumion_hw.circuits.proof import CircuitProof
from lumion_hw.circuits.setup import PathSetup
from lumion_hw.circuits.spans import Milestone
from lumion_hw.circuits.state import (
    ActiveCircuit,
    CircuitJournal,
    CircuitState,
    MeshFinding,
    MeshVerdict,
    active_circuit,
    compare_with_mesh,
    restored_plan,
)
from lumion_hw.errors import LIST_FAULTS, CircuitError, ConfigError, LumionError, SafetyError
from lumion_hw.files import AnyPath
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.mesh.routing.request import Progress, no_progress
from lumion_hw.polarization import Aligner, Alignment
from lumion_hw.storage.record_files import load_record

_FOREIGN_CHANGE_HINT = (
    "Another program drives this mesh, or a heater is broken. `lumion disconnect BENCH --all` switches all heaters off."
)


class CircuitService:
    """Circuits of one bench that stay connected between programs. Acquire the bench lock first.

    Args:
        record: Calibration record of the mesh.
        lock: The bench's lock, acquired.
        record_path: Path of the calibration record, stored for later programs.
        aligner: Polarization search.

    Attributes:
        setup: Circuit set-up on the open bench.
        aligner: Polarization search.
        alignments: Latest search result of this program for each polarization controller.
        lock: The bench's lock.
        time: Clock of leases, and the time of day by the bench's clock.
        lost_circuits: Circuits in the journal that are gone because no heater is driven.
    """

    @classmethod
    @contextlib.contextmanager
    def open(
        cls,
        open_bench: Callable[[], Bench],
        record: AnyPath,
        directory: AnyPath,
        *,
        program: str = "script",
        take_over: str | None = None,
    ) -> Iterator[Self]:
        """Lock and open a bench and restore its circuits, as a context manager.

        Circuits stay on afterwards only if the bench is opened with ``leave_on_s``.

        Args:
            open_bench: Opens the bench, such as ``lambda: Bench.open("bench.yaml", leave_on_s=3600.0)``; called after
                the lock is acquired.
            record: The calibration record.
            directory: State directory of the bench; see :func:`~lumion_hw.circuits.state.state_directory`.
            program: Name of this program, shown to other users.
            take_over: Name of the owner to replace; see :class:`~lumion_hw.circuits.lock.BenchLock`.

        Raises:
            BusyError: Another program drives the bench.
            LumionError: Opening the bench, reading the record or :meth:`restore` failed.
        """
        calibration = load_record(record)
        with BenchLock(directory, program, take_over=take_over) as lock, open_bench() as bench:
            if lock.dead_owner is not None:
                bench.events.add("owner died", **dataclasses.asdict(lock.dead_owner))
            with CircuitJournal(directory, bench.model.name, bench.mesh.topology.sha256) as journal:
                service = cls(bench, calibration, journal, lock, str(FilePath(record).resolve()))
                service.restore()
                yield service

    def __init__(
        self,
        bench: Bench,
        record: CalibrationRecord,
        journal: CircuitJournal,
        lock: BenchLock,
        record_path: str | None = None,
        aligner: Aligner | None = None,
    ) -> None:
        self.aligner = aligner or Aligner(bench.clock)
        self.setup = PathSetup(bench, record, self.aligner)
        self.journal = journal
        self.lock = lock
        self.time = LeaseClock(bench.clock)
        self.lost_circuits: tuple[ActiveCircuit, ...] = ()
        self.alignments: dict[str, Alignment] = {}
        self._record = record_path
        for circuit in journal.state.circuits:
            if (end := bench.fibre_ends.get(circuit.request.source)) is not None:
                end.report_arriving(circuit.proof.get("launch_dbm"))
        if doubts := record.doubts_for("switching"):
            bench.events.add("record not certified", record=record_path, reasons=list(doubts))

    @property
    def state(self) -> CircuitState:
        """The active circuits in the journal."""
        return self.journal.state

    def restore(self) -> MeshFinding:
        """Read the heater currents back and continue with the circuits that the mesh still drives.

        An unfinished change is undone. If no heater is driven, the circuits are recorded as gone and listed in
        :attr:`lost`.

        Raises:
            CircuitError: The mesh drives other currents than recorded; the message names PUCs and circuits.
            LumionError: A device failed, or the journal cannot be written.
        """
        mesh, state = self.setup.bench.mesh, self.state
        finding = compare_with_mesh(mesh, state, self.journal.unfinished)
        self.setup.bench.events.add("read back", verdict=finding.verdict.value, pucs=len(finding.differences))
        if finding.verdict is MeshVerdict.DIFFERENT:
            raise CircuitError(
                f"the heaters are not driven as the journal records: {finding}\nNothing was changed.",
                hint=_FOREIGN_CHANGE_HINT,
            )
        with self.lock.changing():
            # The light of an interrupted change was never verified, so the currents before it are restored.
            if finding.verdict is MeshVerdict.CHANGED and finding.unfinished is not None:
                mesh.program(np.array(finding.unfinished.before_ma))
            if finding.verdict is MeshVerdict.DARK:
                if mesh.shares:  # one of several controllers may still drive its share
                    switch_heaters_off(self.setup.bench)
                self.lost_circuits = state.circuits
                state = CircuitState(record=state.record)
                self.setup.bench.events.add("lost", circuits=[circuit.name for circuit in self.lost_circuits])
            if finding.unfinished is not None or self.lost_circuits:
                self.journal.end(f"found {finding.verdict.value}", state)
        self._adopt_if_changed(state)
        if finding.unfinished is not None:
            self._switch_on_transmitters()
        return finding

    def restore_after_shutdown(self) -> tuple[CircuitProof, ...] | None:
        """Set up the journal's circuits again after the controller has switched its heaters off.

        A watchdog fault (this host was silent) is cleared first. Then the recorded currents are driven, transmitters
        are switched on, and every circuit is measured. A circuit that fails the measurement stays connected.

        Returns:
            Results for the circuits that could be measured; ``None`` if the mesh was still driven as recorded.

        Raises:
            SafetyError: Another fault is latched; the message names it and how to clear it. Nothing was changed.
            CircuitError: Another program has changed the mesh; nothing was changed.
            LumionError: A device failed, or the journal cannot be written; call the method again.
        """
        bench, state = self.setup.bench, self.state
        with self.lock.changing():
            cleared = clear_host_silence(bench, self.lock.program)
            finding = compare_with_mesh(bench.mesh, state, self.journal.unfinished)
            if finding.verdict is MeshVerdict.DIFFERENT:
                raise CircuitError(
                    f"the heaters are not driven as the journal records: {finding}\nNothing was changed.",
                    hint=_FOREIGN_CHANGE_HINT,
                )
            if finding.unfinished is not None:
                self.journal.end("taken back: the controller has switched off", state)
            is_driven = bool(bench.mesh.is_driving(self._journal_currents_ma()).all())
            if is_driven and finding.unfinished is None and not cleared:
                return None
            names = [circuit.name for circuit in state.circuits]
            self.journal.begin("set up again", names, np.zeros(len(bench.mesh.heater_channels)))
            if not is_driven:
                bench.mesh.program(self._journal_currents_ma())
            self._adopt_if_changed(state)
            self._switch_on_transmitters()
            with contextlib.suppress(LumionError):  # a receiver that does not answer is named below
                self.setup.await_los_clear([circuit.request for circuit in state.circuits])
            proofs, silent = self.setup.prove_reachable()
            self.end_change(proofs)
        failures = {proof.circuit.request.name: list(proof.failures) for proof in proofs if not proof.proven}
        failures |= {request.name: [reason] for request, reason in silent.items()}
        proven = [name for name in names if name not in failures]
        bench.events.add("set up again", proven=proven, not_proven=failures)
        return proofs

    def check_driven(self) -> None:
        """Check that the controller still drives the heaters.

        Raises:
            SafetyError: The controller has switched its heaters off; call :meth:`restore_after_shutdown`.
            LumionError: The controller does not answer.
        """
        bench = self.setup.bench
        check_faults(bench)
        if not bench.mesh.is_driving(self._journal_currents_ma()).all():
            raise SafetyError(
                "the heaters are not driven as the circuits need: the controller has switched them off, or another "
                "program has changed them",
                device=bench.model.mesh_section.controller,
                hint=f"{LIST_FAULTS}.",
            )

    def _journal_currents_ma(self) -> NDArray[np.float64]:
        dark = np.zeros(len(self.setup.bench.mesh.heater_channels))
        return np.array(self.state.currents_ma) if self.state.currents_ma else dark

    def _switch_on_transmitters(self) -> None:
        bench, events = self.setup.bench, self.setup.bench.events
        for name in dict.fromkeys(circuit.request.source for circuit in self.state.circuits):
            try:
                if bench.circuit_module(name).status().tx_disabled:
                    bench.circuit_module(name).enable()
                    events.add("transmitter switched on again", transmitter=name)
            except LumionError as error:
                events.add("transmitter not switched on", transmitter=name, reason=str(error))

    def connect(
        self,
        requests: Sequence[CircuitRequest],
        *,
        align: bool = True,
        milestone: Milestone = lambda name: None,
        progress: Progress = no_progress,
    ) -> tuple[CircuitProof, ...]:
        """Connect circuits in addition to the active ones, check their light, and record them.

        Args:
            requests: The circuits to connect.
            align: Whether to search the polarization at every new input, or only where light is missing.
            milestone: Called with the name of each milestone of the set-up.
            progress: As for :func:`~lumion_hw.circuits.plan.planner.plan_circuits`.

        Raises:
            ConfigError: A circuit is connected already.
            BusyError: Another program has taken over.
            CircuitError: A circuit could not be verified; everything was rolled back.
            LumionError: A device failed, or the journal cannot be written; everything was rolled back if possible.
        """
        names = [request.name for request in requests]
        connected = {circuit.name for circuit in self.state.circuits}
        for name in names:
            if name in connected or names.count(name) > 1:
                raise ConfigError(
                    f"circuit {name} is connected already", hint="`lumion circuits BENCH` lists the circuits."
                )
        with self.change("connect", names):
            proofs = self.setup.connect(requests, align=align, milestone=milestone, progress=progress)
            self.end_change(proofs)
        self._remember_alignments(proofs)
        return proofs

    def _remember_alignments(self, proofs: Sequence[CircuitProof]) -> None:
        for proof in proofs:
            controller = proof.circuit.entry.polarization
            if proof.alignment is not None and controller is not None:
                self.alignments[controller] = proof.alignment

    def plan_difference(
        self, wanted: Sequence[CircuitRequest], *, progress: Progress = no_progress
    ) -> CircuitDifference:
        """Plan the change from the active circuits to the wanted ones, without changing anything."""
        active = () if self.setup.active is None else self.setup.active.circuits
        return plan_difference(self.setup.bench, self.setup.record, wanted, active, progress)

    def apply(
        self,
        difference: CircuitDifference,
        on_refusal: OnRefusal = "refuse_all",
        *,
        align: bool = True,
        milestone: Milestone = lambda name: None,
    ) -> tuple[CircuitProof, ...]:
        """Carry out a planned change: all of it, or nothing.

        New circuits are set up before others are removed, where modules and PUCs allow this. Circuits that stay keep
        exactly the same heater currents. If the program is interrupted, the next one restores the former circuits.

        Args:
            difference: The change, from :meth:`plan_difference`.
            on_refusal: Whether circuits that cannot be set up prevent the change of all others.
            align: As for :meth:`connect`.
            milestone: As for :meth:`connect`.

        Returns:
            Results for the new circuits.

        Raises:
            BusyError: Another program has taken over.
            CircuitError: A wanted circuit cannot be set up (``refuse_all``), or a new circuit could not be verified.
                Nothing is changed.
            LumionError: A device failed, or the journal cannot be written; everything was rolled back if possible.
        """
        if difference.refusals and on_refusal == "refuse_all":
            count = len(difference.refusals)
            raise CircuitError(
                f"{count} of the wanted circuits cannot be set up, so nothing was changed:\n"
                + "\n".join(map(str, difference.refusals)),
                hint="With `on_refusal: skip` in the file, all other circuits are set up.",
            )
        if self.setup.record_limits(difference.kept):
            self.note(self._current_state(()).circuits)
        if difference.changes_nothing:
            return ()
        names = [circuit.request.name for circuit in difference.added]
        names += [request.name for request in difference.removed]
        transmitting = self._transmitting({circuit.request.source for circuit in difference.added})
        try:
            with self.change("apply", names):
                proofs = self._set_up(difference, align, milestone)
                self.end_change(proofs)
        except BaseException:
            with contextlib.suppress(LumionError):
                self._restore_transmitters(difference, transmitting)
            raise
        self._remember_alignments(proofs)
        return proofs

    def _set_up(self, difference: CircuitDifference, align: bool, milestone: Milestone) -> tuple[CircuitProof, ...]:
        proofs: tuple[CircuitProof, ...] = ()
        if difference.first:
            requests = [circuit.request for circuit in difference.first]
            proofs += self.setup.connect(requests, align=align, milestone=milestone)
        if difference.removed:
            self.setup.disconnect(difference.removed)
            milestone("removed")
        if difference.last:
            requests = [circuit.request for circuit in difference.last]
            proofs += self.setup.connect(requests, align=align, milestone=milestone)
        if self.setup.active is None:
            switch_heaters_off(self.setup.bench)
        return proofs

    def _transmitting(self, names: Collection[str]) -> frozenset[str]:
        module = self.setup.bench.circuit_module
        return frozenset(name for name in names if not module(name).status().tx_disabled)

    def _restore_transmitters(self, difference: CircuitDifference, transmitting: Collection[str]) -> None:
        """Switch transmitters on and off as before a change that was rolled back."""
        self._switch_on_transmitters()
        needed = {circuit.request.source for circuit in self.state.circuits} | set(transmitting)
        for name in dict.fromkeys(circuit.request.source for circuit in difference.added):
            if name not in needed:
                self.setup.bench.circuit_module(name).disable()

    def switch(self, plan: CircuitPlan, *, milestone: Milestone = lambda name: None) -> tuple[CircuitProof, ...]:
        """Change to a plan from :meth:`~lumion_hw.circuits.setup.PathSetup.plan_change`, and record it.

        The transmitters must be on and aligned. Only the mesh's own photodiodes check the change; see
        :meth:`~lumion_hw.circuits.setup.PathSetup.switch`.

        Raises:
            BusyError: Another program has taken over.
            CircuitError: A circuit could not be verified; everything was rolled back.
            LumionError: The controller failed, or the journal cannot be written.
        """
        # Reading modules would take longer than the whole change (docs/decisions/0019), so their last reports are used.
        launch_dbm = {circuit.request.source: circuit.proof.get("launch_dbm") for circuit in self.state.circuits}
        names = [circuit.request.name for circuit in plan.circuits]
        # Not read back, for the same reason; the last change has confirmed the currents in the journal.
        expected_ma = np.array(self.state.currents_ma) if self.state.currents_ma else None
        with self.change("switch", names, expected_ma):
            proofs = self.setup.switch(plan, launch_dbm, milestone=milestone)
            self.end_change(proofs)
        return proofs

    def disconnect(self, names: Collection[str] | None = None) -> tuple[ActiveCircuit, ...]:
        """Disconnect the named circuits; all if ``names`` is ``None``. If none remain, switch the heaters off.

        Returns:
            The disconnected circuits.

        Raises:
            ConfigError: A circuit is not connected.
            BusyError: Another program has taken over.
            LumionError: A device failed, or the journal cannot be written.
        """
        removed = self.state.circuits if names is None else tuple(self.state.circuit(name) for name in names)
        if not removed:
            return ()
        with self.change("disconnect", [circuit.name for circuit in removed]):
            self.setup.disconnect([circuit.request for circuit in removed])
            # Without any circuit even the parked PUCs need no heat.
            if len(removed) == len(self.state.circuits):
                switch_heaters_off(self.setup.bench)
            self.end_change(())
        return removed

    def drop(self, names: Collection[str]) -> None:
        """Disconnect circuits in the mesh only, without using their modules, which may be dead.

        Raises:
            ConfigError: A circuit is not connected.
            LumionError: The mesh controller failed, or the journal cannot be written.
        """
        removed = tuple(self.state.circuit(name) for name in names)
        with self.change("drop", [circuit.name for circuit in removed]):
            self.setup.drop([circuit.request for circuit in removed])
            self.end_change(())

    def diagnose(self, name: str) -> CircuitFinding:
        """Find out where a circuit loses its light; see :meth:`~lumion_hw.circuits.setup.PathSetup.diagnose`.

        Raises:
            ConfigError: The circuit is not connected.
            BusyError: Another program has taken over.
            CircuitError: The light of the circuit arrives, or another circuit needs its transmitter.
            LumionError: A device failed, or the journal cannot be written.
        """
        request = self.state.circuit(name).request
        # The tests change heater currents, so the next program must know of them if this one is killed.
        with self.change("diagnose", [name]):
            finding = self.setup.diagnose(request)
            self.end_change(())
        return finding

    def end_expired_leases(self) -> tuple[ActiveCircuit, ...]:
        """Disconnect the circuits whose leases have ended, and return them. Raises the errors of :meth:`disconnect`."""
        expired = [circuit for circuit in self.state.circuits if circuit.has_expired(self.time)]
        for circuit in expired:
            lease_s = circuit.request.lease_s
            reason = "its lease has ended" if lease_s is None else f"its lease of {lease_s:g} s has ended"
            self.setup.bench.events.add("lease ended", circuit=circuit.name, reason=reason)
        return self.disconnect([circuit.name for circuit in expired]) if expired else ()

    def note(self, circuits: Sequence[ActiveCircuit]) -> None:
        """Record new readings, warnings and currents of the circuits. Raises the errors of :meth:`CircuitJournal.note`.

        If the controller has switched its heaters off, the recorded currents stay as they are.
        """
        state = dataclasses.replace(self._current_state(()), circuits=tuple(circuits))
        # The currents are needed to set the circuits up again.
        if circuits and not any(state.currents_ma):
            state = dataclasses.replace(state, currents_ma=self.state.currents_ma)
        self.journal.note(state)

    @contextlib.contextmanager
    def change(self, kind: str, names: Sequence[str], expected_ma: NDArray[np.float64] | None = None) -> Iterator[None]:
        """Record begin and end of a circuit change in a ``with`` block; after an error, restore the former state.

        Args:
            kind: Kind of change, such as ``connect``.
            names: Circuits to be changed.
            expected_ma: Present heater currents, if known.

        Raises:
            BusyError: Another program has taken over.
            LumionError: The journal cannot be written.
        """
        mesh = self.setup.bench.mesh
        with self.lock.changing():
            before_ma, before = mesh.confirmed_currents_ma() if expected_ma is None else expected_ma, self.state
            self.journal.begin(kind, names, before_ma)
            try:
                yield
            except BaseException as error:
                # If this fails, the change stays unfinished in the journal, and the next program reads the mesh back.
                with contextlib.suppress(LumionError):
                    if not mesh.is_driving(before_ma).all():
                        mesh.program(before_ma)
                    self._adopt_if_changed(before)
                    self.journal.end(f"taken back: {type(error).__name__}: {error}", before)
                raise

    def _adopt_if_changed(self, state: CircuitState) -> None:
        active = self.setup.active.circuits if self.setup.active else ()
        requests = [circuit.request for circuit in state.circuits]
        if [circuit.request for circuit in active] == requests:
            return
        bench = self.setup.bench
        plan = restored_plan(bench.model, self.setup.record, state, wiring_with_device_losses(bench))
        if plan is None:
            self.setup.active = None
        else:
            self.setup.adopt(plan)

    def end_change(self, proofs: Sequence[CircuitProof]) -> None:
        """Record the active circuits at the end of a :meth:`change`.

        Raises:
            SafetyError: The controller has switched its heaters off since the light was measured; nothing is recorded.
            LumionError: The journal cannot be written.
        """
        state, active = self._current_state(proofs), self.setup.active
        if active is not None and np.any(active.currents_ma) and not any(state.currents_ma):
            # With these currents recorded, the next program would find the mesh as left, and the circuits connected.
            check_faults(self.setup.bench)
            raise SafetyError(
                "the controller has switched its heaters off, so the circuits are dark",
                device=self.setup.bench.model.mesh_section.controller,
                hint=f"{LIST_FAULTS}.",
            )
        self.journal.end("done", state)

    def _current_state(self, proofs: Sequence[CircuitProof]) -> CircuitState:
        active = self.setup.active
        circuits: tuple[PlannedCircuit, ...] = () if active is None else active.circuits
        measured = {proof.circuit.request.name: proof for proof in proofs}
        by_name = {circuit.name: circuit for circuit in self.state.circuits}
        names = [circuit.request.name for circuit in circuits]
        return CircuitState(
            tuple(
                active_circuit(circuit, measured.get(name), self.time, by_name.get(name))
                for name, circuit in zip(names, circuits, strict=True)
            ),
            tuple(self.setup.bench.mesh.confirmed_currents_ma().tolist()),
            {} if active is None else dict(active.states),
            self._record,
        )


def switch_everything_off(bench: Bench, journal: CircuitJournal, lock: BenchLock) -> None:
    """Switch all heaters and transmitters off, and record that nothing is connected.

    The caller must hold the bench's lock.

    Raises:
        LumionError: A device failed, or the journal cannot be written.
    """
    with lock.changing():
        with bench.dark():
            switch_heaters_off(bench)
        journal.end("at rest", CircuitState(record=journal.state.record))


def switch_heaters_off(bench: Bench) -> None:
    """Switch all heaters off; ignore an error if a latched fault keeps them off already.

    Raises:
        LumionError: As for :meth:`~lumion_hw.bench.mesh_access.MeshAccess.program`.
    """
    zeros = np.zeros(len(bench.mesh.heater_channels))
    try:
        bench.mesh.program(zeros)
    except SafetyError:
        if not bench.mesh.is_driving(zeros).all():
            raise
