"""From loss of signal to a verdict: one fade spends no spare, a dead server is named."""

import json
from pathlib import Path

import pytest
from known_mesh import path_setup

from lumion_hw import Bench
from lumion_hw.circuits import CircuitRequest, PathSetup
from lumion_hw.fabric import FailureVerdict, LightWatch, pair_requests
from lumion_hw.polarization import Aligner


def watch_of(setup: PathSetup) -> LightWatch:
    assert setup.active is not None
    return LightWatch(setup.bench, [circuit.request for circuit in setup.active.circuits])


@pytest.fixture
def four(prototype: Bench) -> PathSetup:
    """The prototype with server 0 and server 1 joined on both NICs."""
    setup = path_setup(prototype)
    setup.establish(setup.plan(pair_requests(prototype.model, "server0", "server1")))
    return setup


def test_light_everywhere_gives_no_verdict(joined: PathSetup) -> None:
    assert watch_of(joined).wait(1.0) is None


def test_a_dead_server_is_named_though_its_own_modules_are_silent(joined: PathSetup) -> None:
    watch = watch_of(joined)
    assert watch.poll() is None
    well_s = joined.bench.clock.now()
    joined.bench.emulated.faults.kill_modules(["sfp-b"])
    fault_s = joined.bench.clock.now()
    verdict = watch.wait(5.0)
    assert verdict is not None
    assert (verdict.server, verdict.dark, verdict.unreachable) == ("b", ("sfp-a",), ("sfp-b",))
    assert well_s - 0.1 <= verdict.since_s <= fault_s < verdict.at_s
    # Status lags up to 0.1 s (SFF-8472), a second poll confirms after another 0.1 s, and a silent module costs its
    # time-out of 0.1 s once.
    assert verdict.at_s - fault_s <= 0.35


def test_one_dark_look_is_not_a_verdict(joined: PathSetup) -> None:
    watch = watch_of(joined)
    joined.bench.emulated.faults.kill_modules(["sfp-b"])
    joined.bench.clock.sleep(0.2)  # the receiver shows its loss of signal by now
    assert watch.poll() is None
    verdict = watch.poll()
    assert verdict is not None
    assert verdict.server == "b"


def test_light_that_comes_back_between_two_looks_starts_the_count_again(joined: PathSetup) -> None:
    watch, bench = watch_of(joined), joined.bench
    for _ in range(3):
        bench.transponders["sfp-b"].disable()
        bench.clock.sleep(0.2)
        assert watch.poll() is None  # dark once
        bench.transponders["sfp-b"].enable()
        bench.clock.sleep(0.2)
        assert watch.poll() is None  # and bright again


def test_a_broken_fibre_at_one_of_two_nics_gives_no_verdict(four: PathSetup) -> None:
    four.bench.emulated.faults.kill_port(37)  # the input of sfp-s1n1
    assert watch_of(four).wait(2.0) is None


def test_a_polarization_fade_at_one_of_two_nics_gives_no_verdict(four: PathSetup) -> None:
    bench = four.bench
    watch, controller = watch_of(four), bench.polarization["pol-s1n1"]
    receiver = bench.transponders["sfp-s0n1"]
    Aligner(bench.clock).minimise("pol-s1n1", controller, lambda: bench.emulated.world.received_w("sfp-s0n1"))
    bench.clock.sleep(0.2)
    assert receiver.status().rx_los
    assert watch.wait(2.0) is None


def test_both_nics_dark_twice_is_a_verdict_on_the_server(four: PathSetup) -> None:
    watch = watch_of(four)
    four.bench.emulated.faults.kill_modules(["sfp-s1n0", "sfp-s1n1"])
    verdict = watch.wait(5.0)
    assert verdict is not None
    assert verdict.server == "server1"
    assert set(verdict.dark) == {"sfp-s0n0", "sfp-s0n1"}
    assert verdict.unreachable == ("sfp-s1n0", "sfp-s1n1")


def test_a_server_that_sends_no_light_but_answers_is_named_without_silent_modules(four: PathSetup) -> None:
    watch = watch_of(four)
    for port in (5, 37):  # both of its input fibres are cut; the modules are well
        four.bench.emulated.faults.kill_port(port)
    verdict = watch.wait(5.0)
    assert verdict is not None
    assert (verdict.server, verdict.unreachable) == ("server1", ())


def test_receivers_that_do_not_answer_are_no_evidence_against_who_feeds_them(joined: PathSetup) -> None:
    watch = watch_of(joined)
    joined.bench.emulated.faults.kill_modules(["sfp-b"])
    verdict = watch.wait(5.0)
    assert verdict is not None
    assert verdict.server == "b"  # not a, though b's receiver is silent


def test_circuits_that_are_not_watched_do_not_matter(four: PathSetup) -> None:
    watch = LightWatch(four.bench, [CircuitRequest("sfp-s0n0", "sfp-s1n0")])
    four.bench.emulated.faults.kill_port(37)
    assert watch.wait(1.0) is None


def test_waiting_gives_up_after_its_time(joined: PathSetup) -> None:
    began_s = joined.bench.clock.now()
    assert watch_of(joined).wait(1.0) is None
    assert 1.0 <= joined.bench.clock.now() - began_s <= 1.2


def test_the_verdict_is_in_the_log_with_its_evidence(joined: PathSetup, tmp_path: Path) -> None:
    bench = joined.bench
    bench.events.write_to(tmp_path / "events.jsonl")
    watch = watch_of(joined)
    bench.emulated.faults.kill_modules(["sfp-b"])
    assert isinstance(watch.wait(5.0), FailureVerdict)
    last = json.loads((tmp_path / "events.jsonl").read_text().splitlines()[-1])
    assert {key: last[key] for key in ("event", "server", "dark", "unreachable")} == {
        "event": "verdict",
        "server": "b",
        "dark": ["sfp-a"],
        "unreachable": ["sfp-b"],
    }
