"""What is printed from the schema: nothing in the checkout is stale, and a stale file is found."""

from __future__ import annotations

import json
import re
import shutil
import zlib
from pathlib import Path

import pytest

import firmware_protocol as fp
from firmware_protocol import generate
from firmware_protocol.generators.c_header import c_header
from firmware_protocol.generators.tables import UnknownSectionError, document, section
from firmware_protocol.layouts import LAYOUTS

PAGE = generate.CHECKOUT / generate.DOCUMENT
VECTORS = generate.vectors()
HEADER = c_header()


def test_no_generated_file_of_this_checkout_is_stale() -> None:
    assert generate.stale() == [], "run: python -m firmware_protocol.generate"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A checkout with the document alone."""
    (tmp_path / "docs").mkdir()
    shutil.copy(PAGE, tmp_path / generate.DOCUMENT)
    return tmp_path


def test_missing_and_changed_files_are_stale_until_they_are_written(copy: Path) -> None:
    assert len(generate.stale(copy)) == 3
    assert len(generate.write(copy)) == 3
    assert generate.stale(copy) == []
    header = copy / "firmware_protocol/c/lumion_protocol.h"
    header.write_text(header.read_text().replace("_SIZE 104u", "_SIZE 103u"))
    page = copy / generate.DOCUMENT
    page.write_text(page.read_text().replace("| 24 | CRC_MISMATCH |", "| 25 | CRC_MISMATCH |"))
    assert generate.stale(copy) == ["firmware_protocol/c/lumion_protocol.h", generate.DOCUMENT]
    assert generate.write(copy) == ["firmware_protocol/c/lumion_protocol.h", generate.DOCUMENT]
    assert page.read_text() == PAGE.read_text()


def test_an_installed_package_without_documents_generates_the_rest(tmp_path: Path) -> None:
    assert generate.DOCUMENT not in generate.expected(tmp_path)


def test_the_command_line_says_what_is_stale_and_returns_1(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate.main(["--check"]) == 0
    monkeypatch.setattr(generate, "stale", lambda: ["docs/protocol.md"])
    assert generate.main(["--check"]) == 1
    assert capsys.readouterr().out == "stale: docs/protocol.md\n"
    assert generate.main(["--chek"]) == 2
    assert "usage" in capsys.readouterr().err


def test_the_schema_file_has_the_crc_that_hello_carries() -> None:
    text = (generate.CHECKOUT / "firmware_protocol/schema.json").read_bytes()
    assert zlib.crc32(text) == fp.schema_crc32()
    assert not text.endswith(b"\n")
    assert json.loads(text)["protocol_major"] == 1
    assert f"0x{fp.schema_crc32():08X}u" in HEADER
    assert f"0x{fp.schema_crc32():08X}" in PAGE.read_text()


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_payload_has_its_size_and_offsets_in_the_header(name: str) -> None:
    prefix = "LUM_" + re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper()
    assert f"#define {prefix}_SIZE {LAYOUTS[name].fixed_size}u\n" in HEADER
    for field in LAYOUTS[name].fields:
        if field.name:
            assert f"#define {prefix}_{field.name.upper()}_OFFSET {field.offset}u\n" in HEADER


def test_every_status_feature_and_counter_has_its_number_in_the_header() -> None:
    for status in fp.Status:
        assert f"LUM_STATUS_{status.name} = 0x{status:02X}," in HEADER
    for feature in fp.Feature:
        assert f"LUM_FEATURE_{feature.name} = 0x{feature:02X}," in HEADER
    for counter in fp.StatsCounter:
        assert f"LUM_STATS_COUNTER_{counter.name} = 0x{counter:02X}," in HEADER
    assert "#define LUM_STATS_COUNTERS 24u " in HEADER


def test_every_layout_a_firmware_author_needs_is_a_table_of_the_document() -> None:
    shown = set(re.findall(r"<!-- generated: layout (.+?) -->", PAGE.read_text()))
    same_as_another = {"ConfigGlobalReply", "ConfigLimitsReply", "ConfigReadGlobalRequest", "SetReply"}
    assert set(LAYOUTS) - shown == same_as_another | {"GetStatsRequest"}


def test_the_document_names_every_status_source_and_feature() -> None:
    text = PAGE.read_text()
    for table in (fp.Status, fp.FaultSource, fp.Feature, fp.Command, fp.Event):
        for member in table:
            assert member.name in text, member


def test_the_command_table_has_the_sizes_of_the_specification() -> None:
    table = section("commands", VECTORS)
    assert "| 0x13 | COMMIT | 20 | 16 | P | READY |" in table
    assert "| 0x32 | SWEEP_READ | 12 | 28 + 2 `count` `n_adc` | P R | any |" in table
    assert "| 0x10 | CONFIG | 20, 8 + 8 `count`, 8, 1, 6 | 8, 20, 8 + 8 `count` |" in table


def test_the_mtu_table_is_that_of_the_specification() -> None:
    assert "| 512 | 508 | 496 | 244 | 243 | 61 | 240 | 476 |" in section("mtu", VECTORS)


def test_worked_frames_are_those_of_the_vector_file() -> None:
    assert "00 02 10 02 02 01 01 01 01 09 53 54 4f 50 b0 df bf dd 00" in section(
        "frame estop request (constant frame)", VECTORS
    )


@pytest.mark.parametrize("name", ["layout Nothing", "codes Nothing", "frame nothing", "nothing"])
def test_a_table_nobody_makes_is_an_error_that_names_it(name: str) -> None:
    with pytest.raises(UnknownSectionError, match="othing"):
        document(f"<!-- generated: {name} -->\n<!-- end -->", VECTORS)


def test_text_outside_the_marks_is_left_as_it_is() -> None:
    page = "before\n<!-- generated: layout PingRequest -->\nold\n<!-- end -->\nafter <!-- end -->\n"
    made = document(page, VECTORS)
    assert made.startswith("before\n<!-- generated: layout PingRequest -->\n| off |")
    assert made.endswith("|\n<!-- end -->\nafter <!-- end -->\n")
    assert document(made, VECTORS) == made


def test_the_document_points_at_nothing_outside_the_repository() -> None:
    text = PAGE.read_text()
    for path in re.findall(r"`((?:firmware_protocol|docs|tests)/[\w./]*)`", text):
        assert (generate.CHECKOUT / path).exists(), path
    assert not re.search(r"(?<![\w.])/(?:home|work|tmp|root|Users)/", text)
