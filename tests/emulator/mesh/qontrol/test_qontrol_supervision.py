"""Loads, limits and unsolicited error lines: the actual behaviour of the emulated outputs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from lumion_hw.emulator.mesh.qontrol import OPEN, SHORT, ErrorOrder, HeaterLoad, ModuleSpec, OverLimit
from lumion_hw.emulator.mesh.qontrol.errors import ErrorLimiter
from lumion_hw.emulator.mesh.qontrol.load import Limited, settle
from lumion_hw.errors import ConfigError
from tests.emulator.mesh.qontrol.qontrol_testbench import Rig

AT_ONCE = {"supervision_s": (0.0, 0.0)}


# -- the load


def test_a_heater_that_warms_up_has_the_current_of_its_hot_resistance() -> None:
    # 1 kOhm, 2 % per mW, 5 mA: R = 1 / (1 - 0.02 * 1 * 25) = 2 kOhm, so 10 V and 50 mW, and 1 + 0.02 * 50 = 2
    load = HeaterLoad(1000.0, 0.02)
    assert load.voltage_v(5.0) == pytest.approx(10.0)
    assert load.current_ma(10.0) == pytest.approx(5.0)
    assert load.current_for_power_ma(50.0) == pytest.approx(5.0)


def test_a_heater_that_runs_away_is_held_by_the_voltage_limit() -> None:
    load = HeaterLoad(1000.0, 0.02)
    assert load.voltage_v(7.08) == math.inf  # 0.02 * 7.08² > 1
    output = settle(load, setpoint=7.08, is_current=True, vmax_v=12.0, imax_ma=24.0)
    assert (output.voltage_v, output.limited) == (12.0, Limited.VOLTAGE)
    assert output.current_ma == pytest.approx(load.current_ma(12.0))


@given(cold_ohm=st.floats(1.0, 1e5), rise=st.floats(0.0, 0.1), voltage_v=st.floats(0.0, 12.0))
def test_voltage_and_current_of_a_load_are_each_others_inverse(cold_ohm: float, rise: float, voltage_v: float) -> None:
    load = HeaterLoad(cold_ohm, rise)
    current = load.current_ma(voltage_v)
    hot_kohm = cold_ohm * 1e-3 * (1 + rise * voltage_v * current)
    assert hot_kohm * current == pytest.approx(voltage_v, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("settings", [(-1.0, 0.0), (math.nan, 0.0), (1000.0, math.nan), (1000.0, math.inf)])
def test_a_load_that_cannot_be_is_refused(settings: tuple[float, float]) -> None:
    with pytest.raises(ConfigError):
        HeaterLoad(*settings)


@given(
    load=st.builds(
        HeaterLoad, st.sampled_from([0.0, 10.0, 300.0, 1000.0, 1e6, math.inf]), st.sampled_from([0.0, 0.02])
    ),
    setpoint=st.floats(0.0, 1e6),
    is_current=st.booleans(),
    vmax_v=st.floats(0.0, 12.0),
    imax_ma=st.floats(0.0, 24.0),
)
def test_no_output_exceeds_its_limits(
    load: HeaterLoad, setpoint: float, is_current: bool, vmax_v: float, imax_ma: float
) -> None:
    output = settle(load, setpoint=setpoint, is_current=is_current, vmax_v=vmax_v, imax_ma=imax_ma)
    assert 0.0 <= output.voltage_v <= vmax_v
    assert 0.0 <= output.current_ma <= imax_ma
    reached = output.current_ma if is_current else output.voltage_v
    assert (output.limited is Limited.NONE) == (reached == setpoint)


# -- supervision


def test_a_current_into_nothing_is_acknowledged_and_reported_some_milliseconds_later() -> None:
    rig = Rig(loads=OPEN)
    assert rig.ask("I2=5") == ["OK"]
    assert rig.wait(0.0029) == []
    assert rig.wait(0.0372) == ["E01:02"]
    assert rig.ask("V2?") == ["+12.0000 V"], "the source has run into its voltage limit"
    assert rig.currents_ma[2] == 0.0


def test_a_voltage_into_a_short_circuit_is_an_over_current() -> None:
    rig = Rig(loads=SHORT)
    assert rig.ask("V5=1", wait_s=0.041) == ["OK", "E02:05"]
    assert rig.ask("I5?") == ["+24.0000 mA"]


def test_the_error_line_carries_the_channel_within_its_module_and_no_module() -> None:
    rig = Rig(loads=OPEN)
    assert rig.ask("I11=5", wait_s=0.041) == ["OK", "E01:03"]


def test_each_set_is_reported_once() -> None:
    rig = Rig(loads=OPEN, **AT_ONCE)
    assert rig.ask("I0=5") == ["OK", "E01:00"]
    assert rig.wait(10.0) == []
    assert rig.ask("I0=6") == ["OK", "E01:00"]


def test_what_is_taken_back_in_time_is_not_reported() -> None:
    rig = Rig(loads=OPEN)
    assert rig.ask("I0=5") == ["OK"]
    assert rig.ask("I0=0", wait_s=1.0) == ["OK"]


def test_a_lowered_limit_holds_the_output_and_reports_it() -> None:
    rig = Rig(**AT_ONCE)
    rig.ask("V3=8")
    assert rig.ask("VMAX3=5") == ["OK", "E01:03"]
    assert rig.ask("V3?") == ["+5.0000 V"]
    assert rig.ask("IMAX3=2") == ["OK", "E02:03"]
    assert rig.currents_ma[3] == pytest.approx(2.0)


def test_a_heater_that_breaks_is_reported() -> None:
    rig = Rig(**AT_ONCE)
    rig.ask("I3=4")
    rig.chain.set_load(3, OPEN)
    assert rig.currents_ma[3] == 0.0
    assert rig.wait(0.0) == ["E01:03"]
    rig.chain.set_load(3, HeaterLoad(2000.0))
    assert rig.ask("V3?") == ["+8.0000 V"]


def test_a_burst_is_cut_after_four_lines_and_said_to_be_cut() -> None:
    rig = Rig(loads=OPEN, **AT_ONCE)
    lines = [line for channel in range(8) for line in rig.ask(f"I{channel}=5")]
    assert lines == ["OK", "E01:00", "OK", "E01:01", "OK", "E01:02", "OK", "E01:03", "OK", "E30:00", "OK", "OK", "OK"]
    assert rig.ask("I8=5") == ["OK", "E01:00"], "the other module counts for itself"
    rig.clock.sleep(0.1)
    assert rig.ask("I0=6") == ["OK", "E01:00"]


def test_suppressed_errors_are_in_the_log() -> None:
    rig = Rig(loads=OPEN, **AT_ONCE)
    for channel in range(8):
        rig.ask(f"I{channel}=5")
    newest = [line[6:12] for line in rig.ask("LOG?")[1:9]]
    assert newest == [f"E01:0{channel}" for channel in range(7, -1, -1)]


def test_a_limiter_speaks_again_when_its_window_has_passed() -> None:
    limiter = ErrorLimiter(2, 0.1)
    said = [limiter.admit(f"E01:0{place}", at_s) for place, at_s in enumerate((0.0, 0.05, 0.06, 0.07, 0.1, 0.11, 0.16))]
    assert said == ["E01:00", "E01:01", "E30:00", None, "E01:04", "E30:00", "E01:06"]


@pytest.mark.parametrize(
    ("order", "lines"),
    [
        (ErrorOrder.BEFORE_REPLY, ["E01:01", "+0.0000 V", "+12.0000 V"]),
        (ErrorOrder.INSIDE_REPLY, ["+0.0000 V", "E01:01", "+12.0000 V"]),
    ],
)
def test_error_lines_may_come_before_or_inside_an_unrelated_reply(order: ErrorOrder, lines: list[str]) -> None:
    rig = Rig((ModuleSpec("Q2", 1),), loads=OPEN, error_order=order)
    assert rig.ask("I1=5", wait_s=0.1) == ["OK"]
    assert rig.ask("VALL?") == lines
    assert rig.ask("VALL?") == ["+0.0000 V", "+12.0000 V"]


def test_a_recorded_order_can_be_had_error_of_one_module_before_the_ok_of_the_other() -> None:
    rig = Rig(loads=OPEN, error_order=ErrorOrder.BEFORE_REPLY)
    rig.ask("I6=9.2")
    rig.clock.sleep(0.05)
    assert rig.ask("I8=9.2") == ["E01:06", "OK"]


def test_error_lines_go_to_every_host() -> None:
    rig = Rig(loads=OPEN, **AT_ONCE)
    other = rig.dial()
    rig.ask("I0=5")
    assert other.read(0.0) == b"E01:00\n"


# -- values above a limit


@pytest.mark.parametrize(
    ("limit", "request_text", "answer"),
    [
        ("VMAX3=5.0", "V3=11", "E01:03"),
        ("IMAX11=5.0", "I11=5.0001", "E02:03"),
        ("V0=0", "V3=12.1", "E01:03"),
        ("V0=0", "I3=24.1", "E02:03"),
        ("V0=0", "VMAX3=12.1", "E01:03"),
        ("V0=0", "IMAX3=24.1", "E02:03"),
    ],
)
def test_a_value_above_its_limit_is_refused_and_the_output_stays(limit: str, request_text: str, answer: str) -> None:
    rig = Rig()
    rig.ask("VVEC0=1,1,1,1,1,1,1,1")
    rig.ask(limit)
    before = rig.ask("VALL?") + rig.ask("VMAXALL?") + rig.ask("IMAXALL?")
    assert rig.ask(request_text, wait_s=1.0) == [answer]
    assert rig.ask("VALL?") + rig.ask("VMAXALL?") + rig.ask("IMAXALL?") == before
    assert rig.ask("LOG?" if answer == "E01:03" or "3=" in request_text else "LOG8?")[1][6:12] == answer


@pytest.mark.parametrize("request_text", ["V3=12", "I3=24", "VMAX3=12", "IMAX3=24"])
def test_full_scale_itself_is_inside(request_text: str) -> None:
    assert Rig(loads=HeaterLoad(500.0)).ask(request_text, wait_s=1.0) == ["OK"]


def test_a_module_takes_all_values_of_a_vector_or_none() -> None:
    rig = Rig()
    rig.ask("VMAX5=2")
    assert rig.ask("VALL=3") == ["E01:05", "OK"]
    assert rig.currents_ma == pytest.approx([0.0] * 8 + [3.0] * 8)


def test_modules_that_limit_instead_of_refusing_can_be_had() -> None:
    rig = Rig(over_limit=OverLimit.LIMIT, **AT_ONCE)
    rig.ask("VMAX3=5")
    assert rig.ask("V3=11") == ["OK", "E01:03"]
    assert rig.ask("V3?") == ["+5.0000 V"]
    assert rig.ask("IMAX3=99") == ["OK", "E01:03"]
    assert rig.ask("IMAX3?") == ["+24.0000 mA"]


# -- external interface


def test_the_currents_are_reported_at_construction_and_whenever_they_change() -> None:
    rig = Rig()
    assert [at_s for at_s, _ in rig.driven] == [0.0]
    rig.clock.sleep(2.5)
    rig.ask("V3=4")
    rig.ask("V3=4")
    rig.ask("V3?")
    assert [at_s for at_s, _ in rig.driven] == [0.0, 2.5]
    assert rig.chain.currents_ma == pytest.approx(rig.currents_ma)
    assert rig.ask("V3?") == ["+4.0000 V"]


def test_outputs_stay_when_the_host_goes_away() -> None:
    rig = Rig()
    rig.ask("V3=4")
    rig.link.close()
    rig.clock.sleep(3600.0)
    rig.chain.advance()
    assert rig.currents_ma[3] == pytest.approx(4.0)


@pytest.mark.parametrize("survive", [False, True])
def test_a_power_cycle_ends_all_outputs_and_is_announced(survive: bool) -> None:
    rig = Rig(limits_survive=survive)
    rig.ask("V3=4")
    rig.ask("VMAX3=5")
    rig.chain.power_cycle()
    assert rig.wait(0.0) == ["E90:00", "E90:00"]
    assert rig.currents_ma == pytest.approx([0.0] * 16)
    assert rig.ask("VMAX3?") == ["+5.0000 V" if survive else "+12.0000 V"]
    assert rig.ask("LOG?")[1][6:12] == "E90:00"


def test_a_module_taken_out_goes_dead_and_those_behind_it_are_renumbered() -> None:
    rig = Rig((ModuleSpec(number=1), ModuleSpec(number=2), ModuleSpec(number=3)))
    rig.ask("VALL=1")
    rig.chain.remove_module(1)
    assert rig.currents_ma == pytest.approx([1.0] * 8 + [0.0] * 8 + [1.0] * 8)
    assert rig.ask("NUPALL?") == ["Q8iv-0001: 0", "Q8iv-0003: 1"]
    rig.ask("V8=3")
    assert rig.currents_ma[16] == pytest.approx(3.0)
    assert rig.ask("V16?") == ["E12:16"]


def test_a_chain_without_modules_is_silent() -> None:
    rig = Rig((ModuleSpec(number=1),))
    rig.chain.remove_module(0)
    assert rig.ask("ID?", wait_s=1.0) == []
    assert rig.ask("LEDALL=1", wait_s=1.0) == []


def test_an_error_can_be_scripted() -> None:
    rig = Rig()
    rig.chain.trip(10)
    assert rig.ask("V3?") == ["E01:02", "+0.0000 V"]
    rig.chain.trip(2, code=31)
    assert rig.wait(0.0) == ["E31:02"]


@pytest.mark.parametrize("channel", [-1, 16])
def test_faults_of_channels_that_are_not_there_are_refused(channel: int) -> None:
    with pytest.raises(ConfigError, match=str(channel)):
        Rig().chain.set_load(channel, OPEN)
    with pytest.raises(ConfigError, match="heaters"):
        Rig().chain.trip(channel)
