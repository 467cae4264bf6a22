"""Devices of one sort by their names; an unknown name says what there is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn, TypeVar

from lumion_hw.errors import UnknownNameError

DeviceT = TypeVar("DeviceT")


class Named(dict[str, DeviceT]):
    """A dictionary whose missing keys are explained.

    Args:
        sort: What the devices are, as in "power meter".
        devices: The open ones, by name.
        elsewhere: Why a name of the bench file is not among them, by name.
    """

    def __init__(self, sort: str, devices: Mapping[str, DeviceT], elsewhere: Mapping[str, str]) -> None:
        super().__init__(devices)
        self._sort = sort
        self._elsewhere = elsewhere

    def __missing__(self, name: object) -> NoReturn:
        """Raise what ``[name]`` raises where there is no such device."""
        why = self._elsewhere.get(name) if isinstance(name, str) else None
        raise UnknownNameError(
            f"there is no {self._sort} {name!r}" + (f": {why}" if why else ""),
            hint=f"There {'is' if len(self) == 1 else 'are'} {', '.join(self) or 'none'}.",
        )
