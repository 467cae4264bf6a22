"""The Amonics AEDFA driver in conversations as public clients quote the programming manual."""

from __future__ import annotations

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.amplifiers.amonics_aedfa import AmonicsAedfa
from lumion_hw.emulator.amplifiers.amonics_aedfa import EmulatedAedfa
from lumion_hw.errors import DeviceError, FrameError, IdentityError, LimitError, NotSupportedError, VerifyError
from lumion_hw.interfaces import AmplifierMode, OpticalAmplifier
from lumion_hw.links import RecordedExchange, ReplayPeer, replay_link
from lumion_hw.testing import wired


def ask(command: str, reply: object) -> RecordedExchange:
    return RecordedExchange(f"{command}\r\n".encode(), f"{reply}\r\n".encode())


def put(command: str) -> RecordedExchange:
    return RecordedExchange(f"{command}\r\n".encode())


def held(word: str, unit: str, low: float, high: float, step: float) -> list[RecordedExchange]:
    return [
        ask(f":READ:DRIV:UNIT:{word}:CH1?", unit),
        ask(f":READ:DRIV:MIN:{word}:CH1?", f"{low:e}"),
        ask(f":READ:DRIV:MAX:{word}:CH1?", f"{high:e}"),
        ask(f":READ:DRIV:STEP:{word}:CH1?", f"{step:e}"),
    ]


OPENING = [
    ask(":CAL:SYS:MODEL?", "AEDFA-23-B-FA"),
    ask(":CAL:SYS:SERIAL?", "21020811"),
    ask(":READ:MODE:NAMES?", "ACC APC"),
    ask(":READ:CH:DRIV:ACC?", 2),
    *held("ACC", "mA", 0.0, 400.0, 1.0),
    *held("APC", "mW", 1.0, 200.0, 0.1),
    *(ask(f":READ:CH:{monitor}?", 1) for monitor in ("POW:IN", "POW:OUT", "CUR", "TEMP:BOX")),
    ask(":DRIV:INTERLOCK?", 0),
]
ACC, APC = ask(":MODE:SW:CH1?", "ACC"), ask(":MODE:SW:CH1?", "APC")


def amplifier_on(*exchanges: RecordedExchange, **options: str) -> tuple[AmonicsAedfa, ReplayPeer, VirtualClock]:
    clock = VirtualClock()
    peer = ReplayPeer(exchanges, clock)
    return AmonicsAedfa(replay_link(peer, clock), clock, device="edfa0", **options), peer, clock


def opened(*exchanges: RecordedExchange) -> tuple[AmonicsAedfa, ReplayPeer, VirtualClock]:
    amplifier, peer, clock = amplifier_on(*OPENING, *exchanges)
    amplifier.open()
    return amplifier, peer, clock


def test_opening_finds_what_it_holds_and_switches_nothing() -> None:
    amplifier, peer, clock = opened()
    _: OpticalAmplifier = amplifier
    assert (amplifier.model, amplifier.serial) == ("AEDFA-23-B-FA", "21020811")
    limits = amplifier.limits()
    assert limits.current_ma == (0.0, 400.0)
    assert limits.power_dbm == pytest.approx((0.0, 23.0103))  # 1 mW and 200 mW
    assert limits.gain_db is None
    assert peer.remaining == ()
    assert clock.now() >= 50e-3 * (len(OPENING) - 1)  # commands that come faster are lost


@pytest.mark.parametrize(
    ("model", "serial"), [("AEDFA-27-B-FA", "21020811"), ("AEDFA-23-B-FA", "1"), ("AYDFA-23", "21020811")]
)
def test_another_amplifier_is_refused(model: str, serial: str) -> None:
    amplifier, _, _ = amplifier_on(
        ask(":CAL:SYS:MODEL?", model),
        ask(":CAL:SYS:SERIAL?", serial),
        expected_model="AEDFA-23-B-FA",
        expected_serial="21020811",
    )
    with pytest.raises(IdentityError, match=model):
        amplifier.open()


def unit(mode: str, word: str) -> RecordedExchange:
    return ask(f":READ:DRIV:UNIT:{mode}:CH1?", word)


MA, MW = unit("ACC", "mA"), unit("APC", "mW")


def test_a_current_is_held_in_milliampere() -> None:
    amplifier, peer, _ = opened(MA, ACC, put(":DRIV:ACC:CUR:CH1 350"), ask(":DRIV:ACC:CUR:CH1?", "3.500000e+02"), MA)
    amplifier.hold_current_ma(350.0)
    assert peer.remaining == ()


