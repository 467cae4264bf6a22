"""Causes of circuits that cannot be proven: found by their light, and named."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lumion_hw import Bench
from lumion_hw.circuits import PathSetup
from lumion_hw.errors import CircuitError, DeviceError
from lumion_hw.mesh.routing.request import opposite_state
from tests.circuits.known_mesh import A_TO_B, edited, path_setup
from tests.circuits.planted_faults import stick, stick_on_the_way, with_fibres_swapped

FORTH = A_TO_B[0]


def found(setup: PathSetup) -> str:
    """Return the error of connecting, and check that everything is dark and cold afterwards."""
    with pytest.raises(CircuitError) as caught:
        setup.connect([FORTH])
    assert not setup.bench.mesh.confirmed_currents_ma().any()
    assert setup.bench.transponders[FORTH.source].status().tx_disabled
    return str(caught.value)


@pytest.mark.parametrize("hop", [3, *(pytest.param(hop, marks=pytest.mark.long) for hop in (1, 5))])
def test_a_stuck_puc_is_named(bench: Bench, setup: PathSetup, hop: int) -> None:
    puc = stick_on_the_way(setup, FORTH.source, FORTH.target, hop)
    (proof,) = setup.connect([FORTH])  # round it
    assert puc not in proof.circuit.path.pucs


@pytest.mark.long
def test_a_puc_stuck_half_way_is_named(bench: Bench, setup: PathSetup) -> None:
    puc = setup.plan([FORTH]).circuits[0].path.pucs[2]
    truth = bench.emulated.world.truth
    # Cold, and at a quarter of a turn: half of the light goes each way.
    truth.passive_phase[puc] = 0.5 * np.pi
    for arm in (0, 1):
        bench.emulated.faults.stick_heater(puc, arm, 0.0)
    (proof,) = setup.connect([FORTH])
    assert puc not in proof.circuit.path.pucs


def swapped(side: str, one: str, two: str) -> Callable[[Bench, Path], None]:
    return lambda bench, directory: with_fibres_swapped(bench, directory, side, one, two)


PLACES: dict[str, tuple[Callable[[Bench, Path], None], str]] = {
    "inputs swapped": (
        swapped("inputs", "sfp-a", "sfp-c"),
        "wiring: light of sfp-a enters at port 1 instead of 11, where the bench file connects sfp-c: their",
    ),
    "outputs swapped": (
        swapped("outputs", "sfp-b", "sfp-c"),
        "light for sfp-b leaves port 13 and arrives at the meter of sfp-c, which the bench file connects to port 8",
    ),
    "fibre before the mesh": (
        lambda bench, _: bench.emulated.faults.kill_port(1),
        "fibre before the mesh: sfp-a launches light, and none of it leaves the mesh",
    ),
    "fibre behind the mesh": (
        lambda bench, _: bench.emulated.faults.kill_port(8),
        "fibre behind the mesh: light leaves port 8, but all of it is lost behind the port",
    ),
    "loss before the mesh": (
        lambda bench, _: bench.emulated.faults.drift_power(1, lambda _: -4.5),
        "fibre before the mesh: port 8 emits 4.",
    ),
}


DEARER = {"fibre behind the mesh", "loss before the mesh"}
"""For these the polarization is searched first."""


@pytest.mark.parametrize(
    ("plant", "said"),
    [pytest.param(*case, id=name, marks=[pytest.mark.long] * (name in DEARER)) for name, case in PLACES.items()],
)
def test_the_place_is_named(
    bench: Bench, setup: PathSetup, tmp_path: Path, plant: Callable[[Bench, Path], None], said: str
) -> None:
    plant(bench, tmp_path)
    assert said in found(setup)


@pytest.mark.long
def test_both_ends_swapped_are_not_taken_for_each_other(bench: Bench, setup: PathSetup, tmp_path: Path) -> None:
    # The light of each arrives where the other's should, so the powers look right.
    with_fibres_swapped(bench, tmp_path, "inputs", "sfp-a", "sfp-b")
    with pytest.raises(CircuitError, match="their fibres are swapped"):
        setup.connect(A_TO_B)


def test_a_polarization_that_nobody_turns_is_named(
    bench: Bench, setup: PathSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_vain(*_: object) -> None:
        raise CircuitError("the squeezers do not move")

    monkeypatch.setattr("lumion_hw.polarization.Aligner.maximise", in_vain)
    bench.emulated.faults.turn_polarization("sfp-a", 2.0)
    assert "polarization: " in found(setup)


def test_a_receiver_that_sees_light_and_denies_it_is_named(tmp_path: Path) -> None:
    old = "  sfp-b: {kind: sfp-8472, serial: ER-B}"
    path = edited(tmp_path, (old, old.replace("}", ", los_assert_dbm: 4.0, los_release_dbm: 5.0}")))
    with Bench.emulate(path, seed=5) as bench:
        assert "receiver: its light arrives, but sfp-b reports loss of signal" in found(path_setup(bench))


def test_a_transmitter_that_does_not_start_is_named(bench: Bench, setup: PathSetup) -> None:
    bench.emulated.faults.inject("sfp-a", "laser_broken")
    with pytest.raises(DeviceError, match=r"sfp-a.*the transmitter did not start"):
        setup.connect([FORTH])
    assert not bench.mesh.confirmed_currents_ma().any()


def test_standing_circuits_are_not_touched_by_a_diagnosis(bench: Bench, setup: PathSetup) -> None:
    setup.connect(A_TO_B[1:])
    least_w = stands_w = bench.emulated.world.received_w("sfp-a")
    stick_on_the_way(setup, FORTH.source, FORTH.target, hop=2)
    program = bench.mesh.program

    def watched(currents_ma: object) -> object:
        nonlocal least_w
        made = program(currents_ma)  # type: ignore[arg-type]
        least_w = min(least_w, bench.emulated.world.received_w("sfp-a"))
        return made

    bench.mesh.program = watched  # type: ignore[method-assign,assignment]
    with pytest.raises(CircuitError):
        setup.connect([FORTH])
    assert least_w > 0.95 * stands_w


def test_an_active_circuit_that_loses_its_light_is_diagnosed_and_left_as_it_was(bench: Bench, setup: PathSetup) -> None:
    setup.connect([FORTH])
    assert setup.active is not None
    puc = setup.active.circuits[0].path.pucs[2]
    stick(setup, puc, opposite_state(setup.active.states[puc]))
    driven_ma = bench.mesh.confirmed_currents_ma()
    finding = setup.diagnose(FORTH)
    assert (finding.place, finding.pucs, finding.may_be_outside) == ("path", (puc,), False)
    assert np.array_equal(bench.mesh.confirmed_currents_ma(), driven_ma)
    assert not bench.transponders[FORTH.source].status().tx_disabled
    assert [circuit.request for circuit in setup.active.circuits] == [FORTH]


def test_a_circuit_whose_light_arrives_has_no_diagnosis(setup: PathSetup) -> None:
    setup.connect([FORTH])
    with pytest.raises(CircuitError, match="its light arrives"):
        setup.diagnose(FORTH)


def test_light_that_no_photodiode_sees_leaves_puc_and_fibre_as_suspects(tmp_path: Path) -> None:
    path = edited(tmp_path, ("columns: [2]", "columns: [2]\n  monitor_ports: [3, 8, 13]"))
    with Bench.emulate(path, seed=5) as bench:
        setup = path_setup(bench)
        setup.connect([FORTH])
        assert setup.active is not None
        puc = setup.active.circuits[0].path.pucs[-1]
        stick(setup, puc, opposite_state(setup.active.states[puc]))
        finding = setup.diagnose(FORTH)
    assert finding.may_be_outside
    assert puc in finding.pucs
    assert f"PUC {puc} does not reach its state, or port 1 or its fibre is dead" in finding.detail
