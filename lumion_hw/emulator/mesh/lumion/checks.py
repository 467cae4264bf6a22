"""Refusals that several commands share."""

from __future__ import annotations

from firmware_protocol import OutputsState, Refusal, Status
from lumion_hw.emulator.mesh.lumion.core import BoardCore


def bad_value(offset: int, value: int) -> Refusal:
    """Return BAD_VALUE for the field at a payload offset."""
    return Refusal(Status.BAD_VALUE, channel=offset, value=value)


def refuse_state(core: BoardCore) -> Refusal | None:
    """Return why outputs cannot be programmed in this state (section 8.3, check 1), or ``None``."""
    if core.state is OutputsState.BOOT:
        return Refusal(Status.NOT_CONFIGURED)
    if core.state is OutputsState.SWEEP:
        return Refusal(Status.BUSY)
    if core.state in (OutputsState.GRACE, OutputsState.SAFE):
        return Refusal(Status.SAFE, value=core.faults.latched)
    return None


def refuse_span(start: int, count: int, size: int, start_offset: int, count_offset: int) -> Refusal | None:
    """Return BAD_VALUE for a span that is empty or leaves ``0 .. size - 1``, or ``None``."""
    if not 0 <= start < size:
        return bad_value(start_offset, start)
    if not 1 <= count <= size - start:
        return bad_value(count_offset, count)
    return None
