"""Times that a host waits for a reply before it sends a request again (section 4.5). No clock is read here."""

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
"""Number of times a request is sent, the first time included."""

MOST_SENDS = 12
"""Largest number of times a request is sent on a link with losses."""

LONGEST_STEP_RTOS = 4
"""Limit of the retransmission timeout (RTO), which doubles after each send, as a multiple of the first RTO."""

DEADLINE_RTOS = 7
"""Deadline in units of the first RTO on a link without losses: 1 + 2 + 4."""

LONGEST_DEADLINE_S = 1.5
"""Longest deadline in seconds on a link with losses or delays: the watchdog is usually set to 2 s."""

QUESTION_PATIENCE_S = 3.0
"""Time in seconds during which a request that changes nothing is repeated, because boards and hosts can pause."""

HELLO_RTO_S = 0.25
"""RTO in seconds until HELLO is answered."""

HELLO_PATIENCE_S = 3.0
"""Time in seconds during which HELLO is repeated, because opening a port can reset the board."""

MARGIN_S = 0.025
"""Margin in seconds for the latency timer of common USB-UART chips and for scheduling."""

BITS_PER_BYTE = 10
"""Bits per byte on a UART with 8N1."""

# The board replies to these after the next edge of its tick, so the time of one tick is added.
_TICKED = (Command.COMMIT, Command.SET, Command.SWEEP_START, Command.SWEEP_ABORT)


def largest_reply(request: Request[Message], hello: HelloReply) -> int:
    """Return the size in bytes of the largest possible payload of a reply to ``request`` with status OK."""
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
    """Return the number of bytes on the wire for an exchange: the request and its largest reply."""
    return wire_bound(len(request.encode())) + wire_bound(largest_reply(request, hello))


def retry_timeout_s(request: Request[Message], hello: HelloReply, baud: int | None) -> float:
    """Return the first RTO in seconds: wire times of request and largest reply, execution, margin (section 4.5).

    Args:
        request: The request, sent without others in flight.
        hello: HELLO reply with the execution times of the board.
        baud: Speed of a UART in bit/s; ``None`` where bytes need no time (USB, pty, TCP).
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
