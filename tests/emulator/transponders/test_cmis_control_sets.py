"""Staged sets, apply, every ConfigStatus, break-out, and quirks of real firmware."""

from __future__ import annotations

import pytest

from lumion_hw.emulator.transponders.cmis import ModuleQuirks
from tests.emulator.transponders.cmis_testbench import INIT_S, Host, lit, ready

SUCCESS, REJECTED, APPSEL, PATH, SI, IN_USE, PARTIAL, PROGRESS = 1, 2, 3, 4, 5, 6, 7, 0xC
DEACTIVATED, INIT, ACTIVATED, TURN_OFF, INITIALIZED = 1, 2, 4, 6, 7


def breakout(host: Host, app_sel: int = 2) -> None:
    """Stage four data paths of two host lanes."""
    for first in (1, 3, 5, 7):
        host.stage(app_sel, first, 2)


# ConfigStatus ---------------------------------------------------------------------------------------------------------


def test_apply_shows_in_progress_first_and_the_result_later() -> None:
    host = ready()
    host.stage(1, 1, 8)
    host.write(0x10, 143, 0xFF)
    assert host.statuses() == [PROGRESS] * 8
    host.wait(0.019)
    assert host.statuses() == [PROGRESS] * 8
    host.wait(0.002)
    assert host.statuses() == [SUCCESS] * 8
    assert host.lanes("data_path_init_pending") == 0xFF


def test_a_config_status_is_undefined_before_the_first_apply() -> None:
    assert ready().statuses() == [0] * 8


def test_the_active_set_is_what_was_staged_and_only_after_success() -> None:
    host = ready()
    before = host.read(0x11, 206, 8)
    mask = host.stage(9, 1, 8)
    assert host.apply(mask) == [APPSEL] * 8
    assert host.read(0x11, 206, 8) == before
    breakout(host)
    assert host.apply(0xFF) == [SUCCESS] * 8
    assert host.read(0x11, 206, 8) == bytes([0x20, 0x20, 0x24, 0x24, 0x28, 0x28, 0x2C, 0x2C])


@pytest.mark.parametrize("app_sel", [3, 8, 15])
def test_an_application_that_is_not_offered_is_status_3(app_sel: int) -> None:
    host = ready()
    host.stage(app_sel, 1, 8)
    assert host.apply(0xFF) == [APPSEL] * 8


def test_a_start_lane_that_is_not_allowed_is_status_4() -> None:
    host = ready()
    for lane in (2, 3):
        host.write(0x10, 144 + lane, 0x22)  # application 2 on host lane 2: only 1, 3, 5, 7
    assert host.apply(0x06)[1:3] == [PATH, PATH]


def test_a_lane_outside_the_range_of_its_data_path_is_status_4() -> None:
    host = ready()
    host.stage(2, 1, 2)
    host.write(0x10, 144 + 5, 0x20)  # lane 5 claims to belong to the path of lane 1
    assert host.apply(0x13)[4] == PATH


def test_part_of_a_data_path_is_status_7() -> None:
    host = ready()
    host.stage(1, 1, 8)
    assert host.apply(0x0F)[:4] == [PARTIAL] * 4
    assert host.statuses()[4:] == [0] * 4


def test_lanes_of_one_path_that_disagree_are_status_7() -> None:
    host = ready()
    host.stage(1, 1, 8)
    host.write(0x10, 144 + 8, 0x2C)
    assert host.apply(0xFF) == [PARTIAL] * 8


def test_taking_lanes_of_an_active_path_is_status_6() -> None:
    host = lit()
    host.stage(2, 1, 2)
    assert host.apply(0x03)[:2] == [IN_USE] * 2
    assert host.states() == [ACTIVATED] * 8


def test_regrouping_a_path_at_work_is_status_6_even_when_all_lanes_are_applied() -> None:
    host = lit()
    breakout(host)
    assert host.apply(0xFF) == [IN_USE] * 8
    assert host.get("active_app_sel", 1) == 1


def test_lanes_of_a_deactivated_path_can_only_be_taken_whole() -> None:
    host = ready()
    host.stage(2, 1, 2)
    assert host.apply(0x03)[:2] == [IN_USE] * 2
    breakout(host)
    assert host.apply(0xFF) == [SUCCESS] * 8


