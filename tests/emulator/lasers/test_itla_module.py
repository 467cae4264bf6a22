"""The ITLA emulator, frame by frame (OIF-ITLA-MSA-01.3)."""

from __future__ import annotations

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.lasers.itla import Itla
from lumion_hw.emulator.lasers.itla.frames import bip4
from lumion_hw.emulator.lasers.itla.laser import ItlaProfile
from lumion_hw.emulator.wires.device import EmulatedDevice
from lumion_hw.errors import ConnectError

FRAME_S = 4 * 10 / 9600


class Host:
    """A host on a line without pacing."""

    def __init__(self, *, seed: int = 2, paced: bool = False, **options) -> None:
        self.clock = VirtualClock()
        self.light = None
        self.module = Itla("laser0", self.clock, np.random.default_rng(seed), paced=paced, emit=self._see, **options)
        self.peer = self.module.connect()

    def _see(self, light) -> None:
        self.light = light

    def send(self, text: str) -> str:
        """Send a frame in hex; return the reply in hex."""
        self.peer.receive(bytes.fromhex(text))
        reply = self.peer.transmit()
        while not reply and (event := self.peer.next_event()) is not None:
            self.clock.sleep(max(event - self.clock.now(), 1e-6))
            reply = self.peer.transmit()
        return reply.hex(" ").upper()

    def frame(self, register: int, data: int | None = None) -> tuple[int, int]:
        """Read or write a register; return status and data."""
        write = data is not None
        body = bytes((int(write), register)) + ((data or 0) & 0xFFFF).to_bytes(2, "big")
        sealed = bytes((body[0] | bip4(body) << 4,)) + body[1:]
        reply = bytes.fromhex(self.send(sealed.hex()))
        assert reply[0] >> 4 == bip4(reply)
        assert reply[0] & 0x04, "bit 26 is 1"
        assert reply[1] == register
        return reply[0] & 0x0B, int.from_bytes(reply[2:], "big")

    def read(self, register: int) -> int:
        status, data = self.frame(register)
        assert status == 0
        return data

    def signed(self, register: int) -> int:
        value = self.read(register)
        return value - 0x10000 if value & 0x8000 else value

    def write(self, register: int, data: int) -> str:
        """Write a register and return the outcome: ok, pending, or the error reported by NOP."""
        status, _ = self.frame(register, data)
        return {0: "ok", 3: "pending"}[status] if status != 1 else f"error {self.read(0x00) & 0xF:X}"

    def settle(self) -> float:
        """Poll NOP until nothing is pending; return the duration."""
        start = self.clock.now()
        while self.read(0x00) >> 8:
            self.clock.sleep(0.01)
        return self.clock.now() - start


@pytest.fixture
def host():
    return Host()


def test_it_is_an_emulated_device(host):
    device: EmulatedDevice = host.module
    assert device.name == "laser0"


@pytest.mark.parametrize(
    ("request_frame", "reply"),
    [
        ("00 00 00 00", "54 00 00 10"),
        ("61 31 03 E8", "34 31 03 E8"),
        ("A1 35 00 C1", "F4 35 00 C1"),
        ("F1 36 10 1B", "A4 36 10 1B"),
        ("01 67 00 00", "54 67 00 00"),
        ("31 30 00 01", "64 30 00 01"),
        ("81 32 00 08", "E7 32 00 08"),
    ],
)
def test_frames_of_the_facts(host, request_frame, reply):
    assert host.send(request_frame) == reply


def test_pending_operation_shows_in_nop_until_the_laser_is_locked(host):
    host.send("81 32 00 08")
    assert host.send("00 00 00 00") == "44 00 01 10"
    assert host.settle() == pytest.approx(5.0, abs=0.05)
    assert host.send("00 00 00 00") == "54 00 00 10"
    assert host.send("60 42 00 00") == "74 42 03 E8", "10.00 dBm"


def test_power_out_of_range_is_refused_and_unchanged(host):
    assert host.send("B1 31 0B B8") == "F5 31 0B B8"
    assert host.send("00 00 00 00") == "64 00 00 13"
    assert host.send("00 00 00 00") == "54 00 00 10", "NOP reports an error once"
    assert host.signed(0x31) == 1000
    assert host.write(0x31, -500) == "error 3"
    assert [host.write(0x31, value) for value in (600, 1350)] == ["ok", "ok"]


def test_first_frequency_cannot_be_written_with_the_output_on(host):
    host.send("81 32 00 08")
    host.settle()
    assert host.send("A1 35 00 C1") == "E5 35 00 C1"
    assert host.send("00 00 00 00") == "C4 00 00 19"
    assert [host.write(code, 100) for code in (0x34, 0x66, 0x36, 0x67)] == ["error 9"] * 4


