"""Updates for pages: first the whole state, then all changes since the last received state."""

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from benchmarks.page import Publisher
from lumion_hw.fabric import FabricAlarm, Span
from lumion_hw.serving.history import MAX_INTERVALS
from lumion_hw.serving.page.updates import PageUpdates, margin_curves, to_json
from lumion_hw.serving.state import MarginSample, Point, ServedEvent, ServedLease, ServedState
from tests.effort import examples
from tests.serving.page_states import HOSTILE, NOW_S, a_fabric, a_joined_status, a_state


def told(updates: PageUpdates, since: int = 0) -> dict:
    return json.loads("{" + updates.message(since) + "}")


@pytest.fixture
def updates() -> PageUpdates:
    made = PageUpdates({"devices": [], "writes": False})
    made.update(a_state(1))
    return made


def test_the_states_of_the_benchmark_are_those_of_an_owner() -> None:
    """A benchmark with states that pages cannot show measures nothing."""
    updates = PageUpdates({"devices": [], "writes": False})
    updates.update(Publisher().state)
    parts = told(updates)["parts"]
    assert (len(parts["points"]), len(parts["circuits"])) == (184, 6)


def test_a_new_page_is_told_everything(updates) -> None:
    document = told(updates)
    assert document["number"] == 1
    assert document["time_s"] == NOW_S + 1
    parts = document["parts"]
    assert parts["points"]["sfp-a.rx_power_dbm"] == [-6.5, NOW_S, 0, ""]
    assert parts["points"]["sfp-c.rx_power_dbm"] == [-7.0, NOW_S - 9, 3, "no answer"]
    assert parts["point_kinds"]["mesh0.heater_ma.0"] == ["mA", [0.0, 2.5], True, [], "number"]
    assert parts["mesh"]["states"] == {"0": "bar", "2": "cross", "3": "bar"}
    assert (parts["mesh"]["parked"], parts["mesh"]["dead"]) == ([3], [5])
    assert parts["paths"][0]["power_dbm"] == [3.0, 2.5, None]
    assert [each["name"] for each in parts["circuits"]] == ["sfp-a:sfp-b", "sfp-b:sfp-a"]
    assert parts["circuits"][0]["ends_s"] == NOW_S + 1 + 30
    assert parts["recovery"]["spans"][1] == ["programmed", 20.0, 1.0, 25.0, "measured"]
    assert parts["job"]["residuals"] == {"held_out_db": 0.14}
    assert parts["headline"] == [
        2,
        "Calibrating for ada: sweeps, 3 of 12; 1 of 2 circuits up, margin 9.5 dB at "
        "sfp-a:sfp-b; sfp-b:sfp-a broken: no light; sfp-c does not answer",
    ]
    assert parts["circuits"][0]["min_margin_db"] == 0.0
    assert parts["lease"]["owner"] == "ada"
    assert parts["health"]["silent"] == {"sfp-c": [NOW_S - 9, "no answer"]}


def test_a_page_that_has_seen_a_state_is_told_what_changed_after_it(updates) -> None:
    first = a_state(1)
    reading = Point("sfp-a.rx_power_dbm", -6.75, "dBm", time_s=NOW_S + 1)
    updates.update(dataclasses.replace(first, number=2, points={**first.points, reading.name: reading}))
    assert told(updates, 1)["parts"] == {"points": {"sfp-a.rx_power_dbm": [-6.75, NOW_S + 1, 0, ""]}}
    assert told(updates, 2)["parts"] == {}


def test_that_only_time_has_passed_is_not_sent(updates) -> None:
    first = a_state(1)
    older = tuple(
        dataclasses.replace(each, age_s=each.age_s + 1.0, lease_left_s=each.lease_left_s and 29.0)
        for each in first.circuits
    )
    lease = dataclasses.replace(first.lease, age_s=2.0, left_s=8.0)
    updates.update(dataclasses.replace(first, number=2, time_s=first.time_s + 1.0, circuits=older, lease=lease))
    assert told(updates, 1)["parts"] == {}


def test_what_is_no_number_is_none_and_what_is_markup_stays_text(updates) -> None:
    text = updates.message(0)
    assert "<" not in text
    assert told(updates)["parts"]["points"]["mesh0.heaters_ma"][0] == [1.5, None]
    assert told(updates)["parts"]["events"][0][3] == f"Ada started the job {HOSTILE}."
    assert json.loads(to_json({"x": "</script>"})) == {"x": "</script>"}


