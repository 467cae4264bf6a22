"""What contradicts another part of the bench file: each rule broken once, in an otherwise right file."""

import pytest
from hypothesis import given, strategies as st

from lumion_hw.bench.file.checks import cross_check, path_text
from lumion_hw.bench.file.known_kinds import KindRegistry
from lumion_hw.bench.file.loader import check_bench, load_bench
from lumion_hw.bench.file.model import MeshSection
from tests.effort import examples

# (what is replaced in the small bench, by what, path, message)
CONTRADICTIONS = [
    # names of devices
    (
        "controller: mesh0",
        "controller: mesh1",
        "mesh.controller",
        "of kind lumion-mesh, qontrol-q8 or smartlight-line-server, found 'mesh1'",
        "'mesh0'?",
    ),
    (
        "controller: mesh0",
        "controller: meter0",
        "mesh.controller",
        "'meter0', which is of kind keysight-n77xx",
        "line 5",
    ),
    ("{transponder: sfp-c, port: 2}", "{transponder: pol-b, port: 2}", "wiring.inputs[2].transponder", "oz-epc04", ""),
    ("port: 3, transponder: sfp-a", "port: 3, transponder: x", "wiring.outputs[0].transponder", "found 'x'", ""),
    ("polarization: pol-a", "polarization: sfp-a", "wiring.inputs[0].polarization", "of kind sfp-8472", "line 6"),
    (
        "polarization: pol-a",
        "polarimeter: pol-a",
        "wiring.inputs[0].polarimeter",
        "a device of kind novoptel-pm1000, found 'pol-a', which is of kind oz-epc04",
        "",
    ),
    ("polarization: pol-a", "polarization: pol-d", "wiring.inputs[0].polarization", "which is not in devices", "'pol-"),
    ("meter: meter0", "meter: mesh0", "wiring.outputs[0].tap.meter", "of kind lumion-mesh", "line 4"),
    ("nics: [sfp-b]", "nics: [pol-b]", "servers[1].nics[0]", "of kind oz-epc04", ""),
    # heaters that cannot move the light: (0.010 mA)² · 1000 Ω are 1e-4 mW, a quarter of 1.2 mW is 0.3 mW
    (
        "serial: A1",
        "heater_max_ma: 0.010",
        "devices.mesh0.heater_max_ma",
        "found 0.01 mA: with 1000 Ω this is 0.0001 mW, but a phase of π needs at least 1.2 mW",
        "",
    ),
    ("serial: A1", "heater_max_ma: 0.54", "devices.mesh0.heater_max_ma", "this is 0.29 mW", ""),
    # more channels than the protocol has: 2 · 1056 PUCs
    (
        "controller: mesh0",
        "controller: mesh0\n  rings: 11",
        "mesh.controller",
        "expected a mesh with at most 2000 drive channels, the limit of a LUMION mesh controller, found 2112",
        "line 4",
    ),
    # lasers in place of modules
    ("{transponder: sfp-c, port: 2}", "{port: 2}", "wiring.inputs[2]", "one of the keys transponder, laser", ""),
    (
        "{transponder: sfp-c, port: 2}",
        "{transponder: sfp-c, laser: sfp-c, port: 2}",
        "wiring.inputs[2].laser",
        "expected either transponder or laser, found both",
        "line 17",
    ),
    (
        "{transponder: sfp-c, port: 2}",
        "{laser: pol-b, port: 2}",
        "wiring.inputs[2].laser",
        "kind itla-laser, keysight-laser or santec-tsl, found 'pol-b', which is of kind oz-epc04",
        "",
    ),
    (
        "{transponder: sfp-c, port: 2}",
        "{laser: sfp-c, port: 2, tributary: x}",
        "wiring.inputs[2].tributary",
        "expected a module with two tributaries, found the laser 'sfp-c'",
        "",
    ),
    (
        "{transponder: sfp-a, port: 0, polarization: pol-a",
        "{transponder: sfp-a, port: 0, tributary: x, polarization: pol-a",
        "wiring.inputs[0].polarization",
        "expected no polarization controller at a tributary, found 'pol-a': after the splitter-rotator",
        "",
    ),
    # addresses and serial numbers
    (
        "  pol-a: {kind: oz-epc04}\n  pol-b: {kind: oz-epc04}",
        "  pol-a: {kind: oz-epc04, address: serial:///dev/x}\n  pol-b: {kind: oz-epc04, address: serial:///dev/x}",
        "devices.pol-b.address",
        "expected address serial:///dev/x to be used once, but it is also used by devices.pol-a.address",
        "line 9",
    ),
    (
        "  sfp-a: {kind: sfp-8472}\n  sfp-b: {kind: sfp-8472}",
        "  sfp-a: {kind: sfp-8472, serial: S1}\n  sfp-b: {kind: sfp-8472, serial: S1}",
        "devices.sfp-b.serial",
        "expected serial number 'S1' of a sfp-8472 to be used once",
        "line 6",
    ),
    # ports
    ("sfp-b, port: 1}", "sfp-b, port: 0}", "wiring.inputs[1].port", "used by wiring.inputs[0].port", "line 15"),
    ("port: 4,", "port: 0,", "wiring.outputs[1].port", "used by wiring.inputs[0].port", "line 15"),
    ("port: 4,", "port: 22,", "wiring.outputs[1].port", "a port with a fibre (0-21, 34-39), found port 22", ""),
    ("port: 4,", "port: 33,", "wiring.outputs[1].port", "found port 33, which has none", ""),
    ("port: 4,", "port: 40,", "wiring.outputs[1].port", "expected a port from 0 to 39, found 40", ""),
    ("port: 4,", "port: -1,", "wiring.outputs[1].port", "expected a port from 0 to 39, found -1", ""),
    ("mesh0\nw", "mesh0\n  monitor_ports: [0, 40]\nw", "mesh.monitor_ports[1]", "a port from 0 to 39, found 40", ""),
    (
        "mesh0\nw",
        "mesh0\n  monitor_ports: [5, 6, 5]\nw",
        "mesh.monitor_ports[2]",
        "expected port 5 to be used once",
        "",
    ),
    # modules, polarization controllers and meter channels
    ("sfp-c, port: 2}", "sfp-b, port: 2}", "wiring.inputs[2].transponder", "the input of 'sfp-b' to be used once", ""),
    (
        "port: 4, transponder: sfp-b}",
        "port: 4, transponder: sfp-a}",
        "wiring.outputs[1].transponder",
        "the output of",
        "",
    ),
    ("port: 1}", "port: 1, polarization: pol-a}", "wiring.inputs[1].polarization", "controller 'pol-a' to be used", ""),
    (
        "port: 4, transponder: sfp-b}",
        "port: 4, transponder: sfp-b, tap: {meter: meter0, channel: 1, fraction: 0.5}}",
        "wiring.outputs[1].tap.channel",
        "expected channel 1 of 'meter0' to be used once",
        "line 19",
    ),
    ("channel: 1,", "channel: 5,", "wiring.outputs[0].tap.channel", "from 1 to 4 ('meter0' is a N7744A), found 5", ""),
    # heaters
    (
        "mesh0\nw",
        "mesh0\n  heater_channels: {3: [10, 200]}\nw",
        "mesh.heater_channels[3][0]",
        "expected drive channel 10 to be used once, but PUC 5 by default uses it too",
        "",
    ),
    (
        "mesh0\nw",
        "mesh0\n  heater_channels: {3: [200, 201], 4: [201, 202]}\nw",
        "mesh.heater_channels[4][0]",
        "expected drive channel 201 to be used once, but mesh.heater_channels[3][1] uses it too",
        "line 13",
    ),
    (
        "mesh0\nw",
        "mesh0\n  heater_channels: {72: [200, 201]}\nw",
        "mesh.heater_channels[72]",
        "from 0 to 71, found 72",
        "",
    ),
    (
        "mesh0\nw",
        "mesh0\n  heater_channels: {3: [null]}\nw",
        "mesh.heater_channels[3]",
        "expected two entries for each PUC, [upper, lower]: the drive channel of each heater, such as [26, 27], or "
        "null for an arm without a heater, such as [null, 27]; found a list of 1",
        "",
    ),
    ("mesh0\nw", "mesh0\n  heater_channels: {3: [-1, 7]}\nw", "mesh.heater_channels[3][0]", "from 0, found -1", ""),
    # layout
    (
        "mesh0\nw",
        "mesh0\n  layout: smartlight\n  columns: [2, 3, 2]\nw",
        "mesh.columns",
        "either layout or columns",
        "",
    ),
    ("mesh0\nw", "mesh0\n  columns: [2, 5, 2]\nw", "mesh.columns", "expected the cells per column of a mesh", ""),
    ("mesh0\nw", "mesh0\n  columns: [1000000000, 1000000001]\nw", "mesh.columns", "is too large", ""),
    ("mesh0\nw", "mesh0\n  columns: [2]\n  rings: 2\nw", "mesh.rings", "either columns or rings, found both", ""),
    ("mesh0\nw", "mesh0\n  rings: 0\nw", "mesh.rings", "expected the rings of cells of a mesh, found 0", ""),
    ("mesh0\nw", "mesh0\n  rings: 2.0\nw", "mesh.rings", "expected a whole number", ""),
    ("mesh0\nw", "mesh0\n  topology: cubic\nw", "mesh.topology", "'hexagonal', 'rectangular', 'clements'", ""),
    ("mesh0\nw", "mesh0\n  topology: rectangular\nw", "mesh.topology", "expected also ports, the size of", ""),
    (
        "mesh0\nw",
        "mesh0\n  topology: rectangular\n  ports: 1\nw",
        "mesh.ports",
        "cannot build a mesh with 1 ports on each side",
        "",
    ),
    (
        "mesh0\nw",
        "mesh0\n  ports: 40\nw",
        "mesh.ports",
        "expected no ports, which does not apply to a hexagonal mesh",
        "",
    ),
    # outputs
    (
        "{port: 5, transponder: sfp-c}",
        "{port: 5}",
        "wiring.outputs[2]",
        "expected one of the keys transponder, tap",
        "",
    ),
    (
        "{port: 5, transponder: sfp-c}",
        "{port: 5, transponder: sfp-c, tap: {meter: meter0, channel: 8}}",
        "wiring.outputs[2].tap",
        "expected less than 1, found none, which means 1",
        "",
    ),
    # parts in the light, splitters, fibres beside the mesh
    (
        "{transponder: sfp-c, port: 2}",
        "{transponder: sfp-c, port: 2, through: [{device: meter0}]}",
        "wiring.inputs[2].through[0].device",
        "of kind keysight-n776x, oz-da100, polatis or amonics-aedfa, found 'meter0'",
        "line 5",
    ),
    (
        "{port: 5, transponder: sfp-c}",
        "{port: 5, transponder: sfp-c, taps: [{meter: meter0, channel: 2, fraction: 1}]}",
        "wiring.outputs[2].taps",
        "less than 1, so that the transponder gets light, found 1",
        "",
    ),
    (
        "{port: 5, transponder: sfp-c}",
        "{port: 5, transponder: sfp-c, taps: [{meter: meter0, channel: 1, fraction: 0.5}]}",
        "wiring.outputs[2].taps[0].channel",
        "expected channel 1 of 'meter0' to be used once, but it is also used by wiring.outputs[0].tap.channel",
        "",
    ),
    # servers and fabric
    (
        "{name: b, nics: [sfp-b]}",
        "{name: a, nics: [sfp-b]}",
        "servers[1].name",
        "expected server name 'a' to be used",
        "",
    ),
    ("nics: [sfp-c]", "nics: [sfp-b]", "servers[2].nics[0]", "expected module 'sfp-b' to be used once", ""),
    (
        "    - {transponder: sfp-c, port: 2}\n",
        "",
        "servers[2].nics[0]",
        "expected a wired module, found 'sfp-c', which is not in wiring.inputs",
        "",
    ),
    (
        "    - {port: 5, transponder: sfp-c}\n",
        "",
        "servers[2].nics[0]",
        "expected a wired module, found 'sfp-c', which is not in wiring.outputs",
        "",
    ),
    ("spares: [c]", "spares: [sfp-c]", "fabric.spares[0]", "expected the name of a server, found 'sfp-c'", ""),
    ("spares: [c]", "spares: [a]", "fabric.spares[0]", "expected server 'a' to be used once", "line 27"),
    ("spares: [c]", "spares: [c, c]", "fabric.spares[1]", "expected server 'c' to be used once", ""),
    ("[[a, b]]", "[[a, a]]", "fabric.pairs[0][1]", "but it is also used by fabric.pairs[0][0]", ""),
    ("[[a, b]]", "[[a, d]]", "fabric.pairs[0][1]", "found 'd', which is not in servers", ""),
]


