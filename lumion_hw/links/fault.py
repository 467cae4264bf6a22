"""A bad wire on purpose: any link with seeded faults in either direction, and a count of everything done to it.

Damage to single bytes depends on the seed and on the byte's number in its direction, not on how the bytes were cut
into pieces; so it is the same on every run, also over TCP. Pieces (one ``write`` of the host, one ``read`` of the inner
link) are delayed, split, swapped or hit by a burst. The line itself stalls, is half closed or unplugged after byte N.
"""

from __future__ import annotations

import errno
import math
from typing import NoReturn

from lumion_hw.clock import Clock, Deadline
from lumion_hw.errors import ConnectError, LinkLost
from lumion_hw.links.base import Link
from lumion_hw.links.draining import drain_by_reading
from lumion_hw.links.fault_lane import FaultLane
from lumion_hw.links.fault_plan import Direction, FaultCounts, FaultEvent, FaultKind, FaultPlan, FaultRates

__all__ = ["Direction", "FaultCounts", "FaultEvent", "FaultKind", "FaultLink", "FaultPlan", "FaultRates"]

_SLICE_S = 0.05  # longest single sleep of a stalled call: a close from another thread is noticed within it
_FLUSH_S = 1.0  # time for passing on delayed bytes


class FaultLink:
    """A link with faults; a :class:`~lumion_hw.links.base.Link` around any other.

    There is no thread: delayed bytes move on when the host next uses the link.

    Args:
        inner: The link to the device.
        plan: What is done to it.
        clock: The clock of ``inner``.
        seed: Seed of all that is random.
    """

    def __init__(self, inner: Link, plan: FaultPlan, clock: Clock, seed: int) -> None:
        self._inner = inner
        self._clock = clock
        self._out = FaultLane(Direction.TO_DEVICE, seed)
        self._in = FaultLane(Direction.FROM_DEVICE, seed)
        self._backlog = b""
        self._lost: str | None = None
        self._plugged_again_s = -math.inf
        self.apply(plan)

    @property
    def name(self) -> str:
        """The name of the inner link."""
        return self._inner.name

    def apply(self, plan: FaultPlan) -> None:
        """Do what ``plan`` says from now on; events whose byte has passed do not happen."""
        for lane, rates in ((self._out, plan.to_device), (self._in, plan.from_device)):
            lane.apply(rates, (event for event in plan.events if event.direction is lane.direction))

    def counts(self, direction: Direction) -> FaultCounts:
        """Return what was done to one direction so far."""
        lane = self._out if direction is Direction.TO_DEVICE else self._in
        return FaultCounts(waiting=lane.waiting(), **lane.counts)

    def open(self, deadline: Deadline) -> None:
        """Open the inner link. Raises ``ConnectError`` while it is unplugged."""
        if self._clock.now() < self._plugged_again_s:
            raise ConnectError("unplugged by the fault plan", address=self.name, hint="Try again later.")
        self._inner.open(deadline)
        self._lost = None

    def write(self, data: bytes, deadline: Deadline) -> None:
        """Write through the faults; raises ``LinkLost`` when unplugged, or stalled until the deadline."""
        lane, done = self._out, 0
        self._check()
        while True:
            while (event := lane.line_event_due()) is not None:
                self._fire(event, lane)
            if done == len(data):
                self._flush(deadline)
                return
            self._check(f"only {done} of {len(data)} bytes were written")
            self._flush(deadline)
            self._wait_while_stalled(deadline, f"only {done} of {len(data)} bytes could be written in time")
            size = lane.room(len(data) - done)
            lane.push(data[done : done + size], self._clock.now())
            done += size

    def read(self, deadline: Deadline) -> bytes:
        """Return what comes through the faults, or ``b""`` at the deadline; ``LinkLost`` when it ended."""
        lane, polled = self._in, False
        while True:
            now = self._clock.now()
            self._flush(Deadline(now + _FLUSH_S))
            self._admit(now)
            data = lane.pop(now)
            if data:
                return data
            if lane.ended and lane.next_due() == math.inf:
                self._end("closed by the other side, half of it by the fault plan", orderly=True)
            self._check()
            if polled and now >= deadline:
                return b""
            polled = True
            self._wait(deadline, now)

    def drain(self, quiet_s: float, deadline: Deadline) -> int:
        """Throw away what comes through until nothing came for ``quiet_s`` seconds."""
        return drain_by_reading(self, self._clock, quiet_s, deadline)

    def close(self) -> None:
        """Close the inner link; what is under way is lost."""
        self._inner.close()
        self._backlog = b""
        for lane in (self._out, self._in):
            lane.clear()
            lane.ended = False

    def _wait(self, deadline: Deadline, now: float) -> None:
        """Wait for the device, for bytes under way in either direction, or for the end of a stall."""
        lane = self._in
        stalled = lane.stalled_until_s > now
        wake = min(deadline, self._out.next_due(), lane.next_due(), lane.stalled_until_s if stalled else math.inf)
        if not stalled and not lane.ended:
            try:
                self._backlog = self._inner.read(Deadline(max(wake, now)))
            except LinkLost:
                if lane.next_due() == math.inf:
                    raise
                stalled = True  # what came before the end is still under way
        if (stalled or lane.ended) and wake > now:
            self._clock.sleep(min(wake - now, _SLICE_S))

    def _admit(self, now: float) -> None:
        """Let bytes of the device into the lane, up to the next thing that happens to the line."""
        lane = self._in
        while True:
            while (event := lane.line_event_due()) is not None:
                self._fire(event, lane)
            if not self._backlog or lane.stalled_until_s > now or self._lost is not None:
                return
            size = lane.room(len(self._backlog))
            lane.push(self._backlog[:size], now)
            self._backlog = self._backlog[size:]

    def _fire(self, event: FaultEvent, lane: FaultLane) -> None:
        now = self._clock.now()
        if event.kind is FaultKind.STALL:
            lane.counts["stalls"] += 1
            lane.stalled_until_s = now + event.duration_s
        elif event.kind is FaultKind.HALF_CLOSE:
            lane.counts["half_closes"] += 1
            lane.ended = True
        else:
            lane.counts["unplugs"] += 1
            self._flush(Deadline(now + _FLUSH_S))
            self._plugged_again_s = now + event.duration_s
            self._lost = "unplugged by the fault plan"
            self._backlog = b""
            self._inner.close()

    def _flush(self, deadline: Deadline) -> None:
        """Pass on what is due for the device, if it is still there."""
        while self._lost is None and (data := self._out.pop(self._clock.now())):
            self._inner.write(data, deadline)

    def _wait_while_stalled(self, deadline: Deadline, what: str) -> None:
        while (left_s := self._out.stalled_until_s - self._clock.now()) > 0:
            if self._clock.now() >= deadline:
                self._end(what)
            self._clock.sleep(min(left_s, deadline - self._clock.now(), _SLICE_S))

    def _check(self, so_far: str = "") -> None:
        if self._lost is not None:
            self._end(f"{self._lost}; {so_far}" if so_far else self._lost)

    def _end(self, what: str, *, orderly: bool = False) -> NoReturn:
        """Close and raise; like the link of a socket, with the system's error as the cause unless it ended orderly."""
        self._lost = self._lost or what
        self.close()
        hint = "The plan of this fault link wants it so; open it again."
        raise LinkLost(what, address=self.name, hint=hint) from (None if orderly else OSError(errno.EIO, what))
