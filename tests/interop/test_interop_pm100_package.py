"""The package `ThorlabsPM100`, unmodified, over TCP and over a pty: every property it documents, on three sensors.

Its tree is walked, so nothing can be forgotten: a property either agrees with the emulator's truth, or the console
refuses it with -113 because the sensor cannot, or because the package spells it in a way that the manuals do not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lumion_hw.clock import SystemClock
from lumion_hw.emulator.meters.thorlabs_pm import ThorlabsPm100
from lumion_hw.emulator.meters.thorlabs_pm_sensor import ES111C, PHOTODIODE_ADAPTER, S154C, S405C
from lumion_hw.emulator.optics.light import Light
from lumion_hw.emulator.wires.server import EmulatorServer
from tests.waiting import PATIENCE_S, until

# The package itself leaves its class out wherever setuptools has been imported before it, as other clients do.
client_module = pytest.importorskip(
    "ThorlabsPM100.ThorlabsPM100", reason="needs the package ThorlabsPM100: pip install 'lumion-hw[test]'"
)

MISSPELT = {
    "status.questionable.preset": "STATus:PRESet",
    "sense.power.dc.reference.value": "POWer[:DC]:REFerence",
    "sense.current.dc.reference.value": "CURRent[:DC]:REFerence",
    "sense.energy.reference.value": "ENERgy:REFerence",
    "sense.voltage.dc.state": "VOLTage[:DC]:REFerence:STATe",
    **{
        f"status.auxillary.{leaf}": "STATus:AUXiliary"
        for leaf in ("enable", "event", "condition", "ptransition", "ntransition")
    },
}
"""What the package asks for in a spelling of its own, and the documented headers."""

ALWAYS = {
    "read": None,
    "fetch": None,
    "calibration.string": '"01-Jan-2025"',
    "system.error.next": '+0,"No error"',
    "system.version": 1999.0,
    "system.lfrequency": 50,
    "system.beeper.state": 0,
    "system.date": "2025,1,1",
    "system.time": "0,0,0",
    "display.brightness": 1.0,
    "display.contrast": 0.5,
    "sense.average.count": 1,
    "sense.correction.beamdiameter": 9.5,
    "sense.correction.minimum_beamdiameter": 0.1,
    "sense.correction.maximum_beamdiameter": 100.0,
    "sense.correction.default_beamdiameter": 9.5,
    "sense.correction.loss.input.magnitude": 0.0,
    "sense.correction.loss.input.minimum_magnitude": -60.0,
    "sense.correction.loss.input.maximum_magnitude": 60.0,
    "sense.correction.loss.input.default_magnitude": 0.0,
    "sense.correction.collect.zero.state": 0,
    "sense.correction.collect.zero.magnitude": 0.0,
    "sense.power.dc.unit": "W",
    "sense.frequency.range.upper": 100e3,
    "sense.frequency.range.lower": 1.0,
    **{
        f"status.{group}.{leaf}": value
        for group in ("questionable", "operation", "measurement", "auxillary")
        for leaf, value in (("enable", 0), ("ptransition", 32767), ("ntransition", 0), ("event", 0), ("condition", 0))
    },
}
"""Expected values of a console that was just switched on, whatever the sensor; ``None`` is compared elsewhere."""


def of_range(prefix: str, low: float, high: float, automatic: bool) -> dict[str, object]:
    expected: dict[str, object] = {
        f"{prefix}.range.upper": high,
        f"{prefix}.range.minimum_upper": low,
        f"{prefix}.range.maximum_upper": high,
        f"{prefix}.reference.state": 0,
        f"{prefix}.reference.value": 0.0,
        f"{prefix}.default_reference": 0.0,
        f"{prefix}.minimum_reference": 0.0,
        f"{prefix}.maximum_reference": high,
    }
    return expected | ({f"{prefix}.range.auto": 1} if automatic else {})


def of_response(prefix: str, value: float, low: float, high: float, default: float) -> dict[str, object]:
    names = ("response", "minimum_response", "maximum_response", "default_response")
    return {f"{prefix}.{name}": number for name, number in zip(names, (value, low, high, default), strict=True)}


def of_wavelength(sensor) -> dict[str, object]:
    low, high = sensor.limits_nm
    return {
        "sense.correction.wavelength": sensor.default_nm,
        "sense.correction.minimum_wavelength": low,
        "sense.correction.maximum_wavelength": high,
    }


VOLTAGE = {"sense.voltage.dc.reference": 0.0, "sense.voltage.dc.state": 0}
EXPECTED = {
    "S154C": {
        **of_wavelength(S154C),
        "getconfigure": "POW",
        "system.sensor.idn": "S154C,000000001,01-Jan-2025,1,2,33",
        **of_range("sense.power.dc", 50e-9 / 1.03, 5e-3 / 1.03, True),
        **of_range("sense.current.dc", 50e-9, 5e-3, True),
        **of_response("sense.correction.power.pdiode", 1.03, 1.03, 1.03, 1.03),
        "input.pdiode.filter.lpass.state": 0,
    },
    "Adapter": {
        **of_wavelength(PHOTODIODE_ADAPTER),
        "getconfigure": "POW",
        "system.sensor.idn": "Adapter,000000001,01-Jan-2025,1,1,17",
        **of_range("sense.power.dc", 50e-9, 5e-3, True),
        **of_range("sense.current.dc", 50e-9, 5e-3, True),
        **of_response("sense.correction.power.pdiode", 1.0, 1e-3, 1e3, 1.0),
        "input.pdiode.filter.lpass.state": 0,
    },
    "S405C": {
        **of_wavelength(S405C),
        "getconfigure": "POW",
        "system.sensor.idn": "S405C,000000001,01-Jan-2025,2,18,353",
        **of_range("sense.power.dc", 1.6e-2, 10.0, True),
        **{key: value for key, value in of_range("sense.voltage.dc", 1.6e-3, 1.0, True).items() if "ce." not in key},
        **VOLTAGE,
        "input.thermopile.accelerator.state": 0,
        "input.thermopile.accelerator.tau": 1.0,
        "input.thermopile.accelerator.minimum_tau": 0.1,
        "input.thermopile.accelerator.maximum_tau": 10.0,
        "input.thermopile.accelerator.default_tau": 1.0,
    },
    "ES111C": {
        **of_wavelength(ES111C),
        "getconfigure": "ENER",
        "system.sensor.idn": "ES111C,000000001,01-Jan-2025,3,2,34",
        **of_range("sense.energy", 1.5e-3, 0.15, False),
        **{key: value for key, value in of_range("sense.voltage.dc", 0.15, 15.0, True).items() if "ce." not in key},
        **VOLTAGE,
        "sense.voltage.dc.range.auto": 0,
        **of_response("sense.correction.energy.pyro", 100.0, 100.0, 100.0, 100.0),
        "sense.peakdetector.threshold": 20.0,
        "sense.peakdetector.minimum_threshold": 1.0,
        "sense.peakdetector.maximum_threshold": 90.0,
        "sense.peakdetector.default_threshold": 20.0,
    },
}
SENSORS = {sensor.name: sensor for sensor in (S154C, PHOTODIODE_ADAPTER, S405C, ES111C)}
LIGHT = {
    "S154C": Light(1e-4),
    "Adapter": Light(1e-4),
    "S405C": Light(1.0, 1064.0),
    "ES111C": Light(1e-3, 1064.0, 10.0),
}
WRITES: dict[str, dict[str, object]] = {
    "S154C": {
        "sense.correction.wavelength": 1310.0,
        "sense.average.count": 10,
        "sense.correction.beamdiameter": 2.5,
        "sense.correction.loss.input.magnitude": 1.5,
        "sense.power.dc.range.auto": ("OFF", 0),
        "sense.power.dc.unit": "DBM",
        "sense.power.dc.reference.state": ("ON", 1),
        "sense.power.dc.reference.value": 1e-5,
        "sense.current.dc.range.upper": 5e-5,
        "sense.current.dc.reference.state": ("ON", 1),
        "sense.current.dc.reference.value": 1e-5,
        "input.pdiode.filter.lpass.state": ("ON", 1),
        "system.beeper.state": ("ON", 1),
        "system.lfrequency": 60,
        "display.brightness": 0.5,
        "display.contrast": 0.25,
        "status.operation.enable": 512,
        "status.operation.ptransition": 512,
        "status.operation.ntransition": 16,
        "status.questionable.enable": 8,
        "status.measurement.enable": 4,
        "status.auxillary.enable": 2,
    },
    "Adapter": {"sense.correction.power.pdiode.response": 0.5},
    "S405C": {
        "input.thermopile.accelerator.state": ("ON", 1),
        "input.thermopile.accelerator.tau": 1.5,
        "sense.voltage.dc.range.auto": ("OFF", 0),
        "sense.voltage.dc.reference": 1e-3,
        "sense.voltage.dc.state": ("ON", 1),
    },
    "ES111C": {
        "sense.peakdetector.threshold": 35.0,
        "sense.energy.range.upper": 1.5e-2,
        "sense.energy.reference.state": ("ON", 1),
        "sense.energy.reference.value": 1e-4,
    },
}


@pytest.fixture(params=["tcp", pytest.param("pty", marks=pytest.mark.long)])
def serve(request, tmp_path):
    """Return a function that serves a meter and gives its opened VISA resource."""
    import pyvisa

    if request.param == "pty" and sys.platform == "win32":
        pytest.skip("no pseudo-terminals on Windows")
    opened = []
    with EmulatorServer(SystemClock()) as server, server.in_thread():

        def dial(meter: ThorlabsPm100):
            if request.param == "tcp":
                name = f"TCPIP::127.0.0.1::{server.add_tcp(meter).rpartition(':')[2]}::SOCKET"
            else:
                path = Path(server.add_pty(meter, tmp_path / "pm0").removeprefix("serial://"))
                until(path.exists)
                name = f"ASRL{path}::INSTR"
            resource = pyvisa.ResourceManager("@py").open_resource(
                name, read_termination="\n", write_termination="\n", timeout=1e3 * PATIENCE_S
            )
            opened.append(resource)
            return resource

        yield dial
        for resource in opened:
            resource.close()


class Bench:
    """The package's object on an emulated console."""

    def __init__(self, serve, sensor: str, *, lenient: bool) -> None:
        self.meter = ThorlabsPm100(
            "pm0",
            SystemClock(),
            np.random.default_rng(4),
            lambda: LIGHT[sensor],
            sensor=SENSORS[sensor],
            lenient=lenient,
        )
        self.wire = serve(self.meter)
        self.client = client_module.ThorlabsPM100(inst=self.wire)

    def group(self, path: str):
        found = self.client
        for name in path.split(".")[:-1]:
            found = getattr(found, name)
        return found

    def get(self, path: str) -> object:
        value = getattr(self.group(path), path.rpartition(".")[2])
        return value.strip() if isinstance(value, str) else value

    def put(self, path: str, value: object) -> None:
        setattr(self.group(path), path.rpartition(".")[2], value)

    def errors(self) -> list[int]:
        codes = []
        while (code := int(self.wire.query("SYST:ERR?").split(",")[0])) != 0:
            codes.append(code)
        return codes


