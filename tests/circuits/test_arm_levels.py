"""Arms of coherent circuits: distinguished at the receiver, and levelled where the record has no output losses."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from lumion_hw import Bench
from lumion_hw.circuits import CircuitRequest, PathSetup, PlannedCircuit
from lumion_hw.circuits.arm_levels import ArmLeveller, ArmLevels
from lumion_hw.errors import CircuitError, LinkError
from tests.circuits.known_mesh import SMALL, path_setup, true_arm_losses_db, without_outputs
from tests.circuits.plan.planning_cases import fully_known

PAIR = SMALL.with_name("zr_pair.yaml")
THERE = CircuitRequest("zr-a", "zr-b")


def blind_setup(bench: Bench) -> PathSetup:
    return path_setup(bench, without_outputs(fully_known(bench)))


@pytest.fixture
def setup() -> Iterator[PathSetup]:
    with Bench.emulate(PAIR, seed=4) as bench:
        yield blind_setup(bench)


def imbalance_db(bench: Bench, circuit: PlannedCircuit) -> float:
    x_db, y_db = true_arm_losses_db(bench, circuit)
    return abs(x_db - y_db)


@pytest.mark.parametrize(
    ("received_dbm", "arms_by_power"),
    [
        pytest.param((0.0, -3.0), (1, 0), id="0 dBm is brighter than -3 dBm"),
        pytest.param((-3.0, 0.0), (0, 1), id="whichever arm it is"),
        pytest.param((2.0, 0.0), (1, 0), id="and dimmer than 2 dBm"),
        pytest.param((-3.0, None), (1, 0), id="no light is dimmest"),
    ],
)
def test_an_arm_of_exactly_0_dbm_is_one_of_light(
    received_dbm: tuple[float | None, ...], arms_by_power: tuple[int, int]
) -> None:
    assert ArmLevels(received_dbm).arms_by_power == arms_by_power


@pytest.mark.parametrize("seed", [4, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3, 5))])
def test_arms_are_level_though_nobody_knew_what_their_outputs_lose(seed: int) -> None:
    with Bench.emulate(PAIR, seed=seed) as bench:
        setup = blind_setup(bench)
        plan = setup.plan([THERE])
        bench.mesh.program(plan.currents_ma)
        bench.clock.sleep(0.1)
        assert imbalance_db(bench, plan.circuits[0]) > 1.0, "the case shows nothing"
        (proof,) = setup.connect([THERE])
        left_db = imbalance_db(bench, proof.circuit)
        assert left_db < 0.5
        assert proof.levels is not None
        assert proof.levels.imbalance_db == pytest.approx(left_db, abs=4.0 * proof.levels.sigma_db)
        assert proof.acceptance is not None
        assert proof.acceptance.pdl_db == pytest.approx(left_db, abs=0.3)
        # The driven currents are the remembered ones, including the trims of the plan.
        assert setup.active is not None
        bench.mesh.confirm_driven(setup.active.currents_ma)
        (again,) = setup.prove()
        assert again.proven
        assert again.loss_error_db == pytest.approx(proof.loss_error_db, abs=0.1)


def test_an_arm_whose_fibre_behind_the_mesh_is_broken_is_named(setup: PathSetup) -> None:
    before_ma = setup.bench.mesh.confirmed_currents_ma()
    setup.bench.emulated.faults.kill_port(11)  # tributary y leaves the mesh there, seen by the photodiode on the chip
    with pytest.raises(CircuitError, match=r"arm y \(ports 7 to 11\) brings .* diverted at PUC \d+"):
        setup.connect([THERE])
    assert np.array_equal(setup.bench.mesh.confirmed_currents_ma(), before_ma)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(KeyboardInterrupt(), id="Ctrl-C", marks=pytest.mark.long),
        pytest.param(LinkError("the cable is out"), id="cable", marks=pytest.mark.long),
    ],
)
def test_what_fails_while_an_arm_is_led_aside_leaves_the_mesh_as_it_was(
    setup: PathSetup, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh = setup.bench.mesh
    before_ma, seen_ma = mesh.confirmed_currents_ma(), list[np.ndarray]()

    def fails(leveller: ArmLeveller, name: str) -> float:
        seen_ma.append(mesh.confirmed_currents_ma())
        raise error

    monkeypatch.setattr(ArmLeveller, "_received_w", fails)
    with pytest.raises(type(error)):
        setup.connect([THERE])
    assert np.abs(seen_ma[0] - setup.plan([THERE]).currents_ma).max() > 0.1, "no arm was led aside"
    assert np.array_equal(mesh.confirmed_currents_ma(), before_ma)
    assert setup.active is None
    assert setup.bench.transponders["zr-a"].status().tx_disabled
