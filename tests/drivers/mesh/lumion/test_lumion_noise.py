"""Any bytes at all in front of the LUMION mesh driver: protocol section 13 from the host's side.

The far end is honest, the wire is not: what arrives between two replies is anything. No exception but the package's own
leaves the driver, nothing grows, the next good frame is understood, and every bad one is counted under its cause.
"""

from __future__ import annotations

import gc
import tracemalloc
import zlib
from collections import Counter
from contextlib import suppress

import cobs.cobs
import numpy as np
import pytest
from hypothesis import given, strategies as st

import firmware_protocol as fp
from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.mesh.lumion.controller import LumionMeshController
from lumion_hw.errors import LumionError
from lumion_hw.interfaces import ControllerLimits
from lumion_hw.links.memory import MemoryLink
from lumion_hw.sessions.framed.session import HOST_MTU
from lumion_hw.testing.wires import DisturbedLink
from tests.drivers.mesh.lumion.lumion_testboard import HELLO, SpecBoard
from tests.effort import examples

N = HELLO.n_dac
CODES = [300 * channel for channel in range(N)]
SESSION = 0x2F71


def attached() -> tuple[LumionMeshController, DisturbedLink, SpecBoard, VirtualClock]:
    clock = VirtualClock()
    board = SpecBoard(clock)
    link = DisturbedLink(MemoryLink(board.connect, clock, "memory://mesh0"), clock)
    driver = LumionMeshController(link, clock, device="mesh0", session_ids=lambda: SESSION)
    driver.open()
    driver.configure(ControllerLimits(np.full(N, 20.0), np.full(N, 10.0), total_power_mw=400.0))
    driver.program(np.array(CODES) * (20.0 / 65535))
    return driver, link, board, clock


def causes(garbage: bytes) -> Counter[str]:
    """What section 13 calls each piece between two delimiters, by the `cobs` package and `zlib`."""
    found: Counter[str] = Counter()
    for piece in filter(None, garbage.split(b"\0")):
        if len(piece) > HOST_MTU - 2:
            found["bad_oversize"] += 1
            continue
        try:
            content = cobs.cobs.decode(piece)
        except cobs.cobs.DecodeError:
            found["bad_cobs"] += 1
            continue
        if len(content) < 12:
            found["bad_short"] += 1
        elif zlib.crc32(content) != 0x2144DF1C:
            found["bad_crc"] += 1
    return found


def bad(driver: LumionMeshController) -> Counter[str]:
    return Counter({name: n for name, n in driver.session.counters.items() if name.startswith("bad_") and n})


# Long runs without a delimiter, runs of delimiters, and short pieces that are nearly frames.
pieces = st.one_of(
    st.binary(max_size=60),
    st.binary(min_size=12, max_size=40).map(lambda content: b"\0" + cobs.cobs.encode(content) + b"\0"),
    st.integers(4090, 4100).map(lambda n: b"\0" + b"\x05" * n + b"\0"),
    st.just(b"\0\0\0"),
)


@examples(150)
@given(garbage=st.lists(pieces, max_size=12).map(b"".join))
def test_any_bytes_in_front_of_a_reply_are_counted_by_their_cause_and_the_reply_is_understood(garbage: bytes) -> None:
    driver, link, board, clock = attached()
    link.disturb(garbage)
    start_s = clock.now()
    assert np.rint(driver.read_back() / 20.0 * 65535).tolist() == CODES
    assert clock.now() - start_s < 0.01  # at the first attempt
    assert bad(driver) == causes(garbage)
    assert driver.session.counters.get("retries", 0) == 0
    assert board.verdicts["read again"] == 0


@examples(150)
@given(
    kind=st.integers(0, 15),
    version=st.one_of(st.just(1), st.integers(0, 15)),
    flags=st.integers(0, 255),
    command=st.one_of(st.sampled_from([*fp.Command, *fp.Event]), st.integers(0, 255)),
    status=st.integers(0, 255),
    ahead=st.integers(-3, 3),
    session=st.sampled_from([0, SESSION, SESSION + 1]),
    payload=st.binary(max_size=120),
    call=st.sampled_from(["read_back", "read_monitors", "faults", "program", "outputs_off", "telemetry"]),
)
def test_any_good_frame_the_board_never_sent_ends_in_an_error_of_the_package_at_most(
    kind: int, version: int, flags: int, command: int, status: int, ahead: int, session: int, payload: bytes, call: str
) -> None:
    driver, link, board, clock = attached()
    seq = driver.session.counters["requests"] + ahead  # HELLO was number 0: the next request is `requests` + 1
    frame = fp.Frame(kind, command, seq, session, flags, status, version, payload)
    link.disturb(fp.encode_frame(frame))
    start_s = clock.now()
    arguments = {"program": (np.full(N, 1.0),), "telemetry": (0.01,)}.get(call, ())
    with suppress(LumionError):
        got = getattr(driver, call)(*arguments)
        if call == "telemetry":
            next(got)
    assert clock.now() - start_s < 10.0
    driver.open()  # a forged SESSION refusal looks like a lost session
    for fault in driver.faults():
        driver.clear_fault(fault.fault_id)
    driver.program(np.full(N, 2.0))
    assert set(board.executed.values()) == {1}
    driver.close()


@pytest.mark.parametrize(
    "flood",
    [b"\x05" * 65536, b"\0" * 65536, b"\x01\0" * 8192, (b"\0" + fp.ESTOP_WIRE) * 3000, bytes(range(256)) * 256],
    ids=["no end", "delimiters", "short", "echoes", "ramp"],
)
def test_a_flood_takes_no_memory_and_the_next_reply_is_understood(flood: bytes) -> None:
    driver, link, _, _ = attached()
    link.disturb(flood)
    driver.read_back()
    tracemalloc.start()
    try:
        for _ in range(8):
            link.disturb(flood)
            driver.read_back()
        gc.collect()  # what only circles hold is no memory kept
        # What the driver and what is under it keep: threads that other tests have left to end ask for memory as well.
        places = ("lumion_hw/drivers/mesh", "lumion_hw/sessions/framed", "lumion_hw/links", "firmware_protocol")
        ours = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, f"*/{each}/*") for each in places])
        kept = sum(trace.size for trace in ours.traces)
    finally:
        tracemalloc.stop()
    assert kept < len(flood), ours.statistics("lineno")[:5]  # of eight floods less than one
    assert np.rint(driver.read_back() / 20.0 * 65535).tolist() == CODES


def test_events_nobody_listens_to_leave_nothing_behind() -> None:
    driver, link, _, _ = attached()
    record = fp.FaultRecord(1, 0, fp.FaultSource.SUPPLY, fp.FaultState.LATCHED)
    faults = [
        fp.encode_frame(fp.Frame(fp.Kind.EVT, fp.Event.FAULT, n & 0xFFFF, SESSION, payload=record.encode()))
        for n in range(5000)
    ]
    link.disturb(b"".join(faults))
    driver.read_back()
    assert len(driver.session.take_fault_events()) <= 64
    assert driver.session.counters["events"] == 5000


def test_an_echo_says_so_when_nothing_else_comes_back() -> None:
    driver, link, board, _ = attached()
    board.mute.add(fp.Command.READBACK)
    link.disturb(fp.encode_frame(fp.Frame(fp.Kind.REQ, fp.Command.READBACK, 9, SESSION, payload=bytes(6))) * 3)
    with pytest.raises(LumionError, match="loop-back cable"):
        driver.read_back()
