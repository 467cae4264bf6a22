"""Slices: boxes on a torus, circuits on a fabric, and results of a stream of requests."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lumion_hw.errors import ConfigError
from lumion_hw.planning import (
    MIXES,
    FabricRack,
    JobMix,
    SliceRequest,
    TorusRack,
    needed_communication_share,
    serve_stream,
    torus_share,
    training_speedup,
)
from lumion_hw.planning.slices import Topology
from tests.effort import examples


@pytest.mark.parametrize(("count", "pairs"), [(1, 0), (2, 1), (3, 3), (8, 8)])
def test_a_ring_joins_each_to_the_next(count: int, pairs: int) -> None:
    circuits = SliceRequest(count).circuits()
    assert len(circuits) == pairs
    assert SliceRequest(count).ports == min(2, count - 1)


def test_a_torus_has_six_neighbours_and_a_cube_of_eight_three() -> None:
    assert SliceRequest(64, "torus").ports == 6
    assert len(SliceRequest(64, "torus").circuits()) == 192
    assert SliceRequest(8, "torus").ports == 3
    assert SliceRequest(5, "full").ports == 4


@pytest.mark.parametrize("topology", ["ring", "torus", "full"])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8, 12, 27])
def test_ports_are_the_circuits_of_the_busiest_accelerator(topology: Topology, count: int) -> None:
    request = SliceRequest(count, topology)
    ends = [end for pair in request.circuits() for end in pair]
    assert request.ports == max((ends.count(place) for place in range(count)), default=0)


@pytest.mark.parametrize(
    ("box", "share"), [((2, 2, 1), 2 / 6), ((2, 2, 2), 3 / 6), ((2, 2, 4), 4 / 6), ((2, 4, 4), 5 / 6), ((4, 4, 4), 1.0)]
)
def test_links_out_of_the_box_are_lost(box: tuple[int, int, int], share: float) -> None:
    assert torus_share(box, (4, 4, 4)) == pytest.approx(share)


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 5)), min_size=1, max_size=30))
@examples(60)
def test_slices_never_overlap_and_the_fabric_refuses_only_for_want_of_accelerators(
    wanted: list[tuple[int, int]],
) -> None:
    for rack in (TorusRack(), TorusRack(wrapped=False), FabricRack()):
        busy, held = np.zeros(64, dtype=np.bool_), []
        for size, release in wanted:
            placed = rack.place(SliceRequest(size), busy)
            if placed is None:
                if isinstance(rack, FabricRack):
                    assert (~busy).sum() < size
            else:
                assert len(set(placed.accelerators)) == len(placed.accelerators) >= size
                assert not busy[list(placed.accelerators)].any()
                busy[list(placed.accelerators)] = True
                held.append(placed)
            if held and release == 0:
                busy[list(held.pop(0).accelerators)] = False
        assert busy.sum() == sum(len(one.accelerators) for one in held)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_torus_places_a_box_wherever_one_is_free(wrapped: bool) -> None:
    """Compared with every corner and every orientation of the box, tried one by one."""
    rng = np.random.default_rng(3)
    for _ in range(40):
        busy = rng.random(64) < rng.uniform(0.1, 0.7)
        placed = TorusRack(wrapped=wrapped).place(SliceRequest(8), busy)
        free = False
        for box in {*itertools.permutations((2, 2, 2)), *itertools.permutations((1, 2, 4))}:
            for corner in itertools.product(range(4), repeat=3):
                if wrapped or all(c + n <= 4 for c, n in zip(corner, box, strict=True)):
                    places = itertools.product(
                        *([(c + k) % 4 for k in range(n)] for c, n in zip(corner, box, strict=True))
                    )
                    free |= not any(busy[16 * x + 4 * y + z] for x, y, z in places)
        assert (placed is not None) == free


def test_on_a_large_torus_boxes_are_not_all_listed() -> None:
    """Boxes of 120 accelerators have 4,096 corners each and come in dozens of kinds: a quarter of a gigabyte."""
    rack, busy = TorusRack((16, 16, 16)), np.zeros(4096, dtype=np.bool_)
    busy[::16] = True
    tracemalloc.start()
    placed = rack.place(SliceRequest(120), busy)
    _, max_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert placed is not None
    assert sorted(placed.box or ()) == [4, 5, 6]
    assert not busy[list(placed.accelerators)].any()
    assert max_bytes < 10e6


def test_a_stream_says_how_far_it_is() -> None:
    said: list[tuple[str, int, int]] = []
    serve_stream(TorusRack(), MIXES["even"], load=1.0, requests=250, progress=lambda *step: said.append(step))
    assert said == [("requests", 0, 250), ("requests", 100, 250), ("requests", 200, 250)]


def test_a_number_without_a_box_takes_the_next_larger_and_a_fabric_does_not() -> None:
    nothing = np.zeros(64, dtype=np.bool_)
    assert TorusRack().place(SliceRequest(7), nothing).box == (2, 2, 2)  # type: ignore[union-attr]
    placed = FabricRack().place(SliceRequest(7, "torus"), nothing)
    assert placed is not None
    assert len(placed.accelerators) == 7


def test_a_fabric_keeps_whole_servers_free() -> None:
    busy = np.zeros(16, dtype=np.bool_)
    busy[[0, 1, 4]] = True
    placed = FabricRack(16).place(SliceRequest(2), busy)
    assert placed is not None
    assert placed.accelerators == (2, 3)
    assert placed.circuits == ((2, 3),)


def test_the_same_stream_is_lost_to_fragments_on_a_torus_only() -> None:
    torus = serve_stream(TorusRack(), MIXES["even"], load=2.0, requests=3000, seed=1)
    fabric = serve_stream(FabricRack(), MIXES["even"], load=2.0, requests=3000, seed=1)
    assert torus.fragmented > 0.03
    assert fabric.fragmented == 0.0
    assert fabric.used > torus.used + 0.02
    for one in (torus, fabric):
        assert one.accepted + one.short + one.fragmented == pytest.approx(1.0)


def test_a_rack_that_is_never_full_loses_nothing() -> None:
    """Erlang: one accelerator per request, a twentieth of the load; and with one place, a half is lost at load 1."""
    assert serve_stream(FabricRack(), JobMix.from_weights({1: 1.0}), load=0.05, requests=2000).accepted == 1.0
    one = serve_stream(FabricRack(1, 1), JobMix.from_weights({1: 1.0}), load=1.0, requests=20_000, seed=2)
    assert one.accepted == pytest.approx(0.5, abs=0.015)


def test_amdahl_both_ways() -> None:
    share = needed_communication_share(1.7, 2.0)
    assert share is not None
    assert training_speedup(share, 2.0) == pytest.approx(1.7)
    assert needed_communication_share(1.7, 1.6) is None
    assert needed_communication_share(1.0, 1.0) == 0.0


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: SliceRequest(0), "slice cannot have 0"),
        (lambda: SliceRequest(4, "star"), "topology"),  # type: ignore[arg-type]
        (lambda: TorusRack((4, 4, 0)), "torus"),
        (lambda: FabricRack(10, 4), "complete servers"),
        (lambda: FabricRack().place(SliceRequest(8, "full"), np.zeros(64, dtype=np.bool_)), "needs 7 ports"),
        (lambda: serve_stream(FabricRack(), MIXES["even"], load=0.0), "load"),
        (lambda: serve_stream(FabricRack(), MIXES["even"], load=1.0, requests=0), "requests"),
        (lambda: needed_communication_share(0.5, 2.0), "speed-up"),
        (lambda: training_speedup(2.0, 2.0), "communication"),
    ],
)
def test_what_cannot_be_is_refused(wrong: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        wrong()  # type: ignore[operator]
