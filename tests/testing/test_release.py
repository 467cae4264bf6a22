"""What a release needs agrees: versions, extras in the install page, fragments of the changelog."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFIGURATION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
VERSION = CONFIGURATION["project"]["version"]


def test_the_citation_has_the_version_of_the_package() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.+)$", citation, re.MULTILINE)[1] == VERSION


def test_the_changelog_begins_with_this_version_below_the_marker_of_towncrier() -> None:
    _, marker, below = (
        (ROOT / "CHANGELOG.md")
        .read_text(encoding="utf-8")
        .partition(CONFIGURATION["tool"]["towncrier"]["start_string"])
    )
    assert marker
    assert re.search(r"^## (\S+)", below, re.MULTILINE)[1] == VERSION


def test_the_install_page_has_a_line_for_every_extra() -> None:
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert sorted(listed) == sorted(CONFIGURATION["project"]["optional-dependencies"])


def test_every_fragment_of_the_changelog_has_a_known_kind() -> None:
    kinds = {kind["directory"] for kind in CONFIGURATION["tool"]["towncrier"]["type"]}
    fragments = [path for path in (ROOT / "changes").iterdir() if path.name != "README.md"]
    assert [path.name for path in fragments if path.suffixes[-2:] not in [[f".{kind}", ".md"] for kind in kinds]] == []


def test_the_generated_c_codec_is_in_the_source_distribution_only() -> None:
    setuptools = CONFIGURATION["tool"]["setuptools"]
    assert setuptools["include-package-data"] is False
    assert not any(pattern.startswith("c/") for patterns in setuptools["package-data"].values() for pattern in patterns)
    assert "graft firmware_protocol/c" in (ROOT / "MANIFEST.in").read_text(encoding="utf-8")
