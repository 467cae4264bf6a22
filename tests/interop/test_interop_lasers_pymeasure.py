"""PyMeasure's `KeysightN7776C`, `TSL550` and `TSL570`, unmodified, on the emulated lasers over TCP."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from lumion_hw.clock import SystemClock
from lumion_hw.emulator.lasers.keysight_laser import EmulatedKeysightLaser
from lumion_hw.emulator.lasers.santec_tsl import EmulatedSantecTsl
from lumion_hw.emulator.wires.server import EmulatorServer
from tests.interop.other_clients import module
from tests.waiting import PATIENCE_S, until

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
            timeout=1e3 * PATIENCE_S,
        )
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.adapter.connection.close()


@pytest.fixture
def n7776c(connect):
    device = EmulatedKeysightLaser("laser0", SystemClock(), np.random.default_rng(1))
    return connect(device, module("pymeasure.instruments.keysight").KeysightN7776C), device


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
    until(lambda: device.light().power_w == pytest.approx(0.5e-3, rel=0.12))
    client.output_enabled = False
    assert client.output_enabled is False
    assert client.check_errors() == []
    assert device.light().power_w == 0.0


def test_n7776c_wavelength(n7776c):
    client, device = n7776c
    client.wavelength = 1555.5
    assert client.wavelength == pytest.approx(1555.5)
    until(lambda: client.complete == "1")
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
    until(lambda: client.sweep_state == 0)
    assert client.sweep_points == 1001
    data = client.get_wl_data()
    assert data * 1e9 == pytest.approx(np.linspace(1550.0, 1560.0, 1001), abs=0.02)
    assert client.check_errors() == []


def test_n7776c_manual_steps(n7776c):
    client, device = n7776c
    client.sweep_wl_start, client.sweep_wl_stop, client.sweep_step, client.sweep_mode = 1550.0, 1560.0, 1.0, "MAN"
    client.sweep_state = 1
    until(lambda: client.complete == "1")
    client.next_step()
    client.next_step()
    client.previous_step()
    until(lambda: device.light().wavelength_nm == pytest.approx(1551.0, abs=0.02))
    assert client.sweep_state == 2
    client.sweep_state = 0
    assert client.sweep_state == 0
    assert client.check_errors() == []


def santec() -> ModuleType:
    return module("pymeasure.instruments.santec")


@pytest.fixture(params=[pytest.param("TSL-550", marks=pytest.mark.long), "TSL-570"])
def tsl(request, connect):
    device = EmulatedSantecTsl("laser0", SystemClock(), np.random.default_rng(1), model=request.param)
    return connect(device, getattr(santec(), request.param.replace("-", "")), "\r"), device


def test_tsl_power(tsl):
    client, device = tsl
    if isinstance(client, santec().TSL550):
        client.laser_enabled = True
        assert client.laser_enabled is True
    client.output_enabled = True
    assert client.output_enabled is True
    client.power_setpoint = -3.0
    assert client.power_setpoint == -3.0
    until(lambda: device.light().power_w == pytest.approx(0.5e-3, rel=0.12))
    assert client.power == pytest.approx(-3.0, abs=0.6)
    client.power_unit = "mW"
    assert client.power_setpoint == 0.5
    assert client.power == pytest.approx(1e3 * device.light().power_w, abs=0.011)
    client.output_enabled = False
    until(lambda: device.light().power_w == 0.0)
    assert client.check_errors() == []


def test_tsl_wavelength_and_frequency(tsl):
    client, device = tsl
    client.wavelength_setpoint = 1555.5
    assert client.wavelength_setpoint == pytest.approx(1555.5)
    assert client.complete == "1"
    assert device.light().wavelength_nm == pytest.approx(1555.5, abs=0.02)
    client.frequency_setpoint = 193.1
    assert client.frequency_setpoint == pytest.approx(193.1, abs=1e-5)
    assert client.check_errors() == []


def test_tsl_sweep_settings(tsl):
    client, _ = tsl
    sweeps = santec().tsl500series
    for name, value in (
        ("wavelength_start", 1550.0),
        ("wavelength_stop", 1560.0),
        ("wavelength_step", 0.5),
        ("frequency_start", 193.0),
        ("frequency_stop", 192.0),
        ("frequency_step", 0.1),
        ("sweep_speed", 20),
        ("sweep_dwell", 0.5),
        ("sweep_delay", 1.5),
        ("sweep_cycles", 3),
        ("sweep_mode", sweeps.SweepMode.STEPPED_TWO_WAY),
    ):
        setattr(client, name, value)
        assert getattr(client, name) == pytest.approx(value, abs=1e-5), name
    client.sweep_pattern = sweeps.SweepPattern.CONTINUOUS
    client.sweep_routing = sweeps.SweepRouting.ONE_WAY
    assert client.sweep_mode == sweeps.SweepMode.CONTINUOUS_ONE_WAY
    assert (client.sweep_pattern, client.sweep_routing) == (sweeps.SweepPattern.CONTINUOUS, sweeps.SweepRouting.ONE_WAY)
    assert client.check_errors() == []


def test_tsl_sweep(tsl):
    client, device = tsl
    sweeps = santec().tsl500series
    client.wavelength_start, client.wavelength_stop, client.sweep_speed = 1550.0, 1560.0, 20
    client.sweep_mode = sweeps.SweepMode.CONTINUOUS_ONE_WAY
    client.start_sweep()
    assert client.sweep_status == sweeps.SweepStatus.PREPARATION_FOR_SWEEP_START
    until(lambda: client.sweep_status == sweeps.SweepStatus.RUNNING)
    until(lambda: client.sweep_status == sweeps.SweepStatus.STOPPED)
    assert client.sweep_count == 1
    assert device.light().wavelength_nm == pytest.approx(1560.0, abs=0.02)
    client.start_repeat()
    until(lambda: client.sweep_status == sweeps.SweepStatus.RUNNING)
    client.stop_sweep()
    assert client.sweep_status == sweeps.SweepStatus.STOPPED
    assert client.check_errors() == []


def test_tsl_570_command_sets(connect):
    device = EmulatedSantecTsl("laser0", SystemClock(), np.random.default_rng(1))
    client = connect(device, santec().TSL570, "\r")
    assert client.command_set == "Legacy"
    assert (client.wavelength_min, client.wavelength_max) == (1480.0, 1640.0)
    client.command_set = "SCPI"
    assert client.command_set == "SCPI"
    assert (client.wavelength_min, client.wavelength_max) == pytest.approx((1480e-9, 1640e-9))
    assert client.frequency_min == pytest.approx(299_792_458 / 1640e-9)
    assert client.frequency_max == pytest.approx(299_792_458 / 1480e-9)
    client.wavelength_setpoint = 1.556e-6
    assert client.wavelength_setpoint == pytest.approx(1.556e-6)
    assert client.check_errors() == []
