"""The QSFP driver against a module written down from SFF-8636: lanes, power classes, latched flags and refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.transponders.cmis import CmisTransponder
from lumion_hw.drivers.transponders.qsfp import QsfpTransponder
from lumion_hw.drivers.transponders.qsfp_decoder import decode_qsfp
from lumion_hw.drivers.transponders.qsfp_monitors import LaneMonitors
from lumion_hw.drivers.transponders.sfp import SfpTransponder
from lumion_hw.drivers.transponders.sfp_diagnostics import Thresholds
from lumion_hw.errors import (
    ConfigError,
    ConnectError,
    DeviceError,
    FrameError,
    IdentityError,
    LimitError,
    LumionError,
    NotSupportedError,
    OutOfRangeError,
    VerifyError,
)
from lumion_hw.interfaces import Transponder, TransponderIdentity
from lumion_hw.sessions.module.linear_file import LinearPages
from lumion_hw.sessions.module.registers import ModuleAbsentError, NotRespondingError
from tests.drivers.transponders.qsfp_memories import Module, cable, linear, lr4, sealed

IDENTITY = TransponderIdentity(
    "LUMION TEST", "QSFP28-LR4-TEST", "A1", "QT0000000001", "260101", "100GBASE-LR4 or 25GBASE-LR", 1302.35
)


@pytest.fixture
def module(clock: VirtualClock) -> Module:
    return Module(clock)


@pytest.fixture
def driver(module: Module, clock: VirtualClock) -> QsfpTransponder:
    driver = QsfpTransponder(module, clock, device="q1")
    driver.open()
    return driver


def opened(module: Module, **options: object) -> QsfpTransponder:
    driver = QsfpTransponder(module, module.clock, device="q1", **options)  # type: ignore[arg-type]
    driver.open()
    return driver


def change(module: Module, byte: int, value: int) -> None:
    """Set a byte of page 00h and make its check sums right."""
    module.pages[0x00][byte - 128] = value
    module.pages[0x00] = sealed(bytes(module.pages[0x00]))


def written(module: Module, byte: int) -> list[int]:
    return [data[byte - offset] for offset, data in module.writes if offset <= byte < offset + len(data)]


# -- identity


def test_it_is_a_transponder_with_the_identity_of_page_0(driver: QsfpTransponder) -> None:
    transponder: Transponder = driver
    assert transponder.identify() == IDENTITY
    assert driver.can_switch()
    assert driver.warnings == ()


def test_a_starting_module_is_waited_for(module: Module) -> None:
    module.silent_until_s = 1.5
    assert opened(module).identify() == IDENTITY


def test_a_silent_module_is_an_error(module: Module) -> None:
    module.silent_until_s = 60.0
    with pytest.raises(NotRespondingError):
        opened(module)
    assert not module.is_open


def test_ffh_everywhere_means_that_nothing_answers(module: Module) -> None:
    module.pages = {page: bytearray(b"\xff" * 128) for page in (None, 0, 0xFF)}
    with pytest.raises(NotRespondingError, match=r"the module does not answer: all bytes read FFh.*ModSelL low"):
        opened(module)


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        ({"expected_serial": "QT9"}, "with serial QT9; found LUMION TEST QSFP28-LR4-TEST with serial QT0000000001"),
        ({"expected_vendor": "ACME"}, "with vendor ACME"),
        ({"expected_part_number": "X"}, "with part_number X"),
    ],
)
def test_another_module_than_the_expected_one_is_refused(module: Module, expected: dict[str, str], words: str) -> None:
    with pytest.raises(IdentityError, match=words):
        opened(module, **expected)


@pytest.mark.parametrize(
    ("identifier", "hint"),
    [
        (0x18, "CMIS module: use kind cmis"),
        (0x1E, "use kind cmis"),
        (0x03, "SFP module: use kind sfp-8472"),
        (0x06, "reads only QSFP"),
    ],
)
def test_a_module_of_another_standard_leads_to_its_kind(module: Module, identifier: int, hint: str) -> None:
    module.pages[None][0] = identifier
    with pytest.raises(IdentityError, match=hint):
        opened(module)


@pytest.mark.parametrize("identifier", [0x0C, 0x0D, 0x11])
def test_other_drivers_name_this_kind(module: Module, clock: VirtualClock, identifier: int) -> None:
    module.pages[None][0] = identifier
    with pytest.raises(IdentityError, match="use kind qsfp-8636"):
        CmisTransponder(module, clock, device="q1").open()
    with pytest.raises(IdentityError, match="Use kind qsfp-8636"):
        SfpTransponder(Registers(module), clock, device="q1").open()
    assert opened(module).identify() == IDENTITY


class Registers:
    """The module as a bridge would show it to the driver of SFP modules."""

    name = "cage 1"

    def __init__(self, module: Module) -> None:
        self._module = module
        self.open, self.close = module.open, module.close

    def read(self, device: int, offset: int, length: int) -> bytes:
        return self._module.read(offset, length)

    def write(self, device: int, offset: int, data: bytes) -> None:
        raise AssertionError("nothing is written to a module of another kind")

    def transaction(self):  # type: ignore[no-untyped-def]
        from contextlib import nullcontext

        return nullcontext()


def test_a_wrong_base_checksum_is_a_warning_and_a_wrong_extended_one_an_error(module: Module) -> None:
    module.pages[0x00][63] ^= 1
    driver = opened(module)
    assert driver.warnings == ("CC_BASE is wrong: kind, vendor, power class and wavelength may be wrong",)
    module.pages[0x00][95] ^= 1
    with pytest.raises(DeviceError, match=r"wrong checksum CC_EXT in the module's memory.*accept_wrong_checksums"):
        driver.identify()
    assert len(opened(module, accept_wrong_checksums=True).warnings) == 2


def test_readings_that_differ_blame_the_bus(module: Module) -> None:
    """Without an error check on the bus, only two equal readings prove a wrong memory."""
    module.pages[0x00][95] ^= 1
    flips = iter(range(1, 1000))
    module.on_read = lambda offset: module.pages[0x00].__setitem__(100, next(flips) % 256)
    with pytest.raises(FrameError, match="a second reading differs"):
        opened(module)


def test_a_module_swapped_while_open_is_noticed(driver: QsfpTransponder, module: Module) -> None:
    module.causes[3] = 0x01
    driver.flags()
    module.causes.clear()
    module.pages[0x00][68:80] = b"QT0000000002"
    module.pages[0x00] = sealed(bytes(module.pages[0x00]))
    writes = len(module.writes)
    with pytest.raises(IdentityError, match=r"found QSFP28-LR4-TEST with serial QT0000000002: the module was replaced"):
        driver.disable()
    assert [entry for entry in module.writes[writes:] if entry[0] != 127] == []
    assert driver.identify().serial == "QT0000000002"
    assert driver.warnings == (
        "the module with serial QT0000000001 was replaced by QSFP28-LR4-TEST with serial QT0000000002",
    )
    driver.disable()
    module.read(3, 19)
    assert driver.flags() == ()


def test_a_closed_driver_says_so(driver: QsfpTransponder, module: Module) -> None:
    driver.close()
    driver.close()
    assert not module.is_open
    with pytest.raises(ConnectError, match="is not open"):
        driver.monitors()


def test_no_write_reaches_the_password(module: Module) -> None:
    """Byte 126 selects the bank of a CMIS module, and is the last byte of the password here."""
    change(module, 195, 0x9F)
    module.pages[0x20] = bytearray(128)
    driver = opened(module)
    driver.thresholds()
    assert (0, 0x20) in driver.dump().halves
    driver.enable()
    driver.set_mask("rx_power_low_alarm", 2, True)
    assert {offset for offset, data in module.writes if offset <= 126 < offset + len(data)} == set()
    assert written(module, 127)


def test_the_user_memory_is_written_four_bytes_at_a_time(driver: QsfpTransponder, module: Module) -> None:
    driver.write_user_memory(3, b"rack 7, north")
    assert bytes(module.pages[0x02][3:16]) == b"rack 7, north"
    assert driver.user_memory() == bytes(module.pages[0x02])
    assert [len(data) for offset, data in module.writes if offset >= 128] == [4, 4, 4, 1]
    for offset, n_bytes in ((-1, 1), (120, 9), (128, 1)):
        with pytest.raises(LimitError, match="user memory"):
            driver.write_user_memory(offset, bytes(n_bytes))


def test_a_module_without_user_memory(module: Module) -> None:
    change(module, 195, module.pages[0x00][195 - 128] & 0x7F)
    driver = opened(module)
    with pytest.raises(NotSupportedError, match=r"user memory .*bit 195\.7"):
        driver.user_memory()
    with pytest.raises(NotSupportedError, match="user memory"):
        driver.write_user_memory(0, b"x")
    assert not [offset for offset, _ in module.writes if offset >= 128]


def test_the_password_goes_to_bytes_123_to_126(driver: QsfpTransponder, module: Module) -> None:
    driver.enter_password(0x1011)
    assert module.writes[-1] == (123, b"\x00\x00\x10\x11")
    for password in (0x8000_0000, -1):
        with pytest.raises(LimitError, match="host password"):
            driver.enter_password(password)


# -- monitors


def test_monitors_of_the_lanes(driver: QsfpTransponder) -> None:
    powers = (0.0, -3.0103, -6.0206, -10.0)
    lanes = driver.lane_monitors()
    assert [(item.lane, item.tx_bias_ma) for item in lanes] == [(1, 40.0), (2, 40.0), (3, 40.0), (4, 40.0)]
    assert [item.tx_power_dbm for item in lanes] == pytest.approx([0.0] * 4)
    assert [item.rx_power_dbm for item in lanes] == pytest.approx(powers, abs=1e-4)


def test_monitors_of_the_module_are_sums(driver: QsfpTransponder) -> None:
    """1 + 0.5 + 0.25 + 0.1 mW received, 4 x 1 mW launched, 4 x 40 mA."""
    monitors = driver.monitors()
    assert (monitors.temperature_c, monitors.supply_v, monitors.tx_bias_ma) == (30.5, 3.3, 160.0)
    assert monitors.rx_power_dbm == pytest.approx(2.6717, abs=1e-4)
    assert monitors.tx_power_dbm == pytest.approx(6.0206, abs=1e-4)


def test_a_dark_lane_is_none_and_does_not_count(driver: QsfpTransponder, module: Module) -> None:
    module.pages[None][34:38] = bytes(4)
    assert [item.rx_power_dbm is None for item in driver.lane_monitors()] == [True, True, False, False]
    assert driver.monitors().rx_power_dbm == pytest.approx(-4.5593, abs=1e-4)  # 0.25 + 0.1 mW


def test_a_saturated_power_is_out_of_range(driver: QsfpTransponder, module: Module) -> None:
    module.pages[None][36:38] = b"\xff\xff"
    with pytest.raises(OutOfRangeError, match="rx_power of lane 2 is above"):
        driver.monitors()


def test_monitors_wait_for_the_module_to_be_ready(driver: QsfpTransponder, module: Module) -> None:
    module.pages[None][2] = 0x01
    ready_s = module.clock.now() + 1.0
    module.on_read = lambda _: module.pages[None].__setitem__(2, int(module.clock.now() < ready_s))
    assert driver.monitors().timestamp_s >= ready_s
    module.on_read = lambda _: module.pages[None].__setitem__(2, 1)
    with pytest.raises(DeviceError, match="not valid after 2 s"):
        driver.monitors()


def test_without_a_power_monitor_the_register_is_enough(module: Module) -> None:
    change(module, 220, 0x38)
    module.pages[None][50:58] = bytes(8)
    driver = opened(module)
    assert all(item.tx_power_dbm is None for item in driver.lane_monitors())
    driver.disable()
    assert module.pages[None][86] == 0x0F
    driver.enable()
    assert module.pages[None][86] == 0x00


def test_monitor_bits_count_only_from_revision_2_8_on(module: Module) -> None:
    change(module, 220, 0x0C)
    assert opened(module).monitors().temperature_c is None
    module.pages[None][1] = 0x07
    assert opened(module).monitors().temperature_c == 30.5
    module.pages[None][26:28] = bytes(2)  # a working module cannot run on 0 V
    monitors = opened(module).monitors()
    assert (monitors.temperature_c, monitors.supply_v) == (None, None)
    assert monitors.tx_bias_ma == 160.0


@pytest.mark.parametrize("revision", [0x07, 0x08])
def test_an_optical_cable_without_diagnostics(module: Module, revision: int) -> None:
    """It announces no monitor; before revision 2.8 only zeros tell."""
    change(module, 130, 0x23)
    change(module, 220, 0x00)
    module.pages[None][1] = revision
    module.pages[None][22:58] = bytes(36)
    driver = opened(module)
    assert driver.lane_monitors() == tuple(LaneMonitors(lane, None, None, None) for lane in (1, 2, 3, 4))
    assert driver.monitors().temperature_c is None
    driver.disable()
    driver.enable()


def test_thresholds(driver: QsfpTransponder) -> None:
    thresholds = driver.thresholds()
    assert thresholds["temperature"] == Thresholds(75.0, -5.0, 70.0, 0.0)
    assert thresholds["tx_bias"] == Thresholds(75.0, 10.0, 70.0, 15.0)
    rx = thresholds["rx_power"]
    assert [rx.high_alarm, rx.low_alarm, rx.high_warning, rx.low_warning] == pytest.approx(
        [5.0, -14.5, 4.0, -12.5], abs=5e-3
    )


def test_a_missing_page_3_leaves_no_thresholds(module: Module) -> None:
    del module.pages[0x03]
    driver = opened(module)
    assert driver.thresholds() == {}
    assert ("tx_fault", 1) in driver.masks()
    assert ("tx_power_low_alarm", 1) not in driver.masks()
    driver.enable()


# -- transmitters


def test_all_transmitters_are_switched_and_verified(driver: QsfpTransponder, module: Module) -> None:
    driver.disable()
    assert module.pages[None][86] == 0x0F
    assert [item.tx_power_dbm for item in driver.lane_monitors()] == [None] * 4
    assert driver.status().tx_disabled
    driver.enable()
    assert not driver.status().tx_disabled
    assert driver.monitors().tx_power_dbm == pytest.approx(6.0206, abs=1e-4)


def test_one_lane_leaves_the_others_alone(driver: QsfpTransponder, module: Module) -> None:
    driver.disable_lane(3)
    assert module.pages[None][86] == 0b0100
    assert [item.tx_disabled for item in driver.lane_status()] == [False, False, True, False]
    assert not driver.status().tx_disabled
    driver.disable_lane(1)
    driver.enable_lane(3)
    assert module.pages[None][86] == 0b0001


@pytest.mark.parametrize("lane", [0, 5])
def test_there_are_four_lanes(driver: QsfpTransponder, lane: int) -> None:
    with pytest.raises(ConfigError, match=f"there is no lane {lane}"):
        driver.disable_lane(lane)


def test_a_transmitter_that_stays_on_is_an_error(driver: QsfpTransponder, module: Module) -> None:
    module.stuck_on = 0b0010
    with pytest.raises(VerifyError, match=r"the transmitter of lane 2 still emits light 0.5 s after"):
        driver.disable()


def test_strong_received_light_does_not_hinder_switching(driver: QsfpTransponder, module: Module) -> None:
    module.pages[None][34:42] = b"\xff" * 8
    driver.disable()
    driver.enable()
    assert module.pages[None][86] == 0x00


def test_an_ignored_register_is_an_error(driver: QsfpTransponder, module: Module) -> None:
    module.obeys = False
    with pytest.raises(VerifyError, match=r"register tx_disable \(byte 86\) did not change"):
        driver.disable()


def test_a_dark_transmitter_is_an_error(driver: QsfpTransponder, module: Module) -> None:
    driver.disable()
    module.laser_delay_s = 1e9
    with pytest.raises(
        DeviceError, match=r"did not start within 90.* s: lane 1 dark, lane 2 dark, lane 3 dark, lane 4"
    ):
        driver.enable()


def test_a_fault_ends_the_wait(driver: QsfpTransponder, module: Module) -> None:
    driver.disable()
    module.causes[4] = 0x04
    module.laser_delay_s = 1e9
    with pytest.raises(DeviceError, match=r"within 0\.\d+ s: fault of lane 3"):
        driver.enable()


def test_a_fault_of_the_past_does_not_count(driver: QsfpTransponder, module: Module) -> None:
    module.pages[None][4] = 0x0F
    driver.enable()
    assert {flag.name for flag in driver.flags()} == {"tx_fault"}


def test_a_power_outside_the_limits_of_the_module_is_not_on(driver: QsfpTransponder, module: Module) -> None:
    module.pages[0x03][66:68] = b"\x27\x11"  # low alarm just above the 1 mW of each lane
    with pytest.raises(DeviceError, match=r"lane 1 0\.0 dBm"):
        driver.enable()


# -- status and flags


def test_status_shows_the_present_and_remembers_the_past(driver: QsfpTransponder, module: Module) -> None:
    module.pages[None][3] = 0x02  # loss of signal of lane 2, in the past
    before_s = module.clock.now()
    assert not driver.status().rx_los
    assert module.clock.now() - before_s == pytest.approx(0.2)
    assert [(flag.name, flag.lane, flag.count) for flag in driver.flags()] == [("rx_los", 2, 1)]


def test_status_is_fast_without_flags(driver: QsfpTransponder, module: Module) -> None:
    before_s = module.clock.now()
    status = driver.status()
    assert (status.rx_los, status.tx_fault, status.data_ready) == (False, False, True)
    assert module.clock.now() == before_s


def test_status_of_each_lane(driver: QsfpTransponder, module: Module) -> None:
    module.causes |= {3: 0x81, 4: 0x02, 5: 0x40 | 0x04}
    module.pages[None][3:6] = b"\x81\x02\x44"
    lanes = driver.lane_status()
    assert [item.rx_los for item in lanes] == [True, False, False, False]
    assert [item.tx_los for item in lanes] == [False, False, False, True]
    assert [item.tx_fault for item in lanes] == [False, True, False, False]
    assert [item.tx_lol for item in lanes] == [False, False, True, False]
    assert [item.rx_lol for item in lanes] == [False, False, True, False]
    assert (driver.status().rx_los, driver.status().tx_fault) == (True, True)


def test_what_is_not_announced_is_none(module: Module) -> None:
    change(module, 194, 0x00)
    change(module, 195, 0x00)
    lane = opened(module).lane_status()[0]
    assert (lane.rx_los, lane.tx_los, lane.tx_fault, lane.rx_lol, lane.tx_lol, lane.tx_disabled) == (
        False,
        None,
        None,
        None,
        None,
        None,
    )


def test_flags_are_kept_until_they_are_cleared(driver: QsfpTransponder, module: Module) -> None:
    """Byte 9 bit 6: Rx1 power low alarm; byte 6 bit 5: temperature high warning."""
    module.pages[None][9] = 0x40
    module.pages[None][6] = 0x20
    names = {("rx_power_low_alarm", 1), ("temperature_high_warning", None)}
    assert {(flag.name, flag.lane) for flag in driver.flags()} == names
    assert {(flag.name, flag.lane) for flag in driver.flags()} == names
    module.causes[9] = 0x40
    module.pages[None][9] = 0x40
    driver.clear_flags()
    assert [(flag.name, flag.lane, flag.count) for flag in driver.flags()] == [("rx_power_low_alarm", 1, 1)]


def test_every_reading_of_the_flags_is_remembered(driver: QsfpTransponder, module: Module) -> None:
    for call in (driver.status, driver.lane_status, driver.enable, driver.disable):
        module.pages[None][11] = 0x80
        call()
        assert [flag.name for flag in driver.flags()] == ["tx_bias_high_alarm"]
        driver.clear_flags()


def test_monitors_and_identity_clear_no_flags(driver: QsfpTransponder, module: Module) -> None:
    module.pages[None][3] = 0x0F
    driver.monitors()
    driver.identify()
    driver.thresholds()
    driver.masks()
    assert module.pages[None][3] == 0x0F


# -- masks, clock recovery, rate


def test_masks_of_module_and_lanes(driver: QsfpTransponder, module: Module) -> None:
    driver.set_mask("tx_fault", 4, True)
    assert module.pages[None][101] == 0x08
    driver.set_mask("temperature_low_alarm", None, True)
    assert module.pages[None][103] == 0x40
    driver.set_mask("tx_power_low_warning", 3, True)
    assert module.pages[0x03][247 - 128] == 0x10
    masks = driver.masks()
    assert {key for key, masked in masks.items() if masked} == {
        ("tx_fault", 4),
        ("temperature_low_alarm", None),
        ("tx_power_low_warning", 3),
    }
    driver.set_mask("tx_fault", 4, False)
    assert module.pages[None][101] == 0x00


def test_a_flag_that_the_module_lacks_cannot_be_masked(driver: QsfpTransponder) -> None:
    with pytest.raises(NotSupportedError, match="the module does not have this flag"):
        driver.set_mask("initialization_complete", None, True)
    with pytest.raises(NotSupportedError):
        driver.set_mask("rx_los", None, True)


def test_clock_recoveries(driver: QsfpTransponder, module: Module) -> None:
    driver.set_cdr("tx", False, (1, 4))
    assert module.pages[None][98] == 0x6F
    assert driver.cdr("tx") == (False, True, True, False)
    driver.set_cdr("rx", False)
    assert module.pages[None][98] == 0x60
    assert driver.cdr("rx") == (False,) * 4


@pytest.mark.parametrize(
    ("byte", "value", "words"),
    [(129, 0xC4, r"the module has none \(bit 129\.3\)"), (194, 0x7F, r"does not announce the control \(bit 194\.7\)")],
)
def test_a_clock_recovery_that_is_not_announced_is_refused(module: Module, byte: int, value: int, words: str) -> None:
    change(module, byte, value)
    driver = opened(module)
    with pytest.raises(NotSupportedError, match=words):
        driver.set_cdr("tx", True)
    with pytest.raises(NotSupportedError):
        driver.cdr("tx")
    driver.set_cdr("rx", False)


def test_rate_select(module: Module) -> None:
    change(module, 195, 0xBE)
    driver = opened(module)
    driver.set_rate_select("tx", 2, (1, 3))
    assert module.pages[None][88] == 0b0010_0010
    driver.set_rate_select("rx", 1)
    assert module.pages[None][87] == 0b0101_0101
    assert (driver.rate_select("tx"), driver.rate_select("rx")) == ((2, 0, 2, 0), (1, 1, 1, 1))
    with pytest.raises(ConfigError, match="rate code 4"):
        driver.set_rate_select("tx", 4)


# -- power


def test_power_modes(driver: QsfpTransponder, module: Module) -> None:
    driver.power_down()
    assert module.pages[None][93] == 0x03
    module.clock.sleep(0.1)
    assert driver.monitors().tx_power_dbm is None
    driver.power_up()
    assert module.pages[None][93] == 0x01
    control = driver.power_control()
    assert (control.by_software, control.low_power, control.class_5_to_7, control.class_8) == (
        True,
        False,
        False,
        False,
    )


@pytest.mark.parametrize(
    ("byte", "limit", "register"), [(0xC1, 5, 0x05), (0xC3, 7, 0x05), (0x20, 8, 0x09), (0xE3, 8, 0x09)]
)
def test_high_power_is_enabled_by_the_bit_of_its_class(module: Module, byte: int, limit: int, register: int) -> None:
    """93.2 for classes 5 to 7 and 93.3 for class 8 (SFF-8636 Table 6-11)."""
    change(module, 129, byte | 0x0C)
    module.pages[None][107] = 60
    driver = opened(module, max_power_class=limit)
    driver.power_up()
    assert module.pages[None][93] == register
    driver.power_down()
    assert module.pages[None][93] == 0x03


@pytest.mark.parametrize(
    ("byte", "limit", "words"),
    [
        (0xC2, 4, r"power class of the module \(4\.5 W\): requested 6, limit 4"),
        (0x20, 7, r"power class of the module \(6 W\): requested 8, limit 7"),
        (0xC0, 3, r"power class of the module \(3\.5 W\): requested 4, limit 3"),
    ],
)
def test_more_power_than_the_cage_has_is_never_enabled(module: Module, byte: int, limit: int, words: str) -> None:
    change(module, 129, byte | 0x0C)
    module.pages[None][107] = 60
    module.pages[None][86] = 0x0F
    driver = opened(module, max_power_class=limit)
    for call in (driver.power_up, driver.enable):
        with pytest.raises(LimitError, match=words):
            call()
    assert (module.pages[None][93], module.pages[None][86]) == (0x00, 0x0F)
    assert len(driver.warnings) == 1


def test_enabling_wakes_a_module(driver: QsfpTransponder, module: Module) -> None:
    driver.power_down()
    driver.enable()
    assert module.pages[None][93] == 0x01


def test_a_module_of_class_1_needs_no_register(module: Module) -> None:
    change(module, 129, 0x0C)
    driver = opened(module, max_power_class=1)
    driver.power_up()
    assert written(module, 93) == []
    driver.power_down()
    driver.power_up()
    assert module.pages[None][93] == 0x01


def test_a_reset_returns_the_settings_to_their_defaults(driver: QsfpTransponder, module: Module) -> None:
    driver.disable()
    driver.reset()
    assert module.pages[None][86] == 0x00
    assert driver.identify() == IDENTITY


def test_a_reset_that_is_not_announced_is_refused(module: Module) -> None:
    change(module, 221, 0x10)
    with pytest.raises(NotSupportedError, match=r"a software reset is not supported.*221\.0"):
        opened(module).reset()


class Pins:
    """The low-speed signals of a socket, as an adapter has them."""

    def __init__(self, **asserted: bool) -> None:
        self.wired, self.asserted, self.log = dict.fromkeys(asserted, 3), asserted, list[tuple[str, bool]]()
        self.on_reset: Callable[[], None] = lambda: None

    def is_asserted(self, signal: str) -> bool:
        return self.asserted[signal]

    def assert_signal(self, signal: str, asserted: bool) -> None:
        self.log.append((signal, asserted))
        if not asserted:
            self.on_reset()


def test_a_wired_reset_pin_resets_a_module_without_software_reset(module: Module) -> None:
    change(module, 221, 0x10)
    pins = Pins(reset_l=False)
    pins.on_reset = module.reset
    driver = opened(module, pins=pins)
    driver.disable()
    driver.reset()
    assert pins.log == [("reset_l", True), ("reset_l", False)]
    assert module.pages[None][86] == 0x00


def test_an_empty_socket_is_seen_by_its_pin(module: Module) -> None:
    with pytest.raises(ModuleAbsentError, match=r"no module in the socket \(ModPrsL is high\)"):
        opened(module, pins=Pins(mod_prs_l=False))
    assert opened(module, pins=Pins(mod_prs_l=True)).identify() == IDENTITY


# -- cables


@pytest.fixture
def copper(clock: VirtualClock) -> QsfpTransponder:
    return opened(Module(clock, cable()))


def test_a_cable_has_an_identity_and_no_monitors(copper: QsfpTransponder) -> None:
    identity = copper.identify()
    assert (identity.part_number, identity.wavelength_nm) == ("DAC-3M", 0.0)
    assert copper.is_flat
    assert not copper.can_switch()
    monitors = copper.monitors()
    assert (monitors.temperature_c, monitors.supply_v, monitors.tx_bias_ma) == (None, None, None)
    assert (monitors.tx_power_dbm, monitors.rx_power_dbm) == (None, None)
    assert copper.lane_monitors() == tuple(LaneMonitors(lane, None, None, None) for lane in (1, 2, 3, 4))
    assert copper.thresholds() == {}


@pytest.mark.parametrize(
    "call",
    [
        QsfpTransponder.enable,
        QsfpTransponder.disable,
        QsfpTransponder.status,
        QsfpTransponder.power_up,
        QsfpTransponder.power_down,
        QsfpTransponder.reset,
        lambda driver: driver.enable_lane(1),
        lambda driver: driver.set_cdr("rx", True),
        lambda driver: driver.rate_select("rx"),
    ],
)
def test_a_cable_refuses_what_it_does_not_announce(
    copper: QsfpTransponder, call: Callable[[QsfpTransponder], object]
) -> None:
    with pytest.raises(NotSupportedError) as refused:
        call(copper)
    assert isinstance(refused.value, LumionError)
    assert "is not supported: " in refused.value.message


# -- dumps


def test_a_dump_has_all_pages_and_decodes_to_the_same_identity(driver: QsfpTransponder, module: Module) -> None:
    module.pages[None][3] = 0x0F
    image = driver.dump()
    assert image.source == "LUMION TEST QSFP28-LR4-TEST QT0000000001"
    assert set(image.halves) == {(0, None), (0, 0x00), (0, 0x02), (0, 0x03)}
    assert module.pages[None][3] == 0x0F  # reading the flags would clear them
    decoded = decode_qsfp(image)
    assert decoded.identity == IDENTITY
    assert decoded.field("rx_power", 1).value == pytest.approx(0.0)
    assert not any(item.name.endswith("_flag") for item in decoded.fields)
    assert not image.unreadable


def test_a_page_that_cannot_be_read_is_named(module: Module) -> None:
    del module.pages[0x02]
    image = opened(module).dump()
    assert set(image.halves) == {(0, None), (0, 0x00), (0, 0x03)}
    assert image.unreadable == {(0, 0x02): "the module announces this page, but does not have it"}


def test_page_0_in_place_of_a_missing_page_is_not_taken_for_it(clock: VirtualClock, tmp_path: Path) -> None:
    """Linux drivers show it so in a memory file."""
    pages = lr4()
    pages[0x02] = pages[0x03] = pages[0x00]
    (tmp_path / "eeprom").write_bytes(linear(pages))
    driver = QsfpTransponder(LinearPages(str(tmp_path / "eeprom"), clock, device="q1"), clock, device="q1")
    driver.open()
    assert driver.thresholds() == {}
    assert set(driver.dump().halves) == {(0, None), (0, 0x00)}
    driver.close()


def test_a_dump_of_a_cable(copper: QsfpTransponder) -> None:
    assert set(copper.dump().halves) == {(0, None), (0, 0x00)}


def test_the_module_under_test_is_the_one_written_down() -> None:
    """The check sums of the two memories, added up by hand."""
    pages = lr4()
    assert (pages[0x00][63], pages[0x00][95]) == (sum(pages[0x00][:63]) % 256, sum(pages[0x00][64:95]) % 256)
    assert [len(half) for half in (*pages.values(), *cable().values())] == [128] * 6
