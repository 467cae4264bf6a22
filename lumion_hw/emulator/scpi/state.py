"""State that all connections of one SCPI instrument share: status, error queue, operations in progress.

Sources: IEEE 488.2 chapter 11, SCPI-1999 volume 1 chapter 9.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from lumion_hw.clock import Clock
from lumion_hw.emulator.scpi.commands import PendingReply, Profile, Reply
from lumion_hw.emulator.scpi.errors import SYSTEM_ERROR, TEXTS, ErrorQueue, event_bit
from lumion_hw.emulator.scpi.formats import quoted

FIFTEEN_BITS = 0x7FFF
"""Valid bits of a SCPI register: bit 15 is always 0."""
SERVICE_BITS = 0xBF
"""Bits of ``*SRE`` that can be set: all except bit 6, the service request itself (IEEE 488.2, 11.3)."""

# Bits of the event status register (IEEE 488.2 section 11.5.1).
POWER_ON = 128
OPERATION_COMPLETE = 1


class RegisterGroup:
    """Condition, transition filters, event and enable register of one SCPI status group.

    Attributes:
        enable: Mask of events that are reported in the status byte.
        positive: Mask of conditions that set an event when they begin.
        negative: Mask of conditions that set an event when they end.
    """

    def __init__(self) -> None:
        self._condition = 0
        self._event = 0
        self.preset()

    def preset(self) -> None:
        """Preset the group (``STATus:PRESet``): report no event; set events when conditions begin."""
        self.enable = 0
        self.positive = FIFTEEN_BITS
        self.negative = 0

    @property
    def condition(self) -> int:
        """The present condition bits."""
        return self._condition

    @condition.setter
    def condition(self, bits: int) -> None:
        """Set the condition bits. A change that passes the transition filters sets an event bit."""
        bits &= FIFTEEN_BITS
        # Only changes are events: a persistent condition latches nothing.
        rising, falling = bits & ~self._condition, self._condition & ~bits
        self._event |= (rising & self.positive) | (falling & self.negative)
        self._condition = bits

    def set_bit(self, bit: int, on: bool) -> None:
        """Set or clear one condition bit, numbered from 0."""
        self.condition = self._condition | 1 << bit if on else self._condition & ~(1 << bit)

    def pop_event(self) -> int:
        """Return the event register and clear it, as a query does."""
        event, self._event = self._event, 0
        return event

    @property
    def summary(self) -> bool:
        """Whether any enabled event bit is set."""
        return bool(self._event & self.enable)


class StatusModel:
    """Status registers of one instrument.

    Attributes:
        operation: ``STATus:OPERation``, summarised in bit 7 of the status byte.
        questionable: ``STATus:QUEStionable``, bit 3.
        extra: Further register groups, by status byte bit (0 or 1).
        event_enable: Mask of ``*ESE``.
        service_enable: Mask of ``*SRE``, within :data:`SERVICE_BITS`.
    """

    def __init__(self) -> None:
        self.operation = RegisterGroup()
        self.questionable = RegisterGroup()
        self.extra: dict[int, RegisterGroup] = {}
        self.event_enable = 0
        self.service_enable = 0
        self._events = POWER_ON

    def reset_conditions(self) -> None:
        """Clear all condition bits."""
        for group in (self.operation, self.questionable, *self.extra.values()):
            group.condition = 0

    def latch(self, weight: int) -> None:
        """Set bits in the event status register."""
        self._events |= weight

    def pop_events(self) -> int:
        """Return the event status register and clear it (``*ESR?``)."""
        events, self._events = self._events, 0
        return events

    def clear(self) -> None:
        """Clear the event registers, not the masks (``*CLS``)."""
        self._events = 0
        for group in (self.operation, self.questionable, *self.extra.values()):
            group.pop_event()

    def preset(self) -> None:
        """Preset all register groups (``STATus:PRESet``)."""
        for group in (self.operation, self.questionable, *self.extra.values()):
            group.preset()

    def status_byte(self, *, errors: bool, message_available: bool) -> int:
        """Return the status byte (``*STB?``). Reading clears nothing."""
        byte = (
            4 * errors
            | 8 * self.questionable.summary
            | 16 * message_available
            | 32 * bool(self._events & self.event_enable)
            | 128 * self.operation.summary
        )
        for bit, group in self.extra.items():
            byte |= group.summary << bit
        return byte | 64 * bool(byte & self.service_enable)


_LOG = logging.getLogger(__name__)

ROUNDING_S = 1e-9
"""Times closer than this count as equal, in s."""


@dataclass(eq=False)
class Operation:
    """An operation that runs while further commands are executed (overlapped), such as zeroing or laser tuning.

    Attributes:
        end_s: Time at which the operation ends; ``None`` while only an external event can end it.
        on_end: Called once when the operation ends, but not when it is aborted.
    """

    end_s: float | None
    on_end: Callable[[], None]


class InstrumentState:
    """Status, errors and operations of one SCPI instrument."""

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
        """Queue an error and set the matching event status bit."""
        # The bit of the error is set even if the queue has no room for its number.
        self.status.latch(event_bit(code))
        queued = self._errors.push(code)
        if queued:
            self.status.latch(event_bit(queued))

    def pop_error(self) -> str:
        """Remove the oldest error. Return the reply of ``SYSTem:ERRor?``."""
        code = self._errors.pop()
        text = self.profile.error_texts.get(code) or TEXTS.get(code, "Device-specific error")
        return f"{self.profile.error_number(code)},{quoted(text)}"

    # -- common commands

    def clear(self) -> None:
        """Clear errors, event registers and a pending ``*OPC`` (``*CLS``). Masks stay."""
        self._errors.clear()
        self.status.clear()
        self._announce_completion = False

    def reset(self) -> None:
        """Abort operations, cancel ``*OPC`` and ``*OPC?``, set defaults (``*RST``). Errors and masks stay."""
        self._operations.clear()
        self._announce_completion = False
        self._resets += 1  # earlier pending replies are dropped
        self._on_reset()

    def announce_completion(self) -> None:
        """Set the operation-complete event as soon as no operation is pending (``*OPC``)."""
        self._announce_completion = True
        self.advance()

    def when_complete(self, reply: Reply) -> PendingReply:
        """Return a reply that is sent once no operation is pending (``*OPC?``, ``*WAI``)."""
        resets = self._resets

        def finish() -> Reply:
            self.advance()  # a wall clock has advanced since the operations were last checked
            return reply if resets == self._resets else None

        return PendingReply(self._completion_s, finish)

    def _completion_s(self) -> float | None:
        ends = [operation.end_s for operation in self._operations]
        # An operation without a known end (it waits for a trigger) delays the reply.
        finite_ends = [end for end in ends if end is not None]
        return max(finite_ends, default=self.clock.now()) if len(finite_ends) == len(ends) else None

    # -- operations

    @property
    def busy(self) -> bool:
        """Whether an operation is pending."""
        return bool(self._operations)

    def poll_completion(self) -> str:
        """Return 1 and set the operation-complete event if no operation is running; otherwise return 0.

        An operation that waits for a trigger does not count as running.
        """
        self.advance()
        if any(operation.end_s is not None for operation in self._operations):
            return "0"
        self.status.latch(OPERATION_COMPLETE)
        return "1"

    def next_end_s(self) -> float | None:
        """Return the time at which the next operation ends; ``None`` if there is no scheduled end."""
        ends = (operation.end_s for operation in self._operations)
        return min((end_s for end_s in ends if end_s is not None), default=None)

    def begin(self, duration_s: float | None, on_end: Callable[[], None]) -> Operation:
        """Start an operation of ``duration_s``; ``None`` means until :meth:`end`."""
        operation = Operation(None if duration_s is None else self.clock.now() + duration_s, on_end)
        self._operations.append(operation)
        return operation

    def end(self, operation: Operation) -> None:
        """End an operation now; no effect on an operation that has ended."""
        if operation in self._operations:
            self._operations.remove(operation)
            try:
                operation.on_end()
            except Exception:  # noqa: BLE001 - the instrument continues; the host finds -310 in the queue
                _LOG.exception("internal error of the emulator at the end of an operation; the host gets error -310")
                self.report(SYSTEM_ERROR)
            self._settle()

    def abort(self, operation: Operation) -> None:
        """Abort an operation without calling ``on_end``."""
        if operation in self._operations:
            self._operations.remove(operation)
            self._settle()

    def advance(self) -> None:
        """End the operations that are due by now."""
        horizon = self.clock.now() + ROUNDING_S
        # Evaluated again after each operation, because its end may start or change another one.
        while due := [
            operation for operation in self._operations if operation.end_s is not None and operation.end_s <= horizon
        ]:
            self.end(min(due, key=lambda operation: operation.end_s or 0.0))
        self._settle()

    def _settle(self) -> None:
        if self._announce_completion and not self._operations:
            self._announce_completion = False
            self.status.latch(OPERATION_COMPLETE)
