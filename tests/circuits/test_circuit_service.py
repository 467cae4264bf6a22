"""Circuits that outlive the program: restarted, killed, full disk, and a mesh changed by another program."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lumion_hw.bench.bench import load, with_leave_on
from lumion_hw.circuits import BenchLock, CircuitRequest, MeshVerdict, lock_owner, read_state
from lumion_hw.circuits.service import switch_everything_off
from lumion_hw.circuits.state import ActiveArm, CircuitJournal, restored_plan
from lumion_hw.errors import BusyError, CircuitError, ConfigError, LumionError, NoPathError, SafetyError
from tests.circuits.known_mesh import edited
from tests.circuits.lasting_bench import HOLD_S, LastingBench
from tests.full_disk import room

AB, BA = CircuitRequest("sfp-a", "sfp-b"), CircuitRequest("sfp-b", "sfp-a")


@pytest.fixture
def bench(one_bench: LastingBench) -> LastingBench:
    one_bench.forget()
    return one_bench


def names(bench: LastingBench) -> list[str]:
    return [circuit.name for circuit in read_state(bench.directory)[0].circuits]


def test_what_is_connected_carries_light_after_the_program_has_ended(bench: LastingBench) -> None:
    with bench.service() as service:
        (proof,) = service.connect([AB], align=False)
    driven_ma = bench.driven_ma()
    assert driven_ma.any()
    bench.clock.sleep(0.9 * HOLD_S)  # long after the watchdog
    with bench.service() as service:
        assert np.array_equal(bench.driven_ma(), driven_ma)
        (again,) = service.setup.prove()
        assert again.proven
        assert again.margin_db == pytest.approx(proof.margin_db, abs=0.1)
        (kept,) = service.state.circuits
        assert kept.proof["margin_db"] == pytest.approx(proof.margin_db, abs=1e-3)
        assert kept.pucs == proof.circuit.path.pucs
        service.connect([BA], align=False)  # next to it
        assert [each.proven for each in service.setup.prove()] == [True, True]
    assert names(bench) == ["sfp-a:sfp-b", "sfp-b:sfp-a"]


def test_without_leave_on_heaters_go_off_when_the_bench_is_closed(bench: LastingBench) -> None:
    bench.model = with_leave_on(bench.model, 0.0)
    with bench.service() as service:
        service.connect([AB], align=False)
    assert not bench.driven_ma().any()


def test_after_the_hold_the_mesh_is_dark_and_the_circuits_are_lost(bench: LastingBench) -> None:
    with bench.service() as service:
        service.connect([AB], align=False)
    bench.clock.sleep(HOLD_S + 10.0)
    with bench.service() as service:
        assert not bench.driven_ma().any()
        assert [circuit.name for circuit in service.lost_circuits] == ["sfp-a:sfp-b"]
        assert service.state.circuits == ()
        service.connect([AB], align=False)
        assert all(proof.proven for proof in service.setup.prove())


def test_disconnecting_leaves_the_other_alone_and_the_last_one_leaves_the_mesh_cold(bench: LastingBench) -> None:
    with bench.service() as service:
        service.connect([AB, BA], align=False)
        kept_pucs = service.state.circuits[1].pucs
        heaters = [2 * puc + arm for puc in kept_pucs for arm in (0, 1)]
        before_ma = bench.driven_ma()
        service.disconnect(["sfp-a:sfp-b"])
        assert np.array_equal(bench.driven_ma()[heaters], before_ma[heaters])
    with bench.service() as service:
        assert [circuit.name for circuit in service.state.circuits] == ["sfp-b:sfp-a"]
        with pytest.raises(ConfigError, match=r"no circuit sfp-a:sfp-b is connected\. Connected circuits: sfp-b:sfp-a"):
            service.disconnect(["sfp-a:sfp-b"])
        service.disconnect()
    assert not bench.driven_ma().any()
    assert names(bench) == []


def test_what_stands_is_not_connected_twice(bench: LastingBench) -> None:
    with bench.service() as service:
        service.connect([AB], align=False)
        with pytest.raises(ConfigError, match="sfp-a:sfp-b is connected already"):
            service.connect([AB], align=False)
        assert len(service.setup.prove()) == 1


def test_a_request_that_fails_leaves_journal_and_mesh_as_before(bench: LastingBench) -> None:
    with bench.service() as service:
        service.connect([AB], align=False)
        driven_ma = bench.driven_ma()
        with pytest.raises((CircuitError, NoPathError)):
            service.connect([CircuitRequest("sfp-b", "sfp-c", max_hops=1)], align=False)
        assert np.array_equal(bench.driven_ma(), driven_ma)
        assert service.journal.unfinished is None
        assert [circuit.name for circuit in service.state.circuits] == ["sfp-a:sfp-b"]
        assert all(proof.proven for proof in service.setup.prove())


@pytest.mark.parametrize(
    "milestone",
    ["programmed", *(pytest.param(name, marks=pytest.mark.long) for name in ("settled", "los_clear", "link_up"))],
)
def test_killed_while_connecting_the_next_program_finds_all_as_before(bench: LastingBench, milestone: str) -> None:
    with bench.service() as service:
        service.connect([AB], align=False)
    before_ma = bench.driven_ma()
    bench.killed_at(milestone, lambda service, tell: service.connect([BA], align=False, milestone=tell))
    state, begun = read_state(bench.directory)
    assert begun is not None
    assert (begun.kind, begun.circuits) == ("connect", ("sfp-b:sfp-a",))
    assert [circuit.name for circuit in state.circuits] == ["sfp-a:sfp-b"]
    with bench.service() as service:
        assert np.allclose(bench.driven_ma(), before_ma, atol=1e-9)
        assert service.journal.unfinished is None
        (proof,) = service.setup.prove()
        assert proof.proven
        service.connect([BA], align=False)
    last = [json.loads(line[9:]) for line in bench.journal.read_text().splitlines()]
    assert [each["outcome"] for each in last if each["entry"] == "ended"] == ["done", "found changed", "done"]


def test_killed_before_anything_was_changed_is_as_before(bench: LastingBench) -> None:
    with bench.service() as service:
        service.connect([AB], align=False)
        driven_ma = service.setup.bench.mesh.confirmed_currents_ma()
        service.journal.begin("connect", ["sfp-b:sfp-a"], driven_ma)  # and no more
    with bench.service() as service:
        assert service.journal.unfinished is None
        assert all(proof.proven for proof in service.setup.prove())


def test_a_mesh_that_somebody_else_has_driven_is_told_by_puc_and_circuit_and_left_alone(bench: LastingBench) -> None:
    with bench.service() as service:
        service.connect([AB], align=False)
        puc = service.state.circuits[0].pucs[1]
    other_ma = bench.driven_ma()
    other_ma[2 * puc] += 0.25
    with bench.open() as opened:
        opened.mesh.program(other_ma)
    size = bench.journal.stat().st_size
    with (
        pytest.raises(CircuitError, match=rf"the mesh is different\n  PUC {puc}: .*used by sfp-a:sfp-b"),
        bench.service(),
    ):
        raise AssertionError
    assert bench.driven_ma()[2 * puc] == pytest.approx(other_ma[2 * puc], abs=1e-3)
    assert bench.journal.stat().st_size == size
    with (
        BenchLock(bench.directory, "rest") as lock,
        bench.open() as opened,
        CircuitJournal(bench.directory, "small", opened.mesh.topology.sha256) as journal,
    ):
        switch_everything_off(opened, journal, lock)
    assert not bench.driven_ma().any()
    assert names(bench) == []


def test_no_room_for_the_first_entry_means_that_nothing_was_changed(bench: LastingBench) -> None:
    with bench.service() as service:
        service.connect([AB], align=False)
        driven_ma = bench.driven_ma()
        with room(bench.journal.stat().st_size + 5), pytest.raises(LumionError, match="cannot write the journal"):
            service.connect([BA], align=False)
        assert np.array_equal(bench.driven_ma(), driven_ma)
        service.connect([BA], align=False)  # space was freed
    assert names(bench) == ["sfp-a:sfp-b", "sfp-b:sfp-a"]


def test_no_room_for_the_last_entry_takes_the_circuit_back(bench: LastingBench) -> None:
    with bench.service() as service:
        service.connect([AB], align=False)
        driven_ma = bench.driven_ma()
        begun = (
            len(json.dumps(driven_ma.tolist())) + 400
        )  # enough for the entry at the beginning, not for the one at the end
        with room(bench.journal.stat().st_size + begun), pytest.raises(LumionError, match="cannot write the journal"):
            service.connect([BA], align=False)
        assert np.allclose(bench.driven_ma(), driven_ma, atol=1e-9)
    assert read_state(bench.directory)[1] is not None  # begun and never ended
    with bench.service() as service:
        assert service.journal.unfinished is None
        assert [circuit.name for circuit in service.state.circuits] == ["sfp-a:sfp-b"]
        assert all(proof.proven for proof in service.setup.prove())


def test_a_truncated_journal_loses_no_more_than_the_line_cut_short(bench: LastingBench) -> None:
    with bench.service() as service:
        service.connect([AB], align=False)
        service.connect([BA], align=False)
    whole = bench.journal.read_bytes()
    bench.journal.write_bytes(whole[:-20])
    state, begun = read_state(bench.directory)
    assert [circuit.name for circuit in state.circuits] == ["sfp-a:sfp-b"]
    assert begun is not None
    with bench.service() as service:  # the change is rolled back, because nothing proves that it was finished
        assert all(proof.proven for proof in service.setup.prove())
    assert names(bench) == ["sfp-a:sfp-b"]
    assert (bench.directory / "circuits.jsonl.torn").read_bytes().startswith(whole[:-20].splitlines()[-1])


def test_a_damaged_journal_stops_everything_and_is_not_touched(bench: LastingBench) -> None:
    with bench.service() as service:
        service.connect([AB], align=False)
    damaged = bytearray(bench.journal.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    bench.journal.write_bytes(damaged)
    driven_ma = bench.driven_ma()
    with pytest.raises(ConfigError, match="is damaged: line"), bench.service():
        raise AssertionError
    assert bench.journal.read_bytes() == damaged
    assert np.array_equal(bench.driven_ma(), driven_ma)


def test_a_second_program_is_refused_before_it_touches_the_bench(bench: LastingBench) -> None:
    with bench.service(program="first") as service:
        service.connect([AB], align=False)
        with pytest.raises(BusyError, match="'first'"), bench.service():
            raise AssertionError
        assert all(proof.proven for proof in service.setup.prove())


def test_who_was_taken_over_changes_nothing_any_more(bench: LastingBench) -> None:
    with bench.service(program="first") as service:
        service.connect([AB], align=False)
        driven_ma = bench.driven_ma()
        owner = lock_owner(bench.directory)
        assert owner is not None
        with BenchLock(bench.directory, "second", take_over=owner.name):
            with pytest.raises(BusyError, match="taken over"):
                service.connect([BA], align=False)
            with pytest.raises(BusyError, match="taken over"):
                service.disconnect()
        assert np.array_equal(bench.driven_ma(), driven_ma)


def test_a_lease_ends_on_the_clock_of_the_bench(bench: LastingBench) -> None:
    with bench.service() as service:
        service.connect([AB, CircuitRequest("sfp-b", "sfp-a", lease_s=60.0)], align=False)
        assert service.end_expired_leases() == ()
        bench.clock.sleep(61.0)
        events: list[dict[str, object]] = []
        service.setup.bench.events.add_listener(events.append)
        assert [circuit.name for circuit in service.end_expired_leases()] == ["sfp-b:sfp-a"]
        (ended,) = [event for event in events if event["event"] == "lease ended"]
        assert (ended["circuit"], ended["reason"]) == ("sfp-b:sfp-a", "its lease of 60 s has ended")
        assert [circuit.name for circuit in service.state.circuits] == ["sfp-a:sfp-b"]


def test_circuits_of_another_wiring_are_not_taken_up(bench: LastingBench, tmp_path: Path) -> None:
    with bench.service() as service:
        service.connect([AB], align=False)
    file = edited(tmp_path, ("{port: 8, transponder: sfp-b", "{port: 9, transponder: sfp-b"))
    bench.model = with_leave_on(load(file), HOLD_S)
    with (
        pytest.raises(
            ConfigError, match="sfp-a:sfp-b was connected from port 1 to port 8, where this bench file has other"
        ),
        bench.service(),
    ):
        raise AssertionError


def test_verdicts_are_those_of_the_read_back(bench: LastingBench) -> None:
    with bench.service() as service:
        assert service.restore().verdict is MeshVerdict.AS_LEFT
        service.connect([AB], align=False)
        assert service.restore().verdict is MeshVerdict.AS_LEFT


FORGED = {
    "a lease without a zone": (
        ("circuits", 0, "since_utc"),
        "2026-11-27T12:00:00",
        "not a valid time with a time zone",
    ),
    "currents that are words": (("currents_ma",), ["much"], "currents_ma"),
    "a circuit without ends": (("circuits", 0, "request"), {}, "circuits.0.request.source"),
    "arms that are a number": (("circuits", 0, "arms"), 7, "circuits.0.arms"),
    "a state that there is none of": (("states",), {"3": "open"}, "states"),
    "a negative lease": (("circuits", 0, "request", "lease_s"), -1.0, "lease_s"),
    "nothing": (("circuits",), None, "circuits"),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_row_that_no_program_writes_is_refused_though_its_check_sum_is_right(bench: LastingBench, what: str) -> None:
    with bench.service() as service:
        service.connect([AB], align=False)
    keys, value, says = FORGED[what]
    *lines, last = bench.journal.read_bytes().splitlines(keepends=True)
    entry = json.loads(last[9:])
    place = entry
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    text = json.dumps(entry, separators=(",", ":")).encode()
    bench.journal.write_bytes(b"".join(lines) + b"%08x %s\n" % (zlib.crc32(text), text))
    with pytest.raises(ConfigError, match=says):
        read_state(bench.directory)


def test_circuits_over_pucs_that_the_mesh_does_not_have_are_refused(bench: LastingBench) -> None:
    with bench.service() as service:
        service.connect([AB], align=False)
        (circuit,) = service.state.circuits
        path = replace(circuit.paths[0], pucs=(0, 4711))
        forged = replace(service.state, circuits=(replace(circuit, arms=(ActiveArm(path),)),))
        with pytest.raises(ConfigError, match="PUC 4711, but this mesh has 15 PUCs"):
            restored_plan(service.setup.bench.model, service.setup.record, forged)


def test_a_journal_of_an_earlier_version_has_its_lease(bench: LastingBench) -> None:
    with bench.service() as service:
        service.connect([replace(AB, lease_s=3600.0)], align=False)
    *lines, last = bench.journal.read_bytes().splitlines(keepends=True)
    entry = json.loads(last[9:])
    lease = entry["circuits"][0].pop("lease")
    entry["circuits"][0]["lease_ends_utc"] = lease["ends_utc"]
    text = json.dumps(entry, separators=(",", ":")).encode()
    bench.journal.write_bytes(b"".join(lines) + b"%08x %s\n" % (zlib.crc32(text), text))
    (circuit,) = read_state(bench.directory)[0].circuits
    assert circuit.lease is not None
    assert circuit.lease.ends_utc == lease["ends_utc"]


def test_circuits_are_not_recorded_with_the_heaters_off(bench: LastingBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that trips between the last measurement and the entry leaves circuits that only look connected."""
    with bench.service() as service:
        service.connect([AB], align=False)
        end_change, faults = service.end_change, bench.emulated.faults

        def trip_first(proofs) -> None:
            faults.inject("mesh0", "trip", source=11)
            faults.end("mesh0", "trip", source=11)
            end_change(proofs)

        monkeypatch.setattr(service, "end_change", trip_first)
        with pytest.raises(SafetyError, match="ESTOP"):
            service.connect([BA], align=False)
    assert names(bench) == ["sfp-a:sfp-b"]
    with bench.service() as service:
        assert [circuit.name for circuit in service.lost_circuits] == ["sfp-a:sfp-b"]
        assert service.state.circuits == ()
        for latched in service.setup.bench.mesh.controller.faults():
            service.setup.bench.mesh.controller.clear_fault(latched.fault_id)