@pytest.mark.parametrize(
    ("byte", "value", "status"),
    [
        pytest.param(156, 0x08, SUCCESS, id="Tx EQ at its maximum 8"),
        pytest.param(156, 0x09, SI, id="Tx EQ above its maximum"),
        pytest.param(162, 0x04, SI, id="Rx pre-cursor above 3"),
        pytest.param(166, 0x06, SI, id="Rx post-cursor above 5"),
        pytest.param(170, 0x02, SUCCESS, id="Rx amplitude 2"),
        pytest.param(170, 0x03, SI, id="Rx amplitude 3 is not offered"),
    ],
)
def test_illegal_signal_integrity_values_are_status_5_under_explicit_control(
    byte: int, value: int, status: int
) -> None:
    host = ready()
    host.write(0x10, 153, 0x00)  # adaptive equalization off, so that the fixed one counts
    host.write(0x10, byte, value)
    host.stage(1, 1, 8)
    assert host.apply(0xFF) == [SUCCESS] * 8  # not used without explicit control
    host.stage(1, 1, 8, explicit=True)
    assert host.apply(0xFF) == [status] * 8


def test_explicit_values_become_active_and_others_do_not() -> None:
    host = ready()
    host.write(0x10, 162, 0x21, 0x03)  # Rx pre-cursor of lanes 1 to 4: 1, 2, 3, 0
    host.stage(1, 1, 8)
    host.apply(0xFF)
    assert host.read(0x11, 223, 2) == b"\x00\x00"
    host.stage(1, 1, 8, explicit=True)
    host.apply(0xFF)
    assert host.read(0x11, 223, 2) == b"\x21\x03"
    assert host.read(0x11, 206, 1) == b"\x11"


def test_the_active_set_shows_the_settings_of_the_application_without_explicit_control() -> None:
    """A host reads them before it changes some of them (SONiC, CMIS-custom-SI-settings, section 4)."""
    host = lit()
    default = host.read(0x11, 214, 21)
    assert default[0] == 0xFF  # adaptive equalization
    assert default[231 - 214 :] == b"\x11" * 4  # amplitude code 1
    host.write(0x10, 153, 0x00)
    host.write(0x10, 156, 0x33, 0x33, 0x33, 0x33)
    host.write(0x10, 170, 0x22, 0x22, 0x22, 0x22)
    host.stage(1, 1, 8, explicit=True)
    assert host.apply(0xFF, immediate=True) == [SUCCESS] * 8
    assert host.states() == [ACTIVATED] * 8
    assert host.read(0x11, 214, 21) == bytes([0, 0, 0, *[0x33] * 4, *[0xFF] * 2, *[0] * 8, *[0x22] * 4])
    host.stage(1, 1, 8)
    host.apply(0xFF, immediate=True)
    assert host.read(0x11, 214, 21) == default


def test_a_fixed_equalization_is_not_used_while_the_adaptive_one_is_on() -> None:
    host = ready()
    host.write(0x10, 156, 0x0F)
    host.stage(1, 1, 8, explicit=True)
    assert host.apply(0xFF) == [SUCCESS] * 8


def test_a_trigger_without_lanes_does_nothing() -> None:
    host = ready()
    assert host.apply(0x00) == [0] * 8


def test_lanes_at_work_ignore_another_trigger() -> None:
    host = ready()
    host.stage(1, 1, 8)
    host.write(0x10, 143, 0xFF)
    host.wait(0.015)
    host.stage(9, 1, 8)
    host.write(0x10, 143, 0xFF)
    host.wait(0.006)
    assert host.statuses() == [SUCCESS] * 8


# Decommissioning and break-out ----------------------------------------------------------------------------------------


def test_unused_lanes_are_taken_out_of_service() -> None:
    host = ready()
    for lane in range(1, 9):
        host.write(0x10, 144 + lane, 0x00)
    assert host.apply(0xFF) == [SUCCESS] * 8
    assert host.read(0x11, 206, 8) == bytes(8)
    assert host.module.data_path_states() == {}
    host.write(0x10, 128, 0x00)
    host.wait(60)
    assert host.states() == [DEACTIVATED] * 8


def test_decommissioning_a_path_at_work_is_status_6_and_a_part_of_one_status_7() -> None:
    host = lit()
    for lane in range(1, 9):
        host.write(0x10, 144 + lane, 0x00)
    assert host.apply(0x0F)[:4] == [PARTIAL] * 4
    assert host.apply(0xFF) == [IN_USE] * 8
    assert host.states() == [ACTIVATED] * 8


