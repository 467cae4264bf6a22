"""`lumion mesh`: pictures, routes and matchings from the command line."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest
import yaml

from lumion_hw.cli import main
from lumion_hw.mesh.layout.hexagonal import HexMesh
from tests.waiting import PATIENCE_S

ROOT = pathlib.Path(__file__).parents[2]
CLEMENTS = ROOT / "examples" / "benches" / "clements-4x4-qontrol.yaml"


def test_the_help_of_the_group_loads_neither_numpy_nor_scipy() -> None:
    code = (
        "import sys; from lumion_hw.cli import main; main(['mesh', '--help']); "
        "sys.exit(bool({'numpy', 'scipy', 'ortools'} & set(sys.modules)))"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=PATIENCE_S, check=False).returncode
        == 0
    )


@pytest.mark.parametrize(("layout", "pucs"), [("smartlight", 72), ("rings:2", 30), ("columns:2,3,2", 34)])
def test_show_draws_every_puc_of_the_mesh(layout: str, pucs: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Columns 2 3 2: (3C + 2)·r + (7C + 3)/2 = 22 + 12 PUCs (docs/sources.md)."""
    assert main(["mesh", "show", "--mesh", layout]) == 0
    picture = ET.fromstring(capsys.readouterr().out)
    assert sum(1 for each in picture.iter() if each.get("id", "").startswith("puc-")) == pucs


