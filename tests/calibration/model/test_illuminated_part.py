"""What light passes on its way to a monitor, by hand on small meshes; the rest is no part of a calibration."""

from __future__ import annotations

import numpy as np

from calibration.model.gauge import has_visible_phase, illuminated_joint_directions, visible_joint_directions
from calibration.model.illuminated_part import illuminated_part
from calibration.model.priors import FREE_GROUPS
from calibration.model.space import ParameterSpace
from lumion_hw.mesh.layout.topologies import build_mesh
from lumion_hw.mesh.layout.topology import MeshTopology

FOUR = build_mesh("rectangular", (4,))  # PUCs 0 and 1, then 2, then 3 and 4, then 5
ALL = tuple(range(8))


def joints_of(mesh: MeshTopology, puc: int) -> np.ndarray:
    return np.flatnonzero((mesh.joints // 4 == puc).any(axis=1))


def test_light_from_the_upper_input_passes_all_but_the_lower_puc_of_the_first_column() -> None:
    lit = illuminated_part(FOUR, (0,), ALL)
    assert np.flatnonzero(~lit.pucs).tolist() == [1]
    assert np.flatnonzero(~lit.joints).tolist() == joints_of(FOUR, 1).tolist()


def test_a_puc_whose_light_no_monitor_sees_is_dark_too() -> None:
    # From port 4, the upper end, only PUC 3, 2, 0 and what feeds them count; PUCs 4 and 5 lead to ports 5 to 7.
    lit = illuminated_part(FOUR, (0, 1, 2, 3), (4,))
    assert np.flatnonzero(~lit.pucs).tolist() == [4, 5]


def test_a_mesh_lit_at_all_ports_has_the_directions_that_records_have_always_had() -> None:
    directions, count = illuminated_joint_directions(FOUR, (0, 1, 2, 3), (4, 5, 6, 7))
    assert count == directions.shape[1] == 3
    np.testing.assert_array_equal(directions, visible_joint_directions(FOUR))


def test_of_three_loops_the_one_through_the_dark_puc_is_no_parameter() -> None:
    directions, count = illuminated_joint_directions(FOUR, (0,), ALL)
    assert (count, directions.shape[1]) == (2, 3)
    np.testing.assert_allclose(directions.T @ directions, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(directions[joints_of(FOUR, 1), :count], 0.0, atol=1e-12)
    space = ParameterSpace(FOUR, (0,), ALL)
    free = space.free(FREE_GROUPS)
    assert free[space.group("loops")].tolist() == [True, True, False]
    assert free[space.group("passive_phase_rad")].tolist() == [True, False, True, True, True, True]
    assert free[space.group("rho2")].reshape(-1, 2).all(axis=1).tolist() == [True, False, True, True, True, True]


def test_heaters_in_the_dark_stay_off() -> None:
    assert np.flatnonzero(~has_visible_phase(FOUR, (0,), ALL)).tolist() == [2, 3]
    clements = build_mesh("clements", (4,))
    lit = has_visible_phase(clements)
    assert not (has_visible_phase(clements, (0,), tuple(range(clements.n_ports))) & ~lit).any()
