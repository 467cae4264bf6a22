"""The calibration report says what the record and its readings say, whatever is missing and whoever reads it."""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import io
import json
import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.record.raw_data import save_raw
from calibration.report.summary import write_report
from lumion_hw.cli import calibrate_main as main
from lumion_hw.errors import CalibrationError, ConfigError
from lumion_hw.mesh.record.calibration_record import CalibrationRecord, Conditions, Defect
from lumion_hw.storage import load_record, save_record
from tests.calibration.bench_run import SMALL, Calibrated

_VOID = {"meta", "img", "br"}
HARMFUL = "<script>alert('1')</script>"


class Html(HTMLParser):
    """A report read back: every tag closed in order, tables by caption, and all that is loaded."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.sources: list[str] = []
        self.ids: list[str] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.source = text
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name in ("src", "href"):
                self.sources.append(value or "")
            if name == "id":
                self.ids.append(value or "")
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data
        self.text += data

    def row(self, first: str) -> list[str]:
        """Return the row that begins with some words."""
        return next(row for row in self.rows if row and row[0] == first)

    def has_row(self, first: str) -> bool:
        return any(row and row[0] == first for row in self.rows)

    @property
    def pictures(self) -> list[ET.Element]:
        head = "data:image/svg+xml;base64,"
        return [
            ET.fromstring(base64.b64decode(source.removeprefix(head)))
            for source in self.sources
            if source.startswith(head)
        ]


@pytest.fixture
def found(recorded: Calibrated) -> Calibrated:
    return recorded


@pytest.fixture
def record(recorded: Calibrated) -> CalibrationRecord:
    return recorded.record


@pytest.fixture
def saved(found: Calibrated, tmp_path: Path) -> Path:
    """A record with its raw readings beside it."""
    return save(found, tmp_path / "record.json")


@pytest.fixture(scope="module")
def page(recorded: Calibrated, tmp_path_factory: pytest.TempPathFactory) -> Html:
    """The whole report, with plots, as the command writes it beside the record."""
    path = save(recorded, tmp_path_factory.mktemp("report") / "record.json")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["report", str(path)]) == 0
    assert out.getvalue() == f"Report: {path.with_suffix('.html')}\n"
    return Html(path.with_suffix(".html").read_text(encoding="utf-8"))


@pytest.fixture(scope="module", params=["tables", pytest.param("pictures", marks=pytest.mark.long)])
def truth(
    request: pytest.FixtureRequest, recorded: Calibrated, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What the command prints of a report in Markdown that compares with the hidden truth; its plots take longest."""
    path = save(recorded, tmp_path_factory.mktemp("truth") / "record.json")
    out = path.with_name("truth.md")
    bench = ["--bench", str(SMALL), "--seed", str(recorded.seed)]
    with contextlib.redirect_stdout(io.StringIO()) as told, pytest.MonkeyPatch.context() as patch:
        if request.param == "tables":
            without_matplotlib(patch)
        assert main(["report", str(path), "--out", str(out), *bench, "--json"]) == 0
    document: dict[str, Any] = json.loads(told.getvalue())
    assert document["report"] == str(out)
    return document | {"plots": 0 if request.param == "tables" else 6}


def without_matplotlib(patch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    patch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "matplotlib" else find(name, *rest))
    patch.setitem(__import__("sys").modules, "matplotlib", None)  # an import would raise


def save(found: Calibrated, path: Path, **changes: object) -> Path:
    raw = save_raw(path, found.observations)
    save_record(replace(found.record, raw=raw, **changes), path)  # type: ignore[arg-type]
    return path


def html(path: Path) -> Html:
    written = write_report(path, path.with_suffix(".html"), plots=False)
    return Html(written.path.read_text(encoding="utf-8"))


# What it says --------------------------------------------------------------------------------------------------------


