"""Dual-polarization signals on their path through the mesh (docs/polarization.md, "The model")."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from lumion_hw.emulator.optics.coherent_paths import CoherentLaunch, CoherentReception, path_pair
from lumion_hw.emulator.optics.truth import random_unitary
from lumion_hw.emulator.optics.world import OpticalWorld
from lumion_hw.interfaces.wiring import Tributary
from tests.emulator.optics.world_testbench import ACCESS_DB, MESH, PLAIN, detector, loss, source, world_of

PUC_PS = 11.25
LAUNCH = CoherentLaunch(1e-3, 193.4145e12, math.inf)
BAND_HZ = 50e9
CROSS = dict.fromkeys(range(MESH.n_pucs), "cross")
ENDS = {port: (trace.port, len(trace.pucs)) for port in range(MESH.n_ports) if (trace := MESH.trace(port, CROSS)).pucs}
"""Return the exit port of light from each port of an unheated mesh, and the number of PUCs on the path."""


def joined(x: int, y: int | None, *, seed: int = 0, gain_db: float = 0.0) -> OpticalWorld:
    """Return a world with module ``tx`` at port x and (behind a splitter) y, and ``rx`` where that light exits."""
    ports: list[tuple[int, Tributary]] = [(x, "x")] + ([] if y is None else [(y, "y")])
    inputs = [
        dataclasses.replace(source(port, name="tx", gain_db=gain_db), tributary=tributary) for port, tributary in ports
    ]
    outputs = [
        dataclasses.replace(detector(ENDS[port][0], tap_fraction=0.0), tributary=tributary) for port, tributary in ports
    ]
    world, _ = world_of(inputs, outputs, PLAIN, seed=seed, aligned=False)
    world.set_coherent("tx", LAUNCH)
    return world


def received(world: OpticalWorld) -> CoherentReception:
    reception = world.received_coherent("rx", BAND_HZ)
    assert reception is not None
    return reception


def pairs(difference: int) -> tuple[int, int]:
    """Return two ports whose paths through the unheated mesh differ by a number of PUCs and exit at other ports."""
    for x, (end_x, hops_x) in ENDS.items():
        for y, (end_y, hops_y) in ENDS.items():
            if abs(hops_x - hops_y) == difference and len({x, y, end_x, end_y}) == 4:
                return x, y
    raise LookupError(difference)


def test_two_ways_of_equal_length_carry_both_tributaries() -> None:
    x, y = pairs(0)
    pair = received(joined(x, y)).pair
    assert pair.rank == 2
    assert pair.pdl_db == pytest.approx(0.0, abs=1e-6)
    assert pair.dgd_ps == pytest.approx(0.0, abs=1e-3)


def test_pdl_is_the_difference_of_loss_and_dgd_that_of_delay() -> None:
    pair = received(joined(*pairs(3))).pair
    assert pair.pdl_db == pytest.approx(0.5 * 3, abs=1e-6)
    assert pair.dgd_ps == pytest.approx(PUC_PS * 3, rel=1e-3)


def test_the_signal_has_the_power_of_both_ways() -> None:
    x, y = pairs(3)
    reception = received(joined(x, y))
    fixed = loss(0.5 + 0.3 + 2 * ACCESS_DB)
    expected = 0.5e-3 * fixed * sum(loss(0.5 * ENDS[port][1]) for port in (x, y))
    assert reception.signal_w == pytest.approx(expected, rel=1e-9)
    assert reception.total_w == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_turning_fibres_change_nothing_that_a_receiver_cannot_undo(seed: int) -> None:
    x, y = pairs(3)
    world = joined(x, y)
    before, rng = received(world), np.random.default_rng(seed)
    for chain in world.chains:
        chain.fibre_in, chain.fibre_out = random_unitary(rng), random_unitary(rng)
    world.disturb()
    after = received(world)
    assert after.pair.pdl_db == pytest.approx(before.pair.pdl_db, abs=1e-9)
    assert after.pair.dgd_ps == pytest.approx(before.pair.dgd_ps, abs=1e-6)


def test_one_way_folds_both_tributaries_into_one_field() -> None:
    pair = received(joined(pairs(0)[0], None)).pair
    assert (pair.rank, pair.pdl_db) == (1, math.inf)


@pytest.mark.parametrize("seed", range(5))
def test_power_is_blind_to_the_polarization_of_two_tributaries(seed: int) -> None:
    port = pairs(0)[0]
    world, _ = world_of([source(port, name="tx", polarization="pol")], [detector(ENDS[port][0])], aligned=False)
    world.set_coherent("tx", LAUNCH)
    half = received(world).signal_w
    world.set_polarization("pol", random_unitary(np.random.default_rng(seed)))
    turned = received(world)
    assert turned.signal_w == pytest.approx(half, rel=1e-9)
    assert turned.pair.rank == 1
    assert world.mesh_output_w().sum() == pytest.approx(0.5e-3 * loss(0.5 + ACCESS_DB + 0.5 * ENDS[port][1]), rel=1e-9)


def test_a_booster_adds_noise() -> None:
    # 58 dB + 0 dBm - 5 dB, independent of the path after the amplifier: the chip has no amplifier.
    assert received(joined(*pairs(0), gain_db=10.0)).osnr_db == pytest.approx(53.0)
    assert received(joined(*pairs(0))).osnr_db == math.inf


def test_light_of_another_module_is_noise_within_the_band_and_only_power_beyond() -> None:
    x, y = pairs(0)
    world = joined(x, y)
    alone = received(world)
    other = source(x, name="other")
    inputs = (*world.wiring.inputs, other)
    shared, _ = world_of(inputs, world.wiring.outputs, PLAIN)
    shared.set_coherent("tx", LAUNCH)
    shared.set_source("other", 1e-6, 299792.458 / 193.4145)
    within = received(shared)
    assert within.signal_w == pytest.approx(alone.signal_w, rel=1e-9)
    assert within.osnr_db == pytest.approx(10 * math.log10(within.signal_w / (within.total_w - within.signal_w)))
    shared.set_source("other", 1e-6, 299792.458 / 194.0)
    beyond = received(shared)
    assert beyond.osnr_db == math.inf
    assert beyond.total_w > alone.total_w


def test_nobody_sending_is_no_signal() -> None:
    world = joined(*pairs(0))
    world.set_coherent("tx", dataclasses.replace(LAUNCH, power_w=0.0))
    assert world.received_coherent("rx", BAND_HZ) is None


def test_a_matrix_of_known_delays_is_judged_right() -> None:
    turn_out, turn_in = random_unitary(np.random.default_rng(1)), random_unitary(np.random.default_rng(2))

    def jones_at(frequency_hz: float) -> np.ndarray:
        phases = np.exp(-2j * np.pi * (frequency_hz - 193e12) * np.array([100e-12, 105e-12]))
        return np.asarray(turn_out @ np.diag([1.0, loss(1.5) ** 0.5] * phases) @ turn_in)

    pair = path_pair(jones_at, 193e12)
    assert pair.dgd_ps == pytest.approx(5.0, rel=1e-3)
    assert pair.pdl_db == pytest.approx(1.5)
