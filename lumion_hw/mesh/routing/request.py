"""What is asked of the router, checked and turned into costs, blocked states and limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lumion_hw.errors import ConfigError, NoPathError
from lumion_hw.mesh.layout.faults import MeshFaults
from lumion_hw.mesh.layout.topology import MeshTopology, State
from lumion_hw.mesh.routing.result import Path, WavePath

STATES: tuple[State, State] = ("bar", "cross")

Ceiling = TypeVar("Ceiling", int, float)

ExactSearchPolicy = Literal["rescue", "always", "never"]
"""When constraint programming is asked: for what negotiation gives up, always, or never."""

OBJECTIVES = ("hops", "loss_db", "power_mw")
"""What a routing can be charged for: PUCs passed, their loss, and the heat of the states it sets."""

_POWER_TIE_BREAK_DB = 1e-3
"""Weight of the loss when heater power is the objective: of equally warm ways the less lossy one is taken."""

Progress = Callable[[str, int, int], None]
"""Told what is being done, the steps done and the steps there are at most."""


def no_progress(stage: str, done: int, total: int) -> None:
    """Tell nobody."""


_SHORTHAND: dict[str, dict[str, float]] = {
    "hops": {"hops": 1.0},
    "loss": {"loss_db": 1.0},
    "power": {"power_mw": 1.0, "loss_db": _POWER_TIE_BREAK_DB},
}


@dataclass(frozen=True, eq=False)
class RouteRequest:
    """What :func:`lumion_hw.mesh.routing.route` is asked for.

    Attributes:
        pairs: Source and target port of each directed circuit; every port at most once.
        objective: What to keep small: ``"loss"``, ``"hops"``, ``"power"``, or weights of ``hops``, ``loss_db`` and
            ``power_mw``. For leakage see :func:`lumion_hw.mesh.routing.leakage.route_low_crosstalk`.
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
        max_loss_db: Most loss of a path in dB, likewise.
        exact_hops: Exact number of PUCs of single circuits, by index.
        equal_hops: Groups of circuits, as indices, that must have the same number of PUCs.
        counter_propagation: Whether a pair may be asked for together with its reverse: both then run against each
            other through the same joints, and reflected and leaked light of one reaches the other's source. Circuits
            of different ports never do that in a mesh of bar and cross states.
        rounds: Rounds of negotiation before giving up.
        improve_s: Time to improve what negotiation found, by ripping up and routing again a few circuits at a time. How
            far that gets depends on the machine; with 0, the same request gives the same routing everywhere.
        exact: When to call CP-SAT, an extra: to ``"rescue"`` what negotiation gives up, ``"always"`` (also to certify
            what it found), or ``"never"``.
        time_limit_s: Time CP-SAT may take to decide.
        explain_s: Time to find the few circuits that conflict, once all together are proven impossible. When it is
            over, the error names more circuits than need be.
        workers: Threads of CP-SAT.
        progress: Called with what is being done, steps done and steps at most, when a routing is not found at once.
    """

    pairs: Sequence[tuple[int, int]]
    objective: str | Mapping[str, float] = "loss"
    puc_loss_db: ArrayLike = 0.5
    heater_power_mw: ArrayLike | None = None
    surcharge: ArrayLike = 0.0
    faults: MeshFaults = field(default_factory=MeshFaults)
    unusable: Collection[tuple[int, State]] = ()
    fixed: Mapping[int, State] = field(default_factory=dict)
    active: Sequence[Path] = ()
    move_price: float | None = None
    max_hops: int | Sequence[int | None] | None = None
    max_loss_db: float | Sequence[float | None] | None = None
    exact_hops: Mapping[int, int] = field(default_factory=dict)
    equal_hops: Sequence[Sequence[int]] = ()
    counter_propagation: bool = False
    rounds: int = 200
    improve_s: float = 0.0
    exact: ExactSearchPolicy = "rescue"
    time_limit_s: float = 10.0
    explain_s: float = 10.0
    workers: int = 1
    progress: Progress = no_progress

    def __post_init__(self) -> None:
        """Refuse what no mesh could make good.

        Raises:
            ConfigError: A price is negative, or constraint programming is to be asked at an unknown time.
        """
        if self.exact not in get_args(ExactSearchPolicy):
            raise ConfigError(f"exact={self.exact!r}", hint="Say 'rescue', 'always' or 'never'.")
        if not 0.0 <= self.improve_s < math.inf:
            raise ConfigError(f"improve_s={self.improve_s}", hint="Give a time in seconds, 0 or more.")
        if self.move_price is not None and not self.move_price >= 0.0:
            raise ConfigError(
                f"a price of {self.move_price} for moving a circuit", hint="Give 0 or more, or None for never."
            )


@dataclass(frozen=True)
class RoutingLimits:
    """What one circuit may not exceed.

    Attributes:
        max_hops: Most PUCs, or ``None``.
        max_loss_db: Most loss, or ``None``.
        exact_hops: Exactly so many PUCs, or ``None``.
    """

    max_hops: int | None = None
    max_loss_db: float | None = None
    exact_hops: int | None = None

    @property
    def any(self) -> bool:
        """Whether there is a limit at all."""
        return (self.max_hops, self.max_loss_db, self.exact_hops) != (None, None, None)

    @property
    def ceilings(self) -> bool:
        """Whether there is a ceiling."""
        return (self.max_hops, self.max_loss_db) != (None, None)

    def allows(self, way: WavePath, loss_db: NDArray[np.float64]) -> bool:
        """Return whether a way keeps the ceilings."""
        loss = float(loss_db[list(way.pucs)].sum())
        return not (
            (self.max_hops is not None and len(way.pucs) > self.max_hops)
            or (self.max_loss_db is not None and loss > self.max_loss_db + 1e-9)
        )

    @property
    def hop_ceiling(self) -> int | None:
        """Most PUCs that either limit allows."""
        given = [hops for hops in (self.max_hops, self.exact_hops) if hops is not None]
        return min(given) if given else None

    def __str__(self) -> str:
        words = [
            f" within {self.max_hops} hops" if self.max_hops is not None else "",
            f" within {self.max_loss_db:g} dB" if self.max_loss_db is not None else "",
            f" in exactly {self.exact_hops} hops" if self.exact_hops is not None else "",
        ]
        return "".join(words)


@dataclass(frozen=True, eq=False)
class RoutingProblem:
    """A checked request.

    Attributes:
        mesh: The mesh.
        pairs: Source and target port of each circuit to be routed; standing circuits that may move come last.
        pass_cost: Shape ``(n_pucs, 2)``; cost of passing a PUC in bar and in cross.
        state_cost: Shape ``(n_pucs, 2)``; cost, once, of a PUC being held in bar or in cross by any circuit.
        sunk: Cost of the circuits that stay.
        loss_db: Shape ``(n_pucs,)``; loss per PUC.
        blocked: States that may not be used.
        limits: Limits of each circuit.
        equal: Groups of circuits that must have the same number of hops, as indices.
        homes: WavePath of each circuit that may stay where it is, by index.
        move_price: Cost of taking such a circuit off its way.
        kept: Circuits that stay, with their ways.
    """

    mesh: MeshTopology
    pairs: tuple[tuple[int, int], ...]
    pass_cost: NDArray[np.float64]
    state_cost: NDArray[np.float64]
    sunk: float
    loss_db: NDArray[np.float64]
    blocked: frozenset[tuple[int, State]]
    limits: tuple[RoutingLimits, ...]
    equal: tuple[tuple[int, ...], ...]
    homes: Mapping[int, WavePath]
    move_price: float
    kept: tuple[tuple[Path, WavePath], ...]

    @property
    def ports(self) -> tuple[int, ...]:
        """All ports of all circuits to be routed."""
        return tuple(port for pair in self.pairs for port in pair)

    def cost(self, ways: Sequence[WavePath]) -> float:
        """Return what a set of ways costs, prices of moving included, circuits that stay not."""
        passed = float(sum(self.pass_cost[wave // 4, int(s == "cross")] for w in ways for wave, s in _steps(w)))
        held = {(wave // 4, int(s == "cross")) for way in ways for wave, s in _steps(way)}
        moved = sum(ways[index] != home for index, home in self.homes.items())
        return passed + float(sum(self.state_cost[key] for key in held)) + self.move_price * moved


def _steps(way: WavePath) -> Iterable[tuple[int, State]]:
    return zip(way.waves, way.states, strict=True)


def opposite_state(state: State) -> State:
    """Return the other one of the two states."""
    return "cross" if state == "bar" else "bar"


def check_ports(mesh: MeshTopology, ports: Iterable[int], faults: MeshFaults, busy: Iterable[Path] = ()) -> None:
    """Refuse ports that do not exist, have no fibre, are dead, in use, or asked for twice.

    Raises:
        NoPathError: The message and ``ports`` name the port.
    """
    seen: set[int] = set()
    taken = {port for path in busy for port in (path.source, path.target)}
    for port in ports:
        if port not in mesh.fibre_ports:
            raise NoPathError(f"port {port} has no fibre", ports=(port,), hint="Choose one of the mesh's fibre ports.")
        if port in faults.dead_ports:
            raise NoPathError(f"port {port} is dead", ports=(port,), hint="Choose a port that is not.")
        if port in seen:
            raise NoPathError(f"port {port} is asked for twice", ports=(port,), hint="A port carries one circuit.")
        if port in taken:
            raise NoPathError(f"port {port} belongs to a standing circuit", ports=(port,), hint="End that one first.")
        seen.add(port)


def losses_db(mesh: MeshTopology, puc_loss_db: ArrayLike) -> NDArray[np.float64]:
    """Return the loss of every PUC, or refuse what is no loss: a gain would make light go round for ever.

    Raises:
        ConfigError: A loss is negative or not a number, or there are too few.
    """
    loss = np.asarray(puc_loss_db, dtype=np.float64)
    if loss.shape not in ((), (mesh.n_pucs,)) or not np.all((loss >= 0) & np.isfinite(loss)):
        raise ConfigError(
            f"PUC losses of shape {loss.shape} from {loss.min(initial=np.inf):g} dB cannot be weights",
            hint=f"Give one finite number, or {mesh.n_pucs} of them, none negative.",
        )
    return np.broadcast_to(loss, (mesh.n_pucs,))


def check_states(mesh: MeshTopology, given: Iterable[tuple[int, State]]) -> None:
    """Refuse PUCs that do not exist and states other than bar and cross.

    Raises:
        ConfigError: The message names the PUC.
    """
    for puc, state in given:
        if not 0 <= puc < mesh.n_pucs or state not in STATES:
            raise ConfigError(
                f"PUC {puc} cannot be {state!r}",
                hint=f"This mesh has PUCs 0 to {mesh.n_pucs - 1}; a state is 'bar' or 'cross'.",
            )


def costs(
    objective: str | Mapping[str, float],
    loss_db: NDArray[np.float64],
    heater_power_mw: ArrayLike | None,
    surcharge: ArrayLike = 0.0,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the cost of passing each PUC in each state, and of holding it there, both of shape ``(n_pucs, 2)``.

    Raises:
        ConfigError: The objective is unknown or negative, or heater powers or surcharges are missing or none.
    """
    weights = _SHORTHAND.get(objective) if isinstance(objective, str) else objective
    if not weights or set(weights) - set(OBJECTIVES) or any(not weight >= 0.0 for weight in weights.values()):
        raise ConfigError(
            f"{objective!r} is no objective",
            hint=f"Say {', '.join(map(repr, _SHORTHAND))}, or weights of {', '.join(OBJECTIVES)}, none negative.",
        )
    passing = np.repeat((weights.get("hops", 0.0) + weights.get("loss_db", 0.0) * loss_db)[:, None], 2, axis=1)
    holding = np.zeros_like(passing)
    if weight := weights.get("power_mw", 0.0):
        power = np.asarray(np.nan if heater_power_mw is None else heater_power_mw, dtype=np.float64)
        if power.shape != passing.shape or not np.all((power >= 0.0) & np.isfinite(power)):
            raise ConfigError(
                f"heater powers of shape {power.shape} cannot be an objective",
                hint=f"Give heater_power_mw of shape {passing.shape}: bar and cross of every PUC, none negative.",
            )
        # A PUC that no circuit uses is parked in its cooler state, so a circuit costs what it adds to that.
        holding = weight * (power - power.min(axis=1, keepdims=True))
    extra = np.asarray(surcharge, dtype=np.float64)
    if extra.shape not in ((), passing.shape) or not np.all((extra >= 0.0) & np.isfinite(extra)):
        raise ConfigError(
            f"surcharges of shape {extra.shape} cannot be costs",
            hint=f"Give one finite number, or shape {passing.shape}, none negative.",
        )
    return passing + extra, holding


