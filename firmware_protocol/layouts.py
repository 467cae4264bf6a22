"""Payload layouts, field by field: offset, type, name, unit, range, meaning (sections 5 to 11).

These rows are the only place where the offset or type of a field is written down. Message classes take their encoding
from them; documentation and the C header are printed from them.

Types: ``u8 u16 u32 i16 i32``, ``char[n]`` (NUL padded), ``T[count]`` (the array whose length travels in ``count``),
``T[count,n_adc]`` (row by row). ``limit``, ``pair`` and ``fault`` are the records of sections 7.1, 8.2 and 11.3.
An empty name is a reserved field. Telemetry and sweeps are in :mod:`firmware_protocol.stream_layouts`.
"""

from __future__ import annotations

from firmware_protocol.fields import Field, Layout
from firmware_protocol.stream_layouts import SHARED_LAYOUTS, STREAM_LAYOUTS

F = Field
_STATE = "0..4"


def _global_block(name: str, op: int) -> Layout:
    return Layout(
        name,
        "CONFIG",
        (
            F(0, "u8", "op", "", str(op), "GLOBAL opens a new pending configuration; READ_GLOBAL echoes it", const=op),
            F(1, "u8", "wd_policy", "", "0,1,2", "0 OFF, 1 RAMP, 2 HOLD"),
            F(2, "u16", "wd_timeout_ms", "ms", "100..60000", "host silence that trips the watchdog"),
            F(4, "u32", "wd_param_ms", "ms", "by wd_policy", "OFF 0; RAMP 1..60000 ramp time; HOLD 1..3600000"),
            F(8, "u32", "total_power_mw", "mW", "1..4000000", "cap on the computed power of a whole table"),
            F(12, "u32", "fault_enable", "bits", "", "optional fault sources to enable"),
            F(16, "i16", "temp_trip", "0.01 °C", "-4000..15000", "chip over-temperature threshold", none=32767),
            F(18, "u16", "supply_min_mv", "mV", "", "supply under-voltage threshold", none=0),
        ),
    )


def _limits_block(name: str, op: int) -> Layout:
    return Layout(
        name,
        "CONFIG",
        (
            F(0, "u8", "op", "", str(op), "LIMITS, or the echo of READ_LIMITS", const=op),
            F(1, "u8", ""),
            F(2, "u16", "start", "channel", "0..n_dac-1", "first channel"),
            F(4, "u16", "count", "channels", "1..n_dac-start", "records that follow"),
            F(6, "u16", ""),
            F(8, "limit[count]", "limits", "", "", "code_max u16, load_ohm u16, trip_ua u32 per channel"),
        ),
    )


def _latch_reply(name: str, code: str) -> Layout:
    return Layout(
        name,
        code,
        (
            F(0, "u32", "generation", "", "", "echo"),
            F(4, "u32", "tick", "ticks", "", "edge of the latch, or planned edge (0 for a trigger)"),
            F(8, "u32", "crc32", "", "", "CRC-32 of the table driven (latched) or armed (not latched)"),
            F(12, "u8", "latched", "", "0,1", "1 outputs have changed, 0 armed", view="bool"),
            F(13, "u8", "outputs_state", "", _STATE, "section 11.1", view="OutputsState"),
            F(14, "u16", ""),
        ),
    )


FAULT_RECORD = (
    F(0, "u32", "fault_id", "", "1..", "counts up from 1 in one boot"),
    F(4, "u32", "tick", "ticks", "", "when it tripped"),
    F(8, "u8", "source", "", "0..31", "bit number of the fault source"),
    F(9, "u8", "fault_state", "", "0,1,2", "0 cleared, 1 latched, 2 latched and still present", view="FaultState"),
    F(10, "u16", "channel", "channel", "", "channel concerned", none=0xFFFF),
    F(12, "i32", "value", "by source", "", "measured"),
    F(16, "i32", "limit", "by source", "", "threshold"),
)
"""One fault (section 11.3): the payload of the FAULT event and the record of FAULT_LIST."""

