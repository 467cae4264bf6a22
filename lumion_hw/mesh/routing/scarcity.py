"""Proofs that a request cannot be met where no cut tells: places too small for the circuits that have to pass them.

A cut counts joints. It does not see that a PUC is either in bar or in cross, nor that circuits get into each other's
way in turns. Prices see both. Let each strand (one of the two ways through a PUC in one state) cost what it likes. If
the circuits, each on its own cheapest way but none charged more than 1, pay more together than all PUCs can take, each
in its better state, then there is no routing.

Linear programming finds such prices in the neighbourhood in which circuits were last at odds. Everything further away
is free there: that asks for less, so a proof stays one. It is summed up again over the whole mesh before it is told.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lumion_hw.mesh.layout.topology import EXIT_XOR
from lumion_hw.mesh.routing.request import STATES, RoutingProblem
from lumion_hw.mesh.routing.search import least_costs

_REACH = (4, 6)
"""Joints from contested PUCs to the edge of the neighbourhood: the near one first."""

FEW_UNKNOWNS, MANY_UNKNOWNS = 12_000, 60_000
"""Arcs times circuits of the largest neighbourhood that takes about a tenth of a second, and about one."""

_MARGIN = 1e-5
"""By how much the circuits must pay more than PUCs can take: far above what rounding adds up to."""


@dataclass(frozen=True)
class Scarcity:
    """A proof that circuits cannot be had together.

    Attributes:
        circuits: Indices of the circuits.
        pucs: The PUCs that do not suffice for them.
    """

    circuits: tuple[int, ...]
    pucs: tuple[int, ...]


def find_scarcity(
    request: RoutingProblem, contested: Collection[int], most_unknowns: int = MANY_UNKNOWNS
) -> Scarcity | None:
    """Return circuits that are proven to have too little room near contested PUCs, if any are found.

    Args:
        request: The request; its limits and equal lengths are left out of account.
        contested: PUCs over which circuits were at odds when negotiation was given up.
        most_unknowns: Size of the largest neighbourhood to try.
    """
    strands = _Strands(request)
    tried = 0
    for reach in _REACH:
        place = _Neighbourhood(request, strands, contested, reach)
        if tried < place.unknowns <= most_unknowns:
            tried = place.unknowns
            price = place.prices()
            if price is not None and (proof := _summed_up(request, strands, price)) is not None:
                return proof
    return None


class _Strands:
    """The arcs of a mesh, bar and cross of each wave, and the strand that each takes, one for both directions.

    Attributes:
        tail: Wave of each arc.
        head: Node after each arc; ports are numbered behind the waves.
        strand: Number of its strand; even in bar, odd in cross.
        open: Whether it may be used.
    """

    def __init__(self, request: RoutingProblem) -> None:
        waves = 4 * request.mesh.n_pucs
        self.tail = np.repeat(np.arange(waves), 2)
        state = np.tile([0, 1], waves)
        follows = request.mesh.successors.reshape(-1)
        self.head = np.where(follows >= 0, follows, waves - 1 - follows)
        flip = np.array(list(EXIT_XOR.values()))[state]
        self.strand = np.minimum(np.arange(2 * waves), 2 * (self.tail ^ flip) + state)
        self.open = np.ones(2 * waves, dtype=bool)
        for puc, shut in request.blocked:
            self.open[8 * puc + STATES.index(shut) : 8 * puc + 8 : 2] = False
        taken = [2 * w + STATES.index(s) for _, way in request.kept for w, s in zip(way.waves, way.states, strict=True)]
        self.open[np.isin(self.strand, self.strand[taken])] = False


class _Neighbourhood:
    """A part of the mesh, with all the rest as one node that light passes freely.

    Attributes:
        unknowns: Size of its linear program.
    """

    def __init__(self, request: RoutingProblem, strands: _Strands, contested: Collection[int], reach: int) -> None:
        mesh, entry, waves = request.mesh, request.mesh.port_puc_port, 4 * request.mesh.n_pucs
        near = np.zeros(mesh.n_pucs, dtype=bool)
        near[list(contested)] = True
        for _ in range(reach):
            ends = mesh.joints // 4
            near[ends[near[ends].any(axis=1)]] = True
        pairs = [pair for pair in request.pairs if near[entry[list(pair)] // 4].any()]
        self._far = waves + mesh.n_ports
        self._arcs = np.flatnonzero(near[strands.tail // 4] & strands.open)
        heads = strands.head[self._arcs]
        away = heads < waves
        away[away] = ~near[heads[away] // 4]
        joined = np.flatnonzero(mesh.mate >= 0)
        inwards = joined[near[joined // 4] & ~near[mesh.mate[joined] // 4]]
        self._tails = np.concatenate([strands.tail[self._arcs], np.full(len(inwards), self._far)])
        self._heads = np.concatenate([np.where(away, self._far, heads), inwards])
        self._first = [int(entry[a]) if near[entry[a] // 4] else self._far for a, _ in pairs]
        self._last = [waves + b if near[entry[b] // 4] else self._far for _, b in pairs]
        self._strands = strands
        self._n_pucs = mesh.n_pucs
        self.unknowns = len(self._tails) * len(pairs)

    def prices(self) -> NDArray[np.float64] | None:
        """Return a price for each arc of the mesh, or ``None`` if shares of all circuits find room side by side.

        The linear program lets as much of each circuit pass as there is room for; its shadow prices are the prices.
        """
        import scipy.sparse as sp
        from scipy.optimize import linprog

        csr: Any = sp.csr_array  # its stubs know no keywords of hstack and kron
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
        takes = csr((np.ones(len(row)), (row, arcs[: len(row)])), (len(used), len(arcs)))
        # A strand in cross has the room that its PUC is in cross, one in bar the rest.
        sign = np.where(used % 2, -1.0, 1.0)
        held = csr((sign, (np.arange(len(used)), used // 8)), (len(used), self._n_pucs))
        result = linprog(
            np.r_[np.zeros(len(arcs) * n), -np.ones(n), np.zeros(self._n_pucs)],
            A_eq=sp.hstack([sp.kron(sp.eye_array(n), balance), ends, csr((nodes * n, self._n_pucs))], "csr"),
            b_eq=np.zeros(nodes * n),
            A_ub=sp.hstack([sp.kron(np.ones((1, n)), takes), csr((len(used), n)), held], "csr"),
            b_ub=np.maximum(sign, 0.0),
            bounds=(0.0, 1.0),
            method="highs-ds",
        )
        if result.status != 0 or float(result.fun or 0.0) < _MARGIN - n:
            return None
        price = np.zeros(len(self._strands.tail))
        price[self._arcs] = np.maximum(-result.ineqlin.marginals, 0.0)[row]
        return price


def _summed_up(request: RoutingProblem, strands: _Strands, price: NDArray[np.float64]) -> Scarcity | None:
    """Return the proof that prices of arcs make over the whole mesh, or ``None`` if they make none."""
    mesh, waves = request.mesh, 4 * request.mesh.n_pucs
    tails, heads = strands.tail[strands.open], strands.head[strands.open]
    sources, targets = np.array(request.pairs).T
    costs = least_costs(price[strands.open], tails, heads, waves + mesh.n_ports, mesh.port_puc_port[sources])
    cheapest = costs[np.arange(len(sources)), waves + targets]
    paid = np.minimum(cheapest, 1.0)
    takes = np.zeros((mesh.n_pucs, 2))
    own = np.flatnonzero(strands.open & (strands.strand == np.arange(len(price))))
    np.add.at(takes, (own // 8, own % 2), price[own])
    most = takes.max(axis=1)
    if paid.sum() <= most.sum() + _MARGIN:
        return None
    return Scarcity(tuple(np.flatnonzero(paid > _MARGIN).tolist()), tuple(np.flatnonzero(most > _MARGIN).tolist()))
