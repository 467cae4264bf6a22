"""What this package and others register as entry points: kinds of devices, detectors of failures.

What this package has is registered in the same way as that of others. In a checkout its ``pyproject.toml`` is read in
place of what was written when it was installed, so that an old editable installation has it all.
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
ANEW = "Install lumion-hw anew: pip install --force-reinstall --no-deps lumion-hw, or -e . in a checkout."
_CHECKOUT = Path(__file__).parents[3] / "pyproject.toml"


@dataclass(frozen=True)
class Registration:
    """Where an entry point comes from."""

    package: str
    entry: EntryPoint

    def __str__(self) -> str:
        """Return package and entry point."""
        return f"package {self.package}, entry point '{self.entry.name} = {self.entry.value}'"


def registrations(group: str) -> dict[str, list[Registration]]:
    """Return where each entry point of a group comes from, by name.

    Raises:
        ConfigError: This package registers none.
    """
    return _sources(group, tuple(sys.path))


@lru_cache(maxsize=8)
def _sources(group: str, _path: tuple[str, ...]) -> dict[str, list[Registration]]:
    """Return the same; ``_path`` is where packages are looked for, and what is kept depends on it."""
    found: dict[str, list[Registration]] = {}
    own = tuple(_own_sources(group))
    for source in (*own, *_installed(group, without=OWN if own else None)):
        found.setdefault(source.entry.name, []).append(source)
    if not any(source.package == OWN for sources in found.values() for source in sources):
        raise ConfigError(f"lumion-hw has nothing registered under {group}", hint=ANEW)
    return found


def _own_sources(group: str) -> Iterator[Registration]:
    """Yield what this package registers, as its checkout has it; nothing where it is not a checkout."""
    head = f'[project.entry-points."{group}"]\n'
    text = _CHECKOUT.read_text(encoding="utf-8") if _CHECKOUT.is_file() else ""
    if f'name = "{OWN}"' in text:
        # Only this table is parsed: the rest of the file is of no use at a start.
        rows = tomllib.loads(text.partition(head)[2].partition("\n[")[0])
        yield from (Registration(OWN, EntryPoint(name, value, group)) for name, value in rows.items())


def _installed(group: str, without: str | None) -> Iterator[Registration]:
    """Yield what installed packages register. Of packages that are there twice the first one counts, as in imports."""
    seen = {without}
    for distribution in distributions():
        text = distribution.read_text("entry_points.txt")
        if text is None or f"[{group}]" not in text:
            continue
        name = _name(distribution)
        # A package that stands on the path twice would else collide with itself.
        if name not in seen:
            seen.add(name)
            yield from (Registration(name, entry) for entry in _entries(distribution, group))


def _name(distribution: Distribution) -> str:
    return str(distribution.metadata["Name"] or "without a name").replace("_", "-").lower()


def _entries(distribution: Distribution, group: str) -> Iterable[EntryPoint]:
    return distribution.entry_points.select(group=group)
