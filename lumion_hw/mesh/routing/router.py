"""The router's front door: negotiation first, then proofs that are cheap, then constraint programming."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Literal

from numpy.typing import ArrayLike

from lumion_hw.errors import ConfigError, NoPathError, VerifyError
from lumion_hw.mesh.faults import MeshFaults
from lumion_hw.mesh.routing import cpsat, reasons
from lumion_hw.mesh.routing.duplex import Duplex
from lumion_hw.mesh.routing.lengths import settle_lengths
from lumion_hw.mesh.routing.negotiation import Negotiation
from lumion_hw.mesh.routing.request import STATES, RoutingProblem, check_ports, limits_of, other, request_for
from lumion_hw.mesh.routing.result import Path, Routing, Way, standing_states, traced_paths, way_of
from lumion_hw.mesh.routing.search import GivenUp, floor
from lumion_hw.mesh.topology import MeshTopology, State

Exact = Literal["rescue", "always", "never"]

_MOST_SUBSETS = 64
"""Sets of standing circuits tried as those that move, the smaller ones first."""


def route(
    mesh: MeshTopology,
    pairs: Sequence[tuple[int, int]],
    *,
    objective: str | Mapping[str, float] = "loss",
    puc_loss_db: ArrayLike = 0.5,
    heater_power_mw: ArrayLike | None = None,
    surcharge: ArrayLike = 0.0,
    faults: MeshFaults | None = None,
    unusable: Iterable[tuple[int, State]] = (),
    fixed: Mapping[int, State] | None = None,
    standing: Sequence[Path] = (),
    move_price: float | None = None,
    max_hops: int | Sequence[int | None] | None = None,
    max_loss_db: float | None = None,
    exact_hops: Mapping[int, int] | None = None,
    equal_hops: Sequence[Sequence[int]] = (),
    counter_propagation: bool = False,
    rounds: int = 200,
    exact: Exact = "rescue",
    time_limit_s: float = 10.0,
    workers: int = 1,
) -> Routing:
    """Route circuits with consistent states and exclusive ports and joints.

    Args:
        mesh: The mesh.
        pairs: Source and target port of each directed circuit; every port at most once.
        objective: What to keep small: ``"loss"``, ``"hops"``, ``"power"``, or weights of ``hops``, ``loss_db`` and
            ``power_mw``. For leakage see :func:`lumion_hw.mesh.routing.leakage.route_dark`.
        puc_loss_db: Loss per PUC in dB, one number or shape ``(n_pucs,)``; excess losses of ``faults`` are added.
        heater_power_mw: Shape ``(n_pucs, 2)``; power that holds each PUC in bar and in cross, for the power objective.
        surcharge: Further cost of passing each PUC in bar and in cross, any shape that fits ``(n_pucs, 2)``.
        faults: What is wrong with the mesh.
        unusable: ``(puc, state)`` that may not be used, besides those of ``faults``.
        fixed: States that are already set and must stay; circuits may share them.
        standing: Circuits that run already, as a routing of this mesh returned them. Their PUCs and joints are theirs.
        move_price: What it costs, in the unit of the objective, to take one standing circuit off its way; ``None``
            (hitless) if none may be touched.
        max_hops: Most PUCs of a path: one number, or one per circuit (``None``: no ceiling).
        max_loss_db: Most loss of a path.
        exact_hops: Exact number of PUCs of single circuits, by index.
        equal_hops: Groups of circuits, as indices, that must have the same number of PUCs.
        counter_propagation: Whether a pair may be asked for together with its reverse: both then run against each
            other through the same joints, and reflected and leaked light of one reaches the other's source. Circuits
            of different ports never do that in a mesh of bar and cross states.
        rounds: Rounds of negotiation before giving up.
        exact: When to call CP-SAT, an extra: to ``"rescue"`` what negotiation gives up, ``"always"`` (also to certify
            what it found), or ``"never"``.
        time_limit_s: Time CP-SAT may take, for each question it is asked.
        workers: Threads of CP-SAT.

    Returns:
        The routing, traced anew through its own states. ``outcome`` tells ``"optimal"`` from ``"feasible"``.

    Raises:
        ConfigError: The request itself is wrong.
        NoPathError: It is proven that it cannot be met; the message says by which ports, cut or circuits.
        UndecidedError: No routes were found in the effort allowed, and none were proven impossible.
    """
    duplex = Duplex(pairs, allowed=counter_propagation)
    check_ports(mesh, [port for pair in duplex.pairs for port in pair], faults or MeshFaults(), standing)
    if move_price is not None and not move_price >= 0.0:
        raise ConfigError(f"a price of {move_price} for moving a circuit", hint="Give 0 or more, or None for never.")
    request = request_for(
        mesh,
        duplex.pairs,
        objective=objective,
        puc_loss_db=puc_loss_db,
        heater_power_mw=heater_power_mw,
        surcharge=surcharge,
        faults=faults,
        unusable=unusable,
        fixed=fixed,
        max_hops=duplex.max_hops(max_hops),
        max_loss_db=max_loss_db,
        exact_hops=duplex.exact_hops(exact_hops or {}),
        equal_hops=duplex.equal_hops(equal_hops),
    )
    effort = _Effort(rounds, exact, time_limit_s, workers)
    request = replace(request, move_price=move_price or 0.0)
    return duplex.unfolded(_Standing(request, tuple(standing), move_price, effort).settle())


class _Effort:
    """How hard to try, and the answer to one request.

    Args:
        rounds: Rounds of negotiation.
        exact: When to call CP-SAT.
        time_limit_s: Time CP-SAT may take per question.
        workers: Threads of CP-SAT.
    """

    def __init__(self, rounds: int, exact: Exact, time_limit_s: float, workers: int) -> None:
        if exact not in ("rescue", "always", "never"):
            raise ConfigError(f"exact={exact!r}", hint="Say 'rescue', 'always' or 'never'.")
        self._rounds = rounds
        self.exact = exact
        self._time_limit_s = time_limit_s
        self._workers = workers

    def negotiate(self, request: RoutingProblem) -> tuple[tuple[Way, ...] | None, float, tuple[int, ...]]:
        """Return the ways found by negotiation if any, a lower bound of their cost, and the PUCs still contested.

        Raises:
            NoPathError: A circuit alone has no path.
        """
        if request.equal:
            ways, contested = settle_lengths(request, self._rounds)
            return ways, floor(request), contested
        negotiation = Negotiation(request)
        try:
            alone = negotiation.alone()
        except GivenUp:
            return None, floor(request), ()
        for index, cost in enumerate(alone):
            if cost is None:
                raise reasons.no_path_alone(request, index)
        # Circuits may share what a state costs: then only what each pays for passing adds up to a bound.
        bound = floor(request) if request.state_cost.any() else float(sum(cost or 0.0 for cost in alone))
        settled = negotiation.run(self._rounds, bound)
        return settled.ways, bound, settled.contested

    def decide(
        self, request: RoutingProblem, ways: tuple[Way, ...] | None, bound: float, contested: tuple[int, ...]
    ) -> tuple[tuple[Way, ...], float, str]:
        """Rescue or certify what negotiation found, and return ways, bound and method.

        Raises:
            NoPathError: There is proven to be no routing.
            UndecidedError: None was found and nothing proven.
        """
        if ways is not None and self.exact != "always":
            return ways, bound, "negotiation"
        if ways is None and (cut := reasons.by_cut(request)):
            raise cut
        if self.exact == "never" or not cpsat.available():
            raise reasons.undecided(request, self._rounds, contested, asked=self.exact != "never")
        verdict = cpsat.decide(request, time_limit_s=self._time_limit_s, workers=self._workers, hint=ways)
        if verdict.status == "infeasible":
            if ways is not None:
                raise VerifyError("CP-SAT denies a routing that was found", wrote=ways, read="infeasible")
            raise reasons.by_conflict(request, self._settles)
        if verdict.ways is None and ways is None:
            raise reasons.undecided(request, self._rounds, contested, time_limit_s=self._time_limit_s)
        found, method = ways, "negotiation"
        if verdict.ways is not None and (found is None or request.cost(verdict.ways) < request.cost(found) - 1e-9):
            found, method = verdict.ways, "cp-sat"
        if found is None:
            raise VerifyError("CP-SAT found a routing and has lost it", wrote=verdict.status, read=None)
        proven = request.cost(found) if verdict.status == "optimal" else max(bound, verdict.bound)
        return found, proven, method

    def _settles(self, request: RoutingProblem) -> bool | None:
        """Return whether there is a routing; ``None`` if that cannot be told soon."""
        try:
            if self.negotiate(request)[0] is not None:
                return True
        except NoPathError:
            return False
        verdict = cpsat.decide(
            request, time_limit_s=min(1.0, self._time_limit_s), workers=self._workers, feasibility_only=True
        )
        return {"optimal": True, "feasible": True, "infeasible": False}.get(verdict.status)


class _Standing:
    """Settles a request in the presence of circuits that run already.

    Args:
        request: The request without them.
        standing: The circuits.
        move_price: Price of moving one, or ``None`` if none may be touched.
        effort: How hard to try.
    """

    def __init__(
        self, request: RoutingProblem, standing: tuple[Path, ...], move_price: float | None, effort: _Effort
    ) -> None:
        self._request = request
        self._standing = standing
        self._ways = tuple(way_of(request.mesh, path) for path in standing)
        self._move_price = move_price
        self._effort = effort

    def settle(self) -> Routing:
        """Return the cheapest routing found.

        Raises:
            NoPathError: Proven, under every permission given.
            UndecidedError: Nothing found and nothing proven.
        """
        if self._move_price is None or not self._standing:
            request = self._with(())
            return self._routing(request, (), *self._effort.decide(request, *self._effort.negotiate(request)))
        best = self._fewest_moved()
        everything = tuple(range(len(self._standing)))
        request = self._with(everything)
        bound = floor(request)
        if best is not None and self._effort.exact != "always":
            chosen = self._with(best[0])
            return self._routing(chosen, best[0], best[1], bound - chosen.sunk, "negotiation")
        ways = None
        if best is not None:
            homes = dict(enumerate(self._ways))
            n_asked = len(self._request.pairs)
            at = dict(zip(best[0], best[1][n_asked:], strict=True))
            ways = (*best[1][:n_asked], *(at.get(index, home) for index, home in homes.items()))
        return self._routing(request, everything, *self._effort.decide(request, ways, bound, ()))

    def _fewest_moved(self) -> tuple[tuple[int, ...], tuple[Way, ...]] | None:
        """Return which circuits to set free and the ways found by negotiation, cheapest of the smaller sets."""
        best: tuple[float, tuple[int, ...], tuple[Way, ...]] | None = None
        numbers = range(len(self._standing))
        subsets = [free for size in range(len(numbers) + 1) for free in combinations(numbers, size)]
        for free in [*subsets[:_MOST_SUBSETS], tuple(numbers)]:
            request = self._with(free)
            try:
                ways, _, _ = self._effort.negotiate(request)
            except NoPathError:
                continue
            if ways is not None:
                cost = request.cost(ways) + request.sunk
                if best is None or cost < best[0] - 1e-9:
                    best = cost, free, ways
        return None if best is None else best[1:]

    def _with(self, free: Sequence[int]) -> RoutingProblem:
        """Return the request in which some standing circuits may move and the others stay."""
        request = self._request
        stay = [path for index, path in enumerate(self._standing) if index not in free]
        kept = tuple((path, way_of(request.mesh, path)) for path in stay)
        states = standing_states(request.mesh, stay)
        holding = request.state_cost.copy()
        for puc, state in states.items():
            holding[puc, STATES.index(state)] = 0.0
        first = len(request.pairs)
        spare = limits_of(len(free), None, None, {})
        return replace(
            request,
            pairs=(*request.pairs, *((self._standing[i].source, self._standing[i].target) for i in free)),
            state_cost=holding,
            sunk=request.cost([way for _, way in kept]),
            blocked=request.blocked | {(puc, other(state)) for puc, state in states.items()},
            limits=(*request.limits, *spare),
            homes={first + position: self._ways[i] for position, i in enumerate(free)},
            kept=kept,
        )

    def _routing(
        self, request: RoutingProblem, free: Sequence[int], ways: tuple[Way, ...], bound: float, method: str
    ) -> Routing:
        """Trace everything through the states set, check it against the request, and hand it out."""
        everyone = [*ways, *(way for _, way in request.kept)]
        states = {w // 4: s for way in everyone for w, s in zip(way.waves, way.states, strict=True)}
        pairs = [*request.pairs, *((path.source, path.target) for path, _ in request.kept)]
        paths = traced_paths(request.mesh, pairs, states, request.loss_db)
        reasons.check_limits(request, paths, states)
        n_asked = len(self._request.pairs)
        at = dict(zip(free, paths[n_asked : n_asked + len(free)], strict=True))
        stands = tuple(at.get(index, path) for index, path in enumerate(self._standing))
        moved = tuple(
            i for i, (now, was) in enumerate(zip(stands, self._standing, strict=True)) if now.pucs != was.pucs
        )
        return Routing(
            states, paths[:n_asked], stands, moved, request.sunk + request.cost(ways), request.sunk + bound, method
        )
