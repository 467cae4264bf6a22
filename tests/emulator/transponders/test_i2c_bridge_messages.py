"""The emulated SC18IM700: messages, status register, timing, and operation after garbage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.transponders.i2c_bridge import I2cBridge
from lumion_hw.emulator.transponders.sfp import SfpModule
from lumion_hw.errors import ConnectError
from lumion_hw.links.memory import MemoryLink
from tests.effort import examples

OK, NACK_ADDRESS, NACK_DATA, TIME_OUT = b"\xf0", b"\xf1", b"\xf2", b"\xf8"
STAT = b"R\x0aP"


class Rig:
    """A bridge with one module, and a host at the other end of an in-memory link."""

    def look(self) -> float:
        """The light at the receiver; as in the optical world, a reading first makes every device advance."""
        self.bridge.advance()
        return 1e-4

    def __init__(self, **options: bool | int) -> None:
        self.clock = VirtualClock()
        self.launched: list[float] = []
        self.module = SfpModule(
            "sfp",
            self.clock,
            np.random.default_rng(3),
            emit_w=self.launched.append,
            rx_power_w=self.look,
            warm=True,
        )
        self.bridge = I2cBridge("bridge", self.clock, (self.module,), **options)  # type: ignore[arg-type]
        self.link = MemoryLink(self.bridge.connect, self.clock, "memory://bridge")
        self.link.open(0.0)

    def ask(self, data: bytes, count: int, wait_s: float = 1.0) -> bytes:
        self.link.write(data, self.clock.now())
        deadline = self.clock.now() + wait_s
        answer = b""
        while len(answer) < count and self.clock.now() < deadline:
            answer += self.link.read(deadline)
        return answer

    def status(self) -> bytes:
        return self.ask(STAT, 1)


def test_a_write_then_a_read_gives_the_identity() -> None:
    rig = Rig()
    assert rig.ask(b"S\xa0\x01\x14P", 1, 0.1) == b""
    assert rig.status() == OK
    assert rig.ask(b"S\xa1\x0aP", 10) == b"LUMION EMU"
    assert rig.status() == OK


def test_a_repeated_start_reads_in_one_message() -> None:
    assert Rig().ask(b"S\xa0\x01\x28S\xa1\x0aP", 10) == b"EMU-10G-ER"


def test_data_may_contain_the_stop_character() -> None:
    rig = Rig()
    rig.ask(b"S\xa2\x04\x80PSPP", 1, 0.1)
    rig.clock.sleep(0.1)
    assert rig.ask(b"S\xa2\x01\x80S\xa3\x03P", 3) == b"PSP"


def test_the_status_register_tells_which_acknowledgement_was_missing() -> None:
    rig = Rig()
    rig.ask(b"S\x40\x00P", 1, 0.1)
    assert rig.status() == NACK_ADDRESS
    rig.ask(b"S\xa2\x0a\x80123456789P", 1, 0.1)  # nine bytes for an eight-byte row
    assert rig.status() == NACK_DATA
    rig.ask(b"S\xa0\x00P", 1, 0.1)
    assert rig.status() == OK


def test_a_read_without_acknowledgement_returns_nothing() -> None:
    rig = Rig()
    rig.module.power_off()
    assert rig.ask(b"S\xa1\x04P", 4, 0.5) == b""
    assert rig.status() == NACK_ADDRESS


def test_the_module_is_busy_after_a_write_and_the_host_can_poll_it() -> None:
    rig = Rig()
    rig.ask(b"S\xa2\x02\x80\x55P" + STAT, 1)
    assert rig.ask(b"S\xa2\x00P" + STAT, 1) == NACK_ADDRESS
    rig.clock.sleep(0.05)
    assert rig.ask(b"S\xa2\x00P" + STAT, 1) == OK


def test_a_held_bus_ends_in_a_time_out() -> None:
    rig = Rig()
    rig.bridge.bus_stuck = True
    assert rig.ask(b"S\xa1\x01P" + STAT, 1) == TIME_OUT
    rig.bridge.bus_stuck = False
    assert rig.ask(b"S\xa0\x01\x00P" + STAT, 1) == OK


def test_registers_read_as_delivered_and_as_written() -> None:
    rig = Rig()
    # SC18IM700 register summary: BRG = 02F0h (9600 baud), I2CAdr 26h, I2CClk 0013h, I2CTO 66h, I2CStat F0h.
    assert rig.ask(b"R\x00\x01\x06\x07\x08\x09\x0aP", 7) == bytes((0xF0, 0x02, 0x26, 0x13, 0x00, 0x66, 0xF0))
    assert rig.ask(b"W\x06\x50\x0a\x00PR\x06\x0aP", 2) == b"\x50\xf0", "I2CStat cannot be written"
    assert rig.ask(b"O\xa5PIP", 1) == b"\xa5"


def test_uart_time_is_9600_baud_after_power_up() -> None:
    rig = Rig()
    assert rig.status() == OK
    assert rig.clock.now() == pytest.approx(4 * 10 / 9600, rel=1e-3)  # three bytes to the bridge, one back


def test_bus_time_is_that_of_97_khz() -> None:
    rig = Rig()
    rig.ask(b"S\xa1\x64P", 100)
    # 4 + 100 bytes of UART; start, 101 bytes of nine bits, stop at 7.3728 MHz / (4 * 19)
    assert rig.clock.now() == pytest.approx(104 * 10 / 9600 + (2 + 9 * 101) / 97_010.5, rel=1e-3)


def test_the_host_can_raise_the_baud_rate() -> None:
    rig = Rig()
    rig.ask(b"W\x00\x30\x01\x00P", 1, 0.1)  # 7.3728 MHz / (16 + 48) = 115200
    start = rig.clock.now()
    assert rig.status() == OK
    assert rig.clock.now() - start == pytest.approx(4 * 10 / 115200, rel=1e-3)
    assert rig.bridge.baud == 115200


def test_the_bridge_can_be_delivered_with_another_rate() -> None:
    assert Rig(baud=460800).bridge.baud == 460800


def test_it_greets_with_ok_after_power_up() -> None:
    rig = Rig(ok_on_connect=True)
    assert rig.ask(b"", 2) == b"OK"
    rig.ask(b"W\x06\x11P", 1, 0.1)
    rig.bridge.power_cycle()
    assert rig.ask(b"", 2) == b"OK"
    assert rig.ask(b"R\x06P", 1) == b"\x26"


def test_half_a_message_is_forgotten_after_its_time_out() -> None:
    rig = Rig()
    rig.ask(b"S\xa0\x20half", 1, 0.7)
    assert rig.status() == OK


def test_within_the_time_out_a_message_may_come_in_pieces() -> None:
    rig = Rig()
    for piece in (b"S\xa0", b"\x01", b"\x14", b"S\xa1\x06"):
        assert rig.ask(piece, 1, 0.5) == b""
    assert rig.ask(b"P", 6) == b"LUMION"


def test_a_disable_takes_effect_from_the_time_on_the_bus_even_if_nobody_looks() -> None:
    rig = Rig()
    rig.link.write(b"S\xa2\x02\x6e\x40P", 0.0)
    rig.clock.sleep(0.2)
    rig.bridge.advance()
    rig.module.advance()
    assert rig.launched[-1] == 0.0


def test_messages_are_answered_in_order_although_a_read_makes_the_world_look_back() -> None:
    rig = Rig()
    rig.link.write(b"S\xa2\x01\x60S\xa3\x02P" + STAT + b"R\x06P", 0.0)
    rig.clock.sleep(1.0)
    answer = rig.ask(b"", 4)
    assert answer[2:] == OK + b"\x26"
    assert int.from_bytes(answer[:2], "big") / 256 == pytest.approx(45, abs=0.3)


def test_two_connections_do_not_mix_their_messages() -> None:
    rig = Rig()
    other = MemoryLink(rig.bridge.connect, rig.clock, "memory://other")
    other.open(0.0)
    other.write(b"S\xa0", 0.0)
    assert rig.status() == OK
    other.write(b"\x01\x14S\xa1\x06P", 0.0)
    assert other.read(rig.clock.now() + 1.0)[:1] == b"L"
    other.close()
    other.close()


def test_an_unplugged_bridge_refuses_a_connection() -> None:
    rig = Rig()
    rig.bridge.pull_cable()
    with pytest.raises(ConnectError, match="bridge"):
        rig.bridge.connect()


@examples(75)
@given(
    garbage=st.lists(
        st.one_of(st.binary(max_size=30), st.sampled_from([b"S\xa1", b"SP", b"W", b"RP", b"OP", b"Z\x5a\xa5P"]))
    )
)
def test_no_byte_string_kills_it(garbage: list[bytes]) -> None:
    rig = Rig()
    for piece in garbage:
        rig.ask(piece, 1000, 0.05)
    while rig.ask(b"", 1, 5.0):
        pass
    rig.clock.sleep(0.1)
    # Start with a complete register write: garbage may have changed the baud rate, but not the meaning of messages.
    answer = rig.ask(b"S\xa0\x01\x14S\xa1\x06P" + STAT, 7, 20.0)
    assert answer == b"LUMION" + OK
