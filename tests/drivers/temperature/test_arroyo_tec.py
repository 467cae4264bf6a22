"""The Arroyo TECSource driver in conversations as public clients quote the Computer Interfacing Manual."""

from __future__ import annotations

import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.temperature.arroyo_tec import ArroyoTec
from lumion_hw.errors import DeviceError, DeviceTimeoutError, IdentityError, LimitError, VerifyError
from lumion_hw.interfaces import TemperatureController
from lumion_hw.links import RecordedExchange, ReplayPeer, replay_link

ON_AND_OUT, ON_AND_IN, OFF = 1024 + 512, 1024, 512  # bit 10 output on, bit 9 out of tolerance


def ask(command: str, reply: object) -> RecordedExchange:
    return RecordedExchange(command.encode() + b"\r\n", str(reply).encode() + b"\r\n")


def put(command: str, *errors: str) -> list[RecordedExchange]:
    return [
        RecordedExchange(command.encode() + b"\r\n"),
        *(ask("ERRSTR?", error) for error in (*errors, "0")),
    ]


def sensor(constants: str = "1.125,2.347,0.855", mode: str = "T", kind: int = 1) -> RecordedExchange:
    """What a temperature depends on; the controller joins its answers to one line by commas."""
    return ask("TEC:MODE?;TEC:SEN?;TEC:CONST?", f"{mode},{kind},{constants}")


def opening(condition: int = OFF, idn: str = "Arroyo 5305 1041234 v3.23") -> list[RecordedExchange]:
    return [
        ask("*IDN?", idn),
        ask("ERRSTR?", "0"),
        sensor(),
        ask("TEC:EVENT?", 512),
        ask("TEC:COND?", condition),
    ]


def state(events: int, condition: int, temperature_c: str | None = "25.003") -> list[RecordedExchange]:
    seen = [] if temperature_c is None else [ask("TEC:T?", temperature_c)]
    return [
        sensor(),
        ask("TEC:EVENT?", events),
        ask("TEC:COND?", condition),
        *seen,
        ask("TEC:SET:T?", "25.000"),
        ask("TEC:ITE?", "-0.512"),
    ]


def controller_on(*exchanges: RecordedExchange, **options: str) -> tuple[ArroyoTec, ReplayPeer, VirtualClock]:
    clock = VirtualClock()
    peer = ReplayPeer(exchanges, clock)
    return ArroyoTec(replay_link(peer, clock), clock, device="tec0", **options), peer, clock


def opened(*exchanges: RecordedExchange, condition: int = OFF) -> tuple[ArroyoTec, ReplayPeer, VirtualClock]:
    controller, peer, clock = controller_on(*opening(condition), *exchanges)
    controller.open()
    return controller, peer, clock


LIMITS = [ask("TEC:LIM:TLO?", "-10.0"), ask("TEC:LIM:THI?", "85.0")]


@pytest.mark.parametrize(
    "idn", ["Arroyo 5305 1041234 v3.23", "Arroyo Instruments,5305,1041234,3.23", "Arroyo, 5305, 1041234, v3.23 bld 1"]
)
def test_opening_switches_nothing(idn: str) -> None:
    controller, peer, _ = controller_on(*opening(idn=idn), expected_serial="1041234")
    controller.open()
    _: TemperatureController = controller
    assert (controller.model, controller.serial) == ("5305", "1041234")
    assert peer.remaining == ()


def test_another_instrument_is_refused() -> None:
    controller, _, _ = controller_on(ask("*IDN?", "Acme 5305 1041234 v3.23"))
    with pytest.raises(IdentityError, match="an instrument of ARROYO"):
        controller.open()


@pytest.mark.parametrize(
    ("found", "what"),
    [
        (sensor(mode="R"), "'R', not in temperature"),
        (sensor(kind=2), r"sensor settings changed from 1,1\.125,.* to 2,1\.125"),
        (sensor("1.129,2.341,0.878"), "Restore the settings"),
    ],
)
def test_temperatures_that_somebody_else_made_other_ones_are_an_error(found: RecordedExchange, what: str) -> None:
    controller, peer, _ = opened(found)
    with pytest.raises(DeviceError, match=what):
        controller.state()
    assert peer.remaining == ()


def test_a_controller_that_holds_a_current_is_refused() -> None:
    controller, _, _ = controller_on(*opening()[:2], sensor(mode="ITE"))
    with pytest.raises(DeviceError, match="'ITE', not in temperature"):
        controller.open()


def test_a_temperature_is_set_within_the_limits_and_read_back() -> None:
    controller, peer, _ = opened(*LIMITS, *put("TEC:T 30.500"), ask("TEC:SET:T?", "30.500"))
    controller.set_temperature_c(30.5)
    assert peer.remaining == ()


