"""An owner on a virtual clock: hours of a served bench in a second, in one thread."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lumion_hw import Bench
from lumion_hw.circuits import BenchLock
from lumion_hw.clock import VirtualClock
from lumion_hw.errors import ConfigError
from lumion_hw.serving.circuits_view import MAX_MEASUREMENT_AGE_S
from lumion_hw.serving.lease import Caller
from lumion_hw.serving.owner import BenchOwner
from lumion_hw.serving.state import AlarmSeverity
from tests.recorded_calibration import RECORD, SEED, SMALL

NOW_S, ADA = 1_800_000_000.0, Caller("ada", account="ada@lab")


@contextlib.contextmanager
def owned(directory: Path, *, fabric: bool) -> Iterator[tuple[VirtualClock, BenchOwner]]:
    clock = VirtualClock()
    with BenchLock(directory, "a test") as lock, Bench.emulate(SMALL, seed=SEED, clock=clock) as bench:
        owner = BenchOwner(
            bench, lock, directory, RECORD, fabric=fabric, clock=clock, wall_s=lambda: NOW_S + clock.now()
        )
        yield clock, owner
        owner.stop()


@pytest.mark.long
def test_circuits_are_kept_leases_end_and_curves_go_on_by_the_clock_given(tmp_path: Path) -> None:
    threads = threading.active_count()
    with owned(tmp_path, fabric=False) as (clock, owner):
        owner.step(0.0)
        owner.lease.take("ada", ADA, lasts_s=600.0, bound=False)
        owner.start_job("connect", {"circuits": "sfp-a:sfp-b"}, ADA)
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


def measured_ago_s(owner: BenchOwner) -> dict[str, float]:
    return {each.name: owner.state.time_s - each.seen_s for each in owner.state.circuits}


@pytest.mark.long
def test_margins_of_a_fabric_are_measured_anew_and_old_ones_are_not_taken_for_new(tmp_path, monkeypatch) -> None:
    with owned(tmp_path, fabric=True) as (clock, owner):
        owner.step(3.0)
        owner.publish()
        assert len(owner.state.circuits) >= 2
        assert max(measured_ago_s(owner).values()) < MAX_MEASUREMENT_AGE_S
        assert all(each.is_known for each in owner.state.circuits)
        assert owner.history[-1].margin_db == {each.name: each.margin_db for each in owner.state.circuits}

        monkeypatch.setattr("lumion_hw.serving.readings.STALE_S", 60.0)
        clock.sleep(MAX_MEASUREMENT_AGE_S)
        owner.publish()
        assert {each.alarm for each in owner.state.circuits} == {"not measured now"}
        assert {each.severity for each in owner.state.circuits} == {AlarmSeverity.INVALID}
        assert set(owner.history[-1].margin_db.values()) == {None}, "the curve goes on with what nobody has measured"


@pytest.mark.long
def test_a_silent_module_makes_only_the_margins_old_that_it_is_asked_for(tmp_path: Path) -> None:
    with owned(tmp_path, fabric=False) as (_, owner):
        owner.step(0.0)
        owner.lease.take("ada", ADA, lasts_s=600.0, bound=False)
        owner.start_job("connect", {"circuits": "sfp-a:sfp-b,sfp-c:sfp-a"}, ADA)
        owner.step(2.0)
        owner.bench.emulated.faults.inject("sfp-c", "no_power")
        owner.step(5.0)
        ab, ca = owner.state.circuits
        assert measured_ago_s(owner)[ca.name] > 5.0
        assert measured_ago_s(owner)[ab.name] < MAX_MEASUREMENT_AGE_S
        assert ab.is_known
        assert "transmitter" in ca.fault
        assert ca.unseen == "sfp-c is silent"


@pytest.mark.long
def test_a_fabric_that_is_kept_again_says_so_and_nobody_connects_meanwhile(tmp_path: Path) -> None:
    with owned(tmp_path, fabric=True) as (clock, owner):
        owner.step(1.0)
        owner.bench.emulated.faults.inject("mesh0", "no_cable")
        owner.step(1.0)
        assert owner.state.health.trouble
        assert {each.alarm for each in owner.state.circuits} == {owner.state.health.trouble}
        owner.lease.take("ada", ADA, lasts_s=600.0, bound=False)
        with pytest.raises(ConfigError, match="control the circuits of this bench"):
            owner.start_job("connect", {"circuits": "sfp-c:sfp-a"}, ADA)
        owner.bench.emulated.faults.end("mesh0", "no_cable")
        seen = []
        owner.bench.events.add_listener(lambda event: seen.append((event["event"], clock.now())))
        for _ in range(10):
            clock.sleep(1.0)
            owner.step(5.0)
            if not owner.state.health.trouble:
                break
        (kept_s,) = (at_s for what, at_s in seen if what == "kept again")
        assert clock.now() - kept_s > 4.0, "it is said when it begins, not when it ends"
        assert owner.state.health.trouble == ""


def test_circuits_that_nothing_checks_count_as_lost_for_joined_meshes(tmp_path: Path) -> None:
    with owned(tmp_path, fabric=False) as (clock, owner):
        owner.step(0.0)
        owner.lease.take("ada", ADA, lasts_s=600.0, bound=False)
        owner.start_job("connect", {"circuits": "sfp-a:sfp-b"}, ADA)
        owner.step(1.0)
        assert [(each["broken"], each["marks"]) for each in owner.joined_circuits()["circuits"]] == [(False, [])]
        owner.bench.emulated.faults.inject("mesh0", "no_cable")
        owner.step(1.0)
        (circuit,) = owner.joined_circuits()["circuits"]
        assert circuit["broken"]
        assert circuit["marks"] == [f"not checked: {owner.state.health.trouble}"]
        owner.bench.emulated.faults.end("mesh0", "no_cable")
        for _ in range(10):
            clock.sleep(1.0)
            owner.step(5.0)
        assert [(each["broken"], each["marks"]) for each in owner.joined_circuits()["circuits"]] == [(False, [])]
