"""Memory of one emulated QSFP module: lower half, upper pages, page select, password and write protection."""

from __future__ import annotations

from lumion_hw.emulator.transponders.qsfp import offsets
from lumion_hw.emulator.transponders.qsfp.image import (
    control_write_mask,
    identity_page,
    lower_memory,
    lower_write_mask,
    threshold_page,
)
from lumion_hw.emulator.transponders.qsfp.offsets import HALF_BYTES
from lumion_hw.emulator.transponders.qsfp.profiles import QsfpProfile

HOST_PASSWORD = b"\x00\x00\x10\x11"
"""Password of a new module (SFF-8636 rev 2.11, password entry)."""
_EEPROM_PAGE, _CONTROL_PAGE = 0x02, 0x03


class EmulatedQsfpMemory:
    """Bytes of one module.

    Writes need the password for the user EEPROM (page 02h) and for a change of the password. The password bytes read
    as 0.

    Args:
        serial: Serial number, at most 16 ASCII characters, else ``ValueError``.
    """

    def __init__(self, profile: QsfpProfile, serial: str) -> None:
        self._profile = profile
        self._identity = identity_page(profile, serial)
        self._eeprom = bytearray(HALF_BYTES)
        self._password = HOST_PASSWORD
        self.reset()

    def reset(self) -> None:
        """Return all volatile registers to their defaults. The user EEPROM and the password stay."""
        profile = self._profile
        self.lower = lower_memory(profile)
        self.pages = {0x00: self._identity}
        self._masks: dict[int | None, bytes] = {None: lower_write_mask(profile)}
        if not profile.is_flat:
            self.pages[_CONTROL_PAGE] = threshold_page(profile)
            self._masks[_CONTROL_PAGE] = control_write_mask(profile)
            if profile.has("page_02h"):
                self.pages[_EEPROM_PAGE] = self._eeprom
        self.page = 0x00
        self._entered = bytearray(4)
        self._new_password = bytearray(4)

    @property
    def is_unlocked(self) -> bool:
        """Whether the host has entered the password."""
        return bytes(self._entered) == self._password

    def read(self, address: int) -> int:
        """Return the byte at an address of the memory, 0 to 255."""
        if address >= HALF_BYTES:
            return self.pages[self.page][address - HALF_BYTES]
        return self.page if address == offsets.PAGE_SELECT else self.lower[address]

    def byte(self, page: int | None, address: int) -> int:
        """Return a byte of the lower memory (``None``) or of a page; 0 if the module does not have the page."""
        if page is None:
            return self.lower[address]
        return self.pages[page][address - HALF_BYTES] if page in self.pages else 0

    def write(self, address: int, value: int) -> bool:
        """Write a byte, as far as it is writable. Return whether the byte is non-volatile."""
        if self._profile.is_flat:
            return False
        if address == offsets.PAGE_SELECT:
            # A page that does not exist is not accepted: the byte reverts to 0 (clause 6.1).
            self.page = value if value in self.pages else 0x00
            return False
        if offsets.PASSWORD_CHANGE <= address < offsets.PAGE_SELECT:
            return self._write_password(address, value)
        if address >= HALF_BYTES and self.page == _EEPROM_PAGE:
            if self.is_unlocked:
                self._eeprom[address - HALF_BYTES] = value
            return self.is_unlocked
        half, index = (self.lower, address) if address < HALF_BYTES else (self.pages[self.page], address - HALF_BYTES)
        mask = self._masks.get(None if address < HALF_BYTES else self.page, bytes(HALF_BYTES))[index]
        half[index] = (half[index] & ~mask) | (value & mask)
        return False

    def _write_password(self, address: int, value: int) -> bool:
        if address >= offsets.PASSWORD_ENTRY:
            self._entered[address - offsets.PASSWORD_ENTRY] = value
            return False
        if not self.is_unlocked:
            return False
        index = address - offsets.PASSWORD_CHANGE
        self._new_password[index] = value
        # A host password has its highest bit clear; the change takes effect with its last byte.
        if index == 3 and self._new_password[0] < 0x80:
            self._password = bytes(self._new_password)
            self._entered[:] = self._password
        return True
