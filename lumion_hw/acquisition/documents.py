"""Export of a recording as documents of bluesky's event model.

A file contains one JSON object ``{"name": ..., "doc": ...}`` per line (https://blueskyproject.io/event-model). Dots in
data keys become hyphens: ``meter0.power.1`` becomes ``meter0-power-1``. A missing value is NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

import numpy as np

from lumion_hw.acquisition.columns import State, select_names
from lumion_hw.acquisition.journal import LogHeader
from lumion_hw.acquisition.recording import RecordedLog
from lumion_hw.acquisition.scan_plan import BY_INSTRUMENT, SET, ScanPlan
from lumion_hw.errors import ConfigError
from lumion_hw.files import AnyPath
from lumion_hw.files.json_text import json_text
from lumion_hw.files.writing import Overwrite, write_file

Document = tuple[str, dict[str, Any]]
_STREAM = "primary"
_STATE = "-state"


def bluesky_documents(recording: RecordedLog, patterns: Sequence[str] = ("*",)) -> Iterator[Document]:
    """Yield the name and content of every document of a recording.

    The start document of a scan names the swept settings and contains the settings of the bench before the scan.

    Args:
        recording: The recording.
        patterns: Names of channels, with shell wildcards. The swept settings of a scan are always exported.

    Raises:
        ConfigError: The start time is missing, two channel names differ only in dots, or a pattern matches nothing.
    """
    recording = _with_columns(recording, patterns)
    header = recording.header
    try:
        started_s = datetime.fromisoformat(header.started).timestamp()
    except ValueError as error:
        raise ConfigError(f"the start time {header.started!r} of the recording is not a time") from error
    run = uuid5(NAMESPACE_URL, f"lumion-log:{header.line().decode()}")
    times_s = [started_s + float(time_s) for time_s in recording.time_s]
    yield "start", _start(recording, run, started_s)
    descriptor = uuid5(run, "descriptor")
    yield "descriptor", _descriptor(recording, run, descriptor, started_s)
    yield from _events(recording, descriptor, times_s)
    # On a slow bench the last rows may be missed: the next one would be due after the end of the plan.
    steps = np.diff(recording.index.astype(np.int64), prepend=-1)
    complete = len(steps) > 0 and int(recording.index[-1]) + int(steps.max()) >= header.n_rows
    if header.scan is not None:  # a scan misses none but may visit them in another order
        complete = len(np.unique(recording.index)) == header.n_rows
    yield (
        "stop",
        {
            "uid": str(uuid5(run, "stop")),
            "run_start": str(run),
            "time": times_s[-1] if times_s else started_s,
            "exit_status": "success" if complete else "abort",
            "reason": "" if complete else f"{len(times_s)} of {header.n_rows} rows",
            "num_events": {_STREAM: len(times_s)},
        },
    )


def write_documents(
    recording: RecordedLog, target: AnyPath, overwrite: Overwrite = "own", patterns: Sequence[str] = ("*",)
) -> int:
    """Write the documents of a recording as JSON lines and return their number.

    Raises:
        ConfigError: As for :func:`bluesky_documents`, or the target cannot be written.
    """
    lines = [
        json_text({"name": name, "doc": content}) + "\n" for name, content in bluesky_documents(recording, patterns)
    ]
    write_file(Path(target), "the documents", "".join(lines), overwrite)
    return len(lines)


def _with_columns(recording: RecordedLog, patterns: Sequence[str]) -> RecordedLog:
    devices = {column.name: column.device for column in recording.header.columns}
    names = [column.name for column in recording.columns]
    chosen = set(select_names(patterns, {name: devices[name] for name in names}))
    chosen |= {name for name in names if name in _swept(recording.header)}
    return replace(recording, columns=tuple(column for column in recording.columns if column.name in chosen))


def _swept(header: LogHeader) -> dict[str, str]:
    return {} if header.scan is None else {setting.name + SET: setting.name for setting in header.scan.settings}


def _start(recording: RecordedLog, run: UUID, started_s: float) -> dict[str, Any]:
    header = recording.header
    excluded = {*_swept(header), *((BY_INSTRUMENT,) if header.scan is not None else ())}
    about: dict[str, Any] = {
        "software": header.software or "lumion-hw",  # first: own files are recognised by it
        "uid": str(run),
        "time": started_s,
        "plan_name": "lumion log" if header.scan is None else "lumion scan",
        "plan_type": "generator",
        "detectors": sorted({column.device for column in header.columns if column.name not in excluded}),
        "num_points": header.n_rows,
        "period_s": header.period_s,
        "bench": header.bench,
        "emulated": header.emulated,
    }
    if header.bench_file is not None:
        about["bench_file"] = {"name": header.bench_file.name, "sha256": header.bench_file.sha256}
    if header.record is not None:
        record = header.record
        about["calibration_record"] = {"record_id": record.record_id, "content_sha256": record.content_sha256}
    if header.scan is not None:
        about |= _about_scan(header.scan)
    if header.settings is not None:
        about["settings_before"] = _without_dots(header.settings)
    return about


def _about_scan(plan: ScanPlan) -> dict[str, Any]:
    dimensions = [[[_key(setting.name + SET) for setting in axis.settings], _STREAM] for axis in plan.axes]
    return {
        "motors": [_key(setting.name) for setting in plan.settings],
        "shape": list(plan.shape),
        "snaking": [plan.snake and at > 0 for at in range(len(plan.axes))],
        "hints": {"dimensions": dimensions, "gridding": "rectilinear"},
    }


def _without_dots(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key(str(name)): _without_dots(content) for name, content in value.items()}
    return [_without_dots(item) for item in value] if isinstance(value, list) else value


def _descriptor(recording: RecordedLog, run: UUID, descriptor: UUID, started_s: float) -> dict[str, Any]:
    header = recording.header
    device_of = {column.name: column.device for column in header.columns}
    object_of = device_of | _swept(header)  # a swept setting is a separate object, like a motor in bluesky
    keys: dict[str, dict[str, Any]] = {}
    of_object: dict[str, list[str]] = {}
    whose: dict[str, str] = {}
    for column in recording.columns:
        key, name = _key(column.name), object_of[column.name]
        whose[name] = device_of[column.name]
        if key in keys:
            raise ConfigError(f"two channels have the same name {key!r} without dots", hint="Export them separately.")
        source = f"lumion://{header.bench}/{column.name}"
        common = {"source": source, "shape": [], "object_name": _key(name)}
        keys[key] = {**common, "dtype": "number", "dtype_numpy": "<f8", "units": column.unit}
        keys[key + _STATE] = {**common, "dtype": "string", "choices": [state.name for state in State]}
        of_object.setdefault(name, []).extend((key, key + _STATE))
    return {
        "uid": str(descriptor),
        "run_start": str(run),
        "time": started_s,
        "name": _STREAM,
        "data_keys": keys,
        "object_keys": {_key(name): names for name, names in of_object.items()},
        "configuration": {_key(name): _configuration(recording, whose[name], started_s) for name in of_object},
        "hints": {
            _key(o): {"fields": [field for field in of_object[o] if not field.endswith(_STATE)]} for o in of_object
        },
    }


def _configuration(recording: RecordedLog, device: str, started_s: float) -> dict[str, Any]:
    device_identity = recording.header.devices.get(device)
    identity = (
        {}
        if device_identity is None
        else {
            "kind": device_identity.kind,
            "model": device_identity.model,
            "serial": device_identity.serial,
            "firmware": device_identity.firmware,
        }
    )
    data = {f"{_key(device)}-{field}": text for field, text in identity.items() if text}
    source = f"lumion://{recording.header.bench}/{device}"
    return {
        "data": data,
        "timestamps": dict.fromkeys(data, started_s),
        "data_keys": {key: {"source": source, "dtype": "string", "shape": []} for key in data},
    }


def _events(recording: RecordedLog, descriptor: UUID, times_s: list[float]) -> Iterator[Document]:
    keys = [_key(column.name) for column in recording.columns]
    names = list(chain.from_iterable((key, key + _STATE) for key in keys))
    state_names = {int(state): state.name for state in State}
    for number, time_s in enumerate(times_s):
        data: dict[str, Any] = {}
        for key, column in zip(keys, recording.columns, strict=True):
            data[key] = float(column.value[number])
            data[key + _STATE] = state_names[int(column.state[number])]
        event = {
            "uid": str(uuid5(descriptor, str(number))),
            "descriptor": str(descriptor),
            "seq_num": number + 1,
            "time": time_s,
            "data": data,
            "timestamps": dict.fromkeys(names, time_s),
            "filled": {},
        }
        yield "event", event


def _key(name: str) -> str:
    return name.replace(".", "-")
