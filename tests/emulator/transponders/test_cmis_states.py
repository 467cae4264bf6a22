"""Module and data path state machines of the emulated module: transitions, times, low power, reset, faults."""

from __future__ import annotations

import pytest

from lumion_hw.emulator.transponders.cmis import PROFILES, ModuleQuirks
from lumion_hw.standards.cmis.codec import DURATION_BOUNDS_S
from tests.emulator.transponders.cmis_testbench import GOOD_LIGHT, INIT_S, POWER_UP_S, Host, lit, ready

LOW, UP, READY, DOWN, FAULT = 1, 2, 3, 4, 5
DEACTIVATED, INIT, DEINIT, ACTIVATED, TURN_ON, TURN_OFF, INITIALIZED = range(1, 8)


def module_state(host: Host) -> int:
    return host.module.read(3, 1)[0] >> 1 & 7


# Module --------------------------------------------------------------------------------------------------------------


def test_an_asserted_pin_keeps_the_module_in_low_power_after_power_on() -> None:
    host = Host(low_power_pin=True)
    host.wait(100)
    assert module_state(host) == LOW
    assert host.module.read(26, 1) == b"\x40"
    assert set(host.states()) == {DEACTIVATED}


def test_a_deasserted_pin_lets_the_module_light_up_by_itself() -> None:
    host = Host(low_power_pin=False)
    host.wait(0.5 + POWER_UP_S + INIT_S + 0.05 + 0.001)
    assert host.states() == [ACTIVATED] * 8
    assert host.sent[-1].enabled
    assert host.sent[-1].at_s == pytest.approx(100 + 0.5 + 15 + 20 + 0.05)


def test_power_up_takes_its_time_and_stays_below_what_is_advertised() -> None:
    host = Host()
    host.wait(0.6)
    host.write(None, 26, 0x00)
    assert module_state(host) == UP
    host.wait(POWER_UP_S - 0.01)
    assert module_state(host) == UP
    host.wait(0.02)
    assert module_state(host) == READY
    assert DURATION_BOUNDS_S[host.raw("max_duration_power_up")] >= POWER_UP_S * 1.2


@pytest.mark.parametrize("profile", PROFILES)
def test_advertised_durations_are_the_smallest_codes_above_the_true_ones(profile: str) -> None:
    """The advertised code is the smallest one whose bound is at least the delay times 1.2."""
    timing = PROFILES[profile].timing
    host = Host(profile)
    host.wait(0.6)
    for name, seconds in (
        ("power_up", timing.power_up_s),
        ("dp_init", timing.dp_init_s),
        ("dp_deinit", timing.dp_deinit_s),
        ("tx_turn_on", timing.tx_turn_on_s),
        ("tx_turn_off", timing.tx_turn_off_s),
    ):
        code = host.raw(f"max_duration_{name}")
        assert DURATION_BOUNDS_S[code] >= seconds * 1.2 > DURATION_BOUNDS_S[code - 1], name


@pytest.mark.parametrize(
    ("low", "high", "pin"),
    [
        pytest.param(0x10, 0x00, True, id="A: software bit"),
        pytest.param(0x60, 0x20, True, id="B: by the pin"),
        pytest.param(0x40, 0x00, True, id="B: clear b6 only"),
        pytest.param(0x50, 0x00, True, id="CMIS 4: both bits"),
        pytest.param(0x50, 0x40, False, id="software bit, pin deasserted"),
    ],
)
def test_every_style_of_low_power_request_works(low: int, high: int, pin: bool) -> None:
    host = Host(low_power_pin=pin)
    host.wait(0.6)
    host.write(None, 26, low)
    host.wait(40)
    assert module_state(host) == LOW
    host.write(None, 26, high)
    host.wait(POWER_UP_S + 0.1)
    assert module_state(host) == READY
    host.write(None, 26, low)
    host.wait(0.01)
    assert module_state(host) == DOWN
    host.wait(5)
    assert module_state(host) == LOW


def test_the_pin_alone_does_nothing_when_it_is_not_allowed_to() -> None:
    host = ready()
    host.module.set_low_power_pin(True)
    host.wait(10)
    assert module_state(host) == READY
    host.write(None, 26, 0x40)
    host.wait(10)
    assert module_state(host) == LOW
    host.module.set_low_power_pin(False)
    host.wait(POWER_UP_S + 0.1)
    assert module_state(host) == READY


