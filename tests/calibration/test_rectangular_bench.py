"""A rectangular mesh is calibrated by the same procedure as a hexagonal one, without a word about its topology."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from calibration.model.gauge import loop_basis, signed_incidence
from lumion_hw.bench.bench import Bench
from lumion_hw.mesh import RectangularMesh
from tests.calibration.bench_run import Calibrated, calibrated_bench

RECTANGULAR = Path(__file__).parents[1] / "data" / "rectangular.yaml"


@pytest.fixture(scope="module")
def found() -> Iterator[Calibrated]:
    """The bench of six ports on each side, light from ports 0, 2 and 4, calibrated."""
    with Bench.emulate(RECTANGULAR, seed=3) as bench:
        yield calibrated_bench(bench, 3)


@pytest.mark.parametrize("ports", [3, 4, 6, 7])
def test_its_loops_are_what_powers_show_of_a_unitary(ports: int) -> None:
    """(N - 1)² parameters of a unitary show in powers; N (N - 1) / 2 are the couplings, the rest are loops."""
    mesh = RectangularMesh.from_ports(ports)
    loops = loop_basis(mesh)
    assert len(loops) == (ports - 1) ** 2 - ports * (ports - 1) // 2
    assert not (loops @ signed_incidence(mesh)).any()


@pytest.mark.campaign
def test_phases_and_states_are_found_as_on_a_hexagonal_mesh(found: Calibrated) -> None:
    """Within 3 mrad, the tolerance of the small hexagonal bench; every state the couplers allow reaches 30 dB."""
    assert found.record.complete
    assert found.record.mesh == RectangularMesh.from_ports(6)
    assert np.sqrt((found.report.phase_error_rad**2).mean()) < 0.003
    assert found.report.shortfalls() == 0
    assert found.record.quality["held_out_excess_db"] < 0.1


@pytest.mark.long
def test_monitors_that_no_source_can_reach_are_no_fault(found: Calibrated) -> None:
    """Light from the left never comes back to the left: monitors 0 to 5 are dark on every sound chip."""
    assert found.record.faults == ()


@pytest.mark.campaign
@pytest.mark.parametrize("seed", [1, 2, 4, 5, 6])
def test_other_chips_are_calibrated_as_well(seed: int) -> None:
    with Bench.emulate(RECTANGULAR, seed=seed) as bench:
        done = calibrated_bench(bench, seed)
        assert np.sqrt((done.report.phase_error_rad**2).mean()) < 0.003
        assert done.report.shortfalls() == 0
        assert done.record.faults == ()
