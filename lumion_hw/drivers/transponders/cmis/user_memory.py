"""What a CMIS module keeps for its user: 128 bytes of page 03h, and the password that protects some of its writes.

CMIS 5.2: passwords 00h:118-125 and CDB 0001h, 0002h; user EEPROM page 03h. A host password is below 80000000h.
"""

from __future__ import annotations

from lumion_hw.drivers.transponders.cmis import cdb
from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.sessions.module_pages import MAX_WRITE_BYTES
from lumion_hw.standards.cmis.codes import CdbCommand
from lumion_hw.standards.cmis.fields import HALF_BYTES

LARGEST_HOST_PASSWORD = 0x7FFF_FFFF
_PAGE = 0x03
_CHANGE_BYTE, _ENTRY_BYTE = 118, 122


def enter_password(module: ModuleContext, password: int) -> None:
    """Enter the host's password. Only a command data block tells whether it was right: raises ``DeviceError``."""
    _send(module, CdbCommand.ENTER_PASSWORD, _ENTRY_BYTE, password)


def change_password(module: ModuleContext, password: int) -> None:
    """Change the host's password. Raises as :func:`enter_password`, and ``LimitError``."""
    _send(module, CdbCommand.CHANGE_PASSWORD, _CHANGE_BYTE, password)


def read(module: ModuleContext) -> bytes:
    """Return the user's bytes. Raises ``NotSupportedError``."""
    _needs_page(module)
    return module.memory.pages.read_page(_PAGE, HALF_BYTES, HALF_BYTES)


def write(module: ModuleContext, offset: int, data: bytes) -> None:
    """Write some of the user's bytes and read them back.

    Raises:
        NotSupportedError: The module keeps none.
        LimitError: They do not fit.
        VerifyError: The module keeps others.
    """
    _needs_page(module)
    if not (offset >= 0 and offset + len(data) <= HALF_BYTES):
        raise module.error_limit(
            "end of the user's bytes" if offset >= 0 else "beginning of the user's bytes",
            offset + len(data) if offset >= 0 else offset,
            HALF_BYTES if offset >= 0 else 0,
            "",
        )
    pages = module.memory.pages
    with pages.transaction():
        module.guard()
        for start in range(0, len(data), MAX_WRITE_BYTES):
            pages.write_page(_PAGE, HALF_BYTES + offset + start, data[start : start + MAX_WRITE_BYTES])
        found = pages.read_page(_PAGE, HALF_BYTES + offset, len(data)) if data else b""
    if found != data:
        raise module.error_verify(
            f"user memory at {offset}", data.hex(" "), found.hex(" "), "It may be protected: enter the password first."
        )


def _needs_page(module: ModuleContext) -> None:
    module.needs(module.advertised.supported("user_eeprom"), "memory for the user (page 03h)")


def _send(module: ModuleContext, command: CdbCommand, byte: int, password: int) -> None:
    if not 0 <= password <= LARGEST_HOST_PASSWORD:
        raise module.error_limit("host password", password, 0 if password < 0 else LARGEST_HOST_PASSWORD, "")
    data = password.to_bytes(4, "big")
    if module.advertised.supported("cdb_command"):
        cdb.command(module, command, data, replies=False)
        return
    with module.memory.pages.transaction():
        module.guard()
        module.memory.pages.write_page(None, byte, data)
