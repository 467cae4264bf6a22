"""Commands of the sweep (docs/protocol.md, section 10): SWEEP_LOAD, SWEEP_START, SWEEP_READ, SWEEP_ACK, SWEEP_ABORT."""

from __future__ import annotations

import numpy as np

from firmware_protocol import (
    EndReason,
    Message,
    Refusal,
    RunFlag,
    RunState,
    Status,
    SweepAbortReply,
    SweepAbortRequest,
    SweepAckReply,
    SweepAckRequest,
    SweepLoadRequest,
    SweepReadReply,
    SweepReadRequest,
    SweepStartReply,
    SweepStartRequest,
    is_newer,
    max_elements,
    run_records,
)
from lumion_hw.emulator.mesh.lumion.context import Context, DeferredReply, Result, bad_value, refuse_state
from lumion_hw.emulator.mesh.lumion.sweeper import BoardSweepRun, RunPlan

_OFFSET_REPEAT, _OFFSET_UP_TO = 16, 4


def sweep_load(context: Context, request: SweepLoadRequest, at_s: float) -> Result:
    """Execute SWEEP_LOAD (docs/protocol.md, section 10.2): store one piece of a sweep image."""
    del at_s
    return context.sweeper.store.load(request, context.core.state)


def sweep_start(context: Context, request: SweepStartRequest, at_s: float) -> Result:
    """Execute SWEEP_START (protocol section 10.3): drive the first point at the start of the next tick, then reply."""
    core, sweeper = context.core, context.sweeper
    run = sweeper.run
    is_same_run = run is not None and (run.plan.generation, run.plan.sweep_id) == (request.generation, request.sweep_id)
    # A repeat after a lost reply is answered with the run that was started.
    if run is not None and is_same_run and request.generation == core.generation:
        return _start_reply(context, run)
    plan = _accept(context, request)
    if isinstance(plan, Refusal):
        return plan
    core.armed = None  # a newer generation replaces an armed commit (docs/protocol.md, section 8.3)
    number = core.tick_number(at_s) + 1

    def start() -> Message | Refusal:
        refusal = refuse_state(core)
        return _start_reply(context, sweeper.start(plan, request, number)) if refusal is None else refusal

    return DeferredReply(core.edge_s(number), start)


def _accept(context: Context, request: SweepStartRequest) -> RunPlan | Refusal:
    core, store = context.core, context.sweeper.store
    refusal = refuse_state(core)
    if refusal is None and request.repeat == 0:
        refusal = bad_value(_OFFSET_REPEAT, 0)
    image = store.image
    if refusal is None and image is None:
        refusal = Refusal(Status.INCOMPLETE, value=store.received, limit=store.total)
    if refusal is not None or image is None:
        return refusal or Refusal(Status.INCOMPLETE)
    plan = RunPlan(request.generation, request.sweep_id, image, image.monitors(core.profile.n_adc), request.repeat)
    if request.sweep_id != store.sweep_id:
        return Refusal(Status.STALE, value=store.sweep_id)
    return _refuse_room(context, plan) or _refuse_table(context, request, plan) or plan


def _refuse_room(context: Context, plan: RunPlan) -> Refusal | None:
    """Return the refusal if the sweep's records could not be numbered, stored or sent; otherwise ``None``."""
    n_values = len(plan.channels)
    try:
        # Record numbers have 32 bits, so points times passes must fit.
        run_records(len(plan.image.points), plan.repeat)
    except ValueError:
        return bad_value(_OFFSET_REPEAT, plan.repeat)
    if context.sweeper.capacity(n_values) < 1:
        return Refusal(Status.NO_MEMORY, value=n_values, limit=context.core.profile.sweep_ring)
    # One record must fit a frame, or it could never be read.
    if max_elements(SweepReadReply, context.session.tx_max, n_values) < 1:
        room = max_elements(SweepReadReply, context.session.tx_max)
        return Refusal(Status.TOO_BIG, value=n_values, limit=room)
    return None


