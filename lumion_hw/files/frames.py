"""Tables of pandas and labelled arrays of xarray: the extra ``frames``."""

from __future__ import annotations

from typing import Any

from lumion_hw.errors import ConfigError

_HINT = "pip install 'lumion-hw[frames]'"


def require_pandas() -> Any:
    """Return pandas. Raises ``ConfigError`` with the command that helps, if it is not installed."""
    try:
        import pandas
    except ImportError as error:
        raise ConfigError("tables need pandas", hint=_HINT) from error
    return pandas


def require_xarray() -> Any:
    """Return xarray. Raises ``ConfigError`` with the command that helps, if it is not installed."""
    try:
        import xarray
    except ImportError as error:
        raise ConfigError("labelled data sets need xarray", hint=_HINT) from error
    return xarray
