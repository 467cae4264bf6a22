"""A bench whose mesh takes states from the line server: light goes where the states say, all else is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lumion_hw import Bench
from lumion_hw.bench.file.loader import check_bench
from lumion_hw.cli import calibrate_main
from lumion_hw.errors import ConfigError, LimitError, LinkLost
from lumion_hw.interfaces import PucState

SMALL = Path(__file__).parents[1] / "data" / "small.yaml"
BOARD = "{kind: lumion-mesh, serial: SMALL-0001, heater_max_ma: 2.5, heater_ohm: 1000.0, total_power_mw: 500.0}"


def bench_file(directory: Path, device: str = "{kind: smartlight-line-server, n_pucs: 15}", extra: str = "") -> Path:
    text = SMALL.read_text()
    assert text.count(BOARD) == 1
    path = directory / "unit.yaml"
    path.write_text(text.replace(BOARD, device).replace("columns: [2]", f"columns: [2]{extra}"))
    return path


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench.emulate(bench_file(tmp_path), seed=4) as opened:
        yield opened


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_light_goes_where_the_states_say(bench: Bench, seed: int) -> None:
    bar = np.random.default_rng(seed).random(15) < 0.5
    states: dict[int, PucState] = {puc: "bar" if bar[puc] else "cross" for puc in range(15)}
    sent = bench.mesh_states["mesh0"].program_states(states)
    assert sent.progress.endswith("configured\n")
    for module in bench.transponders:
        bench.emulated.world.set_transmitter(module, 1e-3 if module == "sfp-b" else 0.0)
    bench.clock.sleep(0.01)
    leaving_w = bench.emulated.world.mesh_output_w()
    port = bench.model.topology().trace(6, states).port
    assert int(np.argmax(leaving_w)) == port
    assert np.sort(leaving_w)[-2] < 10**-2.5 * leaving_w[port]


def test_cells_that_are_not_named_go_cold(bench: Bench) -> None:
    unit, world = bench.mesh_states["mesh0"], bench.emulated.world
    cold = world.cells().phase_upper.copy()
    unit.program_states({3: "bar", 9: "cross"})
    bench.clock.sleep(0.01)
    warm = world.cells()
    assert not np.allclose(warm.phase_upper - warm.phase_lower, cold)
    unit.program_states({})
    bench.clock.sleep(0.01)
    assert np.allclose(world.cells().phase_upper, cold)


def test_a_cell_that_this_mesh_does_not_have_is_refused(bench: Bench) -> None:
    with pytest.raises(LimitError, match="limit 14"):
        bench.mesh_states["mesh0"].program_states({15: "bar"})


def test_everything_that_needs_currents_is_refused_with_what_to_do(bench: Bench) -> None:
    with pytest.raises(ConfigError, match=r"supports neither calibration nor circuits.*mesh_states\['mesh0'\]"):
        _ = bench.mesh


def test_a_calibration_is_refused_as_a_matter_of_the_bench_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert calibrate_main(["run", str(bench_file(tmp_path)), "--emulate", "--out", str(tmp_path / "record.json")]) == 2
    assert "is controlled by cell states, not by heater currents" in capsys.readouterr().err
    assert not (tmp_path / "record.json").exists()


def test_after_the_bench_is_closed_nothing_is_sent_and_the_states_stay(tmp_path: Path) -> None:
    with Bench.emulate(bench_file(tmp_path), seed=4) as bench:
        unit, world = bench.mesh_states["mesh0"], bench.emulated.world
        unit.program_states({3: "bar"})
    with pytest.raises(LinkLost, match="nothing was sent"):
        unit.program_states({})
    bench.clock.sleep(0.01)
    cells = world.cells()
    assert abs((cells.phase_upper[3] - cells.phase_lower[3]) % (2 * np.pi) - np.pi) < 1e-6


def test_beside_another_controller_it_is_a_device_that_moves_no_light(tmp_path: Path) -> None:
    path = tmp_path / "both.yaml"
    path.write_text(SMALL.read_text().replace("devices:\n", "devices:\n  unit0: {kind: smartlight-line-server}\n"))
    with Bench.emulate(path, seed=4) as bench:
        bench.mesh.program(np.full(30, 1.0))
        bench.clock.sleep(0.01)
        before = bench.emulated.world.cells().phase_upper
        bench.mesh_states["unit0"].program_states({71: "bar", 0: "bar"})
        bench.clock.sleep(0.01)
        assert np.array_equal(bench.emulated.world.cells().phase_upper, before)


@pytest.mark.parametrize(
    ("device", "extra", "words"),
    [
        ("{kind: smartlight-line-server}", "", "mesh.controller: expected the 15 PUCs of the mesh, found 72"),
        (
            "{kind: smartlight-line-server, n_pucs: 14}",
            "",
            "devices.mesh0.n_pucs: expected the 15 PUCs of the mesh, found 14",
        ),
        ("{kind: smartlight-line-server, n_pucs: 73}", "", "devices.mesh0.n_pucs: expected at most 72"),
        (
            "{kind: smartlight-line-server, n_pucs: 15, address: 'serial:///dev/ttyUSB0'}",
            "",
            "devices.mesh0.address: expected an address of the form tcp://host:65432",
        ),
        (
            "{kind: smartlight-line-server, n_pucs: 15}",
            "\n  monitor_ports: [1]",
            "mesh.monitor_ports: expected no monitor_ports: 'mesh0' is of kind smartlight-line-server",
        ),
        (
            "{kind: smartlight-line-server, n_pucs: 15}",
            "\n  heater_channels: {0: [1, 0]}",
            "mesh.heater_channels: expected no heater_channels",
        ),
    ],
)
def test_a_mistake_is_reported_where_it_stands(tmp_path: Path, device: str, extra: str, words: str) -> None:
    found = [f"{problem.path}: {problem.message}" for problem in check_bench(bench_file(tmp_path, device, extra))]
    assert any(words in each for each in found), found
