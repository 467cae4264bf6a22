"""Light as colour in the picture of a mesh."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.layout.hexagonal import HexMesh
from lumion_hw.mesh.picture.drawing import mesh_svg
from lumion_hw.mesh.picture.field import colour_of
from lumion_hw.mesh.waves.cell import UnitCells
from lumion_hw.mesh.waves.scattering import Solver

FIELD = "{http://www.w3.org/2000/svg}path[@class='field']"


def drawn(svg: str) -> list[tuple[str, str]]:
    """Return words and colour of every coloured waveguide."""
    lines = ET.fromstring(svg).iterfind(f".//{FIELD}")
    return [(line.findtext("{http://www.w3.org/2000/svg}title") or "", line.get("stroke") or "") for line in lines]


def test_light_is_drawn_where_the_solver_has_it(solver: Solver) -> None:
    """All cross, 0.5 dB per PUC: light from port 0 loses 0.5 dB at each PUC, and every wave it makes is drawn."""
    mesh = solver.mesh
    cells = UnitCells.ideal(72, len(mesh.joints), np.zeros(72), loss_db=0.5)
    waves = solver.waves(cells, cells.reference_hz, [0])[:, 0]
    with np.errstate(divide="ignore"):
        field_db = 20 * np.log10(np.abs(waves))
    hops = len(mesh.trace(0, dict.fromkeys(range(72), "cross")).pucs)
    words = [text for text, _ in drawn(mesh_svg(mesh, field_db=field_db))]
    assert len(words) == hops  # the lead into port 0, and a joint between each PUC and the next
    assert "into port 0: 0.0 dB" in words
    assert sum(text.endswith(": -0.5 dB") for text in words) == 1


def test_what_is_dark_or_below_the_range_is_not_drawn() -> None:
    mesh = HexMesh.rings(1)
    field_db = np.full(24, -np.inf)
    joint = mesh.joints[2]
    field_db[joint[0]], field_db[joint[1]] = -3.0, -20.0
    field_db[mesh.joints[4][0]] = -50.0
    assert drawn(mesh_svg(mesh, field_db=field_db, field_range_db=40.0)) == [("joint 2: -3.0 dB", colour_of(0.0))]
    assert len(drawn(mesh_svg(mesh, field_db=field_db, field_range_db=60.0))) == 2
    assert drawn(mesh_svg(mesh)) == []


def test_weaker_light_is_darker() -> None:
    colours = [colour_of(depth) for depth in np.linspace(0.0, 1.0, 7)]
    luminance = [sum(int(colour[i : i + 2], 16) for i in (1, 3, 5)) for colour in colours]
    assert luminance == sorted(luminance, reverse=True)


@pytest.mark.parametrize("field_db", [np.zeros(23), np.zeros((24, 1)), np.full(24, np.nan)])
def test_a_field_that_is_none_is_refused(field_db: np.ndarray) -> None:
    with pytest.raises(ConfigError, match="cannot draw a field"):
        mesh_svg(HexMesh.rings(1), field_db=field_db)