def test_unknown_and_read_only_registers(host):
    assert host.send("80 7F 00 00") == "D5 7F 00 00"
    assert host.send("00 00 00 00") == "44 00 00 11"
    assert host.write(0x42, 1) == "error 2"
    assert host.write(0x7F, 1) == "error 1"


def test_device_type_is_read_by_extended_addressing(host):
    assert host.send("10 01 00 00") == "F6 01 00 08"
    words = [host.send("B0 0B 00 00") for _ in range(4)]
    assert words == ["A4 0B 43 57", "04 0B 20 49", "64 0B 54 4C", "A4 0B 41 00"]
    assert host.send("B0 0B 00 00") == "E5 0B 00 00"
    assert host.send("00 00 00 00") == "34 00 00 16"
    assert host.write(0x0B, 1) == "error 7"


def test_strings_of_odd_length_are_padded(host):
    status, length = host.frame(0x02)
    assert (status, length) == (2, 7)
    words = [host.read(0x0B).to_bytes(2, "big") for _ in range(4)]
    assert b"".join(words) == b"LUMION\0\0"
    assert host.frame(0x0B)[0] == 1


def test_address_of_extended_reading_can_be_set(host):
    host.frame(0x01)
    assert host.read(0x0A) == 0
    assert host.write(0x0A, 4) == "ok"
    assert host.read(0x0B) == 0x544C
    assert host.write(0x0A, 9) == "error 6"
    assert host.write(0x09, 0x8002) == "ok"
    assert host.read(0x09) == 0x8002


@pytest.mark.parametrize("bit", range(32))
def test_every_damaged_bit_is_found_and_nothing_is_executed(bit):
    host = Host()
    damaged = (int("613103E8", 16) ^ 1 << bit).to_bytes(4, "big")
    assert host.send(damaged.hex()) == "CC 00 00 00"
    assert host.signed(0x31) == 1000
    assert host.read(0x20) & 0x40, "CEL"


def test_last_reply_is_repeated_without_executing_again(host):
    body = bytes((0x08, 0, 0, 0))
    again = bytes((body[0] | bip4(body) << 4, 0, 0, 0)).hex()
    host.frame(0x01)
    first = host.send("B0 0B 00 00")
    assert host.send(again) == first
    assert host.send(again) == first
    assert host.send("B0 0B 00 00") == "04 0B 20 49"
    host.frame(0x31)
    assert host.read(0x13) == 1000, "LstResp"


def test_half_a_frame_is_forgotten_after_a_silence(host):
    host.peer.receive(b"\x61\x31")
    assert host.peer.transmit() == b""
    host.clock.sleep(0.2)
    assert host.send("00 00 00 00") == "54 00 00 10"
    host.peer.receive(b"\x00\x00")
    host.clock.sleep(0.05)
    assert host.send("00 00") == "54 00 00 10"


# -- frequency


def test_frequency_is_first_plus_channels_times_grid(host):
    """193.4123 THz and nine steps of 50 GHz and 1 MHz: 193.862309 THz."""
    for code, data in ((0x35, 193), (0x36, 4123), (0x67, 0), (0x34, 500), (0x66, 1), (0x30, 10), (0x65, 0)):
        assert host.write(code, data) == "ok"
    assert [host.read(code) for code in (0x40, 0x41, 0x68)] == [193, 8623, 9]
    assert host.module.frequency_mhz == 193_862_309
    host.write(0x34, -500)
    host.write(0x66, 0)
    host.write(0x30, 3)
    assert host.module.frequency_mhz == 193_312_300


def test_limits_can_be_read_and_are_enforced(host):
    assert [host.read(code) for code in (0x52, 0x53, 0x69, 0x54, 0x55, 0x6A)] == [191, 3000, 0, 196, 1000, 0]
    assert [host.read(code) for code in (0x56, 0x6B, 0x4F)] == [50, 0, 6000]
    assert [host.signed(code) for code in (0x50, 0x51)] == [600, 1350]
    assert [host.write(0x35, thz) for thz in (190, 197)] == ["error 3"] * 2
    assert [host.write(0x36, 10_000), host.write(0x67, 100)] == ["error 3"] * 2
    assert host.write(0x34, 49) == "error 3"
    assert host.write(0x30, 0) == "error 3"
    assert host.write(0x30, 62) == "error 3", "193.1 THz and 61 steps of 50 GHz are 196.15 THz"
    assert host.write(0x30, 61) == "ok"
    assert host.write(0x62, 6001) == "error 3"


def test_configuration_outside_the_limits_cannot_be_enabled(host):
    host.write(0x35, 191)
    host.write(0x36, 1000)
    assert host.write(0x32, 8) == "error A"
    assert host.read(0x32) == 0


