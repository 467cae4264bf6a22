"""Scans: every value checked before anything moves, every point safe, the bench as it was afterwards."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lumion_hw import Bench
from lumion_hw.acquisition import (
    LogJournal,
    ScanPlan,
    Setting,
    Settings,
    State,
    load_scan,
    read_recording,
    scan,
    write_hdf5,
)
from lumion_hw.acquisition.columns import Reader, Value
from lumion_hw.acquisition.journal import LogRow, read_table
from lumion_hw.acquisition.scan_plan import ScanAxis, SweptSetting, as_base64
from lumion_hw.cli import main
from lumion_hw.errors import (
    BusyError,
    ConfigError,
    DeviceError,
    IdentityError,
    LimitError,
    LinkError,
    LumionError,
    UnknownNameError,
)
from tests.full_disk import room

SMALL = Path(__file__).parents[1] / "data" / "small.yaml"
METER = ["meter0.power.1", "meter0.power.2"]
POL = "pol-a.setting.1"


@pytest.fixture(autouse=True)
def every_point_is_acknowledged_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lumion_hw.acquisition.scanning._SYNC_S", 0.0)


@pytest.fixture
def bench():
    with Bench.emulate(SMALL, seed=3) as bench:
        yield bench


def values_of(setting: Setting, n: int) -> list[float]:
    low, high = setting.limits()
    return np.linspace(low, high, n).tolist()


def pol_values(bench: Bench, n: int, name: str = POL) -> list[float]:
    return values_of(Settings(bench, [name])[name], n)


def test_a_grid_is_visited_whole_and_everything_is_as_it_was(bench, tmp_path: Path) -> None:
    before = Settings(bench, ["pol-?.*", "meter0"]).read()
    x, y = pol_values(bench, 4), pol_values(bench, 3, "pol-b.setting.2")
    data = scan(bench, {POL: x, "pol-b.setting.2": y}, METER, out=tmp_path / "s.h5")
    assert data.complete
    assert data.value["meter0.power.1"].shape == (4, 3)
    assert not data.by_instrument.any()
    found = data.to_xarray()
    assert found["meter0.power.2"].dims == (POL, "pol-b.setting.2")
    assert found[POL].values == pytest.approx(x)
    assert found[POL].attrs["units"] == Settings(bench, [POL])[POL].unit
    after = Settings(bench, ["pol-?.*", "meter0"]).read()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert [path.name for path in tmp_path.iterdir()] == ["s.h5"]


def test_the_data_name_the_bench_file_as_it_was_when_the_bench_was_opened(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_bytes((Path(__file__).parents[1] / "data" / "small.yaml").read_bytes())
    before = file.read_bytes()
    with Bench.emulate(file, seed=1) as opened:
        file.write_text("# edited since\n")
        data = scan(opened, {POL: pol_values(opened, 2)}, METER[:1])
    about = data.to_xarray().attrs
    assert about["bench_file"] == "my.yaml"
    assert about["bench_file_sha256"] == hashlib.sha256(before).hexdigest()
    assert data.header.bench_file.text == before.decode()


def test_the_description_of_a_served_bench_is_kept_and_is_no_file(bench) -> None:
    bench.file = None  # as Bench.attach leaves it
    data = scan(bench, {POL: pol_values(bench, 2)}, METER[:1])
    assert "bench_file" not in data.to_xarray().attrs
    assert json.loads(data.header.bench_file.text)["name"] == "small"


def test_every_point_is_read_at_its_own_setting(bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in force at the moment of every reading, asked of the devices themselves."""
    x, y = pol_values(bench, 3), pol_values(bench, 2, "pol-b.setting.2")
    seen = []
    read = Reader.read

    def watching(self: Reader) -> list[Value]:
        if [column.name for column in self.columns] == METER[:1]:
            seen.append((bench.polarization["pol-a"].read()[0], bench.polarization["pol-b"].read()[1]))
        return read(self)

    monkeypatch.setattr(Reader, "read", watching)
    scan(bench, {POL: x, "pol-b.setting.2": y}, METER[:1], snake=True)
    expected = [(x[0], y[0]), (x[0], y[1]), (x[1], y[1]), (x[1], y[0]), (x[2], y[0]), (x[2], y[1])]
    step = bench.polarization["pol-a"].actuators[0].step
    assert np.array(seen) == pytest.approx(np.array(expected), abs=step)


