"""Links of a job on a torus, and the load of these links after a spare outside the job's box replaced a member.

The links of a torus are fixed: traffic between the spare and the neighbours of the failed accelerator is forwarded by
other accelerators and shares their links.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from lumion_hw.errors import ConfigError
from lumion_hw.planning.slices import MAX_IN_RACK, torus_share

Layout = Literal["ring", "mesh"]
Place = tuple[int, ...]
Link = tuple[Place, int]
"""A duplex link, from an accelerator to its next neighbour along an axis."""


@dataclass(frozen=True)
class TorusJob:
    """A job in a box of a torus that is divided into equal boxes.

    Attributes:
        shape: Lengths of the torus, each at least 2.
        box: Lengths of the box; each divides the length of the torus.
        layout: ``ring`` for one ring through all members, ``mesh`` for rings along all axes at once.
        failed: Place of the failed member; the job has the box around this place.
        spare: Place of the spare, in another box. No other job uses that box.
        other_jobs: Whether jobs of the same layout use all remaining boxes.

    Raises:
        ConfigError: The places do not fit the torus, or the layout does not fit the box.
    """

    shape: tuple[int, ...]
    box: tuple[int, ...]
    layout: Layout
    failed: Place
    spare: Place
    other_jobs: bool = True

    def __post_init__(self) -> None:
        for name, place in (("box", self.box), ("failed", self.failed), ("spare", self.spare)):
            if len(place) != len(self.shape):
                raise ConfigError(f"{name} {list(place)} does not have one number for each axis of {list(self.shape)}")
        if math.prod(self.shape) > MAX_IN_RACK:
            raise ConfigError(
                f"a torus {list(self.shape)} is too large", hint=f"Give at most {MAX_IN_RACK} accelerators in total."
            )
        if any(length < 1 or limit % length for length, limit in zip(self.box, self.shape, strict=True)):
            raise ConfigError(
                f"a torus {list(self.shape)} cannot be divided into boxes {list(self.box)}",
                hint="Give lengths that divide those of the torus.",
            )
        for name, place in (("failed", self.failed), ("spare", self.spare)):
            if any(not 0 <= at < limit for at, limit in zip(place, self.shape, strict=True)):
                raise ConfigError(f"{name} {list(place)} lies outside the torus {list(self.shape)}")
        if self._tile(self.failed) == self._tile(self.spare):
            raise ConfigError(f"the spare {list(self.spare)} lies in the box of the job", hint="Give another box.")
        self._links_in(self._tile(self.failed))

    @property
    def share(self) -> float:
        """Fraction of an accelerator's links that an all-reduce of the job uses before the failure."""
        if self.layout == "mesh":
            return torus_share(self.box, self.shape)
        return (1 if self._is_open_line() else 2) / (2 * len(self.shape))

    def loads(self) -> tuple[int, int]:
        """Return the largest number of flows on a link of the job, and the most hops, after the replacement."""
        failed = self.failed
        own = self._links_in(self._tile(failed))
        kept = [link for link in own if failed not in self._ends(link)]
        neighbours = [next(end for end in self._ends(link) if end != failed) for link in own if link not in kept]
        busy = Counter[Link]()
        if self.other_jobs:
            without = {self._tile(failed), self._tile(self.spare)}
            for tile in itertools.product(*(range(n // length) for n, length in self._lengths())):
                busy.update(() if tile in without else self._links_in(tile))
        results = []
        for start in range(len(neighbours)):
            load, used, hops = busy + Counter(kept), set(kept), 1
            for neighbour in (*neighbours[start:], *neighbours[:start]):
                path = self._least_loaded_path(neighbour, self.spare, load)
                load.update(path)
                used.update(path)
                hops = max(hops, len(path))
            results.append((max(load[link] for link in used), hops))
        return min(results)

    def _lengths(self) -> Iterable[tuple[int, int]]:
        return zip(self.shape, self.box, strict=True)

    def _tile(self, place: Place) -> Place:
        return tuple(at // length for at, length in zip(place, self.box, strict=True))

    def _is_open_line(self) -> bool:
        long = [(n, length) for n, length in self._lengths() if length > 1]
        return len(long) == 1 and long[0][1] < long[0][0]

    def _ends(self, link: Link) -> tuple[Place, Place]:
        place, axis = link
        return place, tuple((at + (i == axis)) % self.shape[i] for i, at in enumerate(place))

    def _links_in(self, tile: Place) -> list[Link]:
        """Return the links that the layout uses in a box."""
        corner = [index * length for index, length in zip(tile, self.box, strict=True)]
        if self.layout == "ring" and sum(length > 1 for length in self.box) > 1:
            return [self._link_between(a, b) for a, b in _cycle(self.box, corner)]
        links = []
        for place in itertools.product(*(range(first, first + n) for first, n in zip(corner, self.box, strict=True))):
            for axis, (limit, length) in enumerate(self._lengths()):
                is_last = place[axis] == corner[axis] + length - 1
                if length > 1 and (length == limit or not is_last):
                    links.append((place, axis))
        return links

    def _link_between(self, a: Place, b: Place) -> Link:
        (axis,) = (i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
        return (min(a, b), axis)

    def _steps(self, place: Place) -> Iterator[tuple[Link, Place]]:
        for axis, length in enumerate(self.shape):
            before = tuple((at - (i == axis)) % length if i == axis else at for i, at in enumerate(place))
            yield (place, axis), self._ends((place, axis))[1]
            yield (before, axis), before

    def _least_loaded_path(self, source: Place, target: Place, load: Counter[Link]) -> list[Link]:
        """Return the path around the failed accelerator with the least busy links, and of these the shortest."""
        for limit in itertools.count(1):
            reached: dict[Place, list[Link]] = {source: []}
            queue = deque([source])
            while queue:
                place = queue.popleft()
                for link, following in self._steps(place):
                    if following not in reached and following != self.failed and load[link] < limit:
                        reached[following] = [*reached[place], link]
                        queue.append(following)
            if target in reached:
                return reached[target]
            if limit > max(load.values(), default=0):
                break
        raise ConfigError(f"no path leads around {list(self.failed)} to the spare {list(self.spare)}")


def _cycle(box: Sequence[int], corner: Sequence[int]) -> list[tuple[Place, Place]]:
    """Return the steps of a ring through all accelerators of a box, each step to a neighbour."""
    order = [axis for axis, length in enumerate(box) if length > 1]
    # A grid of a rows and the snake through the other axes as columns: a ring exists if one of both counts is even.
    rows = next((axis for axis in order if box[axis] % 2 == 0), None)
    if rows is None:
        raise ConfigError(
            f"no ring of neighbours runs through a box {list(box)}", hint="Give a box with an even side, or a mesh."
        )
    columns = list(_snake([box[axis] for axis in order if axis != rows]))
    visited = [(0, column) for column in range(len(columns))]
    for row in range(1, box[rows]):
        span = range(len(columns) - 1, 0, -1) if row % 2 else range(1, len(columns))
        visited += [(row, column) for column in span]
    visited += [(row, 0) for row in range(box[rows] - 1, 0, -1)]
    places = []
    for row, column in visited:
        place, others = list(corner), iter(columns[column])
        for axis in order:
            place[axis] += row if axis == rows else next(others)
        places.append(tuple(place))
    return list(zip(places, (*places[1:], places[0]), strict=True))


def _snake(lengths: Sequence[int]) -> Iterator[Place]:
    """Yield all places of a box, each a neighbour of the one before."""
    if not lengths:
        yield ()
        return
    inner = list(_snake(lengths[1:]))
    for first in range(lengths[0]):
        for rest in reversed(inner) if first % 2 else inner:
            yield (first, *rest)
