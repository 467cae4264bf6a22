"""Benches whose mesh is a netlist beside the bench file."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from lumion_hw.bench.file.loader import check_bench, load_bench
from lumion_hw.bench.file.model import BenchModel
from lumion_hw.cli import main
from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.netlist import NetlistMesh
from tests.calibration.bench_run import SMALL

NETLIST = Path(__file__).parents[2] / "data" / "netlists" / "clements4.yml"


def netlist_bench(folder: Path, **mesh: Any) -> Path:
    """Write a bench file like ``switched.yaml`` for the chip of a netlist beside it."""
    shutil.copy(NETLIST, folder)
    document = yaml.safe_load(SMALL.with_name("switched.yaml").read_text())
    document["mesh"] = {"controller": "mesh0", "topology": "netlist", "netlist": NETLIST.name} | mesh
    document["mesh"] = {key: value for key, value in document["mesh"].items() if value is not None}
    path = folder / "bench.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def test_the_netlist_is_found_beside_the_bench_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    model = load_bench(netlist_bench(tmp_path))
    mesh = model.topology()
    assert isinstance(mesh, NetlistMesh)
    assert mesh.label == "netlist clements4.yml"
    assert mesh.port_names[4:] == ("out0", "out1", "out2", "out3")
    # The model is complete: over a network its JSON text is all that a client gets.
    (tmp_path / NETLIST.name).unlink()
    assert BenchModel.model_validate_json(model.model_dump_json(exclude_unset=True)).topology() == mesh


def test_cells_say_what_a_component_is(tmp_path: Path) -> None:
    mesh = load_bench(netlist_bench(tmp_path, cells={"theta_0_0": "two-arm"})).topology()
    assert mesh.cell_kinds.count("two-arm") == 1


def only_problem(path: Path) -> str:
    (problem,) = check_bench(path)
    return str(problem)


@pytest.mark.parametrize(
    ("mesh", "path", "message"),
    [
        ({"netlist": "no.yml"}, "mesh.netlist", "cannot read netlist"),
        ({"netlist": None}, "mesh.topology", "expected also netlist"),
        ({"topology": "clements", "ports": 4}, "mesh.netlist", "does not apply to a clements mesh"),
        ({"ports": 4}, "mesh.ports", "does not apply to a netlist mesh"),
        ({"cells": {"mzi": "mzm"}}, "mesh.cells.mzi", "two-arm"),
        ({"cells": {"mzi": "fixed"}}, None, ""),
        ({"netlist_top": "inner"}, None, ""),
        ({"netlist": 3}, "mesh.netlist", "found the number 3"),
    ],
)
def test_a_wrong_key_is_one_mistake(tmp_path: Path, mesh: dict[str, Any], path: str | None, message: str) -> None:
    bench = netlist_bench(tmp_path, **mesh)
    if path is None:
        assert check_bench(bench) == ()
        return
    text = only_problem(bench)
    assert f" {path}: " in text
    assert message in text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("instances:", "instances: [", "clements4.yml:"),
        ('p1: "', 'p1: "x', "belongs to no instance"),
        ("component: mzi\n", "component: mzm\n", "unknown component 'mzm'"),
    ],
)
def test_a_damaged_netlist_is_one_mistake(tmp_path: Path, old: str, new: str, message: str) -> None:
    bench = netlist_bench(tmp_path)
    copy = tmp_path / NETLIST.name
    text = copy.read_text()
    old, new = (old, new) if old in text else (old.replace('"', "'"), new.replace('"', "'"))
    assert old in text
    copy.write_text(text.replace(old, new, 1))
    problem = only_problem(bench)
    assert " mesh.netlist: expected the netlist of a mesh: clements4.yml" in problem
    assert message in problem


def test_a_binary_netlist_is_one_mistake(tmp_path: Path) -> None:
    bench = netlist_bench(tmp_path)
    (tmp_path / NETLIST.name).write_bytes(b"instances:\n \xff")
    assert "expected UTF-8 text" in only_problem(bench)
    assert "line 2" in only_problem(bench)


def test_a_model_from_python_needs_the_text(tmp_path: Path) -> None:
    data = yaml.safe_load(netlist_bench(tmp_path).read_text())
    with pytest.raises(ValueError, match="expected also netlist_text"):
        BenchModel.model_validate(data)
    data["mesh"]["netlist_text"] = NETLIST.read_text()
    assert BenchModel.model_validate(data).topology().n_pucs == 15


def test_the_command_lists_the_channel_of_every_heater(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench = netlist_bench(tmp_path, heater_channels={0: [14, None], 14: [0, None]})
    assert main(["mesh", "heaters", "--mesh", str(bench), "--json"]) == 0
    cells = {cell["name"]: cell for cell in json.loads(capsys.readouterr().out)["cells"]}
    assert cells["out_0"] == {"cell": 0, "name": "out_0", "kind": "upper-phase", "upper": 14, "lower": None}
    assert cells["theta_3_1"]["upper"] == 0
    assert main(["mesh", "heaters", "--mesh", str(bench)]) == 0
    assert "theta_3_1  upper-arm" in capsys.readouterr().out


def test_the_commands_of_a_mesh_read_a_netlist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench, document, picture = netlist_bench(tmp_path), tmp_path / "mesh.json", tmp_path / "mesh.svg"
    assert main(["mesh", "show", "--mesh", str(bench), "--json"]) == 0
    document.write_text(capsys.readouterr().out)
    assert main(["mesh", "route", "--mesh", str(document), "--connect", "0:5", "--svg", str(picture)]) == 0
    svg = picture.read_text()
    assert "clements4.yml" in svg
    assert re.findall(r'id="puc-(\d+)"', svg) == [str(puc) for puc in range(15)]
    # The unused waveguides of nine phase shifters would hide the ports with a fibre.
    assert re.findall(r'id="port-(\d+)"', svg) == [str(port) for port in range(8)]
    # A phase shifter lies on one waveguide, and the inputs 0 to 3 on the left are as far apart as the waveguides.
    assert (shifter := re.search(r'id="puc-0".*?d="([^"]*)"', svg, re.DOTALL)) is not None
    assert shifter[1].count("M") == 1
    places = re.findall(r'id="port-[0-3]"><title>[^<]*</title>\s*<circle cx="[\d.]+" cy="([\d.]+)"', svg)
    heights = [float(place) for place in places]
    assert len(heights) == 4
    assert np.ptp(np.diff(heights)) < 0.2


def test_a_missing_netlist_is_an_error_of_the_bench_file(tmp_path: Path) -> None:
    bench = netlist_bench(tmp_path, netlist="no.yml")
    with pytest.raises(ConfigError, match=r"1 mistake in bench file .*\n.*mesh.netlist: .*no\.yml"):
        load_bench(bench)
