"""The pytest plugin with the fixture ``bench``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lumion_hw.bench.bench import Bench

MARKER = "lumion_bench"
"""Name of the marker and of the ini option."""
_SYNTAX = "lumion_bench(path, *, seed=0)"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ini option ``lumion_bench``."""
    parser.addini(
        MARKER,
        "bench of the fixture 'bench': a built-in name, or a file relative to the ini file",
        default="lumion-prototype",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker ``lumion_bench``."""
    config.addinivalue_line(
        "markers", f"{_SYNTAX}: bench file (relative to the test file) or built-in bench of the fixture 'bench'"
    )


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """An emulated bench on virtual time, open during the test; ``bench.emulated.faults`` injects faults by name.

    `lumion fault` and ``bench.emulated_faults`` use the same names for a bench in another process.

    The marker ``lumion_bench(path, *, seed=0)`` selects bench file and seed; the innermost marker counts. The default
    bench file is the ini option ``lumion_bench``, or a built-in bench. Equal seeds give equal readings.

    Raises:
        ConfigError: The bench file or the marker is wrong.
    """
    from lumion_hw.bench.bench import Bench

    path, seed = _path_and_seed(request)
    with Bench.emulate(path, seed=seed) as opened:
        yield opened


def _path_and_seed(request: pytest.FixtureRequest) -> tuple[str | Path, int]:
    path: str | Path | None = None
    seed: int | None = None
    for marker in request.node.iter_markers(MARKER):
        marked_path, marked_seed = _arguments(marker)
        path = path or marked_path
        seed = marked_seed if seed is None else seed
    if path is not None:
        return _located(path, request.path.parent), seed or 0
    config = request.config
    directory = config.inipath.parent if config.inipath is not None else config.rootpath
    return _located(config.getini(MARKER), directory), seed or 0


def _arguments(marker: pytest.Mark) -> tuple[str | Path | None, int | None]:
    from lumion_hw.errors import ConfigError

    options = dict(marker.kwargs)
    path = marker.args[0] if marker.args else options.pop("path", None)
    seed = options.pop("seed", None)
    fits = len(marker.args) <= 1 and not options and isinstance(path, str | Path | None)
    if not fits or not (seed is None or (isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0)):
        arguments = ", ".join([*map(repr, marker.args), *(f"{key}={value!r}" for key, value in marker.kwargs.items())])
        raise ConfigError(
            f"marker lumion_bench({arguments}): expected {_SYNTAX}",
            hint="The path must be a string or a Path, the seed a whole number.",
        )
    return path, seed


def _located(path: str | Path, directory: Path) -> str | Path:
    from lumion_hw.bench.file.loader import builtin_names

    return path if isinstance(path, str) and path in builtin_names() else directory / path
