"""A LUMION board in the words of the specification, small enough to be believed: the far end for tests of the driver.

Monitor m reads the code of heater m; code 65535 is saturated. Everything happens at the time of the shared clock, in
order, whenever bytes come or go. It counts what it executed, so that a test can tell twice from once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import firmware_protocol as fp
from lumion_hw.clock import Clock
from lumion_hw.errors import ConnectError, LinkLost

State = fp.OutputsState
HELLO = fp.HelloReply(
    proto=1,
    window=8,
    fw_rx_max=512,
    fw_tx_max=512,
    n_dac=16,
    n_adc=4,
    dac_bits=16,
    adc_bits=16,
    n_banks=2,
    n_streams=2,
    outputs_state=State.BOOT,
    drive=fp.Drive.CURRENT,
    dac_full_scale=20_000,
    adc_full_scale=2_000_000,
    tick_us=1000,
    t_cmd_ms=1,
    t_slow_ms=1,
    latch_skew_us=0,
    adc_scan_us=50,
    features=1 << fp.Feature.SWEEP | 1 << fp.Feature.CHIP_TEMPERATURE | 1 << fp.Feature.CLEAR_ONE,
    schema_crc32=0,
    boot_id=77,
    uptime_ms=0,
    faults=0,
    active_generation=0,
    config_crc32=0,
    sweep_mem=65_536,
    sweep_ring=4096,
    serial="FP-0007",
    fw_version="1.0.0",
)


def refuse(status: fp.Status, value: int = 0, limit: int = 0, channel: int | None = None) -> fp.Refusal:
    return fp.Refusal(status, channel, None, value, limit)


class Run:
    """A sweep under way."""

    def __init__(self, board: SpecBoard, request: fp.SweepStartRequest, image: fp.SweepImage, now: float) -> None:
        self.generation, self.image = request.generation, image
        self.sweep_id = request.sweep_id
        self.base = board.driven.copy()
        self.table = self.base if image.start_table is None else np.array(image.start_table)
        self.channels = fp.channels_from_mask(image.mask, board.hello.n_adc)
        self.ring = fp.RecordRing(board.hello.sweep_ring // len(self.channels), request.credit_limit)
        self.records: list[Any] = []
        self.reason: fp.EndReason | None = None
        self.at_s = now  # latch of the next point
        self.unsent_s = math.inf
        self.late = 0
        self.tick = self.end_tick = board.tick()

    @property
    def point_s(self) -> float:
        return max(self.image.settle_us + self.image.n_avg * 50, self.image.dwell_us) * 1e-6


class SpecBoard:
    """The board. ``wire`` is its link's far end; several connections may be open, replies go where requests came from.

    Attributes:
        driven: Codes on the outputs.
        executed: How often each (session, seq) that is not a mere read was executed.
        latched: How often each generation was latched.
        tables: Every table ever driven.
        received: Good request frames.
        mute: Commands that are executed and not answered.
        lose_events: Event codes whose next n frames are lost.
        copies: Gives, for every frame sent, how late each of its copies leaves.
        verdicts: What became of each good request frame.
        connections: Every connection there has been.
        rewrite: Gives the payload that is sent instead of that of a good reply or an event, by its code.
    """

    name = "mesh0"

    def __init__(self, clock: Clock, hello: fp.HelloReply = HELLO) -> None:
        self.clock, self.hello = clock, hello
        self.driven = np.zeros(hello.n_dac, np.uint16)
        self.executed: Counter[tuple[int, int]] = Counter()
        self.latched: Counter[int] = Counter()
        self.tables: list[tuple[int, ...]] = [tuple([0] * hello.n_dac)]
        self.requests: list[tuple[float, fp.AnyRequest]] = []
        self.received = 0
        self.mute: set[int] = set()
        self.lose_events: Counter[int] = Counter()
        self.copies: Callable[[], list[float]] = lambda: [0.0]
        self.verdicts: Counter[str] = Counter()
        self.connections: list[Wire] = []
        self.rewrite: Callable[[int, bytes], bytes] = lambda code, payload: payload
        self.gone = False
        self.session = 0
        self.fed_s = -math.inf
        self.power_up(hello.boot_id)

    def power_up(self, boot_id: int) -> None:
        """Restart: outputs, configuration, session and faults are gone."""
        self.hello = replace(self.hello, boot_id=boot_id, config_crc32=0)
        self.state, self.generation, self.config_crc32 = State.BOOT, 0, 0
        self.session, self.holder = 0, ""
        self.limits: Any = None
        self.block: fp.ConfigGlobalRequest | None = None
        self.faults: list[fp.FaultRecord] = []
        self.image: tuple[tuple[int, int, int], bytearray] | None = None
        self.run: Run | None = None
        self.drive(np.zeros(self.hello.n_dac, np.uint16))
        self._open_session(0, 0)

    def _open_session(self, session: int, seq: int) -> None:
        if self.run is not None and self.run.reason is None:
            self.end_run(fp.EndReason.HOST_CHANGED)
        self.session, self.ring = session, fp.ReplyRing(self.hello.window)
        self.ring.open(seq)
        self.banks: dict[int, tuple[int, dict[int, int]]] = {}
        self.pending: dict[int, Any] = {}
        self.pending_block: fp.ConfigGlobalRequest | None = None
        self.streams: dict[int, tuple[fp.SubscribeRequest, fp.EventCredit, Any]] = {}
        self.stream_due: dict[int, float] = {}
        self.event_numbers: Counter[int] = Counter()
        self.events_to: Wire | None = None

    # --- wire

    def connect(self) -> Wire:
        if self.gone:
            raise ConnectError("unplugged")
        self.connections.append(Wire(self))
        return self.connections[-1]

    def advance(self) -> None:
        """Do everything that was due by now, in order."""
        while (due := self.next_due()) is not None and due <= self.clock.now() + 1e-9:
            self._happen(due)

    def next_due(self) -> float | None:
        times = [*self.stream_due.values()]
        if self.watchdog_runs():
            times.append(self.fed_s + self.watchdog_s())
        if self.run is not None and self.run.reason is None:
            times += [self.run.at_s + self.run.point_s] if not self.run.ring.paused else []
            times.append(self.run.unsent_s + fp.SWEEP_PUSH_MS * 1e-3)
        return min((time for time in times if time < math.inf), default=None)

    def _happen(self, now: float) -> None:
        if self.watchdog_runs() and now >= self.fed_s + self.watchdog_s():
            self.trip(fp.FaultSource.WATCHDOG)
        for stream in [stream for stream, due in self.stream_due.items() if due <= now]:
            self._telemetry(stream)
        run = self.run
        if run is None or run.reason is not None:
            return
        if not run.ring.paused and now >= run.at_s + run.point_s:
            self._point(run)
        if now >= run.unsent_s + fp.SWEEP_PUSH_MS * 1e-3 or run.reason is not None:
            self._push(run)

    def tick(self) -> int:
        return int(self.clock.now() * 1e3) % (1 << 32)

    def drive(self, codes: Any) -> None:
        self.driven = np.array(codes, dtype=np.uint16)
        self.tables.append(tuple(self.driven.tolist()))

    def event(self, code: int, stream: int, payload: bytes, number: int | None = None) -> None:
        if number is None:
            number = self.event_numbers[stream]
            self.event_numbers[stream] += 1
        if self.lose_events[code]:
            self.lose_events[code] -= 1
        elif self.events_to is not None:
            flags = fp.HeaderFlag.FAULT_PENDING if self.latched_mask() else 0
            payload = self.rewrite(code, payload)
            frame = fp.Frame(fp.Kind.EVT, code, number & 0xFFFF, self.session, flags, stream, payload=payload)
            self.events_to.send(fp.encode_frame(frame))

    # --- safety

    def latched_mask(self) -> int:
        return sum({1 << fault.source for fault in self.faults if fault.fault_state != fp.FaultState.CLEARED})

    def watchdog_s(self) -> float:
        return 2.0 if self.block is None else self.block.wd_timeout_ms * 1e-3

    def watchdog_runs(self) -> bool:
        return self.state in (State.READY, State.SWEEP) and (bool(self.driven.any()) or self.state is State.SWEEP)

    def trip(self, source: fp.FaultSource, *, present: bool = False) -> None:
        state = fp.FaultState.PRESENT if present else fp.FaultState.LATCHED
        record = fp.FaultRecord(len(self.faults) + 1, self.tick(), source, state, None, 2000, 2000)
        self.faults.append(record)
        holds = self.block is not None and self.block.wd_policy == fp.WatchdogPolicy.HOLD
        reason = fp.EndReason.WATCHDOG if source is fp.FaultSource.WATCHDOG else fp.EndReason.FAULT
        if self.run is not None and self.run.reason is None:
            self.end_run(fp.EndReason.ESTOP if source is fp.FaultSource.ESTOP else reason)
        if source is fp.FaultSource.WATCHDOG and holds:
            self.state = State.GRACE
        else:
            self.state = State.SAFE
            self.drive(np.zeros(self.hello.n_dac))
        self.event(fp.Event.FAULT, 0, record.encode())

    # --- requests

    def take(self, frame: fp.Frame, wire: Wire) -> None:
        self.received += 1
        request = fp.decode_request(frame.command, frame.payload)
        self.requests.append((self.clock.now(), request))
        if isinstance(request, fp.HelloRequest):
            self.verdicts["hello"] += 1
            self._reply(frame, wire, self._hello(frame, request, wire))
        elif isinstance(request, fp.EstopRequest):
            self.verdicts["estop"] += 1
            if not self.latched_mask() & fp.FaultSource.ESTOP.mask:
                self.trip(fp.FaultSource.ESTOP)
            self._reply(frame, wire, fp.EstopReply(len(self.faults), self.tick(), State.SAFE))
        elif frame.session != self.session:
            self.verdicts["foreign"] += 1
            self._reply(frame, wire, refuse(fp.Status.SESSION, self.session))
        else:
            self.fed_s, self.events_to = self.clock.now(), wire
            self._in_session(frame, request, wire)

    def _in_session(self, frame: fp.Frame, request: fp.AnyRequest, wire: Wire) -> None:
        judged = self.ring.judge(frame.seq)
        self.verdicts["read again" if judged.verdict is fp.Verdict.EXECUTE and judged.repeat else judged.verdict] += 1
        if judged.verdict is fp.Verdict.REPLAY:
            assert judged.stored is not None
            self._frame(frame, wire, judged.stored.status, judged.stored.payload)
        elif judged.verdict is fp.Verdict.STALE:
            self._reply(frame, wire, refuse(fp.Status.STALE))
        elif judged.verdict is fp.Verdict.EXECUTE:
            answer = self.execute(request)
            status = answer.status if isinstance(answer, fp.Refusal) else 0
            if fp.is_read(request):
                self.ring.store_read(frame.seq)
            else:
                self.executed[self.session, frame.seq] += 1
                self.ring.store(frame.seq, fp.StoredReply(frame.command, status, answer.encode()))
            self._reply(frame, wire, answer)

    def _reply(self, frame: fp.Frame, wire: Wire, answer: fp.Message | fp.Refusal) -> None:
        self._frame(frame, wire, answer.status if isinstance(answer, fp.Refusal) else 0, answer.encode())

    def _frame(self, frame: fp.Frame, wire: Wire, status: int, payload: bytes) -> None:
        if frame.command in self.mute:
            return
        flags = fp.HeaderFlag.FAULT_PENDING if self.latched_mask() else 0
        payload = payload if status else self.rewrite(frame.command, payload)
        reply = fp.Frame(fp.Kind.RSP, frame.command, frame.seq, frame.session, flags, status, payload=payload)
        wire.send(fp.encode_frame(reply))

    def _hello(self, frame: fp.Frame, request: fp.HelloRequest, wire: Wire) -> fp.Message | fp.Refusal:
        left_s = self.fed_s + self.watchdog_s() - self.clock.now()
        if self.session not in (0, frame.session) and left_s > 0 and not request.hello_flags & fp.HelloFlag.TAKEOVER:
            return fp.Refusal(fp.Status.BUSY, value=math.ceil(left_s * 1e3), text=self.holder)
        self._open_session(frame.session, frame.seq)
        self.holder, self.fed_s, self.events_to = request.name, self.clock.now(), wire
        return replace(
            self.hello,
            outputs_state=self.state,
            faults=self.latched_mask(),
            active_generation=self.generation,
            config_crc32=self.config_crc32,
        )

    def execute(self, request: Any) -> fp.Message | fp.Refusal:
        name = f"do_{request.command.name.lower()}"
        answer: fp.Message | fp.Refusal = getattr(self, name)(request)
        return answer

    def do_ping(self, request: fp.PingRequest) -> fp.Message:
        return fp.PingReply(request.token, self.tick(), 0, self.state, self.session)

    def do_get_stats(self, request: fp.GetStatsRequest) -> fp.Message:
        counters = np.zeros(len(fp.StatsCounter), np.uint32)
        counters[fp.StatsCounter.RX_FRAMES] = self.received
        return fp.GetStatsReply(0, self.tick(), self.session, self.state, counters)

    def do_config(self, request: Any) -> fp.Message | fp.Refusal:
        if isinstance(request, fp.ConfigGlobalRequest):
            self.pending_block, self.pending = request, {}
        elif isinstance(request, fp.ConfigLimitsRequest):
            self.pending |= dict(enumerate(request.limits.tolist(), start=request.start))
        else:
            if self.state is State.GRACE:
                return refuse(fp.Status.SAFE, self.latched_mask())
            if self.pending_block is None or len(self.pending) < self.hello.n_dac:
                return refuse(fp.Status.INCOMPLETE, len(self.pending), self.hello.n_dac)
            limits = np.array([self.pending[i] for i in range(self.hello.n_dac)], dtype=fp.LIMIT_DTYPE)
            crc32 = fp.config_crc32(self.pending_block, limits)
            if crc32 != request.config_crc32:
                return refuse(fp.Status.CRC_MISMATCH, crc32, request.config_crc32)
            self.block, self.limits, self.config_crc32 = self.pending_block, limits, crc32
            self.state = State.READY if self.state is State.BOOT else self.state
        return fp.ConfigReply(request.op, self.state, len(self.pending), self.config_crc32)

    def may_drive(self) -> fp.Refusal | None:
        if self.state is State.BOOT:
            return refuse(fp.Status.NOT_CONFIGURED)
        if self.state is State.SWEEP:
            return refuse(fp.Status.BUSY)
        return None if self.state is State.READY else refuse(fp.Status.SAFE, self.latched_mask())

    def do_stage(self, request: fp.StageRequest) -> fp.Message | fp.Refusal:
        generation, codes = self.banks.get(request.bank, (0, {}))
        if request.bank_generation != generation:
            if not fp.is_newer(request.bank_generation, generation):
                return refuse(fp.Status.STALE, generation)
            codes = {}
        codes |= dict(enumerate(request.codes.tolist(), start=request.start))
        self.banks[request.bank] = request.bank_generation, codes
        return fp.StageReply(request.bank_generation, len(codes))

    def do_commit(self, request: fp.CommitRequest) -> fp.Message | fp.Refusal:
        generation, codes = self.banks.get(request.bank, (0, {}))
        refusal = self.may_drive()
        if refusal is not None:
            return refusal
        if not fp.is_newer(request.generation, self.generation):
            return refuse(fp.Status.STALE, self.generation)
        if fp.is_newer(request.bank_generation, generation) or len(codes) < self.hello.n_dac:
            missing = next(
                i for i in range(self.hello.n_dac) if i not in codes or generation != request.bank_generation
            )
            return refuse(fp.Status.INCOMPLETE, len(codes), self.hello.n_dac, missing)
        table = np.array([codes[i] for i in range(self.hello.n_dac)], np.uint16)
        if fp.table_crc32(table) != request.crc32:
            return refuse(fp.Status.CRC_MISMATCH, fp.table_crc32(table), request.crc32)
        return self.latch(request.generation, table)

    def do_set(self, request: fp.SetRequest) -> fp.Message | fp.Refusal:
        refusal = self.may_drive()
        if refusal is None and not fp.is_newer(request.generation, self.generation):
            refusal = refuse(fp.Status.STALE, self.generation)
        return refusal or self.latch(request.generation, request.codes)

    def latch(self, generation: int, codes: Any) -> fp.Message | fp.Refusal:
        above = np.flatnonzero(codes > self.limits["code_max"])
        if above.size:
            channel = int(above[0])
            return refuse(fp.Status.LIMIT, int(codes[channel]), int(self.limits["code_max"][channel]), channel)
        self.generation = generation
        self.latched[generation] += 1
        self.drive(codes)
        return fp.SetReply(generation, self.tick(), fp.table_crc32(self.driven), True, self.state)

    def do_readback(self, request: fp.ReadbackRequest) -> fp.Message:
        codes = self.driven[request.start : request.start + request.count]
        if not request.rb_flags & fp.ReadbackFlag.CODES:
            codes = codes[:0]
        crc32 = fp.table_crc32(self.driven)
        return fp.ReadbackReply(self.generation, crc32, 0, self.state, 255, self.hello.n_dac, request.start, codes)

    def adc(self, channels: Any) -> Any:
        return self.driven[channels]

    def do_read_adc(self, request: fp.ReadAdcRequest) -> fp.Message:
        channels = range(request.start, request.start + request.count)
        return fp.ReadAdcReply(self.tick(), self.generation, request.start, self.adc(list(channels)))

    def do_fault_list(self, request: fp.FaultListRequest) -> fp.Message:
        records = tuple(fault for fault in self.faults if fault.fault_id >= request.first_id)
        return fp.FaultListReply(self.latched_mask(), len(self.faults), self.state, records)

    def do_fault_clear(self, request: fp.FaultClearRequest) -> fp.Message | fp.Refusal:
        first_edition = not fp.has_feature(self.hello.features, fp.Feature.CLEAR_ONE)
        if not first_edition and not 1 <= request.fault_id <= len(self.faults):
            return refuse(fp.Status.UNKNOWN_FAULT, request.fault_id, len(self.faults))
        for index, fault in enumerate(self.faults):
            if fault.fault_id > request.fault_id or (fault.fault_id < request.fault_id and not first_edition):
                continue
            if fault.fault_state is fp.FaultState.PRESENT:
                return refuse(fp.Status.INTERLOCK, fault.value, fault.limit)
            self.faults[index] = replace(fault, fault_state=fp.FaultState.CLEARED)
        if not self.latched_mask() and self.state in (State.SAFE, State.GRACE):
            self.state = State.READY if self.config_crc32 else State.BOOT
        return fp.FaultClearReply(self.latched_mask(), len(self.faults), self.state)

    # --- telemetry

    def do_subscribe(self, request: fp.SubscribeRequest) -> fp.Message | fp.Refusal:
        if not 2 <= request.stream < 2 + self.hello.n_streams:
            return refuse(fp.Status.BAD_VALUE, request.stream, channel=0)
        if request.sub_flags & fp.SubscribeFlag.RENEW:
            _, credit, channels = self.streams[request.stream]
            credit.renew(request.credit_limit)
            return fp.SubscribeReply(request.stream, len(channels), credit.next_event, credit.dropped)
        channels = fp.channels_from_mask(request.mask, self.hello.n_adc)
        self.streams[request.stream] = request, fp.EventCredit(request.credit_limit), channels
        self.stream_due.pop(request.stream, None)
        if request.period_ticks:
            self.stream_due[request.stream] = self.clock.now() + request.period_ticks * 1e-3
        return fp.SubscribeReply(request.stream, len(channels), 0, 0)

    def _telemetry(self, stream: int) -> None:
        request, credit, channels = self.streams[stream]
        self.stream_due[stream] += request.period_ticks * 1e-3
        if not credit.can_send():
            credit.discard()
            return
        record = fp.TelemetryEvent(self.tick(), credit.dropped, self.generation, 2534, self.adc(channels))
        self.event(fp.Event.TELEMETRY, stream, record.encode(), credit.send())

    # --- sweeps

    def do_sweep_load(self, request: fp.SweepLoadRequest) -> fp.Message | fp.Refusal:
        key = request.sweep_id, request.total, request.image_crc32
        if self.image is None or (self.image[0] != key and request.offset == 0):
            self.image = key, bytearray()
        held = self.image[1]
        if self.image[0] != key or request.offset > len(held):
            return refuse(fp.Status.INCOMPLETE, len(held))
        held[request.offset : request.offset + len(request.data)] = request.data
        return fp.SweepLoadReply(request.sweep_id, len(held))

    def do_sweep_start(self, request: fp.SweepStartRequest) -> fp.Message | fp.Refusal:
        run = self.run
        if run is None or (run.generation, run.sweep_id) != (request.generation, request.sweep_id):
            refusal = self.may_drive()
            if refusal is not None:
                return refusal
            if self.image is None or len(self.image[1]) < self.image[0][1]:
                return refuse(fp.Status.INCOMPLETE)
            if request.base_crc32 != fp.table_crc32(self.driven):
                return refuse(fp.Status.CRC_MISMATCH, fp.table_crc32(self.driven), request.base_crc32)
            image = fp.SweepImage.decode(bytes(self.image[1]), self.hello.n_dac, self.hello.n_adc)
            self.run = run = Run(self, request, image, self.clock.now())
            self.generation, self.state = request.generation, State.SWEEP
        return fp.SweepStartReply(run.generation, run.tick, len(run.image.points), len(run.channels), self.state)

    def _point(self, run: Run) -> None:
        run.table = run.image.points[run.ring.produced].apply(run.table)
        self.drive(run.table)
        run.records.append(self.adc(run.channels))
        run.ring.produce()
        run.unsent_s = min(run.unsent_s, run.at_s + run.point_s)
        run.at_s += run.point_s
        per_frame = fp.max_elements(fp.SweepDataEvent, self.hello.fw_tx_max, row=len(run.channels))
        if len(run.ring.pushable()) >= per_frame:
            self._push(run)
        if run.ring.produced == len(run.image.points):
            self._push(run)
            self.end_run(fp.EndReason.COMPLETE)

    def _push(self, run: Run) -> None:
        per_frame = fp.max_elements(fp.SweepDataEvent, self.hello.fw_tx_max, row=len(run.channels))
        while records := run.ring.pushable()[:per_frame]:
            values = np.array(run.records[records.start : records.stop], np.uint16)
            run.ring.pushed(records)
            data = fp.SweepDataEvent(run.generation, records.start, self.tick(), values)
            self.event(fp.Event.SWEEP_DATA, 1, data.encode())
        run.unsent_s = math.inf

    def end_run(self, reason: fp.EndReason) -> None:
        run = self.run
        assert run is not None
        run.reason, run.end_tick = reason, self.tick()
        if reason is not fp.EndReason.COMPLETE or run.image.end_action is fp.EndAction.BASE:
            self.drive(run.base)
        self.state = State.READY
        crc32 = fp.table_crc32(self.driven)
        produced = run.ring.produced
        done = fp.SweepDoneEvent(run.generation, produced, 0, self.tick(), crc32, run.late, reason, self.state)
        self.event(fp.Event.SWEEP_DONE, 1, done.encode())

    def do_sweep_read(self, request: fp.SweepReadRequest) -> fp.Message | fp.Refusal:
        run = self.run
        if run is None or run.generation != request.generation:
            return refuse(fp.Status.STALE)
        indexes = run.ring.readable(request.first, request.count)
        if indexes is None:
            return refuse(fp.Status.OVERFLOW, run.ring.oldest)
        width = len(run.channels)
        values = np.array([run.records[i] for i in indexes], np.uint16).reshape(len(indexes), width)
        state = fp.RunState.ENDED if run.reason is not None else fp.RunState.RUNNING
        return fp.SweepReadReply(
            run.generation, request.first, run.ring.produced, run.ring.oldest, 0, state, run.reason, values
        )

    def do_sweep_ack(self, request: fp.SweepAckRequest) -> fp.Message:
        assert self.run is not None
        paused = self.run.ring.paused
        self.run.ring.acknowledge(request.up_to, request.credit_limit)
        if paused:
            self.run.late += 1
            self.run.at_s = max(self.run.at_s, self.clock.now())
        if self.run.ring.pushable() and self.run.unsent_s == math.inf:
            self.run.unsent_s = self.clock.now()
        return fp.SweepAckReply(self.run.generation, self.run.ring.produced, self.run.ring.oldest)

    def do_sweep_abort(self, request: fp.SweepAbortRequest) -> fp.Message | fp.Refusal:
        run = self.run
        if run is None or run.generation != request.generation:
            return refuse(fp.Status.STALE)
        if run.reason is None:
            self.end_run(fp.EndReason.ABORTED)
        assert run.reason is not None
        return fp.SweepAbortReply(run.generation, run.ring.produced, run.end_tick, self.state, run.reason)

    # --- for tests

    def sent(self, kind: type) -> list[Any]:
        return [request for _, request in self.requests if isinstance(request, kind)]

    def times(self, kind: type) -> list[float]:
        return [at for at, request in self.requests if isinstance(request, kind)]


class Wire:
    """One connection to the board; every frame takes 1 ms back."""

    def __init__(self, board: SpecBoard) -> None:
        self.board = board
        self._decoder = fp.Decoder(board.hello.fw_rx_max)
        self._out: list[tuple[float, bytes]] = []
        self.open = True

    def send(self, wire: bytes) -> None:
        for late_s in self.board.copies():
            self._out.append((self.board.clock.now() + 0.001 + late_s, wire))

    def receive(self, data: bytes) -> None:
        if self.board.gone:
            raise LinkLost("unplugged")
        self.board.advance()
        for frame in self._decoder.feed(data):
            if isinstance(frame, fp.Frame) and frame.kind == fp.Kind.REQ:
                self.board.take(frame, self)

    def transmit(self) -> bytes:
        if self.board.gone:
            raise LinkLost("unplugged")
        self.board.advance()
        now = self.board.clock.now()
        due = b"".join(wire for at, wire in self._out if at <= now)
        self._out = [entry for entry in self._out if entry[0] > now]
        return due

    def next_event(self) -> float | None:
        times = [at for at, _ in self._out]
        due = self.board.next_due()
        return min([*times, due] if due is not None else times, default=None)

    def close(self) -> None:
        self.open = False
        self._out.clear()
