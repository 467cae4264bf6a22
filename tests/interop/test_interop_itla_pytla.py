"""`pytla`, unmodified, drives the emulated ITLA over a pty: every documented method agrees with the emulator's truth.

What version 0.2.0 of the client itself gets wrong is named in the tests that meet it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from lumion_hw.clock import SystemClock
from lumion_hw.emulator.lasers.itla import Itla
from lumion_hw.emulator.lasers.itla.laser import ItlaProfile
from lumion_hw.emulator.wires.server import EmulatorServer
from tests.interop.other_clients import module
from tests.waiting import until

MODULE_READY = 0x0010  # bit MRDY of NOP
QUICK = ItlaProfile(enable_s=0.3, tune_s=0.2, power_s=0.2, fine_tune_s=0.1, boot_s=0.2)


def errors() -> ModuleType:
    return module("itla.itla_errors")


def status() -> ModuleType:
    return module("itla.itla_status")


@pytest.fixture(params=["pty", pytest.param("socket", marks=pytest.mark.long)])
def connect(request, tmp_path):
    """Serve a module and open the client on it."""
    import serial

    pytla = module("itla.itla")
    if request.param == "pty" and sys.platform == "win32":
        pytest.skip("no pseudo-terminals on Windows")
    clients = []
    with EmulatorServer(SystemClock()) as server, server.in_thread():

        def make(version: str = "1.3", profile: ItlaProfile = QUICK):
            laser = Itla("laser0", SystemClock(), np.random.default_rng(3), profile=profile, paced=False)
            files = ["registers_itla.yaml"] if version == "1.3" else None
            if request.param == "pty":
                path = Path(server.add_pty(laser, tmp_path / "laser").removeprefix("serial://"))
                until(path.exists)
                client = pytla.ITLA(str(path), 9600, version=version, register_files=files)
                client.connect()
            else:
                address = server.add_tcp(laser).removeprefix("tcp://")
                client = pytla.ITLA("unused", 9600, version=version, register_files=files)
                client._device = serial.serial_for_url(f"socket://{address}", baudrate=9600, timeout=0.5)
            clients.append(client)
            return client, laser

        yield make
        for client in clients:
            client.disconnect()


def settle(client) -> None:
    """Poll NOP: the client's `wait` returns at once on a module that answers NOP while it works."""
    until(lambda: not int.from_bytes(client._nop(), "big") >> 8)


def enable(client) -> None:
    with pytest.raises(errors().CPException):
        client.enable()
    settle(client)


def text(value: str) -> str:
    """Its strings come with their final NULs."""
    return value.rstrip("\0")


def test_identity(connect):
    client, module = connect()
    assert text(client.get_device_type()) == "CW ITLA"
    assert text(client.get_manufacturer()) == module.profile.manufacturer
    assert text(client.get_model()) == module.profile.model
    assert text(client.get_serialnumber()) == module.serial
    assert text(client.get_manufacturing_date()) == module.profile.date
    assert text(client.get_firmware_release()) == module.profile.release
    assert text(client.get_backwardscompatibility()) == module.profile.release
    client.nop()


def test_limits(connect):
    client, _ = connect()
    assert (client.get_power_min(), client.get_power_max()) == (6.0, 13.5)
    assert client.get_frequency_min() == pytest.approx(191.3, abs=1e-9)
    assert client.get_frequency_max() == pytest.approx(196.1, abs=1e-9)
    assert client.get_grid_min() == pytest.approx(5.0)
    assert client.get_ftf_range() == pytest.approx(6.0)


def test_frequency_is_written_in_three_parts_and_read_back(connect):
    client, module = connect()
    client.set_frequency(193.412345)
    assert module.settings.first_mhz == 193_412_345
    assert client.get_fcf() == pytest.approx(193.412345, abs=1e-9)
    assert client.get_frequency() == pytest.approx(193.412345, abs=1e-9)
    client.set_fcf(191.5)
    assert client.get_fcf() == pytest.approx(191.5)
    assert client.get_frequency() == pytest.approx(module.frequency_mhz * 1e-6, abs=1e-9)


def test_channels_and_grid(connect):
    client, module = connect()
    client.set_grid(100.0)
    client.set_channel(4)
    assert client.get_channel() == 4
    assert client.get_grid() == pytest.approx(100.0)
    assert client.get_frequency() == pytest.approx(193.4, abs=1e-9)
    assert module.settings.channel_mhz == 193_400_000


def test_power_is_set_in_hundredths_and_refused_beyond_the_limits(connect, caplog):
    client, module = connect()
    client.set_power(8.25)
    assert client.get_power_setting() == 8.25
    with pytest.raises(errors().RVEError):
        client.set_power(30)
    assert client.get_power_setting() == 8.25
    assert client.get_power_output() == -60.0
    enable(client)
    assert client.get_power_output() == pytest.approx(module.reported_dbm, abs=0.2)


def test_output_is_enabled_after_a_pending_operation_and_disabled_at_once(connect):
    client, module = connect()
    assert client.get_reset_enable() == 0
    enable(client)
    assert client.get_reset_enable() == status().Resena.SENA
    assert module.light().power_w > 0
    client.disable()
    assert client.get_reset_enable() == 0
    assert module.light().power_w == 0
    assert client.is_disabled()


