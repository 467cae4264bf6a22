"""Reply times of the emulated Qontrol chain, and deliberate timing faults."""

from __future__ import annotations

import numpy as np
import pytest

from lumion_hw.emulator.mesh.qontrol import OPEN, ModuleSpec, ReplyMode
from lumion_hw.emulator.mesh.qontrol.chain import OUTPUT_LIMIT
from lumion_hw.errors import ConnectError
from tests.emulator.mesh.qontrol.qontrol_testbench import TWO, Rig

BYTE_S = 10 / 115_200


def first_reply_s(rig: Rig, request: bytes = b"V3=1\n") -> float:
    """Return the time until the first byte of a reply."""
    start = rig.clock.now()
    rig.link.write(request, 0.0)
    assert rig.link.read(start + 1.0)
    elapsed = rig.clock.now() - start
    rig.wait(0.3)
    return elapsed


def test_fast_replies_take_no_time() -> None:
    assert first_reply_s(Rig()) == 0.0


def test_usb1_replies_take_a_millisecond() -> None:
    assert first_reply_s(Rig(reply_mode=ReplyMode.USB1)) == pytest.approx(0.001)


def test_the_latency_timer_delivers_on_a_grid_of_16_ms() -> None:
    rig = Rig(reply_mode=ReplyMode.FTDI16)
    rig.clock.sleep(0.0101)
    start = rig.clock.now()
    rig.link.write(b"VALL?\n", 0.0)
    assert len(rig.link.read(start + 1.0).splitlines()) == 16
    assert rig.clock.now() == pytest.approx(0.016, abs=2e-6)
    rig.clock.sleep(0.001)
    assert first_reply_s(rig, b"V3?\n") == pytest.approx(0.015, abs=2e-5)


def test_64_single_sets_through_the_latency_timer_take_about_a_second() -> None:
    # Recorded (docs/sources.md#devices): 1181 ms on a real system; 64 grid steps are 1024 ms
    rig = Rig((ModuleSpec(number=1),) * 8, reply_mode=ReplyMode.FTDI16)
    rig.clock.sleep(0.001)
    for channel in range(64):
        rig.link.write(f"V{channel}=1\n".encode(), 0.0)
        assert rig.link.read(rig.clock.now() + 0.1) == b"OK\n"
        rig.clock.sleep(0.001)
    assert 0.9 < rig.clock.now() < 1.2


def test_recorded_replies_come_when_those_of_real_modules_came() -> None:
    rig = Rig(reply_mode=ReplyMode.RECORDED)
    delays_ms = 1e3 * np.array([first_reply_s(rig) for _ in range(600)])
    assert delays_ms.min() >= 3.0
    assert delays_ms.max() <= 21.01
    assert 3.0 <= np.percentile(delays_ms, 5) < 4.0
    assert 6.0 < np.median(delays_ms) < 15.5
    assert 19.0 < np.percentile(delays_ms, 95) < 21.01


def test_long_recorded_replies_come_in_pieces_16_ms_apart() -> None:
    rig = Rig(reply_mode=ReplyMode.RECORDED)
    rig.link.write(b"VIPALL?\n", 0.0)
    times, data = [], b""
    while piece := rig.link.read(rig.clock.now() + 0.05):
        times.append(rig.clock.now())
        data += piece
    assert data.count(b"\n") == 16
    assert np.diff(times) == pytest.approx([0.016] * (len(times) - 1), abs=1e-5)
    assert len(times) == 3  # 16 lines of 27 bytes in pieces of 184


def test_bytes_take_their_time_at_115200_baud() -> None:
    rig = Rig(baud=115_200)
    start = rig.clock.now()
    rig.link.write(b"V3=4.5\n", 0.0)
    data = b""
    while not data.endswith(b"\n"):
        data += rig.link.read(start + 1.0)
    # 7 bytes to the chain, 3 bytes back
    assert rig.clock.now() - start == pytest.approx(10 * BYTE_S, abs=2e-5)


def test_outputs_change_when_the_last_byte_of_their_request_arrives() -> None:
    rig = Rig(baud=115_200)
    rig.link.write(b"V3=4.5\nV4=4.5\n", 0.0)
    rig.wait(0.1)
    assert [at_s for at_s, _ in rig.driven] == pytest.approx([0.0, 7 * BYTE_S, 14 * BYTE_S], abs=1e-6)


def test_64_ascii_sets_need_the_wire_time_of_their_bytes() -> None:
    # Recorded: 886 bytes = 77 ms; here "V10=1.0000\n" and the like, 10 * 10 + 54 * 11 = 694 bytes = 60 ms
    rig = Rig((ModuleSpec(number=1),) * 8, baud=115_200)
    text = "".join(f"V{channel}=1.0000\n" for channel in range(64)).encode()
    assert len(text) == 694
    rig.link.write(text, 0.0)
    rig.wait(0.2)
    assert rig.driven[-1][0] == pytest.approx(694 * BYTE_S, abs=1e-5)


