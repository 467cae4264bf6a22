"""QMI's `Santec_Tsl570`, unmodified, drives the emulated TSL-570 over TCP: every property.

It ends messages by a carriage return alone, and compares the replies to ``SYST:ERR?`` and ``SYST:ALER?`` as a whole.
"""

from __future__ import annotations

import numpy as np
import pytest

from lumion_hw.clock import SystemClock
from lumion_hw.emulator.lasers.santec_tsl import EmulatedSantecTsl
from tests.interop.other_clients import module, qmi_instrument, qmi_tcp, serving
from tests.waiting import until


@pytest.fixture
def laser() -> EmulatedSantecTsl:
    return EmulatedSantecTsl("laser0", SystemClock(), np.random.default_rng(1))


@pytest.fixture
def client(laser):
    kind = module("qmi.instruments.santec").Santec_Tsl570
    with serving() as server, qmi_instrument(kind, qmi_tcp(server, laser)) as opened:
        yield opened


def test_identity_and_limits(client) -> None:
    identity = client.get_idn()
    assert (identity.vendor, identity.model) == ("SANTEC", "TSL-570")
    assert (client.get_minimum_wavelength(), client.get_maximum_wavelength()) == (1480.0, 1640.0)
    assert client.get_minimum_frequency() == pytest.approx(299_792.458 / 1640.0, abs=1e-5)
    assert client.get_maximum_frequency() == pytest.approx(299_792.458 / 1480.0, abs=1e-5)
    assert client.get_errors() == []
    assert client.operation_complete()


def test_every_setting_is_read_back(client) -> None:
    """Each setter of the client asks for errors and alerts; it raises when there is one."""
    for name, values in (
        ("wavelength", (1555.5, 1550.0)),
        ("frequency", (193.1,)),
        ("wavelength_fine", (-12.34, 0.0)),
        ("sweep_start_wavelength", (1550.0,)),
        ("sweep_stop_wavelength", (1560.0,)),
        ("sweep_start_frequency", (193.5,)),
        ("sweep_stop_frequency", (192.5,)),
        ("sweep_mode", (0, 3)),
        ("sweep_speed", (200, 20)),
        ("sweep_dwell", (0.5,)),
        ("sweep_delay", (1.5,)),
        ("sweep_cycles", (3, 1)),
        ("trigger_output_timing_mode", (1, 2, 3, 0)),
        ("trigger_output_period_mode", (1, 0)),
        ("trigger_output_step", (0.5,)),
        ("power_level", (3.25, -15.0)),
    ):
        for value in values:
            getattr(client, f"set_{name}")(value)
            assert getattr(client, f"get_{name}")() == pytest.approx(value, abs=1e-5), name
    for name, words in (
        ("wavelength_unit", ("thz", "nm")),
        ("power_level_unit", ("mw", "dbm")),
    ):
        for word in words:
            getattr(client, f"set_{name}_to_{word}")()
            assert getattr(client, f"get_{name}")().lower() == word
    client.disable_finetuning_operation()
    for name in ("coherence_control_status", "optical_output_status"):
        for on in ("ON", "OFF"):
            getattr(client, f"set_{name}")(on)
            assert getattr(client, f"get_{name}")() == on


def test_dark_and_lit_monitor(client, laser) -> None:
    assert client.get_actual_power() < -99.0
    client.set_optical_output_status(True)
    client.set_power_level(0.0)
    until(lambda: client.get_actual_power() > -0.6)
    client.set_power_level_unit_to_mw()
    assert client.get_actual_power() == pytest.approx(1e3 * laser.light().power_w, abs=0.01)
    assert client.get_errors() == []


def test_wrong_commands_and_values_have_the_makers_words(client) -> None:
    exception = module("qmi.core.exceptions").QMI_InstrumentException
    for command, words in ((":WAV 999", "Data out of range"), (":WAV:NONSENSE 1", "Undefined header")):
        with pytest.raises(exception, match=words):
            client._write_and_check_errors(command)
    client.clear()
    assert client.get_errors() == []


def test_a_sweep_logs_its_wavelengths(client) -> None:
    client.set_sweep_start_wavelength(1550.0)
    client.set_sweep_stop_wavelength(1551.0)
    client.set_sweep_mode(1)
    client.set_sweep_speed(10)
    client.set_trigger_output_timing_mode(3)
    client.set_trigger_output_step(0.01)
    client.set_sweep_state(1)
    assert client.get_sweep_state() in (1, 4)
    until(lambda: client.get_sweep_state() == 0)
    assert client.readout_points() == 101
    assert client.readout_data() == pytest.approx(np.linspace(1550.0, 1551.0, 101), abs=0.02)
    assert client.get_errors() == []
