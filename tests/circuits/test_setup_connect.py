"""Circuits are added and removed next to active ones, which are not disturbed."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lumion_hw import Bench
from lumion_hw.circuits import GLITCH_DB, CircuitRequest, PathSetup
from lumion_hw.errors import CircuitError, ConfigError, RoutingError, VerifyError
from tests.circuits.known_mesh import A_TO_B, path_setup, record_of_truth
from tests.circuits.planted_faults import stick_on_the_way

FORTH, BACK = A_TO_B


def events(bench: Bench, path: Path) -> list[dict[str, object]]:
    bench.events.write_to(path / "events.jsonl")
    return [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]


def generation(bench: Bench) -> int:
    return bench.emulated.faults.board("mesh0").core.generation


@pytest.fixture
def forth(setup: PathSetup) -> PathSetup:
    """A path set-up with one active circuit."""
    setup.connect([FORTH])
    return setup


def test_a_circuit_comes_beside_another_in_one_commit_and_its_heaters_keep_their_currents(
    bench: Bench, forth: PathSetup
) -> None:
    assert forth.active is not None
    stands, before_ma, before = forth.active.circuits[0], bench.mesh.confirmed_currents_ma(), generation(bench)
    (proof,) = forth.connect([BACK])
    assert proof.proven
    assert generation(bench) == before + 1
    assert [circuit.request for circuit in forth.active.circuits] == [FORTH, BACK]
    assert forth.active.circuits[0].path == stands.path
    heaters = [2 * puc + arm for puc in stands.path.pucs for arm in (0, 1)]
    assert np.array_equal(bench.mesh.confirmed_currents_ma()[heaters], before_ma[heaters])
    assert not np.array_equal(bench.mesh.confirmed_currents_ma(), before_ma)
    assert all(proof.proven for proof in forth.prove())


def test_light_of_a_standing_circuit_stays_within_the_glitch(bench: Bench, forth: PathSetup) -> None:
    lowest = highest = bench.emulated.world.received_w(FORTH.target)

    def look(_: str) -> None:
        nonlocal lowest, highest
        now_w = bench.emulated.world.received_w(FORTH.target)
        lowest, highest = min(lowest, now_w), max(highest, now_w)

    forth.connect([BACK], milestone=look)
    assert 10.0 * np.log10(highest / lowest) < GLITCH_DB


def test_disconnecting_puts_light_out_parks_and_leaves_the_other_alone(bench: Bench, forth: PathSetup) -> None:
    forth.connect([BACK])
    stands_w = bench.emulated.world.received_w(BACK.target)
    forth.disconnect([FORTH])
    assert bench.transponders[FORTH.source].status().tx_disabled
    assert not bench.transponders[BACK.source].status().tx_disabled
    assert forth.active is not None
    assert [circuit.request for circuit in forth.active.circuits] == [BACK]
    assert set(forth.active.routing.states) == set(forth.active.circuits[0].path.pucs)
    assert bench.emulated.world.received_w(BACK.target) == pytest.approx(stands_w, rel=0.05)
    forth.disconnect([BACK])
    assert forth.active is None


def test_what_does_not_stand_cannot_be_disconnected(forth: PathSetup) -> None:
    with pytest.raises(
        ConfigError, match=r"sfp-b to sfp-a: no such circuit is active\. Active circuits: sfp-a to sfp-b"
    ):
        forth.disconnect([BACK])


def test_a_module_that_serves_a_circuit_is_not_given_another(forth: PathSetup) -> None:
    with pytest.raises(ConfigError, match="circuit sfp-a to sfp-b already uses sfp-a"):
        forth.connect([CircuitRequest("sfp-a", "sfp-c")])


def test_without_a_way_beside_the_others_nothing_is_changed(bench: Bench, forth: PathSetup) -> None:
    before = generation(bench)
    forth.connect([BACK])
    with pytest.raises(RoutingError):
        forth.connect([CircuitRequest("sfp-c", "sfp-c")])
    assert generation(bench) == before + 1
    assert all(proof.proven for proof in forth.prove())


@pytest.mark.long
def test_new_heat_is_made_up_for_by_the_new_pucs_and_reckoned_for_the_others() -> None:
    with Bench.emulate(seed=4) as bench:
        setup = path_setup(bench)
        first, second = CircuitRequest("sfp-s0n0", "sfp-s1n0"), CircuitRequest("sfp-s2n1", "sfp-s3n1")
        setup.connect([first])
        setup.connect([second])
        assert setup.active is not None
        truth = bench.emulated.world.truth
        heat_mw = truth.heater_power_mw(bench.mesh.confirmed_currents_ma())
        arms = truth.crosstalk.arm_rad_per_mw @ heat_mw + np.pi * heat_mw / truth.p_pi_mw
        off = truth.passive_phase + arms[0::2] - arms[1::2]
        for number, circuit in enumerate(setup.active.circuits):
            for puc in circuit.path.pucs:
                wanted = {"bar": np.pi, "cross": 0.0}[setup.active.states[puc]]
                error_rad = abs((off[puc] - wanted + np.pi) % (2.0 * np.pi) - np.pi)
                # The new circuit differs only by rounding, the active one by the effect of the new heat.
                assert error_rad < (0.05 if number == 0 else 0.01)


def test_a_circuit_with_a_stuck_puc_takes_another_way(bench: Bench, setup: PathSetup, tmp_path: Path) -> None:
    puc = stick_on_the_way(setup, FORTH.source, FORTH.target, hop=2)
    (proof,) = setup.connect([FORTH])
    assert proof.proven
    assert puc not in proof.circuit.path.pucs
    told = [line for line in events(bench, tmp_path) if line["event"] in ("diagnosis", "another way")]
    assert [(line["event"], line.get("pucs") or line.get("avoiding")) for line in told] == [
        ("diagnosis", [puc]),
        ("another way", [puc]),
    ]


def test_where_there_is_no_other_way_all_is_rolled_back_and_the_standing_circuit_proven(
    bench: Bench, setup: PathSetup, tmp_path: Path
) -> None:
    setup.connect([BACK])
    before_ma = bench.mesh.confirmed_currents_ma()
    puc = stick_on_the_way(setup, FORTH.source, FORTH.target, hop=2)
    with pytest.raises(CircuitError, match=f"PUC {puc} does not reach its state. No alternative path was found"):
        setup.connect([FORTH])
    assert np.array_equal(bench.mesh.confirmed_currents_ma(), before_ma)
    assert bench.transponders[FORTH.source].status().tx_disabled
    assert events(bench, tmp_path)[-1]["event"] == "rolled back"
    assert events(bench, tmp_path)[-1]["standing"] == "proven"
    assert setup.active is not None
    assert [circuit.request for circuit in setup.active.circuits] == [BACK]


def test_light_at_an_exit_before_its_transmitter_is_on_is_refused(bench: Bench, setup: PathSetup) -> None:
    # sfp-c is on and was plugged in where the path back from the output ends.
    exit_port, world = bench.wiring.output_of(FORTH.target).port, bench.emulated.world
    back = bench.mesh.topology.trace(exit_port, setup.plan([FORTH]).states).port
    fibres = [replace(path, port=back) if path.source == "sfp-c" else path for path in world.wiring.inputs]
    world.wiring = replace(world.wiring, inputs=tuple(fibres))
    bench.transponders["sfp-c"].enable()
    with pytest.raises(CircuitError, match=f"port {exit_port} has .* before sfp-a is switched on"):
        setup.connect([FORTH])
    assert not bench.mesh.confirmed_currents_ma().any()


def test_what_an_earlier_program_set_up_is_adopted_when_the_read_back_confirms_it(
    bench: Bench, forth: PathSetup
) -> None:
    assert forth.active is not None
    later = path_setup(bench, forth.record)
    later.adopt(forth.active)
    assert all(proof.proven for proof in later.prove())
    later.connect([BACK])
    assert all(proof.proven for proof in later.prove())


def test_what_is_not_driven_is_not_adopted(bench: Bench, forth: PathSetup) -> None:
    assert forth.active is not None
    later, plan = path_setup(bench, forth.record), forth.active
    forth.disconnect([FORTH])
    with pytest.raises(VerifyError, match="the controller drives a current other than expected"):
        later.adopt(plan)
    assert later.active is None


@pytest.mark.parametrize(("moment", "down_db", "allowed"), [("programmed", 2.0, "0.3"), ("los_clear", 6.0, "3")])
def test_a_standing_circuit_that_is_disturbed_rolls_back(
    bench: Bench, forth: PathSetup, moment: str, down_db: float, allowed: str
) -> None:
    before_ma = bench.mesh.confirmed_currents_ma()

    def milestone(name: str) -> None:
        if name == moment:
            bench.emulated.faults.drift_power(1, lambda _: -down_db)

    disturbed = rf"active circuit sfp-a to sfp-b was disturbed \(-\d\.\d+ dB, allowed ±{allowed} dB\)"
    with pytest.raises(CircuitError, match=disturbed):
        forth.connect([BACK], milestone=milestone)
    assert np.array_equal(bench.mesh.confirmed_currents_ma(), before_ma)


@pytest.mark.long
def test_a_fibre_that_drifts_meanwhile_does_not_stop_others(bench: Bench, forth: PathSetup) -> None:
    def milestone(name: str) -> None:
        if name == "los_clear":
            bench.emulated.faults.drift_power(1, lambda _: -0.6)

    assert forth.connect([BACK], milestone=milestone)[0].proven


def test_a_second_interrupt_leaves_nothing_that_counts_as_set_up(
    bench: Bench, forth: PathSetup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def again(*_: object) -> None:
        raise KeyboardInterrupt

    def milestone(_: str) -> None:
        monkeypatch.setattr(bench.mesh, "program", again)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        forth.connect([BACK], milestone=milestone)
    assert forth.active is None
    assert events(bench, tmp_path)[-1]["event"] == "not rolled back"


def test_a_circuit_that_moves_is_made_before_it_is_broken(bench: Bench, forth: PathSetup, tmp_path: Path) -> None:
    assert forth.active is not None
    way = forth.active.circuits[0].path
    setup = path_setup(bench, record_of_truth(bench))
    setup.adopt(forth.active)
    dear = dict.fromkeys(way.pucs[1:2], "cross")
    elsewhere = setup.plan(
        [FORTH], fixed={puc: "bar" if forth.active.states[puc] == "cross" else "cross" for puc in dear}
    )
    assert elsewhere.circuits[0].path != way
    before = generation(bench)
    assert all(proof.proven for proof in setup.establish(elsewhere, align=False))
    assert generation(bench) == before + 2
    assert any(line["event"] == "made before break" for line in events(bench, tmp_path))
