"""Sizes of jobs: by their basis of counting, by name and from files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lumion_hw.errors import ConfigError, UnknownNameError
from lumion_hw.planning import MIXES, JobMix, job_mix


def test_shares_of_accelerators_are_turned_into_shares_of_jobs() -> None:
    mix = JobMix.from_weights({4: 1.0, 32: 1.0}, "accelerators")
    assert mix.sizes == (4, 32)
    np.testing.assert_allclose(mix.shares, (8 / 9, 1 / 9))
    drawn = mix.draw(np.random.default_rng(1), 9000)
    assert abs((drawn == 32).mean() - 1 / 9) < 0.015


def test_a_mix_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mix.csv"
    path.write_text("8, 3\n\n4, 1\n16, 0\n")
    assert job_mix(path) == JobMix((4, 8), (0.25, 0.75))
    assert job_mix("even") is MIXES["even"]


@pytest.mark.parametrize(
    "text", ["4\n", "4,1,2\n", "4,1\n4,2\n", "0,1\n", "2.5,1\n", "4,-1\n", "4,nan\n", "nan,1\n", "4,0\n", "x,1\n"]
)
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mix.csv"
    path.write_text(text)
    with pytest.raises(ConfigError):
        job_mix(path)


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(UnknownNameError) as caught:
        job_mix("tpu-v9")
    assert "tpu-v4-small" in str(caught.value.hint)
