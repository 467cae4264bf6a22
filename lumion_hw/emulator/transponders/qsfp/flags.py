"""Latched flags of one emulated QSFP module, and its interrupt.

A flag is set by a condition, some time after its beginning, and stays set until the host reads its byte. A condition
that still holds sets the flag again. A masked flag does not assert the interrupt (SFF-8636 clause 6.2.3).
"""

from __future__ import annotations

from dataclasses import dataclass

from lumion_hw.emulator.transponders.qsfp.memory import EmulatedQsfpMemory
from lumion_hw.emulator.transponders.qsfp.offsets import FLAG_MASKS, LAST_FLAGS, LOS_FLAGS


@dataclass
class _Change:
    """A change of flag bits that becomes visible at ``due_s``."""

    due_s: float
    byte: int
    mask: int
    active: bool


class EmulatedQsfpFlags:
    """The flag bytes 3 to 21 of a module."""

    def __init__(self, memory: EmulatedQsfpMemory) -> None:
        self._memory = memory
        self.reset()

    def reset(self) -> None:
        """Clear all flags and forget all conditions."""
        self._latched = dict.fromkeys(range(LOS_FLAGS, LAST_FLAGS + 1), 0)
        self._held = dict(self._latched)
        self._wanted = dict(self._latched)
        self._changes: list[_Change] = []

    def hold(self, byte: int, mask: int, active: bool, due_s: float) -> None:
        """Report a condition: at ``due_s`` its flag follows. Only a change has an effect."""
        if bool(self._wanted[byte] & mask) == active:
            return
        self._wanted[byte] = self._wanted[byte] | mask if active else self._wanted[byte] & ~mask
        self._changes.append(_Change(due_s, byte, mask, active))

    def latch(self, byte: int, mask: int) -> None:
        """Set a flag because of an event."""
        self._latched[byte] |= mask

    def settle(self, now_s: float) -> None:
        """Apply the changes that are due."""
        waiting = []
        for change in self._changes:
            if change.due_s > now_s:
                waiting.append(change)
            elif change.active:
                self._held[change.byte] |= change.mask
                self._latched[change.byte] |= change.mask
            else:
                self._held[change.byte] &= ~change.mask
        self._changes = waiting

    def take(self, byte: int) -> int:
        """Return a flag byte as the host reads it, which clears the flags without a condition."""
        value = self._latched[byte]
        self._latched[byte] = self._held[byte]
        return value

    def next_s(self) -> float | None:
        """Return the time of the next change of a flag; ``None`` if there is none."""
        return min((change.due_s for change in self._changes), default=None)

    @property
    def interrupt(self) -> bool:
        """Whether an unmasked flag is set."""
        return any(
            self._latched[byte] & ~self._memory.byte(page, mask_byte) for byte, (page, mask_byte) in FLAG_MASKS.items()
        )
