"""Acceptance check of circuits: measured light against the prediction."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from lumion_hw.bench.bench import Bench
from lumion_hw.circuits.arm_levels import ArmLevels
from lumion_hw.circuits.coherent import Acceptance, check_receiver
from lumion_hw.circuits.lane_light import LaneLight, compare_lanes, lane_findings
from lumion_hw.circuits.output_power import OutputPowerReader
from lumion_hw.circuits.plan.planned import CircuitArm, PlannedCircuit
from lumion_hw.circuits.plan.request import CircuitRequest
from lumion_hw.interfaces.transponder import LaneMonitoring
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.polarization import Alignment
from lumion_hw.quantities import dbm_from_w, w_from_dbm

LAUNCH_SIGMA_DB = 0.1
"""Drift of a module's reported launch power."""
UNCALIBRATED_LAUNCH_SIGMA_DB = 1.5
"""Fixed error of a module's reported launch power, at most ±3 dB (SFF-8472); calibration removes it."""
METER_SIGMA_DB = 0.1
"""Fixed error of a power meter, ±2.5 % (Keysight N77xx)."""
MONITOR_SIGMA_DB = 0.05
"""Drift of a calibrated photodiode on the chip."""
UNALIGNED_SIGMA_DB = 0.1
"""Loss that remains after a polarization search."""
LEAKAGE_SIGMA_DB = 0.05
"""Effect of light that leaks out of the path and back in, 25 dB weaker at each leak: 20 log10(1 + 10^-2.5)."""
_SIGMAS = 4.0
"""Acceptance limit: 4 sigma, so 1 in 10,000 good circuits is rejected."""
_LOS_DEADLINE_S = 1.0
_LOS_POLL_S = 0.02


@dataclass(frozen=True)
class CircuitProof:
    """Result of measuring one circuit.

    Attributes:
        launch_dbm: Launch power that the transmitting module reports.
        measured_loss_db: Loss of the mesh from fibre to fibre, from launch power and meter; ``None`` without a reading.
        received_dbm: Power at the receiver, from the meter on its tap; ``None`` without a reading.
        los: Whether the receiving module reports loss of signal.
        alignment: The polarization search; ``None`` if none was needed or possible.
        failures: Reasons why the circuit is not accepted, one clause each; empty if it is.
        tolerance_db: Allowed difference between measured and predicted loss.
        arm_losses_db: The measured loss of each arm.
        acceptance: Report of a dual-polarization receiver; ``None`` for other circuits, and if the power is not
            accepted.
        levels: Received power of each arm separately; ``None`` with one arm, and for circuits in service.
        lanes: Power of each lane, if several share the fibre and both modules measure them.
        findings: Lanes whose powers differ too much, which need not make the circuit fail; one text each.
    """

    circuit: PlannedCircuit
    launch_dbm: float | None
    measured_loss_db: float | None
    received_dbm: float | None
    los: bool
    alignment: Alignment | None
    failures: tuple[str, ...]
    tolerance_db: float = math.nan
    arm_losses_db: tuple[float | None, ...] = ()
    acceptance: Acceptance | None = None
    levels: ArmLevels | None = None
    lanes: tuple[LaneLight, ...] = ()
    findings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return a one-line summary of the measurement."""
        request = self.circuit.request
        verdict = "proven" if self.proven else "not proven: " + "; ".join(self.failures)
        loss = "" if self.measured_loss_db is None else f", loss {self.measured_loss_db:.2f} dB"
        return f"<CircuitProof {request.name}{loss}, {verdict}>"

    def _repr_html_(self) -> str:
        from lumion_hw.files.html import html_pairs

        def db(value: float | None, unit: str) -> str | None:
            return None if value is None else f"{value:.2f} {unit}"

        request, budget = self.circuit.request, self.circuit.budget
        pairs = {
            "proven": "yes" if self.proven else "no: " + "; ".join(self.failures),
            "way": "; ".join(" ".join(map(str, arm.path.pucs)) for arm in self.circuit.arms),
            "launched": db(self.launch_dbm, "dBm"),
            "loss over the mesh": db(self.measured_loss_db, "dB"),
            "predicted": db(budget.mesh_loss_db, "dB"),
            "received": db(self.received_dbm, "dBm"),
            "margin": db(self.margin_db, "dB"),
            "loss of signal": self.los,
        }
        return html_pairs(f"{request.source} → {request.target}", pairs)

    @property
    def proven(self) -> bool:
        """Whether the circuit passed the check of power, link budget and loss of signal."""
        return not self.failures

    @property
    def margin_db(self) -> float | None:
        """Measured margin over the receiver's sensitivity, in dB; ``None`` without light or without a receiver."""
        budget = self.circuit.budget
        return (
            None if self.received_dbm is None or not budget.has_receiver else self.received_dbm - budget.sensitivity_dbm
        )

    @property
    def overload_margin_db(self) -> float | None:
        """Measured margin below the receiver's overload power, in dB; ``None`` as for :attr:`margin_db`."""
        budget = self.circuit.budget
        return None if self.received_dbm is None or not budget.has_receiver else budget.overload_dbm - self.received_dbm

    @property
    def loss_error_db(self) -> float | None:
        """Measured minus predicted loss of the circuit in the mesh, in dB."""
        if self.measured_loss_db is None:
            return None
        return self.measured_loss_db - self.circuit.budget.mesh_loss_db


