"""The Polatis driver in conversations as public clients quote the SCPI guide."""

from __future__ import annotations

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.switches.polatis import Polatis
from lumion_hw.errors import BusyError, ConfigError, ConnectError, DeviceError, FrameError, IdentityError, VerifyError
from lumion_hw.interfaces import OpticalSwitch, SwitchPorts
from lumion_hw.links import RecordedExchange, ReplayPeer, replay_link

IDN = "Polatis,I-OST-4x4-LU1-DMHNS,002414,6.5.2.18"
NO_ERROR = '0,"No error"'


def ask(command: str, reply: str) -> RecordedExchange:
    return RecordedExchange(command.encode() + b"\n", reply.encode() + b"\r\n")


def put(command: str, *errors: str) -> list[RecordedExchange]:
    return [
        RecordedExchange(command.encode() + b"\n"),
        *(ask("SYST:ERR?", error) for error in (*errors, NO_ERROR)),
    ]


def state(reply: str) -> RecordedExchange:
    return ask(":OXC:SWIT:CONN:STAT?", reply)


OPENING = [ask("*IDN?", IDN), ask("SYST:ERR?", NO_ERROR), ask(":OXC:SWIT:SIZE?", "4,4")]


def switch_on(*exchanges: RecordedExchange, **options: object) -> tuple[Polatis, ReplayPeer, VirtualClock]:
    clock = VirtualClock()
    peer = ReplayPeer(exchanges, clock)
    return Polatis(replay_link(peer, clock), clock, device="oxc0", **options), peer, clock


def opened(*exchanges: RecordedExchange) -> tuple[Polatis, ReplayPeer, VirtualClock]:
    switch, peer, clock = switch_on(*OPENING, *exchanges)
    switch.open()
    return switch, peer, clock


def test_opening_finds_the_ports_and_switches_nothing() -> None:
    switch, peer, _ = opened()
    _: OpticalSwitch = switch
    assert switch.ports == SwitchPorts((1, 2, 3, 4), (5, 6, 7, 8))
    assert (switch.model, switch.serial) == ("I-OST-4x4-LU1-DMHNS", "002414")
    assert peer.remaining == ()


def test_a_switch_of_another_size_or_maker_is_refused() -> None:
    switch, _, _ = switch_on(*OPENING, expected_size=(16, 16))
    with pytest.raises(IdentityError, match=r"\(16, 16\).*\(4, 4\)"):
        switch.open()
    switch, _, _ = switch_on(ask("*IDN?", "Acme,OST-4x4,1,1"))
    with pytest.raises(IdentityError, match="an instrument of POLATIS"):
        switch.open()


@pytest.mark.parametrize(
    ("reply", "connections"),
    [
        ("(@1,2,3),(@7,6,8)", {1: 7, 2: 6, 3: 8}),
        ("(@),(@)", {}),
        ("(@1:3),(@5:7)", {1: 5, 2: 6, 3: 7}),  # SCPI-1999, 8.3.2
        ("(@8,2),(@1,6)", {1: 8, 2: 6}),  # light goes both ways
    ],
)
def test_connections_are_read(reply: str, connections: dict[int, int]) -> None:
    switch, _, _ = opened(state(reply))
    assert switch.connections() == connections


@pytest.mark.parametrize("reply", ["(@1,2),(@7)", "1,2", "(@1),(@2)", "(@1),(@9)", ""])
def test_what_is_no_list_of_connections_is_refused(reply: str) -> None:
    switch, _, _ = opened(state(reply))
    with pytest.raises(FrameError):
        switch.connections()


def test_a_new_connection_is_added_and_read_back_once_the_light_has_followed() -> None:
    switch, peer, clock = opened(
        state("(@1),(@7)"), *put(":OXC:SWIT:CONN:ADD (@2,3),(@6,8)"), state("(@1,2,3),(@7,6,8)")
    )
    before_s = clock.now()
    switch.connect({3: 8, 2: 6})
    assert clock.now() - before_s >= 0.025
    assert peer.remaining == ()


def test_a_connection_that_is_there_is_not_made_again() -> None:
    switch, peer, _ = opened(state("(@1),(@7)"))
    switch.connect({1: 7})
    assert peer.remaining == ()


@pytest.mark.parametrize("wanted", [{1: 8}, {2: 7}])
def test_a_port_in_use_is_refused_before_anything_is_sent(wanted: dict[int, int]) -> None:
    switch, peer, _ = opened(state("(@1),(@7)"))
    with pytest.raises(BusyError, match="belong to other connections"):
        switch.connect(wanted)
    assert peer.remaining == ()


@pytest.mark.parametrize("wanted", [{5: 1}, {1: 9}, {0: 5}, {1: 5, 2: 5}, {True: 5}])
def test_ports_that_are_not_there_are_refused(wanted: dict[int, int]) -> None:
    switch, _, _ = opened()
    for make in (switch.connect, switch.set_connections):
        with pytest.raises(ConfigError, match="Nothing was changed"):
            make(wanted)


def test_disconnecting_names_both_ends() -> None:
    switch, peer, _ = opened(state("(@1,2),(@7,6)"), *put(":OXC:SWIT:CONN:SUB (@1),(@7)"), state("(@2),(@6)"))
    switch.disconnect([1, 3])
    assert peer.remaining == ()


def test_setting_connections_parts_the_others() -> None:
    switch, peer, _ = opened(
        *put(":OXC:SWIT:CONN:ONLY (@2),(@7)"), state("(@2),(@7)"), *put(":OXC:SWIT:DISC:ALL"), state("(@),(@)")
    )
    switch.set_connections({2: 7})
    switch.set_connections({})
    assert peer.remaining == ()


def test_a_connection_that_was_not_made_is_an_error() -> None:
    switch, _, _ = opened(state("(@),(@)"), *put(":OXC:SWIT:CONN:ADD (@2),(@6)"), state("(@),(@)"))
    with pytest.raises(VerifyError, match="connections"):
        switch.connect({2: 6})


def test_an_error_of_the_switch_comes_with_its_code() -> None:
    switch, _, _ = opened(state("(@),(@)"), *put(":OXC:SWIT:CONN:ADD (@2),(@6)", '-200,"Execution error"'))
    with pytest.raises(DeviceError, match="Execution error") as caught:
        switch.connect({2: 6})
    assert caught.value.code == -200


def test_a_switch_that_is_not_open_says_so() -> None:
    switch, _, _ = switch_on()
    for call in (switch.connections, lambda: switch.connect({1: 5}), lambda: switch.ports):
        with pytest.raises(ConnectError, match="switch is not open"):
            call()
