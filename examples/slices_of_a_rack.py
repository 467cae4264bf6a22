"""Compare slices of a rack on a torus and on a switched fabric. No bench is needed.

Run: python examples/slices_of_a_rack.py
"""

from __future__ import annotations

import numpy as np

from lumion_hw.planning import MIXES, FabricRack, SliceRequest, TorusRack, serve_stream

RACKS = {"torus": TorusRack((4, 4, 4)), "fabric": FabricRack(size=64, per_server=4, ports=6)}


def main() -> None:
    """Place one slice beside busy accelerators, then serve a stream of requests."""
    busy = (
        np.indices((4, 4, 4)).sum(axis=0).ravel() % 2 == 0
    )  # every second accelerator, so that no two neighbours are free
    for name, rack in RACKS.items():
        placed = rack.place(SliceRequest(8), busy)
        result = "does not fit" if placed is None else f"uses {placed.bandwidth_share:.0%} of its links"
        print(f"{name}: a slice of 8 beside {busy.sum()} busy accelerators {result}")
    for name, rack in RACKS.items():
        statistics = serve_stream(rack, MIXES["tpu-v4-small"], load=1.0, requests=2000, seed=1)
        print(
            f"{name}: accepted {statistics.accepted:.1%}, "
            f"rejected although enough accelerators were free {statistics.fragmented:.1%}"
        )


if __name__ == "__main__":
    main()
