"""Rules for sequence numbers on board (section 4.2) and host (section 4.3)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from firmware_protocol.codes import MAX_STORED_REPLY

WINDOWS = (1, 2, 4, 8, 16)
"""Allowed numbers of stored replies (W in section 4.2)."""

_SEQ = 1 << 16


def _checked_window(window: int) -> int:
    if window not in WINDOWS:
        raise ValueError(f"window {window} is not one of {WINDOWS}")
    return window


class Verdict(Enum):
    """What a board does with a request: execute, send the stored reply again, ignore, or refuse as too old."""

    EXECUTE = "execute"
    REPLAY = "replay"
    DROP = "drop"
    STALE = "stale"


@dataclass(frozen=True)
class StoredReply:
    """Reply stored for repeats of its request; at most 64 bytes of payload."""

    command: int
    status: int
    payload: bytes


@dataclass(frozen=True)
class Judgement:
    """Decision of a board about a request.

    Attributes:
        verdict: What to do with the request.
        stored: Reply to send again.
        gap: Number of skipped sequence numbers.
        repeat: Whether the same number was executed before.
    """

    verdict: Verdict
    stored: StoredReply | None = None
    gap: int = 0
    repeat: bool = False


@dataclass(frozen=True)
class _Slot:
    """An executed request, with the reply to send again."""

    seq: int
    reply: StoredReply | None
    silent: bool


class ReplyRing:
    """The board's side: decides which requests are executed, and stores the last replies (section 4.2).

    Call ``judge`` for every request; after an EXECUTE, also ``store``, ``store_read`` or ``store_silent``. ``window``
    is the number of stored replies: 1, 2, 4, 8 or 16.
    """

    def __init__(self, window: int) -> None:
        self.window = _checked_window(window)
        self._last = 0
        self._slots: list[_Slot | None] = [None] * window

    def open(self, seq: int) -> None:
        """Start a session with the sequence number of its HELLO."""
        self._slots = [None] * self.window
        self._last = seq

    def judge(self, seq: int) -> Judgement:
        """Decide what to do with a request."""
        slot = self._slots[seq & (self.window - 1)]
        if slot is not None and slot.seq == seq:
            # The host does not wait for a reply to this request, so none is sent now.
            if slot.silent:
                return Judgement(Verdict.DROP, repeat=True)
            # Reads are not stored: the reply can be larger than a slot, and reading twice is harmless.
            if slot.reply is None:
                return Judgement(Verdict.EXECUTE, repeat=True)
            return Judgement(Verdict.REPLAY, slot.reply, repeat=True)
        # Half of the number space counts as newer, as in the serial number arithmetic of RFC 1982.
        distance = (seq - self._last) % _SEQ
        if 1 <= distance <= 32767:
            self._last = seq
            return Judgement(Verdict.EXECUTE, gap=distance - 1)
        # Older than the newest but inside the window: this request was lost while later
        # ones arrived. It was not executed, because its slot does not contain it.
        if (self._last - seq) % _SEQ < self.window:
            return Judgement(Verdict.EXECUTE)
        return Judgement(Verdict.STALE)

    def store(self, seq: int, reply: StoredReply) -> None:
        """Store the reply to a request. Raises ``ValueError`` for a payload above 64 bytes."""
        if len(reply.payload) > MAX_STORED_REPLY:
            raise ValueError(f"a stored reply has at most {MAX_STORED_REPLY} bytes, not {len(reply.payload)}")
        self._slots[seq & (self.window - 1)] = _Slot(seq, reply, silent=False)

    def store_read(self, seq: int) -> None:
        """Record that a request that only reads was executed."""
        self._slots[seq & (self.window - 1)] = _Slot(seq, None, silent=False)

    def store_silent(self, seq: int) -> None:
        """Record that a request without reply was executed."""
        self._slots[seq & (self.window - 1)] = _Slot(seq, None, silent=True)


class SendWindow:
    """The host's side: which sequence numbers can be sent (protocol section 4.3).

    A number can be sent if it is less than ``window`` above the oldest unanswered number.

    Args:
        window: Window size, as the board reported it.
        last: Sequence number of the HELLO.
    """

    def __init__(self, window: int, last: int) -> None:
        self.window = _checked_window(window)
        self._next = (last + 1) % _SEQ
        self._unanswered: list[int] = []

    @property
    def outstanding(self) -> tuple[int, ...]:
        """Sequence numbers without reply, oldest first."""
        return tuple(self._unanswered)

    def can_send(self) -> bool:
        """Return whether a new sequence number can be sent now."""
        # Measure from the oldest unanswered number. If we counted unanswered numbers instead,
        # boards would refuse correct repeats for every W above 1 (section 4.3).
        return not self._unanswered or (self._next - self._unanswered[0]) % _SEQ < self.window

    def next_seq(self, *, awaits_reply: bool = True) -> int:
        """Return the next sequence number.

        Raises:
            ValueError: The window is full; wait for the oldest reply first.
        """
        if not self.can_send():
            raise ValueError(
                f"the window of {self.window} is full: the oldest unanswered number is {self._unanswered[0]}"
            )
        seq = self._next
        self._next = (seq + 1) % _SEQ
        if awaits_reply:
            self._unanswered.append(seq)
        return seq

    def abandon(self) -> None:
        """Give up all unanswered requests."""
        if self._unanswered:
            # The next executed number is then at least W ahead of every abandoned one, so the board refuses
            # late copies as STALE (section 4.2): what was reported as not executed is not executed later.
            self._next = (self._next + self.window - 1) % _SEQ
            self._unanswered.clear()

    def mark_answered(self, seq: int) -> None:
        """Record that ``seq`` was answered; unknown numbers are ignored."""
        if seq in self._unanswered:
            self._unanswered.remove(seq)