def plan(*sizes: int, snake: bool) -> ScanPlan:
    def axis(size: int) -> ScanAxis:
        return ScanAxis((SweptSetting(f"d.{size}", "d", "", "number", (), as_base64(np.arange(float(size)))),), size)

    return ScanPlan(tuple(axis(size) for size in sizes), snake)


@pytest.mark.parametrize("sizes", [(1,), (5,), (3, 4), (2, 3, 4), (3, 1, 2, 5)])
@pytest.mark.parametrize("snake", [False, True])
def test_every_place_is_visited_once_and_a_snake_never_jumps(sizes: tuple[int, ...], snake: bool) -> None:
    order = plan(*sizes, snake=snake)
    places = [order.position(step) for step in range(order.n_points)]
    assert sorted(order.index(place) for place in places) == list(range(order.n_points))
    if snake:
        steps = np.abs(np.diff(np.array(places), axis=0)).sum(axis=1)
        assert np.all(steps == 1)
    else:
        assert [order.index(place) for place in places] == list(range(order.n_points))


def test_settings_move_together_by_a_tuple_or_a_wildcard(bench) -> None:
    x = pol_values(bench, 3)
    data = scan(bench, {(POL, "pol-b.setting.1"): (x, x[::-1])}, METER[:1])
    assert data.plan.shape == (3,)
    assert data.setting("pol-b.setting.1") == pytest.approx(x[::-1])
    both = scan(bench, {"pol-?.setting.3": x}, METER[:1])
    assert [each.name for each in both.plan.settings] == [f"pol-{each}.setting.3" for each in "abc"]
    assert list(both.to_pandas().columns[:3]) == [f"pol-{each}.setting.3" for each in "abc"]


def test_flags_and_automatic_ranges_are_swept_too(bench) -> None:
    data = scan(bench, {"sfp-a.enabled": [True, False], "meter0.range_dbm.1": [None, 0.0]}, ["sfp-a.tx_power_dbm"])
    assert data.setting("sfp-a.enabled").tolist() == [True, False]
    states = data.state["sfp-a.tx_power_dbm"]
    assert np.all(states[0] == State.OK)
    assert np.all(states[1] == State.DARK)
    assert np.isnan(data.setting("meter0.range_dbm.1")[0])


# -- refused before anything moves


def pol_is_untouched(bench: Bench, before: np.ndarray) -> bool:
    return bool(np.array_equal(bench.polarization["pol-a"].read(), before))


