"""The settings of a whole bench as a file, and back: the difference first, then in an order that is safe.

Light goes out first on every source that is to be changed, and comes back last, when all else is as it was stored.
Modules are brought out of low power before they are told anything. Whatever cannot be put back is said, with what was
left undone because of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from lumion_hw.acquisition.columns import choose, raise_silent
from lumion_hw.acquisition.settings import Setting, Settings, SettingValue
from lumion_hw.bench.bench import Bench
from lumion_hw.bench.identity import DeviceIdentity, device_identities
from lumion_hw.errors import ConfigError, IdentityError, LinkError, LumionError, VerifyError
from lumion_hw.files import AnyPath
from lumion_hw.files.reading import MEGABYTE, read_file
from lumion_hw.files.writing import Over, write_file

FORMAT = "lumion-snapshot 1"
_WHAT = "the snapshot"


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The settings of a bench at one time.

    Attributes:
        bench: Name of the bench.
        emulated: Whether the bench was emulated.
        taken_utc: When it was taken, ISO 8601.
        software: Name and version of this software.
        identities: Who the devices said they are, by name.
        devices: Values by device name, and there by the name of the setting without that of the device.
        silent: Why devices did not answer, by name; nothing is known of their settings.
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
        """All values by the full name of the setting."""
        return {f"{name}.{setting}": value for name, each in self.devices.items() for setting, value in each.items()}

    def document(self) -> dict[str, Any]:
        """Return it as plain data: text, numbers, flags, lists and dictionaries."""
        devices = {
            name: {
                "identity": {key: said for key, said in asdict(self.identities[name]).items() if said},
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
    """Read the settings of every device. A device that does not answer is noted as silent.

    Args:
        bench: The open bench.
        patterns: Names of settings, shell wildcards allowed; a device name alone means all of its settings.

    Raises:
        ConfigError: A pattern fits nothing.
        LumionError: A pattern fits only devices that do not answer. Of several, an ``ExceptionGroup`` of these.
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
    raise_silent(patterns, {f"{name}.{each}": name for name, found in devices.items() for each in found}, failures)
    now, silent = datetime.now(UTC).isoformat(timespec="seconds"), {name: str(each) for name, each in failures.items()}
    return Snapshot(bench.model.name, bench.is_emulated, now, f"lumion-hw {__version__}", identities, devices, silent)


def snapshot_yaml(snapshot: Snapshot) -> str:
    """Return a snapshot as YAML."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Keeps each array together."""

    def array(dumper: yaml.SafeDumper, values: Iterable[Any]) -> yaml.Node:
        return dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=True)

    Dumper.add_representer(list, array)
    text: str = yaml.dump(snapshot.document(), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120)
    return text


def save_snapshot(snapshot: Snapshot, path: AnyPath, over: Over = "own") -> None:
    """Write a snapshot as YAML, all or nothing. Raises as :func:`~lumion_hw.files.writing.write_file`."""
    write_file(Path(path), _WHAT, snapshot_yaml(snapshot), over)


def load_snapshot(path: AnyPath) -> Snapshot:
    """Read a snapshot.

    Raises:
        ConfigError: The file cannot be read, or holds mistakes; the message lists all with line and column.
    """
    from lumion_hw.bench.file.loader import mistakes, problems_in
    from lumion_hw.bench.file.yaml_marks import read_yaml

    raw = read_file(Path(path), _WHAT, max_bytes=MEGABYTE, hint="`lumion snapshot BENCH -o FILE` writes one.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: expected UTF-8 text", hint="Save the file as UTF-8.") from error
    document = read_yaml(text)
    snapshot, checks = _validated(document.data) if document.marks else (None, [])
    if (problems := problems_in(os.fspath(path), text, document, checks)) or snapshot is None:
        raise mistakes(f"snapshot {os.fspath(path)}", problems)
    return snapshot


