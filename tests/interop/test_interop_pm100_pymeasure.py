"""PyMeasure's `ThorlabsPM100USB`, unmodified, reads the emulated PM100 over TCP and over a pty.

What it documents: identity, sensor, flags, power, energy, wavelength and its limits, errors. It clips wavelengths
itself, so it cannot reach the console's own limits.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lumion_hw.clock import SystemClock
from lumion_hw.emulator.meters.thorlabs_pm import ThorlabsPm100
from lumion_hw.emulator.meters.thorlabs_pm_sensor import ES111C, S154C, S405C
from lumion_hw.emulator.optics.light import Light
from lumion_hw.emulator.wires.server import EmulatorServer
from tests.interop.other_clients import module
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


@pytest.fixture(params=["tcp", pytest.param("pty", marks=pytest.mark.long)])
def resource(request, tmp_path):
    """Return a function that serves a meter and gives its VISA resource name."""
    if request.param == "pty" and sys.platform == "win32":
        pytest.skip("no pseudo-terminals on Windows")
    with EmulatorServer(SystemClock()) as server, server.in_thread():

        def serve(meter: ThorlabsPm100) -> str:
            if request.param == "tcp":
                return f"TCPIP::127.0.0.1::{server.add_tcp(meter).rpartition(':')[2]}::SOCKET"
            path = Path(server.add_pty(meter, tmp_path / "pm0").removeprefix("serial://"))
            until(path.exists)
            return f"ASRL{path}::INSTR"

        yield serve


@pytest.fixture
def connect(resource):
    clients = []

    def make(light: Light, sensor=S154C) -> tuple[Any, ThorlabsPm100]:
        meter = ThorlabsPm100(
            "pm0", SystemClock(), np.random.default_rng(4), lambda: light, sensor=sensor, model="PM100USB"
        )
        client = module("pymeasure.instruments.thorlabs").ThorlabsPM100USB(
            resource(meter), visa_library="@py", read_termination="\n", write_termination="\n", timeout=1e3 * PATIENCE_S
        )
        clients.append(client)
        return client, meter

    yield make
    for client in clients:
        client.adapter.connection.close()


def test_identity_sensor_and_flags(connect):
    client, _ = connect(Light(1e-4))
    assert client.id == "Thorlabs,PM100USB,P0000001,2.4.0"
    assert (client.sensor_name, client.sensor_cal_msg) == ("S154C", "01-Jan-2025")
    assert float(client.sensor_sn) == 1
    assert (client.sensor_type, client.sensor_subtype) == (1, 2)
    assert client.flags == [True, False, False, False, False, True, False, False, False]
    assert client.is_power_sensor
    assert client.wavelength_settable
    others = (client.is_energy_sensor, client.response_settable, client.tau_settable, client.has_temperature_sensor)
    assert not any(others)
    assert client.check_errors() == []


def test_power_is_the_light(connect):
    client, meter = connect(Light(1e-4))
    assert client.power == pytest.approx(1e-4, rel=0.035)
    assert client.power == pytest.approx(float(meter.fetch()), rel=1e-3)
    with pytest.raises(AttributeError, match="not an energy sensor"):
        _ = client.energy
    assert client.check_errors() == []


def test_wavelength_is_set_read_back_and_acts_on_the_reading(connect):
    client, meter = connect(Light(1e-4, 1310.0))
    assert client.wavelength == 1550.0
    assert (client.wavelength_min, client.wavelength_max) == S154C.limits_nm
    wrong = client.power
    client.wavelength = 1310
    assert client.wavelength == 1310.0
    assert meter.plugged.settings.wavelength_nm == 1310.0
    assert wrong / client.power == pytest.approx(0.95 / 1.03, rel=1e-3)
    client.wavelength = 5000
    assert client.wavelength == S154C.limits_nm[1], "the client clips before it sends"
    assert client.check_errors() == []


def test_thermal_sensor_has_other_flags(connect):
    client, _ = connect(Light(1.0, 1064.0), S405C)
    assert client.tau_settable
    assert client.has_temperature_sensor
    assert client.power == pytest.approx(1.0, rel=0.04)


def test_energy_sensor(connect):
    client, _ = connect(Light(1e-3, 1064.0, 10.0), ES111C)
    assert client.is_energy_sensor
    assert client.energy == pytest.approx(1e-4, rel=0.04)
    with pytest.raises(AttributeError, match="not a power sensor"):
        _ = client.power
    assert client.check_errors() == []


def test_errors_are_found_in_the_queue(connect):
    client, _ = connect(Light(1e-4))
    client.write("CORR:WAVE 1310")
    assert [entry[0] for entry in client.check_errors()] == [-113]
    assert client.check_errors() == []


def test_missing_sensor_is_found(connect):
    with pytest.raises(OSError, match="No sensor"):
        connect(Light(1e-4), None)
