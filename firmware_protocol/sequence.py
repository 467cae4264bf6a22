"""Sequence rules as small machines without I/O: the board's reply ring (section 4.2), the host's window (4.3)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from firmware_protocol.codes import MAX_STORED_REPLY

WINDOWS = (1, 2, 4, 8, 16)
"""Depths a reply ring may have, W in section 4.2."""

_SEQ = 1 << 16


def _checked_window(window: int) -> int:
    if window not in WINDOWS:
        raise ValueError(f"window {window} is none of {WINDOWS}")
    return window


class Verdict(Enum):
    """What a board does with a request."""

    EXECUTE = "execute"
    REPLAY = "replay"
    DROP = "drop"
    STALE = "stale"


@dataclass(frozen=True)
class StoredReply:
    """The final answer to a sequence number.

    Attributes:
        command: Command code of the request.
        status: Status code sent.
        payload: Payload sent, at most 64 bytes.
    """

    command: int
    status: int
    payload: bytes


@dataclass(frozen=True)
class Judgement:
    """What to do with a request.

    Attributes:
        verdict: EXECUTE it; REPLAY ``stored`` with the flag RETRY; DROP it silently; or answer STALE.
        stored: The reply to send again.
        gap: Sequence numbers that were jumped over, to be added to ``seq_gaps``.
        repeat: The same number was executed before.
    """

    verdict: Verdict
    stored: StoredReply | None = None
    gap: int = 0
    repeat: bool = False


@dataclass(frozen=True)
class _Slot:
    seq: int
    reply: StoredReply | None
    silent: bool


class ReplyRing:
    """The board's side: which requests are executed, and the last replies (section 4.2).

    Use: ``judge(seq)``; after an EXECUTE, one of ``store``, ``store_read`` or ``store_silent``.

    Args:
        window: Depth W of the ring: 1, 2, 4, 8 or 16.
    """

    def __init__(self, window: int) -> None:
        self.window = _checked_window(window)
        self._last = 0
        self._slots: list[_Slot | None] = [None] * window

    def open(self, seq: int) -> None:
        """Start a session: forget everything, the HELLO's own number is the newest executed one."""
        self._slots = [None] * self.window
        self._last = seq

    def judge(self, seq: int) -> Judgement:
        """Decide on a request. An EXECUTE of a newer number makes it the newest one at once."""
        slot = self._slots[seq & (self.window - 1)]
        if slot is not None and slot.seq == seq:
            # The host counted it as answered when it was written; a reply now would be a late one.
            if slot.silent:
                return Judgement(Verdict.DROP, repeat=True)
            # Reads are not stored: a reply may be larger than a slot, and reading twice does no harm.
            if slot.reply is None:
                return Judgement(Verdict.EXECUTE, repeat=True)
            return Judgement(Verdict.REPLAY, slot.reply, repeat=True)
        # Half of the number space counts as newer, as in the serial number arithmetic of RFC 1982.
        ahead = (seq - self._last) % _SEQ
        if 1 <= ahead <= 32767:
            self._last = seq
            return Judgement(Verdict.EXECUTE, gap=ahead - 1)
        # Older, but within the window of the newest: lost on its way while its
        # successors arrived. Had it been executed, its slot would have said so.
        if (self._last - seq) % _SEQ < self.window:
            return Judgement(Verdict.EXECUTE)
        return Judgement(Verdict.STALE)

    def store(self, seq: int, reply: StoredReply) -> None:
        """Keep the final answer. Raises ``ValueError`` for a payload above 64 bytes (only reads may have one)."""
        if len(reply.payload) > MAX_STORED_REPLY:
            raise ValueError(f"a stored reply has at most {MAX_STORED_REPLY} bytes, not {len(reply.payload)}")
        self._slots[seq & (self.window - 1)] = _Slot(seq, reply, silent=False)

    def store_read(self, seq: int) -> None:
        """Note that a command marked R was executed: a repeat executes it again."""
        self._slots[seq & (self.window - 1)] = _Slot(seq, None, silent=False)

    def store_silent(self, seq: int) -> None:
        """Note that a NO_REPLY request was executed: a repeat is dropped."""
        self._slots[seq & (self.window - 1)] = _Slot(seq, None, silent=True)


class SendWindow:
    """The host's side: which sequence numbers may be in flight (section 4.3).

    A new number is free only while its distance to the oldest unanswered one is below W: a span, not a count.

    Args:
        window: W as the board reported it.
        last: Number of the HELLO that opened the session.
    """

    def __init__(self, window: int, last: int) -> None:
        self.window = _checked_window(window)
        self._next = (last + 1) % _SEQ
        self._unanswered: list[int] = []

    @property
    def outstanding(self) -> tuple[int, ...]:
        """Numbers sent and not answered, oldest first."""
        return tuple(self._unanswered)

    def may_send(self) -> bool:
        """Return whether a new number may be used now."""
        # From the oldest unanswered number, not how many are unanswered: with a
        # count boards refused legitimate repeats for every W above 1 (section 4.3).
        return not self._unanswered or (self._next - self._unanswered[0]) % _SEQ < self.window

    def take(self, *, awaits_reply: bool = True) -> int:
        """Return the next number; a NO_REPLY request counts as answered when written.

        Raises:
            ValueError: The window is full; wait for the oldest reply first.
        """
        if not self.may_send():
            raise ValueError(f"window of {self.window} is full: oldest unanswered is {self._unanswered[0]}")
        seq = self._next
        self._next = (seq + 1) % _SEQ
        if awaits_reply:
            self._unanswered.append(seq)
        return seq

    def abandon(self) -> None:
        """Give up what is unanswered, for good: once the next number was executed, the board refuses these as STALE."""
        if self._unanswered:
            # The next number executed then lies W or more ahead of every abandoned one, and
            # section 4.2 refuses late copies of those as STALE: a "was not executed" stays true.
            self._next = (self._next + self.window - 1) % _SEQ
            self._unanswered.clear()

    def settle(self, seq: int) -> None:
        """Note that ``seq`` was answered; unknown numbers are ignored."""
        if seq in self._unanswered:
            self._unanswered.remove(seq)
