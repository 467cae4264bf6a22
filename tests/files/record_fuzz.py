"""Damaged and edited files, generated from a seed, for tests of readers."""

from __future__ import annotations

import contextlib
import copy
import json
import random
from pathlib import Path
from typing import Any

from lumion_hw.mesh.record.canonical import content_hash

HEADER = ("schema", "schema_version", "record_id", "content_sha256", "arrays_file")


def odd_value(rng: random.Random) -> Any:
    """Return a random value of an unexpected kind."""
    nest: Any = []
    for _ in range(40):
        nest = [nest]
    return rng.choice(
        [
            None, True, -1, 0, 3, 1.5, -0.0, 10**400, 2**63, 1e308, float("nan"), float("inf"),
            "", "x" * 5000, "\x1b[2J", "../../x", "\ud800", "$\\frac$", "2025-13-45T99:00:00",
            [], [1, "two"], [[]], {}, {"a": {}}, {"1": None}, nest,
        ]
    )  # fmt: skip


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values of a document."""
    found = [path] if path else []
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return found + [each for key, value in items for each in places(value, (*path, key))]


def mutated(document: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Return a document with one to three places changed, left out or doubled."""
    document = copy.deepcopy(document)
    for _ in range(rng.randint(1, 3)):
        where = rng.choice(places(document))
        if rng.random() < 0.4:
            where = where[:2]  # nearer to the top, where there are few places
        parent: Any = document
        for part in where[:-1]:
            parent = parent[part]
        kind = rng.random()
        if kind < 0.2:
            del parent[where[-1]]
        elif kind < 0.3 and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[where[-1]]))
        else:
            parent[where[-1]] = odd_value(rng)
    return document


def save_edited(document: dict[str, Any], path: Path) -> None:
    """Save a record with the correct hash for its content, so that readers check the content itself."""
    body = {name: value for name, value in document.items() if name not in HEADER}
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        document["content_sha256"] = content_hash(body)
    path.write_text(json.dumps(document), encoding="utf-8")


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Return bytes of a file with a few changed, cut off, doubled or overwritten."""
    kind = rng.randrange(4)
    changed = bytearray(data)
    if kind == 0:
        return bytes(changed[: rng.randrange(len(changed))])
    for _ in range(rng.choice([1, 1, 3, 20])):
        at = rng.randrange(len(changed))
        if kind == 1:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            changed[at : at + 8] = rng.choice([bytes(8), b"\xff" * 8, rng.randbytes(8)])
        else:
            length = rng.randrange(64)
            other = rng.randrange(len(changed))
            changed[at : at + length] = changed[other : other + length]
    return bytes(changed)
