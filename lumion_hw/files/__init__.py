"""Reads and writes user files: bounded reads, atomic writes, no overwriting of foreign files."""

from __future__ import annotations

import os

AnyPath = str | os.PathLike[str]
"""Path of a file: text or a path object."""
