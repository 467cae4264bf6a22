"""The journal of the fabric: what is known outlives its growth."""

import dataclasses
from pathlib import Path

from lumion_hw.fabric import FabricJournal
from lumion_hw.fabric.journal import JOURNAL
from lumion_hw.storage import line_journal


def test_one_that_has_grown_begins_anew_and_knows_what_it_knew(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(line_journal, "LARGEST_BYTES", 2000)
    with FabricJournal(tmp_path, "small") as journal:
        journal.note("failed", dataclasses.replace(journal.state, failed={"a": "its fan"}, avoided=(3, 4)))
        for number in range(100):
            journal.note("fade", dataclasses.replace(journal.state, fades=number))
        known = journal.state
    assert (tmp_path / JOURNAL).stat().st_size < 3000
    with FabricJournal(tmp_path, "small") as again:
        assert again.state == known
