"""Statistics of the source code: packages, import layers and cycles, names, comments, start-up; or a picture.

Run: .venv/bin/python benchmarks/house.py [ROOT]            figures of a checkout, by default this one
     .venv/bin/python benchmarks/house.py --picture FILE    the packages and three calls through them, as SVG
     .venv/bin/python benchmarks/house.py --identifiers     names with a word outside benchmarks/vocabulary.txt

Figures are counted in the source text, so that any checkout can be measured. Only the last rows run the package, with
this interpreter.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import re
import statistics
import subprocess
import sys
import time
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from pathlib import Path

HERE = Path(__file__).parents[1]
PACKAGES = ("calibration", "lumion_hw", "firmware_protocol")

WAYS: Mapping[str, tuple[str, ...]] = {
    "a setpoint: heater currents from a script to the chip": (
        "lumion_hw.bench.mesh_access",
        "lumion_hw.drivers.mesh.lumion.controller",
        "lumion_hw.sessions.framed",
        "firmware_protocol.frames",
        "lumion_hw.links.tcp",
        "lumion_hw.emulator.wires.server",
        "lumion_hw.emulator.mesh.lumion.processor",
        "lumion_hw.emulator.optics.world",
    ),
    "a bench key: from the file to the device it describes": (
        "lumion_hw.cli.common.opening",
        "lumion_hw.bench.file.loader",
        "lumion_hw.bench.file.model",
        "lumion_hw.bench.kinds.keysight_n77xx",
        "lumion_hw.bench.bench",
        "lumion_hw.drivers.meters.keysight_n77xx",
    ),
    "a reading: from a photodiode to a calibration record": (
        "lumion_hw.emulator.optics.world",
        "lumion_hw.emulator.mesh.lumion.monitors",
        "lumion_hw.links.memory",
        "lumion_hw.drivers.mesh.lumion.monitors",
        "lumion_hw.bench.mesh_access",
        "calibration.measure.logbook",
        "calibration.fit.global_fit",
        "calibration.record.conversion",
    ),
}
"""Modules of each call path, in order; a test checks that they exist."""

PURPOSES = {
    "lumion_hw.cli": "the commands",
    "lumion_hw.testing": "pytest plugin, contract suites",
    "lumion_hw.integrations": "QCoDeS, bluesky",
    "lumion_hw.serving": "one bench for many programs: PV Access, web page, metrics",
    "calibration.report": "figures, maps and tables of a record",
    "calibration.run": "the procedure from the first reading to the record",
    "calibration.record": "fitted parameters to record and back",
    "calibration.fit": "phase search, global fit, bound",
    "calibration.diagnose": "faults and drift that explain bad readings",
    "calibration.measure": "settings, sweeps, survey, logbook",
    "calibration.model": "the model of a mesh and its derivatives",
    "lumion_hw.rehearsal": "recovery with a real training job",
    "lumion_hw.joined": "circuits over meshes that are joined by fibres",
    "lumion_hw.training": "ranks of a job that go on with a spare",
    "lumion_hw.fabric": "detection of failures, spares, recovery",
    "lumion_hw.planning": "spares, policies, slices",
    "lumion_hw.schedules": "sequences for collectives, phases of a job",
    "lumion_hw.circuits": "circuits proven by light",
    "lumion_hw.acquisition": "scans, recordings, settings",
    "lumion_hw.bench": "bench files, kinds of devices, the open bench",
    "lumion_hw.drivers": "instruments to methods",
    "lumion_hw.emulator": "the same devices as bytes",
    "lumion_hw.remote": "a served bench",
    "lumion_hw.sessions": "conversations: lock, deadline, retry",
    "lumion_hw.links": "bytes over memory, TCP, serial, VISA",
    "lumion_hw.polarization": "search and tracking",
    "lumion_hw.storage": "records and arrays as files",
    "lumion_hw.mesh": "graph, fields, routes, programming",
    "lumion_hw.standards": "CMIS, SFF-8472, SCPI",
    "lumion_hw.interfaces": "what every device of a role can do",
    "lumion_hw.files": "reading and writing files safely",
    "firmware_protocol": "messages of the mesh controller, C codec",
}
"""Purpose of each package, as shown in the picture."""
FILLS = {"calibration": "#fdf3e1", "lumion_hw": "#eaf1fb", "firmware_protocol": "#e9f5ec"}
HALO = 'stroke="white" stroke-width="3" paint-order="stroke"'
"""White around a label, so that lines behind it do not cross its letters."""
COLOURS = ("#b3261e", "#1a56b0", "#1b7f3b")


def sources(root: Path) -> dict[str, Path]:
    """Return the source files of a checkout by module name."""
    paths = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return paths


def imports(modules: Mapping[str, Path]) -> dict[str, set[str]]:
    """Return the imports of each module, including those inside functions and for type checking."""
    graph = {}
    for name, path in modules.items():
        wanted = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                wanted |= {f"{node.module}.{one.name}" for one in node.names} | {node.module}
            elif isinstance(node, ast.Import):
                wanted |= {one.name for one in node.names}
        # A name imported from a package counts as the module of that name if it exists, else as the package.
        graph[name] = {
            other for other in wanted if other in modules and other != name and not name.startswith(f"{other}.")
        }
        graph[name] -= {other for other in graph[name] if any(deeper.startswith(f"{other}.") for deeper in graph[name])}
    return graph


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            groups.append(sorted(stack[at:]))
            del stack[at:]

    sys.setrecursionlimit(10_000)
    for node in sorted(graph):
        if node not in index:
            visit(node)
    return groups


def floors(graph: Mapping[str, set[str]]) -> int:
    """Return the number of modules on the longest chain of imports; a cycle counts once."""
    groups = circles(graph)  # a group follows all groups that it imports
    group_of = {name: number for number, group in enumerate(groups) for name in group}
    height: list[int] = []
    for number, group in enumerate(groups):
        below = {group_of[other] for name in group for other in graph[name]} - {number}
        height.append(1 + max((height[other] for other in below), default=0))
    return max(height, default=0)


def class_names(modules: Mapping[str, Path]) -> dict[str, list[str]]:
    """Return the modules that define each top-level class, by class name."""
    modules_by_class = defaultdict(list)
    for name, path in modules.items():
        code = re.sub(r'"""[\s\S]*?"""', "", path.read_text())  # parsing all modules would take seconds
        for class_name in re.findall(r"^class (\w+)", code, re.MULTILINE):
            modules_by_class[class_name].append(name)
    return modules_by_class


def comment_share(paths: Iterable[Path]) -> float:
    """Return the fraction of lines with a comment; docstrings do not count."""
    lines = comments = 0
    for path in paths:
        text = path.read_text()
        lines += text.count("\n")
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        comments += len({token.start[0] for token in tokens if token.type == tokenize.COMMENT})
    return comments / lines


def identifiers(modules: Mapping[str, Path]) -> dict[str, list[str]]:
    """Return the locations of every identifier that is defined in a checkout.

    Classes, functions, parameters, attributes, constants and local variables count, magic methods do not.
    """
    places: dict[str, list[str]] = defaultdict(list)
    for module, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                names.append(node.name)
            elif isinstance(node, ast.arg):
                names.append(node.arg)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.append(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.append(node.attr)
            for name in names:
                if not name.startswith("__"):
                    places[name].append(f"{module}:{getattr(node, 'lineno', 0)}")
    return places


def name_words(name: str) -> set[str]:
    """Return the words of an identifier, in lower case: ``_maxDrift_db`` has ``max``, ``drift`` and ``db``."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


