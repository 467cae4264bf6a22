"""One device of a bench, opened through the driver of its kind."""

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
    """Return the connection to a device, not yet open.

    Args:
        model: Its entry in the bench file; its kind gives the line rate of a serial address without one.
        address: Where it is reached.
        clock: The bench's clock.

    Raises:
        ConfigError: The address has another form.
    """
    kind = kind_named(model.kind)
    return module_connection(address) or open_link(address, clock, DEFAULT_BAUD if kind is None else kind.baud)


def open_device(
    name: str, model: DeviceModel, link: Link | ModuleConnection | RemoteDevice, clock: Clock
) -> OpenDevice:
    """Open, identify and set up one device.

    Args:
        name: Device name of the bench file.
        model: Its entry in the bench file.
        link: A link or another connection to it, not yet open; or what stands for it, if another process has it open.
        clock: The bench's clock.

    Raises:
        ConfigError: There is no such kind, or another device answered.
        LinkError: The device cannot be reached.
    """
    if isinstance(link, RemoteDevice):
        return cast("OpenDevice", link)
    kind = kind_named(model.kind)
    if kind is None:
        raise ConfigError(f"there is no kind {model.kind!r} of devices", device=name)
    if isinstance(link, ModuleConnection) and not kind.module_connections:
        raise ConfigError(
            "the connection of a pluggable module leads to no other device",
            device=name,
            address=link.address,
            hint="Use tcp://, serial:// or visa://.",
        )
    device: OpenDevice = kind.open(name, model, link, clock)
    return device
