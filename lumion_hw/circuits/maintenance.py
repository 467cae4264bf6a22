"""Maintenance of circuits in service: polarization, phases, faults and leases."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np

from lumion_hw.bench.controller_faults import format_faults, latched_faults
from lumion_hw.circuits.fault_location import BROKEN_DB, LightReading, LocatedFault, locate_fault
from lumion_hw.circuits.output_power import OutputPowerReader
from lumion_hw.circuits.phase_trim import READS, PhaseError, record_with_drift, trim_phase
from lumion_hw.circuits.plan.planned import PlannedCircuit
from lumion_hw.circuits.plan.planning_mesh import planning_mesh
from lumion_hw.circuits.proof import CircuitProof
from lumion_hw.circuits.service import CircuitService
from lumion_hw.circuits.state import ActiveCircuit, proof_document
from lumion_hw.errors import CircuitError, DeviceError, LimitError, LumionError, SafetyError
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.polarization import Aligner, Alignment, Tracking
from lumion_hw.quantities import dbm_from_w

DEGRADED_DB = 1.0
"""Loss of light in dB, compared with the best reading, above which a circuit is marked as degraded."""
SEARCH_DB = 0.5
"""Loss of light in dB above which the polarization is searched again."""
TRIM_DB = 0.2
"""Loss of light in dB above which the phases of the circuit's PUCs are measured."""
_NOTE_EVERY_S = 60.0
_ATTEMPT_EVERY_S = 30.0
"""Shortest time between two repairs of a circuit, which cost light while they last."""
_PLACES_OF_MESH = frozenset({"path", "fibre before the mesh", "before the tap"})
"""Fault locations that may also be caused by a controller whose heaters are off."""
_BROKEN = "broken: "
_OWN_SHARE = 0.9
"""A port belongs to a circuit if at least this fraction of the port's light comes from the circuit."""
# From this loss on, the cause may be a fault or a fade, which the detectors distinguish.
_DARK_DB = 10.0
_DETECTION_WAIT_S = 0.02
"""Time after a polarization search until detectors have noticed that the light is back."""

HealthCallback = Callable[[float, "Sequence[CircuitHealth]"], None]
"""Called after every check with the duration of the maintenance in seconds, and the health of all circuits."""


@dataclass
class CircuitHealth:
    """Health of a circuit in service.

    Attributes:
        name: Name of the circuit, such as ``sfp-a:sfp-b``.
        proof: The last measurement.
        measured_s: Time of the last measurement on the bench's clock; ``None`` before the first one.
        lost_db: Light lost since the best measurement; ``None`` if the circuit is dark or broken.
        marks: Warnings, such as ``degraded: ...``.
        fault: Location of the fault, if the circuit is broken.
        reads: Number of readings of the circuit.
        worst_db: Largest ``lost_db`` so far.
    """

    name: str
    proof: CircuitProof | None = None
    measured_s: float | None = None
    lost_db: float | None = None
    marks: tuple[str, ...] = ()
    fault: LocatedFault | None = None
    reads: int = 0
    searches: int = 0
    worst_db: float = 0.0

    def describe(self) -> str:
        """Return a short text on the circuit's health."""
        dark = "dark" if self.fault is None else "broken"
        condition = dark if self.lost_db is None else f"{self.lost_db:+.2f} dB lost"
        return f"{self.name} {condition}{f' [{chr(59).join(self.marks)}]' if self.marks else ''}"

    def document(self) -> dict[str, Any]:
        """Return the circuit's health as a JSON document."""
        measured = {} if self.proof is None or self.fault is not None else proof_document(self.proof)
        return {
            "circuit": self.name,
            **measured,
            "lost_db": self.lost_db,
            "worst_db": self.worst_db,
            "marks": self.marks,
            "fault": self.fault,
            "reads": self.reads,
            "searches": self.searches,
        }


@dataclass
class _WatchedCircuit:
    """A circuit whose light is checked periodically, with the results of the last checks."""

    circuit: PlannedCircuit
    health: CircuitHealth
    reference: LightReading | None = None
    tracking: Tracking | None = None
    alignment: Alignment | None = None
    attempted_s: float = -math.inf
    was_searched: bool = False
    next_puc: int = 0
    own_ports: frozenset[int] = field(default_factory=frozenset)

    @property
    def is_single(self) -> bool:
        """Whether the circuit has only one arm."""
        return len(self.circuit.arms) == 1


