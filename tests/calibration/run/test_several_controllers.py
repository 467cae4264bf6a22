"""A mesh on two controllers is calibrated like one on a single controller."""

from pathlib import Path

from calibration.run.planning import Goal
from lumion_hw import Bench
from lumion_hw.circuits import CircuitRequest, PathSetup
from lumion_hw.polarization import Aligner
from tests.bench.several_controllers import split_bench
from tests.calibration.bench_run import calibrated_bench, within_tolerance


def test_a_mesh_on_two_controllers_is_calibrated_and_its_record_connects_circuits(tmp_path: Path) -> None:
    with Bench.emulate(split_bench(tmp_path), seed=7) as bench:
        found = calibrated_bench(bench, 7, Goal(3e-3))
        assert within_tolerance(found)
        assert found.record.device_serial == "SMALL-0000+SMALL-0001"
        bench.mesh.check_record(found.record)
        setup = PathSetup(bench, found.record, Aligner(bench.clock))
        proofs = setup.connect([CircuitRequest("sfp-a", "sfp-b"), CircuitRequest("sfp-b", "sfp-a")])
        assert [proof.proven for proof in proofs] == [True, True]
