"""The public names: docs/api.md, made from the packages that show them and from the first lines of their docstrings.

Run: .venv/bin/python benchmarks/api_page.py    writes docs/api.md anew

Read from the source text alone: nothing of the package is run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

HERE = Path(__file__).parents[1]
PAGE = HERE / "docs" / "api.md"

PLACES: Mapping[str, tuple[str, ...]] = {
    "Lab scripts": (
        "lumion_hw",
        "lumion_hw.mesh",
        "lumion_hw.circuits",
        "lumion_hw.polarization",
        "lumion_hw.schedules",
        "lumion_hw.planning",
        "lumion_hw.fabric",
        "lumion_hw.acquisition",
        "lumion_hw.serving",
        "calibration",
    ),
    "Tests without a lab": ("lumion_hw.testing", "lumion_hw.emulator", "lumion_hw.emulator.scpi"),
    "Single instruments, drivers and kinds of your own": (
        "lumion_hw.drivers",
        "lumion_hw.interfaces",
        "lumion_hw.sessions",
        "lumion_hw.links",
        "lumion_hw.bench",
    ),
    "Protocol and register map": ("firmware_protocol", "lumion_hw.standards.cmis"),
}
"""All packages that users import from, by who they are for."""
INSTRUMENTS = ("lumion_hw.drivers", "lumion_hw.emulator")
"""Packages of many instruments: what a class is about stands in the head of its module."""

HEAD = """\
# Public names

What is listed here, and imported from the place it is listed under, is what scripts can build on:
[CHANGELOG.md](../CHANGELOG.md) tells every change of it. **Everything else is private** and may change without notice:
modules inside these packages, names they have beside those listed, attributes that begin with an underscore.

```python
from lumion_hw import Bench, LinkError
from lumion_hw.mesh import HexMesh, RouteRequest, route
```

At a prompt `dir(lumion_hw.mesh)` shows the same names, and type checkers know no others. Made by
`.venv/bin/python benchmarks/api_page.py` from `__all__` of each package and the first line of each docstring; a test
holds the examples of README, docs and `examples/` to these names.
"""


def source(module: str) -> Path:
    """Return the file of a module or package."""
    path = HERE.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def parsed(module: str) -> ast.Module:
    """Return the syntax tree of a module or package."""
    return ast.parse(source(module).read_text(encoding="utf-8"))


def public(place: str) -> list[str]:
    """Return the names in ``__all__`` of a package, in the order it has them."""
    for node in parsed(place).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            return list(ast.literal_eval(node.value))
    raise ValueError(f"{place} has no __all__")


def homes(place: str) -> dict[str, str]:
    """Return the module that each name is imported from into a package, type checking included."""
    return {
        one.asname or one.name: node.module
        for node in ast.walk(parsed(place))
        if isinstance(node, ast.ImportFrom) and node.module
        for one in node.names
    }


def head(module: str) -> str:
    """Return the first line of the docstring of a module or package."""
    return (ast.get_docstring(parsed(module)) or "").partition("\n")[0]


def first_line(module: str, name: str) -> str:
    """Return the first line of the docstring of a class, function or constant.

    Raises:
        ValueError: It has none.
    """
    body = parsed(module).body
    for index, node in enumerate(body):
        documented = None
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            documented = ast.get_docstring(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            after = body[index + 1] if index + 1 < len(body) else None
            if any(isinstance(target, ast.Name) and target.id == name for target in targets) and (
                isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            ):
                documented = str(after.value.value)
        if documented:
            return documented.partition("\n")[0]
    home = homes(module).get(name)
    if home is None:
        raise ValueError(f"{name} of {module} has no docstring")
    return first_line(home, name)


def in_markdown(text: str) -> str:
    """Return a line of a docstring as Markdown in a table, names without their modules."""
    text = re.sub(r":\w+:`[~!]?(?:(?:lumion_hw|calibration|firmware_protocol)\.[a-z0-9_.]*\.)?([^`]*)`", r"`\1`", text)
    return text.replace("``", "`").replace("|", "\\|")


def page() -> str:
    """Return docs/api.md."""
    parts = [HEAD]
    for readers, places in PLACES.items():
        parts.append(f"## {readers}\n")
        for place in places:
            names = [name for name in public(place) if name != "__version__"]
            rows = [["name", "what it is"], ["---", "---"]]
            rows += [[f"`{name}`", in_markdown(first_line(place, name))] for name in names]
            if place in INSTRUMENTS:
                heads = [in_markdown(head(homes(place)[name])) for name in names]
                rows = [[*row, about] for row, about in zip(rows, ["part of", "---", *heads], strict=True)]
            lines = [f"| {' | '.join(row)} |" for row in rows]
            parts.append("\n".join([f"### {place}\n", f"{in_markdown(head(place))}\n", *lines, ""]))
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
