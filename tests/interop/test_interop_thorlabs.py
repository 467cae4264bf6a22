"""`pylablib` and QMI, unmodified, drive the emulated Thorlabs paddles and power meters.

The paddles of pylablib are reached over TCP, because its serial back end cycles RTS, which a pseudo-terminal does not
have; QMI takes a serial port only.
"""

from __future__ import annotations

import numpy as np
import pytest

from lumion_hw.clock import SystemClock
from lumion_hw.emulator.meters.thorlabs_pm import ThorlabsPm100
from lumion_hw.emulator.optics.light import Light
from lumion_hw.emulator.polarization.thorlabs_mpc import Mpc320
from tests.interop.other_clients import module, pty, qmi_instrument, qmi_tcp, serving
from tests.waiting import PATIENCE_S, until


def paddles(**options: bool) -> Mpc320:
    return Mpc320("pol0", SystemClock(), np.random.default_rng(1), turn=lambda _: None, **options)


def meter(model: str) -> ThorlabsPm100:
    return ThorlabsPm100("pm0", SystemClock(), np.random.default_rng(4), lambda: Light(1e-4), model=model)


@pytest.fixture
def kinesis():
    kind = module("pylablib.devices.Thorlabs").KinesisMotor
    with serving() as server:
        host, _, port = server.add_tcp(paddles()).removeprefix("tcp://").rpartition(":")
        with pytest.warns(UserWarning, match="cycle RTS"):
            client = kind(("network", (host, int(port))), scale="stage")
        with client:
            yield client


def test_pylablib_moves_paddles_without_enabling_them(kinesis) -> None:
    """As a real one did (issue 29 of pylablib)."""
    client = kinesis
    info = client.get_device_info()
    assert (info.serial_no, info.model_no, info.nchannels) == (38_000_001, "MPC320", 3)
    assert client.get_scale_units() == "deg"
    assert client.setup_polctl(velocity=100, home_position=85, jog1=10) == pytest.approx(
        (100, 85.0, 10.0, 25.0, 25.0), abs=0.1
    )
    for channel, angle in ((1, 0.0), (2, 85.0), (4, 170.0)):
        client.move_to(angle, channel=channel)
        client.wait_move(channel=channel, timeout=PATIENCE_S)
        assert client.get_position(channel=channel) == pytest.approx(angle, abs=0.1)
    client.move_by(-20.0, channel=4)
    client.wait_move(channel=4, timeout=PATIENCE_S)
    assert client.get_position(channel=4) == pytest.approx(150.0, abs=0.2)
    client.home(channel=1, force=True, timeout=PATIENCE_S)
    client.wait_move(channel=1, timeout=PATIENCE_S)
    assert client.get_position(channel=1) == pytest.approx(85.0, abs=0.1)
    client.jog("+", channel=1, kind="builtin")
    client.wait_move(channel=1, timeout=PATIENCE_S)
    assert client.get_position(channel=1) == pytest.approx(75.0, abs=0.2), "it counts plus as backward"
    assert {"homed", "settled", "enabled"} <= set(client.get_status(channel=1))


@pytest.fixture
def mpc_of_qmi(tmp_path):
    """It reads announced motions as a whole status."""
    kind = module("qmi.instruments.thorlabs").Thorlabs_Mpc320
    device = paddles(long_announcements=True)
    with serving() as server, qmi_instrument(kind, f"serial:{pty(server, device, tmp_path)}") as client:
        client._apt_protocol._timeout = 0.05  # it sleeps this long before it looks for a reply
        yield client, device


def test_every_call_of_qmi_on_the_paddles(mpc_of_qmi) -> None:
    client, device = mpc_of_qmi
    states = module("qmi.instruments.thorlabs").AptChannelState
    identity = client.get_idn()
    assert (identity.serial, identity.model.decode().rstrip("\0")) == (38_000_001, "MPC320")
    client.identify()
    client.set_polarisation_parameters(100, 85, 10, 20, 30)
    client.save_parameter_settings(1, 0x0530)
    parameters = client.get_polarisation_parameters()
    assert (parameters.velocity, parameters.home_position) == (100, pytest.approx(85.0, abs=0.1))
    assert device.saved == (100, 685, 81, 161, 242)
    client.enable_channels([1, 3])
    assert [client.get_channel_state(channel) for channel in (1, 2, 3)] == [
        states.ENABLE,
        states.DISABLE,
        states.ENABLE,
    ]
    client.move_absolute(3, 120.0)
    until(lambda: client.is_move_completed(3, 0.5))
    until(lambda: client.get_status_update(3).position == pytest.approx(120.0, abs=0.1))
    client.home_channel(1)
    until(lambda: client.get_status_update(1).position == pytest.approx(85.0, abs=0.1))
    client.jog(1)
    until(lambda: client.get_status_update(1).position == pytest.approx(95.0, abs=0.1))
    client.start_auto_status_update()
    client.stop_auto_status_update()
    client.disable_all_channels()
    assert client.get_channel_state(1) is states.DISABLE


def test_every_call_of_qmi_on_a_power_meter() -> None:
    kind = module("qmi.instruments.thorlabs.pm100d").Thorlabs_PM100D
    with serving() as server, qmi_instrument(kind, qmi_tcp(server, meter("PM100D"))) as client:
        client.reset()
        assert client.get_idn().model == "PM100D"
        assert client.get_sensor_info()[:3] == ("S154C", "000000001", "01-Jan-2025")
        client.set_wavelength(1310.0)
        assert client.get_wavelength() == 1310.0
        client.set_autorange(False)
        assert not client.get_autorange()
        client.set_range(1e-3)
        assert client.get_range_in_use() >= 1e-3
        assert client.get_power() == pytest.approx(1e-4, rel=0.15)
        assert client.get_current() == pytest.approx(1e-4, rel=0.1)
        with pytest.raises(module("qmi.core.exceptions").QMI_InstrumentException, match="-222"):
            client.set_range(100.0)


def test_every_call_of_pylablib_on_a_pm160(tmp_path, monkeypatch) -> None:
    kind = module("pylablib.devices.Thorlabs").PM160
    monkeypatch.setattr(kind, "_default_operation_timeout", PATIENCE_S)  # it gives up after 3 s, and takes no time-out
    # Its usual way to learn what the meter can do waits 1 ms for a reply; what comes later it takes for the next one.
    monkeypatch.setattr(kind, "_comm_valid_check_mode", "ret/idn")
    with serving() as server, kind(("serial", pty(server, meter("PM160"), tmp_path))) as client:
        assert client.get_device_info()[:3] == ("Thorlabs", "PM160", "P0000001")
        sensor = client.get_sensor_info()
        assert sensor.name == "PM160", "the sensor is the device"
        assert sensor.flags == ("power", "wavelength_set")
        assert client.get_supported_sensor_modes() == ["power", "current", "frequency"]
        assert client.set_sensor_mode("power") == "power"
        assert client.set_wavelength(1310e-9) == pytest.approx(1310e-9)
        assert client.get_wavelength_range() == pytest.approx((800e-9, 1700e-9))
        assert client.enable_autorange(False) is False
        assert client.set_range("full") > 1e-3
        assert client.get_power() == pytest.approx(1e-4, rel=0.15)
        assert client.get_reading(measure=False) == pytest.approx(1e-4, rel=0.15)
