from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.optics.truth import random_unitary
from lumion_hw.emulator.optics.world import OpticalWorld
from tests.emulator.optics.world_testbench import ACCESS_DB, MESH, PLAIN, loss, source, squeezing, world_of

ALL_TE = 1e-3 * loss(0.5 + ACCESS_DB + 0.5 * len(MESH.trace(1, dict.fromkeys(range(MESH.n_pucs), "cross")).pucs))
"""Return the light that leaves a mesh of unheated ideal cells for 1 mW of TE light at port 1."""
TO_TM = np.array([[0.0, -1.0], [1.0, 0.0]], dtype=np.complex128)


def lit(*, rejection_db: float = 200.0, aligned: bool = True, seed: int = 0, drift: float = 0.0) -> OpticalWorld:
    """Return a world with 1 mW at port 1 behind a polarization controller."""
    physics = dataclasses.replace(PLAIN, tm_rejection_db=rejection_db, fibre_drift_rad2_per_s=drift)
    world, _ = world_of([source(1, polarization="pol")], physics=physics, aligned=aligned, seed=seed)
    world.set_transmitter("m1", 1e-3)
    return world


def te_share(world: OpticalWorld) -> float:
    return float(world.mesh_output_w().sum()) / ALL_TE


# The mesh accepts TE ----------------------------------------------------------------------------------------------


def test_of_uniformly_random_polarizations_one_in_ten_loses_more_than_ten_db() -> None:
    # TE power is (1 + s·t)/2 with s·t uniform on -1 … 1, so the share itself is uniform on 0 … 1.
    world, rng = lit(), np.random.default_rng(11)
    shares = np.empty(2_000)
    for index in range(len(shares)):
        world.chains[0].fibre_in = random_unitary(rng)
        world.set_polarization("pol", np.eye(2))
        shares[index] = te_share(world)
    assert np.mean(shares < 0.1) == pytest.approx(0.10, abs=0.025)
    assert shares.mean() == pytest.approx(0.5, abs=0.025)
    assert shares.max() <= 1.0 + 1e-9


@pytest.mark.parametrize("rejection_db", [20.0, 25.0, 30.0])
def test_tm_light_comes_in_weaker_by_the_rejection(rejection_db: float) -> None:
    world = lit(rejection_db=rejection_db)
    world.chains[0].fibre_out = TO_TM
    assert 10 * np.log10(te_share(world)) == pytest.approx(-rejection_db, abs=1e-6)


def test_no_polarization_is_darker_than_the_rejection() -> None:
    world, shares = lit(rejection_db=25.0), []
    for tilt in np.linspace(0.0, 0.2, 21):  # around the TM pole, where a coherent leak would hide the effect
        for phase in np.linspace(0.0, 2 * np.pi, 9):
            turn = np.array([[np.cos(tilt), -np.sin(tilt)], [np.sin(tilt), np.cos(tilt)]])
            world.chains[0].fibre_out = turn @ np.diag([1.0, np.exp(1j * phase)]) @ TO_TM
            world.set_polarization("pol", np.eye(2))
            shares.append(te_share(world))
    assert min(shares) == pytest.approx(10**-2.5, rel=1e-6)


def test_a_source_without_a_controller_arrives_as_the_fibre_delivers_it() -> None:
    world, _ = world_of([source(1)], aligned=False, seed=9)
    world.set_transmitter("m1", 1e-3)
    chain = world.chains[0]
    te, _ = chain.fibre_out @ chain.fibre_in @ chain.launch
    assert te_share(world) == pytest.approx(abs(te) ** 2, rel=1e-9)


# Squeezers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channel", [1, 2, 3, 4])
def test_power_against_one_squeezer_is_a_sinusoid_of_its_hidden_period(channel: int) -> None:
    world = lit(aligned=False, seed=channel, rejection_db=25.0)
    period = world.chains[0].squeezer_period_mv[channel - 1]
    drives, squeeze = np.linspace(-5000.0, 5000.0, 41), squeezing(world)
    shares = []
    for drive in drives:
        squeeze(channel, float(drive))
        shares.append(te_share(world))
    phase = 2 * np.pi * drives / period
    design = np.stack([np.ones_like(phase), np.cos(phase), np.sin(phase)], axis=1)
    fit, *_ = np.linalg.lstsq(design, np.array(shares), rcond=None)
    assert np.hypot(fit[1], fit[2]) > 0.01  # the drive has an effect
    np.testing.assert_allclose(design @ fit, shares, atol=1e-9)
    assert 3200.0 <= period <= 4200.0


