"""CMIS pages over one I2C device: bank and page select, the hold-off of a busy module, and the lock of the module."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar, runtime_checkable

from lumion_hw.clock import Clock
from lumion_hw.errors import LinkError, LumionError
from lumion_hw.links.owner import OwnerProcess, fork_safe
from lumion_hw.sessions.module.pages import MAX_WRITE_BYTES, PageNotSupportedError, check_range, check_write, page_words
from lumion_hw.sessions.module.registers import (
    IDENTITY_DEVICE,
    I2cDevice,
    ModuleAbsentError,
    NotRespondingError,
    RegisterAccess,
    ShortReadError,
    repeated,
)
from lumion_hw.standards.cmis.fields import FIRST_BANKED_PAGE, Page
from lumion_hw.standards.cmis.lower_memory import (
    BANK_SELECT_BYTE,
    FLAT_MEMORY,
    FLAT_MEMORY_BYTE,
    PAGE_SELECT_BYTE,
)


class BridgedI2c:
    """The device at one address of a ``RegisterAccess``; implements ``I2cDevice``.

    An access that is cut into pieces is not one bus transaction: an SC18IM700 reads 16 bytes at a time, cut at even
    distances from the start, and writes inside rows of 8 bytes. CMIS numbers that begin there arrive whole.

    Args:
        registers: The bridge's registers, or the adapter.
        address: 7-bit I2C address.
    """

    def __init__(self, registers: RegisterAccess, address: int = IDENTITY_DEVICE) -> None:
        self._registers = registers
        self._address = address

    @property
    def name(self) -> str:
        """The address of the bridge or adapter."""
        return self._registers.name

    def open(self) -> None:
        """Open it. Raises ``ConnectError``."""
        self._registers.open()

    def close(self) -> None:
        """Release it; idempotent, never raises."""
        self._registers.close()

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes; raises as ``I2cDevice.read``."""
        return self._registers.read(self._address, offset, length)

    def write(self, offset: int, data: bytes) -> None:
        """Write ``data``; raises as ``I2cDevice.write``."""
        self._registers.write(self._address, offset, data)


RETRY_PERIOD_S = 0.002
"""Pause before an access that was not acknowledged is repeated."""
RETRY_S = 0.1
"""How long it is repeated: modules are silent for 10 ms after a page change, 80 ms after a non-volatile write."""

_T = TypeVar("_T")


@runtime_checkable
class Openable(Protocol):
    """An I2C device whose way has to be opened and released."""

    def open(self) -> None:
        """Make the way usable. Raises ``ConnectError``."""

    def close(self) -> None:
        """Release it; idempotent."""


