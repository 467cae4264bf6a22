"""Routing: speed, success and excess over the optimum of the router, beside CP-SAT and published times.

Run: OPENBLAS_NUM_THREADS=1 .venv/bin/python benchmarks/routing.py [switch] [random] [large] [matchings]
Without arguments all four tables are made; `random` takes most of the time. One thread throughout, CP-SAT included;
every routing is traced through its own states inside the time that is stated. Requests are drawn from fixed seeds.
"""

from __future__ import annotations

import itertools
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

from lumion_hw.errors import NoPathError, RoutingError
from lumion_hw.mesh.hexagonal import HexMesh
from lumion_hw.mesh.matchings import all_to_all
from lumion_hw.mesh.routing import Routing, cpsat, route
from lumion_hw.mesh.routing.request import RouteRequest, problem_for

Pairs = list[tuple[int, int]]

SWITCH_INPUTS, SWITCH_OUTPUTS = (0, 39, 38, 37, 36, 35), range(15, 21)
SETS = 20
CIRCUITS = range(2, 11)
OPTIMUM_S = 20.0
"""Time CP-SAT may take to prove one optimum."""
IMPROVE_S = 0.1
"""Time the router may take to improve what it has found."""


def timed(mesh: HexMesh, pairs: Pairs, **options: object) -> tuple[float, Routing | None, str]:
    """Return ms, the routing if any, and the name of the error if none."""
    began = time.perf_counter()
    try:
        routing, error = route(mesh, RouteRequest(pairs, objective="hops", **options)), ""  # type: ignore[arg-type]
    except RoutingError as failure:
        routing, error = None, type(failure).__name__
    return (time.perf_counter() - began) * 1e3, routing, error


def drawn(mesh: HexMesh, circuits: int, seed: int) -> Pairs:
    """Return random disjoint pairs of fibre ports."""
    ports = np.random.default_rng(seed).permutation(mesh.fibre_ports)[: 2 * circuits].tolist()
    return list(zip(ports[::2], ports[1::2], strict=True))


def switch() -> None:
    mesh = HexMesh.smartlight()
    route(mesh, RouteRequest([(0, 20)]))  # tables of the mesh are made once
    times, hops = [], set()
    for outputs in itertools.permutations(SWITCH_OUTPUTS):
        ms, routing, _ = timed(mesh, list(zip(SWITCH_INPUTS, outputs, strict=True)), exact="never")
        times.append(ms)
        hops.add(routing.total_hops if routing is not None and routing.outcome == "optimal" else 0)
    met = f"720 of 720, all optimal at {hops.pop()} hops" if len(hops) == 1 and 0 not in hops else "MISSED SOME"
    print("\n### The 6×6 switch on 72 PUCs, all 720 permutations\n")
    print("| method | ms per configuration | result |\n|---|---|---|")
    print(f"| this router, each re-traced | {statistics.median(times):.2f} median, {max(times):.1f} worst | {met} |")
    sample = list(itertools.permutations(SWITCH_OUTPUTS))[::120]
    exact = [timed(mesh, list(zip(SWITCH_INPUTS, o, strict=True)), rounds=0, time_limit_s=60.0)[0] for o in sample]
    print(f"| CP-SAT alone, 6 of them | {statistics.median(exact):.0f} median | optimal |")
    for method, ms in (("analytic (Spanke–Beneš)", 38), ("edge penalty", 2700), ("sequential", 5800)):
        print(f"| published: {method} (Sánchez-Jácome 2025) | {ms} | – |")
    print(f"\nGoal: median under 2 ms: {'met' if statistics.median(times) < 2.0 else 'missed'}.")


