"""Types of arguments and results of the command handlers of the emulated board."""

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
    """Reply to a request that takes time. The board executes no other request meanwhile.

    Attributes:
        finish: Completes the request and returns the reply.
    """

    at_s: float
    finish: Callable[[], Message | Refusal]


Result = Message | Refusal | DeferredReply
"""Result of a command handler."""


@dataclass(frozen=True)
class Context:
    """The components of an emulated board that a command handler may use.

    Attributes:
        sweeper: The uploaded sweep image (program of a sweep), and the last sweep run.
        watch: Monitor thresholds that trigger LIGHT events.
    """

    core: BoardCore
    session: Session
    monitors: BoardMonitors
    sweeper: Sweeper
    telemetry: Telemetry
    watch: MonitorWatch
    transmitter: Transmitter


def bad_value(offset: int, value: int) -> Refusal:
    """Return the refusal BAD_VALUE for the field at a payload offset."""
    return Refusal(Status.BAD_VALUE, channel=offset, value=value)


def refuse_state(core: BoardCore) -> Refusal | None:
    """Return the refusal if the state forbids programming outputs (section 8.3, check 1); otherwise ``None``."""
    if core.state is OutputsState.BOOT:
        return Refusal(Status.NOT_CONFIGURED)
    if core.state is OutputsState.SWEEP:
        return Refusal(Status.BUSY)
    if core.state in (OutputsState.GRACE, OutputsState.SAFE):
        return Refusal(Status.SAFE, value=core.faults.latched)
    return None


def refuse_span(start: int, count: int, size: int, start_offset: int, count_offset: int) -> Refusal | None:
    """Return the refusal BAD_VALUE for an index range that is empty or exceeds ``size``; otherwise ``None``."""
    if not 0 <= start < size:
        return bad_value(start_offset, start)
    if not 1 <= count <= size - start:
        return bad_value(count_offset, count)
    return None
