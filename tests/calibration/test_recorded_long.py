"""What is recorded under tests/data is what the code makes today; if not: python -m tests.recorded_calibration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibration.record.comparison import compare_records
from calibration.run.journal import read_journal
from lumion_hw.storage import load_record
from tests.recorded_calibration import RECORD, in_the_sweeps, make, recorded_entries

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def anew(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same calibration, made now."""
    return make(tmp_path_factory.mktemp("anew") / "recorded")


def test_what_is_found_is_the_same_within_its_standard_errors(anew: Path) -> None:
    """Settings that a search chose are others on another processor, and so is their noise: no bits are compared."""
    before, now = load_record(RECORD), load_record(anew)
    assert (now.complete, now.faults) == (True, ())
    for group in compare_records(before, now).groups:
        assert group.rms_sigma is None or group.rms_sigma < 1.5, group
        assert group.worst_sigma is None or group.worst_sigma < 4.0, group
    for name in ("settings", "hardware_s", "source_changes"):
        assert now.quality[name] == pytest.approx(before.quality[name], rel=0.3)
    # The recorded one is from before some figures were added; none may be lost.
    assert set(now.quality) >= set(before.quality)
    assert now.conditions.wavelengths_nm == before.conditions.wavelengths_nm
    assert now.provenance["plan_sha256"] == before.provenance["plan_sha256"]


def test_until_the_search_the_same_is_asked(anew: Path) -> None:
    """So that a run goes on from the recorded journal, cut there."""
    entries = read_journal(anew.with_suffix(".journal")).entries
    until = in_the_sweeps(0.99)
    assert all(
        now.has_same_request(before) for now, before in zip(entries[:until], recorded_entries()[:until], strict=True)
    )
    for now, before in zip(entries[:until], recorded_entries()[:until], strict=True):
        np.testing.assert_allclose(now.answer, before.answer, rtol=0.05, atol=1e-4)


def test_the_same_files_are_left(anew: Path) -> None:
    def kinds(record: Path) -> list[str]:
        return sorted("".join(file.suffixes[-1:]) for file in record.parent.iterdir())

    assert kinds(anew) == kinds(RECORD)
    assert sum(file.stat().st_size for file in RECORD.parent.iterdir()) < 1e6
