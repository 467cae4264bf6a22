"""Opens a single device with the driver of its kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lumion_hw.bench.file.known_kinds import kind_named
from lumion_hw.bench.file.module_connection import ModuleConnection, module_connection
from lumion_hw.errors import ConfigError
from lumion_hw.links.address import DEFAULT_BAUD, open_link
from lumion_hw.remote.proxies import RemoteDevice

if TYPE_CHECKING:
    from lumion_hw.bench.file.devices import DeviceModel
    from lumion_hw.clock import Clock
    from lumion_hw.interfaces.open_device import OpenDevice
    from lumion_hw.links.base import Link


def link_to(model: DeviceModel, address: str, clock: Clock) -> Link | ModuleConnection:
    """Return the unopened connection to a device of a bench file.

    Raises:
        ConfigError: The address is invalid.
    """
    kind = kind_named(model.kind)
    return module_connection(address) or open_link(address, clock, DEFAULT_BAUD if kind is None else kind.baud)


def open_device(
    name: str, model: DeviceModel, link: Link | ModuleConnection | RemoteDevice, clock: Clock
) -> OpenDevice:
    """Open the device ``name``, check its identity, and apply the settings of the bench file.

    ``link`` is the unopened connection, or a proxy if another process has the device open.

    Raises:
        ConfigError: The kind does not exist, or another device answered.
        LinkError: The device cannot be reached.
    """
    if isinstance(link, RemoteDevice):
        return cast("OpenDevice", link)
    kind = kind_named(model.kind)
    if kind is None:
        raise ConfigError(f"unknown kind of device: {model.kind!r}", device=name)
    if isinstance(link, ModuleConnection) and not kind.module_connections:
        raise ConfigError(
            "this address has a form for pluggable modules only",
            device=name,
            address=link.address,
            hint="Use tcp://, serial:// or visa://.",
        )
    device: OpenDevice = kind.open(name, model, link, clock)
    return device
