"""Names of the process variables of a served bench, and configuration of PV Access.

A reading or setting ``device.quantity.channel`` of bench ``B`` is ``B:device:quantity:channel``. docs/serving.md lists
all other names.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from lumion_hw.errors import ConfigError

SERVED = "lumion:served"
"""Process variable with the name of the served bench."""
CALL = "call"
"""Name of the remote call for interface methods."""
HANDLE = "#"
"""First character of the names of open streams and watches."""
LEASE = "lease"
HEARTBEAT = "heartbeat"
PROTOCOL = 1
"""Protocol version; increases with every incompatible change."""
TIMEOUT_S = 3
"""Silence after which a client considers the server lost."""


def pv_name(bench: str, *parts: str) -> str:
    """Return the name of a process variable; dots become colons."""
    return ":".join((bench, *(part.replace(".", ":") for part in parts)))


def require_p4p() -> Any:
    """Return the p4p module. Raises ``ConfigError`` with the install command if it is missing."""
    try:
        import p4p.client.thread
        import p4p.nt
        import p4p.server.thread
    except ImportError as error:
        raise ConfigError("PV Access needs p4p", hint="pip install 'lumion-hw[epics]'") from error
    return p4p


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of an address ``pva://host:port``.

    Raises:
        ConfigError: The address does not have this form.
    """
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or not port or not address.startswith("pva://"):
        raise ConfigError(
            f"{address[:120]!r} is not the address of a served bench",
            hint="Write pva://HOST:PORT, as printed by `lumion serve --pva`.",
        )
    return host, port


def client_conf(host: str, port: int) -> dict[str, str]:
    """Return the client configuration: one server, over TCP. Environment variables are ignored."""
    return {
        "EPICS_PVA_NAME_SERVERS": f"{host}:{port}",
        "EPICS_PVA_ADDR_LIST": "127.0.0.1",
        "EPICS_PVA_AUTO_ADDR_LIST": "NO",
        "EPICS_PVA_INTF_ADDR_LIST": "127.0.0.1",
        "EPICS_PVA_CONN_TMO": str(TIMEOUT_S),
    }