def test_the_report_says_whose_it_is_and_how_good(page: Html, record: CalibrationRecord) -> None:
    assert page.row("serial number")[1] == "SMALL-0001"
    assert len(page.row("content hash")[1]) == 64
    sigma = [1e3 * (entry.passive_phase_sigma_rad or math.nan) for entry in record.pucs]
    rms = math.sqrt(sum(each**2 for each in sigma) / 15)
    name = "passive phases, standard error, rms"
    assert page.row(name)[1:5] == [f"{rms:.4g}", "mrad", "≤ 3", "yes"]
    held_out = record.quality["held_out_rms_db"]
    assert float(page.row("held-out port power, rms")[1]) == pytest.approx(held_out, rel=1e-3)
    assert page.row("settings used")[1] == f"{record.quality['settings']:.0f}"
    assert page.row("PUCs calibrated")[1:5] == ["15", "", "≥ 15", "yes"]


def test_every_element_is_listed_with_its_figures(page: Html, record: CalibrationRecord) -> None:
    head = next(index for index, row in enumerate(page.rows) if row[:2] == ["puc", "passive phase rad"])
    for puc, entry in enumerate(record.pucs):
        row = page.rows[head + 1 + puc]
        assert row[0] == str(puc)
        assert float(row[1]) == pytest.approx(entry.passive_phase_rad, rel=1e-3)
        assert float(row[3]) == pytest.approx(entry.loss_db, rel=1e-3)


def test_the_map_writes_the_standard_error_on_every_puc(page: Html, record: CalibrationRecord) -> None:
    (phases,) = (each for each in page.pictures if "Phase uncertainty" in words(each))
    assert any(each.startswith("standard error, mrad") for each in words(phases))
    for puc, entry in enumerate(record.pucs):
        sigma = entry.passive_phase_sigma_rad
        assert sigma is not None
        assert f"PUC {puc}: {1e3 * sigma:.4g} mrad" in words(phases)


def test_the_maps_mark_pucs_without_light(recorded: Calibrated, tmp_path: Path) -> None:
    unseen = Defect("unseen PUC", "puc", 7, "PUC 7 (channels 14, 15) gets no light from your inputs")
    pucs = tuple(
        replace(entry, passive_phase_rad=None, passive_phase_sigma_rad=None) if puc == 7 else entry
        for puc, entry in enumerate(recorded.record.pucs)
    )
    page = html(save(recorded, tmp_path / "record.json", defects=(unseen,), pucs=pucs))
    for picture in page.pictures:
        assert "no light" in words(picture)
        assert "failed" not in words(picture)
        (title,) = (each for each in words(picture) if each.startswith("PUC 7:"))
        assert "no light" in title


def words(picture: ET.Element) -> set[str]:
    return {node.text or "" for node in picture.iter() if node.tag.endswith(("}text", "}title"))}


def test_all_plots_are_there_with_units_on_their_axes(page: Html) -> None:
    assert len(page.pictures) == 8  # two maps, six plots
    texts = [" ".join(words(picture)) for picture in page.pictures]
    for label in (
        "current², mA²",
        "reading minus prediction, σ",
        "extinction ratio, dB",
        "power for π, mW",
        "phase per π, mrad",
        "largest |correlation|",
    ):
        assert any(label in text for text in texts), label
    assert "Not shown" not in page.text


def test_faults_come_with_what_to_do(found: Calibrated, tmp_path: Path) -> None:
    defects = (
        Defect("dead heater", "heater", 7, "PUC 3 lower heater: no effect"),
        Defect("stuck PUC", "puc", 5, "neither heater acts", ("bar",)),
        Defect("something new", "monitor", 4, "odd"),
    )
    faults = ("PUC 3 lower heater: no effect", "neither heater acts", "odd", "the light flickers")
    page = html(save(found, tmp_path / "r.json", defects=defects, faults=faults))
    heater = page.row("dead heater")
    assert heater[1] == "PUC 3 lower heater (channel 7)"
    assert "other arm" in heater[4]
    assert page.row("stuck PUC")[3] == "bar"
    assert "calibrate again" in page.row("something new")[4]
    assert page.has_row("the light flickers")  # found, though no defect says where
    assert "4 faults were found" in page.text


def test_a_goal_that_is_missed_is_told(found: Calibrated, tmp_path: Path) -> None:
    quality = found.record.quality | {"held_out_excess_db": 0.25}
    page = html(save(found, tmp_path / "r.json", quality=quality))
    assert page.row("held-out port power, rms above reading noise")[1:5] == ["0.25", "dB", "≤ 0.1", "NO"]


