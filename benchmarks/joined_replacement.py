"""Measure how long a circuit over three meshes needs to take the place of another, in emulated bench time.

Run: .venv/bin/python benchmarks/joined_replacement.py

Two racks and a spine (``tests/data/joined``) on one virtual clock. The transmitter is on and aligned; the circuit moves
to another receiver and back. In one process the benches work one after the other. Served benches work at the same time,
so that each phase takes as long as its slowest bench.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).parent
PHASES = ("prepare", "light", "keep")
IN_TURN = "light"
"""Phase in which each mesh waits for the light of the one before."""


def main() -> None:
    sys.path.insert(0, str(HERE.parent))
    from lumion_hw.joined import JoinedRequest
    from tests.joined.two_racks import two_racks

    names = ["rack0:sfp-a:rack1:sfp-b", "rack0:sfp-a:rack1:sfp-a"]
    with TemporaryDirectory() as directory, two_racks(Path(directory)) as racks, racks.program() as joined:
        taken_ms: dict[str, dict[str, float]] = defaultdict(dict)

        def timed(phase: str, bench: str, work: Callable[..., Any]) -> Callable[..., Any]:
            def run(*arguments: Any) -> Any:
                begun_s = racks.clock.now()
                result = work(*arguments)
                taken_ms[phase][bench] = 1e3 * (racks.clock.now() - begun_s)
                return result

            return run

        for name, bench in racks.benches.items():
            for phase in PHASES:
                setattr(bench, phase, timed(phase, name, getattr(bench, phase)))
        joined.connect([JoinedRequest.parse(names[0])])
        print("| replacement | " + " | ".join(f"{phase} ms" for phase in PHASES) + " | one process ms | served ms |")
        print("|---" * (len(PHASES) + 3) + "|")
        for number in range(1, 5):
            begun_s = racks.clock.now()
            joined.connect([JoinedRequest.parse(names[number % 2])], [names[1 - number % 2]])
            whole_ms = 1e3 * (racks.clock.now() - begun_s)
            served_ms = sum(
                (sum if phase == IN_TURN else max)(by_bench.values()) for phase, by_bench in taken_ms.items()
            )
            cells = (" + ".join(f"{ms:.1f}" for ms in taken_ms[phase].values()) for phase in PHASES)
            print(f"| {number} | {' | '.join(cells)} | {whole_ms:.1f} | {served_ms:.1f} |")


if __name__ == "__main__":
    main()
