"""Finding paths through the mesh: one or several circuits with consistent states and exclusive joints.

Method: shortest loss on the directed waves, then negotiated congestion (PathFinder) for several circuits at once: each
circuit is routed alone, contested PUCs grow dearer from round to round, and circuits are ripped up and routed again
until no two of them need one PUC in different states or one joint in opposite directions. Every result is re-traced
through the states it sets before it is handed out. A heuristic that finds nothing has proven nothing: the error says
so.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError, NoPathError, VerifyError
from lumion_hw.mesh.topology import LEAVES, HexMesh, State

_STATES: tuple[State, State] = ("bar", "cross")

_ROUNDS_PER_ATTEMPT = 12
"""Rounds of one negotiation before it starts afresh: 12 to 40 settle the most random requests, 12 soonest (72 PUCs)."""

_MOST_SEARCHES = 400
"""Searches for one circuit before it is given up as undecided; seldom more than 10 are needed, none takes over 1 ms."""


@dataclass(frozen=True)
class Path:
    """One routed circuit.

    Attributes:
        source: Port where light enters.
        target: Port where it leaves.
        pucs: PUCs passed, in order.
        loss_db: Sum of the PUC losses used as weights.
    """

    source: int
    target: int
    pucs: tuple[int, ...]
    loss_db: float

    @property
    def hops(self) -> int:
        """Number of PUCs passed."""
        return len(self.pucs)


@dataclass(frozen=True)
class Routing:
    """A conflict-free set of circuits.

    Attributes:
        states: State of every PUC used; all others are free.
        paths: One path per requested pair, in the order of the request.
    """

    states: dict[int, State]
    paths: tuple[Path, ...]

    @property
    def total_hops(self) -> int:
        """Sum of the hops of all paths."""
        return sum(path.hops for path in self.paths)


@dataclass(frozen=True)
class _Step:
    """One PUC passed: the directed wave that enters it, and the state it is passed in."""

    node: int
    state: State


def route(
    mesh: HexMesh,
    pairs: Sequence[tuple[int, int]],
    *,
    puc_loss_db: NDArray[np.float64] | float = 0.5,
    unusable: Iterable[tuple[int, State]] = (),
    fixed: Mapping[int, State] | None = None,
    max_hops: int | None = None,
    rounds: int = 200,
) -> Routing:
    """Route circuits by least loss with consistent states and exclusive ports and joints.

    Args:
        mesh: The mesh.
        pairs: Source and target port of each directed circuit; every port at most once.
        puc_loss_db: Loss per PUC in dB, one number or shape ``(n_pucs,)``.
        unusable: ``(puc, state)`` that may not be used: a stuck PUC cannot take its other state.
        fixed: States that are already set and must stay; circuits may share them.
        max_hops: Longest path allowed.
        rounds: Rounds of negotiation before giving up.

    Raises:
        ConfigError: A loss is negative or not a number, or a PUC or state does not exist.
        NoPathError: A port is used twice or has no fibre, a single circuit has no path at all (proven), or the search
            or the negotiation was given up (not proven); the message says which.
    """
    _check_ports(mesh, pairs)
    loss = _losses(mesh, puc_loss_db)
    unusable, fixed = set(unusable), fixed or {}
    _check_states(mesh, unusable | set(fixed.items()))
    blocked = unusable | {(puc, _other(state)) for puc, state in fixed.items()}
    negotiation = _Negotiation(mesh, loss, blocked, max_hops)
    steps = negotiation.run(pairs, rounds)
    states = {step.node // 4: step.state for path in steps for step in path}
    paths = tuple(_checked_path(mesh, pair, path, states, loss) for pair, path in zip(pairs, steps, strict=True))
    return Routing(states, paths)


def _other(state: State) -> State:
    """Return the other one of the two states."""
    return "cross" if state == "bar" else "bar"


def _check_ports(mesh: HexMesh, pairs: Sequence[tuple[int, int]]) -> None:
    """Refuse ports that do not exist, have no fibre or are asked for twice."""
    seen: set[int] = set()
    for port in (port for pair in pairs for port in pair):
        if port not in mesh.fibre_ports:
            raise NoPathError(f"port {port} has no fibre", hint="Choose one of the mesh's fibre ports.")
        if port in seen:
            raise NoPathError(f"port {port} is asked for twice", hint="A port carries one circuit.")
        seen.add(port)


def _losses(mesh: HexMesh, puc_loss_db: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Return the loss of every PUC, or refuse what is no loss: a gain would make light go round for ever."""
    loss = np.asarray(puc_loss_db, dtype=np.float64)
    if loss.shape not in ((), (mesh.n_pucs,)) or not np.all((loss >= 0) & np.isfinite(loss)):
        raise ConfigError(
            f"PUC losses of shape {loss.shape} from {loss.min(initial=np.inf):g} dB cannot be weights",
            hint=f"Give one finite number, or {mesh.n_pucs} of them, none negative.",
        )
    return np.broadcast_to(loss, (mesh.n_pucs,))


