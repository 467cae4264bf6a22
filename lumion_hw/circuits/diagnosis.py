"""Why a circuit could not be proven: the light itself is asked, one hypothesis against the other.

With only one of the new transmitters on, the monitors at the ports show where its light leaves. Every single fault
predicts where: a PUC stuck in the other state, a fibre plugged in elsewhere, no light at all. Where several predict the
same, a PUC that no standing circuit uses is set otherwise, and those that predict wrongly are out.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lumion_hw.bench.bench import Bench
from lumion_hw.circuits.exit_power import ExitPower
from lumion_hw.circuits.plan import CircuitPlan, PlannedCircuit
from lumion_hw.circuits.proof import CircuitProof, named
from lumion_hw.circuits.standing import setting_beside
from lumion_hw.errors import ConfigError, LumionError
from lumion_hw.interfaces.wiring import OutputPath
from lumion_hw.mesh.record import CalibrationRecord
from lumion_hw.mesh.routing.request import other
from lumion_hw.mesh.topology import State
from lumion_hw.quantities import ratio_from_db, w_from_dbm

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


@dataclass(frozen=True)
class Finding:
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
        return f"{named(self.circuit.request)}, {self.place}: {self.detail}."

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
        exits: ExitPower,
        plan: CircuitPlan,
        held: Collection[int],
        driven_ma: NDArray[np.float64],
    ) -> None:
        self._bench = bench
        self._record = record
        self._exits = exits
        self._states = plan.states
        self._held = frozenset(held)
        self._driven_ma = driven_ma

    def of(self, proofs: Sequence[CircuitProof]) -> tuple[Finding, ...]:
        """Return what is wrong with each circuit that was not proven. Raises what devices raise."""
        self._dark([proof.circuit.request.source for proof in proofs])
        background_w = self._exits.leaving_w()
        return tuple(self._found(proof, background_w) for proof in proofs if not proof.proven)

    def _dark(self, sources: Sequence[str]) -> None:
        modules = self._bench.transponders
        self._bench.side_by_side([(name, modules[name].disable) for name in dict.fromkeys(sources)])

    def _found(self, proof: CircuitProof, background_w: Mapping[int, float]) -> Finding:
        circuit, source = proof.circuit, proof.circuit.request.source
        finding = functools.partial(Finding, circuit)
        if proof.launch_dbm is None:
            return finding("transmitter", f"{source} reports no light of its own")
        try:
            self._bench.transponders[source].enable()
        except LumionError as error:
            return finding("transmitter", f"{source} does not start: {error}")
        try:
            self._set(self._states)
            look = functools.partial(self._look, background_w)
            first_w, faults = look(), self._suspects(circuit)
            alive = self._tested(circuit, faults, look, first_w)
            self._set(self._states)
            return self._explained(proof, alive, first_w)
        finally:
            self._dark([source])

    # -- which hypotheses agree with the light ------------------------------------------------------------------------

    def _suspects(self, circuit: PlannedCircuit) -> list[_Fault]:
        """Return everything that may be wrong: nothing, no light, each PUC stuck, each other port as the entry."""
        at = circuit.entry.port
        elsewhere = [port for port in self._bench.mesh.topology.fibre_ports if port != at]
        stuck = [_Fault(at, {puc: other(self._states[puc])}) for puc in circuit.path.pucs if puc not in self._held]
        return [_Fault(at), _Fault(None), *stuck, *(_Fault(port) for port in elsewhere)]

    def _tested(
        self,
        circuit: PlannedCircuit,
        faults: list[_Fault],
        look: Callable[[], dict[int, float]],
        first_w: Mapping[int, float],
    ) -> list[_Fault]:
        """Return what is left after tests that tell hypotheses apart."""
        floor_w = self._expected_w(circuit) / ratio_from_db(_FLOOR_DB)
        alive = [each for each in faults if self._agrees(each, self._states, first_w, floor_w)]
        for _ in range(_MOST_TESTS):
            puc = self._telling(alive)
            if puc is None:
                break
            states = {**self._states, puc: other(self._states[puc])}
            self._set(states)
            seen_w = look()
            # A PUC that does not obey tells nothing against itself: whoever names it predicts no change.
            alive = [each for each in alive if self._agrees(each, states, seen_w, floor_w)]
        return alive

    def _telling(self, alive: Sequence[_Fault]) -> int | None:
        """Return the free PUC whose other state tells most hypotheses apart; ``None`` if none does."""
        best, least = None, len(alive)
        reached = {puc for each in alive for puc in self._way(each, self._states)[1]}
        for puc in sorted(reached - self._held):
            states = {**self._states, puc: other(self._states[puc])}
            largest = max(Counter(self._way(each, states)[0] for each in alive).values())
            if largest < least:
                best, least = puc, largest
        return best

    def _way(self, fault: _Fault, states: Mapping[int, State]) -> tuple[int | None, tuple[int, ...]]:
        """Return where light leaves under a hypothesis, and its PUCs; ``None`` where it does not, or nobody knows."""
        if fault.entry is None:
            return None, ()
        try:
            trace = self._bench.mesh.topology.trace(fault.entry, {**states, **fault.stuck})
        except ConfigError:
            return -1, ()
        return trace.port, trace.pucs

    def _agrees(self, fault: _Fault, states: Mapping[int, State], seen_w: Mapping[int, float], floor_w: float) -> bool:
        port, total_w = self._way(fault, states)[0], sum(seen_w.values())
        if port is None or port not in seen_w:
            return max(seen_w.values(), default=0.0) < floor_w
        return seen_w[port] > max(floor_w, _SHARE * total_w)

    def _look(self, background_w: Mapping[int, float]) -> dict[int, float]:
        """Return the light of the one transmitter that is on, by the port where it leaves."""
        return {port: max(w - background_w.get(port, 0.0), 0.0) for port, w in self._exits.leaving_w().items()}

    def _set(self, states: dict[int, State]) -> None:
        setting = setting_beside(self._bench.mesh.topology, self._record, states, self._held, self._driven_ma)
        self._bench.mesh.program(setting.currents_ma)

    def _expected_w(self, circuit: PlannedCircuit) -> float:
        """Return what should leave the mesh on the chip at the exit of a circuit."""
        budget, entry = circuit.budget, circuit.entry
        out_db = self._exits.facet_loss_db(circuit.exit.port)
        return w_from_dbm(budget.launch_dbm + entry.gain_db - entry.loss_db - budget.mesh_loss_db + out_db)

    # -- what that means ----------------------------------------------------------------------------------------------

    def _explained(self, proof: CircuitProof, alive: Sequence[_Fault], first_w: Mapping[int, float]) -> Finding:
        circuit = proof.circuit
        at, finding = circuit.entry.port, functools.partial(Finding, circuit)
        stuck = tuple(sorted({puc for fault in alive for puc in fault.stuck}))
        ports = {fault.entry for fault in alive if not fault.stuck}
        if not alive:
            bright = sorted(first_w, key=lambda port: -first_w[port])[:2]
            return finding(
                "path", f"its light leaves at ports {bright}, which no single fault explains", circuit.path.pucs
            )
        if ports == {None}:
            return finding("fibre before the mesh", self._no_light(circuit))
        if ports == {at} and not stuck:
            return self._on_its_way(proof, first_w)
        if stuck and ports <= {at}:
            half = ", perhaps half way" if at in ports else ""
            names = " or ".join(f"PUC {puc}" for puc in stuck)
            return finding("path", f"{names} does not take its state{half}", stuck)
        if len(ports) == 1 and not stuck:
            return finding("wiring", self._enters_at(circuit, next(iter(ports))))
        tell = sorted(port for port in ports if port is not None and port != at)
        pucs = f"PUCs {list(stuck)} do not take their states, or " if stuck else ""
        return finding("path", f"{pucs}its light enters at one of ports {tell}", stuck)

    def _no_light(self, circuit: PlannedCircuit) -> str:
        launched = f"{circuit.request.source} launches light and none of it leaves the mesh anywhere"
        if circuit.entry.polarization is None:
            return (
                f"{launched}: fibre or port {circuit.entry.port} is dead, or all its light is TM (no controller there)"
            )
        return f"{launched}: the fibre to port {circuit.entry.port}, or the port, is dead"

    def _enters_at(self, circuit: PlannedCircuit, port: int | None) -> str:
        owner = next((path.source for path in self._bench.wiring.inputs if path.port == port), None)
        swapped = (
            f", where the bench file has {owner}: their fibres are swapped"
            if owner
            else ", which the bench file leaves free"
        )
        return f"light of {circuit.request.source} enters at port {port} instead of {circuit.entry.port}{swapped}"

    def _on_its_way(self, proof: CircuitProof, first_w: Mapping[int, float]) -> Finding:
        """Say what is wrong with light that takes its path: too little before the exit, or something behind it."""
        circuit, alignment = proof.circuit, proof.alignment
        finding, out = functools.partial(Finding, circuit), circuit.exit
        missing_db = 10.0 * float(np.log10(self._expected_w(circuit) / first_w[out.port]))
        if missing_db > _LOST_DB:
            if circuit.entry.polarization is None or alignment is None:
                return finding(
                    "polarization",
                    f"{missing_db:.1f} dB are missing at port {out.port}, and the polarization was not found",
                )
            return finding(
                "fibre before the mesh", f"{missing_db:.1f} dB more are lost before port {out.port} than calibrated"
            )
        if missing_db < -_LOST_DB:
            return finding("budget", f"{-missing_db:.1f} dB more leave port {out.port} than predicted")
        if out.meter is not None:
            level_dbm = self._exits.in_fibre_dbm(out)
            lost_db = np.inf if level_dbm is None else 10.0 * float(np.log10(first_w[out.port] * 1e3)) - level_dbm
            lost_db -= self._exits.facet_loss_db(out.port)
            if lost_db > _LOST_DB:
                return finding("fibre behind the mesh", self._behind(circuit, out, lost_db))
        if proof.los:
            return finding("receiver", f"its light arrives, and {circuit.request.target} reports loss of signal")
        return finding("budget", ", ".join(proof.failures))

    def _behind(self, circuit: PlannedCircuit, out: OutputPath, lost_db: float) -> str:
        """Say where light goes that leaves the right port and does not arrive: perhaps to another's meter."""
        others = [each for each in self._bench.wiring.outputs if each.meter is not None and each.port != out.port]
        expected_dbm = 10.0 * float(np.log10(self._expected_w(circuit) * 1e3)) - self._exits.facet_loss_db(out.port)
        for each in others:
            level_dbm = self._exits.in_fibre_dbm(each)
            if level_dbm is not None and abs(level_dbm - expected_dbm) < 3.0:
                return (
                    f"light for {circuit.request.target} leaves port {out.port} and arrives at the meter of "
                    f"{each.transponder or each.meter} (port {each.port} in the bench file): their fibres are swapped"
                )
        lost = "all of it" if np.isinf(lost_db) else f"{lost_db:.1f} dB of it"
        return f"light leaves port {out.port}, and {lost} is lost behind it"
