"""Access to the fields and flags of an open module by name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from lumion_hw.clock import Clock
from lumion_hw.errors import ConfigError, DeviceErrors, LinkError, VerifyError
from lumion_hw.interfaces import StickyFlag
from lumion_hw.sessions.module.pages import ModulePages
from lumion_hw.sessions.module.registers import ModuleAbsentError, NotRespondingError, ShortReadError
from lumion_hw.standards.cmis import (
    FIELDS,
    Access,
    Field,
    NumberFormat,
    Page,
    Value,
    decode,
    encode,
    fields_of,
    quiet_runs,
)
from lumion_hw.standards.cmis.fields import HALF_BYTES
from lumion_hw.standards.cmis.index import flag_bytes

FlagKey = tuple[str, int | None]
"""Name of a flag, and its lane."""


class CmisMemory(DeviceErrors):
    """Access to the fields of one module by name. Use :class:`FlagStore` for flags.

    Args:
        pages: Memory of the module.
        bank: Group of eight lanes; 0 is host lanes 1 to 8.
    """

    def __init__(self, pages: ModulePages, device: str, bank: int = 0) -> None:
        self.pages = pages
        self.device = device
        self.bank = bank

    @property
    def address(self) -> str:
        """Address of the module."""
        return self.pages.name

    def value(self, name: str, index: int | None = None) -> Value:
        """Return the value of a field, or of one element of an array."""
        field = _read_safe_field(name)
        return decode(field, self._read(field, field.span(index)), index)

    def number(self, name: str, index: int | None = None) -> int:
        """Return the value of an integer field of the module."""
        value = self.value(name, index)
        return int(value) if isinstance(value, (int, float)) else 0

    def values(self, name: str) -> tuple[Value, ...]:
        """Return all elements of an array field."""
        field = _read_safe_field(name)
        span = field.all_bytes()
        data = self._read(field, span)
        spans = [(index, field.span(index)) for index in (field.array.indices if field.array else ())]
        return tuple(decode(field, data[s.start - span.start : s.stop - span.start], index) for index, s in spans)

    def numbers(self, name: str) -> tuple[int, ...]:
        """Return all elements of an array of integers."""
        return tuple(int(value) for value in self.values(name) if isinstance(value, (int, float)))

    def half(self, page: Page) -> tuple[bytes, frozenset[int]]:
        """Return the 128 bytes of a page with flag bytes set to 0, and the positions of the flag bytes."""
        first = 0 if page is None else HALF_BYTES
        data = bytearray(HALF_BYTES)
        with self.pages.transaction():
            # Reading flag bytes would clear the flags before FlagStore has seen them.
            for run in quiet_runs(page, first, HALF_BYTES):
                data[run.start - first : run.stop - first] = self.pages.read_page(
                    page, run.start, len(run), self._bank(page)
                )
        return bytes(data), flag_bytes(page)

    def half_if_readable(self, page: Page) -> tuple[bytes, frozenset[int]] | LinkError | None:
        """Return a page like :meth:`half`, ``None`` if it does not exist, or the error if only this page is unreadable.

        Raises ``LinkError`` if the other pages cannot be read either.
        """
        try:
            if page is not None and not self.pages.has_page(page, self._bank(page)):
                return None
            return self.half(page)
        except (NotRespondingError, ModuleAbsentError, ShortReadError) as error:
            self.pages.read_page(None, 0, 1)
            return error

    def write(self, name: str, value: Value, index: int | None = None) -> None:
        """Write a field. Raises ``VerifyError`` if the value read back differs."""
        field = FIELDS[name]
        span = field.span(index)
        with self.pages.transaction():
            # Other bits of the byte belong to other settings, or are reserved and need not be 0.
            current = self._read(field, span) if field.bits is not None else None
            self._write(field, span, encode(field, value, index, current=current))
            actual = decode(field, self._read(field, span), index)
        # Compared with the value rounded to the resolution of the register.
        expected = decode(field, encode(field, value, index, current=current), index)
        if actual != expected:
            raise self._mismatch(field, expected, actual)

    def trigger(self, name: str, lanes: Iterable[int]) -> None:
        """Set the bits of these lanes in a trigger register, which cannot be read back."""
        field = FIELDS[name]
        self._write(field, field.all_bytes(), bytes([mask_of(lanes)]))

    def set_lanes(self, name: str, lanes: Iterable[int], on: bool) -> None:
        """Set or clear one bit per lane. Raises ``VerifyError`` if the byte read back differs."""
        field = FIELDS[name]
        span, mask = field.all_bytes(), mask_of(lanes)
        with self.pages.transaction():
            before = self._read(field, span)[0]
            expected = before | mask if on else before & ~mask & 0xFF
            # Without a change nothing is written, because a module may treat a write as a new request.
            if expected == before:
                return
            self._write(field, span, bytes([expected]))
            actual = self._read(field, span)[0]
        if actual != expected:
            raise self._mismatch(field, f"{expected:02X}h", f"{actual:02X}h")

    def write_bytes(self, name: str, first: int, data: bytes) -> None:
        """Write consecutive elements of an array of bytes and read the bytes back."""
        field = FIELDS[name]
        start = field.span(first).start
        span = range(start, start + len(data))
        with self.pages.transaction():
            self._write(field, span, data)
            actual = self._read(field, span)
        if actual != data:
            raise self._mismatch(field, data.hex(), actual.hex())

    def _read(self, field: Field, span: range) -> bytes:
        return self.pages.read_page(field.page, span.start, len(span), self._bank(field.page))

    def _write(self, field: Field, span: range, data: bytes) -> None:
        self.pages.write_page(field.page, span.start, data, self._bank(field.page))

    def _bank(self, page: Page) -> int:
        # Pages below 10h have no banks.
        return self.bank if page is not None and page >= 0x10 else 0

    def _mismatch(self, field: Field, wrote: object, read: object) -> VerifyError:
        return self.error(
            VerifyError,
            f"register {field.name} ({field})",
            wrote=wrote,
            read=read,
            hint="The module ignored the write; its present state may not allow this setting.",
        )


def mask_of(lanes: Iterable[int]) -> int:
    """Return a byte with the bits of the given lanes (1 to 8) set."""
    mask = 0
    for lane in lanes:
        mask |= 1 << (lane - 1)
    return mask


def _read_safe_field(name: str) -> Field:
    field = FIELDS[name]
    if field.access is Access.COR:
        raise ConfigError(f"{name} ({field}) is cleared by reading", hint="Use flags() to read flags.")
    return field


class FlagStore:
    """Reads the flags of a module and stores them until the user clears them.

    Args:
        memory: Fields of the module.
        clock: Clock for the times of the flags.
    """

    def __init__(self, memory: CmisMemory, clock: Clock) -> None:
        self._memory = memory
        self._clock = clock
        self._flags: dict[FlagKey, StickyFlag] = {}
        self.unsupported: frozenset[str] = frozenset()
        self.names: dict[FlagKey, FlagKey] = {}

    def read(self, page: Page) -> frozenset[FlagKey]:
        """Read all flags of a page and return those that were set. Reading clears the flags in the module."""
        pages = self._memory.pages
        with pages.transaction():
            data: dict[int, int] = {}
            for run in _runs(sorted(flag_bytes(page))):
                bank = self._memory.bank if page is not None and page >= 0x10 else 0
                data |= dict(zip(run, pages.read_page(page, run.start, len(run), bank), strict=True))
            asserted = frozenset(self._asserted(page, data))
            self._store(asserted)
        return asserted

    def live(self, page: Page) -> frozenset[FlagKey]:
        """Return the flags that are set again immediately after a reading."""
        self.read(page)
        return self.read(page)

    def all(self) -> tuple[StickyFlag, ...]:
        """Return all stored flags in the order of their first reading."""
        with self._memory.pages.transaction():
            return tuple(sorted(self._flags.values(), key=lambda flag: (flag.first_seen_s, flag.name, flag.lane or 0)))

    def has_flag_history(self, name: str, lane: int | None) -> bool:
        """Return whether a flag was set in any reading since it was last cleared."""
        return (name, lane) in self._flags

    def clear(self, names: Collection[str] | None = None) -> None:
        """Remove the stored flags with the given names, or all."""
        self.forget(lambda key: names is None or key[0] in names)

    def forget(self, condition: Callable[[FlagKey], bool]) -> None:
        """Remove the stored flags that meet a condition."""
        with self._memory.pages.transaction():
            self._flags = {key: flag for key, flag in self._flags.items() if not condition(key)}

    def _asserted(self, page: Page, data: dict[int, int]) -> Iterable[FlagKey]:
        if not any(data.values()):  # the usual case, checked first for speed
            return
        for field in fields_of(page):
            if field.access is not Access.COR or field.name in self.unsupported:
                continue
            name = field.name.removesuffix("_flag").removesuffix("_flags")
            for index in field.array.indices if field.array else (None,):
                if any(data[location.byte] & location.mask for location in field.locations(index)):
                    lane = index if field.kind is NumberFormat.BOOL else None
                    yield self.names.get((name, lane), (name, lane))

    def _store(self, asserted: Iterable[FlagKey]) -> None:
        now_s = self._clock.now()
        for name, lane in asserted:
            before = self._flags.get((name, lane))
            first = now_s if before is None else before.first_seen_s
            count = 1 if before is None else before.count + 1
            self._flags[name, lane] = StickyFlag(name, lane, first, now_s, count)


def _runs(numbers: list[int]) -> Iterable[range]:
    start = None
    for position, number in enumerate(numbers):
        start = number if start is None else start
        if position + 1 == len(numbers) or numbers[position + 1] != number + 1:
            yield range(start, number + 1)
            start = None
