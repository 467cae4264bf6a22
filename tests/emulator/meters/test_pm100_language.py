"""The PM100 family's commands, byte by byte (PM100D manual)."""

from __future__ import annotations

import pytest

from lumion_hw.emulator.meters.thorlabs_pm_sensor import ES111C, PHOTODIODE_ADAPTER, S405C
from lumion_hw.emulator.optics.light import Light
from lumion_hw.emulator.wires.device import EmulatedDevice
from lumion_hw.errors import ConfigError
from tests.emulator.meters.pm100_testbench import Bench


@pytest.fixture
def bench():
    return Bench()


def test_it_is_an_emulated_device_of_a_known_model(bench):
    device: EmulatedDevice = bench.meter
    assert device.name == "pm0"
    with pytest.raises(ConfigError, match="PM999"):
        Bench(model="PM999")


def test_identity_and_sensor(bench):
    assert bench.ask("*IDN?") == "Thorlabs,PM100D,P0000001,2.4.0"
    assert bench.ask("*TST?") == "0"
    assert bench.ask("SYST:SENS:IDN?") == "S154C,000000001,01-Jan-2025,1,2,33"
    bench.meter.plug(S405C)
    assert bench.ask("SYST:SENS:IDN?").endswith(",2,18,353")  # 1 power, 32 wavelength, 64 tau, 256 temperature
    bench.meter.plug(None)
    assert bench.ask("SYST:SENS:IDN?").split(",")[0] == "no sensor"
    assert bench.ask("SYST:SENS:IDN?").count(",") == 5


def test_wavelength_is_in_nanometres_and_out_of_range_is_not_applied(bench):
    bench.ask("sens:correction:WAV 1310")
    assert bench.ask("SENS:CORR:WAVelength?") == "1.31000000E+03"
    bench.ask("CORR:WAV 5000")
    bench.ask("CORR:WAV 1.31E-6")
    assert bench.ask("CORR:WAV?;WAV? MIN;WAV? MAX;WAV? DEF") == (
        "1.31000000E+03;8.00000000E+02;1.70000000E+03;1.55000000E+03"
    )
    assert bench.host.errors() == [], "ignored without a word"
    bench.ask("CORR:WAV 1.55 UM")
    assert bench.ask("CORR:WAV?") == "1.55000000E+03"
    bench.ask("CORR:WAVE 1310")
    assert bench.host.errors() == [-113]


def test_spellings_of_the_manuals_introduction_are_a_choice():
    bench = Bench(lenient=True)
    bench.ask("CORR:WAVE 1310;:SENS:RANGE:AUTO ON;:STAT:AUXillary:ENAB 1")
    assert bench.ask("CORR:WAV?;:STAT:AUX:ENAB?") == "1.31000000E+03;1"
    assert bench.host.errors() == []


def test_error_queue_has_ten_places_and_the_makers_text(bench):
    for _ in range(15):
        bench.ask("FOO")
    replies = [bench.ask("SYST:ERR?") for _ in range(11)]
    assert replies[:9] == ['-113,"Undefined header"'] * 9
    assert replies[9:] == ['-350,"Error queue overflow"', '+0,"No error"']


@pytest.mark.parametrize(
    ("sensor", "known", "unknown"),
    [
        ("S154C", ("POW", "CURR", "PDEN", "FREQ", "TEMP", "RES"), ("VOLT", "ENER", "EDEN")),
        ("S405C", ("POW", "VOLT", "PDEN", "TEMP", "RES"), ("CURR", "ENER", "EDEN", "FREQ")),
        ("ES111C", ("ENER", "VOLT", "EDEN", "FREQ", "TEMP", "RES"), ("POW", "CURR", "PDEN")),
    ],
)
def test_what_a_sensor_cannot_measure_is_an_undefined_header(sensor, known, unknown):
    from lumion_hw.emulator.meters.thorlabs_pm_sensor import SENSORS

    bench = Bench(Light(1e-4, 1064.0, 10.0), sensor=SENSORS[sensor])
    for quantity in known:
        assert float(bench.ask(f"MEAS:{quantity}?")) is not None
        assert bench.ask("CONF?") == quantity
    assert bench.host.errors() == []
    for quantity in unknown:
        bench.ask("*CLS")
        assert bench.ask(f"MEAS:{quantity}?") is None
        assert bench.ask("*ESR?") == "32"
        assert bench.host.errors() == [-113]


def test_nothing_is_measured_without_a_sensor(bench):
    bench.meter.plug(None)
    for line in ("MEAS:POW?", "READ?", "FETC?", "CORR:WAV?", "POW:RANG 1", "CORR:COLL:ZERO"):
        assert bench.ask(line) is None
        assert bench.host.errors() == [-113]


def test_power_range_is_the_upper_limit_in_watts_and_follows_the_response(bench):
    """The amplifier's ranges are decades of current, 50 nA to 5 mA; at 1550 nm the response is 1.03 A/W."""
    assert float(bench.ask("POW:RANG? MAX")) == pytest.approx(5e-3 / 1.03)
    assert float(bench.ask("POW:RANG? MIN")) == pytest.approx(50e-9 / 1.03)
    bench.ask("POW:RANG 1E-5")
    assert float(bench.ask("POW:RANG?")) == pytest.approx(50e-6 / 1.03)
    assert bench.ask("POW:RANG:AUTO?") == "0"
    assert float(bench.ask("CURR:RANG?")) == pytest.approx(50e-6)
    bench.ask("POW:RANG 1")
    assert bench.host.errors() == [-222]
    bench.ask("CORR:WAV 1310")
    assert float(bench.ask("POW:RANG?")) == pytest.approx(50e-6 / 0.95)


