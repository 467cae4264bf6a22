"""Squelch modes of the drivers of paged modules."""

from __future__ import annotations

from typing import Literal

Side = Literal["tx", "rx"]
"""Transmitter or receiver."""
SquelchMode = Literal["automatic", "off", "forced"]
"""Squelch of an output: ``automatic`` while its input has no signal, ``off`` for never, ``forced`` for always."""


def squelch_mode(*, is_disabled: bool, is_forced: bool) -> SquelchMode:
    """Return the mode from the bits for a disabled automatic squelch and for a forced squelch."""
    if is_forced:
        return "forced"
    return "off" if is_disabled else "automatic"
