"""Fields of an open module by name, and the one place where its flags are read."""

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
"""Name of a flag without its suffix, and its lane."""


class CmisMemory(DeviceErrors):
    """Fields of one module. A field that a read would clear is refused here: flags go through :class:`FlagStore`.

    Args:
        pages: The module's memory.
        device: Device name, for messages.
        bank: Bank of lanes; 0 is host lanes 1 to 8.
    """

    def __init__(self, pages: ModulePages, device: str, bank: int = 0) -> None:
        self.pages = pages
        self.device = device
        self.bank = bank

    @property
    def address(self) -> str:
        """How the module is reached."""
        return self.pages.name

    def value(self, name: str, index: int | None = None) -> Value:
        """Return the value of a field, or of one element of an array."""
        field = _quiet(name)
        return decode(field, self._read(field, field.span(index)), index)

    def number(self, name: str, index: int | None = None) -> int:
        """Return the value of an integer field."""
        value = self.value(name, index)
        return int(value) if isinstance(value, (int, float)) else 0

    def values(self, name: str) -> tuple[Value, ...]:
        """Return all elements of an array, from one transfer."""
        field = _quiet(name)
        whole = field.whole_span()
        data = self._read(field, whole)
        spans = [(index, field.span(index)) for index in (field.array.indices if field.array else ())]
        return tuple(decode(field, data[s.start - whole.start : s.stop - whole.start], index) for index, s in spans)

    def numbers(self, name: str) -> tuple[int, ...]:
        """Return all elements of an array of integers, from one transfer."""
        return tuple(int(value) for value in self.values(name) if isinstance(value, (int, float)))

    def half(self, page: Page) -> tuple[bytes, frozenset[int]]:
        """Return the 128 bytes of a page without its flags, and the flag bytes left out (0 in the former)."""
        first = 0 if page is None else HALF_BYTES
        data = bytearray(HALF_BYTES)
        with self.pages.transaction():
            # A block read over flag bytes would clear them in the module, and nobody would ever see them.
            for run in quiet_runs(page, first, HALF_BYTES):
                data[run.start - first : run.stop - first] = self.pages.read_page(
                    page, run.start, len(run), self._bank(page)
                )
        return bytes(data), flag_bytes(page)

    def half_if_readable(self, page: Page) -> tuple[bytes, frozenset[int]] | LinkError | None:
        """Return a page like :meth:`half`; ``None`` if the module lacks it, an error if this page alone is unreadable.

        Raises:
            LinkError: The rest of the module cannot be read either.
        """
        try:
            if page is not None and not self.pages.has_page(page, self._bank(page)):
                return None
            return self.half(page)
        except (NotRespondingError, ModuleAbsentError, ShortReadError) as error:
            self.pages.read_page(None, 0, 1)
            return error

    def write(self, name: str, value: Value, index: int | None = None) -> None:
        """Write a field and read it back. The other bits of its byte stay. Raises ``VerifyError``."""
        field = FIELDS[name]
        span = field.span(index)
        with self.pages.transaction():
            # Other bits of the byte belong to other settings, or are reserved and not 0 on real modules.
            current = self._read(field, span) if field.bits is not None else None
            self._write(field, span, encode(field, value, index, current=current))
            found = decode(field, self._read(field, span), index)
        # Compared as the register can hold it, rounded to its counts.
        wanted = decode(field, encode(field, value, index, current=current), index)
        if found != wanted:
            raise self._mismatch(field, wanted, found)

    def trigger(self, name: str, lanes: Iterable[int]) -> None:
        """Write the lane mask of a trigger, in one single-byte write; a trigger cannot be read back."""
        field = FIELDS[name]
        self._write(field, field.whole_span(), bytes([mask_of(lanes)]))

    def set_lanes(self, name: str, lanes: Iterable[int], on: bool) -> None:
        """Set or clear one bit per lane in one write, the others stay, and read it back. Raises ``VerifyError``."""
        field = FIELDS[name]
        span, mask = field.whole_span(), mask_of(lanes)
        with self.pages.transaction():
            before = self._read(field, span)[0]
            wanted = before | mask if on else before & ~mask & 0xFF
            # Nothing to change, and no write that a module could take for a new request.
            if wanted == before:
                return
            self._write(field, span, bytes([wanted]))
            found = self._read(field, span)[0]
        if found != wanted:
            raise self._mismatch(field, f"{wanted:02X}h", f"{found:02X}h")

    def write_bytes(self, name: str, first: int, data: bytes) -> None:
        """Write consecutive elements of an array of bytes in one transaction, and read them back."""
        field = FIELDS[name]
        start = field.span(first).start
        span = range(start, start + len(data))
        with self.pages.transaction():
            self._write(field, span, data)
            found = self._read(field, span)
        if found != data:
            raise self._mismatch(field, data.hex(), found.hex())

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
            f"{field.name} ({field})",
            wrote=wrote,
            read=read,
            hint="The module did not keep what was written; it may not support it in this state.",
        )


