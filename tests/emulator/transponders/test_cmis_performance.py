"""Statistics of the emulated module: VDM, freeze, pages 34h and 35h, checkers, and agreement of the pages."""

from __future__ import annotations

import dataclasses
import struct

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.transponders.cmis import Fibre, ReceivedLight, join
from lumion_hw.standards.cmis.codec import q_db, vdm_value
from lumion_hw.standards.cmis.vdm import OBSERVABLES_BY_NAME, decode_descriptor
from lumion_hw.standards.registers import f16_decode
from tests.emulator.transponders.cmis_testbench import GOOD_LIGHT, Host, lit, ready

FREEZE = 0x80


def light(**changes) -> ReceivedLight:
    return dataclasses.replace(GOOD_LIGHT, **changes)


def vdm(host: Host) -> dict[tuple[str, int], float]:
    """Return every VDM sample by observable and lane, in its unit."""
    values = {}
    for group in range(host.raw("vdm_groups") + 1):
        descriptors, samples = host.read(0x20 + group, 128, 128), host.read(0x24 + group, 128, 128)
        for place in range(0, 128, 2):
            descriptor = decode_descriptor(descriptors[place : place + 2])
            if descriptor.observable is not None:
                sample = vdm_value(descriptor.observable, samples[place : place + 2])
                values[descriptor.observable.name, descriptor.lane] = sample
    return values


def place_of(host: Host, name: str) -> tuple[int, int]:
    """Return group and number of an instance."""
    code = OBSERVABLES_BY_NAME[name].code
    for group in range(2):
        codes = host.read(0x20 + group, 128, 128)[1::2]
        if code in codes:
            return group, codes.index(code)
    raise AssertionError(name)


def freeze(host: Host) -> None:
    host.write(0x2F, 144, FREEZE)
    host.wait(0.06)
    assert host.read(0x2F, 145)[0] == 0x80


def release(host: Host) -> None:
    host.write(0x2F, 144, 0x00)
    host.wait(0.06)
    assert host.read(0x2F, 145)[0] == 0x40


def counters(host: Host) -> dict[str, int]:
    data = host.read(0x34, 128, 60)
    names = ("bits", "bits_sub", "corrected", "low", "high", "frames", "frames_sub", "bad", "bad_low", "bad_high")
    return dict(zip(names, struct.unpack(">5Q5I", data), strict=True))


# Agreement of the pages -----------------------------------------------------------------------------------------------


def test_the_error_ratio_is_the_same_on_every_page_and_that_of_the_model() -> None:
    """OSNR 36 dB at -8 dBm: 1.10e-3 (the model stated in docs/sources.md#figures-of-the-bench)."""
    host = lit()
    host.wait(10)
    freeze(host)
    counts, samples = counters(host), vdm(host)
    average = counts["corrected"] / counts["bits"]
    assert average == pytest.approx(1.10e-3, rel=0.03)
    low, high = counts["low"] / counts["bits_sub"], counts["high"] / counts["bits_sub"]
    assert low <= average <= high
    for name, value in (("avg", average), ("min", low), ("max", high)):
        assert samples[f"ber_{name}_media", 1] == pytest.approx(value, rel=1e-3)
    assert samples["ber_current_media", 1] == pytest.approx(average, rel=0.1)
    assert counts["bits_sub"] == round(8 * 59.84e9)
    assert counts["bad"] == 0


def test_link_quantities_are_those_of_the_light() -> None:
    host = lit(light=light(osnr_db=30.0, cd_ps_per_nm=850.0, dgd_ps=3.2, pdl_db=0.9, sop_rate_krad_per_s=7.0))
    host.wait(10)
    values = {name: host.get(f"pm_{name}_avg") for name in ("cd", "dgd", "pdl", "osnr", "sop_rate", "esnr", "q")}
    assert values["cd"] == 850
    assert values["dgd"] == pytest.approx(3.2)
    assert values["pdl"] == pytest.approx(0.9)
    assert values["osnr"] == pytest.approx(30.0)
    assert values["sop_rate"] == 7
    samples = vdm(host)
    for name, value in values.items():
        observable = "cd_fine" if name == "cd" else name
        assert samples[observable, 1] == pytest.approx(float(value), abs=0.2), name
    assert samples["cd_coarse", 1] == pytest.approx(850, abs=10)
    assert samples["q", 1] == pytest.approx(q_db(samples["ber_current_media", 1]), abs=0.06)


