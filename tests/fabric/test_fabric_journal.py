"""The journal of the fabric: its state is kept when the file grows."""

import dataclasses
import json
import zlib
from pathlib import Path

import pytest

from lumion_hw.cli import main
from lumion_hw.errors import ConfigError
from lumion_hw.fabric import FabricJournal, read_fabric
from lumion_hw.fabric.evidence import FailureVerdict
from lumion_hw.fabric.journal import JOURNAL
from lumion_hw.storage import line_journal


def test_one_that_has_grown_begins_anew_and_knows_what_it_knew(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(line_journal, "RESTART_BYTES", 2000)
    with FabricJournal(tmp_path, "small") as journal:
        journal.record("failed", dataclasses.replace(journal.state, failed={"a": "its fan"}, avoided=(3, 4)))
        for number in range(100):
            journal.record("fade", dataclasses.replace(journal.state, fades=number))
        known = journal.state
    assert (tmp_path / JOURNAL).stat().st_size < 3000
    with FabricJournal(tmp_path, "small") as again:
        assert again.state == known


def forged(directory: Path, **changes: object) -> None:
    """Append a row that no program writes, with a check sum that is right."""
    with FabricJournal(directory, "small") as journal:
        journal.record("failed", journal.state, spans=changes.pop("spans", []))
    *lines, last = (directory / JOURNAL).read_bytes().splitlines(keepends=True)
    entry = json.loads(last[9:])
    entry["state"] |= changes
    text = json.dumps(entry, separators=(",", ":")).encode()
    (directory / JOURNAL).write_bytes(b"".join(lines) + b"%08x %s\n" % (zlib.crc32(text), text))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"failed": "all"}, "failed"),
        ({"places": {"a": 7}}, "places"),
        ({"avoided": ["many"]}, "avoided"),
        ({"open": {"suspect": "nobody"}}, "suspect"),
        ({"fades": None}, "fades"),
    ],
)
def test_a_row_that_no_program_writes_is_refused_and_its_field_named(tmp_path: Path, changes, says: str) -> None:
    forged(tmp_path, **changes)
    with pytest.raises(ConfigError, match=says):
        read_fabric(tmp_path)
    assert main(["fabric", "status", "small-bench", "--state", str(tmp_path)]) == 2


def test_the_history_names_unit_and_reason_of_a_recovery_that_began(tmp_path: Path, capsys) -> None:
    with FabricJournal(tmp_path, "small") as journal:
        journal.begin(FailureVerdict("unit", "b", "drain", "drained by hand", 1.0, 2.0, ("operator",)))
    assert main(["fabric", "history", "small-bench", "--state", str(tmp_path)]) == 0
    (row,) = [line.split() for line in capsys.readouterr().out.splitlines() if " begun " in line]
    assert row[1:] == ["begun", "b", "-", "drained", "by", "hand"]


def test_the_status_of_a_cold_spare_has_a_short_reason(tmp_path: Path, capsys) -> None:
    with FabricJournal(tmp_path, "small") as journal:
        reason = "no path from port 11 to port 13 with 7 blocked PUC states (proven). Disconnect a:b."
        journal.record("cold spares", dataclasses.replace(journal.state, cold={"c": reason}))
    assert main(["fabric", "status", "small-bench", "--state", str(tmp_path)]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if "no path" in line]
    assert rows
    assert all(line.rstrip().endswith("no path from port 11 to port 13") for line in rows)


def test_spans_that_no_program_writes_are_an_error_of_the_history(tmp_path: Path, capsys) -> None:
    forged(tmp_path, spans=[{"name": 7}])
    assert main(["fabric", "history", "small-bench", "--state", str(tmp_path)]) == 2
    assert "entry 1 of the fabric journal was written by another version" in capsys.readouterr().err


def test_a_directory_that_cannot_be_read_is_one_paragraph(capsys) -> None:
    for command in (["fabric", "status"], ["fabric", "history"], ["circuits"]):
        assert main([*command, "small-bench", "--state", "x" * 300]) == 2
        assert "cannot read the journal of" in capsys.readouterr().err