@pytest.mark.parametrize(
    ("sweep", "error", "words"),
    [
        ({}, ConfigError, "nothing to sweep"),
        ({POL: [0.0, 1e9]}, LimitError, r"pol-a.setting.1: requested 1e\+09"),
        ({POL: [1e8, 1e9]}, LimitError, r"pol-a.setting.1: requested 1e\+09"),
        ({POL: [0.0, float("nan")]}, LimitError, "pol-a.setting.1: requested nan"),
        ({POL: [0.0, "x"]}, ConfigError, "expected a number, found x"),
        ({POL: "0:1:3"}, ConfigError, "expected a sequence of values"),
        ({POL: 3.0}, ConfigError, "expected a sequence of values"),
        ({POL: []}, ConfigError, "at least one: pol-a.setting.1 has 0"),
        ({POL: [[0.0, 1.0]]}, ConfigError, "expected a number"),
        ({"pol-a.setting.99": [0.0]}, ConfigError, r"no setting 'pol-a.setting.99'.*Did you mean"),
        ({"pol-a.settings": [0.0]}, ConfigError, r"array of 4.*Sweep the array's values by name: pol-a.setting.1"),
        ({(POL, "pol-b.setting.1"): ([0.0, 1.0], [0.0])}, ConfigError, "pol-a.setting.1 has 2, pol-b.setting.1 has 1"),
        ({(POL, "pol-b.setting.1"): ([0.0],)}, ConfigError, "2 settings change together, but values are given for 1"),
        ({POL: [0.0], "pol-?.setting.1": [0.0]}, ConfigError, "are the same setting, swept twice"),
        ({"sfp-a.enabled": [1.0]}, ConfigError, "expected true or false, found 1.0"),
    ],
)
def test_what_cannot_be_swept_is_refused_and_nothing_moves(bench, tmp_path: Path, sweep, error, words) -> None:
    before = bench.polarization["pol-a"].read()
    with pytest.raises(error, match=words):
        scan(bench, sweep, METER, out=tmp_path / "s.h5")
    assert pol_is_untouched(bench, before)
    assert list(tmp_path.iterdir()) == []


def test_a_reading_that_is_none_and_a_file_that_exists_are_refused(bench, tmp_path: Path) -> None:
    out = tmp_path / "s.h5"
    out.write_text("mine")
    with pytest.raises(ConfigError, match="exists"):
        scan(bench, {POL: [0.0]}, METER, out=out)
    assert out.read_text() == "mine"
    with pytest.raises(ConfigError, match=r"no channel 'meter0.power.9'"):
        scan(bench, {POL: [0.0]}, ["meter0.power.9"])
    with pytest.raises(ConfigError, match=r"no channel 'xyz'\. There are mesh0, .* and \d+ others\.$"):
        scan(bench, {POL: [0.0]}, ["xyz"])
    with pytest.raises(ConfigError, match="without a file cannot be resumed"):
        scan(bench, {POL: [0.0]}, METER, resume=True)


def test_wavelength_and_frequency_of_a_laser_are_one_setting() -> None:
    with (
        Bench.emulate("laser-bench", only=["tls-a", "pol-a"]) as bench,
        pytest.raises(ConfigError, match=r"frequency_thz and tls-a.wavelength_nm are the same setting"),
    ):
        scan(bench, {"tls-a.wavelength_nm": [1550.0], "tls-a.frequency_thz": [193.4]}, ["tls-a"])


def test_a_second_scan_on_one_device_is_refused_while_the_first_goes_on(bench, tmp_path: Path) -> None:
    refused: list[BaseException] = []

    def another(_: object) -> None:
        if refused:
            return
        for readings in (["meter0.power.3"], ["sfp-b.temperature_c"]):
            try:
                scan(bench, {"pol-b.setting.1": [0.0]}, readings)
            except LumionError as error:
                refused.append(error)
            else:
                refused.append(AssertionError("not refused"))

    data = scan(bench, {POL: pol_values(bench, 3)}, METER, progress=another)
    assert data.complete
    assert isinstance(refused[0], BusyError)
    assert "another scan of this program is using this device" in str(refused[0])
    assert str(refused[1]) == "not refused", "other devices are free"
    assert scan(bench, {POL: [0.0]}, METER).complete, "and they are free again afterwards"


# -- what ends a scan early, and going on


class StopAt:
    """Raises when so many points are saved."""

    def __init__(self, n: int, error: BaseException) -> None:
        self.n, self.error = n, error

    def __call__(self, told) -> None:
        if told.done >= self.n:
            self.n = 10**9
            raise self.error


