"""Routing requests and their conversion to costs, blocked states and limits."""

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
"""When constraint programming is used: only if negotiation fails (``"rescue"``), always, or never."""

OBJECTIVES = ("hops", "loss_db", "power_mw")
"""Quantities that can be minimised: number of PUCs, loss, and heater power of the PUC states."""

_POWER_TIE_BREAK_DB = 1e-3
"""Weight of the loss when heater power is minimised; decides between paths of equal heater power."""

Progress = Callable[[str, int, int], None]
"""Progress callback: name of the stage, steps done, maximum number of steps."""


def no_progress(stage: str, done: int, total: int) -> None:
    """Progress callback that ignores all reports."""


_SHORTHAND: dict[str, dict[str, float]] = {
    "hops": {"hops": 1.0},
    "loss": {"loss_db": 1.0},
    "power": {"power_mw": 1.0, "loss_db": _POWER_TIE_BREAK_DB},
}


@dataclass(frozen=True, eq=False)
class RouteRequest:
    """A request to :func:`lumion_hw.mesh.routing.route`.

    Attributes:
        pairs: Source and target port of each directed circuit; each port at most once.
        objective: Quantity to minimise: ``"loss"``, ``"hops"``, ``"power"``, or weights of ``hops``, ``loss_db`` and
            ``power_mw``.
        puc_loss_db: Loss per PUC in dB, one number or shape ``(n_pucs,)``; excess losses of ``faults`` are added.
        heater_power_mw: Shape ``(n_pucs, 2)``; heater power of each PUC in bar and in cross, for the power objective.
        surcharge: Extra cost of passing each PUC in bar and in cross, any shape that broadcasts to ``(n_pucs, 2)``.
        faults: Known faults of the mesh.
        unusable: ``(puc, state)`` pairs that must not be used, in addition to those that ``faults`` excludes.
        fixed: States that are set and must not change; circuits may pass PUCs in these states.
        active: Circuits that are already active, as returned by a routing of this mesh.
        move_price: Cost of moving one active circuit to another path, in the unit of the objective; ``None`` if active
            circuits must not move.
        max_hops: Largest number of PUCs on a path: one number, or one per circuit (``None``: no limit).
        max_loss_db: Largest loss of a path in dB: one number, or one per circuit.
        exact_hops: Required number of PUCs of single circuits, by index.
        equal_hops: Groups of circuits (indices) that must have the same number of PUCs.
        counter_propagation: Whether a pair and its reverse may be requested together. Light then runs in both
            directions through the same waveguides, and reflected light of one circuit reaches the source of the other.
        rounds: Largest number of negotiation rounds.
        improve_s: Time for improving a routing. With 0, the same request always gives the same routing; otherwise the
            result depends on the speed of the machine.
        exact_search: When to use CP-SAT (optional): ``"rescue"`` if negotiation fails, ``"always"`` also to certify
            the result of negotiation, or ``"never"``.
        time_limit_s: Time limit of CP-SAT.
        explain_s: Time limit for finding out which circuits conflict in an impossible request. If it is too short, the
            error names more circuits than necessary.
        workers: Number of CP-SAT threads.
        progress: Called with stage, steps done and maximum number of steps, in long searches.
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
    exact_search: ExactSearchPolicy = "rescue"
    time_limit_s: float = 10.0
    explain_s: float = 10.0
    workers: int = 1
    progress: Progress = no_progress

    def __post_init__(self) -> None:
        """Check the request.

        Raises:
            ConfigError: A price or time is negative, or ``exact_search`` has an unknown value.
        """
        if self.exact_search not in get_args(ExactSearchPolicy):
            raise ConfigError(
                f"unknown value exact_search={self.exact_search!r}", hint="Give 'rescue', 'always' or 'never'."
            )
        if not 0.0 <= self.improve_s < math.inf:
            raise ConfigError(f"improve_s cannot be {self.improve_s}", hint="Give a time in seconds, 0 or more.")
        if self.move_price is not None and not self.move_price >= 0.0:
            raise ConfigError(
                f"move_price cannot be {self.move_price}", hint="Give 0 or more, or None if circuits must not move."
            )


@dataclass(frozen=True)
class RoutingLimits:
    """Limits of hops and loss for one circuit; ``None`` for no limit.

    Attributes:
        max_hops: Largest number of PUCs.
        exact_hops: Required number of PUCs.
    """

    max_hops: int | None = None
    max_loss_db: float | None = None
    exact_hops: int | None = None

    @property
    def any(self) -> bool:
        """Whether the circuit has any limit of hops or loss."""
        return (self.max_hops, self.max_loss_db, self.exact_hops) != (None, None, None)

    @property
    def ceilings(self) -> bool:
        """Whether the circuit has an upper limit of hops or loss."""
        return (self.max_hops, self.max_loss_db) != (None, None)

    def allows(self, wave_path: WavePath, loss_db: NDArray[np.float64]) -> bool:
        """Return whether a path meets the upper limits of hops and loss."""
        loss = float(loss_db[list(wave_path.pucs)].sum())
        return not (
            (self.max_hops is not None and len(wave_path.pucs) > self.max_hops)
            # The search sums the same losses in another order: a path exactly at the limit must pass here, too.
            or (self.max_loss_db is not None and loss > self.max_loss_db + 1e-9)
        )

    @property
    def hop_ceiling(self) -> int | None:
        """Largest number of PUCs that the limits allow."""
        hop_limits = [hops for hops in (self.max_hops, self.exact_hops) if hops is not None]
        return min(hop_limits) if hop_limits else None

    def __str__(self) -> str:
        limits = [
            f" within {self.max_hops} hops" if self.max_hops is not None else "",
            f" within {self.max_loss_db:g} dB" if self.max_loss_db is not None else "",
            f" in exactly {self.exact_hops} hops" if self.exact_hops is not None else "",
        ]
        return "".join(limits)


@dataclass(frozen=True, eq=False)
class RoutingProblem:
    """A checked routing request, converted to costs and constraints.

    Attributes:
        pairs: Source and target port of each circuit to route; active circuits that may move come last.
        pass_cost: Shape ``(n_pucs, 2)``; cost of passing a PUC in bar and in cross.
        state_cost: Shape ``(n_pucs, 2)``; cost of setting a PUC to bar or cross, counted once for all circuits.
        staying_cost: Cost of the active circuits that stay on their paths.
        loss_db: Shape ``(n_pucs,)``; loss per PUC.
        blocked: PUC states that must not be used.
        equal: Groups of circuits (indices) that must have the same number of hops.
        current_paths: Current path of each active circuit that may move, by index.
        move_price: Cost of moving an active circuit.
        staying: Active circuits that must stay, with their paths.
        disjoint: Whether circuits may not share a PUC; only for meshes whose light passes each PUC once.
    """

    mesh: MeshTopology
    pairs: tuple[tuple[int, int], ...]
    pass_cost: NDArray[np.float64]
    state_cost: NDArray[np.float64]
    staying_cost: float
    loss_db: NDArray[np.float64]
    blocked: frozenset[tuple[int, State]]
    limits: tuple[RoutingLimits, ...]
    equal: tuple[tuple[int, ...], ...]
    current_paths: Mapping[int, WavePath]
    move_price: float
    staying: tuple[tuple[Path, WavePath], ...]
    disjoint: bool = False

    @property
    def ports(self) -> tuple[int, ...]:
        """All ports of the circuits to route."""
        return tuple(port for pair in self.pairs for port in pair)

    def cost(self, wave_paths: Sequence[WavePath]) -> float:
        """Return the cost of the paths of all routed circuits, including the price for moving active ones."""
        passed = float(sum(self.pass_cost[wave // 4, int(s == "cross")] for w in wave_paths for wave, s in _steps(w)))
        used_states = {(wave // 4, int(s == "cross")) for wave_path in wave_paths for wave, s in _steps(wave_path)}
        moved = sum(wave_paths[index] != home for index, home in self.current_paths.items())
        return passed + float(sum(self.state_cost[key] for key in used_states)) + self.move_price * moved


def _steps(wave_path: WavePath) -> Iterable[tuple[int, State]]:
    return zip(wave_path.waves, wave_path.states, strict=True)


def opposite_state(state: State) -> State:
    """Return the opposite state of ``bar`` or ``cross``."""
    return "cross" if state == "bar" else "bar"


def check_ports(mesh: MeshTopology, ports: Iterable[int], faults: MeshFaults, busy: Iterable[Path] = ()) -> None:
    """Check the ports of a request.

    Raises:
        NoPathError: A port does not exist, has no fibre, is dead, in use, or requested twice; the message and ``ports``
            name it.
    """
    used: set[int] = set()
    used_ports = {port for path in busy for port in (path.source, path.target)}
    for port in ports:
        if port not in mesh.fibre_ports:
            raise NoPathError(f"port {port} has no fibre", ports=(port,), hint="Use a port with a fibre.")
        if port in faults.dead_ports:
            raise NoPathError(f"port {port} is dead", ports=(port,), hint="Use another port.")
        if port in used:
            raise NoPathError(
                f"port {port} is requested twice", ports=(port,), hint="Use each port for one circuit only."
            )
        if port in used_ports:
            raise NoPathError(
                f"port {port} is used by an active circuit", ports=(port,), hint="Remove that circuit first."
            )
        used.add(port)


def losses_db(mesh: MeshTopology, puc_loss_db: ArrayLike) -> NDArray[np.float64]:
    """Check the PUC losses and return one per PUC.

    Raises:
        ConfigError: A loss is negative or not a finite number, or the shape is wrong.
    """
    loss = np.asarray(puc_loss_db, dtype=np.float64)
    if loss.shape not in ((), (mesh.n_pucs,)) or not np.all((loss >= 0) & np.isfinite(loss)):
        raise ConfigError(
            f"PUC losses of shape {loss.shape} with minimum {loss.min(initial=np.inf):g} dB are not valid",
            hint=f"Give one finite number or {mesh.n_pucs} finite numbers, none negative.",
        )
    return np.broadcast_to(loss, (mesh.n_pucs,))


def check_states(mesh: MeshTopology, states: Iterable[tuple[int, State]]) -> None:
    """Raise ``ConfigError`` if a PUC does not exist, or a state is neither bar nor cross."""
    for puc, state in states:
        if not 0 <= puc < mesh.n_pucs or state not in STATES:
            raise ConfigError(
                f"PUC {puc} cannot be in state {state!r}",
                hint=f"This mesh has PUCs 0 to {mesh.n_pucs - 1}; a state is 'bar' or 'cross'.",
            )


def costs(
    objective: str | Mapping[str, float],
    loss_db: NDArray[np.float64],
    heater_power_mw: ArrayLike | None,
    surcharge: ArrayLike = 0.0,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the cost of passing each PUC, and of setting it, in bar and in cross; both of shape ``(n_pucs, 2)``.

    Raises:
        ConfigError: The objective is unknown or negative, or heater powers or surcharges are missing or invalid.
    """
    weights = _SHORTHAND.get(objective) if isinstance(objective, str) else objective
    if not weights or set(weights) - set(OBJECTIVES) or any(not weight >= 0.0 for weight in weights.values()):
        raise ConfigError(
            f"unknown objective {objective!r}",
            hint=f"Give {', '.join(map(repr, _SHORTHAND))}, or weights of {', '.join(OBJECTIVES)}, none negative.",
        )
    passing = np.repeat((weights.get("hops", 0.0) + weights.get("loss_db", 0.0) * loss_db)[:, None], 2, axis=1)
    holding = np.zeros_like(passing)
    if weight := weights.get("power_mw", 0.0):
        power = np.asarray(np.nan if heater_power_mw is None else heater_power_mw, dtype=np.float64)
        if power.shape != passing.shape or not np.all((power >= 0.0) & np.isfinite(power)):
            raise ConfigError(
                f"the power objective needs valid heater powers, not an array of shape {power.shape}",
                hint=f"Give heater_power_mw of shape {passing.shape}: bar and cross of every PUC, none negative.",
            )
        # Unused PUCs are parked in their cooler state, so a circuit costs only the additional power.
        holding = weight * (power - power.min(axis=1, keepdims=True))
    extra = np.asarray(surcharge, dtype=np.float64)
    if extra.shape not in ((), passing.shape) or not np.all((extra >= 0.0) & np.isfinite(extra)):
        raise ConfigError(
            f"surcharges of shape {extra.shape} are not valid",
            hint=f"Give one finite number, or shape {passing.shape}, none negative.",
        )
    return passing + extra, holding


