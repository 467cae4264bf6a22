"""Prove that a request is impossible because a region has too few PUCs for its circuits.

Linear programming finds prices of the PUC states near the last conflicts. Each circuit pays the price of its cheapest
path, at most 1. Each PUC collects only the prices of one state. If circuits pay more than PUCs can collect, no routing
exists. This is checked again over the whole mesh.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.mesh.layout.topology import EXIT_XOR
from lumion_hw.mesh.routing.request import STATES, RoutingProblem
from lumion_hw.mesh.routing.search import cheapest_costs

_REACH = (4, 6)
"""Distances, in waveguides, from the PUCs over which circuits conflict; tried in turn."""

SMALL_PROBLEM_UNKNOWNS, LARGE_PROBLEM_UNKNOWNS = 12_000, 60_000
"""Problem sizes that take about 0.1 s and about 1 s: number of ways through PUCs, times circuits."""

_MARGIN = 1e-5
"""Proof margin: circuits must pay this much more than PUCs can collect; far above rounding errors."""


@dataclass(frozen=True)
class Scarcity:
    """Circuits (by index) that are proven impossible together, and the PUCs that are too few for them."""

    circuits: tuple[int, ...]
    pucs: tuple[int, ...]


def find_scarcity(
    request: RoutingProblem, contested: Collection[int], max_unknowns: int = LARGE_PROBLEM_UNKNOWNS
) -> Scarcity | None:
    """Return circuits that provably need more PUCs than exist near ``contested``; ``None`` if nothing is proven.

    ``contested`` are PUCs over which circuits conflict. Limits and equal lengths of the request are ignored. Linear
    programs with more than ``max_unknowns`` are not tried.
    """
    strands = _Strands(request)
    largest_tried = 0
    for joints_away in _REACH:
        neighbourhood = _Neighbourhood(request, strands, contested, joints_away)
        if largest_tried < neighbourhood.unknowns <= max_unknowns:
            largest_tried = neighbourhood.unknowns
            prices = neighbourhood.prices()
            if prices is not None and (proof := _check_proof(request, strands, prices)) is not None:
                return proof
    return None


class _Strands:
    """The ways of light through each PUC in bar and in cross.

    Attributes:
        tail: PUC-port where each way starts.
        head: Node where each way ends; ports are numbered after the PUC-ports.
        strand: Number shared by both directions of a way; even in bar, odd in cross.
        open: Whether each way may be used.
    """

    def __init__(self, request: RoutingProblem) -> None:
        waves = 4 * request.mesh.n_pucs
        self.tail = np.repeat(np.arange(waves), 2)
        state = np.tile([0, 1], waves)
        follows = request.mesh.successors.reshape(-1)
        self.head = np.where(follows >= 0, follows, waves - 1 - follows)
        flip = np.array(list(EXIT_XOR.values()))[state]
        # Light in the opposite direction enters where this arc leaves; the smaller of the two numbers names the strand.
        self.strand = np.minimum(np.arange(2 * waves), 2 * (self.tail ^ flip) + state)
        self.open = np.ones(2 * waves, dtype=bool)
        for puc, blocked_state in request.blocked:
            self.open[8 * puc + STATES.index(blocked_state) : 8 * puc + 8 : 2] = False
        used_arcs = [
            2 * w + STATES.index(s)
            for _, wave_path in request.staying
            for w, s in zip(wave_path.waves, wave_path.states, strict=True)
        ]
        self.open[np.isin(self.strand, self.strand[used_arcs])] = False


class _Neighbourhood:
    def __init__(
        self, request: RoutingProblem, strands: _Strands, contested: Collection[int], joints_away: int
    ) -> None:
        mesh, entry, waves = request.mesh, request.mesh.port_puc_port, 4 * request.mesh.n_pucs
        is_inside = np.zeros(mesh.n_pucs, dtype=bool)
        is_inside[list(contested)] = True
        for _ in range(joints_away):
            ends = mesh.joints // 4
            is_inside[ends[is_inside[ends].any(axis=1)]] = True
        pairs = [pair for pair in request.pairs if is_inside[entry[list(pair)] // 4].any()]
        self._far = waves + mesh.n_ports
        self._arcs = np.flatnonzero(is_inside[strands.tail // 4] & strands.open)
        heads = strands.head[self._arcs]
        leads_outside = heads < waves
        leads_outside[leads_outside] = ~is_inside[heads[leads_outside] // 4]
        joined = np.flatnonzero(mesh.mate >= 0)
        inwards = joined[is_inside[joined // 4] & ~is_inside[mesh.mate[joined] // 4]]
        self._tails = np.concatenate([strands.tail[self._arcs], np.full(len(inwards), self._far)])
        self._heads = np.concatenate([np.where(leads_outside, self._far, heads), inwards])
        self._first = [int(entry[a]) if is_inside[entry[a] // 4] else self._far for a, _ in pairs]
        self._last = [waves + b if is_inside[entry[b] // 4] else self._far for _, b in pairs]
        self._strands = strands
        self._n_pucs = mesh.n_pucs
        self.unknowns = len(self._tails) * len(pairs)

    def prices(self) -> NDArray[np.float64] | None:
        """Return prices of the PUCs that may prove scarcity, or ``None`` if the linear program shows none."""
        import scipy.sparse as sp
        from scipy.optimize import linprog

        csr: Any = sp.csr_array  # the type stubs lack keywords of hstack and kron
        n, nodes, arcs = len(self._first), self._far + 1, np.arange(len(self._tails))
        unit = np.ones(len(arcs))
        balance = csr((unit, (self._tails, arcs)), (nodes, len(arcs))) - csr(
            (unit, (self._heads, arcs)), (nodes, len(arcs))
        )
        begin = nodes * np.arange(n)
        ends = csr(
            (np.repeat([-1.0, 1.0], n), (np.r_[begin + self._first, begin + self._last], np.tile(np.arange(n), 2))),
            (nodes * n, n),
        )
        used, row = np.unique(self._strands.strand[self._arcs], return_inverse=True)
        usage = csr((np.ones(len(row)), (row, arcs[: len(row)])), (len(used), len(arcs)))
        # A cross strand has the capacity of the fraction that its PUC is in cross, a bar strand has the rest.
        sign = np.where(used % 2, -1.0, 1.0)
        capacity = csr((sign, (np.arange(len(used)), used // 8)), (len(used), self._n_pucs))
        result = linprog(
            np.r_[np.zeros(len(arcs) * n), -np.ones(n), np.zeros(self._n_pucs)],
            A_eq=sp.hstack([sp.kron(sp.eye_array(n), balance), ends, csr((nodes * n, self._n_pucs))], "csr"),
            b_eq=np.zeros(nodes * n),
            A_ub=sp.hstack([sp.kron(np.ones((1, n)), usage), csr((len(used), n)), capacity], "csr"),
            b_ub=np.maximum(sign, 0.0),
            bounds=(0.0, 1.0),
            method="highs-ds",
        )
        if result.status != 0 or float(result.fun or 0.0) < _MARGIN - n:
            return None
        prices = np.zeros(len(self._strands.tail))
        prices[self._arcs] = np.maximum(-result.ineqlin.marginals, 0.0)[row]
        return prices


def _check_proof(request: RoutingProblem, strands: _Strands, prices: NDArray[np.float64]) -> Scarcity | None:
    mesh, waves = request.mesh, 4 * request.mesh.n_pucs
    tails, heads = strands.tail[strands.open], strands.head[strands.open]
    sources, targets = np.array(request.pairs).T
    costs = cheapest_costs(prices[strands.open], tails, heads, waves + mesh.n_ports, mesh.port_puc_port[sources])
    cheapest = costs[np.arange(len(sources)), waves + targets]
    # At most 1 each, as in the linear program; this also keeps the sum finite where a circuit has no path.
    payments = np.minimum(cheapest, 1.0)
    usage = np.zeros((mesh.n_pucs, 2))
    own = np.flatnonzero(strands.open & (strands.strand == np.arange(len(prices))))
    np.add.at(usage, (own // 8, own % 2), prices[own])
    capacity = usage.max(axis=1)
    if payments.sum() <= capacity.sum() + _MARGIN:
        return None
    return Scarcity(
        tuple(np.flatnonzero(payments > _MARGIN).tolist()), tuple(np.flatnonzero(capacity > _MARGIN).tolist())
    )
