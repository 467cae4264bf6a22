"""The Keysight N77xx driver in conversations written down from the programming guide's reply texts."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.meters.keysight_n77xx import KeysightN77xx
from lumion_hw.errors import (
    ConfigError,
    ConnectError,
    DeviceError,
    FrameError,
    IdentityError,
    LimitError,
    LinkLost,
    LinkTimeout,
    OutOfRangeError,
    VerifyError,
)
from lumion_hw.interfaces import PowerMeter, RangeState
from lumion_hw.links import RecordedExchange, ReplayPeer, replay_link

IDN = "Keysight Technologies,N7744C,MY00000001,1.0"
# Channel map of a four-port meter, and its block header.
MAP = b"#216" + bytes.fromhex("01000100020001000300010004000100")
FLT_MAX = 3.4028234663852886e38


def ask(command: str, reply: str, delay_s: float = 0.0) -> RecordedExchange:
    return RecordedExchange(command.encode() + b"\n", reply.encode() + b"\n", delay_s)


def put(command: str, *errors: str) -> list[RecordedExchange]:
    """A set, and the error queue read until it is empty."""
    return [RecordedExchange(command.encode() + b"\n"), *drained(*errors)]


def drained(*errors: str) -> list[RecordedExchange]:
    return [ask("SYST:ERR?", error) for error in (*errors, '+0,"No error"')]


def held_queries(port: int) -> list[str]:
    """What the readings of a port depend on, as it is held after opening."""
    return [f"SENS{port}:POW:REF:STAT?", f"SENS{port}:POW:UNIT?", f"INIT{port}:CONT?", f"SENS{port}:CORR?"]


AS_HELD = "+0;+1;+0;+0.00000000E+000"


def read(port: int, reply: str, held: str = AS_HELD, delay_s: float = 0.0) -> RecordedExchange:
    """A reading in one message with what it depends on."""
    return ask(";:".join([f"READ{port}:POW?", *held_queries(port)]), f"{reply};{held}", delay_s)


def read_block(payload: bytes, *held: str) -> list[RecordedExchange]:
    """A reading of all four ports, then what they depend on, as many queries in a message as 160 characters hold."""
    queries = [query for port in range(1, 5) for query in held_queries(port)]
    replies = ";".join(held or (AS_HELD,) * 4).split(";")
    exchanges, message = [], []
    for query in (*queries, None):
        if query is None or len(";:".join([*message, query])) > 160:
            exchanges.append(ask(";:".join(message), ";".join(replies[: len(message)])))
            replies, message = replies[len(message) :], []
        message.append(query)
    return [RecordedExchange(b"READ:POW:ALL?\n", payload + b"\n"), *exchanges]


def opening(ports: int = 4) -> list[RecordedExchange]:
    steps = drained()
    for port in range(1, ports + 1):
        steps += put(f"SENS{port}:POW:REF:STAT 0")
        steps += put(f"SENS{port}:POW:UNIT 1")
        steps += put(f"INIT{port}:CONT 0")
        steps += [ask(f"SENS{port}:CORR?", "+0.00000000E+000"), ask(";:".join(held_queries(port)), AS_HELD)]
        steps += [ask(f"SENS{port}:POW:ATIM?", "+1.00000000E-001")]
    return steps


def meter_on(*exchanges: RecordedExchange, **options: str) -> tuple[KeysightN77xx, ReplayPeer, VirtualClock]:
    clock = VirtualClock()
    peer = ReplayPeer(exchanges, clock)
    return KeysightN77xx(replay_link(peer, clock), clock, device="pm1", **options), peer, clock


def opened(*exchanges: RecordedExchange) -> tuple[KeysightN77xx, ReplayPeer, VirtualClock]:
    meter, peer, clock = meter_on(
        ask("*IDN?", IDN), RecordedExchange(b"READ:POW:ALL:CONF?\n", MAP + b"\n"), *opening(), *exchanges
    )
    meter.open()
    return meter, peer, clock


def test_opening_checks_identity_and_ports_and_prepares_every_port() -> None:
    meter, peer, _ = opened()
    assert peer.remaining == ()
    as_interface: PowerMeter = meter
    assert as_interface.channels == (1, 2, 3, 4)
    assert (as_interface.model, as_interface.serial, meter.firmware) == ("N7744C", "MY00000001", "1.0")


def test_errors_left_by_others_do_not_stop_the_opening() -> None:
    left = drained('-113,"Undefined header"', '-350,"Queue overflow"')
    meter, peer, _ = meter_on(
        ask("*IDN?", IDN), RecordedExchange(b"READ:POW:ALL:CONF?\n", MAP + b"\n"), *left, *opening()[1:]
    )
    meter.open()
    assert peer.remaining == ()


def test_an_older_eight_port_unit_is_accepted() -> None:
    channel_map = b"#232" + b"".join(struct.pack("<HH", port, 1) for port in range(1, 9))
    meter, _, _ = meter_on(
        ask("*IDN?", "Agilent Technologies,N7745A,DE00000001,V1.16"),
        RecordedExchange(b"READ:POW:ALL:CONF?\n", channel_map + b"\n"),
        *opening(8),
    )
    meter.open()
    assert meter.channels == (1, 2, 3, 4, 5, 6, 7, 8)


@pytest.mark.parametrize(
    ("idn", "options"),
    [
        ("Thorlabs,PM100D,P0000001,2.4.0", {}),
        ("Keysight Technologies,8164B,MY00000001,5.25", {}),
        (IDN, {"expected_model": "N7745C"}),
        (IDN, {"expected_serial": "MY00000002"}),
        ("N7744C", {}),
    ],
)
def test_another_instrument_is_refused_and_both_are_named(idn: str, options: dict[str, str]) -> None:
    meter, _, _ = meter_on(ask("*IDN?", idn), **options)
    with pytest.raises(IdentityError, match=r"expected .*; found") as caught:
        meter.open()
    assert idn in str(caught.value)
    assert all(wanted in str(caught.value) for wanted in options.values())
    with pytest.raises(ConnectError, match="not open"):
        meter.read(1)


def test_after_a_refusal_the_right_instrument_can_be_opened() -> None:
    meter, _, _ = meter_on(
        ask("*IDN?", "Thorlabs,PM100D,P0000001,2.4.0"),
        ask("*IDN?", IDN),
        RecordedExchange(b"READ:POW:ALL:CONF?\n", MAP + b"\n"),
        *opening(),
    )
    with pytest.raises(IdentityError):
        meter.open()
    meter.open()
    assert meter.model == "N7744C"


def test_a_wrong_number_of_ports_is_another_identity() -> None:
    half = b"#18" + bytes.fromhex("0100010002000100")
    meter, _, _ = meter_on(ask("*IDN?", IDN), RecordedExchange(b"READ:POW:ALL:CONF?\n", half + b"\n"))
    with pytest.raises(IdentityError, match="4 ports"):
        meter.open()


def test_a_unit_that_does_not_become_watt_stops_the_opening() -> None:
    set_up = [*put("SENS1:POW:REF:STAT 0"), *put("SENS1:POW:UNIT 1"), *put("INIT1:CONT 0")]
    offset, found = ask("SENS1:CORR?", "+0.0"), ask(";:".join(held_queries(1)), "+0;+0;+0;+0.0")
    again = [*set_up, *put("SENS1:CORR 0DB"), ask("SENS1:CORR?", "+0.0")]
    steps = [*drained(), *set_up, offset, found, *again, found]
    meter, _, _ = meter_on(ask("*IDN?", IDN), RecordedExchange(b"READ:POW:ALL:CONF?\n", MAP + b"\n"), *steps)
    with pytest.raises(VerifyError, match="unit of port 1"):
        meter.open()


def test_nothing_answering_is_a_time_out() -> None:
    meter, _, _ = meter_on(*[RecordedExchange(b"*IDN?\n")] * 2)
    with pytest.raises(LinkTimeout):
        meter.open()


def test_a_reading_is_in_watts_with_its_port_and_time() -> None:
    meter, _, clock = opened(read(2, "+1.33555600E-006", delay_s=0.1))
    started = clock.now()
    reading = meter.read(2)
    assert reading.channel == 2
    assert reading.power_w == 1.335556e-6
    assert reading.power_dbm == pytest.approx(-28.7434, abs=1e-4)  # 10 lg 1.335556e-3
    assert reading.timestamp_s == pytest.approx(started + 0.1)


def test_a_dark_reading_may_be_negative() -> None:
    meter, _, _ = opened(read(1, "-2.50000000E-012"))
    reading = meter.read(1)
    assert reading.state is RangeState.OK
    assert reading.power_w == -2.5e-12
    with pytest.raises(OutOfRangeError):
        _ = reading.power_dbm


@pytest.mark.parametrize(
    ("reply", "state"),
    [
        *((mark, RangeState.OVER) for mark in ("+3.40282347E+038", "+9.90000000E+037", "9.91E37", "INF")),
        *((mark, RangeState.UNDER) for mark in ("-3.40282347E+038", "-9.9E37", "-INF")),
        ("NaN", RangeState.INVALID),
    ],
)
def test_a_mark_never_becomes_a_power(reply: str, state: RangeState) -> None:
    meter, _, _ = opened(read(1, reply))
    reading = meter.read(1)
    assert reading.state is state
    with pytest.raises(OutOfRangeError, match=state.value):
        _ = reading.power_w


SET_AGAIN = [
    *put("SENS1:POW:REF:STAT 0"),
    *put("SENS1:POW:UNIT 1"),
    *put("INIT1:CONT 0"),
    *put("SENS1:CORR 0DB"),
    ask("SENS1:CORR?", "+0.00000000E+000"),
]


@pytest.mark.parametrize(
    ("reply", "held", "what"),
    [
        ("-7.59000000E+001", "+0;+0;+0;+0.00000000E+000", "unit of port 1"),
        ("+5.81000000E+000", "+0;+0;+0;+0.00000000E+000", "unit of port 1"),
        ("-3.00000000E+000", "+1;+1;+0;+0.00000000E+000", "relative readings of port 1"),
        ("+2.00000000E-006", "+0;+1;+1;+0.00000000E+000", "continuous triggering of port 1"),
        ("+1.00000000E-007", "+0;+1;+0;-1.00000000E+001", "calibration offset of port 1"),
    ],
)
def test_what_somebody_else_changed_is_set_again_and_the_reading_taken_anew(
    reply: str, held: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    meter, peer, _ = opened(read(1, reply, held), *SET_AGAIN, read(1, "+1.00000000E-006"))
    assert meter.read(1).power_w == 1e-6
    assert peer.remaining == ()
    assert f"another program or the front panel changed the {what}" in caplog.text


def test_a_setting_that_somebody_keeps_changing_is_an_error_and_no_reading() -> None:
    other = "+0;+0;+0;+0.00000000E+000"
    meter, _, _ = opened(read(1, "-30.0", other), *SET_AGAIN, read(1, "-30.0", other))
    with pytest.raises(VerifyError, match=r"unit of port 1 .*wrote 1, read back \+0.*Another program") as caught:
        meter.read(1)
    assert (caught.value.device, caught.value.read) == ("pm1", "+0")


def test_a_block_in_another_unit_is_read_again() -> None:
    dbm = b"#216" + struct.pack("<4f", -30.0, -30.0, -30.0, -30.0)
    watts = b"#216" + struct.pack("<4f", 1e-6, 2e-6, 3e-6, 4e-6)
    again = [
        exchange
        for port in range(1, 5)
        for exchange in (
            *put(f"SENS{port}:POW:REF:STAT 0"),
            *put(f"SENS{port}:POW:UNIT 1"),
            *put(f"INIT{port}:CONT 0"),
            *put(f"SENS{port}:CORR 0DB"),
            ask(f"SENS{port}:CORR?", "+0.0"),
        )
    ]
    changed = read_block(dbm, AS_HELD, AS_HELD, "+0;+0;+0;+0.0", AS_HELD)
    meter, peer, _ = opened(*changed, *again, *read_block(watts))
    assert [round(1e6 * reading.power_w) for reading in meter.read_all()] == [1, 2, 3, 4]
    assert peer.remaining == ()


@pytest.mark.parametrize(
    ("reply", "state"),
    [
        # An N774x ends at 10 mW, and no range of it reads 3 dB more than its nominal power (programming guide).
        ("+2.00000000E-002", RangeState.OK),
        ("+2.20000000E-002", RangeState.OVER),
        ("+5.81245000E+000", RangeState.OVER),
        ("-9.90000000E-005", RangeState.OK),
        ("-1.10000000E-004", RangeState.INVALID),
        ("-7.59000000E+001", RangeState.INVALID),
    ],
)
def test_a_power_that_no_sensor_reads_is_no_power(reply: str, state: RangeState) -> None:
    meter, _, _ = opened(read(1, reply))
    assert meter.read(1).state is state


def test_all_ports_are_read_in_one_block_of_little_endian_floats() -> None:
    block = b"#216" + struct.pack("<4f", 1e-6, 2e-6, FLT_MAX, -1e-12)
    meter, _, _ = opened(*read_block(block))
    readings = meter.read_all()
    assert [reading.channel for reading in readings] == [1, 2, 3, 4]
    assert readings[0].power_w == pytest.approx(1e-6, rel=1e-7)
    assert readings[1].power_w == pytest.approx(2e-6, rel=1e-7)
    assert readings[2].state is RangeState.OVER
    assert readings[3].power_w == pytest.approx(-1e-12, rel=1e-7)


def test_a_block_of_another_length_is_refused() -> None:
    meter, _, _ = opened(RecordedExchange(b"READ:POW:ALL?\n", b"#18" + bytes(8) + b"\n"))
    with pytest.raises(FrameError, match="8 bytes instead of 4 ports"):
        meter.read_all()


def test_a_word_instead_of_a_number_is_refused() -> None:
    meter, _, _ = opened(read(1, "WIND"))
    with pytest.raises(FrameError, match="expected a number, found 'WIND'"):
        meter.read(1)


def limits(header: str, low: str, high: str) -> list[RecordedExchange]:
    return [ask(f"{header}? MIN", low), ask(f"{header}? MAX", high)]


WAV_LIMITS = limits("SENS1:POW:WAV", "+1.25000000E-006", "+1.65000000E-006")


def test_a_wavelength_is_set_in_nm_and_read_back_in_metres() -> None:
    meter, peer, _ = opened(
        *WAV_LIMITS,
        ask("SENS1:POW:RANG:AUTO?", "+0"),
        *put("SENS1:POW:WAV 1550.12NM"),
        ask("SENS1:POW:WAV?", "+1.55012000E-006"),
        ask(";:".join(["READ1:POW?", *held_queries(1), "SENS1:POW:WAV?"]), f"+1E-6;{AS_HELD};+1.55012000E-006"),
    )
    meter.set_wavelength_nm(1, 1550.12)
    assert meter.read(1).power_w == 1e-6  # the wavelength that was set is read along from now on
    assert peer.remaining == ()


def test_automatic_ranging_rests_while_the_wavelength_is_set() -> None:
    meter, peer, _ = opened(
        *WAV_LIMITS,
        ask("SENS1:POW:RANG:AUTO?", "+1"),
        *put("SENS1:POW:RANG:AUTO 0"),
        *put("SENS1:POW:WAV 1310NM"),
        *put("SENS1:POW:RANG:AUTO 1"),
        ask("SENS1:POW:WAV?", "+1.31000000E-006"),
    )
    meter.set_wavelength_nm(1, 1310.0)
    assert peer.remaining == ()


@pytest.mark.parametrize(("asked", "limit"), [(850.0, 1250.0), (1700.0, 1650.0), (float("nan"), 1650.0)])
def test_a_wavelength_outside_the_instruments_limits_is_refused_before_it_is_sent(asked: float, limit: float) -> None:
    meter, peer, _ = opened(*WAV_LIMITS)
    with pytest.raises(LimitError, match="Nothing was changed") as caught:
        meter.set_wavelength_nm(1, asked)
    assert caught.value.limit == pytest.approx(limit)
    assert peer.remaining == ()


def test_a_wavelength_that_was_silently_not_applied_is_noticed() -> None:
    meter, _, _ = opened(
        *WAV_LIMITS,
        ask("SENS1:POW:RANG:AUTO?", "+0"),
        *put("SENS1:POW:WAV 1550NM"),
        ask("SENS1:POW:WAV?", "+1.31000000E-006"),
    )
    with pytest.raises(VerifyError, match=r"wrote 1550\.0, read back 1310"):
        meter.set_wavelength_nm(1, 1550.0)


def test_an_error_of_the_instrument_stops_the_set_and_names_the_command() -> None:
    meter, _, _ = opened(
        *WAV_LIMITS,
        ask("SENS1:POW:RANG:AUTO?", "+0"),
        *put("SENS1:POW:WAV 1550NM", '-221,"Settings conflict"', '-113,"Undefined header"'),
    )
    with pytest.raises(DeviceError, match=r"-221 Settings conflict; -113 Undefined header") as caught:
        meter.set_wavelength_nm(1, 1550.0)
    assert caught.value.code == -221
    assert caught.value.command == "SENS1:POW:WAV 1550NM"


def test_errors_of_normal_operation_are_ignored() -> None:
    meter, peer, _ = opened(
        *put("SENS1:POW:RANG:AUTO 1", '-231,"Data questionable"', '-261,"Math error"'),
        ask("SENS1:POW:RANG:AUTO?", "+1"),
    )
    meter.set_range_dbm(1, None)
    assert peer.remaining == ()


def test_an_averaging_time_is_set_in_seconds_and_gives_readings_their_time() -> None:
    meter, peer, clock = opened(
        *limits("SENS3:POW:ATIM", "+1.00000000E-006", "+1.00000000E+001"),
        *put("SENS3:POW:ATIM 5S"),
        ask("SENS3:POW:ATIM?", "+5.00000000E+000"),
        read(3, "+1.00000000E-006", delay_s=5.5),
        read(3, "+1.00000000E-006", delay_s=60.0),
    )
    meter.set_averaging_s(3, 5.0)
    assert meter.read(3).power_w == 1e-6
    started = clock.now()
    with pytest.raises(LinkTimeout):
        meter.read(3)
    assert clock.now() - started == pytest.approx(6.0)  # 1.2 x 5 s
    assert peer.remaining == ()


def test_a_short_averaging_time_still_gives_two_seconds() -> None:
    meter, _, clock = opened(RecordedExchange(";:".join(["READ1:POW?", *held_queries(1)]).encode() + b"\n"))
    started = clock.now()
    with pytest.raises(LinkTimeout):
        meter.read(1)
    assert clock.now() - started == pytest.approx(2.0)


def test_an_averaging_time_rounded_by_the_instrument_is_noticed() -> None:
    meter, _, _ = opened(
        *limits("SENS1:POW:ATIM", "+1.00000000E-006", "+1.00000000E+001"),
        *put("SENS1:POW:ATIM 0.015S"),
        ask("SENS1:POW:ATIM?", "+1.00000000E-002"),
    )
    with pytest.raises(VerifyError, match="averaging time of port 1"):
        meter.set_averaging_s(1, 0.015)


RANGE_LIMITS = limits("SENS1:POW:RANG", "-7.00000000E+001", "+1.00000000E+001")


def test_a_fixed_range_switches_automatic_ranging_off() -> None:
    meter, peer, _ = opened(
        *RANGE_LIMITS,
        *put("SENS1:POW:RANG:AUTO 0"),
        *put("SENS1:POW:RANG -20DBM"),
        ask("SENS1:POW:RANG:AUTO?", "+0"),
        ask("SENS1:POW:RANG?", "-2.00000000E+001"),
        ask("SENS1:POW:RANG:AUTO?", "+0"),
        ask("SENS1:POW:RANG?", "-2.00000000E+001"),
    )
    meter.set_range_dbm(1, -20.0)
    assert meter.range_dbm(1) == -20.0
    assert peer.remaining == ()


def test_a_range_between_the_steps_is_refused_not_rounded() -> None:
    meter, peer, _ = opened(*RANGE_LIMITS)
    with pytest.raises(ConfigError, match="multiples of 10 dBm"):
        meter.set_range_dbm(1, -25.0)
    assert peer.remaining == ()


def test_a_range_above_the_limit_is_refused() -> None:
    meter, _, _ = opened(*RANGE_LIMITS)
    with pytest.raises(LimitError):
        meter.set_range_dbm(1, 20.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda meter: meter.read(5),
        lambda meter: meter.read(0),
        lambda meter: meter.set_wavelength_nm(9, 1550.0),
        lambda meter: meter.set_averaging_s(9, 1.0),
        lambda meter: meter.set_range_dbm(9, None),
    ],
)
def test_a_port_that_does_not_exist_is_refused(call: Callable[[KeysightN77xx], object]) -> None:
    meter, _, _ = opened()
    with pytest.raises(ConfigError, match="ports 1 to 4"):
        call(meter)


def test_the_error_queue_can_be_drained() -> None:
    meter, _, _ = opened(*drained('-113,"Undefined header"', '-222,"Data out of range"'))
    assert meter.errors() == ((-113, "Undefined header"), (-222, "Data out of range"))


def test_errors_from_before_a_link_fault_are_not_blamed_on_the_next_command() -> None:
    meter, peer, _ = opened(
        RecordedExchange(";:".join(["READ1:POW?", *held_queries(1)]).encode() + b"\n"),
        ask("*IDN?", IDN),
        read(2, "+1.00000000E-006"),
        *drained('-410,"Query INTERRUPTED"', '-113,"Undefined header"'),
        *put("SENS1:POW:RANG:AUTO 1"),
        ask("SENS1:POW:RANG:AUTO?", "+1"),
    )
    with pytest.raises(LinkTimeout):
        meter.read(1)
    assert meter.read(2).power_w == 1e-6
    meter.set_range_dbm(1, None)
    assert peer.remaining == ()


def test_closing_gives_the_ports_back_and_never_raises() -> None:
    giving_back = [RecordedExchange(f"INIT{port}:CONT 1\n".encode()) for port in range(1, 5)]
    meter, peer, _ = opened(*giving_back)
    meter.close()
    assert peer.remaining == ()
    meter.close()
    with pytest.raises(ConnectError, match="not open"):
        _ = meter.channels


def test_closing_a_meter_that_went_away_never_raises() -> None:
    meter, _, _ = opened()  # the conversation is over: the next byte is a lost link
    meter.close()
    meter.close()


def test_leaving_the_context_closes() -> None:
    meter, _, _ = meter_on(ask("*IDN?", IDN), RecordedExchange(b"READ:POW:ALL:CONF?\n", MAP + b"\n"), *opening())
    with meter as inside:
        assert inside.model == "N7744C"
    with pytest.raises(LinkLost):
        meter.session.query("*IDN?")
