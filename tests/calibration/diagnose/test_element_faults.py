"""Messages about elements: they name it with its channel, what was seen, what still works and what to do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibration.diagnose.element_faults import (
    defects_from_fit,
    heater_breakdown_defect,
    mark_unseen_pucs,
    merge_dead_ports,
    miswiring_defects,
    stuck_puc_defect,
    without_duplicates,
)
from calibration.diagnose.miswiring import EXCHANGED, SHARED, Miswiring
from calibration.model.parameters import MeshParameters
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.layout.rectangular import RectangularMesh
from lumion_hw.mesh.record.calibration_record import Defect
from tests.calibration.simulated_mesh import SimulatedMesh

SMALL = HexMesh.columns((2, 3, 2))
CHANNELS = tuple(range(100, 100 + 2 * SMALL.n_pucs))


@pytest.fixture
def healthy() -> MeshParameters:
    return SimulatedMesh.draw(SMALL, 8).parameters()


def _found(parameters: MeshParameters) -> list[Defect]:
    covariance = np.diag(np.full(SMALL.n_pucs, 1e-6))
    return list(defects_from_fit(parameters, covariance, slice(0, SMALL.n_pucs), CHANNELS, 2.5, SMALL))


def test_nothing_is_said_of_a_healthy_mesh(healthy: MeshParameters) -> None:
    assert _found(healthy) == []


def test_a_stuck_puc_has_a_coupling_with_its_error(healthy: MeshParameters) -> None:
    laws, passive = healthy.heater_law.copy(), healthy.passive_phase_rad.copy()
    laws[[6, 7]], passive[3] = 0.0, np.pi / 2.0
    balanced = np.zeros(SMALL.n_pucs)
    (found,) = _found(
        replace(
            healthy,
            heater_law=laws,
            passive_phase_rad=passive,
            coupler_common_rad=balanced,
            coupler_difference_rad=balanced,
        )
    )
    assert (found.kind, found.number, found.usable_states) == ("stuck PUC", 3, ())
    assert found.coupling == pytest.approx(0.5)  # k = cos²(α/2)
    assert found.coupling_sigma == pytest.approx(0.5e-3)  # dk/dα = sin α / 2, and α is known to 1 mrad
    assert "channels 106 and 107" in found.evidence
    assert "routes must avoid it" in found.evidence


@pytest.mark.parametrize(("coupling", "states"), [(0.004, ("bar",)), (0.995, ("cross",)), (0.03, ())])
def test_a_stuck_puc_may_be_used_in_the_state_it_is_in(coupling: float, states: tuple[str, ...]) -> None:
    assert stuck_puc_defect(3, CHANNELS, coupling, 1e-4).usable_states == states


def test_a_heater_of_less_than_a_fringe_is_weak_and_its_couplings_are_stated(healthy: MeshParameters) -> None:
    laws = healthy.heater_law.copy()
    laws[9] = (0.6, 0.0, 0.0)  # 0.6 · 6.25 = 3.75 rad
    (found,) = _found(replace(healthy, heater_law=laws))
    assert (found.kind, found.number) == ("weak heater", 9)
    assert "PUC 4 lower heater (channel 109): it reaches a phase of 1.19π at 2.5 mA" in found.evidence
    assert "the other arm sets all couplings" in found.evidence


def test_couplers_off_balance_are_named_with_what_can_be_set(healthy: MeshParameters) -> None:
    common = healthy.coupler_common_rad.copy()
    common[2] = 0.15
    (found,) = _found(replace(healthy, coupler_common_rad=common))
    assert (found.kind, found.number) == ("couplers off balance", 2)
    assert "to 0.913" in found.evidence  # cos² 0.3


def test_exchanged_channels_are_both_named() -> None:
    one, other = miswiring_defects(Miswiring(EXCHANGED, 3, 8), CHANNELS)
    assert one.evidence.startswith("channels 103 and 108 appear to be exchanged")
    assert (one.number, other.number) == (3, 8)
    assert "PUC 4 upper heater (channel 108)" in one.evidence


def test_a_shared_channel_is_one_defect_that_names_both_heaters() -> None:
    (found,) = miswiring_defects(Miswiring(SHARED, 8, 3), CHANNELS)
    assert (found.kind, found.element, found.number) == ("shared channel", "heater", 8)
    assert found.evidence.startswith(
        "channel 108 heats two heaters, PUC 4 upper heater (channel 108) and PUC 1 lower heater (channel 103): they "
        "share its current, and channel 103 has no effect"
    )


def test_a_heater_that_died_says_when() -> None:
    assert "random setting 12 of 300" in heater_breakdown_defect(5, CHANNELS, 12, 300).evidence
    assert "no effect in 300 random settings" in heater_breakdown_defect(5, CHANNELS, 0, 300).evidence


def test_a_port_that_is_dark_both_ways_is_one_fault() -> None:
    defects = [
        Defect("dead source", "source", 6),
        Defect("dead monitor", "monitor", 6),
        Defect("dead monitor", "monitor", 7),
    ]
    assert [(found.kind, found.number) for found in merge_dead_ports(defects)] == [
        ("dead monitor", 7),
        ("dead port", 6),
    ]


def test_each_fault_is_named_once_and_a_stuck_puc_stands_for_its_heaters() -> None:
    stuck, heater = Defect("stuck PUC", "puc", 3), Defect("dead heater", "heater", 7)
    assert without_duplicates([stuck, heater, Defect("stuck PUC", "puc", 3, "again")]) == (stuck,)


def test_a_puc_that_no_light_passes_is_not_seen_rather_than_broken() -> None:
    """Its heaters show no effect because nothing of it shows: the wires are not to blame."""
    dead = Defect("dead heater", "heater", 11, "no effect")
    other = Defect("dead heater", "heater", 12, "no effect")
    mesh = HexMesh.columns((2, 3, 2))
    defects = (stuck_puc_defect(5, range(30)), dead, other)
    kept, unseen = mark_unseen_pucs(defects, (5,), range(30), mesh, mesh.fibre_ports, mesh.fibre_ports)
    assert kept == other
    assert (unseen.kind, unseen.element, unseen.number) == ("unseen PUC", "puc", 5)
    assert "could be measured" in unseen.evidence
    assert "wire" not in unseen.evidence


@pytest.mark.parametrize(
    ("sources", "monitors", "text"),
    [
        ((0,), (4, 5, 6, 7), "gets no light from your inputs, so neither"),
        ((0,), (4, 5, 6, 7), "Add an input at port 2 or 3"),
        ((0, 1, 2, 3), (4,), "Add a monitor or meter at port 5, 6 or 7"),
        ((0,), (1,), "is on no path from your inputs to your monitors"),
    ],
)
def test_the_ports_that_would_show_an_unseen_puc_are_named(
    sources: tuple[int, ...], monitors: tuple[int, ...], text: str
) -> None:
    """In a mesh of 4 waveguides PUC 1 joins waveguides 2 and 3 on the left, PUC 4 on the right."""
    puc = 4 if monitors == (4,) else 1
    (unseen,) = mark_unseen_pucs((), (puc,), range(12), RectangularMesh.from_ports(4), sources, monitors)
    assert text in unseen.evidence