class CircuitMaintenance:
    """Maintains all circuits of a service: tracks polarizations, repairs losses, ends leases.

    If a circuit loses light, its polarization is searched again, then its phases are measured. An unexplained loss is
    an alarm in the event log.

    Args:
        period_s: Time between two checks of all circuits, in seconds.
        reads_per_s: Largest number of power readings per second, for all circuits together.
        starts_tracking: Whether to start tracking polarizations now; otherwise :meth:`resync` does.

    Attributes:
        drifted_rad: Total phase drift that was corrected, by PUC.
        searching: Circuits whose polarization is being searched, so that their light varies.
    """

    def __init__(
        self, service: CircuitService, *, period_s: float = 1.0, reads_per_s: float = 20.0, starts_tracking: bool = True
    ) -> None:
        self._service = service
        self._setup = service.setup
        self._clock = service.setup.bench.clock
        self._aligner: Aligner = service.aligner
        self._exits = OutputPowerReader(service.setup.bench, service.setup.record)
        self._period_s = period_s
        self._reads_per_s = reads_per_s
        self._start_s = self._clock.now()
        self._noted_s = self._start_s
        self._reads = 0
        self.drifted_rad: dict[int, float] = {}
        self.searching: set[str] = set()
        self._is_over: Callable[[], bool] = lambda: False
        self._polled_s = -math.inf
        self._watched: list[_WatchedCircuit] = []
        self._watched = self._watched_circuits()
        if starts_tracking:
            self._resume_tracking(())

    @property
    def health(self) -> tuple[CircuitHealth, ...]:
        """Health of each circuit."""
        return tuple(watched.health for watched in self._watched)

    @property
    def circuits(self) -> tuple[PlannedCircuit, ...]:
        """The watched circuits, in the order of :attr:`health`."""
        return tuple(watched.circuit for watched in self._watched)

    @property
    def record(self) -> CalibrationRecord:
        """The calibration record for which the circuits were planned."""
        return self._setup.record

    def run(self, for_s: float | None = None, on_health: HealthCallback = lambda held_s, health: None) -> None:
        """Maintain the circuits for a time, or until interrupted.

        Args:
            for_s: Duration in seconds; ``None`` without an end.
            on_health: Called after every check with the duration so far in seconds, and the health of all circuits.

        Raises:
            BusyError: Another program has taken over the bench.
            LumionError: A device failed.
        """
        end_s = math.inf if for_s is None else self._clock.now() + for_s
        try:
            while self._watched:
                checked_s = self._clock.now()
                self.step()
                on_health(self._clock.now() - self._start_s, self.health)
                if checked_s + self._period_s >= end_s:
                    self._track_until(end_s)
                    break
                self._track_until(checked_s + self._period_s)
        finally:
            self._write_journal()

    def step(self) -> None:
        """Check all circuits once, end expired leases, and repair circuits where possible.

        Raises:
            SafetyError: A latched fault keeps the heaters off until the user clears it.
            LumionError: As :meth:`run`.
        """
        # Another program may have taken the bench over. The check also renews the lock file, whose age other hosts see.
        self._service.lock.check()
        if latched_faults(self._setup.bench):
            self._restore_circuits()
        if self._service.end_expired_leases():
            watched_before, self._watched = self._watched, self._watched_circuits()
            self._resume_tracking(watched_before)
        before = [(watched.health.marks, watched.health.fault) for watched in self._watched]
        self._check_circuits()
        for watched in self._watched:
            self._repair(watched)
        changed = [(watched.health.marks, watched.health.fault) for watched in self._watched] != before
        # A change is written at once, readings only from time to time: each entry contains all circuits.
        if changed or self._clock.now() - self._noted_s >= _NOTE_EVERY_S:
            self._write_journal()

    def _restore_circuits(self) -> None:
        faults = latched_faults(self._setup.bench)
        reason = f"it has switched its heaters off: {format_faults(faults)}" if faults else "its heaters are off"
        for watched in self._watched:
            self._set_fault(watched, LocatedFault("controller", reason))
        self._service.restore_after_shutdown()
        watched_before, self._watched = self._watched, self._watched_circuits()
        self._resume_tracking(watched_before)

    def resync(self) -> None:
        """Continue maintenance after another part of the program has changed circuits."""
        before, self._watched = self._watched, self._watched_circuits()
        self.searching &= {watched.health.name for watched in self._watched}
        self._poll_levels()  # a reference level is needed before anything changes the light
        self._resume_tracking(before)

    def track_polarizations(self, for_s: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Track polarizations while another part of the program may change circuits.

        Changes only polarization controllers.

        Args:
            for_s: Duration in seconds.
            is_over: Returns whether a change of circuits has begun; readings are then ignored.

        Raises:
            LumionError: A device failed.
        """
        self._is_over, until_s = is_over, self._clock.now() + for_s
        try:
            while not is_over() and self._clock.now() < until_s:
                if self._clock.now() >= self._polled_s + self._period_s:
                    self._poll_levels()
                to_search = next((watched for watched in self._watched if self._needs_search(watched)), None)
                if to_search is not None:
                    self._search_announced(to_search)
                else:
                    self._track_until(min(until_s, self._polled_s + self._period_s), is_over)
        finally:
            self._is_over = lambda: False

    def measure(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Measure the power margins of all circuits for a display; change no setting and raise no device errors.

        A circuit whose device does not answer keeps its last measurement. May be called from another thread while
        :meth:`track_polarizations` runs.

        Args:
            is_over: Returns whether a change of circuits has begun; readings are then ignored.
        """
        try:
            proofs, _ = self._setup.prove_reachable()
        except LumionError:
            return
        proof_of = {(proof.circuit.request, proof.circuit.paths): proof for proof in proofs}
        for watched in () if is_over() else self._watched:
            proof = proof_of.get((watched.circuit.request, watched.circuit.paths))
            if proof is not None:
                self._store_proof(watched, proof)
                watched.health.marks = tuple(self._current_marks(watched))

    def find_fault(self, name: str) -> LocatedFault | None:
        """Return where a circuit has lost its light, or ``None`` if the mesh's monitors cannot show it."""
        watched = next((candidate for candidate in self._watched if candidate.health.name == name), None)
        if watched is None or watched.reference is None:
            return None
        return locate_fault(
            watched.reference,
            self._monitor_reading(watched, self._monitors_ma()),
            watched.circuit.exit.port,
            watched.own_ports,
        )

    def request_search(self, name: str) -> bool:
        """Let :meth:`track_polarizations` search the polarization of a dark circuit; return whether it can."""
        for watched in self._watched:
            if watched.health.name == name and watched.is_single and watched.circuit.entry.polarization is not None:
                self.searching.add(name)
                return True
        return False

    def summary(self) -> dict[str, Any]:
        """Return duration, number of readings, and phases that have drifted."""
        return {
            "held_s": round(self._clock.now() - self._start_s, 3),
            "reads": self._reads,
            "drifted_rad": {str(puc): round(by, 4) for puc, by in sorted(self.drifted_rad.items())},
        }

    def record_with_drift(self) -> CalibrationRecord:
        """Return a copy of the calibration record with the phases that were measured in service."""
        return record_with_drift(self._setup.record, self.drifted_rad)

    # -- looking ------------------------------------------------------------------------------------------------------

    def _watched_circuits(self) -> list[_WatchedCircuit]:
        earlier = {(watched.circuit.request, watched.circuit.paths): watched for watched in self._watched}
        active = self._setup.active
        circuits = active.circuits if active else ()
        by_name = {circuit.name: circuit for circuit in self._service.state.circuits}
        result = []
        for circuit in circuits:
            name = circuit.request.name
            watched = earlier.get((circuit.request, circuit.paths))
            result.append(watched or _WatchedCircuit(circuit, CircuitHealth(name, marks=by_name[name].marks)))
        for watched, ports in zip(result, self._find_own_ports(circuits), strict=True):
            watched.own_ports = ports
        return result

    def _resume_tracking(self, before: Sequence[_WatchedCircuit]) -> None:
        followed = {watched.circuit.entry.polarization: watched for watched in before if watched.tracking is not None}
        for watched in self._watched:
            controller = watched.circuit.entry.polarization
            alignment = None if controller is None else self._service.alignments.get(controller)
            if alignment is None or not watched.is_single:
                continue
            earlier = followed.get(controller)
            if earlier is None or earlier.alignment is not alignment:
                # Searched since: the earlier tracking state belongs to other settings.
                self._track(watched, alignment)
            elif earlier is not watched:
                # A spare that took over, or a rerouted circuit: the same light, read at another output.
                watched.tracking, watched.alignment = earlier.tracking, alignment
            else:
                continue
            if watched.tracking is not None:
                watched.tracking = self._tracking_at_exit(watched, watched.tracking)

    def _find_own_ports(self, circuits: Sequence[PlannedCircuit]) -> list[frozenset[int]]:
        active = self._setup.active
        if active is None or not circuits:
            return []
        planning = planning_mesh(self._setup.record)
        wavelength_nm = self._setup.record.wavelength_nm
        sources = {arm.entry.port: wavelength_nm for circuit in circuits for arm in circuit.arms}
        fields = planning.fields(active.currents_ma, sources)
        power = [sum(np.abs(fields[arm.entry.port]) ** 2 for arm in circuit.arms) for circuit in circuits]
        return [frozenset(np.flatnonzero(own > _OWN_SHARE * sum(power)).tolist()) for own in power]

    def _check_circuits(self) -> None:
        readings = self._measure_circuits()
        # The same readings result if the controller has switched its heaters off, so ask it before blaming a path.
        if any(fault is not None and fault.place in _PLACES_OF_MESH for fault in readings):
            try:
                self._service.check_driven()
            except SafetyError:
                self._restore_circuits()
                readings = self._measure_circuits()
        for watched, fault in zip(self._watched, readings, strict=True):
            self._set_fault(watched, fault)

    def _measure_circuits(self) -> list[LocatedFault | None]:
        monitors_ma = self._monitors_ma()
        self._reads += len(self._watched) + bool(monitors_ma)
        try:
            proofs = self._setup.prove()
        except LumionError:  # a device does not answer; measure the other circuits anyway
            return [self._measure_separately(watched, monitors_ma) for watched in self._watched]
        for watched, proof in zip(self._watched, proofs, strict=True):
            self._store_proof(watched, proof)
        return [
            self._locate_fault(watched, self._light_reading(proof, monitors_ma))
            for watched, proof in zip(self._watched, proofs, strict=True)
        ]

    def _store_proof(self, watched: _WatchedCircuit, proof: CircuitProof) -> None:
        watched.health.reads += 1
        watched.health.proof, watched.health.measured_s = proof, self._clock.now()

    def _measure_separately(self, watched: _WatchedCircuit, monitors_ma: dict[int, float]) -> LocatedFault | None:
        request, module = watched.circuit.request, self._setup.bench.circuit_module
        try:
            module(request.source).monitors()
        except LumionError as error:
            return LocatedFault("transmitter", f"it does not answer: {error}")
        try:
            module(request.target).status()
        except LumionError as error:
            return LocatedFault("receiver", f"it does not answer: {error}")
        (proof,) = self._setup.prove([request])
        self._store_proof(watched, proof)
        return self._locate_fault(watched, self._light_reading(proof, monitors_ma))

    def _monitors_ma(self) -> dict[int, float]:
        mesh = self._setup.bench.mesh
        if mesh.meters is not None:
            return {}
        read = zip(mesh.monitor_ports, mesh.monitors_ma().tolist(), strict=True)
        return {port: current_ma for port, current_ma in read if not math.isnan(current_ma)}

    def _light_reading(self, proof: CircuitProof, monitors_ma: dict[int, float]) -> LightReading:
        entry, fibre_dbm = proof.circuit.entry, None
        if proof.launch_dbm is not None and proof.measured_loss_db is not None:
            fibre_dbm = proof.launch_dbm + entry.gain_db - entry.loss_db - proof.measured_loss_db
        elif proof.received_dbm is not None:
            fibre_dbm = proof.received_dbm + proof.circuit.exit.loss_db
        return LightReading(proof.launch_dbm, fibre_dbm, proof.los, monitors_ma)

    def _locate_fault(self, watched: _WatchedCircuit, reading: LightReading) -> LocatedFault | None:
        health = watched.health
        # The brightest reading is the reference: a slow loss must not become its own reference.
        if reading.fibre_dbm is not None and reading.fibre_dbm > _fibre_level(watched.reference):
            watched.reference = reading
        reference = watched.reference or self._budgeted_reading(watched, reading)
        health.lost_db = (
            None
            if reading.fibre_dbm is None or reference.fibre_dbm is None
            else round(reference.fibre_dbm - reading.fibre_dbm, 3)
        )
        health.worst_db = max(health.worst_db, health.lost_db or 0.0)
        return locate_fault(reference, reading, watched.circuit.exit.port, watched.own_ports)

    def _set_fault(self, watched: _WatchedCircuit, fault: LocatedFault | None) -> None:
        health = watched.health
        # The marks show an alarm from an earlier program, or from this one before an error.
        was_broken = health.fault is not None or any(mark.startswith(_BROKEN) for mark in health.marks)
        is_other = fault is not None and health.fault is not None and fault.place != health.fault.place
        if (fault is None) == was_broken or is_other:
            self._alarm(health.name, fault)
        health.fault = fault
        if fault is not None:
            health.lost_db = None
        health.marks = tuple(self._current_marks(watched))

    def _budgeted_reading(self, watched: _WatchedCircuit, reading: LightReading) -> LightReading:
        budget, entry = watched.circuit.budget, watched.circuit.entry
        fibre_dbm = budget.launch_dbm + entry.gain_db - entry.loss_db - budget.mesh_loss_db
        return LightReading(budget.launch_dbm, fibre_dbm, False, reading.monitors_ma)

    def _current_marks(self, watched: _WatchedCircuit) -> list[str]:
        health, request = watched.health, watched.circuit.request
        if health.fault is not None:
            return [f"{_BROKEN}{health.fault}"]
        marks = []
        if health.proof is not None and health.proof.received_dbm is None:
            marks.append("dark: no power reaches the receiver's tap")
        if health.lost_db is not None and health.lost_db > DEGRADED_DB:
            marks.append(f"degraded: {health.lost_db:.1f} dB lost")
        margin_db = None if health.proof is None else health.proof.margin_db
        if margin_db is not None and margin_db < request.min_margin_db:
            marks.append(f"degraded: margin {margin_db:.1f} dB, wanted {request.min_margin_db:g} dB")
        return marks

    def _alarm(self, name: str, fault: LocatedFault | None) -> None:
        log = self._setup.bench.events
        if fault is None:
            log.add("alarm over", circuit=name)
        else:
            log.add("alarm", circuit=name, place=fault.place, detail=fault.detail)

    # Used by :meth:`track_polarizations`, which runs while another job watches the circuits.
    # -- beside somebody else -----------------------------------------------------------------------------------------

    def _poll_levels(self) -> None:
        self._polled_s = self._clock.now()
        monitors_ma = self._monitors_ma()
        self._reads += bool(monitors_ma)
        for watched in self._watched:
            reading = self._monitor_reading(watched, monitors_ma)
            if watched.reference is None or _fibre_level(reading) > _fibre_level(watched.reference):
                watched.reference = self._reference_reading(watched, reading)
            reference_dbm = None if watched.reference is None else watched.reference.fibre_dbm
            if reference_dbm is not None:
                watched.health.lost_db = (
                    None if reading.fibre_dbm is None else round(reference_dbm - reading.fibre_dbm, 3)
                )

    def _reference_reading(self, watched: _WatchedCircuit, reading: LightReading) -> LightReading:
        # A circuit that is dark already when maintenance begins must not become its own reference.
        budgeted_photocurrent_ma = self._exits.budgeted_photocurrent_ma(watched.circuit)
        if (
            budgeted_photocurrent_ma is None
            or dbm_from_w(budgeted_photocurrent_ma * 1e-3) - _fibre_level(reading) < BROKEN_DB
        ):
            return reading
        monitors_ma = {**reading.monitors_ma, watched.circuit.exit.port: budgeted_photocurrent_ma}
        return LightReading(reading.launch_dbm, dbm_from_w(budgeted_photocurrent_ma * 1e-3), False, monitors_ma)

    def _monitor_reading(self, watched: _WatchedCircuit, monitors_ma: dict[int, float]) -> LightReading:
        current_ma = monitors_ma.get(watched.circuit.exit.port, 0.0)
        level_dbm = (
            dbm_from_w(current_ma * 1e-3) if current_ma > 0.0 else None
        )  # relative level, used only in comparisons
        return LightReading(0.0, level_dbm, False, monitors_ma)

    def _needs_search(self, watched: _WatchedCircuit) -> bool:
        if watched.health.name in self.searching:
            return True
        lost_db = watched.health.lost_db
        has_time = self._clock.now() >= watched.attempted_s + _ATTEMPT_EVERY_S
        # If it is dark, the detectors decide whether that is a fade, a fault, or a moved fibre.
        return (
            watched.is_single
            and watched.circuit.entry.polarization is not None
            and lost_db is not None
            and SEARCH_DB < lost_db < _DARK_DB
            and has_time
        )

    def _search_announced(self, watched: _WatchedCircuit) -> None:
        watched.attempted_s = self._clock.now()
        self.searching.add(watched.health.name)
        try:
            self._search(watched)
            self._clock.sleep(_DETECTION_WAIT_S)
        finally:
            self.searching.discard(watched.health.name)

    def _tracking_at_exit(self, watched: _WatchedCircuit, tracking: Tracking) -> Tracking | None:
        try:
            tracking.switch_reading(self._read(watched))
        except DeviceError:  # no light there: the next search will find it
            return None
        return tracking

    # -- mending ------------------------------------------------------------------------------------------------------

    def _repair(self, watched: _WatchedCircuit) -> None:
        health, fault = watched.health, watched.health.fault
        lost_db = math.inf if health.lost_db is None else health.lost_db
        if not watched.is_single or (
            fault is not None and fault.place in ("controller", "transmitter", "receiver", "path")
        ):
            return
        if lost_db <= TRIM_DB or self._clock.now() < watched.attempted_s + _ATTEMPT_EVERY_S:
            return
        watched.attempted_s = self._clock.now()
        # Alternate: a loss that a search has not removed may be due to a phase, and the other way round.
        search = watched.circuit.entry.polarization is not None and lost_db > SEARCH_DB and not watched.was_searched
        watched.was_searched = search
        if search:
            self._search(watched)
        elif fault is None and lost_db < BROKEN_DB:
            self._trim(watched)

    def _read(self, watched: _WatchedCircuit) -> Callable[[], float]:
        def read() -> float:
            if self._is_over():
                raise DeviceError("power was not read because the circuits are being changed")
            self._reads += 1
            watched.health.reads += 1
            return self._exits.read_fastest_w(watched.circuit.exit)  # in the unit of the set-up's search

        return read

    def _search(self, watched: _WatchedCircuit) -> None:
        name, bench = watched.circuit.entry.polarization or "", self._setup.bench
        watched.health.searches += 1
        try:
            alignment = self._aligner.maximise(name, bench.polarizer(name), self._read(watched))
        except (CircuitError, DeviceError) as error:
            bench.events.add("not aligned", controller=name, reason=str(error))
            return
        bench.events.add(
            "aligned", controller=name, reads=alignment.reads, remaining_loss_db=alignment.remaining_loss_db
        )
        self._track(watched, alignment)

    def _track(self, watched: _WatchedCircuit, alignment: Alignment) -> None:
        name = watched.circuit.entry.polarization
        controller = None if name is None else self._setup.bench.polarization.get(name)
        watched.tracking = None
        if name is not None and controller is not None and alignment.light is not None:
            watched.tracking = self._aligner.track(name, controller, self._read(watched), alignment)
            watched.alignment = self._service.alignments[name] = alignment

    def _track_until(self, end_s: float, is_over: Callable[[], bool] = lambda: False) -> None:
        # The checks use part of the budget; tracking gets the rest, but at least a tenth so that it never stops.
        left_per_s = max(self._reads_per_s - (len(self._watched) + 1) / self._period_s, 0.1 * self._reads_per_s)
        interval_s = max(len([watched for watched in self._watched if watched.tracking]), 1) / left_per_s
        next_s = self._clock.now()
        while next_s + interval_s <= end_s and not is_over():
            tracked = [
                watched for watched in self._watched if watched.tracking is not None and watched.health.fault is None
            ]
            if not tracked:
                break
            self._clock.run_parallel([functools.partial(self._track_once, watched) for watched in tracked])
            next_s = max(next_s + interval_s, self._clock.now())
            self._clock.sleep(max(next_s - self._clock.now(), 0.0))
        if end_s < math.inf and not is_over():
            self._clock.sleep(max(end_s - self._clock.now(), 0.0))

    def _track_once(self, watched: _WatchedCircuit) -> None:
        if watched.tracking is None:
            return
        try:
            state = watched.tracking.step()
        except DeviceError as error:  # a reading out of range: the next check shows the fault
            if self._is_over():
                return
            self._setup.bench.events.add("not tracked", circuit=watched.health.name, reason=str(error))
            return
        if state.has_lost_light:
            watched.tracking = None
            # Search at the next check, without the usual pause between two repairs.
            watched.attempted_s = -math.inf

    def _trim(self, watched: _WatchedCircuit) -> None:
        pucs = watched.circuit.path.pucs
        bench, read, set_right = self._setup.bench, self._read(watched), False
        # As many PUCs as can be measured until the next attempt within the limit of readings.
        for _ in range(min(len(pucs), max(1, int(self._reads_per_s * _ATTEMPT_EVERY_S / READS)))):
            puc = pucs[watched.next_puc % len(pucs)]
            # The next attempt continues where this one ends, so that every PUC of a long path gets its turn.
            watched.next_puc += 1
            try:
                with self._service.lock.changing():
                    error = trim_phase(bench.mesh, self._setup.record, puc, read)
            # A heater at the end of its range cannot be moved both ways; the other PUCs can still be measured.
            except LimitError:
                continue
            self._record_trim(watched, error)
            set_right |= error.corrected
        if not set_right:
            bench.events.add("drift to be measured", circuit=watched.health.name, hint="lumion-calibrate drift")
        self._write_journal()

    def _record_trim(self, watched: _WatchedCircuit, error: PhaseError) -> None:
        error_rad = round(error.error_rad, 4)
        if error.corrected:
            self.drifted_rad[error.puc] = self.drifted_rad.get(error.puc, 0.0) + error.error_rad
            self._setup.bench.events.add(
                "phase set right", circuit=watched.health.name, puc=error.puc, error_rad=error_rad
            )

    # -- what is written down -----------------------------------------------------------------------------------------

    def _write_journal(self) -> None:
        health = {watched.health.name: watched.health for watched in self._watched}
        circuits = [self._journal_entry(circuit, health.get(circuit.name)) for circuit in self._service.state.circuits]
        self._noted_s = self._clock.now()
        try:
            self._service.note(circuits)
        except LumionError as error:
            self._setup.bench.events.add("not noted", reason=str(error))

    def _journal_entry(self, circuit: ActiveCircuit, health: CircuitHealth | None) -> ActiveCircuit:
        if health is None or health.proof is None or health.measured_s is None:
            return circuit
        age = timedelta(seconds=self._clock.now() - health.measured_s)
        seen_utc = (self._service.time.utc() - age).isoformat(timespec="milliseconds")
        # A broken circuit has no margin: its readings are of other light.
        measured = {} if health.fault is not None else proof_document(health.proof)
        return dataclasses.replace(circuit, proof=measured, seen_utc=seen_utc, marks=health.marks)


def _fibre_level(reading: LightReading | None) -> float:
    return -math.inf if reading is None or reading.fibre_dbm is None else reading.fibre_dbm
