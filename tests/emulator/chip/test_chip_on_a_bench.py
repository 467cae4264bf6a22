"""Effects enabled in a bench file: each changes the readings of the bench, and nothing else."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from lumion_hw import Bench
from lumion_hw.bench.file.loader import load_bench
from lumion_hw.emulator.chip.effects import CHIP_EFFECTS, EffectSizes
from lumion_hw.errors import ConfigError

SMALL = Path(__file__).parents[2] / "data" / "small.yaml"


def edited(directory: Path, **emulation: object) -> Path:
    model = yaml.safe_load(SMALL.read_text(encoding="utf-8"))
    model["emulation"] = emulation
    path = directory / "bench.yaml"
    path.write_text(yaml.safe_dump(model), encoding="utf-8")
    return path


def read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return monitor readings in mA and light at all ports in W at three settings, the third after 15 minutes."""
    with Bench.emulate(path, seed=5) as bench:
        bench.transponders["sfp-a"].enable()
        bench.clock.sleep(1.0)
        rng, read_ma, light_w = np.random.default_rng(2), [], []
        for wait_s in (0.005, 0.005, 900.0):
            bench.mesh.program(rng.uniform(0.0, 2.0, 30))
            bench.clock.sleep(wait_s)
            read_ma.append(bench.mesh.monitors_ma(4096))
            light_w.append(bench.emulated.world.mesh_output_w())
        return np.array(read_ma), np.array(light_w)


@pytest.mark.long
def test_a_chip_with_effects_is_the_one_without_and_something_more(tmp_path: Path) -> None:
    plain_ma, plain_w = read(edited(tmp_path))
    lit, bright = plain_ma > 1e-4, plain_w > 1e-9
    for effect in CHIP_EFFECTS:
        size = min(10.0 * effect.harsh, effect.max_size) if effect.max_size > 1.0 else effect.harsh
        changed_ma, changed_w = read(edited(tmp_path, effects={effect.name: size}))
        moved = np.abs(changed_ma - plain_ma)[lit] / plain_ma[lit]
        # 4096 scans leave 0.08 mrad of noise; the converter's step is a thousandth of the weakest reading. What these
        # effects do with a laser 0.1 nm off the reference can be less than the step, so their light is compared.
        if effect.name in {"facet_ripple_db", "coupler_slope_sigma_per_nm", "tm_path"}:
            assert (np.abs(changed_w - plain_w)[bright] / plain_w[bright]).max() > 1e-5, effect.name
        else:
            assert moved.max() > 1e-3, effect.name
        assert np.median(moved) < 1.0, effect.name


def test_presets_and_sizes_of_single_effects(tmp_path: Path) -> None:
    one = load_bench(edited(tmp_path, physics="realistic", effects={"crosstalk_scatter": 0.0})).emulation.effect_sizes()
    assert one.crosstalk_scatter == 0.0
    assert one == EffectSizes.for_chip("realistic", {"crosstalk_scatter": 0.0})
    assert load_bench(edited(tmp_path)).emulation.effect_sizes() == EffectSizes()


@pytest.mark.parametrize(
    ("emulation", "words"),
    [
        ({"physics": "perfect"}, "physics"),
        ({"effects": {"crosstalk_scater": 0.1}}, "crosstalk_scater"),
        ({"effects": {"crosstalk_scatter": -0.1}}, "crosstalk_scatter"),
        ({"effects": {"crosstalk_scatter": float("nan")}}, "crosstalk_scatter"),
        ({"effects": {"facet_reflection": 2.0}}, "facet_reflection"),
    ],
)
def test_what_is_no_effect_is_refused_by_name(emulation: dict[str, object], words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        load_bench(edited(tmp_path, **emulation))
