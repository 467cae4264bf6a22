"""Meshes from netlists that gdsfactory wrote, and from small netlists by hand with one mistake each."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings, strategies as st

from calibration.model.gauge import has_visible_phase, loop_basis
from lumion_hw.errors import ConfigError
from lumion_hw.mesh import mesh_from_dict
from lumion_hw.mesh.layout.netlist import NetlistMesh, read_netlist
from lumion_hw.mesh.layout.placing import PUC_UM
from lumion_hw.mesh.layout.topologies import build_mesh
from lumion_hw.mesh.layout.topology import MeshTopology
from tests.mesh.layout.test_feed_forward import field_matrix

FOLDER = Path(__file__).parents[2] / "data" / "netlists"
HEATED = {"straight_x_top": "straight_heater_metal", "splitter": "mmi2x2", "combiner": "mmi2x2"}


def from_file(name: str) -> NetlistMesh:
    return read_netlist((FOLDER / name).read_text(encoding="utf-8"), name)


def two_mzis() -> dict[str, Any]:
    """Two interferometers: the first with a heater on both arms, then a phase shifter on the upper waveguide."""
    return {
        "instances": {
            "m1": {"component": "mzi", "settings": HEATED | {"straight_x_bot": "straight_heater_metal"}},
            "h1": {"component": "straight_heater_metal", "settings": {"length": 209.0}},
            "w1": {"component": "straight", "settings": {"length": 150.0}},
            "b1": {"component": "bend_euler", "info": {"length": 59.0}},
            "m2": {"component": "mzi2", "settings": HEATED},
        },
        "ports": {"i1": "m1,o1", "i2": "m1,o2", "q1": "m2,o3", "q2": "m2,o4", "e1": "h1,l_e1"},
        "nets": [
            {"p1": "m1,o3", "p2": "h1,o1"},
            {"p1": "h1,o2", "p2": "m2,o2"},
            {"p1": "m1,o4", "p2": "w1,o1"},
            {"p1": "b1,o2", "p2": "w1,o2"},
            {"p1": "b1,o1", "p2": "m2,o1"},
        ],
    }


def read(netlist: dict[str, Any], **options: Any) -> NetlistMesh:
    return read_netlist(yaml.safe_dump(netlist, sort_keys=False), "chip.yml", **options)


def powers(mesh: MeshTopology, inputs: int, arms_rad: dict[tuple[str, int], float]) -> np.ndarray:
    """The powers from the first ports to the next ones for given phases of arms, by instance and arm."""
    arms = np.zeros(2 * mesh.n_pucs)
    for (instance, arm), phase in arms_rad.items():
        arms[2 * mesh.cell_names.index(instance) + arm] = phase
    return np.abs(field_matrix(mesh, inputs, arms)) ** 2


def test_a_clements_chip_of_gdsfactory_is_the_clements_mesh() -> None:
    mesh, reference = from_file("clements4.yml"), build_mesh("clements", (4,))
    assert mesh.port_names == ("in0", "in1", "in2", "in3", "out0", "out1", "out2", "out3")
    assert len(loop_basis(mesh)) == len(loop_basis(reference))
    assert mesh.has_heater.sum() == reference.has_heater.sum() == 15
    assert has_visible_phase(mesh)[mesh.has_heater].sum() == has_visible_phase(reference)[reference.has_heater].sum()
    pairs = list(itertools.product(range(8), repeat=2))
    assert [mesh.reaches(*pair) for pair in pairs] == [reference.reaches(*pair) for pair in pairs]


def test_every_heater_of_a_clements_chip_acts_as_in_the_clements_mesh() -> None:
    mesh, reference = from_file("clements4.yml"), build_mesh("clements", (4,))
    rng = np.random.default_rng(3)
    places = [f"{column}_{row}" for column in range(4) for row in range(column % 2, 3, 2)]
    # The generator numbers a phase shifter and then an interferometer for each place.
    given_arms = {(str(cell), 0): float(rng.uniform(0.0, 6.0)) for cell in range(2 * len(places))}
    named = {
        (f"{('phi', 'theta')[int(cell) % 2]}_{places[int(cell) // 2]}", arm): phase
        for (cell, arm), phase in given_arms.items()
    }
    np.testing.assert_allclose(powers(mesh, 4, named), powers(reference, 4, given_arms), atol=1e-12)


def test_only_the_unused_waveguides_of_phase_shifters_get_no_light() -> None:
    mesh = from_file("clements4.yml")
    names = {mesh.port_name(port) for port in mesh.unused_ports}
    shifters = [name for name, kind in zip(mesh.instances, mesh.kinds, strict=True) if kind == "upper-phase"]
    assert names == {f"{name}.{end}" for name in shifters for end in ("AR", "BR")}
    assert not build_mesh("clements", (4,)).unused_ports


@pytest.mark.parametrize("phase", [0.0, 0.7, 2.0])
def test_an_interferometer_of_single_parts_acts_as_one_cell(phase: float) -> None:
    """Couplers, heaters and gratings as instances of their own; the second coupler is mirrored."""
    parts = from_file("single_parts.yml")
    assert sorted(parts.kinds) == ["coupler", "coupler", "upper-phase", "upper-phase"]
    assert parts.port_names == ("gc0", "gc1", "gc2", "gc3")
    cell = {"instances": {"m": {"component": "mzi", "settings": HEATED}, "h": "straight_heater_metal"}}
    ports = {"p1": "m,o1", "p2": "m,o2", "p3": "m,o3", "p4": "h,o2"}
    whole = read(cell | {"ports": ports, "nets": [{"p1": "m,o4", "p2": "h,o1"}]})
    assert whole.kinds == ("upper-arm", "upper-phase")
    expected = powers(whole, 2, {("m", 0): phase})
    np.testing.assert_allclose(powers(parts, 2, {("top", 0): phase}), expected, atol=1e-12)
    # From o1 the share sin²(φ/2) stays on the lower waveguide, o4: two balanced couplers around a phase.
    np.testing.assert_allclose(expected[1, 0], np.sin(phase / 2) ** 2, atol=1e-12)


def test_a_file_of_gdsfactory_7_is_read() -> None:
    mesh = from_file("gdsfactory7.yml")
    assert (mesh.instances, mesh.kinds) == (("h1", "m1", "m2"), ("upper-phase", "upper-arm", "upper-arm"))
    assert mesh.port_names == ("i1", "i2", "q1", "q2")
    # The interferometers are 900 apart and 291.02 long; the heater takes 200 of the upper waveguide.
    lengths = dict(zip(map(tuple, mesh.joints.tolist()), mesh.lengths_um.tolist(), strict=True))
    assert lengths == pytest.approx({(0, 6): 0.0, (2, 8): 408.98, (7, 9): 608.98}, abs=0.05)


def test_components_that_the_netlist_defines_are_read_in_place() -> None:
    mesh = from_file("nested.json")
    assert mesh.instances == ("b1~mzi", "b1~phi", "b2~mzi", "b2~phi")
    assert mesh.port_names == ("i1", "i2", "q1", "q2")
    # The second block is 1500 to the right of the first and 100 higher.
    moved = (mesh.puc_centres[2] - mesh.puc_centres[0]) * PUC_UM
    np.testing.assert_allclose(moved, (1500.0, 100.0), atol=1e-9)


@pytest.mark.parametrize("name", ["clements4.yml", "single_parts.yml", "nested.json", "gdsfactory7.yml"])
def test_the_document_of_a_mesh_needs_no_netlist(name: str) -> None:
    mesh = from_file(name)
    again = mesh_from_dict(json.loads(json.dumps(mesh.to_dict())))
    assert isinstance(again, NetlistMesh)
    assert again == mesh
    assert again.to_dict() == mesh.to_dict()


def test_cells_ports_and_lengths_are_those_of_the_netlist() -> None:
    mesh = read(two_mzis())
    assert mesh.kinds == ("two-arm", "upper-phase", "upper-arm")
    assert mesh.instances == ("m1", "h1", "m2")
    assert mesh.port_names == ("i1", "i2", "q1", "q2")
    assert mesh.fibre_ports == (0, 1, 2, 3)
    assert mesh.port_name(0) == "i1"
    assert mesh.port_name(4) == "h1.AR"
    # Upper rail: m1,o3 to h1 to m2,o2 without length. Lower rail: 150 of the straight and 59 of the bend.
    assert mesh.mate[[2, 6, 3]].tolist() == [4, 8, 9]
    lengths = dict(zip(map(tuple, mesh.joints.tolist()), mesh.lengths_um.tolist(), strict=True))
    assert lengths == {(2, 4): 0.0, (3, 9): 209.0, (6, 8): 0.0}


def test_all_forms_of_joints_give_the_same_mesh() -> None:
    netlist = two_mzis()
    nets = netlist.pop("nets")
    links = {net["p1"]: net["p2"] for net in nets}
    expected = read(two_mzis())
    assert read(netlist | {"connections": links}) == expected
    assert read(netlist | {"routes": {"bundle": {"links": links, "settings": {}}}}) == expected
    assert read({"top_level": netlist | {"connections": links}, "mzi": two_mzis()}) == expected
    assert read_netlist(json.dumps(two_mzis()), "chip.json") == expected


def test_sax_names_of_ports_are_known() -> None:
    text = yaml.safe_dump(two_mzis(), sort_keys=False)
    for old, new in (("o1", "in0"), ("o2", "in1"), ("o3", "out1"), ("o4", "out0")):
        text = re.sub(rf"m([12]),{old}\b", rf"m\1,{new}", text)
    assert read_netlist(text, "chip.yml") == read(two_mzis())


def test_an_instance_name_can_contain_commas() -> None:
    text = yaml.safe_dump(two_mzis(), sort_keys=False).replace("m1", "mzi_L1,5")
    assert read_netlist(text, "chip.yml") == read(two_mzis())


def test_placements_are_mirrored_rotated_and_moved() -> None:
    netlist = two_mzis()
    place = {"x": 100.0, "y": 50.0, "rotation": 90, "mirror": 1}
    netlist["placements"] = dict.fromkeys(netlist["instances"], place)
    mesh = read(netlist)
    # The axis of the heater, from (0, 0) to (209, 0), turns upwards.
    np.testing.assert_allclose(mesh.end_positions[1] * PUC_UM, [[100.0, 50.0], [100.0, 259.0]])
    assert mesh == read(two_mzis())


def test_cells_without_placements_are_placed_in_columns() -> None:
    mesh = read(two_mzis())
    assert mesh.puc_centres[:, 0].tolist() == [0.5, 1.5, 2.5]
    assert np.isfinite(mesh.corners).all()


def test_a_mirrored_cell_has_its_end_a_on_the_right() -> None:
    mesh = from_file("single_parts.yml").drawing_mesh
    first, second = mesh.end_positions[[mesh.cell_names.index("cp1"), mesh.cell_names.index("cp2")]]
    assert first[:, 0].tolist() == [0.0, 1.0]
    assert second[:, 0].tolist() == [3.0, 2.0]


def test_a_ring_has_places_too() -> None:
    ring = {
        "instances": {"c": "coupler", "h": "straight_heater_metal"},
        "ports": {"in": "c,o1", "out": "c,o4"},
        "nets": [{"p1": "c,o3", "p2": "h,o1"}, {"p1": "h,o2", "p2": "c,o2"}],
    }
    mesh = read(ring)
    assert np.isfinite(mesh.corners).all()
    assert mesh.reaches(0, 1)


def test_arrays_become_their_elements() -> None:
    netlist = {
        "instances": {
            "m": {"component": "mzi", "settings": HEATED, "array": {"columns": 2, "rows": 1, "column_pitch": 500}}
        },
        "placements": {"m": {"x": 0, "y": 0, "rotation": 0, "mirror": False}},
        "ports": {"a": "m<0.0>,o1", "b": "m<0.0>,o2", "c": "m<1.0>,o3", "d": "m<1.0>,o4"},
        "nets": [{"p1": "m<0.0>,o3", "p2": "m<1.0>,o2"}, {"p1": "m<0.0>,o4", "p2": "m<1.0>,o1"}],
    }
    mesh = read(netlist)
    assert mesh.instances == ("m<0.0>", "m<1.0>")
    np.testing.assert_allclose((mesh.puc_centres[1] - mesh.puc_centres[0]) * PUC_UM, (500.0, 0.0))


@pytest.mark.parametrize(
    ("settings_of_cell", "kind"),
    [
        ({}, "fixed"),
        ({"straight_x_top": "straight_heater_metal"}, "upper-arm"),
        ({"straight_x_bot": "straight_heater_doped_rib"}, "lower-arm"),
        ({"straight_x_bot": {"component": "straight_heater_meander", "settings": {}}}, "lower-arm"),
        ({"straight_x_top": "straight", "straight_x_bot": None}, "fixed"),
        ({"straight": "straight_heater_metal"}, "two-arm"),
    ],
)
def test_the_settings_of_an_interferometer_name_its_heaters(settings_of_cell: dict[str, Any], kind: str) -> None:
    netlist = two_mzis()
    netlist["instances"]["m2"]["settings"] = {"splitter": "mmi2x2"} | settings_of_cell
    assert read(netlist).kinds[2] == kind


def test_cells_override_and_extend_the_table() -> None:
    netlist = two_mzis()
    netlist["instances"]["m1"] = {"component": "our_mzi"}
    netlist["instances"]["w1"] = {"component": "our_snake", "settings": {"length": 150.0}}
    mesh = read(netlist, cells={"our_mzi": "lower-arm", "our_snake": "waveguide", "m2": "two-arm"})
    assert mesh.kinds == ("lower-arm", "upper-phase", "two-arm")
    assert mesh.lengths_um.max() == 209.0


def test_splitters_with_one_port_leave_one_end_open() -> None:
    netlist = {
        "instances": {
            "m": {"component": "mzi", "settings": HEATED | {"splitter": "mmi1x2", "combiner": None}},
            "h": "straight_heater_metal",
        },
        "ports": {"in": "m,o1", "out": "h,o2"},
        "nets": [{"p1": "m,o2", "p2": "h,o1"}],
    }
    mesh = read(netlist)
    assert (mesh.n_ports, mesh.fibre_ports) == (6, (0, 1))
    # Equal arms lead all light from the single input to the single output.
    np.testing.assert_allclose(powers(mesh, 1, {}), [[1.0]], atol=1e-12)


def changed(**changes: Any) -> dict[str, Any]:
    """Two interferometers with some instances, ports or nets changed; ``None`` removes an entry."""
    netlist = two_mzis()
    for key, value in changes.items():
        if isinstance(value, dict):
            merged = netlist.get(key, {}) | value
            netlist[key] = {name: entry for name, entry in merged.items() if entry is not None}
        else:
            netlist[key] = netlist[key] + value
    return netlist


NETS = two_mzis()["nets"]
MISTAKES = {
    "dangling": (changed(ports={"q2": None}), r"'m2' \(mzi2\): port 'o4' is not joined"),
    "dangling waveguide": (changed(ports={"q2": None}, instances={"w2": "straight"},
                                   nets=[{"p1": "m2,o4", "p2": "w2,o1"}]),
                           r"'w2' \(straight\): its other port is not joined"),
    "two joints": (changed(nets=[{"p1": "w1,o1", "p2": "m2,o3"}]), r"'w1,o1' has two joints, to 'm1,o4' and 'm2,o3'"),
    "joined and outside": (changed(ports={"x": "w1,o1"}), r"outside port 'x' is 'w1,o1', which is joined"),
    "outside twice": (changed(ports={"x": "m1,o1"}), r"'i1' and 'x' are both 'm1,o1'"),
    "unknown": (changed(instances={"m1": {"component": "our_mzi"}}), r"'m1' is of the unknown component 'our_mzi'"),
    "unknown arm": (changed(instances={"m1": {"component": "mzi", "settings": {"straight_x_top": "our_heater"}}}),
                    r"'m1' is of the unknown component 'mzi with arms"),
    "itself": (changed(nets=[{"p1": "m2,o5", "p2": "m2,o5"}]), r"'m2,o5' is joined to itself"),
    "no such port": (changed(nets=[{"p1": "m2,o5", "p2": "m1,o5"}]), r"'m1' \(mzi\) has no port 'o5'. Its ports"),
    "no such instance": (changed(nets=[{"p1": "m3,o1", "p2": "m2,o3"}]), r"'m3,o1' belongs to no instance"),
    "no port": (changed(ports=dict.fromkeys(("i1", "i2", "q1", "q2", "e1"))), r"no outside port"),
    "apart": (changed(instances={"m3": {"component": "mzi", "settings": HEATED}},
                      ports={f"x{number}": f"m3,o{number}" for number in (1, 2, 3, 4)}),
              r"no waveguide joins 'm3' to the other cells"),
    "no cell behind": (changed(instances={"w2": "straight"}, ports={"x": "w2,o1", "y": "w2,o2"}),
                       r"no cell is behind outside port 'x'"),
    "relative": (changed(placements={"m1": {"xmin": "m2,east", "y": 0}}), r"'m1': its placement is relative .*xmin"),
    "relative text": (changed(placements={"m1": {"x": "m2,o1", "y": 0}}), r"'m1': its placement is relative .*x\)"),
    "array": (changed(instances={"w2": {"component": "straight", "array": {"columns": -1}}}), r"'w2': the size must"),
    "no component": (changed(instances={"m1": {"settings": {}}}), r"'m1' has no component"),
    "no comma": (changed(ports={"i1": "m1"}), r"expected 'instance,port', found 'm1'"),
    "three ends": (changed(ports={"x": "w1,o3"}), r"'w1' .* is a waveguide with 2 ports, but"),
    "one cell": ({"instances": {"m": "mzi"}, "ports": {f"o{number}": f"m,o{number}" for number in (1, 2)}},
                 r"'m' is the only cell"),
    "no instances": ({"cells": {}}, r"no key 'instances'; its keys are cells"),
    "nets": (two_mzis() | {"nets": {"p1": "m1,o1"}}, r"'nets' must be a list"),
    "ports": (two_mzis() | {"ports": ["m1,o1"]}, r"'ports' must be a mapping"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_with_its_instance(name: str) -> None:
    netlist, message = MISTAKES[name]
    with pytest.raises(ConfigError, match=message):
        read(netlist)


def test_an_unknown_component_comes_with_what_to_write() -> None:
    with pytest.raises(ConfigError) as caught:
        read(changed(instances={"m1": {"component": "our_mzi"}}))
    assert "chip.yml:" in str(caught.value)
    assert "'cells', such as {our_mzi: upper-arm}" in str(caught.value)
    assert "straight_heater_*" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("instances: {a: [}", r"chip.yml:1: the netlist is damaged"),
        ("instances:\n  a: mzi\n  a: mzi\n", r"chip.yml:3: the netlist is damaged: key 'a' occurs twice"),
        ('{"instances": {"a": "mzi", "a": "mzi"}}', r"key 'a' occurs twice"),
        ("instances: !!python/object:os.system {}", r"damaged"),
        ("- a", r"expected a netlist"),
        ("", r"expected a netlist"),
        ("a: &a {instances: {b: a}, ports: {i: 'b,o1'}}\n", r"component 'a' contains itself"),
        ("[" * 5000, r"damaged|deeply"),
        ("{" * 5000, r"damaged|deeply"),
    ],
)
def test_a_damaged_netlist_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_netlist(text, "chip.yml")


def test_the_line_of_a_mistake_is_given() -> None:
    text = yaml.safe_dump(two_mzis(), sort_keys=False).replace("m2,o3", "m4,o3")
    line = next(number for number, row in enumerate(text.splitlines(), 1) if "m4" in row)
    with pytest.raises(ConfigError, match=rf"^chip.yml:{line}: port 'm4,o3' belongs to no instance"):
        read_netlist(text, "chip.yml")


def test_only_known_kinds_and_tops_are_accepted() -> None:
    with pytest.raises(ConfigError, match="'m1' has unknown kind 'mzm'"):
        read(two_mzis(), cells={"m1": "mzm"})
    with pytest.raises(ConfigError, match=r"no component 'b'\. There are a"):
        read({"a": two_mzis()}, top="b")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_damage_is_a_clear_error_or_a_mesh(data: st.DataObject) -> None:
    text = yaml.safe_dump(two_mzis(), sort_keys=False)
    start = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 30))
    damaged = text[:start] + data.draw(st.text(max_size=5)) + text[start + length :]
    try:
        mesh = read_netlist(damaged, "chip.yml")
    except ConfigError:
        return
    assert mesh_from_dict(mesh.to_dict()) == mesh
