"""Names of the process variables of a served bench, and how both sides find PV Access.

A reading or setting ``device.quantity.channel`` of bench ``B`` is ``B:device:quantity:channel``; docs/serving.md lists
the others.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from lumion_hw.errors import ConfigError

SERVED = "lumion:served"
"""Says which bench is served here, whatever its name: for programs that know the address alone."""
CALL = "call"
"""RPC of programs that use the interfaces."""
HANDLE = "#"
"""How names of streams and watches begin, which stand where calls have the name of a device."""
LEASE = "lease"
HEARTBEAT = "heartbeat"
PROTOCOL = 1
"""Grows when a program of before cannot talk to a server of now."""
TIMEOUT_S = 3
"""Silence after which a program gives its server up; PV Access by itself takes half a minute."""


def pv_name(bench: str, *parts: str) -> str:
    """Return the name of a process variable: dots of readings and settings become colons."""
    return ":".join((bench, *(part.replace(".", ":") for part in parts)))


def require_p4p() -> Any:
    """Return p4p. Raises ``ConfigError`` with the command that helps, if it is not installed."""
    try:
        import p4p.client.thread
        import p4p.nt
        import p4p.server.thread
    except ImportError as error:
        raise ConfigError("PV Access needs p4p", hint="pip install 'lumion-hw[epics]'") from error
    return p4p


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of ``pva://host:port``.

    Raises:
        ConfigError: It is no such address.
    """
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or not port or not address.startswith("pva://"):
        raise ConfigError(
            f"{address[:120]!r} is no address of a served bench", hint="Write pva://HOST:PORT, as `lumion serve` says."
        )
    return host, port


def client_conf(host: str, port: int) -> dict[str, str]:
    """Return the whole configuration of a client: one server by name, over TCP, whatever the environment says."""
    return {
        "EPICS_PVA_NAME_SERVERS": f"{host}:{port}",
        "EPICS_PVA_ADDR_LIST": "127.0.0.1",
        "EPICS_PVA_AUTO_ADDR_LIST": "NO",
        "EPICS_PVA_INTF_ADDR_LIST": "127.0.0.1",
        "EPICS_PVA_CONN_TMO": str(TIMEOUT_S),
    }
