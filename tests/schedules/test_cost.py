"""Costs of schedules. The tables are computed by hand from the formulas of docs/schedules.md, and printed there."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from lumion_hw.errors import LimitError
from lumion_hw.schedules.collectives import make_schedule
from lumion_hw.schedules.cost import (
    CostModel,
    advice,
    best_static,
    cost_of,
    port_times_s,
    size_text,
    time_text,
)

FAST = CostModel(50e9)
NAMES = ("ring", "halving-doubling", "stragglar", "all-to-all", "bruck")
COSTS = {(name, n): cost_of(make_schedule(name, n)) for name in NAMES for n in (8, 64)}


@pytest.mark.parametrize(
    ("ranks", "buffer_bytes", "delta_s", "expected_ms"),
    [
        (64, 2**30, 0.0, (42.66, 42.31, 23.38, 21.33, 64.44)),
        (64, 2**30, 1e-5, (42.67, 42.42, 24.06, 21.96, 64.50)),
        (64, 2**30, 1e-3, (43.66, 53.31, 91.4, 84.3, 70.4)),
        (64, 2**30, 1e-2, (52.7, 152.3, 703, 651, 124)),
        (64, 2**30, 25e-3, (67.7, 317, 1723, 1596, 214)),
        (8, 2**20, 0.0, (0.0787, 0.0547, 0.0540, 0.0394, 0.0405)),
        (8, 2**20, 1e-3, (1.08, 5.05, 9.05, 7.04, 3.04)),
        (8, 2**20, 1e-2, (10.1, 50.1, 90.1, 70.0, 30.0)),
    ],
)
def test_times_of_the_table(ranks: int, buffer_bytes: int, delta_s: float, expected_ms: tuple[float, ...]) -> None:
    model = FAST.with_delta_s(delta_s)
    found_ms = [1e3 * COSTS[name, ranks].time_s(model, buffer_bytes) for name in NAMES]
    for found, printed in zip(found_ms, expected_ms, strict=True):
        digits = len(repr(printed).partition(".")[2]) if isinstance(printed, float) else 0
        assert abs(found - printed) <= 0.501 * 10.0**-digits


@given(
    st.sampled_from([4, 8, 16, 64]), st.floats(0, 1e12), st.floats(1e6, 1e12), st.floats(0, 1e-3), st.floats(0, 1e-1)
)
def test_formulas(ranks: int, buffer_bytes: float, rate: float, alpha: float, delta: float) -> None:
    n, log, b = ranks, ranks.bit_length() - 1, buffer_bytes / rate
    model = CostModel(rate, alpha, switching_s=delta)
    expected = {
        "ring": delta + 2 * (n - 1) * (alpha + b / n),
        "ring-matchings": 4 * (n - 1) * (delta + alpha + b / n),
        "halving-doubling": 2 * log * alpha + 2 * b * (n - 1) / n + (2 * log - 1) * delta,
        "recursive-doubling": log * (delta + alpha + b),
        "all-to-all": (n - 1) * (delta + alpha + b / n),
        "bruck": log * (delta + alpha + b / 2),
        "all-to-all-ring": delta + (n - 1) * (alpha + b / 2),
        "binomial-broadcast": log * (delta + alpha + b),
        "stragglar": (n - 2 + log) * (delta + alpha + b / (n - 1)),
    }
    for name, seconds in expected.items():
        assert _cost(name, n).time_s(model, buffer_bytes) == pytest.approx(seconds, rel=1e-9, abs=1e-15)


_KNOWN: dict[tuple[str, int], object] = {}


def _cost(name: str, ranks: int):
    if (name, ranks) not in _KNOWN:
        _KNOWN[name, ranks] = cost_of(make_schedule(name, ranks))
    return _KNOWN[name, ranks]


@pytest.mark.parametrize(
    ("ranks", "at_64_mib", "at_1_gib"), [(8, 80e-6, 1.25e-3), (16, 55e-6, 0.85e-3), (64, 20e-6, 288e-6)]
)
def test_break_even_of_stragglar(ranks: int, at_64_mib: float, at_1_gib: float) -> None:
    own, ring = _cost("stragglar", ranks), _cost("ring", ranks)
    assert own.break_even_delta_s(ring, FAST, 2**26) == pytest.approx(at_64_mib, abs=0.5e-6)
    assert own.break_even_delta_s(ring, FAST, 2**30) == pytest.approx(at_1_gib, rel=0.01)


@pytest.mark.parametrize(("ranks", "delta_us"), [(8, 6), (16, 11), (64, 34), (256, 106)])
def test_break_even_of_halving_doubling_is_that_of_any_buffer(ranks: int, delta_us: float) -> None:
    own, ring = _cost("halving-doubling", ranks), _cost("ring", ranks)
    for buffer_bytes in (2.0**20, 2.0**33):
        assert 1e6 * own.break_even_delta_s(ring, FAST, buffer_bytes) == pytest.approx(delta_us, abs=0.5)
    assert own.winning_range_bytes(ring, FAST.with_delta_s(1e-2)) is None


@pytest.mark.parametrize(("ranks", "b_ms", "late_ms"), [(4, 180, 120), (8, 172, 148), (16, 252, 235), (64, 753, 741)])
def test_smallest_buffer_and_lateness_of_stragglar_at_10_ms(ranks: int, b_ms: float, late_ms: float) -> None:
    own, model = _cost("stragglar", ranks), FAST.with_delta_s(1e-2)
    won = own.winning_range_bytes(_cost("ring", ranks), model)
    assert won is not None
    assert 1e3 * won[0] / model.bytes_per_s == pytest.approx(b_ms, rel=0.005)
    assert 1e3 * own.early_s(model, won[0]) == pytest.approx(late_ms, rel=0.007)
    assert own.time_s(model, won[0], late_s=0.0) > own.time_s(model, won[0])


@pytest.mark.parametrize("name", ["stragglar", "all-to-all", "bruck", "recursive-doubling", "halving-doubling"])
@pytest.mark.parametrize("delta_s", [0.0, 1e-5, 1e-2])
def test_at_its_edges_a_winner_ties(name: str, delta_s: float) -> None:
    model = FAST.with_delta_s(delta_s)
    schedule = make_schedule(name, 8)
    own, fixed = cost_of(schedule), best_static(schedule, model, 2**20)
    won = own.winning_range_bytes(fixed, model)
    for edge in [edge for edge in won or () if 0.0 < edge < math.inf]:
        assert own.time_s(model, edge) == pytest.approx(fixed.time_s(model, edge))
        assert own.break_even_delta_s(fixed, model, edge) == pytest.approx(delta_s)
        inside = 2 * edge if edge == won[0] else edge / 2
        assert own.time_s(model, inside) < fixed.time_s(model, inside)


FIXED = {
    "ring": "ring",
    "stragglar": "ring",
    "ring-reduce-scatter": "ring-reduce-scatter",
    "ring-all-gather": "ring-all-gather",
    "bruck": "all-to-all-ring",
    "binomial-broadcast": "ring-broadcast",
}


@pytest.mark.parametrize("ranks", [4, 6, 10])
@pytest.mark.parametrize("name", FIXED)
def test_what_a_fixed_ring_costs_is_what_its_schedule_costs(name: str, ranks: int) -> None:
    schedule = make_schedule(name, ranks)
    # Sixteen pieces are best where (n - 2) b / alpha is 256.
    model = CostModel(50e9, alpha_s=1e-6)
    buffer_bytes = 256 * 1e-6 * 50e9 / (ranks - 2)
    assert best_static(schedule, model, buffer_bytes) == cost_of(make_schedule(FIXED[name], ranks))


def test_a_broadcast_has_no_more_pieces_than_there_may_be() -> None:
    schedule = make_schedule("binomial-broadcast", 1024)
    for model in (FAST, CostModel(50e9, alpha_s=0.0)):
        fixed = best_static(schedule, model, 1e15)
        assert fixed is not None
        assert fixed.rounds == 4096 + 1022


@pytest.mark.long  # 3 s
def test_what_would_be_too_large_a_schedule_still_has_a_price() -> None:
    """1,024 ranks pass on half a billion blocks around a ring."""
    fixed = best_static(make_schedule("bruck", 1024), FAST, 2**20)
    assert fixed is not None
    assert (fixed.rounds, fixed.buffers) == (1023, 511.5)
    assert "at 10 ms" in advice(make_schedule("bruck", 1024), FAST, 2**20)


def test_advice() -> None:
    text = advice(make_schedule("stragglar", 8), FAST, 2**20)
    assert "at 10 ms from 8.02 GiB up" in text  # 8.6 GB
    assert "at 0 s always" in text
    assert "at 10 ms never" in advice(make_schedule("halving-doubling", 8), FAST, 2**20)
    assert "programmed only once" in advice(make_schedule("ring", 8), FAST, 2**20)
    assert "no fixed configuration" in advice(make_schedule("circle", 8), FAST, 2**20)


def test_a_slow_port_of_1_25_gb_per_s() -> None:
    model = CostModel(1.25e9, switching_s=1e-2)
    assert _cost("stragglar", 8).time_s(model, 2**30) == pytest.approx(1.19, abs=0.01)
    assert _cost("ring", 8).time_s(model, 2**30) == pytest.approx(1.51, abs=0.01)
    assert _cost("stragglar", 8).early_s(model, 2**30) == pytest.approx(0.74, abs=0.01)


def test_what_is_hidden_costs_nothing_and_relock_counts() -> None:
    assert CostModel(1e9, switching_s=0.01, relock_s=0.005).delta_s == pytest.approx(0.015)
    assert CostModel(1e9, switching_s=0.01, relock_s=0.005, hidden_s=0.012).delta_s == pytest.approx(0.003)
    assert CostModel(1e9, switching_s=0.01, hidden_s=1.0).delta_s == 0.0


def test_a_configuration_that_stands_saves_one_change() -> None:
    model = FAST.with_delta_s(1e-3)
    cost = _cost("ring", 8)
    assert cost.time_s(model, 1e6) - cost.time_s(model, 1e6, first_is_ready=True) == pytest.approx(1e-3)


def test_ports_of_their_own_do_not_wait_for_others() -> None:
    # In step, a broadcast is dark three times; the last ranks are switched earlier while idle.
    schedule, model = make_schedule("binomial-broadcast", 8), FAST.with_delta_s(1e-3)
    end_s, dark_s = port_times_s(schedule, model, 2**20)
    assert end_s == pytest.approx(cost_of(schedule).time_s(model, 2**20))  # rank 0 changes every time
    assert dark_s == pytest.approx([3e-3, 3e-3, 2e-3, 2e-3, 1e-3, 1e-3, 1e-3, 1e-3])
    # A ring changes once for every rank.
    end_s, dark_s = port_times_s(make_schedule("ring", 8), model, 2**20)
    assert end_s == pytest.approx(_cost("ring", 8).time_s(model, 2**20))
    assert dark_s == (1e-3,) * 8


@pytest.mark.parametrize(
    "values",
    [
        {"bytes_per_s": 0.0},
        {"bytes_per_s": math.nan},
        {"alpha_s": -1e-6},
        {"switching_s": math.inf},
        {"relock_s": 86_401.0},
        {"hidden_s": math.nan},
    ],
)
def test_models_that_make_no_sense_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(LimitError, match="of a cost model"):
        CostModel(**({"bytes_per_s": 1e9} | values))


def test_a_dark_time_of_a_day_and_a_buffer_of_nothing_have_answers() -> None:
    assert _cost("ring", 8).time_s(FAST.with_delta_s(86_400.0), 0.0) == pytest.approx(86_400.0, rel=1e-6)
    with pytest.raises(LimitError, match="buffer"):
        _cost("ring", 8).time_s(FAST, math.inf)


def test_words_for_sizes_and_times() -> None:
    assert [size_text(x) for x in (0, 1023, 4 * 2**20, 1.5 * 2**30)] == ["0 B", "1023 B", "4 MiB", "1.5 GiB"]
    assert [time_text(x) for x in (0.0, 3.7e-6, 1e-2, 90.0)] == ["0 s", "3.7 µs", "10 ms", "90 s"]
