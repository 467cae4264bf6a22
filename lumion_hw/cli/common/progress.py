"""Progress of a long command: a bar on a terminal, otherwise a line of text every ten seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import MappingProxyType
from typing import Any

from lumion_hw.cli.common.output import note, progress

_TYPICAL_S: dict[str, tuple[float, float]] = {
    "alignment": (5.0, 3.0),
    "survey": (4.0, 0.5),
    "sweeps": (20.0, 3.0),
    "random settings": (10.0, 2.0),
    "search": (0.0, 7.0),
    "global fit": (0.0, 5.0),
    "chosen settings": (12.0, 4.0),
    "sources": (0.5, 0.1),
    "fibres": (2.5, 0.3),
    "verification": (3.0, 1.0),
}
"""Stages in order, with typical hardware and processor time in seconds for 72 PUCs.

Only the ratios between stages are used.
"""
_OTHER_S = (3.0, 3.0)
_REDRAW_PERIOD_S = 1.0
_LINE_PERIOD_S = 10.0
"""Longest time without a line on stderr while a stage runs, if stderr is not a terminal."""
_BAR_WIDTH = 28  # with label and percentage 77 columns


class Forecast:
    """Estimates the remaining time of a run from typical times and from the speed so far.

    Args:
        emulated: Whether the hardware is emulated and its time virtual.
        clock: Clock, in seconds.
        later_s: Typical processor time of the stages after the calibration in seconds, in order.
    """

    def __init__(
        self,
        emulated: bool,
        clock: Callable[[], float] = time.monotonic,
        later_s: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self._typical_s = {
            stage: processor_s + (0.0 if emulated else hardware_s)
            for stage, (hardware_s, processor_s) in _TYPICAL_S.items()
        } | dict(later_s)
        self._order = list(self._typical_s)
        self._other_s = _OTHER_S[1] + (0.0 if emulated else _OTHER_S[0])
        self._clock, self._began_s = clock, clock()
        self._stage = ""
        self._share = 0.0
        self._over: list[str] = []

    def at(self, stage: str, done: int, total: int) -> None:
        """Update the estimate after a step of a stage; a stage may occur more than once."""
        if stage != self._stage:
            if self._stage:
                self._over.append(self._stage)
            self._stage = stage
            self._typical_s.setdefault(stage, self._other_s)
        self._share = done / total if total else 1.0

    def remaining_s(self) -> float | None:
        """Return the estimated remaining time in seconds, or ``None`` if it is unknown."""
        present_s = self._typical_s.get(self._stage, 0.0)
        finished_s = sum(self._typical_s[stage] for stage in set(self._over) - {self._stage}) + self._share * present_s
        if finished_s <= 0.0:
            return None
        order = self._order
        reached = max((order.index(stage) for stage in {*self._over, self._stage} & set(order)), default=-1)
        left_s = (1.0 - self._share) * present_s + sum(self._typical_s[stage] for stage in order[reached + 1 :])
        return left_s * (self._clock() - self._began_s) / finished_s


class RunProgress:
    """Progress callback of a long command, as a context manager.

    A terminal on stderr shows a bar. Otherwise stderr gets a line at the end of each stage, and a line whenever a stage
    has printed nothing for ten seconds.

    Args:
        emulated: Whether the bench is emulated; ``None`` to estimate no remaining time.
        quiet: Print nothing unless stderr is a terminal.
        stage_lines: Whether to print a line at the end of each stage.
        clock: Clock, in seconds.
        later_s: Typical processor time of the stages after the calibration in seconds, in order.
    """

    def __init__(
        self,
        emulated: bool | None,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
        later_s: Mapping[str, float] = MappingProxyType({}),
        stage_lines: bool = True,
    ) -> None:
        self.stage, self.done, self.total = "", 0, 0
        self._forecast = None if emulated is None else Forecast(emulated, clock, later_s)
        self._quiet, self._stage_lines, self._clock = quiet, stage_lines, clock
        self._began_s = self._stage_began_s = self._line_s = clock()
        self._bars = ExitStack()
        self._bar: Any = None
        self._drawing = threading.Lock()
        self._over = threading.Event()
        self._beat: threading.Thread | None = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Update the progress of a stage; a new stage ends the previous one.

        Stages with the same name up to a comma share one bar.
        """
        with self._drawing:
            if stage != self.stage:
                is_drawn = self._bar is not None and not self._bar.hidden
                if not (is_drawn and _name(stage) == _name(self.stage)):
                    self._end(finished=True)
                    self._stage_began_s = self._clock()
                self.stage, self.done = stage, 0
                if self._bar is None:
                    self._bar = self._bars.enter_context(progress(total, self._label(), _BAR_WIDTH, show_eta=False))
            if self._forecast is not None:
                self._forecast.at(stage, done, total)
            self.done, self.total = done, total
            self.draw()

    def draw(self) -> None:
        """Redraw the progress bar. If stderr is not a terminal, print a line if the last line is ten seconds old."""
        bar = self._bar
        if bar is None:
            return
        if not bar.hidden:
            bar.length, bar.label = self.total, self._label()
            bar.pos, bar.finished = min(bar.pos, self.done), False  # click only steps forwards
            bar.update(self.done - bar.pos)
            bar.render_progress()
        elif not self._quiet and self._clock() - self._line_s >= _LINE_PERIOD_S:
            elapsed, steps = _elapsed(self._clock() - self._began_s), f"{self.done} of {self.total}"
            self._print_line(f"{elapsed}: {_name(self.stage)}, {steps}{self._remaining_phrase()}")

    def _print_line(self, text: str) -> None:
        self._line_s = self._clock()
        note(text)

    def between(self) -> None:
        """Close the progress bar, so that other text can be printed."""
        with self._drawing:
            self._end(finished=True)
            self.stage = ""

    def _label(self) -> str:
        elapsed = _duration(self._clock() - self._stage_began_s)
        return f"{_name(self.stage):>15}  {elapsed:>6}  {self._remaining_text():>14}"

    def _remaining_text(self) -> str:
        remaining_s = None if self._forecast is None else self._forecast.remaining_s()
        return "" if remaining_s is None else f"{_duration(remaining_s)} left"

    def _remaining_phrase(self) -> str:
        remaining = self._remaining_text()
        return f", about {remaining}" if remaining else ""

    def _end(self, *, finished: bool) -> None:
        hidden = self._bar is None or self._bar.hidden
        if finished and not hidden:
            self.total = max(self.done, 1)
            self.done = self.total
            self.draw()
        self._bars.close()
        self._bar = None
        if self.stage and hidden and self._stage_lines and not self._quiet:
            elapsed = _duration(self._clock() - self._stage_began_s)
            early = finished and self.done < self.total
            steps = f"done after {self.done}" if early else f"{self.done} of {self.total}"
            self._print_line(f"{self.stage}: {steps} in {elapsed}{self._remaining_phrase()}")

    def where(self) -> str:
        """Return the current stage and step as text."""
        return f"{self.stage}, {self.done} of {self.total}" if self.stage else "nothing measured"

    def _keep_drawing(self) -> None:
        while not self._over.wait(_REDRAW_PERIOD_S):
            with self._drawing:
                self.draw()

    def __enter__(self) -> RunProgress:
        self._beat = threading.Thread(target=self._keep_drawing, name="progress", daemon=True)
        self._beat.start()
        return self

    def __exit__(self, error: object = None, *_: object) -> None:
        self._over.set()
        if self._beat is not None:
            self._beat.join()
        self._end(finished=error is None)


def _name(stage: str) -> str:
    """Return the name of a stage without details after a comma."""
    return stage.partition(",")[0]


def _elapsed(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def _duration(seconds: float) -> str:
    if seconds < 90.0:
        return f"{seconds:.0f} s"
    return f"{seconds / 60.0:.0f} min" if seconds < 5400.0 else f"{seconds / 3600.0:.1f} h"
