"""Which mesh a bench file means: the keys that topologies add to its section ``mesh``, and what they say together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from lumion_hw.bench.file.fields import Whole
from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.topologies import LAYOUTS, TOPOLOGIES, build_mesh
from lumion_hw.mesh.layout.topology import MeshLayout, MeshTopology, TopologyKind

_FIRST = next(iter(TOPOLOGIES))
_NAMED = tuple(word for word, layout in LAYOUTS.items() if layout.key is None)


@dataclass(frozen=True)
class LayoutProblem:
    """What is wrong with the keys that say which mesh it is.

    Attributes:
        key: Key of the section.
        message: What was expected and what was found.
        other_key: Another key that it contradicts.
    """

    key: str
    message: str
    other_key: str | None = None


def layout_fields() -> dict[str, Any]:
    """Return the fields of the section that say which mesh it is, as ``pydantic.create_model`` takes them."""
    fields: dict[str, Any] = {
        "topology": (Literal[tuple(TOPOLOGIES)], Field(_FIRST, description="Kind of mesh.")),
        "layout": (
            Literal[_NAMED] | None,
            Field(None, description=f"{_NAMED[0]}: {LAYOUTS[_NAMED[0]].size}; meant where no size is given."),
        ),
    }
    for name, kind in TOPOLOGIES.items():
        for layout in kind.layouts.values():
            if layout.key is not None:
                size: Any = tuple[Whole, ...] if layout.many else Whole
                described = Field(None, description=f"Size of a {name} mesh: {layout.size}.")
                fields[layout.key] = (size | None, described)
    return fields


def topology_of(section: Mapping[str, Any]) -> MeshTopology:
    """Return the mesh that the keys of a section mean.

    Raises:
        ConfigError: They contradict each other, or no mesh has that size.
    """
    for problem in layout_problems(section):
        raise ConfigError(problem.message)
    chosen = _chosen(section)
    if len(chosen) != 1:
        raise ConfigError("the section mesh does not say which mesh it is", hint="See its other mistakes.")
    ((word, numbers),) = chosen.items()
    return build_mesh(word, numbers)


def layout_problems(section: Mapping[str, Any]) -> Iterator[LayoutProblem]:
    """Yield what is wrong with the keys of a section that say which mesh it is.

    What is not of its type is passed over: the model of the file refuses it.
    """
    kind = _kind(section)
    if kind is None:
        return
    for word in _given(section).keys() - kind.layouts.keys():
        key = _key(LAYOUTS[word])
        yield LayoutProblem(key, f"expected no {key}, which is no size of a {kind.name} mesh", "topology")
    chosen = _chosen(section)
    keys = [_key(kind.layouts[word]) for word in chosen]
    if len(keys) > 1:
        yield LayoutProblem(keys[-1], f"expected either {' or '.join(keys)}, found both", keys[0])
    elif not keys and not _sized(section, kind):
        sizes = " or ".join(map(_key, kind.layouts.values()))
        yield LayoutProblem("topology", f"expected {sizes} with it, the size of a {kind.name} mesh, found none")
    for word, numbers in chosen.items() if len(keys) == 1 else ():
        try:
            build_mesh(word, numbers)
        except ConfigError as error:
            found = section[keys[0]]
            yield LayoutProblem(keys[0], f"expected the {kind.layouts[word].size} of a mesh, found {found}: {error}")


def _key(layout: MeshLayout) -> str:
    return layout.key or "layout"


def _kind(section: Mapping[str, Any]) -> TopologyKind | None:
    """Return the topology that a section names, the first one if it names none, ``None`` if there is no such."""
    name = section.get("topology", _FIRST)
    return TOPOLOGIES.get(name) if isinstance(name, str) else None


def _sized(section: Mapping[str, Any], kind: TopologyKind) -> bool:
    """Return whether a section gives a size of a topology, be it of the right type or not."""
    return any(section.get(_key(layout)) is not None for layout in kind.layouts.values())


def _given(section: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the layouts of any topology that a section names, with their sizes."""
    given: dict[str, tuple[int, ...]] = {}
    for word, layout in LAYOUTS.items():
        value = section.get(_key(layout))
        numbers = tuple(value) if layout.many and isinstance(value, list | tuple) else (value,)
        if layout.key is None and value == word:
            given[word] = ()
        elif layout.key is not None and all(type(number) is int for number in numbers):
            given[word] = numbers
    return given


def _chosen(section: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the layouts of its own topology that a section names; the one without a size if it gives none."""
    kind = _kind(section)
    if kind is None:
        return {}
    if _sized(section, kind):
        return {word: numbers for word, numbers in _given(section).items() if word in kind.layouts}
    return {word: () for word, layout in kind.layouts.items() if layout.key is None}