def ceilings(n_pairs: int, limits: Ceiling | Sequence[Ceiling | None] | None, quantity: str) -> list[Ceiling | None]:
    """Return one upper limit per circuit.

    ``limits`` is one number for all circuits, one per circuit, or ``None`` for no limit.

    Raises:
        ConfigError: The number of limits is wrong, or a limit is not a number of 0 or more.
    """
    per_circuit = list(limits) if isinstance(limits, Sequence) else [limits] * n_pairs
    if len(per_circuit) != n_pairs:
        raise ConfigError(
            f"{len(per_circuit)} {quantity} limits do not match {n_pairs} circuits",
            hint="Give one limit for all circuits, or one per circuit.",
        )
    if invalid := [ceiling for ceiling in per_circuit if ceiling is not None and not 0 <= ceiling < math.inf]:
        raise ConfigError(
            f"the {quantity} limit of a circuit cannot be {invalid[0]}",
            hint="Give a number of 0 or more, or None for no limit.",
        )
    return per_circuit


def circuit_limits(
    n_pairs: int,
    max_hops: int | Sequence[int | None] | None,
    max_loss_db: float | Sequence[float | None] | None,
    exact_hops: Mapping[int, int],
) -> tuple[RoutingLimits, ...]:
    """Return the limits of hops and loss of each circuit.

    Raises:
        ConfigError: The number of limits is wrong, or a required number of hops is given for a circuit that does not
            exist.
    """
    if any(not 0 <= index < n_pairs for index in exact_hops):
        raise ConfigError(
            f"exact lengths for circuits {sorted(exact_hops)} do not match the {n_pairs} circuits",
            hint="Number circuits from 0 in the order of the request.",
        )
    ceiling_pairs = zip(ceilings(n_pairs, max_hops, "hop"), ceilings(n_pairs, max_loss_db, "loss"), strict=True)
    return tuple(RoutingLimits(hops, loss, exact_hops.get(index)) for index, (hops, loss) in enumerate(ceiling_pairs))


