"""Whether the other end of a TCP connection of this process is still there, by what the system itself says."""

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
    """TCP connections to this server at one moment; the system's tables are read at the first question.

    PV Access reports when the last client of a variable has left, and not whose connection was lost. The tables do: a
    program that was killed has no connection, and one that was silent for three seconds has lost it.

    Args:
        ports: Ports that this server listens on. A connection of another program counts for nothing here, even if it
            has the port number that a client of this server had before.
    """

    def __init__(self, ports: Collection[int]) -> None:
        self._ports = frozenset(f"{port:04X}" for port in ports)

    def __contains__(self, peer: object) -> bool:
        """Return whether a connection from ``host:port`` stands; ``True`` where the system does not tell.

        Args:
            peer: As PV Access names it; what is no IPv4 address counts as connected.
        """
        host, _, port = str(peer).rpartition(":")
        try:
            packed = socket.inet_aton(host)
            wanted = f"{struct.unpack('=I', packed)[0]:08X}:{int(port):04X}"
            established = self._established
        except (OSError, ValueError):
            return True
        return wanted in established

    @cached_property
    def _established(self) -> frozenset[str]:
        """Far ends of all connections to this server; those of IPv4 to an IPv6 socket end like those of IPv4."""
        found = set(self._remote_ends(_TABLES[0]))
        with contextlib.suppress(OSError):  # a system without IPv6
            length = len("0100007F:0000")
            found |= {there[-length:] for there in self._remote_ends(_TABLES[1])}
        return frozenset(found)

    def _remote_ends(self, table: Path) -> Iterator[str]:
        for line in table.read_text(encoding="ascii").splitlines()[1:]:
            _, here, there, state, *_ = line.split(maxsplit=4)
            if state == _ESTABLISHED and here.rpartition(":")[2] in self._ports:
                yield there
