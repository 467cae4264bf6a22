"""The sweeps of the emulated board: its image, its last run, and the events that run sends (section 10)."""

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
    """Holds one image; a new one takes its place.

    Args:
        profile: Memory, channels and features of the board.

    Attributes:
        sweep_id: Number of the image, 0 for none.
        total: Its length, B.
        received: Contiguous bytes from 0 held now.
        image: The image once it is complete and checked.
    """

    def __init__(self, profile: BoardProfile) -> None:
        self._profile = profile
        self.clear()

    def clear(self) -> None:
        """Forget the image."""
        self.sweep_id = self.total = self.received = 0
        self.image: SweepImage | None = None
        self._crc32 = 0
        self._data = bytearray()

    def load(self, request: SweepLoadRequest, state: OutputsState) -> SweepLoadReply | Refusal:
        """Take a piece: BUSY, BAD_VALUE, NO_MEMORY, INCOMPLETE for a hole; CRC and structure with the last one."""
        refusal = self._refuse_piece(request, state)
        if refusal is not None:
            return refusal
        end = request.offset + len(request.data)
        changed = self._data[request.offset : end] != request.data
        self._data[request.offset : end] = request.data
        self.received = max(self.received, end)
        # A last piece that is sent again, unchanged, is not checked again.
        if self.received == self.total and (changed or self.image is None):
            refusal = self._check()
        return SweepLoadReply(request.sweep_id, self.received) if refusal is None else refusal

    def _refuse_piece(self, request: SweepLoadRequest, state: OutputsState) -> Refusal | None:
        if state is OutputsState.SWEEP:
            return Refusal(Status.BUSY)
        wrong = request.out_of_range()
        if wrong is not None:
            return Refusal(Status.BAD_VALUE, channel=wrong[0], value=wrong[1])
        if request.total > self._profile.sweep_mem:
            return Refusal(Status.NO_MEMORY, value=request.total, limit=self._profile.sweep_mem)
        if (request.sweep_id, request.total, request.image_crc32) != (self.sweep_id, self.total, self._crc32):
            if request.offset:  # a new image begins with its first piece
                return Refusal(Status.INCOMPLETE, value=0, limit=request.total)
            self.clear()
            self.sweep_id, self.total, self._crc32 = request.sweep_id, request.total, request.image_crc32
        if request.offset > self.received:
            return Refusal(Status.INCOMPLETE, value=self.received, limit=self.total)
        return None

    def _check(self) -> Refusal | None:
        """Check the complete image; a wrong one is discarded."""
        profile, data, given = self._profile, bytes(self._data), self._crc32
        image, refusal = None, None
        computed = zlib.crc32(data)
        if computed != given:
            refusal = Refusal(Status.CRC_MISMATCH, value=computed, limit=given)
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
_LATE_TOP = 0xFFFF


@dataclass(frozen=True, eq=False)
class RunPlan:
    """What is run.

    Attributes:
        generation: Names the run.
        sweep_id: Number of the image.
        image: The image.
        channels: Recorded monitors, ascending.
        repeat: Passes; each starts from the start table or the base table again.
    """

    generation: int
    sweep_id: int
    image: SweepImage
    channels: NDArray[np.intp]
    repeat: int

    @property
    def records(self) -> int:
        """Records of the whole run."""
        return len(self.image.points) * self.repeat

    def tables(self, base: NDArray[np.uint16]) -> Iterator[NDArray[np.uint16]]:
        """Yield the table of every point of every pass."""
        for _ in range(self.repeat):
            yield from self.image.tables(base)


class Phase(Enum):
    """Where a run stands in its present point."""

    TRIGGER = "waits for the external trigger"
    LATCH = "latches its next point at an edge"
    SETTLE = "waits for its first scan"
    SCAN = "scans"
    PAUSED = "waits for room in the ring"
    LAST = "ends at an edge"
    ENDED = "has ended"


