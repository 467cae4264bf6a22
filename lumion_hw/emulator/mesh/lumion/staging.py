"""Staging banks of the emulated board (section 8): codes, which of them are staged, and a bank generation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from firmware_protocol import is_newer, table_crc32


class Bank:
    """One staging bank of ``n_dac`` codes; empty it has generation 0 and nothing staged."""

    def __init__(self, n_dac: int) -> None:
        self.codes: NDArray[np.uint16] = np.zeros(n_dac, dtype=np.uint16)
        self.staged: NDArray[np.bool_] = np.zeros(n_dac, dtype=np.bool_)
        self.generation = 0

    def clear(self) -> None:
        """Empty the bank."""
        self.codes[:] = 0
        self.staged[:] = False
        self.generation = 0

    def takes(self, generation: int) -> bool:
        """Return whether a fragment of this bank generation is welcome: newer opens the bank anew, equal continues."""
        return generation == self.generation or is_newer(generation, self.generation)

    def put(
        self,
        generation: int,
        channels: NDArray[np.int64],
        codes: NDArray[np.uint16],
        base: NDArray[np.uint16] | None = None,
    ) -> None:
        """Stage ``codes`` on ``channels`` (a channel named twice: the last wins).

        Args:
            generation: Bank generation; newer than the present one it opens the bank anew.
            channels: Channel numbers.
            codes: One code per channel number.
            base: Table that fills a newly opened bank, all channels staged; ``None`` for an empty one.
        """
        if generation != self.generation:
            self.clear()
            self.generation = generation
            if base is not None:
                self.codes[:] = base
                self.staged[:] = True
        for channel, code in zip(channels.tolist(), codes.tolist(), strict=True):
            self.codes[channel] = code
        self.staged[channels] = True

    @property
    def n_staged(self) -> int:
        """Distinct channels staged in this bank generation."""
        return int(self.staged.sum())

    def first_missing(self) -> int | None:
        """Return the first channel not staged, or ``None``."""
        missing = np.flatnonzero(~self.staged)
        return int(missing[0]) if missing.size else None

    def crc32(self) -> int:
        """Return the CRC-32 of the bank's table; channels not staged count as 0."""
        return table_crc32(self.codes)
