"""Setting circuits up: program, align, prove by measured light, or roll back."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.bench.bench import Bench
from lumion_hw.bench.record_use import check_use
from lumion_hw.circuits.exit_power import ExitPower
from lumion_hw.circuits.plan import plan_circuits
from lumion_hw.circuits.planned import CircuitPlan, PlannedCircuit
from lumion_hw.circuits.request import CircuitRequest
from lumion_hw.errors import CircuitError, DeviceError, LumionError
from lumion_hw.interfaces.wiring import InputPath
from lumion_hw.mesh.record import CalibrationRecord
from lumion_hw.mesh.record_validity import Policy
from lumion_hw.mesh.topology import State
from lumion_hw.polarization import Aligner, Alignment

_LOS_DEADLINE_S = 1.0
_LOS_POLL_S = 0.02
_ALIGNED_WITHIN_DB = 0.3

Milestone = Callable[[str], None]
"""Told of each milestone reached: ``programmed``, ``settled``, ``los_clear``, ``link_up``."""


@dataclass(frozen=True)
class CircuitProof:
    """What was measured of one circuit.

    Attributes:
        circuit: What was planned.
        launch_dbm: Launch power as the transmitting module reports it.
        measured_loss_db: Fibre to fibre over the mesh, from launch and meter; ``None`` without a reading.
        received_dbm: Power at the receiver as the meter on its tap implies; ``None`` without a reading.
        los: The receiving module reports loss of signal.
        alignment: The polarization search, ``None`` where none was needed or possible.
        failures: Why it is not proven, one clause each; empty if it is.
    """

    circuit: PlannedCircuit
    launch_dbm: float | None
    measured_loss_db: float | None
    received_dbm: float | None
    los: bool
    alignment: Alignment | None
    failures: tuple[str, ...]

    @property
    def proven(self) -> bool:
        """Whether power, budget and the receiver's own LOS agree that this circuit carries light."""
        return not self.failures

    @property
    def margin_db(self) -> float | None:
        """Measured margin over the receiver's sensitivity."""
        if self.received_dbm is None:
            return None
        return self.received_dbm - self.circuit.budget.sensitivity_dbm

    @property
    def loss_error_db(self) -> float | None:
        """Measured minus predicted loss over the mesh."""
        if self.measured_loss_db is None:
            return None
        return self.measured_loss_db - self.circuit.budget.mesh_loss_db


@dataclass(frozen=True)
class _Light:
    """What transmitter, meter and receiver of one circuit say at one time; ``None`` where there is no number."""

    launch_dbm: float | None
    fibre_dbm: float | None
    los: bool

    def mesh_loss_db(self, entry: InputPath) -> float | None:
        """Loss from fibre to fibre over the mesh."""
        if self.launch_dbm is None or self.fibre_dbm is None:
            return None
        return self.launch_dbm + entry.gain_db - entry.loss_db - self.fibre_dbm