@dataclass(frozen=True)
class Ending:
    """How a run ended.

    Attributes:
        reason: Why.
        tick: Edge of the final latch.
        event: The SWEEP_DONE event.
    """

    reason: EndReason
    tick: int
    event: SweepDoneEvent


class BoardSweepRun:
    """One run, from the edge of its first point to the reading of its last record.

    Each scan looks at the light when it starts, which is an instant of :meth:`next_due`: whoever drives the clock must
    let the board act there. A board that nobody looks at catches up at the next look: every point is latched at its
    own instant and every record has its tick, but the scans all see the light of that late moment.

    Args:
        core: Outputs and time.
        monitors: The monitors.
        plan: What is run.
        ring: Which records are held.
        first_edge: Number of the tick edge of the first point.

    Attributes:
        first_tick: Tick of the first point; 0 while it waits for the trigger.
        late: Points that exceeded their dwell time by more than one tick.
        ending: How it ended; ``None`` before.
    """

    def __init__(
        self, core: BoardCore, monitors: BoardMonitors, plan: RunPlan, ring: RecordRing, first_edge: int
    ) -> None:
        self._core = core
        self._monitors = monitors
        self.plan = plan
        self.ring = ring
        self.late = 0
        self.ending: Ending | None = None
        self.first_tick = 0
        # Records lie in a ring of rows; the number of one, modulo their count, is its row.
        rows = min(ring.capacity, plan.records)
        self._values = np.zeros((rows, len(plan.channels)), dtype=np.uint16)
        self._ticks = np.zeros(rows, dtype=np.uint32)
        self._made_s = np.zeros(rows)
        self._tables = plan.tables(core.driven)
        self._latched = 0
        self._latch_s = self._free_s = self._due_s = core.edge_s(first_edge)
        self._edge = first_edge
        self._scan: tuple[int, NDArray[np.uint16]] = (0, self._values[0])
        self._stopping = False
        # The first point, too, waits for the trigger; without one it is latched at the edge that is now.
        self.phase = Phase.TRIGGER if plan.image.trigger is SweepTrigger.EXTERNAL else Phase.LATCH
        if self.phase is Phase.LATCH:
            self._latch()

    # -- the points -------------------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """It has not ended."""
        return self.ending is None

    @property
    def run_state(self) -> RunState:
        """State as SWEEP_READ reports it."""
        if not self.running:
            return RunState.ENDED
        return RunState.PAUSED if self.phase is Phase.PAUSED else RunState.RUNNING

    def next_due(self) -> float | None:
        """Return the next instant at which something happens by itself, or ``None``."""
        if self.phase in (Phase.SETTLE, Phase.SCAN):
            return self._due_s
        if self.phase in (Phase.LATCH, Phase.LAST) and not self._stopping:
            return self._core.edge_s(self._edge)
        return None

    def run_due(self) -> None:
        """Do what is due at that instant."""
        match self.phase:
            case Phase.LATCH:
                self._judge_dwell()
                self._latch()
            case Phase.SETTLE:
                self._begin_scan()
            case Phase.SCAN:
                self._record()
            case Phase.LAST:
                self._judge_dwell()
                self._core.leave_sweep(self._edge, restore=self.plan.image.end_action is EndAction.BASE)
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
        """Least time of the present point, s."""
        points = self.plan.image.points
        return self.plan.image.timing((self._latched - 1) % len(points)).dwell_us * 1e-6

    def _judge_dwell(self) -> None:
        """Count the present point as late if it lasted more than a tick longer than asked; it ends at the edge."""
        if self._latched:
            lasted_s = self._core.edge_s(self._edge) - self._latch_s
            # A tick of room: points are latched at edges, so a dwell time is rounded up to them.
            if lasted_s > self._dwell_s() + self._core.profile.tick_s + _EDGE_S:
                self.late += 1

    def _begin_scan(self) -> None:
        n_avg = self.plan.image.n_avg
        self._scan = self._core.tick(self._due_s), self._monitors.scan(n_avg, self._due_s)[self.plan.channels]
        self._due_s += self._monitors.scan_s(n_avg)
        self.phase = Phase.SCAN

    def _record(self) -> None:
        row = self.ring.produce() % len(self._values)
        self._ticks[row], self._values[row] = self._scan
        self._made_s[row] = self._due_s
        # A point lasts until its scan is over and its dwell time, whichever is later.
        self._free_s = max(self._due_s, self._latch_s + self._dwell_s())
        self._choose_next(self._free_s)

    def _choose_next(self, at_s: float) -> None:
        """Go on to the next point, not before an instant."""
        self._edge = self._core.edge_from(at_s)
        # Before the question of room: the last record needs none for another.
        if self.ring.produced == self.plan.records:
            self.phase = Phase.LAST
        elif self.ring.paused:
            self.phase = Phase.PAUSED
        elif self.plan.image.trigger is SweepTrigger.EXTERNAL:
            self.phase = Phase.TRIGGER
        else:
            self.phase = Phase.LATCH

    def trigger(self, at_s: float) -> None:
        """The external trigger: a point that waits for it latches at the next edge. One that comes early is lost."""
        if self.phase is Phase.TRIGGER and at_s >= self._free_s - _EDGE_S:
            self._edge = self._core.tick_number(at_s) + 1
            self.phase = Phase.LATCH

    def acknowledge(self, up_to: int, credit_limit: int, at_s: float) -> None:
        """Release records and move the push limit; a paused run goes on. Raises ``ValueError`` for too much."""
        self.ring.acknowledge(up_to, credit_limit)
        if self.phase is Phase.PAUSED and not self.ring.paused:
            # Room has come now, so the next point is latched no earlier than at the next edge.
            next_edge_s = self._core.edge_s(self._core.tick_number(at_s) + 1)
            self._choose_next(max(self._free_s, next_edge_s))

    def shift(self, seconds: float) -> None:
        """The processor stood still for so long."""
        self._latch_s += seconds
        self._free_s += seconds
        self._due_s += seconds

    # -- its end ----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Latch no further point: the run ends at the coming edge."""
        self._stopping = True

    def end(self, reason: EndReason, tick: int) -> None:
        """Note the end; the outputs are in their final state."""
        core = self._core
        event = SweepDoneEvent(
            generation=self.plan.generation,
            records=self.ring.produced,
            dropped=self.ring.dropped,
            tick=tick,
            crc32=core.driven_crc32,
            late=min(self.late, _LATE_TOP),
            reason=reason,
            outputs_state=core.state,
        )
        self.ending = Ending(reason, tick, event)
        self.phase = Phase.ENDED

    def forget_records(self) -> None:
        """Release every record (a new session, section 10.4)."""
        self.ring.acknowledge(self.ring.produced, self.ring.credit_limit)

    # -- its records ------------------------------------------------------------------------------------------------

    def values(self, records: range) -> NDArray[np.uint16]:
        """Return records that are held; shape ``(len(records), n_selected)``."""
        return self._values[np.arange(records.start, records.stop) % len(self._values)]

    def push_at(self, tx_max: int) -> float | None:
        """Return from when on records can be pushed: a frame is full, 20 ms are over, or the run has ended."""
        ready = self.ring.pushable()
        if not ready:
            return None
        if not self.running:
            return float("-inf")
        full = max_elements(SweepDataEvent, tx_max, len(self.plan.channels))
        if len(ready) >= full:
            return float(self._made_s[(ready.start + full - 1) % len(self._made_s)])
        return float(self._made_s[ready.start % len(self._made_s)]) + SWEEP_PUSH_MS * 1e-3

    def push(self, tx_max: int) -> SweepDataEvent:
        """Return as many records as may be pushed and fit one frame."""
        ready = self.ring.pushable()
        chosen = ready[: max_elements(SweepDataEvent, tx_max, len(self.plan.channels))]
        self.ring.pushed(chosen)
        tick = int(self._ticks[chosen.start % len(self._ticks)])
        return SweepDataEvent(self.plan.generation, chosen.start, tick % _U32, self.values(chosen))


