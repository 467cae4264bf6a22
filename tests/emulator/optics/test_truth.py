from __future__ import annotations

import numpy as np
import pytest

from lumion_hw.emulator.optics.physics_parameters import PhysicsParameters
from lumion_hw.emulator.optics.truth import (
    ChainTruth,
    MeshTruth,
    draw_chains,
    draw_mesh,
    random_unitary,
)
from lumion_hw.interfaces.wiring import InputPath, Wiring
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.waves.cell import coupling_floors

MESH = HexMesh.columns([7, 8, 7, 8, 7, 8, 7])
"""Return a mesh of about 250 PUCs, enough to measure a spread."""
WIRING = Wiring(tuple(InputPath(f"m{i}", i, f"pol{i}", 0.5, 9.0) for i in range(400)), ())


@pytest.fixture(scope="module")
def truth() -> MeshTruth:
    return draw_mesh(MESH, PhysicsParameters(), np.random.default_rng(1))


@pytest.fixture(scope="module")
def chains() -> list[ChainTruth]:
    return draw_chains(WIRING, 1550.0, PhysicsParameters(), np.random.default_rng(2))


def uniform_on_a_turn(angles: np.ndarray) -> bool:
    """Return whether the first two circular moments of angles are uniform within four standard errors."""
    return all(abs(np.exp(1j * k * angles).mean()) < 4 / np.sqrt(len(angles)) for k in (1, 2))


def test_the_fabrication_state_is_random(truth: MeshTruth) -> None:
    assert uniform_on_a_turn(truth.passive_phase)
    assert uniform_on_a_turn(truth.joint_phase)
    assert (len(truth.passive_phase), len(truth.joint_phase)) == (MESH.n_pucs, len(MESH.joints))


def test_a_bench_for_teaching_starts_with_all_phases_zero() -> None:
    plain = draw_mesh(MESH, PhysicsParameters(random_passive_phases=False), np.random.default_rng(1))
    assert not plain.passive_phase.any()
    assert not plain.joint_phase.any()


def test_heaters_spread_as_published(truth: MeshTruth) -> None:
    # 1.2 / 1.34 / 2.0 mW per π, min / typical / max: the mean of a triangular distribution is a third of their sum.
    assert truth.p_pi_mw.min() >= 1.2
    assert truth.p_pi_mw.max() <= 2.0
    assert truth.p_pi_mw.mean() == pytest.approx((1.2 + 1.34 + 2.0) / 3, abs=0.03)
    assert truth.heater_ohm.mean() == pytest.approx(1000.0, abs=5.0)
    assert truth.heater_ohm.std() == pytest.approx(30.0, rel=0.15)
    assert len(truth.p_pi_mw) == 2 * MESH.n_pucs


def test_losses_stay_in_the_published_range(truth: MeshTruth) -> None:
    # 0.46 / 0.50 / 0.55 dB per PUC; the spread of 0.03 dB is cut at twice that.
    assert truth.loss_db.mean() == pytest.approx(0.5, abs=0.01)
    assert truth.loss_db.min() >= 0.44 - 1e-12
    assert truth.loss_db.max() <= 0.56 + 1e-12
    assert np.abs(truth.access_loss_db - 6.85).max() <= 2.5 + 1e-12


def test_couplers_give_the_published_extinction(truth: MeshTruth) -> None:
    # Sánchez-Jácome 2025: 0.011 rms common to both couplers leaves 4·0.011² (33 dB), 0.0063 rad between them
    # 0.0063² (44 dB).
    floors = coupling_floors(truth.eta_in, truth.eta_out)
    assert 10 * np.log10(floors.cross_leak.mean()) == pytest.approx(10 * np.log10(4 * 0.011**2), abs=1.0)
    assert 10 * np.log10(floors.bar_leak.mean()) == pytest.approx(10 * np.log10(0.0063**2), abs=1.0)
    for eta in (truth.eta_in, truth.eta_out):
        assert eta.mean() == pytest.approx(0.5, abs=0.003)
        assert eta.std() == pytest.approx(0.0114, rel=0.2)  # √(0.011² + 0.0032²)


