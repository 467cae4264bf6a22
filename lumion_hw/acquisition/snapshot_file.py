"""What the file of a snapshot may hold."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr

from lumion_hw.bench.file.fields import Name, StrictModel

_Number = StrictFloat | StrictInt
_Value = StrictBool | _Number | StrictStr | tuple[_Number, ...] | None


class IdentityModel(StrictModel):
    """Who a device said it is."""

    kind: str
    model: str = ""
    serial: str = ""
    firmware: str = ""


class DeviceSettingsModel(StrictModel):
    """One device and its settings, by name without that of the device."""

    identity: IdentityModel
    settings: dict[Annotated[str, Field(max_length=200)], _Value]


class SnapshotFileModel(StrictModel):
    """The settings of the devices of a bench at one time."""

    format: Literal["lumion-snapshot 1"]
    bench: Name
    emulated: StrictBool
    taken_utc: str
    software: str
    devices: dict[Name, DeviceSettingsModel]
    silent: dict[Name, str] = Field(default_factory=dict, description="Why devices did not answer, by name.")
