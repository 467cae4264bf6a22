"""Grouping of circuits into as few mesh settings as possible."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

from lumion_hw.schedules.schedule import Circuits

Unit = Circuits
"""Circuits that stay together: one circuit, or both directions of a pair."""
_SPREAD = 4.0
"""Size of the random part in the order in which circuits are placed."""


class Packer:
    """Groups circuits into mesh settings. A unit is one circuit, or both directions of a pair.

    Args:
        is_routable: Returns whether circuits can be routed together; ``None`` if undecided.
    """

    def __init__(self, is_routable: Callable[[Circuits], bool | None]) -> None:
        self._routable = is_routable
        self._compatible: list[frozenset[Unit]] = []
        self._incompatible: list[frozenset[Unit]] = []

    def pack(self, units: Sequence[Unit], order: random.Random, steps: int = 0) -> list[list[Unit]]:
        """Group units of circuits into few mesh settings that can be routed.

        Args:
            units: Units that can be routed alone.
            order: Random number generator.
            steps: Largest number of attempts to move a unit to another setting.
        """
        remaining, settings = list(units), list[list[Unit]]()
        while remaining:
            settings.append(self._fill([], self._busiest_first(remaining, order)))
            remaining = [unit for unit in remaining if unit not in settings[-1]]
        while steps > 0 and len(settings) > 1:
            reduced, steps = self._without_one_setting(settings, order, steps)
            if reduced is None:
                break
            settings = reduced
        return settings

    def fits(self, units: Sequence[Unit]) -> bool:
        """Return whether units can be routed together."""
        requested = frozenset(units)
        if len(requested) < 2 or any(requested <= compatible for compatible in self._compatible):
            return True
        if any(compatible <= requested for compatible in self._incompatible):
            return False
        if self._routable(tuple(sorted(circuit for unit in requested for circuit in unit))):
            self._compatible.append(requested)
            return True
        self._incompatible.append(requested)
        if len(requested) > 2:  # an incompatible pair rules out more sets than the whole set does
            for other in units[:-1]:
                self.fits([other, units[-1]])
        return False

    def _fill(self, setting: Sequence[Unit], candidates: Sequence[Unit]) -> list[Unit]:
        wider = list(setting)
        for unit in candidates:
            if not _conflicting_units(wider, unit) and self.fits([*wider, unit]):
                wider.append(unit)
        return wider

    def _busiest_first(self, remaining: Sequence[Unit], order: random.Random) -> list[Unit]:
        circuit_count = Counter(rank for unit in remaining for circuit in unit for rank in circuit)
        weight = {unit: sum(circuit_count[rank] for rank in unit[0]) + _SPREAD * order.random() for unit in remaining}
        return sorted(remaining, key=lambda unit: -weight[unit])

    def _without_one_setting(
        self, settings: Sequence[Sequence[Unit]], order: random.Random, steps: int
    ) -> tuple[list[list[Unit]] | None, int]:
        smallest = min(settings, key=len)
        larger, pool = [list(setting) for setting in settings if setting is not smallest], list(smallest)
        while pool and steps > 0:
            steps -= 1
            unit, number = order.choice(pool), order.randrange(len(larger))
            removed = _conflicting_units(larger[number], unit)
            if len(removed) > 1 and order.random() > 0.1:
                continue
            wider = [member for member in larger[number] if member not in removed]
            if not self.fits([*wider, unit]):
                continue
            larger[number] = [*wider, unit]
            pool = [member for member in (*pool, *removed) if member != unit]
            for other in range(len(larger)):
                larger[other] = self._fill(larger[other], pool)
                pool = [member for member in pool if member not in larger[other]]
        return (None if pool else larger), steps


def _conflicting_units(setting: Sequence[Unit], unit: Unit) -> list[Unit]:
    senders, receivers = {a for a, _ in unit}, {b for _, b in unit}
    return [member for member in setting if any(a in senders or b in receivers for a, b in member)]
