"""Replacing a server by a spare: choose, re-route, program, prove; every span timed.

There is never one number called "recovery": the spans are reported one by one, in milliseconds of bench time, beside
the CPU time that this software took for each.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from lumion_hw.bench.bench import Bench
from lumion_hw.bench.model import BenchModel
from lumion_hw.circuits import CircuitPlan, CircuitProof, CircuitRequest, PathSetup, PlannedCircuit
from lumion_hw.errors import CircuitError, LumionError, RoutingError
from lumion_hw.fabric.detection import FailureVerdict
from lumion_hw.fabric.servers import find_server, substituted


@dataclass(frozen=True)
class Span:
    """One span of a recovery.

    Attributes:
        name: ``los_seen``, ``spare_chosen``, ``route_found``, ``programmed``, ``settled``, ``los_clear``, ``link_up``.
        bench_ms: Bench time since the span before.
        cpu_ms: CPU time of this process in it.
        at_ms: Bench time since the fault.
    """

    name: str
    bench_ms: float
    cpu_ms: float
    at_ms: float


@dataclass(frozen=True)
class Recovery:
    """What a swap did.

    Attributes:
        failed: The server that was replaced.
        spare: The server in its place.
        spans: In order; the detection first.
        proofs: Proofs of the new circuits.
        kept: Circuits that were not touched: every PUC on their way kept its state.
    """

    failed: str
    spare: str
    spans: tuple[Span, ...]
    proofs: tuple[CircuitProof, ...]
    kept: tuple[CircuitRequest, ...]


class SpanTimer:
    """Stamps milestones in bench time and CPU time.

    Args:
        bench: The bench whose clock counts.
        fault_s: Bench time of the fault: known in a rehearsal, otherwise the last time all was well.
        began_cpu_s: CPU time at which the first span began.
    """

    def __init__(self, bench: Bench, fault_s: float, began_cpu_s: float) -> None:
        self._bench = bench
        self._fault_s = fault_s
        self._last_s = fault_s
        self._last_cpu_s = began_cpu_s
        self.spans: list[Span] = []

    def rewind(self, name: str) -> None:
        """Forget the spans after one: what a failed attempt took counts for the attempt that follows."""
        while self.spans[-1].name != name:
            self._last_cpu_s -= self.spans.pop().cpu_ms * 1e-3
        self._last_s = self._fault_s + self.spans[-1].at_ms * 1e-3

    def mark(self, name: str) -> None:
        """End a span now."""
        now_s, cpu_s = self._bench.clock.now(), time.process_time()
        span = Span(
            name,
            round((now_s - self._last_s) * 1e3, 3),
            round((cpu_s - self._last_cpu_s) * 1e3, 3),
            round((now_s - self._fault_s) * 1e3, 3),
        )
        self.spans.append(span)
        self._last_s, self._last_cpu_s = now_s, cpu_s
        self._bench.events.add("span", name=name, bench_ms=span.bench_ms, cpu_ms=span.cpu_ms)


def replace_server(
    setup: PathSetup, verdict: FailureVerdict, *, fault_s: float | None = None, began_cpu_s: float | None = None
) -> Recovery:
    """Put a spare in the place of a failed server and prove the new circuits.

    Spares are tried in the order of the bench file; one that shares a risk group with the failed server, does not
    answer, has no route, or cannot be proven is passed over, and the log says why; the time this takes is part of the
    span ``spare_chosen`` of the spare that stays. Circuits between other servers keep their PUCs as they are, unless
    there is no route without moving them.

    Args:
        setup: Path set-up with the circuits that are set up now.
        verdict: What failed.
        fault_s: Bench time of the fault, if it is known; otherwise the last time all was well, an upper bound.
        began_cpu_s: CPU time at the fault, if it is known.

    Raises:
        CircuitError: No spare could be proven; the circuits are as they were.
        LumionError: The mesh controller failed.
    """
    bench = setup.bench
    timer = SpanTimer(
        bench,
        verdict.since_s if fault_s is None else fault_s,
        time.process_time() if began_cpu_s is None else began_cpu_s,
    )
    timer.mark("los_seen")
    before = setup.active.circuits if setup.active else ()
    refused: list[str] = []
    for spare in _candidates(bench, verdict.server, [circuit.request for circuit in before], refused):
        # Time lost on spares that were refused belongs to the choice of the one that stays.
        timer.rewind("los_seen")
        timer.mark("spare_chosen")
        try:
            plan = _plan(setup, before, verdict.server, spare)
            timer.mark("route_found")
            # Polarization is searched where light is missing only: circuits that stay carry traffic.
            proofs = setup.establish(plan, align=False, milestone=timer.mark)
        except LumionError as error:
            if error.device == bench.model.mesh_section.controller:
                raise  # no other spare helps against that
            refused.append(f"{spare}: {error}")
            bench.events.add("spare refused", spare=spare, reason=str(error))
            continue
        bench.events.add("replaced", failed=verdict.server, spare=spare)
        was = {(circuit.request, circuit.path.pucs) for circuit in before}
        kept = tuple(circuit.request for circuit in plan.circuits if (circuit.request, circuit.path.pucs) in was)
        return Recovery(verdict.server, spare, tuple(timer.spans), proofs, kept)
    raise CircuitError(
        f"no spare can take the place of {verdict.server} ({'; '.join(refused) or 'the bench file names none'})",
        hint="The circuits are as they were. Shrink the job, or add a spare to 'fabric.spares'.",
    )


def _plan(setup: PathSetup, before: Sequence[PlannedCircuit], failed: str, spare: str) -> CircuitPlan:
    """Plan the circuits with the spare in the failed server's place; the others keep their PUCs if that is possible."""
    model = setup.bench.model
    nics = set(find_server(model, failed).nics)
    requests = substituted(model, [circuit.request for circuit in before], failed, spare)
    states = setup.active.routing.states if setup.active else {}
    fixed = {
        puc: states[puc]
        for circuit in before
        if not {circuit.request.source, circuit.request.target} & nics
        for puc in circuit.path.pucs
    }
    try:
        # First without touching anybody else's circuits; moving them is better than no recovery.
        return setup.plan(requests, fixed=fixed)
    except RoutingError:
        if not fixed:
            raise
        return setup.plan(requests)


def _candidates(bench: Bench, failed: str, before: Sequence[CircuitRequest], refused: list[str]) -> list[str]:
    """Return the spares that are fit to be tried, best first; note why others are not."""
    model: BenchModel = bench.model
    risk = find_server(model, failed).risk_group
    busy = {name for request in before for name in (request.source, request.target)}
    fit = []
    for name in model.fabric.spares:
        spare = find_server(model, name)
        if name == failed or set(spare.nics) & busy:
            refused.append(f"{name}: it is in use")
        elif risk is not None and spare.risk_group == risk:
            refused.append(f"{name}: it shares risk group {risk} with {failed}")
        else:
            well = bench.side_by_side([(nic, partial(_answers, bench, nic)) for nic in spare.nics])
            silent = [nic for nic, answers in zip(spare.nics, well, strict=True) if not answers]
            if silent:
                refused.append(f"{name}: {', '.join(silent)} does not answer")
            else:
                fit.append(name)
    return fit


def _answers(bench: Bench, transponder: str) -> bool:
    """Return whether a module answers and has no transmitter fault."""
    try:
        return not bench.transponders[transponder].status().tx_fault
    except LumionError:
        return False