def test_minimum_average_and_maximum_are_in_order_everywhere() -> None:
    host = lit()
    host.wait(20)
    from lumion_hw.standards.cmis.coherent_pages import LINK_QUANTITIES

    host.select(0x35)
    for item in LINK_QUANTITIES:
        low, average, high = (host.raw(f"pm_{item.name}_{word}") for word in ("min", "avg", "max"))
        assert low <= average <= high, item.name


def test_powers_agree_between_vdm_35h_and_the_lane_monitors() -> None:
    host = lit()
    host.wait(1)
    release_first = vdm(host)
    assert release_first["tx_power", 1] == pytest.approx(-10, abs=0.2)
    assert release_first["rx_total_power", 1] == pytest.approx(-8, abs=0.4)
    lane_dbm = host.raw("rx_power", 1) * 1e-4
    assert 10 ** (release_first["rx_total_power", 1] / 10) == pytest.approx(lane_dbm, rel=0.02)


def test_frames_above_the_limit_are_uncorrectable() -> None:
    """26 dB at -15.5 dBm is between the CFEC limit of 1.25e-2 and the end of lock at 2e-2."""
    host = lit(light=ReceivedLight(-18.4, -18.4, osnr_db=26.0))
    freeze(host)
    release(host)
    host.wait(5.1)
    counts = counters(host)
    assert 1.25e-2 < counts["corrected"] / counts["bits"] < 2e-2
    assert counts["bad"] / counts["frames"] > 0.9
    assert counts["bad_low"] <= counts["bad_high"] <= counts["frames_sub"]
    assert vdm(host)["errored_frames_avg_media", 1] > 0


# Statistics -----------------------------------------------------------------------------------------------------------


def test_a_freeze_holds_the_statistics_and_not_the_current_values() -> None:
    host = lit()
    host.wait(5)
    freeze(host)
    before, link = counters(host), host.read(0x35, 128, 114)
    statistic = vdm(host)["ber_avg_media", 1]
    host.light = light(osnr_db=28.0)
    host.wait(5)
    assert counters(host) == before
    assert host.read(0x35, 128, 114) == link
    assert vdm(host)["ber_avg_media", 1] == statistic
    assert vdm(host)["ber_current_media", 1] > 2 * statistic


def test_the_release_starts_a_new_interval() -> None:
    host = lit()
    host.wait(10)
    freeze(host)
    assert counters(host)["bits"] > 8 * round(8 * 59.84e9)
    host.light = light(osnr_db=28.0)
    release(host)
    assert counters(host)["bits"] == 0
    host.wait(3.05)
    counts = counters(host)
    assert counts["bits"] // counts["bits_sub"] == 3
    assert counts["corrected"] / counts["bits"] > 2e-3


def test_frozen_values_are_still_there_until_the_release_is_done() -> None:
    """Some hosts read right after they have withdrawn the request."""
    host = lit()
    host.wait(5)
    freeze(host)
    before = counters(host)
    host.write(0x2F, 144, 0x00)
    assert counters(host) == before


def test_freeze_takes_its_time_and_clears_the_other_bit() -> None:
    host = lit()
    host.write(0x2F, 144, FREEZE)
    host.wait(0.049)
    assert host.read(0x2F, 145)[0] == 0
    host.wait(0.002)
    assert host.read(0x2F, 145)[0] == 0x80
    host.write(0x2F, 144, 0x00)
    assert host.read(0x2F, 145)[0] == 0
    host.wait(0.051)
    assert host.read(0x2F, 145)[0] == 0x40


