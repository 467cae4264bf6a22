"""Pages of CMIS and SFF-8636 modules over one I2C device."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from lumion_hw.clock import Clock
from lumion_hw.errors import LinkError
from lumion_hw.links.owner import OwnerProcess, fork_safe
from lumion_hw.sessions.module.pages import (
    IDENTITY_BYTES,
    MAX_WRITE_BYTES,
    PageNotSupportedError,
    check_range,
    check_write,
    is_suspicious,
    no_answer,
    page_name,
)
from lumion_hw.sessions.module.registers import (
    IDENTITY_DEVICE,
    I2cDevice,
    ModuleAbsentError,
    NotRespondingError,
    RegisterAccess,
    ShortReadError,
    largest_read_of,
    read_whole_numbers,
    repeat_access,
    split_read,
)
from lumion_hw.standards.cmis.fields import FIRST_BANKED_PAGE, Page
from lumion_hw.standards.cmis.index import flag_bytes, wide_number_bytes
from lumion_hw.standards.cmis.lower_memory import (
    BANK_SELECT_BYTE,
    FLAT_MEMORY,
    FLAT_MEMORY_BYTE,
    PAGE_SELECT_BYTE,
)
from lumion_hw.standards.registers import blank_value
from lumion_hw.standards.sff8636 import registers as sff8636


@dataclass(frozen=True)
class PageScheme:
    """How the modules of a standard select pages.

    Attributes:
        banked: Whether byte 126 selects the bank of pages from 10h on. SFF-8636 modules have a password there.
        flat_byte: Byte of the bit that says that there is only page 00h.
        flat_mask: Mask of this bit.
        flag_bytes: Function that returns the bytes of a page that are cleared by reading.
        wide_number_bytes: Function that returns the bytes of a page in numbers of more than two bytes.
    """

    banked: bool
    flat_byte: int
    flat_mask: int
    flag_bytes: Callable[[Page], Collection[int]]
    wide_number_bytes: Callable[[Page], Collection[int]] = lambda page: ()


def _sff8636_flag_bytes(page: Page) -> Collection[int]:
    return sff8636.FLAG_BYTES if page is None else ()


CMIS_PAGES = PageScheme(
    banked=True,
    flat_byte=FLAT_MEMORY_BYTE,
    flat_mask=FLAT_MEMORY,
    flag_bytes=flag_bytes,
    wide_number_bytes=wide_number_bytes,
)
"""Bytes 126 and 127 select bank and page (CMIS 5.2 clause 8.2)."""
SFF_8636_PAGES = PageScheme(
    banked=False,
    flat_byte=sff8636.FLAT_MEMORY_BYTE,
    flat_mask=sff8636.FLAT_MEMORY,
    flag_bytes=_sff8636_flag_bytes,
)
"""Byte 127 selects the page; there are no banks (SFF-8636 clause 6.1)."""


class BridgedI2c:
    """One address of a ``RegisterAccess``; implements ``I2cDevice``.

    A bridge may split an access into several bus transactions, but never a two-byte number at an even offset, unless
    it reads one byte at a time (``largest_read``).

    Args:
        registers: Bridge or adapter.
        address: 7-bit I2C address.
    """

    def __init__(self, registers: RegisterAccess, address: int = IDENTITY_DEVICE) -> None:
        self._registers = registers
        self._address = address

    @property
    def name(self) -> str:
        """Address of the bridge or adapter."""
        return self._registers.name

    @property
    def largest_read(self) -> int:
        """Longest read in one bus transaction, in bytes."""
        return largest_read_of(self._registers)

    def open(self) -> None:
        """Open the bridge or adapter. Raises ``ConnectError``."""
        self._registers.open()

    def close(self) -> None:
        """Release the bridge or adapter; idempotent, never raises."""
        self._registers.close()

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes; raises the errors of ``I2cDevice.read``."""
        return self._registers.read(self._address, offset, length)

    def write(self, offset: int, data: bytes) -> None:
        """Write ``data``; raises the errors of ``I2cDevice.write``."""
        self._registers.write(self._address, offset, data)


RETRY_PERIOD_S = 0.002
"""Pause before an access that was not acknowledged is repeated, in s."""
RETRY_S = 0.1
"""Default time limit for retries, in s; modules are silent for up to 80 ms after a write."""

