"""Schedules on a mesh: rounds turned into states of PUCs by the router, traced, and split where one has no routes.

Circuits that go on from one round to the next keep their PUCs wherever the new ones find ways beside them, so that only
ports whose partner changes go dark.
"""

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
"""Circuits of a round, or pairs on duplex ports, up to which the least number of parts is found."""
_PACKINGS, _PUSHES = 4, 100
"""Orders in which circuits are put together, and pushes to do with one setting fewer in each."""
_RELABELLINGS = 60
"""Places of ranks that are tried."""


@dataclass(frozen=True)
class MeshStep:
    """One setting of the mesh.

    Attributes:
        number: Round of the schedule that it serves, or a part of.
        circuits: Its circuits, between ranks.
        routing: Their ways in the same order, and the state of every PUC in use.
        kept: Circuits that go on from before over the same PUCs; all others are dark while this is set.
    """

    number: int
    circuits: Circuits
    routing: Routing
    kept: frozenset[tuple[int, int]]


@dataclass(frozen=True)
class MeshSchedule:
    """A schedule as settings of a mesh.

    Attributes:
        steps: The settings, in order.
        rounds: Rounds of the schedule.
        least_extra: Settings needed beyond one per round; fewer are proven not to do.
    """

    steps: tuple[MeshStep, ...]
    rounds: int
    min_extra: int

    @property
    def extra(self) -> int:
        """Settings beyond one per round."""
        return len(self.steps) - self.rounds

    @property
    def longest_hops(self) -> int:
        """PUCs of the longest way."""
        return max((path.hops for step in self.steps for path in step.routing.paths), default=0)

    @cached_property
    def rerouted(self) -> int:
        """Circuits that went on but had to be led elsewhere, over all steps."""
        return sum(
            len(set(before.circuits) & set(after.circuits) - after.kept)
            for before, after in zip(self.steps, self.steps[1:], strict=False)
        )


