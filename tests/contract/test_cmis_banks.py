"""A module of 16 lanes: lanes 9 to 16 are in bank 1 of its memory, and are lanes of the same module for the driver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers import SignalIntegrity
from lumion_hw.drivers.transponders.cmis import CmisTransponder
from lumion_hw.drivers.transponders.cmis_decoder import decode_image
from lumion_hw.drivers.transponders.decoded import Severity
from lumion_hw.drivers.transponders.readings import module_readings
from lumion_hw.emulator.transponders.cmis import BankedModule, ReceivedLight
from lumion_hw.errors import ConfigError
from lumion_hw.interfaces import LockStage, Quality
from lumion_hw.sessions.module.pages import ImagePages
from lumion_hw.standards.cmis.image import Half, MemoryImage
from tests.drivers.transponders.cmis_peer import Peer

STARTS = (1, 9)


class Bench:
    """A module that receives a quarter of a dB less on each lane, and its driver."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.received = {lane: ReceivedLight(-lane / 4.0, -lane / 4.0) for lane in range(1, 17)}
        self.module = BankedModule(
            "1.6t-2xdr8", clock, seed=1, optics=lambda lane, _: self.received[lane], low_power_pin=True
        )
        clock.sleep(1.0)
        self.driver = CmisTransponder(self.module, clock, device="dr16")
        self.driver.open()
        self.driver.power_up()

    def lit(self) -> list[int]:
        return [lane for lane in range(1, 17) if self.module.light(lane).enabled]


@pytest.fixture
def bench(clock: VirtualClock) -> Iterator[Bench]:
    bench = Bench(clock)
    yield bench
    bench.driver.close()


def test_it_offers_its_applications_in_both_banks(bench: Bench) -> None:
    found = bench.driver.capabilities().applications
    assert (found[0].first_host_lanes, found[0].first_media_lanes) == (STARTS, STARTS)
    assert found[1].first_host_lanes == (1, 5, 9, 13)
    assert found[2].first_media_lanes == tuple(range(1, 17))
    assert list(bench.driver.data_path_states()) == list(range(1, 17))


def test_power_up_leaves_every_bank_dark(bench: Bench) -> None:
    assert bench.module.engines[1].data_path_states()  # the module would light up by itself
    bench.clock.sleep(30.0)
    assert bench.lit() == []


def test_each_lane_has_its_own_readings(bench: Bench) -> None:
    bench.driver.enable()
    bench.clock.sleep(2.0)
    for lane in range(1, 17):
        readings = bench.driver.lane_readings(lane)
        assert readings["rx_power"].value == pytest.approx(-lane / 4.0, abs=0.4)
        assert readings["tx_power"].value == pytest.approx(1.0, abs=0.3)
    assert bench.driver.lane_readings(12)["rx_power"].source == "11h:192 of bank 1"
    assert bench.driver.lane_readings(4)["rx_power"].source == "11h:192"
    with pytest.raises(ConfigError, match=r"no media lane 17.*lanes 1 to 16"):
        bench.driver.lane_readings(17)


def test_data_paths_of_both_banks_come_up_and_go_down(bench: Bench) -> None:
    bench.driver.enable()
    assert set(bench.driver.data_path_states().values()) == {"activated"}
    assert [(path.first_lane, path.media_lanes) for path in bench.driver.data_paths()] == [
        (1, tuple(range(1, 9))),
        (9, tuple(range(9, 17))),
    ]
    assert bench.lit() == list(range(1, 17))
    bench.driver.disable()
    assert bench.lit() == []


def test_one_path_of_bank_1_is_switched_alone(bench: Bench) -> None:
    for first in range(9, 17):
        bench.driver.select_application(3, first)
    path = bench.driver.path(12)
    path.enable()
    assert bench.lit() == [12]
    assert bench.driver.data_path_states()[12] == "activated"
    assert path.wait_for_lock(30.0).stage is LockStage.LOCKED
    bench.received[12] = ReceivedLight()
    bench.clock.sleep(1.0)
    assert path.lock_state().detail == "no light at media lane 12"
    bench.received[12] = ReceivedLight(-3.0, -3.0)
    bench.clock.sleep(1.0)
    assert path.monitors().rx_power_dbm == pytest.approx(-3.0, abs=0.4)
    assert not path.status().tx_disabled
    assert bench.driver.path(11).status().tx_disabled
    path.disable()
    assert bench.lit() == []


