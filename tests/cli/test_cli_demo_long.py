"""The whole demo on the built-in bench for many seeds, and a calibration over real wires."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_cli_emulate import SMALL, served

pytestmark = pytest.mark.long


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.campaign) for seed in (1, 2, 3, 11, 2026))])
def test_the_prototype_is_calibrated_connected_broken_and_recovered(seed: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lumion_hw.cli", "demo", "--seed", str(seed), "--out", str(tmp_path), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["calibration"]["pucs_calibrated"], document["calibration"]["faults"]) == (72, [])
    for when in ("before", "after"):
        circuits = document["circuits"][when]
        assert len(circuits) == 4
        assert all(circuit["proven"] and circuit["margin_db"] > 0.0 for circuit in circuits)
        assert max(abs(circuit["loss_error_db"]) for circuit in circuits) < 1.0
    assert (document["recovery"]["failed"], document["recovery"]["spare"]) == ("server1", "server2")
    assert all(Path(path).stat().st_size > 0 for path in document["artifacts"].values())


@pytest.mark.campaign
def test_a_calibration_over_tcp_and_ptys_is_as_good_as_one_in_memory(tmp_path: Path) -> None:
    entry = [sys.executable, "-c", "import sys; from lumion_hw.cli import calibrate_main as main; sys.exit(main())"]
    record, endpoints = tmp_path / "record.json", tmp_path / "endpoints.json"
    with served(SMALL, tmp_path, "--seed", "5"):
        common = [str(SMALL), "--endpoints", str(endpoints)]
        for command in (
            ["run", *common, "--out", str(record), "--json"],
            ["verify", str(SMALL), str(record), "--endpoints", str(endpoints), "--json"],
        ):
            done = subprocess.run(
                [*entry, *command], capture_output=True, text=True, timeout=1200, check=False, env=os.environ.copy()
            )
            assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["held_out_excess_db"] < 0.1
