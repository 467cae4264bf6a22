"""Diagnosis of circuits that failed the acceptance check of their light.

Every possible fault (a stuck PUC, a fibre at another port, no light) predicts the port where light leaves the mesh.
Unused PUCs are switched to distinguish faults that predict the same port.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lumion_hw.bench.bench import Bench
from lumion_hw.circuits.mesh_setting import setting_with_active
from lumion_hw.circuits.output_power import OutputPowerReader
from lumion_hw.circuits.plan.planned import CircuitArm, CircuitPlan, PlannedCircuit
from lumion_hw.circuits.proof import CircuitProof, expected_level_dbm
from lumion_hw.errors import ConfigError, DeviceError
from lumion_hw.mesh.layout.topology import State
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from lumion_hw.mesh.routing.request import opposite_state
from lumion_hw.quantities import dbm_from_w, ratio_from_db, w_from_dbm

Place = Literal[
    "transmitter",
    "fibre before the mesh",
    "polarization",
    "wiring",
    "path",
    "fibre behind the mesh",
    "receiver",
    "budget",
]
"""Location of a fault, in the order in which light passes."""

_SHARE = 0.1
"""Fraction of a source's light that must leave at the port that a fault predicts."""
_FLOOR_DB = 25.0
"""Light counts as dark if it is weaker than expected by this much."""
_BACKGROUND_VARIATION = 0.05
"""Largest relative change of other circuits' light that is ignored (0.2 dB)."""
_MAX_TESTS = 8
_MIN_LOSS_DB = 1.0
"""Smallest deviation from the predicted power that counts as a fault."""
_SAME_LIGHT_DB = 2.0
"""Powers in two output fibres that differ by at most this much count as equal."""


@dataclass(frozen=True)
class CircuitFinding:
    """Diagnosis of one circuit.

    Attributes:
        place: Location of the fault.
        detail: Description of the measurement.
        pucs: Suspected PUCs; empty unless the path is at fault.
        may_be_outside: Whether the light may be lost before the mesh instead, at the port or its fibre.
    """

    circuit: PlannedCircuit
    place: Place
    detail: str
    pucs: tuple[int, ...] = ()
    may_be_outside: bool = False

    def __str__(self) -> str:
        return f"{self.circuit.request}, {self.place}: {self.detail}."

    def as_event(self) -> dict[str, object]:
        """Return the details for the event log."""
        request = self.circuit.request
        return {
            "source": request.source,
            "target": request.target,
            "place": self.place,
            "detail": self.detail,
            "pucs": list(self.pucs),
        }


@dataclass(frozen=True)
class _Fault:
    """A possible fault of an arm: light enters at another port, or a PUC is stuck. May also stand for no fault."""

    entry: int | None
    stuck: Mapping[int, State] = field(default_factory=dict)

    def __hash__(self) -> int:
        # A mapping has no hash of its own; its items identify the fault.
        return hash((self.entry, *self.stuck.items()))


