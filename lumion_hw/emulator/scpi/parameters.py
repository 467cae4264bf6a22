"""SCPI parameters for command declarations (SCPI-1999 volume 1 chapter 7, IEEE 488.2 section 7.7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lumion_hw.emulator.scpi import errors
from lumion_hw.emulator.scpi.commands import Call, Form, Reply, ScpiCommand, Value
from lumion_hw.emulator.scpi.errors import NotApplied, ScpiError
from lumion_hw.emulator.scpi.formats import forms, short_form
from lumion_hw.emulator.scpi.lexer import Token, TokenKind
from lumion_hw.emulator.scpi.units import Suffixes

Limit = float | Callable[[Call], float]
"""A fixed limit, or a function that returns the limit for a call."""

_WRONG_KIND = {
    TokenKind.NUMBER: errors.NUMERIC_NOT_ALLOWED,
    TokenKind.WORD: errors.CHARACTER_NOT_ALLOWED,
    TokenKind.STRING: errors.STRING_NOT_ALLOWED,
    TokenKind.BLOCK: errors.BLOCK_NOT_ALLOWED,
    TokenKind.EXPRESSION: errors.DATA_TYPE_ERROR,
    TokenKind.ADDRESS: errors.INVALID_CHARACTER_IN_NUMBER,
}
_LIMIT_WORDS = {word: name for name in ("MINimum", "MAXimum", "DEFault") for word in forms(name)}


def _expect(token: Token, *kinds: TokenKind) -> None:
    if token.kind not in kinds:
        raise ScpiError(_WRONG_KIND[token.kind])


def _number(token: Token, suffixes: Suffixes | None) -> float:
    """Return a received number in the parameter's unit; infinite beyond the range of a double."""
    if not token.suffix:
        return float(f"{token.text}e{token.exponent}")
    if not suffixes:
        raise ScpiError(errors.SUFFIX_NOT_ALLOWED)
    unit = suffixes.get(token.suffix)
    if unit is None:
        raise ScpiError(errors.INVALID_SUFFIX)
    if isinstance(unit, int):
        # A power of ten is added to the exponent in the text, so that 1650NM is the same double as 1.65E-6.
        return float(f"{token.text}e{token.exponent + unit}")
    try:
        return unit(float(f"{token.text}e{token.exponent}"))
    except OverflowError:
        raise ScpiError(errors.DATA_OUT_OF_RANGE) from None


@dataclass(frozen=True)
class Numeric:
    """SCPI parameter: a number with a unit and limits.

    ``MINimum MAXimum DEFault`` stand for the limits and the default.

    Attributes:
        minimum: Smallest accepted value, in the parameter's unit; ``None`` for no limit.
        maximum: Largest accepted value.
        default: Value after ``*RST``, and of ``DEFault``.
        suffixes: Accepted units; ``None`` when a unit is not allowed.
        integer: Whether the value is rounded to the nearest integer, halves away from zero.
        silent: Whether an out-of-range value is ignored without an error (some Thorlabs meters).
    """

    minimum: Limit | None = None
    maximum: Limit | None = None
    default: Limit | None = None
    suffixes: Suffixes | None = None
    integer: bool = False
    silent: bool = False
    optional: bool = False

    def named_limit(self, word: str, call: Call) -> float:
        """Return the value of ``MIN``, ``MAX`` or ``DEF``. Raises ``ScpiError`` -148 or -224 if there is none."""
        # A number without any limit accepts no words (-148); a number with some limits refuses the missing ones (-224).
        limits = {"MINimum": self.minimum, "MAXimum": self.maximum, "DEFault": self.default}
        if all(limit is None for limit in limits.values()):
            raise ScpiError(errors.CHARACTER_NOT_ALLOWED)
        limit = limits.get(_LIMIT_WORDS.get(word.upper(), ""))
        if limit is None:
            raise ScpiError(errors.ILLEGAL_PARAMETER_VALUE)
        return limit(call) if callable(limit) else limit

    def parse(self, token: Token, call: Call) -> Value:
        """Return the received number in the parameter's unit."""
        _expect(token, TokenKind.NUMBER, TokenKind.WORD)
        if token.kind is TokenKind.WORD:
            return self.named_limit(token.text, call)
        value = _number(token, self.suffixes)
        low, high = (limit(call) if callable(limit) else limit for limit in (self.minimum, self.maximum))
        # Infinite is a number that a double cannot represent, such as 1E999.
        if abs(value) == float("inf") or (low is not None and value < low) or (high is not None and value > high):
            raise NotApplied if self.silent else ScpiError(errors.DATA_OUT_OF_RANGE)
        return int(value + (0.5 if value >= 0 else -0.5)) if self.integer else value


@dataclass(frozen=True)
class LimitName:
    """Optional parameter ``MINimum``, ``MAXimum`` or ``DEFault`` of a query; parsed to that limit."""

    parameter: Numeric
    optional: bool = True

    def parse(self, token: Token, call: Call) -> Value:
        """Return the value of the requested limit."""
        _expect(token, TokenKind.WORD)
        return self.parameter.named_limit(token.text, call)


