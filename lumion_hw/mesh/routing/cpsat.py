"""Routing by constraint programming (OR-Tools CP-SAT, an extra): proves what negotiation can only find.

One Boolean per PUC (1: cross) and one per circuit and arc of the wave graph; flow is conserved at every wave, an arc
needs its PUC's state, and a wave carries one circuit.

Conservation also admits rings that hang on no path. Where lengths are not prescribed they do no harm: a path is read
by tracing, and without its rings it only gets shorter and cheaper, so neither feasibility nor the bound is touched.
Circuits of prescribed or equal length get a circuit constraint, which admits no ring.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.routing.request import STATES, RoutingProblem
from lumion_hw.mesh.routing.result import WavePath
from lumion_hw.mesh.routing.search import estimates, wave_graph

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

MISSING = "Install OR-Tools to decide such requests: pip install 'lumion-hw[cpsat]'."

_STEPS = 1_000_000
"""Costs are rounded to the millionth of the dearest one, losses to the µdB: CP-SAT reckons with whole numbers."""

Status = Literal["optimal", "feasible", "infeasible", "undecided"]


@dataclass(frozen=True)
class ProofResult:
    """What CP-SAT found out.

    Attributes:
        status: ``"optimal"``, ``"feasible"``, ``"infeasible"`` (both proven) or ``"undecided"`` in the time given.
        ways: One way per circuit, unless there is none.
        bound: Cost that no routing can be below, but for the rounding of costs to whole numbers.
    """

    status: Status
    ways: tuple[WavePath, ...] | None
    bound: float


def available() -> bool:
    """Return whether OR-Tools is installed."""
    return importlib.util.find_spec("ortools") is not None


def decide(
    request: RoutingProblem,
    *,
    time_limit_s: float,
    workers: int = 1,
    hint: Sequence[WavePath] | None = None,
    feasibility_only: bool = False,
) -> ProofResult:
    """Solve a request.

    Args:
        request: The request.
        time_limit_s: Wall time after which the best so far is returned.
        workers: Threads.
        hint: A routing known already.
        feasibility_only: Whether any routing will do, whatever it costs.

    Raises:
        ConfigError: OR-Tools is not installed.
    """
    if not available():
        raise ConfigError("routing cannot be decided by constraint programming", hint=MISSING)
    from ortools.sat.python import cp_model

    model = _Model(request, cp_model.CpModel())
    if hint is not None:
        model.hint(hint)
    if not feasibility_only:
        model.minimise()
    solver = _solver(time_limit_s, workers)
    words: dict[Any, Status] = {
        cp_model.OPTIMAL: "optimal",
        cp_model.FEASIBLE: "feasible",
        cp_model.INFEASIBLE: "infeasible",
    }
    status = words.get(_solved(solver, model.model), "undecided")
    ways = model.ways(solver) if status in ("optimal", "feasible") else None
    bound = 0.0 if feasibility_only or status == "infeasible" else solver.best_objective_bound / model.scale
    if feasibility_only and status == "optimal":
        status = "feasible"
    return ProofResult(status, ways, bound)


def conflicting(request: RoutingProblem, *, time_limit_s: float, workers: int = 1) -> tuple[int, ...]:
    """Return circuits of an impossible request that are impossible together already, as indices.

    They need not be the fewest. If the time does not suffice, they are all circuits of the request.

    Args:
        request: The impossible request.
        time_limit_s: Wall time.
        workers: Threads.
    """
    from ortools.sat.python import cp_model

    everything = tuple(range(len(request.pairs)))
    if not time_limit_s > 0.0:
        return everything
    model = _Model(request, cp_model.CpModel(), optional=True)
    model.model.add_assumptions(model.routed)
    solver = _solver(time_limit_s, workers)
    # Presolving takes more time here than it saves (428 PUCs, 62 circuits: 6 s with it, 2 s without).
    solver.parameters.cp_model_presolve = False
    if _solved(solver, model.model) != cp_model.INFEASIBLE:
        return everything
    at = {routed.index: index for index, routed in enumerate(model.routed)}
    return tuple(sorted(at[literal] for literal in solver.sufficient_assumptions_for_infeasibility())) or everything


def _solver(time_limit_s: float, workers: int) -> cp_model.CpSolver:
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit_s
    solver.parameters.num_workers = workers
    # OR-Tools would take Ctrl-C for itself and leave the process without any handler: the next one then kills it, with
    # heaters and lasers on.
    solver.parameters.catch_sigint_signal = False
    # With one worker the same request then has the same answer, unless time runs out.
    solver.parameters.random_seed = 1
    return solver


def _solved(solver: cp_model.CpSolver, model: cp_model.CpModel) -> object:
    """Return the solver's status; Ctrl-C, which would wait for the end of its C++ code, stops it at once."""
    with ThreadPoolExecutor(1) as pool:
        status = pool.submit(solver.solve, model)
        try:
            return status.result()
        except BaseException:
            solver.stop_search()
            raise


