"""Fixtures of the tests of the fabric. The benches are those of the tests of circuits: known_mesh.py lies there."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "circuits"))

from known_mesh import SMALL, record_of_truth

from lumion_hw import Bench
from lumion_hw.circuits import BenchLock, CircuitJournal, CircuitService
from lumion_hw.fabric import FabricJournal, FabricManager
from lumion_hw.mesh.record import CalibrationRecord

Managed = Callable[..., contextlib.AbstractContextManager[FabricManager]]


_KNOWN: dict[int, tuple[Bench, CalibrationRecord]] = {}


def known_of(bench: Bench) -> CalibrationRecord:
    """Return the record of a bench, written down once: that switches its transmitters on and off."""
    if id(bench) not in _KNOWN:
        _KNOWN[id(bench)] = bench, record_of_truth(bench)
    return _KNOWN[id(bench)][1]


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


@pytest.fixture
def bench() -> Iterator[Bench]:
    """The small bench: servers a, b and c with one NIC each; c is the spare."""
    with Bench.emulate(SMALL, seed=5) as opened:
        yield opened


@pytest.fixture
def manager(bench: Bench, tmp_path: Path) -> Iterator[FabricManager]:
    """The manager of the small bench, begun."""
    with managed(bench, tmp_path) as begun:
        begun.begin()
        yield begun


@pytest.fixture(scope="module")
def prototype(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FabricManager]:
    """The manager of the built-in bench, begun: four servers with two NICs each. Tests put back what they take."""
    with ExitStack() as stack:
        opened = stack.enter_context(Bench.emulate(seed=4))
        begun = stack.enter_context(managed(opened, tmp_path_factory.mktemp("fabric")))
        begun.begin()
        yield begun
