"""Commands of the board itself: HELLO, PING, GET_STATS, ESTOP, FAULT_LIST, FAULT_CLEAR."""

from __future__ import annotations

from firmware_protocol import (
    PROTOCOL_MAJOR,
    EstopReply,
    EstopRequest,
    FaultClearReply,
    FaultClearRequest,
    FaultListReply,
    FaultListRequest,
    FaultSource,
    Feature,
    GetStatsReply,
    GetStatsRequest,
    HelloReply,
    OutputsState,
    PingReply,
    PingRequest,
    Refusal,
    Status,
    WatchdogPolicy,
    is_newer,
    schema_crc32,
)
from lumion_hw.emulator.mesh.lumion.context import Context, Result, bad_value

_FAULT_BYTES = 20
_ESTOP_FROM_HOST = 0


def hello_reply(context: Context, tx_max: int, at_s: float) -> HelloReply:
    """Return the payload of a HELLO reply (docs/protocol.md, section 6.1)."""
    core, profile = context.core, context.core.profile
    sweeps = profile.has(Feature.SWEEP)
    return HelloReply(
        proto=PROTOCOL_MAJOR,
        window=profile.window,
        fw_rx_max=profile.mtu,
        fw_tx_max=tx_max,
        n_dac=profile.n_dac,
        n_adc=profile.n_adc,
        dac_bits=profile.dac_bits,
        adc_bits=profile.adc_bits if profile.n_adc else 0,
        n_banks=profile.n_banks,
        n_streams=profile.n_streams,
        outputs_state=core.state,
        drive=profile.drive,
        dac_full_scale=profile.dac_full_scale,
        adc_full_scale=profile.adc_full_scale,
        tick_us=profile.tick_us,
        t_cmd_ms=profile.t_cmd_ms,
        t_slow_ms=profile.t_slow_ms,
        latch_skew_us=profile.latch_skew_us,
        adc_scan_us=profile.adc_scan_us,
        features=profile.features,
        schema_crc32=schema_crc32(),
        boot_id=core.boot_id,
        uptime_ms=core.uptime_ms(at_s),
        faults=core.faults.latched,
        active_generation=core.generation,
        config_crc32=0 if core.active is None else core.active.crc32,
        sweep_mem=profile.sweep_mem if sweeps else 0,
        sweep_ring=profile.sweep_ring if sweeps else 0,
        serial=profile.serial,
        fw_version=profile.fw_version,
    )


def ping(context: Context, request: PingRequest, at_s: float) -> Result:
    """Execute PING (docs/protocol.md, section 6.2)."""
    core = context.core
    return PingReply(request.token, core.tick(at_s), core.uptime_ms(at_s), core.state, context.session.number)


def get_stats(context: Context, request: GetStatsRequest, at_s: float) -> Result:
    """Execute GET_STATS (docs/protocol.md, section 6.3): report the statistics counters."""
    del request
    core = context.core
    return GetStatsReply(
        core.uptime_ms(at_s), core.tick(at_s), context.session.number, core.state, counters=core.stats.copy()
    )


def estop(context: Context, request: EstopRequest, at_s: float) -> Result:
    """Execute ESTOP (section 11.4): set the outputs to 0 at once."""
    if request.magic != "STOP":
        return bad_value(0, int.from_bytes(request.magic.encode("latin-1", errors="replace")[:4], "little"))
    core = context.core
    record = core.trip(FaultSource.ESTOP, at_s, value=_ESTOP_FROM_HOST)
    return EstopReply(record.fault_id, record.tick, core.state)


def fault_list(context: Context, request: FaultListRequest, at_s: float) -> Result:
    """Execute FAULT_LIST (docs/protocol.md, section 11.3): report the fault records."""
    del at_s
    core = context.core
    records = [
        record
        for record in core.faults.records
        # Ids are compared modulo 2^32, like all numbers of the protocol.
        if request.first_id == 0 or not is_newer(request.first_id, record.fault_id)
    ]
    max_records = context.session.elements_per_reply(12, _FAULT_BYTES)
    # As many as fit the frame, and at most 255: the count is one byte.
    count = min(request.max_records, len(records)) if request.max_records else min(max_records, len(records), 255)
    if count > max_records:
        return Refusal(Status.TOO_BIG, value=count, limit=max_records)
    return FaultListReply(core.faults.latched, core.faults.newest_id, core.state, tuple(records[:count]))


def fault_clear(context: Context, request: FaultClearRequest, at_s: float) -> Result:
    """Execute FAULT_CLEAR (docs/protocol.md, section 11.3): clear a fault whose condition is no longer present."""
    core = context.core
    ramping = core.active is not None and core.active.common.wd_policy == WatchdogPolicy.RAMP
    # A ramp is completed first: clearing would leave the outputs at intermediate values.
    if core.state is OutputsState.GRACE and ramping:
        return Refusal(Status.BUSY, value=core.remaining_grace_ms(at_s))
    if not core.faults.was_issued(request.fault_id):
        return Refusal(Status.UNKNOWN_FAULT, value=request.fault_id, limit=core.faults.newest_id)
    present = core.faults.clear(request.fault_id)
    if present is not None:
        return Refusal(Status.INTERLOCK, channel=present.channel, value=present.value, limit=present.limit)
    core.leave_safe()
    return FaultClearReply(core.faults.latched, core.faults.newest_id, core.state)
