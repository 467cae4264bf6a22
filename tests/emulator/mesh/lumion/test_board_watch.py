"""Monitor watching of the emulated board (section 9.3): hold-off, hysteresis, state events, and their times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from firmware_protocol import (
    HelloFlag,
    LightEvent,
    Refusal,
    Status,
    Stream,
    SweepImage,
    SweepPoint,
    WatchFlag,
    WatchReply,
    WatchRequest,
)
from tests.effort import examples
from tests.emulator.mesh.lumion.board_testbench import TINY, Bench, Host

BRIGHT_MA, DIM_MA, DARK_MA = 0.5, 0.25, 0.0
BELOW, FROM = 13107, 19661  # 0.2 and 0.3 of 1 mA full scale


def watching(*records: tuple[int, int, int, int], period: int = 1, profile=TINY) -> tuple[Bench, Host]:
    bench = Bench(profile)
    bench.monitors_ma = np.full(4, BRIGHT_MA)
    host = Host(bench).ready()
    reply = host.ask(WatchRequest(WatchFlag.CLEAR, period, records))
    assert isinstance(reply, WatchReply), reply
    assert reply.n_watched == len({record[0] for record in records})
    (state,) = host.heard() + host.listen(0.06 if "uart" in profile.pacing else 0.0005)
    assert state.tick == state.since
    return bench, host


def shine(bench: Bench, at_s: float, **monitors_ma: float) -> None:
    """Change the light of monitors at a time; as on a bench, the board first processes the light up to then."""
    bench.until(at_s)
    bench.monitors_ma = bench.monitors_ma.copy()
    for name, level_ma in monitors_ma.items():
        bench.monitors_ma[int(name[1:])] = level_ma


def told(host: Host, wait_s: float) -> list[tuple[int, int, list[int]]]:
    """Return tick, since and dark monitors of the events within a time."""
    return [(event.tick, event.since, dark_in(event)) for event in host.listen(wait_s)]


def dark_in(event: LightEvent) -> list[int]:
    return np.flatnonzero(np.unpackbits(np.frombuffer(event.dark, np.uint8), bitorder="little")).tolist()


@pytest.mark.parametrize("hold", [0, 1, 5])
def test_a_monitor_is_dark_when_its_readings_were_below_for_the_hold_off(hold: int) -> None:
    bench, host = watching((1, BELOW, FROM, hold))
    shine(bench, 0.5004, m1=DARK_MA)  # between two scans
    assert told(host, 0.02) == [(501 + hold, 501, [1])]
    assert bench.clock.now() == pytest.approx(0.5204)


def test_the_event_leaves_at_the_scan_that_decides() -> None:
    bench, host = watching((1, BELOW, FROM, 3))
    shine(bench, 0.2, m1=DARK_MA)
    while not host.decoder.feed(host.link.read(1.0)):
        pass
    # The scan of tick 200 has started before it went dark; the run starts at 201, 204 decides, the scan takes 50 us.
    assert bench.clock.now() == pytest.approx(0.20405, abs=2e-5)


def test_on_a_uart_it_comes_a_line_time_later() -> None:
    bench, host = watching((1, BELOW, FROM, 0), profile=replace(TINY, pacing="uart:115200", mtu=512))
    shine(bench, 0.2, m1=DARK_MA)
    items = []
    while not items:
        items = host.decoder.feed(host.link.read(1.0))
    n_bytes = 15 + 17
    assert bench.clock.now() == pytest.approx(0.20105 + n_bytes * 10 / 115200, abs=3e-4)


def test_light_that_comes_back_within_the_hold_off_was_never_gone() -> None:
    bench, host = watching((1, BELOW, FROM, 50))
    shine(bench, 0.2, m1=DARK_MA)
    shine(bench, 0.2495, m1=BRIGHT_MA)
    assert told(host, 0.2) == []


def test_between_the_thresholds_a_run_ends_and_nothing_changes() -> None:
    bench, host = watching((1, BELOW, FROM, 4))
    shine(bench, 0.2, m1=DARK_MA)
    shine(bench, 0.2035, m1=DIM_MA)
    assert told(host, 0.05) == []
    shine(bench, 0.3, m1=DARK_MA)
    assert [dark for *_, dark in told(host, 0.05)] == [[1]]
    shine(bench, 0.4, m1=DIM_MA)
    assert told(host, 0.05) == []
    shine(bench, 0.5, m1=BRIGHT_MA)
    assert told(host, 0.05) == [(505, 501, [])]


def test_a_saturated_monitor_is_light() -> None:
    bench, host = watching((1, 65535, 65535, 0))
    assert [dark for *_, dark in told(host, 0.01)] == [[1]]
    shine(bench, 0.2, m1=2.0)
    assert [dark for *_, dark in told(host, 0.01)] == [[]]


def test_monitors_that_go_dark_in_one_scan_are_one_event() -> None:
    bench, host = watching((0, BELOW, FROM, 2), (3, BELOW, FROM, 2), (2, BELOW, FROM, 4))
    shine(bench, 0.2, m0=DARK_MA, m2=DARK_MA, m3=DARK_MA)
    assert told(host, 0.05) == [(203, 201, [0, 3]), (205, 201, [0, 2, 3])]


def test_scans_stand_on_a_grid_of_their_period() -> None:
    bench, _ = watching((0, BELOW, FROM, 2), period=10)
    bench.scans.clear()
    first = round(bench.clock.now() * 1e3)
    for _ in range(10):
        bench.sleep(0.01)
    ticks = [round(instant * 1e3) for instant, _ in bench.scans]
    assert len(ticks) == 10
    assert np.diff(ticks).tolist() == [10] * 9
    assert first <= ticks[0] <= first + 10


def test_without_clear_records_are_added_and_replaced() -> None:
    _, host = watching((0, BELOW, FROM, 2), (1, BELOW, FROM, 2))
    assert (
        host.ask(WatchRequest(monitors=[(1, BELOW, FROM, 9), (2, BELOW, FROM, 1), (2, BELOW, FROM, 7)])).n_watched == 3
    )
    assert host.ask(WatchRequest(monitors=[(0, 0, 0, 0)])).n_watched == 2
    assert host.ask(WatchRequest(WatchFlag.CLEAR)).n_watched == 0


def test_a_lost_event_is_asked_for_again() -> None:
    bench, host = watching((1, BELOW, FROM, 0))
    shine(bench, 0.2, m1=DARK_MA)
    host.collect(0.01)  # this event is lost
    reply = host.ask(WatchRequest())
    (state,) = host.heard() + host.listen(0.001)
    assert (reply.next_event, reply.n_dark) == (2, 1)
    assert dark_in(state) == [1]


def test_a_later_state_takes_the_place_of_one_that_waits_and_keeps_its_beginning() -> None:
    bench, host = watching((0, BELOW, FROM, 0), (1, BELOW, FROM, 0), profile=replace(TINY, pacing="uart:9600", mtu=512))
    host.ask(WatchRequest())  # its event fills the line for 33 ms
    began = bench.clock.now()
    shine(bench, began + 0.004, m0=DARK_MA)
    shine(bench, began + 0.008, m1=DARK_MA)
    events = told(host, 0.2)
    assert [dark for *_, dark in events] == [[], [0, 1]]
    tick, since, _ = events[-1]
    assert tick - since == 4


@pytest.mark.parametrize(
    ("request_", "features", "status", "channel"),
    [
        (WatchRequest(monitors=[(0, 1, 1, 0)]), 0, Status.NOT_SUPPORTED, None),
        (WatchRequest(0, 0, [(0, 9, 9, 0), (4, 9, 1, 0)]), None, Status.BAD_CHANNEL, 4),
        (WatchRequest(0, 0, [(0, 9, 9, 0), (1, 9, 8, 0)]), None, Status.BAD_VALUE, 8 + 8 + 4),
    ],
)
def test_what_is_refused_changes_nothing(
    request_: WatchRequest, features: int | None, status: Status, channel: int | None
) -> None:
    host = Host(Bench(TINY if features is None else replace(TINY, features=features)))
    host.open()
    answer = host.ask(request_)
    assert isinstance(answer, Refusal)
    assert (answer.status, answer.channel) == (status, channel)
    if features is None:
        assert host.ask(WatchRequest()).n_watched == 0


def test_a_period_shorter_than_a_scan_is_refused() -> None:
    host = Host(Bench(replace(TINY, adc_scan_us=1500)))
    host.open()
    answer = host.ask(WatchRequest(0, 1, [(0, 1, 1, 0)]))
    assert (answer.status, answer.channel, answer.value) == (Status.BAD_VALUE, 2, 1)


def test_a_new_session_and_a_restart_end_the_watch() -> None:
    bench, host = watching((1, BELOW, FROM, 0))
    host.session = 0x1111
    assert not isinstance(host.hello(flags=HelloFlag.TAKEOVER), Refusal)
    assert host.ask(WatchRequest()).n_watched == 0
    host.ask(WatchRequest(monitors=[(1, BELOW, FROM, 0)]))
    host.link.close()
    bench.board.reset()
    again = Host(bench, 0x2222)
    again.open()
    assert again.ask(WatchRequest()).n_watched == 0


def test_while_a_sweep_runs_nothing_is_looked_at_for_it() -> None:
    bench, host = watching((1, BELOW, FROM, 3))
    host.drive(3, [1, 2, 3, 4])
    image = SweepImage(points=(SweepPoint([(0, 7)]), SweepPoint([(0, 8)])), n_avg=1, settle_us=1000, dwell_us=20_000)
    host.load(image)
    bench.monitors_ma = np.full(4, DARK_MA)
    host.started(4, credit_limit=10)
    events = [event for event in host.listen(0.039) if isinstance(event, LightEvent)]
    assert events == []
    assert [dark_in(event) for event in host.listen(0.05) if isinstance(event, LightEvent)] == [[1]]


def test_events_travel_on_their_stream_and_count_from_0_in_each_session() -> None:
    bench, host = watching((1, BELOW, FROM, 0))
    shine(bench, 0.2, m1=DARK_MA)
    frames = host.collect(0.01)
    assert [(frame.status, frame.seq) for frame in frames] == [(Stream.LIGHT, 1)]


def test_an_hour_nobody_looked_at_costs_a_few_scans() -> None:
    bench, host = watching((1, BELOW, FROM, 60))
    bench.scans.clear()
    bench.clock.sleep(3600.0)
    shine(bench, bench.clock.now(), m1=DARK_MA)
    assert len(bench.scans) < 200
    now_tick = round(bench.clock.now() * 1e3)
    (event,) = host.listen(0.1)
    assert event.since in (now_tick, now_tick + 1)


def reference(codes: list[int], hold: int) -> list[int]:
    """Return the scans at which the state changes, computed from the text of section 9.3."""
    dark, run, changes = False, None, []
    for scan, code in enumerate(codes):
        against = code >= FROM if dark else code < BELOW
        run = (scan if run is None else run) if against else None
        if run is not None and scan - run >= hold:
            dark, run = not dark, None
            changes.append(scan)
    return changes


@examples(40)
@given(st.lists(st.sampled_from([0, BELOW - 2, BELOW + 2, FROM - 2, FROM + 2, 65000]), max_size=40), st.integers(0, 4))
def test_every_sequence_of_readings_is_judged_as_the_text_says(codes: list[int], hold: int) -> None:
    bench, host = watching((2, BELOW, FROM, hold))
    begin = round(bench.clock.now() * 1e3)
    ticks = []
    for number, code in enumerate(codes):
        shine(bench, (begin + number) * 1e-3 + 0.0005, m2=code / 65535)
        ticks += [event.tick for event in host.listen(0.0)]
        ticks += [event.tick for event in host.listen(0.0009)]
    assert [tick - begin - 1 for tick in ticks] == reference(codes, hold)
