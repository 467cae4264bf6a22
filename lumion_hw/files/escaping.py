"""Escapes text from files and devices, so that the text cannot control a terminal, web page or spreadsheet."""

from __future__ import annotations

import re
import unicodedata
from html import escape

_CONTROL = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories of control, format and surrogate characters and of separators."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def one_line(text: object) -> str:
    """Return text as one line, with control characters and line ends escaped."""
    return "".join(_escape(c) if unicodedata.category(c) in _CONTROL else c for c in str(text))


def lines(text: str) -> str:
    """Return text with control characters except line ends escaped."""
    return "\n".join(one_line(line) for line in text.split("\n"))


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def csv_cell(cell: object) -> object:
    """Return a cell of a CSV table; text that a spreadsheet would evaluate gets a leading ``'``.

    This is text that begins with = + - @, tab or carriage return (OWASP, "CSV Injection").
    """
    if not isinstance(cell, str):
        return "" if cell is None else cell
    text = one_line(cell)
    return f"'{text}" if cell.startswith(_FORMULA) else text


def markdown(text: object) -> str:
    """Return text escaped for Markdown, on one line."""
    joined = one_line(" ".join(str(text).split()))
    return re.sub(r"([\\`*_\[\]|#])", r"\\\1", escape(joined, quote=False))


def xml_text(text: object) -> str:
    """Return text escaped for HTML and SVG, with control characters as escapes."""
    return escape(one_line(text))
