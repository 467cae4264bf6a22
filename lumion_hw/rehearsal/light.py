"""What the rehearsal asks of the light: whose arrives where, that it can be cut, and that a spare takes a place."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

Arrives = Callable[[Mapping[str, str]], None]
"""Told, by receiving server, whose light arrives there."""
Failed = Callable[[str, str], None]
"""Told which server's light is lost, and what has noticed it."""
Mark = Callable[[str, str], None]
"""Told the name of a span as it ends, and where its length is from."""


class LightFabric(Protocol):
    """Servers joined by light, one of them to fail."""

    @property
    def servers(self) -> tuple[str, ...]:
        """All servers, spares included."""

    @property
    def members(self) -> tuple[str, ...]:
        """Servers of the job, in rank order, as it begins."""

    def start(self, arrives: Arrives, failed: Failed) -> None:
        """Begin: ``arrives`` is called now and whenever light changes, ``failed`` when the fabric misses light."""

    def cut(self, server: str, happens: Callable[[], None]) -> None:
        """The light that a server sends goes out; ``happens`` is called at that instant."""

    def replace(self, failed: str, mark: Mark) -> str:
        """Put a spare in the place of a failed server, and return it when its light is proven to arrive both ways."""

    def restore(self) -> None:
        """Put everything back for the next trial."""

    def emulated(self) -> tuple[str, ...]:
        """What is emulated, in words."""

    def close(self) -> None:
        """End it; idempotent."""


class SwitchedLight:
    """A plain switch: break, wait, make. Stands in for the mesh where that is not what is rehearsed.

    Args:
        members: Servers of the job.
        spares: Servers that stand by.
        switching_s: Time for which ports whose partner changes are dark.
    """

    def __init__(self, members: Sequence[str], spares: Sequence[str], switching_s: float = 0.010) -> None:
        self._members, self._spares = tuple(members), tuple(spares)
        self._switching_s = switching_s
        self._guard = threading.Lock()
        self.restore()

    @property
    def servers(self) -> tuple[str, ...]:
        """All servers."""
        return (*self._members, *self._spares)

    @property
    def members(self) -> tuple[str, ...]:
        """Servers of the job."""
        return self._members

    def restore(self) -> None:
        """Put everything back."""
        self._now, self._cut = list(self._members), set[str]()
        if hasattr(self, "_arrives"):
            self._tell()

    def start(self, arrives: Arrives, failed: Failed) -> None:
        """Begin."""
        self._arrives, self._failed = arrives, failed
        self._tell()

    def _tell(self) -> None:
        pairs = zip(self._now, [*self._now[1:], self._now[0]], strict=True)
        ring = {to: source for source, to in pairs}
        self._arrives({to: source for to, source in ring.items() if source not in self._cut})

    def cut(self, server: str, happens: Callable[[], None]) -> None:
        """The light of a server goes out; a switch sees that at once."""
        self._cut.add(server)
        happens()
        self._tell()
        self._failed(server, "switch")

    def replace(self, failed: str, mark: Mark) -> str:
        """Switch over to the first spare that is free."""
        with self._guard:
            spare = next(name for name in self._spares if name not in self._now and name not in self._cut)
            mark("spare_chosen", "measured")
            mark("route_found", "measured")
            place = self._now.index(failed)
            self._now[place] = ""
            self._arrives({})
            time.sleep(self._switching_s)
            self._now[place] = spare
            source = f"emulated: switching time {1e3 * self._switching_s:g} ms"
            mark("programmed", source)
            self._tell()
            mark("settled", source)
            mark("proven", source)
            return spare

    def emulated(self) -> tuple[str, ...]:
        """What is emulated."""
        return (f"mesh and optics: a switch that takes {1e3 * self._switching_s:g} ms",)

    def close(self) -> None:
        """Nothing is held."""
