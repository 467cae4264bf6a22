"""Whether the other end of a TCP connection of this process is still there, by what the system itself says."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

_TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_ESTABLISHED = "01"


class Connections:
    """TCP connections of this network at one moment: the tables are read when they are first asked for.

    PV Access says when the last client of a variable has left, and of one that is idle as well; whose connection was
    lost, it says to nobody. The table of connections does, within the tick that asks for it: a program that was killed
    has none, nor one that was given up after three seconds of silence.
    """

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
        """Far ends of all connections that stand; those of IPv4 to an IPv6 socket end like those of IPv4."""
        found = {there for there, state in _rows(_TABLES[0]) if state == _ESTABLISHED}
        with contextlib.suppress(OSError):  # a system without IPv6
            length = len("0100007F:0000")
            found |= {there[-length:] for there, state in _rows(_TABLES[1]) if state == _ESTABLISHED}
        return frozenset(found)


def _rows(table: Path) -> Iterator[tuple[str, str]]:
    """Yield far end and state of every connection of a table."""
    for line in table.read_text(encoding="ascii").splitlines()[1:]:
        _, _, there, state, *_ = line.split(maxsplit=4)
        yield there, state