@dataclass(frozen=True)
class Boolean:
    """SCPI Boolean parameter ``0 1 ON OFF``; any number that does not round to zero is 1 (SCPI-1999 7.3).

    ``ON`` is accepted even where the manual lists only 0 and 1: a client for N7744A and N7745C sends it.
    """

    optional: bool = False

    def parse(self, token: Token, call: Call) -> Value:
        """Return the received Boolean value."""
        del call
        _expect(token, TokenKind.NUMBER, TokenKind.WORD)
        if token.kind is TokenKind.WORD:
            if token.text.upper() not in ("ON", "OFF"):
                raise ScpiError(errors.ILLEGAL_PARAMETER_VALUE)
            return token.text.upper() == "ON"
        return abs(_number(token, None)) >= 0.5


@dataclass(frozen=True)
class Choice:
    """SCPI parameter: one word from a list; parsed to the documented spelling.

    Attributes:
        words: Documented spellings (``LOGGing``); short and long forms are accepted.
    """

    words: tuple[str, ...]
    optional: bool = False
    _by_form: Mapping[str, str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_form", {form: word for word in self.words for form in forms(word)})

    def parse(self, token: Token, call: Call) -> Value:
        """Return the documented spelling of the received word."""
        del call
        _expect(token, TokenKind.WORD)
        word = self._by_form.get(token.text.upper())
        if word is None:
            raise ScpiError(errors.ILLEGAL_PARAMETER_VALUE)
        return word


@dataclass(frozen=True)
class IndexedChoice:
    """SCPI parameter: one word from a list, or its index from 0; parsed to the documented spelling.

    Attributes:
        words: Documented spellings, in the order of their numbers.
        synonyms: Further spellings, each with the equivalent word.
    """

    words: tuple[str, ...]
    synonyms: Mapping[str, str] = field(default_factory=dict)
    optional: bool = False

    def parse(self, token: Token, call: Call) -> Value:
        """Return the documented spelling of the received word."""
        if token.kind is TokenKind.WORD:
            word = str(Choice((*self.words, *self.synonyms)).parse(token, call))
            return self.synonyms.get(word, word)
        # A number out of range is -222, as for any number.
        return self.words[int(Numeric(0, len(self.words) - 1, integer=True).parse(token, call))]


@dataclass(frozen=True)
class Text:
    """SCPI parameter: a quoted string."""

    optional: bool = False

    def parse(self, token: Token, call: Call) -> Value:
        """Return the content of the received string, without quotes."""
        del call
        _expect(token, TokenKind.STRING)
        return token.text


@dataclass(frozen=True)
class ScpiBlock:
    """SCPI parameter: a definite-length block of bytes."""

    optional: bool = False

    def parse(self, token: Token, call: Call) -> Value:
        """Return the content of the received block."""
        del call
        _expect(token, TokenKind.BLOCK)
        return token.data


def number_setting(
    pattern: str,
    parameter: Numeric,
    read: Callable[[Call], float],
    write: Callable[[Call, float], None],
    reply: Callable[[float], str],
) -> ScpiCommand:
    """Declare a number with limits that can be set and queried; both forms accept ``MIN MAX DEF``."""

    def run_set(call: Call) -> Reply:
        write(call, call.number())
        return None

    def run_query(call: Call) -> Reply:
        return reply(call.number() if call.values else read(call))

    return ScpiCommand(pattern, Form(run_set, (parameter,)), Form(run_query, (LimitName(parameter),)))


def word_setting(
    pattern: str,
    parameter: Choice | IndexedChoice,
    read: Callable[[Call], str],
    write: Callable[[Call, str], None],
    reply: Callable[[str], str] = short_form,
) -> ScpiCommand:
    """Declare a word from a list that can be set and queried; the reply is the short form by default."""

    def run_set(call: Call) -> Reply:
        write(call, call.text())
        return None

    return ScpiCommand(pattern, Form(run_set, (parameter,)), Form(lambda call: reply(read(call))))


def flag_setting(
    pattern: str,
    parameter: Boolean,
    read: Callable[[Call], bool],
    write: Callable[[Call, bool], None],
    reply: Callable[[int], str],
) -> ScpiCommand:
    """Declare an on/off setting that can be set and queried."""

    def run_set(call: Call) -> Reply:
        write(call, call.flag())
        return None

    def run_query(call: Call) -> Reply:
        return reply(int(read(call)))

    return ScpiCommand(pattern, Form(run_set, (parameter,)), Form(run_query))


def number_attribute(
    pattern: str, parameter: Numeric, holder: Callable[[], object], name: str, reply: Callable[[float], str]
) -> ScpiCommand:
    """Declare a number with limits that is stored as an attribute of an object.

    Args:
        pattern: Spelling as in :mod:`lumion_hw.emulator.scpi.tree`.
        parameter: Limits and units.
        holder: Returns the object with the attribute. Called each time; can raise ``ScpiError``.
        name: Name of the attribute, a number in the parameter's unit.
        reply: Format of the query's reply.
    """
    return number_setting(
        pattern,
        parameter,
        lambda _: float(getattr(holder(), name)),
        lambda _, value: setattr(holder(), name, value),
        reply,
    )


def flag_attribute(pattern: str, holder: Callable[[], object], name: str, reply: Callable[[int], str]) -> ScpiCommand:
    """Declare an on/off setting stored as an attribute of an object; arguments as in :func:`number_attribute`."""
    return flag_setting(
        pattern, Boolean(), lambda _: bool(getattr(holder(), name)), lambda _, on: setattr(holder(), name, on), reply
    )
