"""Declaration of scripted faults with their arguments, units and ranges.

Messages and docs/faults.md are generated from the declarations.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lumion_hw.errors import ConfigError, LimitError

BENCH = "bench"
"""Target name of the faults of the bench as a whole."""
MODULE_DEAD = "module_dead"
"""Fault of every pluggable module: its host has lost power."""

Places = Mapping[str, Collection[int]]
"""Existing component numbers by kind of component (PUC, port, channel)."""


def _no_places(_target: Any) -> Places:
    return {}


@dataclass(frozen=True)
class Argument:
    """One argument of a fault.

    Attributes:
        component_kind: Kind of component, such as ``port``, for an argument that is a component's number; else empty.
        default: Value if the argument is omitted; ``None`` if it is required.
        accepts: A test of the value and a description of the valid values, for an argument that is not a number.
        parse: Converts the text that another process sends to a value; by default the text is a number.
    """

    name: str
    effect: str
    low: float = -math.inf
    high: float = math.inf
    unit: str = ""
    component_kind: str = ""
    default: Any = None
    accepts: tuple[Callable[[Any], bool], str] | None = None
    parse: Callable[[str], Any] = field(default=float, repr=False)

    def from_text(self, fault: str, text: str) -> Any:
        """Return the value that a text from another process stands for. Raises ``ConfigError`` for an invalid text."""
        try:
            return self.parse(text)
        except ValueError:
            raise ConfigError(
                f"{fault}: {self.name} is {text!r}", hint=f"Give {self.effect if self.accepts else 'a number'}."
            ) from None

    def validated(self, fault: str, value: Any, places: Places) -> Any:
        """Return a valid value. Raises ``ConfigError`` for a wrong type, ``LimitError`` for a value out of range."""
        problem = f"{fault}: {self.name} is {value!r}"
        hint = f"Give {self.describe_values(places)}."
        if self.accepts is not None:
            if not self.accepts[0](value):
                raise ConfigError(problem, hint=hint)
            return value
        number = _number(value)
        if number is None:
            raise ConfigError(problem, hint=hint)
        valid = places.get(self.component_kind, ())
        low, high = (min(valid, default=0), max(valid, default=0)) if self.component_kind else (self.low, self.high)
        if not low <= number <= high:
            limit = low if number < low else high
            raise LimitError(
                f"{fault}: {self.name} is out of range", requested=number, limit=limit, unit=self.unit or "", hint=hint
            )
        # Within the range, but not a valid number: 2.5, or a port without light.
        if self.component_kind and number not in valid:
            raise ConfigError(problem, hint=hint)
        return int(number) if self.component_kind else number

    def describe_values(self, places: Places | None = None) -> str:
        """Return a description of the argument's valid values."""
        if self.accepts is not None:
            return self.accepts[1]
        if self.component_kind:
            numbers = sorted((places or {}).get(self.component_kind, ()))
            return f"the number of a {self.component_kind}: {_listing(numbers)}"
        ends = ["" if math.isinf(end) else f"{end:g}" for end in (self.low, self.high)]
        span = f"{ends[0]} to {ends[1]}" if all(ends) else f"at least {ends[0]}" if ends[0] else "any number"
        return f"{span} {self.unit}".rstrip()


@dataclass(frozen=True)
class ScriptedFault:
    """One fault.

    Attributes:
        begin: Starts the fault on its target, with the arguments by name.
        end: Ends the fault, with the same arguments; ``None`` if it cannot be undone.
        places: Returns the numbers of the device's components, by kind of component (such as ``port``).
        is_present: Whether a fault that was started is still present; ``None`` for a fault that stays until ``end``.
        may_precede: Whether the condition may be present before the fault is started.
        happens_once: Whether the fault has no further effect when it is started again.
        is_momentary: Whether a fault that cannot be undone is over once it was started, such as a reset.
    """

    name: str
    effect: str
    arguments: tuple[Argument, ...] = ()
    begin: Callable[..., None] = field(default=lambda *_: None, repr=False)
    end: Callable[..., None] | None = field(default=None, repr=False)
    places: Callable[[Any], Places] = field(default=_no_places, repr=False)
    is_present: Callable[[Any], bool] | None = field(default=None, repr=False)
    may_precede: bool = False
    happens_once: bool = False
    is_momentary: bool = False

    def validated(self, given_values: Mapping[str, Any], places: Places) -> dict[str, Any]:
        """Check the arguments of the fault and return them, defaults included.

        Raises ``ConfigError`` for a missing or unknown argument or a wrong type, ``LimitError`` for a value out of
        range.
        """
        names = [argument.name for argument in self.arguments]
        accepted = f"Arguments: {self.signature() or 'none'}."
        for name in given_values:
            if name not in names:
                raise ConfigError(f"{self.name} has no argument {name}", hint=accepted)
        values = {}
        for argument in self.arguments:
            value = given_values.get(argument.name, argument.default)
            if value is None:
                raise ConfigError(f"{self.name} needs {argument.name}", hint=accepted)
            values[argument.name] = argument.validated(self.name, value, places)
        return values

    def signature(self) -> str:
        """Return name, meaning, range and default of each argument as text."""
        return "; ".join(f"{argument.name}: {argument.effect}{_span(argument)}" for argument in self.arguments)


def _span(argument: Argument) -> str:
    span = "" if argument.component_kind or argument.accepts else argument.describe_values()
    default = "" if argument.default is None else f"default {argument.default:g}"
    return f" ({', '.join(filter(None, (span, default)))})" if span or default else ""


def find_fault(faults: Iterable[ScriptedFault], name: str, target_name: str) -> ScriptedFault:
    """Return the fault with a given name. Raises ``ConfigError`` if there is none."""
    by_name = {fault.name: fault for fault in faults}
    if name not in by_name:
        raise ConfigError(
            f"{target_name} has no fault {name}", hint=f"{suggestion(name, by_name)}Its faults: {', '.join(by_name)}."
        )
    return by_name[name]


def suggestion(name: str, valid_names: Iterable[str]) -> str:
    """Return a sentence that suggests a similar valid name; an empty string if there is none."""
    matches = difflib.get_close_matches(str(name), valid_names, 1)
    return f"Do you mean {matches[0]}? " if matches else ""


def markdown(faults: Iterable[tuple[str, ScriptedFault]]) -> str:
    """Return the Markdown table of faults, from pairs of owner and fault."""
    owners: dict[str, list[str]] = {}
    for owner, fault in faults:
        ends = "yes" if fault.end is not None else "–"
        row = f"| `{fault.name}` | {{}} | {fault.signature() or '–'} | {fault.effect} | {ends} |"
        owners.setdefault(row, []).append(owner)
    head = ["| fault | of | arguments | what happens | ends |", "|---|---|---|---|---|"]
    return "\n".join([*head, *(row.format(", ".join(names)) for row, names in owners.items())])


def _number(value: Any) -> float | None:
    # float() would accept True and "1".
    if isinstance(value, (bool, str, bytes)):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _listing(numbers: Sequence[int]) -> str:
    if not numbers:
        return "there is none"
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))
