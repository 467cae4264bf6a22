"""The Keysight attenuator driver in conversations from the N77xx programming guide (Signal Conditioning)."""

from __future__ import annotations

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.attenuators.keysight_n776x import KeysightN776x
from lumion_hw.errors import (
    ConfigError,
    ConnectError,
    DeviceError,
    DeviceTimeoutError,
    IdentityError,
    LimitError,
    VerifyError,
)
from lumion_hw.interfaces import VariableAttenuator
from lumion_hw.links import RecordedExchange, ReplayPeer, replay_link

IDN = "Agilent Technologies,N7762A,MY48123456,1.120"
NO_ERROR = '+0,"No error"'


def ask(command: str, reply: str, delay_s: float = 0.0) -> RecordedExchange:
    return RecordedExchange(command.encode() + b"\n", reply.encode() + b"\r\n", delay_s)


def put(command: str, *errors: str) -> list[RecordedExchange]:
    return [
        RecordedExchange(command.encode() + b"\n"),
        *(ask("SYST:ERR?", error) for error in (*errors, NO_ERROR)),
    ]


def prepared(slot: int) -> list[RecordedExchange]:
    return [
        *put(f"OUTP{slot}:POW:CONTR 0"),
        ask(f"OUTP{slot}:POW:CONTR?", "0"),
        *put(f"INP{slot}:OFFS 0"),
        ask(f"INP{slot}:OFFS?", "+0.00000000E+000"),
    ]


# Each attenuator occupies two slots (Slot and Channel Numbers), so the second one is slot 3.
OPENING = [ask("*IDN?", IDN), ask("SYST:ERR?", NO_ERROR), *prepared(1), *prepared(3)]
HELD = "INP3:OFFS?;:OUTP3:POW:CONTR?"
AS_HELD = "+0.00000000E+000;0"
ENDS = [ask("INP3:ATT? MIN", "+0.00000000E+000"), ask("INP3:ATT? MAX", "+4.50000000E+001")]
LIMITS = [ask(HELD, AS_HELD), *ENDS]


def attenuation(value: str, held: str = AS_HELD) -> RecordedExchange:
    """An attenuation read back in one message with what it depends on."""
    return ask(f"INP3:ATT?;:{HELD}", f"{value};{held}")


def attenuator_on(*exchanges: RecordedExchange, **options: str) -> tuple[KeysightN776x, ReplayPeer, VirtualClock]:
    clock = VirtualClock()
    peer = ReplayPeer(exchanges, clock)
    return KeysightN776x(replay_link(peer, clock), clock, device="voa0", **options), peer, clock


def opened(*exchanges: RecordedExchange) -> tuple[KeysightN776x, ReplayPeer, VirtualClock]:
    attenuator, peer, clock = attenuator_on(*OPENING, *exchanges)
    attenuator.open()
    return attenuator, peer, clock


def test_opening_leaves_shutter_and_filter_alone() -> None:
    attenuator, peer, _ = opened()
    assert attenuator.model == "N7762A"
    assert attenuator.serial == "MY48123456"
    assert attenuator.channels == (1, 2)
    assert peer.remaining == ()
    _: VariableAttenuator = attenuator


def test_another_instrument_is_refused() -> None:
    attenuator, _, _ = attenuator_on(ask("*IDN?", "Keysight Technologies,N7745C,MY1,2.0"))
    with pytest.raises(IdentityError, match="N7745C"):
        attenuator.open()


def test_an_attenuation_goes_to_the_slot_of_its_channel_and_waits_for_the_filter() -> None:
    attenuator, peer, clock = opened(
        *LIMITS,
        ask("INP3:ATT?", "+1.00000000E+001"),
        ask("INP3:ATT:SPE?", "+2.00000000E+000"),
        *put("INP3:ATT 14.000DB"),
        ask("*OPC?", "0"),
        ask("*OPC?", "0"),
        ask("*OPC?", "1"),
        attenuation("+1.40000000E+001"),
    )
    before_s = clock.now()
    attenuator.set_attenuation_db(2, 14.0)
    assert peer.remaining == ()
    assert clock.now() > before_s  # it waited between the questions


def test_an_offset_and_a_power_control_of_somebody_else_are_ended_before_a_set() -> None:
    attenuator, peer, _ = opened(
        ask(HELD, "+3.00000000E+000;1"),
        *put("INP3:OFFS 0"),
        ask("INP3:OFFS?", "+0.00000000E+000"),
        *put("OUTP3:POW:CONTR 0"),
        ask("OUTP3:POW:CONTR?", "0"),
        ask(HELD, AS_HELD),
        *ENDS,
        ask("INP3:ATT?", "+1.00000000E+001"),
        ask("INP3:ATT:SPE?", "+2.00000000E+000"),
        *put("INP3:ATT 14.000DB"),
        ask("*OPC?", "1"),
        attenuation("+1.40000000E+001"),
    )
    attenuator.set_attenuation_db(2, 14.0)
    assert peer.remaining == ()


