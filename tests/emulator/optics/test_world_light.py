from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.optics.world import OpticalWorld
from lumion_hw.mesh.layout.topology import State
from tests.emulator.optics.world_testbench import (
    ACCESS_DB,
    MESH,
    PI_MA,
    PLAIN,
    currents,
    detector,
    loss,
    source,
    world_of,
)

ALL_CROSS: dict[int, State] = dict.fromkeys(range(MESH.n_pucs), "cross")


def settle(world: object, clock: object, table: np.ndarray) -> None:
    """Drive the heaters and wait until the light is settled."""
    world.drive_heaters(table, clock.now())  # type: ignore[attr-defined]
    clock.sleep(0.01)  # type: ignore[attr-defined]


# Paths ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("port", range(MESH.n_ports))
def test_unheated_ideal_cells_pass_light_on_crosswise_and_lose_what_the_path_loses(port: int) -> None:
    world, _ = world_of([source(port, gain_db=9.0)])
    world.set_transmitter(f"m{port}", 1e-3)
    trace = MESH.trace(port, ALL_CROSS)
    # Module 1 mW, fixed loss 0.5 dB, gain 9 dB, one facet, 0.5 dB per PUC.
    expected = 1e-3 * loss(0.5 - 9.0 + ACCESS_DB + 0.5 * len(trace.pucs))
    leaving = world.mesh_output_w()
    assert leaving[trace.port] == pytest.approx(expected, rel=1e-9)
    assert np.delete(leaving, trace.port).max() < 1e-12 * expected


@pytest.mark.parametrize("seed", range(4))
def test_light_follows_the_states_that_the_heaters_make(seed: int) -> None:
    rng = np.random.default_rng(seed)
    bar = rng.random(MESH.n_pucs) < 0.5
    states: dict[int, State] = {puc: "bar" if bar[puc] else "cross" for puc in range(MESH.n_pucs)}
    arm = rng.integers(0, 2, MESH.n_pucs)  # either arm gives bar: ±π are equivalent
    world, clock = world_of([source(6)])
    world.set_transmitter("m6", 1e-3)
    settle(world, clock, currents(*((2 * puc + arm[puc], PI_MA) for puc in range(MESH.n_pucs) if bar[puc])))
    trace = MESH.trace(6, states)
    expected = 1e-3 * loss(0.5 + ACCESS_DB + 0.5 * len(trace.pucs))
    assert world.mesh_output_w()[trace.port] == pytest.approx(expected, rel=1e-6)


def test_receiver_and_meter_share_what_leaves_the_fibre() -> None:
    trace = MESH.trace(1, ALL_CROSS)
    world, _ = world_of([source(1)], [detector(trace.port)])
    world.set_transmitter("m1", 1e-3)
    # A second facet and 0.3 dB after the mesh, then nine tenths to the receiver and one tenth to the meter.
    arriving = 1e-3 * loss(0.5 + ACCESS_DB + 0.5 * len(trace.pucs) + ACCESS_DB + 0.3)
    assert world.received_w("rx") == pytest.approx(0.9 * arriving, rel=1e-9)
    assert world.meter_w("meter", 1) == pytest.approx(0.1 * arriving, rel=1e-9)
    assert world.meter_w("meter", 2) == 0.0
    assert world.received_w("somebody else") == 0.0


def test_light_of_two_modules_adds_in_power() -> None:
    world, clock = world_of(
        [source(1), source(6)], physics=dataclasses.replace(PLAIN, random_passive_phases=True), seed=5
    )
    settle(world, clock, currents())
    world.set_transmitter("m1", 1e-3)
    first = world.mesh_output_w()
    world.set_transmitter("m1", 0.0)
    world.set_transmitter("m6", 2e-3)
    second = world.mesh_output_w()
    world.set_transmitter("m1", 1e-3)
    assert np.minimum(first, second).max() > 1e-6  # both reach the same port, where fields would interfere
    np.testing.assert_allclose(world.mesh_output_w(), first + second, rtol=1e-12)


def test_a_module_that_is_not_wired_lights_nothing() -> None:
    world, _ = world_of([source(1)])
    world.set_transmitter("somewhere else", 1.0)
    assert world.mesh_output_w().max() == 0.0


