"""The notebook of examples/: executed, small, of no machine in particular, and it runs again."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
MAX_BYTES = 300_000
PATHS = re.compile(r"(?:/(?:home|root|tmp|work|usr|var|opt|Users)/|[A-Z]:\\\\)")


def code_cells(path: Path) -> list[dict]:
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


def kinds(cell: dict) -> set[str]:
    return {output["output_type"] for output in cell["outputs"]}


def test_there_is_one_of_them() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["fifteen_minutes"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_was_executed_from_top_to_bottom_without_an_error(path: Path) -> None:
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert set().union(*map(kinds, cells)) <= {"execute_result", "display_data", "stream"}
    assert all(output.get("name") != "stderr" for cell in cells for output in cell["outputs"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_small_and_names_no_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.encode()) < MAX_BYTES
    text = re.sub(r'"image/png": "[^"]*"', "", text)  # letters of a picture may spell any name
    assert not PATHS.search(text)
    assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", text)
    assert "<script" not in text


@pytest.mark.long
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_again(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("nbclient", reason="nbclient, of the extra test, is not there")
    subprocess.run([sys.executable, ROOT / "benchmarks" / "notebooks.py", "--out", tmp_path, path.stem], check=True)
    before, after = code_cells(path), code_cells(tmp_path / path.name)
    assert [cell["source"] for cell in after] == [cell["source"] for cell in before]
    # How much text comes in one piece is a matter of time.
    assert [kinds(cell) for cell in after] == [kinds(cell) for cell in before]
