"""Entry and change of the host password (CMIS 8.2.14: 00h:118-125)."""

from __future__ import annotations

from lumion_hw.emulator.transponders.cmis.core import Core
from lumion_hw.emulator.transponders.cmis.host_port import Written
from lumion_hw.standards.cmis.lower_memory import DEFAULT_HOST_PASSWORD

CHANGE_BYTE, ENTRY_BYTE = 118, 122
"""First bytes of the two registers; the write of the last byte of each acts."""
MODULE_PASSWORDS = 0x8000_0000
"""From here on passwords are those of the maker: no host can set them."""
_MODULE_PASSWORD = 0x8000_1011
"""The maker's password of emulated modules."""


class Passwords:
    """The host's password; a change is non-volatile, the unlocking is not.

    Args:
        core: The module, whose ``unlocked`` this keeps.

    Attributes:
        level: As reply to command 0000h: 0 locked, 1 the host's password, 80h the maker's.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._password = DEFAULT_HOST_PASSWORD
        self.level = 0
        self._typed = {first: bytearray(4) for first in (CHANGE_BYTE, ENTRY_BYTE)}

    def restart(self) -> None:
        """Lock again."""
        self._core.unlocked = False
        self.level = 0
        self._typed = {first: bytearray(4) for first in self._typed}

    def enter(self, password: int) -> bool:
        """Unlock with the right password, lock with a wrong one; returns whether it was right."""
        self.level = {self._password: 0x01, _MODULE_PASSWORD: 0x80}.get(password, 0)
        self._core.unlocked = bool(self.level)
        return self._core.unlocked

    def change(self, password: int) -> bool:
        """Set the host's password, for good; returns whether that was allowed: unlocked, and not one of the maker's."""
        allowed = self._core.unlocked and password < MODULE_PASSWORDS
        if allowed:
            self._password = password
        return allowed

    def written(self, written: Written) -> None:
        """Take what was written to either register."""
        for (page, byte), value in written.items():
            for first, typed in self._typed.items():
                if page is None and first <= byte < first + 4:
                    typed[byte - first] = value
                    if byte == first + 3:
                        self._act(first, int.from_bytes(typed, "big"))

    def _act(self, first: int, password: int) -> None:
        if first == ENTRY_BYTE:
            self.enter(password)
        else:
            self.change(password)