def ceilings(n_pairs: int, given: Ceiling | Sequence[Ceiling | None] | None, what: str) -> list[Ceiling | None]:
    """Return the ceiling of each circuit from one number for all, one per circuit, or none.

    Raises:
        ConfigError: There is not one for each circuit, or one is not a number.
    """
    each = list(given) if isinstance(given, Sequence) else [given] * n_pairs
    if len(each) != n_pairs:
        raise ConfigError(f"{len(each)} {what} ceilings do not fit {n_pairs} circuits", hint="Give one for each.")
    if wrong := [ceiling for ceiling in each if ceiling is not None and not 0 <= ceiling < math.inf]:
        raise ConfigError(f"a {what} ceiling of {wrong[0]}", hint="Give a number of 0 or more, or None for none.")
    return each


def limits_of(
    n_pairs: int,
    max_hops: int | Sequence[int | None] | None,
    max_loss_db: float | Sequence[float | None] | None,
    exact_hops: Mapping[int, int],
) -> tuple[RoutingLimits, ...]:
    """Return the limits of each circuit.

    Raises:
        ConfigError: There is not one ceiling for each circuit, or an exact length belongs to none.
    """
    if any(not 0 <= index < n_pairs for index in exact_hops):
        raise ConfigError(
            f"exact lengths for circuits {sorted(exact_hops)} do not fit {n_pairs} circuits",
            hint="Circuits count from 0 in the order of the request.",
        )
    most = zip(ceilings(n_pairs, max_hops, "hop"), ceilings(n_pairs, max_loss_db, "loss"), strict=True)
    return tuple(RoutingLimits(hops, loss, exact_hops.get(index)) for index, (hops, loss) in enumerate(most))


