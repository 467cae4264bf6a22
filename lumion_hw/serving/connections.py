"""Established TCP connections to this server, from the tables of the operating system."""

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
    """Established TCP connections to this server at one moment.

    Args:
        ports: Ports that this server listens on; connections to other ports do not count.
    """

    def __init__(self, ports: Collection[int]) -> None:
        self._ports = frozenset(f"{port:04X}" for port in ports)

    def __contains__(self, peer: object) -> bool:
        """Return whether a connection from ``host:port`` is established; ``True`` if unknown.

        Args:
            peer: Name of the client in PV Access; without an IPv4 address the client counts as connected.
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
