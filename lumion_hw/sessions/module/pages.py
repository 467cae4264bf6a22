"""Access to the pages of a CMIS or SFF-8636 module, independent of the bus.

Bytes 0 to 127 are the lower memory (page ``None``); bytes 128 to 255 are one of the pages.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, runtime_checkable

from lumion_hw.errors import ConfigError, DeviceAddress, LinkLost, NotSupportedError
from lumion_hw.sessions.module.registers import NotRespondingError
from lumion_hw.standards.cmis.fields import FIRST_BANKED_PAGE, HALF_BYTES, Page
from lumion_hw.standards.cmis.image import MemoryImage
from lumion_hw.standards.registers import blank_value

MAX_WRITE_BYTES = 8
"""Longest write in one transaction, in bytes, unless the module advertises more (CMIS)."""


class PageNotSupportedError(NotSupportedError):
    """The module does not have this page, or does not have it in this bank."""


@runtime_checkable
class ModulePages(Protocol):
    """Memory of one CMIS or SFF-8636 module, addressed by page, byte and bank. Thread-safe."""

    @property
    def name(self) -> str:
        """Address of the memory, for messages."""

    def open(self) -> None:
        """Open the connection without accessing the module. Raises ``ConnectError``."""

    def read_page(self, page: Page, byte: int, length: int, bank: int = 0) -> bytes:
        """Return exactly ``length`` bytes from the lower memory or one page.

        Raises:
            PageNotSupportedError: The module does not have the page.
            ModuleAbsentError: There is no module.
            NotRespondingError: The module did not acknowledge before the deadline.
            ShortReadError: Fewer bytes arrived.
            LinkLost: The connection to the module is lost.
        """

    def write_page(self, page: Page, byte: int, data: bytes, bank: int = 0, *, longest: int = MAX_WRITE_BYTES) -> None:
        """Write at most ``longest`` bytes in one transaction. Raises the errors of :meth:`read_page`."""

    def has_page(self, page: Page, bank: int = 0) -> bool:
        """Return whether the module has a page. Raises the errors of :meth:`read_page`."""

    def transaction(self) -> AbstractContextManager[None]:
        """Lock the module for several accesses."""

    def retry_for(self, timeout_s: float) -> AbstractContextManager[None]:
        """Repeat refused accesses in a ``with`` block for up to ``timeout_s``."""

    def forget(self) -> None:
        """Forget all cached state of the module, for example after a reset."""

    def close(self) -> None:
        """Release the connection to the module; idempotent, never raises."""


IDENTITY_BYTES = 3
"""Bytes at the start of the lower memory that are never flags and never all FFh or all 00h: identifier, revision."""
NO_ANSWER_HINT = (
    "Check that the module is fully in its cage, powered and selected (ModSelL low, ResetL high), and that the address "
    "is that of its cage."
)
"""What to do if the memory of a module reads as FFh or 00h only."""
_MANY = 8  # fewer bytes may well all be 0: the six bytes of module flags usually are


def is_suspicious(page: Page, data: bytes) -> bool:
    """Return whether an access looks like that to an empty cage, so that the identity has to be read again."""
    value = blank_value(data)
    if value == 0xFF:
        return page is None or len(data) > 1
    return value == 0x00 and page in (None, 0x00) and len(data) >= _MANY


def no_answer(value: int, device: str, address: str) -> NotRespondingError:
    """Return the error for a module whose memory reads as FFh or 00h only.

    Args:
        value: FFh or 00h.
        device: Device name.
        address: Address of the memory.
    """
    return NotRespondingError(
        f"the module does not answer: all bytes read {value:02X}h",
        device=device,
        address=address,
        hint=NO_ANSWER_HINT,
    )


def page_name(page: Page, bank: int = 0) -> str:
    """Return a name such as ``lower memory``, ``page 11h`` or ``page 11h of bank 1``."""
    if page is None:
        return "lower memory"
    return f"page {page:02X}h of bank {bank}" if bank else f"page {page:02X}h"


def check_range(page: Page, byte: int, length: int, bank: int) -> None:
    """Raise ``ConfigError`` if no module can have these bytes."""
    first = 0 if page is None else HALF_BYTES
    fits = length > 0 and first <= byte and byte + length <= first + HALF_BYTES
    page_fits = page is None or 0 <= page <= 0xFF
    bank_fits = bank == 0 or (page is not None and page >= FIRST_BANKED_PAGE and 0 < bank <= 0xFF)
    if not (fits and page_fits and bank_fits):
        raise ConfigError(
            f"cannot access {length} bytes at byte {byte} of {page_name(page, bank)}: they are outside the memory",
            hint="The lower memory has bytes 0 to 127, and a page 128 to 255. Only pages from 10h on have banks.",
        )


def check_write(page: Page, byte: int, data: bytes, bank: int, longest: int = MAX_WRITE_BYTES) -> None:
    """Raise ``ConfigError`` if a write is longer than ``longest`` bytes or out of range."""
    check_range(page, byte, len(data), bank)
    if len(data) > longest:
        raise ConfigError(
            f"{len(data)} bytes are too many for one write to {page_name(page, bank)}",
            hint=f"Write at most {longest} bytes in one transaction.",
        )


class ImagePages:
    """Pages of a saved memory image; implements ``ModulePages``.

    Args:
        image: Memory image. Unknown bytes are read as 0.
        writable: Whether writes change the image in memory; otherwise they are refused.
    """

    def __init__(self, image: MemoryImage, *, writable: bool = False, device: str = "dump") -> None:
        self._halves = {half: bytearray(data) for half, data in image.halves.items()}
        self._source = image.source or "memory image"
        self._writable = writable
        self._target = DeviceAddress(device, self._source)
        self._lock = threading.RLock()
        self._open = True

    @property
    def name(self) -> str:
        """Source of the memory image, for messages."""
        return self._source

    def open(self) -> None:
        """Allow accesses to the memory image."""
        self._open = True

    def close(self) -> None:
        """Refuse accesses to the memory image until the next ``open``."""
        self._open = False

    def read_page(self, page: Page, byte: int, length: int, bank: int = 0) -> bytes:
        """Return exactly ``length`` bytes; raises the errors of ``ModulePages.read_page``."""
        check_range(page, byte, length, bank)
        with self._lock:
            return bytes(self._half(page, bank)[byte % HALF_BYTES : byte % HALF_BYTES + length])

    def write_page(self, page: Page, byte: int, data: bytes, bank: int = 0, *, longest: int = MAX_WRITE_BYTES) -> None:
        """Write to the image.

        Raises the errors of ``ModulePages.read_page``, and ``NotSupportedError`` if it is read-only.
        """
        check_write(page, byte, data, bank, longest)
        with self._lock:
            half = self._half(page, bank)
            if not self._writable:
                raise self._target.error(
                    NotSupportedError,
                    f"cannot write to {page_name(page, bank)} of a saved image",
                    hint="A saved image is read-only. Open the module itself.",
                )
            half[byte % HALF_BYTES : byte % HALF_BYTES + len(data)] = data

    def has_page(self, page: Page, bank: int = 0) -> bool:
        """Return whether the memory image has a page."""
        return (bank, page) in self._halves

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Lock the memory image for several accesses."""
        with self._lock:
            yield

    @contextmanager
    def retry_for(self, timeout_s: float) -> Iterator[None]:
        """Run the ``with`` block; there is nothing to repeat."""
        del timeout_s
        yield

    def forget(self) -> None:
        """Do nothing: no state is cached."""

    def _half(self, page: Page, bank: int) -> bytearray:
        if not self._open:
            raise self._target.error(LinkLost, "the image is closed", hint="Open it first.")
        if (bank, page) not in self._halves:
            raise self._target.error(
                PageNotSupportedError, f"there is no {page_name(page, bank)}", hint="The image does not have this page."
            )
        return self._halves[bank, page]
