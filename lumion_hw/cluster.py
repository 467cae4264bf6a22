"""A dask.distributed cluster (extra ``cluster``): the package, and a connection to its scheduler.

What travels dask packs as pickle: a scheduler and its workers have to trust everybody who can reach them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from lumion_hw.errors import ConfigError, ConnectError

_CONNECT_S = 10.0


def require_distributed() -> Any:
    """Return the package, most of which has no types.

    Raises:
        ConfigError: dask.distributed is not installed.
    """
    try:
        return import_module("distributed")
    except ImportError as error:
        raise ConfigError(
            "a cluster needs dask.distributed", hint="Install it with: pip install 'lumion-hw[cluster]'"
        ) from error


def connected(scheduler: str) -> Any:
    """Return a client of the scheduler at ``HOST:PORT``.

    Raises:
        ConfigError: dask.distributed is not installed.
        ConnectError: There is no scheduler.
    """
    distributed = require_distributed()
    try:
        return distributed.Client(scheduler, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConnectError(
            f"no scheduler answers at {scheduler}: {error}", hint="Start one with `dask scheduler`."
        ) from error
