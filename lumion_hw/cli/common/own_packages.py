"""Imports commands with the ``calibration`` package of this installation, even if a local file has the same name."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from lumion_hw.errors import ConfigError

_INSTALLED_IN = Path(__file__).resolve().parents[3]
_NAME = "calibration"
_NEEDED_BY = (_NAME, "lumion_hw.cli.calibrate", "lumion_hw.cli.demo")
"""Modules whose commands import the package ``calibration``."""


def import_target(target: str) -> Any:
    """Import and return ``module:attribute`` of this installation.

    Raises:
        ConfigError: Another module named ``calibration`` was already imported.
    """
    module, _, attribute = target.partition(":")
    if any(f"{module}.".startswith(f"{needed}.") for needed in _NEEDED_BY):
        _prefer_installed()
    return getattr(importlib.import_module(module), attribute)


def _prefer_installed() -> None:
    spec = importlib.util.find_spec(_NAME)
    origin = spec and spec.origin
    if origin and Path(origin).resolve().parent.parent == _INSTALLED_IN:
        return
    if _NAME in sys.modules:
        raise ConfigError(
            f"a module named {_NAME} was imported from {origin or 'an unknown place'}; it hides the package {_NAME}",
            hint="Rename that file, or run this command in a separate process.",
        )
    sys.path.insert(0, str(_INSTALLED_IN))
    importlib.invalidate_caches()
