"""Duplex requests: a circuit and its reverse share one path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.routing.request import Ceiling, RouteRequest, ceilings
from lumion_hw.mesh.routing.result import Path, Routing

Pair = tuple[int, int]


class Duplex:
    """Merges each circuit with its reverse before routing, and separates them in the result.

    If not ``allowed``, every circuit is routed separately.
    """

    def __init__(self, pairs: Sequence[Pair], *, allowed: bool) -> None:
        self._requested = tuple((int(source), int(target)) for source, target in pairs)
        self.pairs: list[Pair] = []
        self._merged_index: list[int] = []
        for pair in self._requested:
            # A pair requested twice is not merged: it is a mistake, and the port check rejects it later.
            if allowed and pair[::-1] in self.pairs and self._requested.count(pair) == 1:
                self._merged_index.append(self.pairs.index(pair[::-1]))
            else:
                self._merged_index.append(len(self.pairs))
                self.pairs.append(pair)

    def merged(self, request: RouteRequest) -> RouteRequest:
        """Return the request with each circuit and its reverse merged.

        Raises:
            ConfigError: The limits do not match the circuits.
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
        self, ceiling_s: Ceiling | Sequence[Ceiling | None] | None, name: str
    ) -> Ceiling | list[Ceiling | None] | None:
        """Return the upper limit of each merged circuit, the smaller one of both directions.

        Raises:
            ConfigError: The number of limits differs from the number of circuits.
        """
        if not isinstance(ceiling_s, Sequence):
            return ceiling_s
        merged: list[list[Ceiling]] = [[] for _ in self.pairs]
        for merged_index, ceiling in zip(
            self._merged_index, ceilings(len(self._requested), ceiling_s, name), strict=True
        ):
            if ceiling is not None:
                merged[merged_index].append(ceiling)
        # One path serves both directions, so the stricter limit counts.
        return [min(limits, default=None) for limits in merged]

    def _exact_hops(self, exact_hops: Mapping[int, int]) -> dict[int, int]:
        """Return the required numbers of hops of the merged circuits.

        Raises:
            ConfigError: A circuit does not exist, or both directions need different numbers of hops.
        """
        merged: dict[int, int] = {}
        for index, hops in exact_hops.items():
            if not 0 <= index < len(self._requested) or merged.setdefault(self._merged_index[index], hops) != hops:
                raise ConfigError(
                    f"exact lengths {dict(exact_hops)} do not match the {len(self._requested)} circuits",
                    hint="Number circuits from 0, and give a pair and its reverse the same length.",
                )
        return merged

    def _equal_hops(self, groups: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return the groups of equal length, for the merged circuits.

        Raises:
            ConfigError: A circuit does not exist, or is in two groups.
        """
        named = [index for group in groups for index in group]
        if any(not 0 <= index < len(self._requested) for index in named) or len(set(named)) != len(named):
            raise ConfigError(
                f"length groups {[list(group) for group in groups]} do not match the {len(self._requested)} circuits",
                hint="Number circuits from 0 in the order of the request, and put each into at most one group.",
            )
        return [sorted({self._merged_index[index] for index in group}) for group in groups]

    def restored(self, routing: Routing) -> Routing:
        """Return a routing with one path per requested circuit."""
        paths = []
        for merged_index, pair in zip(self._merged_index, self._requested, strict=True):
            path = routing.paths[merged_index]
            is_same_direction = (path.source, path.target) == pair
            paths.append(path if is_same_direction else Path(*pair, path.pucs[::-1], path.loss_db))
        return replace(routing, paths=tuple(paths))
