"""Decisions of the fabric. They need no devices, so thousands of sequences of failures take seconds."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, strategies as st

from lumion_hw.bench.bench import load
from lumion_hw.circuits import CircuitRequest
from lumion_hw.fabric import job_requests
from lumion_hw.fabric.decisions import (
    BlameSender,
    DropSpare,
    FabricView,
    NoAction,
    Refuse,
    Reroute,
    Swap,
    after_refusal,
    after_reroute,
    after_swap,
    decide,
    free_spares,
    in_service,
    with_failed,
)
from lumion_hw.fabric.evidence import FailureVerdict
from lumion_hw.fabric.journal import FabricState
from lumion_hw.fabric.standby import StandbyPlan
from lumion_hw.mesh.routing import Path

MODEL = load("lumion-prototype")  # server0 and server1 in a job, server2 and server3 as spares
UNITS = ("server0", "server1", "server2", "server3")
AB = CircuitRequest("sfp-s0n0", "sfp-s1n0")


def unit_verdict(name: str) -> FailureVerdict:
    return FailureVerdict("unit", name, "light", f"all light of {name} went out", 0.0, 0.1, ("photodiodes",))


def path_verdict(name: str = "sfp-s0n0:sfp-s1n0") -> FailureVerdict:
    return FailureVerdict("path", name, "light", f"{name} is dark", 0.0, 0.1, ("photodiodes",), (name,))


def plan_for(failed: str, spare: str) -> StandbyPlan:
    return StandbyPlan(failed, spare, (), (), None, (), 0.0, True, 0)


def view_of(state: FabricState, failed: str, unusable: frozenset[str] = frozenset()) -> FabricView:
    usable = [name for name in free_spares(MODEL, state) if name not in unusable]
    plans = tuple(plan_for(failed, name) for name in usable)
    return FabricView(MODEL, state, {}, plans, tuple(f"{name}: no path" for name in sorted(unusable)))


@given(
    st.lists(
        st.tuples(st.sampled_from(UNITS), st.integers(0, 3), st.frozensets(st.sampled_from(UNITS)), st.booleans()),
        max_size=8,
    )
)
def test_after_any_sequence_of_failures_jobs_are_whole_or_refused_with_every_reason(
    steps: list[tuple[str, int, frozenset[str], bool]],
) -> None:
    """Each step: the failed unit, the number of failed attempts, the unusable spares, and whether one is repaired."""
    state = FabricState()
    for name, n_failing, unusable, is_repaired in steps:
        if name in state.failed:
            continue
        view, verdict, failures = view_of(state, name, unusable), unit_verdict(name), list[str]()
        while isinstance(decision := decide(view, verdict, failures), Swap) and len(failures) < n_failing:
            failures.append(f"attempt {len(failures)} failed")
        if isinstance(decision, Swap):
            state = after_swap(view, verdict, decision.plan.spare)
        elif isinstance(decision, Refuse):
            state = after_refusal(state, verdict, decision)
            assert all(reason in decision.reason for reason in (*view.unusable, *failures))
        else:
            assert isinstance(decision, DropSpare)
            assert decision.circuits == tuple(CircuitRequest(nic, nic) for nic in decision.dead_modules)
            state = with_failed(state, verdict)
        check(state)
        if is_repaired:
            state = dataclasses.replace(state, failed={k: v for k, v in state.failed.items() if k != name})


def check(state: FabricState) -> None:
    serving = in_service(MODEL, state)
    assert len(serving) == 2, "two members of one job are in the same place"
    assert not set(free_spares(MODEL, state)) & (set(serving) | set(state.failed))
    for job in MODEL.fabric.all_jobs:
        dead = set(map(state.unit_at, job.members)) & set(state.failed)
        assert not dead or job.name in state.refused, f"{dead} serve a job that is not refused"
        assert len(job_requests(MODEL, job, state.places)) == 4


def test_spares_are_tried_in_the_order_of_their_plans_and_each_once() -> None:
    view, verdict = view_of(FabricState(), "server1"), unit_verdict("server1")
    first, second, third = (decide(view, verdict, ["dark"] * count) for count in range(3))
    assert [first, second] == [Swap(plan_for("server1", "server2")), Swap(plan_for("server1", "server3"))]
    assert isinstance(third, Refuse)
    assert third.jobs == ("server0-server1",)
    assert third.reason.endswith(": server2: dark; server3: dark")
    assert set(third.dead_modules) == {"sfp-s1n0", "sfp-s1n1"}
    assert len(third.circuits) == 4


def test_a_plan_for_a_spare_that_has_failed_meanwhile_is_passed_over() -> None:
    view = view_of(FabricState(), "server1")
    later = dataclasses.replace(view, state=FabricState(failed={"server2": "its light went out"}))
    assert decide(later, unit_verdict("server1")) == Swap(plan_for("server1", "server3"))


def test_without_any_spare_the_reason_says_so() -> None:
    state = FabricState(failed=dict.fromkeys(("server2", "server3"), "dead"))
    decision = decide(view_of(state, "server0"), unit_verdict("server0"))
    assert isinstance(decision, Refuse)
    assert decision.reason.endswith("the bench file has no free spare")
    assert set(decision.dead_modules) == {f"sfp-s{server}n{nic}" for server in (0, 2, 3) for nic in (0, 1)}


CONNECTED = {
    AB: (Path(1, 2, (10, 11, 12, 13, 14, 15), 1.0),),
    CircuitRequest("sfp-s1n0", "sfp-s0n0"): (Path(3, 4, (20, 12, 21), 1.0),),
    CircuitRequest("sfp-s2n0", "sfp-s2n0"): (Path(5, 6, (30, 31), 1.0),),
}


def test_a_dark_path_is_routed_around_all_suspects_then_half_of_them_then_its_sender_is_blamed() -> None:
    """PUC 12 passes the light of another circuit, and 10 and 15 are those of the ports."""
    view, verdict = FabricView(MODEL, FabricState(), CONNECTED), path_verdict()
    idle = (CircuitRequest("sfp-s2n0", "sfp-s2n0"),)
    wanted = [(11, 13, 14), (11,), (13, 14)]
    assert [decide(view, verdict, ["dark"] * count) for count in range(3)] == [
        Reroute(AB, each, idle) for each in wanted
    ]
    blamed = decide(view, verdict, ["one", "two", "three"])
    assert isinstance(blamed, BlameSender)
    assert (blamed.verdict.suspect, blamed.verdict.name, blamed.reason) == ("unit", "server0", "one; two; three")
    assert after_reroute(FabricState(avoided=(40, 13)), (11, 13)).avoided == (11, 13, 40)


def test_a_path_between_neighbours_has_no_suspects() -> None:
    view = FabricView(MODEL, FabricState(), {AB: (Path(1, 2, (10, 15), 1.0),)})
    decision = decide(view, path_verdict())
    assert isinstance(decision, BlameSender)
    assert decision.reason == "its ports are neighbours"


@pytest.mark.parametrize("connected", [{}, {CircuitRequest("sfp-s1n0", "sfp-s0n0"): (Path(3, 4, (20,), 1.0),)}])
def test_a_verdict_on_a_circuit_that_is_not_connected_asks_for_nothing(connected) -> None:
    assert decide(FabricView(MODEL, FabricState(), connected), path_verdict()) == NoAction()


def test_light_that_passes_a_puc_clears_it_of_suspicion() -> None:
    view = view_of(FabricState(avoided=(3, 4, 5)), "server1")
    state = after_swap(view, unit_verdict("server1"), "server2", proven={4})
    assert (state.avoided, state.places) == ((3, 5), {"server1": "server2"})
    assert "server1" in state.failed
