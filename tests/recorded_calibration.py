"""One calibration of the small bench, kept under tests/data: for tests of what is done with a record, not of making it.

A calibration takes seconds. What shows, compares, exports, reports, renews or goes on with one needs none of its own.
Kept are the record, its arrays, the raw readings, the journal and the event log, as the command wrote them without
h5py. ``python -m tests.recorded_calibration``, called where the repository begins, makes all of it anew. That is needed
after a change of the plan, of the file formats or of what the emulated bench does; a long test says so.

A search goes another way where the last bit of a product is another one. So the settings chosen on another processor
are others, and nothing may be compared by bits with what is kept here.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import shutil
import sys
from pathlib import Path
from unittest import mock

from calibration.measure.logbook import LogbookEntry
from calibration.run.journal import read_journal
from lumion_hw.mesh.record.calibration_record import EMULATED_CHIP
from lumion_hw.storage.record_files import load_record, save_record

SEED = 1
SMALL = Path(__file__).parent / "data" / "small.yaml"
RECORD = Path(__file__).parent / "data" / "recorded" / "record.json"


def recorded_in(directory: Path) -> Path:
    """Copy the record and what belongs to it, and return the copy of the record: a test may do with it what it will."""
    shutil.copytree(RECORD.parent, directory, dirs_exist_ok=True)
    return directory / RECORD.name


def recorded_entries() -> tuple[LogbookEntry, ...]:
    """Return all that was asked of the bench, and the answers."""
    return read_journal(RECORD.with_suffix(".journal")).entries


def in_the_sweeps(done: float = 0.5) -> int:
    """Return the number of entries after a share of the sweeps.

    Up to there settings follow from the seed alone, not from what was read: a run goes on from there on any processor.
    """
    swept = [number for number, entry in enumerate(recorded_entries()) if len(entry.currents_ma) == SWEEP_SETTINGS]
    return swept[int(done * len(swept))] + 1


SWEEP_SETTINGS = 7
"""Settings of the sweep of one heater, a batch of its own; the eighth is the last of the heater before."""


def killed_in(directory: Path, entries: int) -> Path:
    """Leave behind what a run leaves that was killed after so many entries, and return where its record would go."""
    path = directory / RECORD.name
    lines = RECORD.with_suffix(".journal").read_bytes().splitlines(keepends=True)
    path.with_suffix(".journal").write_bytes(b"".join(lines[: 1 + entries]))
    assert len(read_journal(path.with_suffix(".journal")).entries) == entries
    return path


def make(directory: Path) -> Path:
    """Calibrate the small bench by the command itself, and return the record."""
    from lumion_hw.cli import calibrate_main

    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    find, path = importlib.util.find_spec, directory / RECORD.name
    with mock.patch("importlib.util.find_spec", lambda name, *rest: None if name == "h5py" else find(name, *rest)):
        code = calibrate_main(["run", str(SMALL), "--emulate", "--seed", str(SEED), "--out", str(path)])
        assert code == 0
        record = load_record(path)
        # Without the name of its chip the record also serves on other emulated chips, as if it had aged.
        provenance = {key: value for key, value in record.provenance.items() if key != EMULATED_CHIP}
        save_record(dataclasses.replace(record, provenance=provenance), path, overwrite="any")
    return path


if __name__ == "__main__":
    SMALL, RECORD = (each.relative_to(Path.cwd()) for each in (SMALL, RECORD))  # no path of this machine in the record
    make(RECORD.parent)
    sys.stdout.write(
        f"{sum(file.stat().st_size for file in RECORD.parent.iterdir()) / 1e3:.0f} kB in {RECORD.parent}\n"
    )
