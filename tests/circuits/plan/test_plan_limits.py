"""Limits and margins of budgets, refusals and feasible alternatives, priority, exclusive and active circuits."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lumion_hw import Bench
from lumion_hw.bench import BenchModel
from lumion_hw.circuits import BudgetError, CircuitPlan, CircuitRequest, budget_lines, explain, plan_circuits
from lumion_hw.circuits.plan.budget import violations
from lumion_hw.errors import LimitError, NoPathError
from lumion_hw.mesh.record.calibration_record import Conditions, CouplerEntry, CovarianceEntry, Dispersion
from tests.circuits.known_mesh import SMALL
from tests.circuits.plan.planning_cases import db, document, fully_known, model_of, record_of, with_device, with_inputs
from tests.ideal_bench import ideal_bench

A_B, B_C, C_A = (CircuitRequest(f"sfp-{a}", f"sfp-{b}") for a, b in ("ab", "bc", "ca"))
RING = [A_B, B_C, C_A]


@pytest.fixture(scope="module")
def bench() -> BenchModel:
    return model_of(document())


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("max_hops", 3, r"number of PUCs on the path is \d+, expected at most 3"),
        ("max_loss_db", 14.0, r"loss over the mesh is 1\d\.\d+ dB, expected at most 14"),
        ("min_margin_db", 9.0, r"margin (above the sensitivity|below the overload) is \d\.\d+ dB, expected at least 9"),
        # Too much at both ends of the receiver's range.
        ("min_margin_db", 12.0, r"below the overload is .*, expected at least 12; margin above the sensitivity is"),
    ],
)
def test_a_ceiling_that_cannot_be_kept_is_refused_with_what_would_do(
    bench: BenchModel, field: str, value: float, words: str
) -> None:
    request = replace(A_B, **{field: value})  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match=words) as caught:
        plan_circuits(bench, record_of(), [request])
    error = caught.value
    assert error.request == request
    assert "Feasible with" in str(error)
    assert error.nearest is not None
    # The plan that is called feasible is feasible.
    plan = plan_circuits(bench, record_of(), [error.nearest])
    assert plan.circuits[0].budget.received_dbm > -15.8


@pytest.mark.parametrize(("field", "value"), [("max_hops", 20), ("max_loss_db", 25.0), ("min_margin_db", 3.0)])
def test_a_ceiling_that_is_kept_changes_nothing(bench: BenchModel, field: str, value: float) -> None:
    free = plan_circuits(bench, record_of(), [A_B])
    kept = plan_circuits(bench, record_of(), [replace(A_B, **{field: value})])  # type: ignore[arg-type]
    assert kept.circuits[0].path == free.circuits[0].path


def test_a_circuit_without_enough_light_is_refused_and_told_how_much_is_missing() -> None:
    with pytest.raises(BudgetError, match=r"received power \(sensitivity\) is -\d+\.\d+ dBm, expected at least -15.8"):
        plan_circuits(with_inputs(gain_db=0.0), record_of(), [A_B])


def test_light_that_would_overload_the_receiver_is_trimmed() -> None:
    plan = plan_circuits(with_inputs(gain_db=22.0), record_of(), [A_B])
    circuit = plan.circuits[0]
    trim = circuit.arms[0].trim
    assert trim is not None
    assert trim.puc in circuit.path.pucs
    assert circuit.budget.received_dbm == pytest.approx(-2.0, abs=0.02)  # overload -1 dBm, and a decibel below
    assert plan.couplings == {trim.puc: trim.coupling}
    # 13 dB more than in small.yaml, where nothing is too bright.
    plain = plan_circuits(model_of(document()), record_of(), [A_B]).circuits[0].budget
    assert trim.loss_db == pytest.approx(plain.received_dbm + 13.0 + 2.0, abs=0.01)


def test_light_that_no_trim_takes_off_is_refused_with_the_number() -> None:
    with pytest.raises(
        BudgetError, match=r"received power \(overload\) is \d+\.\d+ dBm, expected at most -1"
    ) as caught:
        plan_circuits(with_inputs(gain_db=40.0), record_of(), [A_B])
    assert "Lower gain_db or tx_power_dbm" in str(caught.value)


def test_heat_beyond_the_controllers_limit_is_refused() -> None:
    with pytest.raises(LimitError, match="heat of all heaters"):
        plan_circuits(with_device("mesh0", total_power_mw=1.0), record_of(), RING)


@pytest.mark.parametrize("first", [1, 2])
def test_who_comes_first_has_the_way_it_would_have_alone(bench: BenchModel, first: int) -> None:
    requests = [replace(request, priority=int(index == first)) for index, request in enumerate(RING)]
    alone = plan_circuits(bench, record_of(), [RING[first]]).circuits[0]
    plan = plan_circuits(bench, record_of(), requests)
    assert [circuit.request for circuit in plan.circuits] == requests
    assert plan.circuits[first].path.pucs == alone.path.pucs
    assert plan.routing.bound <= plan.routing.cost


def test_a_first_choice_that_shuts_others_out_gives_way(bench: BenchModel) -> None:
    # Alone, a to b takes the path that b to c needs. One after the other they fail, together they work.
    alone = plan_circuits(bench, record_of(), [A_B])
    with pytest.raises(NoPathError):
        plan_circuits(bench, record_of(), [B_C], active=alone.circuits)
    plan = plan_circuits(bench, record_of(), [replace(A_B, priority=1), B_C])
    assert plan.circuits[0].path.pucs != alone.circuits[0].path.pucs


@pytest.mark.parametrize("limits", [{}, {"max_loss_db": 12.0}, {"max_hops": 3}])
def test_a_circuit_without_a_path_names_the_circuit_in_its_way(bench: BenchModel, limits: dict[str, float]) -> None:
    alone = plan_circuits(bench, record_of(), [A_B]).circuits
    with pytest.raises(NoPathError, match=r"no path from port \d+ to port \d+ with") as caught:
        plan_circuits(bench, record_of(), [replace(B_C, **limits)], active=alone)  # type: ignore[arg-type]
    assert "within" not in str(caught.value), "other limits would not help"
    assert caught.value.hint == "Disconnect sfp-a:sfp-b, or use other ports."


def test_nobody_shares_a_puc_with_an_exclusive_circuit(bench: BenchModel) -> None:
    together = plan_circuits(bench, record_of(), RING).circuits
    mine = set(together[0].path.pucs)
    assert any(mine & set(other.path.pucs) for other in together[1:]), "the case shows nothing"
    requests = [replace(A_B, exclusive=True), B_C, C_A]
    try:
        plan = plan_circuits(bench, record_of(), requests)
    except NoPathError as error:
        # Either is right, sharing is not. The refusal names the circuits in the way.
        assert re.search(r"exclusive .*share PUC \d+ with circuit sfp-\w to sfp-\w", str(error))  # noqa: PT017
    else:
        mine = set(plan.circuits[0].path.pucs)
        assert not any(mine & set(other.path.pucs) for other in plan.circuits[1:])


def test_an_active_circuit_in_the_way_of_an_exclusive_one_is_named(bench: BenchModel) -> None:
    together = plan_circuits(bench, record_of(), [B_C, C_A]).circuits
    with pytest.raises(
        NoPathError, match=r"exclusive circuit sfp-a to sfp-b would share .* with the active circuit sfp"
    ):
        plan_circuits(bench, record_of(), [replace(A_B, exclusive=True)], active=together)


def test_light_at_the_end_of_an_exclusive_circuit_is_traced_to_its_module(bench: BenchModel) -> None:
    coupler = CouplerEntry(0.02, 0.01)  # some percent of the amplitude go astray
    record = replace(record_of(), pucs=tuple(replace(puc, coupler=coupler) for puc in record_of().pucs))
    budget = plan_circuits(bench, record, [A_B, C_A]).circuits[0].budget
    (violation,) = violations(replace(A_B, exclusive=True), budget, hops=3)
    assert str(violation).startswith("light of other circuits at its end, most of it from sfp-c, is -")


def test_standing_circuits_keep_their_ways_and_count_what_leaks_into_them(bench: BenchModel) -> None:
    coupler = CouplerEntry(0.02, 0.01)  # 4 % of the amplitude go astray in cross, and 1 % in bar
    record = replace(record_of(), pucs=tuple(replace(puc, coupler=coupler) for puc in record_of().pucs))
    first = plan_circuits(bench, record, [C_A])
    then = plan_circuits(bench, record, [A_B], active=first.all_circuits)
    assert first.circuits[0].budget.crosstalk_db == -200.0
    assert [circuit.path for circuit in then.active] == [circuit.path for circuit in first.circuits]
    assert -100.0 < then.active[0].budget.crosstalk_db < -20.0
    assert {leak.receiver: leak.is_idle for leak in then.circuits[0].budget.leakage} == {"sfp-a": False, "sfp-c": True}
    for circuit in then.all_circuits:
        assert record_of().mesh.trace(circuit.path.source, then.states).port == circuit.path.target


def test_a_standing_circuits_trim_stays_and_nobody_passes_it() -> None:
    model = with_inputs(gain_db=22.0)
    first = plan_circuits(model, record_of(), [C_A])
    then = plan_circuits(model, record_of(), [A_B], active=first.circuits)
    ((puc, coupling),) = first.couplings.items()
    assert then.couplings[puc] == coupling
    assert puc not in then.circuits[0].path.pucs
    assert then.active[0].budget.received_dbm == pytest.approx(-2.0, abs=0.1)


def test_the_uncertainty_of_a_loss_is_that_of_the_record(bench: BenchModel) -> None:
    circuit = plan_circuits(bench, record_of(), [A_B]).circuits[0]
    # 0.1 dB at either port, 0.01 dB per PUC, without relation (known_mesh.py).
    assert circuit.budget.loss_sigma_db == pytest.approx(np.sqrt(0.1**2 + 0.1**2 + circuit.hops * 0.01**2))


def test_losses_that_err_together_add_up(bench: BenchModel) -> None:
    record = record_of()
    n_pucs = len(record.pucs)
    known = replace(
        record,
        covariance=CovarianceEntry((("loss_db", n_pucs),), 1, 1),
        arrays={"covariance_factor": np.full((n_pucs, 1), 0.05)},
    )
    circuit = plan_circuits(bench, known, [A_B]).circuits[0]
    assert circuit.budget.loss_sigma_db == pytest.approx(np.hypot(np.sqrt(0.02), 0.05 * circuit.hops))


def test_what_was_never_measured_is_uncertain_by_the_spread_of_chips(bench: BenchModel) -> None:
    record = record_of()
    blind = replace(record, ports=tuple(replace(entry, input_loss_db=None) for entry in record.ports))
    circuit = plan_circuits(bench, blind, [A_B]).circuits[0]
    assert circuit.budget.loss_sigma_db == pytest.approx(np.sqrt(1.0 + 0.1**2 + circuit.hops * 0.01**2))


def in_fibres_w(bench: Bench, sender: str) -> dict[int, float]:
    """Return the light of a module in the fibre behind the port of every output."""
    world = bench.emulated.world
    world.set_transmitter(sender, 1e-3)
    leaving_w = world.mesh_output_w()
    loss_db = world.truth.access_loss_db
    return {out.port: leaving_w[out.port] * 10 ** (-loss_db[out.port] / 10) for out in bench.wiring.outputs}


@pytest.mark.parametrize("seed", [5, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(6, 12))])
def test_leakage_is_that_of_the_light_itself(seed: int) -> None:
    with Bench.emulate(SMALL, seed=seed) as opened:
        plan = plan_circuits(opened, fully_known(opened), [A_B])
        opened.mesh.program(plan.currents_ma)
        at_fibre = in_fibres_w(opened, "sfp-a")
        own = at_fibre[8]
        for leak in plan.circuits[0].budget.leakage:
            assert leak.is_idle
            truth_db = db(at_fibre[leak.port] / own)
            # The light's wavelength is some hundredths of a nanometre off what the file says.
            assert leak.level_db == pytest.approx(truth_db, abs=2.0 if truth_db > -50.0 else 8.0)


@pytest.mark.parametrize(
    ("seed", "request_", "moved"),
    [(32, CircuitRequest("sfp-s3n1", "sfp-s2n1"), True), (58, CircuitRequest("sfp-s1n1", "sfp-s2n0"), False)],
    ids=["another way", "a PUC parked the other way"],
)
def test_receivers_that_nobody_sends_to_stay_darker_than_25_db(
    seed: int, request_: CircuitRequest, moved: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # A record with the formulas describes a chip completely that follows them.
    with Bench.emulate(ideal_bench("lumion-prototype", tmp_path), seed=seed) as opened:
        record = fully_known(opened)

        def worst_db(plan: CircuitPlan) -> float:
            """Return the highest light at an idle receiver relative to the circuit's own, from the emulated truth."""
            opened.mesh.program(plan.currents_ma)
            opened.clock.sleep(0.1)
            at_fibre, (circuit,) = in_fibres_w(opened, request_.source), plan.circuits
            own = at_fibre[circuit.exit.port]
            return max(db(at_fibre[leak.port] / own) for leak in circuit.budget.leakage if leak.is_idle)

        with monkeypatch.context() as without:
            without.setattr("lumion_hw.circuits.plan.planner._DARKER_ROUNDS", 0)
            bright = plan_circuits(opened, record, [request_])
        dark = plan_circuits(opened, record, [request_])
        assert worst_db(bright) > -22.0, "the case shows nothing"
        assert worst_db(dark) < -25.0
        assert (dark.circuits[0].path != bright.circuits[0].path) == moved
        assert "found no better path" in explain(bright)
        assert "found no better path" not in explain(dark)