class Sweeper:
    """Image and last run of one board.

    Args:
        core: Outputs and time.
        monitors: The monitors.

    Attributes:
        store: The image.
        run: The last run; ``None`` before the first one of this boot.
    """

    def __init__(self, core: BoardCore, monitors: BoardMonitors) -> None:
        self._core = core
        self._monitors = monitors
        self.store = ImageStore(core.profile)
        self.run: BoardSweepRun | None = None
        self._done_waits = False
        core.sweep_over = self._over

    def reset(self) -> None:
        """Forget everything: a restart."""
        self.store.clear()
        self.run = None
        self._done_waits = False

    @property
    def running(self) -> BoardSweepRun | None:
        """The run that has not ended, if there is one."""
        return self.run if self.run is not None and self.run.running else None

    def capacity(self, n_selected: int) -> int:
        """Return how many records the result memory holds."""
        return ring_capacity(self._core.profile.sweep_ring, n_selected)

    def begin(self, plan: RunPlan, request: SweepStartRequest, edge: int) -> BoardSweepRun:
        """Start a run at a tick edge, which is now."""
        overwrite = bool(request.run_flags & RunFlag.OVERWRITE)
        ring = RecordRing(self.capacity(len(plan.channels)), request.credit_limit, overwrite=overwrite)
        self._core.enter_sweep(plan.generation)
        self.run = BoardSweepRun(self._core, self._monitors, plan, ring, edge)
        self._done_waits = True
        return self.run

    def finish(self, reason: EndReason, edge: int) -> None:
        """End a running sweep at a tick edge, the base table driven again; nothing if it has ended meanwhile."""
        run = self.running
        if run is not None:
            self._core.leave_sweep(edge, restore=True)
            run.end(reason, self._core.latch_tick)

    def _over(self, reason: EndReason, tick: int) -> None:
        run = self.running
        if run is not None:
            run.end(reason, tick)

    def change_host(self) -> None:
        """A new session begins: the records are gone, image and outcome stay (sections 4.1 and 10.4)."""
        self._done_waits = False
        if self.run is not None:
            self.run.forget_records()

    # -- on the clock -----------------------------------------------------------------------------------------------

    def next_due(self) -> float | None:
        """Return the next instant at which a point is latched or scanned, or the run ends; ``None`` without a run."""
        return None if self.run is None else self.run.next_due()

    def run_due(self) -> None:
        """Do what is due at that instant."""
        if self.run is not None:
            self.run.run_due()

    def trigger(self, at_s: float) -> None:
        """The external trigger."""
        if self.run is not None:
            self.run.trigger(at_s)

    def shift(self, seconds: float) -> None:
        """The processor stood still for so long."""
        if self.run is not None:
            self.run.shift(seconds)

    # -- events -----------------------------------------------------------------------------------------------------

    def ready_at(self, tx_max: int) -> float | None:
        """Return from when on there is an event to send, or ``None``: SWEEP_DONE follows the last SWEEP_DATA."""
        run = self.run
        if run is None:
            return None
        push_at = run.push_at(tx_max)
        if push_at is None and self._done_waits and not run.running:
            return float("-inf")
        return push_at

    def next_event(self, tx_max: int) -> tuple[Event, bytes]:
        """Take the event that is ready: its code and its payload."""
        run = self.run
        if run is not None and run.push_at(tx_max) is not None:
            return Event.SWEEP_DATA, run.push(tx_max).encode()
        return Event.SWEEP_DONE, self.take_done() or b""

    def take_done(self) -> bytes | None:
        """Take the payload of a SWEEP_DONE that waits, whatever records remain; ``None`` if none does."""
        ending = None if self.run is None else self.run.ending
        if ending is None or not self._done_waits:
            return None
        self._done_waits = False
        return ending.event.encode()
