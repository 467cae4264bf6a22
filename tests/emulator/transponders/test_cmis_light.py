"""From light to lock: the model of docs/sources.md, and its effect on the module's registers."""

from __future__ import annotations

import dataclasses
import math

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.transponders.cmis import PROFILES, CmisModule, Fibre, ReceivedLight, join
from lumion_hw.emulator.transponders.cmis.reception import (
    bit_error_ratio,
    esnr_db,
    frame_error_ratio,
    penalty_db,
    receive,
)
from tests.emulator.transponders.cmis_testbench import GOOD_LIGHT, Host, lit, ready

ZR = PROFILES["400zr"].receiver
CFEC = ZR.formats[0x3E]
KP4 = PROFILES["400g-dr4"].receiver.formats[0x1C]


def light(power_dbm: float = -8.0, **options) -> ReceivedLight:
    return dataclasses.replace(GOOD_LIGHT, total_power_dbm=power_dbm, signal_power_dbm=power_dbm, **options)


# The model ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("osnr_db", "power_dbm", "snr_db", "ber"),
    [(36, -8, 16.46, 1.10e-3), (34, -20, 13.49, 1.30e-2), (26, -12, 14.48, 6.7e-3), (26, -20, 12.61, 2.1e-2)],
)
def test_the_model_gives_the_vectors_of_the_facts(osnr_db: float, power_dbm: float, snr_db: float, ber: float) -> None:
    got = receive(light(power_dbm, osnr_db=osnr_db), ZR, 0x3E, 193_100_000)
    assert got.esnr_db == pytest.approx(snr_db, abs=0.01)
    assert got.ber == pytest.approx(ber, rel=0.02)


@pytest.mark.parametrize(("snr_db", "ber"), [(13.5, 1.29e-2), (15.0, 4.47e-3), (17.0, 5.80e-4)])
def test_the_error_ratio_of_16qam(snr_db: float, ber: float) -> None:
    assert bit_error_ratio(snr_db, CFEC) == pytest.approx(ber, rel=0.01)


def test_the_error_ratio_of_qpsk_is_that_of_the_q_function() -> None:
    """Es/N0 = 9.8 dB is Q = 9.8 dB per quadrature: BER 1e-3."""
    qpsk = dataclasses.replace(CFEC, bits_per_symbol=4)
    assert bit_error_ratio(9.80, qpsk) == pytest.approx(1e-3, rel=0.02)


@pytest.mark.parametrize(
    ("impairment", "penalty"),
    [
        ({"pdl_db": 2.5}, 0.8),
        ({"dgd_ps": 10.0}, 0.5),
        ({"sop_rate_krad_per_s": 50.0}, 0.3),
        ({"pdl_db": 1.25}, 0.2),
        ({"dgd_ps": 5.0, "pdl_db": 2.5}, 0.925),
    ],
)
def test_penalties_grow_with_the_square(impairment: dict[str, float], penalty: float) -> None:
    assert penalty_db(light(**impairment)) == pytest.approx(penalty)
    clean, bad = light(), light(**impairment)
    assert esnr_db(clean, ZR, 59.84) - esnr_db(bad, ZR, 59.84) == pytest.approx(penalty)


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        ({}, ""),
        ({"pdl_db": 4.9}, ""),
        ({"pdl_db": 5.1}, "dynamics"),
        ({"dgd_ps": 20.1}, "dynamics"),
        ({"sop_rate_krad_per_s": 101.0}, "dynamics"),
        ({"frequency_mhz": 193_103_590.0}, ""),
        ({"frequency_mhz": 193_103_610.0}, "offset"),
        ({"frequency_mhz": 193_096_390.0}, "offset"),
        ({"polarization_rank": 1}, "polarization"),
        ({"cd_ps_per_nm": 2400.0}, ""),
        ({"cd_ps_per_nm": -2401.0}, "dispersion"),
        ({"media_interface": 0x46}, "format"),
        ({"osnr_db": 20.0}, "noise"),  # SNR 11.6 dB, BER 3.3e-2
    ],
)
def test_what_makes_a_receiver_lose_lock(change: dict[str, float], lost: str) -> None:
    assert receive(light(**change), ZR, 0x3E, 193_100_000.0).reason == lost


