from __future__ import annotations

import itertools
from collections.abc import Collection

import pytest

from calibration.planning import Planner, View
from lumion_hw.mesh.topology import HexMesh

SMALL = HexMesh.columns([2])
SMARTLIGHT = HexMesh.smartlight()
KNOWN_DB, UNKNOWN_DB = 0.5, 4.0


def cost_db(view: View, known: Collection[int]) -> float:
    return sum(KNOWN_DB if puc in known else UNKNOWN_DB for puc in view.states)


@pytest.mark.parametrize("known", [(), (0, 1, 2, 9), tuple(range(15))], ids=["none", "some", "all"])
def test_every_view_is_a_way_that_light_takes(known: tuple[int, ...]) -> None:
    views = list(Planner(SMALL, (1, 6, 11), SMALL.fibre_ports).views(range(SMALL.n_pucs), known))
    assert len(views) > 100
    for view in views:
        trace = SMALL.trace(view.source, {**view.states, view.puc: view.output})
        assert trace.port == view.monitor
        assert trace.pucs.count(view.puc) == 1
        assert set(trace.pucs) == {view.puc, *view.states}


def test_the_other_output_leads_elsewhere() -> None:
    # So the named monitor sees a fringe: bright in one state, dark in the other.
    for view in itertools.islice(Planner(SMALL, (1, 6), SMALL.fibre_ports).views(range(15), range(15)), 200):
        states = dict.fromkeys(range(15), "cross") | view.states
        other = "cross" if view.output == "bar" else "bar"
        assert SMALL.trace(view.source, {**states, view.puc: other}).port != view.monitor


@pytest.mark.parametrize("known", [(), tuple(range(0, 72, 2)), tuple(range(72))], ids=["none", "half", "all"])
def test_the_cheapest_view_comes_first(known: tuple[int, ...]) -> None:
    planner = Planner(SMARTLIGHT, (1, 5), SMARTLIGHT.fibre_ports)
    views = list(itertools.islice(planner.views(range(72), known), 400))
    costs = [view.cost_db for view in views]
    assert costs == sorted(costs)
    # A PUC passed twice on the way is paid twice, but never less than once.
    for view in views:
        assert view.cost_db >= cost_db(view, known) - 1e-9


def test_light_goes_through_known_pucs_rather_than_fewer_unknown_ones() -> None:
    # Eight known PUCs cost 4 dB, as much as a single unknown one.
    planner = Planner(SMALL, (1,), SMALL.fibre_ports)
    for target in range(15):
        others = [puc for puc in range(15) if puc != target]
        view = next(planner.views({target}, others))
        assert view.cost_db <= next(planner.views({target}, ())).cost_db
        assert view.cost_db == pytest.approx(KNOWN_DB * len(view.states))


def test_a_rim_puc_between_a_source_and_a_monitor_needs_nobody_else() -> None:
    # Ports 3 and 4 of the SmartLight layout are the two ends of PUC 15's outer rail: bar, one hop.
    view = next(Planner(SMARTLIGHT, (3,), (4,)).views({15}, ()))
    assert (view.puc, view.output, view.states, view.cost_db) == (15, "bar", {}, 0.0)


def test_only_live_sources_and_monitors_are_used_and_never_the_source_itself() -> None:
    views = list(Planner(SMALL, (1, 6), (1, 8, 13)).views(range(15), range(15)))
    assert {view.source for view in views} <= {1, 6}
    assert {view.monitor for view in views} <= {1, 8, 13}
    assert all(view.source != view.monitor for view in views)
    assert list(Planner(SMARTLIGHT, (1,), (1,)).views(range(72), range(72))) == []


def test_only_targets_are_looked_at() -> None:
    assert {view.puc for view in Planner(SMALL, (1,), SMALL.fibre_ports).views({3, 7}, range(15))} == {3, 7}


def test_each_output_of_every_puc_can_be_seen_once_all_are_known_unless_it_ends_in_the_dark() -> None:
    # Sources of the prototype bench. The bottom rim has neither fibres nor photodiodes: ports 23/24, 27/28 and 31/32
    # are the two ends of the outer rails of PUCs 56, 37 and 18, so what these send there in cross is never seen.
    planner = Planner(SMARTLIGHT, (12, 20, 5, 37, 2, 1, 7, 35), SMARTLIGHT.fibre_ports)
    for puc in range(72):
        outputs = {view.output for view in planner.views({puc}, range(72))}
        assert outputs == ({"bar"} if puc in (18, 37, 56) else {"bar", "cross"}), f"PUC {puc}"


def test_without_a_monitor_nothing_can_be_seen() -> None:
    assert list(Planner(SMALL, (1,), ()).views(range(15), range(15))) == []
