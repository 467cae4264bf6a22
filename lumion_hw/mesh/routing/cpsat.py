"""Routing by constraint programming with OR-Tools CP-SAT (optional), which can prove that a request is impossible.

There is one Boolean per PUC (1: cross), and one per circuit and way of light through a PUC (PUC-port and state). Ways
of one circuit must form a path and agree with the PUC states; each is used by one circuit at most. Closed rings apart
from the path are excluded for circuits of fixed or equal length and harmless otherwise.
"""

from __future__ import annotations

import importlib
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

MISSING = "Install OR-Tools, which can decide such requests: pip install 'lumion-hw[cpsat]'."

_STEPS = 1_000_000
"""CP-SAT uses integers: costs are rounded to a millionth of the largest cost, losses to 1 µdB."""

Status = Literal["optimal", "feasible", "infeasible", "undecided"]


@dataclass(frozen=True)
class ProofResult:
    """Result of a CP-SAT search.

    Attributes:
        status: ``"optimal"``, ``"feasible"``, ``"infeasible"`` (optimal and infeasible are proven) or ``"undecided"``
            at the time limit.
        wave_paths: One path per circuit, or ``None`` if no routing was found.
        bound: Lower bound of the cost of any routing.
    """

    status: Status
    wave_paths: tuple[WavePath, ...] | None
    bound: float


def is_available() -> bool:
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
    """Solve a routing problem, or prove that it has no solution.

    Args:
        request: The routing problem.
        time_limit_s: Wall time after which the best result so far is returned.
        workers: Number of threads.
        hint: A known routing to start from.
        feasibility_only: Whether to accept any routing, whatever its cost.

    Raises:
        ConfigError: OR-Tools is not installed.
    """
    if not is_available():
        raise ConfigError(
            "this routing request needs constraint programming, but OR-Tools is not installed", hint=MISSING
        )
    _load_ortools()
    from ortools.sat.python import cp_model

    model = _Model(request, cp_model.CpModel())
    if hint is not None:
        model.hint(hint)
    if not feasibility_only:
        model.minimise()
    solver = _solver(time_limit_s, workers)
    statuses: dict[Any, Status] = {
        cp_model.OPTIMAL: "optimal",
        cp_model.FEASIBLE: "feasible",
        cp_model.INFEASIBLE: "infeasible",
    }
    status = statuses.get(_run_solver(solver, model.model), "undecided")
    wave_paths = model.wave_paths(solver) if status in ("optimal", "feasible") else None
    # Without an objective the solver knows no bound, and its "optimal" only means that a routing exists.
    bound = 0.0 if feasibility_only or status == "infeasible" else solver.best_objective_bound / model.scale
    if feasibility_only and status == "optimal":
        status = "feasible"
    return ProofResult(status, wave_paths, bound)


def conflicting_circuits(request: RoutingProblem, *, time_limit_s: float, workers: int = 1) -> tuple[int, ...]:
    """Return the indices of circuits that are impossible together; possibly more than necessary.

    Args:
        request: A routing problem without a solution.
        time_limit_s: Wall time after which all circuits are returned.
        workers: Number of threads.
    """
    _load_ortools()
    from ortools.sat.python import cp_model

    all_circuits = tuple(range(len(request.pairs)))
    if not time_limit_s > 0.0:
        return all_circuits
    model = _Model(request, cp_model.CpModel(), optional=True)
    model.model.add_assumptions(model.routed)
    solver = _solver(time_limit_s, workers)
    # Presolving costs more time than it saves here (428 PUCs, 62 circuits: 6 s with presolve, 2 s without).
    solver.parameters.cp_model_presolve = False
    if _run_solver(solver, model.model) != cp_model.INFEASIBLE:
        return all_circuits
    at = {routed.index: index for index, routed in enumerate(model.routed)}
    return tuple(sorted(at[literal] for literal in solver.sufficient_assumptions_for_infeasibility())) or all_circuits


def _load_ortools() -> None:
    """Import OR-Tools. Raises ``KeyboardInterrupt`` for Ctrl-C, which its compiled parts report as ``ImportError``."""
    try:
        importlib.import_module("ortools.sat.python.cp_model")
    except ImportError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        raise


