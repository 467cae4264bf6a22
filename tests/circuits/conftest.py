"""Fixtures of the tests of circuits: a fresh small bench, perfectly known, and one that lasts for a module."""

from collections.abc import Iterator

import pytest

from lumion_hw import Bench
from lumion_hw.circuits import PathSetup
from tests.circuits.known_mesh import SMALL, path_setup
from tests.circuits.lasting_bench import LastingBench


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench.emulate(SMALL, seed=5) as opened:
        yield opened


@pytest.fixture(scope="module")
def one_bench(tmp_path_factory: pytest.TempPathFactory) -> LastingBench:
    """One bench for all tests of a module, so that each polarization is searched only once."""
    return LastingBench(tmp_path_factory.mktemp("bench"))


@pytest.fixture
def setup(bench: Bench) -> PathSetup:
    return path_setup(bench)