def test_channel_change_is_pending_dark_and_takes_its_time(host):
    host.write(0x32, 8)
    host.settle()
    before = host.light
    assert before.power_w == pytest.approx(10e-3, rel=0.13)
    assert host.write(0x30, 2) == "pending"
    assert host.light.power_w == 0.0
    assert host.signed(0x42) == -6000
    assert host.write(0x30, 3) == "error 4"
    assert host.settle() == pytest.approx(2.0, abs=0.05)
    assert host.light.power_w == pytest.approx(before.power_w, rel=0.01)
    assert 299_792.458 / host.light.wavelength_nm - 299_792.458 / before.wavelength_nm == pytest.approx(0.05, abs=1e-6)


def test_fine_tuning_moves_the_light_without_turning_it_dark(host):
    host.write(0x32, 8)
    host.settle()
    before = host.light
    assert host.write(0x62, -3000) == "pending"
    assert host.light.power_w > 0
    assert host.settle() == pytest.approx(0.5, abs=0.05)
    assert 299_792_458 / host.light.wavelength_nm - 299_792_458 / before.wavelength_nm == pytest.approx(-3.0, abs=1e-3)
    assert host.signed(0x62) == -3000
    assert [host.read(code) for code in (0x40, 0x41, 0x68)] == [193, 970, 0]


def test_settings_with_the_output_off_are_never_pending(host):
    assert [host.write(code, data) for code, data in ((0x30, 5), (0x31, 700), (0x62, 100))] == ["ok"] * 3
    assert host.light.power_w == 0.0


def test_light_is_reproducible_but_not_exact():
    """Each laser has its own error, and the same laser always has the same error."""
    offsets = []
    for seed in (1, 1, 2, 3):
        host = Host(seed=seed)
        host.write(0x32, 8)
        host.settle()
        offsets.append(299_792_458 / host.light.wavelength_nm - 193_100)
    assert offsets[0] == offsets[1]
    assert len({round(offset, 6) for offset in offsets}) == 3
    assert all(1e-4 < abs(offset) <= 1.0 for offset in offsets)


# -- power, status


def test_power_settles_in_seconds_and_the_warning_is_latched(host):
    host.write(0x31, 800)
    host.write(0x32, 8)
    host.settle()
    host.write(0x20, 0xFF)
    host.write(0x21, 0xFF)
    assert host.read(0x21) & 0x0F0F == 0
    assert host.write(0x31, 1300) == "pending"
    assert host.read(0x20) & 0x0101 == 0x0101, "5 dB off, more than FPowTh"
    assert host.read(0x21) & 0x0101 == 0x0101
    assert host.settle() == pytest.approx(2.0, abs=0.05)
    host.clock.sleep(3.0)
    assert host.signed(0x42) == pytest.approx(1300, abs=2)
    assert host.read(0x21) & 0x0101 == 0x0001, "over, but latched"
    host.write(0x21, 0x00FF)
    assert host.read(0x21) & 0x0101 == 0


def test_alarm_during_tuning_is_a_choice(host):
    host.write(0x32, 8)
    host.settle()
    for wanted in (0x02, 0x00):
        assert host.write(0x33, wanted) == "ok"
        host.write(0x20, 0xFF)
        host.write(0x21, 0xFF)
        host.write(0x30, 2 if wanted else 3)
        assert bool(host.read(0x20) & 0x0400) == bool(wanted)
        assert bool(host.read(0x20) & 0x4000) == bool(wanted), "ALM"
        host.settle()
    assert host.write(0x33, 0x01) == "error 3"


def test_shutdown_on_fatal(host):
    host.write(0x32, 8)
    host.settle()
    host.write(0x20, 0xFF)
    host.write(0x21, 0xFF)
    host.write(0x33, 0x04)
    host.write(0x31, 600)
    assert host.read(0x20) & 0x2000
    assert host.read(0x32) == 0
    assert host.light.power_w == 0.0


def test_disable_pin_switches_off_and_is_shown(host):
    host.write(0x32, 8)
    host.settle()
    host.module.pull_disable_pin(True)
    assert host.read(0x32) == 0
    assert host.read(0x20) & 0x9000 == 0x9000, "DIS, SRQ"
    assert host.write(0x32, 8) == "error 8"
    host.module.pull_disable_pin(False)
    assert host.write(0x32, 8) == "pending"


def test_switching_off_is_immediate_even_while_tuning(host):
    host.write(0x32, 8)
    assert host.write(0x32, 0) == "ok"
    assert host.read(0x00) >> 8 == 0
    assert host.read(0x32) == 0
    assert host.signed(0x42) == -6000


