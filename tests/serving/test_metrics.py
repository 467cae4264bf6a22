"""Metrics: names and values, no unknown values, and a dashboard that uses only existing metrics."""

import dataclasses
import json
import re
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lumion_hw.serving.metrics import BenchMetrics, dashboard_path
from lumion_hw.serving.state import AlarmSeverity, Point, ServedState
from tests.serving.page_states import HOSTILE, NOW_S, a_joined_status, a_state

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def measured(state: ServedState) -> Samples:
    pages = SimpleNamespace(n_pages=3, missed=17)
    text, kind = BenchMetrics(SimpleNamespace(state=state), pages).text()
    assert kind.startswith("text/plain")
    families = text_string_to_metric_families(text.decode())
    return {(each.name, frozenset(each.labels.items())): each.value for family in families for each in family.samples}


def one(samples: Samples, metric: str, /, **labels: str) -> float:
    found = [
        value for (known, given), value in samples.items() if known == metric and labels.items() <= dict(given).items()
    ]
    assert len(found) == 1, f"{metric} {labels}: {found}"
    return found[0]


@pytest.fixture(scope="module")
def samples() -> Samples:
    return measured(a_state(42))


def test_readings_keep_the_unit_of_their_device(samples) -> None:
    assert one(samples, "lumion_reading", name="meter0.power.1", device="meter0", unit="W") == 2.5e-5
    assert one(samples, "lumion_reading", name="sfp-a.enabled", unit="") == 1.0


def test_what_is_not_known_is_left_out(samples) -> None:
    named = {dict(labels).get("name") for name, labels in samples if name == "lumion_reading"}
    assert "sfp-b.rx_power_dbm" not in named, "dark is no number"
    assert "sfp-c.rx_power_dbm" not in named, "an old value is none"
    assert one(samples, "lumion_alarm_severity", name="sfp-c.rx_power_dbm") == 3.0
    hops = sorted(dict(labels)["hop"] for name, labels in samples if name == "lumion_path_power_dbm")
    assert hops == ["0", "1"]


def test_circuits_that_nobody_measures_have_no_numbers() -> None:
    circuits = tuple(dataclasses.replace(each, unseen="mesh0 is silent") for each in a_state().circuits)
    samples = measured(a_state(42, circuits=circuits))
    of_light = ("lumion_circuit_margin_db", "lumion_circuit_lost_db", "lumion_circuit_proof")
    assert not [name for name, _ in samples if name in of_light]
    ups = {dict(labels)["circuit"]: up for (name, labels), up in samples.items() if name == "lumion_circuit_up"}
    assert ups == {"sfp-b:sfp-a": 0.0}, "that one is broken is known"


def test_circuits_mesh_jobs_and_recovery_are_counted(samples) -> None:
    assert one(samples, "lumion_circuit_margin_db", circuit="sfp-a:sfp-b") == 9.5
    assert one(samples, "lumion_circuit_up", circuit="sfp-b:sfp-a") == 0.0
    assert ("lumion_circuit_margin_db", frozenset({("circuit", "sfp-b:sfp-a")})) not in samples, (
        "a dark one has no margin"
    )
    assert one(samples, "lumion_circuit_proof", circuit="sfp-a:sfp-b", quantity="received_dbm") == -6.25
    counts = {state: one(samples, "lumion_pucs", state=state) for state in ("bar", "cross", "parked", "dead", "none")}
    assert counts == {"bar": 1.0, "cross": 1.0, "parked": 1.0, "dead": 1.0, "none": 11.0}
    assert one(samples, "lumion_puc_heat_watts", puc="0") == pytest.approx(2.25e-3)
    assert one(samples, "lumion_recovery_span_seconds", span="programmed") == pytest.approx(0.02)
    assert one(samples, "lumion_job_progress_ratio", what="calibrate") == 0.25
    assert one(samples, "lumion_device_silence_seconds", device="sfp-c") == 42.0 + 9.0
    assert one(samples, "lumion_device_silence_seconds", device="sfp-a") == 0.0
    assert one(samples, "lumion_states_total") == 42.0
    assert one(samples, "lumion_pages") == 3.0
    assert one(samples, "lumion_page_states_missed_total") == 17.0


