"""QMI's `OZOptics_DD100MC`, unmodified, drives the emulated DA-100: every call it has."""

from __future__ import annotations

import pytest

from lumion_hw.clock import SystemClock
from lumion_hw.emulator.attenuators.oz_da100 import EmulatedDa100
from tests.interop.other_clients import module, qmi_instrument, qmi_tcp, serving


@pytest.fixture
def client():
    device = EmulatedDa100("voa0", SystemClock(), attenuation_max_db=60.0)
    kind = module("qmi.instruments.ozoptics").OzOptics_Dd100Mc
    with serving() as server, qmi_instrument(kind, qmi_tcp(server, device)) as opened:
        yield opened


def test_attenuation_and_position(client) -> None:
    steps = client.set_attenuation(0.6)
    assert client.get_position() == (steps, 0.6)
    assert client.set_attenuation(0.15) == steps // 2, "attenuation goes with the square of the steps"
    client.home()
    assert client.get_position() == (0, 0.0)
    assert any(line.startswith("S/N") for line in client.get_configuration_display())
