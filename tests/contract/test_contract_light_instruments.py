"""Attenuators, switch, amplifier, spectrum analyser and temperature controller keep their promises, on their wires."""

import math
from collections.abc import Iterator
from typing import ClassVar

import pytest

from lumion_hw.drivers.amplifiers.amonics_aedfa import AmonicsAedfa
from lumion_hw.drivers.analyzers.yokogawa_aq6370 import YokogawaAq6370
from lumion_hw.drivers.attenuators.keysight_n776x import KeysightN776x
from lumion_hw.drivers.attenuators.oz_da100 import OzDa100
from lumion_hw.drivers.switches.polatis import Polatis
from lumion_hw.drivers.temperature.arroyo_tec import ArroyoTec
from lumion_hw.emulator.amplifiers.amonics_aedfa import EmulatedAedfa
from lumion_hw.emulator.analyzers.yokogawa_aq6370 import EmulatedAq6370
from lumion_hw.emulator.attenuators.keysight_n77xx_attenuator import INSERTION_LOSS_DB, EmulatedN776xA
from lumion_hw.emulator.attenuators.oz_da100 import MIN_LOSS_DB, EmulatedDa100
from lumion_hw.emulator.optics.world import SpectralLine
from lumion_hw.emulator.switches.polatis import EmulatedPolatis
from lumion_hw.emulator.temperature.arroyo_tec import EmulatedArroyoTec
from lumion_hw.quantities import dbm_from_w, frequency_hz_from_wavelength_m, w_from_dbm
from lumion_hw.testing.contracts import (
    OpticalAmplifierContract,
    OpticalSwitchContract,
    SpectrumAnalyzerContract,
    TemperatureControllerContract,
    VariableAttenuatorContract,
    WireFixtures,
)

INPUT_W = 1e-4
LOGIN = b'OPEN "anonymous"\n', b" \n"


class TestKeysightN7764A(WireFixtures, VariableAttenuatorContract):
    wires: ClassVar[tuple[str, ...]] = ("tcp", "hislip")

    @pytest.fixture
    def device(self, clock) -> EmulatedN776xA:
        return EmulatedN776xA("voa0", clock)

    @pytest.fixture
    def driver(self, wire, clock) -> Iterator[KeysightN776x]:
        with KeysightN776x(wire.link(), clock, device="voa0", expected_model="N7764A") as attenuator:
            yield attenuator

    @pytest.fixture
    def measured_attenuation_db(self, device):
        def taken(channel: int) -> float | None:
            share = device.transmission(channel)
            return -10.0 * math.log10(share) - INSERTION_LOSS_DB if share > 1e-9 else None

        return taken

    @pytest.fixture
    def change_offset(self, second_session):
        # An offset of 3 dB, and control of the output power, which moves the filter by itself.
        return lambda channel: second_session(b"INP%d:OFFS 3;:OUTP%d:POW:CONTR 1\n" % ((2 * channel - 1,) * 2))

    @pytest.fixture
    def change_wavelength(self, second_session):
        return lambda channel: second_session(b"INP%d:WAV 1310NM\n" % (2 * channel - 1))

    @pytest.fixture
    def reset(self, second_session):
        return lambda: second_session(b"*RST\n")


class TestOzDa100(WireFixtures, VariableAttenuatorContract):
    wires: ClassVar[tuple[str, ...]] = ("pty",)
    readback_db = 0.1

    @pytest.fixture
    def device(self, clock) -> EmulatedDa100:
        return EmulatedDa100("voa1", clock)

    @pytest.fixture
    def driver(self, wire, clock) -> Iterator[OzDa100]:
        with OzDa100(wire.link(), clock, device="voa1") as attenuator:
            yield attenuator

    @pytest.fixture
    def measured_attenuation_db(self, device):
        # The unit counts from its least loss.
        return lambda channel: -10.0 * math.log10(device.transmission(channel)) - MIN_LOSS_DB


class TestPolatis(WireFixtures, OpticalSwitchContract):
    @pytest.fixture
    def device(self, clock) -> EmulatedPolatis:
        return EmulatedPolatis("oxc0", clock, n_inputs=8, n_outputs=6)

    @pytest.fixture
    def driver(self, wire, clock) -> Iterator[Polatis]:
        with Polatis(wire.link(), clock, device="oxc0", expected_size=(8, 6)) as switch:
            yield switch

    @pytest.fixture
    def actual_connections(self, device):
        return lambda: {entry: out for entry, out in device.connections().items() if entry <= 8}


class TestAmonicsAedfa(WireFixtures, OpticalAmplifierContract):
    wires: ClassVar[tuple[str, ...]] = ("pty",)

    @pytest.fixture
    def device(self, clock) -> EmulatedAedfa:
        def passing_w() -> tuple[float, float]:
            return INPUT_W, INPUT_W * amplifier.amplification(INPUT_W).gain

        amplifier = EmulatedAedfa("edfa0", clock, passing_w=passing_w)
        return amplifier

    @pytest.fixture
    def driver(self, wire, clock) -> Iterator[AmonicsAedfa]:
        with AmonicsAedfa(wire.link(), clock, device="edfa0") as amplifier:
            yield amplifier

    @pytest.fixture
    def emitted_dbm(self, device):
        def emitted() -> float | None:
            power_w = INPUT_W * device.amplification(INPUT_W).gain
            return dbm_from_w(power_w) if power_w > 1e-9 else None

        return emitted

    @pytest.fixture
    def change_mode(self, second_session):
        return lambda: second_session(b":MODE:SW:CH1 ACC\r\n")


class TestYokogawaAq6370D(WireFixtures, SpectrumAnalyzerContract):
    @pytest.fixture
    def lines(self) -> list[SpectralLine]:
        return []

    @pytest.fixture
    def device(self, clock, lines) -> EmulatedAq6370:
        return EmulatedAq6370("osa0", clock, spectrum=lambda: (lines, 0.0))

    @pytest.fixture
    def driver(self, wire, clock) -> Iterator[YokogawaAq6370]:
        with YokogawaAq6370(wire.link(), clock, device="osa0") as analyzer:
            yield analyzer

    @pytest.fixture
    def shine(self, lines):
        def shine(wavelength_nm: float, power_dbm: float | None) -> None:
            lines[:] = []
            if power_dbm is not None:
                frequency_hz = frequency_hz_from_wavelength_m(1e-9 * wavelength_nm)
                lines.append(SpectralLine(w_from_dbm(power_dbm), frequency_hz, 0.0, math.inf))

        return shine

    @pytest.fixture
    def change_scale(self, second_session):
        lines = (b":DISP:TRAC:Y1:SPAC LIN\n", b":SENS:CORR:RVEL:MED AIR\n", b":UNIT:X FREQ\n")
        return lambda: second_session(*LOGIN, *lines)

    @pytest.fixture
    def reset(self, second_session):
        return lambda: second_session(*LOGIN, b"*RST\n")


class TestArroyoTec(WireFixtures, TemperatureControllerContract):
    wires: ClassVar[tuple[str, ...]] = ("pty",)

    @pytest.fixture
    def device(self, clock) -> EmulatedArroyoTec:
        return EmulatedArroyoTec("tec0", clock)

    @pytest.fixture
    def driver(self, wire, clock) -> Iterator[ArroyoTec]:
        with ArroyoTec(wire.link(), clock, device="tec0") as controller:
            yield controller

    @pytest.fixture
    def true_c(self, device):
        return device.plate_c

    @pytest.fixture
    def heat_suddenly_k(self, device):
        return device.heat_suddenly_k

    @pytest.fixture
    def pull_sensor(self, device):
        return lambda: device.unplug_sensor(True)