class Diagnosis:
    """Diagnoses circuits that were just programmed and failed the acceptance check.

    Afterwards the transmitters of these circuits are off. PUCs that no active circuit uses may have changed state.

    Args:
        exits: Reads the power at the outputs of the mesh.
        plan: The programmed circuits, active ones included.
        held_pucs: PUCs of active circuits, which are not changed.
        driven_ma: Present heater currents, shape ``(2 n_pucs,)``.
    """

    def __init__(
        self,
        bench: Bench,
        record: CalibrationRecord,
        exits: OutputPowerReader,
        plan: CircuitPlan,
        held_pucs: Collection[int],
        driven_ma: NDArray[np.float64],
    ) -> None:
        self._bench = bench
        self._record = record
        self._driven_ma = driven_ma
        self._couplings = plan.couplings
        self.mesh = bench.mesh.topology
        self.wiring = bench.model.to_wiring()
        self.exits = exits
        self.states = plan.states
        self.held_pucs = frozenset(held_pucs)

    def diagnose(self, proofs: Sequence[CircuitProof]) -> tuple[CircuitFinding, ...]:
        """Return the fault of each failed circuit. Raises device errors."""
        self._switch_off([proof.circuit.request.source for proof in proofs])
        # With all new transmitters off, the remaining light is that of active circuits; every later reading contains it
        # as well.
        background_w = self.exits.output_powers_w()
        return tuple(self._diagnose_circuit(proof, background_w) for proof in proofs if not proof.proven)

    def _switch_off(self, sources: Sequence[str]) -> None:
        modules = self._bench.transponders
        self._bench.run_parallel([(name, modules[name].disable) for name in dict.fromkeys(sources)])

    def _diagnose_circuit(self, proof: CircuitProof, background_w: Mapping[int, float]) -> CircuitFinding:
        circuit, source = proof.circuit, proof.circuit.request.source
        if proof.launch_dbm is None:
            return CircuitFinding(circuit, "transmitter", f"{source} reports that it sends no light")
        try:
            self._bench.circuit_module(source).enable()
        except DeviceError as error:
            return CircuitFinding(circuit, "transmitter", f"{source} does not start: {error}")
        try:
            for arm in circuit.arms:
                finding = _ArmDiagnosis(self, proof, arm, background_w).finding()
                # These two places mean that the light of this arm arrives, so the fault may be on the other arm.
                if finding.place not in ("receiver", "budget"):
                    break
            return finding
        finally:
            self._switch_off([source])

    def program_states(self, states: Mapping[int, State]) -> None:
        """Program the given PUC states; PUCs of active circuits keep their heater currents."""
        setting = setting_with_active(self.mesh, self._record, states, self.held_pucs, self._driven_ma, self._couplings)
        self._bench.mesh.program(setting.currents_ma)

    def output_powers_w(self, background_w: Mapping[int, float]) -> dict[int, float]:
        """Return the light of the transmitter that is on, by output port."""
        light_w = {port: w - background_w.get(port, 0.0) for port, w in self.exits.output_powers_w().items()}
        # The light of active circuits varies between two readings; a small change is not light of this transmitter.
        return {
            port: w if w > _BACKGROUND_VARIATION * background_w.get(port, 0.0) else 0.0 for port, w in light_w.items()
        }