@dataclass(frozen=True)
class CircuitLight:
    """Readings of the transmitter, meters and receiver of one circuit; ``None`` where a number is missing.

    Attributes:
        launch_dbm: Launch power that the module reports.
        fibre_dbm: Power in the output fibre at the mesh facet, for each arm.
        los: Whether the receiver reports loss of signal.
        lanes: Power of each lane, if several share the fibre and both modules measure them.
    """

    launch_dbm: float | None
    fibre_dbm: tuple[float | None, ...]
    los: bool
    lanes: tuple[LaneLight, ...] = ()

    def received_dbm(self, circuit: PlannedCircuit) -> float | None:
        """Return the power of all paths together at the receiver, in dBm."""
        arrived = [
            w_from_dbm(arm_dbm - arm.exit.loss_db) * arm.exit.receiver_fraction
            for arm, arm_dbm in zip(circuit.arms, self.fibre_dbm, strict=True)
            if arm_dbm is not None
        ]
        return dbm_from_w(sum(arrived)) if arrived else None

    def mesh_loss_db(self, circuit: PlannedCircuit) -> float | None:
        """Return the loss of the mesh from fibre to fibre, in dB."""
        received_dbm = self.received_dbm(circuit)
        if self.launch_dbm is None or received_dbm is None:
            return None
        return self.launch_dbm + circuit.budget.gain_db - circuit.budget.fixed_loss_db - received_dbm

    def arm_losses_db(self, circuit: PlannedCircuit) -> tuple[float | None, ...]:
        """Return the loss of each arm (path of one polarization) from fibre to fibre."""
        share_db = arm_split_loss_db(circuit)
        return tuple(
            None
            if self.launch_dbm is None or arm_dbm is None
            else self.launch_dbm - share_db + arm.entry.gain_db - arm.entry.loss_db - arm_dbm
            for arm, arm_dbm in zip(circuit.arms, self.fibre_dbm, strict=True)
        )


def arm_split_loss_db(circuit: PlannedCircuit) -> float:
    """Return the loss in dB from dividing the module's power: 0 with one path, 3 with two."""
    return 10.0 * math.log10(len(circuit.arms))


def expected_level_dbm(circuit: PlannedCircuit, arm: CircuitArm) -> float:
    """Return the expected power in the output fibre of an arm, in dBm."""
    entry = arm.entry
    return circuit.budget.launch_dbm - arm_split_loss_db(circuit) + entry.gain_db - entry.loss_db - arm.loss_db