def test_the_history_tells_every_step_and_its_time() -> None:
    host = Host(low_power_pin=False)
    host.wait(40)
    steps = [(step.machine, step.before, step.after, round(step.at_s - 100, 3)) for step in host.module.history]
    assert steps == [
        ("module", None, None, 0.0),
        ("module", None, LOW, 0.5),
        ("module", LOW, UP, 0.5),
        ("module", UP, READY, 15.5),
        ("data path 1", DEACTIVATED, INIT, 15.5),
        ("data path 1", INIT, INITIALIZED, 35.5),
        ("data path 1", INITIALIZED, TURN_ON, 35.5),
        ("data path 1", TURN_ON, ACTIVATED, 35.55),
    ]


def test_low_power_during_power_up_turns_round() -> None:
    host = Host()
    host.wait(0.6)
    host.write(None, 26, 0x00)
    host.wait(5)
    host.write(None, 26, 0x10)
    assert module_state(host) == DOWN
    host.wait(2.01)
    assert module_state(host) == LOW


def test_power_down_takes_the_data_paths_down_first() -> None:
    host = lit()
    host.write(None, 26, 0x10)
    assert module_state(host) == DOWN
    assert host.states() == [TURN_OFF] * 8
    assert host.sent[-1].enabled is False
    host.wait(0.006)
    assert host.states() == [DEINIT] * 8
    host.wait(0.31)
    assert host.states() == [DEACTIVATED] * 8
    assert module_state(host) == DOWN
    host.wait(1.7)
    assert module_state(host) == LOW
    bound = DURATION_BOUNDS_S[host.raw("max_duration_power_down")]
    assert bound >= 2.0 + 0.305


def test_in_low_power_every_data_path_is_deactivated_whatever_deinit_says() -> None:
    host = lit()
    host.write(None, 26, 0x10)
    host.wait(5)
    assert host.read(0x10, 128) == b"\x00"
    assert host.states() == [DEACTIVATED] * 8


def test_state_changes_are_flagged_in_steady_states_only() -> None:
    host = Host()
    host.wait(0.6)
    assert host.module.read(8, 1)[0] & 1 == 1  # reached LowPwr
    host.write(None, 26, 0x00)
    host.wait(1)
    assert host.module.read(8, 1)[0] & 1 == 0  # PwrUp is not steady
    host.wait(POWER_UP_S)
    assert host.module.read(8, 1)[0] & 1 == 1


def test_a_module_of_power_class_1_may_ignore_low_power() -> None:
    host = Host(quirks=ModuleQuirks(ignores_low_power=True))
    host.wait(16)
    assert module_state(host) == READY


# Fault ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fault", "strength", "cause"), [("tec_runaway", None, 1), ("module_fault", 3.0, 3)])
def test_a_fault_stops_everything_names_its_cause_and_ends_with_a_reset(
    fault: str, strength: float | None, cause: int
) -> None:
    host = lit()
    host.module.faults.inject(fault, strength)
    assert module_state(host) == FAULT
    assert host.module.read(41, 1)[0] == cause
    assert host.states() == [DEACTIVATED] * 8
    assert host.sent[-1].enabled is False
    host.module.faults.clear(fault)
    host.write(None, 26, 0x10)
    host.write(None, 26, 0x00)
    host.wait(60)
    assert module_state(host) == FAULT
    host.module.reset()
    host.wait(0.6)
    assert (module_state(host), host.module.read(41, 1)[0]) == (LOW, 0)


def test_nothing_can_be_applied_in_the_fault_state() -> None:
    host = ready()
    host.module.faults.inject("module_fault")
    mask = host.stage(1, 1, 8)
    assert host.apply(mask) == [2] * 8


# Reset ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_pin", [True, False])
def test_a_reset_puts_every_control_back_and_keeps_the_user_eeprom(by_pin: bool) -> None:
    host = Host()
    host.wait(0.6)
    fresh = host.module.image()
    host.bring_up()
    host.write(0x03, 128, *b"keep me")
    host.write(0x10, 130, 0x55)
    host.write(0x10, 213, 0xFF)
    host.write(0x12, 136, 0x00, 0x03)
    host.write(None, 31, 0xC7)
    host.write(0x2F, 144, 0x80)
    if by_pin:
        host.module.reset()
    else:
        host.module.write(26, b"\x08")
    host.wait(0.6)
    assert host.module.read(126, 2) == bytes(2)
    again = host.module.image()
    for page in ("10", "12", "2D", "2F", "9F"):
        assert again["pages"][page] == fresh["pages"][page], page  # type: ignore[index]
    lower, fresh_lower = bytes.fromhex(str(again["lower"])), bytes.fromhex(str(fresh["lower"]))
    assert lower[:14] == fresh_lower[:14]
    assert lower[26:] == fresh_lower[26:]
    assert host.read(0x03, 128, 7) == b"keep me"
    assert host.get("active_app_sel", 8) == 1


