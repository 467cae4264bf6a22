"""Which mesh a bench file means."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lumion_hw.mesh import MeshTopology


def topology_of(columns: Sequence[int] | None) -> MeshTopology:
    """Return the SmartLight mesh (``None``), or the one with these cells per column.

    Raises:
        ConfigError: No mesh has these columns, or it would have too many cells.
    """
    return _topology(None if columns is None else tuple(columns))


@lru_cache(maxsize=16)
def _topology(columns: tuple[int, ...] | None) -> MeshTopology:
    from lumion_hw.mesh import HexMesh

    if columns is None:
        return HexMesh.smartlight()
    return HexMesh.columns(columns)
