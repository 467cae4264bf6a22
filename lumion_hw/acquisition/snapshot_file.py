"""The model of a snapshot file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr

from lumion_hw.bench.file.fields import Name, StrictModel

_Number = StrictFloat | StrictInt
_Value = StrictBool | _Number | StrictStr | tuple[_Number, ...] | None


class IdentityModel(StrictModel):
    """Identity that a device reported when the snapshot was taken."""

    kind: str
    model: str = ""
    serial: str = ""
    firmware: str = ""


class DeviceSettingsModel(StrictModel):
    """One device and its settings; the names of the settings do not include the device name."""

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
    silent: dict[Name, str] = Field(
        default_factory=dict, description="Errors of the devices that did not answer, by device name."
    )