def test_a_power_is_held_in_milliwatt_after_its_mode() -> None:
    amplifier, peer, _ = opened(
        MW,
        ACC,
        ask(":DRIV:MCTRL?", 0),
        put(":MODE:SW:CH1 APC"),
        APC,
        put(":DRIV:APC:CUR:CH1 100"),
        ask(":DRIV:APC:CUR:CH1?", "1.000000e+02"),
        MW,
        APC,
        MW,
        ask(":DRIV:APC:CUR:CH1?", "1.000000e+02"),
        ask(":DRIV:MCTRL?", 0),
    )
    amplifier.hold_power_dbm(20.0)
    settings = amplifier.settings()
    assert settings.mode is AmplifierMode.POWER
    assert settings.power_dbm == pytest.approx(20.0)
    assert (settings.current_ma, settings.gain_db, settings.enabled) == (None, None, False)
    assert peer.remaining == ()


def test_a_unit_that_somebody_else_changed_is_read_with_its_limits() -> None:
    amplifier, peer, _ = opened(
        unit("APC", "dBm"),
        *held("APC", "dBm", 0.0, 23.0, 0.1),
        APC,
        put(":DRIV:APC:CUR:CH1 20"),
        ask(":DRIV:APC:CUR:CH1?", "2.000000e+01"),
        unit("APC", "dBm"),
        APC,
        unit("APC", "dBm"),
        ask(":DRIV:APC:CUR:CH1?", "2.000000e+01"),
        ask(":DRIV:MCTRL?", 0),
    )
    amplifier.hold_power_dbm(20.0)
    assert amplifier.settings().power_dbm == pytest.approx(20.0)
    assert peer.remaining == ()


def test_a_unit_that_changes_while_a_value_is_set_is_an_error() -> None:
    amplifier, _, _ = opened(
        MW,
        APC,
        put(":DRIV:APC:CUR:CH1 100"),
        ask(":DRIV:APC:CUR:CH1?", "1.000000e+02"),
        unit("APC", "dBm"),
    )
    with pytest.raises(VerifyError, match=r"unit of the output power.*MW.*DBM"):
        amplifier.hold_power_dbm(20.0)


def test_another_mode_while_it_emits_is_refused() -> None:
    amplifier, peer, _ = opened(MW, ACC, ask(":DRIV:MCTRL?", 1))
    with pytest.raises(DeviceError, match="emits while holding the pump current"):
        amplifier.hold_power_dbm(20.0)
    assert peer.remaining == ()


@pytest.mark.parametrize("wrong_ma", [-1.0, 401.0, float("nan")])
def test_a_current_outside_the_limits_is_not_sent(wrong_ma: float) -> None:
    amplifier, _, _ = opened(MA)
    with pytest.raises(LimitError) as caught:
        amplifier.hold_current_ma(wrong_ma)
    assert caught.value.unit == "mA"


def test_what_it_cannot_hold_is_told_with_what_it_can() -> None:
    amplifier, _, _ = opened()
    with pytest.raises(NotSupportedError, match=r"cannot hold the gain.*pump current and output power"):
        amplifier.hold_gain_db(20.0)


def test_a_set_point_that_is_not_kept_is_an_error() -> None:
    amplifier, _, _ = opened(MA, ACC, put(":DRIV:ACC:CUR:CH1 350"), ask(":DRIV:ACC:CUR:CH1?", "3.000000e+02"))
    with pytest.raises(VerifyError, match="pump current"):
        amplifier.hold_current_ma(350.0)


def test_switching_on_switches_every_pump_and_then_the_output() -> None:
    amplifier, peer, _ = opened(
        ask(":DRIV:INTERLOCK?", 0),
        ACC,
        ask(":DRIV:ACC:STAT:CH1?", 0),
        put(":DRIV:ACC:STAT:CH1 1"),
        ask(":DRIV:ACC:STAT:CH1?", 1),
        ask(":DRIV:ACC:STAT:CH2?", 1),
        ask(":DRIV:MCTRL?", 0),
        put(":DRIV:MCTRL 1"),
        ask(":DRIV:MCTRL?", 2),
        ask(":DRIV:MCTRL?", 1),
    )
    amplifier.enable()
    assert peer.remaining == ()


def test_a_switch_that_is_ignored_is_tried_again() -> None:
    amplifier, peer, _ = opened(
        ask(":DRIV:MCTRL?", 1),
        put(":DRIV:MCTRL 0"),
        *[ask(":DRIV:MCTRL?", 1)] * 10,
        put(":DRIV:MCTRL 0"),
        ask(":DRIV:MCTRL?", 0),
    )
    amplifier.disable()
    assert peer.remaining == ()


def test_an_open_interlock_is_told_before_anything_is_switched() -> None:
    amplifier, peer, _ = opened(ask(":DRIV:INTERLOCK?", 1))
    with pytest.raises(DeviceError, match="interlock is open"):
        amplifier.enable()
    assert peer.remaining == ()