def test_flags_and_status_name_the_lane_of_the_module(bench: Bench) -> None:
    bench.driver.enable()
    bench.clock.sleep(2.0)
    bench.driver.flags()
    bench.driver.clear_flags()
    assert not bench.driver.status().rx_los
    bench.received[13] = ReceivedLight()
    bench.clock.sleep(1.0)
    assert {flag.lane for flag in bench.driver.flags() if flag.name == "rx_los"} == {13}
    assert bench.driver.status().rx_los
    bench.received[13] = bench.received[12]
    bench.clock.sleep(1.0)
    bench.driver.flags()
    assert not bench.driver.status().rx_los


def test_the_summary_of_bank_1_is_beside_that_of_bank_0(bench: Bench) -> None:
    bench.driver.enable()
    bench.clock.sleep(2.0)
    bench.driver.flags()
    bench.received[13] = ReceivedLight()
    bench.clock.sleep(1.0)
    assert [byte & 1 for byte in bench.module.read(4, 2)] == [0, 1]


def test_one_bank_alone_keeps_lanes_1_to_8(bench: Bench, clock: VirtualClock) -> None:
    bench.driver.enable()
    bench.clock.sleep(2.0)
    other = CmisTransponder(bench.module, clock, device="bank1", bank=1)
    other.open()
    assert list(other.data_path_states()) == list(range(1, 9))
    assert other.lane_readings(4)["rx_power"].value == pytest.approx(-3.0, abs=0.4)
    other.close()


def test_a_saved_memory_shows_the_lanes_of_all_banks(bench: Bench) -> None:
    bench.driver.enable()
    bench.clock.sleep(2.0)
    image = bench.driver.dump()
    assert {(0, 0x11), (1, 0x11), (1, 0x10)} <= set(image.halves)
    module = decode_image(image)
    powers = {item.index: item for item in module.fields if item.name == "rx_power"}
    assert list(powers) == list(range(1, 17))
    assert (powers[12].bank, powers[12].address) == (1, "11h:192")
    assert powers[12].value == pytest.approx(10 ** (-0.3), rel=0.1)
    assert module.field("data_path_state", 16).description == "activated"
    assert [item for item in module.findings if item.severity is not Severity.NOTE] == []


def test_findings_name_the_lane_of_the_module(bench: Bench) -> None:
    """A decoded memory warns about lanes of bank 1 as about those of bank 0."""
    bench.driver.enable()
    bench.clock.sleep(2.0)
    image = bench.driver.dump()
    status, control = bytearray(image.halves[1, 0x11]), bytearray(image.halves[1, 0x10])
    status[154 - 128 + 2 * 3 : 154 - 128 + 2 * 3 + 2] = b"\0\0"  # lane 12: no output power
    status[128 - 128] = 0x40  # lane 9 is in the reserved state 0
    status[206 + 7 - 128] = 0xF0  # lane 16 runs application 15
    halves = {**image.halves, (1, 0x11): bytes(status), (1, 0x10): bytes(control)}
    findings = {item.message: item for item in decode_image(replace(image, halves=halves)).findings}
    assert "lane 12 is activated but emits no light" in findings
    assert findings["lane 16 runs application 15, which is not advertised"].severity is Severity.ERROR
    assert "data path state 0 is reserved" in findings
    assert findings["data path state 0 is reserved"].address == "11h:128 of bank 1"


def test_the_interrupt_ends_when_the_flags_of_all_banks_are_read(bench: Bench) -> None:
    bench.driver.flags()
    bench.driver.set_mask("rx_los", 13, True)
    bench.clock.sleep(1.0)
    bench.driver.flags()
    assert not bench.module.interrupt
    bench.driver.enable()
    bench.clock.sleep(2.0)
    assert bench.module.interrupt
    assert bench.driver.masks()["rx_los", 13]
    assert not bench.driver.masks()["rx_los", 5]
    assert registers_of(bench, 1, 0x10, 226) == 1 << 4


def test_settings_of_a_lane_of_bank_1(bench: Bench) -> None:
    bench.driver.select_application(3, 12)
    bench.driver.path(12).set_signal_integrity(SignalIntegrity(rx_amplitude=2))
    assert registers_of(bench, 1, 0x11, 206 + 3) == 0x37  # application 3, data path 4 of this bank, ExplicitControl
    assert registers_of(bench, 1, 0x11, 232) >> 4 == 2
    assert registers_of(bench, 0, 0x11, 232) >> 4 == 1
    bench.driver.set_squelch("tx", "off", (2, 12))
    assert [registers_of(bench, bank, 0x10, 131) for bank in (0, 1)] == [1 << 1, 1 << 3]


def registers_of(bench: Bench, bank: int, page: int, byte: int) -> int:
    return bench.driver.dump().halves[bank, page][byte - 128]


