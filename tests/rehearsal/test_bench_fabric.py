"""An emulated bench as the fabric of a rehearsal: its light follows the job to the spares."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from lumion_hw import Bench
from lumion_hw.rehearsal.bench_fabric import BenchFabric, PacedClock
from tests.circuits.known_mesh import SMALL, record_of_truth

Light = Mapping[str, Sequence[str]]
SEED = 4


@pytest.fixture(autouse=True)
def unpaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for the wall clock."""
    monkeypatch.setattr(PacedClock, "keep_pace", PacedClock.run_freely)


def started(path: Path | str, directory: Path) -> tuple[BenchFabric, list[Light]]:
    """Return a fabric that is watched, and the list of its reports of light."""
    with Bench.emulate(str(path), seed=SEED) as bench:
        record = record_of_truth(bench)
    fabric, lit = BenchFabric(path, record, directory, seed=SEED), list[Light]()
    fabric.start(lit.append, lambda server, detector: None)
    return fabric, lit


def replaced(fabric: BenchFabric, server: str) -> str:
    return fabric.replace(server, lambda name, source: None)


def test_light_arrives_at_a_spare_before_the_job_goes_on(tmp_path: Path) -> None:
    fabric, lit = started(SMALL, tmp_path)
    with closing(fabric):
        fabric.cut("a", lambda: None)
        assert replaced(fabric, "a") == "c"
        assert lit[-1] == {"c": ["b"], "b": ["c"]}
        fabric.restore()
        assert lit[-1] == {"a": ["b"], "b": ["a"]}


@pytest.mark.long
def test_a_second_spare_which_is_cold_replaces_a_second_server(tmp_path: Path) -> None:
    fabric, lit = started("lumion-prototype", tmp_path)
    with closing(fabric):
        fabric.cut("server1", lambda: None)
        assert replaced(fabric, "server1") == "server2"
        assert replaced(fabric, "server0") == "server3"
        assert lit[-1] == {"server3": ["server2"], "server2": ["server3"]}
