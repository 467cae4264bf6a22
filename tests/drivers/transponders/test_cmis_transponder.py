"""The CMIS driver on a scripted 400ZR module: the whole bring-up, each refusal, and each deadline."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.transponders.cmis import CmisTransponder
from lumion_hw.drivers.transponders.cmis.context import ModuleContext
from lumion_hw.errors import (
    ConfigError,
    ConfigRejectedError,
    ConnectError,
    DeviceError,
    DeviceTimeoutError,
    IdentityError,
    LimitError,
    LinkError,
    NotSupportedError,
    VerifyError,
)
from lumion_hw.interfaces import CoherentTransponder, LockStage
from lumion_hw.sessions.module.registers import ModuleAbsentError
from tests.drivers.transponders.cmis_peer import (
    ACTIVATED,
    COR,
    DEACTIVATED,
    FAULT,
    INIT,
    INITIALIZED,
    LOW_PWR,
    PWR_UP,
    READY,
    Peer,
    signed,
    text,
)


@pytest.fixture
def peer(clock: VirtualClock) -> Peer:
    return Peer(clock)


@pytest.fixture
def module(peer: Peer, clock: VirtualClock) -> Iterator[CmisTransponder]:
    driver = CmisTransponder(peer, clock=clock, device="zr1")
    driver.open()
    yield driver
    driver.close()


def state(peer: Peer) -> int:
    return peer.get(0x11, 128)[0] & 0x0F


# -- identity


def test_the_identity_is_complete_and_constant(module: CoherentTransponder) -> None:
    identity = module.identify()
    assert (identity.vendor, identity.part_number, identity.serial) == ("LUMION TEST", "ZR-400", "SN0001")
    assert identity.technology == "400ZR, DWDM, amplified (C-band tunable laser)"
    assert identity.wavelength_nm == pytest.approx(1552.5)


def test_what_it_advertises(module: CmisTransponder) -> None:
    found = module.capabilities()
    assert [(item.number, item.host_lanes, item.media_lanes) for item in found.applications] == [(1, 8, 1), (2, 2, 1)]
    assert found.applications[1].first_host_lanes == (1, 3, 5, 7)
    assert found.durations_s == {
        "power_up": 60.0,
        "power_down": 5.0,
        "dp_init": 60.0,
        "dp_deinit": 0.5,
        "tx_turn_on": 0.1,
        "tx_turn_off": 0.005,
    }
    assert {(item.grid, item.min_thz, item.max_thz) for item in found.tuning} == {
        ("6.25 GHz", 191.375, 196.1),
        ("75 GHz", 191.375, 196.1),
        ("100 GHz", 191.4, 196.1),
    }
    assert (found.fine_tuning_ghz, found.tx_power_dbm) == ((-6.0, 6.0, 0.1), (-22.0, 0.0))
    assert found.tunable
    assert found.coherent
    assert found.statistics
    assert found.loopbacks == ("media_input",)
    assert found.monitors == ("temperature", "supply", "aux2", "tx_power", "tx_bias", "rx_power")


@pytest.mark.parametrize(
    "expected", [{"expected_serial": "X"}, {"expected_part_number": "X"}, {"expected_vendor": "X"}]
)
def test_another_module_than_expected_is_refused(peer: Peer, clock: VirtualClock, expected: dict[str, str]) -> None:
    with pytest.raises(IdentityError, match=r"found LUMION TEST ZR-400 with serial SN0001"):
        CmisTransponder(peer, clock, device="zr1", **expected).open()  # type: ignore[arg-type]


def test_an_sfp_is_refused_by_name(peer: Peer, clock: VirtualClock) -> None:
    peer.lower[0] = 0x03
    with pytest.raises(IdentityError, match=r"identifier 0x03, SFP/SFP\+"):
        CmisTransponder(peer, clock).open()


def test_a_wrong_check_sum_is_a_warning_and_no_refusal(peer: Peer, clock: VirtualClock) -> None:
    peer.put(1, 191, b"x")
    driver = CmisTransponder(peer, clock)
    driver.open()
    assert driver.warnings == ("the checksum 01h:255 is wrong: some content of this page may be wrong",)
    assert driver.identify().serial == "SN0001"


def test_opening_and_reading_clear_no_flag(peer: Peer, clock: VirtualClock) -> None:
    marks = [(page, byte) for page in COR if page != 0 for byte in COR[page]]
    for page, byte in marks:
        peer.put(page, byte, b"\x5a")
    peer.put(None, 8, b"\x01\x02")
    driver = CmisTransponder(peer, clock=clock)
    driver.open()
    driver.capabilities()
    driver.monitors()
    driver.dump()
    driver.laser()
    driver.samples()
    assert peer.get(None, 8, 2) == b"\x01\x02"
    assert [mark for mark in marks if peer.get(*mark) != b"\x5a"] == []


def test_a_module_that_was_exchanged_is_not_written_to(module: CmisTransponder, peer: Peer) -> None:
    peer.put(0, 166, text("SN0002", 16))
    for action in (module.enable, module.disable, module.power_down, lambda: module.tune(193.2)):
        with pytest.raises(IdentityError, match=r"expected ZR-400 with serial SN0001, found ZR-400 with serial SN0002"):
            action()
    assert peer.log == []


def test_a_closed_module_is_a_link_error(module: CmisTransponder) -> None:
    module.close()
    for call in (module.identify, module.monitors, module.flags, module.enable, module.lock_state, module.dump):
        with pytest.raises(ConnectError, match="zr1 @ peer: the module is not open"):
            call()


# -- power


def test_power_up_clears_both_requests_and_nothing_else(clock: VirtualClock) -> None:
    peer = Peer(clock, ready=False)
    peer.lower[26] = 0xF0  # bank broadcast, pin allowed, squelch method, low power requested
    driver = CmisTransponder(peer, clock)
    driver.open()
    driver.power_up()
    assert peer.lower[26] == 0xA0
    assert [data for page, _, data in peer.log if page == 0x10] == []  # it was dark already
    assert peer.lower[3] >> 1 == READY
    assert clock.now() == pytest.approx(15.0, abs=0.6)


def test_power_up_leaves_the_transmitter_dark(clock: VirtualClock) -> None:
    peer = Peer(clock, ready=False)
    peer.put(0x10, 128, b"\x00\x00\x00")  # as after a reset: nothing but low power keeps it dark
    driver = CmisTransponder(peer, clock)
    driver.open()
    driver.power_up()
    clock.sleep(60.0)
    assert peer.log[0] == (0x10, 130, b"\xff")
    assert driver.status().tx_disabled
    assert driver.monitors().tx_power_dbm is None


def test_power_down_asks_by_software(module: CmisTransponder, peer: Peer) -> None:
    module.power_down()
    assert peer.lower[26] == 0x10
    assert module.module_state() == LOW_PWR


def test_power_down_by_the_pin(peer: Peer, clock: VirtualClock) -> None:
    peer.pin = True
    driver = CmisTransponder(peer, clock, quirks={"power_request": "pin"})
    driver.open()
    driver.power_down()
    assert peer.lower[26] == 0x40
    assert driver.module_state() == LOW_PWR


def test_a_pin_that_is_not_asserted_is_named(peer: Peer, clock: VirtualClock) -> None:
    driver = CmisTransponder(peer, clock, quirks={"power_request": "pin"})
    driver.open()
    with pytest.raises(DeviceTimeoutError, match="low-power pin is not asserted"):
        driver.power_down()


def test_a_module_that_does_not_power_up_is_given_up_at_1_5_times_its_time(clock: VirtualClock) -> None:
    peer = Peer(clock, ready=False)
    peer.stuck.add("power_up")
    driver = CmisTransponder(peer, clock)
    driver.open()
    with pytest.raises(DeviceTimeoutError, match=r"power_up: module state low_pwr for 90 s"):
        driver.power_up()
    assert clock.now() == pytest.approx(90.0, abs=0.5)


def test_a_fault_ends_power_up_at_once_with_its_cause(clock: VirtualClock) -> None:
    peer = Peer(clock, ready=False)
    driver = CmisTransponder(peer, clock)
    driver.open()
    peer.POWER_UP_S = 99.0

    def fault() -> None:
        peer._module(FAULT)
        peer.lower[41] = 1

    peer.later(3.0, fault)
    with pytest.raises(DeviceError, match="fault state: tec_runaway") as told:
        driver.power_up()
    assert told.value.code == 1
    assert clock.now() < 4.0


def test_a_reset_opens_it_anew(module: CmisTransponder, peer: Peer) -> None:
    module.reset()
    assert peer.writes(None, 26)[0] == b"\x08"
    assert module.module_state() == LOW_PWR


# -- enable and disable


def test_enable_initialises_and_switches_on(module: CmisTransponder, peer: Peer, clock: VirtualClock) -> None:
    module.enable()
    assert state(peer) == ACTIVATED
    assert (peer.get(0x10, 128), peer.get(0x10, 130)) == (b"\x00", b"\xfe")
    assert clock.now() == pytest.approx(20.0, abs=1.0)
    assert module.monitors().tx_power_dbm == pytest.approx(-10.0)
    assert not module.status().tx_disabled


def test_disable_is_dark_and_keeps_the_path_initialised(module: CmisTransponder, peer: Peer) -> None:
    module.enable()
    module.disable()
    assert state(peer) == INITIALIZED
    assert module.monitors().tx_power_dbm is None
    assert module.status().tx_disabled


def test_enable_powers_up_first(clock: VirtualClock) -> None:
    peer = Peer(clock, ready=False)
    driver = CmisTransponder(peer, clock)
    driver.open()
    driver.enable()
    assert (peer.lower[3] >> 1, state(peer)) == (READY, ACTIVATED)


def test_an_initialisation_that_hangs_names_stage_lane_and_state(
    module: CmisTransponder, peer: Peer, clock: VirtualClock
) -> None:
    peer.stuck.add("init")
    with pytest.raises(DeviceTimeoutError, match=r"dp_init: host lane 1 remains in state init for 90 s"):
        module.enable()
    assert clock.now() == pytest.approx(90.0, abs=0.6)


def test_a_module_that_drops_to_low_power_meanwhile_is_told(module: CmisTransponder, peer: Peer) -> None:
    peer.later(5.0, lambda: peer._module(LOW_PWR))
    with pytest.raises(DeviceError, match="dp_init: the module changed to state low_pwr"):
        module.enable()


def test_without_an_application_there_is_nothing_to_switch_on(module: CmisTransponder, peer: Peer) -> None:
    peer.put(0x11, 206, bytes(8))
    with pytest.raises(DeviceError, match="no application is selected"):
        module.enable()


def test_leaving_the_block_switches_off_what_was_switched_on_in_it(peer: Peer, clock: VirtualClock) -> None:
    with CmisTransponder(peer, clock) as driver:
        driver.enable()
    assert state(peer) == INITIALIZED


def test_a_transmitter_that_stays_lit_is_told(module: CmisTransponder, peer: Peer) -> None:
    module.enable()
    dp_state = peer.dp_state

    def lit(code: int) -> None:
        dp_state(code)
        peer.put(0x11, 154, bytes.fromhex("03e8"))

    peer.dp_state = lit  # type: ignore[method-assign]
    with pytest.raises(VerifyError, match=r"not dark after switching off: wrote Tx disable, read back -10\.00 dBm"):
        module.disable()


def test_cmis_3_inverts_the_deinit_bits(clock: VirtualClock) -> None:
    peer = Peer(clock)
    peer.lower[1] = 0x30
    driver = CmisTransponder(peer, clock)
    driver.open()
    with pytest.raises(DeviceTimeoutError):
        driver.enable()  # the script obeys CMIS 4 and later
    assert peer.get(0x10, 128) == b"\xff"


# -- application


def test_an_application_is_staged_and_applied(module: CmisTransponder, peer: Peer) -> None:
    module.select_application(2, first_lane=3)
    assert peer.writes(0x10, 147) == [b"\x24\x24"]  # AppSel 2, data path 2 (lane 3), no explicit control
    assert peer.writes(0x10, 143) == [b"\xff", b"\x0c"]  # the eight lanes of application 1 first went out of use
    assert [(path.application, path.host_lanes) for path in module.data_paths()] == [(2, (3, 4))]
    assert module.data_paths()[0].media_lanes == (1,)  # both starts share the only media lane
    assert state(peer) == DEACTIVATED


def test_the_same_lanes_are_not_put_out_of_use_first(module: CmisTransponder, peer: Peer) -> None:
    module.select_application(1)
    assert peer.writes(0x10, 145) == [b"\x10" * 8]
    assert peer.writes(0x10, 143) == [b"\xff"]


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (2, "rejected"),
        (3, "rejected_invalid_appsel"),
        (4, "rejected_invalid_data_path"),
        (5, "rejected_invalid_si"),
        (6, "rejected_lanes_in_use"),
        (7, "rejected_partial_data_path"),
        (0xD, "0x0D (vendor-specific)"),
    ],
)
def test_a_refused_application_names_lane_and_code(module: CmisTransponder, peer: Peer, code: int, name: str) -> None:
    peer.reject = code
    with pytest.raises(ConfigRejectedError, match=re.escape(f"host lane 1 reports {code:X}h, {name}")) as told:
        module.select_application(1)
    assert (told.value.lane, told.value.code, told.value.name) == (1, code, name)


def test_lanes_that_cannot_be_put_out_of_use_are_a_warning(module: CmisTransponder, peer: Peer) -> None:
    apply = peer._apply

    def refuse_first(mask: int) -> None:
        peer.reject = 3 if mask == 0xFF else None
        apply(mask)

    peer._apply = refuse_first  # type: ignore[method-assign]
    module.select_application(2, first_lane=1)
    assert "lanes could not be set to application 0 first: application 0 was refused" in module.warnings[0]


def test_an_apply_without_an_answer_is_given_up_after_10_s(module: CmisTransponder, peer: Peer) -> None:
    peer.stuck.add("config")
    with pytest.raises(DeviceTimeoutError, match=r"config_in_progress: host lane 1 shows in_progress for 10 s"):
        module.select_application(1)


def test_an_application_that_is_not_offered_there_is_refused_before_anything_is_written(
    module: CmisTransponder, peer: Peer
) -> None:
    for number, lane in ((3, 1), (2, 2), (0, 1)):
        with pytest.raises(ConfigError, match=r"The module offers: 1 \(400GAUI-8 C2M to 400ZR, DWDM, amplified\)"):
            module.select_application(number, lane)
    assert peer.log == []


def test_a_path_that_never_comes_to_rest_is_named(module: CmisTransponder, peer: Peer) -> None:
    peer.dp_state(INIT)
    with pytest.raises(DeviceTimeoutError, match=r"dp_init: host lane 1 remains in state init"):
        module.select_application(1)


def test_an_old_refusal_is_not_taken_for_the_answer(module: CmisTransponder, peer: Peer) -> None:
    peer.put(0x11, 202, b"\x33" * 4)
    apply = peer._apply

    def slowly(mask: int) -> None:
        peer.later(0.2, lambda: apply(mask))

    peer._apply = slowly  # type: ignore[method-assign]
    module.select_application(1)


# -- laser


@pytest.mark.parametrize(
    ("thz", "grid", "written", "fine"),
    [
        (193.2, "100 GHz", b"\x50" + signed(1), 0.0),
        (191.375, "75 GHz", b"\x70" + signed(-69), 0.0),
        (193.775, "75 GHz", b"\x70" + signed(27), 0.0),  # 675 GHz above the anchor: 9 channels of 75 GHz
        (193.10625, "6.25 GHz", b"\x10" + signed(1), 0.0),
        (193.2001, "100 GHz", b"\x51" + signed(1), 0.1),
    ],
)
def test_any_frequency_becomes_grid_channel_and_offset(
    module: CmisTransponder, peer: Peer, thz: float, grid: str, written: bytes, fine: float
) -> None:
    result = module.tune(thz)
    assert (result.grid, result.fine_ghz) == (grid, pytest.approx(fine))
    assert result.frequency_thz == pytest.approx(thz, abs=1e-9)
    assert peer.get(0x12, 128) + peer.get(0x12, 136, 2) == written
    assert module.laser()["current_frequency"].value == pytest.approx(thz)


def test_a_grid_can_be_asked_for(module: CmisTransponder) -> None:
    assert module.tune(193.4, grid_ghz=6.25).grid == "6.25 GHz"
    with pytest.raises(LimitError, match="no 50 GHz grid"):
        module.tune(193.4, grid_ghz=50.0)


def test_a_frequency_the_laser_cannot_make_is_refused_before_anything_is_written(
    module: CmisTransponder, peer: Peer
) -> None:
    with pytest.raises(LimitError, match=r"zr1 @ peer: .*nearest 196106000 MHz"):
        module.tune(196.2)  # 196.1 THz and 6 GHz of fine tuning
    with pytest.raises(LimitError, match="193103000 MHz and 193103050 MHz"):
        module.tune(193.10303)
    assert peer.log == []


def test_a_path_that_was_active_is_active_again_after_tuning(
    module: CmisTransponder, peer: Peer, clock: VirtualClock
) -> None:
    module.enable()
    before = clock.now()
    module.tune(193.2)
    assert state(peer) == ACTIVATED
    assert clock.now() - before == pytest.approx(0.3 + 5.0 + 20.0, abs=2.0)
    module.disable()
    module.tune(193.3)
    assert state(peer) == INITIALIZED


@pytest.mark.parametrize(
    ("bit", "name"), [(0x04, "invalid_channel"), (0x08, "tuning_not_accepted"), (0x10, "fine_tuning_oor")]
)
def test_a_refused_tuning_names_the_flag(module: CmisTransponder, peer: Peer, bit: int, name: str) -> None:
    peer.tuning_flag = bit
    with pytest.raises(DeviceError, match=rf"refused: {name}; the laser stays at 193100000 MHz"):
        module.tune(193.2)
    found = module.laser()
    assert (found["configured_frequency"].value, found["current_frequency"].value) == (193.2, 193.1)
    assert [flag.name for flag in module.flags() if flag.name == name] == [name]


def test_an_invalid_channel_between_grid_and_channel_is_no_refusal(module: CmisTransponder, peer: Peer) -> None:
    peer.put(0x12, 231, b"\x04")
    assert module.tune(193.175).grid == "75 GHz"


def test_a_laser_that_does_not_settle_is_given_up_after_180_s(
    module: CmisTransponder, peer: Peer, clock: VirtualClock
) -> None:
    peer.stuck.add("tuning")
    with pytest.raises(DeviceTimeoutError, match=r"media lane 1 is tuning_in_progress, wavelength_unlocked at 1931"):
        module.tune(193.2)
    assert clock.now() == pytest.approx(180.0, abs=2.0)


def test_output_power_has_limits_and_is_read_back(module: CmisTransponder, peer: Peer) -> None:
    module.set_tx_power_dbm(-7.25)
    assert peer.get(0x12, 200, 2) == signed(-725)
    for power_dbm in (-22.01, 0.01):
        with pytest.raises(LimitError, match="output power"):
            module.set_tx_power_dbm(power_dbm)
    with pytest.raises(VerifyError, match="TargetOutputPowerOOR"):
        module.set_tx_power_dbm(-12.34)


def test_a_module_in_low_power_is_not_tuned(clock: VirtualClock) -> None:
    driver = CmisTransponder(Peer(clock, ready=False), clock)
    driver.open()
    with pytest.raises(DeviceError, match="not ready; its state is low_pwr"):
        driver.tune(193.2)
    with pytest.raises(DeviceError, match="not ready; its state is low_pwr"):
        driver.select_application(1)


# -- pulled in the middle, flat memory, wrong page


def test_a_module_pulled_while_it_tunes_is_absent_at_once(
    module: CmisTransponder, peer: Peer, clock: VirtualClock
) -> None:
    peer.later(2.0, lambda: setattr(peer, "plugged", False))
    with pytest.raises(ModuleAbsentError, match="zr1 @ peer"):
        module.tune(193.2)
    assert clock.now() < 4.0
    assert module.wait_for_lock(10.0).stage is LockStage.ABSENT
    with pytest.raises(LinkError):
        module.identify()


def test_a_flat_memory_works_for_what_it_has(clock: VirtualClock) -> None:
    peer = Peer(clock)
    peer.lower[2] = 0x80
    for page in list(peer.pages):
        if page:
            del peer.pages[page]
    driver = CmisTransponder(peer, clock)
    driver.open()
    assert driver.identify().serial == "SN0001"
    assert len(driver.capabilities().applications) == 2
    assert driver.dump().half(0x00) is not None
    for call in (driver.enable, driver.monitors, driver.status, driver.power_up, driver.lock_state):
        with pytest.raises(NotSupportedError):
            call()
    with pytest.raises(NotSupportedError):
        driver.tune(193.1)
    assert driver.flags() == ()


def test_states_are_read_not_remembered(module: CmisTransponder, peer: Peer) -> None:
    peer._module(PWR_UP)
    assert module.module_state() == PWR_UP
    peer.dp_state(INIT)
    assert module.data_path_states()[8] == "init"


def test_what_takes_minutes_is_asked_for_less_often_and_noticed_a_fiftieth_later_at_most(clock: VirtualClock) -> None:
    looks: list[float] = []

    def done() -> bool:
        looks.append(clock.now())
        return looks[-1] - looks[0] >= 100.0

    ModuleContext.wait(cast(Any, SimpleNamespace(clock=clock)), done, 200.0, lambda: "tuning")
    assert looks[-1] - looks[0] <= 102.0
    assert np.diff(looks[:40]).max() < 0.251  # as quick as ever in the first ten seconds
    assert len(looks) < 200  # every quarter of a second: 400
