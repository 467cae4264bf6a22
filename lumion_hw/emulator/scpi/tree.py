"""The SCPI command tree, built from the patterns of the declared commands.

Pattern language, as printed in manuals: ``:`` between mnemonics, mixed case for short and long form, ``[:NODE]`` for a
part that may be omitted, ``NODE[n]`` for a numeric suffix named ``n`` (lower case)::

    :SENSe[n][:CHANnel[m]]:CORRection[:LOSS[:INPut[:MAGNitude]]]
    [:SENSe]:POWer[:DC]:RANGe:AUTO
    *IDN
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

from lumion_hw.emulator.scpi import errors
from lumion_hw.emulator.scpi.commands import Form, ScpiCommand
from lumion_hw.emulator.scpi.errors import ScpiError
from lumion_hw.emulator.scpi.formats import forms
from lumion_hw.emulator.scpi.parameters import ScpiBlock
from lumion_hw.errors import ConfigError

_PATTERN_TOKEN = re.compile(r"\[:|\]|:?(?P<word>\*?[0-9]*[A-Za-z][A-Za-z0-9]*)(?:\[(?P<suffix>[a-z]+)\])?")


@dataclass(frozen=True)
class SuffixRange:
    """Range and default of a numeric suffix in a header."""

    first: int
    last: int
    default: int = 1


@dataclass(frozen=True)
class _Node:
    """One keyword of a command pattern, with the name of its numeric suffix."""

    spelling: str
    suffix: str = ""


class _Branch:
    """Commands below one keyword, and the forms of the command that ends here.

    Attributes:
        forms_by_query: For the query form and the other one: its nodes, its position among the forms of the instrument,
            and the default of every suffix.
    """

    def __init__(self) -> None:
        self.children: dict[str, _Branch] = {}
        self.forms_by_query: dict[bool, tuple[tuple[_Node, ...], int, Mapping[str, int]]] = {}


class _Header(NamedTuple):
    """A pattern and the positions of its two forms among the forms of the instrument; ``None`` for no such form."""

    pattern: str
    set: int | None
    query: int | None


@cache  # hundreds of instruments are made, but of only a few types
def _parse_pattern(pattern: str) -> tuple[tuple[_Node, ...], ...]:
    """Return all node sequences of a header pattern, with and without each optional part."""
    stack: list[list[tuple[_Node, ...]]] = [[()]]
    position = 0
    while position < len(pattern):
        match = _PATTERN_TOKEN.match(pattern, position)
        if match is None or (match[0] == "]" and len(stack) == 1):
            raise ConfigError(
                f"pattern {pattern!r} cannot be parsed from column {position + 1}: {pattern[position:]!r}"
            )
        position = match.end()
        if match[0] == "[:":
            stack.append([()])
        elif match[0] == "]":
            inner = stack.pop()
            # With and without the part in brackets.
            stack[-1] = [head + tail for head in stack[-1] for tail in ((), *inner)]
        else:
            node = _Node(match["word"], match["suffix"] or "")
            stack[-1] = [(*head, node) for head in stack[-1]]
    if len(stack) != 1 or () in stack[0]:
        raise ConfigError(f"pattern {pattern!r} has an open bracket or nothing outside brackets")
    return tuple(dict.fromkeys(stack[0]))


@lru_cache(maxsize=128)
def _shared_root(headers: tuple[_Header, ...], suffixes: tuple[tuple[str, SuffixRange], ...]) -> _Branch:
    """Return the root of the branches that all instruments with these headers share. Nothing changes them later."""
    root, ranges = _Branch(), dict(suffixes)
    for header in headers:
        sequences = _parse_pattern(header.pattern)
        names = {node.suffix for nodes in sequences for node in nodes if node.suffix}
        missing = sorted(names - set(ranges))
        if missing:
            raise ConfigError(f"pattern {header.pattern!r} uses the suffix {missing[0]!r}, which has no range")
        defaults = {name: ranges[name].default for name in names}
        for nodes in sequences:
            branch = _branch_at(root, nodes)
            for is_query, form in ((False, header.set), (True, header.query)):
                if form is None:
                    continue
                if branch.forms_by_query.setdefault(is_query, (nodes, form, defaults))[1] != form:
                    raise ConfigError(f"pattern {header.pattern!r} claims a header of another command")
    return root


def _branch_at(root: _Branch, nodes: tuple[_Node, ...]) -> _Branch:
    """Return the branch of a node sequence; make it if it is missing."""
    branch = root
    for node in nodes:
        # Short and long form give the same branch, also in the patterns of other commands.
        branches = {id(child): child for form in forms(node.spelling) if (child := branch.children.get(form))}
        if len(branches) > 1:
            raise ConfigError(f"{node.spelling!r} shares a short or long form with two other mnemonics")
        child = next(iter(branches.values()), None) or _Branch()
        branch.children.update(dict.fromkeys(forms(node.spelling), child))
        branch = child
    return branch


class Tree:
    """Command tree of an instrument, which finds the command of a received header.

    Args:
        suffixes: Range of every numeric suffix named in the patterns.
        aliases: Additional patterns, each with the equivalent documented pattern.

    Attributes:
        has_blocks: Whether any command has a block parameter.

    Raises:
        ConfigError: A pattern cannot be parsed, two commands claim one header, a suffix has no range, or an alias
            stands for an undeclared pattern.
    """

    def __init__(
        self,
        commands: Iterable[ScpiCommand],
        suffixes: Mapping[str, SuffixRange],
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        declared = tuple(commands)
        by_pattern = {command.pattern: command for command in declared}
        spellings = [(command.pattern, command) for command in declared]
        for alias, pattern in (aliases or {}).items():
            if pattern not in by_pattern:
                raise ConfigError(f"alias {alias!r} stands for {pattern!r}, which is not declared")
            spellings.append((alias, by_pattern[pattern]))
        every = {id(form): form for command in declared for form in (command.set, command.query) if form is not None}
        positions = {key: position for position, key in enumerate(every)}
        headers = tuple(
            _Header(pattern, positions.get(id(command.set)), positions.get(id(command.query)))
            for pattern, command in spellings
        )
        # The handlers belong to one instrument, and the branches to all instruments with the same headers.
        self._forms = tuple(every.values())
        self._root = _shared_root(headers, tuple(suffixes.items()))
        self._suffixes = suffixes
        self.has_blocks = any(isinstance(parameter, ScpiBlock) for form in self._forms for parameter in form.parameters)

    def find(self, mnemonics: Iterable[str], *, query: bool) -> tuple[Form, dict[str, int]]:
        """Return form and suffixes of a header. Raises ``ScpiError`` -112 or -113 if unknown, -114 for a bad suffix."""
        branch, numbers = self._root, []
        for mnemonic in mnemonics:
            branch, number = self._step(branch, mnemonic)
            numbers.append(number)
        entry = branch.forms_by_query.get(query)
        if entry is None:
            raise ScpiError(errors.UNDEFINED_HEADER)
        nodes, position, defaults = entry
        return self._forms[position], {**defaults, **dict(self._check(nodes, numbers))}

    def _step(self, branch: _Branch, mnemonic: str) -> tuple[_Branch, str]:
        upper = mnemonic.upper()
        # First without splitting: a mnemonic may end in digits.
        child = branch.children.get(upper)
        if child is not None:
            return child, ""
        stem = upper.rstrip("0123456789")
        child = branch.children.get(stem)
        if child is None:
            raise ScpiError(errors.MNEMONIC_TOO_LONG if len(mnemonic) > 12 else errors.UNDEFINED_HEADER)
        return child, upper[len(stem) :]

    def _check(self, nodes: tuple[_Node, ...], numbers: list[str]) -> Iterator[tuple[str, int]]:
        if any(number and not node.suffix for node, number in zip(nodes, numbers, strict=True)):
            raise ScpiError(errors.UNDEFINED_HEADER)
        for node, number in zip(nodes, numbers, strict=True):
            if number:
                allowed = self._suffixes[node.suffix]
                # Nine digits are far beyond any range and protect int() from very long input.
                if len(number) > 9 or not allowed.first <= int(number) <= allowed.last:
                    raise ScpiError(errors.SUFFIX_OUT_OF_RANGE)
                yield node.suffix, int(number)
