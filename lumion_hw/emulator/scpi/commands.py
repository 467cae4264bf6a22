"""How an instrument's commands are declared: one :class:`ScpiCommand` per documented header.

A handler takes a :class:`Call` and returns the reply (text, a block, or ``None`` for none) at once, or a :class:`Later`
that becomes one at an instant of the clock. It raises :class:`~lumion_hw.emulator.scpi.errors.ScpiError` to refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from lumion_hw.emulator.scpi.lexer import Token
from lumion_hw.errors import ConfigError

Value = float | int | bool | str | bytes
"""A parsed parameter, in the parameter's own unit."""
Reply = str | bytes | None
"""What a unit contributes to the reply line; ``None`` contributes nothing."""


@dataclass(frozen=True)
class Call:
    """One accepted unit.

    Attributes:
        suffix: Numeric suffixes by the name they have in the pattern (``SENSe[n]`` -> ``n``); defaults where left out.
        values: Parsed parameters; optional ones that were not sent are missing at the end.
        message_available: Replies are waiting on this connection (status byte bit 4).
    """

    suffix: Mapping[str, int]
    values: tuple[Value, ...] = ()
    message_available: bool = False

    def number(self, index: int = 0) -> float:
        """Return a numeric parameter."""
        value = self.values[index]
        if isinstance(value, str | bytes):
            raise ConfigError(f"parameter {index} is declared as {type(value).__name__}, not as a number")
        return float(value)

    def integer(self, index: int = 0) -> int:
        """Return a numeric parameter as an integer."""
        return round(self.number(index))

    def flag(self, index: int = 0) -> bool:
        """Return a Boolean parameter."""
        return bool(self.number(index))

    def text(self, index: int = 0) -> str:
        """Return a word or a string."""
        value = self.values[index]
        if not isinstance(value, str):
            raise ConfigError(f"parameter {index} is declared as {type(value).__name__}, not as text")
        return value

    def data(self, index: int = 0) -> bytes:
        """Return the content of a block."""
        value = self.values[index]
        if not isinstance(value, bytes):
            raise ConfigError(f"parameter {index} is declared as {type(value).__name__}, not as a block")
        return value


@dataclass(frozen=True)
class Later:
    """A unit that completes at an instant of the clock; later units of the same connection wait for it.

    Attributes:
        due_s: Gives the instant, ``None`` while it is not known. Asked again and again, so it may move.
        finish: Called once at or after that instant; returns the reply or raises ``ScpiError``.
    """

    due_s: Callable[[], float | None]
    finish: Callable[[], Reply]


Handler = Callable[[Call], "Reply | Later"]


class Parameter(Protocol):
    """One declared parameter: turns what was sent into a value, or refuses it."""

    @property
    def optional(self) -> bool:
        """Whether it may be left out; optional parameters come last."""

    def parse(self, token: Token, call: Call) -> Value:
        """Return the value.

        Raises:
            ScpiError: Wrong kind, unit or value.
            NotApplied: The instrument ignores this value without a word.
        """


@dataclass(frozen=True)
class Form:
    """The set form or the query form of a header.

    Attributes:
        run: Carries it out.
        parameters: What it takes.
        marker: What it replies, besides the entry in the error queue, when carrying it out fails (816x mainframes).
    """

    run: Handler
    parameters: tuple[Parameter, ...] = ()
    marker: Reply = None

    @property
    def required(self) -> int:
        """Number of parameters that must be sent."""
        return sum(not parameter.optional for parameter in self.parameters)


@dataclass(frozen=True)
class ScpiCommand:
    """One documented header.

    Attributes:
        pattern: Spelling as in :mod:`lumion_hw.emulator.scpi.tree`.
        set: Form without ``?``, if there is one.
        query: Form with ``?``, if there is one.
    """

    pattern: str
    set: Form | None = None
    query: Form | None = None


def query(pattern: str, run: Handler, *parameters: Parameter, marker: Reply = None) -> ScpiCommand:
    """Declare a header that only exists as a query."""
    return ScpiCommand(pattern, query=Form(run, parameters, marker))


def event(pattern: str, run: Handler, *parameters: Parameter) -> ScpiCommand:
    """Declare a header that only exists as a command."""
    return ScpiCommand(pattern, set=Form(run, parameters))


def action(pattern: str, run: Callable[[], object], *parameters: Parameter) -> ScpiCommand:
    """Declare a command that does something, whatever its parameters are, and has no query."""
    return event(pattern, does(run), *parameters)


def does(run: Callable[[], object]) -> Handler:
    """Return a handler that needs nothing of its call and replies nothing."""

    def carry_out(call: Call) -> Reply:
        del call
        run()
        return None

    return carry_out


@dataclass(frozen=True)
class Profile:
    """What differs between instruments of the same language.

    Attributes:
        identity: Reply to ``*IDN?``.
        terminator: Ends every reply.
        cr_ends: A CR alone ends a message to the instrument, as LF and CR LF do.
        queue_depth: Places in the error queue.
        message_limit: Longest program message in bytes; more is -363.
        integer: Format of integers in SCPI replies; register values of common commands are always unsigned.
        terminated_blocks: Whether the terminator also follows a reply that ends in a block.
        aliases: Spellings outside the documented tree -> the documented pattern they stand for. Empty by default:
            a strict instrument is the normal one.
        error_texts: Texts of error codes in this vendor's words, and of its own (positive) codes.
        error_number: Format of the number in front of the text.
        scpi_version: Reply to ``SYSTem:VERSion?``; ``None`` for an instrument without that query.
        self_test: Reply to ``*TST?``.
        tells_busy: ``*OPC?`` answers at once, 0 while something is being carried out and 1 otherwise, and sets the
            operation-complete event with the 1 (Keysight's optical instruments); otherwise it waits (IEEE 488.2).
        slot_status: The instrument has a ``STATus`` register for every slot, and declares all of them itself.
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
    tells_busy: bool = False
    slot_status: bool = False
