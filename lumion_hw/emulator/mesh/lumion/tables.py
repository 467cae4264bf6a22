"""Commands for output codes (docs/protocol.md, section 8): STAGE, STAGE_SPARSE, COMMIT, SET, READBACK."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from firmware_protocol import (
    DRIVEN_TABLE,
    CommitReply,
    CommitRequest,
    CommitWhen,
    Feature,
    Message,
    ReadbackFlag,
    ReadbackReply,
    ReadbackRequest,
    Refusal,
    SetReply,
    SetRequest,
    SparseBase,
    StageReply,
    StageRequest,
    StageSparseRequest,
    Status,
    is_newer,
    table_crc32,
)
from lumion_hw.emulator.mesh.lumion.context import Context, DeferredReply, Result, bad_value, refuse_span, refuse_state
from lumion_hw.emulator.mesh.lumion.core import ArmedCommit, Bank, BoardCore

_U32 = 1 << 32
_OFFSET_BANK_STAGE, _OFFSET_COUNT_STAGE = 4, 8
_OFFSET_AT_TICK, _OFFSET_BANK, _OFFSET_WHEN, _OFFSET_COUNT = 12, 16, 17, 18
_OFFSET_COUNT_SET = 6
_WHEN_FEATURE = {CommitWhen.AT_TICK: Feature.COMMIT_AT_TICK, CommitWhen.TRIGGER: Feature.COMMIT_TRIGGER}


def stage(context: Context, request: StageRequest, at_s: float) -> Result:
    """Execute STAGE (docs/protocol.md, section 8.1): prepare codes of consecutive channels."""
    del at_s
    count = len(request.codes)
    if count == 0:
        return bad_value(_OFFSET_COUNT_STAGE, 0)
    channels = np.arange(request.start, request.start + count)
    return _stage(context, request.bank, request.bank_generation, channels, request.codes, None)


def stage_sparse(context: Context, request: StageSparseRequest, at_s: float) -> Result:
    """Execute STAGE_SPARSE (docs/protocol.md, section 8.2): prepare codes of single channels."""
    del at_s
    if len(request.pairs) == 0:
        return bad_value(6, 0)
    base = context.core.driven if request.base == SparseBase.DRIVEN else None
    channels = request.pairs["channel"].astype(np.int64)
    return _stage(context, request.bank, request.bank_generation, channels, request.pairs["code"], base)


def _stage(
    context: Context,
    number: int,
    generation: int,
    channels: NDArray[np.int64],
    codes: NDArray[np.uint16],
    base: NDArray[np.uint16] | None,
) -> Result:
    core, n_dac = context.core, context.core.profile.n_dac
    if number >= len(core.banks):
        return bad_value(_OFFSET_BANK_STAGE, number)
    # Checked as a whole before anything is staged: a refused fragment leaves the bank unchanged.
    invalid_channels = channels[channels >= n_dac]
    if invalid_channels.size:
        return Refusal(Status.BAD_CHANNEL, channel=min(int(invalid_channels[0]), 0xFFFE), limit=n_dac)
    # The bank of an armed commit must not change until it latches.
    if core.armed is not None and core.armed.bank == number:
        return Refusal(Status.BUSY)
    bank = core.banks[number]
    if not bank.accepts(generation):
        return Refusal(Status.STALE, value=bank.generation)
    refusal = None if core.active is None else core.active.refuse_codes(codes, channels)
    if refusal is not None:
        return refusal
    bank.stage_codes(generation, channels, codes, base)
    return StageReply(generation, bank.n_staged)


def commit(context: Context, request: CommitRequest, at_s: float) -> Result:
    """Execute COMMIT (docs/protocol.md, section 8.3): drive the prepared codes."""
    core = context.core
    refusal = refuse_state(core) or _refuse_commit_fields(core, request)
    if refusal is not None:
        return refusal
    reply_or_refusal = _check_generation(core, request.generation, request.crc32)
    if reply_or_refusal is not None:
        return reply_or_refusal
    bank = core.banks[request.bank]
    refusal = _refuse_bank(core, bank, request)
    if refusal is not None:
        return refusal
    if request.when == CommitWhen.NEXT_TICK:
        return _latch_at_next_edge(core, request.generation, bank.codes, at_s, CommitReply)
    if request.when == CommitWhen.AT_TICK and not is_newer(request.at_tick, core.tick(at_s)):
        return bad_value(_OFFSET_AT_TICK, request.at_tick)
    # Ticks wrap at 32 bits; edge numbers do not.
    ticks_ahead = (request.at_tick - core.tick(at_s)) % _U32
    edge = core.tick_number(at_s) + ticks_ahead if request.when == CommitWhen.AT_TICK else None
    core.armed = ArmedCommit(request.generation, request.bank, bank.codes.copy(), request.crc32, edge)
    return _armed_reply(core, core.armed)


def _refuse_commit_fields(core: BoardCore, request: CommitRequest) -> Refusal | None:
    if request.bank >= len(core.banks):
        return bad_value(_OFFSET_BANK, request.bank)
    if request.when not in tuple(CommitWhen):
        return bad_value(_OFFSET_WHEN, request.when)
    if request.count != core.profile.n_dac:
        return bad_value(_OFFSET_COUNT, request.count)
    feature = _WHEN_FEATURE.get(CommitWhen(request.when))
    if feature is not None and not core.profile.has(feature):
        return Refusal(Status.NOT_SUPPORTED, value=feature)
    return None


def _check_generation(core: BoardCore, generation: int, crc32: int) -> Message | Refusal | None:
    """Return the result of COMMIT for a table number that is in use or too old (checks 3, 4); otherwise ``None``."""
    armed = core.armed
    if generation == core.generation:
        # A repeat after a lost reply; a different table with the active generation is an error.
        if crc32 == core.driven_crc32:
            return CommitReply(generation, core.latch_tick, crc32, True, core.state)
        return Refusal(Status.STALE, value=core.generation)
    if armed is not None and generation == armed.generation and crc32 == armed.crc32:
        return _armed_reply(core, armed)
    if not is_newer(generation, core.generation) or (armed is not None and not is_newer(generation, armed.generation)):
        return Refusal(Status.STALE, value=core.generation)
    return None


def _armed_reply(core: BoardCore, armed: ArmedCommit) -> CommitReply:
    tick = 0 if armed.edge is None else armed.edge % _U32
    return CommitReply(armed.generation, tick, armed.crc32, False, core.state)


def _refuse_bank(core: BoardCore, bank: Bank, request: CommitRequest) -> Refusal | None:
    """Return the refusal if the prepared codes cannot be driven (checks 5-8); otherwise ``None``."""
    n_dac = core.profile.n_dac
    # The fragments of that content are missing or were lost: the host has to stage again.
    if is_newer(request.bank_generation, bank.generation):
        return Refusal(Status.INCOMPLETE, channel=0, value=0, limit=n_dac)
    if request.bank_generation != bank.generation:
        return Refusal(Status.STALE, value=bank.generation)
    missing = bank.first_missing()
    if missing is not None:
        return Refusal(Status.INCOMPLETE, channel=missing, value=bank.n_staged, limit=n_dac)
    computed = bank.crc32()
    if computed != request.crc32:
        return Refusal(Status.CRC_MISMATCH, value=computed, limit=request.crc32)
    # Checked again at the commit, because the configuration may have changed after the staging.
    return None if core.active is None else core.active.refuse_table(bank.codes, core.profile)


def _latch_at_next_edge(
    core: BoardCore, generation: int, codes: NDArray[np.uint16], at_s: float, reply: type[CommitReply]
) -> DeferredReply:
    """Return a deferred reply that drives the codes from the start of the next tick on."""
    number = core.tick_number(at_s + core.profile.write_us * 1e-6) + 1

    def finish() -> Message | Refusal:
        refusal = refuse_state(core)
        if refusal is not None:
            return refusal
        # A fault or ESTOP between request and edge takes precedence.
        core.latch(generation, codes, number)
        return reply(generation, core.latch_tick, core.driven_crc32, True, core.state)

    return DeferredReply(core.edge_s(number), finish)


def set_table(context: Context, request: SetRequest, at_s: float) -> Result:
    """Execute SET (docs/protocol.md, section 8.4): drive a whole table of codes."""
    core = context.core
    refusal = refuse_state(core)
    if refusal is not None:
        return refusal
    if len(request.codes) != core.profile.n_dac:
        return bad_value(_OFFSET_COUNT_SET, len(request.codes))
    reply_or_refusal = _check_generation(core, request.generation, table_crc32(request.codes))
    if reply_or_refusal is not None:
        return reply_or_refusal
    refusal = None if core.active is None else core.active.refuse_table(request.codes, core.profile)
    if refusal is not None:
        return refusal
    return _latch_at_next_edge(core, request.generation, request.codes, at_s, SetReply)


def readback(context: Context, request: ReadbackRequest, at_s: float) -> Result:
    """Execute READBACK (docs/protocol.md, section 8.5): return the driven or the prepared codes, with CRC."""
    del at_s
    core, n_dac = context.core, context.core.profile.n_dac
    driven = request.bank == DRIVEN_TABLE
    if not driven and request.bank >= len(core.banks):
        return bad_value(0, request.bank)
    count = 0
    if request.rb_flags & ReadbackFlag.CODES:
        count = request.count
        room = context.session.elements_per_reply(20, 2)
        refusal = refuse_span(request.start, count, n_dac, 2, 4)
        if refusal is None and count > room:
            refusal = Refusal(Status.TOO_BIG, value=count, limit=room)
        if refusal is not None:
            return refusal
    bank = None if driven else core.banks[request.bank]
    codes = core.driven if bank is None else bank.codes
    return ReadbackReply(
        generation=core.generation if bank is None else bank.generation,
        crc32=table_crc32(codes),
        tick=core.latch_tick if bank is None else 0,
        outputs_state=core.state,
        bank=request.bank,
        staged=n_dac if bank is None else bank.n_staged,
        start=request.start,
        codes=codes[request.start : request.start + count].copy(),
    )
