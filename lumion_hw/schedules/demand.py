"""Traffic demand between ranks, from token counts or traffic rates."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lumion_hw.errors import ConfigError
from lumion_hw.files import AnyPath
from lumion_hw.files.reading import read_file
from lumion_hw.schedules.schedule import MAX_RANKS, check_ranks

_MAX_BYTES = 2**50
"""Largest allowed matrix entry; row sums stay exact integers."""


@dataclass(frozen=True, eq=False)
class Demand:
    """Bytes from every rank to every other rank.

    Attributes:
        pair_bytes: Bytes from row to column, integers of shape ``(ranks, ranks)``; the diagonal is zero.
        local_bytes: Sum of the bytes that stay on their rank and need no circuit.
    """

    pair_bytes: NDArray[np.int64]
    local_bytes: int = 0

    @property
    def ranks(self) -> int:
        """Number of ranks of the demand."""
        return len(self.pair_bytes)

    @property
    def total_bytes(self) -> int:
        """Bytes of the demand over all pairs of ranks."""
        return int(self.pair_bytes.sum())

    @property
    def busiest_bytes(self) -> int:
        """Bytes through the busiest port in one direction, a lower bound of the duration of any schedule."""
        return int(max(self.pair_bytes.sum(axis=0).max(), self.pair_bytes.sum(axis=1).max()))

    def reversed(self) -> Demand:
        """Return the demand in the opposite direction, such as the way of tokens back from experts."""
        return Demand(np.ascontiguousarray(self.pair_bytes.T), self.local_bytes)


def demand_from_counts(
    counts: ArrayLike, *, bytes_per_count: float = 1.0, rank_of_column: Sequence[int] | None = None
) -> Demand:
    """Return the traffic demand in bytes for a matrix of counts, such as token counts.

    Args:
        counts: Shape ``(ranks, ranks)`` from row to column, or ``(ranks, experts)`` with ``rank_of_column``.
        bytes_per_count: Bytes per count: hidden size times bytes per element for tokens, duration in seconds for rates
            in bytes per second. Fractions of a byte are rounded up.
        rank_of_column: Rank of the expert of each column; columns of one rank are added.

    Raises:
        ConfigError: An entry is negative, not finite or too large, or the shape is wrong; the message says which.
    """
    try:
        matrix = np.asarray(counts, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError("a demand must be a matrix of numbers") from error
    if matrix.ndim != 2 or not matrix.size:
        raise ConfigError(f"a demand must be a matrix, found shape {matrix.shape}")
    if rank_of_column is not None:
        matrix = _sum_by_rank(matrix, rank_of_column)
    if matrix.shape[0] != matrix.shape[1]:
        raise ConfigError(
            f"a demand must be a square matrix of ranks, found shape {matrix.shape}",
            hint="If the columns are experts, give the rank of each expert.",
        )
    check_ranks(len(matrix), "a demand")
    if not 0.0 < bytes_per_count < _MAX_BYTES:
        raise ConfigError(f"bytes_per_count must be above 0 and below {_MAX_BYTES}, not {bytes_per_count}")
    with np.errstate(over="ignore", invalid="ignore"):
        in_bytes = matrix * bytes_per_count
    invalid = np.argwhere(~((in_bytes >= 0.0) & (in_bytes <= _MAX_BYTES)))
    if len(invalid):
        row, column = invalid[0].tolist()
        value = matrix[row, column]
        reason = "negative" if value < 0.0 else "not finite" if not np.isfinite(value) else "too large"
        raise ConfigError(f"demand of row {row}, column {column} (counted from 0) is {reason}: {value}")
    rounded_bytes = np.ceil(in_bytes).astype(np.int64)
    local = int(np.trace(rounded_bytes))
    np.fill_diagonal(rounded_bytes, 0)
    return Demand(rounded_bytes, local)


def _sum_by_rank(matrix: NDArray[np.float64], rank_of_column: Sequence[int]) -> NDArray[np.float64]:
    ranks, experts = matrix.shape
    if len(rank_of_column) != experts:
        raise ConfigError(f"{len(rank_of_column)} ranks given for {experts} columns", hint="Give one rank per column.")
    if unknown := [rank for rank in rank_of_column if not 0 <= rank < ranks]:
        raise ConfigError(
            f"a column of experts is assigned to rank {unknown[0]}, but the {ranks} rows are ranks 0 to {ranks - 1}"
        )
    folded = np.zeros((ranks, ranks))
    for column, rank in enumerate(rank_of_column):
        folded[:, rank] += matrix[:, column]
    return folded


def read_counts(path: AnyPath) -> NDArray[np.float64]:
    """Read a matrix from a CSV file (commas, no header) or an NPY file (never unpickled).

    Raises:
        ConfigError: The file cannot be read or has other content; the message names the line.
    """
    path = Path(path)
    hint = "Give a matrix as .csv with commas, or as .npy."
    data = read_file(path, "matrix", hint=hint)
    if data.startswith(b"\x93NUMPY"):
        return _read_npy(data, path, hint)
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: the file is neither text nor NPY", hint=hint) from error
    rows: list[list[float]] = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            rows.append(
                [_parse_number(cell, path, number, column) for column, cell in enumerate(line.split(","), start=1)]
            )
            if len(rows[-1]) != len(rows[0]):
                raise ConfigError(
                    f"{path}:{number}: {len(rows[-1])} numbers in the row, but earlier rows have {len(rows[0])}"
                )
    if not rows:
        raise ConfigError(f"{path}: the file holds no numbers", hint=hint)
    return np.array(rows)


def _parse_number(cell: str, path: Path, line: int, column: int) -> float:
    try:
        return float(cell)
    except ValueError:
        text = cell.strip()
        short_text = text if len(text) <= 40 else f"{text[:40]}…"
        raise ConfigError(f"{path}:{line}: expected number {column} of the row, found {short_text!r}") from None


def _read_npy(data: bytes, path: Path, hint: str) -> NDArray[np.float64]:
    try:
        file = io.BytesIO(data)
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        # Check the header first: numpy would allocate memory for any size that it states.
        if dtype.kind not in "iuf" or len(shape) != 2 or max(shape) > 64 * MAX_RANKS:
            raise ConfigError(f"{path}: expected a matrix of numbers, found shape {shape} of {dtype}", hint=hint)
        return np.asarray(np.load(io.BytesIO(data), allow_pickle=False), dtype=np.float64)
    except ConfigError:
        raise
    except (ValueError, OSError, EOFError, OverflowError, SyntaxError) as error:
        raise ConfigError(f"{path}: the file is damaged: {error}", hint=hint) from error
