"""Sweeps of the emulated board (docs/protocol.md, section 10)."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from firmware_protocol import (
    SWEEP_PUSH_MS,
    ChannelError,
    EndAction,
    EndReason,
    Event,
    Feature,
    ImageError,
    OutputsState,
    RecordRing,
    Refusal,
    RunFlag,
    RunState,
    Status,
    SweepDataEvent,
    SweepDoneEvent,
    SweepImage,
    SweepLoadReply,
    SweepLoadRequest,
    SweepStartRequest,
    SweepTrigger,
    image_refusal,
    max_elements,
    ring_capacity,
)
from lumion_hw.emulator.mesh.lumion.core import BoardCore
from lumion_hw.emulator.mesh.lumion.monitors import BoardMonitors
from lumion_hw.emulator.mesh.lumion.profile import BoardProfile


class ImageStore:
    """Memory for one uploaded sweep image, the program of a sweep.

    Attributes:
        sweep_id: Number of the image, 0 for none.
        total: Length of the image in bytes.
        received: Number of bytes received without a gap, from the start of the image.
    """

    def __init__(self, profile: BoardProfile) -> None:
        self._profile = profile
        self.clear()

    def clear(self) -> None:
        """Delete the sweep image."""
        self.sweep_id = self.total = self.received = 0
        self.image: SweepImage | None = None
        self._crc32 = 0
        self._data = bytearray()

    def load(self, request: SweepLoadRequest, state: OutputsState) -> SweepLoadReply | Refusal:
        """Store a part of a sweep image. Return a refusal (BUSY, BAD_VALUE, NO_MEMORY, INCOMPLETE) or ``None``."""
        refusal = self._refuse_fragment(request, state)
        if refusal is not None:
            return refusal
        end = request.offset + len(request.data)
        changed = self._data[request.offset : end] != request.data
        self._data[request.offset : end] = request.data
        self.received = max(self.received, end)
        # A last fragment that is repeated unchanged is not checked again.
        if self.received == self.total and (changed or self.image is None):
            refusal = self._check()
        return SweepLoadReply(request.sweep_id, self.received) if refusal is None else refusal

    def _refuse_fragment(self, request: SweepLoadRequest, state: OutputsState) -> Refusal | None:
        if state is OutputsState.SWEEP:
            return Refusal(Status.BUSY)
        bad_field = request.out_of_range()
        if bad_field is not None:
            return Refusal(Status.BAD_VALUE, channel=bad_field[0], value=bad_field[1])
        if request.total > self._profile.sweep_mem:
            return Refusal(Status.NO_MEMORY, value=request.total, limit=self._profile.sweep_mem)
        if (request.sweep_id, request.total, request.image_crc32) != (self.sweep_id, self.total, self._crc32):
            if request.offset:  # a new image begins with its first fragment
                return Refusal(Status.INCOMPLETE, value=0, limit=request.total)
            self.clear()
            self.sweep_id, self.total, self._crc32 = request.sweep_id, request.total, request.image_crc32
        if request.offset > self.received:
            return Refusal(Status.INCOMPLETE, value=self.received, limit=self.total)
        return None

    def _check(self) -> Refusal | None:
        profile, data, announced = self._profile, bytes(self._data), self._crc32
        image, refusal = None, None
        computed = zlib.crc32(data)
        if computed != announced:
            refusal = Refusal(Status.CRC_MISMATCH, value=computed, limit=announced)
        else:
            try:
                image = SweepImage.decode(data, profile.n_dac, profile.n_adc)
            except (ImageError, ChannelError) as error:
                refusal = image_refusal(error)
        if image is not None and image.trigger is SweepTrigger.EXTERNAL and not profile.has(Feature.SWEEP_TRIGGER):
            refusal = Refusal(Status.NOT_SUPPORTED, value=Feature.SWEEP_TRIGGER)
        if refusal is not None:
            self.clear()
        else:
            self.image = image
        return refusal


_U32 = 1 << 32
_EDGE_S = 1e-9
_MAX_LATE = 0xFFFF


@dataclass(frozen=True, eq=False)
class RunPlan:
    """Parameters of one sweep run.

    Attributes:
        generation: Number of the run.
        image: Uploaded sweep image (program of the sweep).
        channels: Recorded monitors, ascending.
    """

    generation: int
    sweep_id: int
    image: SweepImage
    channels: NDArray[np.intp]
    repeat: int

    @property
    def records(self) -> int:
        """Number of records of the whole run."""
        return len(self.image.points) * self.repeat

    def tables(self, base: NDArray[np.uint16]) -> Iterator[NDArray[np.uint16]]:
        """Yield the output codes for every point and every pass of the sweep."""
        for _ in range(self.repeat):
            yield from self.image.tables(base)


class Phase(Enum):
    """Progress of a sweep at its present point (one table of output codes)."""

    TRIGGER = "waiting for the external trigger"
    LATCH = "latching its next point at an edge"
    SETTLE = "waiting for its first scan"
    SCAN = "scans"
    PAUSED = "waiting for room in the ring"
    LAST = "ending at an edge"
    ENDED = "ended"


@dataclass(frozen=True)
class RunEnd:
    """End of a sweep run.

    Attributes:
        tick: Tick from which on the final outputs are driven.
        event: The SWEEP_DONE event.
    """

    reason: EndReason
    tick: int
    event: SweepDoneEvent


class BoardSweepRun:
    """One sweep run.

    Scans are made only when a method is called. A scan that was due earlier sees the light at the time of the call.

    Args:
        ring: Counters of the records that were stored, sent and released.
        first_edge: Number of the tick at which the first point begins.

    Attributes:
        first_tick: Tick of the first point; 0 while it waits for the trigger.
        late: Number of points that exceeded their dwell time by more than one tick.
        run_end: End of the run; ``None`` before.
    """

    def __init__(
        self, core: BoardCore, monitors: BoardMonitors, plan: RunPlan, ring: RecordRing, first_edge: int
    ) -> None:
        self._core = core
        self._monitors = monitors
        self.plan = plan
        self.ring = ring
        self.late = 0
        self.run_end: RunEnd | None = None
        self.first_tick = 0
        # Records are stored in a ring of rows; the row is the record number modulo the number of rows.
        rows = min(ring.capacity, plan.records)
        self._values = np.zeros((rows, len(plan.channels)), dtype=np.uint16)
        self._ticks = np.zeros(rows, dtype=np.uint32)
        self._recorded_s = np.zeros(rows)
        self._tables = plan.tables(core.driven)
        self._latched = 0
        self._latch_s = self._free_s = self._due_s = core.edge_s(first_edge)
        self._edge = first_edge
        self._scan: tuple[int, NDArray[np.uint16]] = (0, self._values[0])
        self._stopping = False
        # The first point waits for the trigger too; without a trigger it is latched at this edge.
        self.phase = Phase.TRIGGER if plan.image.trigger is SweepTrigger.EXTERNAL else Phase.LATCH
        if self.phase is Phase.LATCH:
            self._latch()

    # -- points -----------------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether the sweep run is still in progress."""
        return self.run_end is None

    @property
    def run_state(self) -> RunState:
        """State of the run in SWEEP_READ."""
        if not self.running:
            return RunState.ENDED
        return RunState.PAUSED if self.phase is Phase.PAUSED else RunState.RUNNING

    def next_due(self) -> float | None:
        """Return the time of the next action; ``None`` while the sweep waits for a trigger or for memory."""
        if self.phase in (Phase.SETTLE, Phase.SCAN):
            return self._due_s
        if self.phase in (Phase.LATCH, Phase.LAST) and not self._stopping:
            return self._core.edge_s(self._edge)
        return None

    def run_due(self) -> None:
        """Carry out the due action of the sweep."""
        match self.phase:
            case Phase.LATCH:
                self._count_if_late()
                self._latch()
            case Phase.SETTLE:
                self._start_scan()
            case Phase.SCAN:
                self._record()
            case Phase.LAST:
                self._count_if_late()
                self._core.end_sweep(self._edge, restore=self.plan.image.end_action is EndAction.BASE)
                self.end(EndReason.COMPLETE, self._core.latch_tick)

    def _latch(self) -> None:
        core = self._core
        core.latch(self.plan.generation, next(self._tables), self._edge)
        self._latch_s = core.edge_s(self._edge)
        if not self._latched:
            self.first_tick = core.latch_tick
        settle_us = self.plan.image.timing(self._latched % len(self.plan.image.points)).settle_us
        self._latched += 1
        self._due_s = self._latch_s + settle_us * 1e-6
        self.phase = Phase.SETTLE

    def _dwell_s(self) -> float:
        points = self.plan.image.points
        return self.plan.image.timing((self._latched - 1) % len(points)).dwell_us * 1e-6

    def _count_if_late(self) -> None:
        if self._latched:
            lasted_s = self._core.edge_s(self._edge) - self._latch_s
            # One tick of tolerance: points are latched at edges, so dwell times are rounded up.
            if lasted_s > self._dwell_s() + self._core.profile.tick_s + _EDGE_S:
                self.late += 1

    def _start_scan(self) -> None:
        n_avg = self.plan.image.n_avg
        self._scan = self._core.tick(self._due_s), self._monitors.scan(n_avg, self._due_s)[self.plan.channels]
        self._due_s += self._monitors.scan_s(n_avg)
        self.phase = Phase.SCAN

    def _record(self) -> None:
        row = self.ring.produce() % len(self._values)
        self._ticks[row], self._values[row] = self._scan
        self._recorded_s[row] = self._due_s
        # A point lasts until its scan is over and its dwell time has passed.
        self._free_s = max(self._due_s, self._latch_s + self._dwell_s())
        self._advance_point(self._free_s)

    def _advance_point(self, at_s: float) -> None:
        self._edge = self._core.edge_from(at_s)
        # Checked before the room in the ring: after the last record no more room is needed.
        if self.ring.produced == self.plan.records:
            self.phase = Phase.LAST
        elif self.ring.paused:
            self.phase = Phase.PAUSED
        elif self.plan.image.trigger is SweepTrigger.EXTERNAL:
            self.phase = Phase.TRIGGER
        else:
            self.phase = Phase.LATCH

    def trigger(self, at_s: float) -> None:
        """Receive the external trigger. A sweep point that waits for it is driven from the next tick on."""
        if self.phase is Phase.TRIGGER and at_s >= self._free_s - _EDGE_S:
            self._edge = self._core.tick_number(at_s) + 1
            self.phase = Phase.LATCH

    def acknowledge(self, up_to: int, credit_limit: int, at_s: float) -> None:
        """Release the records that the host has read, and allow more to be sent. ``ValueError`` for unknown records."""
        self.ring.acknowledge(up_to, credit_limit)
        if self.phase is Phase.PAUSED and not self.ring.paused:
            # There is room only from now on, so the next point is latched at the next edge at the earliest.
            next_edge_s = self._core.edge_s(self._core.tick_number(at_s) + 1)
            self._advance_point(max(self._free_s, next_edge_s))

    def shift(self, seconds: float) -> None:
        """Delay all scheduled times by the duration of a freeze of the processor."""
        self._latch_s += seconds
        self._free_s += seconds
        self._due_s += seconds

    # -- end --------------------------------------------------------------------------------------------------------

    def stop_latching(self) -> None:
        """End the sweep at the start of the next tick."""
        self._stopping = True

    def end(self, reason: EndReason, tick: int) -> None:
        """Record the end of the run."""
        core = self._core
        event = SweepDoneEvent(
            generation=self.plan.generation,
            records=self.ring.produced,
            dropped=self.ring.dropped,
            tick=tick,
            crc32=core.driven_crc32,
            late=min(self.late, _MAX_LATE),
            reason=reason,
            outputs_state=core.state,
        )
        self.run_end = RunEnd(reason, tick, event)
        self.phase = Phase.ENDED

    def forget_records(self) -> None:
        """Release all stored records of the run (section 10.4)."""
        self.ring.acknowledge(self.ring.produced, self.ring.credit_limit)

    # -- records ----------------------------------------------------------------------------------------------------

    def values(self, records: range) -> NDArray[np.uint16]:
        """Return the monitor codes of stored records; shape ``(len(records), n_selected)``."""
        return self._values[np.arange(records.start, records.stop) % len(self._values)]

    def next_push_s(self, tx_max: int) -> float | None:
        """Return the earliest time to send records: they fill a frame or are 20 ms old, or the run has ended."""
        pushable_records = self.ring.pushable()
        if not pushable_records:
            return None
        if not self.running:
            return float("-inf")
        full = max_elements(SweepDataEvent, tx_max, len(self.plan.channels))
        if len(pushable_records) >= full:
            return float(self._recorded_s[(pushable_records.start + full - 1) % len(self._recorded_s)])
        return float(self._recorded_s[pushable_records.start % len(self._recorded_s)]) + SWEEP_PUSH_MS * 1e-3

    def take_push(self, tx_max: int) -> SweepDataEvent:
        """Return the next records to send, as many as the host allows and one frame can hold."""
        pushable_records = self.ring.pushable()
        records = pushable_records[: max_elements(SweepDataEvent, tx_max, len(self.plan.channels))]
        self.ring.pushed(records)
        tick = int(self._ticks[records.start % len(self._ticks)])
        return SweepDataEvent(self.plan.generation, records.start, tick % _U32, self.values(records))


