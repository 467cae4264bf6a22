"""The Keysight N7744A keeps the promises of the interface, on the emulated meter, over its wire."""

from collections.abc import Iterator

import numpy as np
import pytest

from lumion_hw.drivers.meters.keysight_n77xx import KeysightN77xx
from lumion_hw.emulator.meters.keysight_n77xx import EmulatedKeysightN77xx as EmulatedN77xx
from lumion_hw.testing.contracts import PowerMeterContract, WireFixtures

LIGHT_W = 50e-6


class TestKeysightN7744A(WireFixtures, PowerMeterContract):
    # Keysight N774xC programming guide: 1250 to 1650 nm, 1 us to 10 s.
    @pytest.fixture
    def light_w(self) -> dict[int, float]:
        return dict.fromkeys((1, 2, 3, 4), LIGHT_W)

    @pytest.fixture
    def device(self, clock, light_w) -> EmulatedN77xx:
        return EmulatedN77xx(
            "meter0", clock, np.random.default_rng(1), light_w.__getitem__, model="N7744A", serial="MY1", n_ports=4
        )

    @pytest.fixture
    def driver(self, wire, clock) -> Iterator[KeysightN77xx]:
        meter = KeysightN77xx(wire.link(), clock, device="meter0", expected_model="N7744A", expected_serial="MY1")
        meter.open()
        for channel in meter.channels:
            meter.set_averaging_s(channel, 1e-3)
        yield meter
        meter.close()

    @pytest.fixture
    def illuminate(self, light_w):
        return light_w.__setitem__

    @pytest.fixture
    def wavelength_limits_nm(self) -> tuple[float, float]:
        return 1250.0, 1650.0

    @pytest.fixture
    def averaging_limits_s(self) -> tuple[float, float]:
        return 1e-6, 10.0

    @pytest.fixture
    def overload(self, driver):
        return lambda channel: driver.set_range_dbm(channel, -20.0)

    @pytest.fixture
    def break_zeroing(self, device):
        return lambda broken: setattr(device, "zero_fails", broken)

    @pytest.fixture
    def active_wavelength_nm(self, driver):
        return driver.wavelength_nm

    @pytest.fixture
    def change_unit(self, second_session):
        return lambda channel: second_session(b"SENS%d:POW:UNIT 0\n" % channel)

    @pytest.fixture
    def change_wavelength(self, second_session):
        return lambda channel, wavelength_nm: second_session(b"SENS%d:POW:WAV %.1fNM\n" % (channel, wavelength_nm))

    @pytest.fixture
    def change_range(self, second_session):
        return lambda channel: second_session(b"SENS%d:POW:RANG -70\n" % channel)

    @pytest.fixture
    def reset(self, second_session):
        return lambda: second_session(b"*RST\n")
