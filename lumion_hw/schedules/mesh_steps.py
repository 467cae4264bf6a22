"""Schedules on a mesh: each round is routed and checked by tracing its light, and split if it has no routes."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations

from numpy.typing import ArrayLike

from lumion_hw.errors import ConfigError, NoPathError, RoutingError, UndecidedError
from lumion_hw.mesh.layout.faults import MeshFaults
from lumion_hw.mesh.layout.topology import MeshTopology, State
from lumion_hw.mesh.routing import Path, RouteRequest, Routing, route, states_for_paths
from lumion_hw.schedules.packing import Packer, Unit
from lumion_hw.schedules.schedule import Circuits, Schedule, ScheduleRound

_EXACT_UNITS = 8
"""Largest number of circuits in a round for which the fewest settings are searched exactly."""
_PACKINGS, _PUSHES = 4, 100
"""Number of random orders in which circuits are combined, and of attempts per order to save one mesh setting."""
_RELABELLINGS = 60
"""Number of assignments of ranks to ports that are tried."""


@dataclass(frozen=True)
class MeshStep:
    """One setting of the mesh.

    Attributes:
        number: Number of the schedule's round to which this setting belongs.
        circuits: Circuits of the setting, between ranks.
        routing: Paths of the circuits in the same order, and the state of every PUC in use.
        kept: Circuits that continue on the same path; all others are dark while this setting is programmed.
    """

    number: int
    circuits: Circuits
    routing: Routing
    kept: frozenset[tuple[int, int]]


@dataclass(frozen=True)
class MeshSchedule:
    """A schedule as a sequence of mesh settings.

    Attributes:
        steps: The mesh settings, in order.
        min_extra: Proven minimum of the number of extra settings, beyond one per round.
    """

    steps: tuple[MeshStep, ...]
    rounds: int
    min_extra: int

    @property
    def extra(self) -> int:
        """Number of mesh settings beyond one per round of the schedule."""
        return len(self.steps) - self.rounds

    @property
    def longest_hops(self) -> int:
        """Number of PUCs on the longest path of all steps."""
        return max((path.hops for step in self.steps for path in step.routing.paths), default=0)

    @cached_property
    def rerouted(self) -> int:
        """Number of circuits that stay active but change their path, summed over all steps."""
        return sum(
            len(set(before.circuits) & set(after.circuits) - after.kept)
            for before, after in zip(self.steps, self.steps[1:], strict=False)
        )


@dataclass
class MeshRouter:
    """Routes sets of circuits one after the other, with as few changes as possible.

    Attributes:
        inputs: Input port of each rank.
        outputs: Output port of each rank; may be the same port.
        puc_loss_db: Loss per PUC, one number or shape ``(n_pucs,)``.
        max_hops: Largest number of PUCs of a path.
        unusable: ``(puc, state)`` pairs that must not be used.
    """

    mesh: MeshTopology
    inputs: Sequence[int]
    outputs: Sequence[int]
    puc_loss_db: ArrayLike = 0.5
    max_hops: int | None = None
    faults: MeshFaults | None = None
    unusable: Collection[tuple[int, State]] = ()
    _paths_by_pair: dict[tuple[int, int], Path] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._is_single_fibre = list(self.inputs) == list(self.outputs)
        for side, ports in (("inputs", self.inputs), ("outputs", self.outputs)):
            if twice := [port for port in ports if list(ports).count(port) > 1]:
                raise ConfigError(
                    f"{side} {list(ports)}: two ranks share port {twice[0]}", hint="Give each rank its own port."
                )
        if not self._is_single_fibre and (shared_ports := set(self.inputs) & set(self.outputs)):
            raise ConfigError(f"port {min(shared_ports)} is an input of one rank and an output of another")

    def step(self, number: int, circuits: Circuits, before: Circuits = ()) -> MeshStep:
        """Route one set of circuits, if possible on the same paths as in earlier steps.

        ``before`` are the circuits that are active before this step.

        Raises:
            RoutingError: There are no paths for all circuits at once.
        """
        refusal: RoutingError | None = None
        # First try all remembered paths, then those of active circuits, then none.
        for kept_circuits in dict.fromkeys(
            (self._compatible(circuits), self._compatible(set(circuits) & set(before)), ())
        ):
            try:
                routing = self._route(circuits, kept_circuits, hard=not kept_circuits)
            except RoutingError as error:
                refusal = error
                continue
            unchanged = frozenset(
                pair
                for pair, path in zip(circuits, routing.paths, strict=True)
                if pair in before and self._paths_by_pair.get(pair) == path
            )
            self._paths_by_pair |= dict(zip(circuits, routing.paths, strict=True))
            return MeshStep(number, circuits, routing, unchanged)
        raise refusal or RoutingError("nothing was tried")

    def is_routable(self, circuits: Circuits, *, hard: bool = True) -> bool | None:
        """Return whether circuits can be routed together: true, false (proven), or ``None`` if undecided.

        Args:
            circuits: The circuits.
            hard: Whether to use the exact search if the fast search fails and OR-Tools is installed.
        """
        try:
            self._route(circuits, (), hard=hard, explain_s=0.0)
        except NoPathError:
            return False
        except UndecidedError:
            return None
        return True

    def with_ports_of(self, old_ranks: Sequence[int]) -> MeshRouter:
        """Return a router in which rank r has the ports that rank ``old_ranks[r]`` has here."""
        return replace(
            self, inputs=[self.inputs[rank] for rank in old_ranks], outputs=[self.outputs[rank] for rank in old_ranks]
        )

    def _compatible(self, circuits: Iterable[tuple[int, int]]) -> Circuits:
        fitting: list[tuple[int, int]] = []
        for pair in sorted(circuits):
            if pair in self._paths_by_pair:
                try:
                    states_for_paths(self.mesh, [self._paths_by_pair[member] for member in (*fitting, pair)])
                except ConfigError:
                    continue
                fitting.append(pair)
        return tuple(fitting)

    def _route(self, circuits: Circuits, kept_circuits: Circuits, *, hard: bool, explain_s: float = 10.0) -> Routing:
        active = [self._paths_by_pair[pair] for pair in kept_circuits]
        new = [pair for pair in circuits if pair not in kept_circuits]
        request = RouteRequest(
            [(self.inputs[a], self.outputs[b]) for a, b in new],
            puc_loss_db=self.puc_loss_db,
            faults=self.faults or MeshFaults(),
            unusable=self.unusable,
            active=active,
            max_hops=self.max_hops,
            counter_propagation=self._is_single_fibre,
            exact_search="rescue" if hard else "never",
            explain_s=explain_s,
        )
        if not new:
            return Routing(states_for_paths(self.mesh, active), tuple(active))
        routing = route(self.mesh, request)
        paths = dict(zip([*kept_circuits, *new], [*routing.active, *routing.paths], strict=True))
        return replace(routing, paths=tuple(paths[pair] for pair in circuits), active=(), moved=())


def route_schedule(router: MeshRouter, schedule: Schedule) -> MeshSchedule:
    """Convert a schedule into mesh settings, checked by tracing the light.

    A round that cannot be routed is split, into the smallest number of parts if it has at most eight circuits.

    Args:
        router: The mesh and the ports of each rank.
        schedule: The schedule.

    Raises:
        ConfigError: There are more ranks than ports.
        NoPathError: A circuit provably has no path, even without other circuits.
        UndecidedError: No path was found for a circuit, but it is not proven that none exists.
    """
    _check_enough_ports(router, schedule)
    steps: list[MeshStep] = []
    min_extra = 0
    parts_of: dict[Circuits, tuple[list[Circuits], int]] = {}
    for number, round_ in enumerate(schedule.rounds):
        before = steps[-1].circuits if steps else ()
        if round_.circuits not in parts_of:
            try:
                steps.append(router.step(number, round_.circuits, before))
                continue
            except RoutingError as error:
                impossible = isinstance(error, NoPathError)
                parts_of[round_.circuits] = split(router, round_.circuits, schedule.duplex, impossible)
        parts, proven = parts_of[round_.circuits]
        min_extra += proven - 1
        for part in parts:
            steps.append(router.step(number, part, before))
            before = part
    return MeshSchedule(tuple(steps), len(schedule.rounds), min_extra)


def _check_enough_ports(router: MeshRouter, schedule: Schedule) -> None:
    if schedule.ranks > min(len(router.inputs), len(router.outputs)):
        raise ConfigError(
            f"{schedule.name}: {schedule.ranks} ranks, but only {min(len(router.inputs), len(router.outputs))} ports",
            hint="Give one input and one output port per rank.",
        )


def split(router: MeshRouter, circuits: Circuits, duplex: bool, impossible: bool) -> tuple[list[Circuits], int]:
    """Split circuits into parts that can each be routed; return them and a lower bound of their number.

    Args:
        router: The mesh and the ports of each rank.
        circuits: Circuits that cannot be routed together.
        duplex: Whether both directions of a pair stay together where possible.
        impossible: Whether it is proven that the circuits cannot be routed together.

    Raises:
        RoutingError: A circuit has no path even without other circuits.
    """
    units = _make_units(router, circuits, duplex)
    if len(units) > _EXACT_UNITS:
        settings = Packer(lambda circuits: router.is_routable(circuits, hard=False)).pack(units, random.Random(0))
        return [_merged(group) for group in settings], 1 + impossible
    all_units = (1 << len(units)) - 1
    answers: dict[int, bool | None] = {}

    def is_routable(mask: int) -> bool | None:
        """Return whether a set of units can be routed, from earlier answers where possible; ``None`` if undecided."""
        # Supersets of an unroutable set are unroutable, and subsets of a routable set are routable.
        if mask not in answers:
            if any(answer is False and second & mask == second for second, answer in answers.items()):
                return False
            if any(answer is True and second & mask == mask for second, answer in answers.items()):
                return True
            answers[mask] = router.is_routable(_selected(units, mask))
        return answers[mask]

    for first, second in combinations(range(len(units)), 2):
        is_routable(1 << first | 1 << second)  # pairs are quick to check, and rule out most larger sets
    parts = _minimal_cover(all_units, lambda mask: is_routable(mask) is True)
    # For a lower bound, undecided sets count as routable.
    proven = len(_minimal_cover(all_units, lambda mask: is_routable(mask) is not False))
    return [_selected(units, mask) for mask in parts], proven


def _make_units(router: MeshRouter, circuits: Iterable[tuple[int, int]], duplex: bool) -> list[Unit]:
    units: list[Unit] = []
    pairs = sorted(circuits)
    for key in sorted({(min(pair), max(pair)) if duplex else pair for pair in pairs}):
        unit = tuple(pair for pair in pairs if key == pair or (duplex and key == pair[::-1]))
        # The two directions of a pair may exclude each other.
        units += [unit] if router.is_routable(unit) else [(pair,) for pair in unit]
    for unit in units:
        router.step(0, unit)  # raises with the reason
    return units


def _minimal_cover(all_units: int, fits: Callable[[int], bool]) -> list[int]:
    best: dict[int, list[int]] = {0: []}
    for mask in range(1, all_units + 1):
        lowest = mask & -mask
        part = remaining = mask ^ lowest
        options: list[list[int]] = []
        # One part of every cover has the lowest element, so only its subsets are tried, larger ones first.
        while True:
            chosen = part | lowest
            remainder = best[mask ^ chosen]
            if (not options or len(remainder) + 1 < len(options[0])) and (chosen == lowest or fits(chosen)):
                options = [[chosen, *remainder]]
            if not part:
                break
            part = (part - 1) & remaining
        best[mask] = options[0]
    return best[all_units]


def _selected(units: Sequence[Unit], mask: int) -> Circuits:
    return _merged(unit for i, unit in enumerate(units) if mask >> i & 1)


def _merged(units: Iterable[Unit]) -> Circuits:
    return tuple(sorted(pair for unit in units for pair in unit))


# -- other rounds, other ranks -----------------------------------------------------------------------------------------


def regroup_schedule(router: MeshRouter, schedule: Schedule, *, seed: int = 0) -> Schedule:
    """Regroup the circuits of a schedule into few rounds that the mesh can route, with the same data.

    The number of rounds is not proven to be the smallest; :func:`min_rounds` is a lower bound.

    Args:
        router: The mesh and the ports of each rank.
        schedule: An all-to-all without forwarding, or matchings.
        seed: Random seed.

    Returns:
        The regrouped schedule; the given one if all of its rounds have routes. A duplex schedule becomes simplex if the
            two directions of a pair of ranks cannot be routed together.

    Raises:
        ConfigError: The schedule's rounds depend on each other, or there are more ranks than ports.
        RoutingError: A circuit has no path even without other circuits.
    """
    sent = {(transfer.source, transfer.target): transfer for round_ in schedule.rounds for transfer in round_.transfers}
    straight = all(
        transfer.chunks == (transfer.source * schedule.ranks + transfer.target,) for transfer in sent.values()
    )
    if schedule.collective != "matchings" and not (schedule.collective == "all-to-all" and straight):
        raise ConfigError(
            f"{schedule.name}: the rounds depend on each other, so they cannot be regrouped",
            hint="Regroup only matchings, all-to-all and all-to-all-shifts; other schedules can be relabelled.",
        )
    as_given = route_schedule(router, schedule)
    if not as_given.extra:
        return schedule
    best = [step.circuits for step in as_given.steps]
    packer = Packer(lambda circuits: router.is_routable(circuits, hard=False))
    units = _make_units(router, {pair for round_ in schedule.rounds for pair in round_.circuits}, schedule.duplex)
    for turn in range(_PACKINGS):
        settings = packer.pack(units, random.Random(f"{seed} {turn}"), _PUSHES)
        best = min(best, [_merged(group) for group in settings], key=len)
    rounds = tuple(ScheduleRound(pairs, tuple(sent[pair] for pair in pairs if pair in sent)) for pairs in best)
    duplex = schedule.duplex and all((b, a) in pairs for pairs in best for a, b in pairs)
    return replace(schedule, duplex=duplex, rounds=rounds)


def min_rounds(schedule: Schedule) -> int:
    """Return a lower bound of a schedule's rounds on any mesh: the largest number of partners of one port."""
    pairs = {pair for round_ in schedule.rounds for pair in round_.circuits}
    return max(n for side in (0, 1) for n in Counter(pair[side] for pair in pairs).values())


