"""The host's view of a module's memory (CMIS 5.2 clause 5 and 8.2).

Addresses wrap around within their half of 128 bytes. PageSelect returns to 00h for a missing page. A read clears the
flags of each byte that it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

from lumion_hw.emulator.transponders.cmis.core import Core
from lumion_hw.standards.cmis import Access, Page, byte_access, fields_of, is_supported
from lumion_hw.standards.cmis.cdb import CDB_PAGE, EPL_PAGES
from lumion_hw.standards.cmis.fields import FIRST_BANKED_PAGE, HALF_BYTES
from lumion_hw.standards.cmis.lower_memory import BANK_SELECT_BYTE, DEFAULT_HOST_PASSWORD, PAGE_SELECT_BYTE

WRITE_BYTES = 8
"""Longest write in one transaction (CMIS 5.2.3)."""
USER_EEPROM_PAGE = 0x03
"""Page whose writes go to non-volatile memory."""

Written = Mapping[tuple[Page, int], int]
"""Values written in one transaction, by page and byte address; only the writable bits."""
Effect = Callable[[Written], None]
"""Action triggered by a write, called once at the end of the transaction."""

_WRITABLE = frozenset({Access.RW, Access.RWW, Access.WO, Access.WO_SC})
_RESERVED_PATTERN = 0xAA


@cache
def _cleared_by_read(page: Page) -> tuple[int, ...]:
    """Return the bytes of a page (0 to 127) that a read clears."""
    return tuple(offset for offset, mask in enumerate(byte_access(page).clear_on_read) if mask)


class HostPort:
    """Executes the host's reads and writes, one transaction at a time.

    Args:
        render: Updates the registers of a page before the host reads them.
        effects: Actions triggered by writes, by page and byte address.
    """

    def __init__(self, core: Core, render: Callable[[Page], None], effects: Mapping[tuple[Page, int], Effect]) -> None:
        self._core, self._render, self._effects = core, render, effects
        self._masks: dict[Page, tuple[int, ...]] = {}
        self._previous = b""
        self.pointer = 0
        self.busy_until_s = float("-inf")

    @property
    def page(self) -> int:
        """The page that is mapped to bytes 128 to 255."""
        return self._core.memory.byte(None, PAGE_SELECT_BYTE)

    def _page_at(self, address: int) -> Page:
        return None if address < HALF_BYTES else self.page

    def restart(self) -> None:
        """Reset the selected page and the other volatile state."""
        self.pointer = 0
        self.busy_until_s = float("-inf")

    # -- reading ----------------------------------------------------------------------------------------------------

    def begin_read(self) -> None:
        """Start a read. All bytes of the read have their values at this time."""
        page = self._page_at(self.pointer)
        memory = self._core.memory
        # For the fault torn_read: the values before this instant.
        self._previous = bytes(memory.half(page)) if memory.has(page) else bytes(HALF_BYTES)
        self._render(page)

    def next_bytes(self, length: int) -> bytes:
        """Return the next bytes of a read."""
        first, page = self.pointer % HALF_BYTES, self._page_at(self.pointer)
        has, memory = self._core.has, self._core.memory
        if first + length > HALF_BYTES or not memory.has(page) or has("torn_read") or has("reserved_bits_set"):
            return bytes(self.next_byte() for _ in range(length))
        half = memory.half(page)
        data = bytes(half[first : first + length])
        start = self.pointer - first
        for offset in _cleared_by_read(page):
            if first <= offset < first + length:
                half[offset] = self._core.flags.value_after_read(page, start + offset)
        self.pointer = start + (first + length) % HALF_BYTES
        return data

    def next_byte(self) -> int:
        """Return the byte at the address pointer, and advance the pointer."""
        address = self.pointer
        page = self._page_at(address)
        self.pointer = address // HALF_BYTES * HALF_BYTES + (address + 1) % HALF_BYTES
        memory = self._core.memory
        if not memory.has(page):
            return 0
        offset = address % HALF_BYTES
        value = memory.half(page)[offset]
        access = byte_access(page)
        # Clear only the bytes that were returned: a read that ends before a flag leaves it set.
        if access.clear_on_read[offset]:
            byte = address if page is None else HALF_BYTES + offset
            memory.half(page)[offset] = self._core.flags.value_after_read(page, byte)
        elif self._core.has("torn_read") and address % 2:
            value = self._previous[offset]
        if self._core.has("reserved_bits_set"):
            value |= _RESERVED_PATTERN & ~access.defined[offset]
        return value

    # -- writing ----------------------------------------------------------------------------------------------------

    def write_limit(self, address: int) -> int:
        """Return the longest acknowledged write at an address, in bytes."""
        page = self._page_at(address)
        # Hosts in the field write the whole message of page 9Fh in one transaction.
        if self._core.quirks.lenient_writes or page == CDB_PAGE:
            return HALF_BYTES
        if page in EPL_PAGES:
            return WRITE_BYTES + int(self._core.memory.number("cdb_length_extension"))
        return WRITE_BYTES

    def store(self, address: int, data: bytes) -> None:
        """Store a write transaction and perform the triggered actions."""
        written: dict[tuple[Page, int], int] = {}
        for value in data:
            self._store_byte(address, value, written)
            address = address // HALF_BYTES * HALF_BYTES + (address + 1) % HALF_BYTES
        self.pointer = address
        # After the last byte: bank and page arrive in one write of two bytes.
        if (None, PAGE_SELECT_BYTE) in written:
            self._select_page()
        if any(page == USER_EEPROM_PAGE for page, _ in written):
            self.busy_until_s = self._core.now + self._core.timing.nv_write_s
        # Once per transaction, however many of its bytes were written.
        for effect in dict.fromkeys(self._effects[address] for address in written if address in self._effects):
            effect(written)

    def _store_byte(self, address: int, value: int, written: dict[tuple[Page, int], int]) -> None:
        page = self._page_at(address)
        if not self._core.memory.has(page):
            return
        offset = address % HALF_BYTES
        mask = self._writable(page)[offset]
        if not mask:
            return
        half = self._core.memory.half(page)
        # Triggers read as 0: they cause an action and are not stored.
        writable = mask & ~byte_access(page).reads_zero[offset]
        half[offset] = half[offset] & ~writable | value & writable
        written[page, address] = value & mask

    def _writable(self, page: Page) -> tuple[int, ...]:
        core = self._core
        if page == USER_EEPROM_PAGE and core.quirks.password_protects_eeprom and not core.unlocked:
            return (0,) * HALF_BYTES
        if page not in self._masks:
            self._masks[page] = (0xFF,) * HALF_BYTES if page in EPL_PAGES else self._control_bits(page)
        return self._masks[page]

    def _control_bits(self, page: Page) -> tuple[int, ...]:
        memory = self._core.memory
        masks = [0] * HALF_BYTES
        for field in fields_of(page):
            supported = is_supported(field, memory.advertised)
            if field.access in _WRITABLE and supported is not False:
                for location in field.locations():
                    masks[location.byte % HALF_BYTES] |= location.mask
        return tuple(masks)

    def _select_page(self) -> None:
        """Map the requested page, or page 00h if the module does not have it in the requested bank."""
        core = self._core
        self.busy_until_s = core.now + core.timing.page_change_s
        bank = core.memory.byte(None, BANK_SELECT_BYTE)
        exists = core.memory.has(self.page) and (self.page < FIRST_BANKED_PAGE or bank == 0)
        if not exists and not core.quirks.refuses_page_silently:
            core.memory.set_byte(None, PAGE_SELECT_BYTE, 0)


CHANGE_BYTE, ENTRY_BYTE = 118, 122
"""First bytes of the registers for changing and entering the password; writing the last byte triggers the action."""
MODULE_PASSWORDS = 0x8000_0000
"""Smallest manufacturer's password; the host's passwords are smaller."""
_MODULE_PASSWORD = 0x8000_1011
"""The manufacturer's password of emulated modules."""


