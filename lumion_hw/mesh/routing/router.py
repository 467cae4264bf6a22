"""The router's front door: negotiation first, then proofs that are cheap, then constraint programming."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, islice

from lumion_hw.errors import NoPathError, VerifyError
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.routing import cpsat, reasons
from lumion_hw.mesh.routing.duplex import Duplex
from lumion_hw.mesh.routing.lengths import improve_lengths, settle_lengths
from lumion_hw.mesh.routing.negotiation import Negotiation
from lumion_hw.mesh.routing.request import (
    STATES,
    RouteRequest,
    RoutingProblem,
    check_ports,
    limits_of,
    opposite_state,
    problem_for,
)
from lumion_hw.mesh.routing.result import Routing, WavePath, states_for_paths, to_wave_path, traced_paths
from lumion_hw.mesh.routing.scarcity import FEW_UNKNOWNS
from lumion_hw.mesh.routing.search import SearchBudgetExceeded, floor

_MOST_SUBSETS = 64
"""Sets of standing circuits tried as those that move, the smaller ones first."""


def route(mesh: MeshTopology, request: RouteRequest) -> Routing:
    """Route circuits with consistent states and exclusive ports and joints.

    Args:
        mesh: The mesh.
        request: The circuits, what they may not use or exceed, and how hard to try.

    Returns:
        The routing, traced anew through its own states. ``outcome`` tells ``"optimal"`` from ``"feasible"``.

    Raises:
        ConfigError: The request itself is wrong.
        NoPathError: It is proven that it cannot be met; the message says by which ports, cut or circuits.
        UndecidedError: No routes were found in the effort allowed, and none were proven impossible.
    """
    duplex = Duplex(request.pairs, allowed=request.counter_propagation)
    check_ports(mesh, [port for pair in duplex.pairs for port in pair], request.faults, request.active)
    problem = problem_for(mesh, duplex.folded(request))
    return duplex.unfolded(_RoutingWithActiveCircuits(problem, request).settle())


class _Effort:
    """How hard to try, and the answer to one problem.

    Args:
        request: The request that says so.
    """

    def __init__(self, request: RouteRequest) -> None:
        self._rounds = request.rounds
        self.exact = request.exact
        self._time_limit_s, self._explain_s = request.time_limit_s, request.explain_s
        self._progress = request.progress
        self._workers = request.workers
        self._improve_s = request.improve_s

    def find_routes(self, problem: RoutingProblem) -> tuple[tuple[WavePath, ...] | None, float, tuple[int, ...]]:
        """Return the ways found by negotiation if any, a lower bound of their cost, and the PUCs still contested.

        Raises:
            NoPathError: A circuit alone has no path, or it is soon proven that all together have none.
        """
        if problem.equal:
            ways, contested = settle_lengths(problem, self._rounds, self._progress)
            if ways is None:
                reasons.raise_if_scarce(problem, contested)
            return ways, floor(problem), contested
        negotiation = Negotiation(problem)
        try:
            alone = negotiation.alone()
        except SearchBudgetExceeded:
            return None, floor(problem), ()
        for index, cost in enumerate(alone):
            if cost is None:
                raise reasons.no_path_alone(problem, index)
        # Circuits may share what a state costs: then only what each pays for passing adds up to a bound.
        bound = floor(problem) if problem.state_cost.any() else float(sum(cost or 0.0 for cost in alone))
        # Little time for a proof at first: other attempts may still succeed.
        settled = negotiation.run(
            self._rounds,
            bound,
            lambda contested: reasons.raise_if_scarce(problem, contested, FEW_UNKNOWNS),
            self._progress,
        )
        if settled.ways is None:
            reasons.raise_if_scarce(problem, settled.contested)
        return settled.ways, bound, settled.contested

    def decide(
        self, problem: RoutingProblem, ways: tuple[WavePath, ...] | None, bound: float, contested: tuple[int, ...]
    ) -> tuple[tuple[WavePath, ...], float, str]:
        """Rescue or certify what negotiation found, and return ways, bound and method.

        Raises:
            NoPathError: There is proven to be no routing.
            UndecidedError: None was found and nothing proven.
        """
        if ways is not None:
            ways = self._improved(problem, ways, bound)
            if self.exact != "always":
                return ways, bound, "negotiation"
        # Milliseconds on a small mesh, where it names joints and ports; CP-SAT could only say that there is nothing.
        if ways is None and (cut := reasons.by_cut(problem)):
            raise cut
        if self.exact == "never" or not cpsat.available():
            raise reasons.undecided(problem, self._rounds, contested, asked=self.exact != "never")
        self._progress("proof", 0, 1)
        verdict = cpsat.decide(problem, time_limit_s=self._time_limit_s, workers=self._workers, hint=ways)
        if verdict.status == "infeasible":
            if ways is not None:
                raise VerifyError("CP-SAT denies a routing that was found", wrote=ways, read="infeasible")
            raise self._by_conflict(problem)
        if verdict.ways is None and ways is None:
            raise reasons.undecided(problem, self._rounds, contested, time_limit_s=self._time_limit_s)
        found, method = ways, "negotiation"
        if verdict.ways is not None and (found is None or problem.cost(verdict.ways) < problem.cost(found) - 1e-9):
            found, method = verdict.ways, "cp-sat"
        if found is None:
            raise VerifyError("CP-SAT found a routing and has lost it", wrote=verdict.status, read=None)
        proven = problem.cost(found) if verdict.status == "optimal" else max(bound, verdict.bound)
        return found, proven, method

    def _improved(self, problem: RoutingProblem, ways: tuple[WavePath, ...], bound: float) -> tuple[WavePath, ...]:
        """Improve a routing while time is given."""
        if not self._improve_s > 0.0:
            return ways
        until_s = time.monotonic() + self._improve_s
        if problem.equal:
            return improve_lengths(problem, ways, self._rounds, until_s, time.monotonic)
        negotiation = Negotiation(problem)
        try:
            negotiation.alone()
        except SearchBudgetExceeded:
            return ways
        return negotiation.improve(ways, bound, lambda: time.monotonic() >= until_s)

    def _by_conflict(self, problem: RoutingProblem) -> NoPathError:
        """Return the error for a problem that is proven impossible, after the time to find a reason at the latest."""
        until_s = time.monotonic() + self._explain_s
        return reasons.by_conflict(
            problem,
            self._settles,
            lambda problem: self.find_routes(problem)[0],
            lambda problem: cpsat.conflicting(problem, time_limit_s=self._explain_s, workers=self._workers),
            lambda: time.monotonic() >= until_s,
        )

    def _settles(self, problem: RoutingProblem) -> bool | None:
        """Return whether there is a routing; ``None`` if that cannot be told soon."""
        try:
            if self.find_routes(problem)[0] is not None:
                return True
        except NoPathError:
            return False
        verdict = cpsat.decide(
            problem, time_limit_s=min(1.0, self._time_limit_s), workers=self._workers, feasibility_only=True
        )
        return {"optimal": True, "feasible": True, "infeasible": False}.get(verdict.status)


class _RoutingWithActiveCircuits:
    """Settles a problem in the presence of circuits that run already.

    Args:
        problem: The problem without them.
        request: The request it comes from, which names those circuits.
    """

    def __init__(self, problem: RoutingProblem, request: RouteRequest) -> None:
        self._problem = problem
        self._standing = tuple(request.active)
        self._ways = tuple(to_wave_path(problem.mesh, path) for path in self._standing)
        self._all_stay = request.move_price is None or not self._standing
        self._effort = _Effort(request)

    def settle(self) -> Routing:
        """Return the cheapest routing found.

        Raises:
            NoPathError: Proven, under every permission given.
            UndecidedError: Nothing found and nothing proven.
        """
        if self._all_stay:
            problem = self._with(())
            return self._routing(problem, (), *self._effort.decide(problem, *self._effort.find_routes(problem)))
        best = self._cheapest_with_fewest_moves()
        everything = tuple(range(len(self._standing)))
        problem = self._with(everything)
        bound = floor(problem)
        if best is not None and self._effort.exact != "always":
            chosen = self._with(best[0])
            # The bound is of all circuits together; what those that stay cost is added again with the routing.
            answer = self._effort.decide(chosen, best[1], bound - chosen.sunk, ())
            return self._routing(chosen, best[0], *answer)
        ways = None
        if best is not None:
            homes = dict(enumerate(self._ways))
            n_asked = len(self._problem.pairs)
            at = dict(zip(best[0], best[1][n_asked:], strict=True))
            ways = (*best[1][:n_asked], *(at.get(index, home) for index, home in homes.items()))
        return self._routing(problem, everything, *self._effort.decide(problem, ways, bound, ()))

    def _cheapest_with_fewest_moves(self) -> tuple[tuple[int, ...], tuple[WavePath, ...]] | None:
        """Return which circuits to set free and the ways found by negotiation, cheapest of the smaller sets."""
        best: tuple[float, tuple[int, ...], tuple[WavePath, ...]] | None = None
        numbers = range(len(self._standing))
        subsets = (free for size in range(len(numbers) + 1) for free in combinations(numbers, size))
        # The number of subsets doubles with every circuit: the small ones, and all together as the last resort.
        for free in [*islice(subsets, _MOST_SUBSETS), tuple(numbers)]:
            problem = self._with(free)
            try:
                ways, _, _ = self._effort.find_routes(problem)
            except NoPathError:
                if len(free) == len(numbers):
                    raise  # not even with every permission given
                continue
            if ways is not None:
                cost = problem.cost(ways) + problem.sunk
                if best is None or cost < best[0] - 1e-9:
                    best = cost, free, ways
        return None if best is None else best[1:]

    def _with(self, free: Sequence[int]) -> RoutingProblem:
        """Return the problem in which some standing circuits may move and the others stay."""
        problem = self._problem
        stay = [path for index, path in enumerate(self._standing) if index not in free]
        kept = tuple((path, to_wave_path(problem.mesh, path)) for path in stay)
        states = states_for_paths(problem.mesh, stay)
        holding = problem.state_cost.copy()
        # What standing circuits hold already costs a new one nothing.
        for puc, state in states.items():
            holding[puc, STATES.index(state)] = 0.0
        first = len(problem.pairs)
        spare = limits_of(len(free), None, None, {})
        return replace(
            problem,
            pairs=(*problem.pairs, *((self._standing[i].source, self._standing[i].target) for i in free)),
            state_cost=holding,
            sunk=problem.cost([way for _, way in kept]),
            blocked=problem.blocked | {(puc, opposite_state(state)) for puc, state in states.items()},
            limits=(*problem.limits, *spare),
            homes={first + position: self._ways[i] for position, i in enumerate(free)},
            kept=kept,
        )

    def _routing(
        self, problem: RoutingProblem, free: Sequence[int], ways: tuple[WavePath, ...], bound: float, method: str
    ) -> Routing:
        """Trace everything through the states set, check it against the problem, and hand it out."""
        everyone = [*ways, *(way for _, way in problem.kept)]
        states = {w // 4: s for way in everyone for w, s in zip(way.waves, way.states, strict=True)}
        pairs = [*problem.pairs, *((path.source, path.target) for path, _ in problem.kept)]
        paths = traced_paths(problem.mesh, pairs, states, problem.loss_db)
        reasons.check_limits(problem, paths, states)
        n_asked = len(self._problem.pairs)
        at = dict(zip(free, paths[n_asked : n_asked + len(free)], strict=True))
        stands = tuple(at.get(index, path) for index, path in enumerate(self._standing))
        moved = tuple(
            i for i, (now, was) in enumerate(zip(stands, self._standing, strict=True)) if now.pucs != was.pucs
        )
        return Routing(
            states, paths[:n_asked], stands, moved, problem.sunk + problem.cost(ways), problem.sunk + bound, method
        )