@pytest.mark.parametrize(("old", "new", "path", "message", "also"), CONTRADICTIONS, ids=[c[2] for c in CONTRADICTIONS])
def test_a_contradiction_is_reported_where_it_stands(
    small: str, old: str, new: str, path: str, message: str, also: str
) -> None:
    assert small.count(old) == 1
    problems = check_bench("bench.yaml", text=small.replace(old, new))
    found = [problem for problem in problems if problem.path == path and message in problem.message]
    assert len(found) == 1, [str(problem) for problem in problems]
    assert also in found[0].message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("serial: A1", "heater_max_ma: 0.55"),  # 0.3025 mW, an eighth of a turn
        ("controller: mesh0", "controller: mesh0\n  rings: 10"),  # 1740 drive channels
    ],
)
def test_what_only_just_fits_is_right(small: str, old: str, new: str) -> None:
    assert check_bench("bench.yaml", text=small.replace(old, new)) == ()


def test_servers_of_a_pair_need_as_many_nics(small: str) -> None:
    text = small.replace("nics: [sfp-b]", "nics: [sfp-b, sfp-c]").replace("  - {name: c, nics: [sfp-c]}\n", "")
    text = text.replace("  spares: [c]\n", "")
    (problem,) = check_bench("bench.yaml", text=text)
    assert problem.path == "fabric.pairs[0]"
    assert problem.message == "expected two servers with equal numbers of NICs, found 'a' with 1 and 'b' with 2"


