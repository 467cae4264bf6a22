"""Times that a host waits for a reply before it repeats a request (section 4.5). RTO is the first retry time-out."""

from __future__ import annotations

from typing import Any

from firmware_protocol.codec import Message
from firmware_protocol.codes import ApplyFlag, Command, ReadbackFlag, StatsCounter
from firmware_protocol.config import ConfigApplyRequest
from firmware_protocol.fields import ELEMENT_SIZES
from firmware_protocol.frames import max_payload, wire_bound
from firmware_protocol.messages import GetStatsReply, HelloReply, ReadAdcRequest, ReadbackRequest, Request
from firmware_protocol.stream_messages import SweepReadRequest

SENDS = 3
"""Number of times that a request is sent, including the first time."""

MAX_SENDS = 12
"""Largest number of times that a request is sent on a link with losses."""

LONGEST_STEP_RTOS = 4
"""Longest wait after one attempt, as a multiple of the RTO."""

DEADLINE_RTOS = 7
"""Deadline on a link without losses, as a multiple of the RTO: 1 + 2 + 4."""

LONGEST_DEADLINE_S = 1.5
"""Longest deadline in seconds on a link with losses or delays."""

QUESTION_PATIENCE_S = 3.0
"""Time in seconds for which a request that changes nothing is repeated."""

HELLO_RTO_S = 0.25
"""RTO in seconds of the command HELLO."""

HELLO_PATIENCE_S = 3.0
"""Time in seconds for which the command HELLO is repeated."""

MARGIN_S = 0.025
"""Additional time in seconds for delays of USB-UART chips and of the operating system."""

BITS_PER_BYTE = 10
"""Bits per byte on a UART with 8N1."""

# The board replies to these after the next edge of its tick, so the time of one tick is added.
_TICKED = (Command.COMMIT, Command.SET, Command.SWEEP_START, Command.SWEEP_ABORT)


def largest_reply(request: Request[Message], hello: HelloReply) -> int:
    """Return the size in bytes of the largest successful reply to a request."""
    layout = request.reply.layout
    if layout.array is None:
        return layout.fixed_size
    if issubclass(request.reply, GetStatsReply):
        return layout.fixed_size + 4 * len(StatsCounter)
    count: Any = getattr(request, "count", None)
    if isinstance(request, ReadbackRequest) and not request.rb_flags & ReadbackFlag.CODES:
        count = 0
    if isinstance(request, SweepReadRequest) and count:
        count = None  # only the board knows the size of a record
    if count is None:
        return max_payload(hello.fw_tx_max)
    return layout.fixed_size + int(count) * ELEMENT_SIZES[layout.array.element]


def exchange_bytes(request: Request[Message], hello: HelloReply) -> int:
    """Return the number of bytes of a request and its largest reply together."""
    return wire_bound(len(request.encode())) + wire_bound(largest_reply(request, hello))


def retry_timeout_s(request: Request[Message], hello: HelloReply, baud: int | None) -> float:
    """Return the RTO in seconds: transmission of request and largest reply, execution, margin (section 4.5).

    Args:
        request: Request to send.
        hello: HELLO reply with the execution times of the board.
        baud: Speed of a UART in bit/s; ``None`` if transmission time is negligible (USB, pty, TCP).
    """
    # On a UART the bytes need most of the time: 30 of 57 ms for a SET of 144 channels at 115 200 baud.
    wire_s = BITS_PER_BYTE * exchange_bytes(request, hello) / baud if baud else 0.0
    # Only writing to flash needs t_slow_ms; all other commands end within t_cmd_ms.
    slow = isinstance(request, ConfigApplyRequest) and bool(request.apply_flags & ApplyFlag.SAVE)
    execution_s = 1e-3 * (hello.t_slow_ms if slow else hello.t_cmd_ms)
    if request.command in _TICKED:
        execution_s += 1e-6 * hello.tick_us
    if isinstance(request, ReadAdcRequest):
        execution_s += 1e-6 * request.n_avg * hello.adc_scan_us
    return wire_s + execution_s + MARGIN_S