def _solver(time_limit_s: float, workers: int) -> cp_model.CpSolver:
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit_s
    solver.parameters.num_workers = workers
    # By default OR-Tools handles Ctrl-C itself and then leaves the process without a handler, so that the next Ctrl-C
    # would kill it with heaters and lasers on.
    solver.parameters.catch_sigint_signal = False
    # With one worker, the same request then gives the same result, unless the time limit is reached.
    solver.parameters.random_seed = 1
    return solver


def _run_solver(solver: cp_model.CpSolver, model: cp_model.CpModel) -> object:
    with ThreadPoolExecutor(1) as pool:
        status = pool.submit(solver.solve, model)
        try:
            return status.result()
        except BaseException:
            solver.stop_search()
            raise


class _Model:
    """Variables and constraints of one routing problem.

    Attributes:
        routed: For each circuit, ``True``, or a Boolean variable if the circuit may stay unrouted.
    """

    def __init__(self, request: RoutingProblem, model: cp_model.CpModel, *, optional: bool = False) -> None:
        self.model = model
        self.routed: list[Any] = [model.new_bool_var("") if optional else True for _ in request.pairs]
        self._request = request
        self._graph = wave_graph(request.mesh)
        # The largest cost becomes a million steps; the last value keeps a request without any costs from dividing by
        # zero.
        largest_cost = max(float(request.pass_cost.max()), float(request.state_cost.max()), request.move_price, 1e-9)
        self.scale = _STEPS / largest_cost
        self._cross = [model.new_bool_var(f"cross {puc}") for puc in range(request.mesh.n_pucs)]
        for puc, state in request.blocked:
            model.add(self._cross[puc] == (0 if state == "cross" else 1))
        self._arcs: list[dict[int, Any]] = []
        usable = self._usable_arcs()
        for index in range(len(request.pairs)):
            self._arcs.append({arc: model.new_bool_var(f"{index}:{arc}") for arc in usable[index]})
            self._conserve(index)
        self._exclude()
        self._limit()
        self._moved = {index: self._mark_moved(index, wave_path) for index, wave_path in request.current_paths.items()}

    def _head(self, arc: int) -> int:
        return (self._graph.cross if arc & 1 else self._graph.bar)[arc >> 1]

    def _usable_arcs(self) -> list[list[int]]:
        request, waves = self._request, self._graph.n_waves
        blocked = {8 * puc + 2 * k + STATES.index(state) for puc, state in request.blocked for k in range(4)}
        hop_estimates = [estimate.tolist() for estimate in estimates(request, request.pass_cost * 0.0 + 1.0)]
        mate = request.mesh.mate.tolist()
        usable: list[list[int]] = []
        for (source, target), hops, limit in zip(request.pairs, hop_estimates, request.limits, strict=True):
            entry, goal = self._graph.entry[source], waves + target
            max_hops = float("inf") if limit.hop_ceiling is None else limit.hop_ceiling
            usable.append(
                [
                    arc
                    for arc in range(2 * waves)
                    if arc not in blocked
                    # A circuit enters only at its source and leaves only at its target; other ports belong to other
                    # circuits.
                    and (mate[arc >> 1] >= 0 or arc >> 1 == entry)
                    and (self._head(arc) < waves or self._head(arc) == goal)
                    and 1.0 + hops[self._head(arc)] <= max_hops
                ]
            )
        return usable

    def _conserve(self, index: int) -> None:
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
            # One unit of flow enters the graph at the entry and leaves it at the goal.
            arriving = sum(into.get(node, [])) + (routed if node == entry else 0)
            leaving = sum(out.get(node, [])) + (routed if node == goal else 0)
            self.model.add(arriving == leaving)
        equal = any(index in group for group in self._request.equal)
        if equal or self._request.limits[index].exact_hops is not None:
            self._forbid_rings(index, entry, goal)

    def _forbid_rings(self, index: int, entry: int, goal: int) -> None:
        number: dict[int, int] = {}
        links = []
        for arc, used in self._arcs[index].items():
            tail, head = (number.setdefault(node, len(number)) for node in (arc >> 1, self._head(arc)))
            links.append((tail, head, used))
        ends = [number.setdefault(node, len(number)) for node in (goal, entry)]
        links.append((ends[0], ends[1], self.routed[index]))
        # A circuit constraint must cover every node, so nodes off the path get a self-loop.
        links += [(i, i, self.model.new_bool_var("")) for i in number.values()]
        self.model.add_circuit(links)

    def _exclude(self) -> None:
        for wave in range(self._graph.n_waves):
            cross = self._cross[wave // 4]
            for arc, wrong_state in ((2 * wave, cross), (2 * wave + 1, cross.negated())):
                if users := [arcs[arc] for arcs in self._arcs if arc in arcs]:
                    self.model.add_at_most_one([*users, wrong_state])
        for puc in range(self._request.mesh.n_pucs) if self._request.disjoint else ():
            # In these meshes light passes a PUC only once.
            users = [used for arcs in self._arcs for arc, used in arcs.items() if arc >> 3 == puc]
            self.model.add_at_most_one(users)

    def _limit(self) -> None:
        loss = self._request.loss_db
        for arcs, limit, routed in zip(self._arcs, self._request.limits, self.routed, strict=True):
            if limit.max_hops is not None:
                self.model.add(sum(arcs.values()) <= limit.max_hops)
            if limit.exact_hops is not None:
                self.model.add(sum(arcs.values()) == limit.exact_hops * routed)
            if limit.max_loss_db is not None:
                weights = {arc: round(float(loss[arc >> 3]) * _STEPS) for arc in arcs}
                # Rounded to the nearest step, like the losses: a path that just fits must stay possible.
                max_loss = int(limit.max_loss_db * _STEPS + 0.5)
                self.model.add(sum(weights[arc] * used for arc, used in arcs.items()) <= max_loss)
        for group in self._request.equal:
            for index in group[1:]:
                # A circuit that is left out has no length to compare.
                are_routed = [self.routed[index], self.routed[group[0]]]
                is_equal = sum(self._arcs[index].values()) == sum(self._arcs[group[0]].values())
                self.model.add(is_equal).only_enforce_if(are_routed)

    def _mark_moved(self, index: int, current_path: WavePath) -> Any:
        # Only one direction is required: the objective sets it to 0 where the path is kept.
        moved = self.model.new_bool_var(f"moved {index}")
        for wave, state in zip(current_path.waves, current_path.states, strict=True):
            used = self._arcs[index].get(2 * wave + STATES.index(state))
            self.model.add(moved == 1) if used is None else self.model.add_bool_or([used, moved])
        return moved

    def minimise(self) -> None:
        """Minimise the cost of passing, holding and moving, in steps of ``1 / scale``."""
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
                    # Bounded only from below: minimisation sets it to 0 if no circuit needs the state.
                    is_state_used = self.model.new_bool_var("")
                    for arcs in self._arcs:
                        for k in range(4):
                            if (arc := 8 * puc + 2 * k + column) in arcs:
                                self.model.add_implication(arcs[arc], is_state_used)
                    holding.append(price * is_state_used)
        moving = [round(request.move_price * self.scale) * moved for moved in self._moved.values()]
        self.model.minimize(sum([*passing, *holding, *moving]))

    def hint(self, wave_paths: Sequence[WavePath]) -> None:
        """Suggest a routing as start of the search."""
        steps = [list(zip(wave_path.waves, wave_path.states, strict=True)) for wave_path in wave_paths]
        used_states = {wave // 4: state for path_steps in steps for wave, state in path_steps}
        for puc, state in used_states.items():
            self.model.add_hint(self._cross[puc], int(state == "cross"))
        for arcs, path_steps in zip(self._arcs, steps, strict=True):
            # A hint must name unused arcs too: the solver would otherwise have to guess them.
            used_arcs = {2 * wave + STATES.index(state) for wave, state in path_steps}
            for arc, used in arcs.items():
                self.model.add_hint(used, int(arc in used_arcs))

    def wave_paths(self, solver: cp_model.CpSolver) -> tuple[WavePath, ...]:
        """Return the paths of a solution, in the order of the requested pairs."""
        states = [STATES[solver.boolean_value(cross)] for cross in self._cross]
        wave_paths: list[WavePath] = []
        for source, _ in self._request.pairs:
            node = self._graph.entry[source]
            waves: list[int] = []
            while node < self._graph.n_waves:
                waves.append(node)
                node = self._head(2 * node + (states[node // 4] == "cross"))
            wave_paths.append(WavePath(tuple(waves), tuple(states[wave // 4] for wave in waves)))
        return tuple(wave_paths)
