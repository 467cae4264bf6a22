"""The picture of the house names what exists, and a class name means one thing."""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def house():
    spec = importlib.util.spec_from_file_location("house", ROOT / "benchmarks" / "house.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_module_that_the_picture_names_exists() -> None:
    drawn = house()
    modules = drawn.sources(ROOT)
    assert [stop for stops in drawn.WAYS.values() for stop in stops if stop not in modules] == []


def test_every_class_name_is_used_once() -> None:
    drawn = house()
    names = drawn.class_names(drawn.sources(ROOT))
    assert {name: where for name, where in names.items() if len(where) > 1} == {}


def test_every_file_that_the_architecture_page_names_exists() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:lumion_hw|calibration|firmware_protocol|tests|benchmarks|docs)/[\w./-]+)`", page))
    assert len(named) > 20
    assert sorted(name for name in named if not (ROOT / name).exists()) == []