def test_one_and_three_turn_about_one_axis_two_and_four_about_another() -> None:
    # TE is on the axis of 1 and 3: alone they only shift its phase. A quarter turn of 2 gives circular light, half a
    # turn TM.
    world = lit()
    periods, squeeze = world.chains[0].squeezer_period_mv, squeezing(world)
    for channel in (1, 3):
        squeeze(channel, periods[channel - 1] / 3)
        assert te_share(world) == pytest.approx(1.0, abs=1e-9)
    for channel in (2, 4):
        world = lit()
        squeeze = squeezing(world)
        squeeze(channel, world.chains[0].squeezer_period_mv[channel - 1] / 4)
        assert te_share(world) == pytest.approx(0.5, abs=1e-9)
        squeeze(channel, world.chains[0].squeezer_period_mv[channel - 1] / 2)
        assert te_share(world) == pytest.approx(0.0, abs=1e-9)


def test_a_controller_that_is_not_wired_turns_nothing() -> None:
    world = lit()
    squeezing(world, "another")(2, 1000.0)
    assert te_share(world) == pytest.approx(1.0, abs=1e-9)


# Polarimeters --------------------------------------------------------------------------------------------------------


def test_a_polarimeter_sees_the_light_just_before_the_chip() -> None:
    # 1 mW, 0.5 dB of loss and 9 dB of gain on the way, a tap of 1 %.
    path = dataclasses.replace(source(1, polarization="pol", gain_db=9.0), polarimeter="pm", polarimeter_tap=0.01)
    world, _ = world_of([path], aligned=False, seed=6)
    assert not world.polarimeter_w("pm").any()
    world.set_transmitter("m1", 1e-3)
    before = world.polarimeter_w("pm")
    assert before[0] == pytest.approx(1e-5 * 10**0.85)
    assert np.linalg.norm(before[1:]) == pytest.approx(before[0])
    squeezing(world)(2, 1500.0)
    after = world.polarimeter_w("pm")
    assert after[0] == pytest.approx(before[0])
    assert not np.allclose(after[1:], before[1:], rtol=0.1)
    te = world.mesh_output_w().sum() / (ALL_TE * 10**0.9)
    assert (1 + after[1] / after[0]) / 2 == pytest.approx(te, rel=1e-6)
    assert not world.polarimeter_w("another").any()


# Fibres --------------------------------------------------------------------------------------------------------------


def test_a_moved_fibre_delivers_the_orthogonal_polarization() -> None:
    for seed in range(5):
        world = lit(aligned=False, seed=seed)
        before = te_share(world)
        world.turn_fibre("m1")
        assert te_share(world) == pytest.approx(1.0 - before, abs=1e-9)


def stokes(field: np.ndarray) -> np.ndarray:
    """Return the unit Stokes vectors of Jones vectors, shape (n, 3)."""
    x, y = field[:, 0], field[:, 1]
    return np.stack([abs(x) ** 2 - abs(y) ** 2, 2 * (x.conj() * y).real, 2 * (x.conj() * y).imag], axis=1)


def drifting(rate: float, fibres: int = 3000) -> tuple[OpticalWorld, VirtualClock]:
    """Return a world with many drifting dark fibres."""
    physics = dataclasses.replace(PLAIN, fibre_drift_rad2_per_s=rate)
    return world_of([source(1, name=f"m{i}") for i in range(fibres)], physics=physics, aligned=False, seed=4)


def polarizations(world: OpticalWorld) -> np.ndarray:
    world.mesh_output_w()  # a reading lets the fibres drift up to now
    return stokes(np.array([chain.fibre_out @ chain.fibre_in @ chain.launch for chain in world.chains]))


@pytest.mark.parametrize(
    ("rate", "looks"),
    [pytest.param(2.0, 5, id="in steps", marks=pytest.mark.long), pytest.param(0.5, 1, id="in one go")],
)
def test_polarization_forgets_itself_exponentially(rate: float, looks: int) -> None:
    # ⟨s(0)·s(t)⟩ = e^{-Γt}; a mean over 3000 fibres is good to 0.6/√3000 = 0.011.
    world, clock = drifting(rate)
    before = polarizations(world)
    for _ in range(looks):
        clock.sleep(0.6 / looks)
        after = polarizations(world)
    correlation = float((before * after).sum(axis=1).mean())
    assert correlation == pytest.approx(np.exp(-rate * 0.6), rel=0.05)


def test_after_a_long_pause_nothing_is_left_of_the_old_polarization() -> None:
    world, clock = drifting(1.0, fibres=400)
    before = polarizations(world)
    clock.sleep(3600.0)
    assert abs(float((before * polarizations(world)).sum(axis=1).mean())) < 0.087  # 3·√(1/3/400)


def test_fibres_only_turn_they_lose_nothing() -> None:
    world, clock = drifting(5.0, fibres=50)
    for _ in range(20):
        clock.sleep(0.2)
        lengths = np.linalg.norm(polarizations(world), axis=1)
    np.testing.assert_allclose(lengths, 1.0, rtol=1e-9)


def test_light_of_a_fibre_at_rest_does_not_change() -> None:
    world, clock = world_of([source(1)], aligned=False)
    world.set_transmitter("m1", 1e-3)
    before = world.mesh_output_w()
    clock.sleep(1e4)
    np.testing.assert_array_equal(world.mesh_output_w(), before)
