"""``lumion scan --watch``: the scan as text in the terminal, in place, within 80 columns and 24 lines."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lumion_hw.acquisition import ScanData, ScanProgress
from lumion_hw.acquisition.journal import LogTable
from lumion_hw.acquisition.scan_plan import ScanPlan
from lumion_hw.cli import main
from lumion_hw.cli.common.scan_view import TerminalView, scan_frame
from lumion_hw.cli.common.text_plot import braille_rows
from tests.acquisition.drawn_scans import axis, drawn

SMALL = str(Path(__file__).parents[1] / "data" / "small.yaml")
POL = "pol-a.setting.1"
UNIT_SQUARE = ((0.0, 1.0), (0.0, 1.0))


def dots(x: list[float], y: list[float], *, columns: int = 1, lines: int = 1) -> list[str]:
    return braille_rows(np.array(x), np.array(y), *UNIT_SQUARE, (columns, lines))


@pytest.mark.parametrize(
    ("x", "y", "dot"),
    [
        (0.0, 1.0, 1),
        (0.0, 2 / 3, 2),
        (0.0, 1 / 3, 3),
        (1.0, 1.0, 4),
        (1.0, 2 / 3, 5),
        (1.0, 1 / 3, 6),
        (0.0, 0.0, 7),
        (1.0, 0.0, 8),
    ],
)
def test_each_dot_has_the_number_that_unicode_gives_it(x: float, y: float, dot: int) -> None:
    # Unicode 16.0, chapter 21.1: dot n sets bit n - 1; the dots are 1 4 / 2 5 / 3 6 / 7 8 from top to bottom.
    assert dots([x], [y]) == [chr(0x2800 + (1 << dot - 1))]


def test_a_rising_line_goes_from_the_lower_left_to_the_upper_right() -> None:
    assert dots([0.0, 1.0], [0.0, 1.0], columns=3, lines=2) == ["⠀⠀⠈", "⡀⠀⠀"]


def test_points_that_are_missing_or_outside_are_left_out() -> None:
    assert dots([0.0, 0.5, 1.0, 2.0, -1.0], [np.nan, np.inf, 1.01, 0.5, 0.5]) == ["⠀"]


def test_a_constant_is_in_the_middle() -> None:
    rows = braille_rows(np.zeros(1), np.zeros(1), (0.0, 1.0), (0.0, 0.0), (1, 3))
    assert [row == "⠀" for row in rows] == [True, False, True]


def swept(n_readings: int = 1) -> ScanData:
    x = np.linspace(1530.0, 1565.0, 36)
    return drawn("tls.wavelength_nm", "nm", x, {(f"m.power.{n}", "dBm"): x - 1600.0 - n for n in range(n_readings)})


def test_a_frame_names_reading_range_and_swept_setting() -> None:
    frame = scan_frame(swept(), 12.4, 79, 24)
    assert frame[:2] == ["36 of 36 points, about 12 s left", "m.power.0 (dBm)"]
    assert frame[2].startswith("        -35│")
    assert frame[2][-1] != "⠀"  # the last value is the largest
    assert frame[-2].startswith("        -70│")
    assert frame[-1] == "tls.wavelength_nm: 1530 to 1565 nm"


@pytest.mark.parametrize(("columns", "lines"), [(79, 24), (40, 10), (20, 4), (119, 50)])
@pytest.mark.parametrize("n_readings", [1, 2, 9])
def test_a_frame_fits_the_terminal(n_readings: int, columns: int, lines: int) -> None:
    frame = scan_frame(swept(n_readings), None, columns, lines)
    assert max(map(len, frame)) <= columns
    assert len(frame) < max(lines, 5)  # at the least: points, title, one line of dots, setting
    if (n_readings, lines) == (9, 24):
        assert frame[0] == "36 of 36 points, 5 readings not drawn"


def test_of_an_emulated_bench_no_virtual_time_is_shown() -> None:
    data = swept()
    emulated = replace(data, header=replace(data.header, emulated=True))
    assert scan_frame(emulated, 12.4, 79, 24)[0] == "36 of 36 points"


def test_of_a_grid_the_present_pass_is_drawn_on_the_scale_of_all() -> None:
    flat = swept()
    plan = ScanPlan((axis("pol.setting.1", "V", np.array([0.0, 1.0, 2.0])), *flat.plan.axes))
    header = replace(
        flat.header,
        scan=plan,
        columns=(replace(flat.header.columns[0], name="pol.setting.1.set"), *flat.header.columns),
    )
    # The first pass is whole; of the second there is one point.
    values = np.column_stack([np.zeros(37), np.zeros(37), np.zeros(37), np.append(np.linspace(0.0, 7.0, 36), 3.5)])
    table = LogTable(np.arange(37, dtype=np.uint32), np.arange(37.0), values, np.zeros(values.shape, np.uint8))
    frame = scan_frame(ScanData.of(header, table), None, 79, 24)
    assert frame[-1].endswith(", pass 2 of 3")
    assert sum(bin(ord(c) - 0x2800).count("1") for line in frame for c in line if "⠀" <= c <= "⣿") == 1
    assert frame[2].startswith("          7│")


def test_readings_without_values_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    data = drawn("s.x", "nm", np.arange(3.0), {("m.y", "dBm"): np.full(3, np.nan)})
    view = TerminalView()
    view(data)
    assert "m.y (dBm): no values yet" in capsys.readouterr().err


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Put a terminal of 80 columns and 24 lines at stderr, and return what it shows."""
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    return screen


def test_a_frame_replaces_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal_of(monkeypatch)
    view = TerminalView()
    view(swept())
    first = screen.getvalue()
    view.on_progress(ScanProgress(36, 36, 0.0))
    view(swept())
    second = screen.getvalue().removeprefix(first)
    assert second.startswith(f"\x1b[{first.count(chr(10))}A36 of 36 points, about 0 s left\x1b[K\n")
    assert second.endswith("\n\x1b[J")


def command(out: Path, *more: str) -> list[str]:
    scan = ["scan", SMALL, "--emulate", "--read", "meter0.power.1", "--set", f"{POL}=-100:100:9", "-o", str(out)]
    return [*scan, "--state", str(out.with_suffix(".state")), "--watch", *more]


def test_the_command_draws_the_scan_until_it_is_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("h5py")
    screen = terminal_of(monkeypatch)
    assert main(command(tmp_path / "s.h5", "--json")) == 0
    assert json.loads(capsys.readouterr().out)["points"] == 9
    counts = re.findall(r"(\d+) of 9 points", screen.getvalue())
    assert (counts[0], counts[-1]) == ("0", "9")
    assert "[####" not in screen.getvalue()


def test_without_a_terminal_it_is_refused_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(tmp_path / "s.h5")) == 2
    assert "stderr is not a terminal" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
