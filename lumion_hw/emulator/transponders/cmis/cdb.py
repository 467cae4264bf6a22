"""CDB (command data block), instance 1: commands on page 9Fh and firmware management (CMIS 5.2: 7.3, 8.4.11, 9).

Supported commands: query status 0000h, enter and change password 0001h and 0002h, the feature queries 0040h to 0045h
(module, performance, BERT, security, externally defined), and firmware management: 0041h, and 0100h to 010Ah. The
commands that read images back (0105h, 0106h) are advertised as not supported.

A firmware image is invalid from the start of its erasure until a whole new image has been checked. A valid image always
remains for a restart after a power loss.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from lumion_hw.emulator.transponders.cmis.core import Core
from lumion_hw.emulator.transponders.cmis.host_port import Passwords, Written
from lumion_hw.emulator.transponders.cmis.profiles import CdbProfile, Timing
from lumion_hw.standards.cmis.cdb import (
    CDB_PAGE,
    COMMAND_BYTE,
    EPL_PAGES,
    LPL_BYTE,
    MAX_LPL,
    command_is_intact,
    encode_reply,
)
from lumion_hw.standards.cmis.codes import CdbStatus
from lumion_hw.standards.cmis.fields import HALF_BYTES

HEADER_BYTES = 64
"""Bytes of an image file that belong to the start command (``StartCmdPayloadSize``)."""
ERASED = 0xFF
"""Value of an erased byte."""
BANKS = "AB"
_MAGIC = b"LMNFW\x01"
_HEADER = struct.Struct(">6sBBHII")  # magic, major, minor, build, file size, CRC-32 of the bytes after the header
MAX_IMAGE_BYTES = 1 << 22
"""Largest image in bytes."""


def firmware_image(major: int, minor: int, build: int, size: int = 4096) -> bytes:
    """Return a firmware file of ``size`` bytes that an emulated module accepts; 64 bytes are the header.

    Raises ``ValueError`` if ``size`` is too small or too large, or a version number does not fit its field.
    """
    if not HEADER_BYTES < size <= MAX_IMAGE_BYTES:
        raise ValueError(f"size is {size} bytes; an image has {HEADER_BYTES + 1} to {MAX_IMAGE_BYTES} bytes")
    seed = zlib.crc32(bytes([major, minor])) ^ build
    body = bytes((seed >> (index % 24)) + 31 * index & 0xFF for index in range(size - HEADER_BYTES))
    try:
        # The vendor's header is not standardised: this format is the emulator's own, and is large enough for a check.
        header = _HEADER.pack(_MAGIC, major, minor, build, size, zlib.crc32(body))
    except struct.error as error:
        raise ValueError(f"version {major}.{minor}.{build} does not fit the image header: {error}") from error
    return header.ljust(HEADER_BYTES, b"\x00") + body


@dataclass
class Image:
    """One firmware image stored in a module, with version (major, minor, build)."""

    version: tuple[int, int, int] = (0, 0, 0)
    valid: bool = False


@dataclass
class Download:
    """A firmware image that is being downloaded to a bank.

    Attributes:
        version: Version in the header of the image.
        crc: CRC-32 in the header.
        data: The body so far, with the erased value in unwritten bytes.
        end: Offset of the byte after the last written byte.
    """

    bank: str
    version: tuple[int, int, int]
    crc: int
    data: bytearray
    end: int = 0

    @property
    def is_intact(self) -> bool:
        """Whether the body matches the header's CRC-32."""
        return zlib.crc32(self.data) == self.crc


