"""Keeping circuits as they should be: polarization, phases, breaks, leases, within a budget of readings."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np

from lumion_hw.bench.controller_faults import latched_faults, listed
from lumion_hw.circuits.breaks import BROKEN_DB, LightReading, LocatedFault, locate_fault
from lumion_hw.circuits.exit_power import OutputPowerReader
from lumion_hw.circuits.phase_trim import READS, PhaseError, record_with_drift, trim_phase
from lumion_hw.circuits.planned import PlannedCircuit
from lumion_hw.circuits.planning_mesh import planning_mesh
from lumion_hw.circuits.proof import CircuitProof
from lumion_hw.circuits.service import CircuitService
from lumion_hw.circuits.state import ActiveCircuit, proof_document
from lumion_hw.errors import CircuitError, DeviceError, LimitError, LumionError, SafetyError
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.polarization import Aligner, Alignment, Tracking
from lumion_hw.quantities import dbm_from_w

DEGRADED_DB = 1.0
"""Light lost against what was proven, from which a circuit is marked as degraded."""
SEARCH_DB = 0.5
"""Light lost from which the polarization is searched again: less is what tracking holds."""
TRIM_DB = 0.2
"""Light lost from which phases are looked at."""
_NOTE_EVERY_S = 60.0
_ATTEMPT_EVERY_S = 30.0
"""Searches and looks at phases cost light while they go on: not again before this has passed."""
_PLACES_OF_MESH = frozenset({"path", "fibre before the mesh", "before the tap"})
"""Places that a controller with its heaters off makes look broken."""
_BROKEN = "broken: "
_OWN_SHARE = 0.9
"""Part of the light at a port from which it counts as one circuit's."""
_DARK_DB = 10.0
_SEEN_S = 0.02
"""After a search, until whoever watches the light has seen that it is back."""

HealthCallback = Callable[[float, "Sequence[CircuitHealth]"], None]
"""Told the time held and how all circuits are, after every look."""


