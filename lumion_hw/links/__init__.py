"""Links: bytes out, bytes in, by a deadline. Everything that knows sockets, serial ports or VISA lives here.

The modules inside are private: users import from here.
"""

from lumion_hw.links.address import open_link
from lumion_hw.links.base import Link, Peer
from lumion_hw.links.fault import FaultLink
from lumion_hw.links.memory import MemoryLink
from lumion_hw.links.replay import RecordedExchange, ReplayPeer, replay_link
from lumion_hw.links.serial import SerialLink
from lumion_hw.links.tcp import TcpLink
from lumion_hw.links.visa import VisaLink

__all__ = [
    "FaultLink",
    "Link",
    "MemoryLink",
    "Peer",
    "RecordedExchange",
    "ReplayPeer",
    "SerialLink",
    "TcpLink",
    "VisaLink",
    "open_link",
    "replay_link",
]
