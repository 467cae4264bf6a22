"""Public names: each can be imported, has one place, and examples use no others."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import pkgutil
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from string import Template

import pytest

from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
OURS = ("lumion_hw", "calibration", "firmware_protocol")


def load(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BOOK = load(ROOT / "benchmarks" / "book.py")
PLACES = {place: set(BOOK.public_names(place)) for place in BOOK.PLACES}


@pytest.mark.parametrize("place", PLACES)
def test_every_public_name_can_be_imported_and_is_listed(place: str) -> None:
    package = importlib.import_module(place)
    assert PLACES[place] <= set(dir(package))
    for name in PLACES[place]:
        assert hasattr(package, name), name
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = package.no_such_name


@pytest.mark.parametrize("place", PLACES)
def test_no_public_name_is_that_of_a_module_beside_it(place: str) -> None:
    # Once the module is imported it would stand in the place of what is meant.
    modules = {module.name for module in pkgutil.iter_modules(importlib.import_module(place).__path__)}
    assert PLACES[place] & modules == set()


def test_a_name_has_one_place() -> None:
    # Two things may have one name (State of a PUC, State of a recorded column), each in its place.
    things = ((name, id(getattr(importlib.import_module(place), name))) for place in PLACES for name in PLACES[place])
    assert [name for (name, _), times in Counter(things).items() if times > 1] == []


def test_a_name_loads_its_own_module_and_not_its_neighbours() -> None:
    code = (
        "import sys; from lumion_hw.emulator import Epc04; from lumion_hw.drivers import OzEpc04;"
        "print(*(name for name in sys.modules if name.startswith(('lumion_hw.emulator.', 'lumion_hw.drivers.'))))"
    )
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout.split()
    loaded = {".".join(name.split(".")[:3]) for name in said}
    assert {"lumion_hw.emulator.polarization", "lumion_hw.drivers.polarization"} <= loaded
    assert not {f"lumion_hw.{side}.{room}" for side in ("emulator", "drivers") for room in ("mesh", "meters")} & loaded


# -- what examples import


def examples() -> Iterator[tuple[str, str]]:
    """Yield where it stands and code, of every block of the pages and of every file that is an example."""
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = page.read_text(encoding="utf-8")
        for block in re.finditer(r"^```python[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            yield f"{page.name}:{text.count(chr(10), 0, block.start()) + 1}", block[1]
    for path in (*sorted((ROOT / "examples").rglob("*.py")), *sorted((ROOT / "tests/data/acme_lumion").glob("*.py"))):
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "lumion_hw/cli/driver_template").rglob("*.py.template")):
        words = defaultdict(lambda: "acme")
        yield str(path.relative_to(ROOT)), Template(path.read_text(encoding="utf-8")).substitute(words)
    for path in sorted((ROOT / "examples").rglob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        lines = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code").splitlines()
        code = "\n".join(line for line in lines if not line.startswith("%"))  # commands of the notebook itself
        yield str(path.relative_to(ROOT)), code


def private(code: str) -> list[str]:
    """Return what a script imports or uses of our packages that is not public."""
    tree = ast.parse(code)
    found = []
    bound = {}  # packages by what the script calls them
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                if one.name.split(".")[0] not in OURS:
                    continue
                bound |= {one.asname: one.name} if one.asname else {one.name.split(".")[0]: one.name.split(".")[0]}
                if one.name not in PLACES:
                    found.append(one.name)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in OURS and not node.level:
            for one in node.names:
                if (whole := f"{node.module}.{one.name}") in PLACES:
                    bound[one.asname or one.name] = whole
                elif one.name not in PLACES.get(node.module, ()):
                    found.append(whole)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            root, _, rest = ast.unparse(node).partition(".")
            place, _, name = f"{bound.get(root, '')}.{rest}".rpartition(".")
            if place in PLACES and name not in PLACES[place] and f"{place}.{name}" not in PLACES:
                found.append(f"{place}.{name}")
    return found


@pytest.mark.parametrize(("place", "code"), [pytest.param(*example, id=example[0]) for example in examples()])
def test_an_example_imports_public_names_only(place: str, code: str) -> None:
    assert private(code) == [], f"{place}: the public names are listed in __init__.pyi of each package"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from lumion_hw import Bench\nBench.open('x')", []),
        ("from lumion_hw.mesh import HexMesh, UnitCells as Cells", []),
        ("from lumion_hw import mesh", []),
        ("import firmware_protocol as fp\nfp.Kind.REQ", []),
        ("import lumion_hw.mesh\nlumion_hw.mesh.HexMesh", []),
        ("from numpy import linalg\nfrom .here import it", []),
        ("from lumion_hw.mesh.layout.hexagonal import HexMesh", ["lumion_hw.mesh.layout.hexagonal.HexMesh"]),
        ("from lumion_hw.mesh import layout", ["lumion_hw.mesh.layout"]),
        ("from lumion_hw.mesh import circuits", ["lumion_hw.mesh.circuits"]),
        ("import lumion_hw.mesh.layout.hexagonal", ["lumion_hw.mesh.layout.hexagonal"]),
        ("import firmware_protocol as fp\nfp.stuffing.encode(b'')", ["firmware_protocol.stuffing"]),
        ("import lumion_hw\nlumion_hw.mesh.layout.HexMesh", ["lumion_hw.mesh.layout"]),
        ("from lumion_hw import mesh as m\nm.layout", ["lumion_hw.mesh.layout"]),
        ("def later():\n    from calibration.fit import bound", ["calibration.fit.bound"]),
    ],
)
def test_what_counts_as_private(code: str, found: list[str]) -> None:
    assert private(code) == found
