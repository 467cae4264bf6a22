"""Checks the names, values and limits of the settings of a scan, and sets them point by point."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.acquisition.columns import Column
from lumion_hw.acquisition.followers import Follower, followers, swept_light
from lumion_hw.acquisition.scan_plan import ScanAxis, ScanPlan, SweptSetting, as_base64
from lumion_hw.acquisition.settings import Setting, SettingKind, Settings, SettingValue
from lumion_hw.bench.bench import Bench
from lumion_hw.errors import ConfigError

Real = NDArray[np.float64]
Sweep = Mapping[str | tuple[str, ...], Any]
"""Values by the name of a setting, or by a tuple of names of settings that change together; the slowest axis comes
first.
"""


@dataclass(frozen=True, eq=False)
class _Track:
    """A swept setting with its values along one axis of the scan."""

    setting: Setting
    numbers: Real


class Moves:
    """Checks the settings of a scan and sets them point by point. Creating an object changes no setting.

    Args:
        sweep: The settings and their values.
        snake: Whether every other pass of an axis runs backwards.

    Raises:
        ConfigError: A name matches nothing, a setting is swept twice, or values have the wrong kind.
        LimitError: A value is outside the limits of its device.

    Attributes:
        vector_settings: Array settings whose elements are swept, by name.
        followers: Meters whose wavelength follows the light; none before :meth:`set_followers`.
    """

    def __init__(self, bench: Bench, sweep: Sweep, snake: bool = False) -> None:
        if not sweep:
            raise ConfigError("nothing to sweep", hint="Give a setting with its values: {'tls-a.power_dbm': [0, 1]}.")
        self._bench = bench
        self.followers: list[Follower] = []
        self._axes = [_axis(bench, names, values) for names, values in sweep.items()]
        _check_once([track.setting for axis in self._axes for track in axis])
        self.plan = ScanPlan(
            tuple(ScanAxis(tuple(_swept(track) for track in axis), len(axis[0].numbers)) for axis in self._axes),
            snake,
        )
        parts = {track.setting.part_of for axis in self._axes for track in axis if track.setting.element is not None}
        self.vector_settings = {name: Settings(bench, [name])[name] for name in sorted(parts)}
        self._driven: dict[str, Real] = {}
        self._at: tuple[int | None, ...] = (None,) * len(self._axes)

    @property
    def settings(self) -> list[Setting]:
        """The settings of the scan, axis by axis."""
        return [track.setting for axis in self._axes for track in axis]

    def of_axis(self, axis: int) -> list[Setting]:
        """Return the settings of one axis of the scan."""
        return [track.setting for track in self._axes[axis]]

    def set_followers(self, columns: Sequence[Column]) -> None:
        """Let the meters follow the wavelength of the swept light. Raises as :func:`followers`."""
        axes = [[(track.setting, track.numbers) for track in axis] for axis in self._axes]
        swept = {setting.part_of or setting.name for setting in self.settings}
        self.followers = followers(self._bench, swept_light(self._bench, axes), columns, swept)
        self.plan = replace(self.plan, followers=tuple(follower.setting.name for follower in self.followers))

    @property
    def fastest_followed(self) -> bool:
        """Whether meters follow the wavelength of the fastest axis."""
        return any(follower.axis == len(self._axes) - 1 for follower in self.followers)

    def aim(self, wavelength_nm: float) -> None:
        """Set the meters on the fastest axis to a wavelength in nm until the next point is set."""
        for follower in self.followers:
            if follower.axis == len(self._axes) - 1:
                follower.write_nm(wavelength_nm)

    def numbers(self, position: tuple[int, ...]) -> list[float]:
        """Return the value of every setting at a scan point, as a number."""
        return [float(track.numbers[at]) for axis, at in zip(self._axes, position, strict=True) for track in axis]

    def move_to(self, position: tuple[int, ...]) -> None:
        """Set the settings that change at a scan point, and wait until the devices have settled.

        Raises the devices' errors.
        """
        moved: dict[str, Setting] = {}
        for axis, before, at in zip(self._axes, self._at, position, strict=True):
            for track in axis if before != at else ():
                if track.setting.element is None:
                    track.setting.write(_value(track, at))
                    moved[track.setting.device] = track.setting
        for follower in self.followers:
            if self._at[follower.axis] != position[follower.axis]:
                follower.write(position[follower.axis])
        for name, values in self.arrays(position).items():
            if not np.array_equal(values, self._driven.get(name, ())):
                self.vector_settings[name].write(values)
                self._driven[name] = values
                moved[self.vector_settings[name].device] = self.vector_settings[name]
        self._at = position
        for setting in moved.values():
            setting.wait_settled()

    def arrays(self, position: tuple[int, ...]) -> dict[str, Real]:
        """Return the values of the swept array settings at a scan point, by name.

        Elements that are not swept keep their values.
        """
        positions: dict[str, Real] = {}
        for name, vector_setting in self.vector_settings.items():
            before = self._driven.get(name)
            positions[name] = np.array(vector_setting.read() if before is None else before, dtype=np.float64)
        for axis, at in zip(self._axes, position, strict=True):
            for track in axis:
                if track.setting.element is not None:
                    positions[track.setting.part_of][track.setting.element] = track.numbers[at]
        return positions

    def forget(self, axis: int) -> None:
        """Write the settings of an axis again at the next point, because a device has changed them itself."""
        at = list(self._at)
        at[axis] = None
        self._at = tuple(at)

    def arrived(self, position: tuple[int, ...], arrays: Mapping[str, Real]) -> None:
        """Note that a device has set a scan point itself.

        ``arrays`` are the values of the array settings at this point.
        """
        self._at = position
        self._driven |= arrays


def _axis(bench: Bench, names: str | tuple[str, ...], values: Any) -> list[_Track]:
    together = (names,) if isinstance(names, str) else names
    columns = (values,) if isinstance(names, str) else tuple(values)
    if len(together) != len(columns) or not together:
        raise ConfigError(
            f"{len(together)} settings change together, but values are given for {len(columns)}",
            hint="Give one sequence of values per setting.",
        )
    tracks = [
        _Track(setting, _numbers(setting, column))
        for name, column in zip(together, columns, strict=True)
        for setting in _settings(bench, name)
    ]
    sizes = {track.setting.name: len(track.numbers) for track in tracks}
    if len(set(sizes.values())) > 1 or not all(sizes.values()):
        sizes_text = ", ".join(f"{name} has {size}" for name, size in sizes.items())
        raise ConfigError(f"settings of one axis need the same number of values, at least one: {sizes_text}")
    return tracks


def _settings(bench: Bench, pattern: str) -> list[Setting]:
    """Return the settings that match a name. Arrays must be swept element by element."""
    if not isinstance(pattern, str):
        raise ConfigError(f"expected the name of a setting, found {pattern!r}")
    matches = list(Settings(bench, [pattern]).values())
    single = [setting for setting in matches if setting.kind is not SettingKind.ARRAY]
    if not single:
        raise ConfigError(
            f"{matches[0].name} is an array of {matches[0].shape[0]} values",
            device=matches[0].device,
            hint=_array_hint(bench, matches[0]),
        )
    return single


def _array_hint(bench: Bench, setting: Setting) -> str:
    parts = [part.name for part in Settings(bench, [setting.device]).values() if part.part_of == setting.name]
    if not parts:
        return f"Set it before the scan, in Python: Settings(bench)[{setting.name!r}].write(values)."
    return f"Sweep the array's values by name: {', '.join(parts[:2])}{' and so on' if len(parts) > 2 else ''}."


def _numbers(setting: Setting, values: Any) -> Real:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ConfigError(f"{setting.name}: expected a sequence of values, found {values!r}", device=setting.device)
    listed: Any = values if isinstance(values, np.ndarray | Sequence) else list(values)
    try:
        array = np.asarray(listed)
    except ValueError:  # ragged
        array = np.empty(0, dtype=object)
    if setting.kind is SettingKind.NUMBER and not setting.numbers and array.ndim == 1 and array.dtype.kind in "iuf":
        return _checked_numbers(setting, array.astype(np.float64))
    return np.array([_number(setting, value) for value in listed], dtype=np.float64)


def _checked_numbers(setting: Setting, numbers: Real) -> Real:
    limits = setting.limits()
    low, high = limits if limits is not None else (-np.inf, np.inf)
    invalid = ~(np.isfinite(numbers) & (numbers >= low) & (numbers <= high))
    # The value farthest outside comes first, because it is one that the user wrote.
    for number in sorted(numbers[invalid].tolist(), key=lambda each: -max(low - each, each - high)):
        setting.check(number)  # allows for rounding and raises the exact error
    return numbers


def _number(setting: Setting, value: Any) -> float:
    setting.check(value)
    if value is None:
        return float("nan")
    return float(setting.choices.index(value)) if setting.kind is SettingKind.CHOICE else float(value)


def _value(track: _Track, at: int) -> SettingValue:
    number = float(track.numbers[at])
    if track.setting.kind is SettingKind.FLAG:
        return number != 0.0
    if track.setting.kind is SettingKind.CHOICE:
        return track.setting.choices[int(number)]
    return None if np.isnan(number) else number


def _swept(track: _Track) -> SweptSetting:
    setting = track.setting
    return SweptSetting(
        setting.name, setting.device, setting.unit, setting.kind.value, setting.choices, as_base64(track.numbers)
    )


def _check_once(settings: Sequence[Setting]) -> None:
    """Raise ``ConfigError`` if a setting is swept twice, for example as wavelength and as frequency."""
    first_by_element: dict[tuple[str, int | None], str] = {}
    for setting in settings:
        key = (setting.part_of or setting.name, setting.element)
        if key in first_by_element:
            raise ConfigError(
                f"{setting.name} and {first_by_element[key]} are the same setting, swept twice", device=setting.device
            )
        first_by_element[key] = setting.name
