"""Draw the pictures of the cookbook with the code of its pages.

Run: .venv/bin/python benchmarks/cookbook.py    runs the code blocks with pictures and rewrites docs/img

A page of docs/cookbook/ with a picture has a code block that saves it under the same name, or a command that draws it,
so that readers get the picture that they see. Needs the extras plots and frames.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parents[1]
IMAGES = HERE / "docs" / "img"
EXAMPLES = sorted((HERE / "examples").rglob("*.y*ml"))
PAGES = sorted((HERE / "docs" / "cookbook").glob("*.md"))
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ (.*)$", re.MULTILINE)
_MAP = re.compile(r"^\$ (lumion mesh (?:show|route) .* (?:-o|--svg) ([\w-]+\.svg))$", re.MULTILINE)
_RESULT = re.compile(r"^\$ lumion mesh program .* --picture ([\w-]+\.svg)$", re.MULTILINE)
_BEFORE = {"unitary.md": "own-chip.md"}
"""Page whose commands come first, for a page that uses their record."""
_SAVED = re.compile(r"\.savefig\(\"([\w-]+\.svg)\"\)")


def drawn(page: Path) -> set[str]:
    """Return the names of the pictures that the blocks and commands of a page save."""
    text = page.read_text(encoding="utf-8")
    return {*_SAVED.findall(text), *_RESULT.findall(text), *(name for _, name in _MAP.findall(text))}


def draw_map(command: str, name: str) -> None:
    """Run a command that draws a mesh of the examples, and keep its picture."""
    with tempfile.TemporaryDirectory() as folder:
        for bench in EXAMPLES:
            shutil.copy(bench, folder)
        program, *arguments = shlex.split(command)
        subprocess.run([Path(sys.executable).with_name(program), *arguments], cwd=folder, check=True)
        shutil.copy(Path(folder) / name, IMAGES / name)


def draw_results(page: Path) -> None:
    """Run all commands of a page, and those of the page before it; keep the pictures of programmed matrices."""
    with tempfile.TemporaryDirectory() as folder:
        for bench in EXAMPLES:
            shutil.copy(bench, folder)
        for part in (page.with_name(_BEFORE[page.name]), page):
            for command in _COMMAND.findall(part.read_text(encoding="utf-8")):
                program, *arguments = shlex.split(command)
                subprocess.run([Path(sys.executable).with_name(program), *arguments], cwd=folder, check=True)
        for name in _RESULT.findall(page.read_text(encoding="utf-8")):
            shutil.copy(Path(folder) / name, IMAGES / name)


def main() -> None:
    os.environ["MPLBACKEND"] = "agg"
    import matplotlib as mpl

    # The same file on every run: no date, and names that do not follow a random number.
    mpl.rcParams.update({"svg.hashsalt": "lumion-hw", "figure.figsize": (6.4, 3.6), "savefig.bbox": "tight"})
    os.environ["SOURCE_DATE_EPOCH"] = "0"
    for page in PAGES:
        for command, name in _MAP.findall(page.read_text(encoding="utf-8")):
            draw_map(command, name)
        if page.name in _BEFORE:
            draw_results(page)
        for block in _BLOCK.findall(page.read_text(encoding="utf-8")):
            names = _SAVED.findall(block)
            if not names:
                continue
            with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
                for bench in EXAMPLES:
                    shutil.copy(bench, folder)
                exec(compile(block, page.name, "exec"), {"__name__": "__main__"})
                for name in names:
                    shutil.copy(name, IMAGES / name)
                    print(f"docs/img/{name}: {(IMAGES / name).stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