class Sweeper:
    """Sweep image (program of a sweep) and last sweep run of one board.

    Attributes:
        run: The last run; ``None`` before the first run since power-up.
    """

    def __init__(self, core: BoardCore, monitors: BoardMonitors) -> None:
        self._core = core
        self._monitors = monitors
        self.store = ImageStore(core.profile)
        self.run: BoardSweepRun | None = None
        self._is_done_event_pending = False
        core.on_sweep_end = self._end_early

    def reset(self) -> None:
        """Delete the sweep image and the run."""
        self.store.clear()
        self.run = None
        self._is_done_event_pending = False

    @property
    def running(self) -> BoardSweepRun | None:
        """The sweep run in progress; ``None`` if there is none."""
        return self.run if self.run is not None and self.run.running else None

    def capacity(self, n_selected: int) -> int:
        """Return how many records of ``n_selected`` monitors fit into the memory for results."""
        return ring_capacity(self._core.profile.sweep_ring, n_selected)

    def start(self, plan: RunPlan, request: SweepStartRequest, edge: int) -> BoardSweepRun:
        """Start a sweep at the start of the present tick."""
        overwrite = bool(request.run_flags & RunFlag.OVERWRITE)
        ring = RecordRing(self.capacity(len(plan.channels)), request.credit_limit, overwrite=overwrite)
        self._core.enter_sweep(plan.generation)
        self.run = BoardSweepRun(self._core, self._monitors, plan, ring, edge)
        self._is_done_event_pending = True
        return self.run

    def finish(self, reason: EndReason, edge: int) -> None:
        """End a running sweep at the start of a tick. The outputs return to their values before the sweep."""
        run = self.running
        if run is not None:
            self._core.end_sweep(edge, restore=True)
            run.end(reason, self._core.latch_tick)

    def _end_early(self, reason: EndReason, tick: int) -> None:
        run = self.running
        if run is not None:
            run.end(reason, tick)

    def change_host(self) -> None:
        """Drop the stored records for a new session (sections 4.1 and 10.4)."""
        self._is_done_event_pending = False
        if self.run is not None:
            self.run.forget_records()

    # -- scheduled actions ------------------------------------------------------------------------------------------

    def next_due(self) -> float | None:
        """Return the time of the next action of the run; ``None`` without a run."""
        return None if self.run is None else self.run.next_due()

    def run_due(self) -> None:
        """Carry out the due action of the sweep."""
        if self.run is not None:
            self.run.run_due()

    def trigger(self, at_s: float) -> None:
        """Pass the external trigger to the running sweep."""
        if self.run is not None:
            self.run.trigger(at_s)

    def shift(self, seconds: float) -> None:
        """Delay all scheduled times by the duration of a freeze of the processor."""
        if self.run is not None:
            self.run.shift(seconds)

    # -- events -----------------------------------------------------------------------------------------------------

    def next_ready_s(self, tx_max: int) -> float | None:
        """Return the earliest time to send a sweep event; ``None`` if no event is waiting."""
        run = self.run
        if run is None:
            return None
        next_push_s = run.next_push_s(tx_max)
        if next_push_s is None and self._is_done_event_pending and not run.running:
            return float("-inf")
        return next_push_s

    def take_event(self, tx_max: int) -> tuple[Event, bytes]:
        """Remove the sweep event that is ready. Return event code and payload."""
        run = self.run
        if run is not None and run.next_push_s(tx_max) is not None:
            return Event.SWEEP_DATA, run.take_push(tx_max).encode()
        return Event.SWEEP_DONE, self.take_done_event() or b""

    def take_done_event(self) -> bytes | None:
        """Remove a waiting SWEEP_DONE event and return its payload; ``None`` if there is none."""
        run_end = None if self.run is None else self.run.run_end
        if run_end is None or not self._is_done_event_pending:
            return None
        self._is_done_event_pending = False
        return run_end.event.encode()
