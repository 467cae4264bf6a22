"""Bench files for several benches at once: the small bench under other names, with devices of their own."""

from __future__ import annotations

from pathlib import Path

from tests.calibration.bench_run import SMALL

_SERIALS = ("SMALL-0001", "MY00000044", "ER-A", "ER-B", "ER-C")


def bench_file(directory: Path, name: str, *, same: tuple[str, ...] = (), lit: bool = True) -> Path:
    """Write a bench file, ``lit`` or not, whose serials end in its name but for those that stay the ``same``."""
    text = SMALL.read_text().replace("name: small", f"name: {name}")
    for serial in _SERIALS:
        if serial not in same:
            text = text.replace(f"serial: {serial}", f"serial: {serial}-{name}"[: len("serial: ") + 16])
    if not lit:
        start, end = text.index("  inputs:"), text.index("  outputs:")
        text = text[:start] + text[end : text.index("servers:")]
    path = directory / f"{name}.yaml"
    path.write_text(text)
    return path
