"""Which mesh a bench file means."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from lumion_hw.errors import ConfigError

if TYPE_CHECKING:
    from lumion_hw.mesh import HexMesh

MAX_COLUMNS = 64
MAX_CELLS_PER_COLUMN = 64


def topology_of(columns: Sequence[int] | None) -> HexMesh:
    """Return the SmartLight mesh (``None``), or the one with these cells per column.

    Raises:
        ConfigError: No mesh has these columns, or it would have more columns or cells than a bench file may ask for.
    """
    return _topology(None if columns is None else tuple(columns))


@lru_cache(maxsize=16)
def _topology(columns: tuple[int, ...] | None) -> HexMesh:
    from lumion_hw.mesh import HexMesh

    if columns is None:
        return HexMesh.smartlight()
    if len(columns) > MAX_COLUMNS or any(cells > MAX_CELLS_PER_COLUMN for cells in columns):
        raise ConfigError(f"a mesh has at most {MAX_COLUMNS} columns of at most {MAX_CELLS_PER_COLUMN} cells")
    return HexMesh.columns(columns)