@dataclass
class MeshRouter:
    """Routes sets of circuits one after the other, with as much as possible where it was.

    Attributes:
        mesh: The mesh.
        inputs: Port where the light of each rank enters.
        outputs: Port where it leaves for each rank; the same ports if both directions share a fibre.
        puc_loss_db: Loss per PUC, one number or shape ``(n_pucs,)``.
        max_hops: Most PUCs of a way.
        faults: What is wrong with the mesh.
        unusable: ``(puc, state)`` that may not be used.
    """

    mesh: MeshTopology
    inputs: Sequence[int]
    outputs: Sequence[int]
    puc_loss_db: ArrayLike = 0.5
    max_hops: int | None = None
    faults: MeshFaults | None = None
    unusable: Collection[tuple[int, State]] = ()
    _ways: dict[tuple[int, int], Path] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._one_fibre = list(self.inputs) == list(self.outputs)
        for what, ports in (("inputs", self.inputs), ("outputs", self.outputs)):
            if twice := [port for port in ports if list(ports).count(port) > 1]:
                raise ConfigError(f"{what} {list(ports)}: two ranks share port {twice[0]}", hint="Give each its own.")
        if not self._one_fibre and (both := set(self.inputs) & set(self.outputs)):
            raise ConfigError(f"port {min(both)} is an input of one rank and an output of another")

    def step(self, number: int, circuits: Circuits, before: Circuits = ()) -> MeshStep:
        """Route one set of circuits; those that had ways before get them again if that can be.

        Args:
            number: What the step is called.
            circuits: The circuits.
            before: Circuits that stand until then.

        Raises:
            RoutingError: There are no ways for all of them at once.
        """
        refusal: RoutingError | None = None
        # All ways remembered, else those that stand now, else none.
        for known in dict.fromkeys((self._fitting(circuits), self._fitting(set(circuits) & set(before)), ())):
            try:
                routing = self._routed(circuits, known, hard=not known)
            except RoutingError as error:
                refusal = error
                continue
            kept = frozenset(
                pair
                for pair, path in zip(circuits, routing.paths, strict=True)
                if pair in before and self._ways.get(pair) == path
            )
            self._ways |= dict(zip(circuits, routing.paths, strict=True))
            return MeshStep(number, circuits, routing, kept)
        raise refusal or RoutingError("nothing was tried")

    def is_routable(self, circuits: Circuits, *, hard: bool = True) -> bool | None:
        """Return whether circuits can be routed together: true, proven false, or ``None`` if none were found.

        Args:
            circuits: The circuits.
            hard: Whether the exact search is asked where others give up, if it is installed.
        """
        try:
            self._routed(circuits, (), hard=hard, explain_s=0.0)
        except NoPathError:
            return False
        except UndecidedError:
            return None
        return True

    def with_ports_of(self, places: Sequence[int]) -> MeshRouter:
        """Return a router of the same mesh whose rank r has the ports that were those of rank ``places[r]``."""
        return replace(
            self, inputs=[self.inputs[each] for each in places], outputs=[self.outputs[each] for each in places]
        )

    def _fitting(self, circuits: Iterable[tuple[int, int]]) -> Circuits:
        """Return the circuits whose remembered ways can stand together, in order."""
        fitting: list[tuple[int, int]] = []
        for pair in sorted(circuits):
            if pair in self._ways:
                try:
                    states_for_paths(self.mesh, [self._ways[each] for each in (*fitting, pair)])
                except ConfigError:
                    continue
                fitting.append(pair)
        return tuple(fitting)

    def _routed(self, circuits: Circuits, known: Circuits, *, hard: bool, explain_s: float = 10.0) -> Routing:
        """Return ways for all circuits, those known staying where they are."""
        standing = [self._ways[pair] for pair in known]
        new = [pair for pair in circuits if pair not in known]
        request = RouteRequest(
            [(self.inputs[a], self.outputs[b]) for a, b in new],
            puc_loss_db=self.puc_loss_db,
            faults=self.faults or MeshFaults(),
            unusable=self.unusable,
            active=standing,
            max_hops=self.max_hops,
            counter_propagation=self._one_fibre,
            exact="rescue" if hard else "never",
            explain_s=explain_s,
        )
        if not new:
            return Routing(states_for_paths(self.mesh, standing), tuple(standing))
        found = route(self.mesh, request)
        paths = dict(zip([*known, *new], [*found.active, *found.paths], strict=True))
        return replace(found, paths=tuple(paths[pair] for pair in circuits), active=(), moved=())


def route_schedule(router: MeshRouter, schedule: Schedule) -> MeshSchedule:
    """Turn a schedule into settings of a mesh, each traced.

    A round without routes is split into as few parts as can be if it has at most eight circuits (pairs on duplex
    ports); of more, circuits are put one by one where they fit, and ``min_extra`` says what is proven.

    Args:
        router: The mesh, and the ports of each rank.
        schedule: The schedule.

    Raises:
        ConfigError: There are more ranks than ports.
        NoPathError: A circuit has no way even alone (proven).
        UndecidedError: None was found for one, and nothing was proven.
    """
    _check_enough_ports(router, schedule)
    steps: list[MeshStep] = []
    min_extra = 0
    parts_of: dict[Circuits, tuple[list[Circuits], int]] = {}
    for number, each in enumerate(schedule.rounds):
        before = steps[-1].circuits if steps else ()
        if each.circuits not in parts_of:
            try:
                steps.append(router.step(number, each.circuits, before))
                continue
            except RoutingError as error:
                impossible = isinstance(error, NoPathError)
                parts_of[each.circuits] = split(router, each.circuits, schedule.duplex, impossible)
        parts, proven = parts_of[each.circuits]
        min_extra += proven - 1
        for part in parts:
            steps.append(router.step(number, part, before))
            before = part
    return MeshSchedule(tuple(steps), len(schedule.rounds), min_extra)


