"""The book has a place for every page, all public names, pictures made by its own pages, links that stay in it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.testing.test_public_names import PLACES, load

ROOT = Path(__file__).parents[2]
BOOK = load(ROOT / "benchmarks" / "book.py")
PICTURES = load(ROOT / "benchmarks" / "cookbook.py")


def places(entry: object) -> list[str]:
    """Return the pages of a part of the navigation, in order."""
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    return [page for part in parts for page in places(part)]


NAVIGATION = places(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])


def test_every_page_has_one_place_in_the_book() -> None:
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    made = {f"reference/{place}.md" for place in PLACES} | set(BOOK.PAGES_BESIDE)
    assert pages | made == set(NAVIGATION), "give it a line under `nav` in mkdocs.yml"
    assert len(NAVIGATION) == len(set(NAVIGATION))


@pytest.mark.parametrize("place", PLACES)
def test_the_reference_has_every_public_name(place: str) -> None:
    shown = set(re.findall(rf"^::: {re.escape(place)}\.(\w+)$", BOOK.reference(place), re.MULTILINE))
    assert shown == PLACES[place]


@pytest.mark.parametrize(
    ("page", "link", "there"),
    [
        ("docs/mesh.md", "circuits.md#using-it", "circuits.md#using-it"),
        ("docs/cookbook/ber.md", "../mesh.md", "../mesh.md"),
        ("docs/cookbook/ber.md", "../../CONTRIBUTING.md", "../CONTRIBUTING.md"),
        ("docs/mesh.md", "../lumion_hw/clock.py", "source/lumion_hw/clock.py"),
        ("CONTRIBUTING.md", "docs/decisions/0001-foundation.md", "decisions/0001-foundation.md"),
        ("CHANGELOG.md", "docs/circuits.md#using-it", "circuits.md#using-it"),
        ("docs/mesh.md", "https://example.org/x.md", "https://example.org/x.md"),
        ("docs/mesh.md", "#here", "#here"),
    ],
)
def test_links_stay_in_the_book(page: str, link: str, there: str) -> None:
    assert BOOK.rewritten(f"[text]({link})", page) == f"[text]({there})"


def test_what_a_browser_would_fetch_from_elsewhere_is_refused() -> None:
    from_elsewhere = ('<script src="https://unpkg.com/x"></script>', '<img alt="" src="//cdn.example.org/x.png">')
    assert all(BOOK._LOADED.search(tag) for tag in from_elsewhere)
    assert not BOOK._LOADED.search('<a href="https://example.org">x</a><script src="assets/x.js"></script>')


def test_every_picture_of_the_cookbook_is_made_by_the_page_that_shows_it() -> None:
    made = {name for page in PICTURES.PAGES for name in PICTURES.drawn(page)}
    for page in PICTURES.PAGES:
        shown = set(re.findall(r"!\[[^\]]*\]\(\.\./img/([\w-]+\.svg)\)", page.read_text(encoding="utf-8")))
        assert shown == PICTURES.drawn(page), page.name
    assert made
    assert all((ROOT / "docs" / "img" / name).exists() for name in made), "run: python benchmarks/cookbook.py"


@pytest.mark.campaign
def test_the_book_can_be_made(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs, of the extra docs, is not there")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "cookbook" / "wavelength.html").exists()
    assert 'id="lumion_hw.Bench.emulate"' in (tmp_path / "reference" / "lumion_hw.html").read_text(encoding="utf-8")
