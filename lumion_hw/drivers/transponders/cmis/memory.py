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
from lumion_hw.standards.cmis.fields import FIRST_BANKED_PAGE, HALF_BYTES, LANES
from lumion_hw.standards.cmis.index import flag_bytes
from lumion_hw.standards.cmis.lane_pages import HOST, MEDIA

_LANE_PAGES = frozenset({0x11, 0x12})
"""Pages with flags of lanes in every bank that a module has."""
_WRITE_BYTES = 8  # longest write in one transaction (CMIS 5.2 clause 5.2.3)
FlagKey = tuple[str, int | None]
"""Name of a flag, and its lane."""


class CmisMemory(DeviceErrors):
    """Access to the fields of one module by name. Use :class:`FlagStore` for flags.

    Lanes above 8 are in further banks, which are selected by the lane number.

    Args:
        pages: Memory of the module.
        bank: Bank of lanes 1 to 8.

    Attributes:
        n_banks: Number of banks in use.
    """

    def __init__(self, pages: ModulePages, device: str, bank: int = 0) -> None:
        self.pages = pages
        self.device = device
        self.bank = bank
        self.n_banks = 1

    def of_bank(self, offset: int) -> CmisMemory:
        """Return access to one bank, counted from that of lanes 1 to 8, in which lanes have the numbers 1 to 8."""
        return CmisMemory(self.pages, self.device, self.bank + offset)

    @property
    def lanes(self) -> tuple[int, ...]:
        """Numbers of all lanes, from 1."""
        return tuple(range(1, LANES * self.n_banks + 1))

    @property
    def address(self) -> str:
        """Address of the module."""
        return self.pages.name

    def value(self, name: str, index: int | None = None) -> Value:
        """Return the value of a field, or of one element of an array."""
        field = _read_safe_field(name)
        offset, local = in_bank(field, index)
        return decode(field, self._read(field, field.span(local), offset), local)

    def number(self, name: str, index: int | None = None) -> int:
        """Return the value of an integer field of the module."""
        value = self.value(name, index)
        return int(value) if isinstance(value, (int, float)) else 0

    def values(self, name: str) -> tuple[Value, ...]:
        """Return all elements of an array field, over all banks for lanes."""
        field = _read_safe_field(name)
        span = field.all_bytes()
        spans = [(index, field.span(index)) for index in (field.array.indices if field.array else ())]
        found: list[Value] = []
        for offset in range(self.n_banks if is_by_lane(field) else 1):
            data = self._read(field, span, offset)
            found += (decode(field, data[s.start - span.start : s.stop - span.start], index) for index, s in spans)
        return tuple(found)

    def numbers(self, name: str) -> tuple[int, ...]:
        """Return all elements of an array of integers."""
        return tuple(int(value) for value in self.values(name) if isinstance(value, (int, float)))

    def half(self, page: Page, offset: int = 0) -> tuple[bytes, frozenset[int]]:
        """Return the 128 bytes of a page with flag bytes set to 0, and the positions of the flag bytes.

        Args:
            page: Page to read.
            offset: Bank, counted from that of lanes 1 to 8.
        """
        first = 0 if page is None else HALF_BYTES
        data = bytearray(HALF_BYTES)
        with self.pages.transaction():
            # Reading flag bytes would clear the flags before FlagStore has seen them.
            for run in quiet_runs(page, first, HALF_BYTES):
                data[run.start - first : run.stop - first] = self.pages.read_page(
                    page, run.start, len(run), self.bank_of(page, offset)
                )
        return bytes(data), flag_bytes(page)

    def half_if_readable(self, page: Page, offset: int = 0) -> tuple[bytes, frozenset[int]] | LinkError | None:
        """Return a page like :meth:`half`, ``None`` if it does not exist, or the error if only this page is unreadable.

        Raises ``LinkError`` if the other pages cannot be read either.
        """
        try:
            if page is not None and not self.pages.has_page(page, self.bank_of(page, offset)):
                return None
            return self.half(page, offset)
        except (NotRespondingError, ModuleAbsentError, ShortReadError) as error:
            self.pages.read_page(None, 0, 1)
            return error

    def write(self, name: str, value: Value, index: int | None = None) -> None:
        """Write a field. Raises ``VerifyError`` if the value read back differs."""
        field = FIELDS[name]
        offset, index = in_bank(field, index)
        span = field.span(index)
        with self.pages.transaction():
            # Other bits of the byte belong to other settings, or are reserved and need not be 0.
            current = self._read(field, span, offset) if field.bits is not None else None
            self._write(field, span, encode(field, value, index, current=current), offset)
            actual = decode(field, self._read(field, span, offset), index)
        # Compared with the value rounded to the resolution of the register.
        expected = decode(field, encode(field, value, index, current=current), index)
        if actual != expected:
            raise self._mismatch(field, expected, actual)

    def trigger(self, name: str, lanes: Iterable[int]) -> None:
        """Set the bits of these lanes in a trigger register, which cannot be read back."""
        field = FIELDS[name]
        for offset, local in by_bank(lanes).items():
            self._write(field, field.all_bytes(), bytes([mask_of(local)]), offset)

    def set_lanes(self, name: str, lanes: Iterable[int], on: bool) -> None:
        """Set or clear one bit per lane. Raises ``VerifyError`` if the byte read back differs."""
        for offset, local in by_bank(lanes).items():
            self._set_mask(FIELDS[name], mask_of(local), on, offset)

    def _set_mask(self, field: Field, mask: int, on: bool, offset: int) -> None:
        span = field.all_bytes()
        with self.pages.transaction():
            before = self._read(field, span, offset)[0]
            expected = before | mask if on else before & ~mask & 0xFF
            # Without a change nothing is written, because a module may treat a write as a new request.
            if expected == before:
                return
            self._write(field, span, bytes([expected]), offset)
            actual = self._read(field, span, offset)[0]
        if actual != expected:
            raise self._mismatch(field, f"{expected:02X}h", f"{actual:02X}h")

    def write_bytes(self, name: str, first: int, data: bytes) -> None:
        """Write consecutive elements of an array of bytes in one bank, and read the bytes back."""
        field = FIELDS[name]
        offset, first_local = in_bank(field, first)
        start = field.span(first_local).start
        span = range(start, start + len(data))
        with self.pages.transaction():
            self._write(field, span, data, offset)
            actual = self._read(field, span, offset)
        if actual != data:
            raise self._mismatch(field, data.hex(), actual.hex())

    def write_elements(self, elements: Iterable[tuple[str, int, Value]]) -> None:
        """Write elements of arrays that share a page, in few transfers, and read the page back.

        Raises ``VerifyError`` if an element read back differs.

        Args:
            elements: Name of each field, index of the element, and value.
        """
        groups: dict[int, list[tuple[Field, int | None, Value]]] = {}
        for name, index, value in elements:
            offset, local = in_bank(FIELDS[name], index)
            groups.setdefault(offset, []).append((FIELDS[name], local, value))
        for offset, group in groups.items():
            self._write_group(group, offset)

    def _write_group(self, group: Collection[tuple[Field, int | None, Value]], offset: int) -> None:
        some_field = next(iter(group))[0]
        spans = [field.span(index) for field, index, _ in group]
        first, end = min(span.start for span in spans), max(span.stop for span in spans)
        with self.pages.transaction():
            before = self._read(some_field, range(first, end), offset)
            data = bytearray(before)
            for (field, index, value), span in zip(group, spans, strict=True):
                part = slice(span.start - first, span.stop - first)
                data[part] = encode(field, value, index, current=bytes(data[part]) if field.bits is not None else None)
            for start in range(0, len(data), _WRITE_BYTES):
                block = bytes(data[start : start + _WRITE_BYTES])
                if block != before[start : start + _WRITE_BYTES]:
                    span = range(first + start, first + start + len(block))
                    self._write(some_field, span, block, offset)
            actual = self._read(some_field, range(first, end), offset)
        for (field, index, _), span in zip(group, spans, strict=True):
            part = slice(span.start - first, span.stop - first)
            wrote, read = decode(field, bytes(data[part]), index), decode(field, actual[part], index)
            if wrote != read:
                raise self._mismatch(field, wrote, read)

    def _read(self, field: Field, span: range, offset: int = 0) -> bytes:
        return self.pages.read_page(field.page, span.start, len(span), self.bank_of(field.page, offset))

    def _write(self, field: Field, span: range, data: bytes, offset: int = 0) -> None:
        self.pages.write_page(field.page, span.start, data, self.bank_of(field.page, offset))

    def bank_of(self, page: Page, offset: int = 0) -> int:
        """Return the bank of a page; ``offset`` counts from the bank of lanes 1 to 8."""
        return self.bank + offset if page is not None and page >= FIRST_BANKED_PAGE else 0

    def _mismatch(self, field: Field, wrote: object, read: object) -> VerifyError:
        return self.error(
            VerifyError,
            f"register {field.name} ({field})",
            wrote=wrote,
            read=read,
            hint="The module ignored the write; its present state may not allow this setting.",
        )