def test_ctrl_c_keeps_what_is_there_puts_back_and_the_rest_follows(bench, tmp_path: Path) -> None:
    out, x = tmp_path / "s.h5", pol_values(bench, 9)
    before = bench.polarization["pol-a"].read()
    with pytest.raises(KeyboardInterrupt) as caught:
        scan(bench, {POL: x}, METER, out=out, progress=StopAt(4, KeyboardInterrupt()))
    assert any("of 9 points are saved" in note for note in caught.value.__notes__)
    assert pol_is_untouched(bench, before)
    part = load_scan(out)
    assert 4 <= part.n_read < 9
    assert np.all(part.state["meter0.power.1"][part.n_read :] == State.NOT_READ)
    times = part.time_s.copy()
    whole = scan(bench, {POL: x}, METER, out=out, resume=True)
    assert whole.complete
    assert np.array_equal(whole.time_s[: part.n_read], times[: part.n_read]), "points that were there are kept"
    assert np.all(np.diff(whole.time_s) > 0.0)
    again = scan(bench, {POL: x}, METER, out=out, resume=True)
    assert np.array_equal(again.time_s, whole.time_s), "nothing was left to do"


def test_a_killed_scan_is_exported_with_what_it_swept(bench, tmp_path: Path) -> None:
    event_model = pytest.importorskip("event_model", reason="event-model, of the extra test, is not there")
    out, x, y = tmp_path / "s.h5", pol_values(bench, 3), pol_values(bench, 2, "pol-b.setting.2")
    sweep = {(POL, "pol-b.setting.1"): (x, x), "pol-b.setting.2": y}
    with pytest.raises(KeyboardInterrupt):
        scan(bench, sweep, METER, out=out, snake=True, progress=StopAt(4, KeyboardInterrupt()))
    assert main(["export", str(out) + ".journal", "-c", METER[0], "-o", str(tmp_path / "s.jsonl")]) == 0
    documents = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    for each in documents:
        event_model.schema_validators[event_model.DocumentNames[each["name"]]].validate(each["doc"])
    start, descriptor, *events, stop = [each["doc"] for each in documents]
    # As bluesky's own plans name them: one dimension per axis, with the fields of all that move along it.
    assert start["motors"] == ["pol-a-setting-1", "pol-b-setting-1", "pol-b-setting-2"]
    assert start["shape"] == [3, 2]
    assert start["snaking"] == [False, True]
    fields = ["pol-a-setting-1-set", "pol-b-setting-1-set", "pol-b-setting-2-set"]
    assert start["hints"]["dimensions"] == [[fields[:2], "primary"], [fields[2:], "primary"]]
    assert start["detectors"] == ["meter0"]
    assert start["settings_before"]["devices"]["meter0"]["settings"]["averaging_s-1"] == 0.01
    assert [name for name in descriptor["hints"] if name in start["motors"]] == start["motors"]
    assert [descriptor["hints"][name]["fields"] for name in start["motors"]] == [[each] for each in fields]
    assert set(events[0]["data"]) >= {*fields, "meter0-power-1"}
    assert "meter0-power-2" not in events[0]["data"]
    assert events[1]["data"]["pol-b-setting-2-set"] == pytest.approx(y[1])
    assert (stop["exit_status"], stop["num_events"]["primary"]) == ("abort", len(events))
    assert stop["reason"] == f"{len(events)} of 6 rows"


def test_two_programs_do_not_continue_one_scan(bench, tmp_path: Path) -> None:
    out, x = tmp_path / "s.h5", pol_values(bench, 4)
    with pytest.raises(KeyboardInterrupt):
        scan(bench, {POL: x}, METER, out=out, progress=StopAt(2, KeyboardInterrupt()))
    before = (tmp_path / "s.h5.journal").read_bytes()
    with LogJournal.resume(tmp_path / "s.h5.journal"), pytest.raises(BusyError, match="in use by another process"):
        scan(bench, {POL: x}, METER, out=out, resume=True)
    assert (tmp_path / "s.h5.journal").read_bytes() == before
    assert scan(bench, {POL: x}, METER, out=out, resume=True).complete


