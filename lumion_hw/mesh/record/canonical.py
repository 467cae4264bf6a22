"""Canonical form of documents and arrays, for hashes, and a readable form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError

Arrays = Mapping[str, NDArray[Any]]
_NUMBERS = "biuf"
"""Kinds of numpy types that can be stored: booleans, integers and real numbers."""
_WIDTH = 116


def content_hash(body: Any) -> str:
    """Return the SHA-256 of a document with sorted keys and no spaces."""
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def arrays_sha256(arrays: Arrays) -> str:
    """Return a hash of names, types, shapes and contents of arrays.

    Raises:
        ConfigError: An array contains something other than numbers.
    """
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = storable_array(name, arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def storable_array(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return an array as contiguous little-endian numbers.

    Raises:
        ConfigError: The array contains something other than numbers.
    """
    plain = np.ascontiguousarray(array)
    if plain.dtype.kind not in _NUMBERS:
        raise ConfigError(f"cannot store array {name!r} of type {plain.dtype}", hint="Give numbers or booleans.")
    # The hash must not depend on the byte order of the machine.
    return plain.astype(plain.dtype.newbyteorder("<"), copy=False)


def readable(value: Any, indent: int = 0) -> str:
    """Return a document as readable JSON."""
    flat = json.dumps(value, allow_nan=False, ensure_ascii=False)
    if not isinstance(value, dict | list | tuple) or len(flat) + indent <= _WIDTH:
        return flat
    pad, inner = " " * indent, " " * (indent + 1)
    if isinstance(value, dict):
        parts = [
            f"{inner}{json.dumps(key, ensure_ascii=False)}: {readable(item, indent + 1)}" for key, item in value.items()
        ]
        return "{\n" + ",\n".join(parts) + f"\n{pad}}}"
    if all(not isinstance(item, dict | list | tuple) for item in value):
        return _folded(value, indent)
    parts = [f"{inner}{readable(item, indent + 1)}" for item in value]
    return "[\n" + ",\n".join(parts) + f"\n{pad}]"


def _folded(values: list[Any] | tuple[Any, ...], indent: int) -> str:
    lines, line = [], ""
    for item in values:
        word = json.dumps(item, allow_nan=False, ensure_ascii=False)
        if line and indent + 1 + len(line) + len(word) + 2 > _WIDTH:
            lines.append(line)
            line = ""
        line += f"{', ' if line else ''}{word}"
    lines.append(line)
    pad = " " * (indent + 1)
    return "[\n" + ",\n".join(pad + line for line in lines) + f"\n{' ' * indent}]"