@pytest.mark.parametrize("wrong_c", [-10.1, 85.1, float("nan")])
def test_a_temperature_outside_the_limits_is_not_sent(wrong_c: float) -> None:
    controller, peer, _ = opened(*LIMITS)
    with pytest.raises(LimitError) as caught:
        controller.set_temperature_c(wrong_c)
    assert caught.value.unit == "°C"
    assert peer.remaining == ()


def test_errors_have_their_code_also_when_they_come_together() -> None:
    controller, _, _ = opened(*LIMITS, *put("TEC:T 30.500", '201,"Out of range",124,"Data mismatch"'))
    with pytest.raises(DeviceError, match=r"Out of range.*124.*Data mismatch") as caught:
        controller.set_temperature_c(30.5)
    assert caught.value.code == 201


def test_a_temperature_that_is_not_kept_is_an_error() -> None:
    controller, _, _ = opened(*LIMITS, *put("TEC:T 30.500"), ask("TEC:SET:T?", "25.000"))
    with pytest.raises(VerifyError, match="temperature"):
        controller.set_temperature_c(30.5)


def test_the_tolerance_is_set_with_its_time() -> None:
    controller, peer, _ = opened(*put("TEC:TOL 0.020,10.0"), ask("TEC:TOL?", "0.02,10.0"))
    controller.set_tolerance(0.02, 10.0)
    assert peer.remaining == ()
    for wrong in ((0.005, 10.0), (0.02, 51.0)):
        with pytest.raises(LimitError):
            controller.set_tolerance(*wrong)


def test_an_output_that_does_not_stay_on_is_told_with_the_reason() -> None:
    controller, _, _ = opened(*put("TEC:OUT 1"), ask("TEC:OUT?", "0"), ask("TEC:COND?", OFF | 128))
    with pytest.raises(DeviceError, match=r"did not stay on: cooler open"):
        controller.enable()


def test_a_state_is_asked_for_the_events_first() -> None:
    controller, peer, _ = opened(*state(0, ON_AND_IN), condition=ON_AND_IN)
    found = controller.state()
    assert (found.temperature_c, found.setpoint_c, found.current_a) == (25.003, 25.0, -0.512)
    assert (found.enabled, found.locked, found.losses, found.faults) == (True, True, 0, ())
    assert peer.remaining == ()


def test_a_lock_lost_for_a_moment_is_told_by_its_event_and_only_once() -> None:
    controller, _, _ = opened(*state(512, ON_AND_IN), *state(0, ON_AND_IN), condition=ON_AND_IN)
    assert controller.state().losses == 1
    assert controller.state().losses == 1


def test_getting_into_the_tolerance_is_no_loss() -> None:
    controller, _, _ = opened(*state(512, ON_AND_IN), *state(0, ON_AND_IN), condition=ON_AND_OUT)
    first = controller.state()
    assert (first.locked, first.losses) == (True, 0)
    assert controller.state().losses == 0


def test_a_lock_that_is_lost_now_is_told() -> None:
    controller, _, _ = opened(*state(512, ON_AND_OUT), *state(512, ON_AND_OUT), condition=ON_AND_IN)
    assert controller.state().losses == 1
    assert controller.state().losses == 1  # it is out of it still, and that was counted


@pytest.mark.parametrize(("bit", "words"), [(32, "sensor shorted"), (64, "sensor open")])
def test_a_sensor_that_is_not_there_has_no_temperature(bit: int, words: str) -> None:
    controller, _, _ = opened(*state(0, OFF | bit, None))
    found = controller.state()
    assert found.temperature_c is None
    assert found.faults == (words,)


def test_waiting_asks_until_the_temperature_is_held() -> None:
    controller, peer, clock = opened(
        *state(512, ON_AND_OUT), *state(512, ON_AND_OUT | 1), *state(512, ON_AND_IN), condition=ON_AND_OUT
    )
    before_s = clock.now()
    assert controller.wait_locked(10.0).locked
    assert clock.now() - before_s == pytest.approx(0.4)
    assert peer.remaining == ()


def test_waiting_ends_in_its_time_with_the_temperature_it_is() -> None:
    controller, _, _ = opened(*state(512, ON_AND_OUT | 1, "31.5") * 20, condition=ON_AND_OUT)
    with pytest.raises(DeviceTimeoutError, match=r"not locked at 25 °C after 1 s: .* 31.500 °C.*current limit"):
        controller.wait_locked(1.0)


@pytest.mark.parametrize(("condition", "why"), [(OFF, "output is off"), (ON_AND_OUT | 64, "sensor open")])
def test_waiting_for_what_will_not_come_is_an_error_at_once(condition: int, why: str) -> None:
    controller, _, _ = opened(*state(0, condition, None if condition & 64 else "20.0"))
    with pytest.raises(DeviceError, match=why):
        controller.wait_locked(600.0)
