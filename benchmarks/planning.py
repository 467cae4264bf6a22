"""Planning of spares and slices: speed, and comparison with published factors.

Usage: python benchmarks/planning.py [--states 100000] [--seed 1]

Prints the time of 100,000 states of 64 racks with 64 accelerators on two processes, and the time to draw one random
number per accelerator (the minimum of a simulation that draws every accelerator); the factors over in-rack spares by
method of counting; and slices of a rack of 64 on a torus and on a fabric.
"""

from __future__ import annotations

import argparse
import sys
import time

sys.path.pop(0)  # this folder has modules with the names of packages

import numpy as np

from lumion_hw.planning import (
    COUNTINGS,
    MIXES,
    FabricRack,
    Faults,
    Fleet,
    TorusRack,
    needed_communication_share,
    on_cores,
    serve_stream,
    simulate,
)

GOAL_S = 10.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--states", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    _simulations(options.states, options.seed)
    _streams(options.seed)


def _simulations(states: int, seed: int) -> None:
    fleet = Fleet()
    begun = time.perf_counter()
    rng = np.random.default_rng(seed)
    for _ in range(10):
        rng.random(fleet.size * 1000, dtype=np.float32)
    drawn_s = (time.perf_counter() - begun) / 10_000 * states / 2
    print(f"{states} states of {fleet.racks} racks x {fleet.per_rack}; goal {GOAL_S:g} s on two processes;")
    print(f"one random number per accelerator would take {drawn_s:.1f} s on them\n")
    cases = {
        "1 to 4 chips of every rack": Faults((1, 4)),
        "4.7e-4 a day, 7 days": Faults.from_rate(4.7e-4, 7.0, 0.0, 4),
        "the same, 36 % of servers": Faults.from_rate(4.7e-4, 7.0, 0.36, 4),
    }
    print("| faults | s | over drawing | counted | job migration | server eviction |\n|---|---|---|---|---|---|")
    for name, faults in cases.items():
        begun = time.perf_counter()
        result = simulate(fleet, faults, MIXES["tpu-v4-small"], states=states, seed=seed, mapper=on_cores(2))
        taken_s = time.perf_counter() - begun
        for counting in COUNTINGS[1:]:
            ratios = [result.ratio(policy, "in-rack-spares", counting=counting) for policy in list(result.costs)[:2]]
            print(
                f"| {name} | {taken_s:.1f} | {taken_s / drawn_s:.2f} | {counting} | {ratios[0]:.2f} | {ratios[1]:.2f} |"
            )
    print()


def _streams(seed: int) -> None:
    print("| mix | load | rack | accepted | fragmented | at work | links used | all links: times faster |")
    print("|---|---|---|---|---|---|---|---|")
    for mix in MIXES:
        for load in (0.5, 1.0, 2.0):
            for name, rack in (("torus", TorusRack()), ("fabric", FabricRack())):
                one = serve_stream(rack, MIXES[mix], load=load, requests=20_000, seed=seed)
                shares = f"{one.accepted:.1%} | {one.fragmented:.1%} | {one.used:.1%} | {one.bandwidth_share:.1%}"
                print(f"| {mix} | {load:g} | {name} | {shares} | {one.fabric_speedup:.2f} |")
    for faster in (1.74, 1.8, 2.0):
        share = needed_communication_share(1.7, faster)
        print(f"1.7x training with collectives {faster:g}x faster: {share:.1%} of the iteration is communication")


if __name__ == "__main__":
    main()
