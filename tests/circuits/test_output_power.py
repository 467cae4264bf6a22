"""Several circuits read the light at their outputs at once: one reading of an instrument serves all of them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

import pytest

from lumion_hw import Bench
from lumion_hw.circuits.output_power import OutputPowerReader, SharedInstrument
from lumion_hw.clock import Clock, SystemClock, VirtualClock
from lumion_hw.errors import CircuitError, DeviceError
from tests.circuits.plan.planning_cases import fully_known
from tests.one_at_a_time import Interleaved


class Instrument:
    """Needs 10 ms for a reading, and records when each began."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.looks: list[tuple[float, list[int]]] = []
        self.broken = False

    def look(self, channels: Collection[int]) -> dict[int, float]:
        self.looks.append((self.clock.now(), sorted(channels)))
        self.clock.sleep(0.01)
        if self.broken:
            raise DeviceError("no answer")
        return {channel: self.looks[-1][0] + channel for channel in channels}


def asking(shared: SharedInstrument[float], clock: Clock, channel: int, *at_s: float) -> Callable[[], list[float]]:
    def job() -> list[float]:
        seen = []
        for instant_s in at_s:
            clock.sleep(max(instant_s - clock.now(), 0.0))
            seen.append(shared.read(channel) - channel)
        return seen

    return job


def test_who_asks_at_one_instant_is_served_by_one_look() -> None:
    clock = VirtualClock()
    instrument = Instrument(clock)
    shared = SharedInstrument(clock, instrument.look)
    clock.run_parallel([asking(shared, clock, channel, 0.0) for channel in (3, 1, 2)])
    assert instrument.looks == [(0.0, [1, 2, 3])]
    assert clock.now() == 0.01


def test_who_asks_during_a_look_waits_for_the_next_one_and_gets_no_older_reading() -> None:
    clock = VirtualClock()
    instrument = Instrument(clock)
    shared = SharedInstrument(clock, instrument.look)
    jobs = [asking(shared, clock, 1, 0.0), asking(shared, clock, 2, 0.004, 0.025), asking(shared, clock, 3, 0.006)]
    seen = clock.run_parallel(jobs)
    assert seen == [[0.0], [pytest.approx(0.01), pytest.approx(0.025)], [pytest.approx(0.01)]]
    assert [channels for _, channels in instrument.looks] == [[1], [2, 3], [2]]


def test_a_look_that_fails_fails_for_all_who_waited_for_it_and_the_next_is_taken() -> None:
    clock = VirtualClock()
    instrument = Instrument(clock)
    shared = SharedInstrument(clock, instrument.look)
    instrument.broken = True
    with pytest.raises(DeviceError, match="no answer"):
        clock.run_parallel([asking(shared, clock, 1, 0.0), asking(shared, clock, 2, 0.0)])
    instrument.broken = False
    assert shared.read(1) == pytest.approx(clock.now() - 0.01 + 1)


def test_on_the_wall_clock_all_are_served_too() -> None:
    clock = SystemClock()
    instrument = Instrument(clock)
    shared = SharedInstrument(clock, instrument.look)
    begun_s = clock.now()
    seen = clock.run_parallel([asking(shared, clock, channel, *[0.0] * 5) for channel in range(1, 9)])
    assert all(len(each) == 5 and each == sorted(each) and each[0] >= begun_s for each in seen)
    assert len(instrument.looks) < 40


def test_meters_and_monitors_of_a_bench_are_read_so() -> None:
    with Bench.emulate("lumion-prototype", seed=1) as bench:
        outputs = bench.wiring.outputs[:4]
        record = None  # with meters on all taps, the record is not used
        power = OutputPowerReader(bench, record)  # type: ignore[arg-type]
        began_s = bench.clock.now()
        bench.clock.run_parallel([partial(power.read_w, out) for out in outputs])
        together_s = bench.clock.now() - began_s
        power.read_w(outputs[0])
        assert together_s == pytest.approx(bench.clock.now() - began_s - together_s, rel=0.2)


def test_callers_from_many_threads_each_get_a_reading_of_their_channel_from_a_look_that_began_after_them() -> None:
    looks: list[tuple[int, ...]] = []

    def look(channels: Collection[int]) -> dict[int, str]:
        looks.append(tuple(channels))
        return {channel: f"reading of {channel}" for channel in channels}

    instrument: SharedInstrument[str] = SharedInstrument(SystemClock(), look)
    threads = Interleaved(lines_of=[SharedInstrument])
    seen = threads.run(*[partial(instrument.read, channel) for channel in range(5)])
    assert seen == [f"reading of {channel}" for channel in range(5)]
    assert sorted(channel for channels in looks for channel in channels) == [0, 1, 2, 3, 4], "each is read once"


def test_a_photodiode_of_0_ma_per_mw_is_dead_and_not_an_unknown_one() -> None:
    """Its record states that it shows nothing, so no power can be derived from it, not even with the nominal value."""
    with Bench.emulate("lumion-prototype", seed=1) as bench:
        record = fully_known(bench)
        port = record.monitor_ports[0]
        out = next(each for each in bench.wiring.outputs if each.port == port)
        out = replace(out, meter=None, meter_channel=None)

        def power(ma_per_mw: float | None) -> OutputPowerReader:
            ports = [replace(each, monitor_ma_per_mw=ma_per_mw) for each in record.ports if each.port == port]
            others = [each for each in record.ports if each.port != port]
            return OutputPowerReader(bench, replace(record, ports=(*others, *ports)))

        assert port in power(None).output_powers_w()
        power(None).read_w(out)
        assert port not in power(0.0).output_powers_w()
        with pytest.raises(CircuitError, match=f"the photodiode at port {port} shows no light"):
            power(0.0).read_w(out)
