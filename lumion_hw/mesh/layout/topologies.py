"""All mesh topologies that a bench file, a command or a document can name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.feed_forward import FEED_FORWARD
from lumion_hw.mesh.layout.hexagonal import HEXAGONAL
from lumion_hw.mesh.layout.lattice import LATTICES
from lumion_hw.mesh.layout.netlist import NETLIST
from lumion_hw.mesh.layout.rectangular import RECTANGULAR
from lumion_hw.mesh.layout.topology import MeshLayout, MeshTopology, TopologyKind

TOPOLOGIES: dict[str, TopologyKind] = {
    kind.name: kind for kind in (HEXAGONAL, RECTANGULAR, *FEED_FORWARD, *LATTICES, NETLIST)
}

LAYOUTS: dict[str, MeshLayout] = {word: layout for kind in TOPOLOGIES.values() for word, layout in kind.layouts.items()}
"""All layouts, by the first word of their labels."""


@lru_cache(maxsize=16)
def _build_cached(word: str, numbers: tuple[int, ...]) -> MeshTopology:
    return LAYOUTS[word].build(numbers)


def build_mesh(word: str, numbers: Sequence[int] = ()) -> MeshTopology:
    """Return the mesh of a layout.

    Args:
        word: Name of the layout, such as ``columns``.
        numbers: Size of the layout, such as ``(2, 3, 2)``.

    Raises:
        ConfigError: The layout is unknown, or does not exist in this size.
    """
    layout = LAYOUTS.get(word)
    if layout is None:
        raise ConfigError(f"unknown mesh layout {word!r}", hint=f"Use one of {', '.join(LAYOUTS)}.")
    if not layout.accepts_count(len(numbers)):
        size = f"{layout.size}" if layout.key else "no numbers"
        raise ConfigError(
            f"mesh layout {word!r} cannot have {len(numbers)} numbers", hint=f"Give {size} after {word!r}."
        )
    # Equal meshes are one object, so that everything that is cached on a mesh is calculated once.
    return _build_cached(word, tuple(numbers))


def mesh_from_label(label: str) -> MeshTopology:
    """Return the mesh of a label such as ``columns 2 3 2``.

    Raises:
        ConfigError: The label does not name a layout.
    """
    word, *numbers = label.split() or [""]
    if not all(number.isdecimal() for number in numbers):
        raise ConfigError(
            f"{label!r} is not a mesh label",
            hint="A label is a word followed by whole numbers, such as 'columns 2 3 2'.",
        )
    return build_mesh(word, [int(number) for number in numbers])


def mesh_from_dict(document: Mapping[str, Any]) -> MeshTopology:
    """Return the mesh that :meth:`MeshTopology.to_dict` wrote.

    Raises:
        ConfigError: An entry is missing, invalid, or contradicts another; the message names the element.
    """
    # Documents older than the rectangular topology have no 'topology' key: they are hexagonal.
    name = document.get("topology", HEXAGONAL.name)
    if name not in TOPOLOGIES:
        raise ConfigError(f"unknown mesh topology {name!r}", hint=f"Use one of {', '.join(TOPOLOGIES)}.")
    return TOPOLOGIES[name].read(document)
