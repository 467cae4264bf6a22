"""Decisions of the fabric. They need no devices, so thousands of sequences of failures take seconds."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, strategies as st

from lumion_hw.bench.bench import load
from lumion_hw.circuits import CircuitRequest
from lumion_hw.circuits.diagnosis import CircuitFinding, Place
from lumion_hw.fabric import job_requests
from lumion_hw.fabric.decisions import (
    Diagnose,
    DropSpare,
    FabricView,
    NoAction,
    Refuse,
    RemoveLoop,
    Reroute,
    Swap,
    after_diagnosis,
    after_refusal,
    after_reroute,
    after_swap,
    decide,
    ends_to_replace,
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
            state = after_swap(view, verdict, name, decision.plan.spare)
        elif isinstance(decision, Refuse):
            state = after_refusal(state, verdict, decision)
            assert all(reason in decision.reason for reason in (*view.unusable, *failures))
        else:
            assert isinstance(decision, DropSpare)
            assert decision.circuits == tuple(CircuitRequest(nic, nic) for nic in decision.dead_modules)
            state = with_failed(state, verdict, name)
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


def test_a_dark_path_is_routed_around_all_suspects_then_half_of_them_then_diagnosed() -> None:
    """PUC 12 passes the light of another circuit, and 10 and 15 are those of the ports."""
    view, verdict = FabricView(MODEL, FabricState(), CONNECTED), path_verdict()
    idle = (CircuitRequest("sfp-s2n0", "sfp-s2n0"),)
    wanted = [(11, 13, 14), (11,), (13, 14)]
    assert [decide(view, verdict, ["dark"] * count) for count in range(3)] == [
        Reroute(AB, each, idle) for each in wanted
    ]
    assert decide(view, verdict, ["one", "two", "three"]) == Diagnose("one; two; three")
    assert after_reroute(FabricState(avoided=(40, 13)), (11, 13)).avoided == (11, 13, 40)


def test_a_path_between_neighbours_has_no_suspects() -> None:
    view = FabricView(MODEL, FabricState(), {AB: (Path(1, 2, (10, 15), 1.0),)})
    assert decide(view, path_verdict()) == Diagnose("its ports are neighbours")


def finding(place: Place, detail: str, *pucs: int, may_be_outside: bool = False) -> CircuitFinding:
    return CircuitFinding(None, place, detail, pucs, may_be_outside)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("place", "suspect", "name"),
    [
        ("transmitter", "unit", "server0"),
        ("fibre before the mesh", "unit", "server0"),
        ("fibre behind the mesh", "unit", "server1"),
        ("receiver", "unit", "server1"),
        ("path", "end", AB.name),
        ("wiring", "end", AB.name),
        ("budget", "end", AB.name),
    ],
)
def test_only_light_that_is_lost_outside_the_mesh_blames_a_server(place, suspect, name) -> None:
    verdict = after_diagnosis(FabricView(MODEL, FabricState(), CONNECTED), path_verdict(), finding(place, "why"))
    assert (verdict.suspect, verdict.name) == (suspect, name)
    assert verdict.reason.endswith(": why")


def test_a_finding_that_leaves_two_suspects_names_both_and_how_to_find_out() -> None:
    both = finding("path", "PUC 15 does not reach its state, or port 1 or its fibre is dead", 15, may_be_outside=True)
    verdict = after_diagnosis(FabricView(MODEL, FabricState(), CONNECTED), path_verdict(), both)
    assert (verdict.suspect, verdict.pucs) == ("end", (15,))
    assert verdict.reason == (
        "sfp-s0n0:sfp-s1n0 is dark and has no other path: PUC 15 does not reach its state, or port 1 or its fibre is "
        "dead. To find out, exchange the fibres of server0 and another server: if the fault moves with server0, "
        "server0 has failed"
    )


def end_verdict(name: str, *pucs: int) -> FailureVerdict:
    return dataclasses.replace(path_verdict(name), suspect="end", pucs=pucs)


@pytest.mark.parametrize(("puc", "first"), [(10, "server0"), (11, "server0"), (14, "server1"), (15, "server1")])
def test_the_end_closer_to_the_broken_puc_is_replaced_first(puc: int, first: str) -> None:
    view = FabricView(MODEL, FabricState(), CONNECTED)
    ends = ends_to_replace(view, end_verdict(AB.name, puc))
    assert (ends[0], set(ends)) == (first, {"server0", "server1"})


def test_a_healthy_end_is_replaced_without_a_failure_and_kept_by_a_job_without_a_spare() -> None:
    view = dataclasses.replace(view_of(FabricState(), "server1"), connected=CONNECTED)
    verdict = end_verdict(AB.name, 15)
    assert decide(view, verdict) == Swap(plan_for("server1", "server2"))
    state = after_swap(view, verdict, "server1", "server2")
    assert (state.cut_off, state.broken, state.avoided) == (("server1",), (), (15,))
    refused = decide(view, verdict, ["dark", "dark"])
    assert isinstance(refused, Refuse)
    assert refused.jobs == ("server0-server1",)
    assert refused.reason.endswith("is dark, and no spare helps: server2: dark; server3: dark")
    assert after_refusal(FabricState(), verdict, refused).failed == {}


def test_a_unit_that_fails_after_it_was_cut_off_counts_as_failed() -> None:
    cut_off = with_failed(FabricState(), end_verdict(AB.name, 15), "server1")
    assert with_failed(cut_off, unit_verdict("server1"), "server1").broken == ("server1",)


def test_a_spare_without_another_path_loses_its_loop_only() -> None:
    view = FabricView(MODEL, FabricState(), CONNECTED)
    loop = CircuitRequest("sfp-s2n0", "sfp-s2n0")
    assert decide(view, end_verdict(loop.name, 30)) == RemoveLoop(loop)
    assert decide(view, end_verdict("sfp-s3n0:sfp-s3n0", 30)) == NoAction()


@pytest.mark.parametrize("connected", [{}, {CircuitRequest("sfp-s1n0", "sfp-s0n0"): (Path(3, 4, (20,), 1.0),)}])
def test_a_verdict_on_a_circuit_that_is_not_connected_asks_for_nothing(connected) -> None:
    assert decide(FabricView(MODEL, FabricState(), connected), path_verdict()) == NoAction()


def test_light_that_passes_a_puc_clears_it_of_suspicion() -> None:
    view = view_of(FabricState(avoided=(3, 4, 5)), "server1")
    state = after_swap(view, unit_verdict("server1"), "server1", "server2", proven={4})
    assert (state.avoided, state.places) == ((3, 5), {"server1": "server2"})
    assert "server1" in state.failed
