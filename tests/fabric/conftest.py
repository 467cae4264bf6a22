"""Fixtures of the tests of the fabric. The benches are those of the tests of circuits: known_mesh.py lies there."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "circuits"))

from known_mesh import A_TO_B, SMALL, path_setup

from lumion_hw import Bench
from lumion_hw.circuits import PathSetup


@pytest.fixture
def bench() -> Iterator[Bench]:
    """The small bench: servers a, b and c with one NIC each; c is the spare."""
    with Bench.emulate(SMALL, seed=5) as opened:
        yield opened


@pytest.fixture
def joined(bench: Bench) -> PathSetup:
    """The small bench with a and b joined."""
    setup = path_setup(bench)
    setup.establish(setup.plan(A_TO_B))
    return setup


@pytest.fixture
def prototype() -> Iterator[Bench]:
    """The built-in bench: four servers with two NICs each."""
    with Bench.emulate(seed=4) as opened:
        yield opened