def test_some_modules_refuse_app_sel_0() -> None:
    host = ready()
    host.module.faults.inject("reject_appsel0")
    for lane in range(1, 9):
        host.write(0x10, 144 + lane, 0x00)
    assert host.apply(0xFF) == [REJECTED] * 8


def test_good_and_bad_data_paths_of_one_trigger_are_judged_apart() -> None:
    host = ready()
    breakout(host)
    assert host.apply(0xFF) == [SUCCESS] * 8
    host.stage(9, 5, 2)
    assert host.apply(0xFF) == [1, 1, 1, 1, APPSEL, APPSEL, 1, 1]


def test_a_path_is_not_torn_apart_when_some_of_its_lanes_get_nothing_new() -> None:
    host = ready()
    breakout(host)
    host.stage(9, 5, 2)
    assert host.apply(0xFF) == [6, 6, 6, 6, APPSEL, APPSEL, 6, 6]
    assert host.read(0x11, 206, 8) == b"\x10" * 8


def test_a_path_can_be_replaced_by_a_smaller_one_and_unused_lanes() -> None:
    host = ready()
    host.stage(2, 1, 2)
    for lane in range(3, 9):
        host.write(0x10, 144 + lane, 0x00)
    assert host.apply(0xFF) == [SUCCESS] * 8
    assert list(host.module.data_path_states()) == [1]


def test_break_out_paths_live_their_own_lives() -> None:
    host = ready("400g-dr4")
    breakout(host)
    assert host.apply(0xFF) == [SUCCESS] * 8
    host.write(0x10, 130, 0x00)
    host.write(0x10, 128, 0b1111_0011)  # only the path of lanes 3 and 4
    host.wait(4.2)
    assert host.states() == [1, 1, 4, 4, 1, 1, 1, 1]
    assert [host.module.light(lane).enabled for lane in range(1, 5)] == [False, True, False, False]
    host.write(0x10, 128, 0b0011_0011)
    host.wait(1)
    assert host.states() == [1, 1, 4, 4, 1, 1, 2, 2]


def test_data_paths_that_share_a_carrier_share_its_light() -> None:
    """Application 2 of the 400ZR: four host paths on media lane 1."""
    host = ready()
    breakout(host)
    host.apply(0xFF)
    host.write(0x10, 130, 0x00)
    host.write(0x10, 128, 0b1111_1100)
    host.wait(INIT_S + 0.1)
    assert host.states() == [4, 4, 1, 1, 1, 1, 1, 1]
    assert host.module.light(1).enabled
    host.write(0x10, 128, 0xFF)
    host.wait(0.001)
    assert not host.module.light(1).enabled


# Commissioning --------------------------------------------------------------------------------------------------------


def test_an_active_path_is_commissioned_again_without_intervention() -> None:
    host = lit()
    host.stage(1, 1, 8)
    host.write(0x10, 143, 0xFF)
    seen = [host.states()[0]]
    for _ in range(2400):
        host.wait(0.01)
        state = host.states()[0]
        if state != seen[-1]:
            seen.append(state)
    # 4 -> 6 -> (7) -> 3 -> (1) -> 2 -> (7) -> 5 -> 4: states in brackets are steady and left at once
    assert seen == [4, 6, 3, 2, 5, 4] or seen == [4, 3, 2, 5, 4]
    assert host.lanes("data_path_init_pending") == 0x00


def test_init_pending_lasts_until_the_initialisation_is_over() -> None:
    host = ready()
    host.stage(1, 1, 8)
    host.apply(0xFF)
    host.wait(100)
    assert host.lanes("data_path_init_pending") == 0xFF  # still held down
    host.write(0x10, 128, 0x00)
    host.wait(INIT_S - 0.01)
    assert host.lanes("data_path_init_pending") == 0xFF
    host.wait(0.02)
    assert host.lanes("data_path_init_pending") == 0x00


def test_a_stepped_only_module_wants_the_path_deactivated_first() -> None:
    host = lit(quirks=ModuleQuirks(stepped_config_only=True))
    assert host.get("stepped_config_only") is True
    host.stage(1, 1, 8)
    assert host.apply(0xFF) == [IN_USE] * 8
    host.write(0x10, 128, 0xFF)
    host.wait(1)
    assert host.apply(0xFF) == [SUCCESS] * 8


def test_a_path_on_its_way_takes_no_configuration() -> None:
    host = ready()
    host.write(0x10, 128, 0x00)
    host.wait(1)
    host.stage(1, 1, 8)
    assert host.states() == [INIT] * 8
    assert host.apply(0xFF) == [IN_USE] * 8