def members(group, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Walk the package's documented tree: properties and methods by their path."""
    for name in group._property_list:
        yield prefix + name, getattr(group, name)
    for name in group._subgroups:
        yield from members(getattr(group, name), f"{prefix}{name}.")


TREE = dict(members(client_module.ThorlabsPM100))
READABLE = [path for path, member in TREE.items() if isinstance(member, property) and path != "input.adapter.type"]
METHODS = [path for path, member in TREE.items() if not isinstance(member, property)]
COMMANDS = {path: TREE[path].__doc__.rpartition("command :** ")[2].strip() for path in READABLE}


def as_query(path: str) -> str:
    header, _, argument = COMMANDS[path].partition(" ")
    return f"{header}? {argument}".rstrip()


@pytest.mark.parametrize("sensor", EXPECTED)
def test_every_property_agrees_with_the_console_or_is_refused_because_the_sensor_cannot(serve, sensor):
    bench = Bench(serve, sensor, lenient=True)
    expected = ALWAYS | EXPECTED[sensor]
    assert set(expected) <= set(READABLE)
    for path in READABLE:
        if path in expected:
            value = bench.get(path)
            if isinstance(expected[path], float):
                assert value == pytest.approx(expected[path], rel=1e-8), path
            elif expected[path] is not None:
                assert value == expected[path], path
            assert bench.errors() == [], path
            if path in ("read", "fetch"):
                bench.wire.write("*RST")
        else:
            bench.wire.write(as_query(path))
            assert bench.wire.query("*OPC?") == "1", path
            assert bench.errors() == [-113], path


@pytest.mark.parametrize("sensor", WRITES)
def test_every_writable_property_is_applied(serve, sensor):
    bench = Bench(serve, sensor, lenient=True)
    for path, value in WRITES[sensor].items():
        sent, seen = value if isinstance(value, tuple) else (value, value)
        bench.put(path, sent)
        assert bench.get(path) == pytest.approx(seen) if isinstance(seen, float) else bench.get(path) == seen, path
        assert bench.errors() == [], path
    bench.put("input.adapter.type", "THERmal")
    assert bench.errors() == []
    assert bench.meter.adapter == "THERmal"


def test_readings_are_the_light(serve):
    bench = Bench(serve, "S154C", lenient=False)
    assert bench.get("read") == pytest.approx(1e-4, rel=0.035)
    assert bench.get("fetch") == pytest.approx(float(bench.meter.fetch()))
    bench.client.configure.scalar.current.dc()
    assert bench.get("getconfigure") == "CURR"
    assert bench.get("read") == pytest.approx(1.03e-4, rel=0.035)
    bench.client.configure.scalar.power()
    bench.client.initiate.immediate()
    assert bench.wire.query("*OPC?") == "1"
    assert bench.get("fetch") == pytest.approx(1e-4, rel=0.035)
    bench.put("sense.power.dc.unit", "DBM")
    assert bench.get("read") == pytest.approx(-10.0, abs=0.16)
    assert bench.errors() == []


def test_out_of_range_wavelength_is_silently_not_applied(serve):
    """The behaviour that the package's issue 13 reports."""
    bench = Bench(serve, "S154C", lenient=False)
    bench.put("sense.correction.wavelength", 5000.0)
    assert bench.get("sense.correction.wavelength") == 1550.0
    assert bench.errors() == []


def test_zeroing_in_the_light_fails(serve):
    bench = Bench(serve, "S154C", lenient=False)
    bench.client.sense.correction.collect.zero.initiate()
    assert bench.get("sense.correction.collect.zero.state") == 1
    bench.client.sense.correction.collect.zero.abort()
    assert bench.get("sense.correction.collect.zero.state") == 0
    assert bench.errors() == []


def test_every_method_is_accepted_or_refused_for_a_reason(serve):
    """`measure.scalar.*()` sends the header without its question mark: there is no such command."""
    bench = Bench(serve, "S154C", lenient=True)
    refused = {"voltage.dc", "energy", "edensity"}
    in_the_light = "sense.correction.collect.zero.initiate"
    for path in METHODS:
        getattr(bench.group(path), path.rpartition(".")[2])()
        assert bench.wire.query("*OPC?") == "1"
        what = path.partition("scalar.")[2]
        expected = [-113] if path.startswith("measure.") or what in refused else []
        assert bench.errors() == ([-200] if path == in_the_light else expected), path


def test_spellings_that_the_manuals_do_not_have_are_refused_by_default(serve):
    bench = Bench(serve, "S405C", lenient=False)
    for path in MISSPELT:
        bench.wire.write(as_query(path) if path in COMMANDS else "Status:Questionable:PRESet")
        assert bench.wire.query("*OPC?") == "1"
        assert bench.errors() == [-113], path
