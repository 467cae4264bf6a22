"""Which parts of a mesh can be calibrated alone, by hand on a rectangular mesh of 15 PUCs, and what else is needed."""

from __future__ import annotations

import pytest

from calibration.run.parts import LightPaths, MeshPart
from lumion_hw.cli.calibrate.part import circuit_ports, numbers
from lumion_hw.errors import CircuitError, ConfigError
from lumion_hw.interfaces.wiring import InlineDevice, InputPath, MeterTap, OutputPath, Wiring
from lumion_hw.mesh.layout.topologies import build_mesh

# Columns: PUCs 0 1 2, then 3 4, then 5 6 7, then 8 9, then 10 11 12, then 13 14. Inputs 0 to 5, outputs 6 to 11.
SIX = LightPaths(build_mesh("rectangular", (6,)), tuple(range(6)), tuple(range(6, 12)), {})


def test_a_circuit_uses_the_pucs_between_its_ports() -> None:
    assert SIX.part_of_circuit((0,), (6,)) == MeshPart((0, 3, 5, 6, 8, 10), (0,), (6,))


def test_the_pucs_of_a_circuit_are_a_part_and_both_inputs_of_the_first_are_used() -> None:
    assert SIX.part_of_pucs({0, 3, 5, 6, 8, 10}) == MeshPart((0, 3, 5, 6, 8, 10), (0, 1), (6,))


def test_the_whole_mesh_is_a_part_with_all_ports() -> None:
    part = SIX.part_of_pucs(set(range(15)))
    assert (part.sources, part.monitors) == (SIX.sources, SIX.monitors)


def test_a_part_whose_light_others_change_is_refused_and_they_are_named() -> None:
    with pytest.raises(ConfigError, match="all light of PUC 0 also passes PUCs 6, 8, 10, whose heaters change it"):
        SIX.part_of_pucs({0, 3, 5})


def test_in_a_mesh_where_light_circulates_there_are_no_parts() -> None:
    mesh = build_mesh("columns", (2,))
    light = LightPaths(mesh, (1, 11), mesh.fibre_ports, {})
    with pytest.raises(ConfigError, match=r"PUCs outside the part.*Calibrate the whole mesh"):
        light.part_of_pucs({0})


def test_without_light_in_or_out_there_is_no_part() -> None:
    with pytest.raises(ConfigError, match="no light can enter at port 6"):
        SIX.part_of_circuit((6,), (7,))
    with pytest.raises(ConfigError, match="no monitor reads the light at port 1"):
        SIX.part_of_circuit((0,), (1,))
    dark = LightPaths(SIX.mesh, (0,), SIX.monitors, {})
    with pytest.raises(ConfigError, match="PUC 1 cannot be calibrated: no light passes it on the way to a monitor"):
        dark.part_of_pucs(set(range(15)))
    with pytest.raises(ConfigError, match="PUCs 15 do not exist"):
        SIX.part_of_pucs({15})


@pytest.mark.parametrize(("text", "found"), [("0-2,8", {0, 1, 2, 8}), ("4", {4}), (" 1 , 3-3", {1, 3})])
def test_lists_of_pucs(text: str, found: set[int]) -> None:
    assert numbers(text) == found


@pytest.mark.parametrize("text", ["", "3-1", "a", "1,,2", "-1"])
def test_what_is_no_list_of_pucs_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is no PUC and no range"):
        numbers(text)


# A laser feeds input 0 or 1 through a switch, and a module with two tributaries inputs 2 and 3. Meter channels read
# outputs 6, 7 and 9.
DEVICES = ("laser", "zr-a", "zr-b", "sfp-b", "meter", "board")
WIRING = Wiring(
    inputs=(
        *(
            InputPath(None, port, None, 0.0, 0.0, laser="laser", through=(InlineDevice("switch", 1, 17 + port),))
            for port in (0, 1)
        ),
        InputPath("zr-a", 2, None, 0.0, 0.0, tributary="x"),
        InputPath("zr-a", 3, None, 0.0, 0.0, tributary="y"),
    ),
    outputs=(
        OutputPath(6, "sfp-b", 0.0, "meter", 1, 0.1),
        OutputPath(7, None, 0.0, "meter", 2, 1.0),
        OutputPath(8, "zr-b", 0.0, None, None, 0.0),
        OutputPath(9, None, 0.0, None, None, 0.0, taps=(MeterTap("osa", 1, 1.0),)),
    ),
)
WIRED = LightPaths.of(SIX.mesh, WIRING.inputs, (6, 7, 9))


@pytest.mark.parametrize(
    ("circuit", "ports"),
    [
        ("0:6", ((0,), (6,))),
        ("laser:sfp-b", ((0, 1), (6,))),
        ("zr-a:meter", ((2,), (6, 7))),  # port 3 is the second port of this source
        ("1:osa", ((1,), (9,))),
        ("laser:7", ((0, 1), (7,))),
        ("zr-a:zr-b", ((2,), (8,))),  # without a monitor: part_of_circuit says so
    ],
)
def test_ends_of_a_circuit_are_ports_or_devices(circuit: str, ports: tuple[tuple[int, ...], ...]) -> None:
    assert circuit_ports(WIRING, DEVICES, WIRED, circuit) == ports


def test_the_part_of_several_ports_is_all_that_their_light_passes() -> None:
    # Inputs 0 and 1 enter the same PUC, so both have the part of input 0.
    part = SIX.part_of_circuit((0, 1), (6,))
    assert part == MeshPart((0, 3, 5, 6, 8, 10), (0, 1), (6,))
    with pytest.raises(ConfigError, match="no monitor reads the light at port 8"):
        WIRED.part_of_circuit((0,), (8,))


@pytest.mark.parametrize(
    ("circuit", "message", "hint"),
    [
        ("lasr:6", "circuit lasr to 6: lasr is not wired to the mesh", "Did you mean laser?"),
        ("0:board", "circuit 0 to board: board is not wired to the mesh", "See 'wiring' in the bench file."),
        ("meter:6", "circuit meter to 6: meter is not wired to the mesh", "See 'wiring' in the bench file."),
        ("0:nowhere", "nowhere is not wired", "The wired devices are laser, meter, osa, sfp-b, zr-a, zr-b."),
    ],
)
def test_a_device_that_is_not_wired_is_refused_as_by_connect(circuit: str, message: str, hint: str) -> None:
    with pytest.raises(CircuitError, match=message) as caught:
        circuit_ports(WIRING, DEVICES, WIRED, circuit)
    assert caught.value.hint == hint


@pytest.mark.parametrize("circuit", ["", "0", "0:", ":6", "0:6:7"])
def test_what_is_no_pair_is_refused(circuit: str) -> None:
    with pytest.raises(ConfigError, match="two ports or devices expected"):
        circuit_ports(WIRING, DEVICES, WIRED, circuit)