def test_the_couplers_of_a_puc_err_together(truth: MeshTruth) -> None:
    assert np.corrcoef(truth.eta_in, truth.eta_out)[0, 1] > 0.7


def test_no_heater_is_stuck_at_first(truth: MeshTruth) -> None:
    assert truth.stuck_current_ma == {}
    assert truth.heater_power_mw(np.zeros(2 * MESH.n_pucs)).max() == 0.0


def test_a_stuck_heater_heats_with_its_own_current() -> None:
    truth = draw_mesh(HexMesh.columns([1]), PhysicsParameters(), np.random.default_rng(0))
    truth.stuck_current_ma[3] = 1.0
    asked = np.full(20, 0.5)
    power = truth.heater_power_mw(asked)
    ohm, gamma = truth.heater_ohm[3] * 1e-3, truth.nonlinearity_per_mw[3]
    assert power[3] == pytest.approx(ohm / (1 - gamma * ohm), rel=1e-12)
    assert asked[3] == 0.5  # the caller's table is not changed


def test_modules_sit_near_their_nominal_wavelength(chains: list[ChainTruth]) -> None:
    wavelength_nm = 299_792_458.0 / np.array([chain.frequency_hz for chain in chains]) * 1e9
    assert wavelength_nm.mean() == pytest.approx(1550.0, abs=0.01)
    assert wavelength_nm.std() == pytest.approx(0.05, rel=0.15)


def test_light_arrives_in_a_uniformly_random_polarization(chains: list[ChainTruth]) -> None:
    fields = np.array([chain.fibre_out @ chain.fibre_in @ chain.launch for chain in chains])
    np.testing.assert_allclose(np.linalg.norm(fields, axis=1), 1.0, rtol=1e-12)
    te = np.sort(np.abs(fields[:, 0]) ** 2)
    # Uniform on 0 … 1: the largest distance of the ranks stays below 1.63/√n in 99 of 100 draws (Kolmogorov).
    assert np.abs(te - (np.arange(len(te)) + 0.5) / len(te)).max() < 1.63 / np.sqrt(len(te))


def test_squeezers_turn_full_circle_within_their_range(chains: list[ChainTruth]) -> None:
    periods = np.array([chain.squeezer_period_mv for chain in chains])
    assert periods.min() >= 3200.0
    assert periods.max() <= 4200.0
    assert periods.mean() == pytest.approx(3700.0, abs=4 * 289 / np.sqrt(periods.size))
    assert uniform_on_a_turn(np.array([chain.squeezer_offset_rad for chain in chains]).ravel())


def test_random_fibres_are_unitary_and_favour_no_direction() -> None:
    rng = np.random.default_rng(0)
    drawn = np.array([random_unitary(rng) for _ in range(2000)])
    np.testing.assert_allclose(
        drawn @ drawn.conj().transpose(0, 2, 1), np.broadcast_to(np.eye(2), drawn.shape), atol=1e-12
    )
    # Haar measure on 2x2: every |u|² is uniform on 0 … 1, and no element has a mean phase.
    assert (np.abs(drawn) ** 2).mean(axis=0) == pytest.approx(np.full((2, 2), 0.5), abs=4 * 0.289 / np.sqrt(2000))
    assert (np.abs(drawn) ** 4).mean(axis=0) == pytest.approx(np.full((2, 2), 1 / 3), abs=0.03)
    assert np.abs(drawn.mean(axis=0)).max() < 4 / np.sqrt(2000)


def test_the_same_seed_draws_the_same_truth() -> None:
    one, same, other = (draw_mesh(MESH, PhysicsParameters(), np.random.default_rng(seed)) for seed in (5, 5, 6))
    for name in ("loss_db", "eta_in", "eta_out", "passive_phase", "joint_phase", "p_pi_mw", "access_loss_db"):
        np.testing.assert_array_equal(getattr(one, name), getattr(same, name))
        assert not np.array_equal(getattr(one, name), getattr(other, name))
