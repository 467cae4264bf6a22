"""Dictionary of devices by name, with a helpful error for unknown names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn, TypeVar

from lumion_hw.errors import UnknownNameError

DeviceT = TypeVar("DeviceT")


class NamedDevices(dict[str, DeviceT]):
    """The open devices of one role, by name.

    Args:
        role: Name of the role, such as "power meter".
        devices: The open devices by name.
        reasons: Reasons why other devices of the bench file are missing, by device name.
    """

    def __init__(self, role: str, devices: Mapping[str, DeviceT], reasons: Mapping[str, str]) -> None:
        super().__init__(devices)
        self._role = role
        self._reasons = reasons

    def __missing__(self, name: object) -> NoReturn:
        reason = self._reasons.get(name) if isinstance(name, str) else None
        raise UnknownNameError(
            f"there is no {self._role} {name!r}" + (f": {reason}" if reason else ""),
            hint=f"There {'is' if len(self) == 1 else 'are'} {', '.join(self) or 'none'}.",
        )
