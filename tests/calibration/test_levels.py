from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from solver_probe import SolverProbe, every_port

from calibration.knowledge import Knowledge
from calibration.levels import SETTINGS_PER_SOURCE, Levels, LossSurvey
from lumion_hw.mesh.topology import HexMesh, State

MESH = HexMesh.columns([2])
SOURCES = (1, 6, 11)
FLOOR_MA = 1e-6


def paper_probe(seed: int = 0) -> SolverProbe:
    """Return a noiseless mesh: inputs lose 6 to 8 dB, three outputs have meters behind 6.5 to 7.5 dB."""
    probe = SolverProbe(MESH, SOURCES, seed=seed)
    probe.input_db[list(SOURCES)] = (6.0, 7.1, 8.0)
    probe.output_db = {3: 6.5, 8: 7.0, 13: 7.5}
    return probe


def surveyed(probe: SolverProbe, known: Knowledge | None = None, nominal: float = 1.0, seed: int = 0) -> Levels:
    survey = LossSurvey(
        probe, known or probe.knowledge(), probe.sources, FLOOR_MA, nominal, np.random.default_rng(seed)
    )
    return survey.run(lambda _source: None)


def path_errors_db(probe: SolverProbe, levels: Levels, seed: int = 7) -> NDArray[np.float64]:
    """Return predicted minus true photocurrent in dB over random paths between lit ports."""
    rng, errors = np.random.default_rng(seed), []
    for _ in range(120):
        bar = rng.random(MESH.n_pucs) < 0.5
        states: dict[int, State] = {puc: "bar" if bar[puc] else "cross" for puc in range(MESH.n_pucs)}
        source = int(rng.choice(SOURCES))
        trace = MESH.trace(source, states)
        if trace.port not in levels.monitor_ma_per_mw:
            continue
        found = levels.input_loss[source].value_db + sum(levels.puc_loss[puc].value_db for puc in trace.pucs)
        found -= 10 * np.log10(levels.monitor_ma_per_mw[trace.port])
        true = probe.input_db[source] + probe.loss_db[list(trace.pucs)].sum()
        true -= 10 * np.log10(probe.ma_per_mw[trace.port])
        errors.append(found - true)
    return np.array(errors)


# Noiseless -----------------------------------------------------------------------------------------------------------


def test_a_mesh_that_is_as_the_priors_say_is_found_exactly() -> None:
    levels = surveyed(paper_probe())
    assert [loss.value_db for loss in levels.puc_loss] == pytest.approx([0.5] * MESH.n_pucs, abs=1e-4)
    assert {port: loss.value_db for port, loss in levels.input_loss.items()} == pytest.approx(
        {1: 6.0, 6: 7.1, 11: 8.0}, abs=1e-4
    )
    assert {port: loss.value_db for port, loss in levels.output_loss.items()} == pytest.approx(
        {3: 6.5, 8: 7.0, 13: 7.5}, abs=1e-4
    )
    assert list(levels.monitor_ma_per_mw.values()) == pytest.approx([1.0] * len(levels.monitor_ma_per_mw), abs=1e-4)
    assert levels.residual_db < 1e-3


def test_path_losses_come_out_even_where_single_losses_are_held_by_priors() -> None:
    probe, rng = paper_probe(), np.random.default_rng(5)
    probe.loss_db += 0.03 * rng.standard_normal(MESH.n_pucs)
    probe.ma_per_mw *= 1 + 0.03 * rng.standard_normal(MESH.n_ports)
    levels = surveyed(probe)
    assert np.sqrt(np.mean(path_errors_db(probe, levels) ** 2)) < 0.06
    assert levels.residual_db < 0.05
    for losses, truth in (
        (levels.puc_loss, probe.loss_db),
        ([levels.input_loss[port] for port in SOURCES], probe.input_db[list(SOURCES)]),
        ([levels.output_loss[port] for port in (3, 8, 13)], np.array([6.5, 7.0, 7.5])),
    ):
        error = np.array([loss.value_db for loss in losses]) - truth
        sigma = np.array([loss.sigma_db for loss in losses])
        assert np.sqrt(np.mean((error / sigma) ** 2)) < 2.0


def test_no_loss_is_stated_better_than_measured_nor_worse_than_assumed() -> None:
    levels = surveyed(paper_probe())
    puc_sigma = np.array([loss.sigma_db for loss in levels.puc_loss])
    # The prior alone says 0.03 dB; 150 readings of 0.25 dB shared by 15 PUCs cannot give much better than 0.01 dB.
    assert puc_sigma.max() <= 0.03 + 1e-9
    assert puc_sigma.min() > 0.005
    # Inputs are known up to the scale of the monitors, 0.15 dB each.
    assert all(0.02 < loss.sigma_db < 0.15 for loss in levels.input_loss.values())