def test_no_light_is_made_on_the_way() -> None:
    world, clock = world_of(
        [source(1)], physics=dataclasses.replace(PLAIN, random_passive_phases=True, puc_loss_db=0.0)
    )
    world.set_transmitter("m1", 1e-3)
    settle(world, clock, currents())
    assert world.mesh_output_w().sum() == pytest.approx(1e-3 * loss(0.5 + ACCESS_DB), rel=1e-9)


def test_devices_do_what_is_due_before_light_is_read() -> None:
    world, _ = world_of([source(1)])
    world.before_reading.append(lambda: world.set_transmitter("m1", 1e-3))
    assert world.mesh_output_w().max() > 0.0


# Monitors ------------------------------------------------------------------------------------------------------------

MAX_COUNT = 4000


def monitor_statistics(
    launched_w: float, relative: float, floor_dbm: float, n_avg: int = 1
) -> tuple[float, np.ndarray]:
    """Return the true photocurrent at the bright port in mA at 0.8 A/W, and many readings of it."""
    physics = dataclasses.replace(PLAIN, monitor_noise_relative=relative, monitor_noise_floor_dbm=floor_dbm)
    world, _ = world_of([source(1)], physics=physics)
    world.set_transmitter("m1", launched_w)
    bright = int(np.argmax(world.mesh_output_w()))
    true_ma = float(world.mesh_output_w()[bright]) * 0.8 * 1e3
    return true_ma, world.monitor_ma(np.full(MAX_COUNT, bright), 0.8, n_avg)


def test_bright_readings_scatter_by_half_a_percent() -> None:
    true_ma, readings = monitor_statistics(1e-3, 0.005, -60.0)
    assert readings.mean() == pytest.approx(true_ma, rel=4 * 0.005 / MAX_COUNT**0.5)
    assert readings.std() == pytest.approx(0.005 * true_ma, rel=0.05)  # 1/√(2·4000) = 1.1 %


def test_dim_readings_scatter_by_the_floor() -> None:
    # -60 dBm is 1 nW, 0.8 nA at 0.8 A/W; the light is about ten times stronger.
    true_ma, readings = monitor_statistics(1e-7, 0.0, -60.0)
    assert 5e-6 < true_ma < 5e-5
    assert readings.std() == pytest.approx(0.8e-6, rel=0.05)
    assert readings.mean() == pytest.approx(true_ma, abs=4 * 0.8e-6 / MAX_COUNT**0.5)


def test_both_parts_of_the_noise_add_as_squares() -> None:
    true_ma, readings = monitor_statistics(1e-6, 0.01, -60.0)
    assert readings.std() == pytest.approx(np.hypot(0.01 * true_ma, 0.8e-6), rel=0.05)


def test_averaging_sixteen_scans_quarters_the_noise() -> None:
    true_ma, readings = monitor_statistics(1e-3, 0.005, -60.0, n_avg=16)
    assert readings.std() == pytest.approx(0.005 * true_ma / 4, rel=0.05)


def test_a_photodiode_in_the_dark_never_reads_negative() -> None:
    world, _ = world_of([source(1)], physics=dataclasses.replace(PLAIN, monitor_noise_floor_dbm=-60.0))
    readings = world.monitor_ma(np.zeros(MAX_COUNT, dtype=np.int64), 0.8, 1)
    assert readings.min() >= 0.0
    assert readings.max() < 6 * 0.8e-6


def test_each_photodiode_has_its_own_scale() -> None:
    world, _ = world_of([source(1)])
    world.set_transmitter("m1", 1e-3)
    port = MESH.trace(1, ALL_CROSS).port
    before = world.monitor_ma(np.array([port]), 0.8, 1)
    world.truth.monitor_scale[port] = 0.9
    np.testing.assert_allclose(world.monitor_ma(np.array([port]), 0.8, 1), 0.9 * before, rtol=1e-9)


# Faults --------------------------------------------------------------------------------------------------------------


