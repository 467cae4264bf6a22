"""Access to a dask.distributed cluster (extra ``cluster``).

dask uses pickle: anybody who can reach the scheduler or a worker can run code there.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from lumion_hw.errors import ConfigError, ConnectError

_CONNECT_S = 10.0


def require_distributed() -> Any:
    """Import and return the package ``distributed``. Raises ``ConfigError`` if it is not installed."""
    try:
        return import_module("distributed")
    except ImportError as error:
        raise ConfigError(
            "using a cluster needs dask.distributed", hint="Install it with: pip install 'lumion-hw[cluster]'"
        ) from error


def connect_cluster(scheduler: str) -> Any:
    """Connect to the dask scheduler at ``HOST:PORT`` and return the client.

    Raises:
        ConfigError: dask.distributed is not installed.
        ConnectError: No scheduler answers at this address.
    """
    distributed = require_distributed()
    try:
        return distributed.Client(scheduler, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConnectError(
            f"no scheduler answers at {scheduler}: {error}", hint="Start one with `dask scheduler`."
        ) from error
