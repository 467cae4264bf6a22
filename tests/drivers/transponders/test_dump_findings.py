"""What the decoder finds in dumps of real modules: numbers of errors, warnings and notes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lumion_hw.drivers.transponders.decoded import Severity
from lumion_hw.drivers.transponders.dump_decoder import decode_file

ROOT = Path(__file__).parents[3]
SHARED = Path(os.environ.get("LUMION_SHARED", ROOT.parent / "shared")) / "data" / "cmis_dumps"
DUMPS = sorted(SHARED.glob("*.json"))

FINDINGS = {
    # Applications 6 and 7 may begin on media lanes where they do not fit, application 9 on none; all media lanes are
    # marked absent (00h:210) and carry light; 71.8 degC above its 70, 3.121 V below its 3.14.
    "2x400g_fr4": (2, 7, 5),
    "400g_cr8": (0, 7, 0),  # revision 0.5; applications 2 to 4 may begin on no host lane
    "400g_lr4": (0, 3, 6),  # a write-only password register reads 00001011h
    "arista_400g_xdr4": (0, 0, 4),  # all check sums fit; bytes 83 and 84 in use
    "credo_800g_aec": (0, 3, 1),  # pages 20h and 24h are there though 01h:142.6 says there are none
    "flatmem": (0, 3, 1),  # application 1 with undefined interfaces
}


@pytest.mark.skipif(not DUMPS, reason="the dumps of real modules are not part of the repository")
@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.stem)
def test_a_dump_has_these_findings(path: Path) -> None:
    findings = decode_file(path.read_bytes()).findings
    counts = tuple(sum(item.severity is severity for item in findings) for severity in Severity)
    expected = FINDINGS[path.stem.removeprefix("cmis_")]
    assert counts == expected, "\n".join(f"{item.address} {item.message}" for item in findings)
