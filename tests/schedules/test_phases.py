"""Phases of a job: the file, the model, configurations prepared and switched on the emulated bench."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lumion_hw import Bench
from lumion_hw.circuits import PathSetup
from lumion_hw.circuits.mesh_setting import record_avoiding
from lumion_hw.errors import CircuitError, ConfigError, LimitError, RoutingError, UnknownNameError
from lumion_hw.polarization import Aligner
from lumion_hw.schedules.collectives import make_schedule
from lumion_hw.schedules.mesh_steps import route_schedule
from lumion_hw.schedules.phase_run import (
    PhaseSwitch,
    measured_dark_times,
    measured_iteration,
    model_with_measured_dark_times,
)
from lumion_hw.schedules.phases import (
    JobPhase,
    PhasePlan,
    bench_router,
    iteration_times,
    load_phases,
    plan_warnings,
    prepare,
    prepared_document,
    save_phases,
    schedule_phases,
)
from lumion_hw.schedules.picture import plot_iteration
from tests.circuits.known_mesh import SMALL, record_of_truth
from tests.effort import examples

FILE = """\
version: 1
job: small
iterations: 3
phases:
  - {tag: data, duration_s: 0.05, rings: [[sfp-a, sfp-b, sfp-c]]}
  - {tag: compute, duration_s: 0.02}
  - {tag: pipeline, duration_s: 0.03, pairs: [[sfp-a, sfp-b]]}
