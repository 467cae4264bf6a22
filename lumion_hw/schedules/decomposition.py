"""Decomposition of traffic demands into circuit configurations, each with a duration.

:func:`birkhoff` serves the complete demand with permutations (Birkhoff, von Neumann). :func:`bounded` serves as much as
it can with a limited number of configurations and a limited total time. :func:`optimal` returns the provable maximum
for a few ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from lumion_hw.errors import ConfigError, LimitError, UndecidedError
from lumion_hw.schedules.cost import CostModel
from lumion_hw.schedules.demand import Demand
from lumion_hw.schedules.matchings import heavy_matching
from lumion_hw.schedules.schedule import Circuits, both_directions

_Integers = NDArray[np.int64]
_PRICES = (0.0, 0.25, 0.5, 1.0, 2.0)
"""Costs of one more configuration that are tried, relative to the average duration of a configuration."""
_RELATIVE_HOLD_TIMES = np.array([0.25, 0.5, 1.0, 2.0, 4.0])
"""Durations tried for each configuration, relative to the remaining time per remaining configuration."""
_MAX_OPTIMAL_RANKS = 6
"""Largest number of ranks for the exact solver."""
MAX_CONFIGURATIONS = 1_000_000


@dataclass(frozen=True)
class TimedConfiguration:
    """One configuration of circuits and its duration.

    Attributes:
        circuits: Directed circuits.
        hold_bytes: Duration, as the bytes that a port can send in this time.
    """

    circuits: Circuits
    hold_bytes: int


@dataclass(frozen=True, eq=False)
class Decomposition:
    """Configurations of circuits that serve a demand one after the other.

    Attributes:
        method: Name of the method that found the configurations.
        duplex: Whether each configuration is a matching (both directions of a circuit belong together).
    """

    method: str
    demand: Demand
    duplex: bool
    configurations: tuple[TimedConfiguration, ...]

    @property
    def hold_bytes(self) -> int:
        """Sum of the durations of all configurations, as bytes through one port."""
        return sum(configuration.hold_bytes for configuration in self.configurations)

    @cached_property
    def served_after_bytes(self) -> tuple[int, ...]:
        """Bytes served by the first k configurations, for k from 0 to the number of configurations."""
        remaining, served = self.demand.pair_bytes.copy(), [0]
        for configuration in self.configurations:
            senders, receivers = np.array(configuration.circuits, dtype=np.int64).reshape(-1, 2).T
            sent = np.minimum(remaining[senders, receivers], configuration.hold_bytes)
            remaining[senders, receivers] -= sent
            served.append(served[-1] + int(sent.sum()))
        return tuple(served)

    @property
    def served_share(self) -> float:
        """Fraction of the demand that is served; 1 for an empty demand."""
        return self.served_after_bytes[-1] / self.demand.total_bytes if self.demand.total_bytes else 1.0

    def time_s(self, model: CostModel, count: int | None = None, electrical_bytes_per_s: float = math.inf) -> float:
        """Return the time in s to serve a demand: durations, dark times, and the remaining traffic.

        Args:
            model: The fabric; only its rate and dark time are used.
            count: Number of configurations to use, from the first; all by default.
            electrical_bytes_per_s: Rate at which an electrical network carries the remaining traffic of all ranks
                together; by default this traffic takes no time.
        """
        count = len(self.configurations) if count is None else count
        held_s = sum(configuration.hold_bytes for configuration in self.configurations[:count]) / model.bytes_per_s
        remainder_s = (self.demand.total_bytes - self.served_after_bytes[count]) / electrical_bytes_per_s
        return held_s + count * model.delta_s + remainder_s

    def best_count(self, model: CostModel, electrical_bytes_per_s: float) -> int:
        """Return the number of configurations after which an electrical network should carry the remaining traffic."""
        return min(range(len(self.configurations) + 1), key=lambda k: self.time_s(model, k, electrical_bytes_per_s))

    def duty(self, model: CostModel) -> float:
        """Return the fraction of time in which circuits are up."""
        held_s = self.hold_bytes / model.bytes_per_s
        duration_s = held_s + len(self.configurations) * model.delta_s
        return held_s / duration_s if duration_s else 1.0


def pad_demand(pair_bytes: _Integers) -> _Integers:
    """Return a demand matrix with dummy traffic added, so that all row and column sums are equal."""
    filled = pair_bytes.copy()
    rows, columns = filled.sum(axis=1), filled.sum(axis=0)
    largest = max(int(rows.max()), int(columns.max()))
    for i in range(len(filled)):
        for j in range(len(filled)):
            if not (add := min(largest - int(rows[i]), largest - int(columns[j]))):
                continue
            filled[i, j] += add
            rows[i] += add
            columns[j] += add
    return filled


def birkhoff(demand: Demand) -> Decomposition:
    """Return permutations that serve a complete demand in the shortest total time; for simplex ports.

    With n ranks there are at most n**2 - 2 n + 2 permutations; their durations add up to :attr:`Demand.busiest_bytes`.
    """
    filled = pad_demand(demand.pair_bytes)
    real = demand.pair_bytes.copy()
    threshold = float(filled.max())
    rank = np.arange(demand.ranks)
    configurations = []
    while filled.any():
        partner = _perfect_matching(filled >= max(threshold, 1.0))
        if partner is None:
            threshold /= 2.0
            continue
        hold = int(filled[rank, partner].min())
        filled[rank, partner] -= hold
        # A port with only dummy traffic is idle.
        used = rank[real[rank, partner] > 0]
        real[rank, partner] = np.maximum(real[rank, partner] - hold, 0)
        configurations.append(TimedConfiguration(tuple((int(i), int(partner[i])) for i in used), hold))
    return Decomposition("birkhoff", demand, False, tuple(configurations))


def _perfect_matching(allowed: NDArray[np.bool_]) -> NDArray[np.int64] | None:
    from scipy.optimize import linear_sum_assignment

    if not (allowed.any(axis=0).all() and allowed.any(axis=1).all()):
        return None
    rows, columns = linear_sum_assignment(allowed.astype(np.float64), maximize=True)
    return columns.astype(np.int64) if allowed[rows, columns].all() else None


def bounded(demand: Demand, count: int, *, hold_bytes: int | None = None, duplex: bool = False) -> Decomposition:
    """Return a limited number of configurations that serve much of a demand; not proven to be optimal.

    Args:
        demand: The demand.
        count: Largest number of configurations.
        hold_bytes: Largest total duration, as bytes through one port; by default the bytes of the busiest port.
        duplex: Whether every configuration must be a matching (both directions of a circuit belong together).

    Raises:
        LimitError: The count or the duration is out of range.
    """
    budget = demand.busiest_bytes if hold_bytes is None else hold_bytes
    _check_bounds(count, budget)
    best = Decomposition("bounded", demand, duplex, ())
    sets = [_choose_greedily(demand, count, budget, price, duplex) for price in _PRICES if budget]
    if not duplex and budget and demand.ranks <= 256:
        sets.append([configuration.circuits for configuration in birkhoff(demand).configurations[:count]])
    for chosen in dict.fromkeys(map(tuple, sets)):
        hold_times = _optimise_hold_times(demand, chosen, budget)
        configurations = tuple(TimedConfiguration(c, h) for c, h in zip(chosen, hold_times, strict=True) if h > 0)
        other = Decomposition("bounded", demand, duplex, configurations)
        if other.served_after_bytes[-1] > best.served_after_bytes[-1]:
            best = other
    return best


def _check_bounds(count: int, budget: float) -> None:
    if not 1 <= count <= MAX_CONFIGURATIONS:
        limit = 1 if count < 1 else MAX_CONFIGURATIONS
        raise LimitError("number of configurations", requested=count, limit=limit, unit="")
    if not 0 <= budget < 2**60:
        raise LimitError("hold time", requested=budget, limit=0 if budget < 0 else 2**60, unit="B")


def _choose_greedily(demand: Demand, count: int, budget: int, price: float, duplex: bool) -> list[Circuits]:
    remaining_bytes = demand.pair_bytes.astype(np.float64)
    chosen: list[Circuits] = []
    remaining = float(budget)
    price_per_setting = price * budget / count
    while len(chosen) < count and remaining >= 1.0 and remaining_bytes.any():
        even = remaining / (count - len(chosen)) * _RELATIVE_HOLD_TIMES
        largest = np.quantile(remaining_bytes.max(axis=1), (0.5, 1.0))
        hold_times = np.unique(np.clip(np.concatenate([even, largest]), 1.0, remaining))
        tries = [(hold, *_serve_largest(np.minimum(remaining_bytes, hold), duplex)) for hold in hold_times.tolist()]
        hold, served, circuits = max(tries, key=lambda attempt: attempt[1] / (attempt[0] + price_per_setting))
        if served <= 0.0:
            break
        for i, j in circuits:
            remaining_bytes[i, j] = max(remaining_bytes[i, j] - hold, 0.0)
        remaining -= hold
        chosen.append(circuits)
    return chosen


def _serve_largest(value: NDArray[np.float64], duplex: bool) -> tuple[float, Circuits]:
    """Return the circuits that serve most of a demand matrix, and the bytes that they serve."""
    if duplex:
        pair_value = value + value.T
        np.fill_diagonal(pair_value, -1e30)
        pairs = [pair for pair in heavy_matching(pair_value) if pair_value[pair] > 0.0]
        return float(sum(pair_value[pair] for pair in pairs)), both_directions(pairs)
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(value, maximize=True)
    circuits = tuple((int(i), int(j)) for i, j in zip(rows, columns, strict=True) if value[i, j] > 0.0)
    return float(value[rows, columns].sum()), circuits


def _optimise_hold_times(demand: Demand, chosen: Sequence[Circuits], budget: int) -> list[int]:
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    row_of: dict[tuple[int, int], int] = {}
    rows, columns = [], []
    for column, circuits in enumerate(chosen):
        for pair in circuits:
            rows.append(row_of.setdefault(pair, len(row_of)))
            columns.append(column)
    k, pairs = len(chosen), list(row_of)
    if not pairs:
        return [0] * k
    demanded = np.array([demand.pair_bytes[pair] for pair in pairs], dtype=np.float64)
    scale = max(float(demanded.max()), 1.0)
    # The amount served per pair is limited by its demand, and by the hold times of configurations with this pair.
    served = np.arange(len(pairs))
    constraints = coo_array(
        (
            np.concatenate([np.full(len(rows), -1.0), np.ones(len(pairs)), np.ones(k)]),
            (
                # 32-bit indices: the solver of scipy before 1.15 accepts no others.
                np.concatenate([rows, served, np.full(k, len(pairs))]).astype(np.int32),
                np.concatenate([columns, k + served, np.arange(k)]).astype(np.int32),
            ),
        ),
        shape=(len(pairs) + 1, k + len(pairs)),
    )
    maxima = np.append(np.zeros(len(pairs)), budget / scale)
    value = np.append(np.zeros(k), -np.ones(len(pairs)))
    upper = np.append(np.full(k, np.inf), demanded / scale)
    limits = LinearConstraint(constraints.tocsr(), -np.inf, maxima)
    solved = milp(value, bounds=Bounds(0.0, upper), constraints=limits)  # all unknowns are continuous
    if solved.x is None:
        raise UndecidedError(f"the hold times of {k} configurations could not be optimised: {solved.message}")
    # The solver may err by one part in 10**9; an excess of less than a byte is removed below.
    durations = np.floor(solved.x[:k] * scale + 1e-3).astype(np.int64)
    while int(durations.sum()) > budget:
        durations[int(durations.argmax())] -= int(durations.sum()) - budget
    return [int(number) for number in durations]


def optimal(demand: Demand, count: int, *, hold_bytes: int | None = None, time_limit_s: float = 60.0) -> float:
    """Return the largest number of bytes that permutations can serve, proven by a mixed-integer program.

    Args:
        demand: A demand of at most six ranks.
        count: Largest number of configurations.
        hold_bytes: Largest total duration, as bytes through one port; by default the bytes of the busiest port.
        time_limit_s: Time limit of the solver.

    Raises:
        ConfigError: There are too many ranks for the exact solver.
        LimitError: The count or the duration is out of range.
        UndecidedError: The solver did not finish in time.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array, lil_array

    n = demand.ranks
    if n > _MAX_OPTIMAL_RANKS:
        raise ConfigError(
            f"the exact solver accepts at most {_MAX_OPTIMAL_RANKS} ranks, not {n}", hint="Use the bounded method."
        )
    budget = demand.busiest_bytes if hold_bytes is None else hold_bytes
    _check_bounds(count, budget)
    demanded = demand.pair_bytes.astype(np.float64).ravel()
    scale = max(float(demanded.max()), 1.0)
    demanded, window = demanded / scale, budget / scale
    cells, k = n * n, count
    width = k * (1 + 2 * cells)
    rows = _permutation_constraints(n, k, demanded, window)
    matrix = lil_array((len(rows), width))
    for number, (entries, _) in enumerate(rows):
        for column, value in entries.items():
            matrix[number, column] = value
    gain, is_integer, upper = np.zeros(width), np.zeros(width, dtype=np.int64), np.full(width, np.inf)
    for c in range(k):
        first = _unknown_index(cells, c, 1)
        is_integer[first : first + cells], upper[first : first + cells] = 1, 1.0
        gain[first + cells : first + 2 * cells] = -1.0
    limits = LinearConstraint(csr_array(matrix), -np.inf, np.array([maximum for _, maximum in rows]))
    solved = milp(
        gain,
        integrality=is_integer,
        bounds=Bounds(0.0, upper),
        constraints=limits,
        options={"time_limit": time_limit_s, "mip_rel_gap": 1e-6},
    )
    if solved.status != 0:
        raise UndecidedError(f"no proven optimum in {time_limit_s:g} s: {solved.message}")
    return float(-solved.fun * scale)


