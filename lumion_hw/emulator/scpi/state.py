"""What all connections of one instrument share: status, error queue, and the operations under way."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from lumion_hw.clock import Clock
from lumion_hw.emulator.scpi.commands import Later, Profile, Reply
from lumion_hw.emulator.scpi.errors import SYSTEM_ERROR, TEXTS, ErrorQueue, event_bit
from lumion_hw.emulator.scpi.formats import quoted
from lumion_hw.emulator.scpi.registers import OPERATION_COMPLETE, StatusModel

_LOG = logging.getLogger(__name__)

ROUNDING_S = 1e-9
"""Two instants closer than this are the same: sums of floats on a clock differ in the last bits."""


@dataclass(eq=False)
class Operation:
    """An overlapped operation: a measurement started by INIT, zeroing, a logging run, a laser tune.

    Attributes:
        end_s: When it ends by itself, ``None`` while only an outside event can end it. May be changed.
        on_end: Called once when it ends by itself or by :meth:`InstrumentState.end`; not when it is aborted.
    """

    end_s: float | None
    on_end: Callable[[], None]


class InstrumentState:
    """Status, errors and operations of one instrument.

    Args:
        clock: The injected clock.
        profile: What the instrument's dialect asks for.
        on_reset: Puts the instrument's settings to their defaults (``*RST``).
    """

    def __init__(self, clock: Clock, profile: Profile, on_reset: Callable[[], None]) -> None:
        self.clock = clock
        self.profile = profile
        self.status = StatusModel()
        self._errors = ErrorQueue(profile.queue_depth)
        self._on_reset = on_reset
        self._operations: list[Operation] = []
        self._announce_completion = False
        self._resets = 0

    # -- errors

    @property
    def has_errors(self) -> bool:
        """Whether the error queue holds an entry."""
        return len(self._errors) > 0

    def report(self, code: int) -> None:
        """Queue an error and set its event status bit."""
        self.status.latch(event_bit(code))
        kept = self._errors.push(code)
        if kept:
            self.status.latch(event_bit(kept))

    def take_error(self) -> str:
        """Remove the oldest error and return it as ``SYSTem:ERRor?`` does."""
        code = self._errors.pop()
        text = self.profile.error_texts.get(code) or TEXTS.get(code, "Device-specific error")
        return f"{self.profile.error_number(code)},{quoted(text)}"

    # -- common commands

    def clear(self) -> None:
        """Clear errors, event registers and a pending ``*OPC``; masks stay (``*CLS``)."""
        self._errors.clear()
        self.status.clear()
        self._announce_completion = False

    def reset(self) -> None:
        """Abort operations, forget ``*OPC`` and ``*OPC?``, set defaults; errors and masks stay (``*RST``)."""
        self._operations.clear()
        self._announce_completion = False
        self._resets += 1
        self._on_reset()

    def announce_completion(self) -> None:
        """Set the operation-complete event when no operation is pending any more (``*OPC``)."""
        self._announce_completion = True
        self.advance()

    def when_complete(self, reply: Reply) -> Later:
        """Return ``reply`` once no operation is pending (``*OPC?``, ``*WAI``); a reset in between drops the reply."""
        resets = self._resets

        def finish() -> Reply:
            self.advance()  # a wall clock has moved on since the operations were last looked at
            return reply if resets == self._resets else None

        return Later(self._completion_s, finish)

    def _completion_s(self) -> float | None:
        ends = [operation.end_s for operation in self._operations]
        known = [end for end in ends if end is not None]
        return max(known, default=self.clock.now()) if len(known) == len(ends) else None

    # -- operations

    @property
    def busy(self) -> bool:
        """Whether an operation is pending."""
        return bool(self._operations)

    def tell_completion(self) -> str:
        """Return 1, and set the operation-complete event, if nothing is being carried out, else 0.

        What waits for a trigger is not being carried out: the instrument is ready for that trigger.
        """
        self.advance()
        if any(operation.end_s is not None for operation in self._operations):
            return "0"
        self.status.latch(OPERATION_COMPLETE)
        return "1"

    def next_end_s(self) -> float | None:
        """Return when the next operation ends by itself, ``None`` if none will."""
        ends = (operation.end_s for operation in self._operations)
        return min((end_s for end_s in ends if end_s is not None), default=None)

    def begin(self, duration_s: float | None, on_end: Callable[[], None]) -> Operation:
        """Start an overlapped operation that ends after ``duration_s``, or when told, if ``None``."""
        operation = Operation(None if duration_s is None else self.clock.now() + duration_s, on_end)
        self._operations.append(operation)
        return operation

    def end(self, operation: Operation) -> None:
        """End an operation now; ending one that is over does nothing."""
        if operation in self._operations:
            self._operations.remove(operation)
            try:
                operation.on_end()
            except Exception:  # noqa: BLE001 - the instrument lives on; the host finds -310 in the queue
                _LOG.exception("internal error at the end of an operation; reported as -310")
                self.report(SYSTEM_ERROR)
            self._settle()

    def abort(self, operation: Operation) -> None:
        """Give an operation up: it is over, without its end having happened."""
        if operation in self._operations:
            self._operations.remove(operation)
            self._settle()

    def advance(self) -> None:
        """End the operations that are due, in the order of their ends."""
        horizon = self.clock.now() + ROUNDING_S
        while due := [each for each in self._operations if each.end_s is not None and each.end_s <= horizon]:
            self.end(min(due, key=lambda each: each.end_s or 0.0))
        self._settle()

    def _settle(self) -> None:
        if self._announce_completion and not self._operations:
            self._announce_completion = False
            self.status.latch(OPERATION_COMPLETE)
