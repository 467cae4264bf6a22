"""The manager of a bench's fabric, opened as in a program of its own. known_mesh.py is with the tests of circuits."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from lumion_hw import Bench
from lumion_hw.circuits import BenchLock, CircuitJournal, CircuitService
from lumion_hw.fabric import FabricJournal, FabricManager
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from tests.circuits.known_mesh import SMALL, record_of_truth

__all__ = ["SMALL", "known_of", "managed"]

_KNOWN: WeakKeyDictionary[Bench, CalibrationRecord] = WeakKeyDictionary()


def known_of(bench: Bench) -> CalibrationRecord:
    """Return the record of a bench, computed once because this switches its transmitters on and off."""
    if bench not in _KNOWN:
        _KNOWN[bench] = record_of_truth(bench)
    return _KNOWN[bench]


@contextlib.contextmanager
def managed(bench: Bench, directory: Path, **options: Any) -> Iterator[FabricManager]:
    """Manage a bench's fabric, with journals in a directory, as a program of its own would."""
    with (
        BenchLock(directory, "test") as lock,
        CircuitJournal(directory, bench.model.name, bench.mesh.topology.sha256) as circuits,
        FabricJournal(directory, bench.model.name) as fabric,
    ):
        service = CircuitService(bench, known_of(bench), circuits, lock)
        service.restore()
        with FabricManager(service, fabric, **options) as manager:
            yield manager
