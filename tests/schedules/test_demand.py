"""Demands that are read, refused, and converted to configurations with hold times."""

from __future__ import annotations

import math
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays

from lumion_hw.errors import ConfigError, LimitError
from lumion_hw.schedules.cost import CostModel
from lumion_hw.schedules.decomposition import birkhoff, bounded, optimal, pad_demand
from lumion_hw.schedules.demand import Demand, demand_from_counts, read_counts
from lumion_hw.schedules.matchings import heavy_matching
from tests.effort import examples

BY_HAND = [[0, 3, 1], [2, 0, 2], [1, 1, 0]]
MATRICES = st.integers(2, 7).flatmap(lambda n: arrays.arrays(np.int64, (n, n), elements=st.integers(0, 50)))


def skewed(ranks: int, seed: int = 1) -> Demand:
    return demand_from_counts(np.random.default_rng(seed).lognormal(10.0, 2.0, (ranks, ranks)))


def held_matrix(found, ranks: int) -> np.ndarray:
    """Return bytes that could be sent from row to column while circuits are held."""
    total = np.zeros((ranks, ranks), dtype=np.int64)
    for each in found.configurations:
        for pair in each.circuits:
            total[pair] += each.hold_bytes
    return total


def test_the_example_worked_by_hand() -> None:
    # m = 4; filled [[0,3,1],[2,0,2],[2,1,1]]; threshold 1.5: 0>1 1>2 2>0 for 2; then 0>1 1>0 with 2 idle for 1; and
    # 0>2 1>0 2>1 for 1.
    demand = demand_from_counts(BY_HAND)
    assert pad_demand(demand.pair_bytes).tolist() == [[0, 3, 1], [2, 0, 2], [2, 1, 1]]
    found = birkhoff(demand)
    assert {(each.circuits, each.hold_bytes) for each in found.configurations} == {
        (((0, 1), (1, 2), (2, 0)), 2),
        (((0, 1), (1, 0)), 1),
        (((0, 2), (1, 0), (2, 1)), 1),
    }
    assert found.hold_bytes == demand.busiest_bytes == 4
    assert found.served_share == 1.0


@given(MATRICES)
@examples(60)
def test_birkhoff_serves_everything_in_the_least_time(matrix: np.ndarray) -> None:
    demand = demand_from_counts(matrix)
    found, n = birkhoff(demand), demand.ranks
    assert found.hold_bytes == demand.busiest_bytes
    assert found.served_after_bytes[-1] == demand.total_bytes
    assert len(found.configurations) <= n * n - 2 * n + 2
    assert (held_matrix(found, n) >= demand.pair_bytes).all()
    for each in found.configurations:
        senders, receivers = [a for a, _ in each.circuits], [b for _, b in each.circuits]
        assert len(set(senders)) == len(senders)
        assert len(set(receivers)) == len(receivers)
        assert all(a != b for a, b in each.circuits)
    filled = pad_demand(demand.pair_bytes)
    assert set(filled.sum(axis=0)) | set(filled.sum(axis=1)) == {demand.busiest_bytes}


@given(MATRICES, st.integers(1, 6), st.booleans(), st.floats(0.1, 2.0))
@examples(40)
def test_bounded_keeps_its_bounds(matrix: np.ndarray, count: int, duplex: bool, share: float) -> None:
    demand = demand_from_counts(matrix)
    budget = int(share * demand.busiest_bytes)
    found = bounded(demand, count, hold_bytes=budget, duplex=duplex)
    assert len(found.configurations) <= count
    assert found.hold_bytes <= budget
    for each in found.configurations:
        ends = [a for a, _ in each.circuits]
        assert len(set(ends)) == len(ends)
        if duplex:
            assert set(each.circuits) == {(b, a) for a, b in each.circuits}
    served = np.minimum(held_matrix(found, demand.ranks), demand.pair_bytes).sum()
    assert served == found.served_after_bytes[-1]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("count", [1, 2, 3])
def test_bounded_is_near_the_proven_optimum(seed: int, count: int) -> None:
    demand = demand_from_counts(np.random.default_rng(seed).lognormal(5.0, 1.5, (4, 4)))
    most = optimal(demand, count)
    served = bounded(demand, count).served_after_bytes[-1]
    assert 0.93 * most - 4 <= served <= most + 1


def test_the_optimum_by_hand() -> None:
    # One configuration, held for 4: the best permutation serves 3 + 2 + 1.
    assert optimal(demand_from_counts(BY_HAND), 1) == pytest.approx(6)
    assert optimal(demand_from_counts(BY_HAND), 3) == pytest.approx(10)
    assert optimal(demand_from_counts(BY_HAND), 1, hold_bytes=1) == pytest.approx(3)


def test_a_skewed_demand_of_64_ranks_in_a_second() -> None:
    demand = skewed(64)
    begun_s = time.process_time()
    assert birkhoff(demand).served_share == 1.0
    assert time.process_time() - begun_s < 1.0
    shares = [bounded(demand, count).served_share for count in (4, 16)]
    assert shares[0] > 0.6  # the first four of the full decomposition alone serve 15 %
    assert shares[1] > 0.85


def test_heavy_matching_finds_the_heaviest_of_small_graphs() -> None:
    import itertools

    for seed in range(20):
        weight = np.random.default_rng(seed).random((6, 6))
        weight = weight + weight.T
        np.fill_diagonal(weight, -1e9)
        best = max(sum(weight[order[i], order[i + 1]] for i in (0, 2, 4)) for order in itertools.permutations(range(6)))
        assert sum(weight[pair] for pair in heavy_matching(weight)) >= 0.93 * best


