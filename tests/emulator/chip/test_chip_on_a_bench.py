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


def read_ma(path: Path) -> np.ndarray:
    """Return the monitor readings at three settings, the third after a quarter of an hour."""
    with Bench.emulate(path, seed=5) as bench:
        bench.transponders["sfp-a"].enable()
        bench.clock.sleep(1.0)
        rng, found = np.random.default_rng(2), []
        for wait_s in (0.005, 0.005, 900.0):
            bench.mesh.program(rng.uniform(0.0, 2.0, 30))
            bench.clock.sleep(wait_s)
            found.append(bench.mesh.monitors_ma(4096))
        return np.array(found)


@pytest.mark.long
def test_a_chip_with_effects_is_the_one_without_and_something_more(tmp_path: Path) -> None:
    plain = read_ma(edited(tmp_path))
    lit = plain > 1e-4
    for effect in CHIP_EFFECTS:
        changed = read_ma(
            edited(tmp_path, effects={effect.name: effect.harsh * 5.0 if effect.max_size > 1.0 else effect.harsh})
        )
        moved = np.abs(changed - plain)[lit] / plain[lit]
        # 4096 scans leave 0.08 mrad of noise; the converter's step is a thousandth of the weakest reading.
        quiet = {"facet_ripple_db", "coupler_slope_sigma_per_nm", "tm_path"}
        assert moved.max() > (0.0 if effect.name in quiet else 1e-3), effect.name
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
