"""The examples of README and docs run: blocks with tests as a test file of their own, the others as scripts.

A block marked ``python no-run`` is skipped, one marked ``python long`` left to ``make test-long``.
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
            marks = [pytest.mark.skip(reason="marked no-run")] if "no-run" in block[1] else []
            marks += [pytest.mark.long] if "long" in block[1] else []
            found.append(pytest.param(block[2], id=f"{page.name}:{line}", marks=marks))
    return found


SCRIPTS = [block for block in blocks() if not _HAS_TESTS.search(block.values[0])]
TESTS = {block.id: block.values[0] for block in blocks() if _HAS_TESTS.search(block.values[0]) and not block.marks}


@pytest.mark.parametrize("code", SCRIPTS)
def test_the_example_runs(code, tmp_path, monkeypatch) -> None:
    # Not inside pytester, which forgets modules again: numpy loads once per process.
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "example", "exec"), {"__name__": "__main__"})


def test_the_examples_that_are_tests_pass(pytester) -> None:
    """Each in a file of its own, all in one process."""
    names = {"test_" + re.sub(r"\W", "_", place): code for place, code in TESTS.items()}
    pytester.makepyfile(**names)
    pytester.makeini("[pytest]\nfilterwarnings = error\n")
    # Contracts over real wires run in tests/contract.
    result = pytester.runpytest_subprocess("-v", "-p", "no:cacheprovider", "-k", "not tcp and not pty")
    assert set(result.parseoutcomes()) <= {"passed", "skipped", "deselected"}
    for name in names:
        result.stdout.fnmatch_lines([f"{name}.py::*PASSED*"])


def test_there_are_examples() -> None:
    names = {block.id.split(":")[0] for block in blocks()}
    assert {"README.md", "testing.md"} <= names
