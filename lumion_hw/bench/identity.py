"""Who the devices of an open bench say they are."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lumion_hw.bench.bench import Bench
from lumion_hw.interfaces import ControllerInfo


@dataclass(frozen=True)
class DeviceIdentity:
    """What a device says of itself; empty where it says nothing.

    Attributes:
        kind: Kind in the bench file.
        model: Model, or vendor and part number of a module.
        serial: Serial number.
        firmware: Firmware version.
    """

    kind: str
    model: str = ""
    serial: str = ""
    firmware: str = ""

    def contradicts(self, other: DeviceIdentity) -> bool:
        """Tell whether these are two devices, as far as both say who they are; firmware may be updated."""
        said = ((self.kind, other.kind), (self.model, other.model), (self.serial, other.serial))
        return any(one and another and one != another for one, another in said)

    def __str__(self) -> str:
        """Return one line, such as ``N7744A, serial MY00000044``."""
        serial = f", serial {self.serial}" if self.serial else ""
        return f"{self.model or self.kind}{serial}"


def device_identities(bench: Bench, names: Collection[str] | None = None) -> dict[str, DeviceIdentity]:
    """Return who the open devices of a bench say they are, by name, in the order of the bench file.

    Args:
        bench: The open bench.
        names: Which devices are asked; all that are open if not given.

    Raises:
        IdentityError: A module is another one than that which was opened.
        LinkError: A device does not answer.
    """
    asked = [name for name in bench.model.devices if names is None or name in names]
    return {name: _identity(bench, name, device) for name in asked if (device := bench.opened(name)) is not None}


def _identity(bench: Bench, name: str, device: object) -> DeviceIdentity:
    said: tuple[object, ...]
    if name in bench.transponders:
        module = bench.transponders[name].identify()
        said = (f"{module.vendor} {module.part_number}".strip(), module.serial, module.revision)
    elif isinstance(info := getattr(device, "info", None), ControllerInfo):
        said = (info.model, info.serial, info.firmware)
    else:  # of the interfaces only meters and lasers promise it; other drivers tell what their device tells
        said = tuple(getattr(device, what, "") for what in ("model", "serial", "firmware"))
    return DeviceIdentity(bench.model.devices[name].kind, *(str(each) for each in said))
