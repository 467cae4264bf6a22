"""PyMeasure's `KeysightN7776C`, `TSL550` and `TSL570`, unmodified, on the emulated lasers over TCP."""

from __future__ import annotations

import time
import warnings

import numpy as np
import pytest

from lumion_hw.clock import SystemClock
from lumion_hw.emulator.keysight_laser import KeysightLaser
from lumion_hw.emulator.server import EmulatorServer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("pymeasure", reason="needs the package PyMeasure: pip install 'lumion-hw[test]'")
    from pymeasure.instruments.keysight import KeysightN7776C

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


@pytest.fixture
def server():
    with EmulatorServer(SystemClock()) as made, made.in_thread():
        yield made


@pytest.fixture
def connect(server):
    """Return a function that serves a laser and opens one of the client's classes on it."""
    clients = []

    def make(device, kind, termination: str = "\n"):
        port = server.add_tcp(device).rpartition(":")[2]
        client = kind(
            f"TCPIP::127.0.0.1::{port}::SOCKET",
            visa_library="@py",
            read_termination=termination,
            write_termination=termination,
            timeout=5000,
        )
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.adapter.connection.close()


def wait(done) -> None:
    end = time.monotonic() + 20.0
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def n7776c(connect):
    device = KeysightLaser("laser0", SystemClock(), np.random.default_rng(1))
    return connect(device, KeysightN7776C), device


def test_n7776c_lock_output_and_power(n7776c):
    client, device = n7776c
    assert client.id == "Keysight Technologies,N7776C,DE00000002,1.06.00"
    assert client.locked is True
    client.locked = False
    assert client.locked is False
    client.output_enabled = True
    assert client.output_enabled is True
    client.output_power_mW = 2.0
    assert client.output_power_mW == pytest.approx(2.0)
    client.output_power_dBm = -3.0
    assert client.output_power_dBm == pytest.approx(-3.0)
    wait(lambda: device.light().power_w == pytest.approx(0.5e-3, rel=0.12))
    client.output_enabled = False
    assert client.output_enabled is False
    assert client.check_errors() == []
    assert device.light().power_w == 0.0


def test_n7776c_wavelength(n7776c):
    client, device = n7776c
    client.wavelength = 1555.5
    assert client.wavelength == pytest.approx(1555.5)
    assert client.complete == "1"
    assert device.light().wavelength_nm == pytest.approx(1555.5, abs=0.02)


def test_n7776c_sweep_settings(n7776c):
    client, _ = n7776c
    for name, value in (
        ("sweep_wl_start", 1550.0),
        ("sweep_wl_stop", 1560.0),
        ("sweep_step", 0.5),
        ("sweep_speed", 80),
        ("sweep_mode", "CONT"),
        ("sweep_twoway", True),
        ("trigger_out", "STF"),
        ("trigger_in", "SWS"),
        ("wl_logging", True),
    ):
        setattr(client, name, value)
        seen = getattr(client, name)
        assert seen == pytest.approx(value) if isinstance(value, float) else seen == value, name
    assert client.valid_sweep_params()
    client.sweep_wl_stop = 1550.0
    assert not client.valid_sweep_params()
    assert client.check_errors() == []


def test_n7776c_sweep_logs_wavelengths(n7776c):
    client, _ = n7776c
    client.sweep_wl_start, client.sweep_wl_stop, client.sweep_step = 1550.0, 1560.0, 0.01
    client.sweep_speed, client.sweep_mode, client.trigger_out, client.wl_logging = 50, "CONT", "STF", True
    client.sweep_state = 1
    assert client.sweep_state == 1
    wait(lambda: client.sweep_state == 0)
    assert client.sweep_points == 1001
    data = client.get_wl_data()
    assert data * 1e9 == pytest.approx(np.linspace(1550.0, 1560.0, 1001), abs=0.02)
    assert client.check_errors() == []


def test_n7776c_manual_steps(n7776c):
    client, device = n7776c
    client.sweep_wl_start, client.sweep_wl_stop, client.sweep_step, client.sweep_mode = 1550.0, 1560.0, 1.0, "MAN"
    client.sweep_state = 1
    assert client.complete == "1"
    client.next_step()
    client.next_step()
    client.previous_step()
    wait(lambda: device.light().wavelength_nm == pytest.approx(1551.0, abs=0.02))
    assert client.sweep_state == 2
    client.sweep_state = 0
    assert client.sweep_state == 0
    assert client.check_errors() == []
