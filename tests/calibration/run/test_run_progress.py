"""How much longer a run takes, by typical times of its stages and the pace so far."""

from __future__ import annotations

import contextlib
import io
import re

import click
import pytest

from lumion_hw.cli.common.progress import Forecast, RunProgress


class Now:
    """A clock that is set."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_nothing_is_said_before_anything_was_done() -> None:
    forecast = Forecast(False, Now())
    assert forecast.remaining_s() is None
    forecast.at("alignment", 0, 3)
    assert forecast.remaining_s() is None


def test_a_run_at_its_typical_pace_takes_what_is_typical() -> None:
    now = Now()
    forecast = Forecast(False, now)
    forecast.at("alignment", 3, 3)
    now.seconds = 8.0
    begun_s = forecast.remaining_s()
    assert begun_s is not None
    forecast.at("survey", 1, 1)
    now.seconds += 4.5
    forecast.at("sweeps", 72, 144)
    now.seconds += 11.5
    later_s = forecast.remaining_s()
    assert later_s == pytest.approx(begun_s - 4.5 - 11.5)


def test_a_bench_of_half_the_pace_takes_twice_as_long() -> None:
    remaining = []
    for pace in (1.0, 2.0):
        now = Now()
        forecast = Forecast(False, now)
        forecast.at("alignment", 3, 3)
        now.seconds = 8.0 * pace
        remaining.append(forecast.remaining_s())
    assert remaining[1] == pytest.approx(2.0 * (remaining[0] or 0.0))


def test_stages_after_the_calibration_count_too() -> None:
    now = Now()
    forecast = Forecast(True, now, {"circuits": 2.0, "reports": 1.0})
    for stage in ("alignment", "survey", "verification"):
        forecast.at(stage, 5, 5)
    now.seconds = 45.0  # ten times the typical 4.5 s of these stages
    assert forecast.remaining_s() == pytest.approx(30.0)
    forecast.at("circuits", 3, 3)
    assert forecast.remaining_s() == pytest.approx(45.0 / 6.5)


def test_at_the_end_of_the_last_stage_nothing_is_left() -> None:
    now = Now()
    forecast = Forecast(True, now)
    for stage in ("alignment", "survey", "sweeps", "random settings", "search", "global fit", "sources"):
        forecast.at(stage, 5, 5)
    forecast.at("verification", 40, 40)
    now.seconds = 30.0
    assert forecast.remaining_s() == 0.0


def test_a_stage_nobody_has_told_of_is_no_error() -> None:
    now = Now()
    forecast = Forecast(True, now)
    forecast.at("sweeps", 5, 5)
    now.seconds = 3.0
    before_s = forecast.remaining_s() or 0.0
    forecast.at("something new", 0, 2)
    assert (forecast.remaining_s() or 0.0) > before_s > 0.0


def test_off_a_terminal_each_stage_is_a_line_when_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    with RunProgress(True) as progress:
        progress("sweeps", 1, 2)
        progress("sweeps", 2, 2)
        assert capsys.readouterr().err == ""
        progress("search", 1, 9)
        assert capsys.readouterr().err.startswith("sweeps: 2 of 2 in 0 s")
        assert progress.where() == "search, 1 of 9"
    assert capsys.readouterr().err.startswith("search: done after 1 in 0 s")  # no more was needed


def test_off_a_terminal_a_stage_cut_short_says_how_far_it_came(capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(KeyboardInterrupt), RunProgress(True) as progress:
        progress("search", 1, 9)
        raise KeyboardInterrupt
    assert capsys.readouterr().err.startswith("search: 1 of 9 in 0 s")


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Put a terminal at stderr, and return what it shows."""
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", screen)
    return screen


def test_a_bar_whose_stage_needed_fewer_steps_ends_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    with RunProgress(True) as progress:
        progress("search", 57, 300)
        progress("global fit", 8, 60)
    assert "search" in terminal.getvalue()
    lines = terminal.getvalue().splitlines()
    assert [line for line in lines if "search" in line][-1].count("100%") == 1
    assert "100%" in lines[-1]