def test_a_point_that_is_gone_is_told_to_be_gone(updates) -> None:
    first = a_state(1)
    rest = {name: point for name, point in first.points.items() if name != "meter0.power.1"}
    updates.update(dataclasses.replace(first, number=2, points=rest))
    assert told(updates, 1)["parts"] == {"points": {"meter0.power.1": None}}


def test_each_event_is_sent_once(updates) -> None:
    first = a_state(1)
    events = (*first.events, ServedEvent(2, NOW_S + 1, "set", {"value": math.nan}))
    updates.update(dataclasses.replace(first, number=2, events=events))
    assert told(updates, 1)["parts"] == {"events": [[2, NOW_S + 1, "set", "Set: value nan.", 0]]}
    assert [each[0] for each in told(updates)["parts"]["events"]] == [1, 2]
    updates.update(dataclasses.replace(first, number=3, events=events[1:]))
    assert [each[0] for each in told(updates)["parts"]["events"]] == [2], (
        "one that fell out of the log is kept for ever"
    )


def test_the_last_polarization_search_of_a_controller_is_sent(updates) -> None:
    first = a_state(1)
    searches = (
        ServedEvent(2, NOW_S + 1, "aligned", {"controller": "pol-a", "remaining_loss_db": 0.02}),
        ServedEvent(3, NOW_S + 2, "aligned", {"controller": "pol-b", "remaining_loss_db": 0.03}),
        ServedEvent(4, NOW_S + 3, "not aligned", {"controller": "pol-b", "reason": "no light"}),
    )
    updates.update(dataclasses.replace(first, number=2, events=(*first.events, *searches)))
    alignments = told(updates, 1)["parts"]["alignments"]
    assert alignments == {"pol-a": [NOW_S + 1, True, 0.02], "pol-b": [NOW_S + 3, False, None]}


def test_margins_of_a_time_range_come_with_all_their_samples() -> None:
    history = [MarginSample(2.0 * index, {"a:b": float(index % 7)}) for index in range(3600)]
    curves = margin_curves(history, 1000.0, 1100.0)
    assert curves["time_s"] == [1000.0 + 2.0 * step for step in range(51)]
    assert curves["margin_db"]["a:b"] == [float((500 + step) % 7) for step in range(51)]


def test_the_picture_is_another_one_only_when_something_on_it_is(updates) -> None:
    first = a_state(1)
    assert first.mesh is not None
    warmer = dataclasses.replace(first.mesh, heat_mw=(9.0, *first.mesh.heat_mw[1:]))
    updates.update(dataclasses.replace(first, number=2, mesh=warmer))
    before = told(updates)["parts"]["mesh"]["picture"]
    updates.update(dataclasses.replace(first, number=3, mesh=dataclasses.replace(warmer, states={0: "cross"})))
    assert told(updates, 2)["parts"]["mesh"]["picture"] == before + 1
    assert told(updates, 1)["parts"]["mesh"]["heat_mw"][0] == 9.0


VALUES = st.one_of(st.none(), st.booleans(), st.floats(), st.text(max_size=4))


@st.composite
def histories(draw: st.DrawFn) -> list[ServedState]:
    """Return a sequence of states in which points and all other parts appear, change and disappear."""
    found, n_events = [], 0
    for number in range(1, draw(st.integers(2, 8)) + 1):
        names = draw(st.sets(st.sampled_from("abcd")))
        points = {name: Point(name, draw(VALUES), time_s=float(number)) for name in sorted(names)}
        n_events += draw(st.integers(0, 2))
        events = tuple(ServedEvent(each, NOW_S, "e", {}) for each in range(max(1, n_events - 3), n_events + 1))
        lease = ServedLease(draw(st.sampled_from(["", "ada", "bob"])))
        whole = a_state(number)
        mesh = draw(st.sampled_from([whole.mesh, None]))
        found.append(
            dataclasses.replace(
                whole,
                points=points,
                events=events,
                lease=lease,
                mesh=mesh,
                job=draw(st.sampled_from([whole.job, None])),
            )
        )
    return found


def merged(known: dict, parts: dict) -> None:
    """Merge parts as the page does."""
    for name, part in parts.items():
        if name in ("points", "point_kinds"):
            place = known.setdefault(name, {})
            place.update(part)
            for gone in [key for key, value in place.items() if value is None]:
                del place[gone]
        elif name == "events":
            known["events"] = known.get("events", []) + part
        else:
            known[name] = part


