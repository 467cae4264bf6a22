"""One laser that a switch leads to the inputs of a mesh with foundry heaters."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from calibration.measure.bench_probe import BenchProbe
from calibration.measure.light_sources import dual_input_ports
from calibration.measure.logbook import Logbook
from calibration.measure.port_survey import take_survey
from lumion_hw import Bench
from lumion_hw.emulator.switches.polatis import EmulatedPolatis
from lumion_hw.errors import BusyError, CalibrationError
from lumion_hw.mesh import CalibratedMesh
from tests.calibration.bench_run import SMALL, calibrated_bench, within_tolerance

SWITCHED = SMALL.with_name("switched.yaml")


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench.emulate(SWITCHED, seed=1) as bench:
        yield bench


def test_the_switch_leads_the_light_to_one_port_after_another(bench: Bench) -> None:
    probe, switch = BenchProbe(bench), bench.switches["switch"]
    probe.light_only_port(None)
    dark_ma, seen_ma = bench.mesh.monitors_ma(16), {}
    for port in probe.sources:
        probe.light_only_port(port)
        assert switch.connections() == {1: 17 + port}
        assert bench.lasers["laser"].state().emitting
        seen_ma[port] = bench.mesh.monitors_ma(16)
        assert seen_ma[port].sum() > 100.0 * np.abs(dark_ma).sum()
    assert all(np.abs(seen_ma[port] - seen_ma[0]).sum() > 0.1 * seen_ma[0].sum() for port in (1, 2, 3))
    probe.switch_everything_off()
    assert not bench.lasers["laser"].state().emitting


def test_one_laser_at_four_ports_is_one_frequency_and_no_pair_of_tributaries(bench: Bench) -> None:
    probe = BenchProbe(bench)
    assert probe.device_under_test().source_spread_hz == 0.0
    assert dual_input_ports(bench.wiring.inputs[:2]) == {}
    probe.light_only_port(2)
    switch_db = bench.model.devices["switch"].insertion_loss_db  # type: ignore[attr-defined]
    expected_dbm = bench.lasers["laser"].state().power_dbm - 0.5 - switch_db
    assert probe.launched_dbm(2) == pytest.approx(expected_dbm)


def test_a_switch_that_sticks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its mirrors stay where they were, although it reports each new connection."""
    monkeypatch.setattr(EmulatedPolatis, "connections", lambda _: {1: 17, 17: 1})
    with Bench.emulate(SWITCHED, seed=1) as bench:
        probe = BenchProbe(bench)
        probe.align_all()
        with pytest.raises(CalibrationError, match=r"ports 0 and 1 give the same light .* a switch does not move"):
            take_survey(Logbook(probe), np.random.default_rng(1))


def test_other_connections_of_the_switch_stay(bench: Bench) -> None:
    probe, switch = BenchProbe(bench), bench.switches["switch"]
    switch.set_connections({5: 21})
    probe.light_only_port(3)
    assert switch.connections() == {1: 20, 5: 21}
    switch.set_connections({5: 18})
    with pytest.raises(BusyError, match="18"):
        probe.light_only_port(1)
    assert switch.connections()[5] == 18


@pytest.mark.long
def test_a_foundry_chip_with_one_laser_is_calibrated() -> None:
    with Bench.emulate(SWITCHED, seed=2) as bench:
        found = calibrated_bench(bench, 2)
    assert within_tolerance(found)
    assert found.record.faults == ()
    laws = CalibratedMesh.from_record(found.record)
    assert 13.0 < np.pi * laws.heat_mw_per_rad.min() < np.pi * laws.heat_mw_per_rad.max() < 39.0
