"""Light of circuits: transmitters, polarization, equal powers of both polarizations, and acceptance checks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from lumion_hw.bench.bench import Bench
from lumion_hw.circuits.arm_levels import ArmLeveller, ArmLevels
from lumion_hw.circuits.coherent import LOCK_TIMEOUT_S, refuse_power_feedback, switch_on_transmitters, transmitters_of
from lumion_hw.circuits.diagnosis import CircuitFinding, Diagnosis
from lumion_hw.circuits.mesh_setting import pucs_of
from lumion_hw.circuits.output_power import OutputPowerReader
from lumion_hw.circuits.plan.planned import CircuitPlan, PlannedCircuit
from lumion_hw.circuits.plan.request import CircuitRequest
from lumion_hw.circuits.proof import CircuitLight, CircuitProof, Prover, expected_level_dbm, proof_event
from lumion_hw.circuits.spans import Milestone
from lumion_hw.errors import CircuitError, DeviceError, LumionError
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.mesh.routing import Path
from lumion_hw.polarization import Aligner, Alignment
from lumion_hw.quantities import dbm_from_w, w_from_dbm

_STRAY_DB = 15.0
"""Power relative to the expected power, in dB, that an output may have before its transmitter is on."""
_ALIGNED_TOLERANCE_DB = 0.3
"""Extra loss up to which the polarization counts as unchanged."""
_DARK_RATIO = 300.0
"""An output is dark if it has less than this fraction of the expected power; PUCs leak less."""
_BRIGHT_RATIO = 30.0
"""Light leaves at another port if that port has more than this fraction of the expected power."""
_DARK_READS = 30
"""Number of readings in which two squeezers of a polarization controller cover their range."""
_MAX_SETTLE_S = 0.02
"""Longest time to wait for light after a change of heater currents; heaters settle in milliseconds."""
_REREAD_S = 0.5e-3
_ARRIVAL_S = 1.0
_ARRIVAL_POLL_S = 0.02
_ARRIVED_DB = 3.0
"""Light that is weaker than expected by more than this, in dB, is still rising."""


class CircuitLighting:
    """Switches on the light of circuits, aligns its polarization, equalizes arms, and checks the result by measurement.

    Args:
        aligner: Polarization search.
    """

    def __init__(self, bench: Bench, record: CalibrationRecord, aligner: Aligner) -> None:
        self._bench = bench
        self._record = record
        self._aligner = aligner
        self._exits = OutputPowerReader(bench, record)
        self._prover = Prover(bench, self._exits)
        self._proven_loss_db: dict[tuple[CircuitRequest, tuple[Path, ...]], float] = {}

    def light_and_prove(
        self,
        plan: CircuitPlan,
        circuits: Sequence[PlannedCircuit],
        transmitting: Collection[str],
        *,
        busy_ports: Collection[int],
        align: bool,
        milestone: Milestone,
    ) -> tuple[CircuitPlan, tuple[CircuitProof, ...]]:
        """Switch light on, align polarizations, equalize arms, wait for receivers, and check the circuits.

        Args:
            plan: All circuits that the mesh is programmed for.
            circuits: The new circuits of the plan.
            transmitting: Transmitters that are already on.
            busy_ports: Output ports of circuits that were active before.
            align: Whether to search the polarization at every new input, or only where light is missing.
            milestone: Called with the name of each milestone.

        Returns:
            The plan with equalized arms, and the results of the checks.
        """
        # The polarization search needs light to measure.
        switch_on_transmitters(self._bench, circuits, transmitting)
        to_align = [circuit for circuit in circuits if circuit.entry.polarization is not None]
        light: list[CircuitLight] | None = None
        if not align:
            light = self._prover.read_light(circuits)
            light_of = dict(zip((circuit.request for circuit in circuits), light, strict=True))
            to_align = [circuit for circuit in to_align if not self._is_aligned(circuit, light_of[circuit.request])]
        ports = {*busy_ports, *(arm.exit.port for circuit in circuits for arm in circuit.arms)}
        alignments = self._align(to_align, ports)
        plan, levels = self._level_arms(plan, circuits)
        requests = {circuit.request for circuit in circuits}
        circuits = [circuit for circuit in plan.circuits if circuit.request in requests]
        milestone("settled")
        # A search or a trim has changed the light, so only readings without one serve for the proof.
        if light is None or to_align or levels or any(reading.los for reading in light):
            self._prover.await_los_clear(circuits)
            light = None
        milestone("los_clear")
        proofs = self.prove(circuits, alignments, light, LOCK_TIMEOUT_S, levels)
        for proof in proofs:
            self._bench.events.add("proof", **proof_event(proof))
        return plan, proofs

    def prove(
        self,
        circuits: Sequence[PlannedCircuit],
        alignments: Mapping[CircuitRequest, Alignment] | None = None,
        light: Sequence[CircuitLight] | None = None,
        lock_timeout_s: float = 0.0,
        levels: Mapping[CircuitRequest, ArmLevels] | None = None,
    ) -> tuple[CircuitProof, ...]:
        """Check circuits by their light. No setting is changed.

        Args:
            circuits: The circuits.
            alignments: Results of polarization searches, to be included.
            light: Recent readings, one per circuit; measured now by default.
            lock_timeout_s: Time that coherent receivers may take to lock.
            levels: Power of the separate arms, to be included.
        """
        readings = self._prover.read_light(circuits) if light is None else light
        proofs = self._prover.evaluate(self._record, circuits, readings, alignments or {}, levels or {})
        return self._prover.check_receivers(proofs, lock_timeout_s)

    def prove_by_photodiodes(
        self,
        circuits: Sequence[PlannedCircuit],
        launch_dbm: Mapping[str, float | None],
        milestone: Milestone,
        arrived: Callable[[CircuitRequest], None],
    ) -> tuple[CircuitProof, ...]:
        """Read the outputs until two readings in a row pass for all circuits, or until the heaters must have settled.

        Args:
            circuits: The circuits, whose transmitters are on and aligned.
            launch_dbm: Launch power of each transmitter, as last reported.
            milestone: Called with ``settled`` at the end.
            arrived: Called with each circuit when its light first arrives.
        """
        clock = self._bench.clock
        arm_counts = [len(circuit.arms) for circuit in circuits]
        exits = [arm.exit for circuit in circuits for arm in circuit.arms]
        deadline = clock.now() + max(3.0 * self._bench.mesh.settle_s, _MAX_SETTLE_S)
        was_proven = False
        reported: set[CircuitRequest] = set()
        # Two readings in a row, because the light of settling heaters may pass through the accepted range.
        while True:
            levels = iter(self._exits.fibre_levels_dbm(exits))
            light = [
                # Modules are not read here, which would take too long; loss of signal counts as absent until they
                # confirm.
                CircuitLight(launch_dbm.get(circuit.request.source), tuple(next(levels) for _ in range(count)), False)
                for circuit, count in zip(circuits, arm_counts, strict=True)
            ]
            proofs = self._prover.evaluate(self._record, circuits, light, {}, {})
            is_proven = all(proof.proven for proof in proofs)
            for proof in proofs:
                if proof.proven and proof.circuit.request not in reported:
                    reported.add(proof.circuit.request)
                    arrived(proof.circuit.request)
            if is_proven and not was_proven:
                milestone("settled")
            if (is_proven and was_proven) or clock.now() >= deadline:
                return proofs
            was_proven = is_proven
            # A proof is repeated at once; otherwise the heaters get a little more time.
            if not is_proven:
                clock.sleep(_REREAD_S)

    def await_los_clear(self, circuits: Sequence[PlannedCircuit]) -> None:
        """Wait until no receiver reports loss of signal, at most one second."""
        self._prover.await_los_clear(circuits)

    def await_arriving_light(self, circuits: Sequence[PlannedCircuit]) -> None:
        """Wait at most one second until light from other meshes arrives at the outputs of circuits."""
        clock = self._bench.clock
        deadline_s = clock.now() + _ARRIVAL_S
        while circuits and clock.now() < deadline_s:
            arms = [(circuit, circuit.arms[0]) for circuit in circuits]
            levels = self._exits.fibre_levels_dbm([arm.exit for _, arm in arms])
            expected = [expected_level_dbm(circuit, arm) - _ARRIVED_DB for circuit, arm in arms]
            if all(level is not None and level > dbm for level, dbm in zip(levels, expected, strict=True)):
                return
            clock.sleep(_ARRIVAL_POLL_S)

    def stray_dbm(self, busy_ports: Collection[int]) -> float | None:
        """Return the strongest light on the chip at the other ports, in dBm; ``None`` if they are dark."""
        strongest_w = max((w for port, w in self._exits.output_powers_w().items() if port not in busy_ports), default=0)
        return dbm_from_w(strongest_w) if strongest_w > 0.0 else None

    def fibre_levels_dbm(self, circuits: Sequence[PlannedCircuit]) -> tuple[float | None, ...]:
        """Return the power in the output fibre of each circuit arm, in dBm; ``None`` for a dark arm."""
        return tuple(self._exits.fibre_levels_dbm([arm.exit for circuit in circuits for arm in circuit.arms]))

    def crosstalk_db(self, circuits: Sequence[PlannedCircuit]) -> dict[CircuitRequest, float | None]:
        """Return the ratio of each circuit's power to all other light at its output, in dB.

        Each source is switched off in turn. The ratio is ``None`` where the other light is too weak to read.
        """
        result: dict[CircuitRequest, float | None] = {}
        for circuit in circuits:
            module = self._bench.circuit_module(circuit.request.source)
            own_dbm = self._exits.fibre_level_dbm(circuit.exit)
            module.disable()
            try:
                other_dbm = self._exits.fibre_level_dbm(circuit.exit)
            finally:
                module.enable()
            result[circuit.request] = None if own_dbm is None or other_dbm is None else own_dbm - other_dbm
        return result

    def remember_losses(self, circuits: Sequence[PlannedCircuit], proofs: Sequence[CircuitProof]) -> None:
        """Store the measured losses of active circuits, for comparison with later ones; forget all other losses."""
        # A loss belongs to a path: after a change of path it says nothing about the polarization.
        active = {(circuit.request, circuit.paths) for circuit in circuits}
        earlier = {key: loss_db for key, loss_db in self._proven_loss_db.items() if key in active}
        self._proven_loss_db = earlier | {
            (proof.circuit.request, proof.circuit.paths): proof.measured_loss_db
            for proof in proofs
            if proof.measured_loss_db is not None
        }

    def check_dark(self, circuits: Sequence[PlannedCircuit], transmitting: Collection[str]) -> None:
        """Check that outputs are dark before their transmitters are on.

        Args:
            circuits: The circuits.
            transmitting: Transmitters that are already on; their outputs are not checked.

        Raises:
            CircuitError: An output has light; the message names the port and the power.
        """
        dark = [
            (circuit, arm) for circuit in circuits if circuit.request.source not in transmitting for arm in circuit.arms
        ]
        levels_dbm = self._exits.fibre_levels_dbm([arm.exit for _, arm in dark], monitors_only=True)
        for (circuit, arm), level_dbm in zip(dark, levels_dbm, strict=True):
            if level_dbm is not None and level_dbm > expected_level_dbm(circuit, arm) - _STRAY_DB:
                raise CircuitError(
                    f"circuit {circuit.request}: port {arm.exit.port} has {level_dbm:.1f} dBm before "
                    f"{circuit.request.source} is switched on",
                    hint="Another source shines into the mesh. Look for a laser or module left on, or swapped fibres.",
                )

    def diagnose(
        self,
        proofs: Sequence[CircuitProof],
        plan: CircuitPlan,
        active: Sequence[PlannedCircuit],
        driven_ma: NDArray[np.float64],
    ) -> tuple[CircuitFinding, ...]:
        """Find out why circuits failed the check of their light; switch all new transmitters off.

        Args:
            proofs: Results of the checks of the new circuits.
            plan: All circuits that the mesh is programmed for.
            active: Circuits that were active before; their PUCs are not changed.
            driven_ma: Heater currents before the change, shape ``(2 n_pucs,)``.
        """
        # A module that an active circuit needs cannot be switched off, so its light cannot be separated.
        needed = set(transmitters_of(active))
        separable = [proof for proof in proofs if not set(transmitters_of([proof.circuit])) & needed]
        diagnosis = Diagnosis(self._bench, self._record, self._exits, plan, pucs_of(active), driven_ma)
        findings = diagnosis.diagnose(separable)
        for finding in findings:
            self._bench.events.add("diagnosis", **finding.as_event())
        return findings

    # -- polarization and arms ----------------------------------------------------------------------------------------

    def _level_arms(
        self, plan: CircuitPlan, circuits: Sequence[PlannedCircuit]
    ) -> tuple[CircuitPlan, dict[CircuitRequest, ArmLevels]]:
        levels: dict[CircuitRequest, ArmLevels] = {}
        leveller = ArmLeveller(self._bench, self._record)
        for circuit in circuits:
            if circuit.strategy == "dual":
                planned = next(other for other in plan.circuits if other.request == circuit.request)
                plan, levels[circuit.request] = leveller.level(plan, planned)
        return plan, levels

    def _align(
        self, circuits: Sequence[PlannedCircuit], busy_ports: Collection[int]
    ) -> dict[CircuitRequest, Alignment]:
        powers_w = self._exits.output_powers_w() if circuits else {}  # one reading for all parallel searches
        jobs = [functools.partial(self._try_to_align, circuit, powers_w, busy_ports) for circuit in circuits]
        results = self._bench.clock.run_parallel(jobs)
        alignments = {}
        for circuit, result in zip(circuits, results, strict=True):
            name = circuit.entry.polarization
            if isinstance(result, LumionError):
                self._bench.events.add("not aligned", controller=name, reason=str(result))
                continue
            alignments[circuit.request] = result
            self._bench.events.add(
                "aligned",
                controller=name,
                reads=result.reads,
                swing_db=round(result.swing_db, 2),
                remaining_loss_db=round(result.remaining_loss_db, 3),
                method=result.method,
            )
        return alignments

    def _is_aligned(self, circuit: PlannedCircuit, light: CircuitLight) -> bool:
        # A polarization that has moved can only cost light. A circuit in service is compared with its own last proof,
        # so that a slightly wrong prediction never starts a search while it carries traffic.
        loss_db = light.mesh_loss_db(circuit)
        predicted_db = circuit.budget.mesh_loss_db
        last_db = self._proven_loss_db.get((circuit.request, circuit.paths), predicted_db)
        return loss_db is not None and loss_db < max(last_db, predicted_db) + _ALIGNED_TOLERANCE_DB

    def _try_to_align(
        self, circuit: PlannedCircuit, powers_w: Mapping[int, float], busy_ports: Collection[int]
    ) -> Alignment | CircuitError | DeviceError:
        name = circuit.entry.polarization or ""
        try:
            refuse_power_feedback(circuit)
            self._check_light_at_exit(circuit, powers_w, busy_ports)
            return self._aligner.maximise(name, self._bench.polarizer(name), self._search_feedback(circuit))
        except (CircuitError, DeviceError) as error:
            return error

    def _check_light_at_exit(
        self, circuit: PlannedCircuit, powers_w: Mapping[int, float], busy_ports: Collection[int]
    ) -> None:
        """Raise an error if an output is dark while its light leaves the mesh elsewhere.

        Raises:
            CircuitError: The output is dark and other ports are bright; the message names them.
        """
        arm = circuit.arms[0]
        expected_w = w_from_dbm(expected_level_dbm(circuit, arm) + self._exits.facet_loss_db(arm.exit.port))
        bright = [port for port, w in powers_w.items() if port not in busy_ports and w > expected_w / _BRIGHT_RATIO]
        # An output without a monitor cannot be judged and counts as bright.
        if bright and powers_w.get(arm.exit.port, expected_w) < expected_w / _DARK_RATIO:
            raise CircuitError(
                f"circuit {circuit.request}: port {arm.exit.port} is dark, and light leaves the mesh at ports {bright}"
            )

    def _search_feedback(self, circuit: PlannedCircuit) -> Callable[[], float]:
        arm = circuit.arms[0]
        dark_w = self._exits.expected_fast_reading_w(arm.exit, expected_level_dbm(circuit, arm)) / _DARK_RATIO
        readings: list[float] = []

        def read_w() -> float:
            """Return the power at the output. Raises ``CircuitError`` if all first readings are dark."""
            power_w = self._exits.read_fastest_w(arm.exit)
            readings.append(power_w)
            if len(readings) == _DARK_READS and max(readings) < dark_w:
                raise CircuitError(
                    f"no light arrives at port {arm.exit.port} for any polarization",
                    device=circuit.entry.polarization,
                    hint="Check the source, the fibre and the path behind the controller.",
                )
            return power_w

        return read_w
