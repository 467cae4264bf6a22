"""A mesh controller that lies to its driver: good frames, wrong contents.

Every lie that can be told from the truth ends in an error of the package that names what was wrong; none becomes a
number, a belief about what is driven, or a call that never returns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import firmware_protocol as fp
from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.mesh.lumion.controller import LumionMeshController
from lumion_hw.errors import DeviceError, FrameError, LinkError, LinkTimeout, LumionError, VerifyError
from lumion_hw.interfaces import ControllerLimits, SweepPlan
from lumion_hw.links.memory import MemoryLink
from tests.drivers.mesh.lumion.lumion_testboard import HELLO, SpecBoard
from tests.effort import examples

N = HELLO.n_dac
STAGED = replace(HELLO, n_dac=150, fw_rx_max=256, fw_tx_max=256, n_adc=150)
"""A board whose tables and scans take two frames each way."""
STEP_MA = 20.0 / 65535
PATIENCE_S = 120.0  # far above every deadline of the driver, far below for ever


def limits(n: int, cap_mw: float = 400.0) -> ControllerLimits:
    return ControllerLimits(np.full(n, 20.0), np.full(n, 10.0), total_power_mw=cap_mw)


class Lie:
    """Changes the fields of one kind of reply or event from now on, and counts how often it did."""

    def __init__(self, board: SpecBoard, kind: type[fp.Message], code: int, **wrong: Any) -> None:
        self.told = 0
        self._kind, self._code, self._wrong = kind, code, wrong
        board.rewrite = self

    def __call__(self, code: int, payload: bytes) -> bytes:
        if code != self._code:
            return payload
        try:
            message = self._kind.decode(payload)
        except fp.ProtocolError:
            return payload
        self.told += 1
        wrong = {name: made(message) if callable(made) else made for name, made in self._wrong.items()}
        return replace(message, **wrong).encode()  # type: ignore[type-var]


Made = tuple[LumionMeshController, SpecBoard, VirtualClock]


def attached(hello: fp.HelloReply = HELLO, clock: VirtualClock | None = None) -> Made:
    """A driver that drives a table, on a board that has been honest so far."""
    clock = clock or VirtualClock()
    board = SpecBoard(clock, hello)
    driver = LumionMeshController(MemoryLink(board.connect, clock, "memory://mesh0"), clock, device="mesh0")
    driver.open()
    driver.configure(limits(hello.n_dac))
    driver.program(np.arange(hello.n_dac) * STEP_MA * 300)
    return driver, board, clock


def one_sample(driver: LumionMeshController) -> object:
    samples = driver.telemetry(0.01)
    try:
        return list(islice(samples, 3))
    finally:
        samples.close()


SWEEP = SweepPlan(tuple({0: 0.1 * point} for point in range(40)))
CALLS: dict[str, Callable[[LumionMeshController], object]] = {
    "open": lambda driver: driver.open(),
    "configure": lambda driver: driver.configure(limits(driver.info.n_heaters, 399.0)),
    "program": lambda driver: driver.program(np.full(driver.info.n_heaters, 1.0)),
    "read_back": lambda driver: driver.read_back(),
    "read_monitors": lambda driver: driver.read_monitors(),
    "sweep": lambda driver: driver.sweep(SWEEP),
    "telemetry": one_sample,
    "faults": lambda driver: driver.faults(),
    "clear_fault": lambda driver: driver.clear_fault(7),
    "outputs_off": lambda driver: driver.outputs_off(timeout_s=1.0),
    "board_counters": lambda driver: driver.board_counters(),
}


def plus(name: str, by: int = 1) -> Callable[[Any], int]:
    return lambda message: getattr(message, name) + by


C, E = fp.Command, fp.Event
NONE = np.zeros(0, np.uint16)
LIES = [
    ("program", fp.SetReply, C.SET, {"crc32": 0xBAD}, VerifyError, "not confirmed"),
    ("program", fp.SetReply, C.SET, {"latched": False}, VerifyError, "not confirmed"),
    ("program", fp.SetReply, C.SET, {"generation": plus("generation")}, VerifyError, "not confirmed"),
    ("configure", fp.ConfigReply, C.CONFIG, {"config_crc32": 0xBAD}, VerifyError, "configuration was not confirmed"),
    ("configure", fp.ConfigReply, C.CONFIG, {"op": 1}, FrameError, "CONFIG GLOBAL: the reply has op 1"),
    ("read_back", fp.ReadbackReply, C.READBACK, {"crc32": 0xBAD}, VerifyError, "do not match their checksum"),
    ("read_back", fp.ReadbackReply, C.READBACK, {"codes": NONE}, VerifyError, "do not match their checksum"),
    (
        "read_back",
        fp.ReadbackReply,
        C.READBACK,
        {"codes": lambda reply: np.append(reply.codes, reply.codes)},
        VerifyError,
        "do not match their checksum",
    ),
    ("read_back", fp.ReadbackReply, C.READBACK, {"codes": lambda reply: reply.codes ^ 1}, VerifyError, "checksum"),
    ("read_back", fp.ReadbackReply, C.READBACK, {"bank": 1}, FrameError, "has bank 1, but the request had 255"),
    ("read_monitors", fp.ReadAdcReply, C.READ_ADC, {"start": 1}, FrameError, "has start 1, but the request had 0"),
    ("read_monitors", fp.ReadAdcReply, C.READ_ADC, {"adc": NONE}, FrameError, r"\[0\] monitors instead of \[4\]"),
    ("read_monitors", fp.ReadAdcReply, C.READ_ADC, {"adc": np.ones(5, np.uint16)}, FrameError, r"\[5\] monitors"),
    ("telemetry", fp.SubscribeReply, C.SUBSCRIBE, {"count": 3}, FrameError, "announces 3 monitors .* instead of 4"),
    ("telemetry", fp.SubscribeReply, C.SUBSCRIBE, {"stream": 3}, FrameError, "has stream 3, but the request had 2"),
    ("telemetry", fp.TelemetryEvent, E.TELEMETRY, {"adc": np.ones(5, np.uint16)}, LinkTimeout, "sent no record"),
    ("telemetry", fp.TelemetryEvent, E.TELEMETRY, {"adc": NONE}, LinkTimeout, "sent no record"),
    ("sweep", fp.SweepLoadReply, C.SWEEP_LOAD, {"sweep_id": 99}, FrameError, "has sweep_id 99"),
    ("sweep", fp.SweepStartReply, C.SWEEP_START, {"generation": 99}, FrameError, "has generation 99"),
    ("sweep", fp.SweepStartReply, C.SWEEP_START, {"records": 41}, FrameError, "announces 41 records"),
    ("sweep", fp.SweepStartReply, C.SWEEP_START, {"n_adc": 5}, FrameError, "40 records of 5 values"),
    ("sweep", fp.SweepDoneEvent, E.SWEEP_DONE, {"records": 39}, DeviceError, "39 of 40 points"),
    ("sweep", fp.SweepDoneEvent, E.SWEEP_DONE, {"reason": fp.EndReason.FAULT}, DeviceError, "ended early .FAULT"),
    ("sweep", fp.ReadbackReply, C.READBACK, {"crc32": 0xBAD}, VerifyError, "checksum"),
    ("outputs_off", fp.EstopReply, C.ESTOP, {"outputs_state": fp.OutputsState.READY}, VerifyError, "not in their safe"),
]


@pytest.mark.parametrize(
    ("call", "kind", "code", "wrong", "error", "text"),
    LIES,
    ids=lambda value: value if isinstance(value, str) and value in CALLS else "",
)
def test_a_lie_is_an_error_that_names_it_and_never_a_number(
    call: str, kind: type[fp.Message], code: int, wrong: dict[str, Any], error: type[LumionError], text: str
) -> None:
    driver, board, clock = attached()
    lie = Lie(board, kind, code, **wrong)
    start_s = clock.now()
    with pytest.raises(error, match=text) as caught:
        CALLS[call](driver)
    assert lie.told
    assert caught.value.device == "mesh0"
    assert caught.value.address == "memory://mesh0"
    assert clock.now() - start_s < PATIENCE_S


@pytest.mark.parametrize(
    ("call", "kind", "code", "wrong", "error", "text"),
    [
        ("program", fp.StageReply, C.STAGE, {"bank_generation": 9}, FrameError, "STAGE: .*bank_generation 9"),
        ("program", fp.CommitReply, C.COMMIT, {"crc32": 0xBAD}, VerifyError, "not confirmed"),
        ("read_monitors", fp.ReadAdcReply, C.READ_ADC, {"start": 0}, FrameError, "has start 0, but the request had"),
        ("read_back", fp.ReadbackReply, C.READBACK, {"codes": NONE}, VerifyError, "checksum"),
    ],
)
def test_a_lie_about_one_piece_of_a_long_message_is_seen_too(
    call: str, kind: type[fp.Message], code: int, wrong: dict[str, Any], error: type[LumionError], text: str
) -> None:
    driver, board, _ = attached(STAGED)
    lie = Lie(board, kind, code, **wrong)
    with pytest.raises(error, match=text):
        CALLS[call](driver)
    assert lie.told


def test_pieces_that_trade_a_channel_are_refused_although_their_sum_is_right() -> None:
    driver, board, _ = attached(STAGED)
    Lie(board, fp.ReadAdcReply, C.READ_ADC, adc=lambda reply: reply.adc[1:] if reply.start else np.append(reply.adc, 7))
    with pytest.raises(
        FrameError, match=r"READ_ADC: received the values of \[115, 35\] monitors instead of \[114, 36\]"
    ):
        driver.read_monitors()


@pytest.mark.parametrize(
    "wrong",
    [
        {"window": 3},
        {"window": 0},
        {"n_dac": 0},
        {"tick_us": 0},
        {"fw_rx_max": 40},
        {"fw_tx_max": 40},
        {"fw_tx_max": 5000},  # more than this host said it accepts
        {"proto": 2},
        {"dac_full_scale": 0},
    ],
    ids=str,
)
def test_a_controller_that_cannot_be_is_refused_and_let_go(wrong: dict[str, int]) -> None:
    clock = VirtualClock()
    board = SpecBoard(clock)
    Lie(board, fp.HelloReply, C.HELLO, **wrong)
    driver = LumionMeshController(MemoryLink(board.connect, clock, "memory://mesh0"), clock, device="mesh0")
    with pytest.raises(FrameError, match=rf"HELLO: the reply has {next(iter(wrong))} = "):
        driver.open()
    assert not driver.session.is_open


def test_a_fault_list_without_end_is_refused_in_bounded_time_and_space() -> None:
    driver, board, clock = attached()

    def endless(request: fp.FaultListRequest) -> fp.Message:
        records = [fp.FaultRecord(request.first_id + i, 0, 9, fp.FaultState.CLEARED) for i in range(1, 9)]
        return fp.FaultListReply(0, 0xFFFFFFFF, board.state, tuple(records))

    board.do_fault_list = endless  # type: ignore[method-assign, assignment]
    with pytest.raises(FrameError, match="more than 4096 faults"):
        driver.faults()
    assert clock.now() < PATIENCE_S


def test_a_fault_that_was_not_cleared_is_not_believed_to_be() -> None:
    driver, board, _ = attached()
    board.trip(fp.FaultSource.SUPPLY)
    board.do_fault_clear = lambda request: fp.FaultClearReply(1 << 4, 1, fp.OutputsState.SAFE)  # type: ignore[method-assign]
    with pytest.raises(VerifyError, match=r"FAULT_CLEAR of id 1 .* read back SUPPLY"):
        driver.clear_fault(1)


def test_a_fault_id_at_the_end_of_the_numbers_does_not_end_the_feeding() -> None:
    driver, board, clock = attached()
    last = fp.FaultRecord(0xFFFFFFFF, 0, fp.FaultSource.SUPPLY, fp.FaultState.LATCHED)
    board.faults.append(last)
    board.event(fp.Event.FAULT, 0, last.encode())
    clock.sleep(30.0)
    board.advance()
    assert board.driven.any()
    assert [fault.source for fault in board.faults] == [fp.FaultSource.SUPPLY]
    del driver


def test_records_under_the_number_of_another_request_are_not_taken() -> None:
    """A SWEEP_READ that answers for other records would put every value one point off."""
    driver, board, _ = attached()
    board.lose_events[fp.Event.SWEEP_DATA] = 100  # everything has to be fetched by its number
    lie = Lie(board, fp.SweepReadReply, C.SWEEP_READ, first=plus("first"))
    with pytest.raises(FrameError, match="SWEEP_READ: the reply has first 1, but the request had 0"):
        driver.sweep(SWEEP)
    assert lie.told
    assert board.state is fp.OutputsState.READY  # and the run was ended


def test_a_sweep_that_never_makes_progress_ends() -> None:
    driver, board, clock = attached()
    board.lose_events[fp.Event.SWEEP_DATA] = 10_000
    Lie(board, fp.SweepReadReply, C.SWEEP_READ, values=lambda reply: reply.values[:0])
    start_s = clock.now()
    with pytest.raises(DeviceError, match="made no progress"):
        driver.sweep(SWEEP)
    assert clock.now() - start_s < 10.0


# --- any lie ---------------------------------------------------------------------------------------------------------

UNTOLD: dict[int, tuple[range, ...]] = {
    C.HELLO: (range(14, 104),),  # scales, features, names: taken at its word, as every device's identity is
    E.SWEEP_DATA: (range(4, 12), range(16, 65536)),  # under which number a record was taken is the board's to know
    C.SWEEP_READ: (range(28, 65536),),
    C.READ_ADC: (range(12, 65536),),
    E.TELEMETRY: (range(16, 65536),),
}
"""Payload bytes in which a lie cannot be told from the truth: measurements, and what the board says of itself."""


def spoilt(payload: bytes, code: int, place: int, value: int, resize: int) -> bytes:
    """Change one byte, then cut or lengthen the tail; leaves alone what nobody could check."""
    place %= max(len(payload), 1)
    changed = bytearray(payload)
    if payload and not any(place in part for part in UNTOLD.get(code, ())):
        changed[place] = value
    return bytes(changed[:resize] if resize < 0 else changed + bytes(resize))


@pytest.fixture(scope="module")
def truth() -> dict[str, Any]:
    """What an honest board makes of each call."""
    return {call: run(attached()[0]) for call, run in CALLS.items() if call in ("read_back", "read_monitors", "sweep")}


@examples(200)
@given(
    call=st.sampled_from(sorted(CALLS)),
    code=st.sampled_from([*C, *E]),
    place=st.integers(0, 120),
    value=st.integers(0, 255),
    resize=st.one_of(st.just(0), st.integers(-20, 20)),
    times=st.integers(1, 50),
)
def test_whatever_a_reply_says_it_ends_in_the_truth_or_in_an_error_of_the_package(
    truth: dict[str, Any], call: str, code: int, place: int, value: int, resize: int, times: int
) -> None:
    driver, board, clock = attached()
    left = [times]

    def lie(told: int, payload: bytes) -> bytes:
        if told != code or not left[0]:
            return payload
        left[0] -= 1
        return spoilt(payload, code, place, value, resize)

    board.rewrite = lie
    start_s = clock.now()
    result: Any
    try:
        result = CALLS[call](driver)
    except LumionError as error:
        result = error
    if isinstance(result, LumionError):
        assert result.device == "mesh0"
    elif call == "program":
        assert fp.table_crc32(board.driven) == result.crc32 == fp.table_crc32([3277] * N)  # 1 mA of 20
    elif call == "read_back":
        assert result.tolist() == truth[call].tolist()
    elif call in truth:
        assert result.photocurrent_ma.tolist() == truth[call].photocurrent_ma.tolist()
    assert clock.now() - start_s < PATIENCE_S
    board.rewrite = lambda told, payload: payload
    try:  # and an honest board is understood again
        driver.open()
    except LinkError:  # a run nobody could abort still has the board, or another identity was believed
        return
    driver.faults()
    driver.close()
