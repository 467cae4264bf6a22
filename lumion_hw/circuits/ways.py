"""Ways of circuits through the mesh: groups by priority, pairs of equal length, PUCs that others keep off."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from lumion_hw.circuits.ends import CircuitEnds
from lumion_hw.circuits.planning_mesh import PlanningMesh
from lumion_hw.errors import NoPathError, RoutingError, UndecidedError
from lumion_hw.mesh.layout.topology import MeshTopology, State
from lumion_hw.mesh.routing import Path, RouteRequest, Routing, route
from lumion_hw.mesh.routing.lengths import first_choices
from lumion_hw.mesh.routing.request import Progress

Ceilings = list[int | None]
"""Most PUCs on the longest arm of each circuit."""

_RESCUE_S = 2.0
"""Time for the exact search where negotiation gives up: a recovery is waiting, and has other spares to try."""
_KEPT_OFF_DB = 1000.0
"""Price of a PUC that others shall not pass; more than any way is worth."""
_AVOIDED_DB = 2.0
"""Price of a PUC that is better avoided: worth a detour of four."""
_MOST_MISMATCHES = 24
"""Unequal lengths tried where parity forbids equal ones."""


@dataclass(frozen=True)
class PlanningEffort:
    """How long to look for ways.

    Attributes:
        improve_s: Time to look for better ways than the first ones found.
        explain_s: Time to find the few circuits that conflict, where there are no ways.
        is_over: Whether it is too late to try something else.
        progress: Told how far the search is, as :class:`~lumion_hw.mesh.routing.RouteRequest` says.
    """

    improve_s: float
    explain_s: float
    is_over: Callable[[], bool]
    progress: Progress


class WayFinder:
    """Finds ways for circuits beside others.

    Args:
        mesh: The mesh.
        planning: What is known of it.
        ends: Ends of each circuit.
        fixed: States that have to stay.
        standing: Ways that are taken.
        alone: Those of them whose PUCs nobody may share.
        trimmed: PUCs that couple only partly, for the way that has them.
        effort: How long to look.

    Attributes:
        ends: Ends of each circuit.
    """

    def __init__(
        self,
        mesh: MeshTopology,
        planning: PlanningMesh,
        ends: Sequence[CircuitEnds],
        fixed: Mapping[int, State],
        standing: Sequence[Path],
        alone: Sequence[Path],
        trimmed: Collection[int],
        effort: PlanningEffort,
    ) -> None:
        self._mesh, self._planning, self.ends = mesh, planning, ends
        self._fixed, self._standing = fixed, tuple(standing)
        self._kept_off = frozenset(trimmed) | {puc for path in alone for puc in path.pucs}
        self._effort = effort

    def find(self, ceilings: Ceilings, avoided: Collection[int] = ()) -> tuple[list[tuple[Path, ...]], Routing]:
        """Return the ways of each circuit, and the routing of all with those that stand.

        Args:
            ceilings: Most PUCs of each circuit.
            avoided: PUCs that are passed only where a way round them is much longer.

        Raises:
            RoutingError: As :func:`lumion_hw.mesh.routing.route`.
        """
        ranks = sorted({self._rank(ends) for ends in self.ends})
        groups = [[i for i, ends in enumerate(self.ends) if self._rank(ends) == rank] for rank in ranks]
        try:
            return self._in_turn(groups, ceilings, avoided, self._effort.explain_s if len(groups) < 2 else 0.0)
        except RoutingError:
            if len(groups) < 2 or self._effort.is_over():
                raise
        # What the first ones chose may have shut the others out: all together finds ways that in turn misses.
        return self._in_turn([list(range(len(self.ends)))], ceilings, avoided, self._effort.explain_s)

    @staticmethod
    def _rank(ends: CircuitEnds) -> tuple[bool, int]:
        return not ends.request.exclusive, -ends.request.priority

    def _in_turn(
        self, groups: Sequence[Sequence[int]], ceilings: Ceilings, avoided: Collection[int], explain_s: float
    ) -> tuple[list[tuple[Path, ...]], Routing]:
        """Route one group after the other, each beside those before it."""
        found: dict[int, tuple[Path, ...]] = {}
        routings = []
        kept_off = set(self._kept_off)
        for group in groups:
            taken = [*self._standing, *(path for paths in found.values() for path in paths)]
            routing = self._routed(group, ceilings, taken, kept_off, avoided, explain_s)
            paths = iter(routing.paths)
            own = {index: tuple(islice(paths, len(self.ends[index].pairs))) for index in group}
            found |= own
            self._check_apart(found, kept_off, own)
            kept_off |= {
                puc for i, each in own.items() if self.ends[i].request.exclusive for path in each for puc in path.pucs
            }
            routings.append(routing)
        ways = [found[index] for index in range(len(self.ends))]
        return ways, self._together(ways, routings, priced=bool(self._kept_off or avoided))

    def _routed(
        self,
        group: Sequence[int],
        ceilings: Ceilings,
        taken: Sequence[Path],
        kept_off: Collection[int],
        avoided: Collection[int],
        explain_s: float,
    ) -> Routing:
        surcharge = np.zeros((self._mesh.n_pucs, 2))
        surcharge[sorted(avoided)] = _AVOIDED_DB
        surcharge[sorted(kept_off)] = _KEPT_OFF_DB
        pairs: list[tuple[int, int]] = []
        most: Ceilings = []
        equal: list[tuple[int, ...]] = []
        unequal: list[tuple[int, ...]] = []
        for index in group:
            own = tuple(range(len(pairs), len(pairs) + len(self.ends[index].pairs)))
            pairs += self.ends[index].pairs
            most += [ceilings[index]] * len(own)
            if len(own) > 1:
                (equal if self.ends[index].can_match(self._mesh) else unequal).append(own)
        request = RouteRequest(
            pairs,
            puc_loss_db=self._planning.puc_loss_db,
            surcharge=surcharge if surcharge.any() else 0.0,
            unusable=self._planning.unusable,
            fixed=self._fixed,
            active=taken,
            max_hops=most if any(each is not None for each in most) else None,
            equal_hops=equal,
            improve_s=self._effort.improve_s,
            time_limit_s=_RESCUE_S,
            explain_s=explain_s,
            progress=self._effort.progress,
        )
        if not unequal:
            return route(self._mesh, request)
        tried = 0
        for lengths in self._mismatches(pairs, unequal):
            try:
                return route(self._mesh, replace(request, exact_hops=lengths, exact="never"))
            except RoutingError:
                tried += 1
            if self._effort.is_over():
                break
        told = ", ".join(str(self.ends[index].request) for index in group)
        raise UndecidedError(
            f"no pair of ways found for circuits {told} whose lengths differ by 1 or 3 PUCs, as parity forbids "
            f"equal ones (tried {tried}; not proven impossible)",
            hint="Wire one tributary to a neighbouring port: then both ways can be equally long.",
        )

    def _mismatches(
        self, pairs: Sequence[tuple[int, int]], unequal: Sequence[tuple[int, ...]]
    ) -> Iterator[dict[int, int]]:
        """Yield exact lengths for arms that parity keeps from being equal: the nearest mismatch, the shortest first."""
        options = []
        for first, second in unequal:
            shortest = [int(self._mesh.shortest_hops[pairs[arm]]) for arm in (first, second)]
            # Lengths of an arm grow by twos: next to every one of either is one of the other.
            near = [
                (abs(a - b), a + b, {first: a, second: b})
                for a in range(shortest[0], shortest[0] + 13, 2)
                for b in (a - 3, a - 1, a + 1, a + 3)
                if b >= shortest[1]
            ]
            options.append(near)

        def total(choice: tuple[int, ...]) -> tuple[object, ...]:
            parts = [options[place][option] for place, option in enumerate(choice)]
            return sum(part[0] for part in parts), sum(part[1] for part in parts), choice

        for choice in first_choices([len(near) for near in options], total, _MOST_MISMATCHES):
            parts = [options[place][option] for place, option in enumerate(choice)]
            yield {arm: hops for _, _, lengths in parts for arm, hops in lengths.items()}

    def _check_apart(
        self,
        found: Mapping[int, tuple[Path, ...]],
        kept_off: Collection[int],
        own: Mapping[int, tuple[Path, ...]],
    ) -> None:
        """Refuse ways over PUCs that others keep to themselves.

        Raises:
            NoPathError: The message names the circuit and the PUCs.
        """
        for index, paths in own.items():
            pucs = {puc for path in paths for puc in path.pucs}
            foreign = {
                puc
                for other, theirs in found.items()
                if other != index and self.ends[index].request.exclusive | self.ends[other].request.exclusive
                for path in theirs
                for puc in path.pucs
            }
            if self.ends[index].request.exclusive:
                foreign |= {puc for path in self._standing for puc in path.pucs}
            shared = sorted(pucs & (foreign | set(kept_off)))
            if shared:
                raise NoPathError(
                    f"circuit {self.ends[index].request} would share PUCs {shared} with a circuit that is exclusive "
                    "or trims its light there",
                    ports=tuple(port for pair in self.ends[index].pairs for port in pair),
                    hint="Plan them together, without exclusive, or between other ports.",
                )

    def _together(self, ways: Sequence[tuple[Path, ...]], routings: Sequence[Routing], *, priced: bool) -> Routing:
        """Return one routing of all circuits: the last one knows all states; what PUCs were priced at is no cost."""
        paths = tuple(path for own in ways for path in own)
        if not routings:
            return route(self._mesh, RouteRequest([], active=self._standing))
        last = routings[-1]
        if len(routings) == 1 and not priced:
            return last
        cost = sum(path.loss_db for path in (*paths, *self._standing))
        # Later groups went round what earlier ones chose: only what holds without them is a bound.
        alone = sum(
            float(self._planning.puc_loss_db.min()) * self._mesh.shortest_hops[path.source, path.target]
            for path in paths
        )
        bound = min(cost, alone + sum(path.loss_db for path in self._standing))
        return replace(last, paths=paths, active=self._standing, moved=(), cost=cost, bound=bound)
