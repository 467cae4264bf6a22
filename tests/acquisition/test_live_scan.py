"""Live views of scans: every point is shown in time, and no view can harm the scan."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from lumion_hw import Bench
from lumion_hw.acquisition import ScanData, State, scan
from lumion_hw.acquisition.columns import Reader, Value
from lumion_hw.acquisition.journal import LogRow
from lumion_hw.acquisition.live_scan import LiveScan
from lumion_hw.errors import ConfigError, LinkError
from tests.acquisition.drawn_scans import drawn

SMALL = Path(__file__).parents[1] / "data" / "small.yaml"
METER = ["meter0.power.1"]
POL = "pol-a.setting.1"
VALUES = [-100.0, -50.0, 0.0, 50.0, 100.0]


@pytest.fixture
def bench():
    with Bench.emulate(SMALL, seed=3) as bench:
        yield bench


class Album:
    """A view that keeps a copy of the readings of each picture."""

    def __init__(self, name: str = METER[0]) -> None:
        self.name = name
        self.pictures: list[np.ndarray] = []

    def __call__(self, data: ScanData) -> None:
        self.pictures.append(data.value[self.name].copy())
        self.last = data


class SlowView:
    """A view that takes a while on a clock that is set, and notes when it was called."""

    def __init__(self, duration_s: float) -> None:
        self.now_s, self.duration_s = 0.0, duration_s
        self.called_s: list[float] = []

    def clock(self) -> float:
        return self.now_s

    def __call__(self, _data: ScanData) -> None:
        self.called_s.append(self.now_s)
        self.now_s += self.duration_s


def live_scan(view: Callable[[ScanData], None], clock: Callable[[], float]) -> LiveScan:
    data = drawn("s.x", "nm", np.arange(400.0), {("m.y", "dBm"): np.zeros(400)})
    return LiveScan(data.header, view, clock)


def row(index: int) -> LogRow:
    return LogRow(index, 0.1 * index, tuple(Value(State.OK, number) for number in (index, 0.0, -index)))


def test_a_view_is_called_at_most_four_times_per_second() -> None:
    view = SlowView(0.0)
    live = live_scan(view, view.clock)
    for index in range(64):
        view.now_s = index / 32  # exact in binary
        if live.add(row(index)):
            live.show()
    assert view.called_s == [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75]


def test_a_slow_view_takes_at_most_a_fifth_of_the_time() -> None:
    view = SlowView(1.0)
    live = live_scan(view, view.clock)
    view.called_s.clear()
    for index in range(200):
        view.now_s += 0.1
        if live.add(row(index)):
            live.show()
    assert np.diff(view.called_s).min() >= 5.0  # 1 s of drawing, then 4 s without
    assert len(view.called_s) >= 4


def test_the_view_gets_every_point_from_none_to_all(bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lumion_hw.acquisition.live_scan.PERIOD_S", 0.0)
    monkeypatch.setattr("lumion_hw.acquisition.live_scan._WAIT_PER_DRAWING", 0.0)
    album = Album()
    data = scan(bench, {POL: VALUES}, METER, live=album)
    read = [int(np.isfinite(picture).sum()) for picture in album.pictures]
    assert read == [0, 1, 2, 3, 4, 5, 5]
    assert np.array_equal(album.last.value[METER[0]], data.value[METER[0]])
    assert np.array_equal(album.last.state[METER[0]], data.state[METER[0]])
    assert np.array_equal(album.last.time_s, data.time_s)


def test_points_are_on_the_disk_before_they_are_shown(bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lumion_hw.acquisition.live_scan.PERIOD_S", 0.0)
    monkeypatch.setattr("lumion_hw.acquisition.live_scan._WAIT_PER_DRAWING", 0.0)
    monkeypatch.setattr("lumion_hw.acquisition.scanning._SYNC_S", 1e9)
    saved, shown = [0], []
    scan(
        bench,
        {POL: VALUES},
        METER,
        live=lambda data: shown.append((data.n_read, saved[-1])),
        progress=lambda step: saved.append(step.done),
    )
    assert shown == [(n, n) for n in (0, 1, 2, 3, 4, 5, 5)]


def test_settings_are_restored_before_the_last_view(bench) -> None:
    before = bench.polarization["pol-a"].read().tolist()
    settings: list[list[float]] = []
    scan(bench, {POL: VALUES}, METER, live=lambda _data: settings.append(bench.polarization["pol-a"].read().tolist()))
    assert settings[0] == settings[-1] == before


def test_a_sweep_by_the_controller_is_shown_too(bench) -> None:
    album = Album("mesh0.monitor.2")
    data = scan(bench, {"mesh0.heater_ma.3": np.linspace(0.0, 2.0, 7)}, ["mesh0.monitor.2"], live=album)
    assert data.by_instrument.all()
    assert np.array_equal(album.last.by_instrument, data.by_instrument)
    assert np.array_equal(album.pictures[-1], data.value["mesh0.monitor.2"])


def test_a_resumed_scan_shows_the_points_of_before(bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("h5py")
    read, count = Reader.read, iter(range(100))

    def failing_read(reader: Reader) -> list[Value]:
        if next(count) == 3:
            raise LinkError("the device does not answer")
        return read(reader)

    with monkeypatch.context() as patch:
        patch.setattr(Reader, "read", failing_read)
        with pytest.raises(LinkError):
            scan(bench, {POL: VALUES}, METER, out=tmp_path / "s.h5", live=Album())
    album = Album()
    monkeypatch.setattr("lumion_hw.acquisition.live_scan.PERIOD_S", 0.0)
    monkeypatch.setattr("lumion_hw.acquisition.live_scan._WAIT_PER_DRAWING", 0.0)
    scan(bench, {POL: VALUES}, METER, out=tmp_path / "s.h5", resume=True, live=album)
    assert [int(np.isfinite(picture).sum()) for picture in album.pictures] == [0, 4, 5, 5]


def test_a_view_that_fails_on_the_way_does_not_end_the_scan(
    bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr("lumion_hw.acquisition.live_scan.PERIOD_S", 0.0)
    monkeypatch.setattr("lumion_hw.acquisition.live_scan._WAIT_PER_DRAWING", 0.0)

    def view(data: ScanData) -> None:
        calls.append(data.n_read)
        if data.n_read:
            raise ZeroDivisionError("no picture")

    with caplog.at_level(logging.WARNING):
        data = scan(bench, {POL: VALUES}, METER, live=view)
    assert data.complete
    assert len(calls) == 2  # it is not called again
    assert "the scan continues without it: no picture" in caplog.text


def test_a_view_that_fails_at_first_stops_the_scan_before_it_starts(bench, tmp_path: Path) -> None:
    def view(_data: ScanData) -> None:
        raise ConfigError("too many panels")

    before = bench.polarization["pol-a"].read()
    with pytest.raises(ConfigError, match="too many panels"):
        scan(bench, {POL: VALUES}, METER, out=tmp_path / "s.h5", live=view)
    assert list(tmp_path.iterdir()) == []
    assert np.array_equal(bench.polarization["pol-a"].read(), before)


def test_outside_a_notebook_live_is_refused_before_anything_is_written(bench, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"does not run in one.*lumion scan --watch"):
        scan(bench, {POL: VALUES}, METER, out=tmp_path / "s.h5", live=True)
    assert list(tmp_path.iterdir()) == []


class Output:
    """An output of a notebook cell: stands in for IPython and its display."""

    def __init__(self) -> None:
        self.shown: list[tuple[str, bytes]] = []
        self.display_module = SimpleNamespace(Image=lambda data, format: data, display=self.display)

    def display(self, image: bytes, display_id: bool) -> Output:
        assert display_id
        self.shown.append(("new", image))
        return self

    def update(self, image: bytes) -> None:
        self.shown.append(("update", image))


def ipython_with(shell: SimpleNamespace) -> SimpleNamespace:
    return SimpleNamespace(get_ipython=lambda: shell, version_info=(9, 0))  # matplotlib reads the version


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> Output:
    pytest.importorskip("matplotlib")
    cell = Output()
    monkeypatch.setitem(sys.modules, "IPython", ipython_with(SimpleNamespace(kernel=object())))
    monkeypatch.setitem(sys.modules, "IPython.display", cell.display_module)
    return cell


@pytest.mark.parametrize(
    "sweep", [{POL: VALUES}, {POL: VALUES, "pol-b.setting.2": [0.0, 10.0]}, {"sfp-a.enabled": [True, False]}]
)
def test_in_a_notebook_one_figure_is_updated(bench, output: Output, sweep: dict[str, list[float]]) -> None:
    scan(bench, sweep, METER, live=True)
    actions, images = zip(*output.shown, strict=True)
    assert actions[0] == "new"
    assert set(actions[1:]) == {"update"}
    assert all(image.startswith(b"\x89PNG") for image in images)
    assert images[0] != images[-1]


def test_ipython_in_a_terminal_is_not_a_notebook(bench, output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", ipython_with(SimpleNamespace()))
    with pytest.raises(ConfigError, match="live=True draws in a notebook"):
        scan(bench, {POL: VALUES}, METER, live=True)
