"""Command data block (CDB), passwords and user memory."""

from __future__ import annotations

from lumion_hw.drivers.transponders.cmis.context import MARGIN, ModuleContext
from lumion_hw.errors import DeviceError, FrameError
from lumion_hw.sessions.module.pages import MAX_WRITE_BYTES
from lumion_hw.standards.cmis import codes
from lumion_hw.standards.cmis.cdb import (
    CDB_PAGE,
    COMMAND_BYTE,
    EPL_PAGES,
    HEADER_REMAINDER_BYTE,
    decode_reply,
    encode_command,
)
from lumion_hw.standards.cmis.codec import cdb_busy_s
from lumion_hw.standards.cmis.codes import CdbCommand
from lumion_hw.standards.cmis.fields import HALF_BYTES

COMMAND_S = 5.0
"""Extra time in s for a command, beyond the advertised busy time (docs/transponders.md, "Times")."""
_FIRST_POLL_S = 0.1
_PASSWORD_HINT = "Enter the password of the module. A restart locks it again."


def command(
    module: ModuleContext,
    number: int,
    payload: bytes = b"",
    *,
    extended: bytes = b"",
    max_write: int = MAX_WRITE_BYTES,
    reply_timeout_s: float = 0.0,
    first_poll_s: float = _FIRST_POLL_S,
    replies: bool = True,
) -> bytes:
    """Run a command of the command data block and return its reply.

    Args:
        module: Open module.
        number: Number of the command.
        payload: Payload in page 9Fh (LPL).
        extended: Payload in pages A0h to AFh (EPL).
        max_write: Maximum length of a write to the pages of the command, in bytes.
        reply_timeout_s: Maximum time advertised by the module for this command; 0 if unknown.
        first_poll_s: Pause before the first reading of the status.
        replies: Whether the command has a reply; otherwise the reply bytes are ignored.

    Raises:
        NotSupportedError: The module has no CDB.
        DeviceError: The module refused the command; ``code`` is its status.
        DeviceTimeoutError: The command did not end in time.
        FrameError: The reply is damaged.
    """
    memory = module.memory
    module.needs(module.advertised.supported("cdb_command"), "a command data block")
    message = encode_command(number, payload, epl_length=len(extended))
    # While it executes a command, a module may not acknowledge any access, so all accesses use this timeout.
    timeout_s = COMMAND_S + max(cdb_busy_s(*memory.pages.read_page(0x01, 165, 2)), MARGIN * reply_timeout_s)
    label = f"CDB command {number:04X}h"
    with memory.pages.transaction(), memory.pages.retry_for(timeout_s):
        module.guard()
        # The extended payload is written first, because the write to 128-129 starts the command.
        for start in range(0, len(extended), HALF_BYTES):
            page = EPL_PAGES[start // HALF_BYTES]
            _write(module, page, HALF_BYTES, extended[start : start + HALF_BYTES], max_write)
        _write(module, CDB_PAGE, HEADER_REMAINDER_BYTE, message.body, max_write)
        # Both bytes in one write, so that modules that start with byte 129 have byte 128 too (01h:165.7).
        memory.pages.write_page(CDB_PAGE, COMMAND_BYTE, message.command)
        module.clock.sleep(first_poll_s)
        module.wait(lambda: not _status(module) & codes.CDB_BUSY, timeout_s, lambda: f"{label} is busy")
        _check_finished(module, label)
        if not replies:
            return b""
        # In the same transaction, because a command of another thread would overwrite the reply.
        reply = memory.pages.read_page(CDB_PAGE, HALF_BYTES, HALF_BYTES)
    try:
        return decode_reply(reply)
    except ValueError as error:
        raise module.error(
            FrameError, f"{label}: {error}", "Repeat the command. If the error remains, check the bus."
        ) from error


def _check_finished(module: ModuleContext, label: str) -> None:
    status = _status(module)
    if status & codes.CDB_FAILED:
        locked = status == codes.CdbStatus.PASSWORD
        hint = _PASSWORD_HINT if locked else "See the documentation of the module."
        failure = module.error(DeviceError, f"{label} failed: {codes.describe('cdb_status', status)}", hint)
        failure.code = status
        raise failure


def _write(module: ModuleContext, page: int, byte: int, data: bytes, max_bytes: int) -> None:
    for start in range(0, len(data), max_bytes):
        module.memory.pages.write_page(page, byte + start, data[start : start + max_bytes], longest=max_bytes)


def _status(module: ModuleContext) -> int:
    return module.memory.number("cdb_status", 1)


# -- passwords (00h:118-125 or CDB 0001h and 0002h) and user EEPROM (page 03h, CMIS 5.2)

MAX_HOST_PASSWORD = 0x7FFF_FFFF  # passwords from 80000000h belong to the vendor
_USER_PAGE = 0x03
_CHANGE_BYTE, _ENTRY_BYTE = 118, 122


def enter_password(module: ModuleContext, password: int) -> None:
    """Enter the host password. Raises ``DeviceError`` if a module with a command data block refuses the password."""
    _send_password(module, CdbCommand.ENTER_PASSWORD, _ENTRY_BYTE, password)


def change_password(module: ModuleContext, password: int) -> None:
    """Change the host password.

    Raises the errors of :func:`enter_password`, and ``LimitError`` if it is out of range.
    """
    _send_password(module, CdbCommand.CHANGE_PASSWORD, _CHANGE_BYTE, password)


def read_user_memory(module: ModuleContext) -> bytes:
    """Return the user memory. Raises ``NotSupportedError`` if the module has none."""
    _require_page(module)
    return module.memory.pages.read_page(_USER_PAGE, HALF_BYTES, HALF_BYTES)


def write_user_memory(module: ModuleContext, offset: int, data: bytes) -> None:
    """Write a part of the user memory (page 03h) and read the bytes back.

    Raises:
        NotSupportedError: The module has no user memory.
        LimitError: The bytes do not fit.
        VerifyError: The bytes read back differ.
    """
    _require_page(module)
    if not (offset >= 0 and offset + len(data) <= HALF_BYTES):
        raise module.error_limit(
            "end of the user memory" if offset >= 0 else "beginning of the user memory",
            offset + len(data) if offset >= 0 else offset,
            HALF_BYTES if offset >= 0 else 0,
            "",
        )
    pages = module.memory.pages
    with pages.transaction():
        module.guard()
        for start in range(0, len(data), MAX_WRITE_BYTES):
            pages.write_page(_USER_PAGE, HALF_BYTES + offset + start, data[start : start + MAX_WRITE_BYTES])
        actual = pages.read_page(_USER_PAGE, HALF_BYTES + offset, len(data)) if data else b""
    if actual != data:
        raise module.error_verify(
            f"user memory at {offset}", data.hex(" "), actual.hex(" "), "It may be protected. Enter the password first."
        )


def _require_page(module: ModuleContext) -> None:
    module.needs(module.advertised.supported("user_eeprom"), "user memory (page 03h)")


def _send_password(module: ModuleContext, number: CdbCommand, byte: int, password: int) -> None:
    if not 0 <= password <= MAX_HOST_PASSWORD:
        raise module.error_limit("host password", password, 0 if password < 0 else MAX_HOST_PASSWORD, "")
    data = password.to_bytes(4, "big")
    if module.advertised.supported("cdb_command"):
        command(module, number, data, replies=False)
        return
    with module.memory.pages.transaction():
        module.guard()
        module.memory.pages.write_page(None, byte, data)