def test_darkness_has_no_error_ratio_to_speak_of() -> None:
    got = receive(ReceivedLight(), ZR, 0x3E, 193_100_000.0)
    assert (got.reason, got.ber) == ("dark", 0.5)


def test_frames_are_mended_up_to_the_limit_of_the_code() -> None:
    assert frame_error_ratio(1.0e-2, CFEC) < 1e-9
    assert frame_error_ratio(1.25e-2, CFEC) == pytest.approx(0.5)
    assert frame_error_ratio(1.6e-2, CFEC) > 0.999
    assert frame_error_ratio(0.0, CFEC) == 0.0


def test_a_dr4_lane_at_its_sensitivity_is_at_the_limit_of_kp4() -> None:
    receiver = PROFILES["400g-dr4"].receiver
    got = receive(light(-5.9), receiver, 0x1C, 0.0)
    assert got.ber == pytest.approx(2.4e-4, rel=0.03)
    assert receive(light(-5.9, polarization_rank=1, dgd_ps=99.0), receiver, 0x1C, 0.0).reason == ""


def test_light_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="not a number"):
        ReceivedLight(osnr_db=math.nan)


# The registers --------------------------------------------------------------------------------------------------------


def test_lock_comes_half_a_second_after_good_light() -> None:
    host = lit(light=ReceivedLight())
    host.read(0x11, 134, 20)
    assert host.lanes("rx_los_flag") == host.lanes("rx_lol_flag") == 1
    host.light = GOOD_LIGHT
    took = host.until(lambda: host.lanes("rx_lol_flag") == 0, 2.0)
    assert 0.5 <= took <= 0.75  # a sample period before and after
    assert host.lanes("rx_output_valid") == 0xFF
    assert host.lanes("rx_output_changed_flag") == 0xFF


def test_loss_of_signal_has_a_hysteresis() -> None:
    """docs/sources.md#figures-of-the-bench: asserted below -25 dBm, released above -23 dBm total power."""
    host = lit()

    def los(power_dbm: float) -> int:
        host.light = light(power_dbm)
        host.wait(0.2)
        host.lanes("rx_los_flag")
        return host.lanes("rx_los_flag")

    assert [los(power) for power in (-24.0, -24.9, -25.1, -24.0, -23.1, -22.9, -24.9)] == [0, 0, 1, 1, 1, 0, 0]


def test_lock_is_lost_at_once_and_the_output_with_it() -> None:
    host = lit()
    host.light = light(osnr_db=20.0)
    host.wait(0.15)
    assert host.lanes("rx_output_valid") == 0x00
    host.lanes("rx_lol_flag")
    assert (host.lanes("rx_los_flag"), host.lanes("rx_lol_flag")) == (0, 1)


@pytest.mark.parametrize(
    ("change", "bits"),
    [
        pytest.param({"polarization_rank": 1}, 0b1110_0000, id="a polarizer: frame, multi-frame and demodulator"),
        pytest.param({"cd_ps_per_nm": 5000.0}, 0b1111_0000, id="dispersion as well"),
    ],
)
def test_the_coherent_flags_say_where_lock_fails(change: dict[str, float], bits: int) -> None:
    host = lit()
    host.read(0x33, 130)
    host.light = light(**change)
    host.wait(0.2)
    assert host.read(0x33, 130) == bytes([bits])
    host.light = GOOD_LIGHT
    host.wait(1.0)
    host.read(0x33, 130)
    assert host.read(0x33, 130) == b"\x00"


def test_no_flags_of_the_receiver_before_its_data_path_is_initialised() -> None:
    host = ready()
    host.wait(1.0)
    assert host.read(0x11, 147, 6) == bytes(6)


def test_rx_output_can_be_switched_off_lane_by_lane() -> None:
    host = lit()
    host.write(0x10, 138, 0x0F)
    host.wait(0.15)
    assert host.lanes("rx_output_valid") == 0xF0


