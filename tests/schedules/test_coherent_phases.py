"""Phases with coherent modules: two arms per circuit, switched by tag, and waits for the receiver's lock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lumion_hw import Bench
from lumion_hw.circuits import PathSetup
from lumion_hw.errors import CircuitError, ConfigError
from lumion_hw.schedules import (
    JobPhase,
    LeaseRequest,
    LeaseTable,
    PhasePlan,
    PhaseSwitch,
    load_prepared,
    measured_iteration,
    model_with_measured_dark_times,
    prepare,
    save_prepared,
    serve_leases,
)
from tests.circuits.known_mesh import SMALL, path_setup

PLAIN, TO_B, TO_C = ("sfp-a", "sfp-b"), ("zr-a", "zr-b"), ("zr-a", "zr-c")
PLAN = PhasePlan(
    "coherent",
    (JobPhase("to-b", 0.5, (PLAIN, TO_B)), JobPhase("idle", 0.2, ()), JobPhase("to-c", 0.5, (TO_C,))),
    2,
)


def bench_file(directory: Path) -> Path:
    """Write a bench where zr-a reaches zr-b and zr-c over two arms each, beside a pair of SFP+ modules."""
    document = yaml.safe_load(SMALL.with_name("zr_pair.yaml").read_text(encoding="utf-8"))
    document["devices"] |= {
        "zr-c": {"kind": "cmis", "serial": "ZR-C", "profile": "zr-plus-high-power"},
        "sfp-a": {"kind": "sfp-8472"},
        "sfp-b": {"kind": "sfp-8472"},
        "pol-a": {"kind": "oz-epc04"},
    }
    wiring = document["wiring"]
    wiring["inputs"] = [each for each in wiring["inputs"] if each["transponder"] == "zr-a"]
    wiring["inputs"].append(
        {"transponder": "sfp-a", "port": 1, "loss_db": 0.5, "gain_db": 9.0, "polarization": "pol-a"}
    )
    wiring["outputs"] = [each for each in wiring["outputs"] if each["transponder"] == "zr-b"]
    wiring["outputs"] += [
        {"port": port, "transponder": "zr-c", "tributary": tributary, "loss_db": 0.3}
        for port, tributary in ((8, "x"), (6, "y"))
    ]
    wiring["outputs"].append({"port": 3, "transponder": "sfp-b", "loss_db": 0.3})
    path = directory / "coherent.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PathSetup]:
    with Bench.emulate(bench_file(tmp_path_factory.mktemp("bench")), seed=3) as bench:
        yield path_setup(bench)


def test_both_arms_are_as_long_as_each_other_and_go_on_as_they_are(setup: PathSetup, tmp_path: Path) -> None:
    mesh, prepared = setup.bench.mesh.topology, prepare(setup.bench.model, setup.record, PLAN)
    assert prepared["idle"].kept == (PLAIN, TO_B)
    assert prepared["to-c"].kept == (PLAIN,)
    circuits = {
        tag: {(c.request.source, c.request.target): c for c in each.plan.circuits} for tag, each in prepared.items()
    }
    assert list(circuits["to-c"]) == [PLAIN, TO_C]
    for tag, pair in (("to-b", TO_B), ("to-c", TO_C)):
        assert [arm.path.hops for arm in circuits[tag][pair].arms] == [circuits[tag][pair].hops] * 2
    # Remaining circuits keep their paths and trims, and each arm's light ends where it should.
    assert [arm.path for arm in circuits["idle"][TO_B].arms] == [arm.path for arm in circuits["to-b"][TO_B].arms]
    assert [arm.trim for arm in circuits["idle"][TO_B].arms] == [arm.trim for arm in circuits["to-b"][TO_B].arms]
    assert any(arm.trim is not None for arm in circuits["idle"][TO_B].arms)
    for each in prepared.values():
        for path in each.plan.routing.paths:
            assert mesh.trace(path.source, each.plan.states).port == path.target
    save_prepared(prepared, PLAN, setup.bench.model, setup.record, tmp_path / "p.json")
    _, read = load_prepared(tmp_path / "p.json", setup.bench.model, setup.record)
    assert [each.plan.circuits for each in read.values()] == [each.plan.circuits for each in prepared.values()]


@pytest.mark.long
def test_coherent_circuits_are_switched_by_tag_and_phases_wait_for_the_lock(setup: PathSetup) -> None:
    prepared = prepare(setup.bench.model, setup.record, PLAN)
    switch = PhaseSwitch(setup, prepared)
    assert all(proof.proven for proofs in switch.rehearse().values() for proof in proofs)
    changes = switch.measure()
    # There is light within the heaters' milliseconds; the lock takes far longer and does not depend on the light.
    for tag, receiver in (("to-b", "zr-b"), ("to-c", "zr-c")):
        assert 0.001 < changes[tag].light_s < 0.02
        assert 0.05 < changes[tag].receivers_s < 3.0
        switched = switch.switch(tag)
        assert set(switched.dark_s) == set(switched.locked_s) == {("zr-a", receiver)}
        assert switched.dark_s["zr-a", receiver] <= switched.light_s < switched.locked_s["zr-a", receiver]
        assert switched.proven_s == pytest.approx(max(switched.locked_s.values()))
        assert setup.bench.transponders[receiver].wait_for_lock(0.0).locked
    phases = switch.run(PLAN)
    assert [each.tag for each in phases] == ["to-b", "idle", "to-c"] * 2
    seen, said = measured_iteration(phases, 1, PLAN), model_with_measured_dark_times(phases, prepared, PLAN)
    # Computing hides 0.2 s of the wait for a lock before to-c, and none of the wait before to-b.
    assert seen.waits_s == pytest.approx(said.waits_s, abs=0.4)
    for each in phases:
        if each.switched is not None and each.iteration:
            assert each.start_s >= each.switched.requested_s + max(each.switched.locked_s.values())
    assert seen.waits_s[0] > 0.05


@pytest.mark.long
def test_a_receiver_that_does_not_lock_takes_the_change_back(setup: PathSetup) -> None:
    switch = PhaseSwitch(setup, prepare(setup.bench.model, setup.record, PLAN))
    switch.rehearse()
    switch.switch("to-b")
    stood = setup.active
    receiver = setup.bench.transponders["zr-c"]
    receiver.tune(194.1)  # its local oscillator has another frequency: light arrives but cannot be received
    receiver.enable()
    with pytest.raises(CircuitError, match="zr-a to zr-c: the receiver has not locked within 10 s: "):
        switch.switch("to-c")
    assert setup.active is stood
    assert stood is not None
    assert setup.bench.mesh.is_driving(stood.currents_ma).all()


@pytest.mark.long
def test_a_receiver_is_handed_from_one_sender_to_another(tmp_path: Path) -> None:
    # While the arms of zr-c are identified, zr-a is still on. A diverted arm must not let its light in.
    document = yaml.safe_load(SMALL.with_name("zr_pair.yaml").read_text(encoding="utf-8"))
    document["devices"]["zr-c"] = {"kind": "cmis", "serial": "ZR-C", "profile": "zr-plus-high-power"}
    wiring = document["wiring"]
    wiring["outputs"] = [each for each in wiring["outputs"] if each["transponder"] == "zr-b"]
    for each in wiring["inputs"]:
        each["transponder"] = each["transponder"].replace("zr-b", "zr-c")
    path = tmp_path / "two_senders.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    phases = (JobPhase("from-a", 0.5, (TO_B,)), JobPhase("from-c", 0.5, (("zr-c", "zr-b"),)))
    with Bench.emulate(path, seed=3) as bench:
        setup = path_setup(bench)
        switch = PhaseSwitch(setup, prepare(bench.model, setup.record, PhasePlan("j", phases)))
        proofs = switch.rehearse()
        told = [proof.acceptance for each in proofs.values() for proof in each]
        assert [each is not None and each.pdl_db is not None and each.pdl_db < 0.3 for each in told] == [True, True]
        assert set(switch.switch("from-a").locked_s) == {TO_B}


def test_modules_need_only_the_ends_that_phases_use(setup: PathSetup) -> None:
    backwards = PhasePlan("j", (JobPhase("back", 1.0, (("zr-b", "zr-a"),)),))
    with pytest.raises(ConfigError, match=r"zr-b: .* no such module with an input of the mesh.*\n?.*sfp-a, zr-a"):
        prepare(setup.bench.model, setup.record, backwards)
    mixed = PhasePlan("j", (JobPhase("mixed", 1.0, (("sfp-a", "zr-b"),)),))
    with pytest.raises(CircuitError, match="phase mixed: circuit sfp-a to zr-b cannot work"):
        prepare(setup.bench.model, setup.record, mixed)


@pytest.mark.long
def test_coherent_modules_are_lent_circuits_both_ways() -> None:
    with Bench.emulate(SMALL.with_name("zr_pair.yaml"), seed=3) as bench:
        setup = path_setup(bench)
        table = LeaseTable(bench.clock, ["zr-a", "zr-b"])
        lease = table.request(LeaseRequest("j", "zr-a", ("zr-b",), 6000.0))
        serve_leases(setup, table)
        assert setup.active is not None
        assert [len(circuit.arms) for circuit in setup.active.circuits] == [2, 2]
        assert all(bench.transponders[name].wait_for_lock(0.0).locked for name in ("zr-a", "zr-b"))
        table.release(lease.number)
        serve_leases(setup, table)
        assert setup.active is None