def loss_tolerance_db(bench: Bench, record: CalibrationRecord, arm: CircuitArm, mesh_sigma_db: float) -> float:
    """Return the largest accepted difference between measured and predicted loss of an arm, in dB.

    It follows from the standard errors of prediction and measurement; ``fabric.loss_tolerance_db`` in the bench file is
    an upper bound.
    """
    is_calibrated = record.port(arm.entry.port).input_loss_db is not None
    launch_db = LAUNCH_SIGMA_DB if is_calibrated else UNCALIBRATED_LAUNCH_SIGMA_DB
    exit_db = METER_SIGMA_DB if arm.exit.meter is not None else MONITOR_SIGMA_DB
    # Independent errors add in quadrature; docs/decisions/0016 lists them.
    tolerance_db = _SIGMAS * math.hypot(mesh_sigma_db, launch_db, exit_db, UNALIGNED_SIGMA_DB, LEAKAGE_SIGMA_DB)
    max_db = bench.model.fabric.loss_tolerance_db
    return tolerance_db if max_db is None else min(tolerance_db, max_db)


class Prover:
    """Measures and checks circuits without changing anything.

    Args:
        exits: Reads the powers at the outputs.
    """

    def __init__(self, bench: Bench, exits: OutputPowerReader) -> None:
        self._bench = bench
        self._exits = exits

    def read_light(self, circuits: Sequence[PlannedCircuit]) -> list[CircuitLight]:
        """Read the transmitters, meters and receivers of circuits in parallel."""
        bench, launch_dbm, los = self._bench, dict[str, float | None](), dict[str, bool]()

        def read_launch(name: str) -> None:
            launch_dbm[name] = bench.circuit_module(name).monitors().tx_power_dbm

        def read_los(name: str) -> None:
            los[name] = bench.circuit_module(name).status().rx_los

        sources = dict.fromkeys(circuit.request.source for circuit in circuits)
        targets = dict.fromkeys(circuit.request.target for circuit in circuits)
        questions = [(name, functools.partial(read_launch, name)) for name in sources]
        questions += [(name, functools.partial(read_los, name)) for name in targets]

        def read_modules() -> None:
            bench.run_parallel(questions)

        # Modules and meters are on separate wires, so they are read at the same time (docs/decisions/0014).
        jobs: list[Callable[[], float | None]] = [read_modules]
        jobs += [
            functools.partial(self._exits.fibre_level_dbm, arm.exit) for circuit in circuits for arm in circuit.arms
        ]
        _, *levels_dbm = bench.clock.run_parallel(jobs)
        level_iterator = iter(levels_dbm)
        lanes = self._read_lanes([circuit for circuit in circuits if not los[circuit.request.target]])
        return [
            CircuitLight(
                launch_dbm[circuit.request.source],
                tuple(next(level_iterator) for _ in circuit.arms),
                los[circuit.request.target],
                lanes.get(circuit.request, ()),
            )
            for circuit in circuits
        ]

    def _read_lanes(self, circuits: Sequence[PlannedCircuit]) -> dict[CircuitRequest, tuple[LaneLight, ...]]:
        """Read the lanes of modules that share a fibre. Wait at most one second until all are accepted."""
        bench, monitored = self._bench, dict[str, LaneMonitoring]()
        for circuit in circuits:
            for name in (circuit.request.source, circuit.request.target) if circuit.budget.lanes else ():
                if isinstance(module := bench.circuit_module(name), LaneMonitoring):
                    monitored[name] = module
        measured = [circuit for circuit in circuits if {circuit.request.source, circuit.request.target} <= {*monitored}]
        lanes: dict[CircuitRequest, tuple[LaneLight, ...]] = {}
        deadline = bench.clock.now() + _LOS_DEADLINE_S
        while measured:
            readings = bench.run_parallel([(name, module.lane_monitors) for name, module in monitored.items()])
            of_module = dict(zip(monitored, readings, strict=True))
            for circuit in measured:
                sent = {lane.lane: lane.tx_power_dbm for lane in of_module[circuit.request.source]}
                received = {lane.lane: lane.rx_power_dbm for lane in of_module[circuit.request.target]}
                lanes[circuit.request] = compare_lanes(circuit, sent, received)
            # Modules refresh their monitors some time after a change of the light.
            is_accepted = not any(lane.failure for own in lanes.values() for lane in own)
            if is_accepted or bench.clock.now() >= deadline:
                break
            bench.clock.sleep(_LOS_POLL_S)
        return lanes

    def await_los_clear(self, circuits: Sequence[PlannedCircuit]) -> None:
        """Wait at most one second until no receiver reports loss of signal."""
        bench = self._bench
        deadline = bench.clock.now() + _LOS_DEADLINE_S
        waiting = [circuit.request.target for circuit in circuits]
        while waiting:
            status = bench.run_parallel([(name, bench.circuit_module(name).status) for name in waiting])
            waiting = [name for name, reading in zip(waiting, status, strict=True) if reading.rx_los]
            if not waiting or bench.clock.now() >= deadline:
                return
            bench.clock.sleep(_LOS_POLL_S)

    def evaluate(
        self,
        record: CalibrationRecord,
        circuits: Sequence[PlannedCircuit],
        light: Sequence[CircuitLight],
        alignments: Mapping[CircuitRequest, Alignment],
        levels: Mapping[CircuitRequest, ArmLevels],
    ) -> tuple[CircuitProof, ...]:
        """Check circuits by their readings and link budgets."""
        return tuple(
            self._check_circuit(record, circuit, reading, alignments.get(circuit.request), levels.get(circuit.request))
            for circuit, reading in zip(circuits, light, strict=True)
        )

    def _check_circuit(
        self,
        record: CalibrationRecord,
        circuit: PlannedCircuit,
        light: CircuitLight,
        alignment: Alignment | None,
        levels: ArmLevels | None,
    ) -> CircuitProof:
        budget = circuit.budget
        loss_db, received_dbm = light.mesh_loss_db(circuit), light.received_dbm(circuit)
        tolerance_db = loss_tolerance_db(self._bench, record, circuit.arms[0], budget.loss_sigma_db)
        failures = []
        if light.launch_dbm is None:
            failures.append("the transmitter is dark")
        if received_dbm is None:
            failures.append("no power reaches the receiver's tap")
        elif received_dbm < budget.sensitivity_dbm:
            failures.append(
                f"received {received_dbm:.1f} dBm is below the sensitivity of {budget.sensitivity_dbm:.1f} dBm"
            )
        elif received_dbm > budget.overload_dbm:
            failures.append(
                f"received {received_dbm:.1f} dBm is above the overload level of {budget.overload_dbm:.1f} dBm"
            )
        if loss_db is not None and abs(loss_db - budget.mesh_loss_db) > tolerance_db:
            unpredicted_nm = ", ".join(f"{lane.wavelength_nm:g}" for lane in budget.lanes if not lane.is_calibrated)
            reason = f" (the calibration is not valid at {unpredicted_nm} nm)" if unpredicted_nm else ""
            predicted = f"{budget.mesh_loss_db:.1f} ± {tolerance_db:.1f} dB{reason}"
            failures.append(f"loss {loss_db:.1f} dB, predicted {predicted}")
        arm_losses_db = light.arm_losses_db(circuit)
        # The sum of both arms would hide that one of them is dark.
        if circuit.strategy == "dual":
            failures += [
                failure
                for arm, arm_loss_db in zip(circuit.arms, arm_losses_db, strict=True)
                if (failure := self._arm_failure(record, arm, arm_loss_db)) is not None
            ]
        failures += [lane.failure for lane in light.lanes if lane.failure]
        if levels is not None and levels.failure:
            failures.append(levels.failure)
        if light.los:
            failures.append("the receiver reports loss of signal")
        return CircuitProof(
            circuit,
            light.launch_dbm,
            loss_db,
            received_dbm,
            light.los,
            alignment,
            tuple(failures),
            tolerance_db,
            arm_losses_db,
            levels=levels,
            lanes=light.lanes,
            findings=lane_findings(circuit, light.lanes),
        )

    def check_receivers(self, proofs: Sequence[CircuitProof], lock_timeout_s: float) -> tuple[CircuitProof, ...]:
        """Read the signal quality of dual-polarization circuits whose power is accepted.

        Args:
            proofs: Results of the power checks.
            lock_timeout_s: Time that receivers may take to lock.
        """
        # Without enough power a receiver cannot lock, and waiting for it would take up to a minute.
        questions = [
            (
                proof.circuit.request.target,
                functools.partial(check_receiver, self._bench, proof.circuit, lock_timeout_s),
            )
            for proof in proofs
            if proof.circuit.strategy == "dual" and proof.proven
        ]
        answers = iter(self._bench.run_parallel(questions))
        return tuple(
            replace(proof, acceptance=(result := next(answers)), failures=result.failures)
            if proof.circuit.strategy == "dual" and proof.proven
            else proof
            for proof in proofs
        )

    def _arm_failure(self, record: CalibrationRecord, arm: CircuitArm, loss_db: float | None) -> str | None:
        where = f"arm {arm.entry.tributary or arm.exit.tributary} (ports {arm.entry.port} to {arm.exit.port})"
        if loss_db is None:
            return f"{where} is dark"
        tolerance_db = loss_tolerance_db(self._bench, record, arm, arm.loss_sigma_db)
        if abs(loss_db - arm.loss_db) > tolerance_db:
            return f"{where}: loss {loss_db:.1f} dB, predicted {arm.loss_db:.1f} ± {tolerance_db:.1f} dB"
        return None