def test_a_row_beyond_the_plan_is_refused_and_named(bench, tmp_path: Path) -> None:
    out, x = tmp_path / "s.h5", pol_values(bench, 4)
    with pytest.raises(KeyboardInterrupt):
        scan(bench, {POL: x}, METER, out=out, progress=StopAt(2, KeyboardInterrupt()))
    journal = tmp_path / "s.h5.journal"
    with LogJournal.resume(journal) as resumed:
        resumed.append(LogRow(4, 1.0, (Value(State.OK, 0.0),) * 4))
    for use in (
        lambda: scan(bench, {POL: x}, METER, out=out, resume=True),
        lambda: load_scan(out),
        lambda: read_recording(journal),
        lambda: write_hdf5(journal, tmp_path / "t.h5"),
    ):
        with pytest.raises(ConfigError, match="has row 4, but only rows 0 to 3 are planned"):
            use()


def test_another_scan_is_not_gone_on_with(bench, tmp_path: Path) -> None:
    out, x = tmp_path / "s.h5", pol_values(bench, 5)
    with pytest.raises(KeyboardInterrupt):
        scan(bench, {POL: x}, METER, out=out, progress=StopAt(2, KeyboardInterrupt()))
    data = (tmp_path / "s.h5.journal").read_bytes()
    for sweep, readings, words in (
        ({POL: x[::-1]}, METER, "another scan"),
        ({POL: x}, METER[:1], "another readings"),
    ):
        with pytest.raises(ConfigError, match=words):
            scan(bench, sweep, readings, out=out, resume=True)
    with pytest.raises(ConfigError, match="another bench file"):
        scan(bench, {POL: x}, METER, out=out, resume=True, bench_file=SMALL.with_name("rectangular.yaml"))
    with pytest.raises(ConfigError, match=r"exists.*--resume"):
        scan(bench, {POL: x}, METER, out=out)
    line, _, rows = data.partition(b"\n")
    document = json.loads(line)
    document["devices"]["meter0"]["serial"] = "MY99999999"
    (tmp_path / "s.h5.journal").write_bytes(json.dumps(document).encode() + b"\n" + rows)
    with pytest.raises(
        IdentityError, match="started with another device: N7744A, serial MY99999999; this bench has N7744A"
    ):
        scan(bench, {POL: x}, METER, out=out, resume=True)


@pytest.mark.parametrize("reading", ["meter0.power.1", "meter0.power.*", "meter0"])
def test_a_dead_device_that_takes_no_part_is_noted_and_the_scan_goes_on(bench, reading: str) -> None:
    bench.emulated.faults.kill_modules(["sfp-a"])
    data = scan(bench, {POL: pol_values(bench, 3)}, [reading])
    assert data.complete
    assert data.n_failed == 0
    assert list(data.header.settings["silent"]) == ["sfp-a"]


def test_a_dead_device_that_is_swept_is_refused_before_anything_moves(bench) -> None:
    before = bench.polarization["pol-a"].read()
    bench.emulated.faults.kill_modules(["sfp-a"])
    with pytest.raises(LinkError, match="sfp-a"):
        scan(bench, {POL: pol_values(bench, 2), "sfp-a.enabled": [True, False]}, METER)
    assert pol_is_untouched(bench, before)


def test_a_device_that_drops_out_ends_the_scan_and_it_goes_on_when_it_is_back(bench, tmp_path: Path) -> None:
    out, x = tmp_path / "s.h5", pol_values(bench, 6)
    readings = ["meter0.power.1", "sfp-a.temperature_c"]
    gone = []

    def unplug(told) -> None:
        if told.done >= 3 and not gone:
            gone.append(bench.emulated.faults.kill_modules(["sfp-a"]))

    with pytest.raises(LinkError, match=r"sfp-a.*of 6 points are saved in .*s.h5.journal; continue with resume=True"):
        scan(bench, {POL: x}, readings, out=out, progress=unplug)
    part = load_scan(out)
    assert 3 <= part.n_read < 6
    assert part.n_failed == 0, "no point of a device that is gone is made up"
    bench.emulated.faults.revive_modules(["sfp-a"])
    bench.clock.sleep(5.0)  # a module that has just got its supply does not answer yet
    whole = scan(bench, {POL: x}, readings, out=out, resume=True)
    assert whole.complete
    assert np.all(whole.state["sfp-a.temperature_c"] == State.OK)