def test_a_software_reset_darkens_the_module_and_silences_its_bus() -> None:
    host = lit()
    host.module.write(26, b"\x08")
    assert host.sent[-1].enabled is False
    assert host.module.state is None
    host.wait(0.51)
    assert host.module.read(26, 1) == b"\x40"  # the trigger bit is cleared with everything else


def test_after_a_reset_with_the_fault_the_module_stays_in_low_power() -> None:
    host = Host(low_power_pin=False)
    host.module.faults.inject("drops_to_lowpwr_on_reset")
    host.module.reset()
    host.wait(60)
    assert module_state(host) == LOW
    host.write(None, 26, 0x00)
    host.wait(15.1)
    assert module_state(host) == READY


# Data paths ----------------------------------------------------------------------------------------------------------


def test_a_data_path_goes_through_its_states_in_their_times() -> None:
    host = ready()
    host.write(0x10, 128, 0x00)
    assert host.states() == [INIT] * 8
    host.wait(INIT_S - 0.01)
    assert host.states() == [INIT] * 8
    host.wait(0.02)
    assert host.states() == [INITIALIZED] * 8
    host.write(0x10, 130, 0x00)
    assert host.states() == [TURN_ON] * 8
    host.wait(0.049)
    assert (host.states(), host.lanes("tx_output_valid")) == ([TURN_ON] * 8, 0)
    host.wait(0.002)
    assert (host.states(), host.lanes("tx_output_valid")) == ([ACTIVATED] * 8, 1)
    host.write(0x10, 130, 0x01)
    assert (host.states(), host.lanes("tx_output_valid")) == ([TURN_OFF] * 8, 0)
    host.wait(0.006)
    assert host.states() == [INITIALIZED] * 8
    host.write(0x10, 128, 0xFF)
    assert host.states() == [DEINIT] * 8
    host.wait(0.31)
    assert host.states() == [DEACTIVATED] * 8


def test_one_deinit_bit_takes_the_whole_path_down() -> None:
    host = lit()
    host.write(0x10, 128, 0x20)
    host.wait(1)
    assert host.states() == [DEACTIVATED] * 8


def test_deinit_during_init_turns_round() -> None:
    host = ready()
    host.write(0x10, 128, 0x00)
    host.wait(3)
    host.write(0x10, 128, 0x01)
    assert host.states() == [DEINIT] * 8


def test_forced_squelch_darkens_like_disable() -> None:
    host = lit()
    host.write(0x10, 132, 0x01)
    host.wait(0.01)
    assert host.states() == [INITIALIZED] * 8
    assert host.lanes("tx_output_valid") == 0


def test_a_coherent_module_obeys_bit_0_of_tx_disable() -> None:
    host = lit()
    host.write(0x10, 130, 0xFE)
    host.wait(0.01)
    assert host.states() == [ACTIVATED] * 8
    assert host.sent[-1].enabled


def test_cmis_3_inverts_the_deinit_bits() -> None:
    host = Host(quirks=ModuleQuirks(inverted_deinit=True))
    host.wait(0.6)
    host.write(0x10, 128, 0x00)
    host.write(None, 26, 0x00)
    host.wait(60)
    assert host.states() == [DEACTIVATED] * 8
    host.write(0x10, 128, 0xFF)
    host.wait(21)
    assert host.states() == [ACTIVATED] * 8


def test_state_changes_of_a_path_are_flagged_on_all_its_lanes() -> None:
    host = ready()
    host.lanes("data_path_state_changed_flag")
    host.write(0x10, 128, 0x00)
    host.wait(1)
    assert host.lanes("data_path_state_changed_flag") == 0x00
    host.wait(INIT_S)
    assert host.lanes("data_path_state_changed_flag") == 0xFF
    assert host.lanes("data_path_state_changed_flag") == 0x00


