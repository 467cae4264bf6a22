"""What the devices of one emulated bench share about time: what will happen, and the exchange that is under way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class BenchTime:
    """Things that will happen on a bench, and whether a host is talking to one of its devices.

    Used as a context manager around one exchange, which is one call of a connection: bytes handed over or fetched.
    Nothing else on the bench acts meanwhile, so that the devices need to be brought up to date once in an exchange,
    however many channels of a meter look at the light.

    Attributes:
        now_s: The clock.
        due: What is to come, and when.
        exchange: Number of the exchange under way; ``None`` between exchanges.
    """

    now_s: Callable[[], float]
    due: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    exchange: int | None = None
    _exchanges: int = 0

    def add(self, at_s: float, action: Callable[[], None]) -> None:
        """Have something happen at a time."""
        self.due.append((at_s, action))

    def next_s(self) -> float | None:
        """Return when the next thing happens, ``None`` if nothing will."""
        return min((at_s for at_s, _ in self.due), default=None)

    def advance(self) -> None:
        """Let happen what is due, in order."""
        if not self.due:
            return
        now = self.now_s()
        ready = sorted((entry for entry in self.due if entry[0] <= now), key=lambda entry: entry[0])
        # What is due is taken out before anything acts: an action may add further ones, or look at the bench and come
        # back here.
        self.due = [entry for entry in self.due if entry[0] > now]
        for _, action in ready:
            action()

    def __enter__(self) -> None:
        self._exchanges += 1
        self.exchange = self._exchanges

    def __exit__(self, *_: object) -> None:
        self.exchange = None

    def renew(self) -> None:
        """Make the next look within the exchange bring everything up to date again: a device has done something."""
        if self.exchange is not None:
            self.__enter__()
