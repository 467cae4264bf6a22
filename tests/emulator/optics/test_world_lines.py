"""Light of four wavelengths in one fibre, through a chip whose couplers and phases depend on the frequency."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from lumion_hw.emulator.optics.light import Light
from lumion_hw.emulator.optics.world import OpticalWorld
from lumion_hw.emulator.transponders.qsfp.bench_light import LanesLight
from lumion_hw.interfaces.wiring import FibrePath, InlineDevice, MeterTap, Wiring
from tests.emulator.optics.world_testbench import ACCESS_DB, MESH, PLAIN, detector, loss, source, world_of

SLOPES = dataclasses.replace(PLAIN, eta_slope_per_nm=7e-4, differential_slope_per_nm=15e-3)
CWDM_NM = (1511.0, 1531.0, 1551.0, 1571.0)  # the grid of CWDM4 at the wavelength of this chip
POWERS_W = (1e-3, 2e-3, 3e-3, 4e-3)
LINES = [Light(power_w, nm) for power_w, nm in zip(POWERS_W, CWDM_NM, strict=True)]
C_NM_HZ = 299_792_458e9


def brightest_port(world: OpticalWorld) -> int:
    return int(np.argmax(np.abs(world.true_fields(1, C_NM_HZ / CWDM_NM[1]))))


def lit_world() -> tuple[OpticalWorld, int]:
    """Return a world with four lines at port 1, and the port that they leave from."""
    port = brightest_port(world_of([source(1)], physics=SLOPES)[0])
    world, _ = world_of([source(1)], [detector(port)], SLOPES)
    world.set_lines("m1", LINES)
    return world, port


def expected_w(world: OpticalWorld, port: int) -> np.ndarray:
    """Return the power of each line in the output fibre, from the fields of the chip."""
    through = [abs(world.true_fields(1, C_NM_HZ / nm)[port]) ** 2 for nm in CWDM_NM]
    return np.array(POWERS_W) * through * loss(0.5 + 2 * ACCESS_DB + 0.3)


def test_each_line_loses_what_the_chip_takes_at_its_own_frequency() -> None:
    world, port = lit_world()
    through_w = expected_w(world, port)
    losses_db = 10.0 * np.log10(np.array(POWERS_W) / through_w)
    assert np.min(np.abs(np.diff(np.sort(losses_db)))) > 0.05  # four different losses
    received_w = world.received_lines_w("rx")
    assert {round(C_NM_HZ / hertz, 3) for _, hertz in received_w} == set(CWDM_NM)
    by_nm = {C_NM_HZ / hertz: power_w for (_, hertz), power_w in received_w.items()}
    assert [by_nm[nm] for nm in sorted(by_nm)] == pytest.approx((0.9 * through_w).tolist(), rel=1e-9)
    assert world.received_by_source_w("rx") == pytest.approx({"m1": 0.9 * through_w.sum()}, rel=1e-9)
    receiver = LanesLight(world, "rx", CWDM_NM)
    assert [receiver.received_w(lane) for lane in (1, 2, 3, 4)] == pytest.approx((0.9 * through_w).tolist(), rel=1e-9)


def test_instruments_see_the_sum_and_an_analyser_sees_four_lines() -> None:
    world, port = lit_world()
    through_w = expected_w(world, port)
    light = world.meter_light("meter", 1)
    assert light.power_w == pytest.approx(0.1 * through_w.sum(), rel=1e-9)
    assert light.wavelength_nm == pytest.approx(np.average(CWDM_NM, weights=through_w), abs=1e-6)
    lines, _ = world.spectrum("meter", 1)
    assert sorted(C_NM_HZ / line.frequency_hz for line in lines) == pytest.approx(CWDM_NM)
    assert sum(line.power_w for line in lines) == pytest.approx(light.power_w)
    leaving_w = world.mesh_output_w()[port]
    assert leaving_w == pytest.approx(through_w.sum() / loss(ACCESS_DB + 0.3), rel=1e-9)
    shortest = world.mesh_output_w(lambda hertz: hertz > C_NM_HZ / 1520.0)[port]
    assert shortest == pytest.approx(through_w[0] / loss(ACCESS_DB + 0.3), rel=1e-9)


def test_a_dark_first_lane_leaves_the_others_alone_and_one_line_ends_them() -> None:
    world, _ = lit_world()
    before_w = world.received_lines_w("rx")
    world.set_lines("m1", [Light(0.0, CWDM_NM[0]), *LINES[1:]])
    after_w = world.received_lines_w("rx")
    assert len(after_w) == 3
    assert after_w == pytest.approx({line: before_w[line] for line in after_w}, rel=1e-9)
    world.set_source("m1", 1e-3, CWDM_NM[2])
    assert len(world.received_lines_w("rx")) == 1
    world.set_lines("m1", [Light(0.0, nm) for nm in CWDM_NM])
    assert world.received_w("rx") == 0.0


def test_lines_in_a_fibre_beside_the_mesh_lose_the_same_and_fill_an_amplifier_together() -> None:
    world, clock = world_of([])
    fibre = FibrePath("m1", "rx", 2.0, (InlineDevice("voa", 1),), (MeterTap("meter", 1, 0.1),))
    chip = world.truth, [], PLAIN, 1550.0, clock, np.random.default_rng(0)
    world = OpticalWorld(MESH, Wiring((), (), fibres=(fibre,)), *chip)
    world.inline_devices.add_attenuator("voa", 1, lambda: 0.5)
    world.set_lines("m1", LINES)
    received_w = sorted(world.received_lines_w("rx").values())
    assert received_w == pytest.approx([0.9 * 0.5 * power_w * loss(2.0) for power_w in POWERS_W], rel=1e-9)
    assert world.part_w("voa") == pytest.approx((10e-3, 5e-3))


def test_a_receiver_takes_only_light_in_the_bands_of_its_lanes() -> None:
    world, _ = lit_world()
    lan_wdm = LanesLight(world, "rx", (1529.5, 1534.0, 1538.5, 1543.0))
    assert lan_wdm.received_w(1) == 0.0  # 1531 nm is 1.5 nm away from a lane 4.5 nm wide, ±1.46 nm
    assert LanesLight(world, "rx", (1530.0, 1534.5, 1539.0, 1543.5)).received_w(1) > 0.0
