"""Command CONFIG (docs/protocol.md, section 7): build, apply and read a configuration."""

from __future__ import annotations

import numpy as np

from firmware_protocol import (
    ApplyFlag,
    ConfigApplyRequest,
    ConfigGlobalReply,
    ConfigGlobalRequest,
    ConfigLimitsReply,
    ConfigLimitsRequest,
    ConfigReadGlobalRequest,
    ConfigReadLimitsRequest,
    ConfigReply,
    FaultSource,
    Feature,
    OutputsState,
    Refusal,
    Status,
)
from lumion_hw.emulator.mesh.lumion.configuration import PendingConfiguration, StoredConfiguration
from lumion_hw.emulator.mesh.lumion.context import Context, DeferredReply, Result, bad_value, refuse_span
from lumion_hw.emulator.mesh.lumion.core import BoardCore

_RECORD_BYTES = 8

ConfigRequest = (
    ConfigGlobalRequest | ConfigLimitsRequest | ConfigApplyRequest | ConfigReadGlobalRequest | ConfigReadLimitsRequest
)


def config(context: Context, request: ConfigRequest, at_s: float) -> Result:
    """Execute CONFIG (docs/protocol.md, section 7)."""
    match request:
        case ConfigGlobalRequest():
            return _open_pending(context.core, request)
        case ConfigLimitsRequest():
            return _limits(context.core, request)
        case ConfigApplyRequest():
            return _apply(context.core, request, at_s)
        case ConfigReadGlobalRequest():
            return _read_global(context.core)
        case ConfigReadLimitsRequest():
            return _read_limits(context, request)


def _reply(core: BoardCore, op: int) -> ConfigReply:
    pending = 0 if core.pending is None else core.pending.count
    return ConfigReply(op, core.state, pending, 0 if core.active is None else core.active.crc32)


def _open_pending(core: BoardCore, request: ConfigGlobalRequest) -> Result:
    bad_field = request.out_of_range()
    if bad_field is not None:
        return bad_value(*bad_field)
    # A source that the board cannot sense must not appear to be monitored.
    for source in FaultSource:
        requested = bool(request.fault_enable >> source & 1)
        if requested and source.feature is not None and not core.profile.has(source.feature):
            return Refusal(Status.NOT_SUPPORTED, value=source.feature)
    core.pending = PendingConfiguration(request, core.profile.n_dac)
    return _reply(core, request.op)


def _limits(core: BoardCore, request: ConfigLimitsRequest) -> Result:
    limits, profile = request.limits, core.profile
    refusal = refuse_span(request.start, len(limits), profile.n_dac, 2, 4)
    if refusal is not None:
        return refusal
    # The power of a channel without a load cannot be computed, so the channel must not be driven.
    unfitted = np.flatnonzero((limits["load_ohm"] == 0) & (limits["code_max"] != 0))
    if unfitted.size:
        first = int(unfitted[0])
        return bad_value(8 + _RECORD_BYTES * first, int(limits["code_max"][first]))
    if limits["trip_ua"].any() and not profile.has(Feature.CHANNEL_SENSE):
        return Refusal(Status.NOT_SUPPORTED, value=Feature.CHANNEL_SENSE)
    above = np.flatnonzero(limits["code_max"] > profile.hw_code_max)
    if above.size:
        first = int(above[0])
        requested = int(limits["code_max"][first])
        return Refusal(
            Status.LIMIT, channel=request.start + first, value=requested, limit=profile.hw_code_max, text="code"
        )
    if core.pending is None:
        return Refusal(Status.INCOMPLETE, channel=0, value=0, limit=profile.n_dac, text="GLOBAL comes first")
    core.pending.store_limits(request.start, limits)
    return _reply(core, request.op)


def _refuse_apply(core: BoardCore, request: ConfigApplyRequest) -> Refusal | None:
    if core.state is OutputsState.GRACE:
        return Refusal(Status.SAFE, value=core.faults.latched)
    if core.state is OutputsState.SWEEP:
        return Refusal(Status.BUSY)
    if request.count != core.profile.n_dac:
        return bad_value(2, request.count)
    if request.config_crc32 == 0:  # 0 stands for no configuration
        return bad_value(4, 0)
    if request.apply_flags & ApplyFlag.SAVE and not core.profile.has(Feature.FLASH_CONFIG):
        return Refusal(Status.NOT_SUPPORTED, value=Feature.FLASH_CONFIG)
    return None


def _apply(core: BoardCore, request: ConfigApplyRequest, at_s: float) -> Result:
    complete = _refuse_apply(core, request) or _complete(core, request.config_crc32)
    if isinstance(complete, Refusal):
        return complete
    # New limits must hold for the table driven now, because only a latch may change outputs.
    refusal = complete.refuse_table(core.driven, core.profile)
    if refusal is not None:
        return refusal
    core.pending = None
    core.activate(complete, at_s)
    if not request.apply_flags & ApplyFlag.SAVE:
        return _reply(core, request.op)
    # Active at once; the reply waits until the flash is written, which delays everything else.
    core.flash = complete
    return DeferredReply(
        at_s + (core.profile.t_slow_ms - core.profile.t_cmd_ms) * 1e-3, lambda: _reply(core, request.op)
    )


def _complete(core: BoardCore, crc32: int) -> StoredConfiguration | Refusal:
    if core.pending is None:
        if core.active is not None and core.active.crc32 == crc32:
            return core.active
        return Refusal(Status.INCOMPLETE, channel=0, value=0, limit=core.profile.n_dac)
    missing = core.pending.first_missing()
    if missing is not None:
        return Refusal(Status.INCOMPLETE, channel=missing, value=core.pending.count, limit=core.profile.n_dac)
    # The CRC covers the records as the board holds them, so lost or duplicated records are detected.
    complete = core.pending.complete()
    if complete.crc32 != crc32:
        return Refusal(Status.CRC_MISMATCH, value=complete.crc32, limit=crc32)
    return complete


def _read_global(core: BoardCore) -> Result:
    if core.active is None:
        return Refusal(Status.NOT_CONFIGURED)
    common = core.active.common
    return ConfigGlobalReply(
        wd_policy=common.wd_policy,
        wd_timeout_ms=common.wd_timeout_ms,
        wd_param_ms=common.wd_param_ms,
        total_power_mw=common.total_power_mw,
        fault_enable=common.fault_enable,
        temp_trip=common.temp_trip,
        supply_min_mv=common.supply_min_mv,
    )


def _read_limits(context: Context, request: ConfigReadLimitsRequest) -> Result:
    core = context.core
    if core.active is None:
        return Refusal(Status.NOT_CONFIGURED)
    refusal = refuse_span(request.start, request.count, core.profile.n_dac, 2, 4)
    room = context.session.elements_per_reply(8, _RECORD_BYTES)
    if refusal is None and request.count > room:
        refusal = Refusal(Status.TOO_BIG, value=request.count, limit=room)
    if refusal is not None:
        return refusal
    return ConfigLimitsReply(request.start, core.active.limits[request.start : request.start + request.count])
