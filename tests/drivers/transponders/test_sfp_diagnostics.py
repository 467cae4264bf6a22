"""Conversions of SFF-8472 diagnostics against the vectors of the standard's formats."""

from __future__ import annotations

import struct

import pytest

from lumion_hw.drivers.transponders.sfp_diagnostics import (
    MONITORS,
    CalibrationKind,
    DiagnosticCalibration,
    calibration_kind,
    implausibility_text,
)
from lumion_hw.interfaces import RangeState

IDENTITY_CONSTANTS = bytes(56) + struct.pack(">5f", 0, 0, 0, 1, 0) + bytes.fromhex("01000000" * 4) + bytes(4)
INTERNAL = DiagnosticCalibration.from_memory(CalibrationKind.INTERNAL, IDENTITY_CONSTANTS)


@pytest.mark.parametrize(
    ("monitor", "raw", "value"),
    [
        ("temperature", 0x1980, 25.5),
        ("temperature", 0xFB00 - 0x10000, -5.0),
        ("supply", 0x80E8, 3.3),
        ("tx_bias", 0xC350, 100.0),
    ],
)
def test_quantities_with_internal_calibration(monitor: str, raw: int, value: float) -> None:
    assert INTERNAL.value(monitor, raw) == pytest.approx(value)


@pytest.mark.parametrize(
    ("raw", "power_dbm"),
    [(0x2710, 0.0), (0x621F, 4.0), (0x1F07, -1.0), (0x0D3C, -4.7), (0x0107, -15.8), (0x0001, -40.0)],
)
def test_powers_in_dbm(raw: int, power_dbm: float) -> None:
    power = INTERNAL.power("rx_power", raw)
    assert power.state is RangeState.OK
    assert power.power_dbm == pytest.approx(power_dbm, abs=0.01)


def test_the_ends_of_the_power_scale_are_no_numbers() -> None:
    dark, bright = INTERNAL.power("tx_power", 0x0000), INTERNAL.power("tx_power", 0xFFFF)
    assert (dark.state, dark.power_dbm) == (RangeState.UNDER, None)
    assert (bright.state, bright.power_dbm) == (RangeState.OVER, None)


@pytest.mark.parametrize("monitor", MONITORS)
def test_identity_constants_change_nothing(monitor: str) -> None:
    external = DiagnosticCalibration.from_memory(CalibrationKind.EXTERNAL, IDENTITY_CONSTANTS)
    for raw in (1, 1000, 30000):
        assert external.value(monitor, raw) == pytest.approx(INTERNAL.value(monitor, raw))


def external_constants() -> bytes:
    """Made-up constants whose results can be followed by hand."""
    rx = struct.pack(">5f", 0.0, 0.0, 0.001, 2.0, 10.0)  # 0.001 raw^2 + 2 raw + 10
    linear = (
        struct.pack(">Hh", 0x0180, -100)  # bias: 1.5 raw - 100
        + struct.pack(">Hh", 0x0080, 0)  # Tx power: 0.5 raw
        + struct.pack(">Hh", 0x0100, 256)  # temperature: raw + 256, that is 1 degC more
        + struct.pack(">Hh", 0x0101, -5)  # supply: (1 + 1/256) raw - 5
    )
    return bytes(56) + rx + linear + bytes(4)


@pytest.mark.parametrize(
    ("monitor", "raw", "value"),
    [
        ("tx_bias", 40000, (60000 - 100) * 2e-3),
        ("temperature", -512, -1.0),
        ("supply", 25600, (25600 + 100 - 5) * 1e-4),
        ("tx_power", 20000, 1e-3),
        ("rx_power", 1000, (1000 + 2000 + 10) * 1e-7),
    ],
)
def test_external_calibration_is_slope_and_offset_and_powers_of_the_received_count(
    monitor: str, raw: int, value: float
) -> None:
    calibration = DiagnosticCalibration.from_memory(CalibrationKind.EXTERNAL, external_constants())
    assert calibration.value(monitor, raw) == pytest.approx(value, rel=1e-6)
    internal = DiagnosticCalibration.from_memory(CalibrationKind.INTERNAL, external_constants())
    assert internal.value(monitor, raw) != pytest.approx(value, rel=1e-3)


def test_an_offset_that_makes_a_power_negative_is_under_range() -> None:
    memory = bytearray(external_constants())
    memory[72:76] = struct.pack(">f", -50.0)
    calibration = DiagnosticCalibration.from_memory(CalibrationKind.EXTERNAL, bytes(memory))
    assert calibration.power("rx_power", 1).state is RangeState.UNDER


