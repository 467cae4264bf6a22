"""Which kinds of devices there are: entry points of the group ``lumion_hw.kinds``, loaded when something names them.

The kinds of this package are registered in the same way as those of others. In a checkout its ``pyproject.toml`` is
read in place of what was written when it was installed, so that an old editable installation has them all.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import Distribution, EntryPoint, distributions
from pathlib import Path

from lumion_hw.bench.kind import DeviceKind
from lumion_hw.bench.roles import Role
from lumion_hw.errors import ConfigError

GROUP = "lumion_hw.kinds"
"""Group of the entry points: the name is that of the kind, the object a ``DeviceKind``."""
_OWN = "lumion-hw"
_ANEW = "Install lumion-hw anew: pip install --force-reinstall --no-deps lumion-hw, or -e . in a checkout."
_CHECKOUT = Path(__file__).parents[2] / "pyproject.toml"


class UnusableKindError(ConfigError):
    """A kind is registered and cannot be used."""


@dataclass(frozen=True)
class _Registration:
    """Where a kind comes from."""

    package: str
    entry: EntryPoint

    def __str__(self) -> str:
        """Return package and entry point."""
        return f"package {self.package}, entry point '{self.entry.name} = {self.entry.value}'"


def known_names() -> list[str]:
    """Return the names of all kinds, whether they can be loaded or not."""
    return sorted(_sources(tuple(sys.path)))


def kind_named(name: str) -> DeviceKind | None:
    """Return a kind, ``None`` if there is none of this name.

    Raises:
        UnusableKindError: It is registered twice, or cannot be loaded.
    """
    sources = _sources(tuple(sys.path)).get(name)
    if sources is None:
        return None
    if len(sources) > 1:
        raise UnusableKindError(
            f"the kind {name!r} is registered {len(sources)} times: " + "; ".join(map(str, sources)),
            hint="Uninstall all packages of these but one.",
        )
    return _load(sources[0])


def all_kinds() -> tuple[list[DeviceKind], list[UnusableKindError]]:
    """Return all kinds that can be used, by role and name, and why the others cannot."""
    usable, failures = [], []
    for name in known_names():
        try:
            kind = kind_named(name)
        except UnusableKindError as error:
            failures.append(error)
        else:
            usable += [] if kind is None else [kind]
    roles = list(Role)
    return sorted(usable, key=lambda kind: (roles.index(kind.role), kind.name)), failures


def own_kinds() -> list[DeviceKind]:
    """Return the kinds of this package, by role and name."""
    own = {name for name, sources in _sources(tuple(sys.path)).items() if sources[0].package == _OWN}
    return [kind for kind in all_kinds()[0] if kind.name in own]


class KnownKinds:
    """The kinds as checks between the parts of a bench file ask for them; those that cannot be used are left out."""

    def get(self, name: str) -> DeviceKind | None:
        """Return a kind, ``None`` if there is none of this name that can be used."""
        try:
            return kind_named(name)
        except UnusableKindError:
            return None

    def with_role(self, *roles: Role) -> list[str]:
        """Return the names of the kinds that have one of these roles, in the order of the roles."""
        usable = all_kinds()[0]
        return [kind.name for role in roles for kind in usable if kind.role is role]


@lru_cache(maxsize=1)
def _sources(_path: tuple[str, ...]) -> dict[str, list[_Registration]]:
    """Return where each kind comes from; ``_path`` is where packages are looked for, and what is kept depends on it.

    Raises:
        ConfigError: This package registers none.
    """
    found: dict[str, list[_Registration]] = {}
    own = tuple(_own_sources())
    for source in (*own, *_installed(without=_OWN if own else None)):
        found.setdefault(source.entry.name, []).append(source)
    if not any(source.package == _OWN for sources in found.values() for source in sources):
        raise ConfigError("the kinds of devices of lumion-hw are not registered", hint=_ANEW)
    return found


def _own_sources() -> Iterator[_Registration]:
    """Yield the kinds of this package as its checkout registers them; nothing where it is not a checkout."""
    head = f'[project.entry-points."{GROUP}"]\n'
    text = _CHECKOUT.read_text(encoding="utf-8") if _CHECKOUT.is_file() else ""
    if f'name = "{_OWN}"' in text:
        # Only this table is parsed: the rest of the file is of no use at a start.
        rows = tomllib.loads(text.partition(head)[2].partition("\n[")[0])
        yield from (_Registration(_OWN, EntryPoint(name, value, GROUP)) for name, value in rows.items())


def _installed(without: str | None) -> Iterator[_Registration]:
    """Yield the kinds of installed packages. Of packages that are there twice the first one counts, as in imports."""
    seen = {without}
    for distribution in distributions():
        text = distribution.read_text("entry_points.txt")
        if text is None or f"[{GROUP}]" not in text:
            continue
        name = _name(distribution)
        # A package that stands on the path twice would else collide with itself.
        if name not in seen:
            seen.add(name)
            yield from (_Registration(name, entry) for entry in _entries(distribution))


def _name(distribution: Distribution) -> str:
    return str(distribution.metadata["Name"] or "without a name").replace("_", "-").lower()


def _entries(distribution: Distribution) -> Iterable[EntryPoint]:
    return distribution.entry_points.select(group=GROUP)


@lru_cache(maxsize=256)
def _load(source: _Registration) -> DeviceKind:
    """Import a kind. Raises ``UnusableKindError`` that names package and entry point."""
    try:
        kind = source.entry.load()
        why = None if isinstance(kind, DeviceKind) else f"it is a {type(kind).__name__} and not a DeviceKind"
        if why is None and kind.name != source.entry.name:
            why = f"its model is of kind {kind.name!r}"
    except Exception as error:  # code of others may raise anything when it is imported
        raise _unusable(source, f"{type(error).__name__}: {error}") from error
    if why is not None:
        raise _unusable(source, why)
    return kind  # type: ignore[no-any-return]


def _unusable(source: _Registration, why: str) -> UnusableKindError:
    hint = _ANEW if source.package == _OWN else "Repair or uninstall this package."
    return UnusableKindError(f"the kind {source.entry.name!r} cannot be used ({source}): {why}", hint=hint)
