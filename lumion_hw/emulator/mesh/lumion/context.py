"""What the command handlers of the emulated board work with, and what they return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from firmware_protocol import Message, Refusal
from lumion_hw.emulator.mesh.lumion.core import BoardCore
from lumion_hw.emulator.mesh.lumion.monitors import BoardMonitors
from lumion_hw.emulator.mesh.lumion.session import Session
from lumion_hw.emulator.mesh.lumion.sweeper import Sweeper
from lumion_hw.emulator.mesh.lumion.telemetry import Telemetry
from lumion_hw.emulator.mesh.lumion.transmitter import Transmitter


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
        transmitter: What waits to be sent.
    """

    core: BoardCore
    session: Session
    monitors: BoardMonitors
    sweeper: Sweeper
    telemetry: Telemetry
    transmitter: Transmitter