def check_parities(mesh: MeshTopology, pairs: Sequence[tuple[int, int]], limits: Sequence[RoutingLimits]) -> None:
    """Refuse exact lengths of the wrong parity or below the shortest way (docs/mesh.md#routes).

    Raises:
        NoPathError: The message says which lengths there are.
    """
    for (source, target), limit in zip(pairs, limits, strict=True):
        if limit.exact_hops is None:
            continue
        parity, shortest = mesh.port_parity(source, target), int(mesh.shortest_hops[source, target])
        if limit.exact_hops < shortest or (parity is not None and limit.exact_hops % 2 != parity):
            more = "more" if parity is None else "an even number more"
            raise NoPathError(
                f"no path from port {source} to port {target} has {limit.exact_hops} hops (proven): every one has "
                f"{shortest} or {more}",
                ports=(source, target),
                hint="Choose a length of that parity, or another port.",
            )


def check_groups(mesh: MeshTopology, pairs: Sequence[tuple[int, int]], equal: Sequence[Sequence[int]]) -> None:
    """Refuse groups of circuits that cannot have equal lengths.

    Raises:
        ConfigError: A group names a circuit that there is not, or a circuit is in two groups.
        NoPathError: Two circuits of a group differ in parity; the message names them.
    """
    for group in equal:
        parities = {index: mesh.port_parity(*pairs[index]) for index in group}
        odd = [pairs[index] for index, parity in parities.items() if parity == 1]
        even = [pairs[index] for index, parity in parities.items() if parity == 0]
        if odd and even:
            raise NoPathError(
                f"ports {odd[0][0]} to {odd[0][1]} are an odd number of hops apart on every path, {even[0][0]} to "
                f"{even[0][1]} an even one: their lengths cannot be equal (proven by parity)",
                ports=(*odd[0], *even[0]),
                hint="Exchange one port for its neighbour on the rim of the other colour.",
            )


