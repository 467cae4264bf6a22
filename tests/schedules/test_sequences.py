"""Schedules: every round is a matching or a permutation, ranks send only what they hold, exact sums, and the counts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from lumion_hw.errors import ConfigError, LimitError, UnknownNameError
from lumion_hw.schedules import documents
from lumion_hw.schedules.collectives import MAKERS, make_schedule, ring_broadcast
from lumion_hw.schedules.documents import load_schedule, save_schedule, schedule_document, schedule_from_document
from lumion_hw.schedules.matchings import circle, xor
from lumion_hw.schedules.picture import plot_schedule
from lumion_hw.schedules.schedule import Schedule, ScheduleRound, Transfer
from lumion_hw.schedules.straggler import _search_rounds, min_straggler_rounds, rotations, stragglar
from lumion_hw.schedules.verification import verify
from tests.effort import examples

ANY = ("circle", "shifts", "ring", "ring-reduce-scatter", "ring-all-gather", "all-to-all", "all-to-all-shifts")
ANY += ("bruck", "all-to-all-ring", "binomial-broadcast", "ring-broadcast")
POWERS = ("xor", "halving-doubling", "recursive-doubling")
EVEN = ("ring-matchings", "stragglar")
# Best known before (docs/schedules.md): one matching per round, most weight.
BEST_KNOWN = {6: 7, 10: 12, 12: 14, 14: 17, 18: 21, 20: 23, 22: 26, 24: 27, 26: 30, 28: 32, 30: 34, 48: 53}


def test_every_maker_is_tested() -> None:
    assert set(ANY + POWERS + EVEN) == set(MAKERS)


@given(st.sampled_from(ANY), st.integers(2, 17))
@examples(60)
def test_schedules_of_any_number_of_ranks_do_what_they_say(name: str, ranks: int) -> None:
    verify(make_schedule(name, ranks), seed=ranks)


@pytest.mark.parametrize("ranks", [4, 8, 32])
@pytest.mark.parametrize("name", POWERS + EVEN)
def test_schedules_of_powers_of_two_do_what_they_say(name: str, ranks: int) -> None:
    verify(make_schedule(name, ranks))


@pytest.mark.parametrize("ranks", [6, 12, 26])
@pytest.mark.parametrize("name", EVEN)
def test_schedules_of_even_numbers_do_what_they_say(name: str, ranks: int) -> None:
    verify(make_schedule(name, ranks))


def test_the_circle_method_by_hand() -> None:
    # n = 6, m = 5: round 0 joins 5-0, 1-4, 2-3; round 1: 5-1, 2-0, 3-4.
    pairs = [ScheduleRound(each).pairs for each in circle(6)]
    assert pairs[0] == ((0, 5), (1, 4), (2, 3))
    assert pairs[1] == ((0, 2), (1, 5), (3, 4))
    assert len(pairs) == 5
    assert [len(each) for each in circle(7)] == [6] * 7  # one idle in each


def test_xor_by_hand() -> None:
    assert [ScheduleRound(each).pairs for each in xor(4)] == [((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2))]


@pytest.mark.parametrize(
    ("name", "ranks", "rounds", "programmings", "different"),
    [
        ("ring", 8, 14, 1, 1),
        ("ring-matchings", 8, 28, 28, 2),
        ("halving-doubling", 8, 6, 5, 3),  # last of the halving = first of the doubling
        ("recursive-doubling", 8, 3, 3, 3),
        ("all-to-all", 8, 7, 7, 7),
        ("all-to-all", 7, 7, 7, 7),  # odd, duplex: n
        ("all-to-all-shifts", 7, 6, 6, 6),
        ("bruck", 8, 3, 3, 3),
        ("all-to-all-ring", 8, 7, 1, 1),
        ("binomial-broadcast", 8, 3, 3, 3),
        ("stragglar", 4, 4, 4, 3),
        ("stragglar", 8, 9, 9, 9),
        ("stragglar", 16, 18, 18, 18),
    ],
)
def test_counts(name: str, ranks: int, rounds: int, programmings: int, different: int) -> None:
    schedule = make_schedule(name, ranks)
    assert (len(schedule.rounds), schedule.programmings, schedule.configurations) == (rounds, programmings, different)


@pytest.mark.parametrize("ranks", [4, 8, 16, 32, 64, 128])
def test_stragglar_of_a_power_of_two_keeps_the_bound(ranks: int) -> None:
    schedule = stragglar(ranks)
    verify(schedule, seed=1)
    assert len(schedule.rounds) == ranks - 2 + ranks.bit_length() - 1


@pytest.mark.parametrize("ranks", [*range(6, 32, 2), 48])
def test_stragglar_of_other_even_numbers_is_as_good_as_the_best_known(ranks: int) -> None:
    schedule = stragglar(ranks)
    verify(schedule)
    assert min_straggler_rounds(ranks) <= len(schedule.rounds) <= BEST_KNOWN.get(ranks, min_straggler_rounds(ranks))


@pytest.mark.long
@pytest.mark.parametrize("ranks", [*range(32, 65, 2), 256])
def test_stragglar_of_many_ranks_keeps_the_bound(ranks: int) -> None:
    schedule = stragglar(ranks)
    verify(schedule)
    assert len(schedule.rounds) == min_straggler_rounds(ranks)


@given(st.integers(2, 16).filter(lambda half: half & (half - 1)), st.integers(0, 10**6), st.booleans())
@examples(25)
def test_stragglar_is_right_whatever_chance_does(half: int, seed: int, rotated: bool) -> None:
    import numpy as np

    ranks = 2 * half
    rounds = _search_rounds(ranks, rotations()[ranks] if rotated else (), np.random.default_rng(seed))
    schedule = Schedule("s", "straggler all-reduce", ranks, ranks - 1, True, tuple(rounds))
    verify(schedule, seed=seed)
    assert len(rounds) <= min_straggler_rounds(ranks) + 3


def test_the_same_seed_gives_the_same_schedule() -> None:
    assert stragglar(26, seed=3) == stragglar(26, seed=3)


# -- inserted faults


@pytest.mark.parametrize("name", [name for name in MAKERS if name not in ("circle", "xor", "shifts")])
def test_a_transfer_left_out_is_found(name: str) -> None:
    schedule = make_schedule(name, 8)
    for number in (0, len(schedule.rounds) - 1):
        rounds = list(schedule.rounds)
        rounds[number] = replace(rounds[number], transfers=rounds[number].transfers[1:])
        with pytest.raises(ConfigError, match=r"rank \d ends with|rank \d has|does not hold|summed"):
            verify(replace(schedule, rounds=tuple(rounds)))


def test_two_partners_swapped_are_found() -> None:
    schedule = stragglar(8)
    swap = {1: 2, 2: 1}
    turned = ScheduleRound(
        tuple(sorted((swap.get(a, a), swap.get(b, b)) for a, b in schedule.rounds[4].circuits)),
        tuple(
            replace(t, source=swap.get(t.source, t.source), target=swap.get(t.target, t.target))
            for t in schedule.rounds[4].transfers
        ),
    )
    with pytest.raises(ConfigError, match="stragglar"):
        verify(replace(schedule, rounds=(*schedule.rounds[:4], turned, *schedule.rounds[5:])))


def test_matchings_that_join_a_pair_twice_or_never_are_found() -> None:
    schedule = make_schedule("circle", 6)
    with pytest.raises(ConfigError, match="connected a second time"):
        verify(replace(schedule, rounds=(*schedule.rounds, schedule.rounds[0])))
    with pytest.raises(ConfigError, match="6 directed pairs of ranks are never connected"):
        verify(replace(schedule, rounds=schedule.rounds[1:]))


# -- bad input


@pytest.mark.parametrize(
    ("name", "ranks", "message"),
    [
        ("stragglar", 7, "even number of ranks, not 7.*6 or 8"),
        ("stragglar", 2, "2 ranks"),
        ("xor", 6, "power of two, not 6.*4 or 8"),
        ("halving-doubling", 12, "power of two, not 12.*8 or 16"),
        ("ring", 1, "1 ranks.*2 to 1024"),
        ("circle", 5000, "5000 ranks"),
        ("all-to-all-ring", 257, r"257 ranks.*2 to 256"),
    ],
)
def test_numbers_of_ranks_that_do_not_fit_are_refused(name: str, ranks: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_schedule(name, ranks)


def test_a_schedule_without_chunks_or_too_large_to_be_executed_is_refused() -> None:
    with pytest.raises(ConfigError, match="0 chunks are not possible for all-reduce"):
        Schedule("empty", "all-reduce", 4, 0, False, ())
    with pytest.raises(LimitError, match="cannot be executed"):
        verify(Schedule("vast", "all-gather", 4, 10**12, False, ()))


def test_unknown_schedules_and_pieces_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="halving-doubling"):
        make_schedule("rong", 8)
    with pytest.raises(ConfigError, match="0 pieces"):
        ring_broadcast(8, 0)


@pytest.mark.parametrize(
    ("circuits", "transfers", "duplex", "message"),
    [
        (((0, 1), (1, 2), (2, 0)), (), True, "0 to 1 has no return circuit.*simplex"),
        (((0, 1), (2, 1)), (), False, "rank 1 receives from two"),
        (((0, 1), (0, 2)), (), False, "rank 0 sends to two"),
        (((1, 1),), (), False, "rank 1 is connected to itself"),
        (((0, 3),), (), False, "ranks are 0 to 2"),
        (((0, 1),), (Transfer(1, 0, (0,)),), False, "without a circuit"),
        (((0, 1),), (Transfer(0, 1, (0,)), Transfer(0, 1, (1,))), False, "twice"),
        (((0, 1),), (Transfer(0, 1, (4,)),), False, "chunk 4 .* there are 2"),
        (((0, 1),), (Transfer(0, 1, ()),), False, "no chunk"),
    ],
)
def test_rounds_that_contradict_themselves_are_refused(circuits, transfers, duplex: bool, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Schedule("bad", "all-reduce", 3, 2, duplex, (ScheduleRound(circuits, transfers),))


# -- text, JSON, picture


def test_text_of_a_schedule() -> None:
    assert str(make_schedule("stragglar", 4)).splitlines()[1] == "0: 0-3 0+/0+"
    assert str(make_schedule("circle", 4)).splitlines()[1] == "0: 0-3  1-2"
    assert str(make_schedule("bruck", 4)).splitlines()[1] == "0: 0>1 1,3  1>2 4,6  2>3 9,11  3>0 12,14"


@pytest.mark.parametrize("name", list(MAKERS))
def test_json_is_read_back_as_it_was(name: str, tmp_path: Path) -> None:
    schedule = make_schedule(name, 8)
    save_schedule(schedule, tmp_path / "s.json")
    assert load_schedule(tmp_path / "s.json") == schedule
    save_schedule(schedule, tmp_path / "s.json")  # it overwrites its own


def test_a_file_that_could_not_be_read_again_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = make_schedule("stragglar", 12)
    size = len(json.dumps(schedule_document(schedule))) + 1
    monkeypatch.setattr(documents, "MAX_BYTES", size)
    save_schedule(schedule, tmp_path / "s.json")
    monkeypatch.setattr(documents, "MAX_BYTES", size - 1)
    with pytest.raises(ConfigError, match=r"can be read.*fewer ranks"):
        save_schedule(schedule, tmp_path / "t.json")
    assert not (tmp_path / "t.json").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "lumion-mesh"}, "not a schedule of version 1"),
        ({"version": 2}, "not a schedule of version 1"),
        ({"collective": "gossip"}, "collective: expected one of all-reduce, .*found 'gossip'"),
        ({"ranks": "4"}, "ranks: expected a whole number, found '4'"),
        ({"duplex": None}, "duplex: expected true or false, found nothing"),
        ({"rounds": [3]}, r"rounds\[0\]: expected a mapping, found 3"),
        ({"rounds": [{"circuits": [[0, True]], "transfers": []}]}, r"rounds\[0\]: circuits\[0\]: expected two ranks"),
        (
            {"rounds": [{"circuits": [[0, 1]], "transfers": [{"from": 0, "to": 1, "chunks": [0.5]}]}]},
            r"rounds\[0\].transfers\[0\]: chunks: expected numbers",
        ),
        ({"ranks": 3}, "round 0: circuit 0 to 3 does not exist, because ranks are 0 to 2"),
    ],
)
def test_a_document_that_is_wrong_is_refused_with_the_place(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^made up: .*{message}"):
        schedule_from_document(schedule_document(make_schedule("stragglar", 4)) | change, "made up")


def test_a_picture_has_an_arrow_for_every_circuit(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, of the extra plots, is not there")
    plot_schedule(make_schedule("stragglar", 6), tmp_path / "s.svg")
    text = (tmp_path / "s.svg").read_text(encoding="utf-8")
    assert text.count('id="patch_') >= sum(len(each.circuits) for each in stragglar(6).rounds)
    with pytest.raises(ConfigError, match=r"\.png, \.svg, \.pdf"):
        plot_schedule(make_schedule("ring", 4), tmp_path / "s.bmp")


@pytest.mark.parametrize(
    ("name", "ranks", "says"), [("ring", 258, "512 rounds, not 514"), ("shifts", 142, "20000 circuits, not 20022")]
)
def test_a_picture_that_would_take_minutes_is_refused(tmp_path: Path, name: str, ranks: int, says: str) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, of the extra plots, is not there")
    with pytest.raises(ConfigError, match=says):
        plot_schedule(make_schedule(name, ranks), tmp_path / "s.svg")


def test_a_search_for_rounds_says_how_far_it_is() -> None:
    """For 66 ranks no rotation is known: at most four searches, each of which ends when all chunks are everywhere."""
    said: list[tuple[str, int, int]] = []
    made = make_schedule("stragglar", 66, progress=lambda *step: said.append(step))
    assert {stage for stage, _, _ in said} == {"rounds"}
    assert [done for _, done, _ in said[:3]] == [0, 1, 2]
    assert max(done for _, done, _ in said) >= len(made.rounds) - 1
    assert all(total >= min_straggler_rounds(66) and total >= done for _, done, total in said)
