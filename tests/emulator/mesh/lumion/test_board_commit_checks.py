"""STAGE, STAGE_SPARSE, COMMIT and SET (section 8): the order of their checks, and all-or-nothing execution."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from firmware_protocol import (
    CommitReply,
    CommitRequest,
    FaultClearReply,
    FaultClearRequest,
    Feature,
    OutputsState,
    ReadbackReply,
    ReadbackRequest,
    Refusal,
    SetReply,
    SetRequest,
    StageReply,
    StageRequest,
    StageSparseRequest,
    StatsCounter,
    Status,
    encode_frame,
    table_crc32,
)
from tests.emulator.mesh.lumion.board_testbench import TINY, Bench, Host, global_block, table

CODES = table([100, 200, 300, 400])
CRC = table_crc32(CODES)


@dataclass
class Set:
    """Return a board in READY at generation 10 with a full bank 0 of bank generation 5."""

    bench: Bench
    host: Host

    def commit(self, **fields: int) -> CommitReply | Refusal:
        values = {"generation": 11, "bank_generation": 5, "crc32": CRC, "bank": 0, "count": 4} | fields
        return self.host.ask(CommitRequest(**values))


@pytest.fixture
def ready() -> Set:
    bench = Bench()
    host = Host(bench).ready()
    host.drive(10, [1, 2, 3, 4])
    assert host.ask(StageRequest(5, 0, 0, CODES)) == StageReply(5, 4)
    return Set(bench, host)


def wrong_everything(ready: Set) -> dict[str, int]:
    """A commit in which every later check fails as well."""
    return {"bank": 9, "when": 1, "count": 3, "generation": 9, "bank_generation": 4, "crc32": 1, "at_tick": 0}


def test_check_1_the_state_comes_first(ready: Set) -> None:
    ready.bench.board.trip(5)
    refusal = ready.commit(**wrong_everything(ready))
    assert refusal == Refusal(Status.SAFE, value=1 << 5)
    fresh = Host(Bench())
    fresh.open()
    request = CommitRequest(generation=1, bank_generation=0, crc32=0, bank=9, count=9)
    assert fresh.ask(request) == Refusal(Status.NOT_CONFIGURED)


@pytest.mark.parametrize(("repaired", "offset", "value"), [((), 16, 9), (("bank",), 18, 3)])
def test_check_2_fields_in_the_order_bank_when_count(
    ready: Set, repaired: tuple[str, ...], offset: int, value: int
) -> None:
    fields = wrong_everything(ready)
    for name in repaired:
        fields[name] = 0
    assert ready.commit(**fields) == Refusal(Status.BAD_VALUE, channel=offset, value=value)


def test_check_2_an_unknown_when_is_a_bad_value(ready: Set) -> None:
    assert ready.commit(when=3, count=3) == Refusal(Status.BAD_VALUE, channel=17, value=3)


@pytest.mark.parametrize(("when", "feature"), [(1, Feature.COMMIT_AT_TICK), (2, Feature.COMMIT_TRIGGER)])
def test_check_2_a_missing_feature_is_named(when: int, feature: Feature) -> None:
    host = Host(Bench(replace(TINY, features=0))).ready()
    answer = host.ask(CommitRequest(generation=0, bank_generation=0, crc32=0, bank=0, count=4, when=when))
    assert answer == Refusal(Status.NOT_SUPPORTED, value=feature)


def test_check_3_the_active_generation_again_is_ok_without_a_second_latch(ready: Set) -> None:
    first = ready.commit()
    drives = list(ready.bench.drives)
    ready.bench.sleep(0.5)
    again = ready.commit(bank_generation=77)
    assert again == first
    assert ready.bench.drives == drives
    assert ready.host.counter(StatsCounter.LATCHES) == 2


def test_check_3_the_active_generation_with_another_table_is_stale(ready: Set) -> None:
    assert ready.commit(generation=10, bank_generation=4) == Refusal(Status.STALE, value=10)


def test_check_3_the_armed_generation_again_is_ok_and_stays_armed(ready: Set) -> None:
    first = ready.commit(when=2)
    assert isinstance(first, CommitReply)
    assert (first.latched, first.tick, first.crc32) == (False, 0, CRC)
    assert ready.commit(when=2) == first
    assert ready.bench.board.driven_codes.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("generation", [9, 0, 10 + (1 << 31), 0xFFFFFFFF])
def test_check_4_what_is_not_newer_than_the_active_one_is_stale(ready: Set, generation: int) -> None:
    assert ready.commit(generation=generation, bank_generation=4) == Refusal(Status.STALE, value=10)


def test_check_4_what_is_not_newer_than_the_armed_one_is_stale(ready: Set) -> None:
    assert isinstance(ready.commit(generation=20, when=2), CommitReply)
    assert ready.commit(generation=15) == Refusal(Status.STALE, value=10)
    assert ready.commit(generation=20, crc32=CRC ^ 1) == Refusal(Status.STALE, value=10)


def test_check_5_fragments_that_did_not_arrive_yet_are_incomplete_with_value_0(ready: Set) -> None:
    refusal = ready.commit(bank_generation=6, crc32=1)
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.value) == (Status.INCOMPLETE, 0)


def test_check_5_an_older_bank_generation_is_stale(ready: Set) -> None:
    assert ready.commit(bank_generation=4, crc32=1) == Refusal(Status.STALE, value=5)


def test_check_6_a_bank_with_a_hole_names_the_first_missing_channel(ready: Set) -> None:
    ready.host.ask(StageRequest(6, 0, 0, table([1, 2])))
    ready.host.ask(StageRequest(6, 0, 3, table([4])))
    refusal = ready.commit(bank_generation=6, crc32=1)
    assert refusal == Refusal(Status.INCOMPLETE, channel=2, value=3, limit=4)


def test_check_7_a_wrong_crc_is_answered_with_both(ready: Set) -> None:
    refusal = ready.commit(crc32=0x12345678)
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.value_u32, refusal.limit_u32) == (Status.CRC_MISMATCH, CRC, 0x12345678)


def test_check_7_a_damaged_bank_is_found(ready: Set) -> None:
    ready.bench.board.core.banks[0].codes[2] ^= 1
    refusal = ready.commit()
    assert isinstance(refusal, Refusal)
    assert refusal.status == Status.CRC_MISMATCH


def test_check_8_codes_and_power_are_checked_at_the_commit() -> None:
    bench = Bench()
    host = Host(bench)
    host.open()
    host.ask(StageRequest(5, 0, 0, table([100, 60000, 300, 400])))  # no configuration yet: accepted
    host.configure(global_block(total_power_mw=10), [(50000, 1000, 0)] * 4)
    crc32 = table_crc32([100, 60000, 300, 400])
    refusal = host.ask(CommitRequest(generation=1, bank_generation=5, crc32=crc32, bank=0, count=4))
    assert refusal == Refusal(Status.LIMIT, channel=1, value=60000, limit=50000, text="code")


def test_check_8_the_power_sum_is_rounded_up_to_milliwatts() -> None:
    host = Host(Bench())
    host.open()
    host.configure(global_block(total_power_mw=10))
    # 10 mA full scale: code 32768 is 5000 uA, in 1000 ohm 25 000 uW; code 100 is 15 uA, 0 uW
    refusal = host.ask(SetRequest(1, table([32768, 100, 0, 0])))
    assert refusal == Refusal(Status.LIMIT, channel=None, value=25, limit=10, text="power")
    refusal = host.ask(SetRequest(1, table([32768, 1000, 0, 0])))  # 152 uA: 23 uW more
    assert isinstance(refusal, Refusal)
    assert refusal.value == 26
    assert isinstance(host.ask(SetRequest(1, table([20724, 0, 0, 0]))), SetReply)  # 3162 uA: 9998 uW


@pytest.mark.parametrize("ahead", [0, -1, -(1 << 30)])
def test_check_9_a_tick_that_is_not_ahead_is_a_bad_value(ready: Set, ahead: int) -> None:
    now = round(ready.bench.clock.now() * 1000) + 1  # executed one t_cmd later
    at_tick = (now + ahead) % (1 << 32)
    refusal = ready.commit(when=1, at_tick=at_tick)
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.channel, refusal.value_u32) == (Status.BAD_VALUE, 12, at_tick)


def test_a_refused_commit_leaves_outputs_and_bank_as_they_are(ready: Set) -> None:
    drives = list(ready.bench.drives)
    for fields in ({"bank": 9}, {"crc32": 1}, {"generation": 9}, {"bank_generation": 6}):
        assert isinstance(ready.commit(**fields), Refusal)
    assert ready.bench.drives == drives
    bank = ready.host.ask(ReadbackRequest(bank=0, count=4))
    assert isinstance(bank, ReadbackReply)
    assert (bank.generation, bank.crc32, bank.staged, bank.tick) == (5, CRC, 4, 0)
    assert bank.codes.tolist() == CODES.tolist()
    assert isinstance(ready.commit(), CommitReply)


def test_all_outputs_change_at_one_tick_edge_and_the_reply_says_which(ready: Set) -> None:
    reply = ready.commit()
    assert isinstance(reply, CommitReply)
    assert (reply.latched, reply.crc32, reply.outputs_state) == (True, CRC, OutputsState.READY)
    instant, currents = ready.bench.drives[-1]
    assert instant == pytest.approx(reply.tick * 1e-3)
    assert currents == pytest.approx(CODES * 10 / 65535)
    assert len(ready.bench.drives) == 2


def test_a_preloaded_bank_is_switched_by_a_commit_alone(ready: Set) -> None:
    other = table([9, 8, 7, 6])
    ready.host.ask(StageRequest(1, 1, 0, other))
    for generation in (11, 12, 13, 14):
        bank, bank_generation, crc32 = ((0, 5, CRC), (1, 1, table_crc32(other)))[generation % 2]
        reply = ready.commit(generation=generation, bank=bank, bank_generation=bank_generation, crc32=crc32)
        assert isinstance(reply, CommitReply)
    assert ready.bench.board.driven_codes.tolist() == CODES.tolist()


def test_a_commit_at_a_tick_latches_there_exactly_and_protects_its_bank(ready: Set) -> None:
    at_tick = round(ready.bench.clock.now() * 1000) + 500
    reply = ready.commit(when=1, at_tick=at_tick)
    assert isinstance(reply, CommitReply)
    assert (reply.latched, reply.tick) == (False, at_tick)
    assert ready.host.ask(StageRequest(6, 0, 0, CODES)) == Refusal(Status.BUSY)
    ready.bench.until(at_tick * 1e-3 + 0.1)
    assert ready.bench.drives[-1][0] == pytest.approx(at_tick * 1e-3)
    assert ready.host.ask(ReadbackRequest(rb_flags=0)).generation == 11
    assert isinstance(ready.host.ask(StageRequest(6, 0, 0, CODES)), StageReply)


def test_a_commit_on_the_trigger_latches_at_the_edge_after_it(ready: Set) -> None:
    ready.commit(when=2)
    ready.bench.sleep(0.5004)
    before = ready.bench.clock.now()
    ready.bench.board.trigger()
    ready.bench.sleep(0.01)
    assert 0 < ready.bench.drives[-1][0] - before <= 1e-3
    assert ready.bench.board.driven_codes.tolist() == CODES.tolist()


@pytest.mark.parametrize("event", ["set", "fault", "apply", "hello", "grace"])
def test_what_drops_an_armed_commit(ready: Set, event: str) -> None:
    ready.host.configure(global_block(wd_policy=2, wd_param_ms=60_000))
    ready.commit(when=1, at_tick=round(ready.bench.clock.now() * 1000) + (3000 if event == "grace" else 300))
    if event == "set":
        ready.host.drive(12, [5, 5, 5, 5])
    elif event == "fault":
        ready.bench.board.trip(5)
    elif event == "grace":
        ready.bench.sleep(2.5)
        assert isinstance(ready.host.ask(FaultClearRequest(1)), FaultClearReply)
    elif event == "apply":
        ready.host.configure(global_block(total_power_mw=3_000_000))
    else:
        ready.host.open()
    before = ready.bench.board.driven_codes.tolist()
    ready.bench.sleep(1.0)
    assert ready.bench.board.driven_codes.tolist() == before
    assert before != CODES.tolist()


def test_fragments_may_come_in_any_order_and_twice(ready: Set) -> None:
    counts = [ready.host.ask(StageRequest(6, 1, start, CODES[start : start + 2])).staged for start in (2, 0, 2, 1)]
    assert counts == [2, 4, 4, 4]
    assert isinstance(ready.commit(bank=1, bank_generation=6), CommitReply)


def test_a_newer_bank_generation_opens_the_bank_anew_and_an_older_one_is_stale(ready: Set) -> None:
    assert ready.host.ask(StageRequest(6, 0, 0, CODES[:1])) == StageReply(6, 1)
    assert ready.host.ask(StageRequest(5, 0, 0, CODES)) == Refusal(Status.STALE, value=6)


def test_a_code_above_its_limit_stages_nothing_of_that_frame() -> None:
    host = Host(Bench())
    host.open()
    host.configure(None, [(1000, 1000, 0)] * 4)
    host.ask(StageRequest(5, 0, 0, table([1, 2])))
    refusal = host.ask(StageRequest(5, 0, 2, table([3, 1001])))
    assert refusal == Refusal(Status.LIMIT, channel=3, value=1001, limit=1000, text="code")
    assert host.ask(StageRequest(6, 0, 3, table([2000]))).status == Status.LIMIT
    assert host.ask(ReadbackRequest(bank=0, rb_flags=0)).staged == 2


def test_sparse_changes_on_top_of_the_driven_table(ready: Set) -> None:
    assert ready.host.ask(StageSparseRequest(1, 1, 1, np.array([[2, 77], [2, 78]]))) == StageReply(1, 4)
    expected = [1, 2, 78, 4]
    reply = ready.commit(bank=1, bank_generation=1, crc32=table_crc32(expected))
    assert isinstance(reply, CommitReply)
    assert ready.bench.board.driven_codes.tolist() == expected


def test_sparse_changes_of_an_empty_bank_count_as_staged_alone(ready: Set) -> None:
    assert ready.host.ask(StageSparseRequest(1, 1, 0, np.array([[2, 77], [0, 5]]))) == StageReply(1, 2)
    assert ready.host.ask(StageSparseRequest(1, 1, 1, np.array([[1, 6]]))) == StageReply(1, 3), "base only opens"


@pytest.mark.parametrize(
    ("pairs_or_start", "refusal"),
    [
        ([[4, 1]], Refusal(Status.BAD_CHANNEL, channel=4, limit=4)),
        ([[0, 1], [65535, 1]], Refusal(Status.BAD_CHANNEL, channel=65534, limit=4)),
        (4, Refusal(Status.BAD_CHANNEL, channel=4, limit=4)),
        (3, Refusal(Status.BAD_CHANNEL, channel=4, limit=4)),
    ],
)
def test_channels_beyond_the_board_are_bad_channels(
    ready: Set, pairs_or_start: list[list[int]] | int, refusal: Refusal
) -> None:
    if isinstance(pairs_or_start, int):
        answer = ready.host.ask(StageRequest(6, 0, pairs_or_start, table([1, 2])))
    else:
        answer = ready.host.ask(StageSparseRequest(6, 0, 0, np.array(pairs_or_start)))
    assert answer == refusal


def test_an_empty_fragment_and_a_wrong_bank_are_bad_values(ready: Set) -> None:
    assert ready.host.ask(StageRequest(6, 0, 0, table([]))) == Refusal(Status.BAD_VALUE, channel=8, value=0)
    empty = StageSparseRequest(6, 0, 0, np.zeros((0, 2), dtype=np.int64))
    assert ready.host.ask(empty) == Refusal(Status.BAD_VALUE, channel=6, value=0)
    assert ready.host.ask(StageRequest(6, 2, 0, CODES)) == Refusal(Status.BAD_VALUE, channel=4, value=2)
    wrong_base = StageSparseRequest(6, 0, 2, np.array([[0, 0]]))
    assert ready.host.ask(wrong_base) == Refusal(Status.BAD_VALUE, channel=5, value=2)


def test_staging_is_allowed_in_the_safe_state(ready: Set) -> None:
    ready.bench.board.trip(5)
    assert ready.host.ask(StageRequest(6, 0, 0, CODES)) == StageReply(6, 4)


def test_a_set_checks_state_then_count_then_generation_then_limits() -> None:
    bench = Bench()
    host = Host(bench)
    host.open()
    assert host.ask(SetRequest(0, table([1]))) == Refusal(Status.NOT_CONFIGURED)
    host.configure(None, [(1000, 1000, 0)] * 4)
    host.drive(10, [1, 2, 3, 4])
    assert host.ask(SetRequest(9, table([2000]))) == Refusal(Status.BAD_VALUE, channel=6, value=1)
    assert host.ask(SetRequest(9, table([2000] * 4))) == Refusal(Status.STALE, value=10)
    assert host.ask(SetRequest(10, table([2000] * 4))) == Refusal(Status.STALE, value=10)
    assert host.ask(SetRequest(11, table([0, 2000, 0, 0]))).channel == 1
    assert host.drive(10, [1, 2, 3, 4]).generation == 10, "the same table again is no error"
    assert len(bench.drives) == 1


def test_generations_wrap_around() -> None:
    host = Host(Bench()).ready()
    host.drive(0x7FFFFFFF, [1] * 4)
    host.drive(0xFFFFFFFE, [2] * 4)
    host.drive(1, [3] * 4)
    assert host.ask(SetRequest(0xFFFFFFFF, table([4] * 4))) == Refusal(Status.STALE, value=1)


def test_a_fault_between_check_and_edge_wins(ready: Set) -> None:
    frame = ready.host.frame(SetRequest(11, CODES))
    ready.host.link.write(encode_frame(frame), 0.0)
    ready.bench.sleep(0.0015)  # executed at 1 ms, latch at the next edge
    ready.bench.board.trip(5)
    answer = ready.host.reply()
    assert answer is not None
    assert answer.status == Status.SAFE
    assert ready.bench.drives[-1][1] == [0.0] * 4
