"""Units packed into settings: each once, no incompatible units together, as few settings as with a plain switch."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import given, strategies as st

from lumion_hw.schedules.packing import Packer
from lumion_hw.schedules.schedule import Circuits
from tests.effort import examples

ALL_OF_FIVE = tuple(((a, b),) for a in range(5) for b in range(5) if a != b)


@given(st.lists(st.tuples(st.sampled_from(ALL_OF_FIVE), st.sampled_from(ALL_OF_FIVE)), max_size=40), st.integers(0, 99))
@examples(60)
def test_every_setting_is_a_permutation_that_can_be_routed(apart: list, seed: int) -> None:
    def is_routable(circuits: Circuits) -> bool:
        together = {(circuit,) for circuit in circuits}
        return not any(one in together and other in together and one != other for one, other in apart)

    pack = Packer(is_routable).pack(ALL_OF_FIVE, random.Random(seed), 30)
    assert sorted(unit for setting in pack for unit in setting) == sorted(ALL_OF_FIVE)
    for setting in pack:
        circuits = [circuit for unit in setting for circuit in unit]
        assert is_routable(tuple(circuits))
        assert all(len({circuit[side] for circuit in circuits}) == len(circuits) for side in (0, 1))


@pytest.mark.parametrize("ranks", [4, 5, 6])
def test_where_everything_can_be_routed_pushing_finds_a_factorisation(ranks: int) -> None:
    units = [((a, b),) for a in range(ranks) for b in range(ranks) if a != b]
    packer = Packer(lambda circuits: True)
    assert len(packer.pack(units, random.Random(3), 2000)) == ranks - 1
    assert max(len(packer.pack(units, random.Random(seed))) for seed in range(20)) > ranks - 1  # without it, by chance


def test_a_pair_that_goes_with_no_other_and_three_of_which_two_go_together() -> None:
    """The first is alone, the others need two settings: three by hand calculation."""
    units = [((2 * k, 2 * k + 1), (2 * k + 1, 2 * k)) for k in range(4)]

    def is_routable(circuits: Circuits) -> bool:
        pairs = {(min(pair), max(pair)) for pair in circuits}
        return len(pairs) < 3 and pairs != {(0, 1), (2, 3)} and pairs != {(0, 1), (4, 5)} and pairs != {(0, 1), (6, 7)}

    for seed in range(5):
        assert len(Packer(is_routable).pack(units, random.Random(seed), 50)) == 3


def test_nothing_is_asked_twice_or_that_follows_from_what_is_known() -> None:
    asked: list[frozenset[tuple[int, int]]] = []

    def is_routable(circuits: Circuits) -> bool:
        asked.append(frozenset(circuits))
        return len(circuits) < 4

    packer = Packer(is_routable)
    for seed in range(6):
        packer.pack(ALL_OF_FIVE, random.Random(seed), 20)
    assert len(set(asked)) == len(asked)
    for earlier, later in combinations(asked, 2):
        assert not (len(earlier) < 4 and later <= earlier)  # part of a compatible set
        assert not (len(earlier) >= 4 and later >= earlier)  # more than the incompatible set
