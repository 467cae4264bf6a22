"""Fixtures of the tests of circuits: a fresh small bench, perfectly known."""

from collections.abc import Iterator

import pytest

from lumion_hw import Bench
from lumion_hw.circuits import PathSetup
from tests.circuits.known_mesh import SMALL, path_setup


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench.emulate(SMALL, seed=5) as opened:
        yield opened


@pytest.fixture
def setup(bench: Bench) -> PathSetup:
    return path_setup(bench)
