"""Polarization instruments of a bench: their effect on the light of their input, and their readings."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest

from lumion_hw.bench.emulated import device_spec, emulated_bench
from lumion_hw.bench.file.known_kinds import kind_named
from lumion_hw.bench.file.loader import load_bench
from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.assembly import EmulatedBench

MODEL = load_bench(Path(__file__).parents[1] / "data" / "small.yaml")
MW = 1e-3


def bench(kind: str, *, seed: int = 3, model: str = "") -> EmulatedBench:
    """Return the small bench with another controller in place of pol-a, and a polarimeter behind it."""
    spec = emulated_bench(MODEL, VirtualClock(), seed).spec
    inputs = tuple(
        dataclasses.replace(path, polarimeter="pm0") if path.polarization == "pol-a" else path
        for path in spec.wiring.inputs
    )
    devices = (
        *(each for each in spec.devices if each.name != "pol-a"),
        device_spec("pol-a", kind_named(kind).model(kind=kind, **({"model": model} if model else {}))),
        device_spec("pm0", kind_named("novoptel-pm1000").model(kind="novoptel-pm1000", serial="77")),
    )
    wiring = dataclasses.replace(spec.wiring, inputs=inputs)
    physics = dataclasses.replace(spec.physics, fibre_drift_rad2_per_s=0.0)
    spec = dataclasses.replace(spec, wiring=wiring, devices=devices, physics=physics)
    emulated = EmulatedBench(spec, VirtualClock(), seed)
    for name in ("sfp-a", "sfp-b", "sfp-c"):
        emulated.world.set_transmitter(name, MW if name == "sfp-a" else 0.0)
    return emulated


def tell(emulated: EmulatedBench, data: bytes, wait_s: float = 1.0) -> None:
    host = emulated.devices["pol-a"].connect()
    host.receive(data)
    emulated.clock.sleep(wait_s)
    host.transmit()
    host.close()
    emulated.clock.sleep(0.05)  # squeezers follow the command that was just executed


def state(emulated: EmulatedBench) -> np.ndarray:
    """Return the polarimeter's unit vector from its latched registers."""
    host = emulated.devices["pm0"].connect()

    def register(number: int) -> int:
        host.receive(b"\x52" + (512 + number).to_bytes(2, "big"))
        return int.from_bytes(host.transmit(), "big")

    register(24)
    return np.array([(register(number) - 2**15) / 2**15 for number in (28, 29, 30)])


COMMANDS = {
    "oz-epc04": b"V2,1700\r\n",
    "thorlabs-mpc": bytes.fromhex("10 02 07 01 50 01 53 04 06 00 D0 01 01 00 00 00 00 00"),
    "keysight-n7785c": b"STAB:STAB 1;SOP 0,0,0,100;:TRIG 1\n",
}


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_controller_turns_the_light_of_its_input_and_of_no_other(kind: str) -> None:
    emulated = bench(kind)
    before, light = state(emulated), emulated.world.mesh_output_w().sum()
    emulated.world.set_transmitter("sfp-a", 0.0)
    emulated.world.set_transmitter("sfp-b", MW)
    other = emulated.world.mesh_output_w().sum()
    tell(emulated, COMMANDS[kind])
    assert emulated.world.mesh_output_w().sum() == pytest.approx(other)
    emulated.world.set_transmitter("sfp-b", 0.0)
    emulated.world.set_transmitter("sfp-a", MW)
    assert abs(emulated.world.mesh_output_w().sum() / light - 1) > 1e-3
    turned = state(emulated)
    assert np.linalg.norm(turned) == pytest.approx(1.0, abs=1e-3)
    assert np.arccos(np.clip(turned @ before, -1, 1)) > 0.05


def test_a_paddle_is_seen_on_its_way() -> None:
    emulated = bench("thorlabs-mpc", model="MPC220")
    tell(emulated, bytes.fromhex("10 02 03 01 50 01 53 04 06 00 D0 01 01 00 00 00 00 00"))
    seen = [state(emulated)]
    host = emulated.devices["pol-a"].connect()
    host.receive(bytes.fromhex("53 04 06 00 D0 01 01 00 5A 05 00 00"))
    for _ in range(4):
        emulated.clock.sleep(0.1)
        seen.append(state(emulated))
    assert all(np.linalg.norm(one - other) > 0.01 for one, other in itertools.pairwise(seen))


def test_a_polarimeter_sees_the_sphere_through_a_fibre_of_its_own_that_stays() -> None:
    """Angles between states are those at the chip; the states themselves are rotated."""
    emulated = bench("oz-epc04")
    chip, seen = [], []
    for drive in (0, 1000, 2000):
        tell(emulated, b"V1,%d\r\n" % drive, 0.1)
        tell(emulated, b"V2,%d\r\n" % (2 * drive), 0.1)
        stokes_w = emulated.world.polarimeter_w("pm0")
        chip.append(stokes_w[1:] / stokes_w[0])
        seen.append(state(emulated))
    np.testing.assert_allclose(np.array(seen) @ np.array(seen).T, np.array(chip) @ np.array(chip).T, atol=0.02)
    assert np.linalg.norm(np.array(seen) - np.array(chip)) > 0.1


def test_other_controllers_do_not_change_the_world_of_a_seed() -> None:
    truths = [bench(kind).world.truth for kind in COMMANDS]
    for truth in truths[1:]:
        np.testing.assert_array_equal(truth.passive_phase, truths[0].passive_phase)
        np.testing.assert_array_equal(truth.access_loss_db, truths[0].access_loss_db)
