"""Circuits that outlive the program: each change is journaled before and after, and found again by the next program."""

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
from lumion_hw.circuits.lease_clock import LeaseClock
from lumion_hw.circuits.lock import BenchLock
from lumion_hw.circuits.planned import CircuitPlan, PlannedCircuit
from lumion_hw.circuits.proof import CircuitProof
from lumion_hw.circuits.request import CircuitRequest
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

_SOMEBODY_ELSE = (
    "Somebody else drives this mesh, or a heater is broken. `lumion disconnect BENCH --all` switches all heaters off."
)


class CircuitService:
    """Circuits of one bench that stay connected between programs. Enter its lock first.

    Args:
        bench: The open bench.
        record: Calibration of its mesh.
        journal: What is connected.
        lock: The bench's lock, held.
        record_path: Path of the calibration record, for whoever comes next.
        aligner: Polarization search; share it with the calibration to keep what it learnt.

    Attributes:
        setup: Path set-up on the open bench.
        aligner: Polarization search, which keeps what it learns of the controllers.
        alignments: What searches of this program have found last, by polarization controller.
        journal: What is connected.
        lock: The bench's lock.
        time: The time of leases, and the time of day as the bench's clock goes.
        lost: Circuits that the journal knew and the mesh no longer drives.
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
        """Lock and open a bench, and find again what is connected, for the time of a block.

        Circuits stay on afterwards only where the bench is opened with ``leave_on_s``.

        Args:
            open_bench: Opens the bench, such as ``lambda: Bench.open("bench.yaml", leave_on_s=3600.0)``. Called once
                the lock is held: a second program is refused before it touches a device.
            record: The calibration record.
            directory: State directory of the bench; see :func:`~lumion_hw.circuits.state.state_directory`.
            program: What this program is called, shown to others.
            take_over: Name of the owner to be replaced; see :class:`~lumion_hw.circuits.lock.BenchLock`.

        Raises:
            BusyError: Another program drives the bench.
            LumionError: As of opening, of the record and of :meth:`restore`.
        """
        known = load_record(record)
        with BenchLock(directory, program, take_over=take_over) as lock, open_bench() as bench:
            if lock.dead_owner is not None:
                bench.events.add("owner died", **dataclasses.asdict(lock.dead_owner))
            with CircuitJournal(directory, bench.model.name, bench.mesh.topology.sha256) as journal:
                service = cls(bench, known, journal, lock, str(FilePath(record).resolve()))
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
        self.lost: tuple[ActiveCircuit, ...] = ()
        self.alignments: dict[str, Alignment] = {}
        self._record = record_path
        if record.doubts:
            bench.events.add("record not certified", record=record_path, reasons=list(record.doubts))

    @property
    def state(self) -> CircuitState:
        """What stands."""
        return self.journal.state

    def restore(self) -> MeshFinding:
        """Read the mesh back and go on from what stands.

        A change that was begun and never ended is taken back where it has changed the mesh. Circuits of a mesh that
        is dark are gone, and noted so: they are :attr:`lost`.

        Raises:
            CircuitError: The mesh drives something else than the journal says; PUCs and circuits are named.
            LumionError: A device failed, or the journal cannot be written.
        """
        mesh, state = self.setup.bench.mesh, self.state
        found = compare_with_mesh(mesh, state, self.journal.begun)
        self.setup.bench.events.add("read back", verdict=found.verdict.value, pucs=len(found.differences))
        if found.verdict is MeshVerdict.DIFFERENT:
            raise CircuitError(
                f"{found}\nNothing was changed.",
                hint=_SOMEBODY_ELSE,
            )
        with self.lock.changing():
            if found.verdict is MeshVerdict.CHANGED and found.begun is not None:
                mesh.program(np.array(found.begun.before_ma))
            if found.verdict is MeshVerdict.DARK:
                self.lost = state.circuits
                state = CircuitState(record=state.record)
                self.setup.bench.events.add("lost", circuits=[circuit.name for circuit in self.lost])
            if found.begun is not None or self.lost:
                self.journal.end(f"found {found.verdict.value}", state)
        self._stand_again(state)
        if found.begun is not None:
            self._switch_on()
        return found

    def restore_after_shutdown(self) -> tuple[CircuitProof, ...] | None:
        """Set up the circuits of the journal again after the controller has switched its heaters off.

        A fault whose only cause is the silence of this host is cleared first, since the host is back. An unfinished
        change is taken back. Then the noted currents are driven in one commit, transmitters that are off are switched
        on, and every circuit is measured. A circuit that is not proven stays connected, as one that breaks in service.

        Returns:
            Proofs of the circuits that could be measured; ``None`` if the mesh is driven as noted.

        Raises:
            SafetyError: Another fault is latched; the message names it and how to clear it. Nothing was changed.
            CircuitError: Somebody else drives the mesh; nothing was changed.
            LumionError: A device failed, or the journal cannot be written; call it again.
        """
        bench, state = self.setup.bench, self.state
        with self.lock.changing():
            cleared = clear_host_silence(bench, self.lock.program)
            found = compare_with_mesh(bench.mesh, state, self.journal.begun)
            if found.verdict is MeshVerdict.DIFFERENT:
                raise CircuitError(f"{found}\nNothing was changed.", hint=_SOMEBODY_ELSE)
            if found.begun is not None:
                self.journal.end("taken back: the controller has switched off", state)
            is_driven = bool(bench.mesh.is_driving(self._noted_ma()).all())
            if is_driven and found.begun is None and not cleared:
                return None
            names = [circuit.name for circuit in state.circuits]
            self.journal.begin("set up again", names, np.zeros(len(bench.mesh.heater_channels)))
            if not is_driven:
                bench.mesh.program(self._noted_ma())
            self._stand_again(state)
            self._switch_on()
            with contextlib.suppress(LumionError):  # a receiver that does not answer is named below
                self.setup.await_los_clear([circuit.request for circuit in state.circuits])
            proofs, silent = self.setup.prove_reachable()
            self._end(proofs)
        failures = {_name(proof.circuit.request): list(proof.failures) for proof in proofs if not proof.proven}
        failures |= {_name(request): [why] for request, why in silent.items()}
        proven = [name for name in names if name not in failures]
        bench.events.add("set up again", proven=proven, not_proven=failures)
        return proofs

    def check_driven(self) -> None:
        """Make sure that the controller drives the circuits, before anything else is blamed for missing light.

        Raises:
            SafetyError: It has switched its heaters off, whether the fault is still latched or has been cleared since;
                :meth:`restore_after_shutdown` helps.
            LumionError: The controller does not answer.
        """
        bench = self.setup.bench
        check_faults(bench)
        if not bench.mesh.is_driving(self._noted_ma()).all():
            raise SafetyError(
                "the heaters are not driven as the circuits need: the controller has switched them off, or another "
                "program has changed them",
                device=bench.model.mesh_section.controller,
                hint=f"{LIST_FAULTS}.",
            )

    def _noted_ma(self) -> NDArray[np.float64]:
        dark = np.zeros(len(self.setup.bench.mesh.heater_channels))
        return np.array(self.state.currents_ma) if self.state.currents_ma else dark

    def _switch_on(self) -> None:
        """Switch on the transmitters of connected circuits that are off; one that fails is in the event log."""
        modules, events = self.setup.bench.transponders, self.setup.bench.events
        for name in dict.fromkeys(circuit.request.source for circuit in self.state.circuits):
            try:
                if modules[name].status().tx_disabled:
                    modules[name].enable()
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
        """Set circuits up beside what stands, prove them, and note them.

        Args:
            requests: Circuits wanted.
            align: Search the polarization at the new inputs. Otherwise only where light is missing.
            milestone: Told of each milestone reached.
            progress: As for :func:`~lumion_hw.circuits.plan.plan_circuits`.

        Raises:
            ConfigError: One of them is connected already.
            BusyError: Another program has taken over.
            CircuitError: One was not proven: all are as before.
            LumionError: A device failed, or the journal cannot be written: all are as before, where that is possible.
        """
        names = [_name(request) for request in requests]
        standing = {circuit.name for circuit in self.state.circuits}
        for name in names:
            if name in standing or names.count(name) > 1:
                raise ConfigError(f"circuit {name} is connected already", hint="`lumion circuits BENCH` lists them.")
        with self._change("connect", names):
            proofs = self.setup.connect(requests, align=align, milestone=milestone, progress=progress)
            self._end(proofs)
        for proof in proofs:
            controller = proof.circuit.entry.polarization
            if proof.alignment is not None and controller is not None:
                self.alignments[controller] = proof.alignment
        return proofs

    def switch(self, plan: CircuitPlan, *, milestone: Milestone = lambda name: None) -> tuple[CircuitProof, ...]:
        """Go over to a plan made with :meth:`~lumion_hw.circuits.setup.PathSetup.plan_change`, and note it.

        One commit, proven by the mesh's own photodiodes; see :meth:`~lumion_hw.circuits.setup.PathSetup.switch`.
        Transmitters are to be lit and aligned: of circuits that stand, or of spares that stand by.

        Raises:
            BusyError: Another program has taken over.
            CircuitError: One was not proven: all are as before.
            LumionError: The controller failed, or the journal cannot be written.
        """
        launch_dbm = {each.request.source: each.proof.get("launch_dbm") for each in self.state.circuits}
        names = [_name(circuit.request) for circuit in plan.circuits]
        known_ma = np.array(self.state.currents_ma) if self.state.currents_ma else None
        with self._change("switch", names, known_ma):
            proofs = self.setup.switch(plan, launch_dbm, milestone=milestone)
            self._end(proofs)
        return proofs

    def disconnect(self, names: Collection[str] | None = None) -> tuple[ActiveCircuit, ...]:
        """Take circuits down, all if none are named; when none are left the heaters go off.

        Returns:
            What was taken down.

        Raises:
            ConfigError: One of them is not connected.
            BusyError: Another program has taken over.
            LumionError: A device failed, or the journal cannot be written.
        """
        going = self.state.circuits if names is None else tuple(self.state.circuit(name) for name in names)
        if not going:
            return ()
        with self._change("disconnect", [circuit.name for circuit in going]):
            self.setup.disconnect([circuit.request for circuit in going])
            if len(going) == len(self.state.circuits):
                switch_heaters_off(self.setup.bench)
            self._end(())
        return going

    def drop(self, names: Collection[str]) -> None:
        """Take circuits down whose modules may be dead: PUCs that nobody needs any more are parked, no module is asked.

        Raises:
            ConfigError: One of them is not connected.
            LumionError: The mesh controller failed, or the journal cannot be written.
        """
        going = tuple(self.state.circuit(name) for name in names)
        with self._change("drop", [circuit.name for circuit in going]):
            self.setup.drop([circuit.request for circuit in going])
            self._end(())

    def expire(self) -> tuple[ActiveCircuit, ...]:
        """Take down the circuits whose leases have ended, and return them. Raises as :meth:`disconnect`."""
        ended = [circuit for circuit in self.state.circuits if circuit.has_expired(self.time)]
        for circuit in ended:
            lease_s = circuit.request.lease_s
            reason = "its lease has ended" if lease_s is None else f"its lease of {lease_s:g} s has ended"
            self.setup.bench.events.add("lease ended", circuit=circuit.name, reason=reason)
        return self.disconnect([circuit.name for circuit in ended]) if ended else ()

    def note(self, circuits: Sequence[ActiveCircuit]) -> None:
        """Note new readings, marks and currents of the circuits. Raises as :meth:`CircuitJournal.note`.

        A controller that drives nothing has switched off: then the currents noted before are kept, which
        :meth:`restore_after_shutdown` drives again.
        """
        state = dataclasses.replace(self._standing(()), circuits=tuple(circuits))
        if circuits and not any(state.currents_ma):
            state = dataclasses.replace(state, currents_ma=self.state.currents_ma)
        self.journal.note(state)

    @contextlib.contextmanager
    def _change(self, what: str, names: Sequence[str], known_ma: NDArray[np.float64] | None = None) -> Iterator[None]:
        """Journal a change; one that fails is noted as taken back if the mesh confirms that it is.

        Args:
            what: What is to be done.
            names: Circuits concerned.
            known_ma: What is driven now, where time is too short to read it back.
        """
        mesh = self.setup.bench.mesh
        with self.lock.changing():
            before_ma, before = mesh.confirmed_currents_ma() if known_ma is None else known_ma, self.state
            self.journal.begin(what, names, before_ma)
            try:
                yield
            except BaseException as error:
                # What cannot be confirmed or written stays begun: the next program reads the mesh back.
                with contextlib.suppress(LumionError):
                    if not mesh.is_driving(before_ma).all():
                        mesh.program(before_ma)
                    self._stand_again(before)
                    self.journal.end(f"taken back: {type(error).__name__}: {error}", before)
                raise

    def _stand_again(self, state: CircuitState) -> None:
        """Let the set-up know of what stands, where it does not: a program before it did this, or it was taken back."""
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

    def _end(self, proofs: Sequence[CircuitProof]) -> None:
        self.journal.end("done", self._standing(proofs))

    def _standing(self, proofs: Sequence[CircuitProof]) -> CircuitState:
        """Return what stands now, with these proofs."""
        active = self.setup.active
        circuits: tuple[PlannedCircuit, ...] = () if active is None else active.circuits
        measured = {_name(proof.circuit.request): proof for proof in proofs}
        known = {circuit.name: circuit for circuit in self.state.circuits}
        names = [_name(circuit.request) for circuit in circuits]
        return CircuitState(
            tuple(
                active_circuit(circuit, measured.get(name), self.time, known.get(name))
                for name, circuit in zip(names, circuits, strict=True)
            ),
            tuple(self.setup.bench.mesh.confirmed_currents_ma().tolist()),
            {} if active is None else dict(active.states),
            self._record,
        )


def switch_everything_off(bench: Bench, journal: CircuitJournal, lock: BenchLock) -> None:
    """Switch all heaters and transmitters off, whatever is driven, and note that nothing is connected.

    Args:
        bench: The bench.
        journal: What is connected.
        lock: The bench's lock, held.

    Raises:
        LumionError: A device failed, or the journal cannot be written.
    """
    with lock.changing():
        with bench.dark():
            switch_heaters_off(bench)
        journal.end("at rest", CircuitState(record=journal.state.record))


def switch_heaters_off(bench: Bench) -> None:
    """Drive no heater; a controller that keeps its heaters off because of a latched fault is left alone.

    Raises:
        LumionError: As :meth:`~lumion_hw.bench.mesh_access.MeshAccess.program`.
    """
    zeros = np.zeros(len(bench.mesh.heater_channels))
    try:
        bench.mesh.program(zeros)
    except SafetyError:
        if not bench.mesh.is_driving(zeros).all():
            raise


def _name(request: CircuitRequest) -> str:
    return f"{request.source}:{request.target}"
