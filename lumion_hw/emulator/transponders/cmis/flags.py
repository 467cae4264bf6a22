"""Latched flags, their masks, the interrupt and the summaries (CMIS 6.3.3, 8.2.3).

A flag is set by an event, or by a condition that lasts; a read of its byte clears it, and a condition that still lasts
sets it again at once. Masks keep a flag from the interrupt, not from being set.
"""

from __future__ import annotations

from collections.abc import Iterator

from lumion_hw.emulator.transponders.cmis.memory import Memory
from lumion_hw.standards.cmis import ALL_FIELDS, FIELDS, Access, Page, is_supported
from lumion_hw.standards.cmis.fields import Field

_SUMMARY_PAGES = (0x11, 0x12, 0x14, 0x2C)
_CUSTOM = ("custom_flags", "custom_masks")


def _pairs() -> Iterator[tuple[Field, Field]]:
    """Yield each flag field with its mask field. No masks are known for page 33h: its flags do not interrupt."""
    for field in ALL_FIELDS:
        if field.access is not Access.COR:
            continue
        mask = _CUSTOM[1] if field.name == _CUSTOM[0] else f"{field.name.removesuffix('_flag')}_mask"
        if mask in FIELDS:
            yield field, FIELDS[mask]


def _byte_pairs() -> tuple[tuple[Page, int, Page, int], ...]:
    """Return page and byte of the flags and of their masks; bits stand at the same place in both."""
    pairs = {
        (flag.page, first.byte, mask.page, second.byte): None
        for flag, mask in _pairs()
        for first, second in zip(flag.locations(), mask.locations(), strict=True)
    }
    return tuple(pairs)


_BYTE_PAIRS = _byte_pairs()


class Flags:
    """The flags of one module, in its memory.

    Args:
        memory: The registers.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._held: dict[tuple[Page, int], int] = {}
        self._pairs = [pair for pair in _BYTE_PAIRS if memory.has(pair[0]) and memory.has(pair[2])]
        self._active: set[tuple[str, int | None]] = set()
        self._places: dict[tuple[str, int | None], tuple[Page, int, int] | None] = {}

    def _place(self, name: str, index: int | None) -> tuple[Page, int, int] | None:
        """Return page, byte and bit mask of a flag; ``None`` when the module does not have it."""
        key = (name, index)
        if key not in self._places:
            field = FIELDS[name]
            there = self._memory.has(field.page) and is_supported(field, self._advertised) is not False
            self._places[key] = (field.page, field.span(index)[0], 1 << field.shift(index)) if there else None
        return self._places[key]

    def _advertised(self, name: str) -> int | None:
        return self._memory.count(name) if name in FIELDS else None

    def raise_event(self, name: str, index: int | None = None) -> None:
        """Latch a flag because something happened."""
        place = self._place(name, index)
        if place is not None:
            page, byte, mask = place
            self._memory.set_byte(page, byte, self._memory.byte(page, byte) | mask)

    def hold(self, name: str, active: bool, index: int | None = None) -> None:
        """Latch a flag for as long as a condition lasts."""
        key = (name, index)
        if active == (key in self._active):  # nothing new; a read has set it again by itself
            return
        place = self._place(name, index)
        if place is None:
            return
        if active:
            self._active.add(key)
        else:
            self._active.discard(key)
        page, byte, mask = place
        held = self._held.get((page, byte), 0)
        self._held[page, byte] = held | mask if active else held & ~mask
        if active:
            self._memory.set_byte(page, byte, self._memory.byte(page, byte) | mask)

    def cleared(self, page: Page, byte: int) -> int:
        """Return what a flag byte is after it was read: the conditions that last."""
        return self._held.get((page, byte), 0)

    @property
    def interrupt(self) -> bool:
        """Whether an unmasked flag is set (CMIS 6.3.3.3)."""
        memory = self._memory
        return any(
            memory.byte(page, byte) & ~memory.byte(mask_page, mask_byte)
            for page, byte, mask_page, mask_byte in self._pairs
        )

    def put_summaries(self) -> None:
        """Refresh 00h:4 and the summary of page 12h; they follow the flags, not the masks."""
        for page in _SUMMARY_PAGES:
            if self._memory.has(page):
                any_set = any(self._memory.byte(page, byte) for byte in _FLAG_BYTES[page])
                self._memory.put(f"flag_summary_page_{page:02x}h", any_set, 0)
        if self._memory.has(0x12):
            lanes = sum(1 << lane for lane in range(8) if self._memory.byte(0x12, 231 + lane))
            self._memory.put_lanes("tuning_flag_summary", lanes)


_FLAG_BYTES = {
    page: sorted({first for flag_page, first, _, _ in _BYTE_PAIRS if flag_page == page}) for page in _SUMMARY_PAGES
}
