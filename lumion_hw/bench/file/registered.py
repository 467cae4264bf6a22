"""Finds registered Python entry points: kinds of devices and failure detectors, of this and other packages.

In a checkout, those of this package are read from ``pyproject.toml``.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import Distribution, EntryPoint, distributions
from pathlib import Path

from lumion_hw.errors import ConfigError

OWN = "lumion-hw"
REINSTALL_HINT = "Reinstall lumion-hw: pip install --force-reinstall --no-deps lumion-hw, or -e . in a checkout."
_CHECKOUT = Path(__file__).parents[3] / "pyproject.toml"


@dataclass(frozen=True)
class Registration:
    """A Python entry point and the name of its package."""

    package: str
    entry: EntryPoint

    def __str__(self) -> str:
        return f"package {self.package}, entry point '{self.entry.name} = {self.entry.value}'"


def registrations(group: str) -> dict[str, list[Registration]]:
    """Return the entry points of a group by name; several packages may register the same name.

    Raises:
        ConfigError: This package has no entry point in the group; the installation is damaged.
    """
    return _sources(group, tuple(sys.path))


@lru_cache(maxsize=8)
def _sources(group: str, _path: tuple[str, ...]) -> dict[str, list[Registration]]:
    sources: dict[str, list[Registration]] = {}
    own = tuple(_checkout_entries(group))
    for source in (*own, *_installed(group, excluded=OWN if own else None)):
        sources.setdefault(source.entry.name, []).append(source)
    if not any(source.package == OWN for named in sources.values() for source in named):
        raise ConfigError(f"lumion-hw has no entry points in the group {group}", hint=REINSTALL_HINT)
    return sources


def _checkout_entries(group: str) -> Iterator[Registration]:
    head = f'[project.entry-points."{group}"]\n'
    text = _CHECKOUT.read_text(encoding="utf-8") if _CHECKOUT.is_file() else ""
    if f'name = "{OWN}"' in text:
        # Only this table is parsed, to save time at the start of the program.
        rows = tomllib.loads(text.partition(head)[2].partition("\n[")[0])
        yield from (Registration(OWN, EntryPoint(name, value, group)) for name, value in rows.items())


def _installed(group: str, excluded: str | None) -> Iterator[Registration]:
    known_names = {excluded}
    for distribution in distributions():
        text = distribution.read_text("entry_points.txt")
        if text is None or f"[{group}]" not in text:
            continue
        name = _name(distribution)
        # Otherwise a package that is twice on the path would conflict with itself.
        if name not in known_names:
            known_names.add(name)
            yield from (Registration(name, entry) for entry in _entries(distribution, group))


def _name(distribution: Distribution) -> str:
    return str(distribution.metadata["Name"] or "unnamed").replace("_", "-").lower()


def _entries(distribution: Distribution, group: str) -> Iterable[EntryPoint]:
    return distribution.entry_points.select(group=group)
