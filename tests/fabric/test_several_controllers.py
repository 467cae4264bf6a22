"""A fabric on a mesh with two controllers: a spare is put in, and a controller that trips is no server's fault."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from firmware_protocol import FaultSource
from lumion_hw import Bench
from lumion_hw.errors import LinkError
from lumion_hw.fabric import FabricManager, read_fabric
from lumion_hw.fabric.detectors.light import Photodiodes
from tests.bench.several_controllers import split_bench
from tests.fabric.managed_fabric import managed

A_TO_B, A_TO_C = ["sfp-a:sfp-b", "sfp-b:sfp-a", "sfp-c:sfp-c"], ["sfp-a:sfp-c", "sfp-c:sfp-a"]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench.emulate(split_bench(tmp_path), seed=5) as opened:
        yield opened


def standing(manager: FabricManager) -> list[str]:
    return sorted(circuit.name for circuit in manager.service.state.circuits)


def test_one_controller_trips_and_the_spare_is_still_put_in_afterwards(bench: Bench, tmp_path: Path) -> None:
    faults = bench.emulated.faults

    def trip() -> None:
        faults.inject("mesh1", "trip", source=int(FaultSource.WATCHDOG))
        faults.end("mesh1", "trip", source=int(FaultSource.WATCHDOG))

    # The monitors at the ends of the two circuits belong to different controllers.
    with managed(bench, tmp_path, detectors=[Photodiodes()]) as manager:
        manager.begin()
        faults.after(0.5, trip)
        assert manager.run(3.0) == []
        assert standing(manager) == A_TO_B
        assert not any(entry["entry"] == "begun" for entry in read_fabric(tmp_path)[1])  # no server was blamed
        faults.after(0.5, lambda: faults.kill_modules(["sfp-b"]))
        (recovery,) = manager.run(5.0)
        assert (recovery.failed, recovery.spare, recovery.verdict.detectors) == ("b", "c", ("photodiodes",))
        assert standing(manager) == A_TO_C
        manager.check_job_circuits()


def test_a_power_cut_of_one_controller_costs_no_server(bench: Bench, tmp_path: Path) -> None:
    board = bench.emulated.faults.board("mesh1")
    with managed(bench, tmp_path) as manager:
        manager.begin()
        board.power_off()
        with pytest.raises(LinkError, match="mesh1"):
            manager.run(3.0)
        assert not manager.state.failed
    board.power_on()
    bench.mesh.controller.open()  # type: ignore[attr-defined]
    with managed(bench, tmp_path) as manager:
        manager.begin()
        assert standing(manager) == A_TO_B
        manager.check_job_circuits()
