"""The mesh of a bench: heaters by PUC and arm on the controller's channels, monitors by port, records that fit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lumion_hw import Bench
from lumion_hw.bench.mesh_access import MeshAccess
from lumion_hw.clock import VirtualClock
from lumion_hw.errors import ConfigError, LimitError
from lumion_hw.interfaces import ControllerInfo, Generation, MonitorReading, SweepPlan, SweepResult
from lumion_hw.mesh.layout.hexagonal import HexMesh

SMALL = Path(__file__).parents[1] / "data" / "small.yaml"
MESH = HexMesh.columns([2])
CROSSED = tuple(channel for puc in range(MESH.n_pucs) for channel in (2 * puc + 1, 2 * puc))
"""A board whose connector swaps the two arms of every PUC."""


class Controller:
    """A mesh controller that remembers its table and shows each monitor's number as its current."""

    def __init__(self, clock: VirtualClock, n_heaters: int = 32, n_monitors: int = 20) -> None:
        self.clock = clock
        self.info = ControllerInfo("M", "S1", "1", n_heaters, n_monitors, 3.0, 0.001, True, True, True, False)
        self.table = np.full(n_heaters, 0.7)
        self.programmed_s: list[float] = []
        self.asked_n_avg = 0
        self.sweeps: list[SweepPlan] = []

    def program(self, currents_ma: NDArray[np.float64]) -> Generation:
        self.table = currents_ma.copy()
        self.programmed_s.append(self.clock.now())
        return Generation(len(self.programmed_s), 0, self.clock.now())

    def read_back(self) -> NDArray[np.float64]:
        return self.table.copy()

    def read_monitors(self, n_avg: int = 1) -> MonitorReading:
        self.asked_n_avg = n_avg
        current = np.arange(self.info.n_monitors, dtype=np.float64)
        saturated = np.zeros(self.info.n_monitors, dtype=np.bool_)
        current[2], saturated[2] = np.nan, True
        return MonitorReading(current, saturated, 1, self.clock.now())

    def sweep(self, plan: SweepPlan) -> SweepResult:
        """Show the current of heater 1 on every monitor."""
        self.sweeps.append(plan)
        rows = []
        for point in plan.points:
            self.table[list(point)] = list(point.values())
            rows.append(np.full(len(plan.monitors or ()), self.table[1]))
        return SweepResult(np.array(rows), np.zeros((len(rows), len(rows[0])), np.bool_), plan.monitors or (), 1, 0)


def access(controller: Controller, **changes: Any) -> MeshAccess:
    values: dict[str, Any] = {
        "topology": MESH,
        "controller": controller,
        "heater_channels": CROSSED,
        "monitor_ports": MESH.fibre_ports,
        "responsivity_a_per_w": 0.8,
        "heater_max_ma": 2.5,
        "heater_ohm": 1000.0,
        "settle_s": 1e-3,
        "clock": controller.clock,
    }
    return MeshAccess(**(values | changes))


@pytest.fixture
def controller() -> Controller:
    return Controller(VirtualClock())


def test_currents_go_to_the_channels_of_the_map_and_the_rest_is_off(controller: Controller) -> None:
    mesh = access(controller)
    mesh.program(np.arange(30) / 100.0)
    assert controller.table[:4] == pytest.approx([0.01, 0.00, 0.03, 0.02])  # the arms are crossed over
    assert controller.table[30:].tolist() == [0.0, 0.0]  # channels without a heater


def test_what_is_driven_comes_back_by_puc_and_arm(controller: Controller) -> None:
    mesh = access(controller)
    wanted = np.arange(30) / 100.0
    mesh.program(wanted)
    assert mesh.confirmed_currents_ma() == pytest.approx(wanted)


def test_programming_waits_until_the_heaters_have_settled(controller: Controller) -> None:
    mesh = access(controller, settle_s=0.5)
    generation = mesh.program(np.zeros(30))
    assert generation.number == 1
    assert controller.clock.now() - controller.programmed_s[0] == pytest.approx(0.5)


@pytest.mark.parametrize("shape", [(), (1,), (29,), (31,), (32,), (15, 2)])
def test_any_other_number_of_currents_is_refused_whole(controller: Controller, shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="30 heater currents expected"):
        access(controller).program(np.zeros(shape))
    assert controller.programmed_s == []
    assert (controller.table == 0.7).all()


def test_monitors_come_in_the_order_of_their_ports_with_gaps_where_saturated(controller: Controller) -> None:
    seen = access(controller).monitors_ma(8)
    assert len(seen) == len(MESH.fibre_ports) == 16
    assert np.isnan(seen[2])
    assert seen[[0, 1, 3, 15]].tolist() == [0.0, 1.0, 3.0, 15.0]
    assert controller.asked_n_avg == 8


def _steps(n: int) -> NDArray[np.float64]:
    """Return settings in which the upper arm of PUC 0 goes up, all others at 0.2 mA."""
    currents = np.full((n, 30), 0.2)
    currents[:, 0] = np.arange(n) / 10.0
    return currents


