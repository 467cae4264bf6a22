from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import groupby, pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.layout.topology import State
from lumion_hw.mesh.picture.drawing import PicturePath, mesh_svg
from lumion_hw.mesh.routing import RouteRequest, route

SVG = "{http://www.w3.org/2000/svg}"
SWITCH = list(zip([0, 39, 38, 37, 36, 35], [18, 15, 20, 17, 16, 19], strict=True))

# Published circuits from port 0 (Sánchez-Jácome 2025): one in cross and bar, one from cross to port 6.
GOLDEN: list[tuple[tuple[int, ...], dict[int, State]]] = [
    ((0, 6, 10, 16, 20, 19), {0: "cross", 6: "cross", 10: "cross", 16: "bar", 20: "bar", 19: "cross"}),
    ((0, 6, 9, 15, 19, 25, 28), {0: "cross", 6: "bar", 9: "cross", 15: "bar", 19: "cross", 25: "bar", 28: "bar"}),
]


class Drawing:
    """A picture read back: elements by id, and the geometry of lines and PUCs."""

    def __init__(self, svg: str) -> None:
        self.text = svg
        self.root = ET.fromstring(svg)
        self.by_id = {node.attrib["id"]: node for node in self.root.iter() if "id" in node.attrib}
        self.texts = [node.text or "" for node in self.root.iter(f"{SVG}text")]

    def puc(self, number: int) -> tuple[NDArray[np.float64], float]:
        """Return centre and clockwise angle in rad of a PUC."""
        transform = self.by_id[f"puc-{number}"].attrib["transform"]
        x, y, angle = map(float, re.findall(r"-?[\d.]+", transform))
        return np.array([x, y]), np.radians(angle)

    def port(self, number: int) -> NDArray[np.float64]:
        disc = self.by_id[f"port-{number}"].find(f"{SVG}circle")
        assert disc is not None
        return np.array([float(disc.attrib["cx"]), float(disc.attrib["cy"])])

    def curves(self, path: int) -> NDArray[np.float64]:
        """Return the control points of a circuit's line, shape (curves, 4, 2)."""
        line = self.by_id[f"path-{path}"].find(f"{SVG}path")
        assert line is not None
        numbers = np.array([float(n) for n in re.findall(r"-?[\d.]+", line.attrib["d"])]).reshape(-1, 2)
        assert len(numbers) % 3 == 1
        return np.array([numbers[i : i + 4] for i in range(0, len(numbers) - 1, 3)])

    def points(self, path: int) -> NDArray[np.float64]:
        """Return points all along a circuit's line."""
        t = np.linspace(0, 1, 24)[:, None]
        return np.concatenate(
            [
                (1 - t) ** 3 * a + 3 * t * (1 - t) ** 2 * b + 3 * t**2 * (1 - t) * c + t**3 * d
                for a, b, c, d in self.curves(path)
            ]
        )

    def scale(self) -> float:
        """Return the px per PUC length: PUCs 0 and 1 lie in one column, 0.866 apart downwards."""
        return float(np.linalg.norm(self.puc(1)[0] - self.puc(0)[0])) / np.sqrt(0.75)


def drawn(mesh: HexMesh, pairs: list[tuple[int, int]], **options: object) -> tuple[Drawing, list[PicturePath]]:
    routing = route(mesh, RouteRequest(pairs))
    paths = [
        PicturePath(f"srv{i}/nic0 → srv{i + 9}/nic1", path.source, path.pucs, loss_db=path.loss_db)
        for i, path in enumerate(routing.paths)
    ]
    return Drawing(mesh_svg(mesh, states=routing.states, paths=paths, **options)), paths  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------ document