def _check_enough_ports(router: MeshRouter, schedule: Schedule) -> None:
    if schedule.ranks > min(len(router.inputs), len(router.outputs)):
        raise ConfigError(
            f"{schedule.name}: {schedule.ranks} ranks, and ports for {min(len(router.inputs), len(router.outputs))}",
            hint="Give one input and one output port per rank.",
        )


def split(router: MeshRouter, circuits: Circuits, duplex: bool, impossible: bool) -> tuple[list[Circuits], int]:
    """Return parts of a set of circuits that can each be routed, and how many are needed at least (proven).

    Args:
        router: The mesh.
        circuits: Circuits that cannot be routed together, or for which no routes were found.
        duplex: Whether both directions of a pair stay together, where they can.
        impossible: Whether it is proven that they cannot be routed together.

    Raises:
        RoutingError: A circuit has no way even alone.
    """
    units = _units(router, circuits, duplex)
    if len(units) > _EXACT_UNITS:
        found = Packer(lambda wanted: router.is_routable(wanted, hard=False)).pack(units, random.Random(0))
        return [_together(each) for each in found], 1 + impossible
    whole = (1 << len(units)) - 1
    answers: dict[int, bool | None] = {}

    def is_routable(mask: int) -> bool | None:
        # What holds a set that cannot be routed cannot be routed either, and parts of one that can be can be.
        if mask not in answers:
            if any(answer is False and other & mask == other for other, answer in answers.items()):
                return False
            if any(answer is True and other & mask == mask for other, answer in answers.items()):
                return True
            answers[mask] = router.is_routable(_joined(units, mask))
        return answers[mask]

    for one, other in combinations(range(len(units)), 2):
        is_routable(1 << one | 1 << other)  # these are quick, and rule out most of the others
    parts = _fewest_parts(whole, lambda mask: is_routable(mask) is True)
    proven = len(_fewest_parts(whole, lambda mask: is_routable(mask) is not False))
    return [_joined(units, mask) for mask in parts], proven


def _units(router: MeshRouter, circuits: Iterable[tuple[int, int]], duplex: bool) -> list[Unit]:
    """Return circuits in what may be moved apart: pairs on duplex ports, where both ways of one can be routed.

    Raises:
        RoutingError: A circuit has no way even alone.
    """
    units: list[Unit] = []
    wanted = sorted(circuits)
    for key in sorted({(min(pair), max(pair)) if duplex else pair for pair in wanted}):
        unit = tuple(pair for pair in wanted if key == pair or (duplex and key == pair[::-1]))
        # The two ways of one pair may be at odds with each other.
        units += [unit] if router.is_routable(unit) else [(pair,) for pair in unit]
    for unit in units:
        router.step(0, unit)  # raises with the reason
    return units


def _fewest_parts(whole: int, fits: Callable[[int], bool]) -> list[int]:
    """Return the fewest subsets that fit and together make up a set, all as bit masks; single elements always fit."""
    best: dict[int, list[int]] = {0: []}
    for mask in range(1, whole + 1):
        lowest = mask & -mask
        part = rest = mask ^ lowest
        options: list[list[int]] = []
        # Every subset with the lowest element, large ones first.
        while True:
            chosen = part | lowest
            others = best[mask ^ chosen]
            if (not options or len(others) + 1 < len(options[0])) and (chosen == lowest or fits(chosen)):
                options = [[chosen, *others]]
            if not part:
                break
            part = (part - 1) & rest
        best[mask] = options[0]
    return best[whole]


def _joined(units: Sequence[Unit], mask: int) -> Circuits:
    return _together(unit for i, unit in enumerate(units) if mask >> i & 1)


def _together(units: Iterable[Unit]) -> Circuits:
    return tuple(sorted(pair for unit in units for pair in unit))


# -- other rounds, other ranks -----------------------------------------------------------------------------------------