def _refuse_table(context: Context, request: SweepStartRequest, plan: RunPlan) -> Refusal | None:
    """Return the refusal for wrong table numbers or output codes of a sweep; otherwise ``None``."""
    core = context.core
    if not is_newer(request.generation, core.generation):
        return Refusal(Status.STALE, value=core.generation)
    computed = core.driven_crc32
    if not request.run_flags & RunFlag.NO_BASE_CHECK and request.base_crc32 != computed:
        return Refusal(Status.CRC_MISMATCH, value=computed, limit=request.base_crc32)
    return None if core.active is None else core.active.refuse_points(plan.image.tables(core.driven), core.profile)


def _start_reply(context: Context, run: BoardSweepRun) -> SweepStartReply:
    plan = run.plan
    return SweepStartReply(plan.generation, run.first_tick, plan.records, len(plan.channels), context.core.state)


def sweep_read(context: Context, request: SweepReadRequest, at_s: float) -> Result:
    """Execute SWEEP_READ (docs/protocol.md, section 10.4): return records by index, or only the state of the run."""
    del at_s
    run = context.sweeper.run
    if run is None:
        return _read_without_run(request)
    if request.generation != run.plan.generation:
        return Refusal(Status.STALE, value=run.plan.generation)
    ring = run.ring
    room = max_elements(SweepReadReply, context.session.tx_max, len(run.plan.channels))
    if request.count > room:
        return Refusal(Status.TOO_BIG, value=request.count, limit=room)
    records = ring.readable(request.first, request.count)
    if records is None:
        return Refusal(Status.OVERFLOW, value=ring.oldest)
    return SweepReadReply(
        generation=request.generation,
        first=request.first,
        produced=ring.produced,
        oldest=ring.oldest,
        dropped=ring.dropped,
        run_state=run.run_state,
        reason=None if run.run_end is None else run.run_end.reason,
        values=run.values(records),
    )


def _read_without_run(request: SweepReadRequest) -> Result:
    if request.generation:
        return Refusal(Status.STALE, value=0)
    values = np.zeros((0, 0), dtype=np.uint16)
    return SweepReadReply(0, request.first, 0, 0, 0, RunState.NONE, None, values)


def sweep_ack(context: Context, request: SweepAckRequest, at_s: float) -> Result:
    """Execute SWEEP_ACK (docs/protocol.md, section 10.4): release records that the host has read."""
    run = context.sweeper.run
    if run is None or request.generation != run.plan.generation:
        return Refusal(Status.STALE, value=0 if run is None else run.plan.generation)
    try:
        run.acknowledge(request.up_to, request.credit_limit, at_s)
    except ValueError:
        return bad_value(_OFFSET_UP_TO, request.up_to)
    return SweepAckReply(request.generation, run.ring.produced, run.ring.oldest)


def sweep_abort(context: Context, request: SweepAbortRequest, at_s: float) -> Result:
    """Execute SWEEP_ABORT (protocol section 10.4): end a running sweep at the start of the next tick."""
    core, sweeper = context.core, context.sweeper
    run = sweeper.run
    if run is None or request.generation != run.plan.generation:
        return Refusal(Status.STALE, value=0 if run is None else run.plan.generation)
    # A repeat after a lost reply, or a late request, is answered with the end of the run.
    if not run.running:
        return _abort_reply(context, run)
    run.stop_latching()
    number = core.tick_number(at_s) + 1

    def finish() -> Message | Refusal:
        sweeper.finish(EndReason.ABORTED, number)
        return _abort_reply(context, run)

    return DeferredReply(core.edge_s(number), finish)


def _abort_reply(context: Context, run: BoardSweepRun) -> SweepAbortReply | Refusal:
    run_end = run.run_end
    if run_end is None:  # impossible: finish() has ended it
        return Refusal(Status.BUSY)
    return SweepAbortReply(run.plan.generation, run.ring.produced, run_end.tick, context.core.state, run_end.reason)