def test_units_of_power(bench):
    watts = bench.power("MEAS:POW?")
    assert bench.ask("POW:UNIT?") == "W"
    bench.ask("POW:UNIT DBM")
    assert bench.ask("POW:UNIT?") == "DBM"
    assert bench.power("MEAS:POW?") == pytest.approx(-10.0, abs=0.2)
    assert 10 ** (bench.power("MEAS:POW?") / 10) * 1e-3 == pytest.approx(watts, rel=1e-3)
    bench.ask("POW:UNIT WATT")
    assert bench.host.errors() == [-224]


def test_relative_readings(bench):
    watts = bench.power("MEAS:POW?")
    bench.ask("POW:REF 2E-5;REF:STAT 1")
    assert bench.power("MEAS:POW?") == pytest.approx(watts - 2e-5, rel=1e-3)
    bench.ask("POW:UNIT DBM")
    assert bench.power("MEAS:POW?") == pytest.approx(7.0, abs=0.2)  # 100 µW over 20 µW


def test_attenuation_and_beam_diameter_act_on_the_reading(bench):
    watts = bench.power("MEAS:POW?")
    bench.ask("CORR:LOSS:INP:MAGN 3")
    assert bench.power("MEAS:POW?") == pytest.approx(watts * 10**0.3, rel=1e-3)
    bench.ask("CORR 0;:CORR:BEAM 2")
    assert bench.power("MEAS:PDEN?") == pytest.approx(watts / (3.14159265 * 0.1**2), rel=1e-3)


def test_response_can_be_set_only_for_a_sensor_without_memory(bench):
    assert float(bench.ask("CORR:POW:PDI:RESP?")) == pytest.approx(1.03)
    bench.ask("CORR:POW 0.5")
    assert bench.host.errors() == [-222], "its limits are its response"
    bench.meter.plug(PHOTODIODE_ADAPTER)
    current = float(bench.ask("MEAS:CURR?"))
    bench.ask("CORR:POW 0.5")
    assert bench.power("MEAS:POW?") == pytest.approx(current / 0.5, rel=1e-3)


def test_measurement_ready_is_bit_nine_of_operation(bench):
    """Wait like public drivers: PTR 512, clear, INIT, poll, FETCh."""
    bench.ask("*CLS;STAT:OPER:PTR 512;NTR 0;:AVER 100")
    bench.ask("ABOR;:STAT:OPER?;:INIT")
    assert bench.ask("STAT:OPER?;OPER:COND?") == "0;16"
    bench.clock.sleep(0.5)
    assert bench.ask("STAT:OPER?") == "512"
    assert float(bench.ask("FETC?")) == pytest.approx(1e-4, rel=0.05)
    assert bench.ask("STAT:OPER?") == "0"


def test_second_initiate_is_ignored_and_abort_ends_the_first(bench):
    bench.ask("*CLS;AVER 100;:INIT;*OPC;:INIT")
    assert bench.host.errors() == [-213]
    bench.ask("ABOR")
    assert bench.ask("*ESR?;:STAT:OPER:COND?") == "17;0"
    bench.ask("INIT;*OPC")
    assert bench.ask("*RST;*OPC?;:STAT:OPER:COND?") == "1;0"


def test_extra_groups_are_summarised_in_the_status_byte(bench):
    bench.ask("*CLS;STAT:MEAS:ENAB 8;:STAT:AUX:ENAB 4")
    bench.meter.measurement.condition = 8
    assert bench.ask("*STB?") == "2"
    bench.meter.auxiliary.condition = 4
    assert bench.ask("*STB?") == "3"
    assert bench.ask("STAT:MEAS?;:STAT:AUX:EVEN?;*STB?") == "8;4;16"  # 16: replies are waiting


def test_console_settings(bench):
    bench.ask("DISP:BRIG 0.5;CONT 0.25;:SYST:BEEP:STAT 1;:SYST:LFR 60;DATE 2026,2,3;TIME 4,5,6")
    bench.ask("SYST:BEEP;BEEP:IMM;:INP:ADAP THER")
    assert bench.ask("DISP:BRIG?;CONT?") == "5.00000000E-01;2.50000000E-01"
    assert bench.ask("SYST:BEEP:STAT?;:SYST:LFR?;DATE?;TIME?;VERS?") == "1;60;2026,2,3;4,5,6;1999.0"
    assert bench.ask("INP:ADAP:TYPE?;:CAL:STR?") == 'THER;"01-Jan-2025"'
    bench.ask("SYST:LFR 55")
    assert bench.host.errors() == [-224]
    other = Bench(model="PM400")
    other.ask("DISP:CONT 0.1")
    assert other.host.errors() == [-113]


def test_settings_of_other_sensors():
    bench = Bench(Light(1e-4, 1064.0, 10.0), sensor=ES111C)
    bench.ask("PEAK:THR 30")
    assert bench.ask("PEAK:THR?;THR? DEF") == "3.00000000E+01;2.00000000E+01"
    bench.ask("INP:FILT 1")
    assert bench.host.errors() == [-113]
    bench.meter.plug(S405C)
    bench.ask("INP:THER:ACC 1;ACC:TAU 1.2S")
    assert bench.ask("INP:THER:ACC?;ACC:TAU?") == "1;1.20000000E+00"
    assert bench.host.errors() == []


def test_reset_restores_settings_and_keeps_the_sensor(bench):
    bench.ask("CORR:WAV 1310;:AVER 7;:POW:UNIT DBM;REF:STAT 1;:INP:FILT 1;:CONF:CURR;*RST")
    assert bench.ask("CORR:WAV?;:AVER?;:POW:UNIT?;REF:STAT?;:INP:FILT?;:CONF?") == "1.55000000E+03;1;W;0;0;POW"
    assert bench.ask("SYST:SENS:IDN?").startswith("S154C")
