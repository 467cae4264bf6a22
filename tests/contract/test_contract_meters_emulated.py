"""Power meters keep the promises of the interface, on their emulated counterparts, over their wires."""

from collections.abc import Iterator

import numpy as np
import pytest

from lumion_hw.drivers.meters.keysight_816x import Keysight816x
from lumion_hw.drivers.meters.santec_mpm import SantecMpm
from lumion_hw.drivers.meters.thorlabs_pm import ThorlabsPm
from lumion_hw.emulator.meters.keysight_816x import EmulatedKeysight816x as EmulatedMainframe
from lumion_hw.emulator.meters.santec_mpm import EmulatedSantecMpm as EmulatedMpm
from lumion_hw.emulator.meters.thorlabs_pm import ThorlabsPm100
from lumion_hw.emulator.meters.thorlabs_pm_sensor import S154C
from lumion_hw.emulator.optics.light import Light
from lumion_hw.testing.contracts import PowerMeterContract, WireFixtures

LIGHT_W = 50e-6


class EmulatedMeter(WireFixtures, PowerMeterContract):
    """What the suites have in common: the light at each channel, and an overload by a range that is too small."""

    __test__ = False

    @pytest.fixture
    def light_w(self) -> dict[int, float]:
        return dict.fromkeys(range(1, 9), LIGHT_W)

    @pytest.fixture
    def illuminate(self, light_w):
        return light_w.__setitem__

    @pytest.fixture
    def overload(self, driver):
        return lambda channel: driver.set_range_dbm(channel, -20.0)

    @pytest.fixture
    def break_zeroing(self, device):
        return lambda broken: setattr(device, "zero_fails", broken)

    @pytest.fixture
    def active_wavelength_nm(self, driver):
        return driver.wavelength_nm


class TestSantecMpm210(EmulatedMeter):
    # Santec MPM-210H: 1250 to 1630 nm, 0.01 to 10000 ms. Modules 0 and 3 of a mainframe.
    __test__ = True

    @pytest.fixture
    def device(self, clock, light_w) -> EmulatedMpm:
        def light(module: int, port: int, _at_s: float) -> Light:
            return Light(light_w[port + (4 if module == 3 else 0)])

        return EmulatedMpm("meter0", clock, np.random.default_rng(1), light, modules=(0, 3), serial="SN1")

    @pytest.fixture
    def driver(self, wire, clock) -> Iterator[SantecMpm]:
        meter = SantecMpm(wire.link(), clock, device="meter0", expected_serial="SN1")
        meter.open()
        for channel in meter.channels:
            meter.set_range_dbm(channel, None)
        meter.set_averaging_s(1, 1e-3)
        yield meter
        meter.close()

    @pytest.fixture
    def wavelength_limits_nm(self) -> tuple[float, float]:
        return 1250.0, 1630.0

    @pytest.fixture
    def averaging_limits_s(self) -> tuple[float, float]:
        return 1e-5, 10.0

    @pytest.fixture
    def overload(self, driver, light_w):
        """The range of a module's ports is automatic or not for all of them: too much light it is."""
        return lambda channel: light_w.__setitem__(channel, 50e-3)

    @pytest.fixture
    def change_unit(self, second_session):
        return lambda _channel: second_session(b"UNIT 0\r\n")

    @pytest.fixture
    def change_wavelength(self, driver, second_session):
        return lambda channel, nm: second_session(b"DWAV %d,%d,%.1f\r\n" % (*driver.module_and_port(channel), nm))

    @pytest.fixture
    def change_range(self, driver, second_session):
        def change(channel: int) -> None:
            module, port = driver.module_and_port(channel)
            second_session(b"DAUTO %d,0\r\n" % module, b"DLEV %d,%d,5\r\n" % (module, port))

        return change

    def test_a_log_is_the_light_of_the_ports_asked_for(self, driver, light_w):
        light_w[6] = 0.5 * LIGHT_W
        log = driver.log((1, 6), 20)
        assert log.power_w.shape == (2, 20)
        assert log.power_w.mean(axis=1) == pytest.approx([LIGHT_W, 0.5 * LIGHT_W], rel=0.1)


class TestThorlabsPm100d(EmulatedMeter):
    # PM100D manual; an S154C sensor.
    __test__ = True
    wires = ("hislip",)  # a VISA instrument

    @pytest.fixture
    def device(self, clock, light_w) -> ThorlabsPm100:
        return ThorlabsPm100("meter0", clock, np.random.default_rng(1), lambda: Light(light_w[1]), serial="P1")

    @pytest.fixture
    def driver(self, wire, clock) -> Iterator[ThorlabsPm]:
        meter = ThorlabsPm(wire.link(), clock, device="meter0", expected_model="PM100D", expected_serial="P1")
        meter.open()
        meter.set_range_dbm(1, None)
        meter.set_averaging_s(1, 3e-3)
        yield meter
        meter.close()

    @pytest.fixture
    def wavelength_limits_nm(self) -> tuple[float, float]:
        return S154C.limits_nm

    @pytest.fixture
    def averaging_limits_s(self) -> tuple[float, float]:
        return 3e-3, 30.0

    @pytest.fixture
    def change_unit(self, second_session):
        return lambda _channel: second_session(b"SENS:POW:UNIT DBM\n")

    @pytest.fixture
    def change_wavelength(self, second_session):
        return lambda _channel, wavelength_nm: second_session(b"SENS:CORR:WAV %.1f\n" % wavelength_nm)

    @pytest.fixture
    def change_range(self, second_session):
        return lambda _channel: second_session(b"SENS:POW:RANG MIN\n")

    @pytest.fixture
    def reset(self, second_session):
        return lambda: second_session(b"*RST\n")


class TestKeysight8164B(EmulatedMeter):
    # Keysight 8163/8164 programming guide: 81635A, 800 to 1650 nm, 100 us and more.
    __test__ = True

    @pytest.fixture
    def device(self, clock, light_w) -> EmulatedMainframe:
        def light(slot: int, channel: int, _at_s: float) -> Light:
            return Light(light_w[2 * (slot - 1) + channel])

        return EmulatedMainframe("meter0", clock, np.random.default_rng(1), light, serial="DE1")

    @pytest.fixture
    def driver(self, wire, clock) -> Iterator[Keysight816x]:
        meter = Keysight816x(wire.link(), clock, device="meter0", expected_model="8164B", expected_serial="DE1")
        meter.open()
        for channel in meter.channels:
            meter.set_range_dbm(channel, None)
            meter.set_averaging_s(channel, 1e-3)
        yield meter
        meter.close()

    @pytest.fixture
    def wavelength_limits_nm(self) -> tuple[float, float]:
        return 800.0, 1650.0

    @pytest.fixture
    def averaging_limits_s(self) -> tuple[float, float]:
        return 1e-4, 10.0

    @pytest.fixture
    def change_unit(self, driver, second_session):
        return lambda channel: second_session(b"SENS%d:CHAN%d:POW:UNIT 0\n" % driver.slot_and_head(channel))

    @pytest.fixture
    def change_wavelength(self, driver, second_session):
        def change(channel: int, wavelength_nm: float) -> None:
            second_session(b"SENS%d:CHAN%d:POW:WAV %.1fNM\n" % (*driver.slot_and_head(channel), wavelength_nm))

        return change

    @pytest.fixture
    def change_range(self, driver, second_session):
        return lambda channel: second_session(b"SENS%d:CHAN%d:POW:RANG -80\n" % driver.slot_and_head(channel))

    @pytest.fixture
    def reset(self, second_session):
        return lambda: second_session(b"*RST\n")
