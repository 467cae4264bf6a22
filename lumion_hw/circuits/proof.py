"""Proof of circuits by measured light: what transmitters, meters and receivers say, against what was predicted."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lumion_hw.bench.bench import Bench
from lumion_hw.circuits.exit_power import ExitPower
from lumion_hw.circuits.plan import CircuitRequest, PlannedCircuit
from lumion_hw.interfaces.wiring import InputPath
from lumion_hw.mesh.record import CalibrationRecord
from lumion_hw.polarization import Alignment

LAUNCH_SIGMA_DB = 0.1
"""What the reported launch power of a module wanders by; its fixed error is part of a calibrated input loss."""
UNCALIBRATED_LAUNCH_SIGMA_DB = 1.5
"""The fixed error of that report, ±3 dB at the most (SFF-8472), where no calibration has taken it out."""
METER_SIGMA_DB = 0.1
"""A power meter's fixed error, ±2.5 % (Keysight N77xx)."""
MONITOR_SIGMA_DB = 0.05
"""What a calibrated photodiode on the chip wanders by."""
UNALIGNED_SIGMA_DB = 0.1
"""What a search of the polarization leaves."""
LEAKAGE_SIGMA_DB = 0.05
"""Light that comes back to the path after leaking out of it twice, 25 dB down each time: 20 log10(1 + 10^-2.5)."""
_TYPICAL_ACCESS_SIGMA_DB = 1.0
_SIGMAS = 4.0
"""Of these a proof allows: of ten thousand good circuits one is refused."""
_LOS_DEADLINE_S = 1.0
_LOS_POLL_S = 0.02


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
        tolerance_db: How far the loss could lie from the predicted one.
    """

    circuit: PlannedCircuit
    launch_dbm: float | None
    measured_loss_db: float | None
    received_dbm: float | None
    los: bool
    alignment: Alignment | None
    failures: tuple[str, ...]
    tolerance_db: float = math.nan

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
class CircuitLight:
    """What transmitter, meter and receiver of one circuit say at one time; ``None`` where there is no number."""

    launch_dbm: float | None
    fibre_dbm: float | None
    los: bool

    def mesh_loss_db(self, entry: InputPath) -> float | None:
        """Loss from fibre to fibre over the mesh."""
        if self.launch_dbm is None or self.fibre_dbm is None:
            return None
        return self.launch_dbm + entry.gain_db - entry.loss_db - self.fibre_dbm


def loss_tolerance_db(bench: Bench, record: CalibrationRecord, circuit: PlannedCircuit) -> float:
    """Return how far a measured loss may lie from the predicted one.

    It follows from the standard errors of the calibration along the path, and of what measures launch and exit;
    ``fabric.loss_tolerance_db`` is an upper bound where the bench file gives one.
    """
    entry, out = record.port(circuit.entry.port), record.port(circuit.exit.port)
    launch_db = LAUNCH_SIGMA_DB if entry.input_loss_db is not None else UNCALIBRATED_LAUNCH_SIGMA_DB
    exit_db = METER_SIGMA_DB if circuit.exit.meter is not None else MONITOR_SIGMA_DB
    sigmas_db = [
        *(record.pucs[puc].loss_sigma_db for puc in circuit.path.pucs),
        _TYPICAL_ACCESS_SIGMA_DB if entry.input_loss_sigma_db is None else entry.input_loss_sigma_db,
        _TYPICAL_ACCESS_SIGMA_DB if out.output_loss_sigma_db is None else out.output_loss_sigma_db,
        launch_db,
        exit_db,
        UNALIGNED_SIGMA_DB,
        LEAKAGE_SIGMA_DB,
    ]
    tolerance_db = _SIGMAS * math.hypot(*sigmas_db)
    fabric = bench.model.fabric
    return (
        min(tolerance_db, fabric.loss_tolerance_db) if "loss_tolerance_db" in fabric.model_fields_set else tolerance_db
    )


class Prover:
    """Looks at circuits and judges them; changes nothing.

    Args:
        bench: The bench.
        exits: Power at the exits of its mesh.
    """

    def __init__(self, bench: Bench, exits: ExitPower) -> None:
        self._bench = bench
        self._exits = exits

    def look(self, circuits: Sequence[PlannedCircuit]) -> list[CircuitLight]:
        """Ask transmitters, meters and receivers of circuits side by side."""
        bench, launch_dbm, los = self._bench, dict[str, float | None](), dict[str, bool]()

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
            CircuitLight(launch_dbm[circuit.request.source], seen_dbm, los[circuit.request.target])
            for circuit, seen_dbm in zip(circuits, fibre_dbm, strict=True)
        ]

    def await_los_clear(self, circuits: Sequence[PlannedCircuit]) -> None:
        """Wait until no receiver reports loss of signal, or the deadline has passed (the proof then says so)."""
        bench = self._bench
        deadline = bench.clock.now() + _LOS_DEADLINE_S
        waiting = [circuit.request.target for circuit in circuits]
        while waiting:
            status = bench.side_by_side([(name, bench.transponders[name].status) for name in waiting])
            waiting = [name for name, each in zip(waiting, status, strict=True) if each.rx_los]
            if not waiting or bench.clock.now() >= deadline:
                return
            bench.clock.sleep(_LOS_POLL_S)

    def judge(
        self,
        record: CalibrationRecord,
        circuits: Sequence[PlannedCircuit],
        light: Sequence[CircuitLight],
        alignments: Mapping[CircuitRequest, Alignment],
    ) -> tuple[CircuitProof, ...]:
        """Judge circuits by what was seen of them, their budgets and the record's uncertainty."""
        return tuple(
            self._judged(record, circuit, seen, alignments.get(circuit.request))
            for circuit, seen in zip(circuits, light, strict=True)
        )

    def _judged(
        self, record: CalibrationRecord, circuit: PlannedCircuit, light: CircuitLight, alignment: Alignment | None
    ) -> CircuitProof:
        budget, out = circuit.budget, circuit.exit
        loss_db, received_dbm = light.mesh_loss_db(circuit.entry), None
        if light.fibre_dbm is not None:
            received_dbm = light.fibre_dbm - out.loss_db + 10.0 * math.log10(1.0 - out.tap_fraction)
        tolerance_db = loss_tolerance_db(self._bench, record, circuit)
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
        return CircuitProof(
            circuit, light.launch_dbm, loss_db, received_dbm, light.los, alignment, tuple(failures), tolerance_db
        )


