"""Allowed client addresses and the listening port, for PV Access and the web page."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Collection
from ipaddress import IPv4Network, IPv6Network

from lumion_hw.errors import ConfigError, ConnectError, InUseError

LOOPBACK = "127.0.0.1"
Networks = tuple[IPv4Network | IPv6Network, ...]


def parse_networks(host: str, allowed: Collection[str], description: str) -> Networks:
    """Return the networks of ``allowed``, whose hosts may connect.

    Raises:
        ConfigError: An address is invalid, or other hosts can reach ``host`` and ``allowed`` is empty.
    """
    try:
        address = ipaddress.ip_address(host)
        networks = tuple(ipaddress.ip_network(network, strict=False) for network in allowed)
    except ValueError as error:
        raise ConfigError(f"{error}", hint="Give numeric addresses, such as 192.0.2.7 or 192.0.2.0/24.") from error
    if not address.is_loopback and not networks:
        raise ConfigError(
            f"other hosts can reach {host}, and {description} does not authenticate clients",
            hint="List the allowed addresses with --allow, or listen on loopback and use an SSH tunnel.",
        )
    return networks


def may_connect(host: str, networks: Networks) -> bool:
    """Return whether a client may connect: from loopback or an allowed network."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or any(address in network for network in networks)


def open_listener(host: str, port: int, option: str) -> socket.socket:
    """Open a listening TCP socket; port 0 selects any free port.

    ``option`` is the option that sets the port, for messages.

    Raises:
        InUseError: Another program uses the port.
        ConfigError: This host does not have the address.
        ConnectError: The system refuses the port.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise ConfigError(f"cannot listen on {host}: this host does not have that address") from error
        kind = InUseError if error.errno == errno.EADDRINUSE else ConnectError
        reason = "is in use by another program" if kind is InUseError else f"is not available: {error.strerror}"
        raise kind(f"port {port} {reason}", address=f"{host}:{port}", hint=f"Choose another {option}.") from error
