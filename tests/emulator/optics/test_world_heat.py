from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import pytest

from lumion_hw.emulator.optics.physics_parameters import PhysicsParameters
from lumion_hw.emulator.optics.truth import draw_mesh
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.layout.topology import State
from tests.emulator.optics.world_testbench import (
    ACCESS_DB,
    MESH,
    P_PI_MW,
    PI_MA,
    PLAIN,
    TAU_S,
    currents,
    loss,
    source,
    world_of,
)

PUC = 4
UPPER, LOWER = 2 * PUC, 2 * PUC + 1


# Heater law ----------------------------------------------------------------------------------------------------------


def test_phase_is_pi_per_p_pi_of_heat() -> None:
    world, clock = world_of([source(1)])
    world.drive_heaters(currents((UPPER, PI_MA), (LOWER, 2.0)), clock.now())
    clock.sleep(0.01)
    cells = world.cells()
    assert cells.phase_upper[PUC] == pytest.approx(np.pi, rel=1e-9)
    assert cells.phase_lower[PUC] == pytest.approx(np.pi * 4.0 / P_PI_MW, rel=1e-9)  # 2 mA through 1000 Ω: 4 mW
    assert np.count_nonzero(cells.phase_upper) == np.count_nonzero(cells.phase_lower) == 1


def test_a_resistance_that_rises_with_its_own_heat_takes_more_power() -> None:
    # P = I²R0 (1 + γP) has the solution I²R0 / (1 - γ·I²R0): 4 mW become 4/0.92 mW at γ = 0.02 per mW.
    world, _ = world_of([source(1)])
    world.truth.nonlinearity_per_mw[:] = 0.02
    power = world.truth.heater_power_mw(currents((UPPER, 2.0)))[UPPER]
    assert power == pytest.approx(4.0 / 0.92, rel=1e-12)
    assert power == pytest.approx(4.0 * (1 + 0.02 * power), rel=1e-12)


def test_thermal_runaway_stays_finite() -> None:
    world, _ = world_of([source(1)])
    world.truth.nonlinearity_per_mw[:] = 0.02
    assert np.isfinite(world.truth.heater_power_mw(currents((UPPER, 10.0)))).all()


def test_a_shared_channel_splits_its_current_by_conductance_and_the_other_channel_drives_nothing() -> None:
    # 3 mA into 1000 Ω parallel to 2000 Ω: 2 mA and 1 mA, so 4 mW and 2 mW. The 5 mA of the other channel are lost.
    world, clock = world_of([source(1)])
    world.truth.heater_ohm[LOWER] = 2000.0
    world.chip.shared_channels.append((UPPER, LOWER))
    world.drive_heaters(currents((UPPER, 3.0), (LOWER, 5.0)), clock.now())
    clock.sleep(0.01)
    cells = world.cells()
    assert cells.phase_upper[PUC] == pytest.approx(np.pi * 4.0 / P_PI_MW, rel=1e-9)
    assert cells.phase_lower[PUC] == pytest.approx(np.pi * 2.0 / P_PI_MW, rel=1e-9)


# Settling ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("looks", [1, 2, 7], ids=["one look", "two looks", "seven looks"])
def test_heat_settles_as_first_order_however_often_one_looks(looks: int) -> None:
    world, clock = world_of([source(1)])
    world.drive_heaters(currents((UPPER, PI_MA)), clock.now())
    for _ in range(looks):
        clock.sleep(1.3 * TAU_S / looks)
        phase = world.cells().phase_upper[PUC]
    assert phase == pytest.approx(np.pi * (1 - np.exp(-1.3)), rel=1e-9)


def test_cooling_is_as_slow_as_heating() -> None:
    world, clock = world_of([source(1)])
    world.drive_heaters(currents((UPPER, PI_MA)), clock.now())
    clock.sleep(0.01)
    world.drive_heaters(currents(), clock.now())
    clock.sleep(2 * TAU_S)
    assert world.cells().phase_upper[PUC] == pytest.approx(np.pi * np.exp(-2), rel=1e-9)


def test_a_change_in_the_middle_of_settling_goes_on_from_where_the_heat_is() -> None:
    world, clock = world_of([source(1)])
    world.drive_heaters(currents((UPPER, PI_MA)), clock.now())
    clock.sleep(TAU_S)
    world.drive_heaters(currents(), clock.now())
    clock.sleep(TAU_S)
    assert world.cells().phase_upper[PUC] == pytest.approx(np.pi * (1 - np.exp(-1)) * np.exp(-1), rel=1e-9)


def test_a_board_that_reports_late_is_dated_back() -> None:
    world, clock = world_of([source(1)])
    clock.sleep(3 * TAU_S)
    world.drive_heaters(currents((UPPER, PI_MA)), clock.now() - 2 * TAU_S)
    assert world.cells().phase_upper[PUC] == pytest.approx(np.pi * (1 - np.exp(-2)), rel=1e-9)


def test_after_a_millisecond_nothing_moves_any_more() -> None:
    # Ten time constants: e^{-10} of π is 0.14 mrad, below the 1.5 mrad step of a 14-bit drive.
    world, clock = world_of([source(1)])
    world.drive_heaters(currents((UPPER, PI_MA)), clock.now())
    clock.sleep(1e-3)
    early = world.cells().phase_upper[PUC]
    clock.sleep(1.0)
    assert early == pytest.approx(world.cells().phase_upper[PUC], abs=1.5e-4)


