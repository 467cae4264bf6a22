"""Strict YAML reader that keeps the position of every key and value.

Scalars follow the core schema of YAML 1.2: ``no`` and ``12:30`` are text, ``017`` is 17 and ``1e-3`` is a number.
Duplicate keys, merge keys, aliases, tags, several documents and deep nesting are rejected.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from lumion_hw.bench.file.checks import Path

MAX_DEPTH = 20
MAX_KEYS = 10_000
MAX_VALUES = 40_000
"""Largest number of values in a file, to limit the processing time."""
_PREFIX = "tag:yaml.org,2002:"


@dataclass(frozen=True)
class Place:
    """A position in a text file; line and column start at 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Marks:
    """Positions of a value and of its key (``None`` for list entries and the whole document)."""

    key: Place | None
    value: Place


@dataclass(frozen=True)
class YamlFault:
    """Content that a bench file must not have, and its path."""

    path: Path
    place: Place
    message: str


@dataclass
class Document:
    """A YAML document as plain data.

    Attributes:
        data: Dictionaries, lists, text, numbers, booleans and ``None``.
        marks: Positions by path.
        faults: Rejected contents; ``data`` has everything else.
    """

    data: object = None
    marks: dict[Path, Marks] = field(default_factory=dict)
    faults: list[YamlFault] = field(default_factory=list)

    def place(self, path: Path, *, key: bool = False) -> Place:
        """Return the position of a value or key; if the path is not in the file, that of the enclosing value."""
        for length in range(len(path), -1, -1):
            marks = self.marks.get(path[:length])
            if marks is not None:
                return marks.key if key and length == len(path) and marks.key is not None else marks.value
        return Place(1, 1)


