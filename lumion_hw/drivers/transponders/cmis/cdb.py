"""The command data block: one command, its reply, and what was wrong with it."""

from __future__ import annotations

from lumion_hw.drivers.transponders.cmis.context import MARGIN, ModuleContext
from lumion_hw.errors import DeviceError, FrameError
from lumion_hw.sessions.module_pages import MAX_WRITE_BYTES
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
from lumion_hw.standards.cmis.fields import HALF_BYTES

COMMAND_S = 5.0
"""Time for a command beyond the advertised busy time (facts, transponders 3.13)."""
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
    patience_s = COMMAND_S + max(cdb_busy_s(*memory.pages.read_page(0x01, 165, 2)), MARGIN * within_s)
    words = f"CDB command {number:04X}h"
    with memory.pages.transaction(), memory.pages.patient(patience_s):
        module.guard()
        for start in range(0, len(extended), HALF_BYTES):
            page = EPL_PAGES[start // HALF_BYTES]
            _write(module, page, HALF_BYTES, extended[start : start + HALF_BYTES], longest_write)
        _write(module, CDB_PAGE, HEADER_REST_BYTE, message.body, longest_write)
        memory.pages.write_page(CDB_PAGE, COMMAND_BYTE, message.command)
        module.clock.sleep(first_look_s)
        module.wait(lambda: not _status(module) & codes.CDB_BUSY, patience_s, lambda: f"{words} is busy")
        _check_done(module, words)
        if not replies:
            return b""
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
