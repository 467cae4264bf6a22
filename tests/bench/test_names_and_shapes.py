"""What a person at a prompt meets: completion, one-line reprs, names that are not there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import lumion_hw
from lumion_hw import Bench
from lumion_hw.errors import ConfigError, UnknownNameError
from lumion_hw.mesh.known_mesh import KnownMesh
from lumion_hw.mesh.record import CalibrationRecord

RECORD = Path(__file__).parent.parent / "data" / "calibration-record-v1.json"


def test_the_public_names_are_shown_and_there() -> None:
    assert {"Bench", "CalibrationRecord", "LumionError"} <= set(dir(lumion_hw))
    assert all(getattr(lumion_hw, name) is not None for name in lumion_hw.__all__)


def test_completion_imports_nothing() -> None:
    script = "import sys, lumion_hw; dir(lumion_hw); sys.exit(any(m.startswith('lumion_hw.') for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_whole_things_show_themselves_in_a_line() -> None:
    record = CalibrationRecord.load(RECORD)
    with Bench.emulate("lumion-prototype") as bench:
        for thing in (bench, bench.model, bench.mesh, bench.mesh.topology, record, KnownMesh.of(record)):
            assert "\n" not in repr(thing)
            assert len(repr(thing)) < 300, repr(thing)
        assert "72 PUCs" in repr(bench.mesh)


def test_a_name_that_is_not_there_says_what_is() -> None:
    with Bench.emulate("lumion-prototype", only=["meter0", "sfp-s0n0"]) as bench:
        with pytest.raises(UnknownNameError, match=r"no laser 'x'. There are none\.$"):
            bench.lasers["x"]
        with pytest.raises(KeyError, match=r"'sfp-s0n0': that is a sfp-8472. There is meter0\.$"):
            bench.meters["sfp-s0n0"]
        with pytest.raises(ConfigError, match="left out by 'only'"):
            bench.transponders["sfp-s1n1"]
        assert bench.meters.get("x") is None
        assert "x" not in bench.meters
