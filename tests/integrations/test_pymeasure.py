"""The example procedure, run by a worker of the real PyMeasure."""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("pymeasure", reason="PyMeasure is not installed: pip install 'lumion-hw[pymeasure]'")
FILE = Path(__file__).parents[2] / "examples" / "pymeasure_procedure.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pymeasure_procedure", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_worker_sweeps_a_heater_and_writes_the_powers(example: ModuleType) -> None:
    procedure = example.HeaterSweep(points=4, stop_ma=1.5)
    results = example.run(procedure)
    assert procedure.status == procedure.FINISHED
    assert results.data["Current (mA)"].tolist() == pytest.approx([0.0, 0.5, 1.0, 1.5])
    assert np.ptp(results.data["Power (W)"]) > 1e-9
    assert not procedure.bench.emulated.world.chip.driven_ma.any(), "the heaters stay on after the end"


def test_a_current_beyond_its_limit_ends_the_procedure_before_the_sweep(
    example: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    procedure = example.HeaterSweep(points=4, stop_ma=9.0)
    with caplog.at_level(logging.ERROR):
        results = example.run(procedure)
    assert procedure.status == procedure.FAILED
    assert len(results.data) == 0
    assert "requested 9 mA, limit 2.5 mA" in caplog.text