class Passwords:
    """The password lock, which a reset locks.

    Args:
        core: Shared state of the module; its attribute ``unlocked`` follows the lock.

    Attributes:
        level: Access level as in the reply to command 0000h: 0 locked, 1 host password, 80h manufacturer's password.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._password = DEFAULT_HOST_PASSWORD
        self.level = 0
        self._received = {first: bytearray(4) for first in (CHANGE_BYTE, ENTRY_BYTE)}

    def restart(self) -> None:
        """Lock the module."""
        self._core.unlocked = False
        self.level = 0
        self._received = {first: bytearray(4) for first in self._received}

    def enter(self, password: int) -> bool:
        """Unlock with a correct password, lock with a wrong one. Return whether it was correct."""
        self.level = {self._password: 0x01, _MODULE_PASSWORD: 0x80}.get(password, 0)
        self._core.unlocked = bool(self.level)
        return self._core.unlocked

    def change(self, password: int) -> bool:
        """Set the password if the module is unlocked and the new password allowed. Return whether it was set."""
        allowed = self._core.unlocked and password < MODULE_PASSWORDS
        if allowed:
            self._password = password
        return allowed

    def written(self, written: Written) -> None:
        """Process a write to the registers for entering or changing the password."""
        for (page, byte), value in written.items():
            for first, received in self._received.items():
                if page is None and first <= byte < first + 4:
                    received[byte - first] = value
                    if byte == first + 3:
                        self._process(first, int.from_bytes(received, "big"))

    def _process(self, first: int, password: int) -> None:
        if first == ENTRY_BYTE:
            self.enter(password)
        else:
            self.change(password)
