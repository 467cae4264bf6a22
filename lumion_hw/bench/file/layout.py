"""The keys in section ``mesh`` of a bench file that select the topology and size of the mesh."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from lumion_hw.bench.file.fields import WholeNumber
from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.components import KINDS
from lumion_hw.mesh.layout.netlist import NETLIST, read_netlist
from lumion_hw.mesh.layout.topologies import LAYOUTS, TOPOLOGIES, build_mesh
from lumion_hw.mesh.layout.topology import MeshLayout, MeshTopology, TopologyKind

_FIRST = next(iter(TOPOLOGIES))
_NETLIST_KEYS = ("netlist", "netlist_text", "netlist_top", "cells")
_NAMED = tuple(word for word, layout in LAYOUTS.items() if layout.key is None)


@dataclass(frozen=True)
class LayoutProblem:
    """A mistake in ``key`` of section ``mesh``, and the key that contradicts it, if any."""

    key: str
    message: str
    other_key: str | None = None


def layout_fields() -> dict[str, Any]:
    """Return the bench-file fields that select the mesh, for ``pydantic.create_model``."""
    fields: dict[str, Any] = {
        "topology": (Literal[tuple(TOPOLOGIES)], Field(_FIRST, description="Kind of mesh.")),
        "layout": (
            Literal[_NAMED] | None,
            Field(None, description=f"{_NAMED[0]}: {LAYOUTS[_NAMED[0]].size}; the default if no size is given."),
        ),
    }
    sized = [(name, layout) for name, kind in TOPOLOGIES.items() for layout in kind.layouts.values()]
    for key in dict.fromkeys(layout.key for _, layout in sized if layout.key is not None):
        layouts = {name: layout for name, layout in sized if layout.key == key}
        layout = next(iter(layouts.values()))
        size: Any = tuple[WholeNumber, ...] if layout.many else WholeNumber
        described = Field(None, description=f"Size of a {' or '.join(layouts)} mesh: {layout.size}.")
        fields[key] = (size | None, described)
    return fields | _netlist_fields()


def _netlist_fields() -> dict[str, Any]:
    kinds: Any = Literal[tuple(KINDS)]
    text = "Contents of the netlist; the bench file's reader sets it. If given, no file is read."
    cells = f"Kind of each component or instance that is unknown or differs: {', '.join(KINDS)}."
    return {
        "netlist": (str | None, Field(None, min_length=1, description="Netlist file beside the bench file.")),
        "netlist_text": (str | None, Field(None, repr=False, description=text)),
        "netlist_top": (str | None, Field(None, description="Component of the netlist to read. Default: the first.")),
        "cells": (dict[str, kinds] | None, Field(None, description=cells)),
    }


def topology_of(section: Mapping[str, Any]) -> MeshTopology:
    """Return the mesh that the keys of section ``mesh`` select.

    Raises:
        ConfigError: The keys contradict each other, or the size is invalid.
    """
    for problem in layout_problems(section):
        raise ConfigError(problem.message)
    if _kind(section) is NETLIST:
        return _netlist_mesh(section)
    chosen = _chosen_sizes(section)
    if len(chosen) != 1:
        raise ConfigError("the section 'mesh' does not select a mesh", hint="Correct its other mistakes first.")
    ((word, numbers),) = chosen.items()
    return build_mesh(word, numbers)


def layout_problems(section: Mapping[str, Any]) -> Iterator[LayoutProblem]:
    """Yield the mistakes in the keys that select the mesh, except values of a wrong type."""
    kind = _kind(section)
    if kind is None:
        return
    if kind is NETLIST:
        yield from _netlist_problems(section)
    for key in _NETLIST_KEYS if kind is not NETLIST else ():
        if section.get(key) is not None:
            yield LayoutProblem(key, f"expected no {key}, which does not apply to a {kind.name} mesh", "topology")
    own_keys = {layout.key for layout in kind.layouts.values()}
    for key in dict.fromkeys(
        _key(LAYOUTS[word]) for word in _given_sizes(section) if LAYOUTS[word].key not in own_keys
    ):
        yield LayoutProblem(key, f"expected no {key}, which does not apply to a {kind.name} mesh", "topology")
    chosen = _chosen_sizes(section)
    keys = [_key(kind.layouts[word]) for word in chosen]
    if len(keys) > 1:
        yield LayoutProblem(keys[-1], f"expected either {' or '.join(keys)}, found both", keys[0])
    elif kind.layouts and not keys and not _has_size(section, kind):
        sizes = " or ".join(map(_key, kind.layouts.values()))
        yield LayoutProblem("topology", f"expected also {sizes}, the size of a {kind.name} mesh, found none")
    for word, numbers in chosen.items() if len(keys) == 1 else ():
        try:
            build_mesh(word, numbers)
        except ConfigError as error:
            topology = section[keys[0]]
            yield LayoutProblem(keys[0], f"expected the {kind.layouts[word].size} of a mesh, found {topology}: {error}")


def default_heater_channels(mesh: MeshTopology) -> list[tuple[int | None, int | None]]:
    """Return the default drive channels (upper, lower) of every PUC: the heaters in order, without gaps, from 0."""
    numbers = itertools.count()
    channels = [next(numbers) if has_heater else None for has_heater in mesh.has_heater.tolist()]
    return list(zip(channels[0::2], channels[1::2], strict=True))


def _netlist_problems(section: Mapping[str, Any]) -> Iterator[LayoutProblem]:
    file, text = section.get("netlist"), section.get("netlist_text")
    if file is None:
        yield LayoutProblem("topology", "expected also netlist, the file that describes the mesh, found none")
    elif text is None and isinstance(file, str):
        message = f"expected also netlist_text, the contents of {file}, found none; load_bench reads the file"
        yield LayoutProblem("netlist", message)
    elif text is not None and _has_netlist_types(section):
        try:
            _netlist_mesh(section)
        except ConfigError as error:
            yield LayoutProblem("netlist", f"expected the netlist of a mesh: {error}")


def _has_netlist_types(section: Mapping[str, Any]) -> bool:
    cells = section.get("cells") or {}
    top = section.get("netlist_top")
    return (
        isinstance(section["netlist"], str)
        and isinstance(section["netlist_text"], str)
        and isinstance(top, str | None)
        and isinstance(cells, Mapping)
        and all(isinstance(name, str) and isinstance(kind, str) and kind in KINDS for name, kind in cells.items())
    )


def _netlist_mesh(section: Mapping[str, Any]) -> MeshTopology:
    if not _has_netlist_types(section):
        raise ConfigError("the section 'mesh' does not select a mesh", hint="Correct its other mistakes first.")
    name = section["netlist"].replace("\\", "/").rpartition("/")[2]
    return read_netlist(section["netlist_text"], name, section.get("cells"), section.get("netlist_top"))


def _key(layout: MeshLayout) -> str:
    return layout.key or "layout"


def _kind(section: Mapping[str, Any]) -> TopologyKind | None:
    """Return the kind of topology in section ``mesh`` (by default the first), or ``None`` if its name is unknown."""
    name = section.get("topology", _FIRST)
    return TOPOLOGIES.get(name) if isinstance(name, str) else None


def _has_size(section: Mapping[str, Any], kind: TopologyKind) -> bool:
    return any(section.get(_key(layout)) is not None for layout in kind.layouts.values())


def _given_sizes(section: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    sizes: dict[str, tuple[int, ...]] = {}
    for word, layout in LAYOUTS.items():
        value = section.get(_key(layout))
        numbers = tuple(value) if layout.many and isinstance(value, list | tuple) else (value,)
        if layout.key is None and value == word:
            sizes[word] = ()
        elif layout.key is not None and all(type(number) is int for number in numbers):
            sizes[word] = numbers
    return sizes


def _chosen_sizes(section: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    kind = _kind(section)
    if kind is None:
        return {}
    if _has_size(section, kind):
        return {word: numbers for word, numbers in _given_sizes(section).items() if word in kind.layouts}
    return {word: () for word, layout in kind.layouts.items() if layout.key is None}
