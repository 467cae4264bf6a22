"""Tunable lasers: frequencies, flags, times, power."""

from __future__ import annotations

import struct

import pytest

from tests.emulator.transponders.cmis_testbench import Host, lit, ready

COMPLETE, UNLOCKED, CHANNEL, REFUSED, FINE, POWER = (1 << bit for bit in range(6))
GRID_75, GRID_100, GRID_6_25, GRID_50 = 0x70, 0x50, 0x10, 0x40
TUNING_S = 5.0


def frequency_mhz(host: Host) -> int:
    return host.raw("current_frequency", 1)


def flags(host: Host) -> int:
    return host.read(0x12, 231)[0]


def channel(host: Host, number: int) -> None:
    host.write(0x12, 136, *struct.pack(">h", number))


def fine(host: Host, offset_mhz: int) -> None:
    host.write(0x12, 152, *struct.pack(">h", offset_mhz))


def live(host: Host) -> int:
    return host.read(0x12, 222)[0]


@pytest.mark.parametrize(
    ("grid", "number", "mhz"),
    [
        (GRID_75, 3, 193_175_000),
        (GRID_75, -69, 191_375_000),
        (GRID_75, 120, 196_100_000),
        (GRID_100, -17, 191_400_000),
        (GRID_100, 30, 196_100_000),
        (GRID_6_25, 108, 193_775_000),
        (GRID_6_25, -276, 191_375_000),
    ],
)
def test_grid_and_channel_make_the_frequency_of_the_table(grid: int, number: int, mhz: int) -> None:
    host = ready()
    host.write(0x12, 128, grid)
    channel(host, number)
    host.wait(TUNING_S + 0.01)
    assert frequency_mhz(host) == mhz
    assert host.module.light(1).frequency_mhz == pytest.approx(mhz, abs=300)


def test_tuning_shows_its_progress_and_takes_its_time() -> None:
    host = ready()
    flags(host)
    channel(host, 3)
    assert live(host) == 0b11
    host.wait(TUNING_S - 0.01)
    assert (live(host), frequency_mhz(host)) == (0b11, 193_100_000)
    host.wait(0.02)
    assert (live(host), frequency_mhz(host)) == (0b00, 193_175_000)
    assert flags(host) == COMPLETE | UNLOCKED
    assert flags(host) == 0


def test_a_new_grid_with_the_old_channel_may_be_invalid_for_a_moment() -> None:
    """The default 75 GHz channel 0 is legal everywhere; 120 is not on the 100 GHz grid."""
    host = ready()
    channel(host, 120)
    host.wait(TUNING_S + 0.1)
    flags(host)
    host.write(0x12, 128, GRID_100)
    assert flags(host) == CHANNEL
    channel(host, 5)
    host.wait(TUNING_S + 0.1)
    assert flags(host) & (CHANNEL | COMPLETE) == COMPLETE
    assert frequency_mhz(host) == 193_600_000


@pytest.mark.parametrize(
    ("grid", "number"),
    [
        pytest.param(GRID_75, 1, id="off the raster of 75 GHz"),
        pytest.param(GRID_75, 123, id="above the range"),
        pytest.param(GRID_100, 31, id="above the range of 100 GHz"),
        pytest.param(GRID_100, -18, id="below the range of 100 GHz"),
        pytest.param(GRID_50, 0, id="a grid that is not offered"),
        pytest.param(0x80, 0, id="150 GHz is not offered"),
        pytest.param(0xF0, 0, id="a grid that does not exist"),
    ],
)
def test_an_invalid_channel_is_flagged_and_changes_nothing(grid: int, number: int) -> None:
    host = ready()
    host.write(0x12, 128, grid)
    flags(host)
    channel(host, number)
    assert flags(host) == CHANNEL
    host.wait(10)
    assert (frequency_mhz(host), live(host)) == (193_100_000, 0)
    assert host.raw("channel", 1) == number  # configured and current differ


def test_a_400zr_does_not_tune_while_its_path_is_active() -> None:
    host = lit()
    flags(host)
    channel(host, 3)
    assert flags(host) == REFUSED
    host.wait(10)
    assert frequency_mhz(host) == 193_100_000
    assert host.module.light(1).enabled


def test_a_zr_plus_tunes_in_service_with_its_light_off_meanwhile() -> None:
    host = lit("zr-plus-high-power")
    channel(host, 3)
    assert not host.module.light(1).enabled
    assert host.lanes("tx_output_valid") == 0
    host.wait(8.1)
    assert host.module.light(1).enabled
    assert frequency_mhz(host) == 193_175_000


def test_a_400zr_tunes_again_in_initialized() -> None:
    host = lit()
    host.write(0x10, 130, 0x01)
    host.wait(0.01)
    channel(host, 3)
    assert live(host) == 0b11