@dataclass
class FirmwareStore:
    """Firmware images of a module.

    Attributes:
        factory: Version of the factory image, which is always present.
        committed: Bank that runs after a reset.
        running: Bank that runs now; ``F`` for the factory image.
        download: The current download, if any; lost without power.
        next_boot_bank: Bank that runs after the next reset only, if set; lost without power.
    """

    images: dict[str, Image]
    factory: tuple[int, int, int]
    committed: str = "A"
    running: str = "A"
    download: Download | None = field(default=None)
    next_boot_bank: str | None = None

    @property
    def inactive(self) -> str:
        """The firmware bank that does not run; B while the factory image runs."""
        return "A" if self.running == "B" else "B"

    def version(self, bank: str) -> tuple[int, int, int]:
        """Return the firmware version of a bank; zeros if the image is not valid."""
        if bank not in self.images:
            return self.factory
        image = self.images[bank]
        return image.version if image.valid else (0, 0, 0)

    def boot(self) -> None:
        """Boot from the first valid image: requested bank, committed bank, other bank, factory image."""
        self.download = None
        order = (self.next_boot_bank, self.committed, *BANKS)
        self.next_boot_bank = None
        self.running = next((bank for bank in order if bank and self.images[bank].valid), "F")

    def accepts_header(self, header: bytes, size: int) -> bool:
        """Return whether a header belongs to an image of this size for this module."""
        if len(header) < HEADER_BYTES:
            return False
        magic, _, _, _, length, _ = _HEADER.unpack_from(header)
        return bool(magic == _MAGIC and length == size)

    def erase(self, bank: str) -> None:
        """Begin to erase a firmware bank, whose image becomes invalid."""
        self.images[bank] = Image()

    def start_download(self, header: bytes, size: int) -> bool:
        """Start the download of an image to the inactive bank. Return whether the header is valid for this module."""
        if not self.accepts_header(header, size):
            return False
        _, major, minor, build, _, crc = _HEADER.unpack_from(header)
        # Erase before the first block: a power loss during the download must not leave half an image marked valid.
        self.erase(self.inactive)
        body = bytearray([ERASED]) * (size - HEADER_BYTES)
        self.download = Download(self.inactive, (major, minor, build), crc, body)
        return True

    def finish_download(self) -> bool:
        """Check the downloaded image and store it. Return whether it is intact."""
        download, self.download = self.download, None
        if download is None or not download.is_intact:
            return False
        self.images[download.bank] = Image(download.version, valid=True)
        return True


CdbReply = bytes | int
"""The payload of a reply, or the status code of a failure."""
TASK_FAILED = 0x60
"""Status of an accepted command that failed (CMIS 8.2.8: codes 20h to 2Fh)."""
START, ABORT, WRITE_LPL, WRITE_EPL, COMPLETE, COPY, RUN, COMMIT = (
    0x0101, 0x0102, 0x0103, 0x0104, 0x0107, 0x0108, 0x0109, 0x010A,
)  # fmt: skip
_ADDRESS_BYTES = 4
_START_BYTES = 8
_LPL, _EPL = 0x01, 0x10
_DIRECTIONS = {0xAB: ("A", "B"), 0xBA: ("B", "A")}
_EXTENSION = 15
"""Advertised limit of one access to the CDB pages: 8 bytes plus 15 groups of 8 bytes, 128 bytes."""
_MARGIN = 1.2
_EXTRA_BYTES = 32
_PASSWORD_COMMANDS = frozenset({START, COPY, RUN, COMMIT})
"""Commands that need the password on some modules."""


