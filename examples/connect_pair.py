"""Connect two modules and leave them connected: python examples/connect_pair.py BENCH RECORD FROM TO [--emulate].

Existing circuits are not changed. The new circuit stays for an hour after the script has ended, and
`lumion circuits BENCH` lists it. With --emulate the bench exists only while the script runs.
"""

import argparse

from lumion_hw import Bench
from lumion_hw.circuits import CircuitRequest, CircuitService, state_directory


def main():
    parser = argparse.ArgumentParser(description="Connect two modules through the mesh.")
    for name in ("bench", "record", "source", "target"):
        parser.add_argument(name)
    parser.add_argument("--emulate", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--state", default=None, help="directory that stores the circuit state")
    given = parser.parse_args()

    def open_bench():
        if given.emulate:
            return Bench.emulate(given.bench, seed=given.seed)
        return Bench.open(given.bench, leave_on_s=3600.0)

    state = given.state or state_directory(given.bench, "script")
    with CircuitService.open(open_bench, given.record, state, program="connect_pair.py") as circuits:
        (proof,) = circuits.connect([CircuitRequest(given.source, given.target)])
        print(f"over PUCs {' '.join(map(str, proof.circuit.path.pucs))}")
        print(f"loss {proof.measured_loss_db:.2f} dB, predicted {proof.circuit.budget.mesh_loss_db:.2f} dB")
        print(f"received {proof.received_dbm:.2f} dBm, {proof.margin_db:.2f} dB above the sensitivity")
        print("connected:", ", ".join(circuit.name for circuit in circuits.state.circuits))


if __name__ == "__main__":
    main()
