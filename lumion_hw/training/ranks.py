"""The ranks of a training job as its coordinator sees them: connections, reports and heartbeats."""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SILENCE_S = 0.2
"""Silence after which a stopped process of this computer counts as failed: ten heartbeat periods of 20 ms."""
LONG_SILENCE_S = 1.0
"""Silence after which any rank counts as failed; a busy computer can delay heartbeats by some 100 ms."""


@dataclass
class Rank:
    """A rank on one server.

    Attributes:
        index: Number of the rank on its server, from 0.
        control: Connection to the rank.
        pid: Process ID; 0 for a process of another computer.
        is_warm: Whether the rank is ready to form a group.
        contact_s: Time of the last message.
    """

    server: str
    index: int
    control: socket.socket
    pid: int = 0
    is_warm: bool = False
    is_beating: bool = False
    has_ended: bool = False
    contact_s: float = 0.0
    unread: bytes = b""

    @property
    def name(self) -> str:
        """Name for messages, such as ``rank 1 of server0``."""
        return f"rank {self.index} of {self.server}"

    def order(self, order: str, **details: Any) -> None:
        """Send an order; a rank that has ended is ignored."""
        with contextlib.suppress(OSError):
            self.control.sendall((json.dumps({"do": order, **details}) + "\n").encode())

    def problem(self, now_s: float) -> str | None:
        """Return why the rank counts as failed; ``None`` if it is well."""
        if self.has_ended:
            return "end of its control connection"
        silence_s = now_s - self.contact_s
        if self.is_beating and (silence_s > LONG_SILENCE_S or (silence_s > SILENCE_S and self._is_stopped())):
            return f"no beat for {1e3 * silence_s:.0f} ms"
        return None

    def _is_stopped(self) -> bool:
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:  # also for an unknown process
            return False
        return stat.rpartition(")")[2].split()[0] in "TtZX"


class Ranks:
    """All connected ranks, by server."""

    def __init__(self) -> None:
        self._ranks: dict[str, dict[int, Rank]] = {}
        self.selector = selectors.DefaultSelector()

    def add(self, rank: Rank) -> None:
        """Add a connected rank; it replaces an earlier one with the same server and index."""
        self._drop(self._ranks.setdefault(rank.server, {}).get(rank.index))
        rank.contact_s = time.monotonic()
        self._ranks[rank.server][rank.index] = rank
        self.selector.register(rank.control, selectors.EVENT_READ, rank)

    def of(self, *servers: str) -> list[Rank]:
        """Return the ranks of servers, in the order of the servers and their indices."""
        return [self._ranks[server][index] for server in servers for index in sorted(self._ranks.get(server, ()))]

    @property
    def servers(self) -> tuple[str, ...]:
        """Servers with at least one rank."""
        return tuple(server for server, ranks in self._ranks.items() if ranks)

    def remove(self, server: str) -> list[Rank]:
        """Close the connections of a server's ranks, which then end, and return these ranks."""
        removed = list(self._ranks.pop(server, {}).values())
        for rank in removed:
            self._drop(rank)
        return removed

    def _drop(self, rank: Rank | None) -> None:
        if rank is not None:
            if not rank.has_ended:
                self.selector.unregister(rank.control)
            rank.has_ended = True
            with contextlib.suppress(OSError):  # a process that was stopped still holds its end
                rank.control.shutdown(socket.SHUT_RDWR)
            rank.control.close()

    def read(self, rank: Rank) -> list[dict[str, Any]]:
        """Return the new reports of a rank whose connection is readable; its end counts as the report ``gone``."""
        try:
            data = rank.control.recv(65536)
        except OSError:
            data = b""
        if not data:
            rank.has_ended = True
            self.selector.unregister(rank.control)
            return [{"is": "gone", "words": "its process has ended"}]
        rank.is_beating = True
        return self.take(rank, data)

    def take(self, rank: Rank, data: bytes) -> list[dict[str, Any]]:
        """Return the reports in data that a rank has sent."""
        rank.contact_s = time.monotonic()
        lines = (rank.unread + data).split(b"\n")
        rank.unread = lines.pop()
        try:
            reports = [json.loads(line) for line in lines]
        except ValueError:  # no rank of this version
            self._drop(rank)
            return [{"is": "gone", "words": "its reports cannot be read"}]
        rank.is_warm |= any(report["is"] == "warm" for report in reports)
        return [report for report in reports if report["is"] != "beat"]

    def listen(self, timeout_s: float) -> list[tuple[Rank, dict[str, Any]]]:
        """Return the reports of ranks within a time."""
        return [
            (key.data, report)
            for key, _ in self.selector.select(timeout_s)
            if isinstance(key.data, Rank)
            for report in self.read(key.data)
        ]

    def failed(self, servers: Iterable[str]) -> tuple[str, str] | None:
        """Return the first of the servers with a failed rank, and what was noticed."""
        now_s = time.monotonic()
        for key, _ in self.selector.select(0):
            if isinstance(key.data, Rank):
                key.data.contact_s = now_s  # the caller was busy, and not the rank silent
        for rank in self.of(*servers):
            problem = rank.problem(now_s)
            if problem is not None:
                return rank.server, problem
        return None

    def form(
        self,
        members: Sequence[str],
        new: Iterable[str],
        generation: int,
        stores: Mapping[str, Sequence[Any]],
        **details: Any,
    ) -> None:
        """Order all ranks of the members to form a group, ranked in the order of the members.

        Args:
            members: Servers in rank order.
            new: Those of them whose ranks have no state.
            generation: Number of the group; every group has a new one.
            stores: Address and port of the store of torch.distributed as each member sees it.
            details: Further details of the order, the same for all ranks.
        """
        ranks, new_servers = self.of(*members), set(new)
        for number, rank in enumerate(ranks):
            rank.order(
                "form",
                rank=number,
                world=len(ranks),
                per_server=len(ranks) // len(members),
                generation=generation,
                is_new=rank.server in new_servers,
                store=stores[rank.server],
                **details,
            )

    def close(self) -> None:
        """Close all connections; idempotent."""
        for server in list(self._ranks):
            self.remove(server)
        self.selector.close()
