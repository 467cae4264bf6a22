"""Commands use the packages they were installed with, whatever else is called ``calibration`` where they are started.

The name is a plain word: a lab may well have a ``calibration.py`` of its own, and Python looks beside a script and in
``PYTHONPATH`` before it looks where packages are installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from lumion_hw.errors import ConfigError

_HOME = Path(__file__).resolve().parents[3]
_NAME = "calibration"
_NEEDED_BY = (_NAME, "lumion_hw.cli.calibrate", "lumion_hw.cli.demo")
"""Modules whose commands import the package, some only when they run: it has to be found by then."""


def imported(target: str) -> Any:
    """Return ``module:attribute`` of this installation.

    Raises:
        ConfigError: Another module of the package's name was imported before.
    """
    module, _, attribute = target.partition(":")
    if any(f"{module}.".startswith(f"{needed}.") for needed in _NEEDED_BY):
        _own_first()
    return getattr(importlib.import_module(module), attribute)


def _own_first() -> None:
    """Look for packages where this one lies first, if anything hides them; worker processes inherit it."""
    found = importlib.util.find_spec(_NAME)
    origin = found and found.origin
    if origin and Path(origin).resolve().parent.parent == _HOME:
        return
    if _NAME in sys.modules:
        raise ConfigError(
            f"a module named {_NAME} was imported from {origin or 'elsewhere'}: it hides the package of that name",
            hint="Rename that file, or use this command in a process of its own.",
        )
    sys.path.insert(0, str(_HOME))
    importlib.invalidate_caches()