def test_a_state_has_powers_in_dbm_and_none_in_the_dark() -> None:
    amplifier, peer, _ = opened(
        ACC,
        ask(":DRIV:MCTRL?", 1),
        ask(":DRIV:ACC:STAT:CH1?", 1),
        ask(":DRIV:ACC:STAT:CH2?", 4),
        ask(":DRIV:INTERLOCK?", 0),
        ask(":SENS:POW:IN:CH1?", "0.000000e+00"),
        ask(":SENS:POW:OUT:CH1?", "1.000000e+02"),
        ask(":SENS:CUR:CH1?", "7.180000e+02"),
        ask(":SENS:TEMP:BOX?", "3.131733e+01"),
    )
    state = amplifier.state()
    assert state.input_power_dbm is None
    assert state.output_power_dbm == pytest.approx(20.0)
    assert (state.pump_current_ma, state.temperature_c) == (718.0, 31.31733)
    assert (state.emitting, state.ready, state.flags) == (True, False, ("pump 2 is locked",))
    assert peer.remaining == ()


def test_a_unit_of_one_mode_and_no_monitor_is_not_asked_for_them() -> None:
    opening = [
        *OPENING[:2],
        ask(":READ:MODE:NAMES?", "ACC"),
        ask(":READ:CH:DRIV:ACC?", 1),
        *held("ACC", "A", 0.0, 1.5, 0.001),
        *(
            ask(f":READ:CH:{monitor}?", n)
            for monitor, n in (("POW:IN", 0), ("POW:OUT", 0), ("CUR", 1), ("TEMP:BOX", 0))
        ),
        ask(":DRIV:INTERLOCK?", 0),
    ]
    amplifier, peer, _ = amplifier_on(
        *opening,
        unit("ACC", "A"),
        put(":DRIV:ACC:CUR:CH1 0.35"),
        ask(":DRIV:ACC:CUR:CH1?", "3.500000e-01"),
        unit("ACC", "A"),
        ask(":DRIV:MCTRL?", 0),
        ask(":DRIV:ACC:STAT:CH1?", 0),
        ask(":DRIV:INTERLOCK?", 0),
        ask(":SENS:CUR:CH1?", "0.000000e+00"),
    )
    amplifier.open()
    assert amplifier.limits().current_ma == (0.0, 1500.0)
    amplifier.hold_current_ma(350.0)
    state = amplifier.state()
    assert (state.input_power_dbm, state.output_power_dbm, state.temperature_c) == (None, None, None)
    assert peer.remaining == ()


@pytest.mark.parametrize(
    ("silent", "limits", "missing"),
    [
        (":READ:CH:POW:IN?", ("current_ma", "power_dbm"), ("input_power_dbm",)),
        (":READ:CH:", ("current_ma", "power_dbm"), ("input_power_dbm", "output_power_dbm", "pump_current_ma")),
        (":READ:MODE:NAMES?", ("current_ma", "power_dbm"), ()),
        (":READ:DRIV:STEP:APC", ("current_ma",), ()),
        (":DRIV:INTERLOCK?", ("current_ma", "power_dbm"), ()),
    ],
)
def test_a_question_without_an_answer_is_for_something_that_is_not_there(
    silent: str, limits: tuple[str, ...], missing: tuple[str, ...]
) -> None:
    clock = VirtualClock()
    device = EmulatedAedfa("edfa0", clock, silent=[silent], passing_w=lambda: (1e-4, 1e-2))
    with wired(device, "memory", clock) as wire, AmonicsAedfa(wire.link(), clock, device="edfa0") as amplifier:
        found = amplifier.limits()
        assert tuple(name for name in ("current_ma", "power_dbm", "gain_db") if getattr(found, name)) == limits
        amplifier.hold_current_ma(500.0)
        amplifier.enable()
        state = amplifier.wait_ready(5.0)
        assert state.emitting
        gone = ("input_power_dbm", "output_power_dbm", "pump_current_ma")
        assert tuple(name for name in gone if getattr(state, name) is None) == missing
        amplifier.disable()


def test_an_amplifier_that_tells_nothing_of_what_it_holds_is_refused() -> None:
    clock = VirtualClock()
    device = EmulatedAedfa("edfa0", clock, silent=[":READ:"])
    with (
        wired(device, "memory", clock) as wire,
        pytest.raises(DeviceError, match="reports no limits for any mode"),
        AmonicsAedfa(wire.link(), clock, device="edfa0"),
    ):
        pass


@pytest.mark.parametrize("reply", ["3", "ON", ""])
def test_a_state_there_is_not_is_refused(reply: str) -> None:
    amplifier, _, _ = opened(ask(":DRIV:MCTRL?", reply))
    with pytest.raises(FrameError):
        amplifier.disable()