def regroup_schedule(router: MeshRouter, schedule: Schedule, *, seed: int = 0) -> Schedule:
    """Return a schedule that sends the same in rounds that all have routes, in as few as are found.

    Where no round builds on another, as in an all-to-all that sends every block straight, any circuits may share a
    round: there are many other factorisations, and rounds that are not full. No number found is proven to be the
    least; :func:`min_rounds` is what any schedule needs.

    Args:
        router: The mesh, and the ports of each rank.
        schedule: An all-to-all without forwarding, or matchings.
        seed: Of the orders that are tried.

    Returns:
        The schedule itself if all of its rounds have routes. A duplex one becomes simplex if both ways of a pair are at
        odds with each other.

    Raises:
        ConfigError: Its rounds build on each other, or there are more ranks than ports.
        RoutingError: A circuit has no way even alone.
    """
    sent = {(one.source, one.target): one for each in schedule.rounds for one in each.transfers}
    straight = all(one.chunks == (one.source * schedule.ranks + one.target,) for one in sent.values())
    if schedule.collective != "matchings" and not (schedule.collective == "all-to-all" and straight):
        raise ConfigError(
            f"{schedule.name}: its rounds build on each other and keep their circuits",
            hint="Only matchings, all-to-all and all-to-all-shifts can be regrouped; others can be relabelled.",
        )
    as_given = route_schedule(router, schedule)
    if not as_given.extra:
        return schedule
    best = [step.circuits for step in as_given.steps]
    packer = Packer(lambda wanted: router.is_routable(wanted, hard=False))
    units = _units(router, {pair for each in schedule.rounds for pair in each.circuits}, schedule.duplex)
    for turn in range(_PACKINGS):
        found = packer.pack(units, random.Random(f"{seed} {turn}"), _PUSHES)
        best = min(best, [_together(each) for each in found], key=len)
    rounds = tuple(ScheduleRound(each, tuple(sent[pair] for pair in each if pair in sent)) for each in best)
    duplex = schedule.duplex and all((b, a) in each for each in best for a, b in each)
    return replace(schedule, duplex=duplex, rounds=rounds)


def min_rounds(schedule: Schedule) -> int:
    """Return how many rounds its different circuits need on any mesh: as many as the busiest port has partners."""
    pairs = {pair for each in schedule.rounds for pair in each.circuits}
    return max(n for side in (0, 1) for n in Counter(pair[side] for pair in pairs).values())


def relabel_ranks(router: MeshRouter, schedule: Schedule, *, seed: int = 0) -> tuple[int, ...]:
    """Return which ports each rank should have so that few rounds have no routes: place of its ports by rank.

    Two ranks change places as long as that is no worse. :meth:`MeshRouter.with_ports_of` takes the answer.

    Args:
        router: The mesh, and ports in the order of the ranks as they are.
        schedule: The schedule.
        seed: Of the changes that are tried.

    Raises:
        ConfigError: There are more ranks than ports.
    """
    _check_enough_ports(router, schedule)
    order, uses = random.Random(seed), Counter(each.circuits for each in schedule.rounds)

    def unrouted(places: Sequence[int], most: float = math.inf) -> int:
        """Return rounds without routes, no further counted than needed."""
        with_ports_of, found = router.with_ports_of(places), 0
        for circuits, count in uses.most_common():
            found += 0 if with_ports_of.is_routable(circuits, hard=False) else count
            if found > most:
                break
        return found

    best = list(range(min(len(router.inputs), len(router.outputs))))
    fewest = unrouted(best)
    for _ in range(_RELABELLINGS):
        if not fewest:
            break
        places = list(best)
        one, other = order.randrange(schedule.ranks), order.randrange(len(places))
        places[one], places[other] = places[other], places[one]
        if one != other and (found := unrouted(places, fewest)) <= fewest:
            best, fewest = places, found
    return tuple(best[: schedule.ranks])
