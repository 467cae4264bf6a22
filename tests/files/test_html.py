"""HTML for notebooks is small and safe against injection by names from files."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from lumion_hw import Bench, load_record
from lumion_hw.circuits import CircuitRequest, PathSetup
from lumion_hw.fabric import FailureVerdict, Recovery, Span
from lumion_hw.files.html import html_pairs, html_table
from tests.recorded_calibration import RECORD, SMALL

EVIL = "<script>alert(1)</script><img src=x onerror='alert(2)'>&\"\x1b\u202e"


def parsed(html: str) -> ElementTree.Element:
    """Return HTML as a tree: all of it is well-formed, and no element of it runs anything."""
    root = ElementTree.fromstring(html)
    for element in root.iter():
        name = element.tag.rpartition("}")[2]
        assert name not in ("script", "img", "iframe", "object", "a", "foreignObject"), name
        assert not [each for each in element.attrib if each.lower().startswith("on") or each.endswith("href")]
    return root


def text(html: str) -> str:
    return " ".join(parsed(html).itertext())


def test_names_from_files_are_text() -> None:
    shown = text(html_table(EVIL, (EVIL,), [(EVIL,)]))
    assert shown.count("<script>alert(1)</script>") == 3
    assert "\\x1b" in shown
    assert EVIL[:8] in text(html_pairs("pairs", {EVIL: EVIL}))


def test_of_many_rows_the_first_are_shown_and_how_many_there_are() -> None:
    html = html_table("rows", ("n",), [(n,) for n in range(1000)])
    assert len(html) < 2000
    assert "40 of 1000" in text(html)


def test_numbers_are_short_and_nothing_is_a_dash() -> None:
    assert text(html_table("t", (), [(1 / 3, None, True, 12)])).split() == ["t", "0.3333", "–", "yes", "12"]


def test_a_record_shows_what_tells_it_from_others_and_escapes_its_faults() -> None:
    record = load_record(RECORD)
    record = replace(record, faults=(EVIL,))
    shown = text(record._repr_html_())
    assert record.record_id in shown
    assert "15 of 15" in shown
    assert EVIL[:8] in shown


def test_bench_mesh_plan_proof_and_recovery_are_shown() -> None:
    with Bench.emulate(SMALL, seed=1) as bench:
        for name in bench.model.devices:
            assert name in text(bench._repr_html_())
        assert "puc-14" in {element.get("id") for element in parsed(bench.mesh._repr_html_()).iter()}
        assert len(bench.mesh._repr_html_()) < 30_000
        plan = PathSetup(bench, load_record(RECORD)).plan([CircuitRequest("sfp-a", "sfp-b")])
        shown = text(plan._repr_html_())
        assert "sfp-a → sfp-b" in shown
        assert " ".join(map(str, plan.circuits[0].path.pucs)) in shown


def test_a_recovery_is_a_table_of_its_spans() -> None:
    verdict = FailureVerdict("unit", EVIL, "light", EVIL, 0.0, 0.1, ("photodiodes",))
    spans = (Span("detected", 5.5, 1.0, 5.5), Span("settled", 1.25, 0.1, 6.75, "emulated: 1 ms"))
    shown = text(Recovery(verdict, EVIL, "c", spans, (), ())._repr_html_())
    assert "c for <script>" in shown
    assert shown.split()[-7:] == ["settled", "1.25", "6.75", "0.1", "emulated:", "1", "ms"]


def test_a_unit_cell_is_a_row_of_the_table_of_a_record() -> None:
    pytest.importorskip("pandas", reason="pandas, of the extra frames, is not there")
    record = load_record(RECORD)
    table = record.to_pandas()
    assert len(table) == 15
    assert table.loc[3, "passive_phase_rad"] == record.pucs[3].passive_phase_rad
    assert table.loc[3, "lower_law_max_ma"] == record.pucs[3].lower.law.max_ma
    dead = replace(record.pucs[3], lower=replace(record.pucs[3].lower, law=None), coupler=None)
    table = replace(record, pucs=(*record.pucs[:3], dead)).to_pandas()
    assert table["lower_law_max_ma"].isna().tolist() == [False, False, False, True]
    assert "coupler" not in table