def _validated(data: object) -> tuple[Snapshot | None, list[Any]]:
    """Return the snapshot in plain data, or ``None`` and all that is wrong with it."""
    from pydantic import ValidationError

    from lumion_hw.acquisition.snapshot_file import SnapshotFileModel
    from lumion_hw.bench.file.checks import Check
    from lumion_hw.bench.file.explain import explain
    from lumion_hw.bench.file.fields import found

    if not isinstance(data, dict):
        return None, [Check((), f"expected a mapping with the keys of a snapshot, found {found(data)}")]
    try:
        model = SnapshotFileModel.model_validate(data)
    except ValidationError as error:
        schema = SnapshotFileModel.model_json_schema()
        return None, [explain(each, lambda loc: (schema, loc)) for each in error.errors(include_url=False)]
    identities = {name: DeviceIdentity(**each.identity.model_dump()) for name, each in model.devices.items()}
    devices: dict[str, dict[str, SettingValue]] = {
        name: {
            setting: np.array(value, dtype=np.float64) if isinstance(value, tuple) else value
            for setting, value in each.settings.items()
        }
        for name, each in model.devices.items()
    }
    stored = Snapshot(model.bench, model.emulated, model.taken_utc, model.software, identities, devices, model.silent)
    return stored, []


# -- back on the bench


@dataclass(frozen=True, eq=False)
class SettingChange:
    """A setting that differs from the snapshot.

    Attributes:
        setting: The setting.
        now: Its value now.
        wanted: Its value in the snapshot.
    """

    setting: Setting
    now: SettingValue
    wanted: SettingValue

    @property
    def name(self) -> str:
        """Name of the setting."""
        return self.setting.name

    @property
    def device(self) -> str:
        """Device name of the setting."""
        return self.setting.device