def test_a_module_may_have_one_input_and_one_output(small: str) -> None:
    assert check_bench("bench.yaml", text=small) == ()


def test_equal_serial_numbers_of_different_kinds_are_no_contradiction(small: str) -> None:
    assert (
        check_bench("bench.yaml", text=small.replace("sfp-b: {kind: sfp-8472}", "sfp-b: {kind: sfp-8472, serial: A1}"))
        == ()
    )


def test_a_device_of_unknown_kind_is_one_mistake_not_one_per_use(small: str) -> None:
    problems = check_bench("bench.yaml", text=small.replace("sfp-a: {kind: sfp-8472}", "sfp-a: {kind: sfp-8473}"))
    assert [problem.path for problem in problems] == ["devices.sfp-a.kind"]


def test_heater_channels_may_be_exchanged_between_pucs(small: str) -> None:
    text = small.replace("mesh0\nw", "mesh0\n  heater_channels: {3: [8, 9], 4: [7, 6]}\nw")
    table = load_bench("bench.yaml", text=text).mesh.channels()
    assert table[4:12] == (4, 5, 8, 9, 7, 6, 10, 11)


def test_every_port_of_another_layout_carries_a_fibre(small: str) -> None:
    # C = 3 columns of 2, 3, 2 cells (r = 2): E = (3*3+2)*2 + (7*3+3)/2 = 34 PUCs, 4*(3+2+1) = 24 ports
    text = small.replace("mesh0\nw", "mesh0\n  columns: [2, 3, 2]\nw")
    mesh = load_bench("bench.yaml", text=text).topology()
    assert (mesh.n_pucs, mesh.n_ports) == (34, 24)
    assert mesh.fibre_ports == tuple(range(24))
    (problem,) = check_bench("bench.yaml", text=text.replace("port: 4,", "port: 24,"))
    assert problem.message == "expected a port from 0 to 23, found 24"


