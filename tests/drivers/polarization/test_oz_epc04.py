"""The OZ Optics EPC04 driver in conversations as QMI's tests quote them, with and without the echo pyLabLib expects."""

from __future__ import annotations

import re

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.drivers.polarization.oz_epc04 import OzEpc04
from lumion_hw.errors import (
    ConfigError,
    ConnectError,
    DeviceError,
    FrameError,
    IdentityError,
    LimitError,
    LinkTimeout,
    VerifyError,
)
from lumion_hw.interfaces import PolarizationController
from lumion_hw.links import RecordedExchange, ReplayPeer, replay_link


class Dialect:
    """Replies of a controller with echo on or off."""

    def __init__(self, echo: bool) -> None:
        self._echo = echo

    def reply(self, command: str, *lines: str, end: str = "Done") -> RecordedExchange:
        """Answer a command; one that sets says in a line what it does."""
        if not lines and end == "Done" and (said := re.fullmatch(r"V(\d),(-?\d+)", command)):
            lines = (f"Set CH{said[1]} DC Voltage at: {said[2]}mV",)
        told = ([command] if self._echo else []) + [*lines, end]
        return RecordedExchange(f"{command}\r\n".encode(), "".join(f"{line}\r\n" for line in told).encode())

    def voltages(self, *mv: int) -> RecordedExchange:
        return self.reply(
            "V?", "Voltage(mV): " + " ".join(f"CH{n} {value:+05d}" for n, value in enumerate(mv, start=1))
        )

    def opening(self, *mv: int) -> list[RecordedExchange]:
        return [
            self.voltages(*(mv or (0, 0, 0, 0))),
            self.reply("MDC", "Set To DC Mode"),
            self.reply("M?", "Work Mode: DC"),
        ]


@pytest.fixture(params=[True, False], ids=["echo on", "echo off"])
def says(request: pytest.FixtureRequest) -> Dialect:
    return Dialect(request.param)


def controller_on(*exchanges: RecordedExchange) -> tuple[OzEpc04, ReplayPeer, VirtualClock]:
    clock = VirtualClock()
    peer = ReplayPeer(exchanges, clock)
    return OzEpc04(replay_link(peer, clock), clock, device="epc1", settle_s=0.02), peer, clock


def opened(*exchanges: RecordedExchange) -> tuple[OzEpc04, ReplayPeer]:
    controller, peer, _ = controller_on(*exchanges)
    controller.open()
    return controller, peer


def test_opening_checks_the_channels_and_holds_the_voltages(says: Dialect) -> None:
    controller, peer = opened(*says.opening())
    assert peer.remaining == ()
    as_interface: PolarizationController = controller
    assert as_interface.settle_s == 0.02
    assert len(as_interface.actuators) == 4
    actuator = as_interface.actuators[0]
    assert (actuator.unit, actuator.minimum, actuator.maximum, actuator.step) == ("mV", -5000, 5000, 1)


def test_a_set_is_sent_channel_by_channel_and_read_back(says: Dialect) -> None:
    controller, peer = opened(
        *says.opening(),
        says.reply("V1,1234"),
        says.reply("V2,-500"),
        says.reply("V3,5000"),
        says.reply("V4,-5000"),
        says.voltages(1234, -500, 5000, -5000),
    )
    controller.set(np.array([1234.0, -500.0, 5000.0, -5000.0]))
    assert peer.remaining == ()


def test_only_changed_voltages_are_sent(says: Dialect) -> None:
    controller, peer = opened(
        *says.opening(10, 20, 30, 40), says.reply("V3,31"), says.voltages(10, 20, 31, 40), says.voltages(10, 20, 31, 40)
    )
    controller.set(np.array([10.0, 20.0, 31.0, 40.0]))
    np.testing.assert_array_equal(controller.read(), [10.0, 20.0, 31.0, 40.0])
    assert peer.remaining == ()


def test_a_voltage_turned_at_the_panel_meanwhile_is_set_again(says: Dialect) -> None:
    controller, peer = opened(
        *says.opening(),
        says.reply("V1,100"),
        says.voltages(100, 0, 0, 77),
        says.reply("V1,100"),
        says.reply("V2,0"),
        says.reply("V3,0"),
        says.reply("V4,0"),
        says.voltages(100, 0, 0, 0),
    )
    controller.set(np.array([100.0, 0.0, 0.0, 0.0]))
    assert peer.remaining == ()


def test_a_voltage_that_does_not_take_is_noticed(says: Dialect) -> None:
    again = [says.reply(f"V{channel},{value}") for channel, value in ((1, 100), (2, 0), (3, 0), (4, 0))]
    controller, _ = opened(
        *says.opening(), says.reply("V1,100"), says.voltages(0, 0, 0, 0), *again, says.voltages(0, 0, 0, 0)
    )
    with pytest.raises(VerifyError, match=r"wrote \[100, 0, 0, 0\], read back \[0, 0, 0, 0\]"):
        controller.set(np.array([100.0, 0.0, 0.0, 0.0]))


def test_voltages_are_set_to_the_nearest_millivolt(says: Dialect) -> None:
    controller, peer = opened(*says.opening(), says.reply("V1,100"), says.voltages(100, 0, 0, 0))
    controller.set(np.array([99.7, 0.2, -0.3, 0.0]))
    assert peer.remaining == ()