def test_lane_monitors_show_what_is_sent_and_received() -> None:
    host = lit()
    assert 10 * math.log10(host.raw("tx_power", 1) * 1e-4) == pytest.approx(-10.0, abs=0.25)
    assert 10 * math.log10(host.raw("rx_power", 1) * 1e-4) == pytest.approx(-8.0, abs=0.5)
    assert float(host.get("tx_bias", 1)) * 4 == pytest.approx(250, abs=2)
    host.light = ReceivedLight()
    host.write(0x10, 130, 0x01)
    host.wait(0.2)
    assert (host.raw("tx_power", 1), host.raw("rx_power", 1), host.raw("tx_bias", 1)) == (0, 0, 0)


def test_module_monitors_are_plausible_and_warm_up() -> None:
    host = Host()
    host.wait(0.6)
    assert float(host.get("temperature")) == pytest.approx(35, abs=1)
    assert float(host.get("supply")) == pytest.approx(3.3, abs=0.02)
    assert host.raw("aux1") == 0
    host.power_up()
    host.wait(120)
    assert float(host.get("temperature")) == pytest.approx(52, abs=1)
    assert host.raw("aux2") / 256 == pytest.approx(48, abs=1)
    assert host.raw("aux1") * 100 / 32767 == pytest.approx(22, abs=2)


@pytest.mark.parametrize(
    ("power_dbm", "flags"),
    [
        pytest.param(-8.0, [0, 0, 0, 0], id="fine"),
        pytest.param(2.0, [0, 0, 1, 0], id="above the high warning of +1"),
        pytest.param(4.0, [1, 0, 1, 0], id="above the high alarm of +3"),
        pytest.param(-21.0, [0, 0, 0, 1], id="below the low warning of -20"),
        pytest.param(-22.9, [0, 1, 0, 1], id="below the low alarm of -22"),
    ],
)
def test_receive_power_raises_alarms_and_warnings(power_dbm: float, flags: list[int]) -> None:
    host = lit()
    host.light = light(power_dbm)
    host.wait(0.2)
    host.read(0x11, 149, 4)
    assert list(host.read(0x11, 149, 4)) == flags


def test_a_hot_module_raises_its_temperature_flags() -> None:
    host = lit()
    host.module.read(9, 1)
    host.module.faults.inject("temp_high", 60.0)
    host.wait(0.2)
    assert host.module.read(9, 1) == b"\x05"  # high alarm and high warning
    host.module.faults.clear("temp_high")
    host.wait(0.2)
    host.module.read(9, 1)
    assert host.module.read(9, 1) == b"\x00"


def test_a_failed_transmitter_is_dark_and_flagged() -> None:
    host = lit()
    host.module.faults.inject("tx_failure")
    assert host.lanes("tx_failure_flag") == host.lanes("tx_failure_flag") == 1
    assert not host.module.light(1).enabled
    assert host.lanes("tx_output_valid") == 0


def test_a_lost_host_signal_squelches_the_transmitter_unless_that_is_disabled() -> None:
    host = lit()
    host.module.set_host_signal(0x00)
    assert not host.module.light(1).enabled
    assert host.lanes("tx_los_flag") == host.lanes("tx_lol_flag") == 0xFF
    host.write(0x10, 131, 0x01)
    assert host.module.light(1).enabled
    host.module.set_host_signal(0xFF)
    host.lanes("tx_los_flag")
    assert host.lanes("tx_los_flag") == 0


def test_media_output_loopback_feeds_the_receiver_its_own_light() -> None:
    host = lit(light=ReceivedLight())
    assert host.lanes("rx_output_valid") == 0
    host.write(0x13, 180, 0x01)
    host.wait(1.0)
    assert host.lanes("rx_output_valid") == 0xFF
    host.write(0x13, 181, 0xFF)  # media input loopback is not advertised
    assert host.read(0x13, 181) == b"\x00"


