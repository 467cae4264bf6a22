"""Changes of the cross-connects and ports of the optical circuit switch, as one set of wanted circuits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationError

from lumion_hw.bench.file.fields import StrictModel
from lumion_hw.circuits import CircuitRequest
from lumion_hw.errors import ConfigError
from lumion_hw.files.json_text import json_text
from lumion_hw.files.reading import path_exists, read_json
from lumion_hw.files.writing import write_file
from lumion_hw.serving.ocs.ports import OcsPort, OcsPorts

SETTINGS = "ocs.json"
"""File in the state directory with labels, blocked ports and cross-connects of blocked ports."""
_FILE_KIND = "the settings of the switch ports"
PortState = Literal["normal", "force_blocked"]


class PortChange(StrictModel):
    """New settings of one port; settings that are left out stay as they are."""

    label: str | None = Field(None, max_length=128, description="Label for tracing cables.")
    state: PortState | None = Field(None, description="force_blocked keeps the port dark.")


class CrossConnectEntry(StrictModel):
    """One cross-connect; both sides may be left out, because the key names them."""

    a_side: str | None = Field(None, description="A-side port, where light enters.")
    b_side: str | None = Field(None, description="B-side port, where light leaves.")


class OcsChange(StrictModel):
    """A change of the switch, made as one commit or not at all."""

    model_config = ConfigDict(populate_by_name=True)

    mode: Literal["update", "safe", "overwrite"] = Field(
        "update",
        description="update removes cross-connects that use the same ports, safe refuses them, overwrite removes all "
        "other cross-connects.",
    )
    ports: dict[str, PortChange] = Field(default_factory=dict, alias="OCS_PORT", description="Ports by id.")
    cross_connects: dict[str, CrossConnectEntry] = Field(
        default_factory=dict, alias="OCS_CROSS_CONNECT", description="Cross-connects to add, by id such as 12A-18B."
    )
    delete: tuple[str, ...] = Field((), description="Cross-connects to remove.")
    dry_run: bool = Field(False, description="Plan the change without making it.")


class OcsSettings(StrictModel):
    """Settings of the switch that circuits do not show.

    Attributes:
        labels: Labels by port.
        blocked: Ports that are kept dark.
        held: Cross-connects that are not set up because one of their ports is blocked.
    """

    labels: dict[str, str] = Field(default_factory=dict)
    blocked: tuple[str, ...] = ()
    held: tuple[str, ...] = ()

    @classmethod
    def load(cls, directory: Path) -> OcsSettings:
        """Read the settings of a state directory.

        Raises:
            ConfigError: The file is damaged.
        """
        path = directory / SETTINGS
        if not path_exists(path, _FILE_KIND):
            return cls()
        try:
            return cls.model_validate(read_json(path, _FILE_KIND))
        except ValidationError as error:
            raise ConfigError(
                f"{path}: {_first(error)}", hint="Restore the file, or move it away to forget labels and blocked ports."
            ) from error

    def save(self, directory: Path) -> None:
        """Write the settings to a state directory. Raises ``LumionError`` if the disk is full."""
        write_file(directory / SETTINGS, _FILE_KIND, json_text(self.model_dump(), indent=2) + "\n", "any")


def parse_change(document: Mapping[str, Any]) -> OcsChange:
    """Return a change that a client has sent.

    Raises:
        ConfigError: A key is unknown, or a value has the wrong type; the message names the key.
    """
    try:
        return OcsChange.model_validate(document)
    except ValidationError as error:
        raise ConfigError(f"the change of the switch: {_first(error)}", hint="See /ocs/openapi.json.") from error


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the document'}: {first['msg']}"


def resolve(
    change: OcsChange, ports: OcsPorts, settings: OcsSettings, active: Sequence[CircuitRequest]
) -> tuple[OcsSettings, tuple[CircuitRequest, ...]]:
    """Return the settings and all wanted circuits after a change.

    Args:
        change: The change.
        ports: Ports of the switch.
        settings: Settings before the change.
        active: The circuits that are set up.

    Raises:
        ConfigError: A port or cross-connect does not exist, or is named twice, or is in use in mode ``safe``.
    """
    for port_id in change.ports:
        ports.find(port_id)
    added = _added(change, ports)
    configured = list(dict.fromkeys([*map(ports.name_of, active), *settings.held]))
    for name in change.delete:
        if name not in configured:
            raise ConfigError(f"there is no cross-connect {name[:40]!r} to delete")
        if name in added:
            raise ConfigError(f"cross-connect {name} is to be added and deleted in the same change")
    kept = [name for name in configured if name not in change.delete and name not in added]
    kept = list(_compatible(change, kept, added, ports))
    updated = _updated_settings(change, settings)
    wanted, held = list[str](), list[str]()
    for name in (*kept, *added):
        is_held = any(port.port_id in updated.blocked for port in ports.ends_of(name))
        (held if is_held else wanted).append(name)
    requests = {ports.name_of(request): request for request in active}  # they keep their limits
    return updated.model_copy(update={"held": tuple(held)}), tuple(
        requests.get(name) or _request(*ports.ends_of(name)) for name in wanted
    )


def _request(a_side: OcsPort, b_side: OcsPort) -> CircuitRequest:
    return CircuitRequest(a_side.module, b_side.module)


def _added(change: OcsChange, ports: OcsPorts) -> list[str]:
    most = min(len(ports.of_side("A")), len(ports.of_side("B")))
    if len(change.cross_connects) > most:
        raise ConfigError(
            f"the change has {len(change.cross_connects)} cross-connects, but this switch has ports for {most}"
        )
    users: dict[str, str] = {}
    for name, entry in change.cross_connects.items():
        a_side, b_side = ports.ends_of(name)
        for given, port, key in ((entry.a_side, a_side, "a_side"), (entry.b_side, b_side, "b_side")):
            if given is not None and given != port.port_id:
                raise ConfigError(f"cross-connect {name} has {key} {given[:40]!r}, but its id names {port.port_id}")
            if port.port_id in users:
                raise ConfigError(
                    f"port {port.port_id} is in two cross-connects, {users[port.port_id]} and {name}",
                    hint="Nothing was changed. Use each port once.",
                )
            users[port.port_id] = name
    return list(change.cross_connects)


def _compatible(change: OcsChange, kept: Sequence[str], added: Sequence[str], ports: OcsPorts) -> Iterator[str]:
    """Yield the present cross-connects that stay beside the added ones."""
    if change.mode == "overwrite":
        return
    users = {port.port_id: name for name in added for port in ports.ends_of(name)}
    for name in kept:
        shared = [port.port_id for port in ports.ends_of(name) if port.port_id in users]
        if shared and change.mode == "safe":
            raise ConfigError(
                f"port {shared[0]} of {users[shared[0]]} is in use by {name}",
                hint="Nothing was changed. Delete that cross-connect, or use mode update, which replaces it.",
            )
        if not shared:
            yield name


def _updated_settings(change: OcsChange, settings: OcsSettings) -> OcsSettings:
    labels, blocked = dict(settings.labels), dict.fromkeys(settings.blocked)
    for port_id, port in change.ports.items():
        if port.label is not None:
            labels[port_id] = port.label
        if port.state == "force_blocked":
            blocked[port_id] = None
        elif port.state == "normal":
            blocked.pop(port_id, None)
    return settings.model_copy(update={"labels": labels, "blocked": tuple(blocked)})


def check_not_blocked(requests: Sequence[CircuitRequest], ports: OcsPorts, settings: OcsSettings) -> None:
    """Raise ``ConfigError`` if a circuit would use a blocked port."""
    for port in ports.values():
        is_used = any(port.module == (r.source if port.side == "A" else r.target) for r in requests)
        if is_used and port.port_id in settings.blocked:
            raise ConfigError(
                f"port {port.port_id} ({port.module}) is blocked", hint="Set its state to normal with POST /ocs/config."
            )
