"""docs/performance.md is generated from benchmarks/results/ and up to date."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.testing.test_public_names import load

ROOT = Path(__file__).parents[2]
TABLES = load(ROOT / "benchmarks" / "tables.py")


def test_the_page_is_up_to_date() -> None:
    assert TABLES.PAGE.read_text(encoding="utf-8") == TABLES.performance_page(), "run: python benchmarks/tables.py"


def test_each_section_names_a_command_of_this_repository() -> None:
    for path in TABLES.RESULTS.glob("*.yaml"):
        command = yaml.safe_load(path.read_text(encoding="utf-8"))["command"]
        scripts = [word for word in command.replace(";", " ").split() if word.startswith("benchmarks/")]
        assert scripts or command.startswith("make "), path.name
        assert all((ROOT / script).exists() for script in scripts if script.endswith(".py")), path.name


def test_a_row_with_a_missing_cell_would_be_seen() -> None:
    for path in TABLES.RESULTS.glob("*.yaml"):
        for part in yaml.safe_load(path.read_text(encoding="utf-8"))["tables"]:
            assert all(len(row) == len(part["columns"]) for row in part.get("rows", ())), path.name
