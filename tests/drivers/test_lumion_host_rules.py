"""The table of host rules in the documentation names code and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = re.findall(
    r"^\| [\d.–]+ \| (.+) \| `([\w/.]+)` \| `(\w+)` \|$", (ROOT / "docs/host-rules.md").read_text(), re.MULTILINE
)
TESTS = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))


def test_the_table_is_there() -> None:
    lines = [line for line in (ROOT / "docs/host-rules.md").read_text().splitlines() if line.startswith("| ")]
    assert len(lines) - 1 == len(ROWS) > 40  # but for the head, every line was understood


@pytest.mark.parametrize(("rule", "code", "test"), ROWS)
def test_a_rule_has_code_and_a_test(rule: str, code: str, test: str) -> None:
    assert (ROOT / "lumion_hw" / code).is_file(), rule
    assert f"def {test}(" in TESTS, rule