def test_a_stuck_heater_carries_its_current_whatever_is_asked() -> None:
    puc = MESH.trace(1, ALL_CROSS).pucs[0]
    world, clock = world_of([source(1)])
    world.set_transmitter("m1", 1e-3)
    settle(world, clock, currents())
    crossed = world.mesh_output_w()
    world.truth.stuck_current_ma[2 * puc] = PI_MA
    world.disturb()
    clock.sleep(0.01)
    barred = world.mesh_output_w()
    end = MESH.trace(1, {**ALL_CROSS, puc: "bar"})
    assert barred[end.port] == pytest.approx(1e-3 * loss(0.5 + ACCESS_DB + 0.5 * len(end.pucs)), rel=1e-6)
    settle(world, clock, currents((2 * puc, 0.3)))
    np.testing.assert_allclose(world.mesh_output_w(), barred, rtol=1e-9)
    world.truth.stuck_current_ma.clear()
    settle(world, clock, currents())
    np.testing.assert_allclose(world.mesh_output_w(), crossed, rtol=1e-9)


def test_an_open_heater_leaves_its_puc_as_it_is() -> None:
    puc = MESH.trace(1, ALL_CROSS).pucs[0]
    world, clock = world_of([source(1)])
    world.set_transmitter("m1", 1e-3)
    crossed = world.mesh_output_w()
    world.truth.stuck_current_ma[2 * puc] = 0.0
    settle(world, clock, currents((2 * puc, PI_MA)))
    np.testing.assert_allclose(world.mesh_output_w(), crossed, rtol=1e-9)


# Changes without an announcement -----------------------------------------------------------------------------------


def bright_world(**physics: float) -> tuple[OpticalWorld, VirtualClock]:
    """Return a world with settled heaters, so that fields are cached, and its clock."""
    world, clock = world_of([source(1)], physics=dataclasses.replace(PLAIN, **physics))
    world.set_transmitter("m1", 1e-3)
    settle(world, clock, currents(*((heater, 0.7) for heater in range(0, 2 * MESH.n_pucs, 3))))
    return world, clock


def output_fields(world: OpticalWorld) -> np.ndarray:
    """Return the fields behind a reading, with their phases, which show changes that powers do not."""
    power_w = world.mesh_output_w()
    fields = world._output_fields(0, world.chains[0].frequency_hz)
    return fields * np.sqrt(power_w.sum() / (np.abs(fields) ** 2).sum())


CHIP_PARAMETERS = ("loss_db", "eta_in", "eta_out", "passive_phase", "joint_phase", "p_pi_mw", "heater_ohm")


@pytest.mark.parametrize("name", CHIP_PARAMETERS)
def test_a_changed_parameter_of_the_chip_gives_new_light_at_the_next_reading(name: str) -> None:
    world, clock = bright_world()
    before = output_fields(world)
    np.testing.assert_array_equal(output_fields(world), before)
    parameter = getattr(world.truth, name)
    parameter += 0.1 * np.maximum(np.abs(parameter), 1.0)
    clock.sleep(1.0)
    assert np.abs(output_fields(world) - before).max() > 1e-2 * np.abs(before).max()


@pytest.mark.parametrize("name", ["launch", "fibre_in", "fibre_out", "frequency_hz"])
def test_a_changed_parameter_of_an_input_gives_new_light_at_the_next_reading(name: str) -> None:
    world, _ = bright_world(differential_slope_per_nm=15e-3)
    chain = world.chains[0]
    chain.fibre_out = chain.fibre_in.copy()
    before = output_fields(world)
    if name == "frequency_hz":
        chain.frequency_hz += 1e11
    else:
        array = getattr(chain, name)
        array[...] = array[::-1].copy()  # from TE to TM
    assert np.abs(output_fields(world) - before).max() > 1e-2 * np.abs(before).max()


def test_a_changed_facet_loss_gives_new_light_at_the_next_reading() -> None:
    world, _ = bright_world()
    before_w = world.mesh_output_w().sum()
    world.truth.access_loss_db[1] += 3.0
    assert world.mesh_output_w().sum() == pytest.approx(before_w * loss(3.0))


def test_a_drifting_temperature_gives_new_light_at_the_next_reading() -> None:
    world, _ = bright_world()
    before = output_fields(world)
    world.disturbances.temperature_k = lambda _: 2.0
    assert np.abs(output_fields(world) - before).max() > 1e-2 * np.abs(before).max()


def test_a_stuck_heater_shows_at_the_next_reading() -> None:
    world, clock = bright_world()
    before = output_fields(world)
    world.truth.stuck_current_ma[0] = 0.0
    clock.sleep(1.0)
    assert np.abs(output_fields(world) - before).max() > 1e-2 * np.abs(before).max()
