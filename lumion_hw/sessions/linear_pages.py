"""CMIS pages through a linear file, as Linux optoe-style drivers offer it (``.../N-0050/eeprom``)."""

from __future__ import annotations

from lumion_hw.sessions.linear_file import MemoryFile
from lumion_hw.sessions.module_pages import MAX_WRITE_BYTES, check_range, check_write, page_words
from lumion_hw.sessions.register_access import ShortReadError
from lumion_hw.standards.cmis.codec import linear_offset
from lumion_hw.standards.cmis.fields import HALF_BYTES, Page

_LIKENESS_BYTES = 16


class LinearPages(MemoryFile):
    """Pages of a module in one file, each behind the other; implements ``ModulePages``.

    The kernel selects the page and does not look whether it stayed: a page that the module lacks shows page 00h.
    """

    def read_page(self, page: Page, byte: int, length: int, bank: int = 0) -> bytes:
        """Return exactly ``length`` bytes; raises as ``ModulePages.read_page``."""
        check_range(page, byte, length, bank)
        return self.read_at(linear_offset(page, byte, bank), length, f"byte {byte} of {page_words(page, bank)}")

    def write_page(self, page: Page, byte: int, data: bytes, bank: int = 0, *, longest: int = MAX_WRITE_BYTES) -> None:
        """Write in one call; raises as ``ModulePages.read_page``."""
        check_write(page, byte, data, bank, longest)
        self.write_at(linear_offset(page, byte, bank), data, f"byte {byte} of {page_words(page, bank)}")

    def has_page(self, page: Page, bank: int = 0) -> bool:
        """Tell whether a page is there and does not begin like page 00h; raises as ``ModulePages.read_page``."""
        if page in (None, 0):
            return True
        with self.transaction():
            try:
                found = self.read_page(page, HALF_BYTES, _LIKENESS_BYTES, bank)
            except ShortReadError:
                return False
            return found != self.read_page(0x00, HALF_BYTES, _LIKENESS_BYTES)

    def forget(self) -> None:
        """Nothing is remembered."""
