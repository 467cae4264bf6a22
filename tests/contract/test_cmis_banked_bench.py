"""A module of 16 lanes in a bench file: lane 12 is wired by name, and behaves like a lane of any module."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumion_hw.bench.bench import Bench
from lumion_hw.errors import ConfigError

BENCH = """
version: 1
name: dr16
devices:
  mesh0: {{kind: lumion-mesh, heater_max_ma: 2.5, heater_ohm: 1000.0, total_power_mw: 500.0}}
  dr-a: {{kind: cmis, profile: 1.6t-2xdr8, serial: DR16A}}
  dr-b: {{kind: cmis, profile: 1.6t-2xdr8}}
mesh: {{controller: mesh0, topology: benes, ports: 4, typical: {{puc_loss_db: 0.3, access_loss_db: 1.5}}}}
wiring:
  inputs:
    - {{transponder: dr-a/12, port: 0}}
    - {{transponder: dr-a/4, port: 1}}
  outputs:
    - {{port: 4, transponder: dr-b/{far}}}
  fibres:
    - {{transponder: dr-a/16, receiver: dr-b/16, loss_db: 2.0}}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "dr16.yaml"
    path.write_text(BENCH.format(far=12))
    return path


def test_lanes_of_both_banks_are_devices_of_the_bench(path: Path) -> None:
    with Bench.emulate(path, seed=7) as bench:
        assert {"dr-a/4", "dr-a/12", "dr-a/16", "dr-b/12"} <= set(bench.transponders)
        module = bench.transponders["dr-a"]
        assert module.identify().serial == "DR16A"
        for name in ("dr-a", "dr-b"):
            bench.transponders[name].power_up()
        module.select_application(3, 16)
        bench.transponders["dr-a/16"].enable()
        emulated = bench.emulated.transponders["dr-a"]
        assert [lane for lane in range(1, 17) if emulated.light(lane).enabled] == [16]
        bench.clock.sleep(1.0)
        # 1 dBm through 2 dB of fibre, at the lane of the other module that the fibre ends at.
        far = bench.transponders["dr-b/16"].monitors().rx_power_dbm
        assert far == pytest.approx(-1.0, abs=0.7)
        assert bench.transponders["dr-b/12"].monitors().rx_power_dbm is None
        bench.transponders["dr-a/16"].disable()
        assert bench.transponders["dr-b/16"].status().rx_los


def test_its_faults_reach_every_bank(path: Path) -> None:
    with Bench.emulate(path, seed=7) as bench:
        module = bench.transponders["dr-a"]
        module.power_up()
        emulated = bench.emulated.transponders["dr-a"]
        emulated.unplug()
        assert not any(engine.plugged for engine in emulated.engines)
        assert module.lock_state().stage.value in ("absent", "not_responding")
        emulated.plug()
        bench.clock.sleep(5.0)
        assert module.identify().serial == "DR16A"


def test_a_lane_that_the_module_does_not_have_is_refused_in_the_file(path: Path) -> None:
    path.write_text(BENCH.format(far=17))
    with pytest.raises(ConfigError, match="expected a media lane from 1 to 16 of 'dr-b', found 17"):
        Bench.emulate(path, seed=7)
