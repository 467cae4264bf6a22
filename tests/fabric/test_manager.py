"""The manager: standby plans, detection, substitution, and the state that a killed manager leaves."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from firmware_protocol import Feature
from lumion_hw import Bench
from lumion_hw.circuits import CircuitRequest
from lumion_hw.errors import CircuitError, ConfigError, LinkError, LinkTimeout
from lumion_hw.fabric import FabricManager, Recovery, read_fabric
from lumion_hw.fabric.detectors.light import Modules, PhotodiodeOptions, Photodiodes
from lumion_hw.fabric.evidence import FailureVerdict
from tests.fabric.managed_fabric import SMALL, known_of, managed

SPANS = ["detected", "spare_chosen", "route_found", "programmed", "settled", "proven", "link_up"]
A_TO_C = ["sfp-a:sfp-c", "sfp-c:sfp-a"]


def standing(manager: FabricManager) -> list[str]:
    return sorted(circuit.name for circuit in manager.service.state.circuits)


def lose(manager: FabricManager, server: str, timeout_s: float = 3.0) -> Recovery:
    manager.fault_s = manager.bench.clock.now()
    manager.bench.emulated.faults.kill_modules(manager.bench.model.server(server).nics)
    recovery = manager.step(timeout_s)
    while recovery is None and manager.bench.clock.now() < manager.fault_s + timeout_s if manager.fault_s else False:
        recovery = manager.step(timeout_s)
    assert recovery is not None
    return recovery


def test_a_lost_server_is_noticed_and_replaced_within_milliseconds(prototype: FabricManager) -> None:
    board = prototype.bench.emulated.faults.board("mesh0")
    before = board.core.generation
    recovery = lose(prototype, "server1")
    assert (recovery.failed, recovery.spare) == ("server1", "server2")
    assert [span.name for span in recovery.spans] == SPANS
    at_ms = {span.name: span.at_ms for span in recovery.spans}
    assert at_ms["detected"] <= 5.0
    assert at_ms["proven"] <= 20.0
    assert all(span.source.startswith("emulated: ") for span in recovery.spans)
    assert [str(proof.circuit.request) for proof in recovery.proofs] == [
        "sfp-s0n0 to sfp-s2n0", "sfp-s2n0 to sfp-s0n0", "sfp-s0n1 to sfp-s2n1", "sfp-s2n1 to sfp-s0n1",
    ]  # fmt: skip
    assert all(proof.proven and not proof.los for proof in recovery.proofs)
    assert prototype.state.places == {"server1": "server2"}
    assert board.core.generation > before
    prototype.bench.emulated.faults.revive_modules(prototype.bench.model.server("server1").nics)
    prototype.bench.clock.sleep(1.0)
    prototype.mark_repaired("server1")
    assert prototype.spares[-1] == "server1", "it stands by where another one works"


def test_a_fade_of_one_fibre_starts_nothing(prototype: FabricManager) -> None:
    bench, generation = prototype.bench, prototype.bench.emulated.faults.board("mesh0").core.generation
    port = next(path.port for path in bench.wiring.inputs if path.transponder == "sfp-s0n0")
    began_s = bench.clock.now() + 0.1
    fades = prototype.judge.counters.fades
    bench.emulated.faults.drift_power(port, lambda s: -40.0 if began_s <= bench.clock.now() < began_s + 0.05 else 0.0)
    assert prototype.run(0.5) == []
    assert bench.emulated.faults.board("mesh0").core.generation == generation
    assert prototype.judge.counters.fades == fades + 1
    assert not prototype.state.failed or "server0" not in prototype.state.failed


@pytest.fixture
def patient(bench: Bench, tmp_path: Path) -> Iterator[FabricManager]:
    """The started manager of the small bench; it scans the photodiodes less often, so minutes take seconds."""
    with managed(bench, tmp_path, detectors=[rare_scans()]) as begun:
        begun.begin()
        begun.run(1.0)
        yield begun


def rare_scans() -> Photodiodes:
    return Photodiodes(PhotodiodeOptions(detector="photodiodes", period_s=0.01, hold_s=0.02))


@pytest.mark.long
def test_a_fibre_that_somebody_moved_is_searched_and_costs_neither_way_nor_spare(patient: FabricManager) -> None:
    before = standing(patient)
    ways = patient.service.setup.active.circuits  # type: ignore[union-attr]
    patient.bench.emulated.faults.turn_polarization("sfp-a")
    assert patient.run(10.0) == []
    assert (patient.judge.counters.verdicts, patient.judge.dark) == (0, ())
    assert standing(patient) == before
    assert patient.service.setup.active.circuits == ways  # type: ignore[union-attr]
    assert all(proof.proven for proof in patient.confirm())


def test_a_fibre_that_is_cut_is_searched_once_and_then_the_server_is_replaced(patient: FabricManager) -> None:
    patient.bench.emulated.faults.drift_power(1, lambda _: -60.0)
    (recovery,) = patient.run(10.0)
    assert (recovery.failed, recovery.spare) == ("a", "c")
    assert recovery.verdict.reason.endswith("port 1 or its fibre is dead")
    assert standing(patient) == ["sfp-b:sfp-c", "sfp-c:sfp-b"]


@pytest.mark.long
def test_polarizations_are_kept_while_fibres_turn_and_after_a_spare_has_stepped_in(tmp_path: Path) -> None:
    model = yaml.safe_load(SMALL.read_text(encoding="utf-8"))
    # Without tracking, exp(-0.006 * 100) of a state is left after these 100 s, and one of three fibres has lost more.
    model["emulation"] = {"fibre_drift_rad2_per_s": 0.006}
    (tmp_path / "turning.yaml").write_text(yaml.safe_dump(model), encoding="utf-8")
    with (
        Bench.emulate(tmp_path / "turning.yaml", seed=5) as bench,
        managed(bench, tmp_path / "state", detectors=[rare_scans()]) as manager,
    ):
        manager.begin()
        world, of = bench.emulated.world, {path.source: i for i, path in enumerate(bench.wiring.inputs)}

        def least_coupled(*modules: str) -> float:
            fields = [world._field_at_chip(of[module]) for module in modules]
            return min(float(abs(field[0]) ** 2 / np.vdot(field, field).real) for field in fields)

        assert manager.run(100.0) == []
        assert least_coupled("sfp-a", "sfp-b", "sfp-c") > 0.9
        assert manager.judge.counters.verdicts == 0
        bench.emulated.faults.kill_modules(["sfp-b"])
        assert [recovery.spare for recovery in manager.run(3.0)] == ["c"]
        # exp(-0.006 * 50) without tracking: 0.74.
        assert manager.run(50.0) == []
        assert least_coupled("sfp-a", "sfp-c") > 0.9


def test_spares_stand_by_lit_and_aligned_and_what_stays_keeps_its_currents_to_the_last_bit(
    manager: FabricManager,
) -> None:
    assert standing(manager) == ["sfp-a:sfp-b", "sfp-b:sfp-a", "sfp-c:sfp-c"]
    (plan,) = manager.standby.plans["b"]
    assert (plan.spare, plan.is_warm, plan.moved) == ("c", True, ())
    assert manager.standby.is_fresh
    setup = manager.service.setup
    assert setup.active is not None
    loop = CircuitRequest("sfp-c", "sfp-c")
    stays = [circuit for circuit in setup.active.circuits if circuit.request != loop]
    change = setup.plan_change([loop], [loop])
    heaters = [2 * puc + arm for circuit in stays for puc in circuit.path.pucs for arm in (0, 1)]
    assert np.array_equal(change.currents_ma[heaters], setup.active.currents_ma[heaters])


def test_with_one_fibre_the_transmitter_is_asked_before_a_spare_is_spent(
    manager: FabricManager, tmp_path: Path
) -> None:
    recovery = lose(manager, "b")
    assert recovery.failed == "b"
    assert "does not answer" in recovery.verdict.reason
    assert recovery.spans[0].at_ms >= 1e3 * manager.bench.model.fabric.fade_s
    assert standing(manager) == A_TO_C
    # The history has verdicts and spans but no single number.
    entries = read_fabric(tmp_path)[1]
    done = next(entry for entry in entries if entry.get("outcome") == "done")
    assert [span["name"] for span in done["spans"]][:4] == SPANS[:4]
    assert "recovery_ms" not in json.dumps(entries)


def test_a_broken_path_calls_for_another_way_and_not_for_a_spare(prototype: FabricManager) -> None:
    prototype.run(1.0)  # the healthy light level distinguishes a broken cell from a broken fibre
    assert prototype.service.setup.active is not None
    circuits = prototype.service.setup.active.circuits
    used = [puc for circuit in circuits for path in circuit.paths for puc in path.pucs]
    job = next(circuit for circuit in circuits if circuit.request.source == "sfp-s0n0")
    alone = [puc for puc in job.path.pucs if used.count(puc) == 1]
    failed = dict(prototype.state.failed)
    puc = alone[len(alone) // 2]
    # A heater sticks half a turn of phase away: the cell is in its other state, and light goes elsewhere.
    truth = prototype.bench.emulated.world.truth
    was_ma = prototype.service.setup.active.currents_ma[2 * puc]
    now_ma = np.sqrt(was_ma**2 + truth.p_pi_mw[2 * puc] / (1e-3 * truth.heater_ohm[2 * puc]))
    prototype.bench.emulated.faults.stick_heater(puc, 0, float(now_ma))
    # Takes seconds if the light goes to a port without a monitor, because its polarization is searched first.
    made = prototype.run(15.0, is_over=lambda: puc in prototype.state.avoided)
    assert len(made) == 1
    assert made[0].verdict.suspect == "path"
    assert (made[0].failed, made[0].spare) == ("", "")
    assert dict(prototype.state.failed) == failed
    assert puc in prototype.state.avoided
    assert all(proof.proven for proof in prototype.confirm())


@pytest.mark.long
def test_without_a_spare_the_job_is_refused_with_every_reason_and_leaves_nothing(manager: FabricManager) -> None:
    manager.mark_failed("c")
    assert standing(manager) == ["sfp-a:sfp-b", "sfp-b:sfp-a"]
    told: list[str] = []
    manager._emit = lambda what, particulars: told.append(what)
    manager.mark_failed("b")
    assert told.count("refused") == 1
    assert standing(manager) == []
    assert "no free spare" in manager.state.refused["a-b"]


@pytest.mark.long
@pytest.mark.parametrize("kind", [ZeroDivisionError, CircuitError])
def test_whatever_one_spare_raises_the_next_one_is_tried(prototype: FabricManager, monkeypatch, kind) -> None:
    service, switch, connect, errors = (
        prototype.service,
        prototype.service.switch,
        prototype.service.connect,
        [kind("planted")],
    )

    def fail_once(call, *arguments, **named):
        if errors:
            raise errors.pop()
        return call(*arguments, **named)

    monkeypatch.setattr(service, "switch", lambda *args, **named: fail_once(switch, *args, **named))
    monkeypatch.setattr(service, "connect", lambda *args, **named: fail_once(connect, *args, **named))
    first, second = (plan.spare for plan in prototype.standby.plans["server1"])
    recovery = prototype.mark_failed("server1")
    assert recovery is not None
    assert (recovery.failed, recovery.spare) == ("server1", second)
    assert first != second
    prototype.check_job_circuits()


def test_two_failures_at_once_take_two_spares_or_say_why(prototype: FabricManager) -> None:
    first, second = prototype.members(prototype.jobs[0])
    prototype.mark_failed(first)
    prototype.mark_failed(second)
    assert not prototype.state.refused
    assert {*prototype.members(prototype.jobs[0])} & {first, second} == set()
    assert all(proof.proven for proof in prototype.confirm())


def test_the_next_manager_goes_on_where_one_was_killed_before_the_commit(bench: Bench, tmp_path: Path) -> None:
    with managed(bench, tmp_path) as first:
        first.begin()
        now_s = bench.clock.now()
        first.journal.begin(FailureVerdict("unit", "b", "process", "b is gone", now_s, now_s, ("heartbeat",)))
    with managed(bench, tmp_path) as second:
        finished = second.begin()
        assert finished is not None
        assert finished.spare == "c"
        assert second.state.open is None
        assert standing(second) == A_TO_C


def test_the_next_manager_finds_the_commit_that_one_made_before_it_was_killed(bench: Bench, tmp_path: Path) -> None:
    with managed(bench, tmp_path) as first:
        first.begin()
        now_s = bench.clock.now()
        first.journal.begin(FailureVerdict("unit", "b", "process", "b is gone", now_s, now_s, ("heartbeat",)))
        (plan,) = first.standby.plans["b"]
        assert plan.plan is not None
        first.service.switch(plan.plan)
    before_ma = bench.mesh.confirmed_currents_ma()
    with managed(bench, tmp_path) as second:
        assert second.begin() is None
        assert second.state.places == {"b": "c"}
        assert second.state.open is None
        assert np.array_equal(bench.mesh.confirmed_currents_ma(), before_ma), "nothing was driven twice"


def test_a_controller_that_fails_leaves_the_recovery_begun(manager: FabricManager, tmp_path: Path) -> None:
    manager.bench.emulated.faults.board("mesh0").power_off()
    with pytest.raises(LinkError):
        manager.mark_failed("b")
    assert read_fabric(tmp_path)[0].open is not None


def test_a_spare_whose_light_fails_is_taken_out_and_nothing_else_moves(manager: FabricManager) -> None:
    manager.bench.emulated.faults.kill_modules(["sfp-c"])
    assert manager.run(1.0) == []
    assert "c" in manager.state.failed
    assert standing(manager) == ["sfp-a:sfp-b", "sfp-b:sfp-a"]


@pytest.mark.long
def test_loss_of_signal_alone_is_enough(bench: Bench, tmp_path: Path) -> None:
    with managed(bench, tmp_path, detectors=[Modules()]) as manager:
        manager.begin()
        assert lose(manager, "b").verdict.detectors == ("modules",)


@pytest.mark.long
def test_a_dark_fibre_is_noticed_with_no_word_from_any_host(bench: Bench, tmp_path: Path) -> None:
    with managed(bench, tmp_path, detectors=[Photodiodes()]) as manager:
        manager.begin()
        recovery = lose(manager, "b")
        assert (recovery.verdict.cause, recovery.verdict.detectors) == ("light", ("photodiodes",))


def test_who_has_failed_cannot_fail_again_and_what_is_repaired_serves_again(manager: FabricManager) -> None:
    manager.mark_failed("c")
    with pytest.raises(ConfigError, match="c has failed already"):
        manager.mark_failed("c")
    with pytest.raises(ConfigError, match="there is no server 'x'"):
        manager.mark_failed("x")
    with pytest.raises(ConfigError, match="b has not failed"):
        manager.mark_repaired("b")
    manager.mark_failed("b")
    manager.mark_repaired("c")
    assert manager.state.places == {"b": "c"}
    assert manager.state.refused == {}
    assert standing(manager) == A_TO_C


def test_a_server_whose_module_is_still_dead_is_not_repaired(manager: FabricManager, tmp_path: Path) -> None:
    manager.mark_failed("c")
    manager.bench.emulated.faults.kill_modules(["sfp-c"])
    with pytest.raises(LinkError, match="c stays out of service, because sfp-c does not answer"):
        manager.mark_repaired("c")
    assert "c" in read_fabric(tmp_path)[0].failed


def test_the_journal_keeps_why_a_spare_is_cold_as_long_as_it_is_cold(manager: FabricManager, tmp_path: Path) -> None:
    port = next(path.port for path in manager.bench.wiring.inputs if path.transponder == "sfp-c")
    manager.service.disconnect(["sfp-c:sfp-c"])
    manager.bench.emulated.faults.drift_power(port, lambda s: -60.0)
    manager.refresh()
    assert "sfp-c to sfp-c: received" in read_fabric(tmp_path)[0].cold["c"]
    manager.bench.emulated.faults.drift_power(port, lambda s: 0.0)
    manager.refresh()
    assert read_fabric(tmp_path)[0].cold == {}


def test_a_circuit_that_cannot_be_proven_by_photodiodes_is_rolled_back(manager: FabricManager) -> None:
    before_ma = manager.bench.mesh.confirmed_currents_ma()
    (plan,) = manager.standby.plans["b"]
    assert plan.plan is not None
    port = next(path.port for path in manager.bench.wiring.inputs if path.transponder == "sfp-c")
    manager.bench.emulated.faults.kill_port(port)
    with pytest.raises(CircuitError, match="sfp-c"):
        manager.service.switch(plan.plan)
    assert np.array_equal(manager.bench.mesh.confirmed_currents_ma(), before_ma)
    assert standing(manager) == ["sfp-a:sfp-b", "sfp-b:sfp-a", "sfp-c:sfp-c"]
    assert manager.service.journal.unfinished is None


def test_a_server_that_does_not_answer_when_the_manager_begins_is_replaced(bench: Bench, tmp_path: Path) -> None:
    known_of(bench)
    bench.emulated.faults.kill_modules(["sfp-b"])
    with managed(bench, tmp_path) as manager:
        manager.begin()
        assert (manager.state.places, manager.state.failed) == ({"b": "c"}, {"b": "its modules do not answer"})
        assert standing(manager) == A_TO_C


def test_a_late_reply_does_not_cost_a_server_its_place(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known_of(bench)
    module = bench.transponders["sfp-b"]
    late, status = [LinkTimeout("late")] * 2, module.status

    def status_after_late_replies() -> object:
        if late:
            raise late.pop()
        return status()

    with managed(bench, tmp_path) as manager:
        connect = manager.service.connect

        def connect_with_late_reply(*arguments: object, **options: object) -> object:
            if late:
                raise LinkTimeout("late")
            return connect(*arguments, **options)

        monkeypatch.setattr(module, "status", status_after_late_replies)
        monkeypatch.setattr(manager.service, "connect", connect_with_late_reply)
        manager.begin()
        assert manager.state.failed == {}
        assert manager.state.places == {}


@pytest.mark.long
def test_a_member_that_died_while_no_manager_ran_is_replaced_by_the_next(bench: Bench, tmp_path: Path) -> None:
    with managed(bench, tmp_path, detectors=[rare_scans()]) as manager:
        manager.begin()
    bench.emulated.faults.kill_modules(["sfp-b"])
    with managed(bench, tmp_path, detectors=[rare_scans()]) as manager:
        manager.begin()
        assert [recovery.failed for recovery in manager.run(2.0)] == ["b"], "its circuits stand as they were noted"
        assert standing(manager) == A_TO_C


def test_a_job_that_cannot_begin_is_refused_with_the_reason_and_tried_again(bench: Bench, tmp_path: Path) -> None:
    known_of(bench)
    bench.emulated.faults.kill_modules(["sfp-b", "sfp-c"])
    with managed(bench, tmp_path) as manager:
        manager.begin()
        assert list(manager.state.refused) == ["a-b"]
        assert standing(manager) == []
        bench.emulated.faults.revive_modules(["sfp-b"])
        bench.clock.sleep(1.0)
        manager.mark_repaired("b")
        assert manager.state.refused == {}
        assert standing(manager) == ["sfp-a:sfp-b", "sfp-b:sfp-a"]


@pytest.mark.parametrize("telemetry", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_controller_that_cannot_watch_is_watched_by_the_host(telemetry: bool, bench: Bench, tmp_path: Path) -> None:
    # A board without the feature and without streams: its monitors are polled.
    board = bench.emulated.faults.board("mesh0")
    known_of(bench)
    profile = replace(
        board.profile, features=board.profile.features & ~(1 << Feature.MONITOR_WATCH), n_streams=4 if telemetry else 0
    )
    board.profile = board.core.profile = profile
    bench.mesh.controller.open()  # type: ignore[attr-defined]
    assert (bench.mesh.controller.info.watches_light, bench.mesh.controller.info.telemetry) == (False, telemetry)
    with managed(bench, tmp_path, detectors=[Photodiodes()]) as manager:
        manager.begin()
        assert lose(manager, "b").verdict.detectors == ("photodiodes",)
        assert standing(manager) == A_TO_C
