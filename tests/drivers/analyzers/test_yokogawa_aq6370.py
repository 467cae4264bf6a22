"""The AQ6370 driver in conversations as the remote control manual's examples and public clients have them."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.analyzers.yokogawa_aq6370 import YokogawaAq6370
from lumion_hw.errors import (
    ConfigError,
    ConnectError,
    DeviceTimeoutError,
    FrameError,
    IdentityError,
    LimitError,
    VerifyError,
)
from lumion_hw.interfaces import SpectrumAnalyzer
from lumion_hw.links import RecordedExchange, ReplayPeer, replay_link

IDN = "YOKOGAWA,AQ6370D,90Y403996,02.08"
NO_ERROR = '0,"No error"'
LOGIN = [
    RecordedExchange(b'OPEN "anonymous"\n', b"AUTHENTICATE CRAM-MD5.\r\n"),
    RecordedExchange(b" \n", b"ready\r\n"),
]


def ask(command: str, reply: str) -> RecordedExchange:
    return RecordedExchange(command.encode() + b"\n", reply.encode() + b"\r\n")


def put(command: str) -> list[RecordedExchange]:
    return [RecordedExchange(command.encode() + b"\n"), ask("SYST:ERR?", NO_ERROR)]


def block(command: str, values: list[float]) -> RecordedExchange:
    payload = struct.pack(f"<{len(values)}d", *values)
    size = str(len(payload))
    return RecordedExchange(command.encode() + b"\n", f"#{len(size)}{size}".encode() + payload + b"\r\n")


SETUP = [ask("SYST:ERR?", NO_ERROR), *put(":FORM REAL,64"), *put(":UNIT:X WAV"), *put(":SENS:CORR:RVEL:MED VAC")]
SHIFTS = [ask(":SENS:CORR:WAV:SHIF?", "+5.00000000E-011"), ask(":SENS:CORR:LEV:SHIF?", "+0.00000000E+000")]
OPENING = [*LOGIN, ask("*IDN?", IDN), *SETUP, *SHIFTS]
HELD = ":FORM?;:UNIT:X?;:SENS:CORR:RVEL:MED?;:SENS:CORR:WAV:SHIF?"
KEPT = ask(HELD, "REAL,64;0;1;+5.00000000E-011")
LEVELS = ":SENS:CORR:LEV:SHIF?;:TRAC:ATTR:TRA?;:DISP:TRAC:Y1:SPAC?;:DISP:TRAC:Y1:UNIT?"
CHECKED = [KEPT, ask(LEVELS, "+0.00000000E+000;0;0;0")]


def settings(start: str = "+1.54900000E-006", points: str = "4", automatic: str = "0") -> list[RecordedExchange]:
    return [
        ask(":SENS:SENS?", "2"),
        ask(":SENS:SWE:POIN:AUTO?", automatic),
        ask(":SENS:WAV:STAR?", start),
        ask(":SENS:WAV:STOP?", "+1.55200000E-006"),
        ask(":SENS:BAND?", "+2.00000000E-011"),
        *([] if automatic == "1" else [ask(":SENS:SWE:POIN?", points)]),
        KEPT,
    ]


STARTED = [
    *settings(),
    *put(":TRAC:ATTR:TRA WRIT"),
    *put(":DISP:TRAC:Y1:SPAC LOG"),
    *put(":DISP:TRAC:Y1:UNIT DBM"),
    ask(LEVELS, "+0.00000000E+000;0;0;0"),
    *put(":TRAC:ACT TRA"),
    *put(":INIT:SMOD SING"),
    RecordedExchange(b"*CLS\n"),
    *put(":INIT"),
]
WAVELENGTHS_M = [1.549e-6, 1.550e-6, 1.551e-6, 1.552e-6]


def analyzer_on(*exchanges: RecordedExchange, **options: str) -> tuple[YokogawaAq6370, ReplayPeer, VirtualClock]:
    clock = VirtualClock()
    peer = ReplayPeer(exchanges, clock)
    return YokogawaAq6370(replay_link(peer, clock), clock, device="osa0", **options), peer, clock


def opened(*exchanges: RecordedExchange) -> tuple[YokogawaAq6370, ReplayPeer, VirtualClock]:
    analyzer, peer, clock = analyzer_on(*OPENING, *exchanges)
    analyzer.open()
    return analyzer, peer, clock


def test_it_logs_in_before_it_asks_who_is_there() -> None:
    analyzer, peer, _ = opened()
    _: SpectrumAnalyzer = analyzer
    assert (analyzer.model, analyzer.serial) == ("AQ6370D", "90Y403996")
    assert peer.remaining == ()


def test_a_user_has_a_password_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSA_PASSWORD", "swordfish")
    login = [
        RecordedExchange(b'OPEN "ilse"\n', b"AUTHENTICATE CRAM-MD5.\r\n"),
        RecordedExchange(b"swordfish\n", b"READY\r\n"),
    ]
    analyzer, peer, _ = analyzer_on(
        *login, ask("*IDN?", IDN), *SETUP, *SHIFTS, user="ilse", password_env="OSA_PASSWORD"
    )
    analyzer.open()
    assert peer.remaining == ()


def test_a_password_that_is_not_there_or_wrong_is_told_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OSA_PASSWORD", raising=False)
    analyzer, _, _ = analyzer_on(user="ilse", password_env="OSA_PASSWORD")
    with pytest.raises(ConfigError, match="OSA_PASSWORD does not contain a password"):
        analyzer.open()
    monkeypatch.setenv("OSA_PASSWORD", "swordfish")
    analyzer, _, _ = analyzer_on(
        RecordedExchange(b'OPEN "ilse"\n', b"AUTHENTICATE CRAM-MD5.\r\n"),
        RecordedExchange(b"swordfish\n", b"LOGIN ERROR\r\n"),
        user="ilse",
        password_env="OSA_PASSWORD",
    )
    with pytest.raises(ConnectError, match=r"the login failed.*LOGIN ERROR") as caught:
        analyzer.open()
    assert "swordfish" not in str(caught.value)


def test_another_instrument_is_refused() -> None:
    analyzer, _, _ = analyzer_on(*LOGIN, ask("*IDN?", "YOKOGAWA,WT310,1,1"))
    with pytest.raises(IdentityError, match="WT310"):
        analyzer.open()


def test_a_span_is_sent_so_that_the_ends_never_cross() -> None:
    analyzer, peer, _ = opened(
        KEPT,
        ask(":SENS:WAV:STOP?", "+1.53000000E-006"),  # below the new first wavelength
        *put(":SENS:WAV:STOP 1552.000NM"),
        *put(":SENS:WAV:STAR 1549.000NM"),
        ask(":SENS:WAV:STOP?", "+1.55200000E-006"),
        ask(":SENS:WAV:STAR?", "+1.54900000E-006"),
    )
    analyzer.set_span_nm(1549.0, 1552.0)
    assert peer.remaining == ()


@pytest.mark.parametrize("wrong_nm", [(599.0, 1550.0), (1550.0, 1701.0), (1550.0, 1550.0), (math.nan, 1550.0)])
def test_a_span_outside_the_range_is_not_sent(wrong_nm: tuple[float, float]) -> None:
    analyzer, peer, _ = opened()
    with pytest.raises(LimitError):
        analyzer.set_span_nm(*wrong_nm)
    assert peer.remaining == ()


def test_resolution_sensitivity_and_points_are_read_back() -> None:
    analyzer, peer, _ = opened(
        *put(":SENS:BAND 0.020NM"),
        ask(":SENS:BAND?", "+2.00000000E-011"),
        *put(":SENS:SENS HIGH1"),
        ask(":SENS:SENS?", "3"),
        *put(":SENS:SWE:POIN:AUTO 0"),
        ask(":SENS:SWE:POIN:AUTO?", "0"),
        *put(":SENS:SWE:POIN 501"),
        ask(":SENS:SWE:POIN?", "501"),
        *put(":SENS:SWE:POIN:AUTO 1"),
        ask(":SENS:SWE:POIN:AUTO?", "1"),
    )
    analyzer.set_resolution_nm(0.02)
    analyzer.set_sensitivity("high1")
    analyzer.set_n_points(501)
    analyzer.set_n_points(None)
    assert peer.remaining == ()


def test_what_there_is_not_is_refused_with_what_there_is() -> None:
    analyzer, _, _ = opened()
    with pytest.raises(LimitError, match=r"0\.02, 0\.05, 0\.1"):
        analyzer.set_resolution_nm(0.03)
    with pytest.raises(ConfigError, match="HIGH3"):
        analyzer.set_sensitivity("HIGH4")
    with pytest.raises(LimitError):
        analyzer.set_n_points(50002)


def test_settings_are_told_in_nanometres() -> None:
    analyzer, _, _ = opened(*settings(automatic="1"))
    found = analyzer.settings()
    assert (found.start_nm, found.stop_nm) == pytest.approx((1549.0, 1552.0))
    assert found.resolution_nm == pytest.approx(0.02)
    assert (found.sensitivity, found.n_points) == ("MID", None)


def test_wavelengths_in_air_are_read_again_in_vacuum() -> None:
    again = [
        *put(":FORM REAL,64"),
        *put(":UNIT:X WAV"),
        *put(":SENS:CORR:RVEL:MED VAC"),
        *put(":SENS:CORR:WAV:SHIF 0.05NM"),
    ]
    changed = ask(HELD, "REAL,64;0;0;+5.00000000E-011")
    in_air = [*settings(start="+1.54857850E-006", automatic="1")[:-1], changed]
    analyzer, peer, _ = opened(*in_air, *again, *settings(automatic="1"))
    assert analyzer.settings().start_nm == pytest.approx(1549.0)
    assert peer.remaining == ()


@pytest.mark.parametrize(
    ("axis", "levels", "what"),
    [
        ("REAL,64;0;0;5E-11", "0;0;0;0", "medium of the wavelengths"),
        ("REAL,64;1;1;5E-11", "0;0;0;0", "unit of the horizontal axis"),
        ("REAL,64;0;1;7E-11", "0;0;0;0", "shift of wavelengths"),
        ("REAL,64;0;1;5E-11", "0;0;1;0", "level scale"),
        ("REAL,64;0;1;5E-11", "0;0;0;2", "unit of levels"),
        ("REAL,64;0;1;5E-11", "0;2;0;0", "attribute of the trace"),
        ("REAL,64;0;1;5E-11", "0.01;0;0;0", "shift of levels"),
    ],
)
def test_a_sweep_during_which_somebody_changed_a_scale_is_no_spectrum(axis: str, levels: str, what: str) -> None:
    traces = [block(":TRAC:X? TRA", WAVELENGTHS_M), block(":TRAC:Y? TRA", [-61.25, -10.5, -60.0, -59.0])]
    found = [ask(HELD, axis), ask(LEVELS, levels)]
    analyzer, _, _ = opened(*STARTED, ask(":STAT:OPER:EVEN?", "1"), *traces, *found)
    with pytest.raises(VerifyError, match=what):
        analyzer.sweep(10.0)


def test_a_sweep_is_started_waited_for_and_fetched_as_blocks() -> None:
    analyzer, peer, _ = opened(
        *STARTED,
        ask(":STAT:OPER:EVEN?", "0"),
        ask(":STAT:OPER:EVEN?", "0"),
        ask(":STAT:OPER:EVEN?", "1"),
        block(":TRAC:X? TRA", WAVELENGTHS_M),
        block(":TRAC:Y? TRA", [-61.25, -10.5, -210.0, -59.0]),
        *CHECKED,
    )
    spectrum = analyzer.sweep(10.0)
    assert spectrum.wavelength_nm == pytest.approx([1549.0, 1550.0, 1551.0, 1552.0])
    assert np.array_equal(spectrum.power_dbm, [-61.25, -10.5, math.nan, -59.0], equal_nan=True)
    assert spectrum.resolution_nm == pytest.approx(0.02)
    assert spectrum.ended_s - spectrum.started_s == pytest.approx(0.2)
    assert peer.remaining == ()


def test_a_sweep_that_does_not_end_is_stopped() -> None:
    analyzer, peer, clock = opened(*STARTED, *[ask(":STAT:OPER:EVEN?", "0")] * 7, RecordedExchange(b":ABOR\n"))
    before_s = clock.now()
    with pytest.raises(DeviceTimeoutError, match=r"within 0\.5 s and was stopped"):
        analyzer.sweep(0.5)
    assert clock.now() - before_s < 1.0
    assert peer.remaining == ()


@pytest.mark.parametrize(
    ("wavelengths_m", "levels_dbm"),
    [
        (WAVELENGTHS_M, [-60.0, -60.0, -60.0]),
        (WAVELENGTHS_M[:3], [-60.0] * 3),
        (WAVELENGTHS_M[::-1], [-60.0] * 4),
        ([1e-6 * each for each in range(4)], [-60.0] * 4),
    ],
)
def test_a_trace_that_is_not_that_of_the_sweep_is_refused(wavelengths_m: list[float], levels_dbm: list[float]) -> None:
    analyzer, _, _ = opened(
        *STARTED,
        ask(":STAT:OPER:EVEN?", "1"),
        block(":TRAC:X? TRA", wavelengths_m),
        block(":TRAC:Y? TRA", levels_dbm),
        *CHECKED,
    )
    with pytest.raises(FrameError, match="does not belong to the sweep"):
        analyzer.sweep(10.0)


def test_an_analyzer_without_shifts_holds_none() -> None:
    silent = [RecordedExchange(f":SENS:CORR:{word}:SHIF?\n".encode(), b"") for word in ("WAV", "LEV")]
    opening = [*OPENING[: -len(SHIFTS)]]
    for each in silent:
        opening += [each, ask("*IDN?", IDN), ask("SYST:ERR?", '-113,"Undefined header"'), ask("SYST:ERR?", NO_ERROR)]
    held = ask(":FORM?;:UNIT:X?;:SENS:CORR:RVEL:MED?", "REAL,64;0;1")
    analyzer, peer, _ = analyzer_on(*opening, *settings(automatic="1")[:-1], held)
    analyzer.open()
    assert analyzer.settings().start_nm == pytest.approx(1549.0)
    assert peer.remaining == ()
