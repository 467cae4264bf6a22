"""Maintenance of circuits: polarizations tracked, drift corrected, and faults distinguished."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from lumion_hw.circuits import CircuitRequest, read_state
from lumion_hw.circuits.fault_location import LightReading, LocatedFault, locate_fault
from lumion_hw.circuits.maintenance import CircuitMaintenance
from lumion_hw.circuits.phase_trim import DITHER_RAD
from lumion_hw.circuits.service import CircuitService
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.storage import load_record, save_record
from tests.circuits.lasting_bench import LastingBench

AB, BA = CircuitRequest("sfp-a", "sfp-b"), CircuitRequest("sfp-b", "sfp-a")


@pytest.fixture
def held(tmp_path: Path) -> Iterator[tuple[LastingBench, CircuitService, CircuitMaintenance]]:
    """Two circuits on their own bench, maintained for a few seconds, so their healthy state is known."""
    bench = LastingBench(tmp_path)
    with bench.service() as service:
        service.setup.bench.events.write_to(tmp_path / "events.jsonl")
        service.connect([AB, BA])
        maintenance = CircuitMaintenance(service, reads_per_s=4.0)
        maintenance.run(3.0)
        yield bench, service, maintenance


def events(service: CircuitService, name: str) -> list[dict[str, object]]:
    lines = service.journal.path.parent.with_name("events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == name]


def test_circuits_that_are_well_keep_their_light_within_the_budget_of_readings(held) -> None:
    _, service, maintenance = held
    before = maintenance.summary()["reads"]
    maintenance.run(10.0)
    assert maintenance.summary()["reads"] - before <= 4.0 * (10.0 + 1.0)  # it ends with a reading
    assert all(health.worst_db < 0.3 for health in maintenance.health)
    assert all(health.marks == () for health in maintenance.health)
    assert events(service, "alarm") == []
    (first, _) = read_state(service.journal.path.parent)[0].circuits
    assert first.proof["margin_db"] == pytest.approx(maintenance.health[0].proof.margin_db, abs=1e-3)


BREAKS: dict[str, tuple[Callable[[LastingBench, CircuitMaintenance], None], str]] = {
    "dead transmitter": (lambda bench, _: bench.emulated.faults.kill_modules(["sfp-a"]), "transmitter"),
    "fading fibre": (lambda bench, _: bench.emulated.faults.drift_power(1, lambda _: -15.0), "fibre before the mesh"),
    "broken fibre": (lambda bench, _: bench.emulated.faults.kill_port(8), "fibre behind the mesh"),
    "open heaters": (
        lambda bench, maintenance: [
            bench.emulated.faults.stick_heater(_driven_puc(bench, maintenance), arm, 0.0) for arm in (0, 1)
        ],
        "path",
    ),
}


def _driven_puc(bench: LastingBench, maintenance: CircuitMaintenance) -> int:
    """The PUC on the path of only the first circuit that is heated most."""
    (first, second) = maintenance.circuits
    own = [puc for puc in first.path.pucs if puc not in second.path.pucs]
    known = CalibratedMesh.from_record(maintenance.record)
    phase = np.abs(np.subtract(*known.own_rad(bench.driven_ma()).reshape(-1, 2).T))
    # Nearest to half a turn, so that the open heater sends the light elsewhere.
    return min(own, key=lambda puc: abs(phase[puc] % (2 * math.pi) - math.pi))


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=[pytest.mark.long] if "fibre" in what else []) for what in BREAKS]
)
def test_breaks_are_told_apart_and_the_other_circuit_goes_on(held, what: str) -> None:
    bench, service, maintenance = held
    act, place = BREAKS[what]
    act(bench, maintenance)
    maintenance.run(4.0)
    first, second = maintenance.health
    assert first.fault is not None
    assert first.fault.place == place
    assert first.marks[0].startswith(f"broken: {place}: ")
    (alarm,) = [each for each in events(service, "alarm") if each["circuit"] == "sfp-a:sfp-b"]
    assert alarm["place"] == place
    noted = read_state(service.journal.path.parent)[0].circuit("sfp-a:sfp-b")
    assert noted.marks == first.marks
    if what != "dead transmitter":  # the dead module is the other's receiver
        assert second.fault is None
        assert second.lost_db is not None
        assert second.lost_db < 0.3


def test_a_fibre_that_somebody_moved_is_searched_and_the_alarm_is_over(held) -> None:
    bench, service, maintenance = held
    bench.emulated.faults.turn_polarization("sfp-a")
    maintenance.run(10.0)
    assert maintenance.health[0].fault is None
    assert maintenance.health[0].searches == 1
    assert maintenance.health[0].lost_db < 0.3
    assert len(events(service, "alarm over")) == len(events(service, "alarm"))


def test_a_phase_that_has_drifted_is_set_right_by_light_in_service_and_the_record_renewed(held, tmp_path) -> None:
    bench, service, maintenance = held
    truth, puc = bench.emulated.world.truth, maintenance.circuits[0].path.pucs[2]
    truth.passive_phase[puc] += 0.45  # 10 lg cos²(0.225) = -0.22 dB
    bench.emulated.world.disturb()
    maintenance.run(5.0)
    assert maintenance.drifted_rad == {puc: pytest.approx(0.45, abs=0.03)}
    assert all(health.lost_db < 0.15 for health in maintenance.health)
    was, now = (
        service.setup.record.pucs[puc].passive_phase_rad,
        maintenance.record_with_drift().pucs[puc].passive_phase_rad,
    )
    assert math.remainder(now - was, math.tau) == pytest.approx(0.45, abs=0.03)
    save_record(maintenance.record_with_drift(), tmp_path / "renewed.json")
    child = load_record(tmp_path / "renewed.json")
    assert child.parent_sha256 == service.setup.record.content_sha256
    assert child.pucs[puc].passive_phase_sigma_rad == pytest.approx(0.012)
    assert (child.covariance, child.raw) == (None, None)  # of other readings
    assert maintenance.health[0].worst_db < 1.0  # never a dark moment
    state = read_state(service.journal.path.parent)[0]
    assert np.allclose(state.currents_ma, service.setup.bench.mesh.confirmed_currents_ma())
    assert service.restore().verdict.value == "as left"


@pytest.mark.long
def test_leases_end_while_circuits_are_held(held) -> None:
    _, service, _ = held
    service.disconnect(["sfp-b:sfp-a"])
    service.connect([CircuitRequest("sfp-b", "sfp-a", lease_s=5.0)], align=False)
    maintenance = CircuitMaintenance(service, reads_per_s=4.0)
    maintenance.run(8.0)
    assert [health.name for health in maintenance.health] == ["sfp-a:sfp-b"]
    assert len(read_state(service.journal.path.parent)[0].circuits) == 1


def test_the_dither_costs_what_is_said_of_it() -> None:
    assert -20.0 * math.log10(math.cos(DITHER_RAD / 2)) == pytest.approx(0.043, abs=1e-3)


WELL = LightReading(0.0, -20.0, False, {1: 0.001, 3: 0.002, 8: 1.0})


@pytest.mark.parametrize(
    ("now", "place"),
    [
        (LightReading(0.0, -22.0, False, {1: 0.0006, 3: 0.0012, 8: 0.63}), None),
        (LightReading(None, None, True, {1: 0.0, 3: 0.0, 8: 0.0}), "transmitter"),
        (LightReading(-9.0, -29.0, True, {1: 0.0, 3: 0.0, 8: 0.1}), "transmitter"),
        (LightReading(0.0, -20.0, True, {1: 0.001, 3: 0.002, 8: 1.0}), "receiver"),
        (LightReading(0.0, None, True, {1: 0.001, 3: 0.002, 8: 1.0}), "fibre behind the mesh"),
        (LightReading(0.0, None, True, {1: 0.0, 3: 0.0, 8: 0.0}), "fibre before the mesh"),
        (LightReading(0.0, -30.0, True, {1: 0.0001, 3: 0.0002, 8: 0.1}), "fibre before the mesh"),
        (LightReading(0.0, -30.0, True, {1: 0.9, 3: 0.0002, 8: 0.1}), "path"),
        (
            LightReading(0.0, -30.0, True, {1: 0.0001, 3: 0.002, 8: 0.1}),
            "path",
        ),  # stray light that disappears before it counts
        (LightReading(0.0, -30.0, True, {}), "before the tap"),
    ],
)
def test_where_the_light_is_lost_follows_from_what_is_seen(now: LightReading, place: str | None) -> None:
    found = locate_fault(WELL, now, 8, frozenset({1, 3, 8}))
    assert (None if found is None else found.place) == place
    assert found is None or isinstance(found, LocatedFault)
