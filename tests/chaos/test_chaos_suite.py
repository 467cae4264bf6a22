"""The suite of faults: every row is in the documentation, tries are repeatable, and broken promises are found."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import chaos
from lumion_hw.circuits import CircuitService
from tests.chaos.suite import BENCH, FABRIC, FAULTS, SCAN, SERVED, number_of, tried

ROOT = Path(__file__).parents[2]
IN_PROCESS = [number for number, fault in enumerate(FAULTS) if fault.layer != SERVED]
SEED = 2


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_every_fault_is_in_the_table_of_the_documentation() -> None:
    page = (ROOT / "docs" / "chaos.md").read_text(encoding="utf-8")
    rows = [f"| {fault.layer} | {fault.name} | {fault.promise} |" for fault in FAULTS]
    assert [row for row in rows if row not in page] == [], "run: python benchmarks/chaos.py --write"
    assert len(set(rows)) == len(rows)


@pytest.mark.parametrize(
    ("name", "layer"),
    [("program killed", BENCH), ("mesh controller trips", FABRIC), ("end of the scan's file missing", SCAN)],
)
def test_a_try_keeps_its_promises_and_is_the_same_again(name: str, layer: str) -> None:
    tries = [tried(SEED, 1, number_of(name, layer))[1] for _ in range(2)]
    assert tries[0].is_kept, tries[0]
    assert tries[0].story[0] == tries[1].story[0]


def test_a_program_that_restores_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault planted into the product: without its roll-back, a killed change would be left half done."""
    monkeypatch.setattr(CircuitService, "restore", lambda self: None)
    number = number_of("program killed", BENCH)
    assert not all(tried(SEED, n, number)[1].is_kept for n in range(6))


@pytest.mark.long
def test_faults_at_random_instants() -> None:
    """The same forty tries each time; `make chaos` makes a thousand, and others with another seed."""
    assert chaos.run(SEED, 40, faults=IN_PROCESS) == 0
