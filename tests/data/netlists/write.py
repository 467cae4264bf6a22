"""Write the netlists in this folder with gdsfactory (MIT licence): ``python tests/data/netlists/write.py``.

The files were written with gdsfactory 9.45.0 in an environment of its own, because its dependencies restrict pydantic.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent
COLUMN_UM, ROW_UM, HEATER_UM = 900.0, 127.0, 200.0


class Chip:
    """A component whose cells are joined by routes."""

    def __init__(self, name: str) -> None:
        import gdsfactory as gf

        gf.gpdk.PDK.activate()
        self.gf, self.component = gf, gf.Component(name)

    def add(self, part: Any, name: str, x: float, y: float) -> Any:
        """Place a part; return its reference."""
        reference = self.component.add_ref(part, name=name)
        reference.move((x, y))
        return reference

    def route(self, first: Any, second: Any) -> None:
        """Join two ports with bends and straights."""
        if (second.center[0] - first.center[0], second.center[1] - first.center[1]) != (0.0, 0.0):
            self.gf.routing.route_single(self.component, first, second, cross_section="strip", auto_taper=False)

    def netlist(self, **options: Any) -> dict[str, Any]:
        """Return the netlist."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            netlist: dict[str, Any] = self.component.get_netlist(**options)
        return netlist


def clements(ports: int, name: str) -> Chip:
    """A rectangular mesh of Clements 2016: heaters before every interferometer and at the outputs."""
    chip = Chip(name)
    components = chip.gf.components
    mzi = components.mzi2x2_2x2_phase_shifter(delta_length=0.0)
    heater = components.straight_heater_metal(length=HEATER_UM)
    ends: list[Any] = [None] * ports
    starts: list[Any] = [None] * ports

    def append(waveguide: int, entering: Any, leaving: Any) -> None:
        if ends[waveguide] is None:
            starts[waveguide] = entering
        else:
            chip.route(ends[waveguide], entering)
        ends[waveguide] = leaving

    for column in range(ports):
        for row in range(column % 2, ports - 1, 2):
            x, y = COLUMN_UM * column, -ROW_UM * row
            phase = chip.add(heater, f"phi_{column}_{row}", x, y)
            cell = chip.add(mzi, f"theta_{column}_{row}", x + 400.0, y - 0.5 * ROW_UM)
            append(row, phase["o1"], phase["o2"])
            append(row, cell["o2"], cell["o3"])
            append(row + 1, cell["o1"], cell["o4"])
    for row in range(ports - 1):
        phase = chip.add(heater, f"out_{row}", COLUMN_UM * ports, -ROW_UM * row)
        append(row, phase["o1"], phase["o2"])
    for row in range(ports):
        chip.component.add_port(f"in{row}", port=starts[row])
    for row in range(ports):
        chip.component.add_port(f"out{row}", port=ends[row])
    return chip


def single_parts() -> Chip:
    """An interferometer of single parts: two couplers and two heaters, grating couplers, a mirrored coupler, pads."""
    chip = Chip("single_parts")
    components = chip.gf.components
    splitter, heater = components.mmi2x2(), components.straight_heater_metal(length=HEATER_UM)
    first = chip.add(splitter, "cp1", 0.0, 0.0)
    second = chip.component.add_ref(splitter, name="cp2")
    second.mirror_x()
    second.move((700.0, 0.0))
    top = chip.add(heater, "top", 150.0, 60.0)
    bottom = chip.add(heater, "bottom", 150.0, -60.0)
    chip.route(first["o3"], top["o1"])
    chip.route(top["o2"], second["o3"])
    chip.route(first["o4"], bottom["o1"])
    chip.route(bottom["o2"], second["o4"])
    grating = components.grating_coupler_elliptical()
    for number, port in enumerate((first["o1"], first["o2"], second["o2"], second["o1"])):
        reference = chip.component.add_ref(grating, name=f"gc{number}")
        reference.connect("o1", port)
    chip.add(components.pad_array(), "pads", 0.0, 500.0)
    return chip


def nested() -> Chip:
    """Two interferometers, each with its heater in a component of its own."""
    chip = Chip("nested")
    gf = chip.gf
    inner = gf.Component("block")
    heater = inner.add_ref(gf.components.straight_heater_metal(length=HEATER_UM), name="phi")
    cell = inner.add_ref(gf.components.mzi2x2_2x2_phase_shifter(delta_length=0.0), name="mzi")
    cell.connect("o2", heater["o2"])
    for name, port in (("o1", cell["o1"]), ("o2", heater["o1"]), ("o3", cell["o3"]), ("o4", cell["o4"])):
        inner.add_port(name, port=port)
    first, second = chip.add(inner, "b1", 0.0, 0.0), chip.component.add_ref(inner, name="b2")
    second.move((1500.0, 100.0))
    chip.route(first["o3"], second["o2"])
    chip.route(first["o4"], second["o1"])
    for name, port in (("i1", first["o1"]), ("i2", first["o2"]), ("q1", second["o3"]), ("q2", second["o4"])):
        chip.component.add_port(name, port=port)
    return chip


CHIPS: dict[str, Callable[[], dict[str, Any]]] = {
    "clements4.yml": lambda: clements(4, "clements4").netlist(),
    "single_parts.yml": lambda: single_parts().netlist(),
    "nested.json": lambda: nested().netlist(recursive=True),
}
"""Netlists by file name."""


def file_text(name: str) -> str:
    """Return the text of a file as gdsfactory writes its netlist."""
    import gdsfactory as gf

    netlist = CHIPS[name]()
    if name.endswith(".json"):
        return json.dumps(netlist, indent=1) + "\n"
    head = f"# gdsfactory {gf.__version__}, tests/data/netlists/write.py\n"
    return head + yaml.safe_dump(netlist, sort_keys=False, default_flow_style=None, width=4096)


if __name__ == "__main__":
    for file_name in CHIPS:
        (FOLDER / file_name).write_text(file_text(file_name))
