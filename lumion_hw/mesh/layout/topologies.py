"""The table of topologies: every kind of mesh that a bench file, a command or a document can name.

A further topology is a file of its own, such as :mod:`lumion_hw.mesh.layout.rectangular`, and a row here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.hexagonal import HEXAGONAL
from lumion_hw.mesh.layout.rectangular import RECTANGULAR
from lumion_hw.mesh.layout.topology import MeshLayout, MeshTopology, TopologyKind

TOPOLOGIES: dict[str, TopologyKind] = {kind.name: kind for kind in (HEXAGONAL, RECTANGULAR)}

LAYOUTS: dict[str, MeshLayout] = {word: each for kind in TOPOLOGIES.values() for word, each in kind.layouts.items()}
"""Layouts of all topologies by the word that begins their labels."""


@lru_cache(maxsize=16)
def _laid_out(word: str, numbers: tuple[int, ...]) -> MeshTopology:
    return LAYOUTS[word].build(numbers)


def build_mesh(word: str, numbers: Sequence[int] = ()) -> MeshTopology:
    """Return the mesh of a layout, made once.

    Args:
        word: Name of the layout, such as ``columns``.
        numbers: Its size, such as ``(2, 3, 2)``.

    Raises:
        ConfigError: There is no such layout, or no mesh of that size.
    """
    layout = LAYOUTS.get(word)
    if layout is None:
        raise ConfigError(f"{word!r} is no layout of a mesh", hint=f"There are {', '.join(LAYOUTS)}.")
    if not layout.fits(len(numbers)):
        size = f"{layout.size} after it" if layout.key else "no numbers after it"
        raise ConfigError(f"{len(numbers)} numbers are no size of {word!r}", hint=f"Expected {size}.")
    return _laid_out(word, tuple(numbers))


def mesh_from_label(label: str) -> MeshTopology:
    """Return the mesh of a label such as ``columns 2 3 2``.

    Raises:
        ConfigError: The label is not that of a layout.
    """
    word, *numbers = label.split() or [""]
    if not all(number.isdecimal() for number in numbers):
        raise ConfigError(f"{label!r} is no layout of a mesh", hint="A label is a word and whole numbers.")
    return build_mesh(word, [int(number) for number in numbers])


def mesh_from_dict(document: Mapping[str, Any]) -> MeshTopology:
    """Return the mesh that :meth:`MeshTopology.to_dict` wrote.

    Raises:
        ConfigError: Something is missing, of the wrong shape, or contradicts the rest; the message names the element.
    """
    # Documents from before there was a second topology do not name theirs.
    name = document.get("topology", HEXAGONAL.name)
    if name not in TOPOLOGIES:
        raise ConfigError(f"{name!r} is no topology of a mesh", hint=f"There are {', '.join(TOPOLOGIES)}.")
    return TOPOLOGIES[name].read(document)
