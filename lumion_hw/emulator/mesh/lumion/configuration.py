"""Pending and active configuration of the emulated board (docs/protocol.md, section 7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firmware_protocol import (
    LIMIT_DTYPE,
    ConfigGlobalRequest,
    Refusal,
    Status,
    channel_power_uw,
    computed_power_uw,
    config_crc32,
)
from lumion_hw.emulator.mesh.lumion.profile import BoardProfile

_TABLES_PER_CHECK = 256  # tables checked by one numpy call; an image may have thousands of points


@dataclass(frozen=True)
class StoredConfiguration:
    """One complete configuration of the emulated board.

    Attributes:
        common: Settings of the whole board (block GLOBAL of section 7).
        limits: One limit record per channel (``LIMIT_DTYPE``).
    """

    common: ConfigGlobalRequest
    limits: NDArray[Any]
    crc32: int

    def refuse_codes(self, codes: NDArray[np.uint16], channels: NDArray[np.int64]) -> Refusal | None:
        """Return the refusal LIMIT for the first code above its channel's ``code_max``; otherwise ``None``."""
        allowed = self.limits["code_max"][channels]
        is_wrong = np.flatnonzero(codes > allowed)
        if not is_wrong.size:
            return None
        first = is_wrong[0]
        return Refusal(
            Status.LIMIT, channel=int(channels[first]), value=int(codes[first]), limit=int(allowed[first]), text="code"
        )

    def refuse_table(self, codes: NDArray[np.uint16], profile: BoardProfile) -> Refusal | None:
        """Return the refusal LIMIT for codes above a code limit or the power cap (section 7.3); otherwise ``None``."""
        refusal = self.refuse_codes(codes, np.arange(len(codes)))
        if refusal is not None:
            return refusal
        power_uw = computed_power_uw(codes, self.limits["load_ohm"], profile.dac_full_scale, profile.drive)
        if power_uw > self.common.total_power_mw * 1000:
            # Rounded up, so that the refused power is never equal to the limit.
            requested_mw = -(-power_uw // 1000)
            return Refusal(Status.LIMIT, value=requested_mw, limit=self.common.total_power_mw, text="power")
        return None

    def refuse_points(self, tables: Iterable[NDArray[np.uint16]], profile: BoardProfile) -> Refusal | None:
        """Return the refusal LIMIT with the index of the first sweep point above a limit; otherwise ``None``."""
        remaining: Iterator[NDArray[np.uint16]] = iter(tables)
        first = 0
        while chunk := list(islice(remaining, _TABLES_PER_CHECK)):
            codes = np.stack(chunk)
            ohm = np.tile(self.limits["load_ohm"], len(chunk))
            power_uw = channel_power_uw(codes.ravel(), ohm, profile.dac_full_scale, profile.drive).reshape(codes.shape)
            is_wrong = (codes > self.limits["code_max"]).any(axis=1)
            is_wrong |= power_uw.sum(axis=1) > self.common.total_power_mw * 1000
            if is_wrong.any():
                point = int(is_wrong.argmax())
                # Checked again on its own to get the details of the refusal.
                refusal = self.refuse_table(chunk[point], profile)
                return None if refusal is None else replace(refusal, index=first + point)
            first += len(chunk)
        return None


class PendingConfiguration:
    """A configuration that the host sends in pieces, before it is applied as a whole."""

    def __init__(self, common: ConfigGlobalRequest, n_dac: int) -> None:
        self._common = common
        self._limits = np.zeros(n_dac, dtype=LIMIT_DTYPE)
        self._is_set = np.zeros(n_dac, dtype=np.bool_)

    def store_limits(self, start: int, limits: NDArray[Any]) -> None:
        """Store limit records of consecutive channels."""
        self._limits[start : start + len(limits)] = limits
        self._is_set[start : start + len(limits)] = True

    @property
    def count(self) -> int:
        """Number of channels that have a limit record."""
        return int(self._is_set.sum())

    def first_missing(self) -> int | None:
        """Return the first channel without a limit record; ``None`` if there is none."""
        missing = np.flatnonzero(~self._is_set)
        return int(missing[0]) if missing.size else None

    def complete(self) -> StoredConfiguration:
        """Return the configuration with the collected limit records."""
        return StoredConfiguration(self._common, self._limits.copy(), config_crc32(self._common, self._limits))
