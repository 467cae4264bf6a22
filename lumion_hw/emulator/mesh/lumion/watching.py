"""Watched monitors (docs/protocol.md, section 9.3): LIGHT events when a monitor crosses its threshold."""

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
    ready_s: float
    tick: int
    since: int
    generation: int


class MonitorWatch:
    """Watched monitors of the board.

    The light must not change between two calls of the board.
    """

    def __init__(self, core: BoardCore, monitors: BoardMonitors) -> None:
        self._core, self._monitors = core, monitors
        self.clear()

    def clear(self) -> None:
        """End the watching of monitors."""
        n_adc = self._core.profile.n_adc
        self._records: dict[int, tuple[int, int, int]] = {}
        self._dark = np.zeros(n_adc, dtype=np.bool_)
        self._run = np.full(n_adc, _NO_RUN, dtype=np.int64)
        self._period = self.shortest_period
        self._next_edge = 0
        self._pending: _Pending | None = None
        self._index_records()

    @property
    def shortest_period(self) -> int:
        """Smallest number of ticks between two scans of the watched monitors."""
        profile = self._core.profile
        return max(-(-profile.adc_scan_us // profile.tick_us), 1)

    @property
    def n_watched(self) -> int:
        """Number of watched monitors."""
        return len(self._records)

    @property
    def n_dark(self) -> int:
        """Number of watched monitors that are dark."""
        return int(self._dark.sum())

    def set(self, request: WatchRequest, at_s: float) -> None:
        """Apply a valid WATCH request, and queue an event with the present state."""
        if request.watch_flags & WatchFlag.CLEAR:
            self._records.clear()
            self._dark[:], self._run[:] = False, _NO_RUN
        for channel, below, light_from, hold in request.monitors.tolist():
            self._records.pop(channel, None)
            if below:
                self._records[channel] = (below, light_from, hold)
            self._dark[channel], self._run[channel] = False, _NO_RUN
        was_idle = not self._channels.size
        self._index_records()
        if request.period_ticks:
            self._period = request.period_ticks
        if request.period_ticks or was_idle:
            self._next_edge = self._core.tick_number(at_s) + 1
        tick = self._core.tick(at_s)
        self._queue_event(at_s, tick, tick)

    def _index_records(self) -> None:
        self._channels: NDArray[np.intp] = np.array(sorted(self._records), dtype=np.intp)
        rows = [self._records[channel] for channel in sorted(self._records)]
        self._dark_below, self._light_from, self._hold = np.array(rows, dtype=np.int64).reshape(-1, 3).T

    # -- scans ------------------------------------------------------------------------------------------------------

    def next_due(self, now_s: float) -> float | None:
        """Return the time of the next scan, not before ``now_s``; ``None`` if none is due."""
        if not self._channels.size:
            return None
        if self._core.state is OutputsState.SWEEP:
            # A sweep changes the light arbitrarily: nothing is scanned during a sweep, and running hold-offs restart.
            self._run[:] = _NO_RUN
            passed = self._core.tick_number(now_s) - self._next_edge
            self._next_edge += max(passed // self._period + 1, 0) * self._period
            return None
        return self._core.edge_s(self._next_edge)

    def run_due(self, until_s: float) -> None:
        """Carry out the due scan of the watched monitors."""
        core = self._core
        due = (core.tick_number(until_s) - self._next_edge) // self._period + 1
        # The light is constant, so the last scans decide the result of all missed ones.
        max_needed = 2 * int(self._hold.max()) // self._period + 4
        if due > max_needed:
            self._next_edge += (due - max_needed) * self._period
        edge = self._next_edge
        self._next_edge += self._period
        codes = self._monitors.scan(1, core.edge_s(edge))[self._channels].astype(np.int64)
        dark, run = self._dark[self._channels], self._run[self._channels]
        is_crossing = np.where(dark, codes >= self._light_from, (codes < self._dark_below) & (codes != SATURATED))
        if not is_crossing.any():
            self._run[self._channels] = _NO_RUN
            return
        run = np.where(is_crossing, np.where(run == _NO_RUN, edge, run), _NO_RUN)
        changed = is_crossing & (edge - run >= self._hold)
        self._run[self._channels] = np.where(changed, _NO_RUN, run)
        if changed.any():
            self._dark[self._channels[changed]] ^= True
            self._queue_event(core.edge_s(edge) + self._monitors.scan_s(1), edge % _U32, int(run[changed].min()) % _U32)

    # -- events -----------------------------------------------------------------------------------------------------

    def _queue_event(self, ready_s: float, tick: int, since: int) -> None:
        if self._pending is not None:  # not sent yet: the later state replaces it, and keeps its start
            self._pending = replace(self._pending, tick=tick, generation=self._core.generation)
        else:
            self._pending = _Pending(ready_s, tick, since, self._core.generation)

    def next_ready_s(self) -> float | None:
        """Return the earliest time to send a LIGHT event; ``None`` if no event waits."""
        return None if self._pending is None else self._pending.ready_s

    def take_event(self) -> bytes:
        """Remove the waiting LIGHT event and return its payload."""
        event = self._pending
        if event is None:
            raise RuntimeError("no LIGHT event is waiting to be sent")
        self._pending = None
        mask = np.packbits(self._dark, bitorder="little").tobytes()
        return LightEvent(event.tick, event.since, event.generation, mask).encode()