def test_execution_error_is_latched(host):
    assert host.read(0x20) & 0x80 == 0
    host.frame(0x7F)
    assert host.read(0x20) & 0x80
    assert host.write(0x20, 0x80) == "ok"
    assert host.read(0x20) & 0x80 == 0
    assert host.read(0x21) & 0x80, "each register is cleared by itself"


def test_registers_that_keep_a_value_have_limits(host):
    assert [host.read(code) for code in (0x28, 0x29, 0x2A, 0x33)] == [0x1FBF, 0x000F, 0x0D0D, 0x0002]
    assert host.write(0x22, 300) == "ok"
    assert host.read(0x22) == 300
    assert host.write(0x22, 5000) == "error 3"
    assert host.write(0x5D, -1000) == "ok"
    assert host.signed(0x5D) == -1000
    assert host.write(0x5D, -5000) == "error 3"


# -- life cycle


def test_cold_module_starts_up_before_it_takes_commands():
    host = Host(warm=False)
    assert host.read(0x00) & 0x10 == 0
    assert host.frame(0x31) == (1, 0)
    assert host.read(0x00) & 0xF == 5, "initialising"
    host.clock.sleep(2.0)
    assert host.read(0x00) & 0x10
    assert host.read(0x20) & 0x20, "MRL"


def test_module_reset_answers_first_and_returns_to_the_stored_settings(host):
    host.write(0x31, 800)
    assert host.write(0x08, 0x8000) == "pending"
    host.settle()
    host.write(0x31, 900)
    host.write(0x32, 8)
    assert host.write(0x32, 1) == "ok"
    assert host.read(0x00) & 0x10 == 0
    host.clock.sleep(2.0)
    assert (host.signed(0x31), host.read(0x32)) == (800, 0)
    assert host.light.power_w == 0.0


def test_soft_reset_leaves_the_light_alone(host):
    host.write(0x32, 8)
    host.settle()
    host.frame(0x01)
    assert host.write(0x32, 2 | 8) == "ok"
    assert host.light.power_w > 0
    assert host.read(0x20) & 0x10, "CRL"
    assert host.frame(0x0B)[0] == 1


def test_module_that_is_off_refuses_connections(host):
    host.module.power_off()
    with pytest.raises(ConnectError):
        host.module.connect()


def test_power_cycle_forgets_what_was_not_stored(host):
    host.write(0x31, 800)
    host.module.power_cycle()
    host.clock.sleep(2.0)
    assert host.signed(0x31) == 1000


def test_module_of_the_older_agreement_has_no_third_words():
    host = Host(profile=ItlaProfile(msa="01.2"))
    for code in range(0x63, 0x6C):
        assert host.frame(code)[0] == 1
        assert host.read(0x00) & 0xF == 1
    assert host.read(0x35) == 193


def test_low_noise_mode_is_one_vendors():
    assert Host().write(0x90, 2) == "error 1"
    assert Host().frame(0x90)[0] == 1
    host = Host(profile=ItlaProfile(low_noise=True))
    assert host.write(0x90, 2) == "ok"
    assert host.read(0x90) == 2
    assert host.write(0x90, 3) == "error 3"


def test_frames_take_the_time_of_the_line_and_the_host_may_make_it_faster():
    host = Host(paced=True)
    start = host.clock.now()
    host.send("00 00 00 00")
    assert host.clock.now() - start == pytest.approx(2 * FRAME_S + 0.5e-3, rel=0.02)
    assert host.read(0x0D) == 0x40
    assert host.write(0x0D, 0x04) == "ok"
    assert host.read(0x0D) == 0x44
    start = host.clock.now()
    host.send("00 00 00 00")
    assert host.clock.now() - start < 2 * FRAME_S / 5
    assert host.write(0x0D, 0x05) == "error 3"


def test_temperatures_and_currents_are_lists(host):
    status, length = host.frame(0x58)
    assert (status, length) == (2, 4)
    assert [host.read(0x0B), host.read(0x0B)] == [4500, 3500]
    assert host.read(0x43) == 3500
    host.frame(0x57)
    assert [host.read(0x0B), host.read(0x0B)] == [1500, 0]


@pytest.mark.parametrize("seed", range(3))
def test_noise_on_the_line_leaves_it_alive(seed):
    rng = np.random.default_rng(seed)
    host = Host()
    for _ in range(2000):
        host.peer.receive(rng.bytes(int(rng.integers(1, 9))))
        assert len(host.peer.transmit()) % 4 == 0
        if rng.random() < 0.05:
            host.clock.sleep(0.3)
            host.peer.transmit()
            assert host.frame(0x00)[0] == 0
    host.clock.sleep(30.0)
    host.peer.transmit()
    host.write(0x32, 0)
    assert host.read(0x32) == 0