def test_settings_are_one_sweep_of_a_controller_that_can(controller: Controller) -> None:
    controller.info = replace(controller.info, on_board_sweep=True, sweep_points=100)
    mesh = access(controller, settle_s=0.003)
    read = mesh.sweep(_steps(5))
    np.testing.assert_array_equal(read, np.repeat(np.arange(5)[:, None] / 10.0, 16, axis=1))
    (plan,) = controller.sweeps
    assert (plan.settle_s, plan.keep_last, plan.monitors) == (0.003, True, tuple(range(16)))
    assert [len(point) for point in plan.points] == [32, 1, 1, 1, 1]  # the first whole, then what changes
    assert controller.programmed_s == []
    assert controller.table[[1, 0, 30]].tolist() == [0.4, 0.2, 0.0]
    assert mesh.confirmed_currents_ma() == pytest.approx(_steps(5)[-1])


def test_more_settings_than_fit_into_the_controller_are_several_sweeps(controller: Controller) -> None:
    controller.info = replace(controller.info, on_board_sweep=True, sweep_points=4)
    read = access(controller).sweep(_steps(10))
    assert [len(plan.points) for plan in controller.sweeps] == [4, 4, 2]
    assert read[:, 0] == pytest.approx(np.arange(10) / 10.0)


def test_without_sweeps_each_setting_is_programmed_and_read(controller: Controller) -> None:
    read = access(controller).sweep(_steps(3))
    assert len(controller.programmed_s) == 3
    assert read.shape == (3, 16)
    assert np.isnan(read[:, 2]).all()


def test_the_board_reads_in_a_sweep_what_it_reads_setting_by_setting() -> None:
    with Bench.emulate(SMALL, seed=3) as bench:
        bench.transponders["sfp-a"].enable()
        bench.clock.sleep(1.0)
        settings = np.sqrt(np.random.default_rng(3).uniform(0.0, 3.0, (40, 30)))
        swept = bench.mesh.sweep(settings)
        assert bench.mesh.confirmed_currents_ma() == pytest.approx(settings[-1], abs=1e-3)
        one_by_one = []
        for setting in settings:
            bench.mesh.program(setting)
            one_by_one.append(bench.mesh.monitors_ma())
    # 0.5 % of noise in both, and a monitor's floor of some 30 nA.
    sigma_ma = np.sqrt(2.0) * np.hypot(0.005 * swept, 3e-5)
    normalised = (swept - np.array(one_by_one)) / sigma_ma
    assert 0.8 < normalised.std() < 1.2


@pytest.mark.parametrize(
    ("size", "words"),
    [
        ({"n_heaters": 29}, "controller S1 has 29 heaters, but the bench file needs 30"),
        ({"n_monitors": 15}, "controller S1 has 15 monitors, but the bench file needs 16"),
    ],
)
def test_a_controller_that_is_too_small_is_refused_at_once(size: dict[str, int], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        access(Controller(VirtualClock(), **size))


def test_the_mesh_of_a_bench_file_is_the_one_it_describes() -> None:
    with Bench.emulate(SMALL, seed=1) as bench:
        mesh = bench.mesh
        assert (mesh.topology.n_pucs, mesh.topology.n_ports) == (15, 16)
        assert mesh.heater_channels == tuple(range(30))
        assert mesh.monitor_ports == mesh.topology.fibre_ports
        assert (mesh.heater_max_ma, mesh.heater_ohm, mesh.responsivity_a_per_w) == (2.5, 1000.0, 0.8)
        wanted = np.linspace(0.0, 1.0, 30)
        mesh.program(wanted)
        assert mesh.confirmed_currents_ma() == pytest.approx(wanted, abs=0.51 * mesh.controller.info.current_step_ma)
        with pytest.raises(LimitError, match="channel 7"):
            mesh.program(np.where(np.arange(30) == 7, 2.6, 0.0))
        assert mesh.confirmed_currents_ma() == pytest.approx(wanted, abs=0.51 * mesh.controller.info.current_step_ma)


def test_a_channel_map_of_the_bench_file_is_obeyed(tmp_path: Path) -> None:
    path = tmp_path / "bench.yaml"
    path.write_text(SMALL.read_text().replace("columns: [2]", "columns: [2]\n  heater_channels: {0: [1, 0]}"))
    with Bench.emulate(path, seed=1) as bench:
        assert bench.mesh.heater_channels[:4] == (1, 0, 2, 3)
        bench.mesh.program(np.where(np.arange(30) == 0, 1.0, 0.0))
        table = bench.mesh.controller.read_back()
        assert np.flatnonzero(table).tolist() == [1]
        # And the light agrees: the heat is in the upper arm of PUC 0, wherever its wire goes.
        cells = bench.emulated.world.cells()
        assert cells.phase_upper[0] - bench.emulated.world.truth.passive_phase[0] > 1.0


def test_monitor_ports_of_the_bench_file_are_obeyed(tmp_path: Path) -> None:
    path = tmp_path / "bench.yaml"
    path.write_text(SMALL.read_text().replace("columns: [2]", "columns: [2]\n  monitor_ports: [5, 3]"))
    with Bench.emulate(path, seed=1) as bench:
        assert bench.mesh.monitor_ports == (5, 3)
        assert bench.mesh.monitors_ma().shape == (2,)
        assert replace(bench.mesh, settle_s=0.0).monitor_ports == (5, 3)
