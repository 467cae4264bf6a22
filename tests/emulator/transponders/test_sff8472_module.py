"""The emulated SFP+ module: identity, start-up, soft control, monitors, flags and faults (SFF-8472, SFF-8431)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.transponders.sfp import SfpModule, SfpProfile
from lumion_hw.emulator.transponders.sfp_image import THRESHOLDS, diagnostics_image, identity_image
from lumion_hw.standards.registers import checksum_matches
from lumion_hw.standards.sff8472.registers import CHECKSUMS

TX_ON_W = 1e-3 * 10 ** (1.0 / 10)  # +1.0 dBm, the default launch power


class Rig:
    """A module on a bench: a clock, the sent and the received light, and raw I2C."""

    def __init__(self, seed: int = 1, *, warm: bool = True, profile: SfpProfile | None = None) -> None:
        self.clock = VirtualClock(100.0)
        self.emitted: list[tuple[float, float]] = []
        self.received_w = 1e-4
        self.module = SfpModule(
            "sfp",
            self.clock,
            np.random.default_rng(seed),
            emit_w=lambda power_w: self.emitted.append((self.clock.now(), power_w)),
            rx_power_w=lambda: self.received_w,
            vendor="LUMION EMU",
            part_number="EMU-10G-ER",
            serial="EMU0000001",
            profile=profile,
            warm=warm,
        )

    def write(self, address: int, *data: int) -> bool:
        now = self.clock.now()
        good = self.module.i2c_start(address, False, now) and all(self.module.i2c_write(value) for value in data)
        self.module.i2c_stop(now)
        return good

    def read(self, address: int, offset: int, length: int) -> bytes:
        now = self.clock.now()
        assert self.module.i2c_start(address, False, now)
        assert self.module.i2c_write(offset)
        assert self.module.i2c_start(address, True, now)
        data = bytes(self.module.i2c_read() for _ in range(length))
        self.module.i2c_stop(now)
        return data

    def word(self, offset: int) -> int:
        return int.from_bytes(self.read(0x51, offset, 2), "big")

    def status(self) -> int:
        return self.read(0x51, 110, 1)[0]

    def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)
        self.module.advance()


def dbm(raw: int) -> float:
    return 10 * math.log10(raw * 1e-4)


def test_the_worked_identity_has_the_worked_checksums() -> None:
    identity = Rig().read(0x50, 0, 256)
    assert (identity[63], identity[95]) == (0xC2, 0xE2)
    assert identity[0:4] == bytes((0x03, 0x04, 0x07, 0x80))
    assert identity[20:36] == b"LUMION EMU      "
    assert identity[40:60] == b"EMU-10G-ER      A0  "
    assert identity[60:62] == bytes((0x06, 0x0E))
    assert identity[68:92] == b"EMU0000001      260101  "
    assert identity[92:95] == bytes((0x68, 0xF0, 0x08))


def test_the_diagnostics_carry_the_worked_thresholds_and_checksum() -> None:
    memory = Rig().read(0x51, 0, 96)
    assert memory[:40].hex() == ("4b00f6004600fb008dcc7404875a7a76fde82710ea603a987b8706a2621f0d3c271000641f070107")
    assert memory[95] == 0x5C
    assert memory[68:72].hex() == "3f800000"


def test_every_checksum_holds_for_any_other_identity() -> None:
    memories = {0x50: bytes(identity_image("ACME", "X1", "S-77")), 0x51: bytes(diagnostics_image(THRESHOLDS))}
    assert all(checksum_matches(item, memories[item.space]) for item in CHECKSUMS.values())


def test_a_serial_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="serial_number"):
        identity_image("ACME", "X1", "S" * 17)


def test_each_instance_has_memories_and_monitor_errors_of_its_own() -> None:
    one, two = Rig(1), Rig(2)
    assert one.write(0x51, 128, 7)
    two.sleep(0.1)
    assert two.read(0x51, 128, 1) == b"\x00"
    assert one.module.tx_offset_db != two.module.tx_offset_db
    assert all(abs(rig.module.rx_offset_db) <= 1.0 for rig in (one, two))


def test_a_cold_module_wakes_in_three_steps_bus_data_light() -> None:
    rig = Rig(warm=False)
    assert rig.module.next_event() == pytest.approx(100.3)
    assert not rig.write(0x50, 0)
    rig.sleep(0.31)
    assert rig.status() & 0x01, "Data_Ready_Bar is set until the monitors are valid"
    assert rig.word(104) == 0
    rig.sleep(0.7)
    assert not rig.status() & 0x01
    assert rig.word(104) > 0
    assert rig.emitted == []
    assert rig.module.next_event() == pytest.approx(102.0)
    rig.sleep(1.0)
    assert rig.emitted == [(pytest.approx(102.01), pytest.approx(TX_ON_W))]


def test_a_warm_module_launches_at_once_and_the_launch_power_is_an_option() -> None:
    rig = Rig(profile=SfpProfile(launch_dbm=-3.0))
    assert rig.emitted == [(100.0, pytest.approx(0.501187e-3, rel=1e-5))]
    assert rig.module.next_event() is None


def test_monitors_show_the_default_levels_within_their_accuracy() -> None:
    rig = Rig()
    temperature, supply, bias, tx, rx = (rig.word(offset) for offset in (96, 98, 100, 102, 104))
    assert temperature / 256 == pytest.approx(45.0, abs=0.3)
    assert supply * 100e-6 == pytest.approx(3.30, abs=0.01)
    assert bias * 2e-3 == pytest.approx(85.0, abs=0.5)
    assert dbm(tx) == pytest.approx(1.0 + rig.module.tx_offset_db, abs=0.3)
    assert dbm(rx) == pytest.approx(-10.0 + rig.module.rx_offset_db, abs=0.3)


def test_power_monitor_noise_is_0_05_db_rms() -> None:
    rig = Rig()
    readings = []
    for _ in range(400):
        readings.append(dbm(rig.word(104)))
        rig.sleep(0.06)
    assert np.std(readings) == pytest.approx(0.05, rel=0.15)


def test_monitors_refresh_at_their_period_and_not_with_every_read() -> None:
    rig = Rig()
    first = rig.word(104)
    rig.sleep(0.01)
    assert rig.word(104) == first
    rig.received_w *= 2
    rig.sleep(0.05)
    assert rig.word(104) > 1.5 * first


def test_the_rx_monitor_saturates_at_both_ends_of_its_field() -> None:
    rig = Rig()
    rig.received_w = 20e-3
    assert rig.word(104) == 0xFFFF
    rig.received_w = 1e-9
    rig.sleep(0.1)
    assert rig.word(104) == 0x0000


def test_soft_tx_disable_makes_it_dark_within_100_ms_and_back() -> None:
    rig = Rig()
    assert rig.write(0x51, 110, 0x40)
    rig.sleep(0.05)
    assert len(rig.emitted) == 1
    assert rig.module.next_event() is not None
    rig.sleep(0.05)
    assert rig.emitted[-1] == (pytest.approx(100.1), 0.0)
    assert rig.status() & 0xC0 == 0x40, "bit 7 is the pin, not the soft bit"
    rig.sleep(0.06)
    assert (rig.word(102), rig.word(100)) == (0, 0)
    rig.write(0x51, 110, 0x00)
    rig.sleep(0.1)
    assert rig.emitted[-1][1] == pytest.approx(TX_ON_W)


def test_the_tx_disable_pin_acts_fast_and_shows_in_bit_7() -> None:
    rig = Rig()
    rig.module.set_tx_disable_pin(True)
    rig.sleep(100e-6)
    assert rig.module.launched_w == 0.0
    assert rig.status() & 0xC0 == 0x80
    rig.module.set_tx_disable_pin(False)
    rig.sleep(2e-3)
    assert rig.module.launched_w == pytest.approx(TX_ON_W)


def test_only_writable_bits_change() -> None:
    rig = Rig()
    before = rig.read(0x51, 0, 96)
    assert rig.write(0x51, 0, *range(8))
    rig.sleep(0.1)
    assert rig.read(0x51, 0, 96) == before
    assert rig.write(0x51, 110, 0xBF)
    rig.sleep(0.1)
    assert rig.status() & 0xF8 == 0
    assert rig.write(0x51, 123, 1, 2, 3, 4)
    rig.sleep(0.1)
    assert rig.read(0x51, 123, 4) == bytes(4)


def test_the_identity_is_read_only() -> None:
    rig = Rig()
    assert rig.write(0x50, 24, *b"HACKED")
    assert rig.read(0x50, 24, 6) == b"ON EMU"


@pytest.mark.parametrize(("count", "busy_s"), [(1, 0.040), (4, 0.040), (5, 0.080), (8, 0.080)])
def test_a_write_takes_its_time_and_the_module_does_not_answer_meanwhile(count: int, busy_s: float) -> None:
    rig = Rig()
    assert rig.write(0x51, 128, *range(1, count + 1))
    rig.sleep(busy_s - 0.001)
    assert not rig.write(0x51, 0)
    assert not rig.write(0x50, 0)
    rig.sleep(0.002)
    assert rig.read(0x51, 128, count) == bytes(range(1, count + 1))


@pytest.mark.parametrize(("offset", "count"), [(128, 9), (134, 3), (255, 2)])
def test_a_write_that_leaves_its_row_is_not_acknowledged_and_changes_nothing(offset: int, count: int) -> None:
    rig = Rig()
    before = rig.read(0x51, 128, 128)
    assert not rig.write(0x51, offset, *[0xA5] * count)
    assert rig.read(0x51, 128, 128) == before


def test_reading_rolls_over_and_continues_at_the_current_address() -> None:
    rig = Rig()
    identity = rig.read(0x50, 0, 256)
    assert rig.read(0x50, 254, 4) == identity[254:] + identity[:2]
    assert rig.module.i2c_start(0x50, True, rig.clock.now())
    assert rig.module.i2c_read() == identity[2]


def test_other_addresses_are_not_acknowledged() -> None:
    rig = Rig()
    assert not any(
        rig.module.i2c_start(address, False, 100.0) for address in range(0x80) if address not in (0x50, 0x51)
    )
    assert rig.module.i2c_read() == 0xFF
    assert not rig.module.i2c_write(0)


def test_los_has_hysteresis_on_the_optical_power() -> None:
    rig = Rig()
    assert not rig.status() & 0x02
    seen = []
    for level_dbm in (-20.5, -21.5, -20.5, -19.7, -19.3, -20.5):
        rig.received_w = 1e-3 * 10 ** (level_dbm / 10)
        rig.sleep(1.0)
        seen.append(bool(rig.status() & 0x02))
    # -20.5 dBm after full light gives no LOS; later LOS stays until the light exceeds -19.5 dBm.
    assert seen == [False, True, True, True, False, False]


def test_the_los_bit_may_lag_but_never_longer_than_100_ms() -> None:
    rig = Rig()
    assert not rig.status() & 0x02
    rig.received_w = 0.0
    shown = []
    for _ in range(10):
        rig.sleep(0.01)
        shown.append(bool(rig.status() & 0x02))
    assert shown[0] is False
    assert shown[-1] is True


def test_a_short_dip_of_the_light_is_not_shown_late() -> None:
    rig = Rig()
    rig.status()
    for level_w in (0.0, 1e-4, 1e-4, 1e-4, 1e-4, 1e-4, 1e-4, 1e-4):
        rig.received_w = level_w
        rig.sleep(0.02)
        assert not rig.status() & 0x02


def test_a_laser_fault_latches_until_tx_disable_is_toggled() -> None:
    rig = Rig()
    rig.module.break_laser()
    assert rig.emitted[-1] == (100.0, 0.0)
    rig.sleep(0.05)
    assert not rig.status() & 0x04, "the soft status bit follows within 100 ms, not at once"
    rig.sleep(0.05)
    assert rig.status() & 0x04
    rig.sleep(10.0)
    assert rig.module.launched_w == 0.0
    rig.write(0x51, 110, 0x40)
    rig.sleep(0.2)
    rig.write(0x51, 110, 0x00)
    rig.sleep(0.1)
    assert rig.module.launched_w == 0.0, "300 ms of re-initialisation after TX_DISABLE ends"
    rig.sleep(0.3)
    assert rig.module.launched_w == pytest.approx(TX_ON_W)
    assert not rig.status() & 0x04


def test_a_laser_that_stays_broken_faults_again() -> None:
    rig = Rig()
    rig.module.break_laser(persistent=True)
    for _ in range(2):
        rig.write(0x51, 110, 0x40)
        rig.sleep(0.2)
        rig.write(0x51, 110, 0x00)
        rig.sleep(1.0)
        assert rig.module.launched_w == 0.0
        assert rig.status() & 0x04
        rig.module.repair_laser()
        rig.module.break_laser(persistent=True)
    rig.module.repair_laser()
    rig.write(0x51, 110, 0x40)
    rig.sleep(0.2)
    rig.write(0x51, 110, 0x00)
    rig.sleep(1.0)
    assert rig.module.launched_w == pytest.approx(TX_ON_W)


def test_flags_follow_the_monitors_when_they_are_not_latched() -> None:
    rig = Rig()
    assert rig.word(112) == 0
    rig.received_w = 3e-3  # +4.8 dBm, above the +0 dBm alarm and the -1 dBm warning for any offset
    rig.sleep(0.1)
    assert rig.word(112) == 0x0080
    assert rig.word(116) == 0x0080
    rig.received_w = 1e-6  # -30 dBm, below -20 and -15.8 dBm
    rig.sleep(0.1)
    assert (rig.word(112), rig.word(116)) == (0x0040, 0x0040)
    rig.received_w = 1e-4
    rig.sleep(0.1)
    assert (rig.word(112), rig.word(116)) == (0, 0)


def test_a_dark_transmitter_raises_the_low_flags_of_bias_and_tx_power() -> None:
    rig = Rig()
    rig.write(0x51, 110, 0x40)
    rig.sleep(0.2)
    assert rig.word(112) == 0x0500
    assert rig.word(116) == 0x0500


def test_latched_flags_stay_until_they_are_read() -> None:
    rig = Rig(profile=SfpProfile(latched_flags=True))
    rig.received_w = 3e-3
    rig.read(0x51, 110, 1)
    rig.received_w = 1e-4
    rig.sleep(0.1)
    assert rig.word(112) == 0x0080
    rig.sleep(0.1)
    assert rig.word(112) == 0x0000


def test_power_level_2_is_confirmed_after_300_ms() -> None:
    rig = Rig()
    rig.write(0x51, 118, 0x01)
    rig.sleep(0.2)
    assert rig.read(0x51, 118, 1) == b"\x01"
    rig.sleep(0.2)
    assert rig.read(0x51, 118, 1) == b"\x03"


def test_a_dead_host_means_dark_at_once_and_no_answer() -> None:
    rig = Rig()
    rig.write(0x51, 128, 0x5A)
    rig.sleep(0.1)
    rig.write(0x51, 110, 0x40)
    rig.module.power_off()
    assert rig.module.launched_w == 0.0
    assert not any(rig.write(address, 0) for address in (0x50, 0x51))
    assert rig.module.next_event() is None
    rig.sleep(5.0)
    rig.module.break_laser()
    rig.module.power_on()
    assert not rig.write(0x50, 0), "the start-up times run again"
    rig.sleep(0.31)
    assert rig.read(0x51, 128, 1) == b"\x5a", "user EEPROM is kept"
    assert rig.status() & 0x44 == 0, "soft control and faults are not"
    rig.sleep(1.7)
    assert rig.module.launched_w == pytest.approx(TX_ON_W)


def test_power_lost_during_a_write_loses_the_write() -> None:
    rig = Rig()
    assert rig.module.i2c_start(0x51, False, 100.0)
    assert all(rig.module.i2c_write(value) for value in (128, 1, 2))
    rig.module.power_off()
    rig.module.i2c_stop(100.0)
    rig.module.power_on()
    rig.sleep(1.0)
    assert rig.read(0x51, 128, 2) == bytes(2)


def test_the_same_seed_gives_the_same_module() -> None:
    one, two = Rig(5), Rig(5)
    assert [one.word(offset) for offset in range(96, 106, 2)] == [two.word(offset) for offset in range(96, 106, 2)]