def test_a_common_scale_of_all_monitors_cannot_be_told_from_the_inputs() -> None:
    # The gauge: monitors that all read 10 % low look like 0.46 dB more loss at every input, and are reported as that.
    probe = paper_probe()
    probe.ma_per_mw *= 0.9
    levels, plain = surveyed(probe), surveyed(paper_probe())
    for port in SOURCES:
        moved = levels.input_loss[port].value_db - plain.input_loss[port].value_db
        assert moved == pytest.approx(-10 * np.log10(0.9), abs=0.01)
    assert np.abs(path_errors_db(probe, levels)).max() < 0.01


def test_one_monitor_with_another_scale_is_told_from_the_others() -> None:
    probe = paper_probe()
    probe.ma_per_mw[8] = 0.93  # -0.32 dB, two standard deviations of the prior, which draws it back half-way
    scales = surveyed(probe).monitor_ma_per_mw
    assert min(scales, key=scales.__getitem__) == 8
    assert 0.92 < scales[8] < 0.98


def test_losses_count_from_the_nominal_responsivity() -> None:
    probe = paper_probe()
    probe.ma_per_mw *= 0.85
    levels = surveyed(probe, nominal=0.85)
    assert levels.input_loss[6].value_db == pytest.approx(7.1, abs=1e-3)
    assert levels.monitor_ma_per_mw[8] == pytest.approx(0.85, abs=1e-3)


def test_light_that_goes_astray_now_and_then_hardly_moves_the_losses() -> None:
    # A coupler off balance sends light past the path; most readings are still right, and the fit listens to those.
    probe = paper_probe()
    known = probe.knowledge()
    passive = known.pucs[9].passive_rad + 0.9  # costs 10·log10(cos²(0.45)) = 0.9 dB where PUC 9 is passed
    known.pucs[9] = type(known.pucs[9])(passive, 0.01)
    levels = surveyed(probe, known)
    others = [levels.puc_loss[puc].value_db for puc in range(MESH.n_pucs) if puc != 9]
    assert np.abs(np.array(others) - 0.5).max() < 0.03


# What takes no part --------------------------------------------------------------------------------------------------


def test_paths_through_a_stuck_puc_take_no_part() -> None:
    probe = paper_probe()
    known = probe.knowledge(pucs=[puc for puc in range(MESH.n_pucs) if puc != 7])
    known.stuck[7] = "neither heater has any effect on the light"
    levels = surveyed(probe, known)
    assert levels.puc_loss[7].value_db == pytest.approx(0.5, abs=1e-9)
    assert levels.puc_loss[7].sigma_db == pytest.approx(0.03, abs=1e-6)  # nothing was learnt of it
    assert np.abs(np.array([loss.value_db for loss in levels.puc_loss]) - 0.5).max() < 1e-3


class Blind(SolverProbe):
    """One monitor is always saturated, another one dead."""

    def measure(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        readings = super().measure(currents_ma)
        readings[self.monitors.index(3)], readings[self.monitors.index(13)] = np.nan, 0.0
        return readings


def test_saturated_and_dead_monitors_take_no_part() -> None:
    probe = Blind(MESH, SOURCES)
    probe.output_db = {3: 6.5, 8: 7.0}
    levels = surveyed(probe)
    assert 8 in levels.monitor_ma_per_mw
    assert not {3, 13} & set(levels.monitor_ma_per_mw)
    assert set(levels.output_loss) == {8}
    assert levels.residual_db < 1e-3


def test_a_port_without_a_meter_has_no_output_loss() -> None:
    probe = paper_probe()
    del probe.output_db[13]
    assert set(surveyed(probe).output_loss) == {3, 8}


def test_every_source_is_told_and_used() -> None:
    probe, told = paper_probe(), []
    survey = LossSurvey(probe, probe.knowledge(), SOURCES, FLOOR_MA, 1.0, np.random.default_rng(0))
    levels = survey.run(told.append)
    assert told == list(SOURCES)
    assert set(levels.input_loss) == set(SOURCES)
    assert len(probe.settings) == SETTINGS_PER_SOURCE * len(SOURCES)
    # One reading per setting on the chip, and one more in the fibre where there is a meter.
    assert len(probe.settings) < levels.n_readings < 2 * len(probe.settings)


def test_a_mesh_in_the_dark_keeps_its_priors() -> None:
    probe = SolverProbe(MESH, SOURCES, every_port(MESH))
    probe.input_db[:] = 200.0
    levels = surveyed(probe)
    assert levels.n_readings == 0
    assert levels.residual_db == 0.0
    assert [loss.value_db for loss in levels.puc_loss] == pytest.approx([0.5] * MESH.n_pucs)
