from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from solver_probe import MAX_MA, RHO2, RHO4, SolverProbe, wrapped

from calibration.knowledge import Knowledge
from calibration.planning import Planner
from calibration.probe import NoiseModel
from calibration.wavefront import Wavefront, _combine
from lumion_hw.mesh.topology import HexMesh

MESH = HexMesh.columns([2])
NOISE = NoiseModel(0.005, 2e-5)
RANGE = (1.41, 2.88)


def swept(probe: SolverProbe, known: Knowledge | None = None, seed: int = 0) -> tuple[Knowledge, list[int]]:
    """Run the wavefront; return what was found and the order in which it was."""
    known = known or Knowledge(probe.mesh, MAX_MA)
    done: list[int] = []
    planner = Planner(probe.mesh, probe.sources, probe.monitors)
    Wavefront(probe, planner, known, NOISE, RANGE, np.random.default_rng(seed)).run(done.append)
    return known, done


def noisy_probe(seed: int) -> SolverProbe:
    return SolverProbe(MESH, (1, 6, 11), seed=seed, noise_relative=NOISE.relative, noise_floor_ma=NOISE.floor_ma)


# The whole wavefront -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1])
def test_every_puc_gets_its_two_laws_and_the_right_branch_of_its_passive_phase(seed: int) -> None:
    probe = noisy_probe(seed)
    known, done = swept(probe)
    assert sorted(done) == sorted(known.pucs) == list(range(MESH.n_pucs))
    assert known.stuck == {}
    # The first one needs no other: it has the end of a source's fibre on one side and a monitor on the other.
    assert done[0] in {int(MESH.port_puc_port[port]) // 4 for port in probe.sources}
    found = np.array([known.pucs[puc].passive_rad for puc in range(MESH.n_pucs)])
    sigma = np.array([known.pucs[puc].sigma_rad for puc in range(MESH.n_pucs)])
    error = wrapped(found - probe.passive_rad)
    assert np.abs(error).max() < 0.6  # bar is never taken for cross, and refinement can do the rest
    assert sigma.max() < 0.2
    assert np.sqrt(np.mean((error / sigma) ** 2)) < 2.0
    for heater in range(2 * MESH.n_pucs):
        law = known.law(heater // 2, heater % 2)
        assert law is not None
        for square in (0.5, 1.5, 3.0):
            assert law.phase_rad(math.sqrt(square)) == pytest.approx(RHO2 * square + RHO4 * square**2, abs=0.08)


def test_a_dead_heater_is_told_from_a_living_one() -> None:
    probe = noisy_probe(2)
    probe.alive[8] = 0.0
    known, _ = swept(probe)
    assert known.law(4, 0) is None
    assert known.law(4, 1) is not None
    assert abs(wrapped(known.pucs[4].passive_rad - float(probe.passive_rad[4]))) < 0.6


def test_a_puc_with_two_dead_heaters_is_given_up_and_the_others_are_found_round_it() -> None:
    probe = noisy_probe(3)
    probe.alive[[14, 15]] = 0.0
    known, done = swept(probe)
    assert known.stuck == {7: "neither heater has any effect on the light"}
    assert sorted(known.pucs) == [puc for puc in range(MESH.n_pucs) if puc != 7]
    assert 7 in done
    error = [abs(wrapped(known.pucs[puc].passive_rad - float(probe.passive_rad[puc]))) for puc in known.pucs]
    assert max(error) < 0.6


def test_a_mesh_that_nobody_looks_at_is_given_up_with_the_reason() -> None:
    known, done = swept(SolverProbe(MESH, (1,), monitors=()))
    assert set(known.stuck) == set(range(MESH.n_pucs))
    assert set(known.stuck.values()) == {"no light reaches it from a live source on its way to a live monitor"}
    assert done == []


class Shuttered(SolverProbe):
    """Dark for a number of settings."""

    dark_until = 0

    def measure(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        readings = super().measure(currents_ma)
        return readings if len(self.settings) > self.dark_until else np.zeros_like(readings)


def test_heaters_that_show_nothing_get_another_chance_before_they_are_called_dead() -> None:
    probe = Shuttered(MESH, (1, 6, 11), noise_relative=0.005, noise_floor_ma=2e-5)
    known = probe.knowledge(pucs=[puc for puc in range(MESH.n_pucs) if puc != 4])
    probe.dark_until = 2 * 2 * 24
    swept(probe, known)
    assert 4 in known.pucs
    assert known.law(4, 0) is not None
    assert known.law(4, 1) is not None


class Blinded(SolverProbe):
    """All monitors saturate after a number of settings."""

    blind_after = 10**9

    def measure(self, currents_ma: NDArray[np.float64]) -> NDArray[np.float64]:
        readings = super().measure(currents_ma)
        return np.full_like(readings, np.nan) if len(self.settings) > self.blind_after else readings


def test_a_puc_whose_fringe_no_monitor_shows_is_not_called_known() -> None:
    probe = Blinded(MESH, (1, 6, 11), noise_relative=0.005, noise_floor_ma=2e-5)
    known = probe.knowledge(pucs=[puc for puc in range(MESH.n_pucs) if puc != 4])
    probe.blind_after = 2 * 2 * 24  # two heaters, two backgrounds, 24 points each: both laws are found
    swept(probe, known)
    assert known.stuck == {4: "no monitor shows its fringe"}
    assert 4 not in known.pucs
    assert known.law(4, 0) is not None


# Many detectors, one phase -------------------------------------------------------------------------------------------


def ideal_swings(passive_rad: float, per_bar_share: NDArray[np.float64], backgrounds: int) -> NDArray[np.complex128]:
    """Return swings without strays: power A + D·sin²((ψ + α)/2) is A' - D/2·cos(ψ + α)."""
    return np.tile(-per_bar_share / 2 * np.exp(1j * passive_rad), (backgrounds, 1))


SENSITIVITY = np.array([0.8, -0.5, 0.05, 0.0, -0.02])


@pytest.mark.parametrize("passive_rad", [-3.1, -1.0, 0.0, 0.4, 2.9])
def test_detectors_of_both_signs_agree_on_the_phase(passive_rad: float) -> None:
    estimate = _combine(ideal_swings(passive_rad, SENSITIVITY, 16), SENSITIVITY, 1e-6)
    assert estimate.passive_rad == pytest.approx(passive_rad, abs=1e-9)
    assert estimate.sigma_rad < 1e-6


def test_a_detector_seen_with_the_wrong_sign_would_give_the_other_state() -> None:
    estimate = _combine(ideal_swings(0.4, SENSITIVITY, 16), -SENSITIVITY, 1e-6)
    assert abs(estimate.passive_rad) == pytest.approx(math.pi - 0.4, abs=1e-9)


def test_a_saturated_detector_is_left_out() -> None:
    swings = ideal_swings(0.7, SENSITIVITY, 16)
    swings[:, 1] = 5.0
    swings[3, 1] = np.nan
    assert _combine(swings, SENSITIVITY, 1e-6).passive_rad == pytest.approx(0.7, abs=1e-9)


def test_restless_detectors_count_less() -> None:
    rng = np.random.default_rng(0)
    swings = ideal_swings(0.7, SENSITIVITY, 64)
    swings[:, 1] = 20.0 * (rng.standard_normal(64) + 1j * rng.standard_normal(64)) + 3.0
    assert _combine(swings, SENSITIVITY, 0.01).passive_rad == pytest.approx(0.7, abs=0.02)


def test_the_standard_error_is_that_of_the_scatter() -> None:
    rng = np.random.default_rng(1)
    found, stated = [], []
    for _ in range(300):
        strays = 0.3 * (rng.standard_normal((32, 5)) + 1j * rng.standard_normal((32, 5)))
        estimate = _combine(ideal_swings(1.1, SENSITIVITY, 32) + strays, SENSITIVITY, 1e-6)
        found.append(estimate.passive_rad)
        stated.append(estimate.sigma_rad)
    error = np.asarray(found) - 1.1
    assert abs(error.mean()) < 4 * error.std() / math.sqrt(300)
    assert error.std() == pytest.approx(np.mean(stated), rel=0.2)


@pytest.mark.parametrize(
    ("swings", "expected"),
    [
        (np.zeros((16, 5), dtype=complex), SENSITIVITY),
        (np.full((16, 5), np.nan, dtype=complex), SENSITIVITY),
        (ideal_swings(0.3, SENSITIVITY, 16), np.zeros(5)),
    ],
    ids=["dark", "all saturated", "nothing expected"],
)
def test_without_evidence_there_is_no_phase(swings: NDArray[np.complex128], expected: NDArray[np.float64]) -> None:
    assert _combine(swings, expected, 1e-6).sigma_rad == math.inf