class _ArmDiagnosis:
    """Diagnosis of one arm of a circuit whose transmitter alone is on.

    Args:
        proof: The failed acceptance check.
        background_w: Light at the ports that does not come from this circuit.
    """

    def __init__(
        self, diagnosis: Diagnosis, proof: CircuitProof, arm: CircuitArm, background_w: Mapping[int, float]
    ) -> None:
        self._diagnosis = diagnosis
        self._proof = proof
        self._circuit = proof.circuit
        self._arm = arm
        self._background_w = background_w
        self._siblings = [other for other in proof.circuit.arms if other is not arm]
        excess_launch_db = (proof.launch_dbm or 0.0) - proof.circuit.budget.launch_dbm
        self._expected_dbm = expected_level_dbm(proof.circuit, arm) + excess_launch_db
        """Expected power in the output fibre."""
        out_db = diagnosis.exits.facet_loss_db(arm.exit.port)
        self._expected_w = w_from_dbm(self._expected_dbm + out_db)
        """Expected power on the chip, at the output port."""

    def finding(self) -> CircuitFinding:
        """Test possible faults with light, and set the PUCs back to their states before returning the finding."""
        self._diagnosis.program_states(self._diagnosis.states)
        first_w = self._read_arm_light(self._diagnosis.states)
        remaining = self._run_tests(self._suspects(), first_w)
        self._diagnosis.program_states(self._diagnosis.states)
        return self._conclude(remaining, first_w)

    # -- which hypotheses agree with the light ------------------------------------------------------------------------

    def _suspects(self) -> list[_Fault]:
        at, states = self._arm.entry.port, self._diagnosis.states
        used_ports = {at, *(sibling.entry.port for sibling in self._siblings)}
        # A trimming PUC couples only partly by intention, so the light that it diverts is no fault.
        trimmed = None if self._arm.trim is None else self._arm.trim.puc
        stuck = [
            _Fault(at, {puc: opposite_state(states[puc])})
            for puc in self._arm.path.pucs
            if puc not in self._diagnosis.held_pucs and puc != trimmed
        ]
        misrouted = [_Fault(port) for port in self._diagnosis.mesh.fibre_ports if port not in used_ports]
        return [_Fault(at), _Fault(None), *stuck, *misrouted]

    def _run_tests(self, faults: list[_Fault], first_w: Mapping[int, float]) -> list[_Fault]:
        states = self._diagnosis.states
        remaining = [fault for fault in faults if self._is_consistent(fault, states, first_w)]
        for _ in range(_MAX_TESTS):
            puc = self._best_test_puc(remaining)
            if puc is None:
                break
            states = {**self._diagnosis.states, puc: opposite_state(self._diagnosis.states[puc])}
            self._diagnosis.program_states(states)
            light_w = self._read_arm_light(states)
            # If the tested PUC itself is stuck, its hypothesis predicts no change, so the test cannot rule it out.
            remaining = [fault for fault in remaining if self._is_consistent(fault, states, light_w)]
        return remaining

    def _best_test_puc(self, remaining: Sequence[_Fault]) -> int | None:
        best, smallest = None, len(remaining)
        reached = {puc for fault in remaining for puc in self._trace(fault, self._diagnosis.states)[1]}
        for puc in sorted(reached - self._diagnosis.held_pucs):
            states = {**self._diagnosis.states, puc: opposite_state(self._diagnosis.states[puc])}
            # In the worst case the light appears where most faults predict it, and these faults remain. The PUC for
            # which the fewest remain then tells most.
            largest = max(Counter(self._trace(fault, states)[0] for fault in remaining).values())
            if largest < smallest:
                best, smallest = puc, largest
        return best

    def _trace(self, fault: _Fault, states: Mapping[int, State]) -> tuple[int | None, tuple[int, ...]]:
        """Return the output port (``None`` if unknown) and the PUCs that light passes with one assumed fault."""
        if fault.entry is None:
            return None, ()
        try:
            trace = self._diagnosis.mesh.trace(fault.entry, {**states, **fault.stuck})
        except ConfigError:
            return None, ()
        return trace.port, trace.pucs

    def _is_consistent(self, fault: _Fault, states: Mapping[int, State], light_w: Mapping[int, float]) -> bool:
        port, floor_w = self._trace(fault, states)[0], self._expected_w / ratio_from_db(_FLOOR_DB)
        if port is None or port not in light_w:
            # Light that ends in the mesh, or at a port without a monitor, is predicted to be seen nowhere.
            return max(light_w.values(), default=0.0) < floor_w
        return light_w[port] > max(floor_w, _SHARE * sum(light_w.values()))

    def _read_arm_light(self, states: Mapping[int, State]) -> dict[int, float]:
        sibling_ports = {self._trace(_Fault(sibling.entry.port), states)[0] for sibling in self._siblings}
        # A trim diverts light on purpose, so light at its port says nothing about a fault.
        sibling_ports |= {arm.trim.stray_port for arm in self._circuit.arms if arm.trim is not None}
        return {
            port: w
            for port, w in self._diagnosis.output_powers_w(self._background_w).items()
            if port not in sibling_ports
        }

    # -- what that means ----------------------------------------------------------------------------------------------

    def _conclude(self, remaining: Sequence[_Fault], first_w: Mapping[int, float]) -> CircuitFinding:
        at, finding = self._arm.entry.port, functools.partial(CircuitFinding, self._circuit)
        stuck = tuple(sorted({puc for fault in remaining for puc in fault.stuck}))
        ports = {fault.entry for fault in remaining if not fault.stuck}
        if not remaining:
            bright = sorted(first_w, key=lambda port: -first_w[port])[:2]
            detail = f"its light leaves at ports {bright}, and no single fault explains that"
            return finding("path", detail, self._arm.path.pucs)
        stuck_text = " or ".join(f"PUC {puc}" for puc in stuck) + " does not reach its state"
        if stuck and ports <= {at}:
            return finding("path", f"{stuck_text}{', perhaps half way' if at in ports else ''}", stuck)
        if None in ports and ports <= {None, at}:
            return finding("fibre before the mesh", self._no_light_text())
        if ports == {at}:
            port = self._arm.exit.port
            unseen = finding("path", f"the monitor at port {port} is missing or saturated")
            return self._conclude_on_path(first_w) if port in first_w else unseen
        if len(ports) == 1 and not stuck:
            return finding("wiring", self._wrong_port_text(next(iter(ports))))
        other_ports = sorted(port for port in ports if port is not None and port != at)
        texts = [stuck_text] * bool(stuck) + [f"port {at} or its fibre is dead"] * (None in ports)
        texts += [f"its light enters at one of ports {other_ports}"] * bool(other_ports)
        return finding("path", ", or ".join(texts), stuck, may_be_outside=True)

    def _no_light_text(self) -> str:
        entry = self._arm.entry
        launched = f"{entry.source} launches light, and none of it leaves the mesh"
        if self._circuit.strategy == "none":
            return f"{launched}: port {entry.port} or its fibre is dead, or all light is TM (there is no controller)"
        return f"{launched}: port {entry.port} or its fibre is dead"

    def _wrong_port_text(self, port: int | None) -> str:
        entry = self._arm.entry
        owner = next((path.source for path in self._diagnosis.wiring.inputs if path.port == port), None)
        location = (
            f"where the bench file connects {owner}: their fibres are swapped"
            if owner
            else "which is free in the bench file"
        )
        return f"light of {entry.source} enters at port {port} instead of {entry.port}, {location}"

    def _conclude_on_path(self, first_w: Mapping[int, float]) -> CircuitFinding:
        finding, output = functools.partial(CircuitFinding, self._circuit), self._arm.exit
        exits = self._diagnosis.exits
        exit_dbm = dbm_from_w(first_w[output.port]) - exits.facet_loss_db(output.port)
        arriving_dbm = exits.fibre_level_dbm(output) if output.meter is not None else exit_dbm
        if arriving_dbm is None or exit_dbm - arriving_dbm > _MIN_LOSS_DB:
            return finding("fibre behind the mesh", self._loss_behind_text(exit_dbm, arriving_dbm))
        missing_db = self._expected_dbm - exit_dbm
        if missing_db > _MIN_LOSS_DB:
            missing = f"port {output.port} emits {missing_db:.1f} dB less than predicted"
            if self._circuit.strategy == "none" or (
                self._circuit.strategy == "controller" and self._proof.alignment is None
            ):
                return finding("polarization", f"{missing}, and the polarization was not turned to TE")
            return finding("fibre before the mesh", missing)
        if missing_db < -_MIN_LOSS_DB:
            return finding("budget", f"port {output.port} emits {-missing_db:.1f} dB more than predicted")
        if self._proof.los:
            target = self._circuit.request.target
            return finding("receiver", f"its light arrives, but {target} reports loss of signal")
        return finding("budget", ", ".join(self._proof.failures))

    def _loss_behind_text(self, exit_dbm: float, arriving_dbm: float | None) -> str:
        own_output, target = self._arm.exit, self._circuit.request.target
        # Swapped output fibres show as the missing power at another meter.
        for output in self._diagnosis.wiring.outputs:
            if output.meter is None or output.port == own_output.port:
                continue
            level_dbm = self._diagnosis.exits.fibre_level_dbm(output)
            if level_dbm is not None and abs(level_dbm - exit_dbm) < _SAME_LIGHT_DB:
                return (
                    f"light for {target} leaves port {own_output.port} and arrives at the meter of "
                    f"{output.transponder or output.meter}, which the bench file connects to port {output.port}: "
                    "their fibres are swapped"
                )
        loss = "all of it" if arriving_dbm is None else f"{exit_dbm - arriving_dbm:.1f} dB"
        return f"light leaves port {own_output.port}, but {loss} is lost behind the port"