class FirmwareCommands:
    """Firmware management of one module.

    Args:
        reboot: Restarts the module. The argument is true for a restart without interruption of traffic (hitless).
    """

    def __init__(self, core: Core, profile: CdbProfile, store: FirmwareStore, reboot: Callable[[bool], None]) -> None:
        self._core, self._profile, self._store, self._reboot = core, profile, store, reboot
        self._epl_length = 0
        self._copied: tuple[int, int, int] | None = None
        self.commands: Mapping[int, Callable[[bytes], CdbReply]] = {
            0x0041: self._features,
            0x0100: self._info,
            START: self._start,
            ABORT: self._abort,
            WRITE_LPL: self._write_lpl,
            COMPLETE: self._complete,
            COPY: self._copy,
            RUN: self._run,
            COMMIT: self._commit,
        }
        if profile.epl_pages:
            self.commands = {**self.commands, WRITE_EPL: self._write_epl}

    def duration_s(self, command: int, timing: Timing) -> float:
        """Return the duration of a command beyond that common to all commands."""
        return {
            START: timing.fw_start_s,
            ABORT: timing.fw_abort_s,
            WRITE_LPL: timing.fw_write_s,
            WRITE_EPL: timing.fw_write_s,
            COMPLETE: timing.fw_complete_s,
            COPY: timing.fw_copy_s,
        }.get(command, 0.0)

    def start_work(self, command: int, payload: bytes, epl_length: int) -> None:
        """Start work on a command, which may invalidate an image."""
        self._epl_length = epl_length
        store = self._store
        self._copied = None
        if self._refusal(command):
            return
        if command == START and self._start_refusal(payload) == 0:
            store.erase(store.inactive)
        elif command == COPY and len(payload) == 1 and payload[0] in _DIRECTIONS:
            source, destination = _DIRECTIONS[payload[0]]
            if self._may_copy(source, destination):
                self._copied = store.images[source].version
                store.erase(destination)
        self.show_versions()

    def execute(self, command: int, payload: bytes) -> CdbReply:
        """Execute a CDB command."""
        return self._refusal(command) or self.commands[command](payload)

    def _refusal(self, command: int) -> int:
        locked = self._profile.firmware_needs_password and not self._core.unlocked
        return CdbStatus.PASSWORD if locked and command in _PASSWORD_COMMANDS else 0

    # -- information ------------------------------------------------------------------------------------------------

    def _features(self, _payload: bytes) -> CdbReply:
        profile, timing = self._profile, self._core.profile.timing
        milliseconds = [
            round(1e3 * _MARGIN * (self.duration_s(command, timing) + timing.cdb_s))
            for command in (START, ABORT, WRITE_LPL, COMPLETE, COPY)
        ]
        # The field has sixteen bits in ms; bit 3 changes the unit to 10 ms for longer durations.
        tenfold = max(milliseconds) > 0xFFFF
        bits = 0b11 | profile.skips_erased << 2 | tenfold << 3
        mechanism = _LPL | (_EPL if profile.epl_pages else 0)
        head = bytes([0, bits, HEADER_BYTES, ERASED, _EXTENSION, mechanism, 0, profile.hitless])
        return head + b"".join((-(-value // 10) if tenfold else value).to_bytes(2, "big") for value in milliseconds)

    def _info(self, _payload: bytes) -> CdbReply:
        store = self._store
        status, present = 0, 0b100
        for index, bank in enumerate(BANKS):
            image = store.images[bank]
            bits = (store.running == bank) | (store.committed == bank) << 1 | (not image.valid) << 2
            status |= bits << 4 * index
            present |= image.valid << index
        versions = b"".join(_version(store.version(bank)) for bank in (*BANKS, "F"))
        return bytes([status, present]) + versions

    # -- update -----------------------------------------------------------------------------------------------------

    def _start_refusal(self, payload: bytes) -> int:
        size = int.from_bytes(payload[:4], "big")
        if len(payload) != _START_BYTES + HEADER_BYTES or not HEADER_BYTES < size <= MAX_IMAGE_BYTES:
            return CdbStatus.PARAMETER
        if self._store.download is not None:
            return CdbStatus.WRONG_STATE
        return 0 if self._store.accepts_header(payload[_START_BYTES:], size) else TASK_FAILED

    def _start(self, payload: bytes) -> CdbReply:
        refusal = self._start_refusal(payload)
        if refusal == 0:
            self._store.start_download(payload[_START_BYTES:], int.from_bytes(payload[:4], "big"))
        return refusal or b""

    def _abort(self, _payload: bytes) -> CdbReply:
        if self._store.download is None:
            return CdbStatus.WRONG_STATE
        self._store.download = None
        return b""

    def _write_lpl(self, payload: bytes) -> CdbReply:
        if not _ADDRESS_BYTES < len(payload) <= MAX_LPL:
            return CdbStatus.PARAMETER
        return self._write(payload[:_ADDRESS_BYTES], payload[_ADDRESS_BYTES:])

    def _write_epl(self, payload: bytes) -> CdbReply:
        length = self._epl_length
        if len(payload) != _ADDRESS_BYTES or not 0 < length <= HALF_BYTES * self._profile.epl_pages:
            return CdbStatus.PARAMETER
        pages = EPL_PAGES[: self._profile.epl_pages]
        data = b"".join(bytes(self._core.memory.half(page)) for page in pages)
        return self._write(payload, data[:length])

    def _write(self, address: bytes, block: bytes) -> CdbReply:
        download = self._store.download
        if download is None:
            return CdbStatus.WRONG_STATE
        first = int.from_bytes(address, "big")
        end = first + len(block)
        # Blocks come in order. Only modules that advertise it accept gaps, which stay erased.
        if end > len(download.data) or (first > download.end and not self._profile.skips_erased):
            return CdbStatus.PARAMETER
        download.data[first:end] = block
        download.end = max(download.end, end)
        return b""

    def _complete(self, _payload: bytes) -> CdbReply:
        if self._store.download is None:
            return CdbStatus.WRONG_STATE
        if not self._store.finish_download():
            return TASK_FAILED
        self.show_versions()
        return b""

    def _may_copy(self, source: str, destination: str) -> bool:
        store = self._store
        in_use = destination in (store.running, store.committed)
        return store.download is None and not in_use and store.images[source].valid

    def _copy(self, payload: bytes) -> CdbReply:
        if len(payload) != 1 or payload[0] not in _DIRECTIONS:
            return CdbStatus.PARAMETER
        if self._copied is None:
            return CdbStatus.WRONG_STATE
        self._store.images[_DIRECTIONS[payload[0]][1]] = Image(self._copied, valid=True)
        self.show_versions()
        return MAX_IMAGE_BYTES.to_bytes(4, "big") + payload + b"\x00"

    def _run(self, payload: bytes) -> CdbReply:
        """Schedule a restart. Modes 0 and 1 run the inactive image, 2 and 3 the running image; 1 and 3 are hitless."""
        if len(payload) != _ADDRESS_BYTES or payload[1] > 3:
            return CdbStatus.PARAMETER
        store = self._store
        bank = store.inactive if payload[1] < 2 else store.running
        if store.download is not None or (bank in store.images and not store.images[bank].valid):
            return CdbStatus.WRONG_STATE
        hitless = bool(payload[1] & 1) and self._profile.hitless
        delay_s = int.from_bytes(payload[2:4], "big") * 1e-3

        def restart() -> None:
            # Only once: an uncommitted image is abandoned at the next reset, which is the way back from a bad image.
            store.next_boot_bank = bank if bank in store.images else None
            self._reboot(hitless)

        self._core.agenda.after(max(delay_s, 1e-6), restart)  # the reply is complete before the restart
        return b""

    def _commit(self, _payload: bytes) -> CdbReply:
        if self._store.running not in self._store.images:
            return CdbStatus.WRONG_STATE
        self._store.committed = self._store.running
        return b""

    def show_versions(self) -> None:
        """Write the versions of the running and the other image to 00h:39 and 01h:128."""
        store, memory = self._store, self._core.memory
        for prefix, bank in (("firmware", store.running), ("inactive_firmware", store.inactive)):
            major, minor, _ = store.version(bank)
            memory.put(f"{prefix}_major", major)
            memory.put(f"{prefix}_minor", minor)


def _version(version: tuple[int, int, int]) -> bytes:
    major, minor, build = version
    text = f"build {build}" if any(version) else ""
    return bytes([major, minor]) + build.to_bytes(2, "big") + text.encode("ascii").ljust(_EXTRA_BYTES, b"\x00")


TRIGGER_BYTE = COMMAND_BYTE + 1
"""Byte of page 9Fh that starts the CDB command."""
MAX_BUSY_MS = 4960
"""Longest duration of a command, in ms (CMIS 8.4.11)."""
_REPLY = slice(134 - HALF_BYTES, HALF_BYTES)
_PAYLOAD = LPL_BYTE - HALF_BYTES


class CommandBlock:
    """Executes the CDB commands that a host writes to page 9Fh.

    Args:
        passwords: The password lock, opened by command 0001h.
    """

    def __init__(self, core: Core, profile: CdbProfile, passwords: Passwords, firmware: FirmwareCommands) -> None:
        self._core, self._profile, self._passwords, self._firmware = core, profile, passwords, firmware
        self._commands: dict[int, Callable[[bytes], CdbReply]] = {
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
        """Discard the running CDB command."""
        self.busy = False

    @property
    def blocks_the_bus(self) -> bool:
        """Whether the module does not acknowledge while it executes a command."""
        return self.busy and not self._profile.background

    def _set_status(self, status: int) -> None:
        self._core.memory.put("cdb_status", status, 1)

    def triggered(self, written: Written) -> None:
        """Start the command on page 9Fh; no effect while another command runs."""
        if self.busy:
            return
        self.busy = True
        # Copy the page now: the host may rewrite it while a background command runs.
        page = bytes(self._core.memory.half(CDB_PAGE))
        # Captured, checking and executing each last a third, so a polling host sees every code.
        self._set_status(CdbStatus.CAPTURED)
        seconds = self._core.timing.cdb_s
        self._core.agenda.after(seconds / 3, lambda: self._set_status(CdbStatus.CHECKING))
        self._core.agenda.after(2 * seconds / 3, lambda: self._check(page))

    def _check(self, page: bytes) -> None:
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
                # Its effect on the stored images begins now, not at the end of the command.
                self._firmware.start_work(command, payload, epl_length=int.from_bytes(page[2:4], "big"))
                extra_s = self._firmware.duration_s(command, self._core.timing)
            seconds = self._core.timing.cdb_s / 3 + extra_s
            self._core.agenda.after(seconds, lambda: self._execute(command, payload))

    def _execute(self, command: int, payload: bytes) -> None:
        result = self._commands[command](payload)
        if isinstance(result, int):
            self._finish(result)
            return
        # Clear the rest of the area: a host must not read the leftovers of an earlier reply.
        reply = encode_reply(result)
        self._core.memory.half(CDB_PAGE)[_REPLY] = reply.ljust(HALF_BYTES - _REPLY.start, b"\x00")
        self._finish(CdbStatus.DONE)

    def _finish(self, status: int) -> None:
        self.busy = False
        self._set_status(status)
        self._core.flags.raise_event("cdb_complete_1_flag")

    # -- commands ---------------------------------------------------------------------------------------------------

    def _query_status(self, payload: bytes) -> CdbReply:
        if len(payload) != 2:
            return CdbStatus.PARAMETER
        return bytes([2, self._passwords.level])

    def _enter_password(self, payload: bytes) -> CdbReply:
        if len(payload) != 4:
            return CdbStatus.PARAMETER
        return b"" if self._passwords.enter(int.from_bytes(payload, "big")) else CdbStatus.PASSWORD

    def _change_password(self, payload: bytes) -> CdbReply:
        if len(payload) != 4 or payload[0] & 0x80:
            return CdbStatus.PARAMETER
        return b"" if self._passwords.change(int.from_bytes(payload, "big")) else CdbStatus.PASSWORD

    def _module_features(self, _payload: bytes) -> CdbReply:
        """Return the supported commands, one bit each from 0000h to 00FFh, and the longest duration in ms (assumed)."""
        bits = bytearray(32)
        for command in self._commands:
            if command < 0x100:
                bits[command // 8] |= 1 << command % 8
        return bytes(2) + bytes(bits) + MAX_BUSY_MS.to_bytes(2, "big")

    def _no_features(self, _payload: bytes) -> CdbReply:
        return bytes(4)
