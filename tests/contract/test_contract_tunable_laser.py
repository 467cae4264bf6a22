"""Tunable lasers keep the promises of the interface, on their emulated counterparts, over their wires."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from lumion_hw.drivers.lasers.itla import ItlaLaser
from lumion_hw.drivers.lasers.keysight_laser import KeysightLaser
from lumion_hw.drivers.lasers.santec_tsl import SantecTsl
from lumion_hw.emulator.lasers.itla import Itla
from lumion_hw.emulator.lasers.itla.laser import ItlaProfile
from lumion_hw.emulator.lasers.keysight_laser import EmulatedKeysightLaser as EmulatedKeysight
from lumion_hw.emulator.lasers.santec_tsl import EmulatedSantecTsl as EmulatedTsl
from lumion_hw.emulator.lasers.swept_laser import LaserProfile
from lumion_hw.emulator.optics.light import Light
from lumion_hw.quantities import dbm_from_w, frequency_hz_from_wavelength_m
from lumion_hw.testing.contracts import TunableLaserContract, WireFixtures

DARK_W = 1e-9
SETTLE_S, POWER_TAU_S = 0.1, 0.02
"""Lasers that settle in a tenth of a second keep a suite on the wall clock short."""


class EmulatedLaser(WireFixtures, TunableLaserContract):
    """What the suites have in common: the true light, looked at in the thread that serves the laser."""

    __test__ = False

    @pytest.fixture
    def emitted(self, device, wire) -> Callable[[], tuple[float, float] | None]:
        def look() -> tuple[float, float] | None:
            seen: list[Light] = []
            wire.run_action(lambda: seen.append(device.light()))
            light = seen[0]
            if light.power_w < DARK_W:
                return None
            return 1e-12 * frequency_hz_from_wavelength_m(1e-9 * light.wavelength_nm), dbm_from_w(light.power_w)

        return look


class TestItla(EmulatedLaser):
    __test__ = True
    wires = ("pty",)

    @pytest.fixture
    def device(self, clock) -> Itla:
        profile = ItlaProfile(enable_s=2.0, tune_s=1.0, power_s=1.5)  # four time constants of its power
        return Itla("laser0", clock, np.random.default_rng(1), profile=profile, serial="IT1")

    @pytest.fixture
    def driver(self, wire, clock) -> Iterator[ItlaLaser]:
        laser = ItlaLaser(wire.link(), clock, device="laser0", expected_serial="IT1")
        laser.open()
        yield laser
        laser.close()


class TestKeysightN7776C(EmulatedLaser):
    __test__ = True
    sweep_span_nm = 10.0  # at 50 nm/s; shorter than 0.1 s is error 369

    @pytest.fixture
    def device(self, clock) -> EmulatedKeysight:
        profile = LaserProfile((1480.0, 1640.0), power_tau_s=POWER_TAU_S)
        return EmulatedKeysight("laser0", clock, np.random.default_rng(1), serial="KS1", profile=profile)

    @pytest.fixture
    def driver(self, wire, clock) -> Iterator[KeysightLaser]:
        laser = KeysightLaser(wire.link(), clock, device="laser0", expected_serial="KS1", pin="1234", settle_s=SETTLE_S)
        laser.open()
        yield laser
        laser.close()

    @pytest.fixture
    def change_unit(self, second_session):
        return lambda: second_session(b"SOUR0:POW:UNIT 1\n")

    @pytest.fixture
    def reset(self, second_session):
        return lambda: second_session(b"*RST\n")


class SantecLaser(EmulatedLaser):
    """Nanometres by the Legacy command set, metres by the SCPI one."""

    __test__ = False
    code = 0

    @pytest.fixture
    def device(self, clock) -> EmulatedTsl:
        profile = LaserProfile((1480.0, 1640.0), power_dbm=(-15.0, 13.0), power_tau_s=POWER_TAU_S)
        laser = EmulatedTsl("laser0", clock, np.random.default_rng(1), profile=profile)
        host = laser.connect()
        host.receive(b"SYST:COMM:COD %d\r" % self.code)
        host.close()
        return laser

    @pytest.fixture
    def driver(self, wire, clock) -> Iterator[SantecTsl]:
        laser = SantecTsl(wire.link(), clock, device="laser0", limits_dbm=(-15.0, 13.0), settle_s=SETTLE_S)
        laser.open()
        yield laser
        laser.close()

    @pytest.fixture
    def change_unit(self, second_session):
        return lambda: second_session(b"POW:UNIT 1\r")

    @pytest.fixture
    def reset(self, second_session):
        return lambda: second_session(b"*RST\r")


class TestSantecTsl570Legacy(SantecLaser):
    __test__ = True

    def test_the_command_set_is_set_again_when_another_session_has_changed_it(self, driver, second_session):
        before_thz = driver.state().frequency_thz
        second_session(b"SYST:COMM:COD 1\r")  # wavelengths in metres and not in nanometres
        assert driver.state().frequency_thz == before_thz
        second_session(b"SYST:COMM:COD 1\r")
        driver.set_frequency_thz(before_thz - 0.1)
        assert driver.state().frequency_thz == pytest.approx(before_thz - 0.1, abs=driver.ranges.frequency_step_thz)


class TestSantecTsl570Scpi(SantecLaser):
    __test__ = True
    code = 1

    def test_the_set_in_force_is_noticed(self, driver):
        assert driver.dialect.name == "SCPI"