@pytest.mark.parametrize("constant", [float("nan"), float("inf"), -float("inf")])
def test_constants_that_are_no_numbers_make_no_power(constant: float) -> None:
    memory = bytearray(external_constants())
    memory[56:60] = struct.pack(">f", constant)  # of the count to the fourth
    calibration = DiagnosticCalibration.from_memory(CalibrationKind.EXTERNAL, bytes(memory))
    power = calibration.power("rx_power", 1000)
    assert (power.state, power.power_dbm) == (RangeState.INVALID, None)
    assert calibration.thresholds("rx_power", bytes(memory)).high_alarm is None


@pytest.mark.parametrize(
    ("monitor", "raw", "plausible"),
    [  # SFF-8472 clause 9.3: -128 to +128 degC, 0 to 6.55 V, 0 to 131 mA, 0 to 6.5 mW, externally calibrated, too
        pytest.param("rx_power", 65_435, True, id="65535 counts are 6.5535 mW"),
        pytest.param("rx_power", 65_436, False, id="one count more"),
        pytest.param("tx_bias", 65_535, True, id="32767.5 - 100 counts"),
        pytest.param("temperature", 16_383, True, id="32766 counts are 127.99 degC"),
        pytest.param("temperature", 16_384, False, id="32768 counts are 128 degC"),
        pytest.param("temperature", -16_384, True, id="-32768 counts are -128 degC"),
        pytest.param("temperature", -16_385, False, id="two counts less"),
        pytest.param("supply", 32_767, True, id="65534 counts are 6.5534 V"),
        pytest.param("supply", 32_768, False, id="65536 counts"),
        pytest.param("tx_bias", 100, True, id="-50 counts: the offset of a dark laser"),
    ],
)
def test_what_a_calibrated_monitor_can_be(monitor: str, raw: int, plausible: bool) -> None:
    constants = bytearray(IDENTITY_CONSTANTS)
    constants[72:76] = struct.pack(">f", 100.0)  # received power: raw + 100
    constants[76:80] = struct.pack(">Hh", 0x0080, -100)  # bias: 0.5 raw - 100
    constants[84:86] = struct.pack(">H", 0x0200)  # temperature: 2 raw
    constants[88:90] = struct.pack(">H", 0x0200)  # supply: 2 raw
    calibration = DiagnosticCalibration.from_memory(CalibrationKind.EXTERNAL, bytes(constants))
    assert calibration.is_plausible(monitor, raw) is plausible


def test_an_absurd_constant_makes_no_power() -> None:
    """5 counts^-1 x 1000^2 counts are 5e6 counts of 0.1 uW: 500 mW, 27 dBm."""
    memory = bytearray(external_constants())
    memory[64:68] = struct.pack(">f", 5.0)
    memory[32:40] = struct.pack(">4H", 1000, 10, 900, 20)
    calibration = DiagnosticCalibration.from_memory(CalibrationKind.EXTERNAL, bytes(memory))
    assert calibration.power("rx_power", 1000).state is RangeState.INVALID
    thresholds = calibration.thresholds("rx_power", bytes(memory))
    assert (thresholds.high_alarm, thresholds.high_warning) == (None, None)
    assert thresholds.low_warning is not None
    words = implausibility_text("rx_power", calibration.value("rx_power", 1000))
    assert words.startswith("500.2 mW (27.0 dBm), outside the SFF-8472 range 0 to 6.5535 mW (8.16 dBm)")


def test_thresholds_are_calibrated_like_their_monitor() -> None:
    memory = bytearray(external_constants())
    memory[0:8] = struct.pack(">4h", 75 * 256, -10 * 256, 70 * 256, -5 * 256)
    memory[24:32] = struct.pack(">4H", 20000, 0, 2000, 200)
    calibration = DiagnosticCalibration.from_memory(CalibrationKind.EXTERNAL, bytes(memory))
    temperature = calibration.thresholds("temperature", bytes(memory))
    assert (temperature.high_alarm, temperature.low_alarm) == (76.0, -9.0)
    power = calibration.thresholds("tx_power", bytes(memory))
    assert power.high_alarm == pytest.approx(0.0)
    assert power.low_alarm is None
    assert power.high_warning == pytest.approx(-10.0)
    assert power.low_warning == pytest.approx(-20.0)


@pytest.mark.parametrize(
    ("internal", "external", "kind"),
    [
        (True, False, CalibrationKind.INTERNAL),
        (False, True, CalibrationKind.EXTERNAL),
        (True, True, CalibrationKind.INCONSISTENT),
        (False, False, CalibrationKind.INCONSISTENT),
    ],
)
def test_the_two_calibration_bits(internal: bool, external: bool, kind: CalibrationKind) -> None:
    assert calibration_kind(internal=internal, external=external) is kind


def test_inconsistent_bits_mean_internal_calibration() -> None:
    calibration = DiagnosticCalibration.from_memory(CalibrationKind.INCONSISTENT, external_constants())
    assert calibration.value("tx_power", 20000) == pytest.approx(2e-3)
