"""Pictures of feed-forward meshes of cells: symbols of every kind, straight waveguides, heaters and unlit PUCs."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.cells import CELL_KINDS, NO_CHANNEL
from lumion_hw.mesh.layout.topologies import build_mesh
from lumion_hw.mesh.picture.drawing import PicturePath, mesh_svg
from lumion_hw.mesh.picture.symbols import Symbol, SymbolSize
from tests.mesh.picture.test_picture import SVG, Drawing

MESHES = [
    ("clements", 4), ("clements", 8), ("reck", 6), ("benes", 8), ("crossbar", 4), ("rectangular", 6),
    ("dilated-benes", 4), ("dilated-benes", 8), ("spanke", 4),
]  # fmt: skip
SIZE = SymbolSize(half=30.0, high=30.0, rail=24.0)


def has_box(drawing: Drawing, puc: int) -> bool:
    return any(node.attrib.get("class") != "heater" for node in drawing.by_id[f"puc-{puc}"].iter(f"{SVG}rect"))


def heaters(drawing: Drawing, puc: int) -> list[float]:
    """Return the heights of the heaters of a PUC above its axis, in px."""
    found = [node for node in drawing.by_id[f"puc-{puc}"].iter(f"{SVG}rect") if node.attrib.get("class") == "heater"]
    return [-float(node.attrib["y"]) - 0.5 * float(node.attrib["height"]) for node in found]


@pytest.mark.parametrize(("name", "size"), MESHES)
def test_every_puc_and_port_has_its_own_place(name: str, size: int) -> None:
    mesh = build_mesh(name, (size,))
    drawing = Drawing(mesh_svg(mesh))
    places = np.array([drawing.puc(puc)[0] for puc in range(mesh.n_pucs)])
    ports = np.array([drawing.port(port) for port in range(mesh.n_ports)])
    apart = np.abs(places[:, None] - places[None])
    scale = float(np.min(np.ptp(mesh.end_positions[0], axis=0).max() * 62.0))
    # Bodies are 0.54 lengths long and 0.63 high.
    covering = (apart[..., 0] < 0.54 * scale) & (apart[..., 1] < 0.63 * scale)
    np.testing.assert_array_equal(covering, np.eye(mesh.n_pucs, dtype=bool))
    for first, second in itertools.combinations(ports, 2):
        assert np.linalg.norm(first - second) > 19.0
    assert {str(port) for port in range(mesh.n_ports)} <= set(drawing.texts)


@pytest.mark.parametrize(("name", "size"), [("clements", 4), ("clements", 8), ("reck", 6), ("rectangular", 6)])
def test_waveguides_are_straight(name: str, size: int) -> None:
    mesh = build_mesh(name, (size,))
    drawing = Drawing(mesh_svg(mesh))
    for joint in range(len(mesh.joints)):
        numbers = [float(n) for n in re.findall(r"-?[\d.]+", drawing.by_id[f"joint-{joint}"].attrib["d"])]
        assert np.ptp(numbers[1::2]) == 0.0
        assert (np.diff(numbers[0::2]) > 0.0).all()


@pytest.mark.parametrize(("name", "size"), [("benes", 8), ("dilated-benes", 8), ("spanke", 8)])
def test_waveguides_of_a_switch_fabric_never_run_backwards(name: str, size: int) -> None:
    mesh = build_mesh(name, (size,))
    drawing = Drawing(mesh_svg(mesh))
    for joint in range(len(mesh.joints)):
        x = np.array([float(n) for n in re.findall(r"-?[\d.]+", drawing.by_id[f"joint-{joint}"].attrib["d"])][0::2])
        assert x[0] < x[1] < x[3]
        assert x[0] < x[2] < x[3]


def test_an_mzi_is_a_box_and_a_phase_shifter_a_heater_on_a_waveguide() -> None:
    mesh = build_mesh("clements", (4,))
    drawing = Drawing(mesh_svg(mesh))
    assert [has_box(drawing, puc) for puc in range(14)] == [bool(split) for split in mesh.interferes]
    assert mesh.cell_kinds[0:2] == ("upper-phase", "upper-arm")
    assert len(heaters(drawing, 0)) == len(heaters(drawing, 1)) == 1
    assert heaters(drawing, 0)[0] > 0.0  # on the upper waveguide
    assert mesh.cell_kinds[12] == "two-phases"
    assert [np.sign(height) for height in heaters(drawing, 12)] == [1.0, -1.0]
    assert "phase shifter" in drawing.texts
    assert drawing.by_id["puc-0"].findtext(f"{SVG}title") == "PUC 0: phase shifter on the upper waveguide"
    assert (drawing.by_id["puc-1"].findtext(f"{SVG}title") or "").startswith("PUC 1: no state, Mach-Zehnder")


def test_every_kind_of_cell_has_a_symbol_of_its_own() -> None:
    symbols = {name: Symbol(kind).svg(SIZE) for name, kind in CELL_KINDS.items()}
    assert len(set(symbols.values())) == len(CELL_KINDS)


@pytest.mark.parametrize(("name", "crosses"), [("crossing", True), ("lower-phase", False), ("two-phases", False)])
def test_a_cell_without_couplers_shows_where_its_light_goes(name: str, crosses: bool) -> None:
    svg = Symbol(CELL_KINDS[name]).svg(SIZE)
    rails = re.findall(r'<path d="(M[^"]*)"', svg)[-1].split("M")[1:]
    for rail in rails:
        heights = [float(number) for number in re.findall(r"-?[\d.]+", rail)][1::2]
        assert (heights[0] == -heights[-1]) is crosses


def test_heaters_carry_their_drive_channels() -> None:
    mesh = build_mesh("clements", (4,))
    channels = [NO_CHANNEL] * 28
    channels[0], channels[2], channels[25] = 7, 30, 15
    drawing = Drawing(mesh_svg(mesh, heater_channels=channels))
    shown = [node.text for puc in (0, 1, 12) for node in drawing.by_id[f"puc-{puc}"].iter(f"{SVG}text")]
    assert shown == ["c7", "c30", "c15"]
    assert not heaters(drawing, 4)  # a heater without a channel cannot be driven
    assert (drawing.by_id["puc-12"].findtext(f"{SVG}title") or "").endswith("channel 15 (lower)")
    assert "heater, drive channel" in drawing.texts


def test_pucs_without_light_are_dashed_and_named() -> None:
    mesh = build_mesh("clements", (4,))
    drawing = Drawing(mesh_svg(mesh, unlit=[0, 3]))
    for puc in (0, 3):
        body = next(drawing.by_id[f"puc-{puc}"].iter(f"{SVG}rect"))
        assert body.attrib["stroke-dasharray"] == "6 3"
        assert (drawing.by_id[f"puc-{puc}"].findtext(f"{SVG}title") or "").endswith(", no light")
    assert "no light" in drawing.texts
    assert "no light" not in Drawing(mesh_svg(mesh)).texts
    with pytest.raises(ConfigError, match=r"unlit PUCs \[14\] do not exist"):
        mesh_svg(mesh, unlit=[14])


def test_a_dark_phase_shifter_has_one_row_and_its_waveguides_are_dashed() -> None:
    mesh = build_mesh("clements", (4,))
    drawing = Drawing(mesh_svg(mesh, unlit=[2, 3], fibres=[0, 1, 4, 5, 6, 7], heater_channels=range(28)))
    shifter, interferometer = (next(drawing.by_id[f"puc-{puc}"].iter(f"{SVG}rect")) for puc in (2, 3))
    assert 2.0 * float(shifter.attrib["height"]) < float(interferometer.attrib["height"])
    joints = [tuple(end // 4 for end in ends) for ends in mesh.joints.tolist()]
    dashed = [pucs for i, pucs in enumerate(joints) if "stroke-dasharray" in drawing.by_id[f"joint-{i}"].attrib]
    # PUCs 4 and 8 are phase shifters on the waveguide beside the dark one: their other waveguide is lit.
    assert sorted(dashed) == [(2, 3), (2, 3), (3, 4), (3, 8), (4, 5), (8, 9)]
    assert joints.count((8, 9)) == 2
    assert "port without fibre" in drawing.texts


def test_each_heater_of_a_double_phase_shifter_has_its_number_above_it() -> None:
    mesh = build_mesh("clements", (4,))
    drawing = Drawing(mesh_svg(mesh, heater_channels=range(28)))
    numbers = [node for node in drawing.root.iter(f"{SVG}text") if node.text == "12"]
    assert len({node.attrib["y"] for node in numbers}) == 2  # PUC 12; its channels are c24 and c25
    assert drawing.texts.count("11") == 1


def test_the_key_explains_only_the_states_that_are_drawn() -> None:
    mesh = build_mesh("clements", (4,))
    texts = Drawing(mesh_svg(mesh, states={1: "bar"})).texts
    assert "= bar: keeps its rail" in texts
    assert "no state given" in texts
    assert "× cross: changes rail" not in texts
    assert "interferometer" in Drawing(mesh_svg(mesh)).texts


def test_a_path_passes_a_phase_shifter_on_its_own_waveguide_in_any_state() -> None:
    mesh = build_mesh("clements", (3,))
    trace = mesh.trace(0, dict.fromkeys(range(mesh.n_pucs), "cross"))
    path = PicturePath("a", 0, trace.pucs)
    drawing = Drawing(mesh_svg(mesh, states=dict.fromkeys(range(mesh.n_pucs), "cross"), paths=[path]))
    first, last = drawing.curves(0)[0], drawing.curves(0)[-1]
    np.testing.assert_allclose(first[0], drawing.port(0), atol=0.11)
    np.testing.assert_allclose(last[3], drawing.port(trace.port), atol=0.11)
    inside = drawing.curves(0)[1]  # PUC 0 is a phase shifter
    assert inside[0][1] == inside[3][1]


def test_a_long_key_continues_in_a_second_row() -> None:
    mesh = build_mesh("clements", (3,))
    drawing = Drawing(
        mesh_svg(
            mesh,
            states={1: "bar", 3: "cross"},
            failed=[1],
            parked=[2],
            unlit=[3],
            heater_channels=range(2 * mesh.n_pucs),
        )
    )
    rows = {
        node.attrib["y"]: float(node.attrib["x"])
        for node in drawing.root.iter(f"{SVG}text")
        if node.text in ("= bar: keeps its rail", "port")
    }
    assert len(rows) == 2
    assert max(rows.values()) < float(drawing.root.attrib["width"])
