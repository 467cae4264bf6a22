"""Two coherent modules joined through the mesh: real drivers, emulated modules, and the light between them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
import yaml

from lumion_hw import Bench
from lumion_hw.drivers.transponders.cmis import CmisTransponder
from lumion_hw.interfaces.transponder import LockStage
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.layout.topology import State

DATA = Path(__file__).parents[1] / "data"
MESH = HexMesh.columns([2])
CROSS: dict[int, State] = dict.fromkeys(range(MESH.n_pucs), "cross")
PUC_PS = 11.25
Way = tuple[int, int]
"""Ports where light enters and leaves."""


def bench_file(path: Path, x: Way, y: Way | None) -> Path:
    """Write a bench whose module zr-a reaches zr-b by one or two paths, and nothing else."""
    document = yaml.safe_load((DATA / "zr_pair.yaml").read_text())
    ways = {"x": x} if y is None else {"x": x, "y": y}
    document["wiring"] = {
        "inputs": [
            {"transponder": "zr-a", "port": way[0], "tributary": tributary, "loss_db": 0.5, "gain_db": 5.0}
            for tributary, way in ways.items()
        ],
        "outputs": [
            {"transponder": "zr-b", "port": way[1], "tributary": tributary, "loss_db": 0.3}
            for tributary, way in ways.items()
        ],
    }
    document["emulation"] |= {"access_loss_sigma_db": 0.0, "puc_loss_sigma_db": 0.0}
    target = path / "bench.yaml"
    target.write_text(yaml.safe_dump(document))
    return target


def drive(bench: Bench, states: Mapping[int, State]) -> None:
    """Program states from the emulated truth: half a turn on the upper arm is bar, cold is cross."""
    truth = bench.emulated.world.truth
    heat_mw = truth.p_pi_mw
    squares = heat_mw / (truth.heater_ohm * 1e-3 * (1.0 + truth.nonlinearity_per_mw * heat_mw))
    currents = np.zeros(2 * MESH.n_pucs)
    for puc, state in states.items():
        currents[2 * puc] = np.sqrt(squares[2 * puc]) if state == "bar" else 0.0
    bench.mesh.program(currents)


def light_up(bench: Bench, frequency_thz: float = 193.7) -> tuple[CmisTransponder, CmisTransponder]:
    """Bring both modules up on one frequency."""
    modules = tuple(bench.transponders[name] for name in ("zr-a", "zr-b"))
    for module in modules:
        assert isinstance(module, CmisTransponder)
        module.power_up()
        module.select_application(1)
        module.tune(frequency_thz)
        module.enable()
    return modules  # type: ignore[return-value]


def ways_that_differ_by(pucs: int) -> tuple[Way, Way, dict[int, State]]:
    """Return two paths through the mesh whose lengths differ by so many PUCs, and the states for them."""
    rng = np.random.default_rng(7)
    while True:
        states: dict[int, State] = {puc: "bar" if rng.random() < 0.3 else "cross" for puc in range(MESH.n_pucs)}
        traces = {port: MESH.trace(port, states) for port in range(MESH.n_ports)}
        for x, y in itertools.combinations(traces, 2):
            lengths = [len(traces[port].pucs) for port in (x, y)]
            ports = {x, y, traces[x].port, traces[y].port}
            apart = not set(traces[x].pucs) & set(traces[y].pucs)
            if len(ports) == 4 and apart and abs(lengths[0] - lengths[1]) == pucs and max(lengths) <= 5:
                return (x, traces[x].port), (y, traces[y].port), states


@pytest.fixture
def pair() -> Iterator[Bench]:
    with Bench.emulate(DATA / "zr_pair.yaml", seed=3) as bench:
        drive(bench, CROSS)
        yield bench


def test_a_pair_is_brought_up_retuned_and_put_out_again(pair: Bench) -> None:
    a, b = light_up(pair)
    for module in (a, b):
        report = module.wait_for_lock(60.0)
        assert report.stage is LockStage.LOCKED, report
    quantities = a.performance().quantities
    assert quantities["prefec_ber"].current.value < 2e-2
    assert quantities["dgd"].current.value == pytest.approx(0.0, abs=0.1)
    a.disable()
    assert a.tune(194.1).frequency_thz == pytest.approx(194.1, abs=1e-6)
    a.enable()
    report = b.wait_for_lock(5.0)
    assert report.stage is LockStage.RX_LOL, report  # light of another frequency
    b.disable()
    b.tune(194.1)
    b.enable()
    assert b.wait_for_lock(60.0).stage is LockStage.LOCKED
    a.disable()
    assert a.monitors().tx_power_dbm is None
    assert b.wait_for_lock(1.0).stage is LockStage.RX_LOS
    a.power_down()
    assert a.wait_for_lock(1.0).stage is LockStage.LOW_POWER


@pytest.mark.long
def test_one_way_never_locks_and_the_report_says_what_holds_it_up(tmp_path: Path) -> None:
    with Bench.emulate(bench_file(tmp_path, (5, 13), None), seed=3) as bench:
        drive(bench, CROSS)
        _, b = light_up(bench)
        report = b.wait_for_lock(5.0)
        assert report.stage is LockStage.RX_LOL, report
        assert b.monitors().rx_power_dbm is not None  # there is light


@pytest.mark.parametrize("pucs", [pytest.param(0, marks=pytest.mark.long), 1])
def test_what_the_ways_differ_by_shows_in_the_modules_own_readings(tmp_path: Path, pucs: int) -> None:
    x, y, states = ways_that_differ_by(pucs)
    with Bench.emulate(bench_file(tmp_path, x, y), seed=3) as bench:
        drive(bench, states)
        _, b = light_up(bench)
        assert b.wait_for_lock(60.0).stage is LockStage.LOCKED
        quantities = b.performance().quantities
        assert quantities["dgd"].current.value == pytest.approx(PUC_PS * pucs, abs=1.0)
        assert quantities["pdl"].current.value == pytest.approx(0.5 * pucs, abs=0.15)


@pytest.mark.long
def test_the_signal_suffers_from_what_the_ways_differ_by(tmp_path: Path) -> None:
    """Penalties of the model: 0.5 dB·(DGD/10 ps)² and 0.8 dB·(PDL/2.5 dB)², about 0.66 dB for one PUC."""
    esnr_db = []
    for pucs in (0, 1):
        x, y, states = ways_that_differ_by(pucs)
        (directory := tmp_path / str(pucs)).mkdir()
        with Bench.emulate(bench_file(directory, x, y), seed=3) as bench:
            drive(bench, states)
            _, b = light_up(bench)
            b.wait_for_lock(60.0)
            bench.clock.sleep(5.0)
            quantities = b.performance().quantities
            esnr_db.append((quantities["esnr"].current.value, quantities["rx_signal_power"].current.value))
    penalty_db = 0.5 * (PUC_PS / 10.0) ** 2 + 0.8 * (0.5 / 2.5) ** 2
    assert esnr_db[0][0] - esnr_db[1][0] == pytest.approx(penalty_db, abs=0.4)


@pytest.mark.long
def test_ways_that_differ_by_three_pucs_are_too_much(tmp_path: Path) -> None:
    with Bench.emulate(bench_file(tmp_path, (5, 13), (1, 10)), seed=3) as bench:
        drive(bench, CROSS)
        _, b = light_up(bench)
        assert b.wait_for_lock(30.0).stage is LockStage.RX_LOL
