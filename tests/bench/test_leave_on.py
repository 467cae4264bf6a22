"""Heaters that are left on on purpose: for a time, and never by accident."""

from pathlib import Path

import numpy as np
import pytest

from lumion_hw import Bench, VirtualClock
from lumion_hw.bench.bench import load, with_leave_on
from lumion_hw.bench.emulated import emulated_bench
from lumion_hw.errors import ConfigError, SafetyError, VerifyError

DATA = Path(__file__).parents[1] / "data"


class Lasting:
    """An emulated bench that is opened again and again."""

    def __init__(self, name: str) -> None:
        self.file, self.clock = load(DATA / name), VirtualClock()
        self.emulated = emulated_bench(self.file, self.clock, 3)

    def open(self, leave_on_s: float | None = None) -> Bench:
        model = with_leave_on(self.file, leave_on_s)
        return Bench(model, lambda name, _: self.emulated.link(name), self.clock, self.emulated, only=["mesh0"])


@pytest.mark.parametrize("name", ["small.yaml", "small_qontrol.yaml"])
def test_heaters_stay_as_they_are_for_the_next_program_that_asks_for_it(name: str) -> None:
    bench, wanted_ma = Lasting(name), np.full(30, 0.5)
    with bench.open(leave_on_s=60.0) as first:
        first.mesh.program(wanted_ma)
    bench.clock.sleep(20.0)
    with bench.open(leave_on_s=60.0) as second:
        assert second.mesh.is_driving(wanted_ma).all()
        assert np.allclose(second.mesh.confirmed_currents_ma(), wanted_ma, atol=1e-3)
        assert not second.mesh.is_driving(np.full(30, 0.9)).any()
        with pytest.raises(VerifyError, match="heater 0: the controller drives a current other than expected"):
            second.mesh.confirm_driven(np.full(30, 0.9))
        assert not any(fault.latched for fault in second.mesh.controller.faults())


def test_the_hold_ends_by_itself() -> None:
    bench = Lasting("small.yaml")
    with bench.open(leave_on_s=60.0) as first:
        first.mesh.program(np.full(30, 0.5))
    bench.clock.sleep(70.0)
    with bench.open(leave_on_s=60.0) as second:
        assert not second.mesh.confirmed_currents_ma().any()
        second.mesh.program(np.full(30, 0.5))  # and nothing is in the way


def test_who_does_not_ask_for_it_is_refused_while_heaters_are_held() -> None:
    bench = Lasting("small.yaml")
    with bench.open(leave_on_s=60.0) as first:
        first.mesh.program(np.full(30, 0.5))
    bench.clock.sleep(20.0)
    with pytest.raises(SafetyError, match=r"an earlier program left the outputs on.*lumion disconnect BENCH --all"):
        bench.open()
    with bench.open(leave_on_s=60.0) as third:  # as if nobody had tried
        assert third.mesh.is_driving(np.full(30, 0.5)).all()
        assert not any(fault.latched for fault in third.mesh.controller.faults())


def test_another_fault_is_never_cleared_on_the_way() -> None:
    bench = Lasting("small.yaml")
    with bench.open(leave_on_s=60.0) as first:
        first.mesh.program(np.full(30, 0.5))
    bench.clock.sleep(20.0)
    bench.emulated.faults.inject("mesh0", "trip", source=8)  # the external loop opens
    bench.clock.sleep(1.0)
    with bench.open(leave_on_s=60.0) as second:
        assert {fault.source for fault in second.mesh.controller.faults() if fault.latched} == {
            "WATCHDOG",
            "EXTERNAL_LOOP",
        }
        with pytest.raises(SafetyError):
            second.mesh.program(np.full(30, 0.5))


@pytest.mark.parametrize("leave_on_s", [-1.0, 3601.0, float("nan")])
def test_times_that_no_controller_holds_are_refused(leave_on_s: float) -> None:
    with pytest.raises(ConfigError, match=r"expected 0 to 3600 s.*lumion hold"):
        Lasting("small.yaml").open(leave_on_s=leave_on_s)