def test_each_lane_of_a_dr4_has_its_own_light() -> None:
    host = lit("400g-dr4", light={lane: light(0.0) for lane in (1, 2, 4)})
    host.read(0x11, 147, 2)
    assert list(host.read(0x11, 147, 2)) == [0b0100, 0b0100]
    assert host.lanes("rx_output_valid") == 0x00  # the data path needs all of its lanes
    assert host.raw("rx_power", 3) == 0


# Two modules ----------------------------------------------------------------------------------------------------------


class Pair:
    def __init__(self, there: Fibre, back: Fibre | None = None, profile: str = "400zr") -> None:
        self.clock = VirtualClock()
        self.ends = [Host(profile, clock=self.clock, seed=seed, low_power_pin=False) for seed in (1, 2)]
        self.there, self.back = join(self.ends[0].module, self.ends[1].module, there, back)

    def outputs(self) -> list[int]:
        return [host.lanes("rx_output_valid") for host in self.ends]


def test_two_modules_joined_by_fibres_lock() -> None:
    pair = Pair(Fibre(loss_db=8.0, osnr_db=40.0))
    pair.clock.sleep(35.55 + 0.75)
    assert pair.outputs() == [0xFF, 0xFF]
    assert pair.ends[0].raw("rx_power", 1) * 1e-4 == pytest.approx(10 ** (-18 / 10), rel=0.12)


def test_light_that_came_while_nobody_looked_came_when_it_came() -> None:
    pair = Pair(Fibre())
    one, other = pair.ends
    other.power_up()
    other.write(0x10, 128, 0x00)
    pair.clock.sleep(60)
    one.read(None, 0)
    other.read(0x11, 134, 20)
    one.write(0x10, 130, 0x01)
    pair.clock.sleep(10)
    one.write(0x10, 130, 0x00)
    pair.clock.sleep(0.05 + 0.35)  # turned on, and less than half a second of light
    assert other.lanes("rx_output_valid") == 0x00
    pair.clock.sleep(0.35)
    assert other.lanes("rx_output_valid") == 0xFF


def test_one_direction_can_be_bad_alone() -> None:
    pair = Pair(Fibre(polarization_rank=1), Fibre())
    pair.clock.sleep(40)
    assert pair.outputs() == [0xFF, 0x00]
    pair.there.polarization_rank = 2
    pair.clock.sleep(1)
    assert pair.outputs() == [0xFF, 0xFF]
    pair.back.cut = True
    pair.clock.sleep(0.2)
    assert pair.outputs() == [0x00, 0xFF]


def test_modules_on_different_frequencies_do_not_lock() -> None:
    pair = Pair(Fibre())
    one, other = pair.ends
    pair.clock.sleep(40)
    for host in (one, other):
        host.write(0x10, 128, 0xFF)
        host.wait(1)
    one.write(0x12, 136, 0x00, 0x03)
    for host in (one, other):
        host.write(0x10, 128, 0x00)
    pair.clock.sleep(30)
    assert pair.outputs() == [0x00, 0x00]
    assert other.raw("rx_power", 1) > 0
    other.write(0x10, 128, 0xFF)
    other.wait(1)
    other.write(0x12, 136, 0x00, 0x03)
    other.write(0x10, 128, 0x00)
    pair.clock.sleep(30)
    assert pair.outputs() == [0xFF, 0xFF]


def test_modules_of_different_line_formats_do_not_lock() -> None:
    clock = VirtualClock()
    zr = CmisModule.from_profile("400zr", clock=clock, seed=1, low_power_pin=False)
    plus = CmisModule.from_profile("zr-plus-high-power", clock=clock, seed=2, low_power_pin=False)
    join(zr, plus, Fibre(loss_db=10))
    clock.sleep(100)
    for module in (zr, plus):
        module.write(126, b"\x00\x11")
        assert module.read(132, 2) == b"\x00\x01"


def test_the_same_seeds_give_the_same_registers() -> None:
    images = []
    for _ in range(2):
        pair = Pair(Fibre(loss_db=8.0, pdl_db=1.0))
        pair.clock.sleep(50)
        images.append([host.module.image() for host in pair.ends])
    assert images[0] == images[1]
