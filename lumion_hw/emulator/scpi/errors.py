"""SCPI error numbers, their texts, and the error queue.

Sources: SCPI-1999 volume 2 chapter 21.8; classes and event bits: IEEE 488.2 section 11.5.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from lumion_hw.errors import ConfigError

NO_ERROR = 0
INVALID_CHARACTER = -101
SYNTAX_ERROR = -102
INVALID_SEPARATOR = -103
DATA_TYPE_ERROR = -104
PARAMETER_NOT_ALLOWED = -108
MISSING_PARAMETER = -109
MNEMONIC_TOO_LONG = -112
UNDEFINED_HEADER = -113
SUFFIX_OUT_OF_RANGE = -114
NUMERIC_DATA_ERROR = -120
INVALID_CHARACTER_IN_NUMBER = -121
EXPONENT_TOO_LARGE = -123
TOO_MANY_DIGITS = -124
NUMERIC_NOT_ALLOWED = -128
INVALID_SUFFIX = -131
SUFFIX_TOO_LONG = -134
SUFFIX_NOT_ALLOWED = -138
INVALID_CHARACTER_DATA = -141
CHARACTER_NOT_ALLOWED = -148
STRING_NOT_ALLOWED = -158
BLOCK_NOT_ALLOWED = -168
EXECUTION_ERROR = -200
COMMAND_PROTECTED = -203
TRIGGER_IGNORED = -211
INIT_IGNORED = -213
PARAMETER_ERROR = -220
SETTINGS_CONFLICT = -221
DATA_OUT_OF_RANGE = -222
ILLEGAL_PARAMETER_VALUE = -224
DATA_QUESTIONABLE = -231
MATH_ERROR = -261
SYSTEM_ERROR = -310
QUEUE_OVERFLOW = -350
INPUT_BUFFER_OVERRUN = -363
QUERY_INTERRUPTED = -410
QUERY_UNTERMINATED = -420

TEXTS: Mapping[int, str] = {
    NO_ERROR: "No error",
    INVALID_CHARACTER: "Invalid character",
    SYNTAX_ERROR: "Syntax error",
    INVALID_SEPARATOR: "Invalid separator",
    DATA_TYPE_ERROR: "Data type error",
    PARAMETER_NOT_ALLOWED: "Parameter not allowed",
    MISSING_PARAMETER: "Missing parameter",
    MNEMONIC_TOO_LONG: "Program mnemonic too long",
    UNDEFINED_HEADER: "Undefined header",
    SUFFIX_OUT_OF_RANGE: "Header suffix out of range",
    NUMERIC_DATA_ERROR: "Numeric data error",
    INVALID_CHARACTER_IN_NUMBER: "Invalid character in number",
    EXPONENT_TOO_LARGE: "Exponent too large",
    TOO_MANY_DIGITS: "Too many digits",
    NUMERIC_NOT_ALLOWED: "Numeric data not allowed",
    INVALID_SUFFIX: "Invalid suffix",
    SUFFIX_TOO_LONG: "Suffix too long",
    SUFFIX_NOT_ALLOWED: "Suffix not allowed",
    INVALID_CHARACTER_DATA: "Invalid character data",
    CHARACTER_NOT_ALLOWED: "Character data not allowed",
    STRING_NOT_ALLOWED: "String data not allowed",
    BLOCK_NOT_ALLOWED: "Block data not allowed",
    EXECUTION_ERROR: "Execution error",
    COMMAND_PROTECTED: "Command protected",
    TRIGGER_IGNORED: "Trigger ignored",
    INIT_IGNORED: "Init ignored",
    PARAMETER_ERROR: "Parameter error",
    SETTINGS_CONFLICT: "Settings conflict",
    DATA_OUT_OF_RANGE: "Data out of range",
    ILLEGAL_PARAMETER_VALUE: "Illegal parameter value",
    DATA_QUESTIONABLE: "Data questionable",
    MATH_ERROR: "Math error",
    SYSTEM_ERROR: "System error",
    QUEUE_OVERFLOW: "Queue overflow",
    INPUT_BUFFER_OVERRUN: "Input buffer overrun",
    QUERY_INTERRUPTED: "Query INTERRUPTED",
    QUERY_UNTERMINATED: "Query UNTERMINATED",
}


class ScpiError(Exception):
    """Error of a command; the instrument queues :attr:`code` and continues with the next command."""

    def __init__(self, code: int) -> None:
        super().__init__(f"{code},{TEXTS.get(code, 'device-specific error')}")
        self.code = code


class NotApplied(Exception):  # noqa: N818 - an event, not an error: nothing is queued
    """The instrument silently ignores a value."""


def event_bit(code: int) -> int:
    """Return the bit that an error code sets in the event status register (IEEE 488.2 section 11.5.1)."""
    if -199 <= code <= -100:
        return 32
    if -299 <= code <= -200:
        return 16
    if -499 <= code <= -400:
        return 4
    return 8


class ErrorQueue:
    """First-in, first-out queue of SCPI errors.

    The last place is for error -350 (queue overflow); further errors are dropped until one has been read (SCPI-1999
    volume 2 section 21.8.1).

    Args:
        depth: Number of places, at least 2, else ``ConfigError``.
    """

    def __init__(self, depth: int) -> None:
        if depth < 2:
            raise ConfigError(f"an error queue of {depth} places cannot report an overflow; use at least 2")
        self._depth = depth
        self._codes: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._codes)

    def push(self, code: int) -> int:
        """Queue an error code. Return the queued code: ``code``, -350, or 0 if it was dropped."""
        if len(self._codes) >= self._depth:
            return NO_ERROR
        # The last place reports that errors were lost, including the one that would have used this place.
        queued = QUEUE_OVERFLOW if len(self._codes) == self._depth - 1 else code
        self._codes.append(queued)
        return queued

    def pop(self) -> int:
        """Remove and return the oldest error code; 0 if the queue is empty."""
        return self._codes.popleft() if self._codes else NO_ERROR

    def clear(self) -> None:
        """Remove all errors from the queue."""
        self._codes.clear()
