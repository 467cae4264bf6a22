"""How long a host waits for a reply before it sends again (section 4.5). Pure numbers; the clock is the caller's."""

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
"""Times a request is sent, the first included."""

MOST_SENDS = 12
"""Most times a request is sent on a link that has shown losses."""

LONGEST_STEP_RTOS = 4
"""The RTO doubles from send to send up to this many."""

DEADLINE_RTOS = 7
"""Deadline in units of the first RTO on a link that has shown no losses: 1 + 2 + 4."""

LONGEST_DEADLINE_S = 1.5
"""What a link shows never makes a deadline longer than this, in seconds: the watchdog is usually set to 2."""

QUESTION_PATIENCE_S = 3.0
"""Seconds for which a request that changes nothing is repeated: asking again is safe, and a board or host may pause."""

HELLO_RTO_S = 0.25
"""RTO in seconds until HELLO is answered."""

HELLO_PATIENCE_S = 3.0
"""Seconds for which HELLO is repeated: opening a port may reset the board."""

MARGIN_S = 0.025
"""Latency timer of common USB-UART chips plus scheduling, in seconds."""

BITS_PER_BYTE = 10
"""8N1 on a UART."""

# These are answered after an edge of the board's tick, so the time of one comes on top.
_TICKED = (Command.COMMIT, Command.SET, Command.SWEEP_START, Command.SWEEP_ABORT)


def largest_reply(request: Request[Message], hello: HelloReply) -> int:
    """Return the largest payload in bytes that the reply to ``request`` can have, status OK."""
    layout = request.reply.layout
    if layout.array is None:
        return layout.fixed_size
    if issubclass(request.reply, GetStatsReply):
        return layout.fixed_size + 4 * len(StatsCounter)
    count: Any = getattr(request, "count", None)
    if isinstance(request, ReadbackRequest) and not request.rb_flags & ReadbackFlag.CODES:
        count = 0
    if isinstance(request, SweepReadRequest) and count:
        count = None  # the size of a record is known to the board alone
    if count is None:
        return max_payload(hello.fw_tx_max)
    return layout.fixed_size + int(count) * ELEMENT_SIZES[layout.array.element]


def exchange_bytes(request: Request[Message], hello: HelloReply) -> int:
    """Return the bytes on the wire that have to arrive for an answer: the request and its largest reply."""
    return wire_bound(len(request.encode())) + wire_bound(largest_reply(request, hello))


def retry_timeout_s(request: Request[Message], hello: HelloReply, baud: int | None) -> float:
    """Return the RTO in seconds: wire times of request and largest reply, execution, and a margin (section 4.5).

    Args:
        request: The request, sent alone.
        hello: The board's times.
        baud: Speed of a UART in bit/s; ``None`` where bytes take no time (USB, pty, TCP).
    """
    # On a UART the bytes are most of the time: a SET of 144 channels takes 30 of its 57 ms there at 115 200 baud.
    wire_s = BITS_PER_BYTE * exchange_bytes(request, hello) / baud if baud else 0.0
    # Only writing to flash takes t_slow_ms; everything else obeys t_cmd_ms.
    slow = isinstance(request, ConfigApplyRequest) and bool(request.apply_flags & ApplyFlag.SAVE)
    execution_s = 1e-3 * (hello.t_slow_ms if slow else hello.t_cmd_ms)
    if request.command in _TICKED:
        execution_s += 1e-6 * hello.tick_us
    if isinstance(request, ReadAdcRequest):
        execution_s += 1e-6 * request.n_avg * hello.adc_scan_us
    return wire_s + execution_s + MARGIN_S
