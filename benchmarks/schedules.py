"""Quality of schedules and the time to generate them.

Run: OPENBLAS_NUM_THREADS=1 .venv/bin/python benchmarks/schedules.py [stragglar|cost|demand|mesh|phases|rotations]

stragglar  Rounds compared with the bound and earlier results, n = 4 ... 256; time to generate and verify all.
cost       Times at several dark times, break-even points, smallest buffers.
demand     A skewed 64 x 64 demand in full, and the served fraction by number of configurations and its optimum.
mesh       Schedules as settings of the 72-PUC mesh: rounds split, or rounds and rank placement chosen for the mesh.
phases     A job on the emulated small bench: measured dark times, and the iteration time compared with the model.
rotations  Searches the rotations of StragglAR again with CP-SAT (extra cpsat) and prints rotations.json; minutes.

Without an argument all except the last are run, in one process. Times are CPU times.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.pop(0)  # this folder has a module of the same name as the package calibration
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

from lumion_hw import Bench, load_record
from lumion_hw.circuits import PathSetup
from lumion_hw.mesh import HexMesh
from lumion_hw.schedules import (
    CostModel,
    MeshRouter,
    PhaseSwitch,
    birkhoff,
    bounded,
    cost_of,
    demand_from_counts,
    load_phases,
    make_schedule,
    measured_iteration,
    min_rounds,
    min_straggler_rounds,
    model_with_measured_dark_times,
    optimal,
    prepare,
    regroup_schedule,
    relabel_ranks,
    route_schedule,
    stragglar,
    verify,
)

ROOT = Path(__file__).parents[1]
KNOWN = {6: 7, 10: 12, 12: 14, 14: 17, 18: 21, 20: 23, 22: 26, 24: 27, 26: 30, 28: 32, 30: 34, 48: 53}
"""Best earlier round counts, from one maximum-weight matching per round or from the generator of the authors."""
NAMES = ("ring", "halving-doubling", "stragglar", "all-to-all", "bruck")


def rows(head: Sequence[str], body: Sequence[Sequence[object]]) -> None:
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in body:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    print()


def straggler_table() -> None:
    begun_s, body = time.process_time(), []
    for ranks in [*range(4, 65, 2), 128, 256]:
        schedule = stragglar(ranks)
        verify(schedule)
        body.append((ranks, min_straggler_rounds(ranks), len(schedule.rounds), KNOWN.get(ranks, "")))
    took_s = time.process_time() - begun_s
    above = [row for row in body if row[1] != row[2]]
    rows(("n", "bound", "reached", "best known before"), [row for row in body if row[3]])
    print(f"{len(body)} numbers of ranks made and verified in {took_s:.1f} s; above the bound: {above or 'none'}")
    for ranks in (66, 96, 100, 192):
        begun_s = time.process_time()
        schedule = stragglar(ranks)
        verify(schedule)
        took_s = time.process_time() - begun_s
        print(
            f"n = {ranks}, without a rotation: {len(schedule.rounds)}, "
            f"bound {min_straggler_rounds(ranks)}, {took_s:.1f} s"
        )
    print()


def cost_tables() -> None:
    for ranks, size, name in ((64, 2**30, "1 GiB"), (8, 2**20, "1 MiB")):
        costs = [cost_of(make_schedule(each, ranks)) for each in NAMES]
        body = []
        for delta_s in (0.0, 1e-5, 1e-3, 1e-2, 25e-3):
            model = CostModel(50e9, switching_s=delta_s)
            body.append((f"{1e3 * delta_s:g} ms", *(f"{1e3 * each.time_s(model, size):.4g}" for each in costs)))
        print(f"n = {ranks}, {name}, 50 GB/s, alpha 3 us; ms")
        rows(("delta", *NAMES), body)
    body = []
    for ranks in (4, 8, 16, 64):
        own, ring = cost_of(stragglar(ranks)), cost_of(make_schedule("ring", ranks))
        model = CostModel(50e9, switching_s=1e-2)
        won = own.winning_range_bytes(ring, model)
        edges = [f"{1e6 * own.break_even_delta_s(ring, model, size):.0f} us" for size in (2**26, 2**30)]
        smallest = "never" if won is None else f"{won[0] / 1e9:.1f} GB"
        late_s = 0.0 if won is None else own.early_s(model, won[0])
        body.append((ranks, *edges, smallest, f"{1e3 * late_s:.0f} ms"))
    print("StragglAR against a ring at 50 GB/s")
    rows(("n", "break-even at 64 MiB", "at 1 GiB", "smallest buffer at 10 ms", "late by at least"), body)
    fast = CostModel(450 * 2**30)
    pairs = [(n, cost_of(make_schedule("ring", n)), cost_of(stragglar(n))) for n in (4, 8, 16, 32, 64, 128, 256)]
    print("delta = 0, 450 GiB/s, 1 GiB, ring / StragglAR:")
    print(", ".join(f"{n}: {a.time_s(fast, 2**30) / b.time_s(fast, 2**30):.2f}" for n, a, b in pairs), "\n")


def demand_tables() -> None:
    demand = demand_from_counts(np.random.default_rng(1).lognormal(10.0, 2.0, (64, 64)))
    begun_s = time.process_time()
    full = birkhoff(demand)
    took_s = time.process_time() - begun_s
    print(
        f"skewed 64 x 64: {len(full.configurations)} configurations serve {full.served_share:.1%}, {took_s:.2f} s CPU"
    )
    body = []
    for count in (4, 8, 16, 32, 64):
        begun_s = time.process_time()
        some = bounded(demand, count)
        took_s = time.process_time() - begun_s
        cut = full.served_after_bytes[count] / demand.total_bytes
        pairs = bounded(demand, count, duplex=True).served_share
        body.append((count, f"{some.served_share:.1%}", f"{cut:.1%}", f"{pairs:.1%}", f"{took_s:.2f} s"))
    rows(("configurations", "bounded", "full one cut off", "bounded, duplex", "CPU"), body)
    body = []
    for ranks, count in ((4, 1), (4, 2), (4, 3), (4, 4), (5, 2), (5, 3)):
        shares = []
        for seed in range(10):
            small = demand_from_counts(np.random.default_rng(seed).lognormal(5.0, 1.5, (ranks, ranks)))
            shares.append(bounded(small, count).served_after_bytes[-1] / optimal(small, count))
        body.append((ranks, count, f"{np.mean(shares):.1%}", f"{min(shares):.1%}"))
    print("bounded beside the proven optimum, 10 skewed demands each")
    rows(("ranks", "configurations", "mean", "worst"), body)


def mesh_table() -> None:
    mesh, body = HexMesh.smartlight(), []
    for name, ranks in (
        ("ring", 8),
        ("halving-doubling", 8),
        ("stragglar", 8),
        ("all-to-all", 6),
        ("all-to-all", 8),
        ("all-to-all-shifts", 8),
        ("all-to-all-shifts", 10),
    ):
        ports = [mesh.fibre_ports[k * len(mesh.fibre_ports) // (2 * ranks)] for k in range(2 * ranks)]
        router, schedule = MeshRouter(mesh, ports[0::2], ports[1::2]), make_schedule(name, ranks)
        begun_s = time.process_time()
        routed = route_schedule(router, schedule)
        split_s = time.process_time()
        if name.startswith("all-to-all"):
            chosen = route_schedule(router, regroup_schedule(router, schedule))
        else:
            chosen = route_schedule(router.with_ports_of(relabel_ranks(router, schedule)), schedule)
        took = f"{split_s - begun_s:.1f} s", f"{time.process_time() - split_s:.1f} s"
        proven = routed.rounds + routed.min_extra
        least = min_rounds(schedule) if name.startswith("all-to-all") else routed.rounds
        longest = max(routed.longest_hops, chosen.longest_hops)
        body.append((name, ranks, len(routed.steps), proven, len(chosen.steps), least, longest, *took))
    print("on 72 PUCs, inputs and outputs taking turns round the rim: settings")
    head = ("rounds split", "no fewer for these rounds", "rounds or places chosen", "no fewer at all")
    rows(("schedule", "ranks", *head, "longest way", "CPU", "CPU, chosen"), body)


def phases_table() -> None:
    plan, record = load_phases(ROOT / "examples" / "job_phases.yaml"), ROOT / "tests" / "data" / "recorded"
    with Bench.emulate(ROOT / "tests" / "data" / "small.yaml", seed=1) as bench:
        calibrated = load_record(record / "record.json")
        prepared = prepare(bench.model, calibrated, plan)
        switch = PhaseSwitch(PathSetup(bench, calibrated), prepared)
        switch.rehearse()
        changes = switch.measure()
        done = switch.run(plan, iterations=10)
    seen, said = measured_iteration(done, 9, plan), model_with_measured_dark_times(done, prepared, plan)
    body = []
    for place, phase in enumerate(plan.phases):
        change, switched = changes[phase.tag], done[place - len(plan.phases)].switched
        dark = "" if switched is None else f"{1e3 * switched.longest_dark_s:.2f}"
        waits = (f"{1e3 * seen.waits_s[place]:.2f}", f"{1e3 * said.waits_s[place]:.2f}")
        heat = f"{prepared[phase.tag].plan.heat_mw:.1f}"
        body.append((phase.tag, dark, f"{1e3 * change.light_s:.2f}", f"{1e3 * change.receivers_s:.1f}", *waits, heat))
    head = ("phase", "dark ms", "proven ms", "receivers ms", "waits ms", "by the model ms", "heat mW")
    print("a job on the emulated small bench, its recorded calibration, ten iterations")
    rows(head, body)
    print(f"iteration {1e3 * seen.total_s:.2f} ms, by the model {1e3 * said.total_s:.2f} ms\n")


def rotations() -> None:
    """Search a rotation for every even number up to 62 that is not a power of two, and print the file."""
    rotations_by_ranks = {}
    for ranks in [n for n in range(6, 64, 2) if n & (n - 1)]:
        for seed in range(5):
            if (rotation := rotation_of(ranks, 120.0, seed)) is not None:
                rotations_by_ranks[ranks] = rotation
                break
    lines = ",\n".join(f'  "{n}": {json.dumps(each, separators=(",", ":"))}' for n, each in rotations_by_ranks.items())
    print(f'{{"format": "lumion-rotations", "version": 1, "rotations": {{\n{lines}\n}}}}')


def rotation_of(ranks: int, limit_s: float, seed: int) -> list[tuple[int, int, int, int]] | None:
    """Return pairs of positions and the ages they send, so that all chunks are everywhere after log2 n + 1 rounds.

    Position x is the rank whose turn comes in x rounds. A chunk of age k that is sent to position y reaches the rank
    y + k positions after the rank whose turn it was when the chunk was finished; every such rank is reached once.
    """
    from ortools.sat.python import cp_model

    late, oldest = ranks - 1, (ranks - 1).bit_length() + 1
    places, ages = range(1, late), range(1, oldest + 1)
    model = cp_model.CpModel()
    takes = {(y, k): model.new_bool_var("") for y in places for k in ages}
    gives = {(x, k): model.new_bool_var("") for x in places for k in ages}
    paired = {}
    for x in places:
        for y in range(x + 1, late):
            paired[x, y] = paired[y, x] = model.new_bool_var("")
    for x in places:
        model.add_exactly_one(takes[x, k] for k in ages)
        model.add_exactly_one(gives[x, k] for k in ages)
        model.add_exactly_one(paired[x, y] for y in places if y != x)
        for k in ages:
            beyond = (x + k) % late
            if beyond:  # the sender received the chunk at a lower age
                before = [takes[(beyond - j) % late, j] for j in range(1, k) if (beyond - j) % late]
                model.add_bool_or([*before, gives[x, k].negated()])
        model.add_exactly_one(takes[(x - k) % late, k] for k in ages if (x - k) % late)
    for (x, y), both in paired.items():
        for k in ages:
            model.add(takes[y, k] == gives[x, k]).only_enforce_if(both)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit_s
    solver.parameters.random_seed = seed
    solver.parameters.num_workers = 2
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    age = {x: next(k for k in ages if solver.value(gives[x, k])) for x in places}
    return sorted((x, y, age[x], age[y]) for (x, y), both in paired.items() if x < y and solver.value(both))


PARTS = {
    "stragglar": straggler_table,
    "cost": cost_tables,
    "demand": demand_tables,
    "mesh": mesh_table,
    "phases": phases_table,
    "rotations": rotations,
}

if __name__ == "__main__":
    chosen = sys.argv[1:] or [name for name in PARTS if name != "rotations"]
    if unknown := [name for name in chosen if name not in PARTS]:
        sys.exit(f"unknown part {unknown[0]!r}; parts: {', '.join(PARTS)}")
    for name in chosen:
        PARTS[name]()
