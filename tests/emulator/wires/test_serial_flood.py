"""A megabyte without a terminator on a serial line: excess bytes are lost, and the device soon responds again."""

from __future__ import annotations

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.lasers.itla import Itla
from lumion_hw.emulator.polarization.novoptel_pm1000 import Pm1000
from lumion_hw.emulator.polarization.oz_epc04 import Epc04
from lumion_hw.emulator.polarization.thorlabs_mpc import Mpc320
from lumion_hw.emulator.transponders.i2c_bridge import MAX_WAITING_MESSAGES, I2cBridge
from lumion_hw.emulator.transponders.sfp import SfpModule
from lumion_hw.emulator.wires.serial_line import LINE_LIMIT, MAX_UNREAD_BYTES, SerialLine

MEGABYTE = 1 << 20
LINE_S = 10 * LINE_LIMIT / 9600
"""Time for a full buffer on the slowest of these lines."""


def bridge(clock: VirtualClock, rng: np.random.Generator) -> I2cBridge:
    module = SfpModule("m", clock, rng, emit_w=lambda _: None, rx_power_w=lambda: 0.0)
    return I2cBridge("d", clock, [module])


MAKERS = {
    "epc": lambda clock, rng: Epc04("d", clock, rng, drive_mv=lambda *_: None),
    "itla": lambda clock, rng: Itla("d", clock, rng),
    "sfp": bridge,
    "mpc": lambda clock, rng: Mpc320("d", clock, rng, turn=lambda _: None),
    "pm1000": lambda clock, rng: Pm1000("d", clock, rng, lambda: np.zeros(4), link="usb"),
}
QUESTIONS = {
    "epc": (b"\r\nV?\r\n", b"Done\r\n"),
    "itla": (bytes((0x00, 0x00, 0x00, 0x00)), 4),  # NOP
    "sfp": (b"R\x0aP", bytes((0xF0,))),  # I2CStat: no error
    "mpc": (bytes((0x05, 0x00, 0x00, 0x00, 0x50, 0x01)), 90),  # HW_REQ_INFO: a header of 6 bytes and 84 bytes of data
    "pm1000": (b"\rR2800000\r", b"1015\r"),  # register 512 + 128: the firmware
}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("piece", [65536, 512])
def test_a_megabyte_without_an_end_silences_for_seconds_at_most(kind, piece):
    clock = VirtualClock()
    peer = MAKERS[kind](clock, np.random.default_rng(1)).connect()
    for _ in range(MEGABYTE // piece):
        peer.receive(b"y" * piece)
    clock.sleep(LINE_S + 1.0)  # an incomplete message has timed out
    peer.transmit()
    question, answer = QUESTIONS[kind]
    peer.receive(question)
    clock.sleep(0.5)
    heard = peer.transmit()
    assert heard.endswith(answer) if isinstance(answer, bytes) else len(heard) == answer


def test_messages_that_wait_for_a_slow_bus_are_bounded():
    """255 bytes take 24 ms on the bus and four on the UART, so they arrive faster than they can be executed."""
    clock = VirtualClock()
    chip = bridge(clock, np.random.default_rng(1))
    peer = chip.connect()
    for _ in range(100):
        peer.receive(b"S\xa1\xffP" * 1000)
        clock.sleep(0.1)
    for _ in range(2):  # messages that have arrived are executed; replies to the waiting ones are sent
        clock.sleep(LINE_S + MAX_WAITING_MESSAGES * (255 * 9 / 97e3))
        peer.transmit()
    peer.receive(b"R\x0aP")
    clock.sleep(0.1)
    assert peer.transmit() == bytes((0xF0,))


def test_a_line_keeps_what_has_room_and_loses_the_rest_from_the_end():
    line = SerialLine(9600)
    line.receive(b"a" * LINE_LIMIT, 0.0)
    line.receive(b"b", 0.0)
    taken = line.take_arrived(1e9)
    assert taken == (pytest.approx(LINE_S), b"a" * LINE_LIMIT)
    assert line.take_arrived(1e9) is None
    line.receive(b"c", LINE_S)
    assert line.take_arrived(1e9) == (pytest.approx(LINE_S + 10 / 9600), b"c")


def test_bytes_written_one_by_one_come_to_few_pieces_while_they_wait():
    """Otherwise the cost of every access to the line would grow with the number of its bytes."""
    line = SerialLine(9600)
    for _ in range(1000):
        line.receive(b"x", 0.0)
    assert len(line._inbound) <= 64
    line.receive(b"y", 5.0)  # a pause between
    pieces = iter(lambda: line.take_arrived(6.0), None)
    *early, last = pieces
    assert b"".join(data for _, data in early) == b"x" * 1000
    assert early[-1][0] == pytest.approx(1000 * 10 / 9600)
    assert last == (pytest.approx(5.0 + 10 / 9600), b"y")


def test_answers_nobody_takes_are_bounded():
    line = SerialLine(None)
    for _ in range(2 * MAX_UNREAD_BYTES):
        line.send(b"answer", 0.0)
    assert MAX_UNREAD_BYTES <= line.unread < MAX_UNREAD_BYTES + 6
    assert len(line.take_departed(0.0)) >= MAX_UNREAD_BYTES
    line.send(b"again", 0.0)
    assert line.take_departed(0.0) == b"again"
