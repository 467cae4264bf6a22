"""Recordings as pictures."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from lumion_hw.acquisition.columns import Column, State, Value
from lumion_hw.acquisition.hdf5 import write_hdf5
from lumion_hw.acquisition.journal import LogHeader, LogJournal, LogRow
from lumion_hw.acquisition.plotting import add_legend, new_figure, plot
from lumion_hw.cli import main
from lumion_hw.errors import ConfigError

# Looked for and not loaded: each process that collects this file would have to.
pytestmark = pytest.mark.skipif(
    not (find_spec("h5py") and find_spec("matplotlib")), reason="h5py and matplotlib, of the extra plots, are not there"
)
COLUMNS = (
    Column("meter0.power.1", "meter0", "W"),
    Column("meter0.power.2", "meter0", "W"),
    Column("sfp-a.temperature_c", "sfp-a", "°C"),
)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    with LogJournal.create(tmp_path / "log", LogHeader("small", COLUMNS, 0.5, 4, "2026-11-20T12:00:00+00:00")) as log:
        for index in range(4):
            first = Value(State.OVER_RANGE) if index == 2 else Value(State.OK, 1e-6 * index)
            second = Value(State.FAILED) if index == 1 else Value(State.OK, 2e-6)
            log.append(LogRow(index, 0.5 * index, (first, second, Value(State.OK, 40.0 + index))))
        log.sync()
    write_hdf5(tmp_path / "log", tmp_path / "r.h5")
    return tmp_path / "r.h5"


def test_each_unit_has_a_panel_and_each_column_a_name(recording: Path, tmp_path: Path) -> None:
    assert plot(recording, tmp_path / "all.svg") == 3
    picture = (tmp_path / "all.svg").read_text(encoding="utf-8")
    for text in ("meter0.power.1", "meter0.power.2", "sfp-a.temperature_c", "time (s)", "small: r.h5"):
        assert f"<!-- {text} -->" in picture
    assert picture.count('id="axes_') == 2


@pytest.mark.parametrize("n_names", [1, 10, 28, 200])
def test_the_legend_covers_no_data_and_leaves_the_data_its_room(n_names: int) -> None:
    figure, (above, below) = new_figure(2, n_names)
    for number in range(n_names):
        above.plot([0.0, 1.0], [number, number], label=f"mesh0.monitor.{number}")
    add_legend(above)
    below.plot([0.0, 1.0])
    figure.draw_without_rendering()
    legend, whole = above.get_legend().get_window_extent(), figure.bbox
    data = above.get_window_extent()
    assert legend.x0 >= data.x1
    assert legend.x1 <= whole.x1
    assert legend.y0 >= below.get_window_extent().y1
    assert (data.width >= 500, data.height >= 200) == (True, True)  # of 800 x 320
    assert len({(line.get_color(), line.get_linestyle()) for line in above.get_lines()}) >= min(n_names, 28)
    texts = [text.get_text() for text in above.get_legend().get_texts()]
    assert texts[-1] == ("and 156 more" if n_names == 200 else f"mesh0.monitor.{n_names - 1}")


def test_columns_are_chosen_as_those_of_a_log(recording: Path, tmp_path: Path) -> None:
    assert plot(recording, tmp_path / "one.png", ["meter0"]) == 2
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ConfigError, match=r"no channel 'meter1'.*Did you mean meter0"):
        plot(recording, tmp_path / "none.png", ["meter1"])


def test_a_file_that_is_no_recording_and_a_picture_of_no_kind_are_refused(recording: Path, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger.h5"
    stranger.write_text("power: 1\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="is not a recording"):
        plot(stranger, tmp_path / "p.png")
    with pytest.raises(ConfigError, match=r"\.png, \.svg, \.pdf"):
        plot(recording, tmp_path / "p.docx")


def test_the_command_writes_beside_the_recording(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", str(recording)]) == 0
    assert capsys.readouterr().out.strip() == f"{recording.with_suffix('.png')}: 3 channels"
    assert recording.with_suffix(".png").is_file()


def test_without_matplotlib_the_command_that_helps_is_named(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"pip install 'lumion-hw\[plots\]'"):
        plot(recording, tmp_path / "p.png")