# Words of the vocabulary that do not say what a name holds if they are the whole name.
BARE = {
    *("alone", "asked", "beside", "beyond", "drawn", "exact", "found", "gone", "known", "lit", "looks", "made", "rest"),
    *("seen", "settled", "shown", "told", "what", "whole"),
}
# Names that are keys of stored or printed documents: prepared configurations, the light detector of a bench file,
# ports of a calibration record, costs of recovery policies; and SETTLED, a status bit of the APT protocol.
STORED = {"SETTLED", "alone", "lit_db", "lit_with", "whole"}


def undecided(root: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield identifiers with a word that is in neither the vocabulary nor the glossary: name, words, places.

    Names of tests are sentences and do not count.
    """
    vocabulary = set((HERE / "benchmarks" / "vocabulary.txt").read_text().split())
    vocabulary |= {word.lower() for word in re.findall(r"[A-Za-z]+", (HERE / "docs" / "glossary.md").read_text())}
    for name, places in sorted(identifiers(sources(root)).items()):
        if name in STORED or name.startswith("test_"):
            continue
        if words := sorted(name_words(name) - vocabulary or BARE & {name.strip("_").lower()}):
            yield name, words, places


def figures(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the figures that are counted in the source text."""
    modules = sources(root)
    lines = sum(path.read_text().count("\n") for path in modules.values())
    tests = list((root / "tests").rglob("*.py"))
    graph = imports(modules)
    calibration = {
        n: {o for o in g if o.startswith("calibration")} for n, g in graph.items() if n.startswith("calibration")
    }
    groups = [group for group in circles(graph) if len(group) > 1]
    yield "source files / lines", f"{len(modules)} / {lines}"
    yield "test files / lines", f"{len(tests)} / {sum(path.read_text().count(chr(10)) for path in tests)}"
    yield "floors of imports, all / calibration", f"{floors(graph)} / {floors(calibration)}"
    yield "circles of imports (modules in them)", f"{len(groups)} ({sum(map(len, groups))})"
    yield "class names used twice", str(sum(len(where) > 1 for where in class_names(modules).values()))
    yield "lines with a comment", f"{comment_share(modules.values()):.1%}"
    yield (
        "identifiers, with a word outside the vocabulary",
        f"{len(identifiers(modules))}, {len(list(undecided(root)))}",
    )


STARTS = (
    ("import numpy", "import numpy"),
    ("from lumion_hw import Bench", "from lumion_hw import Bench; Bench"),
    ("Bench.emulate of two devices", "from lumion_hw import Bench; Bench.emulate({bench!r}, seed=1).close()"),
)
BENCH = """\
version: 1
name: two
devices:
  meter: {kind: keysight-n77xx, address: tcp://127.0.0.1:5025}
  laser: {kind: santec-tsl, address: tcp://127.0.0.1:5026}
"""


def starts(root: Path, runs: int = 5) -> Iterator[tuple[str, str]]:
    """Yield start-up figures: own modules, function calls, and the time relative to importing numpy."""
    bench = root / ".bench-of-two.yaml"
    bench.write_text(BENCH)
    environment = {**os.environ, "PYTHONPATH": str(root), "OPENBLAS_NUM_THREADS": "1"}
    took: dict[str, float] = {}
    try:
        for name, script in STARTS:
            code = script.format(bench=str(bench))
            times = []
            for _ in range(runs):
                began = time.perf_counter()
                subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=root)
                times.append(time.perf_counter() - began)
            took[name] = statistics.median(times)
            counted = (
                "import cProfile, pstats, sys; p = cProfile.Profile()\n"
                f"p.enable(); exec({code!r}); p.disable()\n"
                f"print(sum(m.split('.')[0] in {PACKAGES!r} for m in sys.modules), pstats.Stats(p).total_calls)"
            )
            run = subprocess.run(
                [sys.executable, "-c", counted], check=True, env=environment, cwd=root, capture_output=True, text=True
            )
            ours, calls = run.stdout.split()
            ratio = took[name] / took["import numpy"]
            yield name, f"{took[name]:.2f} s, ratio {ratio:.1f}; {ours} modules of ours, {int(calls):,} calls"
    finally:
        bench.unlink()


