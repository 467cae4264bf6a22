"""All or nothing: circuits are set up in one commit and proven, or the mesh is rolled back."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from lumion_hw import Bench
from lumion_hw.circuits import CircuitRequest, PathSetup
from lumion_hw.errors import CircuitError, LimitError, LinkError, LinkLost, LumionError, SafetyError
from tests.circuits.known_mesh import A_TO_B, SMALL, path_setup

A_TO_C = [CircuitRequest("sfp-a", "sfp-c")]


@pytest.fixture
def in_service(setup: PathSetup) -> PathSetup:
    """A path set-up with one circuit in service, so that the mesh is not dark before."""
    setup.establish(setup.plan(A_TO_C))
    return setup


def generation(bench: Bench) -> int:
    return bench.emulated.faults.board("mesh0").core.generation


def assert_as_before(setup: PathSetup, before_ma: NDArray[np.float64]) -> None:
    assert np.array_equal(setup.bench.mesh.confirmed_currents_ma(), before_ma)
    assert setup.active is not None
    assert [circuit.request for circuit in setup.active.circuits] == A_TO_C
    assert all(proof.proven for proof in setup.prove())


def test_circuits_come_in_one_atomic_commit_of_the_table_planned_and_milestones_in_order_and_once(
    bench: Bench, setup: PathSetup
) -> None:
    before, plan = generation(bench), setup.plan(A_TO_B)
    milestones: list[str] = []
    setup.establish(plan, milestone=milestones.append)
    assert generation(bench) == before + 1
    step_ma = bench.mesh.controller.info.current_step_ma
    assert bench.mesh.confirmed_currents_ma() == pytest.approx(plan.currents_ma, abs=0.51 * step_ma)
    assert milestones == ["programmed", "settled", "los_clear", "link_up"]


def test_a_failed_circuit_reaches_no_link_up(bench: Bench, setup: PathSetup) -> None:
    milestones: list[str] = []
    bench.emulated.faults.kill_port(8)
    with pytest.raises(CircuitError):
        setup.establish(setup.plan(A_TO_B), milestone=milestones.append)
    assert milestones == ["programmed", "settled", "los_clear"]


BREAKAGES: dict[str, tuple[Callable[[Bench], None], type[LumionError], str, str]] = {
    "dead port at the exit": (
        lambda bench: bench.emulated.faults.kill_port(8), CircuitError, "sfp-a to sfp-b", "sfp-b to sfp-a"
    ),
    "broken fibre at the entry": (
        lambda bench: bench.emulated.faults.kill_port(6), CircuitError, "sfp-b to sfp-a", "sfp-a to sfp-b"
    ),
    "dead receiver": (lambda bench: bench.emulated.faults.kill_modules(["sfp-b"]), LinkError, "", ""),
}  # fmt: skip


@pytest.mark.parametrize(("breakage", "error", "dark", "bright"), BREAKAGES.values(), ids=BREAKAGES.keys())
def test_a_failure_leaves_the_mesh_as_it_was_and_names_what_arrived_and_what_did_not(
    bench: Bench,
    in_service: PathSetup,
    breakage: Callable[[Bench], None],
    error: type[LumionError],
    dark: str,
    bright: str,
) -> None:
    before_ma = bench.mesh.confirmed_currents_ma()
    assert before_ma.any()
    breakage(bench)
    with pytest.raises(error) as caught:
        in_service.establish(in_service.plan(A_TO_B))
    assert_as_before(in_service, before_ma)
    if dark:
        text = str(caught.value)
        assert text.startswith(f"1 of 2 circuits could not be verified by their light ({dark}: ")
        assert "the receiver reports loss of signal" in text
        assert f"Verified: {bright}. The mesh was rolled back" in text


@pytest.fixture(scope="module")
def undisturbed() -> Iterator[PathSetup]:
    """The same for several tests: after each interruption the state is as before, or the test fails."""
    with Bench.emulate(SMALL, seed=5) as bench:
        setup = path_setup(bench)
        setup.establish(setup.plan(A_TO_C))
        yield setup


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), SystemExit(143)])
@pytest.mark.parametrize("moment", ["programmed", "settled", "los_clear"])
def test_an_interrupt_between_program_and_proof_rolls_back(
    undisturbed: PathSetup, interrupt: BaseException, moment: str
) -> None:
    before_ma = undisturbed.bench.mesh.confirmed_currents_ma()

    def milestone(name: str) -> None:
        if name == moment:
            raise interrupt

    with pytest.raises(type(interrupt)):
        undisturbed.establish(undisturbed.plan(A_TO_B), milestone=milestone)
    assert_as_before(undisturbed, before_ma)


def at_programmed(action: Callable[[], object]) -> Callable[[str], None]:
    """Return a listener that does something as soon as the mesh is programmed."""

    def milestone(name: str) -> None:
        if name == "programmed":
            action()

    return milestone


def test_a_fault_latched_in_the_middle_keeps_the_heaters_off_until_it_is_cleared_by_its_id(
    bench: Bench, in_service: PathSetup
) -> None:
    with pytest.raises(SafetyError, match="ESTOP"):
        in_service.establish(in_service.plan(A_TO_B), milestone=at_programmed(bench.mesh.controller.outputs_off))
    assert not bench.mesh.confirmed_currents_ma().any()
    assert in_service.active is None  # no circuit is set up, and the software reports this
    newest = bench.mesh.controller.faults()[-1]
    assert (newest.source, newest.latched) == ("ESTOP", True)
    bench.mesh.controller.clear_fault(newest.fault_id)
    assert all(proof.proven for proof in in_service.establish(in_service.plan(A_TO_B)))


def test_an_interrupt_stays_an_interrupt_even_when_rolling_back_fails(bench: Bench, in_service: PathSetup) -> None:
    def stop_and_interrupt() -> None:
        bench.mesh.controller.outputs_off()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        in_service.establish(in_service.plan(A_TO_B), milestone=at_programmed(stop_and_interrupt))
    assert in_service.active is None


def test_a_controller_lost_in_the_middle_is_reported_as_lost(bench: Bench, in_service: PathSetup) -> None:
    board = bench.emulated.faults.board("mesh0")
    with pytest.raises(LinkError):
        in_service.establish(in_service.plan(A_TO_B), milestone=at_programmed(board.power_off))
    assert in_service.active is None


def test_a_transmitter_that_does_not_start_rolls_back(
    bench: Bench, in_service: PathSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_ma = bench.mesh.confirmed_currents_ma()

    def enable() -> None:
        raise LinkLost("unplugged", device="sfp-b")

    monkeypatch.setattr(bench.transponders["sfp-b"], "enable", enable)
    with pytest.raises(LinkLost, match="sfp-b"):
        in_service.establish(in_service.plan(A_TO_B))
    assert_as_before(in_service, before_ma)


def test_a_table_beyond_the_limits_is_refused_and_nothing_changes(bench: Bench, in_service: PathSetup) -> None:
    before_ma, plan = bench.mesh.confirmed_currents_ma(), in_service.plan(A_TO_B)
    plan.currents_ma[3] = 2.6  # small.yaml: heater_max_ma 2.5
    with pytest.raises(LimitError, match="channel 3"):
        in_service.establish(plan)
    assert_as_before(in_service, before_ma)


def test_light_that_reaches_nobody_leaves_one_clear_sentence_per_circuit(bench: Bench, setup: PathSetup) -> None:
    bench.emulated.faults.kill_port(1)
    bench.emulated.faults.kill_port(6)
    with pytest.raises(CircuitError) as caught:
        setup.establish(setup.plan(A_TO_B))
    assert str(caught.value).startswith("2 of 2 circuits could not be verified by their light")
    assert "Verified: none" in str(caught.value)
    assert not bench.mesh.confirmed_currents_ma().any()


@pytest.mark.parametrize("after_s", [0.05, 0.5, 2.0])
def test_a_laser_that_dies_while_its_polarization_is_searched_is_an_error_of_the_package(
    bench: Bench, in_service: PathSetup, after_s: float
) -> None:
    before_ma = bench.mesh.confirmed_currents_ma()
    faults = bench.emulated.faults
    faults.after(after_s, lambda: faults.inject("sfp-a", "laser_broken"))
    with pytest.raises(LumionError):
        in_service.establish(in_service.plan(A_TO_B))
    assert np.array_equal(bench.mesh.confirmed_currents_ma(), before_ma)


def test_an_error_that_is_none_of_the_package_becomes_one_and_all_is_as_before(
    undisturbed: PathSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_ma = undisturbed.bench.mesh.confirmed_currents_ma()

    def divide(*_arguments: object, **_named: object) -> None:
        raise ZeroDivisionError("float division by zero")

    monkeypatch.setattr(undisturbed._lighting._aligner, "maximise", divide)
    with pytest.raises(
        CircuitError, match="unexpected ZeroDivisionError: float division by zero; the mesh was rolled back"
    ):
        undisturbed.establish(undisturbed.plan(A_TO_B))
    monkeypatch.undo()
    assert_as_before(undisturbed, before_ma)
