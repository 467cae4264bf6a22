"""CMIS command data block (CDB): page 9Fh, check codes, requests and replies."""

from __future__ import annotations

from dataclasses import dataclass

from lumion_hw.standards.cmis.fields import Field
from lumion_hw.standards.registers import Access, NumberFormat

CDB_PAGE = 0x9F
"""Page of the message header and the local payload."""
EPL_PAGES = range(0xA0, 0xB0)
"""Pages of the extended payload."""
LPL_BYTE = 136
"""Address of the first byte of the local payload."""
MAX_LPL = 120
"""Longest local payload in bytes."""
COMMAND_BYTE = 128
"""Address of the first byte of the command id; writing the id starts the command."""
HEADER_REMAINDER_BYTE = 130
"""Address of the first byte after the command id. These bytes are written before the id."""

_CDB = "cdb_instances"


def _field(name: str, byte: int, length: int, access: Access, note: str = "") -> Field:
    kind = NumberFormat.BYTES if length > 2 else NumberFormat.UINT
    return Field(name, CDB_PAGE, byte, length=length, kind=kind, access=access, support=_CDB, note=note)


PAGE_9FH: tuple[Field, ...] = (
    Field(
        "cdb_command",
        CDB_PAGE,
        COMMAND_BYTE,
        length=2,
        kind=NumberFormat.ENUM,
        codes="cdb_command",
        access=Access.RW,
        support=_CDB,
        note="written last; starts the command",
    ),
    _field("cdb_epl_length", 130, 2, Access.RW),
    _field("cdb_lpl_length", 132, 1, Access.RW),
    _field("cdb_check_code", 133, 1, Access.RW),
    _field("cdb_reply_length", 134, 1, Access.RWW),
    _field("cdb_reply_check_code", 135, 1, Access.RWW),
    _field("cdb_payload", LPL_BYTE, MAX_LPL, Access.RWW, "command out, reply back"),
)


def check_code(header: bytes, payload: bytes = b"") -> int:
    """Return FFh minus the sum of all bytes, modulo 256."""
    return 0xFF - (sum(header) + sum(payload)) % 256


@dataclass(frozen=True)
class CdbMessage:
    """A command to write in two steps: ``body`` from 9Fh:130 on, then ``command`` at 9Fh:128 to start it."""

    command: bytes
    body: bytes


def encode_command(command: int, payload: bytes = b"", *, epl_length: int = 0) -> CdbMessage:
    """Return the bytes of a command.

    Args:
        command: Command id, such as ``codes.CdbCommand.MODULE_FEATURES``.
        payload: Local payload, at most ``MAX_LPL`` bytes.
        epl_length: Length of the extended payload, which the host writes before the command.

    Raises:
        ValueError: The command, payload or length does not fit its field.
    """
    if len(payload) > MAX_LPL or not 0 <= command <= 0xFFFF or not 0 <= epl_length <= 0xFFFF:
        raise ValueError(f"CDB command {command:#06x}: payloads of {len(payload)} and {epl_length} bytes do not fit")
    header = command.to_bytes(2, "big") + epl_length.to_bytes(2, "big") + bytes([len(payload)])
    trailer = bytes([check_code(header, payload), 0, 0])
    return CdbMessage(header[:2], header[2:] + trailer + payload)


def command_is_intact(page: bytes) -> bool:
    """Return whether the command in the 128 bytes of page 9Fh has the right check code and an allowed length."""
    length = page[4]
    return length <= MAX_LPL and check_code(page[:5], page[8 : 8 + length]) == page[5]


def decode_reply(page: bytes) -> bytes:
    """Return the payload of a reply in the 128 bytes of page 9Fh.

    Raises:
        ValueError: The length or the check code of the reply is wrong.
    """
    length = page[6]
    payload = page[8 : 8 + length]
    if length > MAX_LPL or check_code(payload) != page[7]:
        raise ValueError(f"CDB reply of {length} bytes with check code {page[7]:02X}h is corrupt")
    return payload


def encode_reply(payload: bytes) -> bytes:
    """Return the bytes of a reply from 9Fh:134 on. Raises ``ValueError`` for a payload longer than ``MAX_LPL``."""
    if len(payload) > MAX_LPL:
        raise ValueError(f"a CDB reply has at most {MAX_LPL} bytes, not {len(payload)}")
    return bytes([len(payload), check_code(payload)]) + payload