def rooms(root: Path) -> list[list[str]]:
    """Return the packages from top to bottom as in the import contracts; one row per layer."""
    contracts = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = {contract["id"]: contract["layers"] for contract in contracts if "layers" in contract}
    inside = [[name.strip() for name in layer.split("|")] for layer in layers["rooms"]]
    top = [[f"lumion_hw.{name}" for name in row] for row in inside]
    calibration = [[f"calibration.{name.strip()}" for name in layer.split("|")] for layer in layers["calibration"]]
    return [top[0], *calibration, *top[1:], ["firmware_protocol"]]


def picture(root: Path) -> str:
    """Return an SVG of the packages with their purposes and the call paths of :data:`WAYS`.

    The picture depends on the import contracts and on this file only, so a test can check that it is up to date.
    """
    wide, tall, gap, left = 560, 40, 8, 24
    rows = rooms(root)
    places: dict[str, tuple[float, float, float]] = {}
    elements = []
    for number, row in enumerate(rows):
        y = 60 + number * (tall + gap)
        box_w = (wide - gap * (len(row) - 1)) / len(row)
        for column, room in enumerate(row):
            x = left + column * (box_w + gap)
            fill = FILLS[room.split(".")[0]]
            elements.append(
                f'<rect x="{x:.0f}" y="{y}" width="{box_w:.0f}" height="{tall}" rx="5" fill="{fill}" stroke="#8a8f98"/>'
                f'<text x="{x + 10:.0f}" y="{y + 17}" font-weight="600">{escape(room)}</text>'
                f'<text x="{x + 10:.0f}" y="{y + 32}" fill="#555" font-size="11">{escape(PURPOSES[room])}</text>'
            )
            places[room] = (x, y, box_w)
    for number, (title, stops) in enumerate(WAYS.items()):
        elements.append(_way(number, title, stops, places, left + wide + 50 + number * 330))
    height = 60 + len(rows) * (tall + gap) + 20
    width = left + wide + 50 + len(WAYS) * 330
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="13">'
        f'<rect width="{width}" height="{height}" fill="white"/>'
        f'<text x="{left}" y="32" font-size="17" font-weight="600">A room imports only rooms below it</text>'
        + "".join(elements)
        + "</svg>\n"
    )


