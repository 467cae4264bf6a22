"""Who may reach a server, and the port it listens on: the same for PV Access and page."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Collection
from ipaddress import IPv4Network, IPv6Network

from lumion_hw.errors import ConfigError, ConnectError, InUseError

LOOPBACK = "127.0.0.1"
Networks = tuple[IPv4Network | IPv6Network, ...]


def parse_networks(host: str, allowed: Collection[str], what: str) -> Networks:
    """Return the networks that may connect from elsewhere.

    Args:
        host: Address to listen on.
        allowed: Addresses that may connect, or networks of them.
        what: What is served, for the message.

    Raises:
        ConfigError: An address is none, or ``host`` can be reached from elsewhere and nobody is allowed.
    """
    try:
        address = ipaddress.ip_address(host)
        networks = tuple(ipaddress.ip_network(each, strict=False) for each in allowed)
    except ValueError as error:
        raise ConfigError(f"{error}", hint="Give addresses in numbers, such as 192.0.2.7 or 192.0.2.0/24.") from error
    if not address.is_loopback and not networks:
        raise ConfigError(
            f"{host} can be reached from other hosts, and {what} asks nobody who they are",
            hint="Name those that may connect with --allow, or leave it on loopback and use an SSH tunnel.",
        )
    return networks


def may_connect(host: str, networks: Networks) -> bool:
    """Return whether a client's address is of this host or of those allowed; what is no address is not."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or any(address in network for network in networks)


def open_listener(host: str, port: int, option: str) -> socket.socket:
    """Return a socket that listens.

    Args:
        host: Address to listen on.
        port: TCP port; 0 takes any free one.
        option: Option of the command line that chooses another port, for the message.

    Raises:
        InUseError: Another program has the port.
        ConfigError: This host has no such address.
        ConnectError: The system does not give the port.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise ConfigError(f"this host cannot listen on {host}: it has no such address") from error
        kind = InUseError if error.errno == errno.EADDRINUSE else ConnectError
        words = "is in use by another program" if kind is InUseError else f"cannot be had: {error.strerror}"
        raise kind(f"port {port} {words}", address=f"{host}:{port}", hint=f"Choose another {option}.") from error
