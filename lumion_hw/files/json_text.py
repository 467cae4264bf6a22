"""Writes standard JSON: NaN and infinity become ``null``."""

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

    NaN and infinity become ``null``.

    Args:
        document: JSON values, and values that ``default`` converts.
        indent: Spaces per level; by default a single line.
        compact: Whether to omit blanks.
        default: Converts a value of another type to a JSON value.
        ascii_only: Whether to write non-ASCII characters as escapes.

    Raises:
        TypeError: A value is of a type that neither JSON nor ``default`` supports.
        ValueError: The document contains itself.
    """
    form: dict[str, Any] = {"indent": indent, "ensure_ascii": ascii_only}
    if compact:
        form["separators"] = (",", ":")
    try:
        return json.dumps(document, allow_nan=False, default=default, **form)
    except ValueError:
        # Rare, so speed does not matter: write Python's NaN tokens, and replace them by null while reading back.
        cleaned = json.loads(json.dumps(document, default=default), parse_constant=lambda _: None)
        return json.dumps(cleaned, allow_nan=False, **form)


def check_numbers(document: Mapping[str, Any], description: str) -> None:
    """Raise an error if a document contains NaN or infinity.

    Raises:
        ConfigError: A number is NaN or infinite; the message names its key.
    """
    for key, number in _numbers(document, ""):
        if not math.isfinite(number):
            raise ConfigError(
                f"cannot write {description}: {key} is {number}", hint="Give a finite number, or leave it out."
            )


def _numbers(value: Any, key: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _numbers(item, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _numbers(item, f"{key}[{number}]")
    elif isinstance(value, float):
        yield key, value


def rename_key(document: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    """Return a document with one key renamed; the order of the keys stays the same."""
    return {new if key == old else key: value for key, value in document.items()}