def test_noise_and_a_busy_computer_are_no_faults_of_a_calibration(found: Calibrated, tmp_path: Path) -> None:
    quality = found.record.quality | {"held_out_rms_db": 0.25, "held_out_excess_db": 0.01, "cpu_s": 600.0}
    page = html(save(found, tmp_path / "r.json", quality=quality))
    assert page.row("held-out port power, rms")[1:5] == ["0.25", "dB", "–", "–"]
    assert page.row("CPU time")[1:5] == ["600", "s", "–", "–"]
    assert "NO" not in {cell for row in page.rows for cell in row}


def test_the_range_of_validity_is_that_of_the_record(found: Calibrated, tmp_path: Path) -> None:
    conditions = Conditions(
        wavelength_range_nm=(1549.5, 1550.5), temperature_valid_c=(24.9, 25.1), valid_for_s=7200.0, ambient="dark room"
    )
    page = html(save(found, tmp_path / "r.json", conditions=conditions))
    assert ["wavelength, nm", "1549.5 … 1550.5"] in page.rows
    assert ["chip temperature, °C", "24.9 … 25.1"] in page.rows
    assert ["check again after, h", "2"] in page.rows
    assert ["ambient", "dark room"] in page.rows


def test_an_interrupted_run_is_marked(found: Calibrated, tmp_path: Path) -> None:
    page = html(save(found, tmp_path / "r.json", complete=False))
    assert "INCOMPLETE" in page.text
    assert "cannot be used for routing" in page.text


# The document --------------------------------------------------------------------------------------------------------


def test_the_html_is_whole_and_loads_nothing(page: Html) -> None:
    assert not page.tags & {"script", "link", "iframe", "object", "embed", "base", "form"}
    assert all(source.startswith(("data:image/svg+xml;base64,", "#")) for source in page.sources)
    assert len(page.ids) == len(set(page.ids))
    assert {source[1:] for source in page.sources if source.startswith("#")} == set(page.ids)
    assert not re.search(r"url\(|@import|https?://", page.source)
    for picture in page.pictures:
        links = [value for node in picture.iter() for name, value in node.attrib.items() if name.endswith("href")]
        assert all(link.startswith(("#", "data:image/png;base64,")) for link in links)


@pytest.mark.parametrize("suffix", [".html", ".md"])
def test_names_cannot_break_the_document(found: Calibrated, tmp_path: Path, suffix: str) -> None:
    conditions = Conditions(ambient=HARMFUL, polarization={"port | 1": HARMFUL})
    changes = {"device_serial": HARMFUL, "faults": (HARMFUL,), "conditions": conditions}
    provenance = {"operator": "a | b\n## not a heading"}
    path = save(found, tmp_path / "r.json", **changes, provenance=provenance)
    written = write_report(path, path.with_suffix(suffix), plots=False).path.read_text(encoding="utf-8")
    assert "<script" not in written
    assert "alert" in written
    if suffix == ".html":
        assert Html(written).row("serial number")[1] == HARMFUL
    else:
        assert "port \\| 1" in written
        assert "\n## not" not in written


def test_markdown_has_its_pictures_beside_it(truth: dict[str, Any]) -> None:
    path = Path(truth["report"])
    text = path.read_text(encoding="utf-8")
    named = re.findall(r"!\[.*\]\((.+?)\)", text)
    assert len(named) == truth["plots"] + 2  # two maps of the mesh, which need no matplotlib
    assert all(name.startswith("truth-pictures/") and name.isascii() for name in named)
    assert {path.parent / name for name in named} == {Path(each) for each in truth["pictures"]}
    for picture in truth["pictures"]:
        assert ET.parse(picture).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        columns = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(columns) == 1  # every row has as many cells as the head


def test_the_same_record_gives_the_same_report(saved: Path) -> None:
    first, second = (
        write_report(saved, saved.with_name(name), plots=False).path.read_bytes() for name in ("a.html", "b.html")
    )
    assert first == second


# What is missing -----------------------------------------------------------------------------------------------------