@pytest.mark.parametrize("value", [5001.0, -5000.4, np.nan, np.inf])
def test_a_voltage_outside_the_range_is_refused_before_anything_is_sent(value: float) -> None:
    controller, peer = opened(*Dialect(False).opening())
    with pytest.raises(LimitError, match="voltage of channel 4"):
        controller.set(np.array([1.0, 2.0, 3.0, value]))
    assert peer.remaining == ()


def test_another_number_of_voltages_is_refused() -> None:
    controller, _ = opened(*Dialect(False).opening())
    with pytest.raises(ConfigError, match=r"\(3,\)"):
        controller.set(np.zeros(3))


def test_a_refusal_names_its_command_and_the_session_goes_on(says: Dialect) -> None:
    controller, peer = opened(
        *says.opening(), says.reply("V1,100", end="Out of range, Error!"), *[says.voltages(0, 0, 0, 0)]
    )
    with pytest.raises(DeviceError, match=r"V1,100.*after Out of range,"):
        controller.set(np.array([100.0, 0.0, 0.0, 0.0]))
    np.testing.assert_array_equal(controller.read(), np.zeros(4))
    assert peer.remaining == ()


def test_after_a_refusal_all_voltages_are_sent_again() -> None:
    says = Dialect(False)
    controller, peer = opened(
        *says.opening(),
        says.reply("V1,100", end="Error!"),
        *[says.reply(f"V{channel},{value}") for channel, value in ((1, 100), (2, 0), (3, 0), (4, 0))],
        says.voltages(100, 0, 0, 0),
    )
    with pytest.raises(DeviceError):
        controller.set(np.array([100.0, 0.0, 0.0, 0.0]))
    controller.set(np.array([100.0, 0.0, 0.0, 0.0]))
    assert peer.remaining == ()


@pytest.mark.parametrize("lines", [(), ("CH1 0 CH2 0",), ("CH1 0 CH2 0 CH3 0 CH4 0 CH5 0 CH6 0",), ("hello",)])
def test_what_has_not_four_channels_is_another_device(lines: tuple[str, ...]) -> None:
    controller, _, _ = controller_on(Dialect(False).reply("V?", *lines))
    with pytest.raises(IdentityError, match="expected an EPC04 with 4 channels"):
        controller.open()
    with pytest.raises(ConnectError, match="not open"):
        controller.read()


def test_voltages_on_several_lines_are_understood() -> None:
    says = Dialect(True)
    lines = ("CH1 -12", "CH2 +34", "CH3 0", "CH4 5000")
    controller, _ = opened(says.reply("V?", *lines), *says.opening()[1:], says.reply("V?", *lines))
    np.testing.assert_array_equal(controller.read(), [-12.0, 34.0, 0.0, 5000.0])


@pytest.mark.parametrize("kept", ["Work Mode: AC(Sine)", "Work Mode: AC", "MAC"])
def test_a_controller_that_keeps_scrambling_is_refused(says: Dialect, kept: str) -> None:
    controller, _, _ = controller_on(says.voltages(0, 0, 0, 0), says.reply("MDC"), says.reply("M?", kept))
    with pytest.raises(VerifyError, match=rf"mode: wrote MDC, read back {re.escape(kept)}"):
        controller.open()


def test_a_voltage_that_reads_a_little_off_is_in_force_and_not_sent_again(says: Dialect) -> None:
    """Two public clients know units that read up to 40 mV from what was set."""
    off, far = says.voltages(1004, 0, -4960, 0), says.voltages(1041, 0, -5000, 0)
    again = [says.reply(f"V{channel},{value}") for channel, value in ((1, 1000), (2, 0), (3, -5000), (4, 7))]
    controller, peer = opened(
        *[*says.opening(), says.reply("V1,1000"), says.reply("V3,-5000"), off, off],
        *[says.reply("V4,7"), far, *again, far],
    )
    controller.set(np.array([1000.0, 0.0, -5000.0, 0.0]))
    np.testing.assert_array_equal(controller.read(), [1004.0, 0.0, -4960.0, 0.0])
    with pytest.raises(VerifyError, match=r"read back \[1041, 0, -5000, 0\]"):
        controller.set(np.array([1000.0, 0.0, -5000.0, 7.0]))
    assert peer.remaining == ()


def test_a_reading_without_voltages_is_refused_and_recovered_from() -> None:
    says = Dialect(False)
    good = says.voltages(1, 2, 3, 4)
    controller, _ = opened(*says.opening(), says.reply("V?", "CH1 0"), good, good)
    with pytest.raises(FrameError, match="expected the voltages of 4 channels"):
        controller.read()
    np.testing.assert_array_equal(controller.read(), [1.0, 2.0, 3.0, 4.0])


def test_nothing_answering_is_a_time_out() -> None:
    controller, _, _ = controller_on(*[RecordedExchange(b"V?\r\n")] * 2)
    with pytest.raises(LinkTimeout):
        controller.open()


def test_closing_twice_is_harmless_and_the_context_closes() -> None:
    says = Dialect(False)
    controller, _, _ = controller_on(*says.opening())
    with controller:
        pass
    controller.close()
    with pytest.raises(ConnectError, match="not open"):
        controller.set(np.zeros(4))
