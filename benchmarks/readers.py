"""Draw a sample of docstrings, messages and paragraphs for a readers' test.

Run: .venv/bin/python benchmarks/readers.py --seed N > sample.md

Two readers who know optics and firmware, and not this code, get the sample and nothing else. They mark each item as
clear, read twice or guessed, and say in their own words what it means. The goal: at least 90 of 100 items clear, at
most 2 guessed, and everything restated correctly.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parents[1]
PACKAGES = ("calibration", "lumion_hw", "firmware_protocol")
COUNTS = {"docstring": 40, "message": 40, "paragraph": 20}
_MIN_WORDS = 4
_PARAGRAPH_WORDS = 12
_SPOKEN = {"note", "say", "warn", "fail", "ctx.fail", "self.fail"}
"""Calls other than errors and logs whose first argument a user reads."""
_LOGGED = {"debug", "info", "warning", "error", "exception"}


@dataclass(frozen=True)
class Item:
    """One text of the sample.

    Attributes:
        kind: ``docstring``, ``message`` or ``paragraph``.
        place: File and function or heading.
        text: What the reader sees.
    """

    kind: str
    place: str
    text: str


def docstrings(path: Path, tree: ast.Module) -> Iterator[Item]:
    """Yield the docstrings of a module, its classes and functions."""
    for node, name in _named(tree):
        text = ast.get_docstring(node) if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) else None
        if text and len(text.split()) >= _MIN_WORDS:
            yield Item("docstring", f"{path}{f': {name}' if name else ''}", inspect.cleandoc(text))


def messages(path: Path, tree: ast.Module) -> Iterator[Item]:
    """Yield the messages of a module: errors with their hints, warnings, log lines, help texts."""
    for node, name in _named(tree):
        for call in _own_calls(node):
            text = _message(call)
            if text and len(text.split()) >= _MIN_WORDS:
                yield Item("message", f"{path}{f': {name}' if name else ''}", text)


def paragraphs(path: Path) -> Iterator[Item]:
    """Yield the paragraphs of a page of the docs, without code, tables and headings."""
    heading, text = "", re.sub(r"^(```|~~~).*?^\1\s*$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    for part in re.split(r"\n\s*\n", text):
        block = part.strip()
        if part.lstrip().startswith("#"):
            first, _, rest = block.partition("\n")
            heading, block = first.lstrip("# "), rest.strip()
        if block and not block.startswith(("|", "<", "    ", "!!!", "---")) and len(block.split()) >= _PARAGRAPH_WORDS:
            yield Item("paragraph", f"{path.relative_to(HERE)}: {heading}", block)


def items() -> list[Item]:
    """Return all texts of the checkout."""
    texts: list[Item] = []
    for package in PACKAGES:
        for path in sorted((HERE / package).rglob("*.py")):
            tree, place = ast.parse(path.read_text()), path.relative_to(HERE)
            texts += [*docstrings(place, tree), *messages(place, tree)]
    for path in sorted((HERE / "docs").rglob("*.md")):
        if "generated" not in path.read_text()[:600].lower():
            texts += paragraphs(path)
    return [*texts, *paragraphs(HERE / "README.md")]


def _named(tree: ast.Module) -> Iterator[tuple[ast.Module | ast.ClassDef | ast.FunctionDef, str]]:
    stack: list[tuple[ast.Module | ast.ClassDef | ast.FunctionDef, str]] = [(tree, "")]
    while stack:
        node, name = stack.pop()
        yield node, name
        for child in ast.walk(node):
            if isinstance(child, (ast.ClassDef, ast.FunctionDef)) and child in getattr(node, "body", ()):
                stack.append((child, f"{name}.{child.name}".lstrip(".")))


def _own_calls(node: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls in a node, those of nested classes and functions left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.ClassDef, ast.FunctionDef)):
            for decorator in child.decorator_list:
                yield from (call for call in ast.walk(decorator) if isinstance(call, ast.Call))
            continue
        if isinstance(child, ast.Call):
            yield child
        yield from _own_calls(child)


def _message(call: ast.Call) -> str | None:
    function = ast.unparse(call.func)
    name = function.rpartition(".")[2]
    if hint := next((_text(word.value) for word in call.keywords if word.arg == "help"), None):
        option = next((_text(argument) for argument in call.args if (_text(argument) or "").startswith("-")), "")
        return f"(help) {option}  {hint}".strip()
    spoken = name.endswith("Error") or name == "error" or function in _SPOKEN or name in {"note", "say"}
    logged = name in _LOGGED and "log" in function.lower()
    if not (spoken or logged):
        return None
    text = next((text_part for argument in call.args if (text_part := _text(argument)) and " " in text_part), None)
    if text is None:
        return None
    hint = next((_text(word.value) for word in call.keywords if word.arg == "hint"), None)
    if hint is None:
        return text
    return f"{text} {hint}" if text.endswith((".", "!", "?", ":")) else f"{text}. {hint}"


def _text(node: ast.expr) -> str | None:
    """Return a string as the code has it, with what is filled in as ``{name}``."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = (
            part.value if isinstance(part, ast.Constant) else f"{{{ast.unparse(part.value)}}}"  # type: ignore[attr-defined]
            for part in node.values
        )
        return "".join(map(str, parts))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _text(node.left), _text(node.right)
        return left + right if left is not None and right is not None else None
    if isinstance(node, ast.IfExp):
        return _text(node.body) or _text(node.orelse)
    return None


def main() -> None:
    """Print a sample as a page of numbered items."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="Random seed.")
    seed: int = parser.parse_args().seed
    rng, texts, number = random.Random(seed), items(), 0
    for kind, count in COUNTS.items():
        for item in rng.sample([item for item in texts if item.kind == kind], count):
            number += 1
            print(f"## {number}. {kind} ({item.place})\n\n{item.text}\n")


if __name__ == "__main__":
    main()
