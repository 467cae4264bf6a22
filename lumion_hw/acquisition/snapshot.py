"""Snapshots: save the settings of a bench to a file, compare them, and restore them in a safe order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from lumion_hw.acquisition.columns import raise_silent, select_names
from lumion_hw.acquisition.settings import Setting, Settings, SettingValue
from lumion_hw.bench.bench import Bench
from lumion_hw.bench.identity import DeviceIdentity, device_identities
from lumion_hw.errors import ConfigError, IdentityError, LinkError, LumionError, VerifyError
from lumion_hw.files import AnyPath
from lumion_hw.files.writing import Overwrite, write_file

FORMAT = "lumion-snapshot 1"
_FILE_DESCRIPTION = "the snapshot"


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The settings of a bench at one time.

    Attributes:
        taken_utc: Time of the snapshot, ISO 8601.
        identities: Identities reported by the devices, by device name.
        devices: Values by device name, then by setting name without the device name.
        silent: Errors of devices that did not answer, by device name.
    """

    bench: str
    emulated: bool
    taken_utc: str
    software: str
    identities: Mapping[str, DeviceIdentity]
    devices: Mapping[str, Mapping[str, SettingValue]]
    silent: Mapping[str, str] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, SettingValue]:
        """All values of the snapshot, by the full name of the setting."""
        return {
            f"{name}.{setting}": value for name, settings in self.devices.items() for setting, value in settings.items()
        }

    def document(self) -> dict[str, Any]:
        """Return the snapshot as a JSON document."""
        devices = {
            name: {
                "identity": {key: text for key, text in asdict(self.identities[name]).items() if text},
                "settings": {
                    setting: value.tolist() if isinstance(value, np.ndarray) else value
                    for setting, value in settings.items()
                },
            }
            for name, settings in self.devices.items()
        }
        return {
            "format": FORMAT,
            "bench": self.bench,
            "emulated": self.emulated,
            "taken_utc": self.taken_utc,
            "software": self.software,
            "devices": devices,
        } | ({"silent": dict(self.silent)} if self.silent else {})


def take_snapshot(bench: Bench, patterns: Sequence[str] = ("*",)) -> Snapshot:
    """Read the settings of all devices. Devices that do not answer are listed in ``silent``.

    Args:
        bench: The open bench.
        patterns: Setting names with shell wildcards; a device name selects all of its settings.

    Raises:
        ConfigError: A pattern matches no setting.
        LumionError: A pattern matches only a device that does not answer; for several devices an ``ExceptionGroup``.
    """
    from lumion_hw import __version__

    settings = Settings(bench, patterns, skip_silent=True)
    values, failures = settings.read(), dict(settings.failures)
    devices: dict[str, dict[str, SettingValue]] = {}
    for name, value in values.items():
        device = settings[name].device
        devices.setdefault(device, {})[name.removeprefix(f"{device}.")] = value
    identities: dict[str, DeviceIdentity] = {}
    for device in list(devices):
        try:
            identities |= device_identities(bench, [device])
        except LinkError as error:
            failures[device] = error
            del devices[device]
    raise_silent(
        patterns,
        {f"{name}.{setting}": name for name, device_settings in devices.items() for setting in device_settings},
        failures,
    )
    time_utc, silent = (
        datetime.now(UTC).isoformat(timespec="seconds"),
        {name: str(failure) for name, failure in failures.items()},
    )
    return Snapshot(
        bench.model.name, bench.is_emulated, time_utc, f"lumion-hw {__version__}", identities, devices, silent
    )


def snapshot_yaml(snapshot: Snapshot) -> str:
    """Return a snapshot as YAML, with each array on one line."""
    import yaml

    class Dumper(yaml.SafeDumper): ...

    def array(dumper: yaml.SafeDumper, values: Iterable[Any]) -> yaml.Node:
        return dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=True)

    Dumper.add_representer(list, array)
    text: str = yaml.dump(snapshot.document(), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120)
    return text


def save_snapshot(snapshot: Snapshot, path: AnyPath, overwrite: Overwrite = "own") -> None:
    """Write a snapshot to a YAML file, atomically. Raises as :func:`~lumion_hw.files.writing.write_file`."""
    write_file(Path(path), _FILE_DESCRIPTION, snapshot_yaml(snapshot), overwrite)