@dataclass(frozen=True, eq=False)
class Restoration:
    """What became of putting a snapshot back, from a last look at everything that was to be changed.

    Attributes:
        put_back: Changes that are in force.
        failed: Changes that are not, and why.
        left_out: Changes that were not tried, because something before them failed.
        left_dark: Sources that gave light before and were to do so again, and do not, because something failed.
    """

    put_back: tuple[SettingChange, ...]
    failed: tuple[tuple[SettingChange, LumionError], ...]
    left_out: tuple[SettingChange, ...]
    left_dark: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether all is as in the snapshot."""
        return not (self.failed or self.left_out or self.left_dark)


def differences(bench: Bench, snapshot: Snapshot, patterns: Sequence[str] = ("*",)) -> tuple[SettingChange, ...]:
    """Compare a bench with a snapshot, in the order of the bench.

    Args:
        bench: The open bench.
        snapshot: The snapshot.
        patterns: Which of its settings, by name; shell wildcards allowed, a device name alone means all of its.

    Raises:
        ConfigError: The snapshot is of another bench, or holds a setting or a value that this one does not have; or a
            pattern fits nothing.
        IdentityError: A device is another one than the snapshot's.
        LimitError: A value to be put back is outside the limits of the device.
        LumionError: A device does not answer.
    """
    if snapshot.bench != bench.model.name:
        raise ConfigError(
            f"the snapshot is of bench {snapshot.bench!r}, this is {bench.model.name!r}",
            hint="Take a snapshot of this bench.",
        )
    if snapshot.emulated and not bench.is_emulated:
        raise ConfigError(
            f"the snapshot is of bench {snapshot.bench!r} emulated, this one is real",
            hint="Take a snapshot of the real bench.",
        )
    device_of = {f"{name}.{setting}": name for name, each in snapshot.devices.items() for setting in each}
    chosen = choose(patterns, device_of, "setting") if device_of else []
    _check_identities(bench, snapshot, {device_of[name] for name in chosen})
    settings = Settings(bench, sorted({device_of[name] for name in chosen}) or patterns)
    if unknown := [name for name in chosen if name not in settings]:
        raise ConfigError(
            f"the snapshot has settings that this bench has not: {', '.join(unknown)}",
            hint="Take a snapshot of this bench.",
        )
    now, values = settings.read(), snapshot.values
    for failure in settings.failures.values():
        raise failure
    changes = tuple(
        SettingChange(settings[name], value, values[name])
        for name, value in now.items()
        if name in chosen and not settings[name].same(value, values[name])
    )
    for change in changes:
        if change.wanted is not None:
            change.setting.check(change.wanted)
    return changes


def _check_identities(bench: Bench, snapshot: Snapshot, concerned: Collection[str]) -> None:
    """Refuse devices that are not those of the snapshot."""
    here = device_identities(bench, set(concerned))
    if missing := sorted(set(concerned) - set(here)):
        raise ConfigError(
            f"the snapshot has devices that are not open here: {', '.join(missing)}",
            hint="Open them, or choose the settings of the others.",
        )
    for name in concerned:
        stored = snapshot.identities[name]
        if stored.contradicts(here[name]):
            raise IdentityError(
                f"the snapshot is of another device: {stored}; here is {here[name]}",
                device=name,
                hint="Nothing was changed. Take a snapshot with this device, or choose the settings of the others.",
            )


Progress = Callable[[str, SettingValue, LumionError | None], None]
"""Told the name of a setting, the value written, and what went wrong, if anything did."""


def restore(
    bench: Bench,
    snapshot: Snapshot,
    patterns: Sequence[str] = ("*",),
    *,
    progress: Progress = lambda name, value, error: None,
) -> Restoration:
    """Put the settings of a snapshot back on a bench.

    What differs is found and checked against the limits before anything is changed. Then sources whose settings change
    go dark, modules leave low power, everything else is set, and light comes last. A setting that fails ends the work
    on its device, and no light is switched on any more; the other devices go on. In the end all is read again.

    Args:
        bench: The open bench.
        snapshot: The snapshot.
        patterns: Which of its settings, as for :func:`differences`.
        progress: Told every write as it is done. An interruption leaves the bench as the writes told so far made it.

    Raises:
        LumionError: As :func:`differences`, before anything was changed.
    """
    changes = differences(bench, snapshot, patterns)
    devices = sorted({change.device for change in changes})
    return _Restoring(Settings(bench, devices) if devices else {}, changes, progress).run()


class _Restoring:
    """A snapshot being put back.

    Args:
        settings: All settings of the devices concerned.
        changes: What differs.
        progress: Told every write.
    """

    def __init__(self, settings: Mapping[str, Setting], changes: Sequence[SettingChange], progress: Progress) -> None:
        concerned = {change.device for change in changes}
        self._changes = changes
        self._progress = progress
        self._tried: set[str] = set()
        self._errors: dict[str, LumionError] = {}
        self._broken: set[str] = set()
        own = [change for change in changes if not change.setting.switches]
        self._retuned = {change.device for change in own}
        wanted = {change.name: change.wanted for change in changes}
        switches = [each for each in settings.values() if each.switches and each.device in concerned]
        self._before = {each: each.read() for each in switches}
        self._target = {each: wanted.get(each.name, before) for each, before in self._before.items()}

    def run(self) -> Restoration:
        """Do it, and look again."""
        for light in self._switches("light"):
            if self._before[light] and (light.device in self._retuned or not self._target[light]):
                self._write(light, False)
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
            self._guarded(change.setting, change.setting.wait_settled)
        for light in self._switches("light"):
            if self._target[light] and not self._broken:
                self._write(light, True)
        return self._looked_again()

    def _switches(self, switches: str) -> list[Setting]:
        return [setting for setting in self._before if setting.switches == switches]

    def _write(self, setting: Setting, value: SettingValue) -> None:
        """Write a value unless it is in force, which it may be because of another one, or something failed before."""
        if setting.device in self._broken:
            return

        def write() -> None:
            # A setting that has never been told cannot be made so again; the last look finds it.
            if (value is None and not setting.none_means) or setting.same(setting.read(), value):
                return
            setting.write(value)

        self._tried.add(setting.name)
        self._guarded(setting, write)
        self._progress(setting.name, value, self._errors.get(setting.name))

    def _guarded(self, setting: Setting, work: Callable[[], object]) -> None:
        """Do something with a device; if it fails, it is left alone from then on."""
        if setting.device in self._broken:
            return
        try:
            work()
        except LumionError as error:
            self._errors[setting.name] = error
            self._broken.add(setting.device)

    def _looked_again(self) -> Restoration:
        put_back, failed, left_out = [], [], []
        for change in self._changes:
            error = self._errors.get(change.name)
            if error is None and change.name not in self._tried:
                left_out.append(change)
            elif error := error or _not_in_force(change):
                failed.append((change, error))
            else:
                put_back.append(change)
        dark = [
            light.device
            for light in self._switches("light")
            if self._before[light] and self._target[light] and (light.device in self._broken or not light.read())
        ]
        return Restoration(tuple(put_back), tuple(failed), tuple(left_out), tuple(dark))


def _not_in_force(change: SettingChange) -> LumionError | None:
    """Ask for a setting once more; return what is wrong with it, if anything is."""
    try:
        found = change.setting.read()
    except LumionError as error:
        return error
    if change.setting.same(found, change.wanted):
        return None
    return VerifyError(change.name, wrote=_short(change.wanted), read=_short(found), device=change.device)


def _short(value: SettingValue) -> object:
    """Return a value as a message shows it."""
    return f"{value.size} values" if isinstance(value, np.ndarray) else value
