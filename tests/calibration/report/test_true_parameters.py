"""What calibrations are judged by: the hidden truth in the terms of a fit, and what is no error but a gauge."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from scipy.special import chdtri

from benchmarks.goals import GOALS, judge
from calibration.measure.bench_probe import BenchProbe
from calibration.model.priors import default_prior
from calibration.model.space import space_from_record
from calibration.record.conversion import parameters_from_record
from calibration.report.hidden_truth import (
    own_phase_rad,
    reference_offset_hz,
    true_laws,
    true_parameters,
)
from calibration.report.truth_errors import phase_errors, project_out_common_phase
from lumion_hw.bench.bench import Bench
from lumion_hw.mesh.programming.calibrated_mesh import CalibratedMesh
from lumion_hw.mesh.record.calibration_record import CalibrationRecord
from tests.calibration.bench_run import SMALL, Calibrated
from tests.recorded_calibration import SEED


def test_a_tied_mean_leaves_differences_as_unknown_as_they_were(recorded: Calibrated) -> None:
    space = space_from_record(recorded.record)
    prior = default_prior(space, parameters_from_record(recorded.record)).anchored("source_detuning_hz", space, 1e5)
    free = space.mask(("source_detuning_hz",))
    covariance, n = np.linalg.inv(prior.information(free).toarray()), int(free.sum())
    # Independent 12 GHz each, and their mean measured to 100 kHz: 1/var = n/σ² + 1/σ_mean².
    assert np.isclose(covariance.sum() / n**2, 1.0 / (n / 12e9**2 + 1.0 / 1e5**2), rtol=1e-6)
    assert np.isclose(covariance[0, 0] + covariance[1, 1] - 2.0 * covariance[0, 1], 2.0 * 12e9**2, rtol=1e-6)


def test_modules_are_found_as_far_apart_as_they_are_and_their_mean_is_the_reference(
    recorded: Calibrated,
) -> None:
    bench, record = recorded.bench, recorded.record
    found = {entry.port: entry.source_detuning_hz for entry in record.ports if entry.source_detuning_hz is not None}
    assert abs(np.mean(list(found.values()))) < 1e6
    world = bench.emulated.world
    offset_hz = reference_offset_hz(bench, record)
    for chain, path in zip(world.chains, world.wiring.inputs, strict=True):
        true_hz = chain.frequency_hz - world.slopes.reference_hz
        assert abs(true_hz - offset_hz - found[path.port]) < 0.02e9  # 1.4 mrad per PUC


def test_a_module_that_is_exactly_on_the_reference_counts_like_the_others() -> None:
    """Of three modules at -2, 0 and +5 GHz, found -1, 0 and +1 GHz off: the mean of -1, 0 and +4 GHz is 1 GHz."""
    paths = [SimpleNamespace(port=port) for port in (1, 2, 3)]
    chains = [SimpleNamespace(frequency_hz=193.1e12 + off_hz) for off_hz in (-2e9, 0.0, 5e9)]
    slopes, wiring = SimpleNamespace(reference_hz=193.1e12), SimpleNamespace(inputs=paths)
    bench = SimpleNamespace(
        emulated=SimpleNamespace(world=SimpleNamespace(slopes=slopes, wiring=wiring, chains=chains))
    )

    def record(*detuning_hz: float | None) -> CalibrationRecord:
        ports = [
            SimpleNamespace(port=path.port, source_detuning_hz=own_hz)
            for path, own_hz in zip(paths, detuning_hz, strict=True)
        ]
        return cast(CalibrationRecord, SimpleNamespace(ports=ports))

    assert reference_offset_hz(cast(Bench, bench), record(-1e9, 0.0, 1e9)) == pytest.approx(1e9)
    assert reference_offset_hz(cast(Bench, bench), record(-1e9, None, 1e9)) == pytest.approx(1.5e9)
    # Frequencies that are not fitted: the chip was measured at the mean of -2, 0 and +5 GHz.
    assert reference_offset_hz(cast(Bench, bench), record(0.0, 0.0, 0.0)) == pytest.approx(1e9)
    assert reference_offset_hz(cast(Bench, bench), record(None, None, None)) == 0.0


def test_three_terms_are_the_true_law_to_a_tenth_of_a_milliradian(recorded: Calibrated) -> None:
    bench, reach_ma = recorded.bench, CalibratedMesh.from_record(recorded.record).max_ma
    laws = true_laws(bench, reach_ma)
    for share in (0.1, 0.5, 1.0):
        square = (share * reach_ma**2)[:, None] ** [1, 2, 3]
        assert np.abs((laws * square).sum(axis=1) - own_phase_rad(bench, np.sqrt(share) * reach_ma)).max() < 1e-4


def test_a_phase_common_to_all_pucs_is_no_error_of_loops(recorded: Calibrated) -> None:
    space = space_from_record(recorded.record)
    common = space.directions.T @ np.full(len(space.mesh.joints), 0.1)
    assert np.abs(project_out_common_phase(space) @ common).max() < 1e-12


def test_phases_of_the_small_bench_are_off_by_what_is_stated(recorded: Calibrated) -> None:
    bench, record = recorded.bench, recorded.record
    normalised, figures = phase_errors(bench, record, true_parameters(bench, record))
    assert figures["passive_mrad"] < 1.0
    assert figures["loops_mrad"] < 1.0
    for name in ("passive_phase_rad", "loops"):
        found = normalised[name]  # 15 PUCs, and 7 loops: one draw in 5000 is farther off
        assert chdtri(len(found), 1.0 - 1e-4) < (found**2).sum() < chdtri(len(found), 1e-4)


@pytest.mark.long
def test_a_mesh_without_room_for_four_modes_is_judged_by_all_else(recorded: Calibrated) -> None:
    with Bench.emulate(SMALL, seed=SEED) as bench:
        probe = BenchProbe(bench)
        probe.align_all()
        lit = np.flatnonzero(recorded.observations.source >= 0)
        judged = judge(bench, probe, recorded.record, recorded.observations[lit], SEED)
    assert {goal.figure for goal in GOALS} - set(judged.figures) == {"fidelity"}
    assert judged.figures["passive_mrad"] < 1.0
