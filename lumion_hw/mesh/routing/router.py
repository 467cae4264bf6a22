"""Entry point of the router: negotiation, quick proofs, then constraint programming."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, islice

from lumion_hw.errors import NoPathError, RoutingError, VerifyError
from lumion_hw.mesh.layout.topology import MeshTopology
from lumion_hw.mesh.routing import cpsat, reasons
from lumion_hw.mesh.routing.duplex import Duplex
from lumion_hw.mesh.routing.lengths import improve_lengths, route_equal_lengths
from lumion_hw.mesh.routing.negotiation import Negotiation
from lumion_hw.mesh.routing.request import (
    STATES,
    RouteRequest,
    RoutingProblem,
    check_ports,
    circuit_limits,
    opposite_state,
    problem_for,
)
from lumion_hw.mesh.routing.result import Routing, WavePath, states_for_paths, to_wave_path, traced_paths
from lumion_hw.mesh.routing.scarcity import SMALL_PROBLEM_UNKNOWNS
from lumion_hw.mesh.routing.search import SearchBudgetExceeded, cost_lower_bound

_MAX_SUBSETS = 64
"""Largest number of sets of active circuits that are tried for moving."""


def route(mesh: MeshTopology, request: RouteRequest) -> Routing:
    """Route circuits that share no port and no waveguide, and need no PUC in two states.

    On a dilated mesh they share no PUC either, unless no other routing is found.

    Raises:
        ConfigError: The request is invalid.
        NoPathError: The request is proven impossible; the message names the ports or circuits.
        UndecidedError: No routing was found, and it is not proven that none exists.
    """
    duplex = Duplex(request.pairs, allowed=request.counter_propagation)
    check_ports(mesh, [port for pair in duplex.pairs for port in pair], request.faults, request.active)
    problem = problem_for(mesh, duplex.merged(request))
    if mesh.is_dilated:
        # With a fault, only circuits that share a PUC may be possible.
        with contextlib.suppress(RoutingError):
            unshared, quick = replace(problem, disjoint=True), replace(request, explain_s=0.0)
            return duplex.restored(_RoutingWithActiveCircuits(unshared, quick).solve())
    return duplex.restored(_RoutingWithActiveCircuits(problem, request).solve())


class _Effort:
    """Search for routes with the methods and time limits of a request."""

    def __init__(self, request: RouteRequest) -> None:
        self._rounds = request.rounds
        self.exact_search = request.exact_search
        self._time_limit_s, self._explain_s = request.time_limit_s, request.explain_s
        self._progress = request.progress
        self._workers = request.workers
        self._improve_s = request.improve_s

    def find_routes(self, problem: RoutingProblem) -> tuple[tuple[WavePath, ...] | None, float, tuple[int, ...]]:
        """Return paths (``None`` if not found), a lower bound of the cost, and the PUCs over which circuits conflict.

        Raises:
            NoPathError: A circuit alone has no path, or all together are proven impossible.
        """
        if problem.equal:
            wave_paths, contested = route_equal_lengths(problem, self._rounds, self._progress)
            if wave_paths is None:
                reasons.raise_if_scarce(problem, contested)
            return wave_paths, cost_lower_bound(problem), contested
        negotiation = Negotiation(problem)
        try:
            separate_costs = negotiation.route_separately()
        except SearchBudgetExceeded:
            return None, cost_lower_bound(problem), ()
        for index, cost in enumerate(separate_costs):
            if cost is None:
                raise reasons.no_path_error(problem, index)
        # Circuits may share the cost of a state, so with state costs only the costs of passing add up to a bound.
        bound = (
            cost_lower_bound(problem)
            if problem.state_cost.any()
            else float(sum(cost or 0.0 for cost in separate_costs))
        )
        # Spend little time on a proof at first, because other attempts may still succeed.
        negotiated = negotiation.run(
            self._rounds,
            bound,
            lambda contested: reasons.raise_if_scarce(problem, contested, SMALL_PROBLEM_UNKNOWNS),
            self._progress,
        )
        if negotiated.wave_paths is None:
            reasons.raise_if_scarce(problem, negotiated.contested)
        return negotiated.wave_paths, bound, negotiated.contested

    def decide(
        self, problem: RoutingProblem, wave_paths: tuple[WavePath, ...] | None, bound: float, contested: tuple[int, ...]
    ) -> tuple[tuple[WavePath, ...], float, str]:
        """Solve a problem that negotiation left open, or certify its result; return paths, bound and method.

        Raises:
            NoPathError: No routing exists (proven).
            UndecidedError: No routing was found, and nothing was proven.
        """
        if wave_paths is not None:
            wave_paths = self._improved(problem, wave_paths, bound)
            if self.exact_search != "always":
                return wave_paths, bound, "negotiation"
        # A cut takes milliseconds on a small mesh and names joints and ports; CP-SAT could only report infeasibility.
        if wave_paths is None and (cut := reasons.cut_error(problem)):
            raise cut
        if self.exact_search == "never" or not cpsat.is_available():
            raise reasons.undecided_error(problem, self._rounds, contested, may_use_cpsat=self.exact_search != "never")
        self._progress("proof", 0, 1)
        # Paths that are known already give the solver a start.
        proof = cpsat.decide(problem, time_limit_s=self._time_limit_s, workers=self._workers, hint=wave_paths)
        if proof.status == "infeasible":
            if wave_paths is not None:
                raise VerifyError(
                    "CP-SAT reports that no routing exists, but one was found", wrote=wave_paths, read="infeasible"
                )
            raise self._conflict_error(problem)
        if proof.wave_paths is None and wave_paths is None:
            raise reasons.undecided_error(problem, self._rounds, contested, time_limit_s=self._time_limit_s)
        routing, method = wave_paths, "negotiation"
        if proof.wave_paths is not None and (
            # Costs that are equal but for rounding: the known paths stay, and so does the method that found them.
            routing is None or problem.cost(proof.wave_paths) < problem.cost(routing) - 1e-9
        ):
            routing, method = proof.wave_paths, "cp-sat"
        if routing is None:
            raise VerifyError("CP-SAT reports a solution but returned no paths", wrote=proof.status, read=None)
        proven = problem.cost(routing) if proof.status == "optimal" else max(bound, proof.bound)
        return routing, proven, method

    def _improved(
        self, problem: RoutingProblem, wave_paths: tuple[WavePath, ...], bound: float
    ) -> tuple[WavePath, ...]:
        if not self._improve_s > 0.0:
            return wave_paths
        until_s = time.monotonic() + self._improve_s
        if problem.equal:
            return improve_lengths(problem, wave_paths, self._rounds, until_s, time.monotonic)
        negotiation = Negotiation(problem)
        try:
            negotiation.route_separately()
        except SearchBudgetExceeded:
            return wave_paths
        return negotiation.improve(wave_paths, bound, lambda: time.monotonic() >= until_s)

    def _conflict_error(self, problem: RoutingProblem) -> NoPathError:
        until_s = time.monotonic() + self._explain_s
        return reasons.conflict_error(
            problem,
            self._is_solvable,
            lambda problem: self.find_routes(problem)[0],
            lambda problem: cpsat.conflicting_circuits(problem, time_limit_s=self._explain_s, workers=self._workers),
            lambda: time.monotonic() >= until_s,
        )

    def _is_solvable(self, problem: RoutingProblem) -> bool | None:
        try:
            if self.find_routes(problem)[0] is not None:
                return True
        except NoPathError:
            return False
        proof = cpsat.decide(
            problem, time_limit_s=min(1.0, self._time_limit_s), workers=self._workers, feasibility_only=True
        )
        return {"optimal": True, "feasible": True, "infeasible": False}.get(proof.status)


class _RoutingWithActiveCircuits:
    """Solves a routing problem while other circuits are active. They stay, or may move at a price."""

    def __init__(self, problem: RoutingProblem, request: RouteRequest) -> None:
        self._problem = problem
        self._active = tuple(request.active)
        self._active_wave_paths = tuple(to_wave_path(problem.mesh, path) for path in self._active)
        self._is_fixed = request.move_price is None or not self._active
        self._effort = _Effort(request)

    def solve(self) -> Routing:
        """Return the cheapest routing found.

        Raises:
            NoPathError: No routing exists even if all permitted circuits move (proven).
            UndecidedError: No routing was found, and nothing was proven.
        """
        if self._is_fixed:
            problem = self._with_movable(())
            return self._routing(problem, (), *self._effort.decide(problem, *self._effort.find_routes(problem)))
        best = self._minimize_moves_then_cost()
        all_active = tuple(range(len(self._active)))
        problem = self._with_movable(all_active)
        bound = cost_lower_bound(problem)
        if best is not None and self._effort.exact_search != "always":
            chosen = self._with_movable(best[0])
            # The bound covers all circuits; the cost of those that stay is added again when the routing is built.
            answer = self._effort.decide(chosen, best[1], bound - chosen.staying_cost, ())
            return self._routing(chosen, best[0], *answer)
        wave_paths = None
        if best is not None:
            current_paths = dict(enumerate(self._active_wave_paths))
            n_requested = len(self._problem.pairs)
            at = dict(zip(best[0], best[1][n_requested:], strict=True))
            wave_paths = (*best[1][:n_requested], *(at.get(index, home) for index, home in current_paths.items()))
        return self._routing(problem, all_active, *self._effort.decide(problem, wave_paths, bound, ()))

    def _minimize_moves_then_cost(self) -> tuple[tuple[int, ...], tuple[WavePath, ...]] | None:
        """Return the active circuits to move (as few as possible) and all paths."""
        best: tuple[float, tuple[int, ...], tuple[WavePath, ...]] | None = None
        numbers = range(len(self._active))
        subsets = (free for size in range(len(numbers) + 1) for free in combinations(numbers, size))
        # The number of subsets doubles with every circuit, so try the small ones, and all circuits as the last resort.
        for free in [*islice(subsets, _MAX_SUBSETS), tuple(numbers)]:
            problem = self._with_movable(free)
            try:
                wave_paths, _, _ = self._effort.find_routes(problem)
            except NoPathError:
                if len(free) == len(numbers):
                    raise  # impossible even if all active circuits may move
                continue
            if wave_paths is not None:
                cost = problem.cost(wave_paths) + problem.staying_cost
                if best is None or cost < best[0] - 1e-9:
                    best = cost, free, wave_paths
        return None if best is None else best[1:]

    def _with_movable(self, free: Sequence[int]) -> RoutingProblem:
        problem = self._problem
        fixed_paths = [path for index, path in enumerate(self._active) if index not in free]
        kept_paths = tuple((path, to_wave_path(problem.mesh, path)) for path in fixed_paths)
        states = states_for_paths(problem.mesh, fixed_paths)
        blocked = {(puc, opposite_state(state)) for puc, state in states.items()}
        blocked |= set(states.items()) if problem.disjoint else set()
        holding = problem.state_cost.copy()
        # States that active circuits already hold cost a new circuit nothing.
        for puc, state in states.items():
            holding[puc, STATES.index(state)] = 0.0
        # Circuits that may move follow the requested ones.
        first = len(problem.pairs)
        spare = circuit_limits(len(free), None, None, {})
        return replace(
            problem,
            pairs=(*problem.pairs, *((self._active[i].source, self._active[i].target) for i in free)),
            state_cost=holding,
            staying_cost=problem.cost([wave_path for _, wave_path in kept_paths]),
            blocked=problem.blocked | blocked,
            limits=(*problem.limits, *spare),
            current_paths={first + position: self._active_wave_paths[i] for position, i in enumerate(free)},
            staying=kept_paths,
        )

    def _routing(
        self, problem: RoutingProblem, free: Sequence[int], wave_paths: tuple[WavePath, ...], bound: float, method: str
    ) -> Routing:
        all_paths = [*wave_paths, *(wave_path for _, wave_path in problem.staying)]
        states = {w // 4: s for wave_path in all_paths for w, s in zip(wave_path.waves, wave_path.states, strict=True)}
        pairs = [*problem.pairs, *((path.source, path.target) for path, _ in problem.staying)]
        # Traced from the states alone, so an error of the search cannot pass unnoticed.
        paths = traced_paths(problem.mesh, pairs, states, problem.loss_db)
        reasons.check_limits(problem, paths, states)
        n_requested = len(self._problem.pairs)
        at = dict(zip(free, paths[n_requested : n_requested + len(free)], strict=True))
        active_paths = tuple(at.get(index, path) for index, path in enumerate(self._active))
        moved = tuple(
            i
            for i, (active_path, former_path) in enumerate(zip(active_paths, self._active, strict=True))
            if active_path.pucs != former_path.pucs
        )
        return Routing(
            states,
            paths[:n_requested],
            active_paths,
            moved,
            problem.staying_cost + problem.cost(wave_paths),
            problem.staying_cost + bound,
            method,
        )