def test_banks_that_are_advertised_but_missing_are_not_used(clock: VirtualClock) -> None:
    peer = Peer(clock)
    peer.put(0x01, 142, bytes([peer.get(0x01, 142)[0] | 0x01]))
    peer.checksum()
    halves: dict[Half, bytes] = {(0, page): bytes(half) for page, half in peer.pages.items()}
    halves[0, None] = bytes(peer.lower)
    driver = CmisTransponder(ImagePages(MemoryImage(halves)), clock, device="zr1")
    driver.open()
    assert list(driver.data_path_states()) == list(range(1, 9))
    driver.close()


def test_vdm_samples_of_every_bank_have_the_lane_of_the_module(bench: Bench) -> None:
    bench.driver.enable()
    bench.clock.sleep(2.0)
    bers = {
        sample.instance.lane: sample.instance.source
        for sample in bench.driver.samples()
        if sample.instance.descriptor.observable and sample.instance.descriptor.observable.name == "ber_current_media"
    }
    assert list(bers) == list(range(1, 17))
    assert bers[12] == f"{bers[4]} of bank 1"
    decoded = decode_image(bench.driver.dump())
    assert sorted({item.lane for item in decoded.samples}) == list(range(1, 17))


def test_vdm_flags_of_bank_1_name_the_lane_of_the_module(bench: Bench) -> None:
    bench.driver.enable()
    bench.clock.sleep(2.0)
    bench.driver.flags()
    bench.driver.clear_flags()
    bench.received[16] = ReceivedLight(-6.8, -6.8)  # a bit error ratio above 2.4e-4, but no loss of lock
    bench.clock.sleep(1.0)
    flags = {(flag.name, flag.lane) for flag in bench.driver.flags()}
    assert ("ber_current_media_high_alarm", 16) in flags
    assert not {lane for name, lane in flags if name == "ber_current_media_high_alarm"} - {16}


def test_findings_of_bank_1_have_the_lane_and_the_bank(bench: Bench) -> None:
    bench.driver.enable()
    bench.clock.sleep(2.0)
    image = bench.driver.dump()
    half = bytearray(image.halves[1, 0x11])
    half[160 - 128 : 162 - 128] = b"\0\0"  # launched power of lane 12
    half[129 - 128] = half[129 - 128] & 0x0F | 0x90  # state of lane 12: reserved
    module = decode_image(MemoryImage({**image.halves, (1, 0x11): bytes(half)}))
    found = {(item.address, item.message) for item in module.findings if item.severity is not Severity.NOTE}
    assert found == {("11h:129 of bank 1", "data path state 9 is reserved")}
    assert module.field("data_path_state", 12).quality.value == "inconsistent"
    assert module.field("data_path_state", 4).quality.value == "ok"
    half[129 - 128] = half[129 - 128] & 0x0F | 0x40  # activated, but dark
    module = decode_image(MemoryImage({**image.halves, (1, 0x11): bytes(half)}))
    assert "lane 12 is activated but emits no light" in [item.message for item in module.findings]


def test_a_loopback_of_bank_1(bench: Bench) -> None:
    bench.driver.set_loopback("media_output", True, (12,))
    assert [registers_of(bench, bank, 0x13, 180) for bank in (0, 1)] == [0, 1 << 3]
    assert bench.driver.closed_loopbacks()["media_output"] == (12,)
    bench.driver.set_loopback("media_output", False)
    assert bench.driver.closed_loopbacks()["media_output"] == ()


def test_a_loopback_of_all_lanes_is_in_every_bank(bench: Bench) -> None:
    bench.driver.set_loopback("media_output", True)
    assert [registers_of(bench, bank, 0x13, 180) for bank in (0, 1)] == [0xFF, 0xFF]
    assert bench.driver.closed_loopbacks()["media_output"] == tuple(range(1, 17))
    with pytest.raises(ConfigError, match=r"no lane 17.*lanes 1 to 16"):
        bench.driver.set_loopback("media_output", True, (12, 17))


def test_a_test_pattern_of_lanes_of_both_banks(bench: Bench) -> None:
    driver, lanes = bench.driver, (2, 7, 12, 15)
    driver.set_loopback("media_output", True)
    driver.enable()
    assert driver.wait_for_lock(30.0).locked
    pattern = driver.patterns("media_generator")[0]
    driver.start_pattern("media_generator", pattern, lanes)
    driver.start_pattern("media_checker", pattern, lanes)
    assert [registers_of(bench, bank, 0x13, 152) for bank in (0, 1)] == [0b0100_0010, 0b0100_1000]
    bench.clock.sleep(1.0)
    before = driver.pattern_counts("media", lanes)
    assert list(before) == list(lanes)
    bench.clock.sleep(2.0)
    after = driver.pattern_counts("media", lanes)
    elapsed_s = 2.0 + 4 * 0.2  # four groups of four lanes take 0.2 s each
    for lane in lanes:  # 53.125 GBd, two bits per symbol (IEEE 802.3 clause 124)
        assert after[lane].bits - before[lane].bits == pytest.approx(elapsed_s * 106.25e9, rel=0.05)
        ratio = driver.pattern_ber("media", lane)
        assert ratio is not None
        assert ratio.value is not None
        assert 0.0 < ratio.value < 2.4e-4
    source = driver.pattern_ber("media", 12)
    assert source is not None
    assert source.source == "14h:214 of bank 1"
    stale = driver.pattern_ber("media", 4)
    assert stale is not None
    assert stale.value is None  # the checker of lane 12 is that of another lane
    driver.stop_pattern("media_generator")
    driver.stop_pattern("media_checker")
    assert [registers_of(bench, bank, 0x13, 168) for bank in (0, 1)] == [0, 0]


