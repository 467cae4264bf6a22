"""Whether the other end of a TCP connection of this process is still there, by what the system itself says."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

_TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_ESTABLISHED = "01"


def is_connected(peer: str) -> bool:
    """Return whether a connection from ``host:port`` stands; ``True`` where the system does not tell.

    PV Access says when the last client of a variable has left, and of one that is idle as well; whose connection was
    lost, it says to nobody. The table of connections does, within the tick that asks for it: a program that was killed
    has none, nor one that was given up after three seconds of silence.

    Args:
        peer: As PV Access names it; what is no IPv4 address counts as connected.
    """
    host, _, port = peer.rpartition(":")
    try:
        packed = socket.inet_aton(host)
        wanted = f"{struct.unpack('=I', packed)[0]:08X}:{int(port):04X}"
        lines = _TABLES[0].read_text(encoding="ascii").splitlines()[1:]
    except (OSError, ValueError):
        return True
    for line in lines:
        _, _, there, state, *_ = line.split(maxsplit=4)
        if there == wanted and state == _ESTABLISHED:
            return True
    return _is_mapped(wanted)


def _is_mapped(wanted: str) -> bool:
    """Return whether an IPv4 connection to an IPv6 socket stands."""
    try:
        lines = _TABLES[1].read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return False
    return any(line.split()[2].endswith(wanted) and line.split()[3] == _ESTABLISHED for line in lines)