def test_one_disabled_lane_deactivates_its_path_and_leaves_the_other_lanes_lit() -> None:
    """CMIS 5.2 clause 6.3.3.

    DPDeactivateS = DPReDeinitS OR DPTxDisableT OR DPTxForceSquelchT, with DPTxDisableT = OutputDisableTx<N> OR ... OR
    OutputDisableTx<N+M-1> over the M media lanes of the path. In DPInitialized each media lane follows its own
    OutputDisableTx and OutputSquelchForceTx.
    """
    host = lit("400g-dr4", light=dict.fromkeys(range(1, 5), GOOD_LIGHT))
    host.write(0x10, 130, 0x02)
    assert host.states() == [TURN_OFF] * 8
    assert host.lanes("tx_output_valid") == 0b1101
    host.wait(0.01)
    assert host.states() == [INITIALIZED] * 8
    assert host.lanes("tx_output_valid") == 0b1101
    assert [host.module.light(lane).enabled for lane in range(1, 5)] == [True, False, True, True]
    host.write(0x10, 130, 0x00)
    assert (host.states(), host.lanes("tx_output_valid")) == ([TURN_ON] * 8, 0b1101)
    host.wait(0.051)
    assert (host.states(), host.lanes("tx_output_valid")) == ([ACTIVATED] * 8, 0b1111)
    host.write(0x10, 132, 0x08)
    host.wait(0.01)
    assert (host.states(), host.lanes("tx_output_valid")) == ([INITIALIZED] * 8, 0b0111)
    host.write(0x10, 130, 0x0F)
    assert (host.states(), host.lanes("tx_output_valid")) == ([INITIALIZED] * 8, 0)


def test_each_path_of_a_break_out_has_its_own_machine() -> None:
    """CMIS 5.2 clause 6.3.3: every data path of a module operates independently of the others."""
    host = ready("400g-dr4")
    for first in (1, 3, 5, 7):
        host.stage(2, first, 2)
    assert host.apply(0xFF) == [1] * 8
    host.write(0x10, 128, 0b1100_0000)
    host.wait(4.1)
    assert host.states() == [INITIALIZED] * 6 + [DEACTIVATED] * 2
    host.write(0x10, 130, 0b1111_1101)
    host.wait(0.1)
    assert host.states() == [INITIALIZED] * 2 + [ACTIVATED] * 2 + [INITIALIZED] * 2 + [DEACTIVATED] * 2
    assert host.lanes("tx_output_valid") == 0b0010
    host.lanes("data_path_state_changed_flag")
    host.write(0x10, 130, 0b1111_1001)
    host.wait(0.1)
    assert host.lanes("data_path_state_changed_flag") == 0b0011_0000
    assert host.lanes("tx_output_valid") == 0b0110
    host.write(0x10, 128, 0b1100_0100)
    host.wait(0.2)
    assert host.states() == [INITIALIZED] * 2 + [DEACTIVATED] * 2 + [ACTIVATED] * 2 + [DEACTIVATED] * 2
    assert host.lanes("tx_output_valid") == 0b0100


def test_a_steady_state_that_is_left_at_once_is_not_flagged() -> None:
    """CMIS 5.2 clause 6.3.3.3: no change is indicated for a steady state whose exit condition is met on entry."""
    host = ready()
    host.write(0x10, 130, 0x00)
    host.write(0x10, 128, 0x00)
    host.lanes("data_path_state_changed_flag")
    host.wait(INIT_S + 0.01)
    assert host.states() == [TURN_ON] * 8
    assert host.lanes("data_path_state_changed_flag") == 0x00
    host.wait(0.05)
    assert host.states() == [ACTIVATED] * 8
    assert host.lanes("data_path_state_changed_flag") == 0xFF


def test_times_scale_and_advertisements_do_not() -> None:
    host = Host(time_scale=0.01, low_power_pin=False)
    host.wait(0.005 + 0.15 + 0.2 + 0.0005 + 0.0001)
    assert host.states() == [ACTIVATED] * 8
    assert DURATION_BOUNDS_S[host.raw("max_duration_dp_init")] == 60.0


def test_a_warm_module_has_been_up_for_long() -> None:
    host = Host(low_power_pin=False, warm=True)
    assert host.states() == [ACTIVATED] * 8
    assert Host(warm=True).raw("module_state") == LOW
