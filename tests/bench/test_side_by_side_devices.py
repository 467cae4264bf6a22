"""Devices of a bench asked at once: every wire for itself, devices on one wire one after another."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from lumion_hw import Bench
from lumion_hw.errors import LinkError

MAINFRAME = """\
version: 1
name: frame
devices:
  frame: {kind: keysight-816x, model: 8164B, modules: {0: 81600B-160, 1: 81634B}}
  laser: {kind: keysight-laser, mainframe: frame, pin: "1234"}
"""


def test_modules_on_wires_of_their_own_take_as_long_as_one() -> None:
    with Bench.emulate("lumion-prototype", seed=1) as bench:
        clock, modules = bench.clock, list(bench.transponders)
        began_s = clock.now()
        alone = bench.transponders[modules[0]].monitors()
        one_s = clock.now() - began_s
        readings = bench.run_parallel([(name, bench.transponders[name].monitors) for name in modules])
        assert clock.now() - began_s == pytest.approx(2.0 * one_s)
        assert len(readings) == 8
        assert readings[0].temperature_c == pytest.approx(alone.temperature_c, abs=0.5)


def test_what_is_asked_of_one_device_is_asked_in_order() -> None:
    with Bench.emulate("lumion-prototype", seed=1) as bench:
        said: list[str] = []
        work = [(name, partial(said.append, f"{name} {n}")) for n in range(3) for name in ("meter0", "sfp-s0n0")]
        bench.run_parallel(work)
        for name in ("meter0", "sfp-s0n0"):
            assert [line for line in said if line.startswith(name)] == [f"{name} {n}" for n in range(3)]


def test_all_that_fails_is_told_and_the_others_were_asked() -> None:
    with Bench.emulate("lumion-prototype", seed=1) as bench:
        bench.emulated.faults.kill_modules(["sfp-s0n0", "sfp-s0n1"])
        names = ["sfp-s0n1", "sfp-s1n0", "sfp-s0n0"]
        asked: list[str] = []

        def ask(name: str) -> None:
            bench.transponders[name].status()
            asked.append(name)

        with pytest.raises(LinkError) as caught:
            bench.run_parallel([(name, partial(ask, name)) for name in names])
        assert caught.value.device == "sfp-s0n1"  # the first in the order given
        assert len(caught.value.__notes__) == 1
        assert "sfp-s0n0" in caught.value.__notes__[0]
        assert asked == ["sfp-s1n0"]


def test_the_same_seed_gives_the_same_run() -> None:
    def run() -> list[float]:
        with Bench.emulate("lumion-prototype", seed=3) as bench:
            work = [(name, bench.transponders[name].monitors) for name in bench.transponders]
            return [each.temperature_c for _ in range(5) for each in bench.run_parallel(work)] + [bench.clock.now()]

    assert run() == run()


def test_slots_of_a_mainframe_share_its_wire(tmp_path: Path) -> None:
    path = tmp_path / "bench.yaml"
    path.write_text(MAINFRAME)
    with Bench.emulate(path, seed=1) as bench:
        order: list[str] = []

        def slow(name: str) -> None:
            order.append(f"{name} begins")
            bench.clock.sleep(0.01)
            order.append(f"{name} ends")

        bench.run_parallel([(name, partial(slow, name)) for name in ("frame", "laser")])
        assert order == ["frame begins", "frame ends", "laser begins", "laser ends"]
