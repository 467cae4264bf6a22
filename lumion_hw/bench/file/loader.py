"""Reads bench files. All mistakes are reported at once, with their positions."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from lumion_hw.errors import ConfigError
from lumion_hw.files.reading import check_kind, read_file

if TYPE_CHECKING:
    from pydantic import BaseModel

    from lumion_hw.bench.file.checks import Check, Path
    from lumion_hw.bench.file.explain import Location
    from lumion_hw.bench.file.kind import DeviceKind
    from lumion_hw.bench.file.model import BenchModel
    from lumion_hw.bench.file.yaml_marks import Document, Place

# A bench file has a few KiB; a larger file is probably another kind of file.
MAX_BYTES = 1 << 20
MAX_NETLIST_BYTES = 16 << 20
MAX_LISTED = 50
_BUILTIN = pathlib.Path(__file__).parents[1] / "builtin"


@dataclass(frozen=True)
class Problem:
    """One mistake in a bench file, with its position.

    ``line`` and ``column`` count from 1. ``path`` is the position inside the file, such as ``wiring.inputs[2].port``;
    ``source`` is the text of the line.
    """

    file: str
    line: int
    column: int
    path: str
    message: str
    source: str

    def __str__(self) -> str:
        head = f"{self.file}:{self.line}:{self.column}: {self.path}: {self.message}"
        if not self.source.strip():
            return head
        start = max(0, self.column - 80)
        excerpt = self.source[start : start + 110]
        pad = "".join("\t" if char == "\t" else " " for char in excerpt[: self.column - 1 - start])
        return f"{head}\n    {excerpt}\n    {pad}^"


def builtin_names() -> tuple[str, ...]:
    """Return the names of the built-in benches."""
    return tuple(sorted(path.stem for path in _BUILTIN.glob("*.yaml")))


def builtin_path(name: str) -> pathlib.Path:
    """Return the path of the bench file of a built-in bench.

    Raises:
        ConfigError: No built-in bench has this name.
    """
    if name not in builtin_names():
        raise ConfigError(f"no built-in bench is called {name!r}", hint=f"There are: {', '.join(builtin_names())}.")
    return _BUILTIN / f"{name}.yaml"


@dataclass(frozen=True)
class BenchFile:
    """The contents of a bench file when it was read."""

    path: pathlib.Path
    data: bytes = field(repr=False)
    text: str = field(repr=False)


def read_bench_file(source: str | os.PathLike[str]) -> BenchFile:
    """Read a bench file, or a built-in bench by its name, without checking it.

    Raises:
        ConfigError: The file cannot be read, or is not UTF-8 text.
    """
    name = os.fspath(source)
    path = pathlib.Path(name)
    if name in builtin_names() and not path.exists():
        path = builtin_path(name)
    hint = f"Give the path of a bench file, or a built-in one: {', '.join(builtin_names())}."
    raw = read_file(path, "bench file", max_bytes=MAX_BYTES, hint=hint)
    check_kind(raw, path, "bench file", hint=hint)
    try:
        return BenchFile(path, raw, raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        text = f"{path}:{line}:{column}: expected UTF-8 text, found the byte {raw[error.start]:#04x}"
        raise ConfigError(text, hint="Save the file as UTF-8.") from error


def load_bench(source: str | os.PathLike[str], *, text: str | None = None) -> BenchModel:
    """Read and check a bench file without using hardware.

    Args:
        source: Path of the file, or the name of a built-in bench.
        text: The contents, if they are not read from a file; ``source`` is then only a name for messages.

    Raises:
        ConfigError: The file cannot be read, or contains mistakes; the message lists all of them.
    """
    model, problems = _read(source, text)
    if model is None:
        raise error_from_problems(f"bench file {os.fspath(source)}", problems)
    return model


def error_from_problems(subject: str, problems: Sequence[Problem]) -> ConfigError:
    """Return an error that lists the mistakes in a file."""
    listed = [str(problem) for problem in problems[:MAX_LISTED]]
    if len(problems) > MAX_LISTED:
        listed.append(f"… and {len(problems) - MAX_LISTED} more")
    count = "1 mistake" if len(problems) == 1 else f"{len(problems)} mistakes"
    return ConfigError("\n".join([f"{count} in {subject}:", *listed]))


def problems_in(file: str, text: str, document: Document, checks: Iterable[Check]) -> tuple[Problem, ...]:
    """Return the mistakes in the syntax and the contents of a YAML document, in the order of their lines."""
    faults: list[tuple[Path, Place, str]] = [(fault.path, fault.place, fault.message) for fault in document.faults]
    return _problems(file, text, [*faults, *(_located(check, document) for check in checks)])


def check_bench(source: str | os.PathLike[str], *, text: str | None = None) -> tuple[Problem, ...]:
    """Return all mistakes in a bench file, in the order of their lines; arguments as for :func:`load_bench`.

    Raises:
        ConfigError: The file cannot be read.
    """
    return _read(source, text)[1]


def indistinguishable_devices(model: BenchModel) -> dict[str, list[str]]:
    """Return the names of devices of equal kind that cannot report a serial number, by kind, if there are two or more.

    If two such devices are swapped, opening the bench does not detect this.
    """
    by_kind: dict[str, list[str]] = {}
    for name, device in model.devices.items():
        if device.address is not None and not {"serial", "modules"} & set(type(device).model_fields):
            by_kind.setdefault(device.kind, []).append(name)
    return {kind: names for kind, names in by_kind.items() if len(names) > 1}


def bench_schema(kinds: Iterable[DeviceKind] | None = None) -> dict[str, Any]:
    """Return the JSON Schema of bench files.

    The schema does not contain rules between parts of the file, such as ports used only once.

    Args:
        kinds: At least two kinds of devices; by default all usable kinds.
    """
    from typing import Annotated, Union

    from pydantic import Field, create_model

    from lumion_hw.bench.file.fields import Name
    from lumion_hw.bench.file.known_kinds import all_kinds
    from lumion_hw.bench.file.model import BenchModel

    models = tuple(kind.model for kind in (all_kinds()[0] if kinds is None else kinds))
    devices = dict[Name, Annotated[Union[models], Field(discriminator="kind")]]  # type: ignore[valid-type] # noqa: UP007
    field = BenchModel.model_fields["devices"]
    bench: type[BenchModel] = create_model("BenchModel", __base__=BenchModel, devices=(devices, field))
    schema = bench.model_json_schema() | {"description": BenchModel.__doc__}
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "lumion-hw bench file, version 1"}
    return head | {key: value for key, value in schema.items() if key != "title"}


def _read(source: str | os.PathLike[str], text: str | None) -> tuple[BenchModel | None, tuple[Problem, ...]]:
    from lumion_hw.bench.file.yaml_marks import read_yaml

    if text is None:
        file = read_bench_file(source)
        source, text = file.path, file.text
    elif len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise _too_large(os.fspath(source))
    document = read_yaml(text)
    unread = _add_netlist(document.data, pathlib.Path(os.fspath(source)).parent)
    # A text that is not YAML has one fault and no positions; the model would only add that everything is missing.
    model, checks = _validate(document.data) if document.marks else (None, [])
    # A missing file is one mistake.
    checks = [*(check for check in checks if not unread or check.path != unread[0].path), *unread]
    problems = problems_in(os.fspath(source), text, document, checks)
    return (None if problems else model), problems


def _add_netlist(data: object, folder: pathlib.Path) -> list[Check]:
    from lumion_hw.bench.file.checks import Check
    from lumion_hw.mesh.layout.netlist import NETLIST_NAME

    mesh = data.get("mesh") if isinstance(data, dict) else None
    name = mesh.get("netlist") if isinstance(mesh, dict) else None
    if not isinstance(mesh, dict) or not isinstance(name, str):
        return []
    if mesh.get("topology") != NETLIST_NAME or mesh.get("netlist_text") is not None:
        return []
    path = folder / name
    try:
        raw = read_file(path, "netlist", max_bytes=MAX_NETLIST_BYTES)
        check_kind(raw, path, "netlist")
        mesh["netlist_text"] = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return [Check(("mesh", "netlist"), f"expected UTF-8 text in {path}, found another byte in line {line}")]
    except ConfigError as error:
        return [Check(("mesh", "netlist"), f"expected a netlist beside the bench file: {error}")]
    return []


def _too_large(name: str) -> ConfigError:
    return ConfigError(
        f"bench file {name} is larger than {MAX_BYTES // 1024} KiB", hint="It is probably another kind of file."
    )


def _validate(data: object) -> tuple[BenchModel | None, list[Check]]:
    from pydantic import ValidationError

    from lumion_hw.bench.file.checks import Check, cross_check
    from lumion_hw.bench.file.explain import explain
    from lumion_hw.bench.file.fields import describe
    from lumion_hw.bench.file.known_kinds import KindRegistry
    from lumion_hw.bench.file.model import BenchModel

    if not isinstance(data, dict):
        return None, [Check((), f"expected a mapping with the keys of a bench file, found {describe(data)}")]
    try:
        return BenchModel.model_validate(data), []
    except ValidationError as error:
        find_schema = partial(_find_schema, data)
        checks = [explain(item, find_schema) for item in error.errors(include_url=False) if item["loc"]]
    # Report both, so that a wrong number and a wrong name can be corrected at the same time.
    return None, checks + cross_check(data, KindRegistry())


def _find_schema(data: dict[str, Any], loc: Location) -> tuple[dict[str, Any], Location]:
    from lumion_hw.bench.file.known_kinds import KindRegistry
    from lumion_hw.bench.file.model import BenchModel

    if loc[:1] == ("devices",) and len(loc) > 1:
        kind = KindRegistry().get(data["devices"][loc[1]]["kind"])
        return ({} if kind is None else _json_schema(kind.model)), loc[2:]
    return _json_schema(BenchModel), loc


@cache
def _json_schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


def _located(check: Check, document: Document) -> tuple[Path, Place, str]:
    message = check.message
    if check.other is not None:
        message += f" (line {document.place(check.other).line})"
    return check.path, document.place(check.path, key=check.on_key), message


def _problems(file: str, text: str, faults: list[tuple[Path, Place, str]]) -> tuple[Problem, ...]:
    from lumion_hw.bench.file.checks import path_text

    lines = text.splitlines()
    faults.sort(key=lambda item: (item[1].line, item[1].column))
    return tuple(
        Problem(
            file=file,
            line=place.line,
            column=place.column,
            path=path_text(path),
            message=message,
            source=lines[place.line - 1] if place.line <= len(lines) else "",
        )
        for path, place, message in faults
    )
