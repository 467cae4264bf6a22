"""Link with artificial faults, for tests.

Equal seeds give equal faults, independent of timing.
"""

from __future__ import annotations

import errno
import math
from typing import NoReturn

from lumion_hw.clock import Clock, Deadline
from lumion_hw.errors import ConnectError, LinkLost
from lumion_hw.links.base import Link
from lumion_hw.links.draining import DrainedByReading
from lumion_hw.links.fault_lane import FaultLane
from lumion_hw.links.fault_plan import Direction, FaultCounts, FaultEvent, FaultKind, FaultPlan, FaultRates

__all__ = ["Direction", "FaultCounts", "FaultEvent", "FaultKind", "FaultLink", "FaultPlan", "FaultRates"]

_SLICE_S = 0.05  # longest single sleep of a stalled call, after which a close from another thread is noticed
_FLUSH_S = 1.0  # time limit for sending delayed bytes


class FaultLink(DrainedByReading):
    """A link with artificial faults; wraps any :class:`~lumion_hw.links.base.Link`.

    Args:
        inner: Link to the device.
        plan: Faults to apply.
        clock: Clock of ``inner``.
        seed: Random seed.
    """

    def __init__(self, inner: Link, plan: FaultPlan, clock: Clock, seed: int) -> None:
        self._inner = inner
        self._clock = clock
        self._out = FaultLane(Direction.TO_DEVICE, seed)
        self._in = FaultLane(Direction.FROM_DEVICE, seed)
        self._backlog = b""
        self._lost_reason: str | None = None
        self._reconnected_s = -math.inf
        self.apply(plan)

    @property
    def name(self) -> str:
        """Name of the inner link."""
        return self._inner.name

    def apply(self, plan: FaultPlan) -> None:
        """Replace the fault plan. Events at byte counts that have already passed do not happen."""
        for lane, rates in ((self._out, plan.to_device), (self._in, plan.from_device)):
            lane.apply(rates, (event for event in plan.events if event.direction is lane.direction))

    def counts(self, direction: Direction) -> FaultCounts:
        """Return the counts of faults applied to one direction so far."""
        lane = self._out if direction is Direction.TO_DEVICE else self._in
        return FaultCounts(waiting=lane.waiting(), **lane.counts)

    def open(self, deadline: Deadline) -> None:
        """Open the inner link. Raises ``ConnectError`` while the fault plan keeps the link unplugged."""
        if self._clock.now() < self._reconnected_s:
            raise ConnectError("the fault plan keeps the link unplugged", address=self.name, hint="Try again later.")
        self._inner.open(deadline)
        self._lost_reason = None

    def write(self, data: bytes, deadline: Deadline) -> None:
        """Write ``data`` with faults. Raises ``LinkLost`` if the link is unplugged, or blocked until the deadline."""
        lane, n_written = self._out, 0
        self._check()
        while True:
            while (event := lane.line_event_due()) is not None:
                self._fire(event, lane)
            if n_written == len(data):
                self._flush(deadline)
                return
            self._check(f"only {n_written} of {len(data)} bytes were written")
            self._flush(deadline)
            self._wait_while_stalled(deadline, f"only {n_written} of {len(data)} bytes could be written in time")
            size = lane.bytes_before_line_event(len(data) - n_written)
            lane.push(data[n_written : n_written + size], self._clock.now())
            n_written += size

    def read(self, deadline: Deadline) -> bytes:
        """Return received data with faults, or ``b""`` at the deadline. Raises ``LinkLost`` if the link ended."""
        lane, polled = self._in, False
        while True:
            now_s = self._clock.now()
            self._flush(Deadline(now_s + _FLUSH_S))
            self._admit(now_s)
            data = lane.pop(now_s)
            if data:
                return data
            if lane.ended and lane.next_due() == math.inf:
                self._end("closed by the other side after a half close of the fault plan", orderly=True)
            self._check()
            if polled and now_s >= deadline:
                return b""
            polled = True
            self._wait(deadline, now_s)

    def close(self) -> None:
        """Close the inner link. Delayed bytes are lost."""
        self._inner.close()
        self._backlog = b""
        for lane in (self._out, self._in):
            lane.clear()
            lane.ended = False

    def _wait(self, deadline: Deadline, now_s: float) -> None:
        lane = self._in
        stalled = lane.stalled_until_s > now_s
        wake = min(deadline, self._out.next_due(), lane.next_due(), lane.stalled_until_s if stalled else math.inf)
        if not stalled and not lane.ended:
            try:
                self._backlog = self._inner.read(Deadline(max(wake, now_s)))
            except LinkLost:
                if lane.next_due() == math.inf:
                    raise
                stalled = True  # data from before the end is still queued
        if (stalled or lane.ended) and wake > now_s:
            self._clock.sleep(min(wake - now_s, _SLICE_S))

    def _admit(self, now_s: float) -> None:
        lane = self._in
        while True:
            while (event := lane.line_event_due()) is not None:
                self._fire(event, lane)
            if not self._backlog or lane.stalled_until_s > now_s or self._lost_reason is not None:
                return
            size = lane.bytes_before_line_event(len(self._backlog))
            lane.push(self._backlog[:size], now_s)
            self._backlog = self._backlog[size:]

    def _fire(self, event: FaultEvent, lane: FaultLane) -> None:
        now_s = self._clock.now()
        if event.kind is FaultKind.STALL:
            lane.counts["stalls"] += 1
            lane.stalled_until_s = now_s + event.duration_s
        elif event.kind is FaultKind.HALF_CLOSE:
            lane.counts["half_closes"] += 1
            lane.ended = True
        else:
            lane.counts["unplugs"] += 1
            self._flush(Deadline(now_s + _FLUSH_S))
            self._reconnected_s = now_s + event.duration_s
            self._lost_reason = "unplugged by the fault plan"
            self._backlog = b""
            self._inner.close()

    def _flush(self, deadline: Deadline) -> None:
        while self._lost_reason is None and (data := self._out.pop(self._clock.now())):
            self._inner.write(data, deadline)

    def _wait_while_stalled(self, deadline: Deadline, label: str) -> None:
        while (remaining_s := self._out.stalled_until_s - self._clock.now()) > 0:
            if self._clock.now() >= deadline:
                self._end(label)
            self._clock.sleep(min(remaining_s, deadline - self._clock.now(), _SLICE_S))

    def _check(self, progress: str = "") -> None:
        if self._lost_reason is not None:
            self._end(f"{self._lost_reason}; {progress}" if progress else self._lost_reason)

    def _end(self, label: str, *, orderly: bool = False) -> NoReturn:
        self._lost_reason = self._lost_reason or label
        self.close()
        hint = "The fault plan of this test link caused it; open the link again."
        raise LinkLost(label, address=self.name, hint=hint) from (None if orderly else OSError(errno.EIO, label))
