"""The registered kinds of devices: entry points of the group ``lumion_hw.kinds``."""

from __future__ import annotations

from functools import lru_cache

from lumion_hw.bench.file.kind import DeviceKind
from lumion_hw.bench.file.registered import OWN, REINSTALL_HINT, Registration, registrations
from lumion_hw.bench.file.roles import Role
from lumion_hw.errors import ConfigError

GROUP = "lumion_hw.kinds"
"""Group of the entry points; each is named like a kind of device and refers to a ``DeviceKind``."""


class UnusableKindError(ConfigError):
    """A registered kind of device that cannot be imported or is invalid."""


def kind_names() -> list[str]:
    """Return the names of all registered kinds of devices, including kinds that cannot be imported."""
    return sorted(registrations(GROUP))


def kind_named(name: str) -> DeviceKind | None:
    """Return the kind with this name, or ``None`` if there is none.

    Raises:
        UnusableKindError: The kind is registered twice, or cannot be imported.
    """
    sources = registrations(GROUP).get(name)
    if sources is None:
        return None
    if len(sources) > 1:
        raise UnusableKindError(
            f"the kind {name!r} is registered {len(sources)} times: " + "; ".join(map(str, sources)),
            hint="Keep only one of these packages installed.",
        )
    return _load(sources[0])


def all_kinds() -> tuple[list[DeviceKind], list[UnusableKindError]]:
    """Return all usable kinds of devices, sorted by role and name, and the errors of the unusable kinds."""
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
    """Return the kinds of devices that come with this package, sorted by role and name."""
    own = {name for name, sources in registrations(GROUP).items() if sources[0].package == OWN}
    return [kind for kind in all_kinds()[0] if kind.name in own]


class KindRegistry:
    """The usable kinds of devices, for checks of bench files."""

    def get(self, name: str) -> DeviceKind | None:
        """Return the usable kind of device with this name, or ``None``."""
        try:
            return kind_named(name)
        except UnusableKindError:
            return None

    def with_role(self, *roles: Role) -> list[str]:
        """Return the names of the device kinds with one of the given roles, in the order of the roles."""
        usable = all_kinds()[0]
        return [kind.name for role in roles for kind in usable if kind.role is role]


@lru_cache(maxsize=256)
def _load(source: Registration) -> DeviceKind:
    try:
        kind = source.entry.load()
        reason = None if isinstance(kind, DeviceKind) else f"it is a {type(kind).__name__} and not a DeviceKind"
        if reason is None and kind.name != source.entry.name:
            reason = f"its model is of kind {kind.name!r}"
    except Exception as error:  # importing a module of another package may raise any exception
        raise _unusable(source, f"{type(error).__name__}: {error}") from error
    if reason is not None:
        raise _unusable(source, reason)
    return kind  # type: ignore[no-any-return]


def _unusable(source: Registration, reason: str) -> UnusableKindError:
    hint = REINSTALL_HINT if source.package == OWN else "Repair or uninstall this package."
    return UnusableKindError(f"the kind {source.entry.name!r} cannot be used ({source}): {reason}", hint=hint)
