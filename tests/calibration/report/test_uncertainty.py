"""Standard errors of a report, from the covariance of a record."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibration.model.space import ParameterSpace
from calibration.record.conversion import build_record
from calibration.report.uncertainty import loop_factor
from lumion_hw.mesh.layout.topologies import build_mesh
from tests.calibration import one_cell
from tests.calibration.simulated_mesh import SimulatedMesh


def joint_factor(name: str, ports: int, sigma_rad: float) -> np.ndarray:
    """Return the loop factor of a record whose visible loops are all known equally well."""
    mesh = build_mesh(name, (ports,))
    space = ParameterSpace(mesh, tuple(range(ports)), tuple(range(ports, 2 * ports)))
    covariance = np.zeros((space.size, space.size))
    loops = np.arange(space.size)[space.groups["loops"]][: space.n_illuminated_loops]
    covariance[loops, loops] = sigma_rad**2
    origin = replace(one_cell.ORIGIN, heater_channels=tuple(range(2 * mesh.n_pucs)))
    factor = loop_factor(build_record(space, SimulatedMesh.draw(mesh, 1).parameters(), origin, covariance))
    assert factor is not None
    return factor / np.sqrt(len(loops))


def test_loops_whose_paths_have_equally_many_pucs_keep_their_error() -> None:
    """A phase common to all PUCs turns no loop of a Benes switch, so that nothing is removed."""
    assert np.sqrt((joint_factor("benes", 4, 1e-3) ** 2).sum()) == pytest.approx(1e-3, rel=1e-4)


def test_a_single_loop_that_the_common_phase_turns_has_no_other_error() -> None:
    assert not joint_factor("clements", 3, 1e-3).any()
