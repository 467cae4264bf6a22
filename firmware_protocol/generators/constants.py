"""Constants of the protocol with their meanings, for the C header and the document."""

from __future__ import annotations

from firmware_protocol import codes, stream_codes, timing

CONSTANTS = (
    ("PROTOCOL_MAJOR", codes.PROTOCOL_MAJOR, "high nibble of kind_version"),
    ("MIN_MTU", codes.MIN_MTU, "frame size in bytes that every implementation accepts after reset"),
    ("NO_CHANNEL", codes.NO_CHANNEL, "value of channel or index in an error reply for none"),
    ("SATURATED", codes.SATURATED, "monitor code above full scale"),
    ("DRIVEN_TABLE", codes.DRIVEN_TABLE, "bank of READBACK: the table driven now"),
    ("FULL_SCALE_CODE", codes.FULL_SCALE_CODE, "drive or monitor code at full scale"),
    ("MAX_STORED_REPLY", codes.MAX_STORED_REPLY, "bytes of payload kept per slot of the reply ring"),
    ("MAX_TEXT", codes.MAX_TEXT, "bytes of text in an error reply"),
    ("STATS_COUNTERS", len(codes.StatsCounter), "counters of GET_STATS in version 1"),
    ("FIRST_TELEMETRY_STREAM", stream_codes.FIRST_TELEMETRY_STREAM, "lowest id of a telemetry stream"),
    ("IMAGE_VERSION", stream_codes.IMAGE_VERSION, "version of the sweep image"),
    ("MAX_CHANGES", stream_codes.MAX_CHANGES, "largest number of changes of one point of a sweep"),
    ("FULL_TABLE", stream_codes.FULL_TABLE, "bits 0 to 14 of a point's head: a table follows"),
    ("POINT_TIMING", stream_codes.POINT_TIMING, "bit 15 of a point's head: times follow"),
    ("MAX_RECORDS", stream_codes.MAX_RECORDS, "largest number of records of one run"),
    ("SWEEP_PUSH_MS", stream_codes.SWEEP_PUSH_MS, "longest wait of a started SWEEP_DATA event, ms"),
    ("SENDS", timing.SENDS, "how often a host sends a request, including the first time"),
    (
        "DEADLINE_RTOS",
        timing.DEADLINE_RTOS,
        "deadline of a request in units of its first RTO, on a link without losses",
    ),
    ("MOST_SENDS", timing.MAX_SENDS, "how often a host sends a request at most on a link with losses"),
    ("LONGEST_STEP_RTOS", timing.LONGEST_STEP_RTOS, "longest wait between two sends in units of the RTO"),
)
"""Name, value and meaning of the constants in the C header."""

HOST_TIMES = (
    ("MARGIN_S", timing.MARGIN_S, "minimum margin of an RTO, s: latency timer of common USB-UART chips and scheduling"),
    ("HELLO_RTO_S", timing.HELLO_RTO_S, "RTO until HELLO is answered, s"),
    ("HELLO_PATIENCE_S", timing.HELLO_PATIENCE_S, "time during which HELLO is repeated, s"),
    ("QUESTION_PATIENCE_S", timing.QUESTION_PATIENCE_S, "time during which a request with mark R is repeated, s"),
    ("LONGEST_DEADLINE_S", timing.LONGEST_DEADLINE_S, "longest deadline on a link with losses or delays, s"),
    ("BITS_PER_BYTE", timing.BITS_PER_BYTE, "bits per byte on a UART (8N1)"),
)
"""Name, value and meaning of the constants that only a host needs."""
