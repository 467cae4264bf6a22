"""Fibres of an emulated bench that are moved by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lumion_hw.bench.bench import Bench
from lumion_hw.errors import ConfigError

BY_HAND = Path(__file__).parents[2] / "data" / "by-hand.yaml"


def lit(bench: Bench) -> None:
    laser = bench.lasers["tls"]
    laser.enable()
    laser.wait_ready(60.0)


def test_the_light_is_where_the_operator_plugged_the_fibres_last() -> None:
    with Bench.emulate(BY_HAND, seed=1) as bench:
        lit(bench)
        faults, world = bench.emulated.faults, bench.emulated.world
        assert world.mesh_output_w().sum() == 0.0
        faults.plug("tls", 2)
        out_w = world.mesh_output_w()
        assert out_w.sum() > 0.0
        assert world.meter_w("pm", 1) == 0.0
        faults.plug("pm", 6)
        assert bench.meters["pm"].read_all()[0].power_w == pytest.approx(world.meter_w("pm", 1), rel=0.05)
        assert world.meter_w("pm", 1) < out_w[6]
        faults.plug("tls", 0)
        assert not np.allclose(world.mesh_output_w(), out_w)


def test_every_plugging_has_a_coupling_of_its_own() -> None:
    with Bench.emulate(BY_HAND, seed=1) as bench:
        lit(bench)
        levels_db = []
        for _ in range(200):
            bench.emulated.faults.plug("tls", 0)
            levels_db.append(10.0 * np.log10(bench.emulated.world.mesh_output_w().sum()))
        assert np.std(levels_db) == pytest.approx(0.5, rel=0.15)


def test_a_port_without_such_a_fibre_is_an_error() -> None:
    with Bench.emulate(BY_HAND, seed=1) as bench:
        with pytest.raises(ConfigError, match="no fibre that is moved by hand leads from tls to port 5"):
            bench.emulated.faults.plug("tls", 5)
        with pytest.raises(ConfigError, match="no fibre that is moved by hand leads from driver to port 0"):
            bench.emulated.faults.inject("bench", "plug", device="driver", port=0)
