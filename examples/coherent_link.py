"""Connect two coherent modules and print the bit error ratio.

Run: python examples/coherent_link.py BENCH RECORD FROM TO [--emulate].

Each tributary has its own path through the mesh. The link is accepted by the PDL, DGD and pre-FEC bit error ratio that
the receiver reports, because power alone does not show whether the link works.
"""

import argparse

from lumion_hw import Bench, load_record
from lumion_hw.circuits import CircuitRequest, PathSetup, explain


def main():
    parser = argparse.ArgumentParser(description="Connect two coherent modules and print the bit error ratio.")
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
        acceptance = proof.acceptance
        print(f"locked after {acceptance.lock.elapsed_s:.1f} s")
        print(
            f"PDL {acceptance.pdl_db:.2f} dB, DGD {acceptance.dgd_ps:.1f} ps, "
            f"predicted PDL {proof.circuit.budget.pdl_db:.2f} dB"
        )
        print(
            f"pre-FEC BER {acceptance.prefec_ber:.2e}, "
            f"at most {acceptance.max_ber:.2e} for a module that just meets its data sheet"
        )
        setup.disconnect([request])


if __name__ == "__main__":
    main()
