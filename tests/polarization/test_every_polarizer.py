"""The search through every controller driver on an emulated bench: each reaches the crosstalk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from lumion_hw import Bench
from lumion_hw.polarization import Aligner
from tests.circuits.known_mesh import A_TO_B, SMALL, path_setup


@pytest.mark.parametrize(
    ("kind", "method", "most_reads"),
    [
        pytest.param("oz-epc04", "model", 120, marks=pytest.mark.long),
        ("thorlabs-mpc", "model", 25),
        ("keysight-n7785c", "feedback", 500),
    ],
)
def test_the_extinction_ends_within_three_decibels_of_the_floor(
    tmp_path: Path, kind: str, method: str, most_reads: int
) -> None:
    document = yaml.safe_load(SMALL.read_text())
    document["emulation"] = {**document.get("emulation", {}), "tm_rejection_db": 30.0}
    for name, device in document["devices"].items():
        if device["kind"] == "oz-epc04":
            document["devices"][name] = {"kind": kind}
    path = tmp_path / "bench.yaml"
    path.write_text(yaml.safe_dump(document))
    with Bench.emulate(path, seed=5) as bench:
        setup = path_setup(bench)
        (proof,) = setup.establish(setup.plan(A_TO_B[:1]))
        assert proof.proven
        assert proof.alignment is not None
        assert proof.alignment.method == method
        out, name = proof.circuit.exit, proof.circuit.entry.polarization
        assert out.meter is not None
        assert out.meter_channel is not None
        assert name is not None
        meter, channel = bench.meters[out.meter], out.meter_channel
        bright_w = meter.read(channel).power_w
        found = Aligner(bench.clock).minimise(name, bench.polarizer(name), lambda: meter.read(channel).power_w)
        assert 10.0 * np.log10(found.power / bright_w) == pytest.approx(-30.0, abs=3.0)
        assert found.reads <= most_reads