def _unknown_index(cells: int, c: int, part: int, cell: int = 0) -> int:
    return c * (1 + 2 * cells) + (0 if part == 0 else 1 + (part - 1) * cells + cell)


def _permutation_constraints(
    n: int, k: int, demanded: NDArray[np.float64], window: float
) -> list[tuple[dict[int, float], float]]:
    cells = n * n
    at = partial(_unknown_index, cells)
    rows: list[tuple[dict[int, float], float]] = [({at(c, 0): 1.0 for c in range(k)}, window)]
    for c in range(k):
        for i in range(n):
            rows.append(({at(c, 1, i * n + j): 1.0 for j in range(n)}, 1.0))
            rows.append(({at(c, 1, j * n + i): 1.0 for j in range(n)}, 1.0))
        for cell in range(cells):
            rows.append(({at(c, 2, cell): 1.0, at(c, 0): -1.0}, 0.0))
            rows.append(({at(c, 2, cell): 1.0, at(c, 1, cell): -demanded[cell]}, 0.0))
        if c:
            rows.append(
                ({at(c, 0): 1.0, at(c - 1, 0): -1.0}, 0.0)
            )  # sort by hold time, since the order does not matter
    rows += [({at(c, 2, cell): 1.0 for c in range(k)}, demanded[cell]) for cell in range(cells)]
    return rows
