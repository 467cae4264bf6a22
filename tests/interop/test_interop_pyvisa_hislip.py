"""pyvisa with the HiSLIP client of pyvisa-py talks to an emulated instrument: `TCPIP::...::hislip0,PORT::INSTR`."""

from __future__ import annotations

import numpy as np
import pytest
from pyvisa import ResourceManager

from lumion_hw.clock import SystemClock
from lumion_hw.emulator.meters.keysight_n77xx import EmulatedKeysightN77xx
from lumion_hw.emulator.wires.server import EmulatorServer
from tests.waiting import PATIENCE_S

POWER_W = 1e-4


@pytest.fixture
def server():
    with EmulatorServer(SystemClock()) as made, made.in_thread():
        yield made


@pytest.fixture
def resource_name(server):
    meter = EmulatedKeysightN77xx(
        "pm0", SystemClock(), np.random.default_rng(1), lambda _: POWER_W, model="N7744A", n_ports=4
    )
    return server.add_hislip(meter).removeprefix("visa://")


def opened(name: str):
    return ResourceManager("@py").open_resource(
        name, timeout=1e3 * PATIENCE_S, read_termination="\n", write_termination="\n"
    )


@pytest.fixture
def meter(resource_name):
    instrument = opened(resource_name)
    yield instrument
    instrument.close()


def test_identity_and_reading(meter):
    assert meter.query("*IDN?").split(",")[1] == "N7744A"
    meter.write("SENS1:POW:UNIT 1;ATIM 1MS")
    assert float(meter.query("READ1:POW?")) == pytest.approx(POWER_W, rel=0.04)


def test_block_is_read_to_its_end(meter):
    meter.write("SENS1:POW:UNIT 1;:SENS2:POW:UNIT 1;:SENS3:POW:UNIT 1;:SENS4:POW:UNIT 1")
    values = meter.query_binary_values("READ:POW:ALL?", datatype="f", is_big_endian=False)
    assert values == pytest.approx([POWER_W] * 4, rel=0.04)


def test_serial_poll_reads_the_status_byte(meter):
    assert meter.read_stb() & 4 == 0
    meter.write("NONSENSE")
    assert meter.query("*OPC?") == "1"
    assert meter.read_stb() & 4 == 4
    assert meter.query("SYST:ERR?").startswith("-113,")
    assert meter.read_stb() & 4 == 0


def test_device_clear_after_a_time_out_brings_the_dialogue_back_in_step(meter):
    from pyvisa.errors import VisaIOError

    meter.write("SENS1:POW:ATIM 1")
    meter.timeout = 100
    with pytest.raises(VisaIOError):
        meter.query("READ1:POW?")
    meter.timeout = 5000
    meter.clear()
    assert meter.query("*IDN?").split(",")[1] == "N7744A"


def test_two_sessions_share_the_instrument_and_its_errors(meter, resource_name):
    other = opened(resource_name)
    meter.write("NONSENSE")
    assert meter.query("*OPC?") == "1"
    assert other.query("SYST:ERR?").startswith("-113,")
    other.close()
    assert meter.query("*OPC?") == "1"