def random_sets() -> None:
    mesh = HexMesh.smartlight()
    print(f"\n### Random disjoint pairs on the 28 fibre ports of 72 PUCs, {SETS} requests each\n")
    print(
        "| circuits | feasible | infeasible, proven | undecided | routed by the fast router | routed with rescue "
        "| fast, ms median | optimum proven | excess of the fast router over it, mean / worst "
        f"| after {IMPROVE_S * 1e3:.0f} ms of improvement |\n" + "|" + "---|" * 10
    )
    lost = 0
    for circuits in CIRCUITS:
        verdicts = {"optimal": 0, "feasible": 0, "infeasible": 0, "undecided": 0}
        fast_ms, excess, excess_improved = [], [], []
        fast_met = met = proven = 0
        for seed in range(SETS):
            pairs = drawn(mesh, circuits, 1000 * circuits + seed)
            ms, fast, _ = timed(mesh, pairs, exact="never")
            verdict = cpsat.decide(problem_for(mesh, RouteRequest(pairs, objective="hops")), time_limit_s=OPTIMUM_S)
            status = verdict.status if fast is None or verdict.status == "optimal" else "feasible"
            verdicts[status] += 1
            rescued = fast or timed(mesh, pairs, time_limit_s=60.0)[1]
            fast_met, met = fast_met + (fast is not None), met + (rescued is not None)
            lost += status in ("optimal", "feasible") and rescued is None
            if fast is not None:
                fast_ms.append(ms)
            if fast is not None and verdict.status == "optimal":
                proven += 1
                excess.append(fast.total_hops / verdict.bound - 1.0)
                better = timed(mesh, pairs, exact="never", improve_s=IMPROVE_S)[1]
                excess_improved.append((better or fast).total_hops / verdict.bound - 1.0)
        feasible = verdicts["optimal"] + verdicts["feasible"]
        over, improved = (
            f"{statistics.mean(each):.1%} / {max(each):.1%}" if each else "–" for each in (excess, excess_improved)
        )
        ms_text = f"{statistics.median(fast_ms):.1f}" if fast_ms else "–"
        print(
            f"| {circuits} | {feasible} | {verdicts['infeasible']} | {verdicts['undecided']} | {fast_met} | {met} "
            f"| {ms_text} | {proven} | {over} | {improved} |",
            flush=True,
        )
    print(f"\nFeasible requests that were not routed: {lost}. CP-SAT had {OPTIMUM_S:g} s for each optimum.")


def large() -> None:
    mesh = HexMesh.columns([10, 11] * 10 + [10])
    began = time.perf_counter()
    _ = mesh.hops_to_port
    tables_s = time.perf_counter() - began
    print(f"\n### {mesh.n_pucs} PUCs, {mesh.n_ports} ports, random disjoint pairs on all ports, 40 requests each\n")
    print(
        "| circuits | routed | ms median of those | ms worst | above 300 ms | proven impossible | undecided, s median |"
    )
    print("|" + "---|" * 7)
    for circuits in (8, 16, 24, 32):
        done, gave_up, refused = [], [], 0
        for seed in range(40):
            ms, routing, error = timed(mesh, drawn(mesh, circuits, seed), exact="never")
            if routing is not None:
                done.append(ms)
            elif error == NoPathError.__name__:
                refused += 1
            else:
                gave_up.append(ms / 1e3)
        told = [f"{statistics.median(done):.0f}", f"{max(done):.0f}"] if done else ["–", "–"]
        given_up = f"{len(gave_up)}, {statistics.median(gave_up):.1f}" if gave_up else "0"
        slow = sum(ms > 300.0 for ms in done)
        print(f"| {circuits} | {len(done)} | {told[0]} | {told[1]} | {slow} | {refused} | {given_up} |", flush=True)
    print(f"\nThe distance table of the mesh takes {tables_s:.2f} s once. Goal: 32 circuits under 300 ms.")
    print("CP-SAT is not asked here, so what is undecided may be possible or not.")


def matchings() -> None:
    smartlight, nine = HexMesh.smartlight(), HexMesh.columns([8, 9] * 4 + [8])
    print("\n### All-to-all by matchings, ports evenly round the rim\n")
    print("| mesh | PUCs | ports | configurations | lower bound | longest path, hops | seconds |\n" + "|" + "---|" * 7)
    for mesh, counts in ((smartlight, (4, 7, 8, 10, 12, 14, 20, 28)), (nine, (8, 16, 24, 32))):
        for count in counts:
            fibres: Sequence[int] = mesh.fibre_ports
            ports = [fibres[index * len(fibres) // count] for index in range(count)]
            began = time.perf_counter()
            found = all_to_all(mesh, ports)
            took_s = time.perf_counter() - began
            label = "9 columns of 8 and 9" if mesh is nine else mesh.label
            print(
                f"| {label} | {mesh.n_pucs} | {count} | {len(found.configurations)} | {found.lower_bound} "
                f"| {found.longest_hops} | {took_s:.2f} |",
                flush=True,
            )


TABLES: dict[str, Callable[[], None]] = {
    "switch": switch,
    "random": random_sets,
    "large": large,
    "matchings": matchings,
}


def main() -> None:
    import ortools

    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"OR-Tools {ortools.__version__}; one thread, medians of one run"
    )
    for name in sys.argv[1:] or TABLES:
        TABLES[name]()


if __name__ == "__main__":
    main()
