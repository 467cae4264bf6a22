"""JSON that every reader takes: NaN and infinity, which JSON does not have, become ``null``."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lumion_hw.errors import ConfigError


def json_text(
    document: Any,
    *,
    indent: int | None = None,
    compact: bool = False,
    default: Callable[[Any], Any] | None = None,
    ascii_only: bool = True,
) -> str:
    """Return a document as JSON text (RFC 8259).

    A number that is none has no place in JSON, and must not end a program that only shows or logs it: a NaN or infinite
    value becomes ``null``, wherever it stands.

    Args:
        document: What JSON knows, and what ``default`` turns into that.
        indent: Spaces of each level; one line by default.
        compact: Without blanks.
        default: Returns what stands for a value that JSON does not know.
        ascii_only: Write other characters as escapes.

    Raises:
        TypeError: It holds what neither JSON nor ``default`` knows.
        ValueError: It contains itself.
    """
    form: dict[str, Any] = {"indent": indent, "ensure_ascii": ascii_only}
    if compact:
        form["separators"] = (",", ":")
    try:
        return json.dumps(document, allow_nan=False, default=default, **form)
    except ValueError:
        # Rare, so at leisure: written with the tokens of Python, and read back with null in their place.
        plain = json.loads(json.dumps(document, default=default), parse_constant=lambda _: None)
        return json.dumps(plain, allow_nan=False, **form)


def check_numbers(document: Mapping[str, Any], what: str) -> None:
    """Refuse a document that holds NaN or infinity, for files that this program works with when it reads them again.

    Raises:
        ConfigError: It does; the message names the place.
    """
    for place, number in _numbers(document, ""):
        if not math.isfinite(number):
            raise ConfigError(f"{what} cannot be written: {place} is {number}", hint="Give a number, or leave it out.")


def _numbers(value: Any, place: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _numbers(each, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple):
        for number, each in enumerate(value):
            yield from _numbers(each, f"{place}[{number}]")
    elif isinstance(value, float):
        yield place, value
