"""Keep two modules connected for an hour: python examples/hold_an_hour.py BENCH RECORD FROM TO [--emulate].

Maintenance tracks the polarization, corrects phase drift and reports faults. With --emulate the hour takes only
seconds.
"""

import argparse
import tempfile

from lumion_hw import Bench
from lumion_hw.circuits import CircuitMaintenance, CircuitRequest, CircuitService


def main():
    parser = argparse.ArgumentParser(description="Keep a circuit connected for an hour.")
    for name in ("bench", "record", "source", "target"):
        parser.add_argument(name)
    parser.add_argument("--emulate", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0)
    given = parser.parse_args()

    def open_bench():
        return Bench.emulate(given.bench, seed=given.seed) if given.emulate else Bench.open(given.bench)

    def print_health(held_s, health):
        print(f"{held_s / 60.0:6.1f} min  " + "  ".join(circuit.describe() for circuit in health))

    with (
        tempfile.TemporaryDirectory() as state,
        CircuitService.open(open_bench, given.record, state, program="hold_an_hour.py") as circuits,
    ):
        circuits.connect([CircuitRequest(given.source, given.target)])
        maintenance = CircuitMaintenance(circuits, period_s=300.0, reads_per_s=0.2)
        maintenance.run(60.0 * given.minutes, print_health)
        worst_db = max(circuit.worst_db for circuit in maintenance.health)
        print(f"largest loss of light {worst_db:.2f} dB, {maintenance.summary()['reads']} readings")


if __name__ == "__main__":
    main()
