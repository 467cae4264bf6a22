"""Kinds of files that commands read, recognised by their first bytes."""

from __future__ import annotations

import re

_SAMPLE_BYTES = 4096

_INPUTS: dict[str, bytes] = {
    "a calibration record": rb'\s*\{\s*"schema": "lumion-calibration"',
    "a bench file": rb"(?s:.*\n)?devices:\s",
    "an endpoints file": rb'\{\s*"[^"\\]+": "(tcp|serial|visa|i2c|ftdi|file)[a-z0-9+]*://',
    "the journal of a calibration": rb'[0-9a-f]{8} \{"n":0,"kind":"header"',
    "a snapshot of settings": rb"format: lumion-snapshot \d",
    "an event log": rb'\s*\{"bench_s": ',
    "an HDF5 file": rb"\x89HDF\r\n\x1a\n",
}
"""Beginning of each kind of file that commands read."""


def input_kind(data: bytes) -> str | None:
    """Return the kind of an input file from its first bytes, such as ``a bench file``; ``None`` if unknown."""
    return next((kind for kind, beginning in _INPUTS.items() if re.match(beginning, data[:_SAMPLE_BYTES])), None)