def _check_states(mesh: HexMesh, given: Iterable[tuple[int, State]]) -> None:
    """Refuse PUCs that do not exist and states other than bar and cross."""
    for puc, state in given:
        if not 0 <= puc < mesh.n_pucs or state not in _STATES:
            raise ConfigError(
                f"PUC {puc} cannot be {state!r}",
                hint=f"This mesh has PUCs 0 to {mesh.n_pucs - 1}; a state is 'bar' or 'cross'.",
            )


def _checked_path(
    mesh: HexMesh,
    pair: tuple[int, int],
    steps: Sequence[_Step],
    states: Mapping[int, State],
    loss: NDArray[np.float64],
) -> Path:
    """Re-trace one path through the states set, independently of the search."""
    pucs = tuple(step.node // 4 for step in steps)
    trace = mesh.trace(pair[0], states)
    if trace.port != pair[1] or trace.pucs != pucs:
        raise VerifyError(
            f"the route from port {pair[0]} to port {pair[1]} does not hold when traced", wrote=pucs, read=trace
        )
    return Path(pair[0], pair[1], pucs, float(loss[list(pucs)].sum()))


class _Negotiation:
    """Negotiated congestion over PUC states and joints."""

    def __init__(
        self,
        mesh: HexMesh,
        loss: NDArray[np.float64],
        blocked: set[tuple[int, State]],
        max_hops: int | None,
    ) -> None:
        self._mesh = mesh
        self._mate = mesh.mate.tolist()
        self._loss = loss.tolist()
        self._blocked = blocked
        self._max_hops = max_hops
        self._scale = float(loss.mean()) or 1.0
        self._state_history: dict[tuple[int, State], float] = {}
        self._joint_history: dict[int, float] = {}

    def run(self, pairs: Sequence[tuple[int, int]], rounds: int) -> list[list[_Step]]:
        """Return the steps of every pair, conflict-free.

        The rounds are spent in short negotiations, each from fresh prices and in another order: one that has not
        settled soon rarely settles at all, and another order seldom gets stuck at the same place.
        """
        alone = [self._search(pair, [], 0.0) for pair in pairs]
        contested: set[int] = set()
        for attempt, begun in enumerate(range(0, rounds, _ROUNDS_PER_ATTEMPT)):
            paths, contested = self._negotiate(pairs, alone, attempt, min(_ROUNDS_PER_ATTEMPT, rounds - begun))
            if not contested:
                return paths
        raise NoPathError(
            f"no conflict-free routes for {len(pairs)} circuits after {rounds} rounds (not proven impossible); "
            f"PUCs still contested: {sorted(contested)}",
            hint="Free one of the ports near those PUCs, or allow more rounds.",
        )

    def _negotiate(
        self, pairs: Sequence[tuple[int, int]], alone: Sequence[list[_Step]], seed: int, rounds: int
    ) -> tuple[list[list[_Step]], set[int]]:
        """Negotiate from fresh prices, and return the paths with the PUCs still contested (none: settled)."""
        self._state_history.clear()
        self._joint_history.clear()
        order = np.random.default_rng(seed)
        paths = list(alone)
        for turn in range(rounds):
            contested = self._charge(paths)
            if not contested:
                return paths, contested
            pressure = self._scale * 0.5 * 1.3**turn
            for index in order.permutation(len(pairs)).tolist():
                others = [step for i, path in enumerate(paths) if i != index for step in path]
                # Prices may lead a search into branches it has to give up: the circuit then stays where it is.
                with suppress(NoPathError):
                    paths[index] = self._search(pairs[index], others, pressure)
        return paths, self._charge(paths)

    def _charge(self, paths: Sequence[Sequence[_Step]]) -> set[int]:
        """Raise the history price of everything contested and return the PUCs concerned."""
        use: dict[int, dict[State, set[int]]] = {}
        nodes: dict[int, set[int]] = {}
        for index, path in enumerate(paths):
            for step in path:
                use.setdefault(step.node // 4, {}).setdefault(step.state, set()).add(index)
                nodes.setdefault(step.node, set()).add(index)
        contested: set[int] = set()
        for puc, by_state in use.items():
            if len(by_state) == 2:
                contested.add(puc)
                for state in by_state:
                    key = (puc, state)
                    self._state_history[key] = self._state_history.get(key, 0.0) + 0.5 * self._scale
        for node in nodes:
            if self._mate[node] in nodes:
                contested.add(node // 4)
                self._joint_history[node] = self._joint_history.get(node, 0.0) + 0.5 * self._scale
        return contested

    def _search(self, pair: tuple[int, int], others: Sequence[_Step], pressure: float) -> list[_Step]:
        """Return the cheapest path for one pair against the present use by others, free of conflict with itself.

        A walk that needs one PUC in both states is no path. Every path does without one of the two, so the search goes
        on with either state banned, cheapest walk first: what it finds is optimal, and running dry is a proof.
        """
        taken = {(step.node // 4, _other(step.state)) for step in others}
        opposed = {self._mate[step.node] for step in others}
        branches: list[tuple[float, int, frozenset[tuple[int, State]], list[_Step]]] = []
        searches = 0
        todo: list[frozenset[tuple[int, State]]] = [frozenset()]
        while True:
            for banned in todo:
                searches += 1
                if walk := self._dijkstra(pair, taken, opposed, pressure, banned):
                    heapq.heappush(branches, (walk[0], searches, banned, walk[1]))
            if not branches or searches > _MOST_SEARCHES:
                raise self._no_path(pair, proven=not branches)
            _, _, banned, steps = heapq.heappop(branches)
            puc = _self_conflict(steps)
            if puc is None:
                return steps
            todo = [banned | {(puc, state)} for state in _STATES]

    def _no_path(self, pair: tuple[int, int], *, proven: bool) -> NoPathError:
        """Return the error for a circuit that has no path, or for which none was found."""
        return NoPathError(
            f"no path from port {pair[0]} to port {pair[1]}"
            + (f" within {self._max_hops} hops" if self._max_hops is not None else "")
            + f" with {len(self._blocked)} blocked PUC states ({'proven' if proven else 'not proven impossible'})",
            hint="Free a blocked PUC, raise the hop limit or use another port.",
        )

    def _dijkstra(
        self,
        pair: tuple[int, int],
        taken: set[tuple[int, State]],
        opposed: set[int],
        pressure: float,
        banned: frozenset[tuple[int, State]],
    ) -> tuple[float, list[_Step]] | None:
        """Return cost and steps of the cheapest walk, or ``None``; the price of conflict is added, not forbidden.

        Under a hop limit a dearer way to a wave is followed too if it takes fewer PUCs: it may be the only one that
        arrives in time.
        """
        start, goal = (int(self._mesh.port_puc_port[port]) for port in pair)
        limited = self._max_hops is not None
        best: dict[tuple[int, int], float] = {}  # (wave, hops if they count) -> cost
        fewest: dict[int, int] = {}
        labels: list[tuple[int, int, State]] = []  # label before, wave, state
        queue: list[tuple[float, int, int, int]] = [(0.0, 0, start, -1)]
        while queue:
            cost, hops, node, label = heapq.heappop(queue)
            if node < 0:
                return cost, _unwind(labels, label)
            if hops == self._max_hops or hops >= fewest.get(node, hops + 1):
                continue
            fewest[node] = hops if limited else 0
            puc = node // 4
            for state in _STATES:
                key = (puc, state)
                if key in self._blocked or key in banned:
                    continue
                leaving = node ^ LEAVES[state]
                following = self._mate[leaving]
                if following < 0 and leaving != goal:
                    continue
                price = cost + self._loss[puc] + self._state_history.get(key, 0.0) + (key in taken) * pressure
                if following >= 0:
                    price += self._joint_history.get(following, 0.0) + (following in opposed) * pressure
                place = (following, hops + 1 if limited else 0)
                if price < best.get(place, math.inf):
                    best[place] = price
                    labels.append((label, node, state))
                    heapq.heappush(queue, (price, hops + 1, following, len(labels) - 1))
        return None


def _unwind(labels: Sequence[tuple[int, int, State]], label: int) -> list[_Step]:
    """Return the steps that lead to a label."""
    steps: list[_Step] = []
    while label >= 0:
        label, node, state = labels[label]
        steps.append(_Step(node, state))
    steps.reverse()
    return steps


def _self_conflict(path: Sequence[_Step]) -> int | None:
    """Return a PUC that one walk needs in both states, or ``None``."""
    seen: dict[int, State] = {}
    for step in path:
        puc = step.node // 4
        if seen.setdefault(puc, step.state) != step.state:
            return puc
    return None
