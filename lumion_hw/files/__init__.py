"""Files that somebody named: read within bounds, written over nothing of others, shown without taking effect."""

from __future__ import annotations

import os

AnyPath = str | os.PathLike[str]
"""The path of a file as a user may give it: text or a path object."""
