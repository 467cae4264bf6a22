"""The command data block: one command, its reply, and what was wrong with it. Firmware is never written."""

from __future__ import annotations

from lumion_hw.drivers.transponders.cmis.context import Module
from lumion_hw.errors import DeviceError, FrameError, NotSupportedError
from lumion_hw.interfaces.cmis import codes
from lumion_hw.interfaces.cmis.cdb import (
    CDB_PAGE,
    COMMAND_BYTE,
    HEADER_REST_BYTE,
    FirmwareImage,
    decode_firmware_info,
    decode_reply,
    encode_command,
)
from lumion_hw.interfaces.cmis.codec import cdb_busy_s
from lumion_hw.interfaces.cmis.fields import HALF_BYTES
from lumion_hw.sessions.module_pages import MAX_WRITE_BYTES

COMMAND_S = 5.0
"""Time for a command beyond the advertised busy time (facts, transponders 3.13)."""
_FIRST_LOOK_S = 0.1


def command(module: Module, number: int, payload: bytes = b"") -> bytes:
    """Run a command and return its reply.

    Raises:
        NotSupportedError: The module has no CDB, or the command would change its firmware.
        DeviceError: The module refused the command; ``code`` is its status.
        DeviceTimeoutError: It was not done in time.
        FrameError: The reply is corrupt.
    """
    memory = module.memory
    module.needs(module.advertised.supported("cdb_command"), "a command data block")
    if number in codes.CDB_FIRMWARE_WRITES:
        raise module.error(
            NotSupportedError, f"CDB command {number:04X}h changes firmware", "Use the vendor's own tool for that."
        )
    message = encode_command(number, payload)
    busy_s = cdb_busy_s(*memory.pages.read_page(0x01, 165, 2))
    words = f"CDB command {number:04X}h"
    with memory.pages.transaction(), memory.pages.patient(COMMAND_S + busy_s):
        module.guard()
        for start in range(0, len(message.body), MAX_WRITE_BYTES):
            piece = message.body[start : start + MAX_WRITE_BYTES]
            memory.pages.write_page(CDB_PAGE, HEADER_REST_BYTE + start, piece)
        memory.pages.write_page(CDB_PAGE, COMMAND_BYTE, message.command)
        module.clock.sleep(_FIRST_LOOK_S)
        module.wait(lambda: not _status(module) & codes.CDB_BUSY, COMMAND_S + busy_s, lambda: f"{words} is busy")
        status = _status(module)
        if status & codes.CDB_FAILED:
            failure = module.error(
                DeviceError,
                f"{words} failed: {codes.describe('cdb_status', status)}",
                "See the module's documentation of its commands.",
            )
            failure.code = status
            raise failure
        page = memory.pages.read_page(CDB_PAGE, HALF_BYTES, HALF_BYTES)
    try:
        return decode_reply(page)
    except ValueError as error:
        raise module.error(FrameError, f"{words}: {error}", "Repeat it; check the bus if it happens again.") from error


def firmware(module: Module) -> tuple[FirmwareImage | None, FirmwareImage | None]:
    """Return the stored firmware images A and B. Raises as :func:`command`."""
    reply = command(module, codes.CdbCommand.FIRMWARE_INFO)
    try:
        return decode_firmware_info(reply)
    except ValueError as error:
        raise module.error(FrameError, str(error), "The module's answer cannot be used.") from error


def _status(module: Module) -> int:
    return module.memory.number("cdb_status", 1)
