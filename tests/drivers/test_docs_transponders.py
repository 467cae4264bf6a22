"""The page about transponders agrees with the register table and with what the decoder says of the real dumps."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from lumion_hw.drivers.transponders.decoded import Severity
from lumion_hw.drivers.transponders.dump_decoder import decode_file
from lumion_hw.standards.cmis import PAGES, Page, fields_of
from lumion_hw.standards.cmis.fields import Certainty

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "transponders.md").read_text(encoding="utf-8")
SHARED = Path(os.environ.get("LUMION_SHARED", ROOT.parent / "shared")) / "data" / "cmis_dumps"
DUMPS = sorted(SHARED.glob("*.json"))

DRIVER: dict[Page, str] = {
    None: "identity, state, power requests, reset, flags, monitors, applications, CDB status",
    0x00: "identity, checked at opening and before every write",
    0x01: "capabilities, durations, support of everything else",
    0x02: "limits of received power in the lock report; all limits in the decoder",
    0x03: "dump only",
    0x04: "grids, ranges, fine tuning, power limits",
    0x10: "initialisation, Tx disable, staged set 0 and apply; masks in the dump",
    0x11: "states, flags, lane monitors, results of apply, active set",
    0x12: "tuning, output power, their flags",
    0x13: "loopbacks, generators and checkers",
    0x14: "bit error ratio and SNR by selector, flags; counters in the decoder",
    0x20: "descriptors, read once",
    0x21: "as 20h",
    0x22: "as 20h",
    0x23: "as 20h",
    0x24: "samples; statistics while frozen",
    0x25: "as 24h",
    0x26: "as 24h",
    0x27: "as 24h",
    0x28: "dump only",
    0x29: "dump only",
    0x2A: "dump only",
    0x2B: "dump only",
    0x2C: "flags, named by their observable",
    0x2D: "dump only",
    0x2F: "groups, freeze and its release",
    0x30: "dump only",
    0x33: "flags; cause of a lost lock",
    0x34: "pre-FEC bit error ratio, uncorrectable frames",
    0x35: "link performance",
    0x38: "dump only",
    0x3A: "dump only",
    0x3B: "flag bytes are left alone",
    0x40: "dump only",
    0x9F: "commands and replies; firmware, password",
}


def row(page: Page) -> str:
    fields = fields_of(page)
    checks = sum(field.certainty is Certainty.CHECK for field in fields)
    certainty = "all two sources" if not checks else "all to check" if checks == len(fields) else f"{checks} to check"
    name = "lower memory" if page is None else f"{page:02X}h"
    return f"| {name} | {len(fields)} | {certainty} | {DRIVER[page]} |"


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_page_has_its_row(page: Page) -> None:
    assert row(page) in DOCUMENT, f"put this row into docs/transponders.md:\n{row(page)}"


def test_no_row_is_left_over() -> None:
    rows = re.findall(r"^\| (?:lower memory|[0-9A-F]{2}h) \| \d+ \|", DOCUMENT, re.MULTILINE)
    assert len(rows) == len(PAGES)


@pytest.mark.skipif(not DUMPS, reason="the dumps of real modules are not part of the repository")
@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.stem)
def test_the_findings_of_a_dump_are_those_of_the_page(path: Path) -> None:
    findings = decode_file(path.read_bytes()).findings
    counts = [sum(item.severity is severity for item in findings) for severity in Severity]
    row = f"| `{path.stem.removeprefix('cmis_')}` | {counts[0]} | {counts[1]} | {counts[2]} |"
    assert row in DOCUMENT, f"{row}\n" + "\n".join(f"{item.address} {item.message}" for item in findings)
