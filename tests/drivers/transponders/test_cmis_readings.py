"""What the CMIS driver reads of a scripted 400ZR module: monitors, flags, performance, and what holds a link up."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.transponders.cmis import CmisTransponder, differences
from lumion_hw.drivers.transponders.cmis.performance import bit_error_ratios
from lumion_hw.errors import (
    ConfigError,
    DeviceError,
    DeviceTimeoutError,
    FrameError,
    NotSupportedError,
    OutOfRangeError,
)
from lumion_hw.interfaces import LockStage, Quality
from lumion_hw.sessions.module.pages import ImagePages
from lumion_hw.standards.cmis.cdb import check_code
from lumion_hw.standards.cmis.codes import Pattern
from lumion_hw.standards.cmis.image import image_from_document
from tests.drivers.transponders.cmis_peer import ACTIVATED, FAULT, INITIALIZED, LOW_PWR, PWR_DN, PWR_UP, Peer, signed


@pytest.fixture
def peer(clock: VirtualClock) -> Peer:
    return Peer(clock)


def opened(peer: Peer, clock: VirtualClock) -> CmisTransponder:
    driver = CmisTransponder(peer, clock=clock, device="zr1")
    driver.open()
    return driver


@pytest.fixture
def module(peer: Peer, clock: VirtualClock) -> CmisTransponder:
    return opened(peer, clock)


@pytest.fixture
def lit(module: CmisTransponder) -> Iterator[CmisTransponder]:
    module.enable()
    yield module
    module.close()


# -- monitors


def test_monitors_have_the_values_of_the_facts(lit: CmisTransponder) -> None:
    monitors = lit.monitors()
    assert monitors.temperature_c == 45.0  # 2D00h
    assert monitors.supply_v == pytest.approx(3.3)  # 80E8h
    assert monitors.tx_bias_ma == pytest.approx(85.0)  # 42500 counts of 2 uA
    assert monitors.tx_power_dbm == pytest.approx(-10.0)  # 1000 counts of 0.1 uW
    assert monitors.rx_power_dbm == pytest.approx(-8.0, abs=0.01)


def test_bias_takes_its_multiplier(peer: Peer, clock: VirtualClock) -> None:
    peer.put(1, 160, b"\x17")  # code 2: times 4
    assert opened(peer, clock).monitors().tx_bias_ma == pytest.approx(340.0)
    peer.put(1, 160, b"\x1f")  # code 3 is reserved
    reading = opened(peer, clock).lane_readings()["tx_bias"]
    assert (reading.value, reading.quality) == (None, Quality.INCONSISTENT)


def test_darkness_is_no_number(module: CmisTransponder, peer: Peer) -> None:
    peer.receive(False)
    assert module.monitors().rx_power_dbm is None
    reading = module.lane_readings()["rx_power"]
    assert (reading.value, reading.quality, reading.source) == (-40.0, Quality.BELOW_RANGE, "11h:186")


def test_too_much_light_is_an_error(module: CmisTransponder, peer: Peer) -> None:
    peer.put(0x11, 186, b"\xff\xff")
    with pytest.raises(OutOfRangeError, match="11h:186 is above"):
        module.monitors()


def test_what_is_not_advertised_is_not_supported_and_not_0(peer: Peer, clock: VirtualClock) -> None:
    peer.put(1, 159, b"\x02\x02")  # supply; Tx power
    module = opened(peer, clock)
    assert module.module_readings()["temperature"].quality is Quality.NOT_SUPPORTED
    assert module.lane_readings()["rx_power"].quality is Quality.NOT_SUPPORTED
    assert module.lane_readings()["rx_power"].value is None
    found = module.monitors()
    assert (found.temperature_c, found.tx_bias_ma) == (None, None)
    assert found.supply_v == pytest.approx(3.3)


def test_without_lane_monitors_the_diagnostics_give_the_powers(peer: Peer, clock: VirtualClock) -> None:
    peer.put(1, 160, b"\x00")
    monitors = opened(peer, clock).monitors()
    assert (monitors.tx_power_dbm, monitors.rx_power_dbm) == (pytest.approx(-10.0), pytest.approx(-8.0))
    assert monitors.tx_bias_ma is None


def test_auxiliary_monitors_are_called_by_what_they_measure(peer: Peer, clock: VirtualClock) -> None:
    found = opened(peer, clock).module_readings()
    assert found["laser_temperature"].value == 50.0  # 3200h
    peer.put(1, 145, b"\x82")  # Aux2 is the TEC current
    peer.put(None, 20, signed(-16384))
    found = opened(peer, clock).module_readings()
    assert found["tec_current"].value == pytest.approx(-50.0, abs=0.01)


# -- status and flags


def test_status_is_live_although_flags_are_latched(lit: CmisTransponder, peer: Peer) -> None:
    peer.put(0x11, 147, b"\x01")  # seen some time ago
    assert not lit.status().rx_los
    peer.receive(False)
    assert lit.status().rx_los
    peer.receive(True)
    status = lit.status()
    assert (status.rx_los, status.tx_fault, status.tx_disabled, status.data_ready) == (False, False, False, True)
    peer.causes[0x11, 135] = 1
    assert lit.status().tx_fault


def test_flags_stay_until_the_user_clears_them(module: CmisTransponder, peer: Peer, clock: VirtualClock) -> None:
    peer.put(None, 9, b"\x01")  # temperature high alarm
    peer.put(0x11, 149, b"\x02")  # Rx power high alarm, lane 2
    peer.put(0x33, 130, b"\x80")
    peer.put(0x2C, 132, b"\x08")  # instance 8 is Rx total power: low warning
    clock.sleep(1.0)
    names = {(flag.name, flag.lane): flag for flag in module.flags()}
    assert set(names) == {
        ("temperature_high_alarm", None),
        ("rx_power_high_alarm", 2),
        ("coherent_rx_lof", None),
        ("rx_total_power_low_warning", 1),
    }
    assert peer.get(None, 9) == b"\x00"
    clock.sleep(1.0)
    peer.put(None, 9, b"\x01")
    flag = next(flag for flag in module.flags() if flag.name == "temperature_high_alarm")
    assert (flag.first_seen_s, flag.last_seen_s, flag.count) == (1.0, 2.0, 2)
    module.clear_flags()
    assert module.flags() == ()


def test_flags_of_monitors_that_are_not_there_are_not_believed(peer: Peer, clock: VirtualClock) -> None:
    peer.put(None, 10, b"\x01")  # Aux1, not advertised
    assert opened(peer, clock).flags() == ()


def test_flags_that_other_calls_meet_are_kept_too(module: CmisTransponder, peer: Peer) -> None:
    peer.put(0x11, 136, b"\x10")  # Tx LOS, not advertised
    peer.put(0x11, 148, b"\x01")
    module.status()
    assert [(flag.name, flag.lane) for flag in module.flags()] == [("rx_lol", 1)]


# -- performance


def test_performance_is_frozen_read_and_released(lit: CmisTransponder, peer: Peer) -> None:
    peer.reads.clear()
    found = lit.performance()
    assert peer.writes(0x2F, 144) == [b"\x80", b"\x00"]
    names = found.quantities
    ber = names["prefec_ber"]
    assert ber.average is not None
    assert ber.average.value == pytest.approx(1.111e-3, rel=1e-3)  # corrected / bits
    assert ber.minimum is not None
    assert ber.minimum.value == pytest.approx(1e-3)
    assert ber.maximum is not None
    assert ber.maximum.value == pytest.approx(1.25e-3)
    assert ber.current is not None
    assert ber.current.value == pytest.approx(1.1e-3)  # 944Ch: 1100e-6
    assert [item.quality for item in (ber.average, ber.minimum, ber.maximum, ber.current)] == [Quality.OK] * 4
    osnr = names["osnr"]
    assert osnr.average is not None
    assert osnr.minimum is not None
    assert osnr.maximum is not None
    assert (osnr.average.value, osnr.minimum.value, osnr.maximum.value) == (34.0, 33.0, 35.0)
    assert (osnr.average.source, osnr.current and osnr.current.source) == ("35h:158-159", "24h:138")
    assert found.remarks == ()


def test_observables_of_cmis_5_3_are_quantities(peer: Peer, clock: VirtualClock) -> None:
    peer.put(0x20, 160, bytes.fromhex("001f00210f4d"))  # sewmax average and current of lane 1, supply of the module
    module = opened(peer, clock)
    module.power_up()
    module.enable()
    peer.put(0x24, 160, bytes.fromhex("000400066590"))
    units = module.capabilities().performance
    assert (units["sewmax"], units["supply_2v6"]) == ("symbols", "V")
    found = module.performance().quantities
    sewmax, supply = found["sewmax"], found["supply_2v6"].current
    assert (sewmax.average and sewmax.average.value, sewmax.current and sewmax.current.value) == (4.0, 6.0)
    assert supply is not None
    assert supply.value == pytest.approx(2.6)


def test_intervals_are_counted_and_dated(lit: CmisTransponder, clock: VirtualClock) -> None:
    first = lit.performance()
    clock.sleep(10.0)
    second = lit.performance()
    assert (first.interval, first.interval_start_s) == (1, None)
    assert (second.interval, second.interval_start_s) == (2, first.interval_end_s)
    assert second.interval_end_s - first.interval_end_s == pytest.approx(10.0, abs=1.0)


def test_pages_that_disagree_are_marked(lit: CmisTransponder, peer: Peer) -> None:
    peer.put(0x35, 164, signed(165) + signed(164) + signed(166))
    peer.put(0x24, 140, signed(150))  # eSNR now: 15.0 dB, 1.5 dB below the average and outside its range
    peer.put(0x14, 240, (0x0F00).to_bytes(2, "little"))  # 15.0 dB as well
    assert lit.performance().remarks == ()  # the link may have come up in the middle of this interval
    found = lit.performance()
    esnr = found.quantities["esnr"]
    assert esnr.average is not None
    assert esnr.average.quality is Quality.INCONSISTENT
    assert found.remarks == ("esnr: 35h:164-165 reads 16.5 dB, 24h:140 reads 15 dB",)


def test_page_14h_is_compared_too(lit: CmisTransponder, peer: Peer, clock: VirtualClock) -> None:
    peer.put(0x13, 168, b"\x01")  # the media checker of lane 1 runs
    peer.put(0x14, 208, (0x99F4).to_bytes(2, "big"))  # 500e-5: pre-FEC BER 5e-3
    peer.put(0x14, 240, (0x1080).to_bytes(2, "little"))  # 16.5 dB
    found = lit.performance()
    assert found.remarks == ("prefec_ber: 24h:134 reads 0.0011, 14h:208 reads 0.005",)
    assert peer.writes(0x14, 128) == [b"\x01", b"\x06"]
    assert found.quantities["esnr"].others[-1].value == 16.5


@pytest.mark.parametrize(("enabled", "after_fec"), [(0, 0), (1, 1)])
def test_what_no_checker_counts_before_the_fec_contradicts_nothing(
    lit: CmisTransponder, peer: Peer, enabled: int, after_fec: int
) -> None:
    peer.put(0x13, 168, bytes([enabled, 0, 0, after_fec]))
    peer.put(0x14, 208, bytes(2))  # no errors, or none left
    found = lit.performance()
    assert found.remarks == ()
    ber = found.quantities["prefec_ber"]
    for reading in (ber.average, ber.minimum, ber.maximum, ber.current):
        assert reading is not None
        assert reading.quality is Quality.OK


def test_lane_monitors_are_compared_too(lit: CmisTransponder, peer: Peer) -> None:
    peer.put(0x11, 186, bytes.fromhex("0c5a"))  # 3162 counts: -5.0 dBm, page 24h says -8.0
    found = lit.performance()
    assert found.remarks == ("rx_total_power: 24h:144 reads -8 dBm, 11h:186 reads -5.00038 dBm",)


def test_a_truncated_counter_is_computed_from_the_frames_and_marked() -> None:
    counters = dict.fromkeys(("corrected_bits_min", "corrected_bits_max"), 10**8) | {
        "bits": 10**12,
        "bits_sub_interval": 10**11 % 2**32,  # the module keeps 32 bits only
        "corrected_bits": 10**9,
        "frames": 10**6,
        "frames_sub_interval": 10**5,
    }
    assert bit_error_ratios(counters) == (1e-3, 1e-3, 1e-3, False)
    counters["bits_sub_interval"] = 10**11
    assert bit_error_ratios(counters) == (1e-3, 1e-3, 1e-3, True)
    assert bit_error_ratios(counters | {"bits": 0}) is None


def test_nothing_is_nan_and_nothing_is_fresh_in_the_dark(module: CmisTransponder, peer: Peer) -> None:
    peer.receive(False)
    found = module.performance()
    readings = [
        reading
        for quantity in found.quantities.values()
        for reading in (quantity.average, quantity.minimum, quantity.maximum, quantity.current)
        if reading is not None
    ]
    assert {reading.quality for reading in readings} == {Quality.STALE}
    assert all(reading.value is None or math.isfinite(reading.value) for reading in readings)
    average = found.quantities["prefec_ber"].average
    assert average is not None
    assert average.value is None


def test_q_is_computed_where_the_module_does_not_give_it(lit: CmisTransponder, peer: Peer) -> None:
    q = lit.performance().quantities["q"]
    assert q.average is not None  # page 35h has it, as 0
    assert q.average.source == "35h:230-231"


def test_a_freeze_that_never_comes_is_a_warning(lit: CmisTransponder, peer: Peer, clock: VirtualClock) -> None:
    peer.stuck.add("freeze")
    before = clock.now()
    lit.performance()
    assert clock.now() - before < 3.0
    assert lit.warnings[0].startswith("timed out: vdm_freeze_done is not set for 1 s")


def test_basic_values_alone_are_not_frozen(peer: Peer, clock: VirtualClock) -> None:
    peer.put(0x20, 128, b"\x00" * 6)  # BER min, max, average are not listed
    module = opened(peer, clock)
    assert not module.capabilities().statistics
    module.performance()
    assert peer.writes(0x2F, 144) == []


def test_unknown_observables_stay_visible(module: CmisTransponder) -> None:
    unknown = [sample for sample in module.samples() if sample.instance.descriptor.observable is None]
    assert [(sample.instance.descriptor.code, sample.value) for sample in unknown] == [(0xEE, 7.0)]


# -- lock


def test_a_good_link_is_locked(lit: CmisTransponder) -> None:
    report = lit.wait_for_lock(10.0)
    assert report.locked
    assert report.stage is LockStage.LOCKED


@pytest.mark.parametrize(
    ("state", "stage"),
    [(PWR_UP, LockStage.POWERING_UP), (PWR_DN, LockStage.LOW_POWER), (LOW_PWR, LockStage.LOW_POWER)],
)
def test_the_module_state_comes_first(lit: CmisTransponder, peer: Peer, state: int, stage: LockStage) -> None:
    peer._module(state)
    peer.receive(False)
    report = lit.wait_for_lock(1.0)
    assert (report.stage, report.code) == (stage, state)
    assert report.elapsed_s == pytest.approx(1.0, abs=0.3)


def test_low_power_says_who_asked(lit: CmisTransponder, peer: Peer) -> None:
    peer._module(LOW_PWR)
    peer.lower[26] = 0x10
    assert lit.lock_state().flag == "sw"
    peer.lower[26] = 0x40
    assert lit.lock_state().flag == "pin"


def test_a_fault_ends_the_wait_with_its_cause(lit: CmisTransponder, peer: Peer, clock: VirtualClock) -> None:
    peer._module(FAULT)
    peer.lower[41] = 1
    before = clock.now()
    report = lit.wait_for_lock(100.0)
    assert (report.stage, report.code, report.code_name) == (LockStage.FAULT, 1, "tec_runaway")
    assert clock.now() - before < 1.0


def test_a_refused_configuration_names_lane_and_code(module: CmisTransponder, peer: Peer) -> None:
    peer.put(0x11, 202, b"\x11\x31\x11\x11")  # lane 4
    report = module.wait_for_lock(5.0)
    assert (report.stage, report.lane, report.code) == (LockStage.CONFIG_REJECTED, 4, 3)
    assert report.code_name == "rejected_invalid_appsel"
    peer.put(0x11, 202, b"\x1c\x11\x11\x11")
    report = module.wait_for_lock(1.0)
    assert (report.stage, report.lane, report.code) == (LockStage.CONFIG_IN_PROGRESS, 1, 0xC)


def test_an_old_refusal_does_not_hold_up_an_active_path(lit: CmisTransponder, peer: Peer) -> None:
    peer.put(0x11, 202, b"\x33" * 4)
    assert lit.lock_state().locked


def test_initialisation_tells_how_long_it_lasts(module: CmisTransponder, peer: Peer) -> None:
    peer.INIT_S = 500.0
    peer.put(0x10, 128, b"\x00")
    peer._data_path()
    report = module.wait_for_lock(5.0)
    assert (report.stage, report.lane, report.code_name) == (LockStage.DP_INIT, 1, "init")
    assert report.values["bound_s"] == 60.0
    assert report.values["elapsed_s"] == pytest.approx(5.0, abs=0.4)
    assert report.stages[0] == (LockStage.DP_INIT, pytest.approx(5.0, abs=0.4))


def test_a_path_that_is_held_down_says_so(module: CmisTransponder, peer: Peer) -> None:
    report = module.lock_state()
    assert (report.stage, report.code_name) == (LockStage.DP_INIT, "deactivated")
    assert "DPDeinit is set" in report.detail
    peer.put(0x11, 206, bytes(8))
    assert "no application is selected" in module.lock_state().detail


def test_a_dark_transmitter_says_so(lit: CmisTransponder, peer: Peer) -> None:
    lit.disable()
    report = lit.lock_state()
    assert (report.stage, report.code) == (LockStage.TX_DISABLED, INITIALIZED)
    assert "Tx disable is set" in report.detail


def test_a_transmitter_that_failed(lit: CmisTransponder, peer: Peer) -> None:
    peer.causes[0x11, 135] = 1
    assert (lit.lock_state().stage, lit.lock_state().flag) == (LockStage.TX_FAILURE, "tx_failure")
    peer.causes[0x11, 135] = 0
    peer.put(0x11, 133, b"\x00")
    assert lit.lock_state().flag == "tx_output_valid"


def test_tuning_in_its_order(lit: CmisTransponder, peer: Peer) -> None:
    peer.receive(False)
    peer.put(0x12, 222, b"\x03")
    assert lit.lock_state().stage is LockStage.TUNING
    peer.put(0x12, 222, b"\x01")
    assert lit.lock_state().stage is LockStage.WAVELENGTH_UNLOCKED
    peer.put(0x12, 136, signed(2))
    peer.put(0x12, 231, b"\x08")
    report = lit.wait_for_lock(60.0)
    assert (report.stage, report.flag) == (LockStage.TUNING_REJECTED, "tuning_not_accepted")
    assert report.values == {"configured_mhz": 193_300_000.0, "current_mhz": 193_100_000.0}


def test_a_path_that_is_down_for_tuning_waits_for_the_laser(module: CmisTransponder, peer: Peer) -> None:
    peer.stuck.add("tuning")
    with pytest.raises(DeviceTimeoutError):
        module.tune(193.2)
    assert module.lock_state().stage is LockStage.TUNING
    peer.put(0x12, 222, b"\x00")
    assert module.lock_state().stage is LockStage.TUNING_REJECTED


def test_darkness_at_the_receiver(lit: CmisTransponder, peer: Peer) -> None:
    peer.receive(False)
    report = lit.wait_for_lock(3.0)
    assert (report.stage, report.lane, report.flag) == (LockStage.RX_LOS, 1, "rx_los")


def test_light_that_comes_in_time_locks_and_leaves_a_log(lit: CmisTransponder, peer: Peer) -> None:
    peer.receive(False)
    peer.later(2.0, lambda: peer.receive(True))
    report = lit.wait_for_lock(10.0)
    assert report.locked
    assert report.elapsed_s == pytest.approx(2.0, abs=0.3)
    assert [stage for stage, _ in report.stages] == [LockStage.RX_LOS, LockStage.LOCKED]


def test_loss_of_lock_tells_which_part(lit: CmisTransponder, peer: Peer) -> None:
    peer.causes[0x11, 148] = 1
    assert (lit.lock_state().stage, lit.lock_state().flag) == (LockStage.RX_LOL, "rx_lol")
    peer.causes[0x33, 130] = 0x10
    assert lit.lock_state().flag == "coherent_rx_cd_compensation_lol"
    del peer.pages[0x33]
    peer.lower[127] = 0
    assert lit.lock_state().flag == "rx_lol"


@pytest.mark.parametrize(
    ("raw", "stage", "limit"),
    [("0050", LockStage.RX_POWER_LOW, -20.0), ("3000", LockStage.RX_POWER_HIGH, 0.0)],
)
def test_a_power_outside_the_limits_explains_a_lost_lock(
    lit: CmisTransponder, peer: Peer, raw: str, stage: LockStage, limit: float
) -> None:
    peer.put(0x11, 186, bytes.fromhex(raw))
    assert lit.lock_state().locked  # the module copes
    peer.causes[0x11, 148] = 1
    report = lit.lock_state()
    assert report.stage is stage
    assert report.values["limit_dbm"] == pytest.approx(limit)


def test_too_many_bit_errors(lit: CmisTransponder, peer: Peer) -> None:
    peer.put(0x24, 134, (0x9CE2).to_bytes(2, "big"))  # 1.25e-2, the limit itself
    report = lit.lock_state()
    assert report.stage is LockStage.BER_HIGH
    assert report.values == {"prefec_ber": pytest.approx(1.25e-2), "limit": 1.25e-2}
    peer.put(0x24, 134, bytes(2))
    assert lit.lock_state().stage is LockStage.BER_STALE


def test_without_diagnostics_the_counters_tell_and_may_stand_still(peer: Peer, clock: VirtualClock) -> None:
    peer.put(1, 142, b"\x00")
    module = opened(peer, clock)
    module.enable()
    assert module.lock_state().locked
    watch = module.wait_for_lock(0.0)
    assert watch.locked
    peer.put(0x34, 128, bytes(8))
    assert module.lock_state().stage is LockStage.BER_STALE


def test_a_silent_module_is_a_stage_and_not_an_error(lit: CmisTransponder, peer: Peer, clock: VirtualClock) -> None:
    from lumion_hw.sessions.module.registers import NotRespondingError

    def silent() -> None:
        raise NotRespondingError("NACK")

    peer._access = silent  # type: ignore[method-assign]
    before = clock.now()
    report = lit.wait_for_lock(2.0)
    assert report.stage is LockStage.NOT_RESPONDING
    assert clock.now() - before < 2.5


def test_a_module_without_a_coherent_receiver_locks_without_a_ber(peer: Peer, clock: VirtualClock) -> None:
    peer.put(None, 87, b"\x1c")  # 400G-DR4 on all lanes
    peer.put(None, 91, b"\x1c")
    peer.put(0, 212, b"\x04")
    peer.put(1, 155, b"\x02")
    peer.put(1, 142, b"\x00")
    module = opened(peer, clock)
    module.enable()
    assert not module.capabilities().coherent
    assert module.lock_state().locked
    with pytest.raises(NotSupportedError, match="link performance"):
        module.performance()
    with pytest.raises(NotSupportedError, match="tuning"):
        module.tune(193.1)


# -- memory


def test_a_dump_survives_its_file_and_can_be_opened(lit: CmisTransponder, clock: VirtualClock) -> None:
    image = image_from_document(json.loads(json.dumps(lit.dump().to_document())))
    replay = CmisTransponder(ImagePages(image), clock)
    replay.open()
    assert replay.identify() == lit.identify()
    assert replay.monitors().tx_power_dbm == pytest.approx(-10.0)
    assert replay.data_path_states()[1] == "activated"
    with pytest.raises(NotSupportedError, match="saved image"):
        replay.disable()


def test_what_changed_between_two_dumps(module: CmisTransponder, peer: Peer) -> None:
    before = module.dump()
    module.set_tx_power_dbm(-8.0)
    peer.put(None, 14, bytes.fromhex("2e00"))
    found = differences(before, module.dump())
    assert [(item.field, item.index, item.address, item.before, item.after) for item in found] == [
        ("temperature", None, "00h:14", 45.0, 46.0),
        ("target_output_power", 1, "12h:200", -10.0, -8.0),
    ]


# -- loopback, patterns, CDB


def test_only_loopbacks_that_are_there_can_be_closed(module: CmisTransponder, peer: Peer) -> None:
    module.set_loopback("media_input", True)
    assert peer.get(0x13, 181) == b"\xff"
    module.set_loopback("media_input", False)
    assert peer.get(0x13, 181) == b"\x00"
    with pytest.raises(NotSupportedError, match="host output loopback"):
        module.set_loopback("host_output", True)
    with pytest.raises(NotSupportedError, match="single lanes"):
        module.set_loopback("media_input", True, lanes=[1])


def test_loopbacks_of_both_sides_need_a_module_that_allows_them(peer: Peer, clock: VirtualClock) -> None:
    peer.put(0x13, 128, b"\x0a")  # media input and host input, not both at once (bit 6)
    module = opened(peer, clock)
    module.set_loopback("media_input", True)
    assert module.closed_loopbacks() == {"media_input": (1, 2, 3, 4, 5, 6, 7, 8), "host_input": ()}
    with pytest.raises(NotSupportedError, match="host loopback together with the media_input loopback"):
        module.set_loopback("host_input", True)
    assert peer.get(0x13, 183) == b"\x00"
    peer.put(0x13, 128, b"\x4a")
    module.set_loopback("host_input", True)
    assert peer.get(0x13, 183) == b"\xff"


def test_bits_and_errors_of_a_checker(peer: Peer, clock: VirtualClock) -> None:
    peer.put(0x13, 130, b"\x02")
    module = opened(peer, clock)
    with pytest.raises(DeviceError, match="media pattern checker of lane 2, 6 is off"):
        module.pattern_counts("media", [2, 6])
    assert peer.get(0x14, 128) == b"\x00"  # no results were selected
    peer.put(0x13, 168, b"\x22")
    # CMIS page 14h: 64-bit little-endian error and bit counts of lane 2 of four; bit 0 of the bits is a flag.
    peer.put(0x14, 208, bytes([5, 1, 0, 0, 0, 0, 0, 0]) + bytes([1, 0, 0, 0, 2, 0, 0, 0]))
    began_s = clock.now()
    counts = module.pattern_counts("media", [2, 6])
    assert [(lane, item.bits, item.errors) for lane, item in counts.items()] == [
        (2, 2 << 32, 0x105),
        (6, 2 << 32, 0x105),  # the peer shows the same bytes for each selection
    ]
    assert clock.now() - began_s >= 0.4
    assert [data[0] for page, byte, data in peer.log if (page, byte) == (0x14, 128)] == [4, 5]
    peer.put(0x13, 160, b"\x01")
    module.pattern_counts("host", [1])
    assert peer.get(0x14, 128) == b"\x02"
    peer.later(0.1, lambda: peer.put(0x13, 168, b"\x00"))  # the module is reset during a reading
    with pytest.raises(DeviceError, match="lane 2 is off"):
        module.pattern_counts("media", [2])


def test_a_module_that_does_not_count_bits(module: CmisTransponder) -> None:
    with pytest.raises(NotSupportedError, match="counting bits"):
        module.pattern_counts("media", [1])


def test_masks_keep_the_other_lanes(module: CmisTransponder, peer: Peer) -> None:
    peer.put(0x10, 226, b"\x80")
    peer.put(0x12, 239, b"\x20")
    module.set_mask("rx_los", 1, True)
    module.set_mask("tuning_complete", 1, True)
    assert peer.get(0x10, 226) == b"\x81"
    assert peer.get(0x12, 239) == b"\x21"
    masks = module.masks()
    assert [masks["rx_los", lane] for lane in range(1, 9)] == [True, *[False] * 6, True]
    assert not any(name.startswith("vdm") for name, _ in masks)
    for name, lane in (("rx_los", 9), ("rx_los", None), ("no_such", None)):
        with pytest.raises(NotSupportedError, match=f"masking {name}"):
            module.set_mask(name, lane, True)


def test_patterns_that_are_there_can_be_sent(module: CmisTransponder, peer: Peer) -> None:
    module.start_pattern("media_generator", Pattern.PRBS31, lanes=[1])
    assert (peer.get(0x13, 156), peer.get(0x13, 152)) == (b"\x01", b"\x01")
    module.stop_pattern("media_generator", lanes=[1])
    assert peer.get(0x13, 152) == b"\x00"
    with pytest.raises(NotSupportedError, match="PRBS7"):
        module.start_pattern("media_generator", Pattern.PRBS7)
    with pytest.raises(ConfigError, match="is not a pattern generator or checker"):
        module.start_pattern("optical", Pattern.PRBS7)


def test_a_module_without_diagnostic_pages_has_no_patterns(peer: Peer, clock: VirtualClock) -> None:
    peer.put(1, 142, b"\x40")
    module = opened(peer, clock)
    with pytest.raises(NotSupportedError, match="test patterns"):
        module.start_pattern("media_generator", Pattern.PRBS31)
    assert module.pattern_ber("media", 1) is None


def answer(peer: Peer, status: int, payload: bytes = b"", *, corrupt: bool = False) -> None:
    react = peer._react

    def on_write(page: int | None, byte: int, data: bytes) -> None:
        if (page, byte) == (0x9F, 128):
            peer.put(None, 37, b"\x81")
            peer.later(0.3, lambda: peer.put(None, 37, bytes([status])))
            code = check_code(payload) ^ corrupt
            peer.put(0x9F, 134, bytes([len(payload), code]) + payload)
        react(page, byte, data)

    peer._react = on_write  # type: ignore[method-assign]


def test_a_command_is_written_body_first(module: CmisTransponder, peer: Peer) -> None:
    answer(peer, 0x01, b"\x00\x01")
    assert module.cdb_command(0x0040) == b"\x00\x01"
    pages = [(byte, data) for page, byte, data in peer.log if page == 0x9F]
    assert pages[-1] == (128, b"\x00\x40")
    assert pages[0] == (130, bytes([0, 0, 0, 0xBF, 0, 0]))  # check code BFh, the complement of the sum


@pytest.mark.parametrize(("status", "name"), [(0x41, "unknown_command"), (0x45, "bad_check_code"), (0x46, "password")])
def test_a_refused_command_names_its_status(module: CmisTransponder, peer: Peer, status: int, name: str) -> None:
    answer(peer, status)
    with pytest.raises(DeviceError, match=f"CDB command 0040h failed: {name}") as told:
        module.cdb_command(0x0040)
    assert told.value.code == status


def test_a_command_that_stays_busy_is_given_up(module: CmisTransponder, peer: Peer, clock: VirtualClock) -> None:
    answer(peer, 0x83)
    with pytest.raises(DeviceTimeoutError, match="is busy"):
        module.cdb_command(0x0040)
    assert clock.now() < 6.0


def test_a_corrupt_reply_is_no_reply(module: CmisTransponder, peer: Peer) -> None:
    answer(peer, 0x01, b"\x00", corrupt=True)
    with pytest.raises(FrameError, match="corrupt"):
        module.cdb_command(0x0040)


def test_firmware_is_read_but_never_written(module: CmisTransponder, peer: Peer) -> None:
    payload = bytearray(42)
    payload[0], payload[1] = 0x43, 0x03  # A runs and is committed; B is invalid
    payload[2:6] = bytes([1, 2, 0, 9])
    answer(peer, 0x01, bytes(payload))
    image_a, image_b = module.firmware()
    assert image_a is not None
    assert (image_a.major, image_a.minor, image_a.build, image_a.running) == (1, 2, 9, True)
    assert image_b is not None
    assert not image_b.valid
    before = list(peer.log)
    with pytest.raises(NotSupportedError, match="changes the firmware"):
        module.cdb_command(0x0101)
    assert peer.log == before


def test_the_lanes_are_active_when_they_are(lit: CmisTransponder) -> None:
    assert set(lit.data_path_states().values()) == {"activated"}
    assert lit.data_paths()[0].media_lanes == (1,)
    assert ACTIVATED == 4