def test_one_failed_reading_of_many_is_kept_as_such(bench, monkeypatch: pytest.MonkeyPatch) -> None:
    read, calls = type(bench.meters["meter0"]).read_all, iter(range(1000))

    def fails_once(self):
        if next(calls) == 7:
            raise DeviceError("averaging failed", device="meter0")
        return read(self)

    monkeypatch.setattr(type(bench.meters["meter0"]), "read_all", fails_once)
    data = scan(bench, {POL: pol_values(bench, 20)}, METER)
    assert np.flatnonzero(data.state["meter0.power.1"] == State.FAILED).tolist() == [7]
    assert np.flatnonzero(np.isnan(data.value["meter0.power.1"])).tolist() == [7]
    assert data.n_failed == 2  # both channels of it


def test_a_link_that_stumbles_once_is_asked_again(bench, monkeypatch: pytest.MonkeyPatch) -> None:
    read, calls = type(bench.meters["meter0"]).read_all, iter(range(1000))

    def stumbles(self):
        if next(calls) == 4:
            raise LinkError("no answer", device="meter0")
        return read(self)

    monkeypatch.setattr(type(bench.meters["meter0"]), "read_all", stumbles)
    data = scan(bench, {POL: pol_values(bench, 8)}, METER)
    assert data.n_failed == 0


@pytest.mark.parametrize(
    "spare", [0, 40, *(pytest.param(spare, marks=pytest.mark.long) for spare in (10, 20, 30, 50, 60))]
)
def test_a_full_disk_loses_no_acknowledged_point(bench, tmp_path: Path, spare: int) -> None:
    out, x, told = tmp_path / "s.h5", pol_values(bench, 12), []
    with pytest.raises(KeyboardInterrupt):  # to see how large it is
        scan(bench, {POL: x}, METER, out=tmp_path / "n.h5", progress=StopAt(1, KeyboardInterrupt()))
    size = (tmp_path / "n.h5.journal").stat().st_size + 200 + spare
    with room(size), pytest.raises(LumionError, match=r"cannot write the log.*of 12 points are saved"):
        scan(bench, {POL: x}, METER, out=out, progress=lambda progress: told.append(progress.done))
    assert load_scan(out).n_read == max(told)
    assert scan(bench, {POL: x}, METER, out=out, resume=True).complete


def test_settings_stay_where_they_are_if_asked(bench) -> None:
    x = pol_values(bench, 3)
    scan(bench, {POL: x}, METER, leave=True)
    assert Settings(bench, [POL])[POL].read() == pytest.approx(x[-1], abs=bench.polarization["pol-a"].actuators[0].step)


# -- a device's own sweep


def test_the_controllers_own_sweep_and_one_by_hand_find_the_same() -> None:
    """Both ways over two heaters, with light, on the emulated bench; they differ by the noise of the readings."""
    with Bench.emulate("laser-bench", seed=1) as bench:
        bench.lasers["tls-a"].enable()
        bench.lasers["tls-a"].wait_ready(30.0)
        sweep = {"mesh0.heater_ma.2": [0.0, 1.0], "mesh0.heater_ma.3": np.linspace(0.0, 2.5, 21)}
        readings = [f"mesh0.monitor.{index}" for index in (2, 5, 12, 15)]
        own = scan(bench, sweep, readings, snake=True)
        by_hand = scan(bench, sweep, readings, by_hand=True)
        again = scan(bench, sweep, readings, by_hand=True)
        rest = bench.mesh.confirmed_currents_ma()
    assert own.by_instrument.all()
    assert not by_hand.by_instrument.any()
    assert not rest.any(), "the heaters are put back"
    for name in readings:
        noise = np.std(by_hand.value[name] - again.value[name]) + 7.7e-5  # one step of the converter: 5 mA / 65535
        assert np.max(np.abs(own.value[name] - by_hand.value[name])) < 6.0 * noise
    swing = np.ptp(own.value["mesh0.monitor.15"])
    assert swing > 50 * 7.7e-5, "there was something to see"