def proof_event(proof: CircuitProof) -> dict[str, object]:
    """Return the result of a check as details for the event log."""
    acceptance = proof.acceptance
    names = () if acceptance is None else ("pdl_db", "dgd_ps", "prefec_ber")
    receiver: dict[str, object] = {name: getattr(acceptance, name) for name in names}
    levels = proof.levels
    if levels is not None:
        imbalance_db = None if levels.imbalance_db is None else round(levels.imbalance_db, 3)
        receiver |= {"arms_differ_db": imbalance_db, "arms_not_told_apart": levels.unresolved}
    if proof.lanes:
        receiver |= {"lanes": [rounded_lane(lane) for lane in proof.lanes], "findings": list(proof.findings)}
    return receiver | {
        "source": proof.circuit.request.source,
        "target": proof.circuit.request.target,
        "hops": proof.circuit.hops,
        "predicted_loss_db": round(proof.circuit.budget.mesh_loss_db, 3),
        "measured_loss_db": None if proof.measured_loss_db is None else round(proof.measured_loss_db, 3),
        "tolerance_db": round(proof.tolerance_db, 3),
        "received_dbm": None if proof.received_dbm is None else round(proof.received_dbm, 3),
        "los": proof.los,
        "proven": proof.proven,
    }


def rounded_lane(lane: LaneLight) -> dict[str, object]:
    """Return the powers of a lane as a JSON document, decibels with 3 decimals."""
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in asdict(lane).items()}


def describe_proofs(proofs: Sequence[CircuitProof]) -> str:
    """Describe which circuits passed the check, which failed, and why."""
    proven = [str(proof.circuit.request) for proof in proofs if proof.proven]
    failed = [f"{p.circuit.request}: {', '.join(p.failures)}" for p in proofs if not p.proven]
    return (
        f"{len(failed)} of {len(proofs)} circuits could not be verified by their light ({'; '.join(failed)}). "
        f"Verified: {', '.join(proven) or 'none'}. The mesh was rolled back."
    )
