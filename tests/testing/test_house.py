"""The picture of the house names what exists, a class name means one thing, and what is cited can be found."""

import functools
import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CITING = ("lumion_hw", "calibration", "firmware_protocol", "tests", "benchmarks", "examples")
PAGE = re.compile(
    r"docs/((?:(?:decisions|cookbook)/)?[\w-]+\.md)"
    r"(?:#([\w-]+)|, (?:section )?((?:[a-z]\.)?\d+(?:\.\d+)*)|,\s+\"([^\"]+)\")?"
)
"""A page, and what it may be followed by: an anchor, a number of a section, or a title in quotes."""
NOT_HERE = re.compile(r"(?<![\w/])[a-z_]+\.md,? (?:sections? )?(?:[a-d]\.)?\d|(?<![\w*])[Ff]acts\b")
"""A section of a page outside docs/, or of notes ("facts"): no reader of this repository has them."""


@functools.cache
def house():
    spec = importlib.util.spec_from_file_location("house", ROOT / "benchmarks" / "house.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_module_that_the_picture_names_exists() -> None:
    drawn = house()
    modules = drawn.sources(ROOT)
    assert [stop for stops in drawn.WAYS.values() for stop in stops if stop not in modules] == []


def test_the_picture_of_the_architecture_is_up_to_date() -> None:
    shown = (ROOT / "docs" / "img" / "house.svg").read_text(encoding="utf-8")
    assert shown == house().picture(ROOT), "run: python benchmarks/house.py --picture docs/img/house.svg"


def test_every_class_name_is_used_once() -> None:
    drawn = house()
    names = drawn.class_names(drawn.sources(ROOT))
    assert {name: where for name, where in names.items() if len(where) > 1} == {}


def test_every_file_that_the_architecture_page_names_exists() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:lumion_hw|calibration|firmware_protocol|tests|benchmarks|docs)/[\w./-]+)`", page))
    assert len(named) > 20
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


@functools.cache
def anchors(page: Path) -> tuple[set[str], set[str], set[str]]:
    """Return the anchors, numbers and titles of the sections of a page."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    slugs = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
    numbers = {found.group() for title in titles if (found := re.match(r"\d+(\.\d+)*", title))}
    return slugs, numbers, set(titles)


def citing_files() -> list[Path]:
    return [path for room in CITING for path in sorted((ROOT / room).rglob("*.py")) if path != Path(__file__)]


def test_every_page_that_is_cited_is_there_with_the_section() -> None:
    missing = []
    for path in citing_files():
        for page, slug, number, title in PAGE.findall(path.read_text(encoding="utf-8")):
            cited = ROOT / "docs" / page
            slugs, numbers, titles = anchors(cited) if cited.exists() else (set(), set(), set())
            if not cited.exists() or (slug and slug not in slugs):
                missing.append(f"{path.relative_to(ROOT)}: docs/{page} {slug}")
            if (number and number not in numbers) or (title and title not in titles):
                missing.append(f"{path.relative_to(ROOT)}: docs/{page}, {number or title}")
    assert missing == []


def test_nothing_is_cited_that_a_reader_of_the_repository_does_not_have() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {cited.group()}"
        for path in citing_files()
        for cited in NOT_HERE.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []
