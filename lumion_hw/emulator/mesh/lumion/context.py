"""What the command handlers of the emulated board work with, and what they return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from firmware_protocol import Message, OutputsState, Refusal, Status
from lumion_hw.emulator.mesh.lumion.core import BoardCore
from lumion_hw.emulator.mesh.lumion.monitors import BoardMonitors, Telemetry
from lumion_hw.emulator.mesh.lumion.session import Session
from lumion_hw.emulator.mesh.lumion.sweeper import Sweeper
from lumion_hw.emulator.mesh.lumion.transmitter import Transmitter
from lumion_hw.emulator.mesh.lumion.watching import MonitorWatch


@dataclass(frozen=True)
class DeferredReply:
    """The answer to a request that takes time; until then the board executes nothing else.

    Attributes:
        at_s: Instant of the answer.
        finish: Does what is left to do, and returns the answer.
    """

    at_s: float
    finish: Callable[[], Message | Refusal]


Result = Message | Refusal | DeferredReply
"""What a handler returns."""


@dataclass(frozen=True)
class Context:
    """The parts of a board.

    Attributes:
        core: Outputs, faults and time.
        session: The session.
        monitors: Its monitor channels.
        sweeper: Image and last run of a sweep.
        telemetry: The telemetry streams.
        watch: The watch over the monitors.
        transmitter: What waits to be sent.
    """

    core: BoardCore
    session: Session
    monitors: BoardMonitors
    sweeper: Sweeper
    telemetry: Telemetry
    watch: MonitorWatch
    transmitter: Transmitter


def bad_value(offset: int, value: int) -> Refusal:
    """Return BAD_VALUE for the field at a payload offset."""
    return Refusal(Status.BAD_VALUE, channel=offset, value=value)


def refuse_state(core: BoardCore) -> Refusal | None:
    """Return why outputs cannot be programmed in this state (section 8.3, check 1), or ``None``."""
    if core.state is OutputsState.BOOT:
        return Refusal(Status.NOT_CONFIGURED)
    if core.state is OutputsState.SWEEP:
        return Refusal(Status.BUSY)
    if core.state in (OutputsState.GRACE, OutputsState.SAFE):
        return Refusal(Status.SAFE, value=core.faults.latched)
    return None


def refuse_span(start: int, count: int, size: int, start_offset: int, count_offset: int) -> Refusal | None:
    """Return BAD_VALUE for a span that is empty or leaves ``0 .. size - 1``, or ``None``."""
    if not 0 <= start < size:
        return bad_value(start_offset, start)
    if not 1 <= count <= size - start:
        return bad_value(count_offset, count)
    return None