def relabel_ranks(router: MeshRouter, schedule: Schedule, *, seed: int = 0) -> tuple[int, ...]:
    """Assign ports to ranks so that the mesh can route as many rounds as possible.

    Returns:
        For each rank, the rank whose ports it gets; pass this to :meth:`MeshRouter.with_ports_of`.

    Raises:
        ConfigError: There are more ranks than ports.
    """
    _check_enough_ports(router, schedule)
    order, uses = random.Random(seed), Counter(round_.circuits for round_ in schedule.rounds)

    def unrouted(labels: Sequence[int], limit: float = math.inf) -> int:
        with_ports_of, n_unroutable = router.with_ports_of(labels), 0
        for circuits, count in uses.most_common():
            n_unroutable += 0 if with_ports_of.is_routable(circuits, hard=False) else count
            if n_unroutable > limit:  # worse than the best labels already, so the exact number does not matter
                break
        return n_unroutable

    best = list(range(min(len(router.inputs), len(router.outputs))))
    fewest = unrouted(best)
    for _ in range(_RELABELLINGS):
        if not fewest:
            break
        labels = list(best)
        first, second = order.randrange(schedule.ranks), order.randrange(len(labels))
        labels[first], labels[second] = labels[second], labels[first]
        if first != second and (n_unrouted := unrouted(labels, fewest)) <= fewest:
            best, fewest = labels, n_unrouted
    return tuple(best[: schedule.ranks])