def test_replies_come_in_the_order_of_the_requests() -> None:
    rig = Rig(reply_mode=ReplyMode.RECORDED)
    data = b"".join(f"V{channel}={channel / 10:.1f}\nV{channel}?\n".encode() for channel in range(16))
    lines = rig.lines(data, wait_s=1.0)
    assert lines == [line for channel in range(16) for line in ("OK", f"+{channel / 10:.4f} V")]


@pytest.mark.parametrize("mode", list(ReplyMode))
def test_every_mode_answers_within_100_ms_and_without_gaps_of_50_ms(mode: ReplyMode) -> None:
    rig = Rig((ModuleSpec(number=1),) * 8, reply_mode=mode)
    for request in (b"ID?\n", b"VIPALL?\n", b"NUPALL?\n", b"NUP=0\n", b"VALL=1\n"):
        times = [rig.clock.now()]
        rig.link.write(request, 0.0)
        while rig.link.read(rig.clock.now() + 0.2):
            times.append(rig.clock.now())
        gaps = np.diff(times[:-1] if len(times) > 2 else times)
        assert gaps[0] < 0.1
        assert np.all(gaps[1:] < 0.05)


def test_a_reply_does_not_wait_for_the_requests_behind_it() -> None:
    rig = Rig(baud=115_200)
    # 4 bytes to the chain and 10 back, while the following 1000 bytes take 87 ms
    assert first_reply_s(rig, b"ID?\n" + b"V3=1\n" * 200) < 0.003


# -- faults


def test_a_reply_can_be_late_and_those_behind_it_with_it() -> None:
    rig = Rig()
    rig.chain.delay_next_reply(0.3)
    assert rig.ask("V1?", wait_s=0.1) == []
    assert rig.ask("V3=2", wait_s=0.1) == []
    assert rig.wait(0.11) == ["+0.0000 V", "OK"]
    assert rig.ask("V3?") == ["+2.0000 V"]


@pytest.mark.parametrize(
    ("tamper", "answer"),
    [
        (lambda reply: reply.replace(b"\n", b"\r\n"), b"OK\r\n"),
        (lambda reply: reply.rstrip(b"\n"), b"OK"),
        (lambda reply: b"O\xffK\n", b"O\xffK\n"),
        (lambda reply: b"E15:00\n", b"E15:00\n"),
        (lambda reply: b"", b""),
        (lambda reply: b"E13:03\n" + reply, b"E13:03\nOK\n"),
    ],
)
def test_replies_can_be_spoilt(tamper, answer: bytes) -> None:
    rig = Rig()
    rig.chain.tamper = tamper
    assert rig.raw(b"V3=1\n", wait_s=1.0) == answer
    rig.chain.tamper = None
    assert rig.ask("V3?") == ["+1.0000 V"]


def test_a_silent_chain_still_obeys() -> None:
    rig = Rig(loads=OPEN)
    rig.chain.silent = True
    assert rig.ask("I3=5", wait_s=1.0) == []
    rig.chain.silent = False
    assert rig.ask("V3?", wait_s=1.0) == ["+12.0000 V"]


def test_without_power_nothing_answers_and_nobody_gets_in() -> None:
    rig = Rig()
    rig.ask("V3=4")
    rig.chain.power_off()
    assert rig.currents_ma[3] == 0.0
    assert rig.ask("ID?", wait_s=1.0) == []
    with pytest.raises(ConnectError, match="heaters"):
        rig.chain.connect()
    rig.chain.power_on()
    assert rig.ask("ID?") == ["E90:00", "E90:00", "Q8iv-0001"]


def test_a_power_cycle_loses_what_is_under_way() -> None:
    rig = Rig(TWO, baud=115_200)
    rig.link.write(b"V3=4.5\nV4=", 0.0)
    rig.chain.power_cycle()
    assert rig.wait(1.0) == ["E90:00", "E90:00"]
    assert rig.ask("ID?", wait_s=0.1) == ["Q8iv-0001"]


def test_a_host_that_does_not_read_loses_requests_but_not_the_chain() -> None:
    rig = Rig()
    for _ in range(OUTPUT_LIMIT // 6000):
        rig.link.write(b"NVMALL?\n", 0.0)
    rig.link.write(b"V3=4\n" * 100, 0.0)
    assert rig.currents_ma[3] == 0.0
    unread = rig.wait(0.0)
    assert sum(len(line) + 1 for line in unread) < OUTPUT_LIMIT + 10_000
    assert rig.ask("ID?") == ["Q8iv-0001"]


def test_a_host_that_does_not_read_misses_error_lines() -> None:
    rig = Rig()
    for _ in range(OUTPUT_LIMIT // 7 + 1000):
        rig.chain.trip(3)
        rig.clock.sleep(0.03)
    assert OUTPUT_LIMIT <= 7 * len(rig.wait(0.0)) < OUTPUT_LIMIT + 7
