"""A bench whose modules do not answer: refused for scripts, opened for programs that keep circuits."""

import json
from pathlib import Path

import pytest

from lumion_hw import Bench, VirtualClock
from lumion_hw.bench.absent_module import RETRY_S
from lumion_hw.bench.bench import load
from lumion_hw.bench.emulated import emulated_bench
from lumion_hw.errors import IdentityError, LinkError
from tests.circuits.lasting_bench import LastingBench
from tests.edited_files import edited

FILE = Path(__file__).parents[1] / "data" / "small.yaml"
BREAKOUT = Path(__file__).parents[2] / "examples" / "dr4_breakout.yaml"


def opened(bench: LastingBench) -> Bench:
    links = bench.emulated.link
    return Bench(bench.model, lambda name, _: links(name), bench.clock, bench.emulated, allow_absent_modules=True)


@pytest.fixture
def bench(tmp_path: Path) -> LastingBench:
    return LastingBench(tmp_path)


def test_without_the_option_a_silent_module_is_an_error(bench: LastingBench) -> None:
    bench.emulated.faults.kill_modules(["sfp-b"])
    with pytest.raises(LinkError, match="sfp-b"):
        bench.open()


def test_with_it_the_bench_opens_and_each_use_of_the_module_is_an_error(bench: LastingBench, tmp_path: Path) -> None:
    bench.emulated.faults.kill_modules(["sfp-b"])
    with opened(bench) as again:
        assert not again.transponders["sfp-a"].status().tx_fault
        module = again.transponders["sfp-b"]
        for use in (module.status, module.monitors, module.enable, module.disable, module.identify):
            with pytest.raises(LinkError, match="sfp-b"):
                use()
        again.events.write_to(tmp_path / "events.jsonl")
        assert module.can_switch(), "its settings are offered, and raise the error"
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    events = [event for event in map(json.loads, lines) if event["event"] == "module absent"]
    assert [event["device"] for event in events] == ["sfp-b"]


def test_a_module_that_comes_back_is_used_like_any_other(bench: LastingBench) -> None:
    bench.emulated.faults.kill_modules(["sfp-b"])
    with opened(bench) as again:
        module = again.transponders["sfp-b"]
        assert not hasattr(module, "thresholds")
        bench.emulated.faults.revive_modules(["sfp-b"])
        bench.clock.sleep(RETRY_S)
        assert module.identify().serial == "ER-B"
        module.enable()
        assert not module.status().tx_disabled
        assert module.thresholds()  # type: ignore[attr-defined]


def test_after_an_attempt_the_module_is_left_alone_for_a_second(bench: LastingBench) -> None:
    bench.emulated.faults.kill_modules(["sfp-b"])
    with opened(bench) as again:
        module = again.transponders["sfp-b"]
        bench.clock.sleep(RETRY_S)
        with pytest.raises(LinkError):
            module.status()
        bench.emulated.faults.revive_modules(["sfp-b"])
        begin_s = bench.clock.now()
        for _ in range(10):
            with pytest.raises(LinkError):
                module.status()
        assert bench.clock.now() == begin_s
        bench.clock.sleep(RETRY_S)
        assert not module.status().tx_fault


def test_the_lanes_of_an_absent_module_come_back_with_it() -> None:
    clock, model = VirtualClock(), load(BREAKOUT)
    emulated = emulated_bench(model, clock, 1)
    emulated.faults.inject("dr4-a", "module_dead")
    with Bench(model, lambda name, _: emulated.link(name), clock, emulated, allow_absent_modules=True) as bench:
        lane = bench.transponders["dr4-a/2"]
        with pytest.raises(LinkError):
            lane.status()
        emulated.faults.end("dr4-a", "module_dead")
        clock.sleep(10.0)
        assert lane.status().tx_disabled in (True, False)
        assert bench.transponders["dr4-a"].identify().vendor


def test_another_module_in_its_place_is_still_an_error(bench: LastingBench, tmp_path: Path) -> None:
    other = LastingBench(tmp_path, edited(FILE, tmp_path, ("serial: ER-B", "serial: ER-X")))
    links = bench.emulated.link
    with pytest.raises(IdentityError, match="ER-X"):
        Bench(other.model, lambda name, _: links(name), bench.clock, bench.emulated, allow_absent_modules=True)
