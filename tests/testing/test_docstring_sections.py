"""Entries of docstring sections are ``name: text``, and lines that continue an entry are indented further.

The reference of the book is made from them: an entry that is broken at the wrong indent becomes an argument of its own.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECTION = re.compile(r"^(Args|Attributes|Raises):$")
SECTIONS = re.compile(r"^ *(Args|Attributes|Raises):$", re.MULTILINE)
ENTRY = re.compile(r"^    \*{0,2}[\w.`, ~:()]+:(\s|$)")


def broken_entries(docstring: str) -> Iterator[str]:
    """Return lines of sections that stand where an entry begins and are none."""
    inside = False
    if not SECTIONS.search(docstring):
        return  # most docstrings: to remove the indent takes longer than the rest
    for line in inspect.cleandoc(docstring).splitlines():
        if SECTION.match(line):
            inside = True
        elif line and not line.startswith(" "):
            inside = False
        elif inside and re.match(r"^    \S", line) and not ENTRY.match(line):
            yield line.strip()


def test_entries_of_sections_are_whole() -> None:
    broken = []
    for package in ("lumion_hw", "calibration", "firmware_protocol"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    lines = broken_entries(ast.get_docstring(node, clean=False) or "")
                    broken += [f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}: {line}" for line in lines]
    assert broken == []


def test_a_broken_entry_is_found() -> None:
    assert list(broken_entries("Do it.\n\nArgs:\n    a: A value of\n        two lines.\n    and a third.")) == [
        "and a third."
    ]
