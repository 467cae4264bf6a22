"""The command data block, instance 1: commands on page 9Fh and what they answer (CMIS 9).

Known commands: query status 0000h, enter and change password 0001h and 0002h, module, performance, BERT, security and
externally defined features 0040h to 0045h, and those that manage firmware. All others are unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from lumion_hw.emulator.transponders.cmis.core import Core
from lumion_hw.emulator.transponders.cmis.firmware_commands import Answer, FirmwareCommands
from lumion_hw.emulator.transponders.cmis.host_port import Passwords, Written
from lumion_hw.emulator.transponders.cmis.profile import CdbProfile
from lumion_hw.standards.cmis.cdb import CDB_PAGE, COMMAND_BYTE, LPL_BYTE, MAX_LPL, command_is_intact, encode_reply
from lumion_hw.standards.cmis.codes import CdbStatus
from lumion_hw.standards.cmis.fields import HALF_BYTES

TRIGGER_BYTE = COMMAND_BYTE + 1
"""The write of this byte triggers the command."""
MAX_BUSY_MS = 4960
"""A command takes no longer (CMIS 8.4.11)."""
_REPLY = slice(134 - HALF_BYTES, HALF_BYTES)
_PAYLOAD = LPL_BYTE - HALF_BYTES


class CommandBlock:
    """Takes commands from page 9Fh.

    Args:
        core: The module.
        profile: What it can do.
        passwords: The lock that command 0001h opens.
        firmware: Manages the images.
    """

    def __init__(self, core: Core, profile: CdbProfile, passwords: Passwords, firmware: FirmwareCommands) -> None:
        self._core, self._profile, self._passwords, self._firmware = core, profile, passwords, firmware
        self._commands: dict[int, Callable[[bytes], Answer]] = {
            0x0000: self._query_status,
            0x0001: self._enter_password,
            0x0002: self._change_password,
            0x0040: self._module_features,
            0x0042: self._no_features,
            0x0043: self._no_features,
            0x0044: self._no_features,
            0x0045: self._no_features,
            **{command: partial(firmware.execute, command) for command in firmware.commands},
        }
        self.busy = False

    def restart(self) -> None:
        """Forget the command at work."""
        self.busy = False

    @property
    def blocks_the_bus(self) -> bool:
        """Whether the module does not acknowledge because it works on a command in the foreground."""
        return self.busy and not self._profile.background

    def _set_status(self, status: int) -> None:
        self._core.memory.put("cdb_status", status, 1)

    def triggered(self, written: Written) -> None:
        """Take the command that stands on the page; one at work makes the module ignore another."""
        if self.busy:
            return
        self.busy = True
        page = bytes(self._core.memory.half(CDB_PAGE))
        self._set_status(CdbStatus.CAPTURED)
        seconds = self._core.timing.cdb_s
        self._core.agenda.after(seconds / 3, lambda: self._set_status(CdbStatus.CHECKING))
        self._core.agenda.after(2 * seconds / 3, lambda: self._check(page))

    def _check(self, page: bytes) -> None:
        """Refuse what is damaged or unknown; otherwise execute it."""
        command, length = int.from_bytes(page[:2], "big"), page[4]
        if length > MAX_LPL:
            self._finish(CdbStatus.PARAMETER)
        elif not command_is_intact(page):
            self._finish(CdbStatus.BAD_CHECK_CODE)
        elif command not in self._commands:
            self._finish(CdbStatus.UNKNOWN_COMMAND)
        else:
            payload = page[_PAYLOAD : _PAYLOAD + length]
            self._set_status(CdbStatus.EXECUTING)
            extra_s = 0.0
            if command == 0x0000 and length == 2:
                extra_s = min(int.from_bytes(payload, "big"), MAX_BUSY_MS) * 1e-3
            elif command in self._firmware.commands:
                self._firmware.accept(command, payload, epl_length=int.from_bytes(page[2:4], "big"))
                extra_s = self._firmware.duration_s(command, self._core.timing)
            seconds = self._core.timing.cdb_s / 3 + extra_s
            self._core.agenda.after(seconds, lambda: self._execute(command, payload))

    def _execute(self, command: int, payload: bytes) -> None:
        answer = self._commands[command](payload)
        if isinstance(answer, int):
            self._finish(answer)
            return
        reply = encode_reply(answer)
        self._core.memory.half(CDB_PAGE)[_REPLY] = reply.ljust(HALF_BYTES - _REPLY.start, b"\x00")
        self._finish(CdbStatus.DONE)

    def _finish(self, status: int) -> None:
        self.busy = False
        self._set_status(status)
        self._core.flags.raise_event("cdb_complete_1_flag")

    # -- commands ---------------------------------------------------------------------------------------------------

    def _query_status(self, payload: bytes) -> Answer:
        if len(payload) != 2:
            return CdbStatus.PARAMETER
        return bytes([2, self._passwords.level])

    def _enter_password(self, payload: bytes) -> Answer:
        if len(payload) != 4:
            return CdbStatus.PARAMETER
        return b"" if self._passwords.enter(int.from_bytes(payload, "big")) else CdbStatus.PASSWORD

    def _change_password(self, payload: bytes) -> Answer:
        if len(payload) != 4 or payload[0] & 0x80:
            return CdbStatus.PARAMETER
        return b"" if self._passwords.change(int.from_bytes(payload, "big")) else CdbStatus.PASSWORD

    def _module_features(self, _payload: bytes) -> Answer:
        """Two reserved bytes, a bit per command 0000h to 00FFh, the longest time in ms (check)."""
        bits = bytearray(32)
        for command in self._commands:
            if command < 0x100:
                bits[command // 8] |= 1 << command % 8
        return bytes(2) + bytes(bits) + MAX_BUSY_MS.to_bytes(2, "big")

    def _no_features(self, _payload: bytes) -> Answer:
        return bytes(4)
