"""An ideal chip reads what the emulator read before it had a chip of its own.

`tests/data/ideal_chip.json` was written by `light_of` below with commit 9bcf835, the last in which the emulator
computed its chip with the cells and the solver of `lumion_hw.mesh`. It is never made anew: another commit is no witness
of that one.
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
"""When the modules of that commit were open. The frequency of a module's laser wanders, so the light depends on it."""


def light_of(bench_file: Path, seed: int) -> list[list[float]]:
    """Power leaving every port in W: of two settings of the heaters, one heat time constant in and at rest."""
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
