"""The Qontrol driver over a bad wire: a table that is not driven is an error, and the next good wire works again.

The protocol has no checksum: a bit error in a request changes a current. The only protection is the reading after
every set, so a table counts as driven only within the driver's tolerance.
"""

from __future__ import annotations

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.mesh.qontrol.controller import DEFAULT_TOLERANCE_MA, QontrolController
from lumion_hw.errors import LinkError, LumionError
from lumion_hw.interfaces import ControllerLimits
from lumion_hw.links import MemoryLink
from lumion_hw.links.fault import Direction, FaultEvent, FaultKind, FaultLink, FaultPlan, FaultRates
from tests.drivers.mesh.qontrol.qontrol_wire import ModelChain

LIMITS = ControllerLimits(heater_max_ma=np.full(16, 15.0), heater_ohm=np.full(16, 500.0), total_power_mw=1e5)


class BadBench:
    """A controller over a wire that is good until it is told otherwise."""

    def __init__(self, mode: str, seed: int) -> None:
        self.clock = VirtualClock()
        self.model = ModelChain(self.clock)
        self.link = FaultLink(MemoryLink(self.model.connect, self.clock, "model"), FaultPlan(), self.clock, seed)
        self.controller = QontrolController(self.link, self.clock, device="mesh0", mode=mode)  # type: ignore[arg-type]
        self.controller.open()
        self.controller.configure(LIMITS)

    def recover(self) -> None:
        """Bring a good wire back into use, as an operator would."""
        self.link.apply(FaultPlan())
        self.clock.sleep(1.0)
        try:
            newest = [fault.fault_id for fault in self.controller.faults()]
        except LinkError:
            self.controller.open()
            newest = [fault.fault_id for fault in self.controller.faults()]
        self.controller.configure(LIMITS)
        if newest:
            self.controller.clear_fault(newest[-1])


def driven_wrong(bench: BadBench, table: np.ndarray) -> bool:
    content = np.array([bench.model.measured(channel)[1] for channel in range(16)])
    return bool((np.abs(content - table) > DEFAULT_TOLERANCE_MA + 1e-3).any())


@pytest.mark.parametrize("mode", ["binary", "ascii"])
@pytest.mark.parametrize("seed", range(6))
def test_over_a_bad_wire_a_table_is_driven_or_an_error_is_raised(mode: str, seed: int) -> None:
    bench = BadBench(mode, seed)
    tables = np.random.default_rng(seed).uniform(0.5, 10.0, size=(40, 16))
    rates = FaultRates(flip=1e-3, drop=1e-3, duplicate=1e-3, split=0.1, delay=0.01, delay_s=0.2)
    failed = 0
    for table in tables:
        bench.link.apply(FaultPlan(rates, rates))
        try:
            bench.controller.program(table)
        except LumionError:
            failed += 1
            bench.recover()
        else:
            assert not driven_wrong(bench, table)
    assert 0 < failed < len(tables)
    bench.link.apply(FaultPlan())
    bench.controller.program(tables[0])
    np.testing.assert_allclose(bench.model.values["I"], tables[0], atol=1e-3)


@pytest.mark.parametrize("mode", ["binary", "ascii"])
@pytest.mark.parametrize("kind", [FaultKind.UNPLUG, FaultKind.HALF_CLOSE, FaultKind.STALL])
@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("at_byte", [0, 1, 20, 60])
def test_unplugged_anywhere_is_a_link_error_in_time_and_can_be_opened_again(
    mode: str, kind: FaultKind, direction: Direction, at_byte: int
) -> None:
    bench = BadBench(mode, seed=1)
    start = bench.link.counts(direction).accepted
    bench.link.apply(FaultPlan(events=(FaultEvent(kind, direction, start + at_byte, duration_s=4.0),)))
    started_s = bench.clock.now()

    def program_until_it_is_noticed() -> None:
        for _ in range(3):  # what is unplugged after the last byte of a table is found by the next one
            bench.controller.program(np.full(16, 2.0))

    with pytest.raises(LinkError) as caught:
        program_until_it_is_noticed()
    assert caught.value.device == "mesh0"
    assert bench.clock.now() - started_s < 3.0
    bench.clock.sleep(4.0)
    bench.controller.close()
    bench.controller.open()
    bench.controller.program(np.full(16, 3.0))
    np.testing.assert_allclose(bench.model.values["I"], 3.0, atol=1e-3)
    np.testing.assert_allclose(bench.model.values["IMAX"], 15.0, atol=1e-3)


@pytest.mark.parametrize("mode", ["binary", "ascii"])
def test_outputs_off_gets_through_a_bad_wire_or_says_that_it_did_not(mode: str) -> None:
    confirmed = 0
    for seed in range(12):
        bench = BadBench(mode, seed)
        bench.controller.program(np.full(16, 5.0))
        rates = FaultRates(flip=2e-3, drop=2e-3)
        bench.link.apply(FaultPlan(rates, rates))
        try:
            bench.controller.outputs_off()
        except LumionError:
            continue
        confirmed += 1
        assert not driven_wrong(bench, np.zeros(16))
    assert confirmed >= 8