def _way(
    number: int, title: str, stops: tuple[str, ...], places: Mapping[str, tuple[float, float, float]], x: float
) -> str:
    """Return the SVG of one call path: its modules in a column, each beside its package."""
    colour = COLOURS[number]
    head, _, tail = title.partition(": ")
    text = [f'<text x="{x}" y="26" font-weight="600" fill="{colour}">{escape(head)}</text>']
    text.append(f'<text x="{x}" y="42" font-size="11" fill="#555">{escape(tail)}</text>')
    taken: dict[float, int] = {}
    points = []
    for step, stop in enumerate(stops, start=1):
        room = max((room for room in places if stop == room or stop.startswith(f"{room}.")), key=len)
        _, y, _ = places[room]
        slot = taken.get(y, 0)
        taken[y] = slot + 1
        # Two modules below each other in a row, further ones beside them.
        at_x, at_y = x + 8 + 160 * (slot // 2), y + 10 + 20 * (slot % 2)
        points.append((at_x, at_y))
        label = ".".join(stop.split(".")[-2:])
        text.append(f'<circle cx="{at_x}" cy="{at_y}" r="8" fill="{colour}"/>')
        text.append(f'<text x="{at_x}" y="{at_y + 4}" fill="white" font-size="10" text-anchor="middle">{step}</text>')
        text.append(f'<text x="{at_x + 13}" y="{at_y + 4}" font-size="11" {HALO}>{escape(label)}</text>')
    line = " ".join(f"{a:.0f},{b:.0f}" for a, b in points)
    return (
        f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-opacity="0.35" stroke-width="3"/>'
        + "".join(text)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("root", nargs="?", type=Path, default=HERE)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--text-only", action="store_true", help="do not run the package")
    parser.add_argument("--identifiers", action="store_true", help="list identifiers outside the vocabulary")
    args = parser.parse_args()
    if args.identifiers:
        for name, words, places in undecided(args.root):
            print(f"{name}\t{', '.join(words)}\t{' '.join(places[:3])}{' ...' if len(places) > 3 else ''}")
        return
    if args.picture:
        args.picture.write_text(picture(args.root))
        return
    print("| what | figure |\n|---|---|")
    for name, value in figures(args.root):
        print(f"| {name} | {value} |")
    if not args.text_only:
        for name, value in starts(args.root):
            print(f"| {name} | {value} |")


if __name__ == "__main__":
    main()
