"""`pylablib` and QMI, unmodified, drive the emulated EPC04: every call each of them has for this instrument.

pylablib over a pty, QMI over TCP. QMI's own tests quote what the instrument says; pylablib sends four digits always.
"""

from __future__ import annotations

import numpy as np
import pytest

from lumion_hw.clock import SystemClock
from lumion_hw.emulator.polarization.oz_epc04 import Epc04
from tests.interop.other_clients import module, pty, qmi_instrument, qmi_tcp, serving
from tests.waiting import PATIENCE_S


@pytest.fixture
def device() -> Epc04:
    return Epc04("pol0", SystemClock(), np.random.default_rng(1), drive_mv=lambda *_: None)


@pytest.fixture
def pylablib_client(device, tmp_path):
    kind = module("pylablib.devices.OZOptics").EPC04
    with serving() as server, kind(pty(server, device, tmp_path), timeout=PATIENCE_S) as client:
        yield client


@pytest.fixture
def qmi_client(device):
    kind = module("qmi.instruments.ozoptics").OzOptics_EPC
    with serving() as server, qmi_instrument(kind, qmi_tcp(server, device)) as client:
        yield client


def test_every_call_of_pylablib(pylablib_client) -> None:
    client = pylablib_client
    assert client.set_all_voltages([2.2, 0.0, -0.05, -5.0]) == [2.2, 0.0, -0.05, -5.0]
    assert client.step_voltage(1, 0.5) == 0.5
    assert client.set_voltage(3, 9.0) == 5.0, "the client clips before it sends"
    assert client.set_all_frequencies([7, 17, 55, 100]) == [7, 17, 55, 100]
    assert [client.set_mode(mode) for mode in ("ac", "dc")] == ["ac", "dc"]
    assert [client.set_waveform(shape) for shape in ("tri", "sin")] == ["tri", "sin"]
    assert client.get_settings()["voltages"] == [2.2, 0.5, -0.05, 5.0]
    assert client.save_preset() is None
    with pytest.raises(client.Error, match="V9,0000 returned error"):
        client.query("V9,0000")


def test_every_call_of_qmi(qmi_client, device) -> None:
    client = qmi_client
    client.set_voltage(1, 2500)
    client.set_high(2)
    client.set_low(3)
    assert client.get_voltages() == (2500, 5000, -5000, 0)
    client.set_zero(1)
    assert client.get_voltages() == (0, 5000, -5000, 0)
    for channel, hertz in enumerate((7, 17, 37, 71), 1):
        client.set_frequency(channel, hertz)
    assert client.get_frequencies() == (7, 17, 37, 71)
    client.set_operating_mode_ac()
    assert client.get_operating_mode() == "AC"
    client.set_waveform_type_triangle()
    assert client.get_waveform_type() == "Triangle"
    client.set_waveform_type_sine()
    assert client.get_waveform_type() == "Sine"
    assert not client.is_in_dc_in_ac_mode()
    client.enable_dc_in_ac_mode()
    client.toggle_channel_ac_dc(2)
    assert client.is_in_dc_in_ac_mode()
    assert client.get_ac_dc_channel_status() == ("F", "V", "F", "F")
    client.disable_dc_in_ac_mode()
    client.save_to_flash()
    client.set_operating_mode_dc()
    assert client.get_operating_mode() == "DC"
    device.power_cycle()
    assert client.get_operating_mode() == "AC", "the power-up state is the one saved"