def test_the_picture_is_one_self_contained_document(smartlight: HexMesh) -> None:
    drawing, _ = drawn(smartlight, SWITCH, title="6×6 switch", failed=[15])
    assert drawing.root.tag == f"{SVG}svg"
    assert drawing.root.attrib["width"] == "1200"
    assert drawing.root.attrib["viewBox"].startswith("0 0 1200 ")
    body = drawing.text.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?:|href|url\(|<script|<style|<image|@import", body)


def test_every_puc_joint_port_and_path_has_an_id_of_its_own(smartlight: HexMesh) -> None:
    drawing, _ = drawn(smartlight, SWITCH)
    expected = {f"puc-{i}" for i in range(72)} | {f"port-{i}" for i in range(40)}
    expected |= {f"joint-{i}" for i in range(124)} | {f"path-{i}" for i in range(6)}
    assert set(drawing.by_id) == expected
    assert drawing.text.count(' id="') == len(expected)


def test_the_whole_picture_lies_on_the_page(smartlight: HexMesh) -> None:
    drawing, _ = drawn(smartlight, SWITCH)
    width, height = (float(drawing.root.attrib[side]) for side in ("width", "height"))
    places = [drawing.port(port) for port in range(40)] + [drawing.puc(puc)[0] for puc in range(72)]
    assert np.all(np.array(places) > 0)
    assert np.all(np.array(places) < [width, height])


@pytest.mark.parametrize("cells", [[1], [3, 2, 3], [2, 3, 2, 3], [4, 5, 4, 5, 4, 5, 4, 5, 4, 5, 4, 5, 4]], ids=str)
def test_any_layout_can_be_drawn(cells: list[int]) -> None:
    mesh = HexMesh.columns(cells)
    drawing = Drawing(mesh_svg(mesh))
    assert sum(name.startswith("puc-") for name in drawing.by_id) == mesh.n_pucs
    assert float(drawing.root.attrib["width"]) >= 1200
    assert drawing.scale() >= 61  # large meshes make the page wider, not the PUCs unreadable


def test_pucs_stand_where_the_mesh_has_them(smartlight: HexMesh) -> None:
    drawing = Drawing(mesh_svg(smartlight))
    scale, (origin, _) = drawing.scale(), drawing.puc(0)
    for puc in range(72):
        offset = (smartlight.puc_centres[puc] - smartlight.puc_centres[0]) * [scale, -scale]
        np.testing.assert_allclose(drawing.puc(puc)[0], origin + offset, atol=0.6)


def test_the_two_ports_of_a_corner_do_not_cover_each_other(smartlight: HexMesh) -> None:
    drawing = Drawing(mesh_svg(smartlight))
    for corner in range(20):
        assert np.linalg.norm(drawing.port(2 * corner) - drawing.port(2 * corner + 1)) > 19


# ------------------------------------------------------------------------------------------------------------- circuits


def passed(drawing: Drawing, path: int, n_pucs: int) -> list[int]:
    """Return the PUCs through whose middle a line runs, in order."""
    centres = np.array([drawing.puc(puc)[0] for puc in range(n_pucs)])
    distance = np.linalg.norm(drawing.points(path)[:, None, :] - centres[None, :, :], axis=2)
    nearest, near = distance.argmin(axis=1), distance.min(axis=1) < 0.13 * drawing.scale()
    hits = [int(puc) for puc, close in zip(nearest, near, strict=True) if close]
    return [puc for puc, _ in groupby(hits)]


def test_each_line_runs_through_its_pucs_in_order_from_port_to_port(smartlight: HexMesh) -> None:
    drawing, paths = drawn(smartlight, SWITCH)
    for index, (path, (source, target)) in enumerate(zip(paths, SWITCH, strict=True)):
        assert passed(drawing, index, 72) == list(path.pucs)
        assert drawing.by_id[f"path-{index}"].attrib["data-pucs"] == " ".join(map(str, path.pucs))
        curves = drawing.curves(index)
        np.testing.assert_allclose(curves[0, 0], drawing.port(source), atol=0.11)
        np.testing.assert_allclose(curves[-1, -1], drawing.port(target), atol=0.11)


@pytest.mark.parametrize(("pucs", "states"), GOLDEN, ids=["to-port-5", "to-port-6"])
def test_a_line_changes_rails_in_cross_and_keeps_its_rail_in_bar(
    smartlight: HexMesh, pucs: tuple[int, ...], states: dict[int, State]
) -> None:
    drawing = Drawing(mesh_svg(smartlight, states=states, paths=[PicturePath("golden", 0, pucs)]))
    inside = drawing.curves(0)[1:-1:2]  # lead, PUC, joint, PUC, ..., PUC, lead
    assert len(inside) == len(pucs)
    for puc, curve in zip(pucs, inside, strict=True):
        centre, angle = drawing.puc(puc)
        across = np.array([-np.sin(angle), np.cos(angle)])
        side_in, side_out = np.sign((curve[0] - centre) @ across), np.sign((curve[3] - centre) @ across)
        assert (side_in == side_out) == (states[puc] == "bar")


def test_lines_have_no_kinks(smartlight: HexMesh) -> None:
    drawing, _ = drawn(smartlight, SWITCH)
    for path in range(6):
        for before, after in pairwise(drawing.curves(path)):
            arriving, leaving = before[3] - before[2], after[1] - after[0]
            cosine = arriving @ leaving / np.linalg.norm(arriving) / np.linalg.norm(leaving)
            assert cosine > 0.999
            np.testing.assert_array_equal(before[3], after[0])


def test_joints_meet_the_lines_that_run_on_them(smartlight: HexMesh) -> None:
    """The curve a circuit takes between two PUCs is the joint drawn there, in either direction."""
    drawing, _ = drawn(smartlight, SWITCH[:1])
    joints = []
    for index in range(124):
        numbers = np.array([float(n) for n in re.findall(r"-?[\d.]+", drawing.by_id[f"joint-{index}"].attrib["d"])])
        joints += [numbers.reshape(4, 2), numbers.reshape(4, 2)[::-1]]
    for curve in drawing.curves(0)[2:-1:2]:
        assert min(np.abs(joint - curve).max() for joint in joints) < 0.11


def test_arrow_heads_point_the_way_the_light_goes(smartlight: HexMesh) -> None:
    drawing = Drawing(mesh_svg(smartlight, states={15: "bar"}, paths=[PicturePath("one", 3, [15])]))
    back = Drawing(mesh_svg(smartlight, states={15: "bar"}, paths=[PicturePath("one", 4, [15])]))
    heads, reversed_heads = (
        [node.attrib["transform"] for node in d.by_id["path-0"].iter(f"{SVG}path") if "transform" in node.attrib]
        for d in (drawing, back)
    )
    # In through port 3 and out through port 4, both on top: down, level to the right, up.
    angles = [float(re.findall(r"rotate\((-?\d+)\)", head)[0]) for head in heads]
    assert len(angles) == 3
    assert abs(angles[0] - 75) < 30
    assert angles[1] == 0
    assert abs(angles[2] + 75) < 30
    assert abs(float(re.findall(r"rotate\((-?\d+)\)", reversed_heads[1])[0])) == 180


def test_circuits_differ_in_colour_and_in_dash(smartlight: HexMesh) -> None:
    drawing, _ = drawn(smartlight, SWITCH)
    lines = [drawing.by_id[f"path-{i}"].findall(f"{SVG}path")[1] for i in range(6)]
    assert len({line.attrib["stroke"] for line in lines}) == 6
    assert len({line.attrib.get("stroke-dasharray") for line in lines}) == 6


def test_a_colour_can_be_chosen(smartlight: HexMesh) -> None:
    path = PicturePath("one", 3, [15], colour="#123456")
    drawing = Drawing(mesh_svg(smartlight, states={15: "bar"}, paths=[path]))
    assert drawing.by_id["path-0"].findall(f"{SVG}path")[1].attrib["stroke"] == "#123456"


# ---------------------------------------------------------------------------------------------------- words and symbols


def test_the_legend_tells_name_ports_hops_and_loss(smartlight: HexMesh) -> None:
    drawing, paths = drawn(smartlight, [(0, 15), (3, 4)])
    assert paths[0].label in drawing.texts
    assert "port 0 → port 15" in drawing.texts
    assert "15 PUCs" in drawing.texts
    assert "7.5 dB" in drawing.texts  # 15 hops of 0.5 dB
    assert "1 PUC" in drawing.texts
    assert "0.5 dB" in drawing.texts


def test_names_stand_at_both_ends_of_a_circuit(smartlight: HexMesh) -> None:
    both = PicturePath("one", 3, [15], source_name="srv1/nic0", target_name="srv5/nic1")
    drawing = Drawing(mesh_svg(smartlight, states={15: "bar"}, paths=[both]))
    assert drawing.texts.count("srv1/nic0") == drawing.texts.count("srv5/nic1") == 1
    label_only = Drawing(mesh_svg(smartlight, states={15: "bar"}, paths=[PicturePath("one", 3, [15])]))
    assert label_only.texts.count("one") == 3  # both ends and the legend


def test_long_names_are_shortened_on_the_mesh_but_whole_in_the_tooltip(smartlight: HexMesh) -> None:
    name = "the server in the far corner of the laboratory, interface west"
    drawing = Drawing(mesh_svg(smartlight, states={15: "bar"}, paths=[PicturePath(name, 3, [15])]))
    assert name not in drawing.texts
    assert sum(text.startswith("the server") and text.endswith("…") for text in drawing.texts) == 3
    assert drawing.by_id["path-0"].findtext(f"{SVG}title") == name
    assert name in (drawing.root.findtext(f"{SVG}desc") or "")


def test_labels_cannot_break_the_document(smartlight: HexMesh) -> None:
    nasty = """a<b>&"c" 'd'</text>"""
    path = PicturePath(nasty, 3, [15], colour='"/><script>alert(1)</script>', source_name="<&>", target_name='"x"')
    drawing = Drawing(mesh_svg(smartlight, states={15: "bar"}, paths=[path], title="T<1> & co"))
    assert drawing.root.findtext(f"{SVG}title") == "T<1> & co"
    assert {nasty, "<&>", '"x"', "T<1> & co"} <= set(drawing.texts)
    assert not list(drawing.root.iter(f"{SVG}script"))


def test_pucs_carry_number_and_state(smartlight: HexMesh) -> None:
    drawing = Drawing(mesh_svg(smartlight, states={15: "bar", 16: "cross"}))
    assert {"15 =", "16 ×", "17"} <= set(drawing.texts)
    titles = [drawing.by_id[f"puc-{puc}"].findtext(f"{SVG}title") for puc in (15, 16, 17)]
    assert titles == ["PUC 15: bar", "PUC 16: cross", "PUC 17: no state"]


def test_the_rails_of_a_puc_show_its_state(smartlight: HexMesh) -> None:
    """Drawn level, from end A on the left: each rail comes out at its own height in bar, at the other's in cross."""
    drawing = Drawing(mesh_svg(smartlight, states={15: "bar", 16: "cross"}))
    for puc, kept in ((15, True), (16, False)):
        rails = drawing.by_id[f"puc-{puc}"].findall(f"{SVG}path")[-1].attrib["d"].split("M")[1:]
        assert len(rails) == 2
        for rail in rails:
            heights = [float(number) for number in re.findall(r"-?[\d.]+", rail)][1::2]
            assert heights[0] == heights[-1] * (1 if kept else -1)


def test_failed_pucs_are_hatched_and_explained(smartlight: HexMesh) -> None:
    drawing = Drawing(mesh_svg(smartlight, failed=[31]))
    assert drawing.by_id["puc-31"].findtext(f"{SVG}title") == "PUC 31: no state, failed"
    assert len(drawing.by_id["puc-31"]) == len(drawing.by_id["puc-30"]) + 1  # the hatching
    assert "failed" in drawing.texts
    assert "failed" not in Drawing(mesh_svg(smartlight)).texts


def test_ports_are_numbered_and_those_without_fibre_are_dashed(smartlight: HexMesh) -> None:
    drawing = Drawing(mesh_svg(smartlight))
    for port in range(40):
        group = drawing.by_id[f"port-{port}"]
        assert group.findtext(f"{SVG}text") == str(port)
        disc = group.find(f"{SVG}circle")
        assert disc is not None
        assert ("stroke-dasharray" in disc.attrib) == (22 <= port <= 33)
    assert "port without fibre" in drawing.texts
    assert "port without fibre" not in Drawing(mesh_svg(HexMesh.columns([2, 3, 2]))).texts


def test_port_numbers_can_be_left_out(smartlight: HexMesh) -> None:
    drawing = Drawing(mesh_svg(smartlight, ports_labelled=False))
    assert drawing.by_id["port-0"].find(f"{SVG}text") is None
    assert drawing.by_id["port-0"].findtext(f"{SVG}title") == "port 0 (0.AR)"


def test_the_title_defaults_to_the_layout(smartlight: HexMesh) -> None:
    assert "Mesh smartlight" in Drawing(mesh_svg(smartlight)).texts


# --------------------------------------------------------------------------------------------------------------- errors


def test_a_path_that_the_states_do_not_give_is_refused(smartlight: HexMesh) -> None:
    with pytest.raises(ConfigError, match=r"'wrong': light from port 3 passes PUCs \[15\].*not \[15, 16\]"):
        mesh_svg(smartlight, states={15: "bar"}, paths=[PicturePath("wrong", 3, [15, 16])])


def test_a_path_through_a_puc_without_state_is_refused(smartlight: HexMesh) -> None:
    with pytest.raises(ConfigError, match="PUC 15, whose state is None"):
        mesh_svg(smartlight, paths=[PicturePath("one", 3, [15])])


def test_a_failed_puc_that_does_not_exist_is_refused(smartlight: HexMesh) -> None:
    with pytest.raises(ConfigError, match=r"failed PUCs \[-1, 72\] do not exist.*0 to 71"):
        mesh_svg(smartlight, failed=[72, 3, -1])


def test_a_path_is_as_wide_as_the_power_on_it_where_that_is_known() -> None:
    mesh = HexMesh.smartlight()
    pucs, states = GOLDEN[0]
    power: list[float | None] = [5.0, 3.0, 0.0, -10.0, -24.99, -40.0, None]
    drawing = Drawing(mesh_svg(mesh, states=states, paths=[PicturePath("a", 0, pucs, power_dbm=power)]))
    pieces = [node for node in drawing.by_id["path-0"] if "data-hop" in node.attrib]
    assert [piece.attrib["data-hop"] for piece in pieces] == [str(hop) for hop in range(7)]
    widths = [float(piece.attrib["stroke-width"]) for piece in pieces]
    assert widths[0] == 7.0
    # 5.4 px for 30 dB: 2 dB less are 0.36 px narrower, 15 dB half of it; weaker than that is as narrow as unknown.
    assert widths[1:] == [6.6, 6.1, 4.3, 1.6, 1.6, 1.6]
    told = ["".join(piece.itertext()) for piece in pieces]
    assert (told[0], told[-1]) == ("a, 5.0 dBm", "a, not known")


def test_a_parked_puc_is_marked_in_its_words_its_number_and_its_edge() -> None:
    mesh = HexMesh.smartlight()
    drawing = Drawing(mesh_svg(mesh, states={3: "cross", 4: "bar"}, parked=[3]))
    assert "".join(drawing.by_id["puc-3"].itertext()).startswith("PUC 3: cross, parked")
    assert "3 (×)" in drawing.texts
    assert "4 =" in drawing.texts
    assert "(=) (×) parked" in drawing.texts
    edges = [node.attrib.get("stroke-dasharray") for node in drawing.by_id["puc-3"].iter(f"{SVG}rect")]
    assert edges == ["2 3"]
    assert "(=) (×) parked" not in Drawing(mesh_svg(mesh, states={3: "cross"})).texts
