"""Known components of gdsfactory and SAX netlists, and the mesh cells that they correspond to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from lumion_hw.mesh.layout.cells import CELL_KINDS

MZI = "mzi"
"""Kind of a Mach-Zehnder interferometer whose heaters are given by its settings."""
WAVEGUIDE = "waveguide"
FIBRE = "fibre"
TERMINATION = "termination"
ELECTRICAL = "electrical"

KINDS: Mapping[str, str] = {
    **{kind.name: kind.description for kind in CELL_KINDS.values()},
    MZI: "Mach-Zehnder interferometer; settings straight_x_top and straight_x_bot name its heaters",
    WAVEGUIDE: "part with two optical ports and no heater, which becomes part of a joint",
    FIBRE: "grating or edge coupler, which is a port of the mesh",
    TERMINATION: "end of a waveguide, without a fibre",
    ELECTRICAL: "part without light, which is ignored",
}
"""Description of every kind of component, by name."""

PortFamily = Mapping[str, int]
"""Port names of a cell, each with its PUC-port: end A, left (0) and right (1); end B, left (2) and right (3)."""

# As gdsfactory counts: clockwise from the lower left. SAX models count both sides from the bottom.
_FOUR: tuple[PortFamily, ...] = ({"o1": 1, "o2": 0, "o3": 2, "o4": 3}, {"in0": 1, "in1": 0, "out0": 3, "out1": 2})
_UPPER: tuple[PortFamily, ...] = ({"o1": 0, "o2": 2}, {"in0": 0, "out0": 2}, {"in": 0, "out": 2})
_LOWER: tuple[PortFamily, ...] = tuple({name: port + 1 for name, port in family.items()} for family in _UPPER)
# The unused ports are those at which light leaves that a splitter with one port does not transmit.
_ONE_TO_TWO: tuple[PortFamily, ...] = ({"o1": 1, "o2": 2, "o3": 3},)
_TWO_TO_ONE: tuple[PortFamily, ...] = ({"o1": 1, "o2": 0, "o3": 2},)
_ONE_TO_ONE: tuple[PortFamily, ...] = ({"o1": 1, "o2": 2},)

_SPLITTER_WITH_ONE_PORT = "*1x2*"
_HEATED_BY_NAME = "*phase_shifter*"
_ARM_KINDS = {(True, True): "two-arm", (True, False): "upper-arm", (False, True): "lower-arm", (False, False): "fixed"}
# An electrical port is e1, l_e1, top_e4 or e_1_2; the port of a pad is called pad.
_ELECTRICAL_PORT = re.compile(r"(.*_)?e_?\d+(_\d+)*|pad")
# Parameters or a hash that some versions append to the name of a cell, such as bend_euler_RNone_A90_20625_5500.
_PARAMETERS = re.compile(r"_(?=[A-Z][\w.]*$)|_gdsfactoryp|_[0-9a-f]{8}$|\$\d+$")


@dataclass(frozen=True)
class Component:
    """A known component, or several components whose names match a pattern.

    Attributes:
        pattern: Component name; ``*`` stands for any text.
        kind: A key of :data:`KINDS`.
        ports: Names of the component's ports; by default those of its kind.
        length_key: Name of the setting that holds the length in micrometres.
        start_um: Position of the left end relative to the component's origin.
        more_um: Length to add to the length in the settings.
        default_um: Length if the netlist gives none.
    """

    pattern: str
    kind: str
    ports: tuple[PortFamily, ...] = ()
    length_key: str = "length"
    start_um: float = 0.0
    more_um: float = 0.0
    default_um: float = 0.0


def _mzi(pattern: str) -> Component:
    # Bends and both 2x2 couplers of the default interferometer of gdsfactory add 91 micrometres to its arms.
    return Component(pattern, MZI, length_key="length_x", start_um=-10.0, more_um=91.0, default_um=10.0)


COMPONENTS: tuple[Component, ...] = (
    _mzi("mzi"),
    _mzi("mzi[12]x2"),
    _mzi("mzi*[12]x2_[12]x2*"),
    _mzi("mzi*_phase_shifter*"),
    _mzi("mzi_coupler"),
    Component("straight_heater_meander*", "upper-phase", length_key="span", default_um=115.0),
    Component("straight_heater_*", "upper-phase", default_um=320.0),
    Component("bend_*_heater", "upper-phase", default_um=30.0),
    Component("heater", "upper-phase", default_um=320.0),
    Component("mmi2x2*", "coupler", start_um=-10.0, length_key="length_mmi", more_um=20.0, default_um=5.5),
    Component("coupler", "coupler", start_um=-10.0, more_um=20.0, default_um=20.0),
    Component("coupler_adiabatic", "coupler", default_um=60.0),
    Component("coupler_broadband", "coupler", default_um=60.0),
    Component("coupler_full", "coupler", default_um=60.0),
    Component("mmi1x2*", "coupler", _ONE_TO_TWO, "length_mmi", start_um=-10.0, more_um=20.0, default_um=5.5),
    Component("crossing", "crossing", start_um=-5.0, default_um=10.0),
    Component("crossing_etched", "crossing", start_um=-5.0, default_um=10.0),
    Component("straight", WAVEGUIDE),
    Component("straight_all_angle", WAVEGUIDE),
    Component("bend_*", WAVEGUIDE),
    Component("taper*", WAVEGUIDE),
    Component("transition*", WAVEGUIDE),
    Component("spiral*", WAVEGUIDE),
    Component("delay_snake*", WAVEGUIDE),
    Component("grating_coupler*", FIBRE),
    Component("edge_coupler*", FIBRE),
    Component("terminator*", TERMINATION),
    Component("pad*", ELECTRICAL),
    Component("via_*", ELECTRICAL),
    Component("wire_*", ELECTRICAL),
)
"""All known components. The first matching pattern applies."""


def is_electrical(port: str) -> bool:
    """Return whether a port name belongs to an electrical port."""
    return _ELECTRICAL_PORT.fullmatch(port) is not None


def find_component(instance: str, component: str, cells: Mapping[str, str]) -> Component | None:
    """Return the table entry of a component, or ``None`` if the component is unknown.

    A number or parameters at the end of the component name are ignored. ``cells`` gives kinds by instance or component
    name, which override the table.
    """
    cut = _PARAMETERS.split(component, maxsplit=1)[0]
    names = list(dict.fromkeys([component, cut, component.rstrip("0123456789"), cut.rstrip("0123456789")]))
    match = next((entry for name in names for entry in COMPONENTS if fnmatchcase(name, entry.pattern)), None)
    for name in (instance, *names):
        if name in cells:
            # The length of a known component stays.
            given = match or Component(name, cells[name], default_um=100.0)
            ports = given.ports if given.kind == cells[name] else ()
            return Component(
                name, cells[name], ports, given.length_key, given.start_um, given.more_um, given.default_um
            )
    return match


def cell_kind(component_entry: Component, component: str, settings: Mapping[str, Any]) -> str | None:
    """Return the kind of a component, or ``None`` if its settings name an unknown component as an arm."""
    if component_entry.kind != MZI:
        return component_entry.kind
    heated: list[bool] = []
    for key in ("straight_x_top", "straight_x_bot"):
        arm = _component_name(settings.get(key) or settings.get("straight") or "straight")
        entry = find_component("", arm, {})
        if entry is None:
            return None
        heated.append(entry.kind == "upper-phase")
    if "straight_x_top" not in settings and fnmatchcase(component, _HEATED_BY_NAME):
        heated[0] = True
    return _ARM_KINDS[heated[0], heated[1]]


def port_families(entry: Component, kind: str, component: str, settings: Mapping[str, Any]) -> Sequence[PortFamily]:
    """Return the possible sets of port names of a cell."""
    if entry.ports:
        return entry.ports
    if kind == "upper-phase":
        return _UPPER
    if kind == "lower-phase":
        return _LOWER
    if entry.kind != MZI:
        return _FOUR
    splitter = _component_name(settings.get("splitter") or ("mmi1x2" if "1x2" in component else "mmi2x2"))
    combiner = _component_name(settings.get("combiner") or (splitter if "2x2" not in component else "mmi2x2"))
    single = tuple(fnmatchcase(name, _SPLITTER_WITH_ONE_PORT) for name in (splitter, combiner))
    return {
        (True, True): _ONE_TO_ONE,
        (True, False): _ONE_TO_TWO,
        (False, True): _TWO_TO_ONE,
        (False, False): _FOUR,
    }[single[0], single[1]]


def length_um(entry: Component, settings: Mapping[str, Any]) -> float:
    """Return the length of a component in micrometres, 0 for a waveguide of unknown length."""
    for key in (entry.length_key, "length"):
        value = settings.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value < 1e9:
            return float(value) + entry.more_um
    return entry.default_um + entry.more_um


def _component_name(spec: Any) -> str:
    if isinstance(spec, Mapping):
        spec = spec.get("component") or spec.get("function") or spec.get("name")
    return spec if isinstance(spec, str) else str(spec)
