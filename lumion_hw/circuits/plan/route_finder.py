"""Find routes of circuits in order of their priority."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from lumion_hw.circuits.plan.ends import CircuitEnds
from lumion_hw.circuits.plan.planned import PlannedCircuit
from lumion_hw.circuits.plan.planning_mesh import PlanningMesh
from lumion_hw.circuits.plan.request import CircuitRequest
from lumion_hw.errors import NoPathError, RoutingError, UndecidedError
from lumion_hw.mesh.layout.topology import MeshTopology, State
from lumion_hw.mesh.routing import Path, RouteRequest, Routing, route
from lumion_hw.mesh.routing.lengths import first_choices
from lumion_hw.mesh.routing.request import Progress

HopLimits = list[int | None]
"""Largest number of PUCs on the longest path of each circuit; ``None`` without a limit."""

_RESCUE_S = 2.0
"""Time limit of the exact search, which runs after the fast search has failed."""
_RESERVED_DB = 1000.0
"""Surcharge of a PUC that is reserved for another circuit, in dB of loss."""
_AVOIDED_DB = 2.0
"""Surcharge of a PUC to avoid, in dB of loss: worth a detour of four PUCs."""
_MAX_MISMATCHES = 24
"""Largest number of unequal lengths tried for two paths of a circuit that cannot be equally long."""


@dataclass(frozen=True)
class PlanningEffort:
    """Time limits of a route search.

    Attributes:
        improve_s: Time to search for better routes than the first ones found.
        explain_s: Time to find out which circuits conflict if there are no routes.
        is_over: Returns whether it is too late to try another alternative.
        progress: Called with the progress, as described in :class:`~lumion_hw.mesh.routing.RouteRequest`.
    """

    improve_s: float
    explain_s: float
    is_over: Callable[[], bool]
    progress: Progress


class RouteFinder:
    """Finds routes for new circuits next to existing ones.

    Args:
        ends: Ends of each new circuit.
        fixed: PUC states that must stay.
        active: Active circuits; they keep their paths.
        effort: Time limits of the search.
    """

    def __init__(
        self,
        mesh: MeshTopology,
        planning: PlanningMesh,
        ends: Sequence[CircuitEnds],
        fixed: Mapping[int, State],
        active: Sequence[PlannedCircuit],
        effort: PlanningEffort,
    ) -> None:
        self._mesh, self._planning, self.ends = mesh, planning, ends
        self._fixed, self._active_circuits = fixed, active
        self._active = tuple(path for circuit in active for path in circuit.paths)
        self._reserved = frozenset[int]().union(*(puc_group for _, puc_group in self._active_reservations(False)))
        self._effort = effort

    def find(self, hop_limits: HopLimits, avoided: Collection[int] = ()) -> tuple[list[tuple[Path, ...]], Routing]:
        """Find the paths of each new circuit, and the mesh routing of all circuits.

        Args:
            hop_limits: Largest number of PUCs of each circuit.
            avoided: PUCs that are used only if the way around them is much longer.

        Raises:
            RoutingError: As :func:`lumion_hw.mesh.routing.route`.
        """
        ranks = sorted({self._rank(ends) for ends in self.ends})
        groups = [[i for i, ends in enumerate(self.ends) if self._rank(ends) == rank] for rank in ranks]
        try:
            return self._route_groups(groups, hop_limits, avoided, self._effort.explain_s if len(groups) < 2 else 0.0)
        except RoutingError:
            if len(groups) < 2 or self._effort.is_over():
                raise
        # The first groups may have blocked the others; a joint search finds routes that the group-wise search misses.
        return self._route_groups([list(range(len(self.ends)))], hop_limits, avoided, self._effort.explain_s)

    @staticmethod
    def _rank(ends: CircuitEnds) -> tuple[bool, int]:
        # Exclusive circuits come first: they cannot use PUCs that another circuit has chosen before.
        return not ends.request.exclusive, -ends.request.priority

    def _route_groups(
        self, groups: Sequence[Sequence[int]], hop_limits: HopLimits, avoided: Collection[int], explain_s: float
    ) -> tuple[list[tuple[Path, ...]], Routing]:
        paths_of: dict[int, tuple[Path, ...]] = {}
        routings = []
        reserved = set(self._reserved)
        for group in groups:
            used_paths = [*self._active, *(path for paths in paths_of.values() for path in paths)]
            routing = self._route_group(group, hop_limits, used_paths, reserved, avoided, explain_s)
            paths = iter(routing.paths)
            own = {index: tuple(islice(paths, len(self.ends[index].pairs))) for index in group}
            paths_of |= own
            # The price of reserved PUCs only discourages: without an alternative, a route uses them all the same.
            self._check_exclusive(paths_of, own)
            reserved |= {
                puc for i, paths in own.items() if self.ends[i].request.exclusive for path in paths for puc in path.pucs
            }
            routings.append(routing)
        candidate_paths = [paths_of[index] for index in range(len(self.ends))]
        return candidate_paths, self._joint_routing(candidate_paths, routings, priced=bool(self._reserved or avoided))

    def _route_group(
        self,
        group: Sequence[int],
        hop_limits: HopLimits,
        used_paths: Sequence[Path],
        reserved: Collection[int],
        avoided: Collection[int],
        explain_s: float,
    ) -> Routing:
        surcharge = np.zeros((self._mesh.n_pucs, 2))
        surcharge[sorted(avoided)] = _AVOIDED_DB
        surcharge[sorted(reserved)] = _RESERVED_DB
        pairs: list[tuple[int, int]] = []
        limits: HopLimits = []
        equal: list[tuple[int, ...]] = []
        unequal: list[tuple[int, ...]] = []
        for index in group:
            # Both arms of a circuit are pairs of their own for the router.
            own = tuple(range(len(pairs), len(pairs) + len(self.ends[index].pairs)))
            pairs += self.ends[index].pairs
            limits += [hop_limits[index]] * len(own)
            if len(own) > 1:
                (equal if self.ends[index].can_match(self._mesh) else unequal).append(own)
        request = RouteRequest(
            pairs,
            puc_loss_db=self._planning.puc_loss_db,
            surcharge=surcharge if surcharge.any() else 0.0,
            unusable=self._planning.unusable,
            fixed=self._fixed,
            active=used_paths,
            max_hops=limits if any(limit is not None for limit in limits) else None,
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
                # Many combinations follow, so CP-SAT must not spend the time limit on one of them.
                return route(self._mesh, replace(request, exact_hops=lengths, exact_search="never"))
            except RoutingError:
                tried += 1
            if self._effort.is_over():
                break
        names = ", ".join(str(self.ends[index].request) for index in group)
        raise UndecidedError(
            f"circuits {names}: found no two paths whose lengths differ by 1 or 3 PUCs, and parity forbids "
            f"equal lengths (tried {tried} combinations; not proven impossible)",
            hint="Wire one tributary to a neighbouring port: then both paths can be equally long.",
        )

    def _mismatches(
        self, pairs: Sequence[tuple[int, int]], unequal: Sequence[tuple[int, ...]]
    ) -> Iterator[dict[int, int]]:
        options = []
        for first, second in unequal:
            shortest = [int(self._mesh.shortest_hops[pairs[arm]]) for arm in (first, second)]
            # An arm's lengths grow in steps of two, so each length of one arm has neighbours among those of the other.
            lengths_of_pair = [
                (abs(a - b), a + b, {first: a, second: b})
                for a in range(shortest[0], shortest[0] + 13, 2)
                for b in (a - 3, a - 1, a + 1, a + 3)
                if b >= shortest[1]
            ]
            options.append(lengths_of_pair)

        def total(choice: tuple[int, ...]) -> tuple[object, ...]:
            parts = [options[i][option] for i, option in enumerate(choice)]
            return sum(part[0] for part in parts), sum(part[1] for part in parts), choice

        for choice in first_choices([len(lengths_of_pair) for lengths_of_pair in options], total, _MAX_MISMATCHES):
            parts = [options[i][option] for i, option in enumerate(choice)]
            yield {arm: hops for _, _, lengths in parts for arm, hops in lengths.items()}

    def _check_exclusive(self, paths_of: Mapping[int, tuple[Path, ...]], own: Mapping[int, tuple[Path, ...]]) -> None:
        for index, paths in own.items():
            request = self.ends[index].request
            reservations = [
                *self._active_reservations(request.exclusive),
                *(
                    (_circuit_text(other.request), _pucs(paths_of[number]))
                    for number, other in enumerate(self.ends)
                    if number in paths_of and number != index and request.exclusive | other.request.exclusive
                ),
            ]
            shared = [(text, sorted(_pucs(paths) & pucs)) for text, pucs in reservations if _pucs(paths) & pucs]
            if shared:
                circuits = " and ".join(
                    f"PUC{'s' if len(pucs) > 1 else ''} {', '.join(map(str, pucs))} with {text}"
                    for text, pucs in shared
                )
                raise NoPathError(
                    f"{_circuit_text(request)} would share {circuits}",
                    ports=tuple(port for pair in self.ends[index].pairs for port in pair),
                    hint="Plan the circuits together, without exclusive, or between other ports.",
                )

    def _active_reservations(self, is_exclusive: bool) -> Iterator[tuple[str, frozenset[int]]]:
        """Yield each active circuit as text, and its PUCs that a new circuit, exclusive or not, may not use."""
        for circuit in self._active_circuits:
            if is_exclusive or circuit.request.exclusive:
                yield f"the active {_circuit_text(circuit.request)}", _pucs(circuit.paths)
            elif trimmed := frozenset(arm.trim.puc for arm in circuit.arms if arm.trim is not None):
                yield f"the active circuit {circuit.request}, which attenuates its light there", trimmed

    def _joint_routing(
        self, candidate_paths: Sequence[tuple[Path, ...]], routings: Sequence[Routing], *, priced: bool
    ) -> Routing:
        paths = tuple(path for own in candidate_paths for path in own)
        if not routings:
            return route(self._mesh, RouteRequest([], active=self._active))
        last = routings[-1]
        if len(routings) == 1 and not priced:
            return last
        cost = sum(path.loss_db for path in (*paths, *self._active))
        # Later groups were routed around earlier ones, so only their unconstrained minimum is a proven bound.
        minimum = sum(
            float(self._planning.puc_loss_db.min()) * self._mesh.shortest_hops[path.source, path.target]
            for path in paths
        )
        bound = min(cost, minimum + sum(path.loss_db for path in self._active))
        return replace(last, paths=paths, active=self._active, moved=(), cost=cost, bound=bound)


def _pucs(paths: Iterable[Path]) -> frozenset[int]:
    return frozenset(puc for path in paths for puc in path.pucs)


def _circuit_text(request: CircuitRequest) -> str:
    return f"exclusive circuit {request}" if request.exclusive else f"circuit {request}"