_ALL = (
    Layout(
        "ErrorReply",
        "",
        (
            F(0, "u16", "channel", "channel", "", "first offending channel, by code", none=0xFFFF),
            F(2, "u16", "index", "", "", "point number of a sweep, saturates at 65534", none=0xFFFF),
            F(4, "i32", "value", "by code", "", "what was asked or found"),
            F(8, "i32", "limit", "by code", "", "what is allowed"),
            F(12, "u8", "text_len", "B", "0..32", "length of the hint"),
            F(13, "char[text_len]", "text", "", "", "hint, never parsed"),
        ),
    ),
    Layout(
        "HelloRequest",
        "HELLO",
        (
            F(0, "u8", "proto_min", "", "1..15", "lowest protocol major the host speaks"),
            F(1, "u8", "proto_max", "", "1..15", "highest protocol major the host speaks"),
            F(2, "u8", "hello_flags", "bits", "", "b0 TAKEOVER: replace a live session of another host"),
            F(3, "u8", ""),
            F(4, "u16", "host_rx_max", "B on the wire", "256..65535", "largest frame the host accepts"),
            F(6, "u16", ""),
            F(8, "char[16]", "name", "", "", "host name, shown to a refused second host"),
        ),
    ),
    Layout(
        "HelloReply",
        "HELLO",
        (
            F(0, "u8", "proto", "", "1..15", "chosen major, the highest both sides speak"),
            F(1, "u8", "window", "frames", "1,2,4,8,16", "depth of the reply ring and span of outstanding requests"),
            F(2, "u16", "fw_rx_max", "B on the wire", "256..65535", "largest frame the board accepts"),
            F(4, "u16", "fw_tx_max", "B on the wire", "256..host_rx_max", "largest frame the board sends"),
            F(6, "u16", "n_dac", "channels", "1..65535", "drive channels, numbered from 0"),
            F(8, "u16", "n_adc", "channels", "0..65535", "monitor channels, numbered from 0"),
            F(10, "u8", "dac_bits", "bit", "8..16", "native resolution of the converters"),
            F(11, "u8", "adc_bits", "bit", "0,8,9,10,11,12,13,14,15,16", "native resolution of the monitors"),
            F(12, "u8", "n_banks", "", "1..16", "staging banks"),
            F(13, "u8", "n_streams", "", "0..14", "telemetry streams, ids 2 to 1 + n_streams"),
            F(14, "u8", "outputs_state", "", _STATE, "section 11.1", view="OutputsState"),
            F(15, "u8", "drive", "", "0,1", "0 voltage drive, 1 current drive", view="Drive"),
            F(16, "u32", "dac_full_scale", "µV or µA", "1..100000000", "output at code 65535, unit by drive"),
            F(20, "u32", "adc_full_scale", "nA", "", "photocurrent at code 65535"),
            F(24, "u16", "tick_us", "µs", "1..65535", "length of one tick"),
            F(26, "u16", "t_cmd_ms", "ms", "1..65535", "worst time from last request byte to first reply byte"),
            F(28, "u16", "t_slow_ms", "ms", "1..65535", "the same for commands marked S"),
            F(30, "u16", "latch_skew_us", "µs", "", "worst spread of the outputs in one latch; 65535 = that or more"),
            F(32, "u16", "adc_scan_us", "µs", "", "one conversion of all monitor channels"),
            F(34, "u16", ""),
            F(36, "u32", "features", "bits", "", "section 6.4"),
            F(40, "u32", "schema_crc32", "", "", "CRC-32 of the canonical schema text"),
            F(44, "u32", "boot_id", "", "", "random per power-up"),
            F(48, "u32", "uptime_ms", "ms", "", "since power-up, wraps"),
            F(52, "u32", "faults", "bits", "", "latched fault sources"),
            F(56, "u32", "active_generation", "", "", "generation of the last latch; 0 after power-up"),
            F(60, "u32", "config_crc32", "", "", "CRC of the active configuration; 0 = none"),
            F(64, "u32", "sweep_mem", "B", "", "program memory for sweeps"),
            F(68, "u32", "sweep_ring", "u16 values", "", "result memory of sweeps"),
            F(72, "char[16]", "serial", "", "", "serial number"),
            F(88, "char[16]", "fw_version", "", "", "firmware version"),
        ),
    ),
    Layout("PingRequest", "PING", (F(0, "u32", "token", "", "", "echoed"),)),
    Layout(
        "PingReply",
        "PING",
        (
            F(0, "u32", "token", "", "", "echo"),
            F(4, "u32", "tick", "ticks", "", "board time when the reply was built"),
            F(8, "u32", "uptime_ms", "ms", "", "wraps"),
            F(12, "u8", "outputs_state", "", _STATE, "section 11.1", view="OutputsState"),
            F(13, "u8", ""),
            F(14, "u16", "session", "", "", "current session, 0 = none"),
        ),
    ),
    Layout("EstopRequest", "ESTOP", (F(0, "char[4]", "magic", "", "STOP", "anything else is BAD_VALUE"),)),
    Layout(
        "EstopReply",
        "ESTOP",
        (
            F(0, "u32", "fault_id", "", "", "the latched ESTOP fault"),
            F(4, "u32", "tick", "ticks", "", "when the outputs went to zero"),
            F(8, "u8", "outputs_state", "", _STATE, "SAFE", view="OutputsState"),
            F(9, "u8", ""),
            F(10, "u16", ""),
        ),
    ),
    Layout("GetStatsRequest", "GET_STATS", ()),
    Layout(
        "GetStatsReply",
        "GET_STATS",
        (
            F(0, "u32", "uptime_ms", "ms", "", "wraps"),
            F(4, "u32", "tick", "ticks", "", "wraps"),
            F(8, "u16", "session", "", "", "current session"),
            F(10, "u8", "outputs_state", "", _STATE, "section 11.1", view="OutputsState"),
            F(11, "u8", ""),
            F(12, "u16", "n", "", "24..", "number of counters that follow"),
            F(14, "u16", ""),
            F(16, "u32[n]", "counters", "events", "", "since power-up, never reset; order of the counter table"),
        ),
    ),
    _global_block("ConfigGlobalRequest", 0),
    _limits_block("ConfigLimitsRequest", 1),
    Layout(
        "ConfigApplyRequest",
        "CONFIG",
        (
            F(0, "u8", "op", "", "2", "APPLY", const=2),
            F(1, "u8", "apply_flags", "bits", "", "b0 SAVE: also write to flash (feature 5)"),
            F(2, "u16", "count", "channels", "n_dac", "size of the table the host believes in"),
            F(4, "u32", "config_crc32", "", "1..", "CRC of the canonical configuration"),
        ),
    ),
    Layout("ConfigReadGlobalRequest", "CONFIG", (F(0, "u8", "op", "", "3", "READ_GLOBAL", const=3),)),
    _global_block("ConfigGlobalReply", 3),
    Layout(
        "ConfigReadLimitsRequest",
        "CONFIG",
        (
            F(0, "u8", "op", "", "4", "READ_LIMITS of the active configuration", const=4),
            F(1, "u8", ""),
            F(2, "u16", "start", "channel", "0..n_dac-1", "first channel"),
            F(4, "u16", "count", "channels", "1..n_dac-start", "records wanted"),
        ),
    ),
    _limits_block("ConfigLimitsReply", 4),
    Layout(
        "ConfigReply",
        "CONFIG",
        (
            F(0, "u8", "op", "", "0,1,2", "echo"),
            F(1, "u8", "outputs_state", "", _STATE, "section 11.1", view="OutputsState"),
            F(2, "u16", "pending", "channels", "", "channels with a pending limit record"),
            F(4, "u32", "config_crc32", "", "", "active configuration, 0 = none"),
        ),
    ),
    Layout(
        "StageRequest",
        "STAGE",
        (
            F(0, "u32", "bank_generation", "", "", "identifies this content of the bank"),
            F(4, "u8", "bank", "", "0..n_banks-1", "staging bank"),
            F(5, "u8", ""),
            F(6, "u16", "start", "channel", "0..n_dac-1", "first channel"),
            F(8, "u16", "count", "codes", "1..n_dac-start", "codes that follow"),
            F(10, "u16[count]", "codes", "code", "0..code_max", "channels start to start + count - 1"),
        ),
    ),
    Layout(
        "StageSparseRequest",
        "STAGE_SPARSE",
        (
            F(0, "u32", "bank_generation", "", "", "identifies this content of the bank"),
            F(4, "u8", "bank", "", "0..n_banks-1", "staging bank"),
            F(5, "u8", "base", "", "0,1", "when this frame opens the bank: 0 empty, 1 copy of the driven table"),
            F(6, "u16", "count", "pairs", "1..65535", "pairs that follow"),
            F(8, "pair[count]", "pairs", "", "", "channel u16, code u16; a channel named twice: the last wins"),
        ),
    ),
    Layout(
        "StageReply",
        "STAGE",
        (
            F(0, "u32", "bank_generation", "", "", "echo"),
            F(4, "u16", "staged", "channels", "", "distinct channels staged so far in this bank generation"),
            F(6, "u16", ""),
        ),
    ),
    Layout(
        "CommitRequest",
        "COMMIT",
        (
            F(0, "u32", "generation", "", "", "number of the table that becomes active"),
            F(4, "u32", "bank_generation", "", "", "which content of the bank is meant"),
            F(8, "u32", "crc32", "", "", "CRC-32 of the n_dac codes, u16 little endian, channel order"),
            F(12, "u32", "at_tick", "ticks", "", "only with when = 1, else 0"),
            F(16, "u8", "bank", "", "0..n_banks-1", "staging bank"),
            F(17, "u8", "when", "", "0,1,2", "0 next tick edge, 1 at at_tick, 2 external trigger"),
            F(18, "u16", "count", "channels", "n_dac", "size of the table the host believes in"),
        ),
    ),
    _latch_reply("CommitReply", "COMMIT"),
    Layout(
        "SetRequest",
        "SET",
        (
            F(0, "u32", "generation", "", "", "newer than the active one"),
            F(4, "u16", ""),
            F(6, "u16", "count", "codes", "n_dac", "codes that follow"),
            F(8, "u16[count]", "codes", "code", "0..code_max", "whole table, channel order"),
        ),
    ),
    _latch_reply("SetReply", "SET"),
    Layout(
        "ReadbackRequest",
        "READBACK",
        (
            F(0, "u8", "bank", "", "0..n_banks-1 or 255", "staging bank; 255 = the table driven now"),
            F(1, "u8", "rb_flags", "bits", "", "b0 CODES: append codes; without it start and count are ignored"),
            F(2, "u16", "start", "channel", "0..n_dac-1", "first channel"),
            F(4, "u16", "count", "codes", "1..n_dac-start", "codes wanted"),
        ),
    ),
    Layout(
        "ReadbackReply",
        "READBACK",
        (
            F(0, "u32", "generation", "", "", "active generation, or the bank generation"),
            F(4, "u32", "crc32", "", "", "of the whole table; unstaged channels of a bank count as 0"),
            F(8, "u32", "tick", "ticks", "", "edge of the last latch; 0 for a bank"),
            F(12, "u8", "outputs_state", "", _STATE, "section 11.1", view="OutputsState"),
            F(13, "u8", "bank", "", "", "echo"),
            F(14, "u16", "staged", "channels", "", "staged channels of the bank; n_dac for bank 255"),
            F(16, "u16", "start", "channel", "", "echo"),
            F(18, "u16", "count", "codes", "", "codes that follow, 0 without CODES"),
            F(20, "u16[count]", "codes", "code", "", "codes as commanded"),
        ),
    ),
    Layout(
        "ReadAdcRequest",
        "READ_ADC",
        (
            F(0, "u16", "start", "channel", "0..n_adc-1", "first monitor"),
            F(2, "u16", "count", "channels", "1..n_adc-start", "monitors wanted"),
            F(4, "u16", "n_avg", "", "1..4096", "scans averaged"),
            F(6, "u16", ""),
        ),
    ),
    Layout(
        "ReadAdcReply",
        "READ_ADC",
        (
            F(0, "u32", "tick", "ticks", "", "start of the first scan"),
            F(4, "u32", "generation", "", "", "active generation at that time"),
            F(8, "u16", "start", "channel", "", "echo"),
            F(10, "u16", "count", "channels", "", "echo"),
            F(12, "u16[count]", "adc", "code", "", "65535 = saturated"),
        ),
    ),
    Layout(
        "FaultListRequest",
        "FAULT_LIST",
        (
            F(0, "u32", "first_id", "", "", "0 = oldest kept"),
            F(4, "u8", "max_records", "records", "", "0 = as many as fit"),
            F(5, "u8", ""),
            F(6, "u16", ""),
        ),
    ),
    Layout(
        "FaultListReply",
        "FAULT_LIST",
        (
            F(0, "u32", "latched", "bits", "", "latched sources"),
            F(4, "u32", "newest_id", "", "", "0 = no fault since power-up"),
            F(8, "u8", "count", "records", "", "records that follow"),
            F(9, "u8", "outputs_state", "", _STATE, "section 11.1", view="OutputsState"),
            F(10, "u16", "record_size", "B", "20..", "stride of the records, allows growth"),
            F(12, "fault[count]", "records", "", "", "fault records, ascending id"),
        ),
    ),
    Layout("FaultClearRequest", "FAULT_CLEAR", (F(0, "u32", "fault_id", "", "", "the fault to clear"),)),
    Layout(
        "FaultClearReply",
        "FAULT_CLEAR",
        (
            F(0, "u32", "latched", "bits", "", "what is still latched"),
            F(4, "u32", "newest_id", "", "", "0 = no fault since power-up"),
            F(8, "u8", "outputs_state", "", _STATE, "section 11.1", view="OutputsState"),
            F(9, "u8", ""),
            F(10, "u16", ""),
        ),
    ),
    Layout("FaultRecord", "FAULT", FAULT_RECORD),
)

LAYOUTS: dict[str, Layout] = {layout.name: layout for layout in (*SHARED_LAYOUTS, *_ALL, *STREAM_LAYOUTS)}
"""Every layout by name: that of its message class, or of a part several messages share (empty ``code``)."""