def test_first_frequency_is_refused_with_the_output_on(connect, caplog):
    client, _ = connect()
    enable(client)
    with pytest.raises(errors().CIEError):
        client.set_fcf(194.0)


def test_channel_is_tuned_with_the_output_on(connect):
    client, module = connect("1.2")
    enable(client)
    with pytest.raises(errors().CPException):
        client.set_channel(3)
    settle(client)
    assert client.get_frequency() == pytest.approx(193.2, abs=1e-9)
    assert client.get_frequency() == pytest.approx(299_792.458 / module.light().wavelength_nm, abs=1e-3)


def test_fine_tuning(connect):
    client, module = connect()
    client.set_fine_tuning(-1.5)
    assert client.get_fine_tuning() == pytest.approx(-1.5)
    client.set_fine_tuning(0)
    enable(client)
    with pytest.raises(errors().CPException):
        client.set_fine_tuning(2.25)
    settle(client)
    assert client.get_frequency() == pytest.approx(193.10225, abs=1e-9)
    assert module.frequency_mhz == 193_102_250
    with pytest.raises(errors().ExecutionError):
        client.set_fine_tuning(7.0)
    with pytest.raises(errors().RVEError):
        client.nop()


def test_temperatures_currents_and_age(connect):
    client, _ = connect()
    assert client.get_temp() == 35.0
    assert client.get_temps() == [45.0, 35.0]
    assert client.get_currents() == [150.0, 0.0]
    assert client.get_age() == 0


def test_configuration_of_behaviour(connect):
    client, _ = connect()
    client.set_shutdown_on_fatal()
    assert client.get_configuration_behavior() == status().MCB.SDF
    client.set_alarm_during_tuning()
    assert client.get_configuration_behavior() == status().MCB.ADT


def test_status_registers_latch_and_are_cleared(connect):
    client, _ = connect()
    assert client.get_error_fatal() == 0
    client.send_command(0x6B, 5)
    with pytest.raises(errors().ExecutionError):
        client.get_response(0x6B)
    with pytest.raises(Exception, match="RNW"):
        client.nop()
    assert status().FatalError.XEL in client.get_error_fatal(reset=True)
    assert client.get_error_fatal() == 0
    assert status().WarningError.XEL in client.get_error_warning(reset=True)
    assert client.get_error_warning() == 0


def test_thresholds_and_triggers(connect):
    client, _ = connect()
    assert (client.get_fatal_power_thresh(), client.get_warning_power_thresh()) == (2.0, 1.0)
    assert (client.get_fatal_freq_thresh(), client.get_warning_freq_thresh()) == (5.0, 2.5)
    assert (client.get_fatal_therm_thresh(), client.get_warning_therm_thresh()) == (10.0, 5.0)
    assert client.get_srq_trigger() == status().SQRTrigger(0x1FBF)
    assert client.get_fatal_trigger() == status().FatalTrigger(0x000F)
    assert client.get_alm_trigger() == status().AlarmTrigger(0x0D0D)


def test_dither(connect):
    client, module = connect()
    client.dither_enable()
    client.set_dither_rate(50)
    client.set_dither_frequency(10)
    client.set_dither_amplitude(30)
    assert (client.get_dither_rate(), client.get_dither_frequency(), client.get_dither_amplitude()) == (50, 10, 30)
    assert module.settings.stored[0x59] == 0x02
    client.dither_disable()
    assert module.settings.stored[0x59] == 0


def test_last_response_is_the_one_before(connect):
    client, _ = connect()
    client.set_power(9.0)
    assert int.from_bytes(client.get_last_response(), "big") == 900


def test_resets(connect):
    client, module = connect()
    client.set_power(8.0)
    enable(client)
    client.soft_reset()
    assert client.get_reset_enable() == status().Resena.SENA
    client.hard_reset()
    until(lambda: int.from_bytes(client._nop(), "big") & MODULE_READY)
    assert client.get_power_setting() == 10.0
    assert not module.enabled


def test_module_of_the_older_agreement(connect):
    client, _ = connect("1.2", ItlaProfile(msa="01.2"))
    client.set_frequency(193.4123)
    assert client.get_fcf() == pytest.approx(193.4123)
    assert client.get_frequency() == pytest.approx(193.4123)
    assert (client.get_frequency_min(), client.get_frequency_max()) == pytest.approx((191.3, 196.1))
    assert (client.get_channel(), client.get_grid(), client.get_grid_min()) == pytest.approx((1, 50.0, 5.0))
    client.send_command(0x67)
    with pytest.raises(errors().ExecutionError):
        client.get_response(0x67)
    with pytest.raises(errors().RNIError):
        client.nop()


def test_every_readable_register_of_the_client_is_answered(connect):
    """The vendor's downloads (DLConfig) and general addressing (EAC, EA, EAR) are optional and not there."""
    from importlib.resources import files

    import yaml

    client, _ = connect()
    registers = yaml.safe_load((files("itla") / "registers" / "registers_itla.yaml").read_text())
    refused = []
    for name, register in registers.items():
        if name in ("AEA-EAR", "LstResp"):
            continue  # the end of a string, and the refusal before it
        client.send_command(register["register"])
        try:
            client.get_response(register["register"])
        except errors().ExecutionError:
            refused.append(name)
    assert refused == ["EAC", "EA", "EAR", "DLConfig"]
