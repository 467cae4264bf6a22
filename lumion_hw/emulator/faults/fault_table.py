"""How faults are declared: one row each, with its arguments, their units and ranges; checked before anything happens.

The rows are in :mod:`lumion_hw.emulator.faults.bench_faults` (of the bench),
:mod:`lumion_hw.emulator.faults.device_faults` (of every device), and with each kind of device. What a user reads about
them, in messages and in docs/testing.md, is made from the rows.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lumion_hw.errors import ConfigError, LimitError

BENCH = "bench"
"""What the faults that are not those of one device act on."""
MODULE_DEAD = "module_dead"
"""Fault of every pluggable module: its host has lost power."""

Places = Mapping[str, Collection[int]]
"""Numbers that exist, by what they count: PUCs, ports, channels."""


def _no_places(_target: Any) -> Places:
    return {}


@dataclass(frozen=True)
class Argument:
    """One argument of a fault.

    Attributes:
        name: Its name.
        meaning: What it is.
        low: Least value.
        high: Greatest value.
        unit: Unit of the value.
        among: It is the number of something; the word for the numbers that exist, such as ``port``.
        default: Value if it is not given; ``None`` if it has to be.
        accepts: What is taken instead of a number: a test, and its words.
    """

    name: str
    meaning: str
    low: float = -math.inf
    high: float = math.inf
    unit: str = ""
    among: str = ""
    default: Any = None
    accepts: tuple[Callable[[Any], bool], str] | None = None

    def checked(self, fault: str, value: Any, places: Places) -> Any:
        """Return a value that may be given.

        Raises:
            ConfigError: It is not of the right kind.
            LimitError: It is out of range.
        """
        says = f"{fault}: {self.name} is {value!r}"
        hint = f"Give {self.words(places)}."
        if self.accepts is not None:
            if not self.accepts[0](value):
                raise ConfigError(says, hint=hint)
            return value
        number = _number(value)
        if number is None:
            raise ConfigError(says, hint=hint)
        there = places.get(self.among, ())
        low, high = (min(there, default=0), max(there, default=0)) if self.among else (self.low, self.high)
        if not low <= number <= high:
            limit = low if number < low else high
            raise LimitError(
                f"{fault}: {self.name} is out of range", requested=number, limit=limit, unit=self.unit or "", hint=hint
            )
        # Within the range and yet no such number: 2.5, or a port without light.
        if self.among and number not in there:
            raise ConfigError(says, hint=hint)
        return int(number) if self.among else number

    def words(self, places: Places | None = None) -> str:
        """Return what may be given, in words."""
        if self.accepts is not None:
            return self.accepts[1]
        if self.among:
            return f"the number of a {self.among}: {_listing(sorted((places or {}).get(self.among, ())))}"
        ends = ["" if math.isinf(end) else f"{end:g}" for end in (self.low, self.high)]
        span = f"{ends[0]} to {ends[1]}" if all(ends) else f"at least {ends[0]}" if ends[0] else "any number"
        return f"{span} {self.unit}".rstrip()


@dataclass(frozen=True)
class ScriptedFault:
    """One fault.

    Attributes:
        name: Its name.
        effect: What happens.
        arguments: What it takes.
        begin: Puts it in force on its target, with the arguments by name.
        end: Ends it, with the same arguments; ``None`` if it cannot be undone.
        places: Returns which numbers exist on its target, for arguments that are one of them.
    """

    name: str
    effect: str
    arguments: tuple[Argument, ...] = ()
    begin: Callable[..., None] = field(default=lambda *_: None, repr=False)
    end: Callable[..., None] | None = field(default=None, repr=False)
    places: Callable[[Any], Places] = field(default=_no_places, repr=False)

    def checked(self, given: Mapping[str, Any], places: Places) -> dict[str, Any]:
        """Return all arguments.

        Raises:
            ConfigError: One is missing, unknown or of the wrong kind.
            LimitError: One is out of range.
        """
        names = [argument.name for argument in self.arguments]
        takes = f"It takes {self.signature() or 'no arguments'}."
        for name in given:
            if name not in names:
                raise ConfigError(f"{self.name} has no argument {name}", hint=takes)
        found = {}
        for argument in self.arguments:
            value = given.get(argument.name, argument.default)
            if value is None:
                raise ConfigError(f"{self.name} needs {argument.name}", hint=takes)
            found[argument.name] = argument.checked(self.name, value, places)
        return found

    def signature(self) -> str:
        """Return the arguments in words: name, meaning, range, default."""
        return "; ".join(f"{each.name}: {each.meaning}{_span(each)}" for each in self.arguments)


def _span(argument: Argument) -> str:
    """Return range and default of an argument in brackets, if it has any."""
    span = "" if argument.among or argument.accepts else argument.words()
    default = "" if argument.default is None else f"without it {argument.default:g}"
    return f" ({', '.join(filter(None, (span, default)))})" if span or default else ""


def named(faults: Iterable[ScriptedFault], name: str, what: str) -> ScriptedFault:
    """Return a fault by name. Raises ``ConfigError`` that says what there is."""
    there = {fault.name: fault for fault in faults}
    if name not in there:
        raise ConfigError(f"{what} has no fault {name}", hint=f"{nearest(name, there)}It has {', '.join(there)}.")
    return there[name]


def nearest(name: str, known: Iterable[str]) -> str:
    """Return what was perhaps meant, as a sentence."""
    found = difflib.get_close_matches(str(name), known, 1)
    return f"Do you mean {found[0]}? " if found else ""


def markdown(faults: Iterable[tuple[str, ScriptedFault]]) -> str:
    """Return the table of docs/testing.md.

    Args:
        faults: What has each fault, and the fault; those of several kinds that are the same get one row.
    """
    owners: dict[str, list[str]] = {}
    for owner, fault in faults:
        ends = "yes" if fault.end is not None else "–"
        row = f"| `{fault.name}` | {{}} | {fault.signature() or '–'} | {fault.effect} | {ends} |"
        owners.setdefault(row, []).append(owner)
    head = ["| fault | of | arguments | what happens | ends |", "|---|---|---|---|---|"]
    return "\n".join([*head, *(row.format(", ".join(names)) for row, names in owners.items())])


def _number(value: Any) -> float | None:
    """Return a finite number, ``None`` for anything else."""
    # float() would take True and "1".
    if isinstance(value, (bool, str, bytes)):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _listing(numbers: Sequence[int]) -> str:
    """Return numbers in words, as a range where they are one."""
    if not numbers:
        return "there is none"
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))
