"""A saved memory: the three forms of a file, and the contents of a damaged one."""

from __future__ import annotations

import json

import pytest

from lumion_hw.drivers.transponders.dump_decoder import decode_file
from lumion_hw.errors import ConfigError
from lumion_hw.standards.cmis.image import LOWER, MemoryImage, image_from_document, parse_image

LOWER_HEX = bytes(range(128)).hex()


def test_json_form() -> None:
    document = {"source": "lab", "lower": LOWER_HEX, "pages": {"00": "aa" * 128, "1:11": "bb" * 128}}
    image = parse_image(json.dumps(document).encode())
    assert image.half(None) == bytes(range(128))
    assert image.half(0x11, bank=1) == b"\xbb" * 128
    assert (image.half(0x11), image.source, image.remarks) == (None, "lab", ())
    assert image.to_document() == document


def test_linear_form_finds_bytes_where_the_standard_has_them() -> None:
    data = bytearray(20480 + 128)
    # (page + 1)·128 + byte - 128
    for position, byte in ((128, 0x18), (256, 1), (2176, 2), (2504, 3), (6912, 4), (20480, 5)):
        data[position] = byte
    image = parse_image(bytes(data))
    found = [(page, byte, (image.half(page) or b"")[byte - 128]) for page, byte in ((0, 128), (1, 128), (0x10, 128))]
    assert found == [(0, 128, 0x18), (1, 128, 1), (0x10, 128, 2)]
    assert [image.halves[0, page][byte - 128] for page, byte in ((0x12, 200), (0x35, 128), (0x9F, 128))] == [3, 4, 5]
    assert image.half(0x02) is None  # only zeros


def test_bank_1_of_a_linear_file() -> None:
    data = bytearray(34944 + 128)
    data[34944] = 0x77
    assert parse_image(bytes(data)).halves[1, 0x10][0] == 0x77


def test_lower_memory_alone_and_256_bytes() -> None:
    assert list(parse_image(bytes(128)).halves) == [LOWER]
    assert list(parse_image(bytes(256)).halves) == [LOWER, (0, 0)]


def test_what_a_truncated_file_lacks_is_unknown() -> None:
    image = parse_image(bytes(128) + b"\x18" * 22)
    assert image.remarks == ("00: only 22 of 128 bytes",)
    assert image.has(0x00, range(128, 150))
    assert not image.has(0x00, range(149, 151))
    cut = image_from_document({"lower": LOWER_HEX[:40], "pages": {}})
    assert cut.remarks == ("lower: only 20 of 128 bytes",)
    assert not cut.has(None, [20])


def test_bytes_that_were_not_read_survive_the_file() -> None:
    image = MemoryImage({LOWER: bytes(128), (0, 0x11): bytes(128)}, {(0, 0x11): frozenset(range(134, 154))})
    again = image_from_document(json.loads(json.dumps(image.to_document())))
    assert again.unknown == image.unknown
    assert not again.has(0x11, [140])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "only 0 bytes"),
        (b"\x18" * 127, "only 127 bytes"),
        (b'{"lower": ', "is not JSON"),
        (b'{"pages": {}}', "key 'lower' is missing"),
        (b'{"lower": "zz"}', "lower is not hexadecimal"),
        (b'{"lower": "00", "pages": []}', "'pages' must be a JSON object"),
        (b'{"lower": "00", "pages": {"seven": "00"}}', "'seven' is not a page number"),
        (b'{"lower": "00", "pages": {"01": 5}}', "01 is not hexadecimal"),
        (b'{"lower": "00", "unread": {"11": "all"}}', "'unread' of '11'"),
        (b'{"lower": "00", "unread": 5}', "'unread' must be a JSON object"),
    ],
)
def test_what_is_no_dump_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_image(data, "x")


# https://github.com/sfptotal/SFPTotal-Wizard/issues/2: the program reads only 128 bytes from byte 128 on.
UPPER_HALF_OF_A_QSFP28 = (
    "11CC0C800000000000000007FF0000230000320046494E4953415220434F5250202020200000906546544C43393535315245504D2D4136"
    "204130426807D000800207FFDE5858503043393120202020202020202031383033323120200C1067D5334845313231393541414141303120"
    "204E4F4B2020494E554941435042414160"
)


@pytest.mark.parametrize("data", [UPPER_HALF_OF_A_QSFP28.encode(), bytes.fromhex(UPPER_HALF_OF_A_QSFP28)])
def test_128_bytes_of_page_00h_are_not_taken_for_the_lower_memory(data: bytes) -> None:
    module = decode_file(data)
    assert module.field("vendor_name").value == "FINISAR CORP"
    assert module.field("part_number").value == "FTLC9551REPM-A6"
    assert module.checksums == {"CC_BASE": True, "CC_EXT": True}
    names = {item.name for item in module.fields}
    assert names.isdisjoint({"temperature", "supply", "tx_power", "rx_power", "rx_los_flag"})


def test_128_bytes_of_lower_memory_remain_what_they_are() -> None:
    image = parse_image(bytes([0x11, 0x08, *bytes(126)]))
    assert image.has(None, range(128))
