"""The page about bench files names every device and every key there is, and its examples are right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from lumion_hw.bench.file.known_kinds import builtin_kinds
from lumion_hw.bench.file.loader import bench_schema, check_bench
from lumion_hw.bench.kind_tables import PAGES, replaced

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "bench-file.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
DEVICE_KINDS = [kind.name for kind in builtin_kinds()]
DEVICES = {
    model["properties"]["kind"]["const"]: model["properties"]
    for model in bench_schema(builtin_kinds())["$defs"].values()
    if "kind" in model["properties"]
}


SCHEMA = bench_schema(builtin_kinds())
SECTIONS = {
    "": SCHEMA,
    **{
        place: SCHEMA["$defs"][name]
        for place, name in {
            "mesh": "MeshSection",
            "wiring.inputs": "InputModel",
            "wiring.outputs": "OutputModel",
            "wiring.outputs.tap": "TapModel",
            "wiring.outputs.taps": "FurtherTapModel",
            "wiring.inputs.through": "LightPartModel",
            "wiring.fibres": "FibreModel",
            "wiring.loops": "LoopModel",
            "wiring.reflectors": "ReflectorModel",
            "servers": "ServerModel",
            "fabric": "FabricModel",
            "emulation": "EmulationModel",
            "emulation.p_pi_mw": "HeaterEfficiencyModel",
        }.items()
    },
}
"""The sections whose keys the page lists as the schema has them."""


def row(place: str, key: str) -> str:
    """Return the row of a key: its default, or that it has none, and what the model says of it."""
    section = SECTIONS[place]
    described = section["properties"][key]
    default = described.get("default")
    if key in section.get("required", ()):
        shown = "needed"
    elif default in (None, "", [], {}):
        shown = "none"
    else:
        shown = str(default).lower() if isinstance(default, bool) else f"{default}"
    name = f"{place}.{key}" if place else key
    return f"| `{name}` | {shown} | {described.get('description', '')} |"


@pytest.mark.parametrize("place", SECTIONS)
def test_every_key_of_a_section_has_its_row(place: str) -> None:
    assert [row(place, key) for key in SECTIONS[place]["properties"] if row(place, key) not in PAGE] == []


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_table_is_up_to_date(name: str) -> None:
    page = (Path(__file__).parents[2] / name).read_text(encoding="utf-8")
    assert replaced(page, PAGES[name]()) == page, "run: python -m lumion_hw.bench.kind_tables"


def test_every_kind_has_its_place() -> None:
    assert set(DEVICES) == set(DEVICE_KINDS)
    assert [kind for kind in DEVICE_KINDS if f"`{kind}`" not in PAGE] == []


@pytest.mark.parametrize("kind", DEVICE_KINDS)
def test_every_key_of_a_device_is_named(kind: str) -> None:
    assert [key for key in DEVICES[kind] if f"`{key}`" not in PAGE] == []


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_a_right_file_once_it_is_whole(example: str, tmp_path: Path) -> None:
    parts = yaml.safe_load(example)
    parts = {"version": 1, "name": "example", "mesh": {"controller": next(iter(parts["devices"]))}} | parts
    path = tmp_path / "example.yaml"
    path.write_text(yaml.safe_dump(parts))
    assert check_bench(path) == ()
