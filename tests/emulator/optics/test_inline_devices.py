"""Devices in the fibres of the emulated bench: attenuators, switches, amplifiers, splitters, loops, reflectors."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from lumion_hw.emulator.optics.coherent_paths import CoherentLaunch
from lumion_hw.emulator.optics.inline_devices import Amplification
from lumion_hw.emulator.optics.world import OpticalWorld
from lumion_hw.interfaces.wiring import FibrePath, InlineDevice, LoopPath, MeterTap, OutputPath
from lumion_hw.mesh.layout.topology import State
from lumion_hw.quantities import combined_osnr_db
from tests.emulator.optics.world_testbench import ACCESS_DB, MESH, loss, source, world_of

ALL_CROSS: dict[int, State] = dict.fromkeys(range(MESH.n_pucs), "cross")
TRACE = MESH.trace(1, ALL_CROSS)
WAY_DB = 0.5 + 2 * ACCESS_DB + 0.5 * len(TRACE.pucs) + 0.3
"""Return the output path of the port that light from module m1 reaches."""
PHOTONS_W = 6.62607015e-34 * 193.4e12 * 12.5e9
"""One photon per second and hertz, in 0.1 nm at 1550 nm: -57.95 dBm, which the field rounds to -58."""


def out(**changed) -> OutputPath:
    return dataclasses.replace(OutputPath(TRACE.port, "rx", 0.3, "meter", 1, 0.1), **changed)


def rewired(world: OpticalWorld, **changed) -> OpticalWorld:
    """Return a copy of a world with other fibres."""
    wiring = dataclasses.replace(world.wiring, **changed)
    return OpticalWorld(
        MESH, wiring, world.truth, world.chains, world._physics, 1550.0, world._clock, np.random.default_rng(0)
    )


def beside(*fibres: FibrePath) -> OpticalWorld:
    world, _ = world_of([])
    return rewired(world, fibres=fibres)


@pytest.mark.parametrize("side", ["input", "output"])
def test_an_attenuator_takes_its_decibels_on_either_side_of_the_mesh(side: str) -> None:
    through = (InlineDevice("voa", 3),)
    first = dataclasses.replace(source(1), through=through if side == "input" else ())
    world, _ = world_of([first], [out(through=through if side == "output" else ())])
    world.set_transmitter("m1", 1e-3)
    world.inline_devices.add_attenuator("voa", 3, lambda: loss(7.0))
    world.inline_devices.add_attenuator("voa", 1, lambda: 0.0)  # another channel is another fibre
    assert world.received_w("rx") == pytest.approx(0.9e-3 * loss(WAY_DB + 7.0), rel=1e-9)
    assert world.meter_w("meter", 1) == pytest.approx(0.1e-3 * loss(WAY_DB + 7.0), rel=1e-9)
    before_w, behind_w = world.part_w("voa", 3)
    assert before_w / behind_w == pytest.approx(10.0**0.7)
    assert world.part_w("voa", 1) == (0.0, 0.0)


def test_a_switch_leads_one_laser_to_the_port_that_it_is_told() -> None:
    ways = {17: 1, 18: 6}
    inputs = [
        dataclasses.replace(source(port, name="l"), through=(InlineDevice("sw", 1, leaves),))
        for leaves, port in ways.items()
    ]
    connections: dict[int, int] = {}
    world, _ = world_of(inputs)
    world.set_transmitter("l", 1e-3)
    world.inline_devices.add_switch("sw", lambda: connections, 1.0)
    assert world.mesh_output_w().max() == 0.0, "no connection, no light"
    for leaves, port in ways.items():
        connections.clear()
        connections.update({1: leaves, leaves: 1})
        world.about_to_change()
        trace = MESH.trace(port, ALL_CROSS)
        expected = 1e-3 * loss(0.5 + 1.0 + ACCESS_DB + 0.5 * len(trace.pucs))
        assert world.mesh_output_w()[trace.port] == pytest.approx(expected, rel=1e-9)


def test_a_splitter_shares_the_light_among_receiver_and_meters() -> None:
    taps = (MeterTap("meter", 2, 0.2), MeterTap("osa", 1, 0.3))
    world, _ = world_of([source(1)], [out(taps=taps)])
    world.set_transmitter("m1", 1e-3)
    whole = 1e-3 * loss(WAY_DB)
    assert world.received_w("rx") == pytest.approx(0.4 * whole)
    shares = [world.meter_w(*end) for end in (("meter", 1), ("meter", 2), ("osa", 1))]
    assert shares == pytest.approx([0.1 * whole, 0.2 * whole, 0.3 * whole])


def test_an_amplifier_adds_light_and_the_noise_of_its_figure() -> None:
    fibre = FibrePath("laser", None, 0.0, (InlineDevice("edfa"),), (MeterTap("osa", 1, 1.0),))
    world = beside(fibre)
    world.inline_devices.add_amplifier("edfa", lambda _: Amplification(100.0, 5.0))
    world.set_source("laser", 1e-6, 1551.0)
    (line,), noise = world.spectrum("osa")
    assert line.power_w == pytest.approx(1e-4)
    assert noise * 12.5e9 == pytest.approx(100.0 * 10.0**0.5 * PHOTONS_W, rel=0.02)
    total_w = world.meter_w("osa", 1)
    assert total_w - line.power_w == pytest.approx(4.7e12 * noise), "the noise fills the C band"
    assert world.part_w("edfa") == pytest.approx((1e-6, total_w))


def test_noise_in_front_of_the_mesh_takes_the_way_of_the_light() -> None:
    first = dataclasses.replace(source(1), through=(InlineDevice("edfa"),))
    world, _ = world_of([first], [out()])
    world.inline_devices.add_amplifier("edfa", lambda _: Amplification(100.0, 6.0))
    world.set_transmitter("m1", 1e-6)
    (line,), noise = world.spectrum("meter")
    # All of the light is TE here, but only half of the noise.
    ratio_db = 10.0 * np.log10(line.power_w / (12.5e9 * noise))
    assert ratio_db == pytest.approx(58.0 - 30.0 - 6.0 + 3.01, abs=0.05)


@pytest.mark.parametrize("figure_db", [4.0, 7.0])
def test_a_coherent_receiver_has_the_signal_to_noise_of_all_amplifiers_before_it(figure_db: float) -> None:
    parts = (InlineDevice("first"), InlineDevice("voa"), InlineDevice("second"))
    world = beside(FibrePath("zr", "zr", 0.0, parts))
    for name in ("first", "second"):
        world.inline_devices.add_amplifier(name, lambda _: Amplification(100.0, figure_db))
    world.inline_devices.add_attenuator("voa", 1, lambda: loss(22.0))
    world.set_coherent("zr", CoherentLaunch(1e-5, 193.4e12, 36.0))
    arrived = world.received_coherent("zr", 37.5e9)
    assert arrived is not None
    # -20 dBm into the first amplifier, and -20 + 20 - 22 dBm into the second.
    expected_db = combined_osnr_db(36.0, 58.0 - 20.0 - figure_db, 58.0 - 22.0 - figure_db)
    assert arrived.osnr_db == pytest.approx(expected_db, abs=1e-6)
    assert arrived.signal_w == pytest.approx(1e-5 * loss(-18.0))
    assert (arrived.pair.rank, arrived.pair.pdl_db) == (2, 0.0)


def test_a_fibre_beside_the_mesh_leads_a_laser_straight_to_a_meter() -> None:
    world = beside(FibrePath("laser", None, 2.0, (), (MeterTap("meter", 1, 0.5), MeterTap("meter", 2, 0.25))))
    world.set_source("laser", 1e-3, 1547.0)
    light = world.meter_light("meter", 1)
    assert light.power_w == pytest.approx(0.5e-3 * loss(2.0))
    assert light.wavelength_nm == pytest.approx(1547.0)
    assert world.meter_w("meter", 2) == pytest.approx(0.25e-3 * loss(2.0))


def test_a_loop_leads_light_through_the_mesh_once_more() -> None:
    loop_port = next(
        p for p in MESH.fibre_ports if p not in (1, TRACE.port) and MESH.trace(p, ALL_CROSS).port not in (1, TRACE.port)
    )
    again = MESH.trace(loop_port, ALL_CROSS)
    world, _ = world_of([source(1)])
    looped = rewired(world, loops=(LoopPath((TRACE.port, loop_port), 0.7, 2.0),))
    looped.set_transmitter("m1", 1e-3)
    first = 1e-3 * loss(0.5 + ACCESS_DB + 0.5 * len(TRACE.pucs))
    second = first * loss(2 * ACCESS_DB + 0.7 + 0.5 * len(again.pucs))
    assert looped.mesh_output_w()[TRACE.port] == pytest.approx(first, rel=1e-9)
    assert looped.mesh_output_w()[again.port] == pytest.approx(second, rel=1e-9)


def test_a_reflector_sends_light_back_to_where_it_came_from() -> None:
    world, _ = world_of([source(1)])
    mirrored = rewired(world, loops=(LoopPath((TRACE.port, TRACE.port), 3.0, 2.0),))
    mirrored.set_transmitter("m1", 1e-3)
    back = 1e-3 * loss(0.5 + ACCESS_DB + 2 * 0.5 * len(TRACE.pucs) + 2 * ACCESS_DB + 3.0)
    assert mirrored.mesh_output_w()[1] == pytest.approx(back, rel=1e-9)


def test_light_between_two_mirrors_makes_the_fringes_of_its_fibre() -> None:
    """With mirrors at both ends the power follows that of a Fabry-Perot with the period of the whole path."""
    world, _ = world_of([source(1)])
    mirrors = tuple(LoopPath((port, port), 0.0, 200.0) for port in (1, TRACE.port))
    cavity = rewired(world, loops=mirrors)
    r = loss(2 * ACCESS_DB) * loss(0.5 * len(TRACE.pucs))
    fields = []
    for step in range(400):
        cavity.chains[0].frequency_hz = 193.4e12 + step * 1e3
        fields.append(cavity._output_fields(0, cavity.chains[0].frequency_hz))
    powers = np.abs(np.array(fields)[:, TRACE.port]) ** 2
    contrast = powers.max() / powers.min()
    assert contrast == pytest.approx(((1 + r) / (1 - r)) ** 2, rel=0.02)
