"""The oldest versions that pyproject.toml allows are those that `make test-lowest` installs."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Its extras are for users. The others are for developers, or hold gigabytes (torch).
EXTRAS = re.search(r"^EXTRAS := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split(",")


def pins(file: str) -> dict[str, Version]:
    lines = (line for line in (ROOT / file).read_text().splitlines() if line and not line.startswith("#"))
    return {canonicalize_name(name): Version(version) for name, _, version in (line.partition("==") for line in lines)}


def requirements() -> Iterator[Requirement]:
    extras = PROJECT["optional-dependencies"]
    for line in [*PROJECT["dependencies"], *(line for extra in EXTRAS for line in extras[extra])]:
        yield Requirement(line)


def floor(requirement: Requirement) -> Version:
    (lowest,) = (Version(each.version) for each in requirement.specifier if each.operator == ">=")
    return lowest


def test_every_extra_is_tried_or_known_not_to_be() -> None:
    assert set(PROJECT["optional-dependencies"]) - set(EXTRAS) == {
        "rehearsal",
        "netlists",
        "benchmark",
        "interop",
        "release",
        "docs",
        "test",
    }


def test_the_lowest_versions_that_are_tried_are_those_that_are_allowed() -> None:
    tried = pins("constraints-lowest.txt")
    assert {each.name: tried[canonicalize_name(each.name)] for each in requirements()} == {
        each.name: floor(each) for each in requirements()
    }


def test_the_versions_of_ci_are_allowed() -> None:
    installed = pins("constraints.txt")
    of_test = [Requirement(line) for line in PROJECT["optional-dependencies"]["test"]]
    for each in [*requirements(), *of_test]:
        if each.name != "lumion-hw":
            assert each.specifier.contains(installed[canonicalize_name(each.name)]), each


def test_no_version_with_a_published_vulnerability_of_the_page_is_allowed() -> None:
    # Fixed in, by their advisories: GHSA-7f5h-v6xp-fcq8 0.49.1, GHSA-86qp-5c8j-p5mr 1.0.1, GHSA-82w8-qh3p-5jfq 1.3.1;
    # of h11 GHSA-vqfr-h8mv-ghfj 0.16.0.
    lowest = {each.name: floor(each) for each in requirements()}
    assert lowest["starlette"] >= Version("1.3.1")
    assert lowest["h11"] >= Version("0.16.0")


def test_every_test_that_the_makefile_names_exists() -> None:
    named = re.findall(r"tests/[\w/*.]+", (ROOT / "Makefile").read_text())
    assert named
    assert [path for path in named if not list(ROOT.glob(path))] == []
