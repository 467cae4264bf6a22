"""Copies of input files with pieces of text replaced, such as a file with one mistake."""

from pathlib import Path


def edited(source: Path, directory: Path, *changes: tuple[str, str]) -> Path:
    """Return a copy of a file, under its own name, with texts replaced; each must be in the file exactly once."""
    text = source.read_text(encoding="utf-8")
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times"
        text = text.replace(old, new)
    path = directory / source.name
    path.write_text(text, encoding="utf-8")
    return path