def check_parities(mesh: MeshTopology, pairs: Sequence[tuple[int, int]], limits: Sequence[RoutingLimits]) -> None:
    """Check that the required numbers of hops are possible (docs/mesh.md#routes).

    Raises:
        NoPathError: A number has the wrong parity, or is below the shortest path; the message states which are
            possible.
    """
    for (source, target), limit in zip(pairs, limits, strict=True):
        if limit.exact_hops is None:
            continue
        parity, shortest = mesh.port_parity(source, target), int(mesh.shortest_hops[source, target])
        if limit.exact_hops < shortest or (parity is not None and limit.exact_hops % 2 != parity):
            more = "more" if parity is None else "an even number more"
            raise NoPathError(
                f"no path from port {source} to port {target} has {limit.exact_hops} hops (proven): every path has "
                f"{shortest} or {more}",
                ports=(source, target),
                hint="Use a possible length, or another port.",
            )


def check_groups(mesh: MeshTopology, pairs: Sequence[tuple[int, int]], equal: Sequence[Sequence[int]]) -> None:
    """Check groups of circuits that must have equal lengths.

    Raises:
        ConfigError: A group names a circuit that does not exist, or a circuit is in two groups.
        NoPathError: Two circuits of a group cannot have equal lengths because of their parity; the message names them.
    """
    for group in equal:
        parities = {index: mesh.port_parity(*pairs[index]) for index in group}
        odd_pairs = [pairs[index] for index, parity in parities.items() if parity == 1]
        even_pairs = [pairs[index] for index, parity in parities.items() if parity == 0]
        if odd_pairs and even_pairs:
            raise NoPathError(
                f"every path from port {odd_pairs[0][0]} to {odd_pairs[0][1]} has an odd number of hops, "
                f"and every path from {even_pairs[0][0]} to {even_pairs[0][1]} an even number: "
                "their lengths cannot be equal (proven by parity)",
                ports=(*odd_pairs[0], *even_pairs[0]),
                hint="Replace one port by a neighbouring port at another corner of the rim.",
            )


