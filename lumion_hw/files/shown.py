"""Text from files and devices where it is shown: it is read, and takes no effect on terminal, page or spreadsheet."""

from __future__ import annotations

import re
import unicodedata
from html import escape

_EFFECTIVE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories of control characters, of what formats or turns text unseen, and of separators."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def one_line(text: object) -> str:
    """Return text for one line of a terminal: whatever would take effect is written as an escape, line ends too."""
    return "".join(_escape(letter) if unicodedata.category(letter) in _EFFECTIVE else letter for letter in str(text))


def lines(text: str) -> str:
    """Return text for a terminal, line by line: only line ends take effect."""
    return "\n".join(one_line(line) for line in text.split("\n"))


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")


def csv_cell(cell: object) -> object:
    """Return a cell for a table of comma-separated values: text that a spreadsheet would reckon gets a ' before it.

    OWASP, "CSV Injection": cells that begin with = + - @ tab or carriage return are taken for formulas.
    """
    if not isinstance(cell, str):
        return "" if cell is None else cell
    text = one_line(cell)
    return f"'{text}" if cell.startswith(_FORMULA) else text


def markdown(text: object) -> str:
    """Return text that Markdown shows as it is, on one line."""
    plain = one_line(" ".join(str(text).split()))
    return re.sub(r"([\\`*_\[\]|#])", r"\\\1", escape(plain, quote=False))


def xml_text(text: object) -> str:
    """Return text that HTML and SVG show as it is; XML may not even hold control characters."""
    return escape(one_line(text))
