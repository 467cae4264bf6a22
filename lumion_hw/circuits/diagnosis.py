"""Why a circuit could not be proven: the light itself is asked, one hypothesis against the other.

With only one of the new transmitters on, the monitors at the ports show where its light leaves. Every single fault
predicts where: a PUC stuck in the other state, a fibre plugged in elsewhere, no light at all. Where several predict the
same, a PUC that no standing circuit uses is set otherwise, and those that predict wrongly are out.
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
from lumion_hw.circuits.exit_power import OutputPowerReader
from lumion_hw.circuits.planned import CircuitArm, CircuitPlan, PlannedCircuit
from lumion_hw.circuits.proof import CircuitProof, expected_level_dbm
from lumion_hw.circuits.standing import setting_with_active
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
"""Where it is, in the order of the light."""

_SHARE = 0.1
"""Part of a source's light that counts as being where a hypothesis wants it: a PUC may be stuck half way."""
_FLOOR_DB = 25.0
"""Light this far below what should leave is none: PUCs leak less."""
_MOST_TESTS = 8
_LOST_DB = 1.0
"""Loss beyond the prediction that one place is blamed for."""
_SAME_LIGHT_DB = 2.0
"""Two fibres behind the mesh may lose so differently, and it is the same light."""


@dataclass(frozen=True)
class CircuitFinding:
    """What was found of one circuit.

    Attributes:
        circuit: The circuit.
        place: Where the fault is.
        detail: What was seen, in words.
        pucs: PUCs that are suspected; none where the path is not.
    """

    circuit: PlannedCircuit
    place: Place
    detail: str
    pucs: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.circuit.request}, {self.place}: {self.detail}."

    def as_event(self) -> dict[str, object]:
        """Return what the event log keeps of it."""
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
    """One thing that may be wrong: light from elsewhere, a stuck PUC, or nothing on the way."""

    entry: int | None
    stuck: Mapping[int, State] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.entry, *self.stuck.items()))