def test_the_last_of_several_requests_wins() -> None:
    host = ready()
    flags(host)
    channel(host, 3)
    host.wait(4)
    channel(host, 6)
    host.wait(4)
    assert live(host) == 0b11
    host.wait(1.01)
    assert (live(host), frequency_mhz(host)) == (0, 193_250_000)


def test_asking_for_the_present_channel_completes_at_once() -> None:
    host = ready()
    flags(host)
    channel(host, 0)
    assert (flags(host), live(host)) == (COMPLETE, 0)


def test_fine_tuning_moves_the_carrier_without_darkness() -> None:
    host = lit()
    flags(host)
    host.write(0x12, 128, GRID_75 | 1)
    fine(host, -1500)
    assert live(host) == 0b10
    host.wait(0.25)
    assert (live(host), frequency_mhz(host)) == (0, 193_098_500)
    assert host.module.light(1).enabled
    assert flags(host) & COMPLETE
    host.write(0x12, 128, GRID_75)
    host.wait(0.25)
    assert frequency_mhz(host) == 193_100_000


@pytest.mark.parametrize("offset", [6001, 6100, -6100, 150, -32768])
def test_a_fine_offset_out_of_range_or_off_the_resolution_is_flagged(offset: int) -> None:
    """The 400zr profile: -6000 to 6000 MHz in steps of 100 MHz."""
    host = ready()
    host.write(0x12, 128, GRID_75 | 1)
    flags(host)
    fine(host, offset)
    host.wait(1)
    assert flags(host) == FINE
    assert frequency_mhz(host) == 193_100_000


def test_target_power_is_followed_inside_its_limits() -> None:
    host = lit()
    host.write(0x12, 200, *struct.pack(">h", -500))
    assert host.module.light(1).power_dbm == pytest.approx(-5.0, abs=0.11)
    assert host.raw("target_output_power", 1) == -500


@pytest.mark.parametrize("centi_dbm", [1, -2201, 32767, -32768])
def test_target_power_out_of_limits_is_flagged_and_the_old_one_stays(centi_dbm: int) -> None:
    host = lit()
    before = host.module.light(1).power_dbm
    flags(host)
    host.write(0x12, 200, *struct.pack(">h", centi_dbm))
    assert flags(host) == POWER
    assert host.module.light(1).power_dbm == before
    assert host.raw("target_output_power", 1) == centi_dbm


def test_what_was_written_in_low_power_is_made_when_the_module_is_ready() -> None:
    host = Host()
    host.wait(0.6)
    channel(host, 3)
    assert frequency_mhz(host) == 193_100_000
    assert live(host) == 0b01
    host.power_up()
    assert frequency_mhz(host) == 193_175_000
    assert flags(host) & COMPLETE


def test_an_unlocked_laser_is_dark_and_says_so() -> None:
    host = lit()
    flags(host)
    host.module.faults.inject("wavelength_unlocked")
    assert live(host) == 0b01
    assert flags(host) == flags(host) == UNLOCKED
    assert not host.module.light(1).enabled
    host.module.faults.clear("wavelength_unlocked")
    assert host.module.light(1).enabled


def test_tuning_can_be_stuck() -> None:
    host = ready()
    host.module.faults.inject("stuck_tuning")
    channel(host, 3)
    host.wait(200)
    assert live(host) == 0b11


def test_the_summary_and_the_interrupt_follow_the_flags() -> None:
    host = ready()
    host.write(0x12, 239, 0x3F)
    for page, byte, length in ((None, 8, 6), (0x11, 134, 20), (0x2C, 128, 128)):
        host.read(page, byte, length)
    host.write(0x11, 128, 0)
    host.write(0x2D, 128, *[0xFF] * 8)
    flags(host)
    assert host.read(0x12, 230) == b"\x00"
    assert host.read(None, 4)[0] & 0b10 == 0
    channel(host, 1)
    assert host.read(0x12, 230) == b"\x01"
    assert host.read(None, 4)[0] & 0b10
    assert host.module.interrupt is False  # masked
    assert host.read(None, 3)[0] & 1 == 1
    host.write(0x12, 239, 0x3F & ~CHANNEL)
    assert host.module.interrupt is True
    assert host.read(None, 3)[0] & 1 == 0
    flags(host)
    assert host.module.interrupt is False


def test_lanes_that_do_not_exist_do_not_tune() -> None:
    host = ready()
    flags(host)
    host.write(0x12, 138, 0x00, 0x03)
    assert host.read(0x12, 223) == b"\x00"
    assert host.read(0x12, 232) == b"\x00"
    assert host.raw("current_frequency", 2) == 0
