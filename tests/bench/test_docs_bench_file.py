"""The pages about bench files list every device and every key, and their examples are valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from lumion_hw.bench.file.known_kinds import builtin_kinds
from lumion_hw.bench.file.loader import bench_schema, check_bench
from lumion_hw.bench.kind_tables import PAGES, updated

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "bench-keys.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "bench-file.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
DEVICE_KINDS = [kind.name for kind in builtin_kinds()]
DEVICES = {
    model["properties"]["kind"]["const"]: model["properties"]
    for model in bench_schema(builtin_kinds())["$defs"].values()
    if "kind" in model["properties"]
}


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_table_is_up_to_date(name: str) -> None:
    page = (ROOT / name).read_text(encoding="utf-8")
    assert updated(page, PAGES[name]) == page, "run: python -m lumion_hw.bench.kind_tables"


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
