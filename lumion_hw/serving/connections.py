"""Established TCP connections to this server, read from the tables of the operating system."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Collection, Iterator
from functools import cached_property
from pathlib import Path

_TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_ESTABLISHED = "01"


class Connections:
    """Established TCP connections to this server at one moment; the system tables are read at the first use.

    PV Access reports only that the last client of a variable has left, but not which connection was lost. The system
    tables show the lost connection, because a killed program has none.

    Args:
        ports: Ports that this server listens on. Connections to other ports do not count, because another program may
            use the port number of an earlier client.
    """

    def __init__(self, ports: Collection[int]) -> None:
        self._ports = frozenset(f"{port:04X}" for port in ports)

    def __contains__(self, peer: object) -> bool:
        """Return whether a connection from ``host:port`` is established; ``True`` if the system cannot tell.

        Args:
            peer: Client as named by PV Access; a name that is no IPv4 address counts as connected.
        """
        host, _, port = str(peer).rpartition(":")
        try:
            packed = socket.inet_aton(host)
            remote_end = f"{struct.unpack('=I', packed)[0]:08X}:{int(port):04X}"
            established = self._established
        except (OSError, ValueError):
            return True
        return remote_end in established

    @cached_property
    def _established(self) -> frozenset[str]:
        """Remote ends ``host:port`` of all connections; an IPv4 address on an IPv6 socket is given in IPv4 form."""
        remote_ends = set(self._remote_ends(_TABLES[0]))
        with contextlib.suppress(OSError):  # a system without IPv6
            length = len("0100007F:0000")
            remote_ends |= {end[-length:] for end in self._remote_ends(_TABLES[1])}
        return frozenset(remote_ends)

    def _remote_ends(self, table: Path) -> Iterator[str]:
        for line in table.read_text(encoding="ascii").splitlines()[1:]:
            _, local_end, remote_end, state, *_ = line.split(maxsplit=4)
            if state == _ESTABLISHED and local_end.rpartition(":")[2] in self._ports:
                yield remote_end