def test_without_raw_readings_the_rest_is_there_and_says_so(saved: Path) -> None:
    raw = load_record(saved).raw
    assert raw is not None
    (saved.parent / raw.name).unlink()
    written = write_report(saved, saved.with_suffix(".html"))
    page = Html(written.path.read_text(encoding="utf-8"))
    assert len(page.pictures) == 6  # the plots of readings are not there
    assert any("is missing" in each for each in written.missing)
    assert re.search(r"Not shown \(fringes of single heaters\): .*is missing", page.text)


def test_raw_readings_of_another_run_are_not_shown(saved: Path, found: Calibrated) -> None:
    taken = found.observations
    save_raw(saved, replace(taken, reading_ma=2.0 * taken.reading_ma))
    page = html(saved)
    assert not page.has_row("random and reference settings")
    assert "its hash differs" in page.text


def test_a_record_that_names_no_readings_says_so(found: Calibrated, tmp_path: Path) -> None:
    save_record(replace(found.record, raw=None), tmp_path / "r.json")
    assert "the record has no raw readings" in html(tmp_path / "r.json").text


def test_without_matplotlib_there_are_tables_and_maps(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_matplotlib(monkeypatch)
    written = write_report(saved, saved.with_suffix(".html"))
    page = Html(written.path.read_text(encoding="utf-8"))
    assert len(page.pictures) == 2  # phase uncertainty and losses
    assert written.missing == ("plots need matplotlib: pip install 'lumion-hw[plots]'",)
    assert page.text.count("Not shown (") == 6
    assert page.has_row("random and reference settings")  # the figures of the residuals need no plot


def test_a_record_without_covariance_and_crosstalk_is_told_as_it_is(found: Calibrated, tmp_path: Path) -> None:
    pucs = tuple(replace(entry, passive_phase_sigma_rad=None, coupler=None) for entry in found.record.pucs)
    path = save(found, tmp_path / "r.json", covariance=None, arrays={}, crosstalk=None, joints=None, pucs=pucs)
    page = html(path)
    assert "no standard errors of phases" in page.text
    assert "has no crosstalk" in page.text
    assert page.row("passive phases, standard error, rms")[1] == "–"
    assert page.row("certified for")[1].startswith("switching only")


def test_a_damaged_record_is_refused(saved: Path) -> None:
    saved.write_text(saved.read_text().replace("SMALL-0001", "SMALL-0002"))
    with pytest.raises(CalibrationError, match="does not match its hash"):
        write_report(saved, saved.with_suffix(".html"))
    assert not saved.with_suffix(".html").exists()


def test_other_kinds_of_files_are_refused(saved: Path) -> None:
    with pytest.raises(ConfigError, match=r"the name of a report must end in .html or .md"):
        write_report(saved, saved.with_suffix(".pdf"))


# Command line --------------------------------------------------------------------------------------------------------


def test_a_report_of_no_known_kind_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    record = tmp_path / "r.json"
    assert main(["run", str(SMALL), "--emulate", "--out", str(record), "--report", str(tmp_path / "r.pdf")]) == 2
    assert list(tmp_path.iterdir()) == []


def test_the_truth_of_an_emulated_bench_is_told_on_request(truth: dict[str, Any], found: Calibrated) -> None:
    text = Path(truth["report"]).read_text("utf-8")
    rms = 1e3 * float(np.sqrt(np.mean(found.report.phase_error_rad**2)))
    told = re.search(r"\| passive phases, error, rms \| ([\d.]+) \| mrad \| ≤ 3 \| yes \|", text)
    assert told is not None
    assert text.count("error divided by Cramér-Rao bound") == 2
    assert float(told[1]) == pytest.approx(rms, rel=0.05)  # a reopened bench has been drifting for another while


def test_show_has_the_numbers_of_the_report(
    saved: Path, record: CalibrationRecord, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(saved), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    metrics = {metric["name"]: metric for metric in document["metrics"]}
    assert metrics["hardware time"]["value"] == record.quality["hardware_s"]
    assert metrics["hardware time"]["ok"] is True
    assert [each["loss_db"] for each in document["elements"]["pucs"]] == record.loss_db.tolist()
    assert len(document["cell_loop_sigma_mrad"]) == 2
    assert document["residuals"]["sweeps"]["readings"] > 30 * 8 * 10
