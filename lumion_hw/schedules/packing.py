"""Circuits put together into as few settings of a mesh as are found: which go together is for the router to say."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

from lumion_hw.schedules.schedule import Circuits

Unit = Circuits
"""Circuits that stay together: one, or both ways of a pair."""
_SPREAD = 4.0
"""How much chance there is in the order, in circuits that a rank still has to make."""


class Packer:
    """Packs units into settings, and remembers what goes together and what does not.

    Args:
        routable: Whether circuits can be routed together; ``None`` where no ways were found and nothing was proven.
    """

    def __init__(self, is_routable: Callable[[Circuits], bool | None]) -> None:
        self._routable = is_routable
        self._together: list[frozenset[Unit]] = []
        self._apart: list[frozenset[Unit]] = []

    def pack(self, units: Sequence[Unit], order: random.Random, steps: int = 0) -> list[list[Unit]]:
        """Return settings that hold every unit once, each of which has ways.

        One setting after the other is filled, ranks with most circuits still to make first; then the smallest is
        dissolved into the others, as long as that works.

        Args:
            units: Units, each of which can be routed alone.
            order: Source of chance.
            steps: How often in all a unit may push its way into a setting to make another one superfluous.
        """
        left, settings = list(units), list[list[Unit]]()
        while left:
            settings.append(self._filled([], self._busiest_first(left, order)))
            left = [unit for unit in left if unit not in settings[-1]]
        while steps > 0 and len(settings) > 1:
            fewer, steps = self._dissolved(settings, order, steps)
            if fewer is None:
                break
            settings = fewer
        return settings

    def fits(self, units: Sequence[Unit]) -> bool:
        """Return whether units have ways at once; asked of the router only where nothing known answers."""
        wanted = frozenset(units)
        if len(wanted) < 2 or any(wanted <= known for known in self._together):
            return True
        if any(known <= wanted for known in self._apart):
            return False
        if self._routable(tuple(sorted(circuit for unit in wanted for circuit in unit))):
            self._together.append(wanted)
            return True
        self._apart.append(wanted)
        if len(wanted) > 2:  # two that are at odds rule out much more than all of them
            for other in units[:-1]:
                self.fits([other, units[-1]])
        return False

    def _filled(self, setting: Sequence[Unit], candidates: Sequence[Unit]) -> list[Unit]:
        """Return a setting with every candidate added that finds its ports and a way free, in this order."""
        wider = list(setting)
        for unit in candidates:
            if not _clashing(wider, unit) and self.fits([*wider, unit]):
                wider.append(unit)
        return wider

    def _busiest_first(self, left: Sequence[Unit], order: random.Random) -> list[Unit]:
        todo = Counter(rank for unit in left for circuit in unit for rank in circuit)
        weight = {unit: sum(todo[rank] for rank in unit[0]) + _SPREAD * order.random() for unit in left}
        return sorted(left, key=lambda unit: -weight[unit])

    def _dissolved(
        self, settings: Sequence[Sequence[Unit]], order: random.Random, steps: int
    ) -> tuple[list[list[Unit]] | None, int]:
        """Return one setting fewer and the steps left, or ``None`` if the units of the smallest find no place."""
        smallest = min(settings, key=len)
        kept, pool = [list(each) for each in settings if each is not smallest], list(smallest)
        while pool and steps > 0:
            steps -= 1
            unit, place = order.choice(pool), order.randrange(len(kept))
            out = _clashing(kept[place], unit)
            if len(out) > 1 and order.random() > 0.1:
                continue
            wider = [each for each in kept[place] if each not in out]
            if not self.fits([*wider, unit]):
                continue
            kept[place] = [*wider, unit]
            pool = [each for each in (*pool, *out) if each != unit]
            for other in range(len(kept)):
                kept[other] = self._filled(kept[other], pool)
                pool = [each for each in pool if each not in kept[other]]
        return (None if pool else kept), steps


def _clashing(setting: Sequence[Unit], unit: Unit) -> list[Unit]:
    """Return the units of a setting that need a transmitter or a receiver of another one."""
    senders, receivers = {a for a, _ in unit}, {b for _, b in unit}
    return [each for each in setting if any(a in senders or b in receivers for a, b in each)]
