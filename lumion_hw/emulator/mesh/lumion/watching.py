"""The board's own watch over its monitors (section 9.3): thresholds, hold-off, and the state that LIGHT events tell."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from firmware_protocol import SATURATED, LightEvent, OutputsState, WatchFlag, WatchRequest
from lumion_hw.emulator.mesh.lumion.core import BoardCore
from lumion_hw.emulator.mesh.lumion.monitors import BoardMonitors

_U32 = 1 << 32
_NO_RUN = -1


@dataclass(frozen=True)
class _Pending:
    """A LIGHT event that waits for the line."""

    ready_s: float
    tick: int
    since: int
    generation: int


class MonitorWatch:
    """What is watched, and what was found.

    Scans fall due at tick edges. Those between two looks at the board are made up for one by one; whoever changes the
    light of the bench looks at the board first, so that each sees the light of its own instant. While nothing is
    looked at the light stays as it is: of very many scans only those are made that a hold-off can need.

    Args:
        core: Time, state of the outputs and generation.
        monitors: The monitors.
    """

    def __init__(self, core: BoardCore, monitors: BoardMonitors) -> None:
        self._core, self._monitors = core, monitors
        self.clear()

    def clear(self) -> None:
        """End the watch: a new session or a restart."""
        n_adc = self._core.profile.n_adc
        self._records: dict[int, tuple[int, int, int]] = {}
        self._dark = np.zeros(n_adc, dtype=np.bool_)
        self._run = np.full(n_adc, _NO_RUN, dtype=np.int64)
        self._period = self.shortest_period
        self._next_edge = 0
        self._pending: _Pending | None = None
        self._take_records()

    @property
    def shortest_period(self) -> int:
        """Fewest ticks between two scans."""
        profile = self._core.profile
        return max(-(-profile.adc_scan_us // profile.tick_us), 1)

    @property
    def n_watched(self) -> int:
        """Monitors watched."""
        return len(self._records)

    @property
    def n_dark(self) -> int:
        """Of them dark."""
        return int(self._dark.sum())

    def set(self, request: WatchRequest, at_s: float) -> None:
        """Take the records of a request that was checked, and tell the state."""
        if request.watch_flags & WatchFlag.CLEAR:
            self._records.clear()
            self._dark[:], self._run[:] = False, _NO_RUN
        for channel, below, light_from, hold in request.monitors.tolist():
            self._records.pop(channel, None)
            if below:
                self._records[channel] = (below, light_from, hold)
            self._dark[channel], self._run[channel] = False, _NO_RUN
        was_idle = not self._channels.size
        self._take_records()
        if request.period_ticks:
            self._period = request.period_ticks
        if request.period_ticks or was_idle:
            self._next_edge = self._core.tick_number(at_s) + 1
        tick = self._core.tick(at_s)
        self._tell(at_s, tick, tick)

    def _take_records(self) -> None:
        self._channels: NDArray[np.intp] = np.array(sorted(self._records), dtype=np.intp)
        rows = [self._records[channel] for channel in sorted(self._records)]
        self._below, self._from, self._hold = np.array(rows, dtype=np.int64).reshape(-1, 3).T

    # -- scans ------------------------------------------------------------------------------------------------------

    def next_due(self, now_s: float) -> float | None:
        """Return the instant of the next scan, or ``None``; ``now_s`` is how far the board has come."""
        if not self._channels.size:
            return None
        if self._core.state is OutputsState.SWEEP:
            # A sweep changes the light as it likes: nothing is scanned meanwhile, and what was begun is forgotten.
            self._run[:] = _NO_RUN
            passed = self._core.tick_number(now_s) - self._next_edge
            self._next_edge += max(passed // self._period + 1, 0) * self._period
            return None
        return self._core.edge_s(self._next_edge)

    def run_due(self, until_s: float) -> None:
        """Make the scan that is due; nothing else happens on the bench before ``until_s``."""
        core = self._core
        due = (core.tick_number(until_s) - self._next_edge) // self._period + 1
        # Light that nobody has changed: the last scans decide what all of them would.
        enough = 2 * int(self._hold.max()) // self._period + 4
        if due > enough:
            self._next_edge += (due - enough) * self._period
        edge = self._next_edge
        self._next_edge += self._period
        codes = self._monitors.scan(1, core.edge_s(edge))[self._channels].astype(np.int64)
        dark, run = self._dark[self._channels], self._run[self._channels]
        against = np.where(dark, codes >= self._from, (codes < self._below) & (codes != SATURATED))
        if not against.any():
            self._run[self._channels] = _NO_RUN
            return
        run = np.where(against, np.where(run == _NO_RUN, edge, run), _NO_RUN)
        changed = against & (edge - run >= self._hold)
        self._run[self._channels] = np.where(changed, _NO_RUN, run)
        if changed.any():
            self._dark[self._channels[changed]] ^= True
            self._tell(core.edge_s(edge) + self._monitors.scan_s(1), edge % _U32, int(run[changed].min()) % _U32)

    # -- events -----------------------------------------------------------------------------------------------------

    def _tell(self, ready_s: float, tick: int, since: int) -> None:
        if self._pending is not None:  # not sent yet: the later state has its place, and its beginning
            self._pending = replace(self._pending, tick=tick, generation=self._core.generation)
        else:
            self._pending = _Pending(ready_s, tick, since, self._core.generation)

    def ready_at(self) -> float | None:
        """Return from when on there is an event to send, or ``None``."""
        return None if self._pending is None else self._pending.ready_s

    def next_event(self) -> bytes:
        """Take the event that waits."""
        told = self._pending
        if told is None:
            raise RuntimeError("no light event is pending")
        self._pending = None
        mask = np.packbits(self._dark, bitorder="little").tobytes()
        return LightEvent(told.tick, told.since, told.generation, mask).encode()