class PagedI2c:
    """Pages of a module at one I2C address; implements ``ModulePages``.

    The page selected last is remembered only as a guess: at the start of every transaction PageSelect is read back,
    because a module that has been reset or replaced shows page 00h again and would answer with the wrong bytes.

    Args:
        i2c: The device at 0x50.
        clock: Measures the retries.
        device: Device name, for messages.
        retry_s: How long an access that is not acknowledged is repeated.
        hold_off_s: Pause after every write and page change, for slow boards.
    """

    def __init__(
        self, i2c: I2cDevice, clock: Clock, *, device: str, retry_s: float = RETRY_S, hold_off_s: float = 0.0
    ) -> None:
        self._i2c = i2c
        self._clock = clock
        self._device = device
        self._retry_s = retry_s
        self._is_patient = False
        self._hold_off_s = hold_off_s
        self._owner = OwnerProcess()
        self._lock = fork_safe(threading.RLock())
        self._depth = 0
        self._selected: tuple[int, int] | None = None
        self._proven = False

    @property
    def name(self) -> str:
        """How the device is reached."""
        return str(getattr(self._i2c, "name", "I2C device 0x50"))

    def open(self) -> None:
        """Open the way to the device if it has to be opened. Raises ``ConnectError``."""
        with self._lock:
            self._owner.claim(self.name, self._device)
            self.forget()
            if isinstance(self._i2c, Openable):
                self._i2c.open()

    def close(self) -> None:
        """Release the way to the device; idempotent, never raises."""
        with self._lock:
            self.forget()
            if isinstance(self._i2c, Openable):
                self._i2c.close()

    def read_page(self, page: Page, byte: int, length: int, bank: int = 0) -> bytes:
        """Return exactly ``length`` bytes; raises as ``ModulePages.read_page``."""
        check_range(page, byte, length, bank)
        with self.transaction():
            self._select(page, bank)
            return self._read(byte, length)

    def write_page(self, page: Page, byte: int, data: bytes, bank: int = 0, *, longest: int = MAX_WRITE_BYTES) -> None:
        """Write in one transaction; raises as ``ModulePages.read_page``."""
        check_write(page, byte, data, bank, longest)
        with self.transaction():
            self._select(page, bank)
            self._write(byte, data)
            # The write went over bank and page select: what is selected now is no longer known.
            if page is None and byte + len(data) > BANK_SELECT_BYTE:
                self.forget()

    def has_page(self, page: Page, bank: int = 0) -> bool:
        """Tell whether PageSelect stays at a page; raises as ``ModulePages.read_page``."""
        with self.transaction():
            try:
                self._select(page, bank)
            except PageNotSupportedError:
                return False
            return True

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the module for several accesses; raises what they raise, and remembers no page after an error."""
        with self._lock:
            self._owner.check(self.name, self._device)
            # Proven once per transaction: reading PageSelect before every access would double the traffic of a block.
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
    def patient(self, patience_s: float) -> Iterator[None]:
        """Repeat refused accesses for so long."""
        with self._lock:
            before = self._retry_s, self._is_patient
            self._retry_s, self._is_patient = max(self._retry_s, patience_s), True
            try:
                yield
            finally:
                self._retry_s, self._is_patient = before

    def forget(self) -> None:
        """Drop the page selected last."""
        self._selected = None
        self._proven = False

    def _select(self, page: Page, bank: int) -> None:
        """Make ``page`` the one that the upper bytes show, and make sure of it."""
        if page is None:
            return
        wanted = (bank, page)
        if self._selected == wanted and (self._proven or self._shown(page) == wanted):
            self._proven = True
            return
        self._selected = None
        # A flat memory has nothing but page 00h, and may acknowledge no write at all: the page is selected by a write
        # only where another one can be there.
        if page == 0x00 and (self._shown(page) == wanted or self._is_flat()):
            self._selected, self._proven = wanted, True
            return
        if page >= FIRST_BANKED_PAGE:
            # Both in one write: in two, the module would look for the old
            # page in the new bank, and fall back to page 00h.
            self._write(BANK_SELECT_BYTE, bytes([bank, page]))
        else:
            self._write(PAGE_SELECT_BYTE, bytes([page]))
        # A page that the module lacks is not an error on the bus: it shows page 00h and answers with other bytes.
        shown = self._shown(page)
        if shown != wanted:
            raise PageNotSupportedError(
                f"no {page_words(page, bank)}: PageSelect went to {page_words(shown[1], shown[0])}",
                device=self._device,
                address=self.name,
                hint="The module does not have this page.",
            )
        self._selected, self._proven = wanted, True

    def _shown(self, page: int) -> tuple[int, int]:
        """Return bank and page that the module shows; bank 0 for pages without banks."""
        bank, shown = self._read(BANK_SELECT_BYTE, 2)
        return (bank if page >= FIRST_BANKED_PAGE else 0), shown

    def _is_flat(self) -> bool:
        """Tell whether the module has only the lower memory and page 00h (00h:2.7, MemoryModel)."""
        return bool(self._read(FLAT_MEMORY_BYTE, 1)[0] & FLAT_MEMORY)

    def _read(self, byte: int, length: int) -> bytes:
        data = self._repeat(f"reading {length} bytes at {byte}", lambda: self._i2c.read(byte, length))
        if len(data) != length:
            raise ShortReadError(
                f"{len(data)} instead of {length} bytes at {byte}",
                device=self._device,
                address=self.name,
                hint="The transfer was cut short; check adapter and bus speed.",
            )
        return data

    def _write(self, byte: int, data: bytes) -> None:
        self._repeat(f"writing {len(data)} bytes at {byte}", lambda: self._i2c.write(byte, data))
        # Boards whose module is busy without saying so by not acknowledging.
        if self._hold_off_s:
            self._clock.sleep(self._hold_off_s)

    def _repeat(self, label: str, access: Callable[[], _T]) -> _T:
        """Make an access, again and again while it is not acknowledged, until the deadline."""
        # Behind a bridge a module that is busy for long looks like none.
        silent = (NotRespondingError, ModuleAbsentError) if self._is_patient else (NotRespondingError,)
        try:
            return repeated(access, self._clock, self._retry_s, RETRY_PERIOD_S, silent)
        except NotRespondingError as error:
            raise NotRespondingError(
                f"{label}: not acknowledged for {self._retry_s:g} s",
                device=self._device,
                address=self.name,
                hint="Check that a module is plugged in and powered, and that nobody else holds the bus.",
            ) from error
        except LinkError as error:
            raise _located(error, self._device, self.name) from None


def _located(error: LumionError, device: str, address: str) -> LumionError:
    """Return an error that says which device it is about, by the name that its user has given it."""
    error.device = device
    error.address = error.address or address
    return error