class _CoreLoader(yaml.SafeLoader):
    """YAML loader with the scalar types of YAML 1.2, and with limits on depth and size."""

    # A class attribute, because PyYAML looks resolvers up there and must not use the YAML 1.1 ones of SafeLoader.
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = self._keys = self._values = 0

    def compose_node(self, parent: yaml.Node | None, index: object) -> yaml.Node | None:
        """Compose one node. Raises ``MarkedYAMLError`` for aliases, and beyond the limits on depth and size."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if self.check_event(yaml.AliasEvent):
            message = f"aliases (*{event.anchor}) are not allowed in bench files: write the value out"
            raise yaml.MarkedYAMLError(problem=message, problem_mark=event.start_mark)
        # PyYAML recurses per level, so deep nesting would end in a RecursionError without a position.
        if self._depth >= MAX_DEPTH:
            message = f"nested deeper than {MAX_DEPTH} levels"
            raise yaml.MarkedYAMLError(problem=message, problem_mark=event.start_mark)
        self._values += 1
        # A key is composed with index None inside a mapping (PyYAML, Composer.compose_mapping_node).
        self._keys += isinstance(parent, yaml.MappingNode) and index is None
        for count, limit, unit in ((self._keys, MAX_KEYS, "keys"), (self._values, MAX_VALUES, "keys and values")):
            if count > limit:
                message = f"more than {limit} {unit}, the limit for bench files"
                raise yaml.MarkedYAMLError(problem=message, problem_mark=event.start_mark)
        self._depth += 1
        node: yaml.Node | None = super().compose_node(parent, index)  # type: ignore[arg-type]
        self._depth -= 1
        return node


# The core schema of YAML 1.2 (chapter 10.3.2), where ``no`` is text and ``12:30`` is not a base-60 number.
for _tag, _pattern, _first in (
    ("null", r"(?:~|null|Null|NULL|)\Z", ["~", "n", "N", ""]),
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)\Z", list("tTfF")),
    ("int", r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z", list("-+0123456789")),
    (
        "float",
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z",
        list("-+.0123456789"),
    ),
):
    _CoreLoader.add_implicit_resolver(_PREFIX + _tag, re.compile(_pattern), _first)


def read_yaml(text: str) -> Document:
    """Read one YAML document. Text that is not valid YAML gives a document without data and with one fault."""
    document = Document()
    try:
        loader = _CoreLoader(text)
        node = loader.get_single_node()
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        place = Place(len(before.splitlines() or [""]), error.position - (before.rfind("\n") + 1) + 1)
        document.faults.append(YamlFault((), place, f"expected text, found the character U+{error.character:04X}"))
        return document
    except yaml.MarkedYAMLError as error:
        document.faults.append(_syntax_fault(error))
        return document
    if node is None:
        document.faults.append(YamlFault((), Place(1, 1), "expected a bench file, found no content"))
        return document
    document.data = _value(document, node, (), None)
    return document


def _place(mark: yaml.Mark | None) -> Place:
    return Place(1, 1) if mark is None else Place(mark.line + 1, mark.column + 1)


def _syntax_fault(error: yaml.MarkedYAMLError) -> YamlFault:
    problem = str(error.problem)
    if "'\\t'" in problem:
        problem = "expected spaces, found a tab: YAML allows no tabs for indentation or between key and value"
    elif error.context is not None and error.context_mark is not None:
        problem = f"not valid YAML, {problem} ({error.context} that began in line {error.context_mark.line + 1})"
    return YamlFault((), _place(error.problem_mark or error.context_mark), problem)


def _value(document: Document, node: yaml.Node, path: Path, key: Place | None) -> object:
    document.marks[path] = Marks(key, _place(node.start_mark))
    if isinstance(node, yaml.MappingNode):
        _refuse_tag(document, node, path, "map")
        return _mapping(document, node, path)
    if isinstance(node, yaml.SequenceNode):
        _refuse_tag(document, node, path, "seq")
        return [_value(document, child, (*path, i), None) for i, child in enumerate(node.value)]
    return _scalar(document, node, path)


def _refuse_tag(document: Document, node: yaml.Node, path: Path, expected: str) -> None:
    if node.tag != _PREFIX + expected:
        fault = YamlFault(path, _place(node.start_mark), f"tags are not allowed in bench files, found {node.tag!r}")
        document.faults.append(fault)


def _mapping(document: Document, node: yaml.MappingNode, path: Path) -> dict[object, object]:
    data: dict[object, object] = {}
    key_places: dict[object, Place] = {}
    for key_node, value_node in node.value:
        place = _place(key_node.start_mark)
        if not isinstance(key_node, yaml.ScalarNode):
            document.faults.append(YamlFault(path, place, "expected a name as key, found a list or mapping"))
            continue
        if key_node.value == "<<" and key_node.style is None:
            message = "merge keys (<<) are not allowed in bench files: write the keys out"
            document.faults.append(YamlFault(path, place, message))
            continue
        key = _scalar(document, key_node, path)
        # Paths have keys as text, except numbers such as those of PUCs; true and 1 are different keys.
        child = (*path, key if isinstance(key, int) and not isinstance(key, bool) else str(key))
        if key in key_places:
            message = f"expected every key once, found {key!r} again (first in line {key_places[key].line})"
            document.faults.append(YamlFault(child, place, message))
            continue
        key_places[key] = place
        data[key] = _value(document, value_node, child, place)
    return data


def _scalar(document: Document, node: yaml.Node, path: Path) -> object:
    text = str(node.value)
    tag = node.tag.removeprefix(_PREFIX)
    try:
        if tag == "str":
            return text
        if tag == "null":
            return None
        if tag == "bool":
            return {"true": True, "false": False}[text.lower()]
        if tag == "int":
            return int(text, {"0x": 16, "0o": 8}.get(text[:2], 10))
        if tag == "float":
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    except (ValueError, KeyError):
        message = f"expected {tag}, found {text[:40]!r}"
    else:
        message = f"tags are not allowed in bench files, found {node.tag!r}"
    document.faults.append(YamlFault(path, _place(node.start_mark), message))
    return text
