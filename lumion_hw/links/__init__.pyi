from .address import open_link as open_link
from .base import Link as Link, Peer as Peer
from .fault import FaultLink as FaultLink
from .memory import MemoryLink as MemoryLink
from .replay import RecordedExchange as RecordedExchange, ReplayPeer as ReplayPeer, replay_link as replay_link
from .serial import SerialLink as SerialLink
from .tcp import TcpLink as TcpLink
from .visa import VisaLink as VisaLink
