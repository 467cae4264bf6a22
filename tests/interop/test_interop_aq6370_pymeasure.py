"""PyMeasure's `AQ6370D`, unmodified, on the emulated analyser over TCP: login, settings, a sweep, traces."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lumion_hw.clock import SystemClock
from lumion_hw.emulator.analyzers.yokogawa_aq6370 import EmulatedAq6370
from lumion_hw.emulator.optics.world import SpectralLine
from lumion_hw.emulator.wires.server import EmulatorServer
from tests.interop.other_clients import module
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

CARRIER_HZ = 193.4e12
CARRIER_M = 299_792_458.0 / CARRIER_HZ


@pytest.fixture
def osa():
    line = SpectralLine(1e-3, CARRIER_HZ, 0.0, math.inf)
    device = EmulatedAq6370("osa0", SystemClock(), spectrum=lambda: ([line], 0.0))
    with EmulatorServer(SystemClock()) as server, server.in_thread():
        port = server.add_tcp(device).rpartition(":")[2]
        # The class asks VISA for a port that sockets do not have; it takes a connection that is open already.
        adapter = module("pymeasure.adapters").VISAAdapter(
            f"TCPIP::127.0.0.1::{port}::SOCKET",
            visa_library="@py",
            read_termination="\r\n",
            write_termination="\r\n",
            timeout=1e3 * PATIENCE_S,
        )
        client = module("pymeasure.instruments.yokogawa.aq6370series").AQ6370D(adapter)
        try:
            client.authenticate_ethernet("anonymous", "any")
            yield client
        finally:
            client.adapter.connection.close()


def test_settings_come_back(osa) -> None:
    assert osa.id == "YOKOGAWA,AQ6370D,91A000001,02.08"
    for name, value in (
        ("wavelength_center", 1.551e-6),
        ("wavelength_span", 4e-9),
        ("resolution_bandwidth", 0.05e-9),
        ("sample_number", 501),
        ("reference_level", -20.0),
        ("level_position", 5),
        ("sweep_time_interval", 3),
    ):
        setattr(osa, name, value)
        assert getattr(osa, name) == pytest.approx(value), name
    assert osa.wavelength_start == pytest.approx(1.549e-6)
    assert osa.wavelength_stop == pytest.approx(1.553e-6)
    assert osa.automatic_sample_number is False
    for name, values in (
        ("sensitivity", ("NHLD", "NAUT", "MID", "HIGH1", "HIGH2", "HIGH3", "NORM")),
        ("sweep_mode", ("SINGLE", "REPEAT", "AUTO", "SEGMENT")),
        ("sweep_speed", ("1x", "2x")),
        ("automatic_sample_number", (True, False)),
    ):
        for value in values:
            setattr(osa, name, value)
            assert getattr(osa, name) == value
    assert osa.check_errors() == []


def test_a_sweep_shows_the_carrier_where_it_is(osa) -> None:
    osa.wavelength_center = 1.550e-6
    osa.wavelength_span = 2e-9
    osa.resolution_bandwidth = 0.1e-9
    osa.initiate_sweep()
    assert osa.wait_for_sweep_complete(timeout=PATIENCE_S)
    wavelength_m, level_dbm = np.array(osa.get_xdata()), np.array(osa.get_ydata())
    assert len(wavelength_m) == len(level_dbm) == osa.TRA.sample_number == 101
    peak = int(np.argmax(level_dbm))
    assert wavelength_m[peak] == pytest.approx(CARRIER_M, abs=0.02e-9)
    assert level_dbm[peak] == pytest.approx(0.0, abs=0.2)
    # Half a width away a Gaussian is at half of its power.
    half_dbm = np.interp(CARRIER_M + 0.05e-9, wavelength_m, level_dbm)
    assert half_dbm == pytest.approx(-3.0, abs=0.5)
    osa.set_level_position_to_max()
    assert osa.reference_level == pytest.approx(level_dbm[peak], abs=1e-3)
    assert osa.check_errors() == []


@pytest.mark.parametrize(("word", "bits"), [("REAL,64", 64), ("REAL,32", 32)])
def test_binary_traces_are_the_text(osa, word: str, bits: int) -> None:
    osa.wavelength_span = 5e-9
    osa.initiate_sweep()
    assert osa.wait_for_sweep_complete(timeout=PATIENCE_S)
    told = osa.get_ydata()
    osa.transfer_format = word
    osa.write(":TRACE:Y? TRA")
    assert osa.read_bytes(1) == b"#"
    length = int(osa.read_bytes(int(osa.read_bytes(1))))
    data = np.frombuffer(osa.read_bytes(length), f"<f{bits // 8}")
    osa.read_bytes(2)
    assert data == pytest.approx(told, rel=1e-6)


def test_traces_are_copied_and_deleted(osa) -> None:
    osa.wavelength_span = 1e-9
    osa.initiate_sweep()
    assert osa.wait_for_sweep_complete(timeout=PATIENCE_S)
    osa.copy_trace("A", "B")
    assert osa.get_ydata("TRB") == osa.get_ydata("TRA")
    osa.TRC.mode = "MAX"
    assert osa.TRC.mode == "MAX"
    osa.delete_trace("ALL")
    assert osa.TRA.sample_number == 0
    assert osa.check_errors() == []
