"""An ideal chip gives the same readings as the emulator before it had its own chip model.

`tests/data/ideal_chip.json` was written by `light_of` below with commit 9bcf835, the last one in which the emulator
computed its chip with the cells and the solver of `lumion_hw.mesh`. Never regenerate the file: a later commit cannot
confirm the results of that commit.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from lumion_hw import Bench
from tests.ideal_bench import ideal_bench

DATA = Path(__file__).parents[2] / "data"
RECORDED: dict[str, list[list[float]]] = json.loads((DATA / "ideal_chip.json").read_text(encoding="utf-8"))
BEGUN_S = {"zr_pair.yaml": 0.9914469965277742}
"""Opening time of the modules in that commit. A module's laser frequency wanders, so the light depends on this time."""


def light_of(bench_file: Path, seed: int) -> list[list[float]]:
    """Return the power leaving every port in W for two heater settings, after one heat time constant and settled."""
    rng, found = np.random.default_rng(seed), []
    with Bench.emulate(bench_file, seed=seed) as bench:
        if bench_file.name in BEGUN_S:
            bench.clock.sleep(BEGUN_S[bench_file.name] - bench.clock.now())
        world = bench.emulated.world
        for path in world.wiring.inputs:
            world.set_transmitter(path.source, 1e-3)
        for _ in range(2):
            world.drive_heaters(rng.uniform(0.0, 2.5, 2 * world.mesh.n_pucs), bench.clock.now())
            for wait_s in (1e-4, 1.0):
                bench.clock.sleep(wait_s)
                found.append(world.mesh_output_w().tolist())
    return found


@pytest.mark.parametrize("case", RECORDED)
def test_an_ideal_chip_reads_as_before(case: str, tmp_path: Path) -> None:
    name, seed = case.split()
    bench_file = DATA / name if "." in name else ideal_bench(name, tmp_path)
    assert np.allclose(light_of(bench_file, int(seed)), RECORDED[case], rtol=1e-9, atol=0.0)
