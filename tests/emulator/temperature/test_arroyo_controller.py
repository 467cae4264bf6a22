"""The emulated Arroyo TECSource, byte by byte, and the chip whose temperature it controls."""

from __future__ import annotations

import numpy as np
import pytest

from lumion_hw.bench.emulated import emulated_bench
from lumion_hw.bench.file.model import BenchModel
from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.temperature.arroyo_tec import EmulatedArroyoTec
from tests.emulator.test_light_part_devices import TextHost

IN_TOLERANCE_AND_ON, OUT_AND_ON, OUT_AND_OFF = "1024", "1536", "512"


@pytest.fixture
def host():
    clock = VirtualClock()
    return TextHost(EmulatedArroyoTec("tec0", clock), clock)


def condition(host: TextHost) -> str:
    return host.ask("TEC:COND?")[0]


def test_several_commands_share_a_line_and_their_answers_too(host) -> None:
    assert host.ask("TEC:T 30;SET:T?;OUT?;LIM:THI?;TLO?") == ["30.000,0,85.0,0.0"]
    assert host.ask("tec:tolerance 0.05,2.0;tol?;:ERRSTR?") == ["0.05,2.0,0"]
    assert host.ask("TEC:OUTput ON") == []
    assert host.ask("TEC:OUT?") == ["1"]


def test_it_is_in_tolerance_after_its_window(host) -> None:
    host.ask("TEC:TOL 0.1,10;T 30")
    assert condition(host) == OUT_AND_OFF
    host.ask("TEC:OUT 1")
    reached_s = None
    while condition(host) != IN_TOLERANCE_AND_ON:
        host.clock.sleep(0.1)
        near = abs(float(host.ask("TEC:T?")[0]) - 30.0) <= 0.1
        reached_s = (reached_s or host.clock.now()) if near else None
        assert host.clock.now() < 120.0
    assert host.clock.now() - reached_s == pytest.approx(10.0, abs=0.3)
    assert float(host.ask("TEC:ITE?")[0]) == pytest.approx((30.0 - 22.0) / 20.0, abs=0.01)
    host.ask("TEC:T 31")
    assert condition(host) == OUT_AND_ON, "another set point is not held yet"


def test_the_current_limit_slows_it_and_is_told(host) -> None:
    host.ask("TEC:LIM:ITE 1;:TEC:T 40;OUT 1")
    host.clock.sleep(5.0)
    assert int(condition(host)) & 1
    assert host.ask("TEC:ITE?") == ["1.000"]
    # One ampere for 5 s: 22 + 20 (1 - e^(-5/30)) = 25.07 C.
    assert float(host.ask("TEC:T?")[0]) == pytest.approx(25.07, abs=0.1)


def test_leaving_the_limits_ends_the_output(host) -> None:
    host.ask("TEC:T 30;OUT 1")
    host.clock.sleep(60.0)
    host.ask("TEC:LIM:THI 28")
    host.clock.sleep(1.0)
    assert condition(host) == str(512 | 8)
    assert host.ask("TEC:OUT?;:ERRSTR?") == ['0,407,"TEC temperature limit"']
    assert host.ask("TEC:OUT 1;ERR?") == ["407"], "not before it is back inside"


@pytest.mark.parametrize(("fault", "bit", "error"), [("set_interlock", 128, "403"), ("unplug_sensor", 64, "402")])
def test_an_open_interlock_or_sensor_ends_the_output_until_it_is_switched_on_again(host, fault, bit, error) -> None:
    host.ask("TEC:T 30;OUT 1")
    host.clock.sleep(60.0)
    assert condition(host) == IN_TOLERANCE_AND_ON
    getattr(host.device, fault)(True)
    assert condition(host) == str(512 | bit)
    assert host.ask("ERR?") == [error]
    assert host.ask("TEC:OUT 1;ERR?") == [error]
    getattr(host.device, fault)(False)
    assert condition(host) == OUT_AND_OFF
    host.clock.sleep(300.0)
    assert float(host.ask("TEC:T?")[0]) == pytest.approx(22.0, abs=0.01), "at the temperature of the room"