def test_the_controllers_sweep_is_one_call_per_pass_and_resumes(tmp_path: Path, monkeypatch) -> None:
    with Bench.emulate("laser-bench", only=["mesh0", "tls-a"]) as bench:
        sweep = {"tls-a.wavelength_nm": [1545.0, 1550.0, 1555.0], "mesh0.heater_ma.3": np.linspace(0.0, 2.0, 5)}
        calls = []
        access = type(bench.mesh)
        run = access.sweep

        def counted(self, tables, settle_s=None):
            calls.append((len(tables), round(bench.lasers["tls-a"].state().frequency_thz, 2)))
            if len(calls) == 2:
                raise DeviceError("stopped", device="mesh0")
            return run(self, tables, settle_s)

        monkeypatch.setattr(access, "sweep", counted)
        with pytest.raises(DeviceError, match="5 of 15 points are saved"):
            scan(bench, sweep, ["mesh0.monitor.1"], out=tmp_path / "s.h5")
        assert scan(bench, sweep, ["mesh0.monitor.1"], out=tmp_path / "s.h5", resume=True).complete
    # 299792.458 GHz·µm over 1545, 1550 and 1555 nm.
    assert calls == [(5, 194.04), (5, 193.41), (5, 193.41), (5, 192.79)]


def test_a_reading_of_another_device_is_taken_by_hand() -> None:
    with Bench.emulate(SMALL) as bench:
        data = scan(bench, {"mesh0.heater_ma.3": [0.0, 1.0]}, ["mesh0.monitor.1", "meter0.power.1"])
    assert not data.by_instrument.any()


# -- the file