def test_a_fault_is_heat_too_and_takes_its_time() -> None:
    world, clock = world_of([source(1)])
    clock.sleep(5.0)
    world.truth.stuck_current_ma[UPPER] = PI_MA
    world.disturb()
    clock.sleep(0.5 * TAU_S)
    assert world.cells().phase_upper[PUC] == pytest.approx(np.pi * (1 - np.exp(-0.5)), rel=1e-9)


def test_light_follows_the_heat_as_it_settles() -> None:
    states: dict[int, State] = dict.fromkeys(range(MESH.n_pucs), "cross")
    puc = MESH.trace(1, states).pucs[-1]
    end = MESH.trace(1, states)
    world, clock = world_of([source(1)])
    world.set_transmitter("m1", 1e-3)
    bright = 1e-3 * loss(0.5 + ACCESS_DB + 0.5 * len(end.pucs))
    world.drive_heaters(currents((2 * puc, PI_MA)), clock.now())
    for t in (0.2, 0.7, 1.5, 4.0):
        clock.sleep(t * TAU_S - (clock.now()))
        # cos²(φ/2) of the differential phase reached by then; it is the last PUC of the path, so no light comes back.
        phase = np.pi * (1 - np.exp(-t))
        assert world.mesh_output_w()[end.port] == pytest.approx(bright * np.cos(phase / 2) ** 2, rel=1e-6)


# Crosstalk -----------------------------------------------------------------------------------------------------------

SMARTLIGHT = HexMesh.smartlight()
CROSSTALK = draw_mesh(SMARTLIGHT, PhysicsParameters(), np.random.default_rng(0)).crosstalk.arm_rad_per_mw
MM = 0.81141


def test_all_other_pucs_at_pi_shift_a_puc_by_a_tenth_to_a_third_of_a_radian() -> None:
    # Teofilovic 2024, driven as in the publication: both arms of every aggressor at π.
    heat = np.full(2 * SMARTLIGHT.n_pucs, P_PI_MW)
    for puc in range(SMARTLIGHT.n_pucs):
        own = slice(2 * puc, 2 * puc + 2)
        others = heat.copy()
        others[own] = 0.0
        upper, lower = CROSSTALK[own] @ others
        assert 0.1 <= (upper + lower) / 2 <= 0.3
        assert abs(upper - lower) < 0.05 * (upper + lower) / 2  # equal in both arms except for a small gradient


def test_crosstalk_falls_with_distance_as_published() -> None:
    # Shift of a ring of six PUCs per π of an aggressor, read from the published figure; the ring's FSR of 119 pm is 2π.
    sampled_mm, sampled_pm = (0.0, 0.9, 1.5, 2.0, 2.5, 3.5, 4.0), (1.02, 0.56, 0.38, 0.275, 0.21, 0.165, 0.178)
    centres = SMARTLIGHT.puc_centres * MM
    distance = np.linalg.norm(centres[:, None] - centres[None, :], axis=2)
    near = (distance > 0.1) & (distance < 4.0)
    # π on both arms of an aggressor is 2·1.34 mW; one PUC gets a sixth of the ring's phase.
    shift_pm = CROSSTALK[0::2, 0::2] * (2.0 * 1.34) / np.pi * 6.0 * (119.0 / 2.0)
    error_pm = (shift_pm - np.interp(distance, sampled_mm, sampled_pm))[near]
    assert np.abs(error_pm).max() < 0.06  # the curve is convex between the samples, and the samples scatter about it
    assert np.sqrt((error_pm**2).mean()) < 0.03


def test_a_heater_does_not_count_twice_on_its_own_arm_but_warms_the_other() -> None:
    assert np.all(np.diag(CROSSTALK) == 0.0)
    other_arm = CROSSTALK[0, 1]
    assert other_arm == pytest.approx(CROSSTALK[1, 0])
    assert other_arm > CROSSTALK[0, 2:].max()


def test_neighbours_heat_reaches_phases_and_joints() -> None:
    world, clock = world_of([source(1)], physics=dataclasses.replace(PLAIN, crosstalk=True))
    world.drive_heaters(currents((UPPER, PI_MA)), clock.now())
    clock.sleep(0.01)
    cells = world.cells()
    order = np.argsort(np.linalg.norm((MESH.puc_centres - MESH.puc_centres[PUC]) * MM, axis=1))
    shifts = cells.phase_upper[order][1:]
    assert np.all(shifts > 0.0)
    assert shifts[0] > 1.5 * shifts[-1]
    assert all(late < 1.1 * early for early, late in pairwise(shifts))
    assert np.all(cells.joint_phase > 0.0)
    assert cells.joint_phase.max() < 0.01


def test_without_crosstalk_heat_stays_at_home() -> None:
    world, clock = world_of([source(1)])
    world.drive_heaters(currents((UPPER, PI_MA)), clock.now())
    clock.sleep(0.01)
    cells = world.cells()
    assert np.count_nonzero(cells.phase_upper) + np.count_nonzero(cells.phase_lower) == 1
    assert np.count_nonzero(cells.joint_phase) == 0


def test_the_phase_of_heat_is_a_length_and_so_proportional_to_frequency() -> None:
    world, clock = world_of([source(1)])
    world.drive_heaters(currents((UPPER, PI_MA)), clock.now())
    clock.sleep(1.0)
    at_1550, at_1500 = (world.cells(299792458.0 / (nm * 1e-9)).phase_upper[PUC] for nm in (1550.0, 1500.0))
    assert at_1550 == pytest.approx(np.pi)
    assert at_1500 == pytest.approx(np.pi * 1550.0 / 1500.0)
