"""The emulated EPC04 polarization controller: dialect, limits, memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.polarization.oz_epc04 import Epc04
from lumion_hw.errors import ConnectError
from lumion_hw.links.memory import MemoryLink
from tests.effort import examples


class Rig:
    """A controller whose voltages are recorded, and a host."""

    def __init__(self, echo: bool = False) -> None:
        self.clock = VirtualClock()
        self.driven: dict[int, float] = {}
        self.calls = 0
        self.device = Epc04("epc", self.clock, np.random.default_rng(1), drive_mv=self.drive, echo=echo)
        self.link = MemoryLink(self.device.connect, self.clock, "memory://epc")
        self.link.open(0.0)

    def drive(self, channel: int, voltage_mv: float) -> None:
        self.driven[channel] = voltage_mv
        self.calls += 1

    def ask(self, command: str, ending: bytes = b"\r\n") -> list[str]:
        self.link.write(command.encode("latin-1") + ending, 0.0)
        deadline = self.clock.now() + 1.0
        text = b""
        while not text.endswith((b"Done\r\n", b"Error!\r\n")) and self.clock.now() < deadline:
            text += self.link.read(deadline)
        return text.decode("latin-1").split("\r\n")[:-1]


def test_it_reports_all_four_voltages_when_it_is_switched_on() -> None:
    assert Rig().driven == {1: 0.0, 2: 0.0, 3: 0.0, 4: 0.0}


def test_a_voltage_is_set_answered_and_driven() -> None:
    rig = Rig()
    assert rig.ask("V1,1234") == ["Set CH1 DC Voltage at: 1234mV", "Done"]
    assert rig.ask("V2,-500") == ["Set CH2 DC Voltage at: -500mV", "Done"]
    assert rig.driven == {1: 1234.0, 2: -500.0, 3: 0.0, 4: 0.0}
    assert rig.ask("V?") == ["Voltage(mV): CH1 +1234 CH2 -0500 CH3 +0000 CH4 +0000", "Done"]
    assert rig.calls == 6, "only changes are reported"


@pytest.mark.parametrize(
    "command",
    [
        "V1,5001",
        "V1,-5001",
        "V0,1",
        "V5,1",
        "F1,101",
        "F9,1",
        "WF3",
        "V1,1.5",
        "v1,1",
        "X",
        "V1, 5",
        "VH5",
        "ENVF2",
        "VF0",
        "BR4",
    ],
)
def test_what_is_out_of_range_or_unknown_is_an_error_and_changes_nothing(command: str) -> None:
    rig = Rig()
    assert rig.ask(command) == ["Error!"]
    assert rig.ask("V?")[0] == "Voltage(mV): CH1 +0000 CH2 +0000 CH3 +0000 CH4 +0000"
    assert rig.ask("F?")[0] == "Frequency(Hz): CH1 010  CH2 010  CH3 010  CH4 010"


@pytest.mark.parametrize(("command", "voltage_mv"), [("V4,5000", 5000.0), ("V4,-5000", -5000.0), ("V4,+7", 7.0)])
def test_the_ends_of_the_range_are_inside(command: str, voltage_mv: float) -> None:
    rig = Rig()
    assert rig.ask(command)[-1] == "Done"
    assert rig.driven[4] == voltage_mv


def test_it_echoes_when_told_to() -> None:
    rig = Rig(echo=True)
    assert rig.ask("V1,10") == ["V1,10", "Set CH1 DC Voltage at: 10mV", "Done"]
    assert rig.ask("M?") == ["M?", "Work Mode: DC", "Done"]
    assert rig.ask("nonsense") == ["nonsense", "Error!"]


@pytest.mark.parametrize("ending", [b"\r\n", b"\r", b"\n"])
def test_any_line_ending_is_accepted(ending: bytes) -> None:
    assert Rig().ask("M?", ending) == ["Work Mode: DC", "Done"]


def test_replies_take_the_time_of_9600_baud() -> None:
    rig = Rig()
    rig.ask("V1,1234")
    # executed at the CR: eight characters to the device, 2 ms of processing, 31 and six characters back
    assert rig.clock.now() == pytest.approx((8 + 31 + 6) * 10 / 9600 + 0.002, rel=1e-3)


def test_scrambling_moves_the_voltages_with_the_clock() -> None:
    rig = Rig()
    assert rig.ask("V1,100")[-1] == "Done"
    assert rig.ask("F1,2") == ["Set CH1 AC Frequency at: 2Hz", "Done"]
    assert rig.ask("MAC") == ["Set To AC Mode", "Done"]
    assert rig.ask("M?") == ["Work Mode: AC(Sine)", "Done"]
    seen = []
    for _ in range(100):
        rig.clock.sleep(0.005)
        rig.device.advance()
        seen.append(rig.driven[1])
    assert max(seen) == pytest.approx(5000, abs=20)
    assert min(seen) == pytest.approx(-5000, abs=20)
    assert rig.ask("MDC") == ["Set To DC Mode", "Done"]
    assert rig.driven[1] == 100.0


def test_the_triangle_is_straight() -> None:
    rig = Rig()
    for command in ("F1,0001", "WF2", "MAC"):
        assert rig.ask(command)[-1] == "Done"
    assert rig.ask("WF?") == ["AC Waveform: Triangle", "Done"]
    assert rig.ask("M?") == ["Work Mode: AC(Triangle)", "Done"]
    steps = []
    for _ in range(100):
        before = rig.driven[1]
        rig.clock.sleep(0.01)
        rig.device.advance()
        steps.append(abs(rig.driven[1] - before))
    # 20000 mV of travel per period: 200 mV in 10 ms, except at the two turning points
    assert sorted(steps)[50] == pytest.approx(200.0)


def test_saved_settings_survive_a_power_cycle_and_others_do_not() -> None:
    rig = Rig()
    rig.ask("V1,700")
    assert rig.ask("SAVE") == ["Write Setting to Flash memory", "Done"]
    rig.ask("V1,900")
    rig.ask("V2,50")
    rig.device.power_cycle()
    assert rig.driven == {1: 700.0, 2: 0.0, 3: 0.0, 4: 0.0}
    assert rig.ask("V?") == ["Voltage(mV): CH1 +0700 CH2 +0000 CH3 +0000 CH4 +0000", "Done"]
    rig.ask("V2,50")
    assert len(rig.ask("RESET")) == 2, "clients read two lines"
    assert rig.driven[2] == 0.0


@pytest.mark.parametrize(
    ("commands", "reply"),
    [
        (["VH4"], "Set CH4 DC Voltage at: 5000mV"),
        (["VL4"], "Set CH4 DC Voltage at: -5000mV"),
        (["VZ4"], "Set CH4 DC Voltage at: 0mV"),
        (["WF2"], "Set AC Waveform at: Triangle"),
        (["ENVF1"], "Enable DC Voltage Output at AC Mode"),
        (["ENVF0"], "Disable DC Voltage Output at AC Mode"),
        (["VF2"], "Set CH2 output to: Volt (if possible)"),
        (["ENVF1", "VF1", "VF2", "VF?"], "Hz<->Volt at AC Mode is enabled: CH1-V,CH2-V,CH3-F,CH4-F"),
        (["VF1", "VF2", "VF?"], "Hz<->Volt at AC Mode is disabled: CH1-V,CH2-V,CH3-F,CH4-F"),
        (["F1,7", "F2,17", "F3,0037", "F4,71", "F?"], "Frequency(Hz): CH1 007  CH2 017  CH3 037  CH4 071"),
        (["SN?"], "Serial Number: 00000001"),
        (["VER?"], "Version: EPC OEM Driver V2.10"),
    ],
)
def test_replies_are_those_that_public_tests_quote(commands: list[str], reply: str) -> None:
    """From QuTech-Delft/QMI, tests/instruments/ozoptics; the last two are split like by two public clients."""
    rig = Rig()
    assert [rig.ask(command) for command in commands][-1] == [reply, "Done"]


def test_a_channel_holds_its_voltage_while_the_others_scramble() -> None:
    rig = Rig()
    for command in ("V1,100", "V2,200", "F1,7", "VF1", "MAC"):
        rig.ask(command)
    held = set()
    for on in (False, True):
        rig.ask(f"ENVF{on:d}")
        rig.clock.sleep(0.013)
        rig.device.advance()
        held.add((on, rig.driven[1] == 100.0, rig.driven[2] == 200.0))
    assert held == {(False, False, False), (True, True, False)}


def test_without_enable_all_outputs_are_at_zero_and_settings_are_kept() -> None:
    rig = Rig()
    rig.ask("V1,100")
    rig.ask("ENABLE0")
    assert rig.driven[1] == 0.0
    assert "CH1 +0100" in rig.ask("V?")[0]
    rig.ask("ENABLE1")
    assert rig.driven[1] == 100.0


def test_commands_in_one_write_are_answered_in_order() -> None:
    rig = Rig()
    rig.link.write(b"V1,1\r\nV1,9999\r\nV1,2\r\n", 0.0)
    rig.clock.sleep(0.2)
    ends = [line for line in rig.link.read(1.0).split(b"\r\n") if not line.startswith(b"Set")]
    assert ends == [b"Done", b"Error!", b"Done", b""]
    assert rig.driven[1] == 2.0


def test_a_second_connection_sees_the_same_device() -> None:
    rig = Rig()
    rig.ask("V3,33")
    other = MemoryLink(rig.device.connect, rig.clock, "memory://other")
    other.open(0.0)
    other.write(b"V?\r\n", 0.0)
    rig.clock.sleep(0.2)
    assert b"CH3 +0033" in other.read(1.0)
    other.close()


def test_a_device_without_power_refuses_a_connection() -> None:
    rig = Rig()
    rig.device.power_off()
    with pytest.raises(ConnectError, match="epc"):
        rig.device.connect()


@examples(50)
@given(garbage=st.lists(st.binary(max_size=90), max_size=8))
def test_no_byte_string_kills_it(garbage: list[bytes]) -> None:
    rig = Rig()
    for piece in garbage:
        rig.link.write(piece, 0.0)
        rig.clock.sleep(0.01)
    rig.clock.sleep(2.0)
    rig.link.write(b"\r\n", 0.0)
    rig.link.drain(0.2, rig.clock.now() + 10.0)
    rig.ask("ENABLE1")
    rig.ask("MDC")
    assert rig.ask("V2,-4321")[-1] == "Done"
    assert rig.driven[2] == -4321.0
