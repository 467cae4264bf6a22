"""Declaration of an instrument's commands, one :class:`ScpiCommand` per documented header.

A handler receives a :class:`Call` and returns the reply (text, a block, or ``None`` for none) or a
:class:`PendingReply` that gives the reply later. To refuse the call it raises
:class:`~lumion_hw.emulator.scpi.errors.ScpiError`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from lumion_hw.emulator.scpi.lexer import Token
from lumion_hw.errors import ConfigError

Value = float | int | bool | str | bytes
"""A parsed parameter in its unit."""
Reply = str | bytes | None
"""Reply of one command; ``None`` for no reply."""


@dataclass(frozen=True)
class Call:
    """One accepted command or query, with parsed parameters.

    Attributes:
        suffix: Numeric suffixes of the header by name in the pattern (``n`` in ``SENSe[n]``), with defaults.
        values: Parsed parameters. Optional parameters that were not sent are missing at the end.
        message_available: Whether replies are waiting on this connection (status byte bit 4).
    """

    suffix: Mapping[str, int]
    values: tuple[Value, ...] = ()
    message_available: bool = False

    def number(self, index: int = 0) -> float:
        """Return the numeric parameter at a position."""
        value = self.values[index]
        if isinstance(value, str | bytes):
            raise ConfigError(f"parameter {index} is declared as {type(value).__name__}, not as a number")
        return float(value)

    def integer(self, index: int = 0) -> int:
        """Return the numeric parameter at a position as an integer."""
        return round(self.number(index))

    def flag(self, index: int = 0) -> bool:
        """Return the Boolean parameter at a position."""
        return bool(self.number(index))

    def text(self, index: int = 0) -> str:
        """Return the word or string parameter at a position."""
        value = self.values[index]
        if not isinstance(value, str):
            raise ConfigError(f"parameter {index} is declared as {type(value).__name__}, not as a string")
        return value

    def data(self, index: int = 0) -> bytes:
        """Return the content of the block parameter at a position."""
        value = self.values[index]
        if not isinstance(value, bytes):
            raise ConfigError(f"parameter {index} is declared as {type(value).__name__}, not as a block")
        return value


@dataclass(frozen=True)
class PendingReply:
    """Reply of a command that completes later. The next commands of the same connection wait.

    Attributes:
        due_s: Returns the time of completion, or ``None`` while it is unknown. The time may change.
        finish: Called once at or after that time; returns the reply or raises ``ScpiError``.
    """

    due_s: Callable[[], float | None]
    finish: Callable[[], Reply]


Handler = Callable[[Call], "Reply | PendingReply"]


class Parameter(Protocol):
    """A SCPI parameter in a declaration, which converts a received token into a value."""

    @property
    def optional(self) -> bool:
        """Whether the parameter may be omitted; optional parameters come last."""

    def parse(self, token: Token, call: Call) -> Value:
        """Return the value of a received token.

        Raises ``ScpiError`` for a wrong type, unit or value, and ``NotApplied`` for a value that the instrument
        silently ignores.
        """


@dataclass(frozen=True)
class Form:
    """The command form or the query form of a SCPI header.

    Attributes:
        marker: Reply to send when the handler fails, in addition to the error in the queue (816x mainframes).
    """

    run: Handler
    parameters: tuple[Parameter, ...] = ()
    marker: Reply = None

    @property
    def required(self) -> int:
        """Number of parameters that the host must send."""
        return sum(not parameter.optional for parameter in self.parameters)


@dataclass(frozen=True)
class ScpiCommand:
    """Declaration of one documented SCPI header.

    Attributes:
        pattern: Spelling as in :mod:`lumion_hw.emulator.scpi.tree`.
        set: Form without ``?``, if there is one.
        query: Form with ``?``, if there is one.
    """

    pattern: str
    set: Form | None = None
    query: Form | None = None


def query(pattern: str, run: Handler, *parameters: Parameter, marker: Reply = None) -> ScpiCommand:
    """Declare a SCPI header that exists only as a query."""
    return ScpiCommand(pattern, query=Form(run, parameters, marker))


def event(pattern: str, run: Handler, *parameters: Parameter) -> ScpiCommand:
    """Declare a SCPI header that exists only as a command."""
    return ScpiCommand(pattern, set=Form(run, parameters))


def action(pattern: str, run: Callable[[], object], *parameters: Parameter) -> ScpiCommand:
    """Declare a SCPI command without query and parameters."""
    return event(pattern, ignoring_call(run), *parameters)


def ignoring_call(run: Callable[[], object]) -> Handler:
    """Return a command handler that calls a function without parameters and sends no reply."""

    def carry_out(call: Call) -> Reply:
        del call
        run()
        return None

    return carry_out


@dataclass(frozen=True)
class Profile:
    """Properties in which SCPI instruments differ.

    Attributes:
        identity: Reply to ``*IDN?``.
        terminator: Ends every reply.
        cr_ends: Whether a CR alone ends a message to the instrument, as LF and CR LF do.
        message_limit: Longest program message in bytes; a longer one causes -363.
        integer: Format of integers in SCPI replies; register values of common commands are always unsigned.
        terminated_blocks: Whether the terminator also follows a reply that ends in a block.
        aliases: Undocumented spellings, each with the equivalent documented pattern. Empty by default.
        error_texts: The vendor's texts for standard error codes, and for its own (positive) codes.
        error_number: Format of the error number before the text.
        scpi_version: Reply to ``SYSTem:VERSion?``; ``None`` for an instrument without that query.
        self_test: Reply to ``*TST?``.
        reports_busy: Whether ``*OPC?`` replies at once (Keysight's optical instruments): 0 while an operation is
            running, else 1. Otherwise ``*OPC?`` waits (IEEE 488.2).
        slot_status: Whether the instrument has a ``STATus`` register for every slot, and declares all of them itself.
    """

    identity: str
    terminator: bytes = b"\n"
    cr_ends: bool = False
    queue_depth: int = 30
    message_limit: int = 65536
    integer: Callable[[int], str] = "{:+d}".format
    terminated_blocks: bool = True
    aliases: Mapping[str, str] = field(default_factory=dict)
    error_texts: Mapping[int, str] = field(default_factory=dict)
    error_number: Callable[[int], str] = "{:+d}".format
    scpi_version: str | None = "1999.0"
    self_test: str = "0"
    reports_busy: bool = False
    slot_status: bool = False