def test_nothing_freezes_in_low_power() -> None:
    host = Host()
    host.wait(0.6)
    host.write(0x2F, 144, FREEZE)
    host.wait(10)
    assert host.read(0x2F, 145)[0] == 0
    host.write(None, 26, 0)
    host.wait(15.1)
    assert host.read(0x2F, 145)[0] == 0x80


def test_a_freeze_can_be_stuck() -> None:
    host = lit()
    host.module.faults.inject("freeze_never_done")
    host.write(0x2F, 144, FREEZE)
    host.wait(60)
    assert host.read(0x2F, 145)[0] == 0


def test_without_lock_there_are_no_counts_and_no_impossible_values() -> None:
    host = lit(light=ReceivedLight())
    host.wait(5)
    assert set(counters(host).values()) == {0}
    samples = vdm(host)
    for name in ("ber_current_media", "ber_avg_media", "esnr", "q", "cd_fine", "osnr"):
        assert samples[name, 1] == 0, name
    assert samples["rx_total_power", 1] == -40.0
    assert host.get("pm_rx_total_power_avg") == -40.0
    assert host.get("pm_esnr_max") == 0.0


def test_an_interruption_does_not_make_a_minimum_too_low() -> None:
    """Only sub-intervals with continuous lock count.

    Dark from 3.05 to 5.4 s after the release, locked again 0.5 s later: 0-1, 1-2, 2-3, 6-7 ... 9-10 s are complete.
    """
    host = lit()
    freeze(host)
    host.write(0x2F, 144, 0x00)
    host.wait(0.05 + 3.05)
    host.light = ReceivedLight()
    host.wait(2.35)
    host.light = GOOD_LIGHT
    host.wait(5)
    counts = counters(host)
    assert counts["bits"] // counts["bits_sub"] == 7
    assert counts["low"] / counts["bits_sub"] == pytest.approx(1.10e-3, rel=0.05)
    assert counts["bits"] % counts["bits_sub"] == 0


def test_a_truncated_counter_makes_the_triple_inconsistent() -> None:
    host = lit()
    host.module.faults.inject("counter_truncated")
    host.wait(3)
    counts = counters(host)
    assert counts["bits_sub"] == round(8 * 59.84e9) % 2**32
    assert counts["low"] / counts["bits_sub"] > counts["corrected"] / counts["bits"]


# VDM descriptors, thresholds, flags -----------------------------------------------------------------------------------


def test_every_vdm_instance_has_a_descriptor_with_a_known_type() -> None:
    for profile, expected in (("400zr", 24 + 25), ("400g-dr4", 4 * 10)):
        host = Host(profile)
        host.wait(0.6)
        assert len(vdm(host)) == expected


def test_limits_of_a_vdm_observable_raise_its_flags() -> None:
    host = lit()
    group, place = place_of(host, "pdl")
    byte, shift = 128 + 32 * group + place // 2, 4 * (place % 2)
    host.read(0x2C, 128, 128)
    host.light = light(pdl_db=3.0)
    host.wait(0.2)
    assert host.read(0x2C, byte)[0] >> shift & 0xF == 0b0100  # high warning of 2.5 dB
    host.light = light(pdl_db=4.0)
    host.wait(0.2)
    assert host.read(0x2C, byte)[0] >> shift & 0xF == 0b0101  # and also the high alarm of 3.5 dB
    host.light = GOOD_LIGHT
    host.wait(0.2)
    host.read(0x2C, byte)
    assert host.read(0x2C, byte)[0] >> shift & 0xF == 0


def test_thresholds_stand_where_the_descriptor_points() -> None:
    host = Host()
    host.wait(0.6)
    group, place = place_of(host, "osnr")
    number = host.read(0x20 + group, 128 + 2 * place)[0] >> 4
    data = host.read(0x28 + group, 128 + 8 * number, 8)
    assert struct.unpack(">4H", data) == (65535, 240, 65535, 260)