def load_snapshot(path: AnyPath) -> Snapshot:
    """Read a snapshot.

    Raises:
        ConfigError: The file cannot be read, or contains mistakes; the message lists all with line and column.
    """
    from lumion_hw.acquisition.snapshot_file import SnapshotFileModel
    from lumion_hw.bench.file.checked_yaml import load_yaml

    model = load_yaml(path, "snapshot", SnapshotFileModel, "`lumion snapshot BENCH -o FILE` writes a snapshot.")
    identities = {name: DeviceIdentity(**device.identity.model_dump()) for name, device in model.devices.items()}
    devices: dict[str, dict[str, SettingValue]] = {
        name: {
            setting: np.array(value, dtype=np.float64) if isinstance(value, tuple) else value
            for setting, value in device.settings.items()
        }
        for name, device in model.devices.items()
    }
    return Snapshot(model.bench, model.emulated, model.taken_utc, model.software, identities, devices, model.silent)


# -- restoring


@dataclass(frozen=True, eq=False)
class SettingChange:
    """A setting of the bench that differs from the snapshot.

    Attributes:
        wanted: Value of the setting in the snapshot.
    """

    setting: Setting
    present_value: SettingValue
    wanted: SettingValue

    @property
    def name(self) -> str:
        """Full name of the setting."""
        return self.setting.name

    @property
    def device(self) -> str:
        """Device name of the setting."""
        return self.setting.device


