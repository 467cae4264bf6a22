"""LabExT's `LaserMainframeKeysight` and `PowerMeterN7744A`, unmodified, on emulated instruments over HiSLIP.

The package on the index is `LabExT_pkg` (GPL-3, used by this test only); `LabExT` there is another one. It demands
exact versions of its dependencies, older than ours, and runs with ours: `pip install --no-deps LabExT_pkg`.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from pyvisa.highlevel import open_visa_library

from lumion_hw.clock import SystemClock
from lumion_hw.emulator.lasers.keysight_laser import EmulatedKeysightLaser
from lumion_hw.emulator.meters.keysight_816x import EmulatedKeysight816x
from lumion_hw.emulator.meters.keysight_n77xx import EmulatedKeysightN77xx
from lumion_hw.emulator.optics.light import Light
from lumion_hw.emulator.wires.server import EmulatorServer
from tests.waiting import until

WHY = "needs LabExT and tkinter: pip install --no-deps LabExT_pkg"
laser_client = pytest.importorskip("LabExT.Instruments.LaserMainframeKeysight", reason=WHY, exc_type=ImportError)
meter_client = pytest.importorskip("LabExT.Instruments.PowerMeterN7744A", reason=WHY, exc_type=ImportError)


@pytest.fixture
def server():
    with EmulatorServer(SystemClock()) as made, made.in_thread():
        yield made


@pytest.fixture
def own_manager(monkeypatch):
    """LabExT's resource manager counts what it opens; pyvisa would give it one that other tests have made."""
    monkeypatch.setattr(open_visa_library("@py"), "resource_manager", None)


@pytest.fixture
def connect(server, own_manager):
    """Return a function that serves a device and opens one of LabExT's classes on a channel of it."""
    clients = []

    def make(device, kind, channel: int):
        client = kind(server.add_hislip(device).removeprefix("visa://"), channel)
        client.open()
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()


def mainframe() -> EmulatedKeysight816x:
    """An 8164B whose own laser comes back to its sensor through a filter that takes 90 % at 1555 nm."""

    def light(slot: int, channel: int, at_s: float) -> Light:
        seen = made.light_at(at_s)
        depth = 0.9 * math.exp(-(((seen.wavelength_nm - 1555.0) / 0.5) ** 2))
        return Light(seen.power_w * (1.0 - depth), seen.wavelength_nm)

    modules = {0: "81600B-200", 1: "81635A"}
    made = EmulatedKeysight816x("mf0", SystemClock(), np.random.default_rng(8), light, modules=modules)
    return made


@pytest.mark.parametrize(
    ("device", "model", "limits_nm"),
    [
        (mainframe, "81600B", (1441, 1639)),
        (lambda: EmulatedKeysightLaser("tls0", SystemClock(), np.random.default_rng(1)), "N7776C", (1481, 1639)),
    ],
)
def test_settings_of_a_laser(connect, device, model, limits_nm):
    client = connect(device(), laser_client.LaserMainframeKeysight, 0)
    assert model in client.idn().partition("Slot0")[2]
    assert (client.min_lambda, client.max_lambda) == limits_nm
    client.wavelength = 1555.5
    assert client.wavelength == pytest.approx(1555.5)
    client.unit = "dBm"
    client.power = -3.0
    assert (client.unit, client.power) == ("dBm", pytest.approx(-3.0))
    client.unit = "Watt"
    assert client.power == pytest.approx(10**-0.3 * 1e-3, rel=1e-6)
    parameters = client.get_instrument_parameter()
    assert not [text for text in parameters.values() if "ERROR" in str(text)]


def test_lambda_scan_inside_a_mainframe(connect):
    """Laser and sensor in one mainframe, the triggers looped back; 10 nm at 80 nm/s take an eighth of a second."""
    device = mainframe()
    laser = connect(device, laser_client.LaserMainframeKeysight, 0)
    meter = connect(device, meter_client.PowerMeterGenericKeysight, 1)
    laser.power = 0.0
    laser.command_channel("sour", ":pow:stat 1")  # its own property then sleeps for a second
    laser.sweep_wl_setup(1550.0, 1560.0, 10.0, 80)
    points = laser.sweep_wl_get_n_points()
    meter.unit = "Watt"
    meter.range = 0.0
    meter.wavelength = 1555.0
    meter.averagetime = 1e-4
    meter.logging_setup(points, triggered=True)
    meter.logging_start()
    laser.sweep_wl_start()
    until(lambda: not laser.sweep_wl_busy())
    until(lambda: not meter.logging_busy())
    powers = meter.logging_get_data()
    wavelengths = laser.sweep_wl_get_data()
    assert len(powers) == len(wavelengths) == points == 1001
    assert wavelengths[np.argmin(powers)] == pytest.approx(1555.0, abs=0.05)
    assert laser._inst.query("SYST:ERR?").startswith("+0,")


def test_readings_and_log_of_a_multiport_meter(connect):
    device = EmulatedKeysightN77xx("pm0", SystemClock(), np.random.default_rng(1), lambda _: 1e-4, model="N7745C")
    meter = connect(device, meter_client.PowerMeterN7744A, 2)
    meter.unit = "Watt"
    meter.averagetime = 1e-3
    assert meter.averagetime == pytest.approx(1e-3)
    meter.autogain = False
    assert meter.autogain is False
    meter.autoranging = True
    assert meter.range == pytest.approx(-10.0), "100 uW"
    assert meter.power == pytest.approx(1e-4, rel=0.04)
    meter.range = 0.0
    assert (meter.range, meter.autoranging) == (pytest.approx(0.0), False)
    meter.trigger(continuous=False)
    meter.logging_setup(100)
    meter.logging_start()
    until(lambda: not meter.logging_busy())
    assert meter.logging_get_data() == pytest.approx(np.full(100, 1e-4), rel=0.04)
    assert meter.fetch_power() == pytest.approx(1e-4, rel=0.04)
