"""Random command sequences with sweeps compared with a short model (section 18, items 3 and 4).

The model predicts the driven table, its generation and the board's state, also during a run. In addition, every driven
table must be a table from the host, a point of a sweep, a step of a ramp, or zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from firmware_protocol import (
    CommitReply,
    EndAction,
    FaultClearRequest,
    OutputsState,
    PingRequest,
    ReadbackRequest,
    Refusal,
    RunState,
    SetRequest,
    SweepAbortReply,
    SweepAbortRequest,
    SweepAckRequest,
    SweepImage,
    SweepPoint,
    SweepReadRequest,
    SweepStartReply,
    SweepStartRequest,
    table_crc32,
)
from tests.effort import examples
from tests.emulator.mesh.lumion.board_testbench import Bench, Host, global_block, table

CODE_MAX, TIMEOUT_S, RAMP_MS = 1000, 2.0, 100
BOOT, READY, SWEEP, SAFE = OutputsState.BOOT, OutputsState.READY, OutputsState.SWEEP, OutputsState.SAFE
codes = st.lists(st.integers(0, CODE_MAX + 30), min_size=4, max_size=4)
points = st.lists(st.tuples(st.integers(0, 3), st.integers(0, CODE_MAX + 10)), min_size=1, max_size=5)


class OffEdge(Host):
    """Sends requests 0.4 ms after a tick edge, so that no request coincides with an edge."""

    def ask(self, request: Any, **header: Any) -> Any:
        bench = self.bench
        ticks = (bench.clock.now() - bench.board.core.origin_s) * 1e3
        bench.sleep((np.floor(ticks - 0.4 + 1e-6) + 1.4 - ticks) * 1e-3)
        return super().ask(request, **header)


@dataclass
class ModelRun:
    """A run: the table driven at each tick."""

    start_tick: int
    dwell_ms: int
    tables: list[list[int]]
    final: list[int]

    def at(self, tick: int) -> list[int] | None:
        """Return the table driven at a tick, or ``None`` after the end."""
        index = (tick - self.start_tick) // self.dwell_ms
        return self.tables[index] if index < len(self.tables) else None


class SweepModel(RuleBasedStateMachine):
    """The board and the model, driven in parallel."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.host = OffEdge(self.bench)
        self.given: set[tuple[int, ...]] = {(0, 0, 0, 0)}
        self.image: SweepImage | None = None
        self.fault = False
        self.boot()

    def boot(self) -> None:
        self.driven, self.generation, self.state = [0] * 4, 0, SAFE if self.fault else BOOT
        self.run: ModelRun | None = None
        self.run_generation = 0
        self.image = None
        self.configured = False

    def now(self) -> int:
        """Return the present tick."""
        return int((self.bench.clock.now() - self.bench.board.core.origin_s) * 1e3 + 1e-4)

    def settle(self) -> None:
        """Advance the model's run to the present tick."""
        if self.run is not None:
            present = self.run.at(self.now())
            self.driven = self.run.final if present is None else present
            if present is None:
                self.state, self.run = READY, None

    def stop(self, driven: list[int], state: OutputsState) -> None:
        self.driven, self.state, self.run = driven, state, None

    @initialize(values=codes)
    def attach(self, values: list[int]) -> None:
        self.host.open()
        self._configure(ramp=False)
        self._set_table(1, values)
        self._load([(0, 10), (1, 20), (0, 30)], 40, keep=False, start_zero=False)

    @rule()
    def new_session(self) -> None:
        self.host.ask(PingRequest(1))
        self.settle()
        base = self.base if self.run is not None else None
        self.host.open()
        self.settle()
        if base is not None and self.run is not None:
            self.stop(base, READY)

    @rule(chance=st.integers(0, 7))
    def reboot(self, chance: int) -> None:
        if chance:
            return
        self.bench.board.reset()
        self.boot()
        self.host.open()

    @rule(ramp=st.booleans())
    def configure(self, ramp: bool) -> None:
        self._configure(ramp)

    def _configure(self, ramp: bool) -> None:
        common = global_block(wd_policy=int(ramp), wd_param_ms=RAMP_MS if ramp else 0)
        reply = self.host.configure(common, [(CODE_MAX, 1000, 0)] * 4)
        self.settle()
        assert isinstance(reply, Refusal) == (self.state is SWEEP)
        if self.state is not SWEEP:
            self.configured = True
            self.state = READY if self.state is BOOT else self.state

    @rule(step=st.integers(-1, 2), values=codes)
    def set_table(self, step: int, values: list[int]) -> None:
        self._set_table(step, values)

    def _set_table(self, step: int, values: list[int]) -> None:
        number = (self.generation + step) % (1 << 32)
        reply = self.host.ask(SetRequest(number, table(values)))
        self.settle()
        same = step == 0 and values == self.driven
        good = self.state is READY and (same or (step > 0 and max(values) <= CODE_MAX))
        assert isinstance(reply, CommitReply) == good, (reply, self.state)
        if good and not same:
            self.driven, self.generation = values, number
            self.given.add(tuple(values))

    @rule(changes=points, dwell_ms=st.integers(2, 300), keep=st.booleans(), start_zero=st.booleans())
    def load(self, changes: list[tuple[int, int]], dwell_ms: int, keep: bool, start_zero: bool) -> None:
        self._load(changes, dwell_ms, keep, start_zero)

    def _load(self, changes: list[tuple[int, int]], dwell_ms: int, keep: bool, start_zero: bool) -> None:
        self.settle()
        if self.run is not None:
            return
        self.image = SweepImage(
            tuple(SweepPoint([change]) for change in changes),
            settle_us=500,
            dwell_us=dwell_ms * 1000,
            end_action=EndAction.KEEP if keep else EndAction.BASE,
            start_table=np.zeros(4, dtype=np.uint16) if start_zero else None,
        )
        self.host.load(self.image)
        self.settle()

    @precondition(lambda self: self.state is READY and self.image is not None)
    @rule(repeat=st.integers(1, 2))
    def start_well(self, repeat: int) -> None:
        self._start(1, repeat, True, 1)

    @rule(step=st.integers(0, 2), repeat=st.integers(0, 2), right_base=st.booleans(), sweep_id=st.integers(1, 2))
    def start_anyhow(self, step: int, repeat: int, right_base: bool, sweep_id: int) -> None:
        self._start(step, repeat, right_base, sweep_id)

    def _start(self, step: int, repeat: int, right_base: bool, sweep_id: int) -> None:
        self.settle()
        base = self.driven
        known = self.run_generation == self.generation != 0 and step == 0 and sweep_id == 1
        generation = (self.generation + step) % (1 << 32)
        crc32 = table_crc32(base) ^ (not right_base)
        began_in = self.state
        reply = self.host.ask(SweepStartRequest(generation, sweep_id, crc32, 5, repeat=repeat))
        tables = [] if self.image is None else [item.tolist() for item in self.image.tables(np.array(base))]
        fine = bool(tables) and max(map(max, tables)) <= CODE_MAX and repeat > 0 and right_base and sweep_id == 1
        good = began_in is READY and fine and step > 0
        assert isinstance(reply, SweepStartReply) == (good or known), (reply, began_in)
        if good:
            assert self.image is not None
            self.base = base
            final = tables[-1] if self.image.end_action is EndAction.KEEP else base
            dwell_ms = self.image.dwell_us // 1000
            self.run = ModelRun(reply.tick, dwell_ms, tables * repeat, final)
            self.state, self.generation, self.run_generation = SWEEP, generation, generation
            self.given |= {tuple(item) for item in tables}
        self.settle()

    @precondition(lambda self: self.run is not None)
    @rule(behind=st.integers(0, 1))
    def abort(self, behind: int) -> None:
        base = self.base
        reply = self.host.ask(SweepAbortRequest(self.run_generation - behind))
        assert isinstance(reply, Refusal if behind else SweepAbortReply)
        if behind:
            self.settle()
            return
        ended = self.run is not None and self.run.at(reply.tick) is None
        self.stop(self.run.final if ended and self.run is not None else base, READY)

    @rule(first=st.integers(0, 6), count=st.integers(0, 9))
    def read(self, first: int, count: int) -> None:
        reply = self.host.ask(SweepReadRequest(self.run_generation, first, count))
        if self.run_generation == 0:
            assert reply.run_state is RunState.NONE
        elif not isinstance(reply, Refusal):
            assert len(reply.values) == max(0, min(count, reply.produced - first))
            assert reply.oldest <= reply.produced
        self.settle()

    @rule(up_to=st.integers(0, 4))
    def acknowledge(self, up_to: int) -> None:
        self.host.ask(SweepAckRequest(self.run_generation, up_to, up_to + 5))
        self.settle()

    @rule(period=st.integers(0, 50), credit=st.integers(0, 30))
    def subscribe(self, period: int, credit: int) -> None:
        self.host.subscribe(period_ticks=period, credit_limit=credit)
        self.settle()

    @rule(source=st.sampled_from([5, 11]))
    def trip(self, source: int) -> None:
        self.bench.board.trip(source)
        self.fault = True
        self.stop([0] * 4, SAFE)

    @precondition(lambda self: self.fault)
    @rule()
    def clear(self) -> None:
        for record in list(self.bench.board.core.faults.records):  # a cleared fault stays cleared
            self.host.ask(FaultClearRequest(record.fault_id))
        self.fault, self.state = False, READY if self.configured else BOOT

    @rule()
    def silence(self) -> None:
        self.host.ask(PingRequest(1))
        fed_ms = self.now() - 1
        self.settle()
        if self.run is not None and self.run.at(fed_ms + round(TIMEOUT_S * 1e3)) is None:
            self.driven, self.state, self.run = self.run.final, READY, None
        self.bench.sleep(5.0)
        if self.run is not None or any(self.driven):
            self.given.add(tuple(self.base if self.run is not None else self.driven))
            self.stop([0] * 4, SAFE)
            self.fault = True

    @rule(seconds=st.floats(0.0, 1.0))
    def wait(self, seconds: float) -> None:
        self.bench.sleep(seconds)
        self.host.ask(PingRequest(1))
        self.settle()

    @invariant()
    def board_and_model_agree(self) -> None:
        reply = self.host.ask(ReadbackRequest(count=4))
        if isinstance(reply, Refusal):
            return  # before the session is open
        self.settle()
        assert (reply.codes.tolist(), reply.generation) == (self.driven, self.generation)
        assert reply.outputs_state is self.state

    def teardown(self) -> None:
        for _, output in self.bench.drives:
            seen = tuple(np.rint(np.array(output) / 10 * 65535).astype(int).tolist())
            assert seen in self.given or self._is_ramp(seen), f"nobody asked for {seen}"

    def _is_ramp(self, seen: tuple[int, ...]) -> bool:
        return any(
            seen == tuple(code * (RAMP_MS - step) // RAMP_MS for code in given)
            for given in self.given
            for step in range(1, RAMP_MS)
        )


SweepModel.TestCase.settings = examples(30, stateful_step_count=30)
TestSweepModel = SweepModel.TestCase