@examples(50)
@given(history=histories(), seen=st.sets(st.integers(1, 8)))
def test_a_page_knows_the_same_whatever_it_has_missed(history, seen) -> None:
    updates, patient, hasty, last = PageUpdates({}), {}, {}, 0
    for state in history:
        updates.update(state)
        merged(patient, told(updates, state.number - 1)["parts"])
        if state.number in seen or state is history[-1]:
            merged(hasty, told(updates, last)["parts"])
            last = state.number
    patient.pop("events", None), hasty.pop("events", None)  # a page that missed many has the newest alone
    assert hasty == patient
    assert set(hasty.get("points", {})) == set(history[-1].points)


def test_curves_show_the_least_of_each_stretch_and_where_there_was_no_light() -> None:
    history = [MarginSample(float(second), {"a:b": 9.0, "b:a": 5.0}) for second in range(3600)]
    history[1234] = MarginSample(1234.0, {"a:b": 2.5, "b:a": None})
    curves = margin_curves(history)
    assert len(curves["time_s"]) <= MAX_INTERVALS
    assert min(curves["margin_db"]["a:b"]) == 2.5
    assert curves["margin_db"]["b:a"].count(None) == 1
    assert curves["time_s"][-1] == 3599.0
    assert margin_curves([]) == {"time_s": [], "margin_db": {}}


def test_a_circuit_that_came_later_has_no_margin_before() -> None:
    curves = margin_curves([MarginSample(1.0, {"a:b": 9.0}), MarginSample(2.0, {"a:b": 9.0, "b:a": 5.0})])
    assert curves["margin_db"] == {"a:b": [9.0, 9.0], "b:a": [None, 5.0]}


def test_spans_and_arrays_of_numpy_are_told_as_plain_numbers() -> None:
    updates = PageUpdates({})
    first = a_state(1)
    job = dataclasses.replace(first.job, result={"loss": np.float64(1.25), "ways": (np.int64(3), {4})})
    recovery = dataclasses.replace(first.recovery, spans=(Span("detected", 1.0, 0.1, 1.0, "emulated: <b>"),))
    updates.update(dataclasses.replace(first, job=job, fabric=a_fabric(recovery=recovery)))
    assert told(updates)["parts"]["job"]["result"] == {"loss": 1.25, "ways": [3, [4]]}
    assert told(updates)["parts"]["recovery"]["spans"][0][4] == "emulated: <b>"


def test_joined_meshes_are_sent_once_and_then_only_their_changes(updates) -> None:
    assert told(updates)["parts"]["joined"] is None
    updates.update(a_state(2, joined=a_joined_status("rack0:sfp-a:rack1:sfp-b")))
    joined = told(updates, 1)["parts"]["joined"]
    assert joined["benches"] == [["rack0", 2, ""], ["rack1", 2, ""], ["spine", 2, ""]]
    assert joined["circuits"] == [
        ["rack0:sfp-a:rack1:sfp-b", None, 2, "bench spine has no segment from port0"],
        ["rack1:sfp-b:rack0:sfp-a", 7.5, 0, ""],
    ]
    assert (joined["change"], joined["changed_s"]) == ("connect 2 circuits (racks-1-abc): kept", NOW_S - 55.0)
    assert [alarm["severity"] for alarm in joined["alarms"]] == [2]
    updates.update(a_state(3, joined=a_joined_status("rack0:sfp-a:rack1:sfp-b")))
    assert "joined" not in told(updates, 2)["parts"]


def test_the_fabric_is_sent_with_short_reasons_and_numbers_of_severity(updates) -> None:
    alarm = FabricAlarm("minor", "spare c", "cold", "no path from port 3 to port 4. Set move_price.")
    updates.update(a_state(2, fabric=a_fabric(alarms=(alarm,), severity="minor")))
    fabric = told(updates, 1)["parts"]["fabric"]
    assert fabric["alarms"] == [
        {"severity": 1, "subject": "spare c", "condition": "cold", "reason": "no path from port 3 to port 4"}
    ]
    assert fabric["units"][0]["replacements"] == ["b"]
    assert told(updates, 1)["parts"]["headline"][1].endswith(
        "spare c cold: no path from port 3 to port 4; sfp-c does not answer"
    )


def test_when_a_circuit_was_measured_is_told_to_the_second(updates) -> None:
    circuits = tuple(dataclasses.replace(each, seen_s=NOW_S + 1234.5) for each in a_state().circuits)
    updates.update(a_state(2, circuits=circuits))
    assert {each["seen_s"] for each in told(updates)["parts"]["circuits"]} == {NOW_S + 1234.5}
