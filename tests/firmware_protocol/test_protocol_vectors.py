"""The locked frames: every record decodes to its fields and encodes to its bytes, whole and byte by byte."""

from __future__ import annotations

import json
import zlib
from importlib import resources
from typing import Any

import numpy as np
import pytest
from cobs import cobs

import firmware_protocol as fp

VECTORS: dict[str, Any] = json.loads(resources.files("firmware_protocol").joinpath("vectors.json").read_text())
FRAMES: list[dict[str, Any]] = VECTORS["frames"]
TYPED = [record for record in FRAMES if record["message"]]
REQUESTS = [record for record in TYPED if record["header"]["kind"] == fp.Kind.REQ]
CRC_OF_A_GOOD_FRAME = 0x2144DF1C  # section 2.3

by_name = pytest.mark.parametrize("record", FRAMES, ids=lambda record: record["name"])
typed_by_name = pytest.mark.parametrize("record", TYPED, ids=lambda record: record["name"])


def build(record: dict[str, Any]) -> Any:
    """Make the message a record describes."""
    fields = dict(record["fields"])
    if record["message"] == "Refusal":
        return fp.Refusal(record["header"]["status"], **fields)
    kind = getattr(fp, record["message"])
    if "records" in fields:
        fields["records"] = tuple(fp.FaultRecord(**fault) for fault in fields["records"])
    return kind(**fields)


def shown(value: object) -> object:
    """Bring a decoded field to the form it has in the file."""
    if isinstance(value, np.ndarray):
        return [list(row) for row in value.tolist()] if value.dtype.names else value.tolist()
    if isinstance(value, tuple):
        return [{name: shown(part) for name, part in vars(fault).items()} for fault in value]
    return value


@by_name
def test_a_locked_frame_is_a_cobs_block_with_a_good_crc_in_another_library(record: dict[str, Any]) -> None:
    content = cobs.decode(bytes.fromhex(record["wire"])[1:-1])
    assert zlib.crc32(content) == CRC_OF_A_GOOD_FRAME
    assert content[8:-4].hex() == record["payload"]


@by_name
def test_a_locked_frame_decodes_to_its_header_and_payload(record: dict[str, Any]) -> None:
    frames = fp.Decoder(512).feed(bytes.fromhex(record["wire"]))
    assert frames == [fp.Frame(**record["header"], payload=bytes.fromhex(record["payload"]))]


@by_name
def test_a_locked_frame_decodes_byte_by_byte_at_its_last_delimiter(record: dict[str, Any]) -> None:
    decoder, wire = fp.Decoder(512), bytes.fromhex(record["wire"])
    assert all(decoder.feed(wire[i : i + 1]) == [] for i in range(len(wire) - 1))
    assert decoder.feed(wire[-1:]) == [fp.Frame(**record["header"], payload=bytes.fromhex(record["payload"]))]


@by_name
def test_the_header_and_payload_of_a_locked_frame_encode_to_its_bytes(record: dict[str, Any]) -> None:
    frame = fp.Frame(**record["header"], payload=bytes.fromhex(record["payload"]))
    assert fp.encode_frame(frame).hex() == record["wire"]


@typed_by_name
def test_the_fields_of_a_locked_message_encode_to_its_payload(record: dict[str, Any]) -> None:
    assert build(record).encode().hex() == record["payload"]


@typed_by_name
def test_a_locked_payload_decodes_to_its_fields(record: dict[str, Any]) -> None:
    payload = bytes.fromhex(record["payload"])
    if record["message"] == "Refusal":
        assert fp.Refusal.decode(record["header"]["status"], payload) == build(record)
        return
    message = getattr(fp, record["message"]).decode(payload)
    assert {name: shown(getattr(message, name)) for name in record["fields"]} == record["fields"]


@pytest.mark.parametrize("record", REQUESTS, ids=lambda record: record["name"])
def test_the_board_finds_the_request_class_by_command_and_operation(record: dict[str, Any]) -> None:
    request = fp.decode_request(record["header"]["command"], bytes.fromhex(record["payload"]))
    assert type(request).__name__ == record["message"]
    assert request.command == record["header"]["command"]


def test_every_message_class_is_locked_by_a_record() -> None:
    classes = {name for name, value in vars(fp).items() if isinstance(value, type) and issubclass(value, fp.Message)}
    assert classes - {"Message", "FaultEvent"} == {record["message"] for record in TYPED} - {"Refusal"}


@pytest.mark.parametrize("row", VECTORS["set_frames"], ids=lambda row: f"{row['count']}x{row['first']}+{row['step']}")
def test_large_set_frames_have_the_sizes_and_checksums_of_the_specification(row: dict[str, Any]) -> None:
    codes = row["first"] + row["step"] * np.arange(row["count"])
    payload = fp.SetRequest(0x01010101, codes).encode()
    wire = fp.encode_frame(fp.Frame(fp.Kind.REQ, fp.Command.SET, 0x0102, 0x2F71, payload=payload), mtu=row["bound"])
    assert (len(payload), len(wire), fp.wire_bound(len(payload))) == (row["payload"], row["wire"], row["bound"])
    assert zlib.crc32(wire) == row["crc32"]


@pytest.mark.parametrize("row", VECTORS["mtu"], ids=lambda row: f"mtu{row['mtu']}")
def test_the_mtu_table_gives_the_largest_payload_and_counts(row: dict[str, Any]) -> None:
    payload = fp.max_payload(row["mtu"])
    assert payload == row["payload"] == row["content"] - 12
    assert (payload - 8) // 2 == row["set_codes"]
    assert (payload - 10) // 2 == row["stage_codes"]
    assert (payload - 8) // 8 == row["limit_records"]


def test_the_emergency_stop_is_the_constant_frame_of_the_specification() -> None:
    assert fp.ESTOP_WIRE.hex(" ") == "00 02 10 02 02 01 01 01 01 09 53 54 4f 50 b0 df bf dd 00"
