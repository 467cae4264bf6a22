"""Fixtures of the tests of the fabric."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lumion_hw import Bench
from lumion_hw.fabric import FabricManager
from tests.fabric.managed_fabric import SMALL, managed


@pytest.fixture
def bench() -> Iterator[Bench]:
    """The small bench: servers a, b and c with one NIC each; c is the spare."""
    with Bench.emulate(SMALL, seed=5) as opened:
        yield opened


@pytest.fixture
def manager(bench: Bench, tmp_path: Path) -> Iterator[FabricManager]:
    """The started manager of the small bench."""
    with managed(bench, tmp_path) as begun:
        begun.begin()
        yield begun


@pytest.fixture(scope="module")
def prototype(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FabricManager]:
    """The started manager of the built-in bench: four servers with two NICs each. Tests restore what they change."""
    with ExitStack() as stack:
        opened = stack.enter_context(Bench.emulate(seed=4))
        begun = stack.enter_context(managed(opened, tmp_path_factory.mktemp("fabric")))
        begun.begin()
        yield begun
