"""Writes the files generated from the protocol definition, or lists the outdated ones.

Run in a checkout: ``python -m firmware_protocol.generate [--check]``. Exit code 0: files written, or nothing outdated;
1: some files are outdated.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from firmware_protocol.generators.c_header import c_header
from firmware_protocol.generators.c_vectors import c_vectors
from firmware_protocol.generators.tables import page
from firmware_protocol.schema import schema_text

_PACKAGE = Path(__file__).parent
CHECKOUT = _PACKAGE.parent
"""Folder of the checkout."""

DOCUMENT = "docs/protocol-tables.md"
"""Path of the generated tables of ``docs/protocol.md``."""


def vectors() -> dict[str, Any]:
    """Return the locked test vectors of the protocol."""
    content: dict[str, Any] = json.loads((_PACKAGE / "vectors.json").read_text(encoding="utf-8"))
    return content


def expected(checkout: Path = CHECKOUT) -> dict[str, str]:
    """Return the expected text of every generated file by its path in the checkout."""
    locked = vectors()
    files = {
        "firmware_protocol/schema.json": schema_text(),
        "firmware_protocol/c/lumion_protocol.h": c_header(),
        "firmware_protocol/c/vectors.inc": c_vectors(locked),
    }
    if (checkout / DOCUMENT).parent.is_dir():  # an installed package has no documents
        files[DOCUMENT] = page(locked)
    return files


def stale(checkout: Path = CHECKOUT) -> list[str]:
    """Return the generated files that are missing or outdated."""
    return [name for name, text in expected(checkout).items() if _text(checkout / name) != text]


def write(checkout: Path = CHECKOUT) -> list[str]:
    """Write the outdated files and return their names."""
    files, names = expected(checkout), stale(checkout)
    for name in names:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(files[name], encoding="utf-8")
    return names


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files, or only compare them with ``--check``; returns the exit code."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if argv not in ([], ["--check"]):
        sys.stderr.write("usage: python -m firmware_protocol.generate [--check]\n")
        return 2
    checking = bool(argv)
    for name in stale() if checking else write():
        sys.stdout.write(f"{'stale' if checking else 'written'}: {name}\n")
    return 1 if checking and stale() else 0


if __name__ == "__main__":
    sys.exit(main())
