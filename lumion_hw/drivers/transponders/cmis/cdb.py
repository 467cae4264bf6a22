"""The command data block: one command, its reply, and what was wrong with it; passwords and the user's own bytes."""

from __future__ import annotations

from lumion_hw.drivers.transponders.cmis.context import MARGIN, ModuleContext
from lumion_hw.errors import DeviceError, FrameError
from lumion_hw.sessions.module.pages import MAX_WRITE_BYTES
from lumion_hw.standards.cmis import codes
from lumion_hw.standards.cmis.cdb import (
    CDB_PAGE,
    COMMAND_BYTE,
    EPL_PAGES,
    HEADER_REST_BYTE,
    decode_reply,
    encode_command,
)
from lumion_hw.standards.cmis.codec import cdb_busy_s
from lumion_hw.standards.cmis.codes import CdbCommand
from lumion_hw.standards.cmis.fields import HALF_BYTES

COMMAND_S = 5.0
"""Time for a command beyond the advertised busy time (docs/transponders.md, "Times")."""
_FIRST_LOOK_S = 0.1
_PASSWORD_HINT = "Enter the module's password first; a restart locks it again."


def command(
    module: ModuleContext,
    number: int,
    payload: bytes = b"",
    *,
    extended: bytes = b"",
    longest_write: int = MAX_WRITE_BYTES,
    within_s: float = 0.0,
    first_look_s: float = _FIRST_LOOK_S,
    replies: bool = True,
) -> bytes:
    """Run a command and return its reply.

    Args:
        module: The module.
        number: The command.
        payload: Its local payload.
        extended: Its extended payload.
        longest_write: Longest write to the command's pages that the module takes.
        within_s: How long the module says that this command may take, if it says.
        first_look_s: Pause before the first look at the status.
        replies: Whether the command has a reply; without one, nothing is expected of the reply's bytes.

    Raises:
        NotSupportedError: The module has no CDB.
        DeviceError: The module refused the command; ``code`` is its status.
        DeviceTimeoutError: It was not done in time.
        FrameError: The reply is corrupt.
    """
    memory = module.memory
    module.needs(module.advertised.supported("cdb_command"), "a command data block")
    message = encode_command(number, payload, epl_length=len(extended))
    # While it runs a command a module may leave every access
    # unacknowledged, so the whole of this is patience with silence, too.
    patience_s = COMMAND_S + max(cdb_busy_s(*memory.pages.read_page(0x01, 165, 2)), MARGIN * within_s)
    words = f"CDB command {number:04X}h"
    with memory.pages.transaction(), memory.pages.patient(patience_s):
        module.guard()
        # The extended payload first: the write to 128-129 triggers, and the module takes what stands there then.
        for start in range(0, len(extended), HALF_BYTES):
            page = EPL_PAGES[start // HALF_BYTES]
            _write(module, page, HALF_BYTES, extended[start : start + HALF_BYTES], longest_write)
        _write(module, CDB_PAGE, HEADER_REST_BYTE, message.body, longest_write)
        # Both bytes in one write: a module that triggers on byte 129
        # alone has 128 by then (01h:165.7 names the two ways).
        memory.pages.write_page(CDB_PAGE, COMMAND_BYTE, message.command)
        module.clock.sleep(first_look_s)
        module.wait(lambda: not _status(module) & codes.CDB_BUSY, patience_s, lambda: f"{words} is busy")
        _check_done(module, words)
        if not replies:
            return b""
        # In the same transaction as the command: another thread's would overwrite it.
        reply = memory.pages.read_page(CDB_PAGE, HALF_BYTES, HALF_BYTES)
    try:
        return decode_reply(reply)
    except ValueError as error:
        raise module.error(FrameError, f"{words}: {error}", "Repeat it; check the bus if it happens again.") from error


def _check_done(module: ModuleContext, words: str) -> None:
    """Raise ``DeviceError`` with the status as its code if the command failed."""
    status = _status(module)
    if status & codes.CDB_FAILED:
        locked = status == codes.CdbStatus.PASSWORD
        hint = _PASSWORD_HINT if locked else "See the module's documentation of its commands."
        failure = module.error(DeviceError, f"{words} failed: {codes.describe('cdb_status', status)}", hint)
        failure.code = status
        raise failure


def _write(module: ModuleContext, page: int, byte: int, data: bytes, longest: int) -> None:
    for start in range(0, len(data), longest):
        module.memory.pages.write_page(page, byte + start, data[start : start + longest], longest=longest)


def _status(module: ModuleContext) -> int:
    return module.memory.number("cdb_status", 1)


# -- what the module keeps for its user: passwords 00h:118-125 or CDB 0001h and 0002h, user EEPROM page 03h (CMIS 5.2)

LARGEST_HOST_PASSWORD = 0x7FFF_FFFF  # those from 80000000h belong to the maker
_USER_PAGE = 0x03
_CHANGE_BYTE, _ENTRY_BYTE = 118, 122


def enter_password(module: ModuleContext, password: int) -> None:
    """Enter the host's password. Only a command data block tells whether it was right: raises ``DeviceError``."""
    _send_password(module, CdbCommand.ENTER_PASSWORD, _ENTRY_BYTE, password)


def change_password(module: ModuleContext, password: int) -> None:
    """Change the host's password. Raises as :func:`enter_password`, and ``LimitError``."""
    _send_password(module, CdbCommand.CHANGE_PASSWORD, _CHANGE_BYTE, password)


def read_user_memory(module: ModuleContext) -> bytes:
    """Return the user's bytes. Raises ``NotSupportedError``."""
    _needs_page(module)
    return module.memory.pages.read_page(_USER_PAGE, HALF_BYTES, HALF_BYTES)


def write_user_memory(module: ModuleContext, offset: int, data: bytes) -> None:
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
            pages.write_page(_USER_PAGE, HALF_BYTES + offset + start, data[start : start + MAX_WRITE_BYTES])
        found = pages.read_page(_USER_PAGE, HALF_BYTES + offset, len(data)) if data else b""
    if found != data:
        raise module.error_verify(
            f"user memory at {offset}", data.hex(" "), found.hex(" "), "It may be protected: enter the password first."
        )


def _needs_page(module: ModuleContext) -> None:
    module.needs(module.advertised.supported("user_eeprom"), "memory for the user (page 03h)")


def _send_password(module: ModuleContext, number: CdbCommand, byte: int, password: int) -> None:
    if not 0 <= password <= LARGEST_HOST_PASSWORD:
        raise module.error_limit("host password", password, 0 if password < 0 else LARGEST_HOST_PASSWORD, "")
    data = password.to_bytes(4, "big")
    if module.advertised.supported("cdb_command"):
        command(module, number, data, replies=False)
        return
    with module.memory.pages.transaction():
        module.guard()
        module.memory.pages.write_page(None, byte, data)
