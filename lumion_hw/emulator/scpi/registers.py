"""The status model: event status register, status byte, and the OPERation and QUEStionable groups.

IEEE 488.2 chapter 11, SCPI-1999 volume 1 chapter 9.
"""

from __future__ import annotations

_FIFTEEN_BITS = 0x7FFF  # bit 15 is always 0, so that a register is a positive 16-bit integer everywhere

POWER_ON = 128
OPERATION_COMPLETE = 1


class RegisterGroup:
    """Condition, transition filters, event and enable register of one SCPI status group."""

    def __init__(self) -> None:
        self._condition = 0
        self._event = 0
        self.preset()

    def preset(self) -> None:
        """Do ``STATus:PRESet``: enable nothing, latch every rise and no fall."""
        self._enable = 0
        self._positive = _FIFTEEN_BITS
        self._negative = 0

    @property
    def condition(self) -> int:
        """The present condition bits. Setting them latches the events that pass the transition filters."""
        return self._condition

    @condition.setter
    def condition(self, bits: int) -> None:
        bits &= _FIFTEEN_BITS
        rising, falling = bits & ~self._condition, self._condition & ~bits
        self._event |= (rising & self._positive) | (falling & self._negative)
        self._condition = bits

    def set_bit(self, bit: int, on: bool) -> None:
        """Set or clear one condition bit, numbered from 0."""
        self.condition = self._condition | 1 << bit if on else self._condition & ~(1 << bit)

    def take_event(self) -> int:
        """Return the event register and clear it, as reading it does."""
        event, self._event = self._event, 0
        return event

    @property
    def enable(self) -> int:
        """Which events are reported in the status byte."""
        return self._enable

    @enable.setter
    def enable(self, bits: int) -> None:
        self._enable = bits & _FIFTEEN_BITS

    @property
    def positive(self) -> int:
        """Which conditions latch an event when they rise."""
        return self._positive

    @positive.setter
    def positive(self, bits: int) -> None:
        self._positive = bits & _FIFTEEN_BITS

    @property
    def negative(self) -> int:
        """Which conditions latch an event when they fall."""
        return self._negative

    @negative.setter
    def negative(self, bits: int) -> None:
        self._negative = bits & _FIFTEEN_BITS

    @property
    def summary(self) -> bool:
        """Whether an enabled event is latched."""
        return bool(self._event & self._enable)


class StatusModel:
    """Registers of one instrument.

    Attributes:
        operation: ``STATus:OPERation``, summarised in bit 7 of the status byte.
        questionable: ``STATus:QUEStionable``, bit 3.
        extra: Groups that only some instruments have, by their bit in the status byte (0 or 1).
        event_enable: Mask of ``*ESE``.
        service_enable: Mask of ``*SRE``; bit 6 cannot be set.
    """

    def __init__(self) -> None:
        self.operation = RegisterGroup()
        self.questionable = RegisterGroup()
        self.extra: dict[int, RegisterGroup] = {}
        self.event_enable = 0
        self._service_enable = 0
        self._events = POWER_ON

    def reset_conditions(self) -> None:
        """Clear every condition, as an instrument does that has aborted all it did."""
        for group in (self.operation, self.questionable, *self.extra.values()):
            group.condition = 0

    def latch(self, weight: int) -> None:
        """Set bits of the event status register."""
        self._events |= weight

    def take_events(self) -> int:
        """Return the event status register and clear it (``*ESR?``)."""
        events, self._events = self._events, 0
        return events

    @property
    def service_enable(self) -> int:
        """Mask of ``*SRE``."""
        return self._service_enable

    @service_enable.setter
    def service_enable(self, bits: int) -> None:
        self._service_enable = bits & 0xBF

    def clear(self) -> None:
        """Clear the event registers, not the masks (``*CLS``)."""
        self._events = 0
        for group in (self.operation, self.questionable, *self.extra.values()):
            group.take_event()

    def preset(self) -> None:
        """Do ``STATus:PRESet``."""
        for group in (self.operation, self.questionable, *self.extra.values()):
            group.preset()

    def status_byte(self, *, errors: bool, message_available: bool) -> int:
        """Return the status byte; reading it clears nothing (``*STB?``)."""
        byte = (
            4 * errors
            | 8 * self.questionable.summary
            | 16 * message_available
            | 32 * bool(self._events & self.event_enable)
            | 128 * self.operation.summary
        )
        for bit, group in self.extra.items():
            byte |= group.summary << bit
        return byte | 64 * bool(byte & self._service_enable)
