"""The locked records: every one decodes to its fields and encodes to its bytes, whole and byte by byte."""

from __future__ import annotations

import copy
import zlib
from typing import Any

import numpy as np
import pytest
from cobs import cobs

import firmware_protocol as fp
from tests.firmware_protocol.vector_check import VECTORS, all_problems, frame_problems, image_problems

FRAMES: list[dict[str, Any]] = VECTORS["frames"]
REQUESTS = [record for record in FRAMES if record["header"]["kind"] == fp.Kind.REQ]
EVENTS = [record for record in FRAMES if record["header"]["kind"] == fp.Kind.EVT]
CRC_OF_A_GOOD_FRAME = 0x2144DF1C  # section 2.3


def by_name(records: list[dict[str, Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("record", records, ids=lambda record: record["name"])


@by_name(FRAMES)
def test_a_locked_frame_is_a_cobs_block_with_a_good_crc_in_another_library(record: dict[str, Any]) -> None:
    content = cobs.decode(bytes.fromhex(record["wire"])[1:-1])
    assert zlib.crc32(content) == CRC_OF_A_GOOD_FRAME
    assert content[8:-4].hex() == record["payload"]


@by_name(FRAMES)
def test_a_locked_frame_is_its_header_payload_and_fields_in_both_directions(record: dict[str, Any]) -> None:
    assert list(frame_problems(record)) == []


@by_name(REQUESTS)
def test_the_board_finds_the_request_class_by_command_and_operation(record: dict[str, Any]) -> None:
    request = fp.decode_request(record["header"]["command"], bytes.fromhex(record["payload"]))
    assert type(request).__name__ == record["message"]
    assert request.command == record["header"]["command"]


@by_name(EVENTS)
def test_the_host_finds_the_event_class_by_its_code(record: dict[str, Any]) -> None:
    event = fp.decode_event(record["header"]["command"], bytes.fromhex(record["payload"]))
    assert type(event).__name__ == record["message"]
    assert event.event == record["header"]["command"]


@by_name(VECTORS["images"])
def test_a_locked_image_is_its_points_in_both_directions(record: dict[str, Any]) -> None:
    assert list(image_problems(record)) == []


@by_name(VECTORS["bad_images"])
def test_a_locked_wrong_image_is_refused_as_written(record: dict[str, Any]) -> None:
    with pytest.raises((fp.ImageError, fp.ChannelError)) as caught:
        fp.SweepImage.decode(bytes.fromhex(record["bytes"]), record["n_dac"], record["n_adc"])
    expected = fp.Refusal(*(record[name] for name in ("status", "channel", "index", "value", "limit")))
    assert fp.image_refusal(caught.value) == expected


@by_name(VECTORS["bad_frames"])
def test_a_locked_bad_frame_is_counted_under_its_cause_once(record: dict[str, Any]) -> None:
    wire = bytes.fromhex(record["wire"])
    (bad,) = fp.Decoder(record["mtu"]).feed(wire)
    decoder = fp.Decoder(record["mtu"])
    assert [bad] == [found for i in range(len(wire)) for found in decoder.feed(wire[i : i + 1])]
    assert isinstance(bad, fp.BadFrame)
    assert bad.cause == record["cause"]


@by_name(VECTORS["accepted"])
def test_a_locked_unusual_form_is_a_good_frame(record: dict[str, Any]) -> None:
    (frame,) = fp.Decoder(512).feed(bytes.fromhex(record["wire"]))
    assert isinstance(frame, fp.Frame)
    assert frame.payload.hex() == record["payload"]
    assert (fp.encode_frame(frame).hex() == record["wire"]) is record["canonical"]


def test_every_message_class_is_locked_by_a_record() -> None:
    values = {name: getattr(fp, name) for name in fp.__all__}
    classes = {name for name, value in values.items() if isinstance(value, type) and issubclass(value, fp.Message)}
    assert classes - {"Message", "FaultEvent"} == {record["message"] for record in FRAMES} - {"Refusal"}


def test_the_whole_file_is_right_and_any_deliberately_broken_record_is_named() -> None:
    assert all_problems(VECTORS) == []
    for number, record in enumerate(FRAMES):
        broken = copy.deepcopy(VECTORS)
        wire = bytearray.fromhex(record["wire"])
        wire[-3] ^= 1 if wire[-3] != 1 else 2
        broken["frames"][number]["wire"] = wire.hex()
        assert {problem.partition(":")[0] for problem in all_problems(broken)} == {record["name"]}


@pytest.mark.parametrize("row", VECTORS["set_frames"], ids=lambda row: f"{row['count']}x{row['first']}+{row['step']}")
def test_large_set_frames_have_the_sizes_and_checksums_of_the_specification(row: dict[str, Any]) -> None:
    codes = row["first"] + row["step"] * np.arange(row["count"])
    payload = fp.SetRequest(0x01010101, codes).encode()
    wire = fp.encode_frame(fp.Frame(fp.Kind.REQ, fp.Command.SET, 0x0102, 0x2F71, payload=payload), mtu=row["bound"])
    assert (len(payload), len(wire), fp.wire_bound(len(payload))) == (row["payload"], row["wire"], row["bound"])
    assert zlib.crc32(wire) == row["crc32"]


@pytest.mark.parametrize("row", VECTORS["mtu"], ids=lambda row: f"mtu{row['mtu']}")
def test_the_mtu_table_gives_the_largest_payload_and_counts(row: dict[str, Any]) -> None:
    mtu = row["mtu"]
    assert fp.max_payload(mtu) == row["payload"] == row["content"] - 12
    assert fp.max_elements(fp.SetRequest, mtu) == row["set_codes"]
    assert fp.max_elements(fp.StageRequest, mtu) == row["stage_codes"]
    assert fp.max_elements(fp.ConfigLimitsRequest, mtu) == row["limit_records"]
    assert fp.max_elements(fp.TelemetryEvent, mtu) == row["telemetry_monitors"]
    assert fp.max_elements(fp.SweepLoadRequest, mtu) == row["sweep_load_bytes"]


def test_the_emergency_stop_is_the_constant_frame_of_the_specification() -> None:
    assert fp.ESTOP_WIRE.hex(" ") == "00 02 10 02 02 01 01 01 01 09 53 54 4f 50 b0 df bf dd 00"
