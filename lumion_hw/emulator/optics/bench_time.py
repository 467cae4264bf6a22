"""Scheduled events of an emulated bench."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class BenchTime:
    """Scheduler of an emulated bench's events.

    The ``with`` block encloses one exchange of bytes with a device, during which the other devices do not change.

    Attributes:
        exchange: Number of the exchange in progress; ``None`` between exchanges.
        exchange_s: Start of the exchange in progress, or of the last one.
    """

    now_s: Callable[[], float]
    due: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    exchange: int | None = None
    exchange_s: float = 0.0
    _exchanges: int = 0

    def add(self, at_s: float, action: Callable[[], None]) -> None:
        """Schedule a function at a time of the bench's clock."""
        self.due.append((at_s, action))

    def next_s(self) -> float | None:
        """Return the time of the next scheduled function; ``None`` if there is none."""
        return min((at_s for at_s, _ in self.due), default=None)

    def advance(self) -> None:
        """Run the scheduled functions that are due."""
        if not self.due:
            return
        now_s = self.now_s()
        ready = sorted((entry for entry in self.due if entry[0] <= now_s), key=lambda entry: entry[0])
        # Due actions are removed before any of them runs: an action may schedule more, or read the bench and so call
        # this method again.
        self.due = [entry for entry in self.due if entry[0] > now_s]
        for _, action in ready:
            action()

    def __enter__(self) -> None:
        self._exchanges += 1
        self.exchange, self.exchange_s = self._exchanges, self.now_s()

    def __exit__(self, *_: object) -> None:
        self.exchange = None

    def renew(self) -> None:
        """Make the next reading bring all devices up to date."""
        if self.exchange is not None:
            self.__enter__()