def test_circuits_over_several_meshes_are_counted() -> None:
    lost, up = "rack0:sfp-a:rack1:sfp-b", "rack1:sfp-b:rack0:sfp-a"
    samples = measured(a_state(1, joined=a_joined_status(lost, unreachable="rack1")))
    assert one(samples, "lumion_joined_severity") == 2.0
    assert [one(samples, "lumion_joined_bench_up", bench=name) for name in ("rack0", "rack1")] == [1.0, 0.0]
    assert [one(samples, "lumion_joined_circuit_up", circuit=name) for name in (up, lost)] == [1.0, 0.0]
    assert one(samples, "lumion_joined_circuit_margin_db", circuit=up) == 7.5
    assert ("lumion_joined_circuit_margin_db", frozenset({("circuit", lost)})) not in samples
    assert one(samples, "lumion_joined_time_seconds") == NOW_S


def test_a_bench_of_which_little_is_known_has_few_metrics_and_no_error() -> None:
    state = dataclasses.replace(a_state(1), points={}, mesh=None, circuits=(), events=(), fabric=None, job=None)
    samples = measured(state)
    assert one(samples, "lumion_bench_info", bench="small") == 1.0
    assert not [
        name
        for name, _ in samples
        if name.startswith(("lumion_circuit", "lumion_reading", "lumion_recovery", "lumion_fabric"))
    ]


def test_names_are_labels_and_never_lines_of_their_own() -> None:
    name = f'{HOSTILE}"\n\\ 1'
    point = Point(name, 1.0, "W", time_s=NOW_S, severity=AlarmSeverity.NONE)
    samples = measured(a_state(1, points={name: point}))
    assert one(samples, "lumion_reading", name=name) == 1.0


# -- the dashboard -----------------------------------------------------------------------------------------------------

DASHBOARD = json.loads(dashboard_path().read_text(encoding="utf-8"))
TARGETS = [target for panel in DASHBOARD["panels"] for target in panel["targets"]]
_METRIC = re.compile(r"\b((?:lumion|process)_[a-z_]+)\b")


def test_every_metric_and_label_that_the_dashboard_asks_for_exists(samples) -> None:
    labels: dict[str, set[str]] = {}
    for name, given in samples:
        labels.setdefault(name, set()).update(dict(given))
    asked = {name for target in TARGETS for name in _METRIC.findall(target["expr"])}
    assert len(asked) > 20
    assert sorted(asked - set(labels)) == []
    for target in TARGETS:
        known = {"instance"}.union(*(labels[name] for name in _METRIC.findall(target["expr"])))
        shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        chosen = set(re.findall(r"[{,](\w+)=", target["expr"]))
        assert shown | chosen <= known, target["expr"]


def test_every_metric_of_the_bench_is_on_the_dashboard_or_is_told_by_another(samples) -> None:
    asked = {name for target in TARGETS for name in _METRIC.findall(target["expr"])}
    asked |= set(_METRIC.findall(json.dumps(DASHBOARD["annotations"])))
    rest = {name for name, _ in samples if name.startswith("lumion_")} - asked
    assert rest == {
        "lumion_start_time_seconds",
        "lumion_circuit_age_seconds",
        "lumion_circuit_lease_seconds",
        "lumion_keeping_trouble",
        "lumion_controller_faults",
    }


def test_the_first_recovery_is_an_annotation_too() -> None:
    asked = [each["expr"] for each in DASHBOARD["annotations"]["list"] if "lumion_recovery" in each.get("expr", "")]
    # There is no value before it, so nothing has changed: seen with Prometheus 2.42.
    assert asked
    assert not [expr for expr in asked if re.search(r"\b(changes|delta|increase|rate)\(", expr)]


def test_the_panels_of_the_dashboard_lie_beside_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