# Checkers and the selector --------------------------------------------------------------------------------------------


def checked(pattern: int = 3) -> tuple[Host, Host]:
    """Two joined modules; the first sends PRBS23, the second checks ``pattern``.

    -15 dBm at OSNR 36 dB: 1/SNR = 10**-2.92 + 10**-1.7 + 10**-2.14, so 15.47 dB and BER 3.0e-3.
    """
    clock = VirtualClock()
    ends = [Host(clock=clock, seed=seed, low_power_pin=False) for seed in (1, 2)]
    join(ends[0].module, ends[1].module, Fibre(loss_db=5.0))
    clock.sleep(36.5)
    ends[0].write(0x13, 156, 0x03)
    ends[0].write(0x13, 152, 0x01)
    ends[1].write(0x13, 172, pattern)
    ends[1].write(0x13, 168, 0x01)
    clock.sleep(0.3)
    return ends[0], ends[1]


def test_a_checker_counts_the_errors_of_its_pattern() -> None:
    _, host = checked()
    host.write(0x13, 177, 0x20)
    host.wait(0.25)
    host.write(0x13, 177, 0x00)
    host.wait(2.0)
    host.write(0x14, 128, 0x04)
    host.wait(0.06)
    errors, bits = struct.unpack("<2Q", host.read(0x14, 192, 16))
    assert bits & 1 == 0
    assert bits == pytest.approx(2.0 * 8 * 59.84e9, rel=0.06)
    assert errors / bits == pytest.approx(3.0e-3, rel=0.1)


def test_a_checker_of_another_pattern_has_no_lock() -> None:
    _, host = checked(pattern=1)
    host.write(0x14, 128, 0x04)
    host.wait(0.2)
    assert host.read(0x14, 139) == host.read(0x14, 139) == b"\x01"
    errors, bits = struct.unpack("<2Q", host.read(0x14, 192, 16))
    assert (errors, bits) == (0, 1)  # bit 0 of the bit count: synchronisation was lost


def test_the_results_follow_the_selector_with_a_delay() -> None:
    _, host = checked()
    host.write(0x14, 128, 0x06)
    assert host.read(0x14, 192, 64) == bytes(64)
    host.wait(0.06)
    snr_db = struct.unpack("<H", host.read(0x14, 240, 2))[0] / 256
    assert snr_db == pytest.approx(15.47, abs=0.15)
    host.write(0x14, 128, 0x01)
    assert struct.unpack("<H", host.read(0x14, 240, 2))[0] / 256 == pytest.approx(snr_db, abs=0.3)
    host.wait(0.06)
    assert f16_decode(int.from_bytes(host.read(0x14, 208, 2), "big")) == pytest.approx(3.0e-3, rel=0.1)
    assert host.read(0x14, 240, 2) == bytes(2)


def test_checkers_of_lanes_that_do_not_exist_count_nothing() -> None:
    host = lit()
    host.write(0x13, 168, 0xFF)
    host.wait(0.2)
    host.read(0x14, 139)
    assert host.read(0x14, 139) == b"\x01"
    assert host.module.read(0, 1) == b"\x18"


@pytest.mark.parametrize("selector", [0x00, 0x07, 0x11, 0x15, 0xFF])
def test_selectors_without_results_show_nothing(selector: int) -> None:
    _, host = checked()
    host.write(0x14, 128, selector)
    host.wait(0.2)
    assert host.read(0x14, 192, 64) == bytes(64)


def test_a_host_checker_listens_to_the_host() -> None:
    host = ready()
    host.write(0x13, 164, 0x05)
    host.write(0x13, 160, 0x01)
    host.wait(0.2)
    assert host.read(0x14, 138) == b"\x01"
    host.module.set_host_signal(0xFF, pattern=5)
    host.wait(0.2)
    host.read(0x14, 138)
    assert host.read(0x14, 138) == b"\x00"