class PathSetup:
    """Sets circuits up on a calibrated bench and remembers what is set up.

    Args:
        bench: The bench.
        record: Calibration of its mesh.
        aligner: Polarization search; share it with the calibration to keep what it learnt.
        policy: Whether a record that is too old, or of another temperature, is refused or warned of.
    """

    def __init__(
        self, bench: Bench, record: CalibrationRecord, aligner: Aligner | None = None, policy: Policy = "warn"
    ) -> None:
        bench.mesh.check_record(record)
        check_use(bench, record, policy)
        self.bench = bench
        self.record = record
        self._aligner = aligner or Aligner(bench.clock)
        self._exits = ExitPower(bench, record)
        self.active: CircuitPlan | None = None
        self._proven_loss_db: dict[tuple[CircuitRequest, tuple[int, ...]], float] = {}

    def plan(self, requests: Sequence[CircuitRequest], *, fixed: Mapping[int, State] | None = None) -> CircuitPlan:
        """Plan circuits; nothing is changed. Arguments and errors of :func:`~lumion_hw.circuits.plan.plan_circuits`."""
        return plan_circuits(self.bench, self.record, requests, fixed=fixed)

    def establish(
        self, plan: CircuitPlan, *, align: bool = True, milestone: Milestone = lambda name: None
    ) -> tuple[CircuitProof, ...]:
        """Program a plan in one atomic commit and prove every circuit, or put the mesh back as it was.

        Args:
            plan: What to set up.
            align: Search the polarization at every input. Otherwise only where the loss says that it has moved.
            milestone: Told of each milestone reached by the last circuit.

        Raises:
            CircuitError: A circuit was not proven; the message says which and why, and that the mesh was rolled back.
            LumionError: A device failed; the mesh was rolled back, unless it is the controller that failed.
        """
        bench = self.bench
        # Read back where the controller can: another program may have set it since.
        before_ma = bench.mesh.driven_ma()
        try:
            bench.mesh.program(plan.currents_ma)
            bench.events.add("programmed", circuits=len(plan.circuits), heat_mw=self._heat_mw(plan))
            milestone("programmed")
            # Light before the polarization search, which has nothing else to go by.
            sources = dict.fromkeys(circuit.request.source for circuit in plan.circuits)
            bench.side_by_side([(name, bench.transponders[name].enable) for name in sources])
            alignments = self._align(plan.circuits, align)
            milestone("settled")
            self._await_los_clear(plan.circuits)
            milestone("los_clear")
            proofs = self._prove(plan.circuits, alignments)
            for proof in proofs:
                bench.events.add("proof", **_summary(proof))
            if not all(proof.proven for proof in proofs):
                raise CircuitError(_verdict(proofs))
        except Exception:
            self._roll_back(before_ma)
            raise
        except BaseException:  # an interrupt stays one, even if the controller is gone as well
            with contextlib.suppress(LumionError):
                self._roll_back(before_ma)
            raise
        milestone("link_up")
        self.active = plan
        self._proven_loss_db = {
            (proof.circuit.request, proof.circuit.path.pucs): proof.measured_loss_db
            for proof in proofs
            if proof.measured_loss_db is not None
        }
        return proofs

    def prove(self) -> tuple[CircuitProof, ...]:
        """Measure the circuits that are set up, changing nothing."""
        circuits = self.active.circuits if self.active else ()
        return self._prove(circuits, {})

    def crosstalk_db(self) -> dict[CircuitRequest, float | None]:
        """Measure, circuit by circuit, the wanted power over all other light at its exit.

        Each source is switched off in turn while the others go on; ``None`` where the rest is too dark to read. The
        circuits carry no traffic meanwhile.
        """
        result: dict[CircuitRequest, float | None] = {}
        for circuit in self.active.circuits if self.active else ():
            module = self.bench.transponders[circuit.request.source]
            wanted_dbm = self._exits.in_fibre_dbm(circuit.exit)
            module.disable()
            try:
                rest_dbm = self._exits.in_fibre_dbm(circuit.exit)
            finally:
                module.enable()
            if wanted_dbm is None or rest_dbm is None:
                result[circuit.request] = None
            else:
                result[circuit.request] = wanted_dbm - rest_dbm
        return result

    def _heat_mw(self, plan: CircuitPlan) -> float:
        return round(float(self.record.heater_power_mw(plan.currents_ma).sum()), 2)

    def _roll_back(self, before_ma: NDArray[np.float64]) -> None:
        """Drive the former currents again; if that fails, nothing is known to be set up any more."""
        try:
            self.bench.mesh.program(before_ma)
        except LumionError as error:
            self.active = None
            self.bench.events.add("not rolled back", reason=str(error))
            raise
        self.bench.events.add("rolled back")

    def _align(self, circuits: Sequence[PlannedCircuit], always: bool) -> dict[CircuitRequest, Alignment]:
        """Search the polarization at all inputs that have a controller and need it, side by side."""
        movable = [circuit for circuit in circuits if circuit.entry.polarization is not None]
        if not always:
            light = self._light_of(movable)
            movable = [each for each, seen in zip(movable, light, strict=True) if not self._is_in_place(each, seen)]
        found = self.bench.clock.side_by_side([functools.partial(self._aligned, circuit) for circuit in movable])
        alignments = {}
        for circuit, alignment in zip(movable, found, strict=True):
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

    def _is_in_place(self, circuit: PlannedCircuit, light: _Light) -> bool:
        """Return whether so little light is lost that the polarization cannot have moved."""
        # Polarization that has moved can only cost light; a circuit in service is compared with its own last proof, so
        # that a prediction a little off never starts a search under somebody's traffic.
        loss_db = light.mesh_loss_db(circuit.entry)
        last_db = self._proven_loss_db.get((circuit.request, circuit.path.pucs), circuit.budget.mesh_loss_db)
        return loss_db is not None and loss_db < max(last_db, circuit.budget.mesh_loss_db) + _ALIGNED_WITHIN_DB

    def _aligned(self, circuit: PlannedCircuit) -> Alignment | CircuitError | DeviceError:
        """Search one polarization; a search in vain is returned: the proof judges all circuits together."""
        name = circuit.entry.polarization or ""
        try:
            return self._aligner.maximise(name, self.bench.polarizer(name), lambda: self._exits.read_w(circuit.exit))
        except (CircuitError, DeviceError) as error:
            return error

    def _light_of(self, circuits: Sequence[PlannedCircuit]) -> list[_Light]:
        """Ask transmitters, meters and receivers of circuits side by side."""
        bench, launch_dbm, los = self.bench, dict[str, float | None](), dict[str, bool]()

        def ask_launch(name: str) -> None:
            launch_dbm[name] = bench.transponders[name].monitors().tx_power_dbm

        def ask_los(name: str) -> None:
            los[name] = bench.transponders[name].status().rx_los

        sources = dict.fromkeys(circuit.request.source for circuit in circuits)
        targets = dict.fromkeys(circuit.request.target for circuit in circuits)
        asked = [(name, functools.partial(ask_launch, name)) for name in sources]
        asked += [(name, functools.partial(ask_los, name)) for name in targets]

        def ask_modules() -> None:
            bench.side_by_side(asked)

        jobs: list[Callable[[], float | None]] = [ask_modules]
        jobs += [functools.partial(self._exits.in_fibre_dbm, circuit.exit) for circuit in circuits]
        _, *fibre_dbm = bench.clock.side_by_side(jobs)
        return [
            _Light(launch_dbm[circuit.request.source], seen_dbm, los[circuit.request.target])
            for circuit, seen_dbm in zip(circuits, fibre_dbm, strict=True)
        ]

    def _await_los_clear(self, circuits: Iterable[PlannedCircuit]) -> None:
        """Wait until no receiver reports loss of signal, or the deadline has passed (the proof then says so)."""
        bench = self.bench
        deadline = bench.clock.now() + _LOS_DEADLINE_S
        waiting = [circuit.request.target for circuit in circuits]
        while waiting:
            status = bench.side_by_side([(name, bench.transponders[name].status) for name in waiting])
            waiting = [name for name, each in zip(waiting, status, strict=True) if each.rx_los]
            if not waiting or bench.clock.now() >= deadline:
                return
            bench.clock.sleep(_LOS_POLL_S)

    def _prove(
        self, circuits: Sequence[PlannedCircuit], alignments: Mapping[CircuitRequest, Alignment]
    ) -> tuple[CircuitProof, ...]:
        """Judge circuits by meters, their budgets and the receivers' LOS."""
        return tuple(
            self._judged(circuit, light, alignments.get(circuit.request))
            for circuit, light in zip(circuits, self._light_of(circuits), strict=True)
        )

    def _judged(self, circuit: PlannedCircuit, light: _Light, alignment: Alignment | None) -> CircuitProof:
        """Judge one circuit."""
        budget, out = circuit.budget, circuit.exit
        loss_db, received_dbm = light.mesh_loss_db(circuit.entry), None
        if light.fibre_dbm is not None:
            received_dbm = light.fibre_dbm - out.loss_db + 10.0 * math.log10(1.0 - out.tap_fraction)
        tolerance_db = self.bench.model.fabric.loss_tolerance_db
        failures = []
        if light.launch_dbm is None:
            failures.append("the transmitter is dark")
        if received_dbm is None:
            failures.append("no power reaches the receiver's tap")
        elif received_dbm < budget.sensitivity_dbm:
            failures.append(f"{received_dbm:.1f} dBm is below the sensitivity of {budget.sensitivity_dbm:.1f} dBm")
        elif received_dbm > budget.overload_dbm:
            failures.append(f"{received_dbm:.1f} dBm is above the overload of {budget.overload_dbm:.1f} dBm")
        if loss_db is not None and abs(loss_db - budget.mesh_loss_db) > tolerance_db:
            failures.append(f"loss {loss_db:.1f} dB, predicted {budget.mesh_loss_db:.1f} dB ± {tolerance_db:.1f}")
        if light.los:
            failures.append("the receiver reports loss of signal")
        return CircuitProof(circuit, light.launch_dbm, loss_db, received_dbm, light.los, alignment, tuple(failures))


def _summary(proof: CircuitProof) -> dict[str, object]:
    """Return what the event log keeps of a proof."""
    return {
        "source": proof.circuit.request.source,
        "target": proof.circuit.request.target,
        "hops": proof.circuit.path.hops,
        "predicted_loss_db": round(proof.circuit.budget.mesh_loss_db, 3),
        "measured_loss_db": None if proof.measured_loss_db is None else round(proof.measured_loss_db, 3),
        "received_dbm": None if proof.received_dbm is None else round(proof.received_dbm, 3),
        "los": proof.los,
        "proven": proof.proven,
    }


def _verdict(proofs: Sequence[CircuitProof]) -> str:
    """Say which circuits were proven and which were not, and why."""
    good = [f"{p.circuit.request.source} to {p.circuit.request.target}" for p in proofs if p.proven]
    bad = [
        f"{p.circuit.request.source} to {p.circuit.request.target}: {', '.join(p.failures)}"
        for p in proofs
        if not p.proven
    ]
    return (
        f"{len(bad)} of {len(proofs)} circuits could not be proven ({'; '.join(bad)}); proven: "
        f"{', '.join(good) or 'none'}. All were taken away again: the mesh is as it was before."
    )
