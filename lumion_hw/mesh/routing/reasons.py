"""Why a request was not met, in words: proofs, and what was left undecided; and the last check of what was."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from lumion_hw.errors import NoPathError, UndecidedError, VerifyError
from lumion_hw.mesh.layout.topology import State
from lumion_hw.mesh.routing import cpsat
from lumion_hw.mesh.routing.cuts import Cut, find_cut
from lumion_hw.mesh.routing.request import RoutingLimits, RoutingProblem
from lumion_hw.mesh.routing.result import Path, WavePath
from lumion_hw.mesh.routing.scarcity import MANY_UNKNOWNS, find_scarcity
from lumion_hw.mesh.routing.search import Prices, Search, SearchBudgetExceeded

_LOSS_TOLERANCE_DB = 1e-4
_MOST_NAMED = 16
"""Circuits that a message names; it counts the others."""


def no_path_alone(request: RoutingProblem, index: int) -> NoPathError:
    """Return the error for one circuit that has no path even with the mesh to itself."""
    source, target = request.pairs[index]
    cut = find_cut(only(request, [index]))
    blocked = f" with {len(request.blocked)} blocked PUC states" if request.blocked else ""
    blocked += f" beside {len(request.kept)} standing circuits" if request.kept else ""
    where = f": {cut}" if cut else ""
    nearest = _nearest(only(request, [index]))
    if nearest:
        where += f"; the nearest that can be had: {' or '.join(nearest)}"
    return NoPathError(
        f"no path from port {source} to port {target}{request.limits[index]}{blocked} (proven){where}",
        ports=(source, target),
        cut=cut.joints if cut else (),
        hint="Free a blocked PUC, raise the limit or use another port."
        if not request.kept
        else "Let standing circuits move at a price, or use another port.",
    )


def _nearest(alone: RoutingProblem) -> list[str]:
    """Return, for each ceiling of a circuit alone, the lowest one in its place that can be kept."""
    limit = alone.limits[0]
    weights = {"max_hops": np.ones(alone.mesh.n_pucs), "max_loss_db": alone.loss_db}
    told = []
    for ceiling, weight in weights.items():
        if getattr(limit, ceiling) is None:
            continue
        relaxed = replace(
            alone,
            limits=(replace(limit, **{ceiling: None}),),
            pass_cost=np.repeat(weight[:, None], 2, axis=1),
            state_cost=np.zeros_like(alone.state_cost),
        )
        try:
            found = Search(relaxed, Prices(relaxed)).cheapest(0)
        except SearchBudgetExceeded:
            continue
        if found is not None:
            # Rounded up, so that asking for what is told succeeds.
            told.append(f"{ceiling}={math.ceil(found[0] * 1e3 - 1e-6) / 1e3:g}")
    return told


def raise_if_scarce(request: RoutingProblem, contested: Collection[int], most_unknowns: int = MANY_UNKNOWNS) -> None:
    """Refuse a request for which there is proven to be too little room near contested PUCs; no proof is no promise.

    Args:
        request: The request.
        contested: PUCs over which circuits were at odds when negotiation gave up.
        most_unknowns: How hard to try, see :func:`find_scarcity`.

    Raises:
        NoPathError: It cannot be met.
    """
    scarcity = find_scarcity(request, contested, most_unknowns)
    if scarcity is None:
        return
    # A cut names joints: the better reason, where it suffices.
    if cut := by_cut(only(request, scarcity.circuits)):
        raise cut
    pairs = [request.pairs[index] for index in scarcity.circuits]
    raise NoPathError(
        f"no routes for circuits {_told(pairs)} together (proven): PUCs {', '.join(map(str, scarcity.pucs))} do not "
        "suffice for them",
        ports=tuple(port for pair in pairs for port in pair),
        hint="Give up one of them, or move an end elsewhere.",
    )


def by_cut(request: RoutingProblem) -> NoPathError | None:
    """Return the error for circuits that a cut keeps apart, or ``None`` if no such cut is found."""
    cut = find_cut(request)
    if cut is None:
        return None
    pairs = [request.pairs[index] for index in cut.circuits]
    return NoPathError(
        f"no routes for circuits {_told(pairs)} together (proven): {cut}",
        ports=tuple(port for pair in pairs for port in pair),
        cut=cut.joints,
        hint=_hint(cut),
    )


def _hint(cut: Cut) -> str:
    excess = len(cut.circuits) - cut.capacity
    return f"Give up {excess} of them, or move an end to the other side of the cut."


def by_conflict(
    request: RoutingProblem,
    settles: Callable[[RoutingProblem], bool | None],
    found: Callable[[RoutingProblem], Sequence[WavePath] | None],
    conflicting: Callable[[RoutingProblem], Sequence[int]],
    is_over: Callable[[], bool],
) -> NoPathError:
    """Return the error for a request that CP-SAT has proven impossible: the circuits that conflict.

    Circuits are left out one by one as long as the rest is still proven impossible.

    Args:
        request: The impossible request.
        settles: Tells whether a smaller request can be met, ``None`` if that is not known.
        found: Returns the ways of a request if they are soon found.
        conflicting: Returns circuits, as indices, that are impossible together already.
        is_over: Asked before every step; when it is true, all circuits that are still left are named.
    """
    if any(limit.ceilings for limit in request.limits):
        free = replace(request, limits=tuple(RoutingLimits(exact_hops=each.exact_hops) for each in request.limits))
        if (ways := found(free)) is not None:
            return _by_ceilings(request, ways)
    core = list(conflicting(request))
    freeing: list[int] = []
    for index in tuple(core):
        if is_over():
            break
        without = [each for each in core if each != index]
        verdict = settles(only(request, without)) if without else True
        if verdict is False:
            core = without
        elif verdict:
            freeing.append(index)
    pairs = [request.pairs[index] for index in core]
    freed = [request.pairs[index] for index in core if index in freeing]
    return NoPathError(
        f"no routes for circuits {_told(pairs)} together (proven by CP-SAT)",
        ports=tuple(port for pair in pairs for port in pair),
        hint=f"Without any one of {_told(freed)} the rest of these can be routed." if freed else "Ask for fewer.",
    )


def _by_ceilings(request: RoutingProblem, ways: Sequence[WavePath]) -> NoPathError:
    """Return the error for circuits that only their ceilings keep apart, with what they take without."""
    taken = [
        f"{source}→{target}{limit} takes {len(way.pucs)} hops and {request.loss_db[list(way.pucs)].sum():.3f} dB"
        for (source, target), limit, way in zip(request.pairs, request.limits, ways, strict=True)
        if not limit.allows(way, request.loss_db)
    ]
    return NoPathError(
        f"no routes for circuits {_told(request.pairs)} together within their ceilings (proven by CP-SAT); without "
        f"ceilings, {', '.join(taken)}",
        ports=tuple(port for pair in request.pairs for port in pair),
        hint="Raise these ceilings, or ask for fewer circuits.",
    )


def undecided(
    request: RoutingProblem,
    rounds: int,
    contested: Sequence[int],
    *,
    asked: bool = True,
    time_limit_s: float | None = None,
) -> UndecidedError:
    """Return the error for a request that was neither met nor proven impossible."""
    spent = f"after {rounds} rounds" + (f" and {time_limit_s:g} s of CP-SAT" if time_limit_s is not None else "")
    where = f"; PUCs still contested: {sorted(contested)}" if contested else ""
    missing = cpsat.MISSING if asked and not cpsat.available() else "Allow more rounds or time, or ask for less."
    return UndecidedError(
        f"no conflict-free routes found for {len(request.pairs)} circuits {spent} (not proven impossible){where}",
        hint=missing,
    )


def only(request: RoutingProblem, indices: Sequence[int]) -> RoutingProblem:
    """Return the request for some of its circuits."""
    at = {index: position for position, index in enumerate(indices)}
    groups = (tuple(at[index] for index in group if index in at) for group in request.equal)
    return replace(
        request,
        pairs=tuple(request.pairs[index] for index in indices),
        limits=tuple(request.limits[index] for index in indices),
        equal=tuple(group for group in groups if len(group) > 1),
        homes={at[index]: way for index, way in request.homes.items() if index in at},
    )


def check_limits(request: RoutingProblem, paths: Sequence[Path], states: Mapping[int, State]) -> None:
    """Check traced paths against everything the request prescribes, whoever found them.

    Raises:
        VerifyError: They break a rule; nothing is handed out.
    """
    broken = [f"PUC {puc} is {state}" for puc, state in states.items() if (puc, state) in request.blocked]
    for path, limit in zip(paths, request.limits, strict=False):
        if limit.hop_ceiling is not None and path.hops > limit.hop_ceiling:
            broken.append(f"{path.hops} hops from port {path.source}")
        if limit.exact_hops is not None and path.hops != limit.exact_hops:
            broken.append(f"{path.hops} hops instead of {limit.exact_hops} from port {path.source}")
        if limit.max_loss_db is not None and path.loss_db > limit.max_loss_db + _LOSS_TOLERANCE_DB:
            broken.append(f"{path.loss_db:g} dB from port {path.source}")
    for group in request.equal:
        if len({paths[index].hops for index in group}) > 1:
            broken.append(f"unequal lengths of circuits {list(group)}")
    if broken:
        raise VerifyError("a routing does not keep what was asked", wrote="the request", read="; ".join(broken))


def _told(pairs: Sequence[tuple[int, int]]) -> str:
    named = [f"{source}→{target}" for source, target in pairs[:_MOST_NAMED]]
    more = [f"{len(pairs) - _MOST_NAMED} others"] * (len(pairs) > _MOST_NAMED)
    return ", ".join([*named, *more])
