"""Meters that follow the light: if a scan sets the wavelength of a source, the meters are set to it too."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.acquisition.columns import Column
from lumion_hw.acquisition.settings import Setting, Settings
from lumion_hw.bench.bench import Bench
from lumion_hw.errors import ConfigError, LimitError
from lumion_hw.quantities import SPEED_OF_LIGHT_M_PER_S

Real = NDArray[np.float64]

_KEEP_METERS_HINT = "keep_meters=True (--keep-meters) leaves the meters unchanged. Nothing was changed."


@dataclass(frozen=True, eq=False)
class SweptSource:
    """A source whose wavelength is swept.

    Attributes:
        nm: Wavelength at every point of the axis, in nm.
    """

    name: str
    axis: int
    nm: Real


@dataclass(frozen=True, eq=False)
class Follower:
    """The wavelength setting of a meter (or frequency setting of a polarimeter) during a scan.

    Attributes:
        axis: Scan axis on which the source is swept.
        numbers: Value of the setting at every point of the axis.
    """

    setting: Setting
    axis: int
    numbers: Real

    def write(self, at: int) -> None:
        """Set the meter to the wavelength of a scan point. Raises the errors of the meter."""
        self.setting.write(float(self.numbers[at]))

    def write_nm(self, wavelength_nm: float) -> None:
        """Set the meter to a wavelength in nm. Raises the errors of the meter."""
        self.setting.write(float(_as_unit(self.setting, np.array(wavelength_nm))))


def swept_light(bench: Bench, axes: Sequence[Sequence[tuple[Setting, Real]]]) -> list[SweptSource]:
    """Return the light sources whose wavelength a scan sets.

    Args:
        bench: The open bench.
        axes: Settings of the scan with their values, axis by axis.
    """
    sources = {*bench.lasers, *bench.transponders}
    return [
        SweptSource(setting.name, axis, numbers if setting.unit == "nm" else _thz_or_nm(numbers))
        for axis, tracks in enumerate(axes)
        for setting, numbers in tracks
        if setting.device in sources and setting.unit in ("nm", "THz")
    ]


def followers(
    bench: Bench, lights: Sequence[SweptSource], columns: Sequence[Column], swept: Collection[str]
) -> list[Follower]:
    """Return the wavelength settings of meters that follow the light sources of a scan.

    Meters follow a swept source; they follow none if all sources are constant at different wavelengths. Settings in
    ``swept`` do not follow.

    Raises:
        ConfigError: Two sources are swept to different wavelengths, but a meter can be set to one wavelength only.
        LimitError: A wavelength is outside the range of a meter that is read.
    """
    moving = [light for light in lights if np.ptp(light.nm) > 0.0] or list(lights)
    settings = [setting for setting in _wavelengths(bench, columns) if setting.name not in swept] if moving else []
    if not settings:
        return []
    first = moving[0]
    different = [light.name for light in moving if light.axis != first.axis or not np.array_equal(light.nm, first.nm)]
    if different:
        if np.ptp(first.nm) == 0.0:
            return []
        raise ConfigError(
            f"{first.name} and {different[0]} have different wavelengths, but {settings[0].device} can follow only one",
            device=settings[0].device,
            hint=f"Sweep {settings[0].name} with one source, as in {{({first.name!r}, {settings[0].name!r}): ...}}. "
            + _KEEP_METERS_HINT,
        )
    followers = [Follower(setting, first.axis, _as_unit(setting, first.nm)) for setting in settings]
    for follower in followers:
        for number in (follower.numbers.min(), follower.numbers.max()):
            try:
                follower.setting.check(float(number))
            except LimitError as error:
                error.hint = f"The meters that are read follow {first.name}. {_KEEP_METERS_HINT}"
                raise
    return followers


def _wavelengths(bench: Bench, columns: Sequence[Column]) -> Iterator[Setting]:
    names = {column.name.replace(".power.", ".wavelength_nm.") for column in columns if column.device in bench.meters}
    names |= {f"{column.device}.frequency_thz" for column in columns if column.device in bench.polarimeters}
    for device in dict.fromkeys(column.device for column in columns):
        if device in bench.meters or device in bench.polarimeters:
            with contextlib.suppress(ConfigError):  # a meter with nothing to set
                yield from (setting for name, setting in Settings(bench, [device]).items() if name in names)


def _as_unit(setting: Setting, wavelength_nm: Real) -> Real:
    return wavelength_nm if setting.unit == "nm" else _thz_or_nm(wavelength_nm)


def _thz_or_nm(values: Real) -> Real:
    return 1e-3 * SPEED_OF_LIGHT_M_PER_S / values
