"""What public clients send to Keysight lasers and meters, message by message, on a virtual clock.

These clients cannot be installed beside this package, or not at all, so their messages are kept instead:

- `agilent-lightwave` 0.2 (package index, MIT): `LaserAgilent8164B`, `wavelength_sweep`. Its folder's name has a hyphen,
  so nothing can import it.
- `LabExT_pkg` 2.3.1 (package index, GPL-3): `LaserMainframeKeysight` and `PowerMeterN7744A`. It demands exact old
  versions of numpy, pyvisa and click. `test_interop_labext.py` runs it where it was installed without dependencies.
- The maker's own example for an N777xC laser and an N774x meter (2020), as published with its licence to reuse.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from lumion_hw.clock import VirtualClock
from lumion_hw.emulator.lasers.keysight_laser import EmulatedKeysightLaser
from lumion_hw.emulator.meters.keysight_816x import EmulatedKeysight816x
from lumion_hw.emulator.meters.keysight_n77xx import EmulatedKeysightN77xx
from lumion_hw.emulator.optics.light import Light


class Client:
    """One connection; a message is answered at the instant its reply is due."""

    def __init__(self, device, clock: VirtualClock) -> None:
        self._peer = device.connect()
        self._clock = clock

    def write(self, line: str) -> None:
        self._peer.receive(line.encode() + b"\n")

    def query_raw(self, line: str) -> bytes:
        self.write(line)
        reply = self._peer.transmit()
        while not reply:
            event = self._peer.next_event()
            assert event is not None, f"{line} is never answered"
            self._clock.sleep(max(event - self._clock.now(), 1e-6))
            reply = self._peer.transmit()
        return reply

    def query(self, line: str) -> str:
        return self.query_raw(line).decode().removesuffix("\n")

    def block(self, line: str, kind: str) -> np.ndarray:
        raw = self.query_raw(line)
        assert raw[:1] == b"#"
        start = 2 + int(raw[1:2])
        return np.frombuffer(raw[start : start + int(raw[2:start])], kind)


@pytest.fixture
def clock():
    return VirtualClock()


def notch(light: Light) -> Light:
    """A filter that takes 90 % at 1555 nm."""
    depth = 0.9 * math.exp(-(((light.wavelength_nm - 1555.0) / 0.5) ** 2))
    return Light(light.power_w * (1.0 - depth), light.wavelength_nm)


@pytest.fixture
def mainframe(clock):
    """An 8164B whose own laser comes back to its sensors through the filter."""
    made = EmulatedKeysight816x(
        "mf0",
        clock,
        np.random.default_rng(8),
        lambda slot, channel, at_s: notch(made.light_at(at_s)),
        modules={0: "81600B-200", 1: "81635A"},
    )
    return Client(made, clock)


def test_agilent_lightwave_sweeps(mainframe, clock):
    mainframe.query("LOCK 0,1234;*IDN?")  # it expects an unlocked laser
    mainframe.write("sour0:pow:unit W")
    assert int(mainframe.query("sour0:pow:unit?")) == 1
    mainframe.write("outp0:path high")
    assert mainframe.query("outp0:path?") == "HIGH"
    mainframe.write("outp1")  # slot 1 and no value: an error that this client never reads
    assert mainframe.query("SYST:ERR?").startswith("-1")
    assert bool(int(mainframe.query("*OPC?")))
    settings = (
        *("trig:conf?", "sour0:pow:stat?", "trig0:outp?", "trig0:inp?", "sour0:wav:swe:star?", "sour0:wav:swe:stop?"),
        *("sour0:wav:swe:step?", "sour0:wav:swe:mode?", "sour0:wav:swe:llog?", "trig1:inp?", "sens1:pow:unit?"),
        *("sens1:pow:rang:auto?", "sens1:pow:rang?", "sens1:pow:wav?", "sens1:func:par:logg?"),
    )
    before = [mainframe.query(line) for line in settings]
    for line in (
        *("trig:conf loop", "sour0:pow:stat 1", "trig0:outp stf", "trig0:inp sws", "sour0:wav:swe:star 1550.000000nm"),
        *("sour0:wav:swe:stop 1560.000000nm", "sour0:wav:swe:step 0.010000nm", "sour0:wav:swe:spe 5.000000nm/s"),
        *("sour0:wav:swe:mode cont", "sour0:wav:swe:llog 1"),
    ):
        mainframe.write(line)
    assert float(mainframe.query("sour0:wav:swe:spe?")) == pytest.approx(5e-9)
    assert mainframe.query("sour0:wav:swe:chec?") == "0,OK"
    largest_w = float(mainframe.query("sour0:wav:swe:pmax? 1550.000000nm,1560.000000nm"))
    assert 1e-3 < largest_w < 20e-3
    mainframe.write("sour0:pow 0.001000W")
    triggers = int(mainframe.query("sour0:wav:swe:exp?"))
    for line in (
        *(
            "sour0:wav:swe 1",
            "trig1:inp sme",
            "sens1:pow:unit 1",
            "sens1:pow:rang:auto 0",
            "sens1:pow:rang 0.000000dbm",
        ),
        *("sens1:pow:wav 1555.000000nm", f"sens1:func:par:logg {triggers},1000us", "sens1:func:stat logg,star"),
    ):
        mainframe.write(line)
    while not (flag := int(mainframe.query("source0:wav:sweep:flag?"))):
        clock.sleep(0.05)
    mainframe.write("sour0:wav:swe:soft")
    while mainframe.query("sour0:wav:sweep:state?") != "+0":
        clock.sleep(0.1013)  # 0.1 s and the way there: the last sample ends a millisecond after its pulse
    powers = mainframe.block("sens1:func:res?", "<f4")
    assert int(mainframe.query("sour0:wav:swe:flag?")) in (flag + 1, flag + 2)
    wavelengths = mainframe.block("sour0:read:data? llog", "<f8")
    assert len(powers) == len(wavelengths) == triggers == 1001
    assert wavelengths[np.argmin(powers)] == pytest.approx(1555e-9, abs=0.03e-9)
    for line, held in zip(settings, before, strict=True):
        mainframe.write(f"{line[:-1]} {held}")
    after = dict(zip(settings, (mainframe.query(line) for line in settings), strict=True))
    assert after.pop("sens1:pow:rang:auto?") == "+0", "the range is set after it, which ends it"
    assert after.items() <= dict(zip(settings, before, strict=True)).items()
    assert mainframe.query("SYST:ERR?") == '+0,"No error"'


def test_labext_prepares_and_starts_a_sweep(mainframe, clock):
    """Every command is followed by `*OPC?` and a look at the error queue, also while the sweep waits for a trigger."""

    def command(line: str) -> None:
        mainframe.write(line)
        assert mainframe.query("*OPC?") in ("0", "1")
        assert mainframe.query("SYST:ERR?").startswith("+0,")

    command("LOCK 0,1234")
    wiring = mainframe.query("trig:conf?")
    assert mainframe.query("slot0:idn?").split(",")[1] == "81600B"
    assert float(mainframe.query("sour0:wav:swe:start? min")) == pytest.approx(1440e-9)
    assert float(mainframe.query("sour0:wav:swe:stop? max")) == pytest.approx(1640e-9)
    for line in ("sour0:pow:stat 1", "sour0:pow 0.0dBm", "trig0:inp sws", "trig:conf loop", "trig0:outp stf"):
        command(line)
    for line in ("mode cont", "star 1550nm", "stop 1560nm", "step 10.0pm", "spe 40nm/s", "llog 1"):
        command(f"sour0:wav:swe:{line}")
    assert mainframe.query("sour0:wav:swe:chec?")[:4] == "0,OK"
    pmax_dbm = 10 * math.log10(float(mainframe.query("sour0:wav:swe:pmax? 1550nm,1560nm")) * 1e3)
    assert mainframe.query("SOUR0:POW:UNIT?") == "+0"
    assert float(mainframe.query("sour0:pow?")) < pmax_dbm < 15.0
    command("sour0:wav:swe 1")
    while int(mainframe.query("sour0:wav:swe:flag?")) % 2 == 0:
        clock.sleep(0.1)
    command("TRIG1:INP SME")
    command("sour0:wav:swe:soft")
    while int(mainframe.query("sour0:wav:swe?")):
        clock.sleep(0.1)
    assert len(mainframe.block("sour0:read:data? llog", "<f8")) == 1001
    for line in ("trig0:inp ign", "trig0:outp dis", "trig:conf def", f"trig:conf {wiring}"):
        command(line)


def test_labext_logs_with_a_meter(clock):
    meter = Client(EmulatedKeysightN77xx("pm0", clock, np.random.default_rng(1), lambda _: 1e-4, model="N7745C"), clock)

    def command(line: str) -> None:
        meter.write(line)
        assert meter.query("*OPC?") in ("0", "1")
        assert meter.query("SYST:ERR?").startswith("+0,")

    for line in (
        *("trig1:inp ign", "trig1:outp dis", "sens1:func:par:logg 1000,0.200000s", ":SENS1:POW:UNIT 1"),
        *(":SENS1:POW:WAV 1550.000000 nm", ":SENS1:POW:RANG:AUTO 0", ":SENS1:POW:RANG -10.000000"),
        *(":SENS1:POW:ATIME 0.001000 s", ":SENS1:POW:GAIN:AUTO 1", "sens1:func:par:logg 50,0.001000s"),
    ):
        command(line)
    meter.write("sens1:func:stat logg,star")
    while "progress" in meter.query("sens1:func:stat?").lower():
        clock.sleep(0.01)
    assert meter.block("sens1:func:res?", "<f4") == pytest.approx([1e-4] * 50, rel=0.04)
    for line in ("trig1:outp dis", "trig1:inp ign", ":INIT1:CONT ON", ":INIT1:CONT OFF"):
        command(line)
    assert float(meter.query(":READ1:POW?")) == pytest.approx(1e-4, rel=0.04)


def test_the_makers_example_of_laser_and_meter(clock):
    """An N777xC gives its triggers to an N774x by a cable; the largest power is taken as W while the unit is dBm."""
    source = EmulatedKeysightLaser("tls", clock, np.random.default_rng(2))
    sensor = EmulatedKeysightN77xx(
        *("pm", clock, np.random.default_rng(3), lambda _: notch(source.light()).power_w),
        light_at=lambda _, at_s: notch(source.light_at(at_s)),
        model="N7744A",
        n_ports=4,
    )
    source.module._on_triggers = sensor.hardware_trigger
    laser, meter = Client(source, clock), Client(sensor, clock)
    for line in ("lock 0,1234", "trig:conf loop", "sour0:pow:stat 1"):
        laser.write(line)
    assert laser.query("sour0:pow:stat?") == "+1"
    for line in ("trig0:outp stf", "trig0:inp sws", "sour0:wav:swe:star 1550nm", "sour0:wav:swe:stop 1560nm"):
        laser.write(line)
    for line in (
        "sour0:wav:swe:step 10pm",
        "sour0:wav:swe:spe 50nm/s",
        "sour0:wav:swe:mode cont",
        "sour0:wav:swe:llog 1",
    ):
        laser.write(line)
    assert laser.query("sour0:wav:swe:chec?")[0] == "0"
    largest_dbm = 10 * math.log10(1000 * float(laser.query("sour0:wav:swe:pmax? 1550nm,1560nm")))
    assert largest_dbm == pytest.approx(12.0, abs=1.0)
    laser.write(f"sour0:pow {min(5.0, largest_dbm)}dbm")
    points = int(laser.query("sour0:wav:swe:exp?"))
    laser.write("sour0:wav:swe 1")
    for line in ("trig1:inp SME", "sens1:pow:unit 1", "sens1:pow:rang:auto 0", "sens1:pow:rang 10dbm"):
        meter.write(line)
    assert meter.query("sens1:pow:rang?") == "+1.00000000E+001"
    for line in ("sens1:pow:wav 1550nm", f"sens1:func:par:logg {points},100us", "sens1:func:stat logg,star"):
        meter.write(line)
    while (flag := int(laser.query("sour0:wav:swe:flag?"))) == 0:
        clock.sleep(0.1)
    laser.write("sour0:wav:swe:soft")
    clock.sleep(0.2)
    while meter.query("sens1:func:stat?").endswith("PROGRESS"):
        clock.sleep(0.1)
        laser.query("sour0:wav:swe:flag?")
    watts = meter.block("sens1:func:result?", "<f4")
    assert int(laser.query("sour0:wav:swe:flag?")) != flag
    metres = laser.block("sour0:read:data? llog", "<f8")
    assert len(watts) == len(metres) == points
    assert metres[np.argmin(watts)] == pytest.approx(1555e-9, abs=0.05e-9)
    assert "No error" in laser.query(":SYSTem:ERRor?")
    assert "No error" in meter.query(":SYSTem:ERRor?")
