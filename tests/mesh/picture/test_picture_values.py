"""Numbers on a picture of the mesh: colour, figures and scale agree with what was given."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.picture.drawing import mesh_svg
from lumion_hw.mesh.picture.values import PictureValues, colour_at

SVG = "{http://www.w3.org/2000/svg}"
CELL = HexMesh.columns([1])


def drawn(values: PictureValues) -> ET.Element:
    return ET.fromstring(mesh_svg(CELL, values=values))


def body(root: ET.Element, puc: int) -> tuple[str, str]:
    """Return colour and words of a PUC."""
    group = next(node for node in root.iter() if node.get("id") == f"puc-{puc}")
    rect, title = group.find(f"{SVG}rect"), group.find(f"{SVG}title")
    assert rect is not None
    assert title is not None
    return rect.attrib["fill"], title.text or ""


def test_the_least_number_is_dark_the_largest_bright_and_each_tells_its_unit() -> None:
    root = drawn(PictureValues("loss", "dB", {0: 0.4, 1: 0.5, 2: 0.6}))
    # The ends and the middle of viridis as matplotlib publishes it.
    assert body(root, 0) == ("#440154", "PUC 0: 0.4 dB")
    assert body(root, 1) == ("#21918c", "PUC 1: 0.5 dB")
    assert body(root, 2) == ("#fde725", "PUC 2: 0.6 dB")


def test_what_is_not_known_is_drawn_empty() -> None:
    root = drawn(PictureValues("loss", "dB", {0: 0.4, 1: 0.6}))
    assert body(root, 7) == ("#f1f4f7", "PUC 7: no state")


def test_figures_stand_on_pucs_and_cells_and_the_scale_names_its_ends() -> None:
    root = drawn(PictureValues("standard error", "mrad", {3: 1.25, 4: 2.0}, {0: 3.0}))
    texts = [node.text for node in root.iter(f"{SVG}text")]
    assert {"1.2", "2.0", "3.0", "standard error, mrad"} <= set(texts)
    assert texts.count("1.2") == 2  # on the PUC and at the lower end of the scale
    assert texts.count("2.1") == 1  # the middle of 1.25 and 3
    assert [node.text for node in root.iter(f"{SVG}title") if node.text and "cell" in node.text] == ["cell 0: 3 mrad"]


def test_numbers_of_many_sizes_get_a_logarithmic_scale() -> None:
    values = PictureValues("σ", "mrad", {0: 0.1, 1: 1.0, 2: 10.0})
    assert body(drawn(values), 1)[0] == colour_at(0.5)  # one decade of two
    assert "σ, mrad (logarithmic)" in {node.text for node in drawn(values).iter(f"{SVG}text")}
    assert [values.format_value(value) for value in (0.1, 1.0, 10.0)] == ["0.10", "1.0", "10"]


def test_couplings_have_no_unit_and_a_scale_from_bar_to_cross() -> None:
    values = PictureValues("coupling", "", {3: 0.5, 4: 0.05}, scale=(0.0, 1.0))
    root = drawn(values)
    assert body(root, 3) == (colour_at(0.5), "PUC 3: coupling 0.5")
    assert body(root, 4) == (colour_at(0.05), "PUC 4: coupling 0.05")
    texts = [node.text for node in root.iter(f"{SVG}text")]
    assert {"coupling", "0", "0.05", "1"} <= set(texts)
    assert "no state given" not in texts


def test_letters_are_light_on_dark_and_dark_on_light() -> None:
    values = PictureValues("σ", "mrad", {0: 1.0, 1: 2.0})
    assert values.colours(1.0)[1] == "#ffffff"
    assert values.colours(2.0)[1] == "#1d2733"


def test_a_single_number_and_none_at_all_can_be_drawn() -> None:
    assert body(drawn(PictureValues("σ", "mrad", {0: 1.0})), 0)[0] == "#440154"
    drawn(PictureValues("σ", "mrad"))


def test_a_map_of_values_needs_no_key_of_states() -> None:
    words = {node.text for node in drawn(PictureValues("σ", "mrad", {0: 1.0})).iter(f"{SVG}text")}
    assert "port" in words
    assert not any("rail" in (word or "") for word in words)


def test_names_cannot_break_the_document() -> None:
    text = mesh_svg(CELL, values=PictureValues("<script>", "&", {0: 1.0}, {0: 2.0}))
    assert "<script>" not in text
    ET.fromstring(text)


@pytest.mark.parametrize(
    "values",
    [
        PictureValues("σ", "mrad", {99: 1.0}),
        PictureValues("σ", "mrad", cells={1: 1.0}),
        PictureValues("σ", "mrad", {0: float("nan")}),
        PictureValues("σ", "mrad", cells={0: float("inf")}),
    ],
)
def test_numbers_that_cannot_be_drawn_are_refused(values: PictureValues) -> None:
    with pytest.raises(ConfigError, match=re.escape("cannot draw the values of 'σ' on mesh")):
        mesh_svg(CELL, values=values)
