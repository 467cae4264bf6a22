"""Files made from the schema, and the specification that refers to them: nothing is outdated, missing or misquoted."""

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
from firmware_protocol.generators.tables import OWN_TABLES, SECTIONS, page, table
from firmware_protocol.layouts import LAYOUTS
from firmware_protocol.schema import TABLES

PAGE = generate.CHECKOUT / generate.DOCUMENT
SPECIFICATION = (generate.CHECKOUT / "docs/protocol.md").read_text(encoding="utf-8")
VECTORS = generate.vectors()
HEADER = c_header()


def test_no_generated_file_of_this_checkout_is_stale() -> None:
    assert generate.stale() == [], "run: python -m firmware_protocol.generate"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A checkout that has only the page of tables."""
    (tmp_path / "docs").mkdir()
    shutil.copy(PAGE, tmp_path / generate.DOCUMENT)
    return tmp_path


def test_missing_and_changed_files_are_stale_until_they_are_written(copy: Path) -> None:
    assert len(generate.stale(copy)) == 3
    assert len(generate.write(copy)) == 3
    assert generate.stale(copy) == []
    header = copy / "firmware_protocol/c/lumion_protocol.h"
    header.write_text(header.read_text().replace("_SIZE 104u", "_SIZE 103u"))
    tables = copy / generate.DOCUMENT
    tables.write_text(tables.read_text().replace("| 24 | CRC_MISMATCH |", "| 25 | CRC_MISMATCH |"))
    assert generate.stale(copy) == ["firmware_protocol/c/lumion_protocol.h", generate.DOCUMENT]
    assert generate.write(copy) == ["firmware_protocol/c/lumion_protocol.h", generate.DOCUMENT]
    assert tables.read_text() == PAGE.read_text()


def test_an_installed_package_without_documents_generates_the_rest(tmp_path: Path) -> None:
    assert generate.DOCUMENT not in generate.expected(tmp_path)


def test_the_command_line_says_what_is_stale_and_returns_1(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate.main(["--check"]) == 0
    monkeypatch.setattr(generate, "stale", lambda: ["docs/protocol-tables.md"])
    assert generate.main(["--check"]) == 1
    assert capsys.readouterr().out == "stale: docs/protocol-tables.md\n"
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


def test_every_layout_and_every_table_of_codes_is_on_the_page_once() -> None:
    shown = [name for _, names in SECTIONS for name in names]
    assert sorted(shown) == sorted({*LAYOUTS, *(codes.__name__ for codes in TABLES), *OWN_TABLES})
    assert re.findall(r"^### (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE) == shown


def test_the_page_names_every_status_source_and_feature() -> None:
    text = page(VECTORS)
    for codes in (fp.Status, fp.FaultSource, fp.Feature, fp.Command, fp.Event):
        for member in codes:
            assert member.name in text, member


def test_the_command_table_has_the_sizes_of_the_specification() -> None:
    commands = table("Command", VECTORS)
    assert "| 0x13 | COMMIT | 20 | 16 | P | READY |" in commands
    assert "| 0x32 | SWEEP_READ | 12 | 28 + 2 `count` `n_adc` | P R | any |" in commands
    assert "| 0x10 | CONFIG | 20, 8 + 8 `count`, 8, 1, 6 | 8, 20, 8 + 8 `count` |" in commands


def test_what_a_frame_holds_is_that_of_the_specification() -> None:
    assert "| 512 | 496 | 244 | 243 | 61 | 240 | 476 |" in table("Frame sizes", VECTORS)


def test_retry_times_and_rates_are_those_of_a_hand_calculation() -> None:
    # SET of 144 codes: 312 + 31 bytes of 10 bits at 115 200 baud are 29.8 ms; with 1 ms, one tick and 25 ms 56.8 ms.
    assert "| SET of 144 codes | 56.8, 397 |" in table("Retry times", VECTORS)
    assert "| SET of 144 codes | 312 | 31 | 29.8 |" in table("Rates", VECTORS)


def test_the_specification_quotes_the_constant_stop_frame() -> None:
    assert f"\n```\n{fp.ESTOP_WIRE.hex(' ')}\n```\n" in SPECIFICATION


def test_every_table_that_the_specification_links_is_on_the_page() -> None:
    headings = {re.sub(r"\s+", "-", name.lower()) for _, names in SECTIONS for name in names}
    linked = set(re.findall(r"\(protocol-tables\.md#([\w-]+)\)", SPECIFICATION))
    assert linked <= headings
    # Replies that are the request's or another command's need no link, and one-bit enums stand in the layouts.
    assert {name.lower() for name in LAYOUTS} - linked == {
        *("configreadglobalrequest", "configglobalreply", "configlimitsreply", "getstatsrequest", "setreply")
    }


_CITING = (
    *("firmware_protocol", "tests/firmware_protocol"),
    *("lumion_hw/emulator/mesh/lumion", "lumion_hw/drivers/mesh/lumion", "lumion_hw/sessions/framed"),
)


@pytest.mark.parametrize("folder", _CITING)
def test_every_section_that_the_code_cites_is_in_the_specification(folder: str) -> None:
    known = set(re.findall(r"^##+ (\d+(?:\.\d+)?)\.? ", SPECIFICATION, re.MULTILINE))
    for path in (generate.CHECKOUT / folder).rglob("*.py"):
        for lines in re.findall(
            r"\bsections? ((?:\d+(?:\.\d+)?(?:, | and | to )?)+)", path.read_text(encoding="utf-8")
        ):
            cited = set(re.findall(r"\d+(?:\.\d+)?", lines))
            assert cited <= known, f"{path}: section {cited - known}"


def test_the_specification_points_at_nothing_outside_the_repository() -> None:
    for path in re.findall(r"`((?:firmware_protocol|docs|tests)/[\w./]*)`", SPECIFICATION):
        assert (generate.CHECKOUT / path).exists(), path
    assert not re.search(r"(?<![\w.])/(?:home|work|tmp|root|Users)/", SPECIFICATION)