def problem_for(mesh: MeshTopology, request: RouteRequest) -> RoutingProblem:
    """Return the problem of a request, without its standing circuits; its ports have been checked, reverses folded.

    Raises:
        ConfigError: The request is wrong.
        NoPathError: Lengths that parity forbids are asked for.
    """
    request.faults.check(mesh)
    refused = {*request.unusable, *request.faults.unusable_states()}
    check_states(mesh, {*refused, *request.fixed.items()})
    loss = losses_db(mesh, request.puc_loss_db) + request.faults.loss_db(mesh)
    passing, holding = costs(request.objective, loss, request.heater_power_mw, request.surcharge)
    limits = limits_of(len(request.pairs), request.max_hops, request.max_loss_db, request.exact_hops)
    check_parities(mesh, request.pairs, limits)
    check_groups(mesh, request.pairs, request.equal_hops)
    return RoutingProblem(
        mesh=mesh,
        pairs=tuple((int(source), int(target)) for source, target in request.pairs),
        pass_cost=passing,
        state_cost=holding,
        sunk=0.0,
        loss_db=loss,
        # A PUC that has to keep its state is one whose other state is closed.
        blocked=frozenset(refused) | {(puc, opposite_state(state)) for puc, state in request.fixed.items()},
        limits=limits,
        equal=tuple(tuple(group) for group in request.equal_hops if len(group) > 1),
        homes={},
        move_price=request.move_price or 0.0,
        kept=(),
    )
