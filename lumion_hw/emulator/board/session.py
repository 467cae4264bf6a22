"""The one host session an emulated board knows at a time (section 4), and what a command handler works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firmware_protocol import MIN_MTU, Message, Refusal, ReplyRing, max_payload
from lumion_hw.emulator.board.core import BoardCore


class Session:
    """Who talks to the board: session number, host name, frame size and sequence rule."""

    def __init__(self, window: int) -> None:
        self.ring = ReplyRing(window)
        self.close()

    def close(self) -> None:
        """No session, as after power-up."""
        self.number = 0
        self.name = ""
        self.tx_max = MIN_MTU
        self.hello_seq = 0
        self.last_seq = 0
        self.untouched = False
        self.events_sent = 0
        self.ring.open(0)

    def open(self, number: int, seq: int, name: str, tx_max: int) -> None:
        """Start a session with the HELLO that carries ``seq``; the reply ring and the event counters start anew."""
        self.number, self.name, self.tx_max = number, name, tx_max
        self.hello_seq = self.last_seq = seq
        self.untouched = True
        self.events_sent = 0
        self.ring.open(seq)

    def executes(self, seq: int) -> None:
        """Note that a request other than the HELLO is executed."""
        self.untouched = False
        if 1 <= (seq - self.last_seq) % (1 << 16) <= 32767:
            self.last_seq = seq

    def room(self, fixed: int, element: int) -> int:
        """Return how many elements of a size fit the largest reply, behind ``fixed`` bytes."""
        return max((max_payload(self.tx_max) - fixed) // element, 0)


@dataclass(frozen=True)
class Later:
    """The answer to a request that takes time; until then the board executes nothing else.

    Attributes:
        at_s: Instant of the answer.
        finish: Does what is left to do, and returns the answer.
    """

    at_s: float
    finish: Callable[[], Message | Refusal]


Result = Message | Refusal | Later
"""What a handler returns."""


@dataclass(frozen=True)
class Context:
    """What command handlers work with.

    Attributes:
        core: Outputs, faults and time.
        session: The session.
        sense_ma: Returns the monitor currents in mA averaged over a number of scans, shape ``(n_adc,)``.
    """

    core: BoardCore
    session: Session
    sense_ma: Callable[[int], NDArray[np.float64]]
