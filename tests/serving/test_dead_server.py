"""A served bench that starts while a server of its fabric is dead: the module counts as silent until it answers."""

from pathlib import Path

from lumion_hw import Bench, VirtualClock
from lumion_hw.bench.bench import load
from lumion_hw.bench.emulated import emulated_bench
from lumion_hw.circuits import BenchLock
from lumion_hw.serving.owner import BenchOwner
from tests.recorded_calibration import RECORD, SEED, SMALL


def test_it_replaces_the_dead_server_and_reads_its_module_when_it_answers_again(tmp_path: Path) -> None:
    clock, model = VirtualClock(), load(SMALL)
    emulated = emulated_bench(model, clock, SEED)
    emulated.faults.kill_modules(["sfp-b"])
    links = emulated.link
    with (
        BenchLock(tmp_path, "a test") as lock,
        Bench(model, lambda name, _: links(name), clock, emulated, allow_absent_modules=True) as bench,
    ):
        owner = BenchOwner(bench, lock, tmp_path, RECORD, clock=clock, wall_s=clock.now)
        owner.step(3.0)
        fabric = owner.state.fabric
        assert fabric is not None
        assert [(job.condition, job.units) for job in fabric.jobs] == [("connected", ("a", "c"))]
        assert "sfp-b" in owner.state.health.silent
        emulated.faults.revive_modules(["sfp-b"])
        clock.sleep(5.0)
        owner.step(3.0)
        assert "sfp-b" not in owner.state.health.silent
        owner.stop()
