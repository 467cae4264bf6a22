"""The board compared with a short model: driven table, generation, state (section 18, item 3)."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from firmware_protocol import (
    CommitReply,
    CommitRequest,
    FaultClearRequest,
    OutputsState,
    PingRequest,
    ReadbackRequest,
    Refusal,
    SetRequest,
    StageReply,
    StageRequest,
    StageSparseRequest,
    table_crc32,
)
from tests.effort import examples
from tests.emulator.mesh.lumion.board_testbench import Bench, Host, global_block, table

CODE_MAX = 1000
BOOT, READY, SAFE = OutputsState.BOOT, OutputsState.READY, OutputsState.SAFE
codes = st.lists(st.integers(0, CODE_MAX + 50), min_size=4, max_size=4)
small = st.integers(0, 6)


class BoardModel(RuleBasedStateMachine):
    """Model of the driven table, its generation and the board's state for any actions of a host."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.host = Host(self.bench)
        self.latched: list[int] = []
        self.boot()

    def boot(self) -> None:
        self.newest = len(self.latched)
        self.latched = list(range(1, self.newest + 1))  # latched again, with ids from 1
        self.driven, self.generation, self.state = [0] * 4, 0, SAFE if self.latched else BOOT
        self.configured = False
        self.empty_banks()

    def empty_banks(self) -> None:
        self.banks: list[tuple[int, dict[int, int]]] = [(0, {}), (0, {})]

    @initialize()
    def attach(self) -> None:
        self.host.open()

    @rule()
    def new_session(self) -> None:
        self.host.ask(PingRequest(1))
        self.host.open()
        self.empty_banks()

    @rule()
    def reboot(self) -> None:
        self.bench.board.reset()
        self.boot()
        self.host.open()

    @rule()
    def configure(self) -> None:
        reply = self.host.configure(global_block(), [(CODE_MAX, 1000, 0)] * 4)
        assert isinstance(reply, Refusal) == (max(self.driven) > CODE_MAX)
        self.configured = True
        self.state = READY if self.state is BOOT else self.state

    @rule(bank=st.integers(0, 1), generation=small, start=st.integers(0, 3), values=codes)
    def stage(self, bank: int, generation: int, start: int, values: list[int]) -> None:
        chosen = dict(enumerate(values[start:], start))
        self._stage(
            self.host.ask(StageRequest(generation, bank, start, table(values[start:]))), bank, generation, chosen, {}
        )

    @rule(bank=st.integers(0, 1), generation=small, pair=st.tuples(st.integers(0, 3), st.integers(0, CODE_MAX + 50)))
    def stage_sparse(self, bank: int, generation: int, pair: tuple[int, int]) -> None:
        reply = self.host.ask(StageSparseRequest(generation, bank, 1, np.array([pair])))
        self._stage(reply, bank, generation, dict([pair]), dict(enumerate(self.driven)))

    def _stage(self, reply: object, bank: int, generation: int, chosen: dict[int, int], base: dict[int, int]) -> None:
        present, staged = self.banks[bank]
        refused = generation < present or (self.configured and max(chosen.values()) > CODE_MAX)
        assert isinstance(reply, Refusal if refused else StageReply)
        if not refused:
            kept = staged if generation == present else base
            self.banks[bank] = (generation, kept | chosen)

    @rule(step=st.integers(-1, 2), bank=st.integers(0, 1), generation=small, right_crc=st.booleans())
    def commit(self, step: int, bank: int, generation: int, right_crc: bool) -> None:
        present, staged = self.banks[bank]
        values = [staged.get(channel, 0) for channel in range(4)]
        crc32 = table_crc32(values) ^ (not right_crc)
        number = self.generation + step
        reply = self.host.ask(CommitRequest(number % (1 << 32), generation, crc32, bank, count=4))
        same = number == self.generation and crc32 == table_crc32(self.driven)
        complete = generation == present and len(staged) == 4 and right_crc and max(values) <= CODE_MAX
        self._latched(reply, same, number > self.generation and complete, number, values)

    @rule(step=st.integers(-1, 2), values=codes)
    def set_table(self, step: int, values: list[int]) -> None:
        number = self.generation + step
        reply = self.host.ask(SetRequest(number % (1 << 32), table(values)))
        same = number == self.generation and values == self.driven
        self._latched(reply, same, number > self.generation and max(values) <= CODE_MAX, number, values)

    def _latched(self, reply: object, same: bool, fresh: bool, number: int, values: list[int]) -> None:
        good = self.state is READY and (same or fresh)
        assert isinstance(reply, CommitReply if good else Refusal), (reply, self.state)
        if good and not same:
            self.driven, self.generation = values, number

    @rule()
    def fault(self) -> None:
        self.bench.board.trip(5)
        self._stopped()

    @precondition(lambda self: self.latched)
    @rule(which=st.integers(0, 1))
    def clear(self, which: int) -> None:
        """Clear the oldest or the newest fault: the outputs come back only when no fault is left."""
        self.host.ask(FaultClearRequest(self.latched.pop(-which)))
        if not self.latched:
            self.state = READY if self.configured else BOOT

    @precondition(lambda self: self.latched)
    @rule(beyond=st.integers(1, 3))
    def clear_a_fault_that_never_was(self, beyond: int) -> None:
        assert isinstance(self.host.ask(FaultClearRequest(self._newest_fault() + beyond)), Refusal)

    @rule()
    def silence(self) -> None:
        self.bench.sleep(5.0)
        if any(self.driven):
            self._stopped()

    def _stopped(self) -> None:
        """Switch all heaters off; an already latched fault is not latched twice."""
        self.driven, self.state = [0] * 4, SAFE
        if self._newest_fault() > self.newest:
            self.newest = self._newest_fault()
            self.latched.append(self.newest)

    def _newest_fault(self) -> int:
        return self.bench.board.core.faults.newest_id

    @rule(seconds=st.floats(0.0, 1.0))
    def wait(self, seconds: float) -> None:
        self.bench.sleep(seconds)
        self.host.ask(PingRequest(1))

    @invariant()
    def board_and_model_agree(self) -> None:
        reply = self.host.ask(ReadbackRequest(count=4))
        if isinstance(reply, Refusal):
            return  # before the session is open
        assert (reply.codes.tolist(), reply.generation) == (self.driven, self.generation)
        assert reply.outputs_state is self.state
        last = self.bench.drives[-1][1] if self.bench.drives else [0.0] * 4
        assert np.allclose(last, np.array(self.driven) * 10 / 65535)


BoardModel.TestCase.settings = examples(30, stateful_step_count=30)
TestBoardModel = BoardModel.TestCase
