"""Text from files and devices has no effect on a terminal, page or spreadsheet."""

from __future__ import annotations

import unicodedata
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from calibration.record.export import _csv
from calibration.report.page import Page, ReportTable, Section, html_text, markdown_text
from lumion_hw.cli import calibrate_main as main
from lumion_hw.errors import ConfigError
from lumion_hw.files import escaping
from lumion_hw.mesh.picture.drawing import mesh_svg
from lumion_hw.storage import save_record
from tests.mesh.sample_record import CELL, sample_record

CLEAR = "\x1b[2J\x1b]0;title\x07\u202e\x9b31m"


@given(st.text())
def test_no_letter_takes_effect_on_a_terminal(text: str) -> None:
    line = escaping.one_line(text)
    assert not {unicodedata.category(letter) for letter in line} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert not any(letter in line for letter in "\x1b\x9b\r\n\x07\u202e")
    assert escaping.lines(text).count("\n") == text.count("\n")


def test_letters_that_only_show_stay() -> None:
    assert escaping.one_line("φ ± 3 µm, «é» 光") == "φ ± 3 µm, «é» 光"
    assert escaping.one_line("a\tb\x1b[31m") == r"a\tb\x1b[31m"


def test_a_spreadsheet_reckons_nothing() -> None:
    cells = ['=HYPERLINK("http://192.0.2.1","x")', "+1", "-1+2", "@SUM(A1)", "\t=1", -1.5, None, "plain"]
    assert _csv([dict(zip("abcdefgh", cells, strict=True))]).splitlines()[1] == (
        '"\'=HYPERLINK(""http://192.0.2.1"",""x"")",\'+1,\'-1+2,\'@SUM(A1),\'\\t=1,-1.5,,plain'
    )


def test_a_page_shows_markup_and_escapes_as_they_are() -> None:
    page = Page("<b>" + CLEAR, ["<script>|" + CLEAR], [Section("a", [ReportTable(["x"], [["| <i> " + CLEAR]])])])
    for text in (html_text(page), markdown_text(page, "pictures")):
        assert not any(letter in text for letter in "\x1b\x9b\x07\u202e")
        assert "<script>" not in text
        assert "<i>" not in text
    assert r"\| &lt;i&gt; \\x1b" in markdown_text(page, "pictures")


def test_a_picture_stays_xml_whatever_its_title() -> None:
    assert "<title>a\\x1b&amp;" in mesh_svg(CELL, title="a\x1b&<\0")
    ET.fromstring(mesh_svg(CELL, title="a\x1b&<\0"))


def test_a_record_cannot_write_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.json"
    bad = replace(sample_record(), faults=(CLEAR + "\nall is well",), device_serial=CLEAR, quality={CLEAR: 1.0})
    bad = replace(bad, pucs=(replace(bad.pucs[0], note=CLEAR), *bad.pucs[1:]))
    save_record(bad, path)
    assert main(["show", str(path)]) == 0
    out = capsys.readouterr().out
    assert not any(letter in out for letter in "\x1b\x9b\x07\u202e")
    assert "\nall is well" not in out
    assert r"\x1b[2J" in out


def test_an_error_cannot_write_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    from lumion_hw.cli.common.output import report_failure

    report_failure(ConfigError(f"found {CLEAR}"), 2, as_json=False)
    err = capsys.readouterr().err
    assert r"found \x1b[2J" in err
    assert "\x1b" not in err
