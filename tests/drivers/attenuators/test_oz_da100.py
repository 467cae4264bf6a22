"""The OZ Optics DA-100 driver in conversations as QMI, pyLabLib and the Caltech observatories' client expect them."""

from __future__ import annotations

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.attenuators.oz_da100 import OzDa100
from lumion_hw.errors import (
    ConfigError,
    ConnectError,
    DeviceError,
    FrameError,
    IdentityError,
    LimitError,
    LinkTimeout,
    NotSupportedError,
    VerifyError,
)
from lumion_hw.interfaces import VariableAttenuator
from lumion_hw.links import RecordedExchange, ReplayPeer, replay_link

CD = ["Model: DD-100-MC", "S/N: 12345", "IL: 1.20", "MAX ATTEN: 45.00"]


def says(command: str, *lines: str, end: str = "Done", delay_s: float = 0.0) -> RecordedExchange:
    reply = "".join(f"{line}\r\n" for line in (*lines, end, ""))
    return RecordedExchange(f"{command}\r\n".encode(), reply.encode(), delay_s)


OPENING = [says("D", "Pos:1234", "Atten:3.00(dB)"), says("CD", *CD)]


def attenuator_on(*exchanges: RecordedExchange, **options: float) -> tuple[OzDa100, ReplayPeer, VirtualClock]:
    clock = VirtualClock()
    peer = ReplayPeer(exchanges, clock)
    return OzDa100(replay_link(peer, clock), clock, device="voa1", **options), peer, clock


def opened(*exchanges: RecordedExchange, **options: float) -> tuple[OzDa100, ReplayPeer]:
    attenuator, peer, _ = attenuator_on(*OPENING, *exchanges, **options)
    attenuator.open()
    return attenuator, peer


def test_opening_reads_the_range_and_moves_nothing() -> None:
    attenuator, peer = opened()
    _: VariableAttenuator = attenuator
    assert attenuator.limits(1).attenuation_db == (1.2, 45.0)
    assert peer.remaining == ()


@pytest.mark.parametrize("lines", [("DPos:1234", "ATTEN:3.00"), ("D", "Pos: 1234", "Atten: 3.00(dB)")])
def test_an_echo_with_and_without_its_line_end_is_passed_over(lines: tuple[str, ...]) -> None:
    attenuator, _, _ = attenuator_on(says("D", *lines), says("CD", "CD", *CD), says("D", *lines))
    attenuator.open()
    assert attenuator.settings(1).attenuation_db == 3.0


def test_a_unit_that_states_no_range_has_that_of_the_bench_file() -> None:
    attenuator, _, _ = attenuator_on(OPENING[0], says("CD", "Model: DD-100-MC"), attenuation_max_db=30.0)
    attenuator.open()
    assert attenuator.limits(1).attenuation_db == (0.0, 30.0)


def test_the_smaller_of_two_limits_counts() -> None:
    attenuator, _ = opened(attenuation_max_db=30.0)
    assert attenuator.limits(1).attenuation_db == (1.2, 30.0)


def test_a_unit_that_does_not_know_where_it_is_is_sent_home() -> None:
    attenuator, peer, _ = attenuator_on(
        says("D", "Pos:0", "Atten:unknown"), OPENING[1], says("H", "Diff=12", delay_s=20.0)
    )
    attenuator.open()
    assert peer.remaining == ()


def test_an_attenuation_waits_for_the_motor_and_is_read_back() -> None:
    attenuator, peer = opened(
        says("A10.50", "Pos:4321", delay_s=8.0),
        says("D", "Pos:4321", "Atten:10.48(dB)"),
        says("D", "Pos:4321", "Atten:10.48"),
    )
    attenuator.set_attenuation_db(1, 10.5)
    assert attenuator.settings(1).attenuation_db == 10.48
    assert peer.remaining == ()


def test_an_attenuation_that_is_not_reached_is_an_error() -> None:
    attenuator, _ = opened(says("A10.50", "Pos:1300"), says("D", "Pos:1300", "Atten:4.00(dB)"))
    with pytest.raises(VerifyError, match="attenuation"):
        attenuator.set_attenuation_db(1, 10.5)


@pytest.mark.parametrize("wrong_db", [0.5, 45.1, float("nan")])
def test_an_attenuation_outside_the_range_is_not_sent(wrong_db: float) -> None:
    attenuator, peer = opened()
    with pytest.raises(LimitError) as caught:
        attenuator.set_attenuation_db(1, wrong_db)
    assert caught.value.unit == "dB"
    assert peer.remaining == ()


def test_a_refusal_is_told_with_what_its_number_means() -> None:
    attenuator, _ = opened(says("H", end="Error-5"))
    with pytest.raises(DeviceError, match=r"Error-5.*home sensor failed"):
        attenuator.home()


def test_a_unit_that_lost_its_place_has_no_attenuation() -> None:
    attenuator, _ = opened(says("D", "Pos:0", "Atten:unknown"))
    with pytest.raises(DeviceError, match="does not know its motor position"):
        attenuator.settings(1)


def test_a_reply_without_an_attenuation_is_no_reading() -> None:
    attenuator, _ = opened(says("D", "Pos:1234"))
    with pytest.raises(FrameError, match="expected an attenuation"):
        attenuator.settings(1)


def test_something_else_is_refused() -> None:
    attenuator, _, _ = attenuator_on(says("D", "Wavelength: 1550"))
    with pytest.raises(IdentityError, match="expected an OZ Optics attenuator"):
        attenuator.open()


def test_it_has_neither_shutter_nor_wavelength_nor_other_channels() -> None:
    attenuator, _ = opened()
    attenuator.enable(1)
    with pytest.raises(NotSupportedError, match="no shutter"):
        attenuator.disable(1)
    with pytest.raises(NotSupportedError, match="wavelength"):
        attenuator.set_wavelength_nm(1, 1550.0)
    with pytest.raises(ConfigError, match="no channel 2"):
        attenuator.settings(2)


def test_silence_is_a_time_out_and_closed_is_closed() -> None:
    attenuator, _, _ = attenuator_on(*[RecordedExchange(b"D\r\n")] * 2)
    with pytest.raises(LinkTimeout):
        attenuator.open()
    with pytest.raises(ConnectError, match="attenuator is not open"):
        attenuator.settings(1)
