"""CMIS firmware management over the command data block (CDB).

Source: CMIS 5.2 clauses 9.4.2 (command 0041h) and 9.7.1 to 9.7.11 (0100h to 010Ah).
"""

from __future__ import annotations

from dataclasses import dataclass

from lumion_hw.standards.cmis.fields import HALF_BYTES

MAX_LPL_BLOCK = 116
"""Largest number of firmware bytes in one local payload, after the address of the block."""
MAX_EPL_PAGES = 16
"""Largest number of pages of the extended payload."""
MAX_START_BYTES = 112
"""Largest number of file bytes in the command that starts a download."""
_MECHANISMS = {0x00: (False, False), 0x01: (True, False), 0x10: (False, True), 0x11: (True, True)}
_WRITE_UNIT = 8


@dataclass(frozen=True)
class FirmwareImage:
    """A stored firmware image: its version, and whether it is running, committed and valid."""

    major: int
    minor: int
    build: int
    running: bool
    committed: bool
    valid: bool

    @property
    def version(self) -> str:
        """The firmware version, such as ``1.2.3``."""
        return f"{self.major}.{self.minor}.{self.build}"


def decode_firmware_info(payload: bytes) -> tuple[FirmwareImage | None, FirmwareImage | None]:
    """Return firmware images A and B from a reply to command 0100h; ``None`` for a missing image.

    Raises:
        ValueError: The reply is too short.
    """
    if len(payload) < 42:
        raise ValueError(f"a firmware information reply has at least 42 bytes, not {len(payload)}")
    status, present = payload[0], payload[1]
    return (
        _image(payload[2:6], status) if present & 1 else None,
        _image(payload[38:42], status >> 4) if present & 2 else None,
    )


def _image(version: bytes, status: int) -> FirmwareImage:
    build = int.from_bytes(version[2:4], "big")
    return FirmwareImage(version[0], version[1], build, bool(status & 1), bool(status & 2), not status & 4)


@dataclass(frozen=True)
class FirmwareFeatures:
    """A module's features for firmware updates (reply to command 0041h).

    Attributes:
        abort: Whether a download can be aborted (0102h).
        copy: Whether an image can be copied from bank to bank (0108h).
        skip_erased: Whether blocks that contain only ``erased_byte`` may be omitted.
        start_bytes: Number of file bytes in the start command.
        erased_byte: Content of erased memory.
        write_bytes: Longest write to the command's pages in one bus transaction.
        by_lpl: Whether the module accepts blocks in the local payload (0103h).
        by_epl: Whether the module accepts blocks in the extended payload (0104h).
        epl_bytes: Capacity of the extended payload pages.
        hitless: Whether a restart can leave the traffic undisturbed.
        start_s: Longest duration of the start command; 0 if unknown, as for all durations.
        abort_s: Longest duration of an abort.
        write_s: Longest duration of writing one block.
        complete_s: Longest duration of the completion.
        copy_s: Longest duration of a copy.
    """

    abort: bool
    copy: bool
    skip_erased: bool
    start_bytes: int
    erased_byte: int
    write_bytes: int
    by_lpl: bool
    by_epl: bool
    epl_bytes: int
    hitless: bool
    start_s: float
    abort_s: float
    write_s: float
    complete_s: float
    copy_s: float

    @property
    def extended(self) -> bool:
        """Whether to use extended payloads."""
        # With bus transactions of 8 bytes, both cost the same. Extended payloads
        # save commands only if the module accepts longer writes.
        saves = not self.by_lpl or min(self.write_bytes, self.epl_bytes) > MAX_LPL_BLOCK
        return self.by_epl and self.epl_bytes > 0 and saves

    @property
    def block_bytes(self) -> int:
        """Number of image bytes in one block; 0 if the module accepts no blocks."""
        if self.extended:
            return min(self.epl_bytes, self.write_bytes)
        return MAX_LPL_BLOCK if self.by_lpl else 0


def decode_firmware_features(payload: bytes, epl_pages: int = MAX_EPL_PAGES) -> FirmwareFeatures:
    """Return the features in a reply to command 0041h.

    Args:
        payload: Payload of the reply.
        epl_pages: Number of extended payload pages that the module has, from 01h:163.

    Raises:
        ValueError: The reply is too short, or contains a reserved code.
    """
    if len(payload) < 18:
        raise ValueError(f"a reply with firmware features has at least 18 bytes, not {len(payload)}")
    flags, mechanism = payload[1], payload[5]
    if mechanism not in _MECHANISMS:
        raise ValueError(f"firmware write mechanism {mechanism:02X}h is reserved")
    by_lpl, by_epl = _MECHANISMS[mechanism]
    # A bit of the reply multiplies all durations by ten.
    unit_s = 1e-2 if flags & 0x08 else 1e-3
    durations_s = [unit_s * int.from_bytes(payload[start : start + 2], "big") for start in range(8, 18, 2)]
    return FirmwareFeatures(
        bool(flags & 0x01),
        bool(flags & 0x02),
        bool(flags & 0x04),
        min(payload[2], MAX_START_BYTES),
        payload[3],
        _WRITE_UNIT * (1 + payload[4]),
        by_lpl,
        by_epl,
        HALF_BYTES * min(epl_pages, MAX_EPL_PAGES),
        bool(payload[7]),
        *durations_s,
    )


def encode_start(n_bytes: int, beginning: bytes) -> bytes:
    """Return the payload of command 0101h (start download).

    Raises:
        ValueError: The size or the first bytes do not fit the command.
    """
    if not 0 < n_bytes < 1 << 32 or len(beginning) > min(MAX_START_BYTES, n_bytes):
        raise ValueError(f"a firmware file of {n_bytes} bytes cannot have {len(beginning)} bytes in the start command")
    return n_bytes.to_bytes(4, "big") + bytes(4) + beginning


def encode_address(offset: int) -> bytes:
    """Return a block's address as four bytes."""
    return offset.to_bytes(4, "big")


def encode_run(*, inactive: bool, hitless: bool, delay_ms: int) -> bytes:
    """Return the payload of command 0109h (run image)."""
    return bytes([0, (0 if inactive else 2) + hitless]) + delay_ms.to_bytes(2, "big")


def encode_copy(source: str) -> bytes:
    """Return the payload of command 0108h (copy image). ``source`` is ``A`` or ``B``."""
    return {"A": b"\xab", "B": b"\xba"}[source]