@pytest.mark.parametrize(
    ("command", "code"),
    [("TEC:T 90", "201"), ("TEC:T", "126"), ("TEC:T x", "202"), ("TEC:FOO 1", "123"), ("TEC:TOL 0.1", "126")],
)
def test_what_does_not_fit_is_in_the_errors_and_changes_nothing(host, command: str, code: str) -> None:
    assert host.ask(f"{command};:ERR?") == [code]
    assert host.ask("TEC:SET:T?;TOL?") == ["25.000,0.20,5.0"], "there is no SET:TOL, and TOL is found further up"


def bench(warm: bool):
    model = BenchModel.model_validate(
        {
            "version": 1,
            "name": "held",
            "devices": {"mesh0": {"kind": "lumion-mesh"}, "tec0": {"kind": "arroyo-tec"}},
            "mesh": {"controller": "mesh0", "columns": (2,), "temperature": "tec0"},
        }
    )
    clock = VirtualClock()
    made = emulated_bench(model, clock, 1, warm=warm)
    return made, TextHost(made.devices["tec0"], clock)


def test_the_chip_follows_its_set_point() -> None:
    made, host = bench(warm=True)
    made.world.mesh_output_w()
    before = made.world.truth.common_phase_rad
    assert before == pytest.approx(0.0, abs=2e-3)
    host.ask("TEC:T 27")
    host.clock.sleep(120.0)
    made.world.mesh_output_w()
    # 0.6 rad for each kelvin of the chip.
    assert made.world.truth.common_phase_rad - before == pytest.approx(2.0 * 0.6, abs=0.01)


def test_out_of_lock_the_phases_move() -> None:
    made, host = bench(warm=True)
    made.devices["tec0"].set_interlock(True)
    seen = []
    for _ in range(4):
        host.clock.sleep(10.0)
        made.world.mesh_output_w()
        seen.append(made.world.truth.common_phase_rad)
    assert np.all(np.diff(seen) < -0.02)
    assert condition(host) == str(512 | 128)


def test_a_bench_that_was_just_switched_on_is_at_the_temperature_of_the_room() -> None:
    made, host = bench(warm=False)
    made.world.mesh_output_w()
    assert made.world.truth.common_phase_rad == pytest.approx((22.0 - 25.0) * 0.6)
    assert host.ask("TEC:OUT?") == ["0"]


@pytest.mark.parametrize(
    ("command", "first", "sent", "read"),
    [
        ("TEC:PID", None, "1.5,0.25,0", "1.5000,0.2500,0.0000"),
        ("TEC:CONST", None, "1.129,2.341,0.877", "1.129,2.341,0.877"),
        ("TEC:FAN", None, "5.5,2,30", "5.5,2,30"),
        ("TEC:SEN", "1", "5", "5"),
        ("TEC:SENSOR", "1", "7", "7"),
    ],
)
def test_sensor_loop_and_fan_are_kept_until_a_reset(
    host, command: str, first: str | None, sent: str, read: str
) -> None:
    (before,) = host.ask(f"{command}?")
    assert before != read
    assert first in (None, before)
    assert host.ask(f"{command} {sent};:ERR?") == ["0"]
    assert host.ask(f"{command}?") == [read]
    host.ask("*RST")
    assert host.ask(f"{command}?") == [before]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ("TEC:PID 1,2", "126"),
        ("TEC:PID 1,2,-1", "201"),
        ("TEC:CONST 1,2,10", "201"),
        ("TEC:FAN 5,0,30", "201"),
        ("TEC:FAN 5,4,30", "201"),
        ("TEC:FAN 5,1,241", "201"),
        ("TEC:SEN 8", "201"),
        ("TEC:FAN", "126"),
    ],
)
def test_what_a_fan_or_a_sensor_cannot_be_is_an_error(host, wrong: str, code: str) -> None:
    before = host.ask("TEC:PID?;CONST?;FAN?;SEN?")
    assert host.ask(wrong) == []
    assert host.ask("ERR?") == [code]
    assert host.ask("TEC:PID?;CONST?;FAN?;SEN?") == before


def test_the_status_byte_tells_errors_and_conditions(host) -> None:
    assert host.ask("*STB?") == ["0"]
    host.ask("TEC:NONSENSE")
    assert host.ask("*STB?") == ["4"]
    host.ask("ERR?")
    host.ask("TEC:LIM:ITE 1;:TEC:T 40;OUT 1")
    host.clock.sleep(2.0)
    assert host.ask("*STB?") == ["8"], "the current is limited"
