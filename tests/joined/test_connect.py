"""Circuits between two racks over a spine: connected and proven on all benches, or on none."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lumion_hw.circuits import CircuitMaintenance
from lumion_hw.errors import BusyError, CircuitError, ConfigError, LinkError, LinkLost, NoPathError
from lumion_hw.joined import JoinedBench, JoinedMeshes, JoinedRequest, LocalBench
from lumion_hw.joined.journal import JoinedJournal, read_joined
from tests.joined.two_racks import FILE, TwoRacks, two_racks

ONE = [JoinedRequest.parse("rack0:sfp-a:rack1:sfp-b")]
ALL = [
    JoinedRequest.parse(name)
    for name in (
        "rack0:sfp-a:rack1:sfp-a",
        "rack1:sfp-a:rack0:sfp-b",
        "rack0:sfp-b:rack1:sfp-b",
        "rack1:sfp-b:rack0:sfp-a",
    )
]
TO_ANOTHER_RECEIVER = ALL[:1]
"""It begins at the transmitter of ``ONE``, and ends at another receiver."""
NOTHING: dict[str, list[str]] = {"rack0": [], "rack1": [], "spine": []}


@pytest.fixture
def racks(tmp_path: Path) -> Iterator[TwoRacks]:
    with two_racks(tmp_path) as racks:
        yield racks


def test_circuits_are_proven_up_to_the_last_receiver(racks: TwoRacks) -> None:
    with racks.program() as joined:
        measured = joined.connect(ALL)
        assert [circuit["circuit"] for circuit in measured] == [request.name for request in ALL]
        for circuit in measured:
            assert abs(circuit["margin_db"] - circuit["predicted_margin_db"]) < 2.0
            assert circuit["fibre_loss_db"] == 1.6
            assert circuit["delay_ns"] == pytest.approx(196.0)
        statuses = joined.status()
        assert {status.name for status in statuses} == {request.name for request in ALL}
        assert not any(status.problems for status in statuses)
    for request in ALL:
        origins_w = racks.fibres.ends[request.target[0]].origins(request.target[1])
        assert max(origins_w, key=origins_w.__getitem__) == ":".join(request.source)


def test_the_budget_adds_up_over_meshes_and_fibres(racks: TwoRacks) -> None:
    with racks.program() as joined:
        (link,) = joined.plan(ONE).links
    optics = racks.benches["rack0"].model.devices["sfp-a"].optics
    assert optics is not None
    outside_db = 0.5 + 0.3  # at both modules
    expected_dbm = optics.launch_dbm - outside_db - sum(link.losses_db) - sum(fibre.loss_db for fibre in link.fibres)
    assert link.received_dbm[-1] == pytest.approx(expected_dbm, abs=0.01)
    assert link.margin_db == pytest.approx(expected_dbm - optics.sensitivity_dbm, abs=0.01)
    assert racks.names() == NOTHING


def test_only_the_segment_that_ends_at_a_receiver_has_a_margin(racks: TwoRacks) -> None:
    with racks.program() as joined:
        joined.connect(ONE)
    circuits = {name: bench.circuits().circuits[0] for name, bench in racks.benches.items()}
    assert [circuits[name]["margin_db"] for name in ("rack0", "spine")] == [None, None]
    assert circuits["rack1"]["margin_db"] > 0.0
    for service in racks.services.values():
        CircuitMaintenance(service).step()
        (circuit,) = service.state.circuits
        assert (circuit.proof["overload_margin_db"] is None) is (circuit.proof["margin_db"] is None)
        assert circuit.proof["received_dbm"] is not None
        assert circuit.marks == ()


def test_disconnecting_frees_every_bench_and_the_circuits_fit_again(racks: TwoRacks) -> None:
    with racks.program() as joined:
        joined.connect(ALL)
        assert joined.disconnect([ALL[0].name]) == [ALL[0].name]
        assert {status.name for status in joined.status()} == {request.name for request in ALL[1:]}
        joined.connect(ALL[:1])
        assert len(joined.disconnect()) == 4
    assert racks.names() == NOTHING
    assert racks.are_transmitters_off()


@pytest.mark.parametrize("lost_on", [("rack0",), ("spine",), ("rack1",), tuple(NOTHING)], ids=" ".join)
def test_circuits_that_a_bench_has_lost_are_connected_again_by_their_names(
    racks: TwoRacks, lost_on: tuple[str, ...]
) -> None:
    with racks.program() as joined:
        joined.connect(ALL)
        for name in lost_on:
            racks.benches[name].disconnect(racks.benches[name].circuits().names)
        assert {status.name for status in joined.status() if status.is_lost} == {request.name for request in ALL}
        joined.connect(ALL[:3])
        assert joined.disconnect([ALL[3].name]) == [ALL[3].name]
        assert {status.name: status.problems for status in joined.status()} == {each.name: () for each in ALL[:3]}
    assert {len(names) for names in racks.names().values()} == {3}


def test_a_lost_circuit_that_cannot_be_connected_again_stays_known_as_lost(racks: TwoRacks) -> None:
    with racks.program() as joined:
        joined.connect(ONE)
        racks.benches["spine"].disconnect(racks.benches["spine"].circuits().names)
        for port in (0, 1):
            racks.fibres.unplug("spine", port)
        with pytest.raises(CircuitError, match="no light arrives"):
            joined.connect(ONE)
        assert [(status.name, status.is_lost) for status in joined.status()] == [(ONE[0].name, True)]
    assert read_joined(racks.folder / "a").circuits == (ONE[0].name,)


def test_an_unplugged_fibre_is_named_and_nothing_stays(racks: TwoRacks) -> None:
    before = racks.currents()
    racks.fibres.unplug("spine", 0)
    racks.fibres.unplug("spine", 1)
    with racks.program() as joined:
        with pytest.raises(CircuitError, match=r"no light arrives at spine:[01], although rack0:[67] sends"):
            joined.connect(ONE)
        assert joined.unfinished is None
        assert racks.names() == NOTHING
        assert racks.are_transmitters_off()
        assert racks.currents() == before
        racks.fibres.plug()
        joined.connect(ONE)


def test_exchanged_fibres_are_found_although_every_receiver_has_light(tmp_path: Path) -> None:
    first, second = FILE.fibres[:2]
    exchanged = (replace(first, end=second.end), replace(second, end=first.end), *FILE.fibres[2:])
    with two_racks(tmp_path, fibres=replace(FILE, fibres=exchanged)) as racks, racks.program() as joined:
        with pytest.raises(CircuitError, match=r"the light at rack1:sfp-[ab].* comes from another module"):
            joined.connect([ALL[0], ALL[2]])
        assert racks.names() == NOTHING
        assert racks.are_transmitters_off()


def test_a_second_operator_is_refused_while_a_change_is_prepared(racks: TwoRacks) -> None:
    spine = racks.benches["spine"]
    with racks.program("a") as first:
        plan = first.plan(ONE)
    spine.prepare("first-1", plan.segments_of("spine"), ())
    with racks.program("b") as second, pytest.raises(BusyError, match="the change first-1 of joined meshes"):
        second.connect([ALL[1]])
    assert spine.circuits().prepared == "first-1"
    assert racks.names() == NOTHING
    spine.undo("first-1", "enough")
    with racks.program("b") as second:
        second.connect([ALL[1]])


def test_a_second_operator_disconnects_nothing_while_a_change_is_prepared(racks: TwoRacks) -> None:
    with racks.program("a") as first:
        first.connect([ALL[1]])
        plan, names = first.plan(ONE), racks.names()
        racks.benches["spine"].prepare("first-1", plan.segments_of("spine"), ())
    with racks.program("b") as second:
        with pytest.raises(BusyError, match="the change first-1 of joined meshes is prepared"):
            second.disconnect([ALL[1].name])
        assert second.unfinished is None
        assert racks.names() == names


class _DyingBench:
    """A bench that answers until the common number of calls is used up, as if the program had been killed."""

    is_remote = False

    def __init__(self, bench: LocalBench, lives: list[int]) -> None:
        self._bench, self._lives, self.model = bench, lives, bench.model

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._bench, name)

        def call(*arguments: Any) -> Any:
            if self._lives[0] <= 0:
                raise LinkLost("the connection to the served bench is lost; nothing was sent")
            self._lives[0] -= 1
            return method(*arguments)

        return call


def _connect_and_die(
    racks: TwoRacks, calls: int, requests: list[JoinedRequest] = ONE, replaced: tuple[str, ...] = ()
) -> bool:
    """Connect circuits with a program that can make so many calls of benches; return whether it got to the end."""
    lives = [calls]
    benches: dict[str, JoinedBench] = {name: _DyingBench(bench, lives) for name, bench in racks.benches.items()}
    with JoinedJournal(racks.folder / "dies", FILE.name) as journal:
        try:
            JoinedMeshes(FILE, benches, journal, racks.clock.sleep).connect(requests, replaced)
        except LinkError:
            return False
        return True


def test_after_a_crash_at_any_step_recovery_leaves_the_circuit_on_all_benches_or_on_none(racks: TwoRacks) -> None:
    dark, outcomes, calls = racks.currents(), [], 8  # planning takes 6 calls, and changes nothing
    while not _connect_and_die(racks, calls):
        with racks.program("dies") as joined:
            was_unfinished = joined.unfinished is not None
            if was_unfinished:
                with pytest.raises(ConfigError, match="lumion joined recover"):
                    joined.connect(ONE)
            joined.recover()
            assert joined.unfinished is None
            names = racks.names()
            assert all(names.values()) or names == NOTHING
            outcomes.append(all(names.values()))
            if names == NOTHING:
                assert racks.currents() == dark
                assert racks.are_transmitters_off()
            joined.disconnect()
        calls += 1
    assert True in outcomes  # crashes after the decision
    assert outcomes.count(False) >= 6  # crashes before it
    assert outcomes == sorted(outcomes)


def test_a_circuit_takes_the_place_of_another_without_its_transmitter_going_off(racks: TwoRacks) -> None:
    with racks.program() as joined:
        joined.connect([ONE[0], ALL[1]])
        begun_s = racks.clock.now()
        joined.connect(TO_ANOTHER_RECEIVER, [ONE[0].name])
        assert racks.clock.now() - begun_s < 0.15  # switching the transmitter off and on takes 0.3 s
        assert {status.name for status in joined.status()} == {TO_ANOTHER_RECEIVER[0].name, ALL[1].name}
        assert not any(status.problems for status in joined.status())
        origins_w = racks.fibres.ends["rack1"].origins("sfp-a")
        assert max(origins_w, key=origins_w.__getitem__) == "rack0:sfp-a"
        joined.disconnect()
    assert racks.are_transmitters_off()


def test_a_circuit_stays_if_the_one_that_replaces_it_is_not_proven(racks: TwoRacks) -> None:
    with racks.program() as joined:
        joined.connect(ONE)
        names, currents = racks.names(), racks.currents()
        for port in (2, 3):  # of rack 1
            racks.fibres.unplug("rack1", port)
        with pytest.raises(CircuitError, match="no light arrives at rack1"):
            joined.connect(TO_ANOTHER_RECEIVER, [ONE[0].name])
        racks.fibres.plug()
        assert (racks.names(), racks.currents()) == (names, currents)
        assert not racks.services["rack0"].setup.bench.transponders["sfp-a"].status().tx_disabled
        with pytest.raises(ConfigError, match="no circuit rack0:sfp-b:rack1:sfp-b crosses these meshes"):
            joined.connect(TO_ANOTHER_RECEIVER, [ALL[2].name])


def test_after_a_crash_at_any_step_of_a_replacement_one_of_both_circuits_is_left(racks: TwoRacks) -> None:
    old, new, kept, calls = ONE[0].name, TO_ANOTHER_RECEIVER[0].name, list[str](), 9
    with racks.program("dies") as joined:
        joined.connect(ONE)
    while not _connect_and_die(racks, calls, TO_ANOTHER_RECEIVER, (old,)):
        with racks.program("dies") as joined:
            joined.recover()
            (link,) = joined.status()
            assert not link.problems
            kept.append(link.name)
            if link.name == new:
                joined.connect(ONE, [new])
        calls += 1
    assert kept.count(old) >= 6
    assert kept.count(new) >= 2
    assert kept == sorted(kept, key=[old, new].index)


def test_after_a_bench_lost_its_part_of_a_decided_replacement_no_half_circuit_is_left(racks: TwoRacks) -> None:
    with racks.program("dies") as joined:
        joined.connect(ONE)
    # Planning takes 9 calls, the phases before the decision 9; the last call lets one of three benches keep its part.
    assert not _connect_and_die(racks, 19, TO_ANOTHER_RECEIVER, (ONE[0].name,))
    with racks.program("dies") as joined:
        change = joined.unfinished
        assert change is not None
        assert change.decided
        assert racks.benches["rack1"].circuits().prepared
        racks.benches["rack1"].undo(change.name, "started again")  # it has the old segment again
        assert "undid" in joined.recover()
        assert joined.status() == []
    assert racks.names() == NOTHING
    assert racks.are_transmitters_off()


def test_a_bench_that_lost_a_decided_change_makes_recovery_undo_the_others(racks: TwoRacks) -> None:
    # Planning takes 6 calls, the phases before the decision 9; the last call lets one of three benches keep its part.
    assert not _connect_and_die(racks, 16)
    with racks.program("dies") as joined:
        change = joined.unfinished
        assert change is not None
        assert change.decided
        # The server of the last bench that has not confirmed yet is started again, which undoes its part.
        lost = [name for name, bench in racks.benches.items() if bench.circuits().prepared]
        assert lost
        racks.benches[lost[-1]].undo(change.name, "started again")
        assert "undid" in joined.recover()
    assert racks.names() == NOTHING
    assert racks.are_transmitters_off()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rack0:sfp-a:rack1", "is not a circuit of joined meshes"),
        ("rack9:sfp-a:rack1:sfp-b", "there is no bench 'rack9'"),
        ("rack0:sfp-x:rack1:sfp-b", "bench rack0 has no module 'sfp-x'"),
        ("rack0:mesh0:rack1:sfp-b", "bench rack0 has no module 'mesh0'"),
    ],
)
def test_a_wrong_circuit_is_refused_by_name(racks: TwoRacks, text: str, message: str) -> None:
    with racks.program() as joined, pytest.raises(ConfigError, match=message):
        joined.connect([JoinedRequest.parse(text)])


def test_a_module_cannot_have_two_circuits(racks: TwoRacks) -> None:
    with racks.program() as joined:
        with pytest.raises(ConfigError, match="module rack0:sfp-a sends in two of the circuits"):
            joined.plan([ALL[0], replace(ALL[2], source=("rack0", "sfp-a"))])
        joined.connect(ALL[:1])
        with pytest.raises(ConfigError, match="sfp-a already sends in circuit sfp-a:port6 of bench rack0"):
            joined.connect([replace(ALL[2], source=("rack0", "sfp-a"))])


def test_a_margin_that_three_meshes_cannot_keep_is_refused(racks: TwoRacks) -> None:
    with racks.program() as joined, pytest.raises(CircuitError, match="margin above the sensitivity"):
        joined.connect([replace(ONE[0], min_margin_db=20.0)])
    assert racks.names() == NOTHING


def test_circuits_beyond_the_number_of_fibres_are_refused(tmp_path: Path) -> None:
    one_up = replace(FILE, fibres=FILE.fibres[1:])
    with two_racks(tmp_path, file=one_up) as racks, racks.program() as joined:
        with pytest.raises(NoPathError, match="there are not enough free fibres between the meshes"):
            joined.connect([ALL[0], ALL[2]])
        assert racks.names() == NOTHING


def test_light_that_a_failed_spine_sends_astray_keeps_no_segment_from_being_disconnected(racks: TwoRacks) -> None:
    """Receivers then have light of other senders, which goes when these are switched off."""
    with racks.program() as joined:
        joined.connect(ALL)
    racks.services["spine"].setup.bench.emulated.faults.inject("mesh0", "trip", source=11)
    for name in ("rack0", "rack1"):
        for circuit in racks.names()[name]:
            racks.services[name].disconnect([circuit])
    assert racks.names()["rack0"] == racks.names()["rack1"] == []