def test_apply_immediate_changes_settings_without_leaving_the_state() -> None:
    host = lit()
    host.write(0x10, 162, 0x11)
    host.stage(1, 1, 8, explicit=True)
    assert host.apply(0xFF, immediate=True) == [SUCCESS] * 8
    assert host.read(0x11, 223, 1) == b"\x11"
    host.wait(5)
    assert host.states() == [ACTIVATED] * 8
    assert host.lanes("data_path_init_pending") == 0


def test_apply_immediate_is_ignored_where_hot_changes_are_not_supported() -> None:
    host = lit(quirks=ModuleQuirks(stepped_config_only=True))
    host.stage(1, 1, 8)
    assert host.apply(0xFF, immediate=True) == [0] * 8


def test_staged_set_1_works_where_it_is_advertised() -> None:
    host = ready("400g-dr4")
    for lane in range(1, 9):
        host.write(0x10, 179 + lane, 0x20 | (lane - 1) // 2 * 2 << 1)
    host.write(0x10, 178, 0xFF)
    host.wait(0.05)
    assert host.statuses() == [SUCCESS] * 8
    assert host.get("active_app_sel", 7) == 2
    plain = ready()
    plain.write(0x10, 178, 0xFF)
    plain.wait(0.05)
    assert plain.statuses() == [0] * 8
    plain.write(0x10, 180, 0x20)
    assert plain.read(0x10, 180) == b"\x00"


def test_a_module_can_be_configured_in_low_power() -> None:
    host = Host("400g-dr4")
    host.wait(0.6)
    breakout(host)
    assert host.apply(0xFF) == [SUCCESS] * 8
    host.write(None, 26, 0x00)
    host.wait(3.1 + 4.1 + 0.1)
    assert host.states() == [ACTIVATED] * 8
    assert host.module.data_path_states() == dict.fromkeys((1, 3, 5, 7), ACTIVATED)


# Firmware quirks ------------------------------------------------------------------------------------------------------


def test_config_status_can_stay_in_progress_for_ever() -> None:
    host = ready()
    host.module.faults.inject("stuck_config")
    host.stage(1, 1, 8)
    host.apply(0xFF)
    host.wait(300)
    assert host.statuses() == [PROGRESS] * 8


def test_config_status_can_take_seconds() -> None:
    host = ready(quirks=ModuleQuirks(apply_s=3.0))
    host.stage(1, 1, 8)
    host.write(0x10, 143, 0xFF)
    host.wait(2.9)
    assert host.statuses() == [PROGRESS] * 8
    host.wait(0.2)
    assert host.statuses() == [SUCCESS] * 8


def test_init_pending_may_not_be_raised_when_the_application_stays() -> None:
    host = ready()
    host.module.faults.inject("no_init_pending")
    host.stage(1, 1, 8)
    assert host.apply(0xFF) == [SUCCESS] * 8
    assert host.lanes("data_path_init_pending") == 0
    breakout(host)
    host.apply(0xFF)
    assert host.lanes("data_path_init_pending") == 0xFF


def test_init_pending_may_be_visible_for_milliseconds_only() -> None:
    host = ready(quirks=ModuleQuirks(init_pending_s=0.004))
    host.stage(1, 1, 8)
    host.write(0x10, 143, 0xFF)
    host.wait(0.022)
    assert host.lanes("data_path_init_pending") == 0xFF
    host.wait(0.005)
    assert host.lanes("data_path_init_pending") == 0


def test_raising_init_pending_of_one_path_may_clear_that_of_another() -> None:
    host = ready("400g-dr4", quirks=ModuleQuirks(init_pending_clobbers=True))
    breakout(host)
    host.apply(0xFF)
    host.stage(2, 3, 2)
    host.apply(0x0C)
    assert host.lanes("data_path_init_pending") == 0x0C


def test_initialisation_may_be_stuck_or_slow() -> None:
    host = ready()
    host.module.faults.inject("slow_init", 3.0)
    host.write(0x10, 128, 0x00)
    host.wait(3 * INIT_S - 0.1)
    assert host.states() == [INIT] * 8
    host.wait(0.2)
    assert host.states() == [INITIALIZED] * 8
    host.module.faults.inject("stuck_init")
    host.write(0x10, 128, 0xFF)
    host.wait(1)
    host.write(0x10, 128, 0x00)
    host.wait(600)
    assert host.states() == [INIT] * 8
