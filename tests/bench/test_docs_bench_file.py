"""The page about bench files names every device and every key there is, and its examples are right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from lumion_hw.bench.devices import DEVICE_KINDS
from lumion_hw.bench.loader import bench_schema, check_bench

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "bench-file.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
DEVICES = {
    model["properties"]["kind"]["const"]: model["properties"]
    for model in bench_schema()["$defs"].values()
    if "kind" in model["properties"]
}


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
