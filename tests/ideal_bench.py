"""Built-in benches whose chip obeys the formulas: what bounds are reckoned for, and records made of the truth."""

from __future__ import annotations

from pathlib import Path

from lumion_hw.bench.file.loader import builtin_path


def ideal_text(name: str) -> str:
    """Return the text of a built-in bench, its chip ideal."""
    return builtin_path(name).read_text(encoding="utf-8").replace("physics: realistic", "physics: ideal")


def ideal_bench(name: str, directory: Path) -> Path:
    """Write it to a folder and return its path."""
    path = directory / f"ideal-{name}.yaml"
    path.write_text(ideal_text(name), encoding="utf-8")
    return path