def test_the_file_says_all_that_belongs_to_it_and_is_one_of_the_log(bench, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    xarray = pytest.importorskip("xarray")
    out, x = tmp_path / "s.h5", pol_values(bench, 4)
    data = scan(bench, {POL: x}, METER, out=out, bench_file=SMALL)
    header = read_recording(out).header
    assert header.bench_file.text == SMALL.read_text()
    assert header.devices["meter0"].serial == "MY00000044"
    assert header.devices["mesh0"].serial == "SMALL-0001", "of the whole bench"
    assert header.settings["devices"]["meter0"]["settings"]["averaging_s.1"] == 0.01
    assert header.software.startswith("lumion-hw ")
    with h5py.File(out) as file:
        assert file["entry/data/pol_a_setting_1_set"][:] == pytest.approx(x)
        assert file["entry/data/meter0_power_1"].attrs["units"] == "W"
        assert json.loads(file["entry/settings_before/data"][()])["bench"] == "small"
    with xarray.open_dataset(out, engine="h5netcdf", group="entry/data") as opened:
        assert opened["meter0_power_2"].values == pytest.approx(data.value["meter0.power.2"])
    loaded = load_scan(out)
    assert loaded.plan == data.plan
    for name in METER:
        assert np.array_equal(loaded.value[name], data.value[name])
        assert np.array_equal(loaded.state[name], data.state[name])


def test_a_log_is_no_scan_and_nothing_is_neither(bench, tmp_path: Path) -> None:
    from lumion_hw.acquisition import LogJournal, log_header, record, write_hdf5

    reader = Reader(bench, METER)
    with LogJournal.create(tmp_path / "log", log_header(bench, reader, period_s=0.1, n_rows=2)) as journal:
        record(reader, journal, bench.clock)
    write_hdf5(tmp_path / "log", tmp_path / "log.h5")
    with pytest.raises(ConfigError, match="recording at a fixed rate, not a scan"):
        load_scan(tmp_path / "log.h5")
    with pytest.raises(ConfigError, match="is missing"):
        load_scan(tmp_path / "nothing.h5")


def test_a_data_set_shows_itself(bench, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    data = scan(bench, {POL: pol_values(bench, 4), "pol-b.setting.1": [0.0, 1.0, 2.0]}, METER)
    assert repr(data) == "<ScanData of small: 2 readings over pol-a.setting.1 (4) x pol-b.setting.1 (3)>"
    assert "meter0.power.2" in data._repr_html_()
    figure = data.plot("meter0.power.1", tmp_path / "map.png")
    assert figure.axes[0].get_xlabel().startswith("pol-b.setting.1")
    assert np.asarray(figure.axes[0].collections[0].get_array()) == pytest.approx(data.value["meter0.power.1"])
    lines = scan(bench, {POL: pol_values(bench, 4)}, METER)
    panel = lines.plot().axes[0]
    assert np.asarray(panel.lines[1].get_ydata()) == pytest.approx(lines.value["meter0.power.2"])
    assert panel.get_ylabel() == "W"
    with pytest.raises(UnknownNameError, match=r"'pol-c.setting.1' was not swept"):
        data.setting("pol-c.setting.1")
    with pytest.raises(ConfigError, match="several settings were swept"):
        data.setting()


def test_a_reading_of_the_same_name_as_a_setting_stands_beside_it(bench) -> None:
    data = scan(bench, {POL: pol_values(bench, 3)}, ["pol-a"])
    found = data.to_xarray()
    assert found[f"{POL}.read"].values == pytest.approx(found[POL].values, abs=1.0)
    assert f"{POL}.read" in data.to_pandas()


def test_averages_of_a_point_begin_when_its_settings_are_there(bench, monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    monkeypatch.setattr(Reader, "begin", lambda self: told.append(float(bench.polarization["pol-a"].read()[0])))
    x = pol_values(bench, 3)
    scan(bench, {POL: x}, METER)
    assert told == pytest.approx(x, abs=bench.polarization["pol-a"].actuators[0].step)


# -- killed

KILLED = """
import os, sys, threading
from lumion_hw import Bench
from lumion_hw.acquisition import scan, Settings
import numpy as np
with Bench.emulate(sys.argv[1], seed=3) as bench:
    low, high = Settings(bench, ["pol-a.setting.1"])["pol-a.setting.1"].limits()
    tell = lambda told: os.write(1, b"%d\\n" % told.done)
    scan(bench, {"pol-a.setting.1": np.linspace(low, high, 400)}, ["meter0.power.1"], out=sys.argv[2], progress=tell,
         resume=os.path.exists(sys.argv[2] + ".journal"))
"""


@pytest.mark.long
@pytest.mark.parametrize("points", [2, pytest.param(20, marks=pytest.mark.campaign)])
def test_a_scan_killed_at_many_random_points_loses_no_acknowledged_row(points: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    out = tmp_path / "s.h5"
    stops = np.sort(rng.choice(np.arange(2, 390), points, replace=False))
    for stop in stops.tolist():
        arguments = [sys.executable, "-c", KILLED, str(SMALL), str(out)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            acknowledged = 0
            for line in process.stdout:
                acknowledged = int(line)
                if acknowledged >= stop:
                    break
            os.kill(process.pid, signal.SIGKILL)
            acknowledged = max([acknowledged, *map(int, process.stdout.read().split(b"\n")[:-1])])
        part = load_scan(out)
        assert part.n_read >= acknowledged >= stop
        assert np.all(part.state["meter0.power.1"][: part.n_read] == State.OK)
    header, table = read_table(f"{out}.journal")
    assert len(set(table.index.tolist())) == len(table.index), "no point was taken twice"
    assert header.n_rows == 400
