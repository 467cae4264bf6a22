"""A device that returns after a loss gets the settings of the bench file again, not its power-on settings."""

import threading

import pytest

from lumion_hw import Bench
from lumion_hw.errors import DeviceError, LinkTimeout
from lumion_hw.serving.readings import STALE_S, BenchReadings, DeviceReadings
from tests.recorded_calibration import SMALL
from tests.waiting import until


class WatchedLock:
    """A lock that shows how many threads wait for it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.n_waiting = 0

    def __enter__(self) -> None:
        self.n_waiting += 1
        self.lock.acquire()
        self.n_waiting -= 1

    def __exit__(self, *error: object) -> None:
        self.lock.release()


@pytest.fixture
def bench():
    with Bench.emulate(SMALL, seed=1) as opened:
        yield opened


def read_once(bench) -> BenchReadings:
    readings = BenchReadings(bench, bench.clock)
    readings.update()
    return readings


def lose(bench, readings, device: str, fault: str) -> None:
    """Disconnect a device for a moment while it is read, then reconnect it."""
    bench.emulated.faults.inject(device, fault)
    readings.update()
    bench.emulated.faults.end(device, fault)
    for _ in range(4):
        bench.clock.sleep(60.0)
        readings.update()


@pytest.mark.parametrize("fault", ["no_power", "no_cable"])
def test_a_meter_that_comes_back_has_wavelength_and_averaging_of_the_bench_file(bench, fault) -> None:
    readings, meter = read_once(bench), bench.meters["meter0"]
    wanted = meter.settings(1)
    lose(bench, readings, "meter0", fault)
    assert meter.settings(1) == wanted
    assert readings.silent() == {}


def test_what_was_only_unplugged_keeps_what_somebody_has_set(bench) -> None:
    readings, meter = read_once(bench), bench.meters["meter0"]
    meter.set_averaging_s(1, 0.05)
    readings.read_settings("meter0")
    lose(bench, readings, "meter0", "no_cable")
    assert meter.settings(1).averaging_s == 0.05
    assert readings.silent() == {}


@pytest.mark.parametrize("fault", ["no_power", "no_cable"])
def test_a_lost_device_keeps_the_reason_of_its_loss(bench, fault) -> None:
    readings = read_once(bench)
    bench.emulated.faults.inject("meter0", fault)
    for _ in range(4):
        bench.clock.sleep(60.0)
        readings.update()
    _, reason = readings.silent()["meter0"]
    assert "is not open" not in reason
    assert {"no_power": "has no power", "no_cable": "cable"}[fault] in reason
    bench.emulated.faults.end("meter0", fault)
    readings.update()
    readings.update()
    assert readings.silent() == {}


def test_what_cannot_be_set_up_stays_lost_and_is_tried_again(bench, monkeypatch) -> None:
    readings, meter = read_once(bench), bench.meters["meter0"]
    wanted, refusals = meter.settings(1), [DeviceError("busy warming up", device="meter0")]

    def refused(channel: int, wavelength_nm: float) -> None:
        if refusals:
            raise refusals.pop()
        tell(channel, wavelength_nm)

    tell = meter.set_wavelength_nm
    monkeypatch.setattr(meter, "set_wavelength_nm", refused)
    lose(bench, readings, "meter0", "no_power")
    assert not refusals
    assert meter.settings(1) == wanted


def test_an_answer_of_before_a_change_is_not_taken_for_one_of_after_it(bench, monkeypatch) -> None:
    """On a busy host, a second query may start before the first reply has been recorded."""
    readings = DeviceReadings(bench, "mesh0", True, True, bench.clock, bench.clock.now)
    guard = WatchedLock()
    monkeypatch.setattr(readings, "_settings_guard", guard)
    handle_request, goes_on = threading.Event(), threading.Event()
    answers = iter([{"mesh0.heater_ma.3": 0.0}, {"mesh0.heater_ma.3": 1.25}])

    def read(parts: bool) -> dict[str, float]:
        found = next(answers)
        if not handle_request.is_set():
            handle_request.set()
            goes_on.wait(60.0)
        return found

    monkeypatch.setattr(readings.settings, "read", read)
    early, late = (threading.Thread(target=readings.read_settings) for _ in range(2))
    early.start()
    handle_request.wait(60.0)
    late.start()
    until(lambda: guard.n_waiting == 1 or not late.is_alive())
    goes_on.set()
    early.join()
    late.join()
    assert readings.point("mesh0.heater_ma.3").value == 1.25


def test_one_reading_that_fails_is_no_silence_while_the_last_one_is_fresh(bench, monkeypatch) -> None:
    module, clock, told = bench.transponders["sfp-a"], bench.clock, []
    ask, answers = module.monitors, iter([True, False, True, False, False])

    def monitors():
        if next(answers, True):
            return ask()
        raise LinkTimeout("late", device="sfp-a")

    monkeypatch.setattr(module, "monitors", monitors)
    readings = DeviceReadings(bench, "sfp-a", True, False, clock, clock.now)
    bench.events.add_listener(lambda event: told.append(event["event"]))
    readings.update()
    readings.update()
    assert readings.silent is None
    assert told == []
    readings.update()
    for _ in range(2):
        clock.sleep(STALE_S)
        readings.update()
    assert readings.silent is not None
    assert told == ["silent"]
    readings.update()
    assert told == ["silent", "answers again"]


def test_a_controller_that_was_off_comes_back_with_its_heaters_off(bench) -> None:
    bench.mesh.program(bench.mesh.confirmed_currents_ma() + 0.5)
    readings, told = read_once(bench), []
    bench.events.add_listener(told.append)
    lose(bench, readings, "mesh0", "no_power")
    assert not bench.mesh.confirmed_currents_ma().any()
    assert {"mesh0.heaters_ma"} == {name for each in told for name in each.get("settings", ())}
