"""Imports the optional packages pandas and xarray (extra ``frames``)."""

from __future__ import annotations

from typing import Any

from lumion_hw.errors import ConfigError

_HINT = "Install it with: pip install 'lumion-hw[frames]'"


def require_pandas() -> Any:
    """Import and return pandas. Raises ``ConfigError`` with the install command if it is missing."""
    try:
        import pandas
    except ImportError as error:
        raise ConfigError("tables need pandas", hint=_HINT) from error
    return pandas


def require_xarray() -> Any:
    """Import and return xarray. Raises ``ConfigError`` with the install command if it is missing."""
    try:
        import xarray
    except ImportError as error:
        raise ConfigError("labelled data sets need xarray", hint=_HINT) from error
    return xarray