def is_by_lane(field: Field) -> bool:
    """Return whether each bank has its own elements of an array field."""
    return field.banked and field.array is not None and field.array.of in (HOST, MEDIA)


def in_bank(field: Field, index: int | None) -> tuple[int, int | None]:
    """Return the bank of an element, counted from that of lanes 1 to 8, and its index there."""
    if index is None or not is_by_lane(field):
        return 0, index
    offset, local = divmod(index - 1, LANES)
    return offset, local + 1


def by_bank(lanes: Iterable[int]) -> dict[int, list[int]]:
    """Return the lanes of each bank, with their numbers there; banks count from that of lanes 1 to 8."""
    groups: dict[int, list[int]] = {}
    for lane in lanes:
        offset, local = divmod(lane - 1, LANES)
        groups.setdefault(offset, []).append(local + 1)
    return groups


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

    Attributes:
        unsupported: Names of the flags that the module does not have.
        names: Other names and lanes of flags, by field and index; indices continue from bank to bank.
        n_banks: Number of banks with flags, by page, for pages without flags of lanes in every bank.
    """

    def __init__(self, memory: CmisMemory, clock: Clock) -> None:
        self._memory = memory
        self._clock = clock
        self._flags: dict[FlagKey, StickyFlag] = {}
        self.unsupported: frozenset[str] = frozenset()
        self.names: dict[FlagKey, FlagKey] = {}
        self.n_banks: dict[Page, int] = {}

    def read(self, page: Page) -> frozenset[FlagKey]:
        """Read all flags of a page and return those that were set. Reading clears the flags in the module."""
        pages, memory = self._memory.pages, self._memory
        asserted: frozenset[FlagKey] = frozenset()
        with pages.transaction():
            for offset in range(memory.n_banks if page in _LANE_PAGES else self.n_banks.get(page, 1)):
                data: dict[int, int] = {}
                for run in _runs(sorted(flag_bytes(page))):
                    content = pages.read_page(page, run.start, len(run), memory.bank_of(page, offset))
                    data |= dict(zip(run, content, strict=True))
                asserted |= frozenset(self._asserted(page, data, offset))
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

    def _asserted(self, page: Page, data: dict[int, int], offset: int) -> Iterable[FlagKey]:
        if not any(data.values()):  # the usual case, checked first for speed
            return
        for field in fields_of(page):
            if field.access is not Access.COR or field.name in self.unsupported:
                continue
            name = field.name.removesuffix("_flag").removesuffix("_flags")
            for index in field.array.indices if field.array else (None,):
                if any(data[location.byte] & location.mask for location in field.locations(index)):
                    lane = index if field.kind is NumberFormat.BOOL else None
                    if lane is not None and field.array is not None and offset:
                        lane += len(field.array.indices) * offset
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