@dataclass
class CircuitHealth:
    """How a circuit in service is.

    Attributes:
        name: Its ends.
        proof: What was measured of it last.
        measured_s: When that was, by the bench's clock; ``None`` if it was not since it is held.
        lost_db: Light lost against the best that was measured since it is held; ``None`` in the dark, and while the
            circuit is broken.
        marks: What is to be known of it.
        fault: Where it is broken, if it is.
        reads: Readings spent on it.
        searches: Times its polarization was searched anew.
        worst_db: Largest ``lost_db`` seen so far.
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
        """Return it in a few words."""
        dark = "dark" if self.fault is None else "broken"
        lost = dark if self.lost_db is None else f"{self.lost_db:+.2f} dB lost"
        return f"{self.name} {lost}{f' [{chr(59).join(self.marks)}]' if self.marks else ''}"

    def document(self) -> dict[str, Any]:
        """Return it as JSON knows it."""
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
class _Held:
    """A circuit and what keeps it up."""

    circuit: PlannedCircuit
    health: CircuitHealth
    well: LightReading | None = None
    tracking: Tracking | None = None
    began_with: Alignment | None = None
    attempted_s: float = -math.inf
    was_searched: bool = False
    next_puc: int = 0
    own_ports: frozenset[int] = field(default_factory=frozenset)

    @property
    def is_single(self) -> bool:
        """Whether power at its exit tells its polarization: not with two arms, whose powers go against each other."""
        return len(self.circuit.arms) == 1


class CircuitMaintenance:
    """Keeps all circuits of a service up; :meth:`run` for a time, or :meth:`step` by step.

    Between looks the polarization of circuits that were searched is tracked. A circuit that loses light is searched
    anew, then its phases are looked at in service. What no reading explains is an alarm in the event log.

    Args:
        service: The circuits, restored.
        period_s: Time between two looks at all circuits.
        reads_per_s: Most readings of power per second, for all circuits together.
        starts_tracking: Reads the polarization controllers at once, which takes time; otherwise :meth:`renew` does.

    Attributes:
        health: How each circuit is.
        drifted_rad: By how much the phases of PUCs were off that were set right, by PUC.
        searching: Circuits whose polarization is being searched: their light goes and comes meanwhile.
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
        self._ended: Callable[[], bool] = lambda: False
        self._glanced_s = -math.inf
        self._held: list[_Held] = []
        self._held = self._taken_up()
        if starts_tracking:
            self._follow_light(())

    @property
    def health(self) -> tuple[CircuitHealth, ...]:
        """How each circuit is."""
        return tuple(held.health for held in self._held)

    @property
    def circuits(self) -> tuple[PlannedCircuit, ...]:
        """The circuits that are held, in the order of :attr:`health`."""
        return tuple(held.circuit for held in self._held)

    @property
    def record(self) -> CalibrationRecord:
        """The calibration they were planned with."""
        return self._setup.record

    def run(self, for_s: float | None = None, on_health: HealthCallback = lambda held_s, health: None) -> None:
        """Hold for a time, or until interrupted.

        Args:
            for_s: How long; ``None`` without an end.
            on_health: Called with the time held and all circuits after every check.

        Raises:
            BusyError: Another program has taken over.
            LumionError: A device failed in a way that is no fault of a circuit.
        """
        end_s = math.inf if for_s is None else self._clock.now() + for_s
        try:
            while self._held:
                look_s = self._clock.now()
                self.step()
                on_health(self._clock.now() - self._start_s, self.health)
                if look_s + self._period_s >= end_s:
                    self._track_until(end_s)
                    break
                self._track_until(look_s + self._period_s)
        finally:
            self._note()

    def step(self) -> None:
        """Look at all circuits once, end leases, and mend what can be mended.

        Raises:
            SafetyError: A fault keeps the heaters off and has to be cleared by name.
            LumionError: As :meth:`run`.
        """
        self._service.lock.check()
        if latched_faults(self._setup.bench):
            self._set_up_again()
        if self._service.expire():
            held_before, self._held = self._held, self._taken_up()
            self._follow_light(held_before)
        before = [(held.health.marks, held.health.fault) for held in self._held]
        self._look()
        for held in self._held:
            self._mend(held)
        changed = [(held.health.marks, held.health.fault) for held in self._held] != before
        if changed or self._clock.now() - self._noted_s >= _NOTE_EVERY_S:
            self._note()

    def _set_up_again(self) -> None:
        """Say of all circuits that the controller has switched off, and set them up again."""
        faults = latched_faults(self._setup.bench)
        why = f"it has switched its heaters off: {listed(faults)}" if faults else "its heaters are off"
        for held in self._held:
            self._found(held, LocatedFault("controller", why))
        self._service.restore_after_shutdown()
        held_before, self._held = self._held, self._taken_up()
        self._follow_light(held_before)

    def renew(self) -> None:
        """Take up what stands now, where somebody else has changed it; light that was followed is followed on."""
        before, self._held = self._held, self._taken_up()
        self.searching &= {held.health.name for held in self._held}
        self._glance()  # how much light there is has to be known before anything happens to it
        self._follow_light(before)

    def follow(self, for_s: float, ended: Callable[[], bool] = lambda: False) -> None:
        """Keep polarizations, beside somebody who watches the circuits and may change them at any moment.

        Nothing but polarization controllers is moved, nothing but light is read, nothing is written down.

        Args:
            for_s: How long.
            ended: Something else has begun: what is read from then on may be other light, and is passed over.

        Raises:
            LumionError: A device failed in a way that is no fault of a circuit.
        """
        self._ended, until_s = ended, self._clock.now() + for_s
        try:
            while not ended() and self._clock.now() < until_s:
                if self._clock.now() >= self._glanced_s + self._period_s:
                    self._glance()
                lost = next((held for held in self._held if self._is_to_be_searched(held)), None)
                if lost is not None:
                    self._search_apart(lost)
                else:
                    self._track_until(min(until_s, self._glanced_s + self._period_s), ended)
        finally:
            self._ended = lambda: False

    def measure(self, ended: Callable[[], bool] = lambda: False) -> None:
        """Measure all circuits, for those who are shown their margins; changes nothing, raises nothing of a device.

        What :meth:`step` does anyway is for :meth:`follow` to be done beside it, by another thread on a real clock. A
        circuit with a silent device keeps what was measured of it.

        Args:
            ended: Something else has begun: what was read may be other light, and is passed over.
        """
        try:
            proofs, _ = self._setup.prove_reachable()
        except LumionError:
            return
        found = {(proof.circuit.request, proof.circuit.paths): proof for proof in proofs}
        for held in () if ended() else self._held:
            proof = found.get((held.circuit.request, held.circuit.paths))
            if proof is not None:
                self._take(held, proof)
                held.health.marks = tuple(self._marks(held))

    def find_fault(self, name: str) -> LocatedFault | None:
        """Return where a circuit has lost its light by what the mesh's monitors say now; ``None`` if they cannot."""
        held = next((each for each in self._held if each.health.name == name), None)
        if held is None or held.well is None:
            return None
        return locate_fault(held.well, self._glimpse(held, self._monitors_ma()), held.circuit.exit.port, held.own_ports)

    def request_search(self, name: str) -> bool:
        """Have :meth:`follow` search the polarization of a dark circuit once; return whether there is one to search."""
        for held in self._held:
            if held.health.name == name and held.is_single and held.circuit.entry.polarization is not None:
                self.searching.add(name)
                return True
        return False

    def summary(self) -> dict[str, Any]:
        """Return what it has cost, and phases that have drifted."""
        return {
            "held_s": round(self._clock.now() - self._start_s, 3),
            "reads": self._reads,
            "drifted_rad": {str(puc): round(by, 4) for puc, by in sorted(self.drifted_rad.items())},
        }

    def renewed(self) -> CalibrationRecord:
        """Return the record with the passive phases that light in service has shown."""
        return record_with_drift(self._setup.record, self.drifted_rad)

    # -- looking ------------------------------------------------------------------------------------------------------

    def _taken_up(self) -> list[_Held]:
        """Return what stands, with what was known of it before."""
        known = {(held.circuit.request, held.circuit.paths): held for held in self._held}
        active = self._setup.active
        circuits = active.circuits if active else ()
        standing = {circuit.name: circuit for circuit in self._service.state.circuits}
        taken = []
        for circuit in circuits:
            name = f"{circuit.request.source}:{circuit.request.target}"
            held = known.get((circuit.request, circuit.paths))
            taken.append(held or _Held(circuit, CircuitHealth(name, marks=standing[name].marks)))
        for held, ports in zip(taken, self._own_ports(circuits), strict=True):
            held.own_ports = ports
        return taken

    def _follow_light(self, before: Sequence[_Held]) -> None:
        """Follow on what was followed until now, and begin with what has been searched since."""
        followed = {held.circuit.entry.polarization: held for held in before if held.tracking is not None}
        for held in self._held:
            controller = held.circuit.entry.polarization
            found = None if controller is None else self._service.alignments.get(controller)
            if found is None or not held.is_single:
                continue
            earlier = followed.get(controller)
            if earlier is None or earlier.began_with is not found:
                # Searched since: what was known of this controller is of other settings.
                self._track(held, found)
            elif earlier is not held:
                # A spare's own light, or a circuit led another way: the same light, read at another exit.
                held.tracking, held.began_with = earlier.tracking, found
            else:
                continue
            if held.tracking is not None:
                held.tracking = self._led_elsewhere(held, held.tracking)

    def _own_ports(self, circuits: Sequence[PlannedCircuit]) -> list[frozenset[int]]:
        """Return the ports that see next to nothing but strays of each circuit, by the solved field."""
        active = self._setup.active
        if active is None or not circuits:
            return []
        planning = planning_mesh(self._setup.record)
        wavelength_nm = self._setup.record.wavelength_nm
        sources = {arm.entry.port: wavelength_nm for circuit in circuits for arm in circuit.arms}
        fields = planning.fields(active.currents_ma, sources)
        power = [sum(np.abs(fields[arm.entry.port]) ** 2 for arm in circuit.arms) for circuit in circuits]
        return [frozenset(np.flatnonzero(own > _OWN_SHARE * sum(power)).tolist()) for own in power]

    def _look(self) -> None:
        """Measure all circuits once, and judge them against what was measured while all was well."""
        found = self._look_at_light()
        if any(fault is not None and fault.place in _PLACES_OF_MESH for fault in found):
            try:
                self._service.check_driven()
            except SafetyError:
                self._set_up_again()
                found = self._look_at_light()
        for held, fault in zip(self._held, found, strict=True):
            self._found(held, fault)

    def _look_at_light(self) -> list[LocatedFault | None]:
        """Measure all circuits once, and return where each is broken by its light."""
        monitors_ma = self._monitors_ma()
        self._reads += len(self._held) + bool(monitors_ma)
        try:
            proofs = self._setup.prove()
        except LumionError:  # a device does not answer; the other circuits are measured all the same
            return [self._look_alone(held, monitors_ma) for held in self._held]
        for held, proof in zip(self._held, proofs, strict=True):
            self._take(held, proof)
        return [
            self._judge(held, self._seen(proof, monitors_ma)) for held, proof in zip(self._held, proofs, strict=True)
        ]

    def _take(self, held: _Held, proof: CircuitProof) -> None:
        held.health.reads += 1
        held.health.proof, held.health.measured_s = proof, self._clock.now()

    def _look_alone(self, held: _Held, monitors_ma: dict[int, float]) -> LocatedFault | None:
        """Measure one circuit whose modules may be silent, and return where it is broken."""
        request, modules = held.circuit.request, self._setup.bench.transponders
        try:
            modules[request.source].monitors()
        except LumionError as error:
            return LocatedFault("transmitter", f"it does not answer: {error}")
        try:
            modules[request.target].status()
        except LumionError as error:
            return LocatedFault("receiver", f"it does not answer: {error}")
        (proof,) = self._setup.prove([request])
        self._take(held, proof)
        return self._judge(held, self._seen(proof, monitors_ma))

    def _monitors_ma(self) -> dict[int, float]:
        """Return what the mesh's own monitors read; nothing where power meters stand in for them."""
        mesh = self._setup.bench.mesh
        if mesh.meters is not None:
            return {}
        read = zip(mesh.monitor_ports, mesh.monitors_ma().tolist(), strict=True)
        return {port: current_ma for port, current_ma in read if not math.isnan(current_ma)}

    def _seen(self, proof: CircuitProof, monitors_ma: dict[int, float]) -> LightReading:
        entry, fibre_dbm = proof.circuit.entry, None
        if proof.launch_dbm is not None and proof.measured_loss_db is not None:
            fibre_dbm = proof.launch_dbm + entry.gain_db - entry.loss_db - proof.measured_loss_db
        elif proof.received_dbm is not None:
            fibre_dbm = proof.received_dbm + proof.circuit.exit.loss_db
        return LightReading(proof.launch_dbm, fibre_dbm, proof.los, monitors_ma)

    def _judge(self, held: _Held, seen: LightReading) -> LocatedFault | None:
        """Compare what is seen of a circuit with what was seen while all was well; return where it is broken."""
        health = held.health
        if seen.fibre_dbm is not None and seen.fibre_dbm > _level(held.well):
            held.well = seen
        well = held.well or self._promised(held, seen)
        health.lost_db = (
            None if seen.fibre_dbm is None or well.fibre_dbm is None else round(well.fibre_dbm - seen.fibre_dbm, 3)
        )
        health.worst_db = max(health.worst_db, health.lost_db or 0.0)
        return locate_fault(well, seen, held.circuit.exit.port, held.own_ports)

    def _found(self, held: _Held, found: LocatedFault | None) -> None:
        """Take in where a circuit is broken, or that it is not; a change is an alarm, or its end."""
        health = held.health
        # The marks tell of an alarm that an earlier program, or this one before an error, has left.
        was_broken = health.fault is not None or any(mark.startswith(_BROKEN) for mark in health.marks)
        is_other = found is not None and health.fault is not None and found.place != health.fault.place
        if (found is None) == was_broken or is_other:
            self._alarm(health.name, found)
        health.fault = found
        if found is not None:
            health.lost_db = None
        health.marks = tuple(self._marks(held))

    def _promised(self, held: _Held, seen: LightReading) -> LightReading:
        """Return what should be seen of a circuit that was never seen well: what its budget promises."""
        budget, entry = held.circuit.budget, held.circuit.entry
        fibre_dbm = budget.launch_dbm + entry.gain_db - entry.loss_db - budget.mesh_loss_db
        return LightReading(budget.launch_dbm, fibre_dbm, False, seen.monitors_ma)

    def _marks(self, held: _Held) -> list[str]:
        health, request = held.health, held.circuit.request
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

    def _alarm(self, name: str, found: LocatedFault | None) -> None:
        log = self._setup.bench.events
        if found is None:
            log.add("alarm over", circuit=name)
        else:
            log.add("alarm", circuit=name, place=found.place, detail=found.detail)

    # -- beside somebody else -----------------------------------------------------------------------------------------

    def _glance(self) -> None:
        """See how much light all circuits have, by one scan of the mesh's monitors; exits without one are left out."""
        self._glanced_s = self._clock.now()
        monitors_ma = self._monitors_ma()
        self._reads += bool(monitors_ma)
        for held in self._held:
            seen = self._glimpse(held, monitors_ma)
            if held.well is None or _level(seen) > _level(held.well):
                held.well = self._better(held, seen)
            well_dbm = None if held.well is None else held.well.fibre_dbm
            if well_dbm is not None:
                held.health.lost_db = None if seen.fibre_dbm is None else round(well_dbm - seen.fibre_dbm, 3)

    def _better(self, held: _Held, seen: LightReading) -> LightReading:
        """Return what is seen first of a circuit, or what its budget promises where far less is seen than that."""
        budgeted_photocurrent_ma = self._exits.budgeted_photocurrent_ma(held.circuit)
        if budgeted_photocurrent_ma is None or dbm_from_w(budgeted_photocurrent_ma * 1e-3) - _level(seen) < BROKEN_DB:
            return seen
        monitors_ma = {**seen.monitors_ma, held.circuit.exit.port: budgeted_photocurrent_ma}
        return LightReading(seen.launch_dbm, dbm_from_w(budgeted_photocurrent_ma * 1e-3), False, monitors_ma)

    def _glimpse(self, held: _Held, monitors_ma: dict[int, float]) -> LightReading:
        current_ma = monitors_ma.get(held.circuit.exit.port, 0.0)
        level_dbm = dbm_from_w(current_ma * 1e-3) if current_ma > 0.0 else None  # relative: it is compared only
        return LightReading(0.0, level_dbm, False, monitors_ma)

    def _is_to_be_searched(self, held: _Held) -> bool:
        if held.health.name in self.searching:
            return True
        lost_db = held.health.lost_db
        has_time = self._clock.now() >= held.attempted_s + _ATTEMPT_EVERY_S
        # In the dark it is for whoever watches to say whether that is a fade, a fault, or a fibre that was moved.
        return (
            held.is_single
            and held.circuit.entry.polarization is not None
            and lost_db is not None
            and SEARCH_DB < lost_db < _DARK_DB
            and has_time
        )

    def _search_apart(self, held: _Held) -> None:
        """Search one polarization, having said so: its light goes and comes meanwhile."""
        held.attempted_s = self._clock.now()
        self.searching.add(held.health.name)
        try:
            self._search(held)
            self._clock.sleep(_SEEN_S)
        finally:
            self.searching.discard(held.health.name)

    def _led_elsewhere(self, held: _Held, tracking: Tracking) -> Tracking | None:
        try:
            tracking.switch_reading(self._read(held))
        except DeviceError:  # no light there: what is searched next finds it
            return None
        return tracking

    # -- mending ------------------------------------------------------------------------------------------------------

    def _mend(self, held: _Held) -> None:
        """Search the polarization of a circuit that loses light, then look at its phases."""
        health, fault = held.health, held.health.fault
        lost_db = math.inf if health.lost_db is None else health.lost_db
        if not held.is_single or (
            fault is not None and fault.place in ("controller", "transmitter", "receiver", "path")
        ):
            return
        if lost_db <= TRIM_DB or self._clock.now() < held.attempted_s + _ATTEMPT_EVERY_S:
            return
        held.attempted_s = self._clock.now()
        # In turn: what a search has not brought back may be a phase, and the other way round.
        search = held.circuit.entry.polarization is not None and lost_db > SEARCH_DB and not held.was_searched
        held.was_searched = search
        if search:
            self._search(held)
        elif fault is None and lost_db < BROKEN_DB:
            self._trim(held)

    def _read(self, held: _Held) -> Callable[[], float]:
        def read() -> float:
            if self._ended():
                raise DeviceError("not read: the circuits are being changed")
            self._reads += 1
            held.health.reads += 1
            return self._exits.read_fastest_w(held.circuit.exit)  # as the search of the set-up reads, in its unit

        return read

    def _search(self, held: _Held) -> None:
        """Search the polarization of a circuit anew, and track it from there."""
        name, bench = held.circuit.entry.polarization or "", self._setup.bench
        held.health.searches += 1
        try:
            found = self._aligner.maximise(name, bench.polarizer(name), self._read(held))
        except (CircuitError, DeviceError) as error:
            bench.events.add("not aligned", controller=name, reason=str(error))
            return
        bench.events.add("aligned", controller=name, reads=found.reads, remaining_loss_db=found.remaining_loss_db)
        self._track(held, found)

    def _track(self, held: _Held, found: Alignment) -> None:
        name = held.circuit.entry.polarization
        controller = None if name is None else self._setup.bench.polarization.get(name)
        held.tracking = None
        if name is not None and controller is not None and found.light is not None:
            held.tracking = self._aligner.track(name, controller, self._read(held), found)
            held.began_with = self._service.alignments[name] = found

    def _track_until(self, end_s: float, ended: Callable[[], bool] = lambda: False) -> None:
        """Follow all tracked polarizations side by side until a time, no faster than the budget allows."""
        # What the looks leave of the budget, but not less than a tenth of it: light that moves is not left alone.
        left_per_s = max(self._reads_per_s - (len(self._held) + 1) / self._period_s, 0.1 * self._reads_per_s)
        interval_s = max(len([held for held in self._held if held.tracking]), 1) / left_per_s
        next_s = self._clock.now()
        while next_s + interval_s <= end_s and not ended():
            tracked = [held for held in self._held if held.tracking is not None and held.health.fault is None]
            if not tracked:
                break
            self._clock.run_parallel([functools.partial(self._track_once, held) for held in tracked])
            next_s = max(next_s + interval_s, self._clock.now())
            self._clock.sleep(max(next_s - self._clock.now(), 0.0))
        if end_s < math.inf and not ended():
            self._clock.sleep(max(end_s - self._clock.now(), 0.0))

    def _track_once(self, held: _Held) -> None:
        if held.tracking is None:
            return
        try:
            state = held.tracking.step()
        except DeviceError as error:  # a reading out of range: the next look tells what is wrong
            if self._ended():
                return
            self._setup.bench.events.add("not tracked", circuit=held.health.name, reason=str(error))
            return
        if state.lost:
            held.tracking = None
            held.attempted_s = -math.inf

    def _trim(self, held: _Held) -> None:
        """Look at the phases of a circuit, as many PUCs as a second of readings allows, and set them right."""
        pucs = held.circuit.path.pucs
        bench, read, set_right = self._setup.bench, self._read(held), False
        for _ in range(min(len(pucs), max(1, int(self._reads_per_s * _ATTEMPT_EVERY_S / READS)))):
            puc = pucs[held.next_puc % len(pucs)]
            held.next_puc += 1
            try:
                with self._service.lock.changing():
                    found = trim_phase(bench.mesh, self._setup.record, puc, read)
            except LimitError:
                continue
            self._trimmed(held, found)
            set_right |= found.corrected
        if not set_right:
            bench.events.add("drift to be measured", circuit=held.health.name, hint="lumion-calibrate drift")
        self._note()

    def _trimmed(self, held: _Held, found: PhaseError) -> None:
        error_rad = round(found.error_rad, 4)
        if found.corrected:
            self.drifted_rad[found.puc] = self.drifted_rad.get(found.puc, 0.0) + found.error_rad
            self._setup.bench.events.add(
                "phase set right", circuit=held.health.name, puc=found.puc, error_rad=error_rad
            )

    # -- what is written down -----------------------------------------------------------------------------------------

    def _note(self) -> None:
        """Bring readings, marks and currents to the journal; one that cannot be written ends nobody's service."""
        health = {held.health.name: held.health for held in self._held}
        circuits = [self._as_noted(circuit, health.get(circuit.name)) for circuit in self._service.state.circuits]
        self._noted_s = self._clock.now()
        try:
            self._service.note(circuits)
        except LumionError as error:
            self._setup.bench.events.add("not noted", reason=str(error))

    def _as_noted(self, circuit: ActiveCircuit, health: CircuitHealth | None) -> ActiveCircuit:
        if health is None or health.proof is None or health.measured_s is None:
            return circuit
        ago = timedelta(seconds=self._clock.now() - health.measured_s)
        seen = (self._service.time.utc() - ago).isoformat(timespec="milliseconds")
        # A broken circuit has no margin: what is read of it is other light.
        measured = {} if health.fault is not None else proof_document(health.proof)
        return dataclasses.replace(circuit, proof=measured, seen_utc=seen, marks=health.marks)


def _level(seen: LightReading | None) -> float:
    """Return the level in the fibre at the facet; minus infinity where there was none."""
    return -math.inf if seen is None or seen.fibre_dbm is None else seen.fibre_dbm