def mask_of(lanes: Iterable[int]) -> int:
    """Return the byte with the bits of these lanes (1 to 8) set."""
    mask = 0
    for lane in lanes:
        mask |= 1 << (lane - 1)
    return mask


def _quiet(name: str) -> Field:
    field = FIELDS[name]
    if field.access is Access.COR:
        raise ConfigError(f"{name} ({field}) is cleared by a read", hint="Read flags with flags().")
    return field


class FlagStore:
    """Reads flags, and keeps every one seen until the user clears it.

    Args:
        memory: The module's fields.
        clock: Dates the flags.
    """

    def __init__(self, memory: CmisMemory, clock: Clock) -> None:
        self._memory = memory
        self._clock = clock
        self._seen: dict[FlagKey, StickyFlag] = {}
        self.unsupported: frozenset[str] = frozenset()
        self.names: dict[FlagKey, FlagKey] = {}

    def read(self, page: Page) -> frozenset[FlagKey]:
        """Read all flags of a page, which clears them in the module, and return those that were set."""
        pages = self._memory.pages
        with pages.transaction():
            data: dict[int, int] = {}
            for run in _runs(sorted(flag_bytes(page))):
                bank = self._memory.bank if page is not None and page >= 0x10 else 0
                data |= dict(zip(run, pages.read_page(page, run.start, len(run), bank), strict=True))
            found = frozenset(self._asserted(page, data))
            self._remember(found)
        return found

    def live(self, page: Page) -> frozenset[FlagKey]:
        """Return the flags whose cause lasts: those that are set again right after they were read."""
        self.read(page)
        return self.read(page)

    def all(self) -> tuple[StickyFlag, ...]:
        """Return all flags seen, in the order in which they were first seen."""
        with self._memory.pages.transaction():
            return tuple(sorted(self._seen.values(), key=lambda flag: (flag.first_seen_s, flag.name, flag.lane or 0)))

    def has_seen(self, name: str, lane: int | None) -> bool:
        """Return whether a flag is kept."""
        return (name, lane) in self._seen

    def clear(self, names: Collection[str] | None = None) -> None:
        """Forget flags: those of these names, or all."""
        self.forget(lambda key: names is None or key[0] in names)

    def forget(self, which: Callable[[FlagKey], bool]) -> None:
        """Forget the flags that a condition holds for."""
        with self._memory.pages.transaction():
            self._seen = {key: flag for key, flag in self._seen.items() if not which(key)}

    def _asserted(self, page: Page, data: dict[int, int]) -> Iterable[FlagKey]:
        if not any(data.values()):  # mostly, and a module that is waited for is asked again and again
            return
        for field in fields_of(page):
            if field.access is not Access.COR or field.name in self.unsupported:
                continue
            name = field.name.removesuffix("_flag").removesuffix("_flags")
            for index in field.array.indices if field.array else (None,):
                if any(data[place.byte] & place.mask for place in field.locations(index)):
                    lane = index if field.kind is NumberFormat.BOOL else None
                    yield self.names.get((name, lane), (name, lane))

    def _remember(self, found: Iterable[FlagKey]) -> None:
        now = self._clock.now()
        for name, lane in found:
            before = self._seen.get((name, lane))
            first = now if before is None else before.first_seen_s
            count = 1 if before is None else before.count + 1
            self._seen[name, lane] = StickyFlag(name, lane, first, now, count)


def _runs(numbers: list[int]) -> Iterable[range]:
    """Yield ascending numbers as ranges without gaps."""
    start = None
    for position, number in enumerate(numbers):
        start = number if start is None else start
        if position + 1 == len(numbers) or numbers[position + 1] != number + 1:
            yield range(start, number + 1)
            start = None
