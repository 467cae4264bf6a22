"""Pairs asked for together with their reverse: one way serves both directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.routing.request import Ceiling, RouteRequest, ceilings
from lumion_hw.mesh.routing.result import Path, Routing

Pair = tuple[int, int]


class Duplex:
    """Folds reverses into their pairs, and unfolds the routing.

    Args:
        pairs: The circuits asked for.
        allowed: Whether to fold at all; if not, every circuit stands for itself.
    """

    def __init__(self, pairs: Sequence[Pair], *, allowed: bool) -> None:
        self._asked = tuple((int(source), int(target)) for source, target in pairs)
        self.pairs: list[Pair] = []
        self._place: list[int] = []
        for pair in self._asked:
            # A pair that is asked for twice is not folded: that is a mistake, and its ports are refused later.
            if allowed and pair[::-1] in self.pairs and self._asked.count(pair) == 1:
                self._place.append(self.pairs.index(pair[::-1]))
            else:
                self._place.append(len(self.pairs))
                self.pairs.append(pair)

    def folded(self, request: RouteRequest) -> RouteRequest:
        """Return a request for the folded circuits.

        Raises:
            ConfigError: Its limits do not fit its circuits.
        """
        return replace(
            request,
            pairs=self.pairs,
            max_hops=self._ceilings(request.max_hops, "hop"),
            max_loss_db=self._ceilings(request.max_loss_db, "loss"),
            exact_hops=self._exact_hops(request.exact_hops),
            equal_hops=self._equal_hops(request.equal_hops),
        )

    def _ceilings(
        self, given: Ceiling | Sequence[Ceiling | None] | None, what: str
    ) -> Ceiling | list[Ceiling | None] | None:
        """Return the ceilings of the folded circuits, the lower one of both directions.

        Raises:
            ConfigError: There is not one for each circuit.
        """
        if not isinstance(given, Sequence):
            return given
        folded: list[list[Ceiling]] = [[] for _ in self.pairs]
        for place, ceiling in zip(self._place, ceilings(len(self._asked), given, what), strict=True):
            if ceiling is not None:
                folded[place].append(ceiling)
        return [min(each, default=None) for each in folded]

    def _exact_hops(self, exact_hops: Mapping[int, int]) -> dict[int, int]:
        """Return the exact lengths of the folded circuits.

        Raises:
            ConfigError: A circuit does not exist, or both directions are to differ in length.
        """
        folded: dict[int, int] = {}
        for index, hops in exact_hops.items():
            if not 0 <= index < len(self._asked) or folded.setdefault(self._place[index], hops) != hops:
                raise ConfigError(
                    f"exact lengths {dict(exact_hops)} do not fit {len(self._asked)} circuits",
                    hint="Circuits count from 0; a pair and its reverse have one length.",
                )
        return folded

    def _equal_hops(self, groups: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return the groups of the folded circuits.

        Raises:
            ConfigError: A circuit does not exist, or is in two groups.
        """
        named = [index for group in groups for index in group]
        if any(not 0 <= index < len(self._asked) for index in named) or len(set(named)) != len(named):
            raise ConfigError(
                f"length groups {[list(group) for group in groups]} do not fit {len(self._asked)} circuits",
                hint="Circuits count from 0 in the order of the request, each in one group at most.",
            )
        return [sorted({self._place[index] for index in group}) for group in groups]

    def unfolded(self, routing: Routing) -> Routing:
        """Return the routing with one path per circuit asked for."""
        paths = []
        for place, pair in zip(self._place, self._asked, strict=True):
            path = routing.paths[place]
            same = (path.source, path.target) == pair
            paths.append(path if same else Path(*pair, path.pucs[::-1], path.loss_db))
        return replace(routing, paths=tuple(paths))