@dataclass(frozen=True, eq=False)
class Restoration:
    """Result of restoring a snapshot, after reading all changed settings again.

    Attributes:
        failed: Settings that were not restored, with their errors.
        left_out: Names of the settings that were skipped because an earlier setting of the same device failed.
        left_dark: Light sources that should be on but are off after a failure.
    """

    put_back: tuple[SettingChange, ...]
    failed: tuple[tuple[SettingChange, LumionError], ...]
    left_out: tuple[SettingChange, ...]
    left_dark: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether all settings agree with the snapshot."""
        return not (self.failed or self.left_out or self.left_dark)


def differences(bench: Bench, snapshot: Snapshot, patterns: Sequence[str] = ("*",)) -> tuple[SettingChange, ...]:
    """Return the settings of a bench that differ from a snapshot, in the order of the bench.

    Args:
        bench: The open bench.
        snapshot: The snapshot.
        patterns: Names of the settings to compare, with shell wildcards; a device name selects all of its settings.

    Raises:
        ConfigError: The snapshot is from another bench, contains settings or values that this bench does not have, or a
            pattern matches no setting.
        IdentityError: A device was replaced by another one.
        LimitError: A saved value is outside the limits of the device.
        LumionError: A device does not answer.
    """
    if snapshot.bench != bench.model.name:
        raise ConfigError(
            f"the snapshot belongs to bench {snapshot.bench!r}, not to {bench.model.name!r}",
            hint="Take a snapshot of this bench.",
        )
    if snapshot.emulated and not bench.is_emulated:
        raise ConfigError(
            f"the snapshot is from an emulation of bench {snapshot.bench!r}, but this bench is real",
            hint="Take a snapshot of the real bench.",
        )
    device_of = {f"{name}.{setting}": name for name, settings in snapshot.devices.items() for setting in settings}
    chosen = select_names(patterns, device_of, "setting") if device_of else []
    _check_identities(bench, snapshot, {device_of[name] for name in chosen})
    settings = Settings(bench, sorted({device_of[name] for name in chosen}) or patterns)
    if unknown := [name for name in chosen if name not in settings]:
        raise ConfigError(
            f"the snapshot contains settings that this bench does not have: {', '.join(unknown)}",
            hint="Take a snapshot of this bench.",
        )
    present, values = settings.read(), snapshot.values
    for failure in settings.failures.values():
        raise failure
    changes = tuple(
        SettingChange(settings[name], value, values[name])
        for name, value in present.items()
        if name in chosen and not settings[name].is_equivalent(value, values[name])
    )
    for change in changes:
        if change.wanted is not None:
            change.setting.check(change.wanted)
    return changes


def _check_identities(bench: Bench, snapshot: Snapshot, concerned: Collection[str]) -> None:
    present_identities = device_identities(bench, set(concerned))
    if missing := sorted(set(concerned) - set(present_identities)):
        raise ConfigError(
            f"the snapshot contains devices that are not open: {', '.join(missing)}",
            hint="Open them, or select the settings of the other devices.",
        )
    for name in concerned:
        stored = snapshot.identities[name]
        if stored.contradicts(present_identities[name]):
            raise IdentityError(
                f"the snapshot was taken with another device: {stored}; this bench has {present_identities[name]}",
                device=name,
                hint="Nothing was changed. Take a new snapshot, or select the settings of the other devices.",
            )


Progress = Callable[[str, SettingValue, LumionError | None], None]
"""Called with the name of a setting, the value written, and the error or ``None``."""


def restore(
    bench: Bench,
    snapshot: Snapshot,
    patterns: Sequence[str] = ("*",),
    *,
    progress: Progress = lambda name, value, error: None,
) -> Restoration:
    """Restore the settings of a snapshot.

    Sources whose settings change are switched off first and switched on last. If a setting fails, the other settings of
    this device are skipped and no light is switched on. Other devices are still restored.

    Args:
        bench: The open bench.
        snapshot: The snapshot.
        patterns: Names of the settings to restore, as for :func:`differences`.
        progress: Called after every write.

    Raises:
        LumionError: As for :func:`differences`; nothing was changed.
    """
    changes = differences(bench, snapshot, patterns)
    devices = sorted({change.device for change in changes})
    return _Restoring(Settings(bench, devices) if devices else {}, changes, progress).run()


class _Restoring:
    """One restoration of settings: order of the writes, and the errors of each device."""

    def __init__(self, settings: Mapping[str, Setting], changes: Sequence[SettingChange], progress: Progress) -> None:
        concerned = {change.device for change in changes}
        self._changes = changes
        self._progress = progress
        self._written: set[str] = set()
        self._errors: dict[str, LumionError] = {}
        self._broken: set[str] = set()
        own = [change for change in changes if not change.setting.switches]
        self._retuned = {change.device for change in own}
        stored = {change.name: change.wanted for change in changes}
        switches = [setting for setting in settings.values() if setting.switches and setting.device in concerned]
        self._before = {setting: setting.read() for setting in switches}
        self._target = {setting: stored.get(setting.name, before) for setting, before in self._before.items()}

    def run(self) -> Restoration:
        """Write all settings and return the result; sources are off while settings of their device change."""
        # Light goes off first and on last, so that no source emits with a mixture of old and new settings.
        for light in self._switches("light"):
            if self._before[light] and (light.device in self._retuned or not self._target[light]):
                self._write(light, False)
        # Some devices accept settings only while their supply is on, so it is switched off after the settings.
        for supply in self._switches("supply"):
            if not self._before[supply] and (supply.device in self._retuned or self._target[supply]):
                self._write(supply, True)
        own = [change for change in self._changes if not change.setting.switches]
        for change in own:
            self._write(change.setting, change.wanted)
        for supply in self._switches("supply"):
            if not self._target[supply]:
                self._write(supply, False)
        for change in own:
            self._run_unless_failed(change.setting, change.setting.wait_settled)
        # After a failure no light is switched on: the light path may not be in its restored state.
        for light in self._switches("light"):
            if self._target[light] and not self._broken:
                self._write(light, True)
        return self._read_back()

    def _switches(self, switches: str) -> list[Setting]:
        return [setting for setting in self._before if setting.switches == switches]

    def _write(self, setting: Setting, value: SettingValue) -> None:
        if setting.device in self._broken:
            return

        def write() -> None:
            # A setting without a value cannot be restored to this state; the final check reports it.
            if (value is None and not setting.text_for_none) or setting.is_equivalent(setting.read(), value):
                return
            setting.write(value)

        self._written.add(setting.name)
        self._run_unless_failed(setting, write)
        self._progress(setting.name, value, self._errors.get(setting.name))

    def _run_unless_failed(self, setting: Setting, work: Callable[[], object]) -> None:
        """Run a function on a device. After a failure, skip this device for the rest of the restoration."""
        if setting.device in self._broken:
            return
        try:
            work()
        except LumionError as error:
            self._errors[setting.name] = error
            self._broken.add(setting.device)

    def _read_back(self) -> Restoration:
        put_back, failed, left_out = [], [], []
        for change in self._changes:
            error = self._errors.get(change.name)
            if error is None and change.name not in self._written:
                left_out.append(change)
            elif error := error or _verify_error(change):
                failed.append((change, error))
            else:
                put_back.append(change)
        dark = [
            light.device
            for light in self._switches("light")
            if self._before[light] and self._target[light] and (light.device in self._broken or not light.read())
        ]
        return Restoration(tuple(put_back), tuple(failed), tuple(left_out), tuple(dark))


def _verify_error(change: SettingChange) -> LumionError | None:
    try:
        value = change.setting.read()
    except LumionError as error:
        return error
    if change.setting.is_equivalent(value, change.wanted):
        return None
    return VerifyError(change.name, wrote=_short(change.wanted), read=_short(value), device=change.device)


def _short(value: SettingValue) -> object:
    return f"{value.size} values" if isinstance(value, np.ndarray) else value