def test_without_columns_the_mesh_is_the_published_one(small: str) -> None:
    mesh = load_bench("bench.yaml", text=small).topology()
    assert (mesh.n_pucs, mesh.n_ports, len(mesh.fibre_ports)) == (72, 40, 28)


def test_paths_are_written_as_people_write_them() -> None:
    assert path_text(("wiring", "inputs", 2, "port")) == "wiring.inputs[2].port"
    assert path_text(()) == "(whole file)"


PARTS = """
version: 1
name: parts
devices:
  las: {kind: keysight-laser}
  pm: {kind: keysight-n77xx}
  att: {kind: keysight-n776x, model: N7762A}
  sw: {kind: polatis}
  amp: {kind: amonics-aedfa}
wiring:
  fibres:
    - {laser: las, through: [{device: sw, enters: 1, leaves: 17}], taps: [{meter: pm, channel: 1, fraction: 1}]}
    - {laser: las, through: [{device: sw, enters: 1, leaves: 18}], taps: [{meter: pm, channel: 2, fraction: 1}]}
"""

OUTPUTS = "an output of 'sw' (17 to 32, numbered after its inputs)"


def test_the_ports_of_a_switch_with_one_input_are_named_once() -> None:
    text = PARTS.replace("{kind: polatis}", "{kind: polatis, n_inputs: 1, n_outputs: 4}").replace(
        "leaves: 17", "leaves: 1"
    )
    (problem,) = check_bench("bench.yaml", text=text.replace("leaves: 18", "leaves: 5"))
    assert problem.path == "wiring.fibres[0].through[0].leaves"
    assert problem.message == "expected an output of 'sw' (2 to 5, numbered after its inputs), found 1"


def test_a_laser_may_be_wired_twice_where_a_switch_leads_to_one_of_them() -> None:
    assert check_bench("bench.yaml", text=PARTS) == ()
    (problem,) = check_bench("bench.yaml", text=PARTS.replace("enters: 1, leaves: 18", "enters: 2, leaves: 18"))
    assert problem.path == "wiring.fibres[1].laser"
    assert "expected laser 'las' to be used once" in problem.message