"""


def written(directory: Path, text: str = FILE) -> Path:
    path = directory / "job.yaml"
    path.write_text(text, encoding="utf-8")
    return path


# -- the file


def test_a_file_of_phases(tmp_path: Path) -> None:
    plan = load_phases(written(tmp_path))
    assert (plan.job, plan.iterations, plan.modules) == ("small", 3, ("sfp-a", "sfp-b", "sfp-c"))
    assert plan.phases[0] == JobPhase("data", 0.05, (("sfp-a", "sfp-b"), ("sfp-b", "sfp-c"), ("sfp-c", "sfp-a")))
    assert plan.phases[1].circuits == ()
    # The ring stays up while nothing is sent. With the pair, c would send to a, which is in use.
    assert plan.configurations() == (
        plan.phases[0].circuits,
        plan.phases[0].circuits,
        (("sfp-a", "sfp-b"), ("sfp-b", "sfp-a")),
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("version: 1", "version: 2", r"1:10: version: expected 1, found the number 2"),
        ("0.05", "-1", r"5:\d+: phases\[0\].duration_s: expected more than 0"),
        ("0.05", ".nan", r"phases\[0\].duration_s: expected a finite number"),
        ("duration_s: 0.05", "seconds: 0.05", r"5:17: phases\[0\].seconds: "),
        ("tag: compute", "tag: data", r"6:\d+: phases\[1\].tag: expected tag 'data' to be used once.*phases\[0\].tag"),
        (
            "[[sfp-a, sfp-b]]",
            "[[sfp-a, sfp-b], [sfp-b, sfp-c]]",
            r"7:\d+: phases\[2\].pairs\[1\]: expected transmitter of",
        ),
        (
            "[[sfp-a, sfp-b]]",
            "[[sfp-a, sfp-a]]",
            r"7:47: phases\[2\].pairs\[0\]: expected two modules, found 'sfp-a' connected to itself",
        ),
        ("[[sfp-a, sfp-b]]", "[[sfp-a]]", r"phases\[2\].pairs\[0\]: expected at least 2 entries"),
        ("[[sfp-a, sfp-b, sfp-c]]", "[[sfp-a]]", r"phases\[0\].rings\[0\]: expected at least 2 entries"),
        ("iterations: 3", "iterations: 0", r"3:13: iterations: expected at least 1"),
        ("- {tag: compute", "\t- {tag: compute", r"6:3: .*found a tab"),
    ],
)
def test_mistakes_are_named_with_line_and_column(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = written(tmp_path, FILE.replace(old, new))
    with pytest.raises(ConfigError, match=rf"in phase file .*\n(.|\n)*job\.yaml:(\d+:\d+: )?{message}"):
        load_phases(path)


def test_files_without_circuits_or_of_something_else_are_refused(tmp_path: Path) -> None:
    none = "version: 1\njob: j\nphases: [{tag: a, duration_s: 1.0}]\n"
    with pytest.raises(ConfigError, match="3:9: phases: expected a phase with circuits"):
        load_phases(written(tmp_path, none))
    with pytest.raises(ConfigError, match="expected a mapping with the keys of a phase file"):
        load_phases(written(tmp_path, "- 1\n"))
    with pytest.raises(ConfigError, match="cannot read phase file"):
        load_phases(tmp_path / "missing.yaml")


def test_phases_are_written_as_they_are_read(tmp_path: Path) -> None:
    plan = load_phases(written(tmp_path))
    save_phases(plan, tmp_path / "again.yaml")
    assert load_phases(tmp_path / "again.yaml") == plan
    odd = PhasePlan(
        "yes", (JobPhase("null", 1e-6, (("e7", "on"), ("on", "e7"))),), 2
    )  # words that YAML reads as other values
    save_phases(odd, tmp_path / "again.yaml")  # overwriting its own file
    assert load_phases(tmp_path / "again.yaml") == odd
    with pytest.raises(ConfigError, match="exists"):
        save_phases(plan, tmp_path / "again.yaml", overwrite="nothing")
    with pytest.raises(ConfigError, match=r"job\.yaml"):
        save_phases(plan, tmp_path / "job.yaml")  # a file written by hand
    with pytest.raises(ConfigError, match="job: expected a letter"):
        save_phases(replace(plan, job="my job"), tmp_path / "not.yaml")
    assert not (tmp_path / "not.yaml").exists()


# -- the model


def two_sets(first_s: float, second_s: float) -> PhasePlan:
    """Return phases that alternate between two port sets, each time with other partners."""
    ab, ac, de, df = (("a", "b"),), (("a", "c"),), (("d", "e"),), (("d", "f"),)
    phases = (JobPhase("1", first_s, ab), JobPhase("2", second_s, de))
    return PhasePlan("j", (*phases, JobPhase("3", first_s, ac), JobPhase("4", second_s, df)))


def test_waits_by_hand() -> None:
    # Ports of phase 1 are used again in phase 3 with another partner: phase 2, 3 s long, hides 3 of 5 s.
    times = iteration_times(two_sets(3.0, 3.0), 5.0)
    assert times.waits_s == pytest.approx((2.0, 2.0, 2.0, 2.0))
    assert times.total_s == pytest.approx(20.0)


def test_phases_as_long_as_the_darkness_hide_all_of_it() -> None:
    times = iteration_times(two_sets(3.0, 3.0), 3.0)
    assert times.waits_s == pytest.approx((0.0,) * 4)
    assert len(times.dark) == 8  # every port went dark, and no phase waited
    assert plan_warnings(two_sets(3.0, 3.0), times) == ()


def test_one_port_set_hides_nothing() -> None:
    plan = PhasePlan("j", (JobPhase("1", 1.0, (("a", "b"),)), JobPhase("2", 1.0, (("a", "c"),))))
    times = iteration_times(plan, 0.5)
    assert times.waits_s == pytest.approx((0.5, 0.5))
    assert times.total_s == pytest.approx(3.0)
    assert "33 % of an iteration" in plan_warnings(plan, times)[0]
    assert iteration_times(plan, 0.0).total_s == pytest.approx(2.0)
    assert iteration_times(plan, 86_400.0).total_s == pytest.approx(2.0 + 2 * 86_400.0)


PAIRS = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("abcd")), max_size=4).map(
    lambda pairs: tuple(
        sorted((a, b) for i, (a, b) in enumerate(pairs) if a != b and all(a != c and b != d for c, d in pairs[:i]))
    )
)


@given(st.lists(st.tuples(PAIRS, st.floats(0.01, 2.0)), min_size=1, max_size=6), st.floats(0.0, 3.0))
@examples(150)
def test_no_circuit_is_used_while_dark(phases: list, delta_s: float) -> None:
    plan = PhasePlan("j", tuple(JobPhase(str(i), length_s, circuits) for i, (circuits, length_s) in enumerate(phases)))
    times = iteration_times(plan, delta_s)
    assert times.total_s == pytest.approx(sum(length_s for _, length_s in phases) + sum(times.waits_s))
    for phase, start_s in zip(plan.phases, times.starts_s, strict=True):
        ports = {port for a, b in phase.circuits for port in (f"{a}>", f">{b}")}
        for span in times.dark:
            if span.port in ports:
                for shift_s in (0.0, times.total_s):
                    assert (
                        span.ends_s + shift_s <= start_s + 1e-9
                        or span.starts_s + shift_s >= start_s + phase.duration_s - 1e-9
                    )
    # Never worse than waiting for every change in full.
    assert all(wait_s <= delta_s * len(phases) + 1e-9 for wait_s in times.waits_s)


@pytest.mark.parametrize("delta_s", [-1.0, math.nan, math.inf, 1e6])
def test_dark_times_that_make_no_sense_are_refused(delta_s: float) -> None:
    with pytest.raises(LimitError, match="dark time"):
        iteration_times(two_sets(1.0, 1.0), delta_s)


def test_a_timeline_has_every_phase_and_port(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, of the extra plots, is not there")
    plan = load_phases(written(tmp_path))
    plot_iteration(plan, iteration_times(plan, 0.004), tmp_path / "t.svg")
    text = (tmp_path / "t.svg").read_text(encoding="utf-8")
    for word in ("data", "compute", "pipeline", "sfp-a sends", "sfp-c receives"):
        assert f"<!-- {word} -->" in text


# -- on the bench


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> PhasePlan:
    return load_phases(written(tmp_path_factory.mktemp("job")))


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Bench.emulate(SMALL, seed=5) as opened:
        yield opened


@pytest.fixture(scope="module")
def setup(bench: Bench) -> PathSetup:
    return PathSetup(bench, record_of_truth(bench), Aligner(bench.clock))


@pytest.fixture(scope="module")
def switch(setup: PathSetup, job: PhasePlan) -> PhaseSwitch:
    made = PhaseSwitch(setup, prepare(setup.bench.model, setup.record, job))
    proofs = made.rehearse()
    assert all(proof.proven for each in proofs.values() for proof in each)
    return made


def test_ports_whose_peer_stays_keep_their_cells(setup: PathSetup, job: PhasePlan) -> None:
    prepared = prepare(setup.bench.model, setup.record, job)
    assert prepared["compute"].changed == ()
    assert prepared["pipeline"].kept == (("sfp-a", "sfp-b"),)
    ways = {tag: {str(c.request): c.path.pucs for c in each.plan.circuits} for tag, each in prepared.items()}
    assert ways["data"]["sfp-a to sfp-b"] == ways["pipeline"]["sfp-a to sfp-b"]
    for each in prepared.values():  # traced: light from every input ends where it should
        for circuit in each.plan.circuits:
            trace = setup.bench.mesh.topology.trace(circuit.path.source, each.plan.states)
            assert trace.port == circuit.path.target
    document = prepared_document(prepared)
    assert document["pipeline"]["kept"] == [["sfp-a", "sfp-b"]]


def test_ten_iterations_as_the_model_has_them(switch: PhaseSwitch, setup: PathSetup, job: PhasePlan) -> None:
    measured = switch.measure()
    assert measured["compute"].light_s == 0.0
    assert 0.001 < measured["data"].light_s < 0.02  # heaters take milliseconds
    assert measured["data"].receivers_s >= measured["data"].light_s
    phases = switch.run(job, iterations=10)
    assert [each.tag for each in phases] == [phase.tag for phase in job.phases] * 10
    prepared = prepare(setup.bench.model, setup.record, job)
    seen, said = measured_iteration(phases, 5, job), model_with_measured_dark_times(phases, prepared, job)
    assert seen.total_s == pytest.approx(said.total_s, abs=1e-4)
    assert seen.waits_s == pytest.approx(said.waits_s, abs=1e-4)
    assert seen.waits_s[2] == 0.0  # hidden behind the computation: it is 20 ms long
    assert seen.requests_s[1] is None
    changed = phases[-1].switched
    assert changed is not None
    assert set(changed.dark_s) == {("sfp-b", "sfp-a")}
    assert 0.0 < changed.dark_s["sfp-b", "sfp-a"] <= changed.proven_s
    assert all(each.heat_mw > 0.0 for each in phases)
    dark = {(each.tag, each.port): each for each in measured_dark_times(phases)}
    assert {port for tag, port in dark if tag == "pipeline"} == {"sfp-b>", ">sfp-a"}
    back = dark["pipeline", ">sfp-a"]
    every = [each.switched.dark_s["sfp-b", "sfp-a"] for each in phases if each.tag == "pipeline" and each.switched]
    assert (back.changes, back.longest_s) == (10, max(every))
    assert min(every) <= back.median_s <= back.longest_s
    # Each phase starts only after its circuits were proven.
    assert all(
        each.switched is None or each.start_s >= each.switched.requested_s + each.switched.proven_s - 1e-9
        for each in phases
    )


def test_measured_darkness_is_that_of_the_light_itself_and_what_stays_stays_bright(
    switch: PhaseSwitch, setup: PathSetup
) -> None:
    # The emulated chip is read every 50 µs, which no instrument can do.
    switch.switch("data")
    world, clock = setup.bench.emulated.world, setup.bench.clock
    inputs = {path.transponder: path.port for path in setup.bench.wiring.inputs}
    outputs = {path.transponder: path.port for path in setup.bench.wiring.outputs}
    frequency_hz = world.chains[0].frequency_hz
    seen: list[tuple[float, float, float]] = []

    def look() -> None:
        fields = {name: world.true_fields(inputs[name], frequency_hz) for name in ("sfp-a", "sfp-b")}
        stays, comes = fields["sfp-a"][outputs["sfp-b"]], fields["sfp-b"][outputs["sfp-a"]]
        seen.append((clock.now(), abs(stays) ** 2, abs(comes) ** 2))

    ticker = clock.call_every(50e-6, look)
    switched = switch.switch("pipeline")
    clock.sleep(5e-3)
    ticker.cancel()
    time_s, stays, comes = np.array(seen).T
    assert comes[0] < 0.01 * comes[-1]
    assert np.abs(10.0 * np.log10(stays / stays[-1])).max() < 0.5  # the active circuit, all the time
    bright_s = time_s[comes < 0.8 * comes[-1]].max() - switched.requested_s
    dark_s = switched.dark_s["sfp-b", "sfp-a"]
    assert bright_s <= dark_s + 50e-6  # nothing is sent into the dark
    assert dark_s < bright_s + 3e-3  # and not much later than possible: two scans of the photodiodes


def test_a_phase_that_fills_the_mesh_alone_waits_for_what_it_ends(setup: PathSetup) -> None:
    # Without PUC 12 the two circuits cannot be active together, although they share no port.
    phases = (
        JobPhase("one", 0.02, (("sfp-a", "sfp-b"),)),
        JobPhase("idle", 0.002, ()),
        JobPhase("two", 0.03, (("sfp-c", "sfp-a"),)),
    )
    plan = PhasePlan("j", phases)
    prepared = prepare(setup.bench.model, record_avoiding(setup.record, [12]), plan)
    assert [each.excludes_others for each in prepared.values()] == [True, False, True]
    assert prepared["idle"].circuits == phases[0].circuits
    assert iteration_times(plan, 0.004).waits_s == pytest.approx((0.0, 0.0, 0.0))  # if there were room
    times = iteration_times(plan, 0.004, [each.excludes_others for each in prepared.values()])
    assert times.waits_s == pytest.approx((0.004, 0.0, 0.002))
    switch = PhaseSwitch(setup, prepared)
    switch.rehearse()
    done = switch.run(plan, iterations=3)
    said = model_with_measured_dark_times(done, prepared, plan)
    assert measured_iteration(done, 2, plan).waits_s == pytest.approx(said.waits_s, abs=1e-4)


def test_a_phase_does_not_start_over_circuits_that_do_not_stand(switch: PhaseSwitch, job: PhasePlan) -> None:
    switch.switch("pipeline")
    with pytest.raises(CircuitError, match="phase data: sfp-b to sfp-c, sfp-c to sfp-a not active"):
        switch._check_circuits_active("data", job.phases[0].circuits)
    with pytest.raises(UnknownNameError, match="data, compute, pipeline"):
        switch.switch("tensor")


def test_a_job_says_itself_when_its_phases_begin_and_end(switch: PhaseSwitch, setup: PathSetup) -> None:
    switch.switch("data")
    assert switch.begin_phase("data") is None  # its circuits are up
    before = setup.active
    with pytest.raises(
        CircuitError, match="phase pipeline would end circuit sfp-b to sfp-c, which phase data uses"
    ) as caught:
        switch.begin_phase("pipeline")
    assert "end_phase('data')" in str(caught.value)
    assert setup.active is before
    assert switch.begin_phase("compute") is None  # beside it, over no circuits
    with pytest.raises(ConfigError, match="phase data has begun already"):
        switch.begin_phase("data")
    switch.end_phase("data")
    changed = switch.begin_phase("pipeline")
    assert changed is not None
    assert set(changed.dark_s) == {("sfp-b", "sfp-a")}
    for tag in ("pipeline", "compute"):
        switch.end_phase(tag)
    with pytest.raises(ConfigError, match=r"phase compute is not running.*\n?.*Running phases: none"):
        switch.end_phase("compute")
    with pytest.raises(UnknownNameError, match="no phase is called 'tensor'"):
        switch.begin_phase("tensor")


def test_circuits_for_the_next_phase_are_switched_while_another_goes_on_over_others(
    switch: PhaseSwitch,
) -> None:
    switch.switch("pipeline")
    switch.switch("data")
    switch.begin_phase("compute")
    assert switch.switch("pipeline").dark_s  # computing uses no port
    switch.end_phase("compute")
    assert switch.begin_phase("pipeline") is None
    switch.end_phase("pipeline")


def test_a_circuit_that_does_not_come_puts_the_configuration_before_back(
    switch: PhaseSwitch, setup: PathSetup, job: PhasePlan
) -> None:
    switch.switch("pipeline")
    driven = setup.active
    setup.bench.transponders["sfp-c"].disable()  # its light is needed next
    try:
        with pytest.raises(CircuitError):
            switch.switch("data")
    finally:
        setup.bench.transponders["sfp-c"].enable()
    assert setup.active is driven
    assert np.array_equal(setup.bench.mesh.is_driving(driven.currents_ma), np.ones(len(driven.currents_ma), dtype=bool))
    assert switch.switch("data").dark_s


def test_a_schedule_is_carried_out_step_by_step_by_light(setup: PathSetup) -> None:
    schedule = make_schedule("all-to-all-shifts", 3)
    names = ("sfp-a", "sfp-b", "sfp-c")
    found = route_schedule(bench_router(setup.bench.model, setup.record, names), schedule)
    plan = schedule_phases(found, names, 0.01)
    served = {pair for phase in plan.phases for pair in phase.circuits}
    assert len(served) == 6  # every module sends to every other
    switch = PhaseSwitch(setup, prepare(setup.bench.model, setup.record, plan))
    proofs = switch.rehearse()
    assert all(proof.proven for each in proofs.values() for proof in each)
    assert {(p.circuit.request.source, p.circuit.request.target) for each in proofs.values() for p in each} == served
    assert [each.tag for each in switch.run(plan)] == [phase.tag for phase in plan.phases]
    with pytest.raises(ConfigError, match="3 ranks need as many modules, not 2"):
        schedule_phases(found, names[:2], 0.01)


def test_modules_that_are_not_there_and_phases_without_ways_are_refused(setup: PathSetup) -> None:
    plan = PhasePlan("j", (JobPhase("1", 1.0, (("sfp-a", "sfp-x"),)),))
    with pytest.raises(ConfigError, match=r"sfp-x: .* no such module .*sfp-a, sfp-b, sfp-c"):
        prepare(setup.bench.model, setup.record, plan)
    # Too many PUCs are suspect for paths of the ring.
    ring = PhasePlan("j", (JobPhase("back", 1.0, (("sfp-a", "sfp-c"), ("sfp-c", "sfp-b"), ("sfp-b", "sfp-a"))),))
    tight = record_avoiding(setup.record, range(6))
    with pytest.raises(RoutingError, match=r"^phase back: "):
        prepare(setup.bench.model, tight, ring)
