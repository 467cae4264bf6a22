"""How long planning searches: alternatives, reasons of refusals, and progress messages."""

from typing import NoReturn

import pytest

from lumion_hw.circuits import CircuitRequest, plan_circuits
from lumion_hw.circuits.plan import planner, route_finder
from lumion_hw.errors import UndecidedError
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.routing import RouteRequest
from tests.circuits.plan.planning_cases import ZR_PAIR, document, model_of, record_of

BOTH = [CircuitRequest("zr-a", "zr-b"), CircuitRequest("zr-b", "zr-a")]
IN_TURN = [CircuitRequest("zr-a", "zr-b", priority=1), CircuitRequest("zr-b", "zr-a")]


@pytest.fixture
def wanted(monkeypatch: pytest.MonkeyPatch) -> list[RouteRequest]:
    """Return the requests to the router; it finds nothing."""
    found: list[RouteRequest] = []

    def nothing(mesh: MeshTopology, request: RouteRequest) -> NoReturn:
        found.append(request)
        request.progress("routes", 1, 2)
        raise UndecidedError(f"nothing after {len(found)} requests")

    monkeypatch.setattr(route_finder, "route", nothing)
    return found


def refused(requests: list[CircuitRequest]) -> list[tuple[str, int, int]]:
    """Plan without success, and return the progress."""
    said: list[tuple[str, int, int]] = []
    with pytest.raises(UndecidedError, match="nothing after"):
        plan_circuits(
            model_of(document(ZR_PAIR)), record_of(ZR_PAIR), requests, progress=lambda *step: said.append(step)
        )
    return said


def test_only_a_refusal_that_is_told_is_explained(wanted: list[RouteRequest]) -> None:
    """Each circuit has two arms: three pairings, of which the first is reported."""
    said = refused(BOTH)
    assert [request.explain_s > 0.0 for request in wanted] == [True, False, False]
    assert said == [("routes", 1, 2)] * 3


def test_circuits_in_turn_are_explained_when_all_together_fail(wanted: list[RouteRequest]) -> None:
    refused(IN_TURN)
    asked = [(len(request.pairs), request.explain_s > 0.0) for request in wanted[:4]]
    assert asked == [(2, False), (4, True), (2, False), (4, False)]


@pytest.mark.parametrize(("requests", "explained"), [(BOTH, [True]), (IN_TURN, [False])])
def test_after_its_time_nothing_else_is_tried(
    wanted: list[RouteRequest],
    monkeypatch: pytest.MonkeyPatch,
    requests: list[CircuitRequest],
    explained: list[bool],
) -> None:
    monkeypatch.setattr(planner, "_ALTERNATIVES_S", 0.0)
    refused(requests)
    assert [request.explain_s > 0.0 for request in wanted] == explained