@pytest.mark.parametrize(
    ("part", "path", "message"),
    [
        ("{device: sw, enters: 1}", "", "the keys enters and leaves of the switch 'sw', found no leaves"),
        ("{device: sw, enters: 1, leaves: 1}", ".leaves", f"expected {OUTPUTS}, found 1"),
        ("{device: sw, enters: 1, leaves: 33}", ".leaves", f"expected {OUTPUTS}, found 33"),
        ("{device: sw, enters: 1, leaves: 2}", ".leaves", f"expected {OUTPUTS}, found 2"),
        ("{device: sw, enters: 17, leaves: 18}", ".leaves", "expected an input of 'sw' (1 to 16), found 18"),
        (
            "{device: sw, enters: 40, leaves: 17}",
            ".enters",
            f"expected an input of 'sw' (1 to 16) or {OUTPUTS}, found 40",
        ),
        ("{device: att, channel: 3}", ".channel", "from 1 to 2 ('att' is a N7762A), found 3"),
        ("{device: att, enters: 3}", ".enters", "expected no enters of the attenuator 'att'"),
        ("{device: amp, channel: 1}", ".channel", "expected no channel of the optical amplifier 'amp'"),
        ("{device: amp}, {device: amp}", "", "expected amplifier 'amp' to be used once"),
        ("{device: las}", ".device", "found 'las', which is of kind keysight-laser"),
    ],
)
def test_a_part_has_the_keys_of_its_role_and_is_there_once(part: str, path: str, message: str) -> None:
    text = PARTS[: PARTS.rindex("    - {laser")].replace("{device: sw, enters: 1, leaves: 17}", part)
    (problem, *more) = check_bench("bench.yaml", text=text)
    place = 1 if part.count("device") == 2 else 0
    assert problem.path == f"wiring.fibres[0].through[{place}]{path}"
    assert message in problem.message
    assert len(more) <= 1


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 80) | st.floats() | st.sampled_from(["a", "sfp-8472", "oz-epc04", "b"]),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(
            st.sampled_from(["a", "b", "kind", "port", "through", "device", "taps", "ports"]), children, max_size=3
        )
    ),
    max_leaves=8,
)
sections = {
    "mesh": [
        "controller",
        "controllers",
        "columns",
        "heater_channels",
        "monitor_ports",
        "layout",
        "topology",
        "rings",
        "ports",
    ],
    "wiring": ["inputs", "outputs", "fibres", "loops", "reflectors"],
    "fabric": ["pairs", "spares"],
}
parts = st.fixed_dictionaries(
    {},
    optional={
        name: st.fixed_dictionaries({}, optional=dict.fromkeys(keys, anything)) for name, keys in sections.items()
    }
    | {
        "devices": anything,
        "servers": st.lists(st.fixed_dictionaries({}, optional={"name": anything, "nics": anything})),
    },
)
fibre_keys = ["transponder", "port", "polarization", "tap"]
fibres = st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(fibre_keys, anything)), max_size=3)


@examples(300)
@given(parts | anything)
def test_checks_skip_what_has_the_wrong_type(data: object) -> None:
    assert isinstance(cross_check(data, KindRegistry()), list)


@examples(200)
@given(fibres, anything)
def test_checks_of_wiring_skip_what_has_the_wrong_type(listed: list[object], devices: object) -> None:
    data = {"devices": {"a": devices, "b": {"kind": "sfp-8472"}}, "wiring": {"inputs": listed, "outputs": listed}}
    assert isinstance(cross_check(data, KindRegistry()), list)


def test_heaters_of_a_clements_chip_have_channels_without_gaps() -> None:
    section = {"controller": "mesh0", "topology": "clements", "ports": 3}
    mesh = MeshSection(**section)
    assert mesh.channels() == (0, -1, 1, -1, 2, -1, 3, -1, 4, -1, 5, -1, 6, 7)
    # Without the first phase shifter, which no light needs.
    assert MeshSection(**section, heater_channels={0: (None, None)}).channels()[:4] == (-1, -1, 1, -1)


def test_a_channel_for_an_arm_without_a_heater_is_a_mistake(small: str) -> None:
    text = small.replace("mesh0\nw", "mesh0\n  topology: clements\n  ports: 4\n  heater_channels: {1: [3, 4]}\nw")
    problems = {problem.path: problem.message for problem in check_bench("bench.yaml", text=text)}
    assert problems["mesh.heater_channels[1][1]"] == (
        "expected null, because this cell (upper-arm) has no heater on this arm; found channel 4"
    )
