"""An owner on a virtual clock: what takes a served bench hours is seen in a second, in one thread."""

import threading
from pathlib import Path

import pytest

from lumion_hw import Bench
from lumion_hw.circuits import BenchLock
from lumion_hw.clock import VirtualClock
from lumion_hw.serving.lease import Caller
from lumion_hw.serving.owner import BenchOwner
from tests.recorded_calibration import RECORD, SEED, SMALL

NOW_S, ADA = 1_800_000_000.0, Caller("ada", account="ada@lab")


@pytest.mark.long
def test_circuits_are_kept_leases_end_and_curves_go_on_by_the_clock_given(tmp_path: Path) -> None:
    clock, threads = VirtualClock(), threading.active_count()
    with BenchLock(tmp_path, "a test") as lock, Bench.emulate(SMALL, seed=SEED, clock=clock) as bench:
        owner = BenchOwner(bench, lock, tmp_path, RECORD, fabric=False, clock=clock, wall_s=lambda: NOW_S + clock.now())
        owner.step(0.0)
        owner.lease.take("ada", ADA, lasts_s=600.0, bound=False)
        owner.ask("connect", {"circuits": "sfp-a:sfp-b"}, ADA)
        owner.step(1.0)
        assert owner.state.job.error == ""
        clock.sleep(3600.0)
        owner.step(1.0)
        state = owner.state
        assert state.time_s == NOW_S + clock.now()
        assert state.lease.owner == ""
        assert "lease ended" in [each.event for each in state.events]
        assert state.health.silent == {}
        assert state.health.keeps == "circuits"
        assert state.circuits[0].age_s > 3600.0
        assert state.circuits[0].margin_db > 0.0
        assert 0.0 <= state.time_s - state.circuits[0].seen_s < 3.0
        clock.sleep(60.0)
        owner.publish()
        assert owner.state.time_s - owner.state.circuits[0].seen_s > 60.0, "nobody has looked meanwhile"
        assert owner.history[-1].time_s - owner.history[0].time_s > 3600.0
        assert threading.active_count() == threads
        owner.stop()
