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


@pytest.fixture
def prototype(shared_prototype: FabricManager) -> Iterator[FabricManager]:
    """The started manager of the built-in bench: four servers with two NICs each, all healthy and in their places."""
    yield shared_prototype
    world, state = shared_prototype.bench.emulated.world, shared_prototype.state
    if world.truth.stuck_current_ma:
        world.about_to_change()
        world.truth.stuck_current_ma.clear()
        world.disturb()
    if state.places or state.failed or state.avoided:
        shared_prototype.restore_bench_file_places()


@pytest.fixture(scope="module")
def shared_prototype(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FabricManager]:
    """The manager that all tests of one file share, because its start takes seconds."""
    with ExitStack() as stack:
        opened = stack.enter_context(Bench.emulate(seed=4))
        begun = stack.enter_context(managed(opened, tmp_path_factory.mktemp("fabric")))
        begun.begin()
        yield begun