# -- time


def test_time_counts_dark_time_and_the_rest() -> None:
    found = birkhoff(demand_from_counts(np.array(BY_HAND) * 10**6))
    model = CostModel(1e9, switching_s=1e-2)
    assert found.time_s(model) == pytest.approx(4e-3 + 3e-2)
    assert found.duty(model) == pytest.approx(4.0 / 34.0)
    assert found.time_s(model, 0, electrical_bytes_per_s=1e9) == pytest.approx(1e-2)
    # The electrical network alone takes 10 ms, one configuration alone 12 ms of which 10 dark.
    assert found.best_count(model, 1e9) == 0
    assert found.best_count(model.with_delta_s(0.0), 1e9) == 3


def test_no_demand_needs_nothing() -> None:
    nothing = demand_from_counts(np.zeros((4, 4)))
    assert birkhoff(nothing).configurations == ()
    assert bounded(nothing, 3).configurations == ()
    assert birkhoff(nothing).served_share == 1.0
    assert birkhoff(nothing).duty(CostModel(1e9)) == 1.0


def test_groups_that_never_talk_share_configurations() -> None:
    matrix = np.zeros((4, 4))
    matrix[0, 1] = matrix[1, 0] = matrix[2, 3] = matrix[3, 2] = 5
    assert [each.circuits for each in birkhoff(demand_from_counts(matrix)).configurations] == [
        ((0, 1), (1, 0), (2, 3), (3, 2))
    ]


# -- reading


def test_tokens_become_bytes_and_experts_ranks() -> None:
    demand = demand_from_counts([[5, 1, 0, 2], [0, 3, 4, 0]], bytes_per_count=4096 * 2, rank_of_column=[0, 1, 0, 1])
    assert demand.pair_bytes.tolist() == [[0, 3 * 8192], [4 * 8192, 0]]
    assert demand.local_bytes == 8 * 8192
    assert demand.reversed().pair_bytes.tolist() == [[0, 4 * 8192], [3 * 8192, 0]]


@pytest.mark.parametrize(
    ("counts", "options", "message"),
    [
        ([[0, -1], [1, 0]], {}, r"row 0, column 1 .*negative: -1"),
        ([[0, 1], [math.nan, 0]], {}, r"row 1, column 0 .*not finite"),
        ([[0, math.inf], [1, 0]], {}, "not finite"),
        ([[0, 1e300], [1, 0]], {}, "too large"),
        ([[0, 1, 2], [1, 0, 2]], {}, "shape .*the rank of each"),
        ([[0, 1, 2], [1, 0, 2]], {"rank_of_column": [0, 1]}, "2 ranks given for 3 columns"),
        ([[0, 1, 2], [1, 0, 2]], {"rank_of_column": [0, 1, 2]}, "assigned to rank 2, but the 2 rows are ranks 0 to 1"),
        ([[1]], {}, "1 ranks"),
        ([], {}, "a demand must be a matrix"),
        ([["a"]], {}, "matrix of numbers"),
        ([[0, 1], [1, 0]], {"bytes_per_count": math.nan}, "bytes_per_count must be"),
    ],
)
def test_demands_that_make_no_sense_are_refused(counts: object, options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        demand_from_counts(counts, **options)


def test_matrices_are_read_from_csv_and_npy(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("0, 1.5\n\n2e3,0\n")
    np.save(tmp_path / "m.npy", np.array([[0, 7], [8, 0]], dtype=np.int32))
    assert read_counts(tmp_path / "m.csv").tolist() == [[0, 1.5], [2000, 0]]
    assert read_counts(tmp_path / "m.npy").tolist() == [[0, 7], [8, 0]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"0,1\n0,x\n", r"m:2: expected number 2 of the row, found 'x'"),
        (b"0,1\n0\n", "m:2: 1 numbers in the row, but earlier rows have 2"),
        (b"\n", "holds no numbers"),
        (b"\xff\xfe", "neither text nor NPY"),
        (b"\x93NUMPY\x01\x00", "is damaged"),
    ],
)
def test_files_that_hold_no_matrix_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read_counts(tmp_path / "m")


def test_arrays_that_would_be_unpickled_or_that_promise_too_much_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "o.npy", np.array([[{}, 1], [2, 3]], dtype=object), allow_pickle=True)
    with pytest.raises(ConfigError, match="expected a matrix of numbers"):
        read_counts(tmp_path / "o.npy")
    np.save(tmp_path / "v.npy", np.arange(5.0))
    with pytest.raises(ConfigError, match="expected a matrix of numbers"):
        read_counts(tmp_path / "v.npy")
    np.save(tmp_path / "m.npy", np.zeros((4, 4)))
    cut = (tmp_path / "m.npy").read_bytes()[:-8]
    (tmp_path / "m.npy").write_bytes(cut)
    with pytest.raises(ConfigError, match="is damaged"):
        read_counts(tmp_path / "m.npy")


def test_bounds_out_of_range_and_too_many_ranks_for_the_exact_solver_are_refused() -> None:
    with pytest.raises(LimitError, match="number of configurations"):
        bounded(demand_from_counts(BY_HAND), 0)
    with pytest.raises(LimitError, match="hold time"):
        bounded(demand_from_counts(BY_HAND), 1, hold_bytes=-1)
    with pytest.raises(ConfigError, match="accepts at most 6 ranks, not 8"):
        optimal(skewed(8), 2)
