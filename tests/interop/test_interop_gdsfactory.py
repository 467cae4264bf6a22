"""Netlists that an installed gdsfactory writes are read as the meshes that were drawn.

``make test-netlists`` runs them in an environment of their own, because gdsfactory needs an older pydantic than the
other tests. Without it the tests in tests/mesh/layout read files that it wrote.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import yaml

from lumion_hw.mesh.layout.netlist import NetlistMesh, read_netlist
from lumion_hw.mesh.layout.placing import PUC_UM

gf = pytest.importorskip("gdsfactory")
write = pytest.importorskip("tests.data.netlists.write")

FOLDER = Path(__file__).parents[1] / "data" / "netlists"


@pytest.fixture(autouse=True)
def _quiet() -> None:
    warnings.simplefilter("ignore")
    gf.gpdk.PDK.activate()
    gf.clear_cache()


@pytest.mark.parametrize("name", ["clements4.yml", "single_parts.yml", "nested.json"])
def test_the_files_of_the_fast_tests_are_what_gdsfactory_writes(name: str) -> None:
    text = write.file_text(name)
    committed = (FOLDER / name).read_text(encoding="utf-8")
    again = read_netlist(text, name)
    assert again == read_netlist(committed, name)
    np.testing.assert_allclose(again.corners, read_netlist(committed, name).corners, atol=1e-3)


@pytest.mark.parametrize("ports", [2, 3, 6])
def test_a_clements_chip_of_any_size_is_read(ports: int) -> None:
    netlist = write.clements(ports, f"clements{ports}").netlist()
    mesh = read_netlist(yaml.safe_dump(netlist), "chip.yml")
    assert int(mesh.has_heater.sum()) == ports**2 - 1
    assert all(mesh.reaches(one, ports + other) for one in range(ports) for other in range(ports))


def drawn(part: object) -> tuple[NetlistMesh, object]:
    """Return the mesh of a component followed by a heater at its port o3 or o2, and the reference of the component."""
    chip = write.Chip("drawn")
    reference = chip.add(part, "part", 0.0, 0.0)
    optical = [port.name for port in part.ports if port.port_type == "optical"]
    last = "o3" if "o3" in optical else "o2"
    heater = chip.component.add_ref(gf.components.straight_heater_metal(length=100.0), name="heater")
    heater.connect("o1", reference[last])
    for name in optical:
        chip.component.add_port(f"p{name}", port=heater["o2"] if name == last else reference[name])
    return read_netlist(yaml.safe_dump(chip.netlist()), "chip.yml"), reference


COMPONENTS = {
    "mzi": ("fixed", 2),
    "mzi1x2_2x2": ("fixed", 3),
    "mzi2x2_2x2": ("fixed", 4),
    "mzi_coupler": ("fixed", 4),
    "mzi_phase_shifter": ("upper-arm", 2),
    "mzi2x2_2x2_phase_shifter": ("upper-arm", 4),
    "mmi1x2": ("coupler", 3),
    "mmi2x2": ("coupler", 4),
    "coupler": ("coupler", 4),
    "crossing": ("crossing", 4),
    "straight_heater_meander": ("upper-phase", 2),
    "bend_circular_heater": ("upper-phase", 2),
}


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_component_is_the_kind_of_cell_that_it_is(name: str) -> None:
    kind, ports = COMPONENTS[name]
    mesh, _ = drawn(gf.get_component(name))
    assert mesh.kinds[mesh.instances.index("part")] == kind
    assert len(mesh.fibre_ports) == ports


@pytest.mark.parametrize("name", ["mzi2x2_2x2", "mzi2x2_2x2_phase_shifter", "mmi2x2", "coupler", "mzi_phase_shifter"])
def test_the_ends_of_a_cell_lie_where_they_were_drawn(name: str) -> None:
    """Within 35 µm: enough for the distances of heaters, the prior of thermal crosstalk."""
    mesh, reference = drawn(gf.get_component(name))
    ends = mesh.end_positions[mesh.instances.index("part")] * PUC_UM
    xs = [port.center[0] for port in reference.ports if port.port_type == "optical"]  # type: ignore[attr-defined]
    np.testing.assert_allclose(ends[:, 0], [min(xs), max(xs)], atol=35.0)


@pytest.mark.parametrize("name", ["spiral", "bend_s", "taper", "delay_snake", "bend_euler"])
def test_a_part_with_two_ports_becomes_a_joint_of_its_length(name: str) -> None:
    chip, part = write.Chip("joint"), gf.get_component(name)
    middle = chip.add(part, "middle", 0.0, 0.0)
    for port in ("o1", "o2"):
        heater = chip.component.add_ref(gf.components.straight_heater_metal(length=100.0), name=f"heater_{port}")
        heater.connect("o2", middle[port])
        chip.component.add_port(port, port=heater["o1"])
    mesh = read_netlist(yaml.safe_dump(chip.netlist()), "chip.yml")
    assert mesh.kinds == ("upper-phase", "upper-phase")
    np.testing.assert_allclose(mesh.lengths_um, [part.info["length"]])