def test_the_lines_of_a_budget_add_up_and_the_plan_is_told_in_words(bench: BenchModel) -> None:
    plan = plan_circuits(bench, record_of(), [A_B, A_B.reverse()])
    lines = {line.name: line.value for line in budget_lines(plan.circuits[0])}
    spent = [lines[what] for what in ("launch", "booster", "fibres, connectors, tap", "mesh, fibre to fibre")]
    assert sum(value for value in spent if value is not None) == pytest.approx(lines["received"])
    told = explain(plan)
    assert "sfp-a to sfp-b (NRZ, 10.3125 Gb/s)" in told
    assert "Controller pol-a" in told
    for circuit in plan.circuits:
        pucs = " ".join(map(str, circuit.path.pucs))
        assert f"port {circuit.path.source} to {circuit.path.target}, {circuit.hops} hops, PUCs {pucs}" in told


def test_a_wavelength_that_the_record_does_not_hold_for_is_reckoned_at_its_own(bench: BenchModel) -> None:
    # A bench file often has only defaults for an SFP+ module; set-up reads the values of the module.
    coupler = CouplerEntry(0.02, 0.01)
    pucs = tuple(replace(puc, coupler=coupler) for puc in record_of().pucs)
    slopes = Dispersion(differential_slope_rad_per_hz=-1.2e-13)

    def leak_db(shift_nm: float, low_nm: float, high_nm: float) -> float:
        conditions = Conditions(wavelength_range_nm=(low_nm, high_nm))
        record = replace(record_of(), pucs=pucs, dispersion=slopes, conditions=conditions)
        model = with_device("sfp-a", wavelength_nm=1550.0 + shift_nm)
        return plan_circuits(model, record, [A_B]).circuits[0].budget.leakage[0].level_db

    at_home = leak_db(0.0, 1549.0, 1551.0)
    assert leak_db(5.0, 1549.0, 1551.0) == pytest.approx(at_home)
    assert leak_db(5.0, 1540.0, 1560.0) != pytest.approx(at_home, abs=0.5)


def test_nothing_wanted_is_a_plan_too(bench: BenchModel) -> None:
    stands = plan_circuits(bench, record_of(), [A_B]).circuits
    assert plan_circuits(bench, record_of(), []).circuits == ()
    assert [circuit.path for circuit in plan_circuits(bench, record_of(), [], active=stands).active] == [stands[0].path]