def test_cells_without_light_from_the_wired_inputs_are_marked_and_named(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a Clements mesh of four modes, light from mode 0 alone never enters the MZI between modes 2 and 3 in front."""
    text = (ROOT / "examples" / "benches" / "clements-4x4-qontrol.yaml").read_text(encoding="utf-8")
    bench, picture = tmp_path / "bench.yaml", tmp_path / "mesh.svg"
    bench.write_text(text, encoding="utf-8")
    assert main(["mesh", "show", "--mesh", str(bench), "-o", str(picture)]) == 0
    assert "no light" not in picture.read_text(encoding="utf-8") + capsys.readouterr().err
    document = yaml.safe_load(text)
    document["wiring"]["inputs"] = document["wiring"]["inputs"][:1]
    bench.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    assert main(["mesh", "show", "--mesh", str(bench), "-o", str(picture), "--force"]) == 0
    assert "no light" in picture.read_text(encoding="utf-8")
    warning = "gets no light from your inputs: add an input at port"
    assert warning in capsys.readouterr().err
    assert main(["bench", "check", str(bench)]) == 0
    assert warning in capsys.readouterr().err


def test_many_cells_without_light_end_in_one_line_that_counts_them(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a Clements mesh of twelve modes, light from mode 0 enters one MZI of the first column, none of the next."""
    document = yaml.safe_load((ROOT / "examples" / "benches" / "clements-12x12-photodiodes.yaml").read_text())
    document["wiring"]["inputs"] = document["wiring"]["inputs"][:1]
    bench, picture = tmp_path / "bench.yaml", tmp_path / "mesh.svg"
    bench.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    assert main(["mesh", "show", "--mesh", str(bench), "-o", str(picture)]) == 0
    *named, summary = capsys.readouterr().err.splitlines()[1:]
    n_dark = picture.read_text(encoding="utf-8").count(", no light")
    assert len(named) == 4
    assert n_dark > 4
    assert summary == f"{n_dark} PUCs in all are not measured; the picture marks them."
    assert main(["bench", "check", str(bench)]) == 0
    assert f"not measured; `lumion mesh show --mesh {bench}` marks them." in capsys.readouterr().err


def test_show_draws_states_and_couplings(tmp_path: pathlib.Path) -> None:
    picture = tmp_path / "mesh.svg"
    settings = ["--state", "3=bar", "--state", "4=cross", "--state", "5=0.25"]
    assert main(["mesh", "show", *settings, "-o", str(picture)]) == 0
    text = picture.read_text(encoding="utf-8")
    for title in ("PUC 3: bar", "PUC 4: cross", "PUC 5: coupling 0.25", "PUC 6: no state"):
        assert f"<title>{title}" in text


def test_a_mesh_shown_as_json_is_read_back_by_the_other_commands(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mesh", "show", "--mesh", "rings:2", "--json"]) == 0
    path = tmp_path / "mesh.json"
    path.write_text(capsys.readouterr().out)
    assert main(["mesh", "route", "--mesh", str(path), "--connect", "0:9", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mesh_sha256"] == HexMesh.rings(2).sha256


def test_a_bench_file_names_a_mesh_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mesh", "show", "--mesh", "lumion-prototype", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sha256"] == HexMesh.smartlight().sha256


def test_route_prints_one_document_whose_states_carry_the_light(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["mesh", "route", "--connect", "0:20", "--connect", "39:15", "--json"]
    assert main(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["total_hops"], document["outcome"]) == (30, "optimal")  # 15 PUCs each: Sánchez-Jácome 2025
    mesh = HexMesh.smartlight()
    states = {int(puc): state for puc, state in (document["states"] | document["parked"]).items()}
    assert len(states) == 72
    for path in document["paths"]:
        trace = mesh.trace(path["source"], states)
        assert (trace.port, list(trace.pucs)) == (path["target"], path["pucs"])


def test_route_prints_a_table_and_draws_a_picture(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "routes.svg"
    assert main(["mesh", "route", "--connect", "3:4", "--svg", str(picture)]) == 0
    out, err = capsys.readouterr()
    assert "3   4     1  0.50     15=" in out
    assert "total 1 hops; cost 0.5, proven optimal; found by negotiation" in out
    assert str(picture) in err
    assert any(each.get("id") == "path-0" for each in ET.parse(picture).iter())


def test_faults_and_limits_are_options(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["mesh", "route", "--connect", "0:5", "--stuck", "10=bar", "--stuck", "7=0.5", "--excess-loss", "16=9"]
    assert main([*arguments, "--exact-hops", "0=10", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["paths"][0]["hops"] == 10
    assert document["states"].get("10", "bar") == "bar"
    assert "7" not in document["states"] | document["parked"]


def test_a_pair_is_matched_in_length_and_certified(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "mesh",
        "route",
        "--connect",
        "0:6",
        "--connect",
        "39:15",
        "--equal-hops",
        "0,1",
        "--certify",
        "--json",
    ]
    assert main(arguments) == 0
    first, second = json.loads(capsys.readouterr().out)["paths"]
    assert first["hops"] == second["hops"] == 15


def test_what_cannot_be_routed_is_one_paragraph_and_exit_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mesh", "route", "--connect", "0:20", "--max-hops", "14"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "no path from port 0 to port 20 within 14 hops (proven)" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["route", "--connect", "0-5"], "'0-5' is not of the form 5:12"),
        (["route", "--connect", "0:5", "--stuck", "3"], "not of the form PUC=VALUE"),
        (["route", "--connect", "0:5", "--stuck", "3=half"], "'half' is not a state; give bar, cross or a coupling"),
        (["route", "--connect", "0:5", "--stuck", "99=bar"], "faulty PUCs [99] do not exist"),
        (["route", "--connect", "0:5", "--mesh", "rings:x"], "'x' is not of the form"),
        (["show", "--mesh", "rings:0"], "cannot build a mesh of 0 rings"),
        (["show", "--mesh", "absent.json"], "mesh file absent.json"),
        (["show", "--state", "3=half"], "'half' is not a state; give bar, cross or a coupling from 0 to 1"),
        (["show", "--state", "3=1.5"], "1.5 is out of range; give 0 to 1"),
        (["show", "--state", "72=bar"], "there is no PUC 72; this mesh has PUCs 0 to 71"),
        (
            ["show", "--mesh", str(CLEMENTS), "--state", "0=bar"],
            "PUC 0 has no states: it is a phase shifter on the upper",
        ),
        (["matchings"], "either --ports or --count"),
        (["matchings", "--ports", "1,2", "--count", "4"], "either --ports or --count"),
        (["matchings", "--count", "40"], "28 fibre ports"),
    ],
)
def test_wrong_usage_is_named_with_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mesh", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_matchings_join_every_pair_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mesh", "matchings", "--ports", "0,5,9,14,18,20", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["lower_bound"] == len(document["configurations"]) == 5
    joined = sorted(tuple(pair) for each in document["configurations"] for pair in each["pairs"])
    ports = [0, 5, 9, 14, 18, 20]
    assert joined == [(a, b) for i, a in enumerate(ports) for b in ports[i + 1 :]]


def test_matchings_are_told_against_the_lower_bound(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mesh", "matchings", "--count", "4"]) == 0
    assert "3 configurations for 4 ports, lower bound 3" in capsys.readouterr().out