class Diagnosis:
    """Diagnoses circuits that were just programmed and not proven.

    Transmitters of all circuits in question are dark afterwards; PUCs that no standing circuit uses may have any state.

    Args:
        bench: The bench.
        record: Calibration of its mesh.
        exits: Power at the exits of the mesh.
        plan: What is programmed, standing circuits included.
        held: PUCs of standing circuits, which are left alone.
        driven_ma: Currents of their heaters are taken from here, shape ``(2 n_pucs,)``.
    """

    def __init__(
        self,
        bench: Bench,
        record: CalibrationRecord,
        exits: OutputPowerReader,
        plan: CircuitPlan,
        held: Collection[int],
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
        self.held = frozenset(held)

    def of(self, proofs: Sequence[CircuitProof]) -> tuple[CircuitFinding, ...]:
        """Return what is wrong with each circuit that was not proven. Raises what devices raise."""
        self._dark([proof.circuit.request.source for proof in proofs])
        background_w = self.exits.output_powers_w()
        return tuple(self._found(proof, background_w) for proof in proofs if not proof.proven)

    def _dark(self, sources: Sequence[str]) -> None:
        modules = self._bench.transponders
        self._bench.run_parallel([(name, modules[name].disable) for name in dict.fromkeys(sources)])

    def _found(self, proof: CircuitProof, background_w: Mapping[int, float]) -> CircuitFinding:
        """Light one circuit alone, and return the first thing found wrong with one of its arms."""
        circuit, source = proof.circuit, proof.circuit.request.source
        if proof.launch_dbm is None:
            return CircuitFinding(circuit, "transmitter", f"{source} reports no light of its own")
        try:
            self._bench.transponders[source].enable()
        except DeviceError as error:
            return CircuitFinding(circuit, "transmitter", f"{source} does not start: {error}")
        try:
            for arm in circuit.arms:
                found = _ArmInQuestion(self, proof, arm, background_w).finding()
                if found.place not in ("receiver", "budget"):
                    break
            return found
        finally:
            self._dark([source])

    def set(self, states: Mapping[int, State]) -> None:
        """Program states; PUCs of standing circuits keep their currents."""
        setting = setting_with_active(self.mesh, self._record, states, self.held, self._driven_ma, self._couplings)
        self._bench.mesh.program(setting.currents_ma)

    def output_powers_w(self, background_w: Mapping[int, float]) -> dict[int, float]:
        """Return the light of the one transmitter that is on, by the port where it leaves."""
        return {port: max(w - background_w.get(port, 0.0), 0.0) for port, w in self.exits.output_powers_w().items()}


class _ArmInQuestion:
    """One arm of a circuit whose transmitter alone is on.

    Args:
        diagnosis: What can be done about it.
        proof: The circuit that was not proven.
        arm: The arm.
        background_w: Light at the ports that is not of this circuit.
    """

    def __init__(
        self, diagnosis: Diagnosis, proof: CircuitProof, arm: CircuitArm, background_w: Mapping[int, float]
    ) -> None:
        self._do = diagnosis
        self._proof = proof
        self._circuit = proof.circuit
        self._arm = arm
        self._background_w = background_w
        self._siblings = [each for each in proof.circuit.arms if each is not arm]
        launched_over_db = (proof.launch_dbm or 0.0) - proof.circuit.budget.launch_dbm
        self._expected_dbm = expected_level_dbm(proof.circuit, arm) + launched_over_db
        """In the fibre behind the mesh, for what the module says it launches."""
        out_db = diagnosis.exits.facet_loss_db(arm.exit.port)
        self._expected_w = w_from_dbm(self._expected_dbm + out_db)
        """On the chip, where it leaves."""

    def finding(self) -> CircuitFinding:
        """Return what is wrong with it."""
        self._do.set(self._do.states)
        first_w = self._look(self._do.states)
        alive = self._tested(self._suspects(), first_w)
        self._do.set(self._do.states)
        return self._explained(alive, first_w)

    # -- which hypotheses agree with the light ------------------------------------------------------------------------

    def _suspects(self) -> list[_Fault]:
        """Return everything that may be wrong: nothing, no light, each PUC stuck, each other port as the entry."""
        at, states = self._arm.entry.port, self._do.states
        taken = {at, *(each.entry.port for each in self._siblings)}
        # One that is to couple partly does so: what it takes away is no fault.
        trimmed = None if self._arm.trim is None else self._arm.trim.puc
        stuck = [
            _Fault(at, {puc: opposite_state(states[puc])})
            for puc in self._arm.path.pucs
            if puc not in self._do.held and puc != trimmed
        ]
        elsewhere = [_Fault(port) for port in self._do.mesh.fibre_ports if port not in taken]
        return [_Fault(at), _Fault(None), *stuck, *elsewhere]

    def _tested(self, faults: list[_Fault], first_w: Mapping[int, float]) -> list[_Fault]:
        """Return what is left after tests that tell hypotheses apart."""
        states = self._do.states
        alive = [each for each in faults if self._agrees(each, states, first_w)]
        for _ in range(_MOST_TESTS):
            puc = self._telling(alive)
            if puc is None:
                break
            states = {**self._do.states, puc: opposite_state(self._do.states[puc])}
            self._do.set(states)
            seen_w = self._look(states)
            # A PUC that does not obey tells nothing against itself: whoever names it predicts no change.
            alive = [each for each in alive if self._agrees(each, states, seen_w)]
        return alive

    def _telling(self, alive: Sequence[_Fault]) -> int | None:
        """Return the free PUC whose other state tells most hypotheses apart; ``None`` if none does."""
        best, least = None, len(alive)
        reached = {puc for each in alive for puc in self._way(each, self._do.states)[1]}
        for puc in sorted(reached - self._do.held):
            states = {**self._do.states, puc: opposite_state(self._do.states[puc])}
            largest = max(Counter(self._way(each, states)[0] for each in alive).values())
            if largest < least:
                best, least = puc, largest
        return best

    def _way(self, fault: _Fault, states: Mapping[int, State]) -> tuple[int | None, tuple[int, ...]]:
        """Return where light leaves under a hypothesis, and its PUCs; ``None`` where it does not, or nobody knows."""
        if fault.entry is None:
            return None, ()
        try:
            trace = self._do.mesh.trace(fault.entry, {**states, **fault.stuck})
        except ConfigError:
            return None, ()
        return trace.port, trace.pucs

    def _agrees(self, fault: _Fault, states: Mapping[int, State], seen_w: Mapping[int, float]) -> bool:
        port, floor_w = self._way(fault, states)[0], self._expected_w / ratio_from_db(_FLOOR_DB)
        if port is None or port not in seen_w:
            return max(seen_w.values(), default=0.0) < floor_w
        return seen_w[port] > max(floor_w, _SHARE * sum(seen_w.values()))

    def _look(self, states: Mapping[int, State]) -> dict[int, float]:
        """Return this arm's light by the port where it leaves, but for light of its siblings and what is trimmed."""
        theirs = {self._way(_Fault(each.entry.port), states)[0] for each in self._siblings}
        theirs |= {arm.trim.stray_port for arm in self._circuit.arms if arm.trim is not None}
        return {port: w for port, w in self._do.output_powers_w(self._background_w).items() if port not in theirs}

    # -- what that means ----------------------------------------------------------------------------------------------

    def _explained(self, alive: Sequence[_Fault], first_w: Mapping[int, float]) -> CircuitFinding:
        at, finding = self._arm.entry.port, functools.partial(CircuitFinding, self._circuit)
        stuck = tuple(sorted({puc for fault in alive for puc in fault.stuck}))
        ports = {fault.entry for fault in alive if not fault.stuck}
        if not alive:
            bright = sorted(first_w, key=lambda port: -first_w[port])[:2]
            detail = f"its light leaves at ports {bright}, which no single fault explains"
            return finding("path", detail, self._arm.path.pucs)
        if None in ports and ports <= {None, at} and not stuck:
            return finding("fibre before the mesh", self._no_light())
        if ports == {at} and not stuck:
            return self._on_its_way(first_w)
        if stuck and ports <= {at}:
            half = ", perhaps half way" if at in ports else ""
            names = " or ".join(f"PUC {puc}" for puc in stuck)
            return finding("path", f"{names} does not take its state{half}", stuck)
        if len(ports) == 1 and not stuck:
            return finding("wiring", self._enters_at(next(iter(ports))))
        tell = sorted(port for port in ports if port is not None and port != at)
        pucs = f"PUCs {list(stuck)} do not take their states, or " if stuck else ""
        return finding("path", f"{pucs}its light enters at one of ports {tell}", stuck)

    def _no_light(self) -> str:
        entry = self._arm.entry
        launched = f"{entry.source} launches light and none of it leaves the mesh anywhere"
        if self._circuit.strategy == "none":
            return f"{launched}: fibre or port {entry.port} is dead, or all of it is TM (there is no controller)"
        return f"{launched}: the fibre to port {entry.port}, or the port, is dead"

    def _enters_at(self, port: int | None) -> str:
        entry = self._arm.entry
        owner = next((path.source for path in self._do.wiring.inputs if path.port == port), None)
        there = (
            f"where the bench file has {owner}: their fibres are swapped" if owner else "which the bench file has free"
        )
        return f"light of {entry.source} enters at port {port} instead of {entry.port}, {there}"

    def _on_its_way(self, first_w: Mapping[int, float]) -> CircuitFinding:
        """Say what is wrong with light that takes its path: too little before the exit, or something behind it."""
        finding, out = functools.partial(CircuitFinding, self._circuit), self._arm.exit
        exits = self._do.exits
        leaves_dbm = dbm_from_w(first_w[out.port]) - exits.facet_loss_db(out.port)
        arrives_dbm = exits.fibre_level_dbm(out) if out.meter is not None else leaves_dbm
        if arrives_dbm is None or leaves_dbm - arrives_dbm > _LOST_DB:
            return finding("fibre behind the mesh", self._behind(leaves_dbm, arrives_dbm))
        missing_db = self._expected_dbm - leaves_dbm
        if missing_db > _LOST_DB:
            lost = f"{missing_db:.1f} dB less leave port {out.port} than predicted"
            if self._circuit.strategy == "none" or (
                self._circuit.strategy == "controller" and self._proof.alignment is None
            ):
                return finding("polarization", f"{lost}, and nothing has turned the polarization to TE")
            return finding("fibre before the mesh", lost)
        if missing_db < -_LOST_DB:
            return finding("budget", f"{-missing_db:.1f} dB more leave port {out.port} than predicted")
        if self._proof.los:
            target = self._circuit.request.target
            return finding("receiver", f"its light arrives, and {target} reports loss of signal")
        return finding("budget", ", ".join(self._proof.failures))

    def _behind(self, leaves_dbm: float, arrives_dbm: float | None) -> str:
        """Say where light goes that leaves the right port and does not arrive: perhaps to another's meter."""
        out, target = self._arm.exit, self._circuit.request.target
        for each in self._do.wiring.outputs:
            if each.meter is None or each.port == out.port:
                continue
            level_dbm = self._do.exits.fibre_level_dbm(each)
            if level_dbm is not None and abs(level_dbm - leaves_dbm) < _SAME_LIGHT_DB:
                return (
                    f"light for {target} leaves port {out.port} and arrives at the meter of "
                    f"{each.transponder or each.meter}, which the bench file has behind port {each.port}: "
                    "their fibres are swapped"
                )
        lost = "all of it" if arrives_dbm is None else f"{leaves_dbm - arrives_dbm:.1f} dB of it"
        return f"light leaves port {out.port}, and {lost} is lost behind it"