def test_a_checker_of_bank_1_that_loses_its_pattern_names_its_lane(bench: Bench) -> None:
    driver = bench.driver
    driver.enable()
    driver.start_pattern("media_checker", driver.patterns("media_checker")[0], (12,))
    bench.clock.sleep(1.0)
    assert {flag.lane for flag in driver.flags() if flag.name == "checker_lol_media"} == {12}
    driver.set_mask("checker_lol_media", 12, True)
    assert [registers_of(bench, bank, 0x13, 213) for bank in (0, 1)] == [0, 1 << 3]
    assert driver.masks()["checker_lol_media", 12]


def test_a_module_without_diagnostics_pages_in_bank_1_has_loopbacks_of_bank_0(clock: VirtualClock) -> None:
    bench = Bench(clock)
    halves = {half: data for half, data in bench.driver.dump().halves.items() if half not in ((1, 0x13), (1, 0x14))}
    bench.driver.close()
    driver = CmisTransponder(ImagePages(MemoryImage(halves), writable=True), clock, device="dr16")
    driver.open()
    driver.set_loopback("media_output", True)
    assert driver.closed_loopbacks()["media_output"] == tuple(range(1, 9))
    driver.flags()
    with pytest.raises(ConfigError, match=r"no lane 12.*lanes 1 to 8"):
        driver.set_loopback("media_output", True, (12,))
    driver.close()


def test_link_performance_of_lanes_of_both_banks(bench: Bench) -> None:
    driver = bench.driver
    driver.enable()
    assert driver.wait_for_lock(30.0).locked
    driver.performance()
    bench.clock.sleep(3.0)
    found = driver.performance()
    names = {f"prefec_ber.{lane}" for lane in range(2, 17)} | {"prefec_ber"}
    assert names <= set(found.quantities)
    assert names <= set(driver.capabilities().performance)
    for name in names:
        reading = found.quantities[name].average or found.quantities[name].current
        assert reading is not None
        assert reading.value is not None
        assert 0.0 < reading.value < 2.4e-4  # limit of RS(544,514)
    assert [registers_of(bench, bank, 0x2F, 144) >> 7 for bank in (0, 1)] == [0, 0]  # both banks count again


def test_link_performance_of_one_path_of_bank_1(bench: Bench) -> None:
    for first in range(9, 17):
        bench.driver.select_application(3, first)
    path = bench.driver.path(12)
    path.enable()
    assert path.wait_for_lock(30.0).locked
    path.performance()
    bench.clock.sleep(3.0)
    reading = path.performance().quantities["prefec_ber"]
    value = reading.average or reading.current
    assert value is not None
    assert value.quality is Quality.OK
    assert value.source.endswith("of bank 1")


def test_a_module_of_32_lanes(clock: VirtualClock) -> None:
    """Co-packaged optics with four banks: each lane has its own light, flags and test pattern."""
    lit = ReceivedLight(-2.0, -2.0)
    module = BankedModule("3.2t-4xdr8", clock, seed=1, optics=lambda lane, _: ReceivedLight() if lane == 29 else lit)
    clock.sleep(1.0)
    with CmisTransponder(module, clock, device="cpo") as driver:
        driver.power_up()
        driver.enable()
        assert [path.first_lane for path in driver.data_paths()] == [1, 9, 17, 25]
        clock.sleep(2.0)
        assert {flag.lane for flag in driver.flags() if flag.name == "rx_los"} == {29}
        assert driver.lane_readings(32)["tx_power"].value == pytest.approx(1.0, abs=0.3)
        driver.set_loopback("media_output", True, (29,))
        assert driver.closed_loopbacks()["media_output"] == (29,)
        lines = list(module_readings(decode_image(driver.dump())).lines())
        assert lines[1].startswith("lanes 1 to 28, 30 to 32: transmits ")
        assert "receives nothing" in lines[2]
        assert len(lines) < 10
