"""CMIS pages of a memory image: the replay of a dump, or a memory to write to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from lumion_hw.errors import LinkLost, NotSupportedError
from lumion_hw.sessions.module_pages import MAX_WRITE_BYTES, PageNotSupportedError, check_range, check_write, page_words
from lumion_hw.standards.cmis.fields import HALF_BYTES, Page
from lumion_hw.standards.cmis.image import MemoryImage


class ImagePages:
    """Pages of an image that nothing changes by itself; implements ``ModulePages``.

    Args:
        image: The image; pages that it lacks are not supported, bytes that it does not know are read as 0.
        writable: Whether writes change the copy kept here; otherwise they are refused.
        device: Device name, for messages.
    """

    def __init__(self, image: MemoryImage, *, writable: bool = False, device: str = "dump") -> None:
        self._halves = {half: bytearray(data) for half, data in image.halves.items()}
        self._source = image.source or "memory image"
        self._writable = writable
        self._device = device
        self._lock = threading.RLock()
        self._open = True

    @property
    def name(self) -> str:
        """Where the image comes from."""
        return self._source

    def open(self) -> None:
        """Allow accesses."""
        self._open = True

    def close(self) -> None:
        """Refuse accesses until the next ``open``."""
        self._open = False

    def read_page(self, page: Page, byte: int, length: int, bank: int = 0) -> bytes:
        """Return exactly ``length`` bytes; raises as ``ModulePages.read_page``."""
        check_range(page, byte, length, bank)
        with self._lock:
            return bytes(self._half(page, bank)[byte % HALF_BYTES : byte % HALF_BYTES + length])

    def write_page(self, page: Page, byte: int, data: bytes, bank: int = 0, *, longest: int = MAX_WRITE_BYTES) -> None:
        """Write to the copy. Raises as ``ModulePages.read_page``, and ``NotSupportedError`` for a replay."""
        check_write(page, byte, data, bank, longest)
        with self._lock:
            half = self._half(page, bank)
            if not self._writable:
                raise NotSupportedError(
                    f"writing to {page_words(page, bank)} of a saved image",
                    device=self._device,
                    address=self._source,
                    hint="A replay only shows what was read once; open the module itself.",
                )
            half[byte % HALF_BYTES : byte % HALF_BYTES + len(data)] = data

    def has_page(self, page: Page, bank: int = 0) -> bool:
        """Tell whether a page is in the image."""
        return (bank, page) in self._halves

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the image for several accesses."""
        with self._lock:
            yield

    @contextmanager
    def patient(self, seconds: float) -> Iterator[None]:
        """Do nothing: an image never refuses an access."""
        del seconds
        yield

    def forget(self) -> None:
        """Nothing is remembered."""

    def _half(self, page: Page, bank: int) -> bytearray:
        if not self._open:
            raise LinkLost("the image is closed", device=self._device, address=self._source, hint="Open it first.")
        if (bank, page) not in self._halves:
            raise PageNotSupportedError(
                f"no {page_words(page, bank)}",
                device=self._device,
                address=self._source,
                hint="The image does not have this page.",
            )
        return self._halves[bank, page]
