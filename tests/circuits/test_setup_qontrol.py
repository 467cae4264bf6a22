"""Circuits over a chain of Qontrol modules: no edge, no monitors, but set up, proven and rolled back like others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from lumion_hw import Bench
from lumion_hw.circuits import CircuitRequest, PathSetup
from lumion_hw.errors import CircuitError, LinkError
from tests.circuits.known_mesh import A_TO_B, SMALL, path_setup

A_TO_C = [CircuitRequest("sfp-a", "sfp-c")]


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench.emulate(SMALL.with_name("small_qontrol.yaml"), seed=5) as opened:
        yield opened


@pytest.fixture
def setup(bench: Bench) -> PathSetup:
    return path_setup(bench)


def carried_ma(bench: Bench) -> np.ndarray:
    """Return the currents that actually flow."""
    chain = bench.emulated.devices["mesh0"]
    chain.advance()
    currents: np.ndarray = chain.currents_ma  # type: ignore[attr-defined]
    return currents


def test_circuits_are_proven_by_meters_and_receivers(setup: PathSetup) -> None:
    proofs = setup.establish(setup.plan(A_TO_B))
    assert [proof.proven for proof in proofs] == [True, True]
    assert [proof.loss_error_db for proof in proofs] == pytest.approx([0.0, 0.0], abs=0.5)


def test_a_circuit_that_cannot_be_proven_leaves_exactly_the_currents_of_before(bench: Bench, setup: PathSetup) -> None:
    setup.establish(setup.plan(A_TO_C))
    before = carried_ma(bench)
    assert before.any()
    bench.emulated.faults.kill_port(bench.wiring.output_of("sfp-b").port)
    with pytest.raises(CircuitError, match="The mesh was rolled back"):
        setup.establish(setup.plan(A_TO_B))
    assert np.array_equal(carried_ma(bench), before)
    assert all(proof.proven for proof in setup.prove())


def test_the_first_circuits_are_rolled_back_to_a_cold_mesh(bench: Bench, setup: PathSetup) -> None:
    bench.emulated.faults.kill_port(bench.wiring.output_of("sfp-b").port)
    with pytest.raises(CircuitError):
        setup.establish(setup.plan(A_TO_B))
    assert not carried_ma(bench).any()


def test_a_module_that_dies_meanwhile_is_the_controllers_error_and_nothing_counts_as_set_up(
    bench: Bench, setup: PathSetup
) -> None:
    setup.establish(setup.plan(A_TO_C))
    bench.emulated.devices["mesh0"].power_off()  # type: ignore[attr-defined]
    with pytest.raises(LinkError) as caught:
        setup.establish(setup.plan(A_TO_B))
    assert caught.value.device == "mesh0"