def summary(proof: CircuitProof) -> dict[str, object]:
    """Return what the event log keeps of a proof."""
    return {
        "source": proof.circuit.request.source,
        "target": proof.circuit.request.target,
        "hops": proof.circuit.path.hops,
        "predicted_loss_db": round(proof.circuit.budget.mesh_loss_db, 3),
        "measured_loss_db": None if proof.measured_loss_db is None else round(proof.measured_loss_db, 3),
        "tolerance_db": round(proof.tolerance_db, 3),
        "received_dbm": None if proof.received_dbm is None else round(proof.received_dbm, 3),
        "los": proof.los,
        "proven": proof.proven,
    }


def named(request: CircuitRequest) -> str:
    """Return a circuit in words."""
    return f"{request.source} to {request.target}"


def verdict(proofs: Sequence[CircuitProof]) -> str:
    """Say which circuits were proven and which were not, and why."""
    good = [named(proof.circuit.request) for proof in proofs if proof.proven]
    bad = [f"{named(p.circuit.request)}: {', '.join(p.failures)}" for p in proofs if not p.proven]
    return (
        f"{len(bad)} of {len(proofs)} circuits could not be proven ({'; '.join(bad)}); proven: "
        f"{', '.join(good) or 'none'}. All were taken away again: the mesh is as it was before."
    )
