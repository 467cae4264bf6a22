"""Leases of circuits: granted completely or refused, ended by the clock, never two for a port at once."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from lumion_hw import Bench
from lumion_hw.circuits import PathSetup
from lumion_hw.circuits.mesh_setting import record_avoiding
from lumion_hw.clock import VirtualClock
from lumion_hw.errors import ConfigError, LumionError
from lumion_hw.polarization import Aligner
from lumion_hw.schedules.leases import (
    Lease,
    LeaseRank,
    LeaseRefusedError,
    LeaseRequest,
    LeaseTable,
    StaleLeaseError,
    serve_leases,
)
from tests.circuits.known_mesh import SMALL, record_of_truth
from tests.effort import examples

PORTS = ("a", "b", "c", "d")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(start_s=100.0)


@pytest.fixture
def table(clock: VirtualClock) -> LeaseTable:
    return LeaseTable(clock, PORTS, grace_s=2.0)


def wish(port: str, *partners: str, duration_s: float = 10.0, **rest: object) -> LeaseRequest:
    return LeaseRequest(f"job-{port}", port, partners, duration_s, **rest)


def test_a_free_pair_is_lent_at_once_and_ends_by_the_clock(table: LeaseTable, clock: VirtualClock) -> None:
    lease = table.request(wish("a", "b"))
    assert (lease.ports, lease.starts_s, lease.ends_s) == (("a", "b"), 100.0, 110.0)
    assert table.take_changes() == ((), (lease,))
    assert table.take_changes() == ((), ())
    assert table.next_s == 110.0
    clock.sleep(10.0)
    assert table.take_changes() == ((lease,), ())
    assert (table.leases, table.next_s) == ((), math.inf)
    with pytest.raises(StaleLeaseError, match="lease 1 has ended"):
        table.renew(lease.number, 5.0)


def test_who_can_wait_comes_next_and_who_cannot_is_told_when(table: LeaseTable, clock: VirtualClock) -> None:
    first = table.request(wish("a", "b"))
    with pytest.raises(
        LeaseRefusedError, match=r"job-a has reserved port b \(lease 1, .*could begin in 10 s"
    ) as refused:
        table.request(wish("c", "b", wait_s=9.9))
    assert (refused.value.port, refused.value.earliest_s) == ("b", 110.0)
    second = table.request(wish("c", "b", wait_s=10.0))
    assert second.starts_s == 110.0
    assert table.take_changes() == ((), (first,))
    clock.sleep(10.0)
    assert table.take_changes() == ((first,), (second,))


def test_any_of_several_partners_will_do(table: LeaseTable) -> None:
    table.request(wish("a", "b"))
    assert table.request(wish("c", "b", "d")).ports == ("c", "d")


def test_a_pre_emptible_lease_makes_room_after_its_notice(table: LeaseTable, clock: VirtualClock) -> None:
    low = table.request(wish("a", "b"))
    table.take_changes()
    with pytest.raises(LeaseRefusedError, match="priority preemptible"):
        table.request(wish("c", "b", rank=LeaseRank.GUARANTEED, wait_s=1.0))  # the notice alone takes 2 s
    high = table.request(wish("c", "b", rank=LeaseRank.GUARANTEED, wait_s=2.0))
    assert high.starts_s == 102.0
    assert table.leases[0].ends_s == 102.0
    clock.sleep(2.0)
    ended, begun = table.take_changes()
    assert [lease.number for lease in ended] == [low.number]
    assert begun == (high,)
    with pytest.raises(LeaseRefusedError):  # guaranteed ones stay for every request
        table.request(wish("d", "b", rank=LeaseRank.RECOVERY))


def test_renewing_gives_a_new_number_and_takes_from_nobody(table: LeaseTable, clock: VirtualClock) -> None:
    lease = table.request(wish("a", "b"))
    table.take_changes()
    clock.sleep(5.0)
    longer = table.renew(lease.number, 10.0)
    assert (longer.number, longer.ends_s) == (2, 115.0)
    assert table.renew(longer.number, 1.0).ends_s == 115.0  # never shorter
    with pytest.raises(StaleLeaseError):
        table.release(lease.number)
    table.request(wish("c", "b", wait_s=20.0))
    with pytest.raises(LeaseRefusedError, match="port b is then reserved for job-c"):
        table.renew(3, 30.0)
    assert table.take_changes() == ((), ())  # the circuit is up all the time


def test_what_is_released_or_lost_is_free(table: LeaseTable) -> None:
    lease = table.request(wish("a", "b"))
    table.take_changes()
    table.release(lease.number)
    assert [each.number for each in table.take_changes()[0]] == [lease.number]
    other = table.request(wish("a", "c"))
    later = table.request(wish("c", "d", wait_s=60.0))
    assert {each.number for each in table.revoke("c")} == {other.number, later.number}
    assert table.leases == ()
    assert table.request(wish("c", "d")).starts_s == 100.0


def test_numbers_grow_over_restarts(clock: VirtualClock, tmp_path: Path) -> None:
    path = tmp_path / "leases.json"
    old = LeaseTable(clock, PORTS, path=path).request(wish("a", "b"))
    again = LeaseTable(clock, PORTS, path=path)
    with pytest.raises(StaleLeaseError):
        again.renew(old.number, 1.0)
    assert again.request(wish("a", "b")).number == old.number + 1
    path.write_text('{"format": "lumion-leases", "last_number": -1}')
    with pytest.raises(ConfigError, match="old lease numbers must never be reused"):
        LeaseTable(clock, PORTS, path=path)


@pytest.mark.parametrize(
    ("port", "partners", "values"),
    [
        ("a", ("a",), {}),
        ("a", (), {}),
        ("a", ("b",), {"duration_s": 0.0}),
        ("a", ("b",), {"duration_s": math.nan}),
        ("a", ("b",), {"wait_s": math.inf}),
    ],
)
def test_wishes_that_make_no_sense_are_refused(port: str, partners: tuple[str, ...], values: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        wish(port, *partners, **values)


def test_a_port_that_does_not_exist_is_refused(table: LeaseTable) -> None:
    with pytest.raises(ConfigError, match=r"no port 'x' .*a, b, c, d"):
        table.request(wish("a", "x"))


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["request", "request", "request", "renew", "release", "revoke", "sleep"]),
        st.permutations(PORTS),
        st.floats(0.1, 8.0),
        st.floats(0.0, 20.0),
        st.sampled_from(list(LeaseRank)),
    ),
    max_size=40,
)


@given(ACTIONS)
@examples(80)
def test_leases_never_overlap_on_a_port(actions: list) -> None:
    clock = VirtualClock()
    table = LeaseTable(clock, PORTS, grace_s=0.5)
    standing: dict[str, Lease] = {}
    numbers = [0]
    for action, ports, seconds, wait_s, rank in actions:
        known = [lease.number for lease in table.leases] or [1]
        try:
            if action == "request":
                asked_s = clock.now()
                wished = LeaseRequest("x", ports[0], tuple(ports[1:2]), seconds, wait_s, rank)
                lease = table.request(wished)
                assert asked_s <= lease.starts_s <= asked_s + wait_s
                numbers.append(lease.number)
            elif action == "renew":
                numbers.append(table.renew(known[0], seconds).number)
            elif action == "release":
                table.release(known[-1])
            elif action == "revoke":
                table.revoke(ports[0])
            else:
                clock.sleep(seconds)
        except (LeaseRefusedError, StaleLeaseError):
            pass
        leases = table.leases
        for i, one in enumerate(leases):
            for other in leases[:i]:
                assert not any(other.overlaps(port, one.starts_s, one.ends_s) for port in one.ports)
        ended, begun = table.take_changes()
        for lease in ended:
            for port in lease.ports:
                standing.pop(port)
        for lease in begun:
            for port in lease.ports:
                assert port not in standing  # it was removed before
                standing[port] = lease
        assert numbers == sorted(set(numbers))
        lent = {port for each in table.leases if each.starts_s <= clock.now() for port in each.ports}
        assert set(standing) == lent


def test_circuits_come_and_go_with_their_leases() -> None:
    with Bench.emulate(SMALL, seed=5) as bench:
        setup = PathSetup(bench, record_of_truth(bench), Aligner(bench.clock))
        table = LeaseTable(bench.clock, ("sfp-a", "sfp-b", "sfp-c"))
        table.request(LeaseRequest("borrower", "sfp-a", ("sfp-b",), 30.0))
        later = table.request(LeaseRequest("other", "sfp-c", ("sfp-b",), 30.0, wait_s=60.0))
        assert len(serve_leases(setup, table)[1]) == 1
        assert setup.active is not None
        assert {str(each.request) for each in setup.active.circuits} == {"sfp-a to sfp-b", "sfp-b to sfp-a"}
        bench.clock.sleep(table.next_s - bench.clock.now())
        assert serve_leases(setup, table)[1] == (later,)
        assert {str(each.request) for each in setup.active.circuits} == {"sfp-c to sfp-b", "sfp-b to sfp-c"}
        assert all(proof.proven for proof in setup.prove())
        table.release(later.number)
        serve_leases(setup, table)
        assert setup.active is None
        failing = table.request(LeaseRequest("lost", "sfp-a", ("sfp-b",), 30.0))
        setup.record = record_avoiding(setup.record, range(15))
        with pytest.raises(LumionError):
            serve_leases(setup, table)
        assert [lease.number for lease in table.leases if lease.ends_s > bench.clock.now()] == []
        with pytest.raises(StaleLeaseError):
            table.renew(failing.number, 1.0)