class _Model:
    """Variables and constraints of one request.

    Args:
        request: The request.
        model: An empty model.
        optional: Whether circuits may be left out.

    Attributes:
        model: The model.
        routed: For each circuit, whether it is routed: a variable if it may be left out.
    """

    def __init__(self, request: RoutingProblem, model: cp_model.CpModel, *, optional: bool = False) -> None:
        self.model = model
        self.routed: list[Any] = [model.new_bool_var("") if optional else True for _ in request.pairs]
        self._request = request
        self._graph = wave_graph(request.mesh)
        dearest = max(float(request.pass_cost.max()), float(request.state_cost.max()), request.move_price, 1e-9)
        self.scale = _STEPS / dearest
        self._cross = [model.new_bool_var(f"cross {puc}") for puc in range(request.mesh.n_pucs)]
        for puc, state in request.blocked:
            model.add(self._cross[puc] == (0 if state == "cross" else 1))
        self._arcs: list[dict[int, Any]] = []
        live = self._live()
        for index in range(len(request.pairs)):
            self._arcs.append({arc: model.new_bool_var(f"{index}:{arc}") for arc in live[index]})
            self._conserve(index)
        self._exclude()
        self._limit()
        self._moved = {index: self._mark_moved(index, way) for index, way in request.homes.items()}

    def _head(self, arc: int) -> int:
        """Return the node an arc leads to; arc ``2 wave + (0 bar, 1 cross)`` starts at its wave."""
        return (self._graph.cross if arc & 1 else self._graph.bar)[arc >> 1]

    def _live(self) -> list[list[int]]:
        """Return, for each circuit, the arcs from which its target can be reached and that are allowed."""
        request, waves = self._request, self._graph.n_waves
        blocked = {8 * puc + 2 * k + STATES.index(state) for puc, state in request.blocked for k in range(4)}
        left = [each.tolist() for each in estimates(request, request.pass_cost * 0.0 + 1.0)]
        mate = request.mesh.mate.tolist()
        live: list[list[int]] = []
        for (source, target), hops, limit in zip(request.pairs, left, request.limits, strict=True):
            entry, goal = self._graph.entry[source], waves + target
            most = float("inf") if limit.hop_ceiling is None else limit.hop_ceiling
            live.append(
                [
                    arc
                    for arc in range(2 * waves)
                    if arc not in blocked
                    # Light enters at its own port only and leaves at its target only: other ports are other circuits'.
                    and (mate[arc >> 1] >= 0 or arc >> 1 == entry)
                    and (self._head(arc) < waves or self._head(arc) == goal)
                    and 1.0 + hops[self._head(arc)] <= most
                ]
            )
        return live

    def _conserve(self, index: int) -> None:
        """Send one unit from source to target if it is routed; without rings where the length is prescribed."""
        routed = self.routed[index]
        source, target = self._request.pairs[index]
        entry, goal = self._graph.entry[source], self._graph.n_waves + target
        arcs = self._arcs[index]
        into: dict[int, list[Any]] = {}
        out: dict[int, list[Any]] = {}
        for arc, used in arcs.items():
            out.setdefault(arc >> 1, []).append(used)
            into.setdefault(self._head(arc), []).append(used)
        for node in {*into, *out, entry, goal}:
            # The unit comes from outside at the entry and goes outside at the goal.
            arriving = sum(into.get(node, [])) + (routed if node == entry else 0)
            leaving = sum(out.get(node, [])) + (routed if node == goal else 0)
            self.model.add(arriving == leaving)
        equal = any(index in group for group in self._request.equal)
        if equal or self._request.limits[index].exact_hops is not None:
            self._forbid_rings(index, entry, goal)

    def _forbid_rings(self, index: int, entry: int, goal: int) -> None:
        """Make the arcs used one single circuit, closed from target back to source."""
        number: dict[int, int] = {}
        links = []
        for arc, used in self._arcs[index].items():
            tail, head = (number.setdefault(node, len(number)) for node in (arc >> 1, self._head(arc)))
            links.append((tail, head, used))
        ends = [number.setdefault(node, len(number)) for node in (goal, entry)]
        links.append((ends[0], ends[1], self.routed[index]))
        # A circuit constraint wants every node: one that is off the path is a loop to itself.
        links += [(i, i, self.model.new_bool_var("")) for i in number.values()]
        self.model.add_circuit(links)

    def _exclude(self) -> None:
        """Let a wave carry one circuit, in its PUC's state; joints look after themselves (see negotiation.py)."""
        for wave in range(self._graph.n_waves):
            cross = self._cross[wave // 4]
            for arc, wrong in ((2 * wave, cross), (2 * wave + 1, cross.negated())):
                if users := [arcs[arc] for arcs in self._arcs if arc in arcs]:
                    self.model.add_at_most_one([*users, wrong])

    def _limit(self) -> None:
        """Keep hops and losses within limits, and equal lengths equal."""
        loss = self._request.loss_db
        for arcs, limit, routed in zip(self._arcs, self._request.limits, self.routed, strict=True):
            if limit.max_hops is not None:
                self.model.add(sum(arcs.values()) <= limit.max_hops)
            if limit.exact_hops is not None:
                self.model.add(sum(arcs.values()) == limit.exact_hops * routed)
            if limit.max_loss_db is not None:
                weights = {arc: round(float(loss[arc >> 3]) * _STEPS) for arc in arcs}
                most = int(limit.max_loss_db * _STEPS + 0.5)
                self.model.add(sum(weights[arc] * used for arc, used in arcs.items()) <= most)
        for group in self._request.equal:
            for index in group[1:]:
                both = [self.routed[index], self.routed[group[0]]]
                as_long = sum(self._arcs[index].values()) == sum(self._arcs[group[0]].values())
                self.model.add(as_long).only_enforce_if(both)

    def _mark_moved(self, index: int, home: WavePath) -> Any:
        """Return a variable that is 1 unless a circuit takes its old way."""
        moved = self.model.new_bool_var(f"moved {index}")
        for wave, state in zip(home.waves, home.states, strict=True):
            used = self._arcs[index].get(2 * wave + STATES.index(state))
            self.model.add(moved == 1) if used is None else self.model.add_bool_or([used, moved])
        return moved

    def minimise(self) -> None:
        """Charge what the objective says."""
        request = self._request
        passing = [
            round(float(request.pass_cost[arc >> 3, arc & 1]) * self.scale) * used
            for arcs in self._arcs
            for arc, used in arcs.items()
        ]
        holding = []
        for puc in range(request.mesh.n_pucs) if request.state_cost.any() else ():
            for column in (0, 1):
                if price := round(float(request.state_cost[puc, column]) * self.scale):
                    # Only bounded from below: minimising pulls it to 0 where no circuit needs the state.
                    held = self.model.new_bool_var("")
                    for arcs in self._arcs:
                        for k in range(4):
                            if (arc := 8 * puc + 2 * k + column) in arcs:
                                self.model.add_implication(arcs[arc], held)
                    holding.append(price * held)
        moving = [round(request.move_price * self.scale) * moved for moved in self._moved.values()]
        self.model.minimize(sum([*passing, *holding, *moving]))

    def hint(self, ways: Sequence[WavePath]) -> None:
        """Start from a routing known already."""
        held = {wave // 4: state for way in ways for wave, state in zip(way.waves, way.states, strict=True)}
        for puc, state in held.items():
            self.model.add_hint(self._cross[puc], int(state == "cross"))
        for arcs, way in zip(self._arcs, ways, strict=True):
            taken = {2 * wave + STATES.index(state) for wave, state in zip(way.waves, way.states, strict=True)}
            for arc, used in arcs.items():
                self.model.add_hint(used, int(arc in taken))

    def ways(self, solver: cp_model.CpSolver) -> tuple[WavePath, ...]:
        """Return the ways found, each followed from its source by the states set; rings beside it are left out."""
        states = [STATES[solver.boolean_value(cross)] for cross in self._cross]
        found: list[WavePath] = []
        for source, _ in self._request.pairs:
            node = self._graph.entry[source]
            waves: list[int] = []
            while node < self._graph.n_waves:
                waves.append(node)
                node = self._head(2 * node + (states[node // 4] == "cross"))
            found.append(WavePath(tuple(waves), tuple(states[wave // 4] for wave in waves)))
        return tuple(found)
