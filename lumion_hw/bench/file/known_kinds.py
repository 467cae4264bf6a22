"""Which kinds of devices there are: entry points of the group ``lumion_hw.kinds``, loaded when something names them."""

from __future__ import annotations

from functools import lru_cache

from lumion_hw.bench.file.kind import DeviceKind
from lumion_hw.bench.file.registered import ANEW, OWN, Registration, registrations
from lumion_hw.bench.file.roles import Role
from lumion_hw.errors import ConfigError

GROUP = "lumion_hw.kinds"
"""Group of the entry points: the name is that of the kind, the object a ``DeviceKind``."""


class UnusableKindError(ConfigError):
    """A kind is registered and cannot be used."""


def kind_names() -> list[str]:
    """Return the names of all kinds, whether they can be loaded or not."""
    return sorted(registrations(GROUP))


def kind_named(name: str) -> DeviceKind | None:
    """Return a kind, ``None`` if there is none of this name.

    Raises:
        UnusableKindError: It is registered twice, or cannot be loaded.
    """
    sources = registrations(GROUP).get(name)
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
    for name in kind_names():
        try:
            kind = kind_named(name)
        except UnusableKindError as error:
            failures.append(error)
        else:
            usable += [] if kind is None else [kind]
    roles = list(Role)
    return sorted(usable, key=lambda kind: (roles.index(kind.role), kind.name)), failures


def builtin_kinds() -> list[DeviceKind]:
    """Return the kinds of this package, by role and name."""
    own = {name for name, sources in registrations(GROUP).items() if sources[0].package == OWN}
    return [kind for kind in all_kinds()[0] if kind.name in own]


class KindRegistry:
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


@lru_cache(maxsize=256)
def _load(source: Registration) -> DeviceKind:
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


def _unusable(source: Registration, why: str) -> UnusableKindError:
    hint = ANEW if source.package == OWN else "Repair or uninstall this package."
    return UnusableKindError(f"the kind {source.entry.name!r} cannot be used ({source}): {why}", hint=hint)
