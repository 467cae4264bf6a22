"""Slices of a rack: the accelerators of one request, adjacent on a torus, or anywhere on a circuit fabric.

A torus needs a box of adjacent free accelerators for each request. A circuit fabric connects any free accelerators that
have enough ports.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError
from lumion_hw.mesh.routing.request import Progress, no_progress
from lumion_hw.planning.jobs import JobMix

Topology = Literal["ring", "torus", "full"]
TOPOLOGIES: tuple[Topology, ...] = ("ring", "torus", "full")
"""Topologies in which the accelerators of a slice can be connected."""
MAX_IN_RACK, MAX_REQUESTS = 4096, 1_000_000
_DIRECTIONS_PER_DIMENSION = 2
_REQUESTS_PER_STEP = 100


@dataclass(frozen=True)
class SliceRequest:
    """Request for accelerators.

    Attributes:
        topology: Connections between the accelerators: ``ring``, ``torus`` (3-D) or ``full`` (every pair).
    """

    accelerators: int
    topology: Topology = "ring"

    def __post_init__(self) -> None:
        if not 1 <= self.accelerators <= MAX_IN_RACK:
            raise ConfigError(
                f"a slice cannot have {self.accelerators} accelerators",
                hint=f"Request 1 to {MAX_IN_RACK} accelerators.",
            )
        if self.topology not in TOPOLOGIES:
            raise ConfigError(f"there is no topology {self.topology!r}", hint=f"Give {', '.join(TOPOLOGIES)}.")

    def circuits(self) -> tuple[tuple[int, int], ...]:
        """Return the pairs of accelerators to connect, by index in the slice; each pair once."""
        count = self.accelerators
        if self.topology == "full":
            return tuple(itertools.combinations(range(count), 2))
        lengths = (count,) if self.topology == "ring" else nearest_cubic_box(count)
        pairs = set()
        for position in np.ndindex(*lengths):
            for axis, length in enumerate(lengths):
                following = list(position)
                following[axis] = (position[axis] + 1) % length
                first, second = (int(np.ravel_multi_index(where, lengths)) for where in (position, tuple(following)))
                if first != second:
                    pairs.add((min(first, second), max(first, second)))
        return tuple(sorted(pairs))

    @property
    def ports(self) -> int:
        """Number of duplex ports that the busiest accelerator needs."""
        count = self.accelerators
        lengths = {"ring": (count,), "torus": nearest_cubic_box(count), "full": (2,) * (count - 1)}[self.topology]
        # In a dimension of length two, both neighbours are the same accelerator.
        return sum(min(length - 1, 2) for length in lengths)


@dataclass(frozen=True)
class PlacedSlice:
    """A slice (the accelerators of one job) in a rack.

    Attributes:
        accelerators: Indices of the accelerators in the rack, in the order of the topology; more than requested if no
            box has exactly the requested volume.
        box: Lengths of the box on a torus; ``None`` on a fabric.
        bandwidth_share: Fraction of an accelerator's links that an all-reduce in the slice can use.
    """

    request: SliceRequest
    accelerators: tuple[int, ...]
    box: tuple[int, int, int] | None
    bandwidth_share: float

    @property
    def circuits(self) -> tuple[tuple[int, int], ...]:
        """Pairs of accelerators to connect by circuits, each pair once."""
        return tuple((self.accelerators[first], self.accelerators[other]) for first, other in self.request.circuits())


class Rack(Protocol):
    """A rack in which slices (the accelerators of one job) can be placed."""

    @property
    def size(self) -> int:
        """Number of accelerators in the rack."""
        ...

    def place(self, request: SliceRequest, busy: NDArray[np.bool_]) -> PlacedSlice | None:
        """Place a slice on free accelerators; return ``None`` if that is not possible."""
        ...


def nearest_cubic_box(volume: int, longest: Sequence[int] | None = None) -> tuple[int, int, int]:
    """Return the side lengths a ≤ b ≤ c of the box with a given volume and the smallest surface.

    Args:
        volume: Volume of the box.
        longest: Largest side lengths.

    Raises:
        ConfigError: No such box fits.
    """
    boxes = [box for box in _boxes(volume) if longest is None or _fits(box, longest)]
    if not boxes:
        raise ConfigError(f"no box of {volume} accelerators fits")
    return min(boxes, key=lambda box: box[0] * box[1] + box[1] * box[2] + box[0] * box[2])


def _boxes(volume: int) -> Iterator[tuple[int, int, int]]:
    for first in range(1, math.isqrt(volume) + 1):
        if volume % first == 0:
            area = volume // first
            for second in range(first, math.isqrt(area) + 1):
                if area % second == 0:
                    yield first, second, area // second


def _fits(box: Sequence[int], longest: Sequence[int]) -> bool:
    return all(length <= limit for length, limit in zip(sorted(box), sorted(longest), strict=True))


def torus_share(box: Sequence[int], shape: Sequence[int]) -> float:
    """Return the fraction of an accelerator's links that an all-reduce on a box of a torus can use.

    An accelerator has two links per dimension. Along a dimension, both can be used if the box fills the torus, one
    otherwise, and none if the box has length 1. Assumed: links cannot change dimension, and all dimensions are used at
    once.

    Args:
        box: Lengths of the box along each dimension of the torus.
        shape: Lengths of the torus.
    """
    placements = [
        0 if length == 1 else _DIRECTIONS_PER_DIMENSION if length == limit else 1
        for length, limit in zip(box, shape, strict=True)
    ]
    return sum(placements) / (_DIRECTIONS_PER_DIMENSION * len(placements))


class _BusyCounts:
    """Counts busy accelerators in boxes of a torus.

    Args:
        busy: Shape ``(x, y, z)``.
    """

    def __init__(self, busy: NDArray[np.bool_]) -> None:
        # Twice along each dimension, for boxes over the edge; entry (i, j, k) counts what lies before i, j and k.
        counts = np.zeros([2 * length + 1 for length in busy.shape], dtype=np.int32)
        counts[1:, 1:, 1:] = np.tile(busy, (2, 2, 2))
        for axis in range(3):
            np.cumsum(counts, axis=axis, out=counts)
        self._counts = counts

    def count_in_boxes(self, box: tuple[int, int, int], corners: Sequence[int]) -> NDArray[np.int32]:
        """Return the number of busy accelerators in a box, for each possible corner of the box."""
        counts = self._counts
        # The counts are cumulative: a difference along each axis leaves the accelerators inside the box.
        for axis, (length, count) in enumerate(zip(box, corners, strict=True)):
            counts = counts.take(range(length, length + count), axis) - counts.take(range(count), axis)
        return counts.ravel()


@dataclass(frozen=True)
class TorusRack:
    """A rack whose accelerators are wired as a torus; slices are boxes.

    Attributes:
        wrapped: Whether a box may continue across the edge of the torus.
    """

    shape: tuple[int, int, int] = (4, 4, 4)
    wrapped: bool = True
    _box_cache: dict[int, list[tuple[int, int, int]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if min(self.shape) < 1 or self.size > MAX_IN_RACK:
            raise ConfigError(
                f"a torus cannot have shape {self.shape}",
                hint=f"Give three lengths of at least 1 with at most {MAX_IN_RACK} accelerators in total.",
            )

    @property
    def size(self) -> int:
        """Number of accelerators in the rack."""
        return math.prod(self.shape)

    def place(self, request: SliceRequest, busy: NDArray[np.bool_]) -> PlacedSlice | None:
        """Place a slice in the first free box, most cubic first; use a larger box if none has its volume."""
        if not (boxes := self._boxes_of_volume(request.accelerators)):
            return None
        busy_counts = _BusyCounts(busy.reshape(self.shape))
        for box in boxes:
            corners = self._corners(box)
            free = np.flatnonzero(busy_counts.count_in_boxes(box, corners) == 0)
            if len(free):
                corner = np.unravel_index(free[0], corners)
                axes = [(first + np.arange(n)) % ring for first, n, ring in zip(corner, box, self.shape, strict=True)]
                accelerators = np.ravel_multi_index(np.meshgrid(*axes, indexing="ij"), self.shape).ravel()
                return PlacedSlice(request, tuple(accelerators.tolist()), box, torus_share(box, self.shape))
        return None

    def _boxes_of_volume(self, volume: int) -> list[tuple[int, int, int]]:
        """Return all boxes that fit the torus with this volume or the next larger possible one, most cubic first."""
        if volume not in self._box_cache:
            fitting: list[tuple[int, int, int]] = []
            for larger in range(volume, self.size + 1):
                kinds = sorted(_boxes(larger), key=lambda box: box[0] * box[1] + box[1] * box[2] + box[0] * box[2])
                turned = [turn for kind in kinds for turn in sorted(set(itertools.permutations(kind)))]
                x, y, z = self.shape
                fitting = [(a, b, c) for a, b, c in turned if a <= x and b <= y and c <= z]
                if fitting:
                    break
            self._box_cache[volume] = fitting
        return self._box_cache[volume]

    def _corners(self, box: Sequence[int]) -> list[int]:
        return [
            1 if length == limit else limit if self.wrapped else limit - length + 1
            for length, limit in zip(box, self.shape, strict=True)
        ]


@dataclass(frozen=True)
class FabricRack:
    """A rack whose accelerators are connected by circuits in any combination.

    Attributes:
        ports: Number of duplex ports per accelerator; by default six, as on a torus.
    """

    size: int = 64
    per_server: int = 4
    ports: int = 6

    def __post_init__(self) -> None:
        if not 1 <= self.size <= MAX_IN_RACK or self.per_server < 1 or self.size % self.per_server or self.ports < 1:
            raise ConfigError(
                f"invalid rack: {self.size} accelerators with {self.ports} ports, {self.per_server} per server",
                hint=f"Give complete servers, 1 to {MAX_IN_RACK} accelerators, and at least one port.",
            )

    def place(self, request: SliceRequest, busy: NDArray[np.bool_]) -> PlacedSlice | None:
        """Place a slice on as few servers as possible.

        Raises:
            ConfigError: The topology needs more ports than an accelerator has.
        """
        if request.ports > self.ports:
            raise ConfigError(
                f"topology {request.topology} of {request.accelerators} accelerators needs {request.ports} ports each, "
                f"but there are {self.ports}",
                hint="Request a ring or a torus.",
            )
        free = ~busy.reshape(-1, self.per_server)
        room, needed, chosen = free.sum(axis=1), request.accelerators, list[int]()
        if room.sum() < needed:
            return None
        while needed:
            # The smallest sufficient gap keeps large gaps for large slices; without one, the largest gap is used up.
            enough = np.flatnonzero(room >= needed)
            server = int(enough[np.argmin(room[enough])]) if len(enough) else int(np.argmax(room))
            chosen_on_server = np.flatnonzero(free[server])[:needed]
            chosen += (server * self.per_server + chosen_on_server).tolist()
            needed, room[server] = needed - len(chosen_on_server), 0
        # All ports serve the slice, with parallel rings.
        return PlacedSlice(request, tuple(chosen), None, 1.0 if request.accelerators > 1 else 0.0)


@dataclass(frozen=True)
class StreamResult:
    """Result of a stream of requests on a rack.

    Attributes:
        accepted: Fraction of the requests that were placed at once; the others are lost.
        short: Fraction of the requests refused because too few accelerators were free.
        fragmented: Fraction of the requests refused although enough accelerators were free.
        used: Mean fraction of accelerators in use.
        bandwidth_share: Mean fraction of links that an all-reduce can use, over accepted slices larger than 1.
        fabric_speedup: Mean speed-up of an all-reduce if all links could be used, over the same slices.
    """

    requests: int
    accepted: float
    short: float
    fragmented: float
    used: float
    bandwidth_share: float
    fabric_speedup: float


def serve_stream(
    rack: Rack,
    mix: JobMix,
    *,
    load: float,
    requests: int = 10_000,
    seed: int = 0,
    topology: Topology = "ring",
    progress: Progress = no_progress,
) -> StreamResult:
    """Simulate random slice requests on a rack: Poisson arrivals, exponential durations.

    Args:
        rack: The rack.
        mix: Job sizes.
        load: Mean number of accelerators in use if all requests were accepted, divided by the accelerators of the rack.
        requests: Number of requests.
        seed: Random seed; the stream is the same for every rack.
        topology: Topology of every request.
        progress: Called regularly with ``"requests"``, the number of requests so far and their total.

    Raises:
        ConfigError: A number is out of range, or a slice needs more ports than an accelerator has.
    """
    if not (math.isfinite(load) and 0.0 < load <= 100.0):
        raise ConfigError(f"the load cannot be {load}", hint="Give a number above 0, at most 100.")
    if not 1 <= requests <= MAX_REQUESTS:
        raise ConfigError(f"cannot serve {requests} requests", hint=f"Give 1 to {MAX_REQUESTS}.")
    sizes, arrivals, durations = _draw_requests(rack, mix, load, requests, np.random.default_rng(seed))
    request_of = {size: SliceRequest(size, topology) for size in mix.sizes}
    busy, ends = np.zeros(rack.size, dtype=np.bool_), list[tuple[float, int, tuple[int, ...]]]()
    shares, short, fragmented, work = list[float](), 0, 0, 0.0
    accepted = 0
    for number, (arrival, size) in enumerate(zip(arrivals.tolist(), sizes.tolist(), strict=True)):
        if number % _REQUESTS_PER_STEP == 0:
            progress("requests", number, requests)
        while ends and ends[0][0] <= arrival:
            busy[list(heapq.heappop(ends)[2])] = False
        placed = rack.place(request_of[size], busy) if size <= rack.size else None
        if placed is None:
            enough = rack.size - int(busy.sum()) >= size
            short, fragmented = short + (not enough), fragmented + enough
            continue
        accepted += 1
        busy[list(placed.accelerators)] = True
        heapq.heappush(ends, (arrival + durations[number], number, placed.accelerators))
        # Time after the last arrival is not counted.
        work += size * min(float(durations[number]), float(arrivals[-1]) - arrival)
        if size > 1:
            shares.append(placed.bandwidth_share)
    share = np.array(shares) if shares else np.ones(1)
    return StreamResult(
        requests,
        accepted / requests,
        short / requests,
        fragmented / requests,
        work / (rack.size * float(arrivals[-1])),
        float(share.mean()),
        float((1.0 / share).mean()),
    )


def _draw_requests(
    rack: Rack, mix: JobMix, load: float, requests: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    sizes = mix.draw(rng, requests)
    # The mean duration of 1 determines the arrival rate for a load.
    mean_interval = float(np.dot(mix.sizes, mix.shares)) / (load * rack.size)
    return sizes, np.cumsum(rng.exponential(mean_interval, requests)), rng.exponential(1.0, requests)


def training_speedup(communication_share: float, faster: float) -> float:
    """Return the speed-up of a training iteration with faster communication (Amdahl's law).

    Args:
        communication_share: Fraction of the original iteration spent in communication that does not overlap with
            computation, 0 to 1.
        faster: Speed-up of the communication.
    """
    if not 0.0 <= communication_share <= 1.0 or not faster > 0.0:
        raise ConfigError(f"invalid communication share {communication_share} or speed-up {faster}")
    return 1.0 / (1.0 - communication_share + communication_share / faster)


def needed_communication_share(speedup: float, faster: float) -> float | None:
    """Return the communication fraction at which an iteration reaches a speed-up; ``None`` if none does."""
    if not (speedup >= 1.0 and faster > 0.0):
        raise ConfigError(f"invalid speed-up {speedup} or communication speed-up {faster}", hint="Give at least 1.")
    if speedup > faster:
        return None
    return 0.0 if speedup == 1.0 else (1.0 - 1.0 / speedup) / (1.0 - 1.0 / faster)
