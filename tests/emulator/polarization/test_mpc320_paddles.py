"""The emulated Thorlabs MPC320: check vectors, motions and special cases of the Thorlabs APT protocol."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.polarization.thorlabs_mpc import BAUD, Mpc320
from lumion_hw.errors import ConfigError, ConnectError

ENABLE_ALL = bytes.fromhex("10 02 07 01 50 01")
STATUS, HOMED, COMPLETED, STOPPED, RICH = 0x0491, 0x0444, 0x0464, 0x0466, 0x0081
COUNTS_PER_S = 400 * 1370 / 170


class Bench:
    """A controller and one host."""

    def __init__(self, seed: int = 1, **options) -> None:
        self.clock = VirtualClock()
        self.turns: list[np.ndarray] = []
        self.device = Mpc320("pol0", self.clock, np.random.default_rng(seed), turn=self.turns.append, **options)
        self.peer = self.device.connect()

    def send(self, text: str) -> None:
        self.peer.receive(bytes.fromhex(text))

    def hear(self, for_s: float = 0.01) -> list[tuple[int, bytes]]:
        """Return the messages within a time: id, and data or the two parameters."""
        end_s, raw = self.clock.now() + for_s, b""
        while (event := self.peer.next_event()) is not None and event <= end_s:
            self.clock.sleep(max(event - self.clock.now(), 1e-9))
            raw += self.peer.transmit()
        self.clock.sleep(max(end_s - self.clock.now(), 0.0))
        raw += self.peer.transmit()
        return messages(raw)

    def ask(self, text: str) -> tuple[int, bytes]:
        self.send(text)
        (message,) = self.hear()
        return message

    def status(self, channel: int) -> tuple[int, int, int, int]:
        """Return counts, velocity, current in mA, and status bits."""
        number, data = self.ask(f"90 04 {channel:02X} 00 50 01")
        assert number == STATUS
        assert len(data) == 14
        found, counts, velocity, current_ma, bits = struct.unpack("<HihhI", data)
        assert found == channel
        return counts, velocity, current_ma, bits


def messages(raw: bytes) -> list[tuple[int, bytes]]:
    found = []
    while raw:
        number, length, destination, source = struct.unpack_from("<HHBB", raw)
        assert destination & 0x7F == 0x01
        assert source == 0x50
        size = length if destination & 0x80 else 0
        found.append((number, raw[6 : 6 + size] if destination & 0x80 else raw[2:4]))
        raw = raw[6 + size :]
    return found


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.peer.receive(ENABLE_ALL)
    assert bench.hear() == []
    return bench


# Motions -------------------------------------------------------------------------------------------------------------


def test_move_of_channel_2_to_45_degrees(bench):
    """Check vector; the paddle moves to 363 counts and the completion message reports it."""
    bench.send("53 04 06 00 D0 01 02 00 6B 01 00 00")
    ((number, data),) = bench.hear(1.0)
    assert number == COMPLETED
    assert struct.unpack("<Hi", data) == (2, 363)
    assert bench.status(2)[0] == 363


def test_move_of_channel_4_to_the_end(bench):
    bench.send("53 04 06 00 D0 01 04 00 5A 05 00 00")
    ((_, data),) = bench.hear(1.0)
    assert struct.unpack("<Hi", data) == (4, 1370)
    counts, velocity, current_ma, bits = bench.status(4)
    assert (counts, velocity, current_ma) == (1370, 0, 0)
    assert bits == 1 << 13 | 1 << 31, "settled and enabled; never homed"


def test_homing_ends_at_the_home_position(bench):
    """Check vector; set 100 %, home 685, jogs 201."""
    bench.send("30 05 0C 00 D0 01 00 00 64 00 AD 02 C9 00 C9 00 C9 00")
    bench.send("43 04 01 00 50 01")
    assert bench.hear(0.02) == []
    assert bench.status(1)[3] & (1 << 9), "homing"
    ((number, parameters),) = bench.hear(2.0)
    assert number == HOMED
    assert parameters[0] == 1
    counts, _, _, bits = bench.status(1)
    assert counts == 685
    assert bits & (1 << 10)
    assert not bits & (1 << 9)


@pytest.mark.parametrize("percent", [10, 50, 100])
def test_motion_takes_its_time(bench, percent):
    """1370 counts at 100 % of 400 degrees per second take 0.425 s."""
    bench.send("53 04 06 00 D0 01 01 00 00 00 00 00")
    bench.hear(1.0)
    bench.send(f"30 05 0C 00 D0 01 00 00 {percent:02X} 00 AD 02 C9 00 C9 00 C9 00")
    bench.hear()
    bench.send("53 04 06 00 D0 01 01 00 5A 05 00 00")
    full_s = 1370 / COUNTS_PER_S * 100 / percent
    assert bench.hear(0.49 * full_s) == []
    counts, velocity, current_ma, bits = bench.status(1)
    assert counts == pytest.approx(685, abs=40)
    assert velocity == pytest.approx(COUNTS_PER_S * percent / 100, abs=1)
    assert current_ma > 0
    assert bits & (1 << 5), "forward"
    assert not bits & (1 << 13)
    assert bench.hear(0.47 * full_s) == []
    ((number, _),) = bench.hear(0.1 * full_s)
    assert number == COMPLETED
    bench.send("53 04 06 00 D0 01 01 00 00 00 00 00")
    bench.hear(0.1 * full_s)
    assert bench.status(1)[3] & (1 << 4), "back"


def test_jog_is_by_the_step_of_the_paddle(bench):
    bench.send("30 05 0C 00 D0 01 00 00 64 00 AD 02 0A 00 14 00 1E 00")
    bench.send("53 04 06 00 D0 01 04 00 64 00 00 00")
    bench.hear(1.0)
    for direction, place in ((1, 130), (2, 100)):
        bench.send(f"6A 04 04 {direction:02X} 50 01")
        ((number, data),) = bench.hear(1.0)
        assert number == COMPLETED
        assert struct.unpack("<Hi", data) == (4, place)


def test_a_motion_can_be_stopped(bench):
    bench.send("53 04 06 00 D0 01 01 00 00 00 00 00")
    bench.hear(1.0)
    bench.send("53 04 06 00 D0 01 01 00 5A 05 00 00")
    bench.hear(0.1)
    bench.send("65 04 01 01 50 01")
    ((number, data),) = bench.hear(1.0)
    assert number == STOPPED
    channel, counts = struct.unpack("<Hi", data)
    assert channel == 1
    assert counts == pytest.approx(0.1 * COUNTS_PER_S, abs=10)


def test_channels_move_at_the_same_time(bench):
    for channel in (1, 2, 4):
        bench.send(f"53 04 06 00 D0 01 {channel:02X} 00 64 00 00 00")
    heard = bench.hear(1.0)
    assert sorted(struct.unpack("<Hi", data) for _, data in heard) == [(1, 100), (2, 100), (4, 100)]


# Channels ------------------------------------------------------------------------------------------------------------


def test_enabling_one_channel_disables_the_others(bench):
    bench.send("10 02 02 01 50 01")
    states = [bench.ask(f"11 02 {channel:02X} 00 50 01") for channel in (1, 2, 4)]
    assert states == [(0x0212, bytes([1, 2])), (0x0212, bytes([2, 1])), (0x0212, bytes([4, 2]))]


def test_channels_are_switched_off_by_an_empty_mask_or_by_state_2(bench):
    bench.send("10 02 04 02 50 01")
    bench.hear()
    assert bench.device.enabled == 0b011
    bench.send("10 02 00 01 50 01")
    bench.hear()
    assert bench.device.enabled == 0


def test_all_channels_are_on_after_power_on():
    """As on a real MPC220 moved by a client that could not enable a channel (pyLabLib issue 29)."""
    bench = Bench()
    assert [bench.ask(f"11 02 {channel:02X} 00 50 01")[1][1] for channel in (1, 2, 4)] == [1, 1, 1]
    bench.send("53 04 06 00 D0 01 01 00 5A 05 00 00")
    assert [number for number, _ in bench.hear(1.0)] == [COMPLETED]
    bench.send("10 02 00 01 50 01")
    bench.hear()
    bench.device.power_cycle()
    assert bench.device.enabled == 0b111


def test_a_channel_that_is_off_does_not_move():
    bench = Bench()
    bench.send("10 02 00 01 50 01")
    before = bench.status(1)[0]
    bench.send("53 04 06 00 D0 01 01 00 5A 05 00 00")
    bench.send("43 04 01 00 50 01")
    assert bench.hear(3.0) == []
    assert bench.status(1)[0] == before


def test_switching_off_leaves_a_paddle_on_its_way(bench):
    bench.send("53 04 06 00 D0 01 01 00 00 00 00 00")
    bench.hear(1.0)
    bench.send("53 04 06 00 D0 01 01 00 5A 05 00 00")
    bench.hear(0.1)
    bench.send("10 02 00 01 50 01")
    assert bench.hear(1.0) == []
    assert 200 < bench.status(1)[0] < 500


def test_an_mpc220_has_two_paddles():
    bench = Bench(model="MPC220")
    assert bench.status(2)[0] >= 0
    assert bench.ask("90 04 04 00 50 01")[0] == RICH
    with pytest.raises(ConfigError, match="MPC640"):
        Bench(model="MPC640")


# Unsolicited messages -----------------------------------------------------------------------------------------------


def test_status_messages_come_by_themselves_once_started(bench):
    bench.send("11 00 00 00 50 01")
    heard = bench.hear(1.05)
    assert len(heard) == 30
    assert {number for number, _ in heard} == {STATUS}
    assert {data[0] for _, data in heard} == {1, 2, 4}
    bench.send("12 00 00 00 50 01")
    bench.hear(0.2)
    assert bench.hear(1.0) == []


def test_status_messages_can_come_unasked_between_request_and_reply():
    bench = Bench(chatty_s=0.01)
    bench.hear(0.0095)
    bench.send("31 05 00 00 50 01")
    assert [number for number, _ in bench.hear(0.01)] == [STATUS, STATUS, STATUS, 0x0532]


def test_every_host_hears_what_is_announced_and_only_one_its_answer(bench):
    other = bench.device.connect()
    bench.send("31 05 00 00 50 01")
    bench.send("53 04 06 00 D0 01 01 00 64 00 00 00")
    heard = [number for number, _ in bench.hear(1.0)]
    assert heard == [0x0532, COMPLETED]
    assert [number for number, _ in messages(other.transmit())] == [COMPLETED]


def test_a_host_that_does_not_listen_costs_no_memory():
    bench = Bench(chatty_s=0.01)
    silent = bench.device.connect()
    for _ in range(100):
        bench.clock.sleep(0.5)
        bench.device.advance()
        bench.peer.transmit()
    assert len(silent.transmit()) < 5000


def test_announced_motions_can_carry_a_whole_status():
    """The layout read by two public drivers (14 bytes); the fields named in the protocol come first."""
    bench = Bench(long_announcements=True)
    bench.peer.receive(ENABLE_ALL)
    bench.send("53 04 06 00 D0 01 02 00 6B 01 00 00")
    ((number, data),) = bench.hear(1.0)
    assert (number, len(data)) == (COMPLETED, 14)
    assert struct.unpack_from("<Hi", data) == (2, 363)


# Language ------------------------------------------------------------------------------------------------------------


def test_identity(bench):
    number, data = bench.ask("05 00 00 00 50 01")
    assert (number, len(data)) == (0x0006, 84)
    assert struct.unpack_from("<I8s", data) == (38000001, b"MPC320\0\0")
    assert struct.unpack_from("<H", data, 82) == (3,)


def test_parameters_are_read_back(bench):
    bench.send("30 05 0C 00 D0 01 00 00 32 00 64 00 0A 00 14 00 1E 00")
    number, data = bench.ask("31 05 00 00 50 01")
    assert number == 0x0532
    assert struct.unpack("<6H", data) == (0, 50, 100, 10, 20, 30)


@pytest.mark.parametrize(
    "sent",
    [
        "90 04 03 00 50 01",  # two channels at once
        "90 04 08 00 50 01",
        "53 04 06 00 D0 01 02 00 5B 05 00 00",  # 1371
        "53 04 06 00 D0 01 02 00 FF FF FF FF",  # -1
        "30 05 0C 00 D0 01 00 00 09 00 AD 02 C9 00 C9 00 C9 00",  # 9 %
        "30 05 0C 00 D0 01 00 00 64 00 5B 05 C9 00 C9 00 C9 00",
        "10 02 08 01 50 01",
        "10 02 01 03 50 01",
        "6A 04 01 03 50 01",
    ],
)
def test_what_cannot_be_done_is_answered_and_changes_nothing(bench, sent):
    before = [bench.status(channel) for channel in (1, 2, 4)], bench.device.parameters
    number, data = bench.ask(sent)
    assert (number, len(data)) == (RICH, 68)
    assert struct.unpack_from("<H", data)[0] == struct.unpack_from("<H", bytes.fromhex(sent))[0]
    assert data[4:].rstrip(b"\0").isascii()
    assert ([bench.status(channel) for channel in (1, 2, 4)], bench.device.parameters) == before


@pytest.mark.parametrize(
    "sent",
    [
        "48 04 06 00 D0 01 01 00 64 00 00 00",  # a relative move, which this device does not support
        "29 04 01 00 50 01",
        "34 12 00 00 50 01",
        "53 04 04 00 D0 01 02 00 5B 05",  # too short
        "53 04 00 00 50 01",
    ],
)
def test_what_it_does_not_know_is_passed_over_in_silence(bench, sent):
    """A real MPC220 "does not respond and no error is returned" (pyLabLib issue 29)."""
    bench.send(sent)
    assert bench.hear(1.0) == []
    assert bench.status(1)[3] & (1 << 13), "settled"


def test_saved_parameters_survive_a_power_cycle_and_saving_has_no_answer(bench):
    bench.send("30 05 0C 00 D0 01 00 00 32 00 AD 02 01 00 02 00 03 00")
    bench.send("B9 04 04 00 D0 01 01 00 30 05")
    bench.send("B9 04 04 00 D0 01 01 00 B6 04")
    bench.send("30 05 0C 00 D0 01 00 00 64 00 00 00 00 00 00 00 00 00")
    assert bench.ask("31 05 00 00 50 01")[1][2:4] == b"\x64\x00", "the first thing heard since"
    bench.device.power_cycle()
    assert bench.ask("31 05 00 00 50 01")[1] == struct.pack("<6H", 0, 50, 685, 1, 2, 3)


def test_noise_is_skipped_and_half_a_message_forgotten(bench):
    bench.peer.receive(b"\x00\xff\x13garbage")
    assert bench.status(1)[0] >= 0
    bench.send("53 04 06 00 D0 01 02 00")
    bench.hear(0.2)
    assert bench.status(1)[0] >= 0


def test_bytes_take_the_time_of_the_line(bench):
    """Six bytes to the device and twenty back at 115 200 baud, eight data bits."""
    start = bench.clock.now()
    bench.send("90 04 04 00 50 01")
    while not (raw := bench.peer.transmit()):
        bench.clock.sleep(max(bench.peer.next_event() - bench.clock.now(), 1e-9))
    assert len(raw) == 20
    assert bench.clock.now() - start >= 26 * 10 / BAUD


# Light ---------------------------------------------------------------------------------------------------------------


def test_paddles_turn_the_light_while_they_move(bench):
    """Retarders only rotate: the matrix is unitary except for the activation loss, at most 0.05 dB."""
    bench.send("53 04 06 00 D0 01 02 00 00 00 00 00")
    bench.hear(1.0)
    bench.turns.clear()
    bench.send("53 04 06 00 D0 01 02 00 5A 05 00 00")
    for _ in range(20):
        bench.clock.sleep(0.02)
        bench.device.advance()
    assert len(bench.turns) > 15
    for matrix in bench.turns:
        power = matrix @ matrix.conj().T
        assert abs(power[0, 1]) < 1e-12
        assert 0.0 <= -10 * np.log10(power[0, 0].real) <= 0.05
    bench.hear(1.0)
    bench.turns.clear()
    bench.clock.sleep(10.0)
    bench.device.advance()
    assert bench.turns == [], "at rest nothing is reckoned"


def test_power_against_the_middle_paddle_has_only_the_fourth_harmonic(bench):
    """A half-wave plate: three positions, 30 degrees apart, give mean and amplitude."""
    power = []
    angles = np.arange(0, 171, 5)
    for angle in angles:
        bench.peer.receive(struct.pack("<HHBBHi", 0x0453, 6, 0xD0, 1, 2, round(angle * 1370 / 170)))
        bench.hear(1.0)
        power.append(abs(bench.turns[-1][0, 0]) ** 2)
    phase = 4 * np.radians(angles)
    design = np.stack([np.ones_like(phase), np.cos(phase), np.sin(phase)], axis=1)
    fit, *_ = np.linalg.lstsq(design, np.array(power), rcond=None)
    np.testing.assert_allclose(design @ fit, power, atol=0.01)


def test_a_controller_without_power_refuses_connections(bench):
    bench.device.power_off()
    with pytest.raises(ConnectError, match="pol0"):
        bench.device.connect()
