"""The set of wanted circuits: what differs is changed, what stays is left alone, and a second time changes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lumion_hw.bench.bench import load
from lumion_hw.circuits import (
    CircuitDifference,
    CircuitRequest,
    CircuitService,
    load_circuits,
    plan_difference,
    read_state,
)
from lumion_hw.errors import CircuitError, ConfigError
from lumion_hw.storage import load_record
from tests.circuits.lasting_bench import LastingBench

AB, BA, CA = CircuitRequest("sfp-a", "sfp-b"), CircuitRequest("sfp-b", "sfp-a"), CircuitRequest("sfp-c", "sfp-a")
BC, CB, AC = CircuitRequest("sfp-b", "sfp-c"), CircuitRequest("sfp-c", "sfp-b"), CircuitRequest("sfp-a", "sfp-c")


@pytest.fixture
def bench(one_bench: LastingBench) -> LastingBench:
    one_bench.forget()
    with one_bench.open() as opened:
        for module in opened.transponders.values():
            module.disable()
    return one_bench


def names(bench: LastingBench) -> set[str]:
    return {circuit.name for circuit in read_state(bench.directory)[0].circuits}


def apply(
    bench: LastingBench,
    *wanted: CircuitRequest,
    milestone: Callable[[str], None] = lambda name: None,
    **options: object,
) -> CircuitDifference:
    """Apply the wanted circuits in a program of their own, and return what was changed."""
    with bench.service() as service:
        difference = service.plan_difference(wanted)
        service.apply(difference, align=False, milestone=milestone, **options)  # type: ignore[arg-type]
        return difference


def currents_of(bench: LastingBench, name: str) -> np.ndarray:
    (circuit,) = (each for each in read_state(bench.directory)[0].circuits if each.name == name)
    return bench.driven_ma()[[2 * puc + arm for puc in circuit.pucs for arm in (0, 1)]]


def is_lit(bench: LastingBench, module: str) -> bool:
    with bench.open() as opened:
        return not opened.transponders[module].status().tx_disabled


def test_the_difference_is_changed_and_the_second_time_nothing(bench: LastingBench) -> None:
    apply(bench, AB, BC)
    kept_ma = currents_of(bench, "sfp-a:sfp-b")
    difference = apply(bench, AB, CA)
    assert (difference.kept, difference.removed) == ((AB,), (BC,))
    assert [circuit.request for circuit in difference.added] == [CA]
    assert names(bench) == {"sfp-a:sfp-b", "sfp-c:sfp-a"}
    assert np.array_equal(currents_of(bench, "sfp-a:sfp-b"), kept_ma)
    assert not is_lit(bench, "sfp-b")
    driven_ma, journal = bench.driven_ma(), bench.journal.read_bytes()
    assert apply(bench, CA, AB).changes_nothing
    assert np.array_equal(bench.driven_ma(), driven_ma)
    assert bench.journal.read_bytes() == journal
    with bench.service() as service:
        assert [proof.proven for proof in service.setup.prove()] == [True, True]
    apply(bench)
    assert names(bench) == set()
    assert not bench.driven_ma().any()


def test_a_new_circuit_is_proven_before_the_old_one_is_removed(bench: LastingBench) -> None:
    apply(bench, AB)
    told: list[str] = []
    difference = apply(bench, BA, milestone=told.append)
    assert [circuit.request for circuit in difference.first] == [BA]
    assert told.index("link_up") < told.index("removed")


def test_a_circuit_that_needs_a_module_of_a_removed_one_comes_after_it(bench: LastingBench) -> None:
    apply(bench, AB, BA)
    told: list[str] = []
    difference = apply(bench, AC, BA, milestone=told.append)
    assert [circuit.request for circuit in difference.last] == [AC]
    assert told.index("removed") < told.index("link_up")
    assert names(bench) == {"sfp-a:sfp-c", "sfp-b:sfp-a"}


def test_all_three_directions_are_reversed_in_one_change(bench: LastingBench) -> None:
    apply(bench, AB, BC, CA)
    apply(bench, BA, CB, AC)
    assert names(bench) == {"sfp-b:sfp-a", "sfp-c:sfp-b", "sfp-a:sfp-c"}
    with bench.service() as service:
        assert all(proof.proven for proof in service.setup.prove())


# -- refusals

SHORT = replace(BC, max_hops=1)


def test_a_refused_circuit_names_the_nearest_feasible_one_and_nothing_is_changed(bench: LastingBench) -> None:
    apply(bench, AB)
    driven_ma = bench.driven_ma()
    with pytest.raises(CircuitError, match="1 of the wanted circuits cannot be set up, so nothing was changed") as no:
        apply(bench, CA, SHORT)
    assert "Nearest feasible circuit, if planned together with the other new ones: sfp-b:sfp-c" in str(no.value)
    assert names(bench) == {"sfp-a:sfp-b"}
    assert np.array_equal(bench.driven_ma(), driven_ma)


def test_of_a_connected_circuit_the_nearest_one_is_that_without_the_limits(bench: LastingBench) -> None:
    apply(bench, AB)
    with pytest.raises(CircuitError, match=r"Nearest feasible circuit: sfp-a:sfp-b without these limits\."):
        apply(bench, replace(AB, min_margin_db=40.0))


def test_the_rest_is_applied_if_refused_circuits_are_skipped(bench: LastingBench) -> None:
    apply(bench, CA)
    difference = apply(bench, AB, SHORT, on_refusal="skip")
    (refusal,) = difference.refusals
    assert refusal.request == SHORT
    assert names(bench) == {"sfp-a:sfp-b"}
    assert refusal.alternative == replace(BC, max_hops=3)
    apply(bench, AB, refusal.alternative)  # as promised
    assert names(bench) == {"sfp-a:sfp-b", "sfp-b:sfp-c"}


def test_a_circuit_that_meets_its_new_limits_stays_as_it_is(bench: LastingBench) -> None:
    apply(bench, AB)
    driven_ma = bench.driven_ma()
    limited = replace(AB, min_margin_db=2.0, max_hops=9)
    difference = apply(bench, limited)
    assert difference.changes_nothing
    assert np.array_equal(bench.driven_ma(), driven_ma)
    (circuit,) = read_state(bench.directory)[0].circuits
    assert circuit.request == limited
    journal = bench.journal.read_bytes()
    assert apply(bench, limited).kept == (limited,)
    assert bench.journal.read_bytes() == journal
    with bench.service() as service:
        assert service.setup.prove()[0].proven


def test_a_circuit_whose_new_limit_is_refused_stays_as_it_is(bench: LastingBench) -> None:
    apply(bench, BC)
    difference = apply(bench, SHORT, AB, on_refusal="skip")
    assert difference.kept == (BC,)
    assert difference.refusals[0].alternative == BC
    assert names(bench) == {"sfp-b:sfp-c", "sfp-a:sfp-b"}


def test_a_module_that_is_not_wired_is_replaced_by_one_that_is(tmp_path: Path) -> None:
    bench = LastingBench(tmp_path)
    record = load_record(bench.record)
    difference = plan_difference(bench.model, record, [CircuitRequest("sfp-a", "sfp-x")], ())
    (refusal,) = difference.refusals
    assert "sfp-x" in refusal.reason
    assert refusal.alternative is not None
    assert refusal.alternative.source == "sfp-a"
    assert refusal.alternative.target in ("sfp-b", "sfp-c")


# -- failures and interruptions


def test_a_circuit_that_is_not_proven_brings_all_former_circuits_back(bench: LastingBench) -> None:
    apply(bench, AB, CA)
    driven_ma = bench.driven_ma()
    with bench.service() as service:
        difference = service.plan_difference([CA, AC])
        assert difference.last
        port_loss = bench.emulated.world.truth.access_loss_db
        before = port_loss.copy()

        def break_the_fibre(name: str) -> None:
            if name == "removed":
                port_loss[1] += 60.0
                bench.emulated.world.disturb()

        with pytest.raises(CircuitError):
            service.apply(difference, align=False, milestone=break_the_fibre)
        port_loss[:] = before
        bench.emulated.world.disturb()
    assert names(bench) == {"sfp-a:sfp-b", "sfp-c:sfp-a"}
    assert np.array_equal(bench.driven_ma(), driven_ma)
    assert is_lit(bench, "sfp-a")


def test_ctrl_c_brings_all_former_circuits_back(bench: LastingBench) -> None:
    apply(bench, AB)
    driven_ma = bench.driven_ma()

    def interrupt(name: str) -> None:
        if name == "removed":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        apply(bench, BA, milestone=interrupt)
    assert names(bench) == {"sfp-a:sfp-b"}
    assert np.array_equal(bench.driven_ma(), driven_ma)
    assert is_lit(bench, "sfp-a")
    assert not is_lit(bench, "sfp-b")
    apply(bench, BA)
    assert names(bench) == {"sfp-b:sfp-a"}


@pytest.mark.parametrize("milestone", ["programmed", "link_up", "removed"])
def test_killed_in_the_middle_the_same_command_finishes_the_job(bench: LastingBench, milestone: str) -> None:
    apply(bench, AB, BC)
    kept_ma = currents_of(bench, "sfp-a:sfp-b")

    def act(service: CircuitService, tell: Callable[[str], None]) -> None:
        service.apply(service.plan_difference([AB, CA]), align=False, milestone=tell)

    bench.killed_at(milestone, act)
    assert np.array_equal(currents_of(bench, "sfp-a:sfp-b"), kept_ma)
    apply(bench, AB, CA)
    assert names(bench) == {"sfp-a:sfp-b", "sfp-c:sfp-a"}
    assert np.array_equal(currents_of(bench, "sfp-a:sfp-b"), kept_ma)


# -- the file


def written(directory: Path, text: str) -> Path:
    path = directory / "circuits.yaml"
    path.write_text(text)
    return path


def test_a_file_lists_pairs_and_circuits_with_limits(bench: LastingBench, tmp_path: Path) -> None:
    wanted = load_circuits(
        written(
            tmp_path,
            "version: 1\non_refusal: skip\ncircuits:\n  - sfp-a:sfp-a\n"
            "  - {source: sfp-b, target: sfp-c, both: true, max_hops: 12, lease_s: 60}\n",
        ),
        bench.model,
    )
    limited = replace(BC, max_hops=12, lease_s=60.0)
    assert wanted.on_refusal == "skip"
    assert wanted.requests == (CircuitRequest("sfp-a", "sfp-a"), limited, limited.reverse())
    assert load_circuits(written(tmp_path, "version: 1\ncircuits: []\n"), bench.model).requests == ()


MISTAKES = {
    "version: 1\ncircuits:\n  - sfp-a:sfp-d\n": "circuits.yaml:3:5: .*found 'sfp-d'. Did you mean 'sfp-",
    "version: 1\ncircuits:\n  - sfp-a\n": "circuits.yaml:3:5: .*two modules such as sfp-a:sfp-b, found 'sfp-a'",
    "version: 1\ncircuts: []\n": "circuits.yaml:2:1: .*Did you mean 'circuits'",
    "version: 1\non_refusal: ignore\ncircuits: []\n": "circuits.yaml:2:13: .*'refuse_all' or 'skip', found text",
    "version: 1\ncircuits:\n  - {source: sfp-a, target: sfp-b, max_hop: 3}\n": "circuits.yaml:3:36: .*mean 'max_hops'",
    "version: 1\ncircuits:\n  - {source: sfp-a, target: sfp-b, max_hops: 0}\n": "circuits.yaml:3:46: .*at least 1",
    "version: 1\ncircuits:\n  - sfp-a:sfp-b\n  - sfp-a:sfp-c\n": "circuits.yaml:4:5: .*transmitter of sfp-a",
    "version: 1\ncircuits: 3\n": "circuits.yaml:2:11: .*a list",
    "circuits: []\n": "version: expected this key",
    "version: 1\ncircuits: [\n": "circuits.yaml:3:1: .*not valid YAML",
    "- sfp-a:sfp-b\n": "expected a mapping with the keys of a circuit file",
    "": "found no content",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_named_with_its_line(bench: LastingBench, tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s){MISTAKES[text]}"):
        load_circuits(written(tmp_path, text), bench.model)


def test_the_file_of_the_documentation_is_one_for_its_bench(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs" / "circuits.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^```yaml\n(version.*?)^```$", page, re.MULTILINE | re.DOTALL)
    wanted = load_circuits(written(tmp_path, text), load(root / "examples" / "mixed_bench.yaml"))
    assert [request.name for request in wanted.requests] == ["sfp-a:sfp-b", "zr-a:zr-b", "zr-b:zr-a"]
