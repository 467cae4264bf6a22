"""Polarization instruments keep the promises of their interfaces, on their emulated counterparts, over their wires."""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pytest

from lumion_hw.drivers.polarization.keysight_n778x import KeysightN7785C
from lumion_hw.drivers.polarization.novoptel_pm1000 import NovoptelPm1000
from lumion_hw.drivers.polarization.thorlabs_mpc import ThorlabsMpc
from lumion_hw.emulator.polarization.keysight_n778x import EmulatedKeysightN7785C as EmulatedN7785C
from lumion_hw.emulator.polarization.novoptel_pm1000 import Pm1000
from lumion_hw.emulator.polarization.thorlabs_mpc import COUNTS_PER_DEGREE, Mpc320
from lumion_hw.testing.contracts import (
    PolarimeterContract,
    PolarizationControllerContract,
    PolarizationOptimizerContract,
    WireFixtures,
)


class TestThorlabsMpc320(WireFixtures, PolarizationControllerContract):
    wires: ClassVar[tuple[str, ...]] = ("pty",)

    @pytest.fixture
    def device(self, clock) -> Mpc320:
        return Mpc320("pol0", clock, np.random.default_rng(1), turn=lambda _: None)

    @pytest.fixture
    def driver(self, wire, clock) -> Iterator[ThorlabsMpc]:
        controller = ThorlabsMpc(wire.link(), clock, device="pol0", model="MPC320", velocity_percent=100)
        controller.open()
        yield controller
        controller.close()

    @pytest.fixture
    def actual_settings(self, device):
        return lambda: np.array(
            [paddle.position(device.now()) / COUNTS_PER_DEGREE for paddle in device.paddles.values()]
        )


class TestThorlabsMpc320ThatTalksAllTheTime(TestThorlabsMpc320):
    """Status messages nobody asked for, and announcements as public drivers read them."""

    wires = ()

    @pytest.fixture
    def device(self, clock) -> Mpc320:
        return Mpc320(
            "pol0", clock, np.random.default_rng(1), turn=lambda _: None, chatty_s=0.02, long_announcements=True
        )


class TestKeysightN7785C(WireFixtures, PolarizationOptimizerContract):
    @pytest.fixture
    def device(self, clock) -> EmulatedN7785C:
        return EmulatedN7785C("pol0", clock, np.random.default_rng(1), turn=lambda _: None)

    @pytest.fixture
    def driver(self, wire, clock) -> Iterator[KeysightN7785C]:
        box = KeysightN7785C(wire.link(), clock, device="pol0")
        box.open()
        yield box
        box.close()

    @pytest.fixture
    def executed_factors(self, device):
        return lambda: tuple(device.steps)


class TestNovoptelPm1000OverLan(WireFixtures, PolarimeterContract):
    link = "lan"

    @pytest.fixture
    def stokes_w(self) -> np.ndarray:
        return 1e-4 * np.array([1.0, 0.48, -0.6, 0.64])

    @pytest.fixture
    def device(self, clock, stokes_w) -> Pm1000:
        return Pm1000("pol0", clock, np.random.default_rng(1), stokes_w.copy, link=self.link, serial="77")

    @pytest.fixture
    def driver(self, wire, clock) -> Iterator[NovoptelPm1000]:
        polarimeter = NovoptelPm1000(
            wire.link(), clock, device="pol0", serial_line=self.link == "usb", expected_serial="77"
        )
        polarimeter.open()
        yield polarimeter
        polarimeter.close()

    @pytest.fixture
    def shine(self, stokes_w):
        def shine(power_w: float, state: tuple[float, float, float], dop: float) -> None:
            stokes_w[:] = power_w * np.append(1.0, dop * np.array(state))

        return shine


class TestNovoptelPm1000OverUsb(TestNovoptelPm1000OverLan):
    link = "usb"
    wires = ("pty",)
