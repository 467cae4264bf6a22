"""A host for the emulated mesh controller, built only from the protocol's codec."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from firmware_protocol import (
    ConfigApplyRequest,
    ConfigGlobalRequest,
    ConfigLimitsRequest,
    Decoder,
    Frame,
    GetStatsRequest,
    HeaderFlag,
    HelloReply,
    HelloRequest,
    Kind,
    Refusal,
    Request,
    SetReply,
    SetRequest,
    StatsCounter,
    SubscribeReply,
    SubscribeRequest,
    SweepDataEvent,
    SweepDoneEvent,
    SweepImage,
    SweepLoadReply,
    SweepReadReply,
    SweepReadRequest,
    SweepStartReply,
    SweepStartRequest,
    TelemetryEvent,
    config_crc32,
    decode_event,
    encode_frame,
    load_requests,
    table_crc32,
)
from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.mesh.lumion import BoardProfile, MeshBoard
from lumion_hw.links.memory import MemoryLink

TINY = BoardProfile(n_dac=4, n_adc=4)


class Bench:
    """A board whose outputs are recorded and whose monitors are set by the test."""

    def __init__(self, profile: BoardProfile = TINY, *, seed: int = 1, start_s: float = 0.0) -> None:
        self.clock = VirtualClock(start_s)
        self.drives: list[tuple[float, list[float]]] = []
        self.monitors_ma = np.zeros(profile.n_adc)
        self.scans: list[tuple[float, int]] = []
        self.board = MeshBoard(
            "board",
            self.clock,
            np.random.default_rng(seed),
            drive=lambda output, at_s: self.drives.append((at_s, output.tolist())),
            sense_ma=self._sense,
            profile=profile,
        )

    def _sense(self, n_avg: int, at_s: float) -> NDArray[np.float64]:
        self.scans.append((at_s, n_avg))
        return self.monitors_ma

    def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)
        self.board.advance()

    def until(self, instant: float) -> None:
        self.sleep(instant - self.clock.now())


class Host:
    """One connection with a session: sends requests and keeps events apart from replies."""

    def __init__(self, bench: Bench, session: int = 0x2F71) -> None:
        self.bench = bench
        self.session = session
        self.seq = 0
        self.link = MemoryLink(bench.board.connect, bench.clock, "memory://board")
        self.link.open(0.0)
        self.decoder = Decoder(65535)
        self.events: list[Frame] = []
        self.last: Frame | None = None

    def raw(self, wire: bytes, wait_s: float = 2.0) -> Frame | None:
        """Write bytes; return the first reply that arrives in time, or ``None``."""
        self.link.write(wire, 0.0)
        return self.reply(wait_s)

    def reply(self, wait_s: float = 2.0) -> Frame | None:
        deadline = self.bench.clock.now() + wait_s
        while self.bench.clock.now() < deadline:
            found = self.decoder.feed(self.link.read(deadline))
            assert all(isinstance(item, Frame) for item in found)
            frames = [item for item in found if isinstance(item, Frame)]
            self.events += [frame for frame in frames if frame.kind == Kind.EVT]
            replies = [frame for frame in frames if frame.kind == Kind.RSP]
            assert len(replies) <= 1
            if replies:
                self.last = replies[0]
                return replies[0]
        return None

    def listen(self, wait_s: float) -> list[Any]:
        """Return the events that arrive in time, decoded."""
        return [decode_event(frame.command, frame.payload) for frame in self.collect(wait_s)]

    def heard(self) -> list[Any]:
        """Return the events that came between replies, decoded, and clear them."""
        events, self.events = self.events, []
        return [decode_event(frame.command, frame.payload) for frame in events]

    def collect(self, wait_s: float) -> list[Frame]:
        """Return everything that arrives in time."""
        deadline = self.bench.clock.now() + wait_s
        frames: list[Frame] = []
        while self.bench.clock.now() < deadline:
            frames += [item for item in self.decoder.feed(self.link.read(deadline)) if isinstance(item, Frame)]
        return frames

    def frame(self, request: Any, *, seq: int | None = None, flags: int = 0, session: int | None = None) -> Frame:
        if seq is None:
            self.seq = seq = (self.seq + 1) % 65536
        number = self.session if session is None else session
        return Frame(Kind.REQ, request.command, seq, number, flags, payload=request.encode())

    def ask(self, request: Request[Any], **header: Any) -> Any:
        """Send a request; return its typed reply or the refusal."""
        frame = self.frame(request, **header)
        answer = self.raw(encode_frame(frame))
        assert answer is not None, f"no reply to {request}"
        assert (answer.command, answer.seq, answer.session) == (frame.command, frame.seq, frame.session)
        if answer.status:
            return Refusal.decode(answer.status, answer.payload)
        return request.reply.decode(answer.payload)

    def hello(self, *, flags: int = 0, seq: int | None = None, rx_max: int = 4096, name: str = "bench-a") -> Any:
        self.seq = self.seq if seq is None else seq
        request = HelloRequest(hello_flags=flags, host_rx_max=rx_max, name=name)
        return self.ask(request, seq=self.seq)

    def open(self) -> HelloReply:
        reply = self.hello()
        assert isinstance(reply, HelloReply)
        return reply

    def configure(
        self, common: ConfigGlobalRequest | None = None, limits: list[tuple[int, int, int]] | None = None
    ) -> Any:
        n_dac = self.bench.board.profile.n_dac
        common = common or global_block()
        records = ConfigLimitsRequest(0, np.array(limits or [(65535, 1000, 0)] * n_dac)).limits
        steps = [common, *(ConfigLimitsRequest(start, records[start : start + 29]) for start in range(0, n_dac, 29))]
        for step in steps:
            answer = self.ask(step)
            if isinstance(answer, Refusal):
                return answer
        return self.ask(ConfigApplyRequest(n_dac, config_crc32(common, records)))

    def ready(self, **common: int) -> Host:
        """Open a session and configure the board."""
        self.open()
        assert not isinstance(self.configure(global_block(**common)), Refusal)
        return self

    def drive(self, generation: int, codes: list[int]) -> SetReply:
        reply = self.ask(SetRequest(generation, table(codes)))
        assert isinstance(reply, SetReply), reply
        return reply

    def subscribe(self, stream: int = 2, credit_limit: int = 1000, **fields: Any) -> SubscribeReply:
        reply = self.ask(SubscribeRequest(stream, credit_limit, **fields))
        assert isinstance(reply, SubscribeReply), reply
        return reply

    def load(self, image: SweepImage, sweep_id: int = 1) -> None:
        for piece in load_requests(sweep_id, image.encode(), self.bench.board.profile.mtu):
            reply = self.ask(piece)
            assert isinstance(reply, SweepLoadReply), reply

    def start(self, generation: int, sweep_id: int = 1, credit_limit: int = 0, **fields: Any) -> Any:
        """Start a sweep from the table that the board drives."""
        base = table_crc32(self.bench.board.driven_codes)
        return self.ask(SweepStartRequest(generation, sweep_id, base, credit_limit, **fields))

    def started(self, generation: int, **fields: Any) -> SweepStartReply:
        reply = self.start(generation, **fields)
        assert isinstance(reply, SweepStartReply), reply
        return reply

    def progress(self, generation: int) -> SweepReadReply:
        reply = self.ask(SweepReadRequest(generation))
        assert isinstance(reply, SweepReadReply), reply
        return reply

    def records(self, generation: int, first: int, count: int) -> list[list[int]]:
        return self.ask(SweepReadRequest(generation, first, count)).values.tolist()

    def counter(self, counter: StatsCounter) -> int:
        return int(self.ask(GetStatsRequest()).counter(counter))


def table(codes: list[int]) -> NDArray[np.uint16]:
    return np.array(codes, dtype=np.uint16)


def global_block(**fields: Any) -> ConfigGlobalRequest:
    """Return the library's default configuration: watchdog OFF after 2 s, with a power limit that is never reached."""
    values = {"wd_policy": 0, "wd_timeout_ms": 2000, "wd_param_ms": 0, "total_power_mw": 4_000_000} | fields
    return ConfigGlobalRequest(**values)


def set_retry(frame: Frame) -> bytes:
    """Send the same request again, like a host that repeats it."""
    return encode_frame(
        Frame(
            frame.kind, frame.command, frame.seq, frame.session, frame.flags | HeaderFlag.RETRY, payload=frame.payload
        )
    )


def telemetry_of(events: list[Any]) -> list[TelemetryEvent]:
    return [event for event in events if isinstance(event, TelemetryEvent)]


def data_of(events: list[Any]) -> list[SweepDataEvent]:
    return [event for event in events if isinstance(event, SweepDataEvent)]


def done_of(events: list[Any]) -> SweepDoneEvent:
    """Return the only SWEEP_DONE among the events; it must be the last event of its run."""
    sweep = [event for event in events if isinstance(event, SweepDataEvent | SweepDoneEvent)]
    assert [isinstance(event, SweepDoneEvent) for event in sweep].count(True) == 1
    assert isinstance(sweep[-1], SweepDoneEvent)
    return sweep[-1]