_T = TypeVar("_T")


@runtime_checkable
class Openable(Protocol):
    """An I2C device that must be opened and released."""

    def open(self) -> None:
        """Open the device. Raises ``ConnectError``."""

    def close(self) -> None:
        """Release the device; idempotent."""


class PagedI2c:
    """Pages of a module at one I2C address; implements ``ModulePages``.

    Args:
        i2c: Device at address 0x50.
        clock: Clock for the retries.
        retry_s: Time in seconds for which an access that is not acknowledged is repeated.
        hold_off_s: Pause in seconds after every write and page change, for slow boards.
        scheme: Page selection of the module's standard.
    """

    def __init__(
        self,
        i2c: I2cDevice,
        clock: Clock,
        *,
        device: str,
        retry_s: float = RETRY_S,
        hold_off_s: float = 0.0,
        scheme: PageScheme = CMIS_PAGES,
    ) -> None:
        self._i2c = i2c
        self._clock = clock
        self._device = device
        self._retry_s = retry_s
        self._retries_missing = False
        self._hold_off_s = hold_off_s
        self._scheme = scheme
        self._owner = OwnerProcess()
        self._lock = fork_safe(threading.RLock())
        self._depth = 0
        self._selected: tuple[int, int] | None = None
        self._proven = False

    @property
    def name(self) -> str:
        """Address of the device."""
        return str(getattr(self._i2c, "name", "I2C device 0x50"))

    def open(self) -> None:
        """Open the device if necessary. Raises ``ConnectError``."""
        with self._lock:
            self._owner.claim(self.name, self._device)
            self.forget()
            if isinstance(self._i2c, Openable):
                self._i2c.open()

    def close(self) -> None:
        """Release the device; idempotent, never raises."""
        with self._lock:
            self.forget()
            if isinstance(self._i2c, Openable):
                self._i2c.close()

    def read_page(self, page: Page, byte: int, length: int, bank: int = 0) -> bytes:
        """Return exactly ``length`` bytes; raises the errors of ``ModulePages.read_page``."""
        check_range(page, byte, length, bank)
        with self.transaction():
            self._select(page, bank)
            data = self._read_numbers(page, byte, length)
            if is_suspicious(page, data):
                self._check_answer()
            return data

    def write_page(self, page: Page, byte: int, data: bytes, bank: int = 0, *, longest: int = MAX_WRITE_BYTES) -> None:
        """Write bytes of a page; raises the errors of ``ModulePages.read_page``."""
        check_write(page, byte, data, bank, longest)
        with self.transaction():
            self._select(page, bank)
            self._write(byte, data)
            # The write may have included bank and page select, so the selected page is no longer known.
            if page is None and byte + len(data) > BANK_SELECT_BYTE:
                self.forget()

    def has_page(self, page: Page, bank: int = 0) -> bool:
        """Return whether a page can be selected; raises the errors of ``ModulePages.read_page``."""
        with self.transaction():
            try:
                self._select(page, bank)
            except PageNotSupportedError:
                return False
            return True

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Lock the module for several accesses."""
        with self._lock:
            self._owner.check(self.name, self._device)
            # PageSelect is checked once per transaction: checking before every access would double the traffic.
            if self._depth == 0:
                self._proven = False
            self._depth += 1
            try:
                yield
            except BaseException:
                self.forget()
                raise
            finally:
                self._depth -= 1

    @contextmanager
    def retry_for(self, timeout_s: float) -> Iterator[None]:
        """Repeat refused accesses in a ``with`` block for up to ``timeout_s`` seconds."""
        with self._lock:
            before = self._retry_s, self._retries_missing
            self._retry_s, self._retries_missing = max(self._retry_s, timeout_s), True
            try:
                yield
            finally:
                self._retry_s, self._retries_missing = before

    def forget(self) -> None:
        """Forget the selected page, so that the next access selects it again."""
        self._selected = None
        self._proven = False

    def _select(self, page: Page, bank: int) -> None:
        if page is None:
            return
        requested = (bank, page)
        if bank and not self._scheme.banked:
            raise self._unsupported(page, bank, "the module has no banks")
        if self._selected == requested and (self._proven or self._read_selected(page) == requested):
            self._proven = True
            return
        self._selected = None
        # A flat memory has only page 00h and may not acknowledge any write, so the page is written
        # only if the module can have other pages.
        if page == 0x00 and (self._read_selected(page) == requested or self._is_flat()):
            self._selected, self._proven = requested, True
            return
        if self._has_banks(page):
            # Bank and page in one write: with two writes, the module would look for the old
            # page in the new bank, and fall back to page 00h.
            self._write(BANK_SELECT_BYTE, bytes([bank, page]))
        else:
            self._write(PAGE_SELECT_BYTE, bytes([page]))
        # A missing page is not an error on the bus: the module shows page 00h and returns its bytes.
        selected = self._read_selected(page)
        if selected != requested:
            self._check_answer()
            raise self._unsupported(page, bank, f"the module selected {page_name(selected[1], selected[0])}")
        self._selected, self._proven = requested, True

    def _check_answer(self) -> None:
        """Raise ``NotRespondingError`` if the bus reads as FFh or 00h: a bridge may do so for an empty cage."""
        value = blank_value(self._read(0, IDENTITY_BYTES))
        if value is not None:
            raise no_answer(value, self._device, self.name)

    def _unsupported(self, page: Page, bank: int, reason: str) -> PageNotSupportedError:
        return PageNotSupportedError(
            f"cannot select {page_name(page, bank)}: {reason}",
            device=self._device,
            address=self.name,
            hint="The module does not have this page.",
        )

    def _has_banks(self, page: int) -> bool:
        return self._scheme.banked and page >= FIRST_BANKED_PAGE

    def _read_selected(self, page: int) -> tuple[int, int]:
        if not self._scheme.banked:
            return 0, self._read(PAGE_SELECT_BYTE, 1)[0]
        bank, selected = self._read(BANK_SELECT_BYTE, 2)
        return (bank if page >= FIRST_BANKED_PAGE else 0), selected

    def _is_flat(self) -> bool:
        return bool(self._read(self._scheme.flat_byte, 1)[0] & self._scheme.flat_mask)

    def _read_numbers(self, page: Page, byte: int, length: int) -> bytes:
        """Read bytes of the selected page; repeat a reading byte by byte until no number is torn."""
        is_torn = largest_read_of(self._i2c) == 1 and length > 1
        if not is_torn or not set(self._scheme.flag_bytes(page)).isdisjoint(range(byte, byte + length)):
            return self._read(byte, length)
        wide = self._scheme.wide_number_bytes(page)
        return read_whole_numbers(lambda: self._read(byte, length), byte, self.name, wide)

    def _read(self, byte: int, length: int) -> bytes:
        # Each part is repeated on its own: a flag that was read is cleared, and another reading would lose it.
        parts = split_read(byte, length, largest_read_of(self._i2c))
        return b"".join(self._read_part(start, size) for start, size in parts)

    def _read_part(self, byte: int, length: int) -> bytes:
        data = self._repeat(f"reading {length} bytes at {byte}", lambda: self._i2c.read(byte, length))
        if len(data) != length:
            raise ShortReadError(
                f"received {len(data)} instead of {length} bytes at {byte}",
                device=self._device,
                address=self.name,
                hint="The transfer was incomplete. Check adapter and bus speed.",
            )
        return data

    def _write(self, byte: int, data: bytes) -> None:
        self._repeat(f"writing {len(data)} bytes at {byte}", lambda: self._i2c.write(byte, data))
        # For boards whose module acknowledges while it is busy.
        if self._hold_off_s:
            self._clock.sleep(self._hold_off_s)

    def _repeat(self, label: str, access: Callable[[], _T]) -> _T:
        # Behind a bridge, a module that is busy for long looks absent.
        silent = (NotRespondingError, ModuleAbsentError) if self._retries_missing else (NotRespondingError,)
        try:
            return repeat_access(access, self._clock, self._retry_s, RETRY_PERIOD_S, silent)
        except NotRespondingError as error:
            raise NotRespondingError(
                f"{label}: not acknowledged for {self._retry_s:g} s",
                device=self._device,
                address=self.name,
                hint="Check that a module is plugged in and powered, and that no other program uses the bus.",
            ) from error
        except LinkError as error:
            error.device = self._device
            error.address = error.address or self.name
            raise