def test_the_trials_of_a_stage_share_one_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    with RunProgress(True) as progress:
        progress("global fit", 60, 60)
        for cause in ("slow heat", "reflections at facets and " * 5):
            progress(f"global fit, trying {cause}", 15, 60)
        assert "25%" in terminal.getvalue().rpartition("\r")[2]
        progress("verification", 1, 40)
    lines = click.unstyle(terminal.getvalue()).split("\n")
    assert sum("global fit" in line for line in lines) == 1
    assert max(len(frame) for line in lines for frame in line.split("\r")) < 80


def test_a_stage_that_was_cut_short_ends_where_it_stood(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    with contextlib.suppress(KeyboardInterrupt), RunProgress(True) as progress:
        progress("search", 57, 300)
        raise KeyboardInterrupt
    assert "100%" not in terminal.getvalue()


def test_time_goes_on_while_a_step_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    now = Now()
    progress = RunProgress(True, clock=now)
    progress("global fit", 0, 60)
    now.seconds = 42.0
    progress.draw()  # as every second on a terminal
    assert "42 s" in terminal.getvalue()


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    now = Now()
    with RunProgress(True, quiet=True, clock=now) as progress:
        progress("sweeps", 2, 2)
        now.seconds = 60.0
        progress.draw()
    assert capsys.readouterr() == ("", "")


def test_without_stage_lines_there_is_a_line_every_ten_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = Now()
    progress = RunProgress(None, stage_lines=False, clock=now)
    lines = []
    for second in range(36):
        now.seconds = second + 0.5
        progress("sweeps" if second < 15 else "search", second, 40)
        progress.draw()  # as every second
        lines += [(second, line) for line in capsys.readouterr().err.splitlines()]
    assert lines == [(10, "10 s: sweeps, 10 of 40"), (20, "20 s: search, 20 of 40"), (30, "30 s: search, 30 of 40")]


def test_off_a_terminal_a_long_stage_has_lines_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    now = Now()
    progress = RunProgress(None, clock=now)
    progress("alignment", 3, 3)
    now.seconds = 8.0
    progress("sweeps", 1, 144)  # prints the line of the stage before
    now.seconds = 17.0
    progress.draw()
    assert capsys.readouterr().err == "alignment: 3 of 3 in 8 s\n"
    now.seconds = 18.0
    progress.draw()
    assert capsys.readouterr().err == "18 s: sweeps, 1 of 144\n"


def test_a_line_every_ten_seconds_leaves_out_details(capsys: pytest.CaptureFixture[str]) -> None:
    now = Now()
    progress = RunProgress(None, stage_lines=False, clock=now)
    progress("global fit, trying slow heat and reflections at facets", 8, 60)
    now.seconds = 125.0
    progress.draw()
    assert capsys.readouterr().err == "2 min 05 s: global fit, 8 of 60\n"


def test_a_line_every_ten_seconds_ends_with_the_remaining_time(capsys: pytest.CaptureFixture[str]) -> None:
    now = Now()
    progress = RunProgress(True, stage_lines=False, clock=now)
    progress("alignment", 3, 3)
    now.seconds = 10.5
    progress.draw()
    # Alignment typically takes 3 s of 25.9 s; here it took 3.5 times as long, so 3.5 * 22.9 s = 80 s are left.
    assert capsys.readouterr().err == "10 s: alignment, 3 of 3, about 80 s left\n"


def test_nothing_is_printed_between_stages(capsys: pytest.CaptureFixture[str]) -> None:
    now = Now()
    progress = RunProgress(None, stage_lines=False, clock=now)
    progress("sweeps", 1, 2)
    progress.between()
    now.seconds = 60.0
    progress.draw()
    assert capsys.readouterr() == ("", "")


def test_a_bar_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    now = Now()
    progress = RunProgress(True, clock=now)
    for done in range(0, 40, 10):
        now.seconds += 2000.0
        progress("random settings", done, 40)
    progress.between()
    frames = [frame for frame in re.split(r"[\r\n]", click.unstyle(terminal.getvalue())) if frame]
    assert max(len(frame) for frame in frames) < 80
    assert "%" in frames[-1]
