"""A link of two polarizations with its bit errors: python examples/coherent_link.py BENCH RECORD FROM TO [--emulate].

Both tributaries go their own ways through the mesh. The receiver accepts them by its own PDL, DGD and bit error ratio
before correction; power cannot tell.
"""

import argparse

from lumion_hw import Bench, load_record
from lumion_hw.circuits import CircuitRequest, PathSetup, explain


def main():
    parser = argparse.ArgumentParser(description="A link of two polarizations, with its bit error ratio.")
    for name in ("bench", "record", "source", "target"):
        parser.add_argument(name)
    parser.add_argument("--emulate", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()

    with Bench.emulate(given.bench, seed=given.seed) if given.emulate else Bench.open(given.bench) as bench:
        setup = PathSetup(bench, load_record(given.record))
        request = CircuitRequest(given.source, given.target, polarization="dual")
        print(explain(setup.plan([request])))
        (proof,) = setup.connect([request])
        told = proof.acceptance
        print(f"locked after {told.lock.elapsed_s:.1f} s")
        print(f"PDL {told.pdl_db:.2f} dB, DGD {told.dgd_ps:.1f} ps, predicted {proof.circuit.budget.pdl_db:.2f} dB")
        print(f"pre-FEC BER {told.prefec_ber:.2e}, at most {told.max_ber:.2e} for a module that just meets its sheet")
        setup.disconnect([request])


if __name__ == "__main__":
    main()
