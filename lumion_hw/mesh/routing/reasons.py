"""Explain why a routing request failed, and check routings that were found."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from lumion_hw.errors import NoPathError, UndecidedError, VerifyError
from lumion_hw.mesh.layout.topology import State
from lumion_hw.mesh.routing import cpsat
from lumion_hw.mesh.routing.cuts import Cut, find_cut
from lumion_hw.mesh.routing.request import RoutingLimits, RoutingProblem
from lumion_hw.mesh.routing.result import Path, WavePath
from lumion_hw.mesh.routing.scarcity import LARGE_PROBLEM_UNKNOWNS, find_scarcity
from lumion_hw.mesh.routing.search import Prices, Search, SearchBudgetExceeded

# CP-SAT rounds losses to 1 µdB per PUC, which adds up along a path.
_LOSS_TOLERANCE_DB = 1e-4
_MAX_NAMED = 16
"""Largest number of circuits that a message names."""


def no_path_error(request: RoutingProblem, index: int) -> NoPathError:
    """Return the error for a circuit that has no path even without other circuits."""
    source, target = request.pairs[index]
    cut = find_cut(for_circuits(request, [index]))
    blocked = f" with {len(request.blocked)} blocked PUC states" if request.blocked else ""
    n_active = len(request.staying)
    blocked += f" and {n_active} active circuit{'s' if n_active > 1 else ''}" if n_active else ""
    where = f": {cut}" if cut else ""
    nearest = _nearest(for_circuits(request, [index]))
    if nearest:
        where += f"; possible with {' or '.join(nearest)}"
    return NoPathError(
        f"no path from port {source} to port {target}{request.limits[index]}{blocked} (proven){where}",
        ports=(source, target),
        cut=cut.joints if cut else (),
        hint="Free a blocked PUC, raise the limit or use another port."
        if not request.staying
        else "Remove an active circuit or use another port.",
    )


def _nearest(single_problem: RoutingProblem) -> list[str]:
    limit = single_problem.limits[0]
    weights = {"max_hops": np.ones(single_problem.mesh.n_pucs), "max_loss_db": single_problem.loss_db}
    possible = []
    for ceiling, weight in weights.items():
        if getattr(limit, ceiling) is None:
            continue
        relaxed = replace(
            single_problem,
            limits=(replace(limit, **{ceiling: None}),),
            pass_cost=np.repeat(weight[:, None], 2, axis=1),
            state_cost=np.zeros_like(single_problem.state_cost),
        )
        try:
            find_paths = Search(relaxed, Prices(relaxed)).cheapest_path(0)
        except SearchBudgetExceeded:
            continue
        if find_paths is not None:
            # Rounded up, so that a request with this value succeeds.
            # Less 1e-6, or the rounding error of the sum would add a whole step.
            possible.append(f"{ceiling}={math.ceil(find_paths[0] * 1e3 - 1e-6) / 1e3:g}")
    return possible


def raise_if_scarce(
    request: RoutingProblem, contested: Collection[int], max_unknowns: int = LARGE_PROBLEM_UNKNOWNS
) -> None:
    """Raise an error if there are provably too few PUCs near ``contested``, over which circuits conflict.

    Raises:
        NoPathError: The request is impossible.
    """
    scarcity = find_scarcity(request, contested, max_unknowns)
    if scarcity is None:
        return
    # A cut names joints, which is a better explanation if there is one.
    if cut := cut_error(for_circuits(request, scarcity.circuits)):
        raise cut
    pairs = [request.pairs[index] for index in scarcity.circuits]
    raise NoPathError(
        f"circuits {_circuit_names(pairs)} cannot all be routed at the same time. Proof: they need more room than PUCs "
        f"{', '.join(map(str, scarcity.pucs))} offer",
        ports=tuple(port for pair in pairs for port in pair),
        hint="Remove one of these circuits, or move one of its ends to another port.",
    )


def cut_error(request: RoutingProblem) -> NoPathError | None:
    """Return the error for circuits that must cross a line with too few waveguides, or ``None`` if none was found."""
    cut = find_cut(request)
    if cut is None:
        return None
    pairs = [request.pairs[index] for index in cut.circuits]
    return NoPathError(
        f"circuits {_circuit_names(pairs)} cannot all be routed at the same time. Proof: {cut}",
        ports=tuple(port for pair in pairs for port in pair),
        cut=cut.joints,
        hint=_hint(cut),
    )


def _hint(cut: Cut) -> str:
    excess = len(cut.circuits) - cut.capacity
    return f"Remove {excess} of these circuits, or move an end to the other side of the cut."


def conflict_error(
    request: RoutingProblem,
    is_solvable: Callable[[RoutingProblem], bool | None],
    find_paths: Callable[[RoutingProblem], Sequence[WavePath] | None],
    conflicting: Callable[[RoutingProblem], Sequence[int]],
    is_over: Callable[[], bool],
) -> NoPathError:
    """Return the error for a request that is proven impossible, naming the circuits that conflict.

    Args:
        request: The impossible routing problem.
        is_solvable: Returns whether a smaller problem can be solved; ``None`` if unknown.
        find_paths: Returns the paths of a problem if they are found quickly.
        conflicting: Returns the indices of circuits that are impossible together.
        is_over: Returns whether to stop; the error may then name more circuits than necessary.
    """
    if any(limit.ceilings for limit in request.limits):
        # If the circuits fit without the limits, the limits are the reason, and the message can say what is needed.
        free = replace(request, limits=tuple(RoutingLimits(exact_hops=limit.exact_hops) for limit in request.limits))
        if (wave_paths := find_paths(free)) is not None:
            return _ceilings_error(request, wave_paths)
    # The set from CP-SAT need not be the smallest, so try to leave out each circuit once.
    core = list(conflicting(request))
    removable_indices: list[int] = []
    for index in tuple(core):
        if is_over():
            break
        without = [other for other in core if other != index]
        verdict = is_solvable(for_circuits(request, without)) if without else True
        if verdict is False:
            core = without
        elif verdict:
            removable_indices.append(index)
    pairs = [request.pairs[index] for index in core]
    removable = [request.pairs[index] for index in core if index in removable_indices]
    return NoPathError(
        f"circuits {_circuit_names(pairs)} cannot all be routed at the same time (proven by CP-SAT)",
        ports=tuple(port for pair in pairs for port in pair),
        hint=f"Remove one of {_circuit_names(removable)}; the others can then be routed."
        if removable
        else "Request fewer circuits.",
    )


def _ceilings_error(request: RoutingProblem, wave_paths: Sequence[WavePath]) -> NoPathError:
    needs = [
        f"{source}→{target}{limit} needs {len(wave_path.pucs)} hops and "
        f"{request.loss_db[list(wave_path.pucs)].sum():.3f} dB"
        for (source, target), limit, wave_path in zip(request.pairs, request.limits, wave_paths, strict=True)
        if not limit.allows(wave_path, request.loss_db)
    ]
    return NoPathError(
        f"circuits {_circuit_names(request.pairs)} cannot all be routed within their limits (proven by CP-SAT). "
        f"Without limits, {', '.join(needs)}",
        ports=tuple(port for pair in request.pairs for port in pair),
        hint="Raise the limits of these circuits, or request fewer circuits.",
    )


def undecided_error(
    request: RoutingProblem,
    rounds: int,
    contested: Sequence[int],
    *,
    may_use_cpsat: bool = True,
    time_limit_s: float | None = None,
) -> UndecidedError:
    """Return the error for a request that was neither routed nor proven impossible."""
    effort = f"after {rounds} rounds" + (f" and {time_limit_s:g} s of CP-SAT" if time_limit_s is not None else "")
    where = f"; PUCs still contested: {sorted(contested)}" if contested else ""
    missing = (
        cpsat.MISSING
        if may_use_cpsat and not cpsat.is_available()
        else "Allow more rounds or time, or request fewer circuits."
    )
    return UndecidedError(
        f"no conflict-free routes found for {len(request.pairs)} circuits {effort} (not proven impossible){where}",
        hint=missing,
    )


def for_circuits(request: RoutingProblem, indices: Sequence[int]) -> RoutingProblem:
    """Return the routing problem restricted to some of its circuits."""
    new_index = {index: position for position, index in enumerate(indices)}
    groups = (tuple(new_index[index] for index in group if index in new_index) for group in request.equal)
    return replace(
        request,
        pairs=tuple(request.pairs[index] for index in indices),
        limits=tuple(request.limits[index] for index in indices),
        equal=tuple(group for group in groups if len(group) > 1),
        current_paths={
            new_index[index]: wave_path for index, wave_path in request.current_paths.items() if index in new_index
        },
    )


def check_limits(request: RoutingProblem, paths: Sequence[Path], states: Mapping[int, State]) -> None:
    """Check traced paths against all limits of the request.

    Raises:
        VerifyError: A path breaks a limit.
    """
    # If circuits may not share PUCs, both states are blocked in every PUC of an active circuit.
    held = {puc for path, _ in request.staying for puc in path.pucs} if request.disjoint else set[int]()
    broken = [
        f"PUC {puc} is {state}" for puc, state in states.items() if puc not in held and (puc, state) in request.blocked
    ]
    if request.disjoint:
        # Circuits that stay come last. They may share PUCs with each other.
        passed = Counter(puc for path in paths[: len(request.pairs)] for puc in set(path.pucs))
        broken += [f"PUC {puc} is shared" for puc, count in passed.items() if count > 1 or puc in held]
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
        raise VerifyError("the routing found violates the limits", wrote="the request", read="; ".join(broken))


def _circuit_names(pairs: Sequence[tuple[int, int]]) -> str:
    named = [f"{source}→{target}" for source, target in pairs[:_MAX_NAMED]]
    more = [f"{len(pairs) - _MAX_NAMED} others"] * (len(pairs) > _MAX_NAMED)
    return ", ".join([*named, *more])
