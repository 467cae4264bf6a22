"""The examples of README and docs run: blocks with tests as a test file of their own, the others as scripts.

A block marked ``python no-run`` is skipped.
"""

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
_BLOCK = re.compile(r"^```python([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HAS_TESTS = re.compile(r"^(?:class Test|def test_)", re.MULTILINE)


def blocks() -> list:
    """Return (code) of every block, named by page and line."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in _BLOCK.finditer(text):
            line = text.count("\n", 0, block.start()) + 1
            skip = [pytest.mark.skip(reason="marked no-run")] if "no-run" in block[1] else []
            found.append(pytest.param(block[2], id=f"{page.name}:{line}", marks=skip))
    return found


@pytest.mark.parametrize("code", blocks())
def test_the_example_runs(code, request, tmp_path, monkeypatch) -> None:
    if _HAS_TESTS.search(code):
        pytester = request.getfixturevalue("pytester")
        pytester.makepyfile(code)
        pytester.makeini("[pytest]\nfilterwarnings = error\n")
        # Contracts over real wires run in tests/contract; a process of its own, because numpy loads once per process.
        result = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider", "-k", "not tcp and not pty")
        outcomes = result.parseoutcomes()
        assert outcomes.get("passed", 0) > 0
        assert set(outcomes) <= {"passed", "skipped", "deselected"}
    else:
        # Not inside pytester, which forgets modules again: numpy loads once per process.
        monkeypatch.chdir(tmp_path)
        exec(compile(code, "example", "exec"), {"__name__": "__main__"})


def test_there_are_examples() -> None:
    names = {block.id.split(":")[0] for block in blocks()}
    assert {"README.md", "testing.md"} <= names
