"""Each rule for hosts in docs/protocol.md has code that keeps it and a test that fails without it.

Lines of ``tests/data/lumion_host_rules.txt``: section of the protocol, file below ``lumion_hw/``, name of the test.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
RULES = [line.split() for line in (ROOT / "tests/data/lumion_host_rules.txt").read_text("utf-8").splitlines()]
SECTIONS = set(re.findall(r"^##+ (\d+(?:\.\d+)?)\.? ", (ROOT / "docs/protocol.md").read_text("utf-8"), re.MULTILINE))
TESTS = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))


@pytest.mark.parametrize(("section", "code", "test"), RULES)
def test_a_rule_has_a_section_code_and_a_test(section: str, code: str, test: str) -> None:
    assert section in SECTIONS
    assert (ROOT / "lumion_hw" / code).is_file()
    assert f"def {test}(" in TESTS
