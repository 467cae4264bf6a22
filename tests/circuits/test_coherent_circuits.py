"""Circuits of coherent modules: brought up, proven arm by arm and accepted by their receivers, beside SFP+ circuits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from lumion_hw import Bench
from lumion_hw.circuits import CircuitRequest, LinkBudget, PathSetup, refuse_power_feedback
from lumion_hw.circuits.coherent import max_ber
from lumion_hw.errors import CircuitError
from tests.circuits.known_mesh import SMALL, path_setup

THERE = CircuitRequest("zr-a", "zr-b")
BACK = THERE.reverse()
PLAIN = CircuitRequest("sfp-a", "sfp-b")


def mixed_file(directory: Path) -> Path:
    """Write the bench of the coherent pair plus two SFP+ modules, without splitters for them."""
    document = yaml.safe_load(SMALL.with_name("zr_pair.yaml").read_text(encoding="utf-8"))
    document["devices"] |= {
        "sfp-a": {"kind": "sfp-8472"},
        "sfp-b": {"kind": "sfp-8472"},
        "pol-a": {"kind": "oz-epc04"},
    }
    wiring = document["wiring"]
    wiring["inputs"].append(
        {"transponder": "sfp-a", "port": 1, "loss_db": 0.5, "gain_db": 9.0, "polarization": "pol-a"}
    )
    wiring["outputs"].append({"port": 3, "transponder": "sfp-b", "loss_db": 0.3})
    path = directory / "mixed.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[PathSetup]:
    with Bench.emulate(mixed_file(tmp_path), seed=3) as bench:
        yield path_setup(bench)


def test_a_coherent_circuit_comes_up_beside_an_sfp_circuit_and_is_accepted_by_its_receiver(mixed: PathSetup) -> None:
    plain, there = mixed.connect([PLAIN, THERE])
    assert plain.proven
    assert there.proven
    assert plain.acceptance is None
    told = there.acceptance
    assert told is not None
    assert told.lock.locked
    assert told.pdl_db == pytest.approx(there.circuit.budget.pdl_db, abs=0.3)
    assert told.dgd_ps == pytest.approx(there.circuit.budget.dgd_ps, abs=1.0)
    assert told.prefec_ber is not None
    assert told.max_ber is not None
    assert 0.0 < told.prefec_ber < told.max_ber
    # Each arm is measured at its own exit, with half of the launch.
    for arm, loss_db in zip(there.circuit.arms, there.arm_losses_db, strict=True):
        assert loss_db == pytest.approx(arm.loss_db, abs=0.5)
    # For the opposite direction everything is already up.
    began_s = mixed.bench.clock.now()
    (back,) = mixed.connect([BACK])
    assert back.proven
    assert mixed.bench.clock.now() - began_s < 2.0
    assert all(proof.proven for proof in mixed.prove())


@pytest.mark.long
def test_an_arm_that_loses_light_is_named_and_all_is_rolled_back(mixed: PathSetup) -> None:
    mixed.connect([PLAIN])
    before_ma = mixed.bench.mesh.confirmed_currents_ma()
    mixed.bench.emulated.faults.drift_power(7, lambda _: -3.0)  # the fibre of tributary y
    with pytest.raises(CircuitError, match=r"arm y \(ports 7 to 11\): loss") as caught:
        mixed.connect([THERE])
    assert re.search(r"fibre before the mesh: port \d+ emits [23]\.\d dB less", str(caught.value))
    assert np.array_equal(mixed.bench.mesh.confirmed_currents_ma(), before_ma)
    assert all(proof.proven for proof in mixed.prove())


def test_power_does_not_guide_two_polarizations(mixed: PathSetup) -> None:
    circuit = mixed.plan([THERE]).circuits[0]
    with pytest.raises(CircuitError, match="two polarizations of equal power, so the power behind a polarizer"):
        refuse_power_feedback(circuit)
    refuse_power_feedback(mixed.plan([PLAIN]).circuits[0])


def budget(mixed: PathSetup) -> LinkBudget:
    return mixed.plan([THERE]).circuits[0].budget


def test_the_largest_bit_error_ratio_is_that_of_a_module_that_just_meets_its_specification(mixed: PathSetup) -> None:
    just = replace(budget(mixed), osnr_db=24.0, required_osnr_db=24.0, pdl_db=0.0, dgd_ps=0.0)
    # ZR400-OFEC corrects up to 2e-2 (OpenROADM), and needs 24 dB for it.
    assert max_ber(just) == pytest.approx(2e-2, rel=1e-6)
    better, worse = replace(just, osnr_db=30.0), replace(just, pdl_db=2.5)
    # By hand: 2e-2 is an SNR of 12.71 dB; at 24 dB of OSNR that of light is 24 - 6.81 = 17.19 dB, the rest 14.63 dB.
    # With 30 dB: 1/(10^-2.319 + 10^-1.463) is 14.06 dB, and 3/8·erfc(√2.547) is 9.0e-3.
    assert max_ber(better) == pytest.approx(9.0e-3, rel=0.02)
    assert (max_ber(worse) or 0.0) > 2e-2
    assert max_ber(replace(just, osnr_db=None)) is None
