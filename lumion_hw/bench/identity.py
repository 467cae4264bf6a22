"""Identities (model, serial number, firmware) of the devices of an open bench."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lumion_hw.bench.bench import Bench
from lumion_hw.interfaces import ControllerInfo


@dataclass(frozen=True)
class DeviceIdentity:
    """Identity that a device reports; empty fields are unknown.

    For a module, ``model`` contains vendor and part number.
    """

    kind: str
    model: str = ""
    serial: str = ""
    firmware: str = ""

    def contradicts(self, other: DeviceIdentity) -> bool:
        """Return whether two identities belong to different devices. Unknown fields and the firmware are ignored."""
        fields = ((self.kind, other.kind), (self.model, other.model), (self.serial, other.serial))
        return any(first and second and first != second for first, second in fields)

    def __str__(self) -> str:
        serial = f", serial {self.serial}" if self.serial else ""
        return f"{self.model or self.kind}{serial}"


def device_identities(bench: Bench, names: Collection[str] | None = None) -> dict[str, DeviceIdentity]:
    """Return the identities of the open devices in ``names`` (by default all), in the order of the bench file.

    Raises:
        IdentityError: A module was replaced after the bench was opened.
        LinkError: A device does not answer.
    """
    queried = [name for name in bench.model.devices if names is None or name in names]
    return {name: _identity(bench, name, device) for name in queried if (device := bench.opened(name)) is not None}


def _identity(bench: Bench, name: str, device: object) -> DeviceIdentity:
    fields: tuple[object, ...]
    if name in bench.transponders:
        module = bench.transponders[name].identify()
        fields = (f"{module.vendor} {module.part_number}".strip(), module.serial, module.revision)
    elif isinstance(info := getattr(device, "info", None), ControllerInfo):
        fields = (info.model, info.serial, info.firmware)
    else:  # only meters and lasers have all of these attributes; other drivers have those that their device reports
        fields = tuple(getattr(device, attribute, "") for attribute in ("model", "serial", "firmware"))
    return DeviceIdentity(bench.model.devices[name].kind, *(str(value) for value in fields))