def test_an_attenuation_displayed_with_an_offset_of_somebody_else_is_read_without_it() -> None:
    attenuator, peer, _ = opened(
        ask("INP1:ATT?;:INP1:OFFS?", "+1.70000000E+001;+3.00000000E+000"),
        *put("INP1:OFFS 0"),
        ask("INP1:OFFS?", "+0.00000000E+000"),
        ask("INP1:ATT?;:INP1:OFFS?", "+1.40000000E+001;+0.00000000E+000"),
        ask("INP1:WAV?", "+1.31000000E-006"),
        ask("OUTP1:STAT?", "1"),
    )
    settings = attenuator.settings(1)
    assert (settings.attenuation_db, settings.passing) == (14.0, True)
    assert settings.wavelength_nm == pytest.approx(1310.0)  # that in force, whoever set it
    assert peer.remaining == ()


def test_a_filter_that_never_rests_is_an_error() -> None:
    attenuator, _, clock = opened(
        *LIMITS,
        ask("INP3:ATT?", "+1.00000000E+001"),
        ask("INP3:ATT:SPE?", "+1.00000000E+003"),
        *put("INP3:ATT 14.000DB"),
        *[ask("*OPC?", "0")] * 1000,
    )
    with pytest.raises(DeviceTimeoutError, match="still moving"):
        attenuator.set_attenuation_db(2, 14.0)
    assert clock.now() < 60.0


@pytest.mark.parametrize("wrong_db", [-0.1, 45.1, float("nan")])
def test_an_attenuation_outside_the_limits_is_not_sent(wrong_db: float) -> None:
    attenuator, peer, _ = opened(*LIMITS)
    with pytest.raises(LimitError) as caught:
        attenuator.set_attenuation_db(2, wrong_db)
    assert caught.value.unit == "dB"
    assert peer.remaining == ()


def test_an_attenuation_that_is_not_kept_is_an_error() -> None:
    attenuator, _, _ = opened(
        *LIMITS,
        ask("INP3:ATT?", "+1.00000000E+001"),
        ask("INP3:ATT:SPE?", "+2.00000000E+000"),
        *put("INP3:ATT 14.000DB"),
        ask("*OPC?", "1"),
        attenuation("+1.00000000E+001"),
    )
    with pytest.raises(VerifyError, match="attenuation"):
        attenuator.set_attenuation_db(2, 14.0)


def test_an_error_of_the_instrument_comes_with_its_code() -> None:
    attenuator, _, _ = opened(
        *LIMITS,
        ask("INP3:ATT?", "+1.00000000E+001"),
        ask("INP3:ATT:SPE?", "+2.00000000E+000"),
        *put("INP3:ATT 14.000DB", '-221,"Settings conflict"'),
    )
    with pytest.raises(DeviceError, match="Settings conflict") as caught:
        attenuator.set_attenuation_db(2, 14.0)
    assert caught.value.code == -221


def test_wavelengths_go_out_in_nm_and_come_back_in_metres() -> None:
    attenuator, peer, _ = opened(
        ask("INP1:WAV? MIN", "+1.26000000E-006"),
        ask("INP1:WAV? MAX", "+1.64000000E-006"),
        *put("INP1:WAV 1550.0000NM"),
        ask("INP1:WAV?", "+1.55000000E-006"),
        ask("*OPC?", "1"),
    )
    attenuator.set_wavelength_nm(1, 1550.0)
    assert peer.remaining == ()


def test_the_shutter_is_the_state_of_the_output() -> None:
    attenuator, peer, _ = opened(
        *put("OUTP1:STAT 0"),
        ask("OUTP1:STAT?", "0"),
        ask("*OPC?", "1"),
        ask("INP1:ATT?;:INP1:OFFS?", "+1.40000000E+001;+0.00000000E+000"),
        ask("INP1:WAV?", "+1.55000000E-006"),
        ask("OUTP1:STAT?", "0"),
    )
    attenuator.disable(1)
    settings = attenuator.settings(1)
    assert (settings.attenuation_db, settings.passing) == (14.0, False)
    assert settings.wavelength_nm == pytest.approx(1550.0)
    assert peer.remaining == ()


def test_a_channel_that_is_not_there_is_told_with_those_that_are() -> None:
    attenuator, _, _ = opened()
    with pytest.raises(ConfigError, match=r"channel 3.*1, 2"):
        attenuator.settings(3)


def test_a_driver_that_is_not_open_says_so() -> None:
    attenuator, _, _ = attenuator_on()
    with pytest.raises(ConnectError, match="attenuator is not open"):
        attenuator.settings(1)