def problem_for(mesh: MeshTopology, request: RouteRequest) -> RoutingProblem:
    """Convert a request to a routing problem, without its active circuits.

    Check the ports and merge reverse pairs first.

    Raises:
        ConfigError: The request is invalid.
        NoPathError: A required number of hops is impossible because of parity.
    """
    request.faults.check(mesh)
    blocked = {*request.unusable, *request.faults.unusable_states()}
    check_states(mesh, {*blocked, *request.fixed.items()})
    loss = losses_db(mesh, request.puc_loss_db) + request.faults.loss_db(mesh)
    passing, holding = costs(request.objective, loss, request.heater_power_mw, request.surcharge)
    limits = circuit_limits(len(request.pairs), request.max_hops, request.max_loss_db, request.exact_hops)
    check_parities(mesh, request.pairs, limits)
    check_groups(mesh, request.pairs, request.equal_hops)
    return RoutingProblem(
        mesh=mesh,
        pairs=tuple((int(source), int(target)) for source, target in request.pairs),
        pass_cost=passing,
        state_cost=holding,
        staying_cost=0.0,
        loss_db=loss,
        # Fixing a state means blocking the opposite state.
        blocked=frozenset(blocked) | {(puc, opposite_state(state)) for puc, state in request.fixed.items()},
        limits=limits,
        equal=tuple(tuple(group) for group in request.equal_hops if len(group) > 1),
        current_paths={},
        move_price=request.move_price or 0.0,
        staying=(),
    )
